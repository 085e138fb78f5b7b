//! Descriptors that one process of this program hands to another.

use crate::{Errno, Sys};
use rustix::io::retry_on_intr;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg,
    sendmsg, socketpair,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

/// Most descriptors of one message.
const MOST_DESCRIPTORS: usize = 4;
/// Room for them beside a message.
const ROOM: usize = rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS));

/// The two ends of a connection for messages.
///
/// # Errors
/// EMFILE or ENFILE: no descriptor is free.
pub fn message_pair() -> Sys<(OwnedFd, OwnedFd)> {
    let kind = SocketType::SEQPACKET;
    socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)
}

/// Sends a message, which is not empty, with at most [`MOST_DESCRIPTORS`] descriptors.
///
/// # Errors
/// EPIPE: nobody is there. EMSGSIZE: it is too long.
///
/// # Panics
/// For more descriptors.
pub fn send_descriptors(
    socket: BorrowedFd<'_>,
    message: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> Sys<()> {
    let mut room = [MaybeUninit::uninit(); ROOM];
    let mut control = SendAncillaryBuffer::new(&mut room);
    let fits = control.push(SendAncillaryMessage::ScmRights(descriptors));
    assert!(fits && descriptors.len() <= MOST_DESCRIPTORS);
    let parts = [IoSlice::new(message)];
    retry_on_intr(|| sendmsg(socket, &parts, &mut control, SendFlags::NOSIGNAL)).map(drop)
}

/// Waits for a message. Gives its length, which is 0 when nobody is there any more, and its descriptors.
///
/// # Errors
/// EMSGSIZE: it is longer than `room`, or has more descriptors than can be. Else those of the socket.
pub fn receive_descriptors(socket: BorrowedFd<'_>, room: &mut [u8]) -> Sys<(usize, Vec<OwnedFd>)> {
    let mut beside = [MaybeUninit::uninit(); ROOM];
    let mut control = RecvAncillaryBuffer::new(&mut beside);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let received =
        retry_on_intr(|| recvmsg(socket, &mut [IoSliceMut::new(room)], &mut control, flags))?;
    let descriptors = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    let descriptors = descriptors.flatten().collect();
    let cut = ReturnFlags::TRUNC | ReturnFlags::CTRUNC;
    match received.flags.intersects(cut) {
        true => Err(Errno::MSGSIZE),
        false => Ok((received.bytes, descriptors)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn a_message_brings_its_descriptors_and_the_end_is_empty() {
        let (ours, theirs) = message_pair().unwrap();
        let (reader, writer) = crate::pipe().unwrap();
        let sent = [writer.as_fd(), writer.as_fd()];
        send_descriptors(theirs.as_fd(), b"two", &sent).unwrap();
        send_descriptors(theirs.as_fd(), b"none", &[]).unwrap();
        drop((theirs, writer));
        let mut room = [0; 8];
        let (len, descriptors) = receive_descriptors(ours.as_fd(), &mut room).unwrap();
        assert_eq!((&room[..len], descriptors.len()), (&b"two"[..], 2));
        rustix::io::write(&descriptors[1], b"x").unwrap();
        let (len, none) = receive_descriptors(ours.as_fd(), &mut room).unwrap();
        assert_eq!((&room[..len], none.len()), (&b"none"[..], 0));
        assert!(crate::is_readable(reader.as_fd()));
        let (end, none) = receive_descriptors(ours.as_fd(), &mut room).unwrap();
        assert_eq!((end, none.len()), (0, 0));
    }

    #[test]
    fn a_message_that_is_cut_is_an_error_and_so_is_one_to_nobody() {
        let (ours, theirs) = message_pair().unwrap();
        send_descriptors(theirs.as_fd(), b"long", &[]).unwrap();
        let cut = receive_descriptors(ours.as_fd(), &mut [0; 3]);
        assert_eq!(cut.err(), Some(Errno::MSGSIZE));
        drop(ours);
        let gone = send_descriptors(theirs.as_fd(), b"x", &[]);
        assert_eq!(gone.err(), Some(Errno::PIPE));
    }
}
