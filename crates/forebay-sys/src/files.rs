//! System calls that only the mover needs.
#![allow(unsafe_code)]

use crate::{Errno, Sys};
use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

fn c(name: &[u8]) -> Sys<CString> {
    CString::new(name).map_err(|_| Errno(libc::EINVAL))
}

fn check(result: libc::c_int) -> Sys<()> {
    if result < 0 {
        Err(Errno::last())
    } else {
        Ok(())
    }
}

/// `renameat`.
pub fn rename(from: BorrowedFd<'_>, old: &[u8], to: BorrowedFd<'_>, new: &[u8]) -> Sys<()> {
    let (old, new) = (c(old)?, c(new)?);
    // SAFETY: both names are NUL-terminated.
    check(unsafe { libc::renameat(from.as_raw_fd(), old.as_ptr(), to.as_raw_fd(), new.as_ptr()) })
}

/// `linkat` between two directories.
pub fn link(from: BorrowedFd<'_>, old: &[u8], to: BorrowedFd<'_>, new: &[u8]) -> Sys<()> {
    let (old, new) = (c(old)?, c(new)?);
    // SAFETY: both names are NUL-terminated.
    check(unsafe {
        libc::linkat(
            from.as_raw_fd(),
            old.as_ptr(),
            to.as_raw_fd(),
            new.as_ptr(),
            0,
        )
    })
}

/// `symlinkat`.
pub fn symlink(text: &[u8], dir: BorrowedFd<'_>, name: &[u8]) -> Sys<()> {
    let (text, name) = (c(text)?, c(name)?);
    // SAFETY: both strings are NUL-terminated.
    check(unsafe { libc::symlinkat(text.as_ptr(), dir.as_raw_fd(), name.as_ptr()) })
}

/// `fsync`.
pub fn fsync(fd: BorrowedFd<'_>) -> Sys<()> {
    // SAFETY: plain integers.
    check(unsafe { libc::fsync(fd.as_raw_fd()) })
}

/// `syncfs`.
pub fn syncfs(fd: BorrowedFd<'_>) -> Sys<()> {
    // SAFETY: plain integers.
    check(unsafe { libc::syncfs(fd.as_raw_fd()) })
}

/// A hold on a process (pidfd), so that its id cannot be mistaken for another's.
pub fn process(pid: u32) -> Sys<OwnedFd> {
    // SAFETY: plain integers; the result is checked and then owned.
    unsafe {
        let fd = libc::syscall(libc::SYS_pidfd_open, pid as libc::pid_t, 0);
        if fd < 0 {
            return Err(Errno::last());
        }
        Ok(OwnedFd::from_raw_fd(fd as i32))
    }
}

/// Waits until one of the processes has ended, or for so long.
pub fn await_any(processes: &[OwnedFd], longest: Duration) {
    let mut entries: Vec<libc::pollfd> = processes
        .iter()
        .map(|process| libc::pollfd {
            fd: process.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        })
        .collect();
    let ms = i32::try_from(longest.as_millis()).unwrap_or(i32::MAX);
    // SAFETY: as many valid entries as announced. After an interruption the caller looks again.
    unsafe { libc::poll(entries.as_mut_ptr(), entries.len() as libc::nfds_t, ms) };
}

/// Has the process ended?
pub fn has_ended(process: &OwnedFd) -> bool {
    crate::is_readable(process.as_fd())
}

/// Lets the kernel begin to write the pages of a file out, without waiting. Advice: failure does no harm.
pub fn begin_writeback(fd: BorrowedFd<'_>) {
    // SAFETY: plain integers.
    unsafe {
        libc::sync_file_range(fd.as_raw_fd(), 0, 0, libc::SYNC_FILE_RANGE_WRITE);
    }
}

/// Forgets the cached pages of a synced file, so that the next read comes from the file system. Advice.
pub fn forget_pages(fd: BorrowedFd<'_>) {
    // SAFETY: plain integers.
    unsafe {
        libc::posix_fadvise(fd.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED);
    }
}

/// All of the file will be read soon. Advice.
pub fn will_need(fd: BorrowedFd<'_>) {
    // SAFETY: plain integers.
    unsafe {
        libc::posix_fadvise(fd.as_raw_fd(), 0, 0, libc::POSIX_FADV_WILLNEED);
    }
}

/// The file will be read from one end to the other. Advice.
pub fn will_read_all(fd: BorrowedFd<'_>) {
    // SAFETY: plain integers.
    unsafe {
        libc::posix_fadvise(fd.as_raw_fd(), 0, 0, libc::POSIX_FADV_SEQUENTIAL);
    }
}

/// From now on reads through this descriptor leave the access time as it is, where we may ask for that.
pub fn keep_access_time(fd: BorrowedFd<'_>) -> Sys<()> {
    // SAFETY: plain integers.
    check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, libc::O_NOATIME) })
}

/// `ftruncate`.
pub fn set_size(fd: BorrowedFd<'_>, bytes: u64) -> Sys<()> {
    // SAFETY: plain integers.
    check(unsafe { libc::ftruncate(fd.as_raw_fd(), bytes as libc::off_t) })
}

/// The next range with data at or after `from`; `None` if only a hole follows. File systems
/// without holes report the whole file.
pub fn next_data(fd: BorrowedFd<'_>, from: u64) -> Sys<Option<(u64, u64)>> {
    // SAFETY: plain integers.
    let start = unsafe { libc::lseek(fd.as_raw_fd(), from as libc::off_t, libc::SEEK_DATA) };
    if start < 0 {
        return match Errno::last() {
            Errno(libc::ENXIO) => Ok(None),
            e => Err(e),
        };
    }
    // SAFETY: plain integers.
    let end = unsafe { libc::lseek(fd.as_raw_fd(), start, libc::SEEK_HOLE) };
    if end < 0 {
        return Err(Errno::last());
    }
    Ok(Some((start as u64, end as u64)))
}

/// `fcntl` command of <asm-generic/fcntl.h>.
const F_SETSIG: libc::c_int = 10;

/// Whom a lease asks about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Users {
    /// Descriptors and mappings that can write.
    Writers,
    /// All of them.
    Anyone,
}

/// Does anybody else have the file open (or mapped)? A lease on a fresh descriptor tells; it is
/// given back at once. `None`: the file system or our rights do not allow the question.
pub fn is_in_use(fd: BorrowedFd<'_>, by: Users) -> Option<bool> {
    let kind = match by {
        Users::Writers => libc::F_RDLCK,
        Users::Anyone => libc::F_WRLCK,
    };
    // SAFETY: plain integers. Whoever opens the file in between waits until the lease is gone, and the
    // kernel tells us by a signal; this one is ignored unless somebody asked for it.
    unsafe {
        libc::fcntl(fd.as_raw_fd(), F_SETSIG, libc::SIGURG);
        if libc::fcntl(fd.as_raw_fd(), libc::F_SETLEASE, kind) == 0 {
            libc::fcntl(fd.as_raw_fd(), libc::F_SETLEASE, libc::F_UNLCK);
            return Some(false);
        }
    }
    match Errno::last() {
        Errno(libc::EAGAIN) => Some(true),
        _ => None,
    }
}
