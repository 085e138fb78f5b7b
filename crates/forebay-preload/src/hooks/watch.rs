//! Functions by which the kernel remembers an object. They fail where they could not work in the buffer.

use core::ffi::{c_int, c_uint, c_void};

use forebay_hook::hooks;
use forebay_wire::NOFOLLOW;
use libc::AT_FDCWD;

use super::{Path, on_object};
use crate::locate::{LEAST_ADDRESS, Scratch, Target, failed, is_in_buffer, locate_fd, route};
use crate::requests;
use forebay_link::{Answer, Fail};

/// True if the open object `dirfd`, or the working directory for `AT_FDCWD`, is in the buffer.
fn holds(dirfd: c_int) -> bool {
    match dirfd {
        AT_FDCWD => locate_fd(AT_FDCWD, &mut Scratch::new()).is_some(),
        fd => is_in_buffer(fd),
    }
}

/// What the kernel would remember is a backing object. The bridge is asked first, as the path may lead out of the buffer.
fn refused(target: &Target<'_>, nofollow: u32, answer: &mut Answer) -> Result<c_int, Fail> {
    requests::stat(target, nofollow, answer)?;
    Err(libc::EOPNOTSUPP.into())
}

hooks! {
    fn inotify_add_watch [real] (fd: c_int, path: Path, mask: c_uint) -> c_int {
        let nofollow = if mask & libc::IN_DONT_FOLLOW != 0 { NOFOLLOW } else { 0 };
        let act = |object: c_int, p| {
            // The kernel cannot report entries of such a directory, because only the bridge knows them.
            if super::is_kind(object, libc::S_IFDIR) {
                return failed(libc::EOPNOTSUPP);
            }
            real(fd, p, mask & !libc::IN_DONT_FOLLOW)
        };
        on_object(AT_FDCWD, path, nofollow, |_, p| real(fd, p, mask), act)
    }

    fn fanotify_mark [real] (fd: c_int, flags: c_uint, mask: u64, dirfd: c_int, path: Path) -> c_int {
        // Without a path it is about the descriptor.
        if path.is_null() && holds(dirfd) {
            return failed(libc::EOPNOTSUPP);
        }
        let nofollow = if flags & libc::FAN_MARK_DONT_FOLLOW != 0 { NOFOLLOW } else { 0 };
        route(dirfd, path, |d, p| real(fd, flags, mask, d, p), |t, a| refused(t, nofollow, a))
    }

    fn name_to_handle_at [real] (dirfd: c_int, path: Path, handle: *mut c_void, mount: *mut c_int, flags: c_int) -> c_int {
        let is_empty = || path.is_null() || path as isize >= LEAST_ADDRESS && *path == 0;
        if flags & libc::AT_EMPTY_PATH != 0 && is_empty() && holds(dirfd) {
            return failed(libc::EOPNOTSUPP);
        }
        let nofollow = if flags & libc::AT_SYMLINK_FOLLOW != 0 { 0 } else { NOFOLLOW };
        route(dirfd, path, |d, p| real(d, p, handle, mount, flags), |t, a| refused(t, nofollow, a))
    }

    fn ftok [real] (path: Path, id: c_int) -> c_int {
        let native = |_: c_int, p: Path| real(p, id);
        route(AT_FDCWD, path, native, |target, answer| {
            let attr = requests::stat(target, 0, answer)?;
            Ok((attr.ino & 0xffff | (attr.dev & 0xff) << 16) as c_int | id << 24)
        })
    }
}
