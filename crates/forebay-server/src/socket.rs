//! Messages over the socket, with what only the kernel can add: the sender's credentials, and descriptors.

use forebay_admin::SOCKET_PATH_BYTES;
use forebay_sys::{Errno, Sys};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown, SocketAddrUnix,
    SocketFlags, SocketType, accept_with, bind, sendmsg, shutdown, socket_with,
    sockopt::set_socket_passcred,
};
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;

pub use forebay_sys::{Peer, Received, peer, peer_groups, receive};

/// Sends one message of two parts, with a descriptor if there is one, without waiting.
///
/// # Errors
/// EAGAIN if the receiver's queue is full, EPIPE if the receiver is gone, ETOOMANYREFS if too many descriptors are on
/// their way.
pub fn send(
    socket: BorrowedFd<'_>,
    header: &[u8],
    body: &[u8],
    descriptor: Option<BorrowedFd<'_>>,
) -> Sys<()> {
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut room);
    if let Some(descriptor) = &descriptor {
        let rights = SendAncillaryMessage::ScmRights(std::slice::from_ref(descriptor));
        assert!(control.push(rights), "there is room for one descriptor");
    }
    let parts = [IoSlice::new(header), IoSlice::new(body)];
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    sendmsg(socket, &parts, &mut control, flags).map(drop)
}

/// Ends a connection so that the other side can still read what was sent last. A socket that is closed while messages
/// to it are unread discards what it has sent.
pub fn turn_away(socket: BorrowedFd<'_>) {
    // An error means that the other side is gone already.
    let _ = shutdown(socket, Shutdown::Read);
    let mut room = [0u8; 1];
    // Reads what came before the shutdown; nothing comes after it. The queue of a socket is bounded.
    while receive(socket, &mut room).is_ok_and(|r| r.len > 0) {}
}

const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);
/// A listening socket at `path`, which must not exist.
///
/// # Errors
/// ENAMETOOLONG; else of the socket calls.
pub fn listen(path: &Path, backlog: i32) -> Sys<OwnedFd> {
    if path.as_os_str().len() > SOCKET_PATH_BYTES {
        return Err(Errno::NAMETOOLONG);
    }
    let address = SocketAddrUnix::new(path)?;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, FLAGS, None)?;
    bind(&socket, &address)?;
    rustix::net::listen(&socket, backlog)?;
    set_socket_passcred(&socket, true)?;
    Ok(socket)
}

/// Takes the next connection without waiting for it.
///
/// # Errors
/// EAGAIN if there is none; else of the socket.
pub fn accept(listener: BorrowedFd<'_>) -> Sys<OwnedFd> {
    let socket = accept_with(listener, FLAGS)?;
    set_socket_passcred(&socket, true)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::connect;
    use std::os::fd::AsFd;

    fn pair(path: &Path) -> (OwnedFd, OwnedFd) {
        let listener = listen(path, 1).unwrap();
        assert_eq!(accept(listener.as_fd()).unwrap_err(), Errno::AGAIN);
        let kind = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let client = socket_with(kind.0, kind.1, FLAGS, None).unwrap();
        connect(&client, &SocketAddrUnix::new(path).unwrap()).unwrap();
        (accept(listener.as_fd()).unwrap(), client)
    }

    #[test]
    fn a_path_that_a_socket_has_no_room_for_is_said_to_be_too_long() {
        let path = std::path::PathBuf::from(format!("/tmp/{}", "n".repeat(SOCKET_PATH_BYTES - 4)));
        assert_eq!(listen(&path, 1).unwrap_err(), Errno::NAMETOOLONG);
    }

    #[test]
    fn a_descriptor_goes_with_a_message_of_two_parts() {
        use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
        let path = std::env::temp_dir().join(format!("forebay-grant-{}", std::process::id()));
        let (ours, theirs) = pair(&path);
        std::fs::remove_file(&path).unwrap();
        let (reader, writer) = forebay_sys::pipe().unwrap();
        send(ours.as_fd(), b"head", b"body", Some(writer.as_fd())).unwrap();
        drop(writer);
        assert!(!forebay_sys::is_readable(reader.as_fd()));
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut room);
        let mut bytes = [0; 16];
        let mut parts = [std::io::IoSliceMut::new(&mut bytes)];
        let got = recvmsg(&theirs, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC).unwrap();
        let sent: Vec<OwnedFd> = control
            .drain()
            .filter_map(|message| match message {
                RecvAncillaryMessage::ScmRights(fds) => Some(fds),
                _ => None,
            })
            .flatten()
            .collect();
        assert_eq!(sent.len(), 1);
        assert_eq!(&bytes[..got.bytes], b"headbody");
        send(ours.as_fd(), b"head", b"", None).unwrap();
        // A client that is turned away can still read what was sent last.
        turn_away(ours.as_fd());
        drop(ours);
        assert_eq!(rustix::io::read(&theirs, &mut bytes), Ok(4));
        assert_eq!(rustix::io::read(&theirs, &mut bytes), Ok(0));
    }
}
