//! `stat` and its relatives.

use core::ffi::{c_int, c_uint, c_void};

use forebay_hook::hooks;
use forebay_wire::{Attr, NOFOLLOW, Timestamp};
use libc::{AT_EMPTY_PATH, AT_FDCWD, AT_NO_AUTOMOUNT, AT_SYMLINK_NOFOLLOW};

use super::{Path, devices, outcome};
use crate::locate::{LEAST_ADDRESS, is_alias, route};
use crate::requests;
use forebay_hook::kernel::{self, call};

/// Sync flags of `statx`.
const AT_STATX_SYNC_TYPE: c_int = 0x6000;
const AT_STATX_BOTH: c_int = 0x6000;
/// The version of `struct stat` that `__xstat` accepts on this platform, besides the kernel's version 0.
const STAT_VERSION: c_int = 1;

/// # Safety
/// `path` and `out` as for `fstatat`.
#[inline(always)]
unsafe fn stat_at(
    dirfd: c_int,
    path: Path,
    out: *mut libc::stat,
    flags: c_int,
    native: impl Fn(c_int, Path) -> c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        route(dirfd, path, &native, |target, answer| {
            if flags & AT_SYMLINK_NOFOLLOW != 0 && is_alias(kernel::bytes(path)) {
                return Ok(native(dirfd, path));
            }
            if flags & !(AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | AT_EMPTY_PATH) != 0 {
                return Err(libc::EINVAL.into());
            }
            let attr = requests::stat(target, wire_flags(flags), answer)?;
            if (out as isize) < LEAST_ADDRESS {
                return Err(libc::EFAULT.into());
            }
            fill(&mut *out, &attr);
            Ok(0)
        })
    }
}

/// Puts into `out` what the open file `fd` shows, after the kernel has filled it.
///
/// # Safety
/// `out` as for `fstat`.
unsafe fn with_shown(result: c_int, fd: c_int, out: *mut libc::stat) -> c_int {
    if result == 0 {
        // SAFETY: the kernel has just written there.
        let out = unsafe { &mut *out };
        let is_file = out.st_mode & libc::S_IFMT == libc::S_IFREG;
        if let Some(shown) = devices::shown_of_fd(fd, (out.st_dev, out.st_ino), is_file) {
            (out.st_dev, out.st_ino) = shown;
        }
    }
    result
}

/// The same for `statx`.
///
/// # Safety
/// `out` as for `statx`.
unsafe fn with_shown_x(result: c_int, fd: c_int, out: *mut libc::statx) -> c_int {
    if result == 0 {
        // SAFETY: the kernel has just written there.
        let out = unsafe { &mut *out };
        let device = libc::makedev(out.stx_dev_major, out.stx_dev_minor);
        let is_file = u32::from(out.stx_mode) & libc::S_IFMT == libc::S_IFREG;
        if let Some((device, ino)) = devices::shown_of_fd(fd, (device, out.stx_ino), is_file) {
            (out.stx_dev_major, out.stx_dev_minor) = (libc::major(device), libc::minor(device));
            out.stx_ino = ino;
        }
    }
    result
}

/// Is this a call about the open file itself? The kernel takes no path at all for an empty one, since 6.11.
///
/// # Safety
/// `path` as for `fstatat`.
unsafe fn is_about_fd(path: Path, flags: c_int) -> bool {
    // SAFETY: the caller's promise.
    let is_empty = || path.is_null() || path as isize >= LEAST_ADDRESS && unsafe { *path } == 0;
    flags & AT_EMPTY_PATH != 0 && is_empty()
}

fn wire_flags(flags: c_int) -> u32 {
    if flags & AT_SYMLINK_NOFOLLOW != 0 {
        NOFOLLOW
    } else {
        0
    }
}

fn fill(out: &mut libc::stat, a: &Attr) {
    // SAFETY: zeroes are a valid stat.
    *out = unsafe { core::mem::zeroed() };
    out.st_dev = a.dev;
    out.st_ino = a.ino;
    out.st_nlink = a.nlink as libc::nlink_t;
    out.st_mode = a.mode;
    out.st_uid = a.uid;
    out.st_gid = a.gid;
    out.st_rdev = a.rdev;
    out.st_size = a.size as i64;
    out.st_blksize = a.blksize as libc::blksize_t;
    out.st_blocks = a.blocks as i64;
    (out.st_atime, out.st_atime_nsec) = (a.atime.sec, a.atime.nsec.into());
    (out.st_mtime, out.st_mtime_nsec) = (a.mtime.sec, a.mtime.nsec.into());
    (out.st_ctime, out.st_ctime_nsec) = (a.ctime.sec, a.ctime.nsec.into());
}

fn statx_time(t: &Timestamp) -> libc::statx_timestamp {
    // SAFETY: zeroes are a valid timestamp.
    let mut out: libc::statx_timestamp = unsafe { core::mem::zeroed() };
    out.tv_sec = t.sec;
    out.tv_nsec = t.nsec;
    out
}

fn fill_statx(out: &mut libc::statx, a: &Attr) {
    // SAFETY: zeroes are a valid statx.
    *out = unsafe { core::mem::zeroed() };
    out.stx_mask = libc::STATX_BASIC_STATS;
    if a.btime != Timestamp::default() {
        out.stx_mask |= libc::STATX_BTIME;
        out.stx_btime = statx_time(&a.btime);
    }
    out.stx_blksize = a.blksize;
    out.stx_nlink = a.nlink;
    out.stx_uid = a.uid;
    out.stx_gid = a.gid;
    out.stx_mode = a.mode as u16;
    out.stx_ino = a.ino;
    out.stx_size = a.size;
    out.stx_blocks = a.blocks;
    out.stx_atime = statx_time(&a.atime);
    out.stx_mtime = statx_time(&a.mtime);
    out.stx_ctime = statx_time(&a.ctime);
    (out.stx_rdev_major, out.stx_rdev_minor) = (libc::major(a.rdev), libc::minor(a.rdev));
    (out.stx_dev_major, out.stx_dev_minor) = (libc::major(a.dev), libc::minor(a.dev));
}

/// `fstatat` that leaves the rest to the kernel and not to libc.
///
/// # Safety
/// As `fstatat`.
pub unsafe fn by_kernel(dirfd: c_int, path: Path, out: *mut libc::stat, flags: c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        stat_or_fstat_at(dirfd, path, out, flags, |d, p| {
            outcome(call!(libc::SYS_newfstatat, d, p, out, flags))
        })
    }
}

/// The same for `fstat`.
///
/// # Safety
/// As `fstat`.
pub unsafe fn of_fd_by_kernel(fd: c_int, out: *mut libc::stat) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { with_shown(outcome(call!(libc::SYS_fstat, fd, out)), fd, out) }
}

/// The same for `statx`.
///
/// # Safety
/// As `statx`.
pub unsafe fn statx_by_kernel(
    dirfd: c_int,
    path: Path,
    flags: c_int,
    mask: c_uint,
    out: *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        statx_at(dirfd, path, flags, mask, out, |d, p| {
            outcome(call!(libc::SYS_statx, d, p, flags, mask, out))
        })
    }
}

/// [`stat_at`] that may be about the open file `dirfd` itself.
///
/// # Safety
/// As `fstatat`.
#[inline(always)]
unsafe fn stat_or_fstat_at(
    dirfd: c_int,
    path: Path,
    out: *mut libc::stat,
    flags: c_int,
    native: impl Fn(c_int, Path) -> c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        stat_at(dirfd, path, out, flags, |d, p| {
            let result = native(d, p);
            match is_about_fd(p, flags) {
                true => with_shown(result, d, out),
                false => result,
            }
        })
    }
}

/// # Safety
/// As `statx`.
#[inline(always)]
unsafe fn statx_at(
    dirfd: c_int,
    path: Path,
    flags: c_int,
    mask: c_uint,
    out: *mut c_void,
    native: impl Fn(c_int, Path) -> c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        let native = |d: c_int, p: Path| {
            let result = native(d, p);
            match is_about_fd(p, flags) {
                true => with_shown_x(result, d, out.cast()),
                false => result,
            }
        };
        route(dirfd, path, native, |target, answer| {
            if flags & AT_SYMLINK_NOFOLLOW != 0 && is_alias(kernel::bytes(path)) {
                return Ok(native(dirfd, path));
            }
            let known = AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | AT_EMPTY_PATH | AT_STATX_SYNC_TYPE;
            let contradiction = flags & AT_STATX_SYNC_TYPE == AT_STATX_BOTH;
            if flags & !known != 0 || contradiction || mask & libc::STATX__RESERVED as c_uint != 0 {
                return Err(libc::EINVAL.into());
            }
            let attr = requests::stat(target, wire_flags(flags), answer)?;
            if (out as isize) < LEAST_ADDRESS {
                return Err(libc::EFAULT.into());
            }
            fill_statx(&mut *out.cast::<libc::statx>(), &attr);
            Ok(0)
        })
    }
}

/// `__xstat` and its relatives, which programs built before glibc 2.33 call. Newer libc keeps them only for such
/// programs, and a look-up does not find them. So a native call goes straight to the kernel.
///
/// # Safety
/// As `fstatat`.
unsafe fn versioned(
    version: c_int,
    dirfd: c_int,
    path: Path,
    out: *mut libc::stat,
    flags: c_int,
) -> c_int {
    match version {
        // SAFETY: the caller's promise.
        0 | STAT_VERSION => unsafe { by_kernel(dirfd, path, out, flags) },
        _ => crate::locate::failed(libc::EINVAL),
    }
}

hooks! {
    fn stat | stat64 [real] (path: Path, out: *mut libc::stat) -> c_int {
        stat_at(AT_FDCWD, path, out, 0, |_, p| real(p, out))
    }

    fn lstat | lstat64 [real] (path: Path, out: *mut libc::stat) -> c_int {
        stat_at(AT_FDCWD, path, out, AT_SYMLINK_NOFOLLOW, |_, p| real(p, out))
    }

    fn fstatat | fstatat64 [real] (dirfd: c_int, path: Path, out: *mut libc::stat, flags: c_int) -> c_int {
        stat_or_fstat_at(dirfd, path, out, flags, |d, p| real(d, p, out, flags))
    }

    fn fstat | fstat64 [real] (fd: c_int, out: *mut libc::stat) -> c_int {
        with_shown(real(fd, out), fd, out)
    }

    fn __fxstat | __fxstat64 [_real] (version: c_int, fd: c_int, out: *mut libc::stat) -> c_int {
        if version != 0 && version != STAT_VERSION {
            return crate::locate::failed(libc::EINVAL);
        }
        of_fd_by_kernel(fd, out)
    }

    fn __xstat | __xstat64 [_real] (version: c_int, path: Path, out: *mut libc::stat) -> c_int {
        versioned(version, AT_FDCWD, path, out, 0)
    }

    fn __lxstat | __lxstat64 [_real] (version: c_int, path: Path, out: *mut libc::stat) -> c_int {
        versioned(version, AT_FDCWD, path, out, AT_SYMLINK_NOFOLLOW)
    }

    fn __fxstatat | __fxstatat64 [_real] (version: c_int, dirfd: c_int, path: Path, out: *mut libc::stat, flags: c_int) -> c_int {
        versioned(version, dirfd, path, out, flags)
    }

    fn statx [real] (dirfd: c_int, path: Path, flags: c_int, mask: c_uint, out: *mut c_void) -> c_int {
        statx_at(dirfd, path, flags, mask, out, |d, p| real(d, p, flags, mask, out))
    }
}
