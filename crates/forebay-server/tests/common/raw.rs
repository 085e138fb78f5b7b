//! A client that need not keep to the protocol: bare messages on a bare socket.
#![allow(unsafe_code)]

use forebay_wire::{MAX_REPLY_BYTES, MAX_REQUEST_BYTES, Op, Reply, Request};
use std::io::{Error, Result};
use std::mem::zeroed;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

pub struct Raw(OwnedFd);

/// What came back.
#[derive(Debug, PartialEq, Eq)]
pub enum Said {
    Status(i32),
    /// The connection has ended.
    End,
}

fn check(result: isize) -> Result<usize> {
    usize::try_from(result).map_err(|_| Error::last_os_error())
}

impl Raw {
    pub fn connect(path: &Path) -> Result<Raw> {
        // SAFETY: a zeroed sockaddr_un is valid, and it has the length that is passed.
        unsafe {
            let fd = libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0);
            check(fd as isize)?;
            let socket = OwnedFd::from_raw_fd(fd);
            let mut address: libc::sockaddr_un = zeroed();
            address.sun_family = libc::AF_UNIX as u16;
            for (to, from) in address.sun_path.iter_mut().zip(path.as_os_str().as_bytes()) {
                *to = *from as libc::c_char;
            }
            let len = size_of::<libc::sockaddr_un>() as u32;
            check(libc::connect(fd, (&raw const address).cast(), len) as isize)?;
            Ok(Raw(socket))
        }
    }

    pub fn send(&self, message: &[u8]) -> Result<()> {
        // SAFETY: the message has the length that is passed.
        check(unsafe {
            libc::send(
                self.0.as_raw_fd(),
                message.as_ptr().cast(),
                message.len(),
                libc::MSG_NOSIGNAL,
            )
        })
        .map(drop)
    }

    /// Sends a message with descriptors, as many as `count` copies of `fd`.
    pub fn send_with(&self, message: &[u8], fd: BorrowedFd<'_>, count: usize) -> Result<()> {
        let fds = vec![fd.as_raw_fd(); count];
        let bytes = std::mem::size_of_val(&fds[..]) as u32;
        // SAFETY: the control buffer has CMSG_SPACE for the descriptors, aligned as a u64.
        unsafe {
            let mut room = vec![0u64; libc::CMSG_SPACE(bytes) as usize / 8 + 1];
            let mut part = libc::iovec {
                iov_base: message.as_ptr().cast_mut().cast(),
                iov_len: message.len(),
            };
            let mut header: libc::msghdr = zeroed();
            header.msg_iov = &raw mut part;
            header.msg_iovlen = 1;
            header.msg_control = room.as_mut_ptr().cast();
            header.msg_controllen = libc::CMSG_SPACE(bytes) as usize;
            let control = libc::CMSG_FIRSTHDR(&raw const header);
            (*control).cmsg_level = libc::SOL_SOCKET;
            (*control).cmsg_type = libc::SCM_RIGHTS;
            (*control).cmsg_len = libc::CMSG_LEN(bytes) as usize;
            std::ptr::copy_nonoverlapping(
                fds.as_ptr().cast(),
                libc::CMSG_DATA(control),
                bytes as usize,
            );
            check(libc::sendmsg(
                self.0.as_raw_fd(),
                &raw const header,
                libc::MSG_NOSIGNAL,
            ))
            .map(drop)
        }
    }

    pub fn send_request(&self, request: &Request<'_>) -> Result<()> {
        let mut buffer = vec![0; MAX_REQUEST_BYTES];
        let len = request.encode(&mut buffer).unwrap();
        self.send(&buffer[..len])
    }

    /// The bytes of the next message; none at the end. A descriptor that comes along is closed by
    /// the kernel, because no room is offered for it.
    pub fn receive_bytes(&self) -> Option<Vec<u8>> {
        let mut buffer = vec![0; MAX_REPLY_BYTES];
        // SAFETY: the buffer has the length that is passed.
        let got = check(unsafe {
            libc::recv(
                self.0.as_raw_fd(),
                buffer.as_mut_ptr().cast(),
                buffer.len(),
                0,
            )
        });
        buffer.truncate(got.unwrap_or(0));
        (!buffer.is_empty()).then_some(buffer)
    }

    /// Takes the next reply.
    pub fn receive(&self) -> Said {
        match self.receive_bytes() {
            None => Said::End,
            Some(bytes) => Said::Status(Reply::decode(&bytes).unwrap().status),
        }
    }

    pub fn ask(&self, request: &Request<'_>) -> Said {
        self.send_request(request).unwrap();
        self.receive()
    }

    /// Has a message come that was not received yet?
    pub fn has_mail(&self) -> bool {
        forebay_sys::is_readable(self.0.as_fd())
    }

    /// No more will be sent.
    pub fn shut(&self) {
        // SAFETY: plain integers.
        unsafe { libc::shutdown(self.0.as_raw_fd(), libc::SHUT_WR) };
    }
}

/// A request for one path.
pub fn request(op: Op, path: &[u8]) -> Request<'_> {
    Request {
        client: 1,
        seq: 1,
        str1: path,
        ..Request::new(op)
    }
}
