//! One connection: messages out with the sender's effective credentials, replies
//! in with the descriptor that may come along.

use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
    UCred, connect, recvmsg, sendmsg, socket_with,
    sockopt::{Timeout, set_socket_timeout},
};
use rustix::process::{getegid, geteuid, getpid};
use rustix::rand::{GetRandomFlags, getrandom};
use std::io::{IoSlice, IoSliceMut, Result};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

/// A connected socket. Messages keep their bounds.
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
    /// Connects to the socket at `path`.
    pub fn connect(path: &Path) -> Result<Self> {
        if path.as_os_str().len() > SOCKET_PATH_BYTES {
            return Err(Errno::NAMETOOLONG.into());
        }
        let address = SocketAddrUnix::new(path)?;
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        retry_on_intr(|| connect(&socket, &address))?;
        Ok(Socket(socket))
    }

    /// Sends one message. The kernel would attest the real user by itself; the
    /// bridge judges by the effective one, as the file system does.
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

    /// Waits no longer than this for a message, zero meaning for ever; [`Socket::receive`] fails
    /// with [`std::io::ErrorKind::WouldBlock`] then.
    pub fn limit_wait(&self, limit: Duration) -> Result<()> {
        let limit = (!limit.is_zero()).then_some(limit);
        Ok(set_socket_timeout(&self.0, Timeout::Recv, limit)?)
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

/// A number that no other client has.
pub fn random() -> Result<u64> {
    let mut bytes = [0u8; 8];
    // So few bytes come whole, or not at all.
    retry_on_intr(|| getrandom(&mut bytes, GetRandomFlags::empty()))?;
    Ok(u64::from_ne_bytes(bytes))
}
