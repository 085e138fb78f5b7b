//! `stat` and its kin; also `access`, `chmod` and others that are counted per process.

use core::ffi::{c_char, c_int, c_uint, c_void};

use forebay_count::event::Extra;
use forebay_count::{Event, Op};
use forebay_hook::hooks;
use libc::{
    AT_EMPTY_PATH, AT_FDCWD, gid_t, mode_t, off_t, size_t, ssize_t, timespec, timeval, uid_t,
};

use super::{Path, Sink, Source};
use crate::count::{access_path, extra, on_fd, stat_path};
use forebay_hook::kernel;

/// A `struct stat` of any width.
type Stat = *mut c_void;

/// Calls `fstatat` through the chain of libraries.
///
/// # Safety
/// As `fstatat`.
pub unsafe fn stat_in_chain(dirfd: c_int, path: *const c_char, out: *mut libc::stat) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { fstatat::real()(dirfd, path, out.cast(), 0) }
}

hooks! {
    fn stat | stat64 | lstat | lstat64 [real] (path: Path, out: Stat) -> c_int {
        stat_path(AT_FDCWD, path, || real(path, out))
    }

    fn __xstat | __xstat64 | __lxstat | __lxstat64 [real] (version: c_int, path: Path, out: Stat) -> c_int {
        stat_path(AT_FDCWD, path, || real(version, path, out))
    }

    fn fstat | fstat64 [real] (fd: c_int, out: Stat) -> c_int {
        on_fd(fd, |_| Event::plain(Op::Stat, 0, 0), || real(fd, out))
    }

    fn __fxstat | __fxstat64 [real] (version: c_int, fd: c_int, out: Stat) -> c_int {
        on_fd(fd, |_| Event::plain(Op::Stat, 0, 0), || real(version, fd, out))
    }

    fn fstatat | fstatat64 [real] (dirfd: c_int, path: Path, out: Stat, flags: c_int) -> c_int {
        stat_at(dirfd, path, flags, || real(dirfd, path, out, flags))
    }

    fn __fxstatat | __fxstatat64 [real]
        (version: c_int, dirfd: c_int, path: Path, out: Stat, flags: c_int) -> c_int
    {
        stat_at(dirfd, path, flags, || real(version, dirfd, path, out, flags))
    }

    fn statx [real] (dirfd: c_int, path: Path, flags: c_int, mask: c_uint, out: *mut c_void) -> c_int {
        stat_at(dirfd, path, flags, || real(dirfd, path, flags, mask, out))
    }

    fn access | eaccess | euidaccess [real] (path: Path, mode: c_int) -> c_int {
        access_path(AT_FDCWD, path, || real(path, mode))
    }

    fn faccessat [real] (dirfd: c_int, path: Path, mode: c_int, flags: c_int) -> c_int {
        access_path(dirfd, path, || real(dirfd, path, mode, flags))
    }

    fn chmod [real] (path: Path, mode: mode_t) -> c_int {
        extra(Extra::Attributes, || real(path, mode))
    }

    fn fchmod [real] (fd: c_int, mode: mode_t) -> c_int {
        extra(Extra::Attributes, || real(fd, mode))
    }

    fn fchmodat [real] (dirfd: c_int, path: Path, mode: mode_t, flags: c_int) -> c_int {
        extra(Extra::Attributes, || real(dirfd, path, mode, flags))
    }

    fn chown | lchown [real] (path: Path, user: uid_t, group: gid_t) -> c_int {
        extra(Extra::Attributes, || real(path, user, group))
    }

    fn fchown [real] (fd: c_int, user: uid_t, group: gid_t) -> c_int {
        extra(Extra::Attributes, || real(fd, user, group))
    }

    fn fchownat [real] (dirfd: c_int, path: Path, user: uid_t, group: gid_t, flags: c_int) -> c_int {
        extra(Extra::Attributes, || real(dirfd, path, user, group, flags))
    }

    fn utime | utimes [real] (path: Path, times: *const timeval) -> c_int {
        extra(Extra::Attributes, || real(path, times))
    }

    fn utimensat [real] (dirfd: c_int, path: Path, times: *const timespec, flags: c_int) -> c_int {
        extra(Extra::Attributes, || real(dirfd, path, times, flags))
    }

    fn futimens [real] (fd: c_int, times: *const timespec) -> c_int {
        extra(Extra::Attributes, || real(fd, times))
    }

    fn truncate | truncate64 [real] (path: Path, n: off_t) -> c_int {
        extra(Extra::Truncate, || real(path, n))
    }

    fn getxattr | lgetxattr [real] (path: Path, name: Path, value: Sink, room: size_t) -> ssize_t {
        extra(Extra::Xattr, || real(path, name, value, room))
    }

    fn setxattr | lsetxattr [real] (path: Path, name: Path, value: Source, n: size_t, flags: c_int) -> c_int {
        extra(Extra::Xattr, || real(path, name, value, n, flags))
    }
}

/// Counts a `stat` of a path below a descriptor, or of the descriptor itself.
unsafe fn stat_at(dirfd: c_int, path: Path, flags: c_int, call: impl FnOnce() -> c_int) -> c_int {
    // SAFETY: a C string, unless the kernel would refuse it, too.
    let itself =
        flags & AT_EMPTY_PATH != 0 && (path.is_null() || unsafe { kernel::bytes(path) }.is_empty());
    if itself {
        return on_fd(dirfd, |_| Event::plain(Op::Stat, 0, 0), call);
    }
    // SAFETY: the caller's promise.
    unsafe { stat_path(dirfd, path, call) }
}
