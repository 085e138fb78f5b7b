//! One connection, of descriptors that Rust owns.
#![allow(unsafe_code)]

use forebay_hook::kernel;
use forebay_link::socket::{self, Broken, Room};
use std::io::{Error, ErrorKind, Result};
use std::mem::size_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
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

fn owned(fd: kernel::OwnFd) -> OwnedFd {
    // SAFETY: it has just been given up by the only one who owned it.
    unsafe { OwnedFd::from_raw_fd(fd.into_raw()) }
}

impl Socket {
    /// Connects to the socket at `path`, and waits no longer than `limit` for a message, zero meaning for ever.
    pub fn connect(path: &Path, limit: Duration) -> Result<Self> {
        let fd = socket::connect(path.as_os_str().as_bytes()).map_err(Error::from_raw_os_error)?;
        let socket = Socket(owned(fd));
        if !limit.is_zero() {
            socket.limit_wait(limit)?;
        }
        Ok(socket)
    }

    /// Sends one message with the effective credentials of this process.
    pub fn send(&self, message: &[u8]) -> Result<()> {
        let (pid, ids) = (kernel::getpid(), kernel::effective_ids());
        match socket::send(self.0.as_raw_fd(), pid, ids, message) {
            Ok(()) => Ok(()),
            Err(Broken::Connection(e) | Broken::Final(e)) => Err(Error::from_raw_os_error(e)),
            Err(Broken::Version(_)) => Err(ErrorKind::InvalidData.into()),
        }
    }

    /// Waits no longer than this for a message, zero meaning for ever; [`Socket::receive`] fails
    /// with [`ErrorKind::WouldBlock`] then.
    pub fn limit_wait(&self, limit: Duration) -> Result<()> {
        let time = libc::timeval {
            tv_sec: limit.as_secs() as libc::time_t,
            tv_usec: libc::suseconds_t::from(limit.subsec_micros()),
        };
        // SAFETY: `time` is valid and has the length that is passed.
        let set = unsafe {
            libc::setsockopt(
                self.0.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_RCVTIMEO,
                (&raw const time).cast(),
                size_of::<libc::timeval>() as libc::socklen_t,
            )
        };
        if set == 0 {
            Ok(())
        } else {
            Err(Error::last_os_error())
        }
    }

    /// Has a message come, or the end of the connection?
    pub fn is_ready(&self) -> bool {
        !socket::is_silent(self.0.as_raw_fd())
    }

    /// Waits for the next message.
    pub fn receive(&self, buffer: &mut [u8]) -> Result<Received> {
        // SAFETY: the buffer has the length that is passed, and is borrowed as long as the room is used.
        let room = unsafe { Room::new(buffer.as_mut_ptr(), buffer.len(), true) };
        loop {
            return match socket::receive_once(self.0.as_raw_fd(), &room, 0) {
                Ok(Some(message)) => Ok(Received {
                    len: message.got.len,
                    fd: message.got.fd.map(owned),
                    cut: message.is_cut || message.lost_descriptor,
                }),
                Ok(None) => Ok(Received {
                    len: 0,
                    fd: None,
                    cut: false,
                }),
                Err(libc::EINTR) => continue,
                Err(e) => Err(Error::from_raw_os_error(e)),
            };
        }
    }
}
