//! Leases: by them the kernel tells whether another process has a file open. `rustix` does not have them.

use super::check;
use crate::{Errno, Sys};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// `fcntl` command of <asm-generic/fcntl.h>.
const F_SETSIG: libc::c_int = 10;

/// Which openers of a file a lease detects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Openers {
    /// Descriptors and mappings that can write.
    Writers,
    /// All descriptors and mappings.
    Anyone,
}

fn control(fd: BorrowedFd<'_>, command: libc::c_int, value: libc::c_int) -> Sys<()> {
    // SAFETY: plain integers.
    check(unsafe { libc::fcntl(fd.as_raw_fd(), command, value) }).map(drop)
}

/// True if the file is open or mapped elsewhere. `fd` must be a fresh descriptor; the lease on it is given back at once.
/// `None` if the file system has no leases, or this process may not take one.
pub fn is_in_use(fd: BorrowedFd<'_>, by: Openers) -> Option<bool> {
    let kind = match by {
        Openers::Writers => libc::F_RDLCK,
        Openers::Anyone => libc::F_WRLCK,
    };
    // A process that opens the file meanwhile waits until the lease is gone, and the kernel signals this process. By
    // default SIGURG is ignored. If the signal can't be chosen, no lease will be granted either.
    let _ = control(fd, F_SETSIG, libc::SIGURG);
    match control(fd, libc::F_SETLEASE, kind) {
        Ok(()) => {
            // If this fails, the lease still ends when the descriptor closes.
            let _ = control(fd, libc::F_SETLEASE, libc::F_UNLCK);
            Some(false)
        }
        Err(Errno::AGAIN) => Some(true),
        Err(_) => None,
    }
}

/// True if this is the only descriptor by which the file can be read, written or mapped. The kernel grants an exclusive
/// lease only then. `O_PATH` descriptors do not count.
pub fn is_opened_once(fd: BorrowedFd<'_>) -> bool {
    let lease = |kind| control(fd, libc::F_SETLEASE, kind);
    lease(libc::F_WRLCK).is_ok() && lease(libc::F_UNLCK).is_ok()
}

/// [`is_opened_once`] for a descriptor that is closed now. That ends the lease, without a call of its own.
pub fn was_opened_once(fd: OwnedFd) -> bool {
    control(fd.as_fd(), libc::F_SETLEASE, libc::F_WRLCK).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn a_lease_sees_writers_and_readers_and_is_given_back() {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let path = dir.path().join("file");
        let writer = File::create(&path).unwrap();
        let fresh = File::open(&path).unwrap();
        assert_eq!(is_in_use(fresh.as_fd(), Openers::Writers), Some(true));
        drop(writer);
        assert_eq!(is_in_use(fresh.as_fd(), Openers::Writers), Some(false));
        let reader = File::open(&path).unwrap();
        assert_eq!(is_in_use(fresh.as_fd(), Openers::Writers), Some(false));
        assert_eq!(is_in_use(fresh.as_fd(), Openers::Anyone), Some(true));
        assert!(!is_opened_once(fresh.as_fd()));
        drop(reader);
        assert_eq!(is_in_use(fresh.as_fd(), Openers::Anyone), Some(false));
        assert!(is_opened_once(fresh.as_fd()));
        // If a lease were left, this open would wait for it.
        File::options().write(true).open(&path).unwrap();
    }

    #[test]
    fn a_lease_ends_with_the_descriptor_that_was_asked() {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let path = dir.path().join("file");
        File::create(&path).unwrap();
        let [first, second] = [0; 2].map(|_| File::open(&path).unwrap());
        assert!(!was_opened_once(first.into()), "the second one is open");
        assert!(was_opened_once(second.into()));
        // If a lease were left, this open would wait for it.
        File::options().write(true).open(&path).unwrap();
    }

    #[test]
    fn what_cannot_be_leased_is_not_known_to_be_unused() {
        let (reader, _writer) = crate::pipe().unwrap();
        assert_eq!(is_in_use(reader.as_fd(), Openers::Anyone), None);
        assert!(!is_opened_once(reader.as_fd()));
    }
}
