//! Opening files, and what holds for the open file as a whole.

use crate::{Sys, errno_of};
use rustix::fs::{
    self, Access, AtFlags, CWD, FlockOperation, Mode, OFlags, ResolveFlags, fcntl_setfl,
};
use rustix::io::retry_on_intr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;

fn oflags(flags: i32) -> OFlags {
    OFlags::from_bits_retain(flags as u32) | OFlags::CLOEXEC
}

/// `openat` of `O_*` flags; repeated after a signal.
///
/// # Errors
/// Of the call.
pub fn open(dir: BorrowedFd<'_>, name: &[u8], flags: i32, mode: u32) -> Sys<OwnedFd> {
    let (flags, mode) = (oflags(flags), Mode::from_raw_mode(mode));
    retry_on_intr(|| fs::openat(dir, name, flags, mode))
}

/// `openat2` that stays below `dir` and follows no symbolic link; the last component may be anything that `flags`
/// accept. Repeated after a signal.
///
/// # Errors
/// Of the call. ENOSYS or EPERM where the kernel, or a filter of system calls, does not know it: the caller has to
/// walk by itself then.
pub fn open_beneath(dir: BorrowedFd<'_>, path: &[u8], flags: i32) -> Sys<OwnedFd> {
    let stay = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_SYMLINKS;
    let flags = oflags(flags);
    retry_on_intr(|| fs::openat2(dir, path, flags, Mode::empty(), stay))
}

/// Opens a path of the process's own (start-up only).
///
/// # Errors
/// Of the call.
pub fn open_path(path: &Path, flags: i32) -> Sys<OwnedFd> {
    let flags = oflags(flags);
    retry_on_intr(|| fs::openat(CWD, path, flags, Mode::empty()))
}

/// May this user do that (`R_OK`, `W_OK`, `X_OK`) with the file? With effective ids, as a later open would be judged.
///
/// # Errors
/// EACCES if not; else of the call.
pub fn check_access(path: &Path, mode: i32) -> Sys<()> {
    let access = Access::from_bits_retain(mode as u32);
    fs::accessat(CWD, path, access, AtFlags::EACCESS)
}

/// An exclusive lock on the whole file.
///
/// # Errors
/// EWOULDBLOCK if another one holds a lock on it; else of the call.
pub fn lock_file(fd: BorrowedFd<'_>) -> Sys<()> {
    fs::flock(fd, FlockOperation::NonBlockingLockExclusive)
}

/// Does another process hold the lock on this file? A file that cannot be opened is not locked.
pub fn is_locked(path: &Path) -> bool {
    // A lock that we get goes away with the descriptor.
    std::fs::File::open(path)
        .map_err(errno_of)
        .is_ok_and(|file| fs::flock(file, FlockOperation::NonBlockingLockShared).is_err())
}

/// From now on reads through this descriptor leave the access time as it is.
///
/// # Errors
/// EPERM if the file is another user's.
pub fn keep_access_time(fd: BorrowedFd<'_>) -> Sys<()> {
    fcntl_setfl(fd, OFlags::NOATIME)
}
