//! Leases: the kernel's answer to the question whether anybody else has a file open. `rustix` has none.

use super::check;
use crate::{Errno, Sys};
use std::os::fd::{AsRawFd, BorrowedFd};

/// `fcntl` command of <asm-generic/fcntl.h>.
const F_SETSIG: libc::c_int = 10;

/// Whom a lease asks about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Openers {
    /// Descriptors and mappings that can write.
    Writers,
    /// All of them.
    Anyone,
}

fn control(fd: BorrowedFd<'_>, command: libc::c_int, value: libc::c_int) -> Sys<()> {
    // SAFETY: plain integers.
    check(unsafe { libc::fcntl(fd.as_raw_fd(), command, value) }).map(drop)
}

/// Does anybody else have the file open (or mapped)? A lease on a fresh descriptor tells; it is given back at once.
/// `None`: the file system or our rights do not allow the question.
pub fn is_in_use(fd: BorrowedFd<'_>, by: Openers) -> Option<bool> {
    let kind = match by {
        Openers::Writers => libc::F_RDLCK,
        Openers::Anyone => libc::F_WRLCK,
    };
    // Whoever opens the file in between waits until the lease is gone, and the kernel tells us by a signal; this one
    // is ignored unless somebody asked for it. Where it can't be chosen no lease will be granted either.
    let _ = control(fd, F_SETSIG, libc::SIGURG);
    match control(fd, libc::F_SETLEASE, kind) {
        Ok(()) => {
            // It goes with the descriptor at the latest.
            let _ = control(fd, libc::F_SETLEASE, libc::F_UNLCK);
            Some(false)
        }
        Err(Errno::AGAIN) => Some(true),
        Err(_) => None,
    }
}

/// Is this the only descriptor by which the file can be read, written or mapped? (The kernel grants an exclusive lease
/// only then. It knows nothing of `O_PATH` descriptors.)
pub fn is_opened_once(fd: BorrowedFd<'_>) -> bool {
    let lease = |kind| control(fd, libc::F_SETLEASE, kind);
    lease(libc::F_WRLCK).is_ok() && lease(libc::F_UNLCK).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsFd;

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
        // Had a lease stayed, this would wait for it.
        File::options().write(true).open(&path).unwrap();
    }

    #[test]
    fn what_cannot_be_leased_is_not_known_to_be_unused() {
        let (reader, _writer) = crate::pipe().unwrap();
        assert_eq!(is_in_use(reader.as_fd(), Openers::Anyone), None);
        assert!(!is_opened_once(reader.as_fd()));
    }
}
