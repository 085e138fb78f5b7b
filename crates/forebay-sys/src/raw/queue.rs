//! Asks a socket how much of what was sent has not been received, which only an `ioctl` tells.

use crate::Sys;
use rustix::ioctl::{Getter, ioctl};
use std::os::fd::BorrowedFd;

/// `SIOCOUTQ`.
const OUT_QUEUE: rustix::ioctl::Opcode = libc::TIOCOUTQ as rustix::ioctl::Opcode;

/// Has the other side of a Unix socket received all that was sent to it? The kernel takes a message from this account
/// when its descriptors are in the table of the receiver.
///
/// # Errors
/// Those of `ioctl`.
pub fn is_received(socket: BorrowedFd<'_>) -> Sys<bool> {
    // SAFETY: for a socket the call writes an `int`.
    let bytes: libc::c_int = unsafe { ioctl(socket, Getter::<OUT_QUEUE, libc::c_int>::new()) }?;
    Ok(bytes == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn what_was_sent_counts_until_it_is_received() {
        let (mut ours, mut theirs) = UnixStream::pair().unwrap();
        assert_eq!(is_received(ours.as_fd()), Ok(true));
        ours.write_all(b"1").unwrap();
        assert_eq!(is_received(ours.as_fd()), Ok(false));
        assert_eq!(is_received(theirs.as_fd()), Ok(true));
        theirs.read_exact(&mut [0]).unwrap();
        assert_eq!(is_received(ours.as_fd()), Ok(true));
        ours.write_all(b"2").unwrap();
        drop(theirs);
        assert_eq!(is_received(ours.as_fd()), Ok(true));
    }
}
