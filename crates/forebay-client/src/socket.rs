//! One connection: messages out with the sender's effective credentials, replies
//! in with the descriptor that may come along.
#![allow(unsafe_code)]

use std::io::{Error, ErrorKind, Result};
use std::mem::{MaybeUninit, size_of};
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

#[repr(align(8))]
struct Room<const N: usize>([u8; N]);
// SAFETY: CMSG_SPACE only computes.
const CREDENTIALS: usize = unsafe { libc::CMSG_SPACE(size_of::<libc::ucred>() as u32) } as usize;
// SAFETY: CMSG_SPACE only computes.
const DESCRIPTOR: usize = unsafe { libc::CMSG_SPACE(size_of::<i32>() as u32) } as usize;

fn check(result: isize) -> Result<usize> {
    usize::try_from(result).map_err(|_| Error::last_os_error())
}

fn retried(mut call: impl FnMut() -> Result<usize>) -> Result<usize> {
    loop {
        match call() {
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

impl Socket {
    /// Connects to the socket at `path`.
    pub fn connect(path: &Path) -> Result<Self> {
        // SAFETY: all zeros is a valid sockaddr_un.
        let mut address: libc::sockaddr_un = unsafe { MaybeUninit::zeroed().assume_init() };
        address.sun_family = libc::AF_UNIX as libc::sa_family_t;
        let bytes = path.as_os_str().as_bytes();
        // The last byte stays NUL.
        if bytes.len() >= address.sun_path.len() {
            return Err(Error::from_raw_os_error(libc::ENAMETOOLONG));
        }
        for (to, from) in address.sun_path.iter_mut().zip(bytes) {
            *to = *from as libc::c_char;
        }
        // SAFETY: plain integers; the result is checked and then owned.
        let socket = unsafe {
            let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
            let fd = libc::socket(libc::AF_UNIX, kind, 0);
            check(fd as isize)?;
            OwnedFd::from_raw_fd(fd)
        };
        let length = size_of::<libc::sockaddr_un>() as libc::socklen_t;
        retried(|| {
            // SAFETY: `address` is valid and has the length that is passed.
            check(
                unsafe { libc::connect(socket.as_raw_fd(), (&raw const address).cast(), length) }
                    as isize,
            )
        })?;
        Ok(Socket(socket))
    }

    /// Sends one message. The kernel would attest the real user by itself; the
    /// bridge judges by the effective one, as the file system does.
    pub fn send(&self, message: &[u8]) -> Result<()> {
        let mut room = Room([0; CREDENTIALS]);
        let mut part = libc::iovec {
            iov_base: message.as_ptr().cast_mut().cast(),
            iov_len: message.len(),
        };
        let header = header(&mut part, &mut room.0);
        // SAFETY: the room has CMSG_SPACE of one ucred, so the first header and its data fit.
        unsafe {
            let control = libc::CMSG_FIRSTHDR(&raw const header);
            (*control).cmsg_level = libc::SOL_SOCKET;
            (*control).cmsg_type = libc::SCM_CREDENTIALS;
            (*control).cmsg_len = libc::CMSG_LEN(size_of::<libc::ucred>() as u32) as usize;
            let own = libc::ucred {
                pid: libc::getpid(),
                uid: libc::geteuid(),
                gid: libc::getegid(),
            };
            std::ptr::write_unaligned(libc::CMSG_DATA(control).cast(), own);
        }
        retried(|| {
            // SAFETY: the part is only read; all pointers are valid for the call.
            check(unsafe {
                libc::sendmsg(self.0.as_raw_fd(), &raw const header, libc::MSG_NOSIGNAL)
            })
        })
        .map(drop)
    }

    /// Waits no longer than this for a message, zero meaning for ever; [`Socket::receive`] fails
    /// with [`ErrorKind::WouldBlock`] then.
    pub fn limit_wait(&self, limit: Duration) -> Result<()> {
        let time = libc::timeval {
            tv_sec: limit.as_secs() as libc::time_t,
            tv_usec: libc::suseconds_t::from(limit.subsec_micros()),
        };
        // SAFETY: `time` is valid and has the length that is passed.
        check(unsafe {
            libc::setsockopt(
                self.0.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_RCVTIMEO,
                (&raw const time).cast(),
                size_of::<libc::timeval>() as libc::socklen_t,
            )
        } as isize)
        .map(drop)
    }

    /// Waits for the next message.
    pub fn receive(&self, buffer: &mut [u8]) -> Result<Received> {
        let mut room = Room([0; DESCRIPTOR]);
        let mut part = libc::iovec {
            iov_base: buffer.as_mut_ptr().cast(),
            iov_len: buffer.len(),
        };
        let mut header = header(&mut part, &mut room.0);
        let len = retried(|| {
            // SAFETY: `header` points to one part and to control room of the sizes given.
            check(unsafe {
                libc::recvmsg(self.0.as_raw_fd(), &raw mut header, libc::MSG_CMSG_CLOEXEC)
            })
        })?;
        let mut fd = None;
        // SAFETY: the kernel has filled `header`; CMSG_FIRSTHDR checks the length of the room,
        // and the descriptor is new and ours.
        unsafe {
            let control = libc::CMSG_FIRSTHDR(&raw const header);
            if !control.is_null()
                && (*control).cmsg_level == libc::SOL_SOCKET
                && (*control).cmsg_type == libc::SCM_RIGHTS
            {
                let raw: i32 = std::ptr::read_unaligned(libc::CMSG_DATA(control).cast());
                fd = Some(OwnedFd::from_raw_fd(raw));
            }
        }
        Ok(Received {
            len,
            fd,
            cut: header.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) != 0,
        })
    }
}

fn header(part: &mut libc::iovec, room: &mut [u8]) -> libc::msghdr {
    // SAFETY: all zeros is a valid msghdr.
    let mut header: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    header.msg_iov = part;
    header.msg_iovlen = 1;
    header.msg_control = room.as_mut_ptr().cast();
    header.msg_controllen = room.len();
    header
}

/// A number that no other client has.
pub fn random() -> Result<u64> {
    let mut bytes = [0u8; 8];
    retried(|| {
        // SAFETY: the buffer has the length that is passed.
        check(unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) })
    })?;
    Ok(u64::from_ne_bytes(bytes))
}
