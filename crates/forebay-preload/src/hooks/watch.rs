//! Functions by which the kernel remembers an object. They fail where they could not work in the buffer.

use core::ffi::{c_int, c_uint, c_void};

use forebay_hook::hooks;
use forebay_wire::NOFOLLOW;
use libc::AT_FDCWD;

use super::{Path, on_object};
use crate::locate::route;

hooks! {
    fn inotify_add_watch [real] (fd: c_int, path: Path, mask: c_uint) -> c_int {
        let nofollow = if mask & libc::IN_DONT_FOLLOW != 0 { NOFOLLOW } else { 0 };
        let act = |object: c_int, p| {
            // The kernel cannot report entries of such a directory, because only the bridge knows them.
            if super::is_kind(object, libc::S_IFDIR) {
                return crate::locate::failed(libc::EOPNOTSUPP);
            }
            real(fd, p, mask & !libc::IN_DONT_FOLLOW)
        };
        on_object(AT_FDCWD, path, nofollow, |_, p| real(fd, p, mask), act)
    }

    fn fanotify_mark [real] (fd: c_int, flags: c_uint, mask: u64, dirfd: c_int, path: Path) -> c_int {
        route(dirfd, path, |d, p| real(fd, flags, mask, d, p), |_, _| Err(libc::EOPNOTSUPP.into()))
    }

    fn name_to_handle_at [real] (dirfd: c_int, path: Path, handle: *mut c_void, mount: *mut c_int, flags: c_int) -> c_int {
        route(dirfd, path, |d, p| real(d, p, handle, mount, flags), |_, _| Err(libc::EOPNOTSUPP.into()))
    }

    fn ftok [real] (path: Path, id: c_int) -> c_int {
        let native = |_: c_int, p: Path| real(p, id);
        route(AT_FDCWD, path, native, |target, answer| {
            let attr = crate::bridge::stat(target, 0, answer)?;
            Ok((attr.ino & 0xffff | (attr.dev & 0xff) << 16) as c_int | id << 24)
        })
    }
}
