//! One connection. Requests carry the sender's effective credentials; a reply may
//! carry a descriptor.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
    UCred, connect, recvmsg, sendmsg, socket_with,
    sockopt::{Timeout, set_socket_timeout},
};
use rustix::process::{getegid, geteuid, getpid};
use std::io::{IoSlice, IoSliceMut, Result};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

/// A connected SEQPACKET socket, which keeps the bounds of messages.
#[derive(Debug)]
pub struct Socket(OwnedFd);

/// A message that came in.
pub struct Received {
    /// Its length in bytes; 0 at the end of the connection.
    pub len: usize,
    /// The descriptor that came with it.
    pub fd: Option<OwnedFd>,
    /// The message did not fit, or its descriptor could not be taken.
    pub cut: bool,
}

/// Longest path of a socket in bytes.
const SOCKET_PATH_BYTES: usize = 107;

impl Socket {
    /// Connects to the socket at `path`. `limit` is the longest wait for a message; zero means no limit.
    pub fn connect(path: &Path, limit: Duration) -> Result<Self> {
        if path.as_os_str().len() > SOCKET_PATH_BYTES {
            return Err(Errno::NAMETOOLONG.into());
        }
        let address = SocketAddrUnix::new(path)?;
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        retry_on_intr(|| connect(&socket, &address))?;
        let socket = Socket(socket);
        if !limit.is_zero() {
            socket.limit_wait(limit)?;
        }
        Ok(socket)
    }

    /// Sends one message with the effective user and group. By default the kernel would
    /// attach the real ones; the bridge judges by the effective ones, as a file system does.
    pub fn send(&self, message: &[u8]) -> Result<()> {
        let own = UCred {
            pid: getpid(),
            uid: geteuid(),
            gid: getegid(),
        };
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1))];
        let mut control = SendAncillaryBuffer::new(&mut room);
        let credentials = SendAncillaryMessage::ScmCredentials(own);
        assert!(control.push(credentials), "there is room for credentials");
        let parts = [IoSlice::new(message)];
        retry_on_intr(|| sendmsg(&self.0, &parts, &mut control, SendFlags::NOSIGNAL))?;
        Ok(())
    }

    /// Sets the longest wait for a message; zero means no limit. After that time [`Socket::receive`]
    /// fails with [`std::io::ErrorKind::WouldBlock`].
    pub fn limit_wait(&self, limit: Duration) -> Result<()> {
        let limit = (!limit.is_zero()).then_some(limit);
        Ok(set_socket_timeout(&self.0, Timeout::Recv, limit)?)
    }

    /// True if a message, or the end of the connection, has come.
    pub fn is_ready(&self) -> bool {
        let mut socket = [PollFd::new(&self.0, PollFlags::IN)];
        // If the poll fails, the caller reads the message, and that read reports the error.
        retry_on_intr(|| poll(&mut socket, Some(&Timespec::default()))).map_or(true, |n| n > 0)
    }

    /// Waits for the next message.
    pub fn receive(&self, buffer: &mut [u8]) -> Result<Received> {
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut room);
        let mut parts = [IoSliceMut::new(buffer)];
        let flags = RecvFlags::CMSG_CLOEXEC;
        let message = retry_on_intr(|| recvmsg(&self.0, &mut parts, &mut control, flags))?;
        let fd = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
            _ => None,
        });
        let cut = ReturnFlags::TRUNC | ReturnFlags::CTRUNC;
        Ok(Received {
            len: message.bytes,
            fd,
            cut: message.flags.intersects(cut),
        })
    }
}
