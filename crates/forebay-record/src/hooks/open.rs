//! `open` and its kin, and temporary files.

use core::ffi::{c_char, c_int, c_uint};

use forebay_hook::hooks;
use libc::{AT_FDCWD, O_CREAT, O_EXCL, O_RDWR, O_TRUNC, O_WRONLY};

use super::Path;
use crate::clock::now_ns;
use crate::opening::{self, Opening};
use crate::record_names::with_name;
use crate::state::recording;
use forebay_hook::kernel;

hooks! {
    fn open | open64 | __open | __open64 [real] (path: Path, flags: c_int, mode: c_uint) -> c_int {
        opening::open(AT_FDCWD, path, flags, mode, || real(path, flags, mode))
    }

    fn openat | openat64 [real] (dirfd: c_int, path: Path, flags: c_int, mode: c_uint) -> c_int {
        opening::open(dirfd, path, flags, mode, || real(dirfd, path, flags, mode))
    }

    fn __open_2 | __open64_2 [real] (path: Path, flags: c_int) -> c_int {
        opening::open(AT_FDCWD, path, flags, 0, || real(path, flags))
    }

    fn __openat_2 | __openat64_2 [real] (dirfd: c_int, path: Path, flags: c_int) -> c_int {
        opening::open(dirfd, path, flags, 0, || real(dirfd, path, flags))
    }

    fn creat | creat64 [real] (path: Path, mode: c_uint) -> c_int {
        opening::open(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode, || real(path, mode))
    }

    fn mkstemp | mkstemp64 [real] (template: *mut c_char) -> c_int {
        temporary(template, 0, || real(template))
    }

    fn mkostemp | mkostemp64 [real] (template: *mut c_char, flags: c_int) -> c_int {
        temporary(template, flags, || real(template, flags))
    }

    fn mkstemps | mkstemps64 [real] (template: *mut c_char, suffix: c_int) -> c_int {
        temporary(template, 0, || real(template, suffix))
    }

    fn mkostemps | mkostemps64 [real] (template: *mut c_char, suffix: c_int, flags: c_int) -> c_int {
        temporary(template, flags, || real(template, suffix, flags))
    }
}

/// Counts the open of a temporary file, whose name is known only afterwards.
unsafe fn temporary(template: *mut c_char, flags: c_int, call: impl FnOnce() -> c_int) -> c_int {
    let Some(recording) = recording() else {
        return call();
    };
    let start_ns = now_ns();
    let fd = call();
    if fd >= 0 {
        let errno = kernel::errno();
        let opening = Opening::new(
            fd,
            flags | O_CREAT | O_EXCL | O_RDWR,
            0o600,
            (start_ns, now_ns()),
        );
        // SAFETY: the template was filled in.
        unsafe {
            with_name(&recording, AT_FDCWD, template, |name| {
                opening::opened(&recording, name, &opening);
            })
        };
        kernel::set_errno(errno);
    }
    fd
}
