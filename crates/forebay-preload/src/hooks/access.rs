//! `access` and its relatives: the kernel judges the object itself.

use core::ffi::c_int;

use forebay_hook::hooks;
use forebay_wire::NOFOLLOW;
use libc::{AT_FDCWD, AT_SYMLINK_NOFOLLOW};

use super::{Path, on_object};

hooks! {
    fn access | euidaccess | eaccess [real] (path: Path, mode: c_int) -> c_int {
        on_object(AT_FDCWD, path, 0, |_, p| real(p, mode), |_, p| real(p, mode))
    }

    fn faccessat [real] (dirfd: c_int, path: Path, mode: c_int, flags: c_int) -> c_int {
        let nofollow = if flags & AT_SYMLINK_NOFOLLOW != 0 { NOFOLLOW } else { 0 };
        // In the buffer the path is /proc/self/fd/N, which is itself a link and must be followed.
        let inner = flags & !AT_SYMLINK_NOFOLLOW;
        on_object(dirfd, path, nofollow, |d, p| real(d, p, mode, flags), |_, p| real(AT_FDCWD, p, mode, inner))
    }
}
