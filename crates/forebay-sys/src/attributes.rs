//! Attributes of inodes: how they are read and changed.

use crate::{Errno, Sys, raw};
use forebay_types::{Attr, Timestamp};
use rustix::fs::{
    self, AtFlags, CWD, Gid, Mode, Statx, StatxFlags, StatxTimestamp, Timespec, Timestamps,
    UTIME_NOW, UTIME_OMIT, Uid,
};
use rustix::path::Arg;
use rustix::time::{ClockId, clock_gettime};
use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// Flags with which symbolic links are not followed, and an empty name means the directory itself.
fn at_flags(name: &[u8]) -> AtFlags {
    match name.is_empty() {
        true => AtFlags::SYMLINK_NOFOLLOW | AtFlags::EMPTY_PATH,
        false => AtFlags::SYMLINK_NOFOLLOW,
    }
}

/// Attributes of `name` in `dir`. A symbolic link is not followed. An empty name means `dir` itself.
///
/// # Errors
/// Those of `statx`.
pub fn stat(dir: BorrowedFd<'_>, name: &[u8]) -> Sys<Attr> {
    let flags = at_flags(name) | AtFlags::NO_AUTOMOUNT;
    let look = |name: &CStr| {
        let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
        fs::statx(dir, name, flags, wanted).map(|found| attr(&found))
    };
    match name {
        b"" => look(c""),
        // The closure converts, so that only the shorter structure is passed out.
        _ => name.into_with_c_str(look),
    }
}

/// Attributes of `file` as this node knows them: a server is not asked, so this does not wait.
///
/// # Errors
/// Those of `statx`.
pub fn stat_known(file: BorrowedFd<'_>) -> Sys<Attr> {
    let flags = at_flags(b"") | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
    fs::statx(file, c"", flags, StatxFlags::BASIC_STATS).map(|found| attr(&found))
}

fn attr(x: &Statx) -> Attr {
    let time = |t: StatxTimestamp| Timestamp {
        sec: t.tv_sec,
        nsec: t.tv_nsec,
    };
    Attr {
        mode: u32::from(x.stx_mode),
        nlink: x.stx_nlink,
        uid: x.stx_uid,
        gid: x.stx_gid,
        dev: fs::makedev(x.stx_dev_major, x.stx_dev_minor),
        rdev: fs::makedev(x.stx_rdev_major, x.stx_rdev_minor),
        ino: x.stx_ino,
        size: x.stx_size,
        blocks: x.stx_blocks,
        blksize: x.stx_blksize,
        atime: time(x.stx_atime),
        mtime: time(x.stx_mtime),
        ctime: time(x.stx_ctime),
        btime: time(x.stx_btime),
        copy_of: 0,
        granted: None,
    }
}

/// `fchmod`.
///
/// # Errors
/// Those of the call.
pub fn chmod(fd: BorrowedFd<'_>, mode: u32) -> Sys<()> {
    fs::fchmod(fd, Mode::from_raw_mode(mode))
}

/// The mode of `name` in `dir`. A symbolic link is not followed, whoever has put it there and when. Needs `/proc`.
///
/// # Errors
/// ELOOP if it is a symbolic link; else those of the calls.
pub fn chmod_at(dir: BorrowedFd<'_>, name: &[u8], mode: u32) -> Sys<()> {
    let found = crate::open(dir, name, libc::O_PATH | libc::O_NOFOLLOW, 0)?;
    chmod_of_path(found.as_fd(), mode)
}

/// As [`chmod`], for descriptors that were opened with `O_PATH`, too. Needs `/proc`.
///
/// # Errors
/// ELOOP if it is a symbolic link, whose mode means nothing; else those of the calls.
pub fn chmod_of_path(fd: BorrowedFd<'_>, mode: u32) -> Sys<()> {
    // Some file systems would change the mode of the link itself.
    if stat(fd, b"")?.mode & libc::S_IFMT == libc::S_IFLNK {
        return Err(Errno::LOOP);
    }
    let mode = Mode::from_raw_mode(mode);
    fs::chmodat(CWD, proc_link(fd), mode, AtFlags::empty())
}

/// A name, for this process, of what a descriptor leads to. The kernel follows it to the very thing, also to a symbolic link,
/// and no further.
pub fn proc_link(fd: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

/// `fchownat` of `name` in `dir`, or of `dir` itself if the name is empty. An id of all ones stays as it is.
///
/// # Errors
/// Those of the call.
pub fn chown(dir: BorrowedFd<'_>, name: &[u8], uid: u32, gid: u32) -> Sys<()> {
    let uid = (uid != u32::MAX).then(|| Uid::from_raw(uid));
    let gid = (gid != u32::MAX).then(|| Gid::from_raw(gid));
    fs::chownat(dir, name, uid, gid, at_flags(name))
}

fn set(dir: BorrowedFd<'_>, name: &[u8], times: &Timestamps) -> Sys<()> {
    match name.is_empty() {
        true => fs::futimens(dir, times),
        false => fs::utimensat(dir, name, times, AtFlags::SYMLINK_NOFOLLOW),
    }
}

/// A time with a special value (`UTIME_NOW`, `UTIME_OMIT`) in place of its nanoseconds.
fn special(meaning: i64) -> Timespec {
    Timespec {
        tv_sec: 0,
        tv_nsec: meaning,
    }
}

fn timestamps(atime: Option<Timestamp>, mtime: Option<Timestamp>) -> Timestamps {
    let spec = |time: Option<Timestamp>| match time {
        Some(t) => Timespec {
            tv_sec: t.sec,
            tv_nsec: i64::from(t.nsec),
        },
        None => special(UTIME_OMIT),
    };
    Timestamps {
        last_access: spec(atime),
        last_modification: spec(mtime),
    }
}

/// Sets access and modification time of `name` in `dir`, or of `dir` itself if the name is empty. `None` leaves a time
/// as it is.
///
/// # Errors
/// Those of the call.
pub fn set_times(
    dir: BorrowedFd<'_>,
    name: &[u8],
    atime: Option<Timestamp>,
    mtime: Option<Timestamp>,
) -> Sys<()> {
    set(dir, name, &timestamps(atime, mtime))
}

/// As [`set_times`], for a descriptor that was opened with `O_PATH`. Needs `/proc`.
///
/// # Errors
/// Those of the call.
pub fn set_times_of_path(
    fd: BorrowedFd<'_>,
    atime: Option<Timestamp>,
    mtime: Option<Timestamp>,
) -> Sys<()> {
    let times = timestamps(atime, mtime);
    fs::utimensat(CWD, proc_link(fd), &times, AtFlags::empty())
}

/// Sets access and modification time to the present, and with them the change time.
///
/// # Errors
/// Those of `futimens`.
pub fn set_times_to_now(fd: BorrowedFd<'_>) -> Sys<()> {
    let now = special(UTIME_NOW);
    let times = Timestamps {
        last_access: now,
        last_modification: now,
    };
    set(fd, b"", &times)
}

/// The clock that the kernel stamps inodes with.
pub fn now_coarse() -> Timestamp {
    let now = clock_gettime(ClockId::RealtimeCoarse);
    Timestamp {
        sec: now.tv_sec,
        nsec: now.tv_nsec as u32,
    }
}

/// Inode flags that the file system sets itself, to say how it stores the file: `FS_EXTENT_FL`, `FS_INLINE_DATA_FL`.
const STORAGE_FLAGS: u32 = 0x0008_0000 | 0x1000_0000;

/// True if the inode has a project, or a flag that was set with `chattr`.
///
/// # Errors
/// Those of `ioctl`. It is no error if the file system has no flags or projects.
pub fn has_inode_flags(fd: BorrowedFd<'_>) -> Sys<bool> {
    let flags = known(fs::ioctl_getflags(fd))?.map_or(0, |flags| flags.bits());
    let project = known(raw::inode::project(fd))?.unwrap_or(0);
    Ok(flags & !STORAGE_FLAGS != 0 || project != 0)
}

fn known<T>(outcome: Sys<T>) -> Sys<Option<T>> {
    match outcome {
        Err(Errno::NOTTY | Errno::OPNOTSUPP | Errno::NOSYS) => Ok(None),
        other => other.map(Some),
    }
}
