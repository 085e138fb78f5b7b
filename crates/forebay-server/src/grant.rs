//! Messages over the socket, with what only the kernel can vouch for beside
//! them: the credentials of the sender, and descriptors on their way to him.
#![allow(unsafe_code)]

use forebay_sys::{Errno, Sys};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// User, group and process that the kernel attests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// Process; 0 if it can't be seen from here.
    pub pid: i32,
    /// Effective user.
    pub uid: u32,
    /// Effective group.
    pub gid: u32,
}

/// A message that came in.
#[derive(Debug, Clone, Copy)]
pub struct Received {
    /// Its length in bytes; 0 at the end of the connection.
    pub len: usize,
    /// It was longer than the buffer.
    pub truncated: bool,
    /// Who sent it.
    pub sender: Option<Peer>,
}

/// Room for credentials and not one byte more: descriptors that a client sends
/// find no place, and the kernel closes them.
#[repr(align(8))]
struct CredentialRoom([u8; CREDENTIAL_ROOM]);
// SAFETY: CMSG_SPACE only computes.
const CREDENTIAL_ROOM: usize =
    unsafe { libc::CMSG_SPACE(size_of::<libc::ucred>() as u32) } as usize;

#[repr(align(8))]
struct DescriptorRoom([u8; DESCRIPTOR_ROOM]);
// SAFETY: CMSG_SPACE only computes.
const DESCRIPTOR_ROOM: usize = unsafe { libc::CMSG_SPACE(size_of::<i32>() as u32) } as usize;

fn size(result: isize) -> Sys<usize> {
    usize::try_from(result).map_err(|_| Errno::last())
}

/// Takes the next message without waiting for it.
///
/// # Errors
/// EAGAIN if there is none; else of the socket.
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
    // SAFETY: `message` points to one part and to control room of the sizes given.
    let len = size(unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags) })?;
    let mut sender = None;
    // SAFETY: the kernel has filled `message`; CMSG_FIRSTHDR checks the length of the room.
    unsafe {
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        if !header.is_null()
            && (*header).cmsg_level == libc::SOL_SOCKET
            && (*header).cmsg_type == libc::SCM_CREDENTIALS
        {
            let cred: libc::ucred = std::ptr::read_unaligned(libc::CMSG_DATA(header).cast());
            sender = Some(Peer {
                pid: cred.pid,
                uid: cred.uid,
                gid: cred.gid,
            });
        }
    }
    Ok(Received {
        len,
        truncated: message.msg_flags & libc::MSG_TRUNC != 0,
        sender,
    })
}

/// Sends one message of two parts, with a descriptor if there is one, without waiting.
///
/// # Errors
/// EAGAIN if the receiver's queue is full, EPIPE if he is gone, ETOOMANYREFS if
/// too many descriptors are on their way.
pub fn send(
    socket: BorrowedFd<'_>,
    header: &[u8],
    body: &[u8],
    descriptor: Option<BorrowedFd<'_>>,
) -> Sys<()> {
    let mut room = DescriptorRoom([0; DESCRIPTOR_ROOM]);
    let mut parts = [header, body].map(|part| libc::iovec {
        iov_base: part.as_ptr().cast_mut().cast(),
        iov_len: part.len(),
    });
    // SAFETY: all zeros is a valid msghdr.
    let mut message: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    message.msg_iov = parts.as_mut_ptr();
    message.msg_iovlen = if body.is_empty() { 1 } else { 2 };
    if let Some(fd) = descriptor {
        message.msg_control = room.0.as_mut_ptr().cast();
        message.msg_controllen = room.0.len();
        // SAFETY: the room has CMSG_SPACE of one descriptor, so the first header and its data fit.
        unsafe {
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(size_of::<i32>() as u32) as usize;
            std::ptr::write_unaligned(libc::CMSG_DATA(header).cast(), fd.as_raw_fd());
        }
    }
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: the parts are only read; all pointers are valid for the call.
    size(unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, flags) }).map(drop)
}

/// Ends a connection so that what was sent last can still be read: a socket that is
/// closed with messages unread takes its own last words back.
pub fn turn_away(socket: BorrowedFd<'_>) {
    // SAFETY: plain integers. If the other side is gone already, so much the better.
    unsafe { libc::shutdown(socket.as_raw_fd(), libc::SHUT_RD) };
    let mut room = [0u8; 1];
    // What had come before; nothing comes after. The queue of a socket is bounded.
    while receive(socket, &mut room).is_ok_and(|r| r.len > 0) {}
}

fn address(path: &Path) -> Sys<(libc::sockaddr_un, libc::socklen_t)> {
    // SAFETY: all zeros is a valid sockaddr_un.
    let mut address: libc::sockaddr_un = unsafe { MaybeUninit::zeroed().assume_init() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let bytes = path.as_os_str().as_bytes();
    // The last byte stays NUL.
    if bytes.len() >= address.sun_path.len() {
        return Err(Errno(libc::ENAMETOOLONG));
    }
    for (to, from) in address.sun_path.iter_mut().zip(bytes) {
        *to = *from as libc::c_char;
    }
    Ok((address, size_of::<libc::sockaddr_un>() as libc::socklen_t))
}

/// A listening socket at `path`, which must not exist.
///
/// # Errors
/// Of the socket calls.
pub fn listen(path: &Path, backlog: i32) -> Sys<OwnedFd> {
    let (address, len) = address(path)?;
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: plain integers; the result is checked and then owned.
    let socket = unsafe {
        let fd = libc::socket(libc::AF_UNIX, kind, 0);
        if fd < 0 {
            return Err(Errno::last());
        }
        OwnedFd::from_raw_fd(fd)
    };
    // SAFETY: `address` is valid and has the length that is passed.
    let bound = unsafe {
        libc::bind(socket.as_raw_fd(), (&raw const address).cast(), len) == 0
            && libc::listen(socket.as_raw_fd(), backlog) == 0
    };
    if !bound {
        return Err(Errno::last());
    }
    want_credentials(&socket)?;
    Ok(socket)
}

fn want_credentials(socket: &OwnedFd) -> Sys<()> {
    let on: libc::c_int = 1;
    // SAFETY: `on` is valid and has the size that is passed.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PASSCRED,
            (&raw const on).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if result < 0 {
        Err(Errno::last())
    } else {
        Ok(())
    }
}

/// Takes the next connection without waiting for it.
///
/// # Errors
/// EAGAIN if there is none; else of the socket.
pub fn accept(listener: BorrowedFd<'_>) -> Sys<OwnedFd> {
    // SAFETY: no address is asked for; the result is checked and then owned.
    let socket = unsafe {
        let fd = libc::accept4(
            listener.as_raw_fd(),
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK,
        );
        if fd < 0 {
            return Err(Errno::last());
        }
        OwnedFd::from_raw_fd(fd)
    };
    want_credentials(&socket)?;
    Ok(socket)
}

/// Who connected.
///
/// # Errors
/// Of the socket.
pub fn peer(socket: BorrowedFd<'_>) -> Sys<Peer> {
    let mut cred = libc::ucred {
        pid: 0,
        uid: u32::MAX,
        gid: u32::MAX,
    };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: `cred` has the size that is passed.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut cred).cast(),
            &raw mut len,
        )
    };
    if result < 0 {
        return Err(Errno::last());
    }
    Ok(Peer {
        pid: cred.pid,
        uid: cred.uid,
        gid: cred.gid,
    })
}

/// Supplementary groups of who connected.
///
/// # Errors
/// Of the socket.
pub fn peer_groups(socket: BorrowedFd<'_>) -> Sys<Vec<u32>> {
    let mut groups = vec![0u32; 64];
    loop {
        let mut len = (groups.len() * size_of::<u32>()) as libc::socklen_t;
        // SAFETY: `groups` has the size in bytes that is passed.
        let result = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERGROUPS,
                groups.as_mut_ptr().cast(),
                &raw mut len,
            )
        };
        let count = len as usize / size_of::<u32>();
        if result == 0 {
            groups.truncate(count);
            return Ok(groups);
        }
        match Errno::last() {
            // The kernel says how many there are.
            Errno(libc::ERANGE) if count > groups.len() => groups.resize(count, 0),
            Errno(libc::ENODATA) => return Ok(Vec::new()),
            e => return Err(e),
        }
    }
}
