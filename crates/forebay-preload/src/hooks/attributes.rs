//! Functions that change an object or ask about its file system, on an `O_PATH` grant.

use core::ffi::{c_int, c_long, c_uint, c_void};

use forebay_hook::hooks;
use forebay_wire::{FOR_WRITE, NOFOLLOW};
use libc::{AT_EMPTY_PATH, AT_FDCWD, AT_SYMLINK_NOFOLLOW, timespec, timeval};

use super::{Path, is_kind, on_object, outcome};
use crate::locate::{self, Scratch, failed, route};
use crate::requests;
use forebay_hook::kernel::call;
use forebay_link::{Answer, Fail, ask_where_it_is};

const NOTHING: Path = c"".as_ptr();

fn resolve_flags(flags: c_int) -> u32 {
    if flags & AT_SYMLINK_NOFOLLOW != 0 {
        NOFOLLOW
    } else {
        0
    }
}

/// # Safety
/// `path` and `times` as for `utimensat`.
unsafe fn set_times(
    dirfd: c_int,
    path: Path,
    times: *const timespec,
    flags: c_int,
    native: impl Fn(c_int, Path) -> c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        on_object(dirfd, path, resolve_flags(flags), native, |_, p| {
            outcome(call!(libc::SYS_utimensat, AT_FDCWD, p, times, 0))
        })
    }
}

/// # Safety
/// `times` is null or points to two.
unsafe fn from_timeval(
    times: *const timeval,
    out: &mut [timespec; 2],
) -> Result<*const timespec, c_int> {
    if times.is_null() {
        return Ok(core::ptr::null());
    }
    for (i, to) in out.iter_mut().enumerate() {
        // SAFETY: the caller's promise.
        let from = unsafe { *times.add(i) };
        if !(0..1_000_000).contains(&from.tv_usec) {
            return Err(libc::EINVAL);
        }
        *to = timespec {
            tv_sec: from.tv_sec,
            tv_nsec: from.tv_usec * 1000,
        };
    }
    Ok(out.as_ptr())
}

const NO_TIME: timespec = timespec {
    tv_sec: 0,
    tv_nsec: 0,
};

hooks! {
    fn truncate | truncate64 [real] (path: Path, length: i64) -> c_int {
        on_object(AT_FDCWD, path, FOR_WRITE, |_, p| real(p, length), |_, p| real(p, length))
    }

    fn chmod [real] (path: Path, mode: c_uint) -> c_int {
        on_object(AT_FDCWD, path, 0, |_, p| real(p, mode), |_, p| real(p, mode))
    }

    fn lchmod [real] (path: Path, mode: c_uint) -> c_int {
        route(AT_FDCWD, path, |_, p| real(p, mode), |t, a| chmod_link(t, mode, a))
    }

    fn fchmodat [real] (dirfd: c_int, path: Path, mode: c_uint, flags: c_int) -> c_int {
        route(dirfd, path, |d, p| real(d, p, mode, flags), |t, a| {
            if flags & !AT_SYMLINK_NOFOLLOW != 0 {
                return Err(libc::EINVAL.into());
            }
            if flags != 0 {
                return chmod_link(t, mode, a);
            }
            let fd = requests::resolve(t, 0, a)?;
            Ok(outcome(call!(libc::SYS_fchmodat, AT_FDCWD, forebay_hook::kernel::FdPath::new(fd.0).as_ptr(), mode)))
        })
    }

    fn chown [real] (path: Path, uid: c_uint, gid: c_uint) -> c_int {
        on_object(AT_FDCWD, path, 0, |_, p| real(p, uid, gid), |_, p| real(p, uid, gid))
    }

    fn lchown [real] (path: Path, uid: c_uint, gid: c_uint) -> c_int {
        on_object(AT_FDCWD, path, NOFOLLOW, |_, p| real(p, uid, gid), |fd, _| {
            outcome(call!(libc::SYS_fchownat, fd, NOTHING, uid, gid, AT_EMPTY_PATH))
        })
    }

    fn fchownat [real] (dirfd: c_int, path: Path, uid: c_uint, gid: c_uint, flags: c_int) -> c_int {
        on_object(dirfd, path, resolve_flags(flags), |d, p| real(d, p, uid, gid, flags), |fd, _| {
            if flags & !(AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) != 0 {
                return failed(libc::EINVAL);
            }
            outcome(call!(libc::SYS_fchownat, fd, NOTHING, uid, gid, AT_EMPTY_PATH))
        })
    }

    fn utime [real] (path: Path, times: *const libc::utimbuf) -> c_int {
        on_object(AT_FDCWD, path, 0, |_, p| real(p, times), |_, p| real(p, times))
    }

    fn utimes [real] (path: Path, times: *const timeval) -> c_int {
        on_object(AT_FDCWD, path, 0, |_, p| real(p, times), |_, p| real(p, times))
    }

    fn lutimes [real] (path: Path, times: *const timeval) -> c_int {
        let mut room = [NO_TIME; 2];
        match from_timeval(times, &mut room) {
            Ok(spec) => set_times(AT_FDCWD, path, spec, AT_SYMLINK_NOFOLLOW, |_, p| real(p, times)),
            Err(e) => failed(e),
        }
    }

    fn futimesat [real] (dirfd: c_int, path: Path, times: *const timeval) -> c_int {
        if path.is_null() {
            write_pending_time(dirfd);
            return real(dirfd, path, times);
        }
        let mut room = [NO_TIME; 2];
        match from_timeval(times, &mut room) {
            Ok(spec) => set_times(dirfd, path, spec, 0, |d, p| real(d, p, times)),
            Err(e) => failed(e),
        }
    }

    fn futimens [real] (fd: c_int, times: *const timespec) -> c_int {
        write_pending_time(fd);
        real(fd, times)
    }

    fn futimes [real] (fd: c_int, times: *const timeval) -> c_int {
        write_pending_time(fd);
        real(fd, times)
    }

    fn utimensat [real] (dirfd: c_int, path: Path, times: *const timespec, flags: c_int) -> c_int {
        if flags & !(AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) != 0 {
            return failed(libc::EINVAL);
        }
        if flags & AT_EMPTY_PATH != 0 {
            write_pending_time(dirfd);
        }
        set_times(dirfd, path, times, flags, |d, p| real(d, p, times, flags))
    }

    fn statfs | statfs64 | statvfs | statvfs64 [real] (path: Path, out: *mut c_void) -> c_int {
        on_object(AT_FDCWD, path, 0, |_, p| real(p, out), |_, p| real(p, out))
    }

    fn pathconf [real] (path: Path, name: c_int) -> c_long {
        on_object(AT_FDCWD, path, 0, |_, p| real(p, name), |_, p| real(p, name))
    }
}

/// Makes the bridge write the pending time of a directory: written later, it would replace the one that the caller sets.
pub fn write_pending_time(fd: c_int) {
    if locate::is_far(fd) || fd != AT_FDCWD && !is_kind(fd, libc::S_IFDIR) {
        return;
    }
    let (mut scratch, mut answer) = (Scratch::new(), Answer::new());
    // One that is gone has no times that anybody sees.
    let _ = ask_where_it_is(|| match locate::locate_fd(fd, &mut scratch) {
        Some(target) => requests::resolve(&target, 0, &mut answer).map(drop),
        None => Ok(()),
    });
}

/// The mode of a symbolic link can't be changed on Linux.
fn chmod_link(
    target: &crate::locate::Target<'_>,
    mode: c_uint,
    answer: &mut Answer,
) -> Result<c_int, Fail> {
    let attr = requests::stat(target, NOFOLLOW, answer)?;
    if attr.mode & libc::S_IFMT == libc::S_IFLNK {
        return Err(libc::EOPNOTSUPP.into());
    }
    let fd = requests::resolve(target, NOFOLLOW, answer)?;
    // SAFETY: a C string and an integer.
    Ok(outcome(unsafe {
        call!(
            libc::SYS_fchmodat,
            AT_FDCWD,
            forebay_hook::kernel::FdPath::new(fd.0).as_ptr(),
            mode
        )
    }))
}
