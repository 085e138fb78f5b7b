//! Opens files, and changes settings of open files.

use crate::attributes::proc_link;
use crate::{Errno, Sys, errno_of};
use rustix::fs::{
    self, Access, AtFlags, CWD, FlockOperation, Mode, OFlags, ResolveFlags, fcntl_setfl,
};
use rustix::io::retry_on_intr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;

/// Names that are tried for a file that gets none.
const MOST_NAMES: u32 = 100;

fn oflags(flags: i32) -> OFlags {
    OFlags::from_bits_retain(flags as u32) | OFlags::CLOEXEC
}

/// `openat` with `O_*` flags. It is repeated after a signal.
///
/// # Errors
/// Those of the call.
pub fn open(dir: BorrowedFd<'_>, name: &[u8], flags: i32, mode: u32) -> Sys<OwnedFd> {
    let (flags, mode) = (oflags(flags), Mode::from_raw_mode(mode));
    retry_on_intr(|| fs::openat(dir, name, flags, mode))
}

/// `openat2` that stays below `dir` and follows no symbolic link. The last component may be anything that `flags`
/// accept. The call is repeated after a signal.
///
/// # Errors
/// Those of the call. ENOSYS or EPERM if the kernel, or a filter of system calls, does not know `openat2`. Then the
/// caller must open one component after the other.
pub fn open_beneath(dir: BorrowedFd<'_>, path: &[u8], flags: i32) -> Sys<OwnedFd> {
    let stay = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_SYMLINKS;
    let flags = oflags(flags);
    retry_on_intr(|| fs::openat2(dir, path, flags, Mode::empty(), stay))
}

/// Makes a file with this mode and opens it for reading and writing. Replaces what has its name.
///
/// # Errors
/// Those of `unlinkat` and `openat`.
pub fn create_anew(dir: BorrowedFd<'_>, name: &[u8], mode: u32) -> Sys<OwnedFd> {
    let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW;
    match open(dir, name, flags, mode) {
        Err(Errno::EXIST) => match crate::unlink(dir, name, false) {
            Ok(()) | Err(Errno::NOENT) => open(dir, name, flags, mode),
            Err(e) => Err(e),
        },
        other => other,
    }
}

/// An empty file in this directory, without a name. Where the file system has no such files (`O_TMPFILE`), one whose name is
/// gone when this returns; nothing that is there already is touched.
///
/// # Errors
/// Those of `openat`.
pub fn scratch_file(dir: BorrowedFd<'_>) -> Sys<OwnedFd> {
    match open(dir, b".", libc::O_TMPFILE | libc::O_RDWR, 0o600) {
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT) => {}
        other => return other,
    }
    let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW;
    let mut tries = 0;
    loop {
        tries += 1;
        let name = format!(".forebay-probe-{}-{tries}", std::process::id()).into_bytes();
        match open(dir, &name, flags, 0o600) {
            Err(Errno::EXIST) if tries < MOST_NAMES => {}
            Ok(file) => return crate::unlink(dir, &name, false).map(|()| file),
            Err(e) => return Err(e),
        }
    }
}

/// Opens `path` as the process itself sees it, not below a directory. For start-up only.
///
/// # Errors
/// Those of the call.
pub fn open_path(path: &Path, flags: i32) -> Sys<OwnedFd> {
    let flags = oflags(flags);
    retry_on_intr(|| fs::openat(CWD, path, flags, Mode::empty()))
}

/// Opens anew what a descriptor stands for, which may be one by `O_PATH`, whatever has its name now. Needs `/proc`.
///
/// # Errors
/// Those of the open.
pub fn reopen(of: BorrowedFd<'_>, flags: i32) -> Sys<OwnedFd> {
    // The path itself is a link.
    open_path(Path::new(&proc_link(of)), flags & !libc::O_NOFOLLOW)
}

/// Opens a file by `open`, with these flags, and does not wait for who has a lease on it, which may take as long as
/// `/proc/sys/fs/lease-break-time` says. To be called for nothing but regular files.
///
/// # Errors
/// EWOULDBLOCK if somebody has one; else those of the calls.
pub fn open_at_once(flags: i32, open: impl FnOnce(i32) -> Sys<OwnedFd>) -> Sys<OwnedFd> {
    let file = open(flags | libc::O_NONBLOCK)?;
    if flags & libc::O_NONBLOCK == 0 {
        fcntl_setfl(&file, OFlags::from_bits_retain(flags as u32))?;
    }
    Ok(file)
}

/// Checks whether this user may access the file so (`R_OK`, `W_OK`, `X_OK`). It judges by effective ids, as an open
/// does.
///
/// # Errors
/// EACCES if the user may not; else those of the call.
pub fn check_access(path: &Path, mode: i32) -> Sys<()> {
    let access = Access::from_bits_retain(mode as u32);
    fs::accessat(CWD, path, access, AtFlags::EACCESS)
}

/// Locks the whole file exclusively, without waiting.
///
/// # Errors
/// EWOULDBLOCK if another descriptor holds a lock on it; else those of the call.
pub fn lock_file(fd: BorrowedFd<'_>) -> Sys<()> {
    fs::flock(fd, FlockOperation::NonBlockingLockExclusive)
}

/// Takes the lock of [`lock_file`] back, also from copies of the descriptor that processes have.
pub fn unlock_file(fd: BorrowedFd<'_>) {
    // Of an open descriptor it can't fail; closing the last copy would do it as well.
    let _ = fs::flock(fd, FlockOperation::NonBlockingUnlock);
}

/// True if another process holds the lock on this file. A file that cannot be opened counts as not locked.
pub fn is_locked(path: &Path) -> bool {
    // If this call gets the lock, closing the descriptor releases it.
    std::fs::File::open(path)
        .map_err(errno_of)
        .is_ok_and(|file| fs::flock(file, FlockOperation::NonBlockingLockShared).is_err())
}

/// Makes reads through this descriptor leave the access time as it is.
///
/// # Errors
/// EPERM if the file is another user's.
pub fn keep_access_time(fd: BorrowedFd<'_>) -> Sys<()> {
    fcntl_setfl(fd, OFlags::NOATIME)
}
