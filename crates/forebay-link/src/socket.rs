//! Messages through the socket of a connection. A request carries the sender's
//! effective credentials; a reply may carry a descriptor.
//!
//! The module is public for callers that manage their own connections, unlike those of
//! [`crate::Link`].

use core::ffi::{c_char, c_int, c_void};

use forebay_hook::kernel::{self, Errno, OwnFd, call};
use forebay_wire::{DecodeError, GRANT_BY_NAME, Reply, ReplyKind};

use crate::config::MAX_SOCKET_PATH_BYTES;

/// Polls before the thread yields its processor, which the bridge or another client may need. A
/// yield costs less than a poll if no other thread waits.
const POLLS_PER_YIELD: u32 = 4;

/// Connections are placed right below this descriptor number, or below the process's limit if that is
/// lower. A higher number would slow every fork: the kernel copies the table up to the highest number.
const HIGH_DESCRIPTORS: u64 = 1024;
/// Size of the range of numbers for connections below that.
const RESERVED_DESCRIPTORS: u64 = 32;

/// How an attempt ended without a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Broken {
    /// The connection is gone. Another attempt on a new connection may succeed.
    Connection(Errno),
    /// Another attempt would fail, too.
    Final(Errno),
    /// This process may make no connection.
    Forbidden(Errno),
    /// The bridge speaks only this other version of the protocol.
    Version(u8),
}

/// Memory for a reply.
pub struct Room {
    out: *mut u8,
    bytes: usize,
    cloexec: bool,
}

impl Room {
    /// Memory of `bytes` at `out`. With `cloexec` a descriptor that comes with the reply closes on exec.
    ///
    /// # Safety
    /// `out` is writable for `bytes` as long as the room is used.
    pub unsafe fn new(out: *mut u8, bytes: usize, cloexec: bool) -> Self {
        Room {
            out,
            bytes,
            cloexec,
        }
    }

    /// Copies a reply of `len` bytes from `from`. False if it is longer than the room.
    ///
    /// # Safety
    /// `from` is readable for `len` bytes.
    pub unsafe fn fill(&self, from: *const u8, len: usize) -> bool {
        if len > self.bytes {
            return false;
        }
        // SAFETY: the caller's promise, and that of `new`.
        unsafe { core::ptr::copy_nonoverlapping(from, self.out, len) };
        true
    }

    /// The reply in the first `len` bytes.
    ///
    /// # Errors
    /// The bytes are no reply, or one of another version.
    pub fn reply(&self, len: usize) -> Result<Reply<'_>, Broken> {
        assert!(len <= self.bytes);
        // SAFETY: `len` bytes have been written.
        let bytes = unsafe { core::slice::from_raw_parts(self.out, len) };
        Reply::decode(bytes).map_err(|what| match what {
            DecodeError::Version(theirs) => Broken::Version(theirs),
            _ => Broken::Final(libc::EIO),
        })
    }

    /// The path and the open flags, if the reply in the first `len` bytes is a grant by name.
    pub fn granted_name(&self, len: usize) -> Option<(*const c_char, c_int)> {
        let reply = self.reply(len).ok()?;
        let by_name = reply.status == 0
            && reply.kind == ReplyKind::Grant
            && reply.aux & GRANT_BY_NAME != 0
            && reply.body.last() == Some(&0);
        let cloexec = if self.cloexec { libc::O_CLOEXEC } else { 0 };
        let flags = (reply.aux >> 32) as c_int | libc::O_NOFOLLOW | cloexec;
        by_name.then_some((reply.body.as_ptr().cast(), flags))
    }
}

/// A message in a [`Room`].
#[derive(Debug)]
pub struct Received {
    /// Its length in bytes.
    pub len: usize,
    /// The descriptor that came with it.
    pub fd: Option<OwnFd>,
}

/// True if this reply answers the request of number `seq`. A bridge that refuses a connection before it reads a request
/// answers with number 0.
pub fn belongs(reply: &Reply<'_>, seq: u32) -> bool {
    reply.seq == seq || reply.seq == 0 && reply.status != 0
}

/// Connects to the socket at `path`. The descriptor has a high number.
///
/// # Errors
/// As `socket(2)` and `connect(2)`; `ENAMETOOLONG` beyond 107 bytes.
pub fn connect(path: &[u8]) -> Result<OwnFd, Errno> {
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    // SAFETY: plain integers.
    let fd = unsafe { call!(libc::SYS_socket, libc::AF_UNIX, kind, 0) }? as c_int;
    let fd = OwnFd(to_high_number(fd));
    let mut address = libc::sockaddr_un {
        sun_family: libc::AF_UNIX as libc::sa_family_t,
        sun_path: [0; MAX_SOCKET_PATH_BYTES + 1],
    };
    if path.len() > MAX_SOCKET_PATH_BYTES {
        return Err(libc::ENAMETOOLONG);
    }
    for (to, from) in address.sun_path.iter_mut().zip(path) {
        *to = *from as c_char;
    }
    let len = size_of::<libc::sockaddr_un>();
    loop {
        // SAFETY: `address` is a complete address.
        match unsafe { call!(libc::SYS_connect, fd.0, &raw const address, len) } {
            Ok(_) | Err(libc::EISCONN) => return Ok(fd),
            Err(libc::EINTR) => {}
            Err(e) => return Err(e),
        }
    }
}

/// Moves a descriptor of the library out of the program's way. Returns its new number.
pub fn to_high_number(fd: c_int) -> c_int {
    let mut limit = [0u64; 2];
    // SAFETY: `limit` has room for an `rlimit64`.
    let got = unsafe {
        call!(
            libc::SYS_prlimit64,
            0,
            libc::RLIMIT_NOFILE,
            0,
            limit.as_mut_ptr()
        )
    };
    let end = if got.is_ok() {
        limit[0].min(HIGH_DESCRIPTORS)
    } else {
        HIGH_DESCRIPTORS
    };
    let from = end - RESERVED_DESCRIPTORS.min(end / 4);
    match kernel::fcntl(fd, libc::F_DUPFD_CLOEXEC, from as usize) {
        Ok(high) => {
            kernel::close(fd);
            high
        }
        // All high numbers are in use, so the descriptor stays.
        Err(_) => fd,
    }
}

/// Sends one message with the credentials `ids`, the effective user and group of process `pid`. Without them the kernel
/// would attach the real user and group; a file system judges by the effective ones, and so does the bridge.
///
/// # Errors
/// [`Broken`].
pub fn send(fd: c_int, pid: c_int, ids: (u32, u32), message: &[u8]) -> Result<(), Broken> {
    let (uid, gid) = ids;
    let mut control = Credentials {
        len: CREDENTIALS_BYTES,
        level: libc::SOL_SOCKET,
        kind: libc::SCM_CREDENTIALS,
        ucred: libc::ucred { pid, uid, gid },
    };
    let mut iov = libc::iovec {
        iov_base: message.as_ptr().cast_mut().cast(),
        iov_len: message.len(),
    };
    let header = header(
        &mut iov,
        (&raw mut control).cast(),
        size_of::<Credentials>(),
    );
    loop {
        // SAFETY: `header` describes live memory.
        match unsafe { call!(libc::SYS_sendmsg, fd, &raw const header, libc::MSG_NOSIGNAL) } {
            Ok(_) => return Ok(()),
            Err(libc::EINTR | libc::EAGAIN) => {}
            Err(e @ (libc::EMSGSIZE | libc::ENOMEM | libc::ENOBUFS)) => {
                return Err(Broken::Final(e));
            }
            Err(e) => return Err(Broken::Connection(e)),
        }
    }
}

/// Waits for the reply to the request of number `seq`. Polls up to `polls` times before it sleeps.
/// The Boolean is true if the reply came before the thread slept.
///
/// # Errors
/// [`Broken`].
pub fn receive(
    fd: c_int,
    room: &Room,
    seq: u32,
    mut polls: u32,
) -> Result<(Received, bool), Broken> {
    loop {
        let flags = if polls > 0 { libc::MSG_DONTWAIT } else { 0 };
        match receive_once(fd, room, flags) {
            Ok(None) => return Err(Broken::Connection(libc::ECONNRESET)),
            Ok(Some(Incoming {
                got,
                is_cut,
                lost_descriptor,
            })) => {
                let reply = room.reply(got.len)?;
                if !belongs(&reply, seq) {
                    continue;
                }
                if is_cut {
                    return Err(Broken::Final(libc::EIO));
                }
                let granted = reply.status == 0 && reply.kind == ReplyKind::Grant;
                if granted && got.fd.is_none() && lost_descriptor {
                    return Err(Broken::Final(libc::EMFILE));
                }
                return Ok((got, polls > 0));
            }
            Err(libc::EAGAIN) => {
                polls = polls.saturating_sub(1);
                if polls.is_multiple_of(POLLS_PER_YIELD) {
                    kernel::give_way();
                }
                core::hint::spin_loop();
            }
            Err(libc::EINTR) => {}
            Err(e) => return Err(Broken::Connection(e)),
        }
    }
}

/// True if the connection is alive and no message waits in it.
pub fn is_silent(fd: c_int) -> bool {
    let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
    // SAFETY: the call gets no buffer to write to.
    let peeked = unsafe { call!(libc::SYS_recvfrom, fd, 0, 0, flags, 0, 0) };
    peeked == Err(libc::EAGAIN)
}

/// A message that came in.
#[derive(Debug)]
pub struct Incoming {
    /// The message, as far as it fits the room.
    pub got: Received,
    /// The message was longer than the room; the rest is lost.
    pub is_cut: bool,
    /// A descriptor came with the message, but this process had no number for it.
    pub lost_descriptor: bool,
}

/// Takes one message, with `MSG_*` flags. `None` at the end of the connection.
///
/// # Errors
/// As `recvmsg(2)`.
pub fn receive_once(fd: c_int, room: &Room, flags: c_int) -> Result<Option<Incoming>, Errno> {
    let mut control = Rights {
        len: 0,
        level: 0,
        kind: 0,
        fds: [-1; 2],
    };
    let mut iov = libc::iovec {
        iov_base: room.out.cast(),
        iov_len: room.bytes,
    };
    let mut header = header(&mut iov, (&raw mut control).cast(), size_of::<Rights>());
    let flags = flags
        | if room.cloexec {
            libc::MSG_CMSG_CLOEXEC
        } else {
            0
        };
    // SAFETY: `header` describes live memory.
    let n = unsafe { call!(libc::SYS_recvmsg, fd, &raw mut header, flags) }?;
    if n == 0 {
        return Ok(None);
    }
    let carries = header.msg_controllen >= RIGHTS_BYTES
        && control.level == libc::SOL_SOCKET
        && control.kind == libc::SCM_RIGHTS;
    let got = Received {
        len: n,
        fd: carries.then(|| OwnFd(control.fds[0])),
    };
    Ok(Some(Incoming {
        got,
        is_cut: header.msg_flags & libc::MSG_TRUNC != 0,
        lost_descriptor: header.msg_flags & libc::MSG_CTRUNC != 0,
    }))
}

/// A control message with credentials.
#[repr(C)]
struct Credentials {
    len: usize,
    level: c_int,
    kind: c_int,
    ucred: libc::ucred,
}
const CREDENTIALS_BYTES: usize = 16 + size_of::<libc::ucred>();

/// A control message with one descriptor (and padding).
#[repr(C)]
struct Rights {
    len: usize,
    level: c_int,
    kind: c_int,
    fds: [c_int; 2],
}
const RIGHTS_BYTES: usize = 16 + size_of::<c_int>();

fn header(iov: &mut libc::iovec, control: *mut c_void, control_len: usize) -> libc::msghdr {
    // SAFETY: zeroes are a valid msghdr.
    let mut h: libc::msghdr = unsafe { core::mem::zeroed() };
    h.msg_iov = iov;
    h.msg_iovlen = 1;
    h.msg_control = control;
    h.msg_controllen = control_len;
    h
}
