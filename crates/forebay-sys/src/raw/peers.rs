//! The identity of the process at the other end of a Unix socket, as the kernel attests it.
//!
//! `rustix` reads these answers into a `Pid`, which cannot be 0. But the kernel reports 0 for a process of a namespace
//! that is invisible from here, so this module reads plain integers. `rustix` does not have `SO_PEERGROUPS`.

use super::{check, last_errno};
use crate::{Errno, Sys};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};

/// User, group and process that the kernel attests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// Process id; 0 if the process is in a namespace that is invisible from here.
    pub pid: i32,
    /// Effective user.
    pub uid: u32,
    /// Effective group.
    pub gid: u32,
}

impl From<libc::ucred> for Peer {
    fn from(cred: libc::ucred) -> Self {
        Peer {
            pid: cred.pid,
            uid: cred.uid,
            gid: cred.gid,
        }
    }
}

/// A message that came in.
#[derive(Debug, Clone, Copy)]
pub struct Received {
    /// Its length in bytes; 0 at the end of the connection.
    pub len: usize,
    /// The message was longer than the buffer.
    pub truncated: bool,
    /// The sender, if the socket asks for credentials.
    pub sender: Option<Peer>,
}

/// Room for credentials and not one byte more. A descriptor that a client sends finds no room, so the kernel closes it.
#[repr(align(8))]
struct CredentialRoom([u8; CREDENTIAL_ROOM]);
// SAFETY: CMSG_SPACE only computes.
const CREDENTIAL_ROOM: usize =
    unsafe { libc::CMSG_SPACE(size_of::<libc::ucred>() as u32) } as usize;

/// Takes the next message, without waiting for one.
///
/// # Errors
/// EAGAIN if there is no message; else those of the socket.
pub fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> Sys<Received> {
    let mut room = CredentialRoom([0; CREDENTIAL_ROOM]);
    let mut part = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    // SAFETY: all zeros is a valid msghdr.
    let mut message: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = room.0.as_mut_ptr().cast();
    message.msg_controllen = room.0.len();
    let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
    // SAFETY: `message` points to one buffer and to control room, with their sizes.
    let len = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags) };
    let len = usize::try_from(len).map_err(|_| last_errno())?;
    let mut sender = None;
    // SAFETY: the kernel has filled `message`; CMSG_FIRSTHDR checks the length of the room.
    unsafe {
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        if !header.is_null()
            && (*header).cmsg_level == libc::SOL_SOCKET
            && (*header).cmsg_type == libc::SCM_CREDENTIALS
        {
            let cred: libc::ucred = std::ptr::read_unaligned(libc::CMSG_DATA(header).cast());
            sender = Some(cred.into());
        }
    }
    Ok(Received {
        len,
        truncated: message.msg_flags & libc::MSG_TRUNC != 0,
        sender,
    })
}

/// The process that connected.
///
/// # Errors
/// Those of the socket.
pub fn peer(socket: BorrowedFd<'_>) -> Sys<Peer> {
    let mut cred = libc::ucred {
        pid: 0,
        uid: u32::MAX,
        gid: u32::MAX,
    };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: `cred` has the size that is passed.
    check(unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut cred).cast(),
            &raw mut len,
        )
    })?;
    Ok(cred.into())
}

/// Number of groups for which there is room at first.
const USUAL_GROUPS: usize = 64;

/// Supplementary groups of the process that connected.
///
/// # Errors
/// Those of the socket.
pub fn peer_groups(socket: BorrowedFd<'_>) -> Sys<Vec<u32>> {
    let mut groups = vec![0u32; USUAL_GROUPS];
    loop {
        let mut len = (groups.len() * size_of::<u32>()) as libc::socklen_t;
        // SAFETY: `groups` has the size in bytes that is passed.
        let result = check(unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERGROUPS,
                groups.as_mut_ptr().cast(),
                &raw mut len,
            )
        });
        let count = len as usize / size_of::<u32>();
        match result {
            Ok(_) => {
                groups.truncate(count);
                return Ok(groups);
            }
            // The kernel says how many there are.
            Err(Errno::RANGE) if count > groups.len() => groups.resize(count, 0),
            Err(Errno::NODATA) => return Ok(Vec::new()),
            Err(e) => return Err(e),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{
        AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags,
        SocketType, send, sendmsg, socketpair, sockopt::set_socket_passcred,
    };
    use std::io::IoSlice;
    use std::os::fd::{AsFd, OwnedFd};

    fn pair() -> (OwnedFd, OwnedFd) {
        let (ours, theirs) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .unwrap();
        set_socket_passcred(&ours, true).unwrap();
        (ours, theirs)
    }

    fn me() -> Peer {
        let (uid, gid) = crate::my_ids();
        let pid = std::process::id() as i32;
        Peer { pid, uid, gid }
    }

    #[test]
    fn a_message_comes_with_its_sender_and_says_whether_it_was_cut() {
        let (ours, theirs) = pair();
        let mut buffer = [0; 4];
        let nothing = receive(ours.as_fd(), &mut buffer);
        assert_eq!(nothing.unwrap_err(), Errno::AGAIN);
        send(&theirs, b"abc", SendFlags::empty()).unwrap();
        send(&theirs, b"abcdef", SendFlags::empty()).unwrap();
        let first = receive(ours.as_fd(), &mut buffer).unwrap();
        assert_eq!(
            (first.len, first.truncated, first.sender),
            (3, false, Some(me()))
        );
        let second = receive(ours.as_fd(), &mut buffer).unwrap();
        assert_eq!((second.len, second.truncated), (4, true));
        drop(theirs);
        assert_eq!(receive(ours.as_fd(), &mut buffer).unwrap().len, 0);
    }

    #[test]
    fn descriptors_that_come_with_a_message_are_not_taken() {
        let (ours, theirs) = pair();
        let (reader, writer) = crate::pipe().unwrap();
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut room);
        let fds = [writer.as_fd()];
        assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
        sendmsg(
            &theirs,
            &[IoSlice::new(b"x")],
            &mut control,
            SendFlags::empty(),
        )
        .unwrap();
        drop(writer);
        let received = receive(ours.as_fd(), &mut [0; 4]).unwrap();
        assert_eq!((received.len, received.sender), (1, Some(me())));
        // The pipe is readable if nobody has its writing end any more.
        assert!(crate::is_readable(reader.as_fd()));
    }

    #[test]
    fn a_socket_knows_who_connected_and_a_pipe_does_not() {
        let (ours, _theirs) = pair();
        assert_eq!(peer(ours.as_fd()), Ok(me()));
        let mut groups = peer_groups(ours.as_fd()).unwrap();
        let mut own: Vec<u32> = rustix::process::getgroups()
            .unwrap()
            .into_iter()
            .map(|group| group.as_raw())
            .collect();
        groups.sort_unstable();
        own.sort_unstable();
        assert_eq!(groups, own);
        let (reader, _writer) = crate::pipe().unwrap();
        assert_eq!(peer(reader.as_fd()), Err(Errno::NOTSOCK));
        assert_eq!(peer_groups(reader.as_fd()), Err(Errno::NOTSOCK));
        let failed = receive(reader.as_fd(), &mut [0; 4]).unwrap_err();
        assert_eq!(failed, Errno::NOTSOCK);
    }
}
