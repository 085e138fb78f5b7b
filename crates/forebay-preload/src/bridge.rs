//! One request, one reply.
//!
//! The reply always belongs to the request: its number is compared, and what
//! an interrupted predecessor left in the socket is thrown away. When the
//! connection breaks, the same request goes out again under the same token,
//! marked as a retry, for as long as the bridge may need to come back.

use core::ffi::{c_int, c_void};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU32, Ordering};

use forebay_wire::{
    Attr, MAX_PATH_BYTES, MAX_REQUEST_BYTES, REPLY_HEADER_BYTES, Reply, ReplyKind, Request,
    STATUS_REDIRECT,
};

use crate::config::Config;
use crate::locate::Target;
use crate::pool::Lease;
use crate::process::{self, Process};
use crate::sys::{self, Errno, OwnFd, call};

/// Room for the reply of every operation but a listing.
const SHORT_REPLY_BYTES: usize = REPLY_HEADER_BYTES + MAX_PATH_BYTES + 1;
/// Requests up to this size are built in a small frame, because most are.
const SHORT_REQUEST_BYTES: usize = 512;
/// Polls of the socket before the thread goes to sleep. One poll takes 0.1 to 0.4 us.
const SPIN_POLLS: u32 = 400;
/// The bridge, or another client that keeps it busy, may need this very processor: now and then
/// the thread stands back. Where nobody waits this costs less than a poll.
const POLLS_PER_YIELD: u32 = 4;
/// Full mark of the spin score.
const SPIN_SCALE: u32 = 1024;
/// Below this score only one request of [`SPIN_PROBE_EVERY`] spins, to see whether it pays again.
const SPIN_LEAST: u32 = SPIN_SCALE / 4;
const SPIN_PROBE_EVERY: u32 = 64;
/// First and longest pause between two attempts to reach a lost bridge.
const RETRY_FIRST_NS: u64 = 1_000_000;
const RETRY_LONGEST_NS: u64 = 100_000_000;

/// Why a request has no result.
pub enum Fail {
    /// The errno for the program.
    Errno(Errno),
    /// Go on natively at the path in [`Answer::path`].
    Redirect,
}

impl From<Errno> for Fail {
    fn from(e: Errno) -> Self {
        Fail::Errno(e)
    }
}

/// Room for a reply, and the descriptor that came with it.
pub struct Answer {
    buffer: MaybeUninit<[u8; SHORT_REPLY_BYTES + 1]>,
    len: usize,
    fd: Option<OwnFd>,
    kind: ReplyKind,
    /// `Reply::aux`.
    pub aux: u64,
}

impl Answer {
    /// Empty.
    pub fn new() -> Self {
        Answer {
            buffer: MaybeUninit::uninit(),
            len: 0,
            fd: None,
            kind: ReplyKind::Empty,
            aux: 0,
        }
    }

    /// The body of the reply.
    pub fn body(&self) -> &[u8] {
        let at = REPLY_HEADER_BYTES.min(self.len);
        // SAFETY: the kernel wrote `len` bytes.
        unsafe {
            core::slice::from_raw_parts(self.buffer.as_ptr().cast::<u8>().add(at), self.len - at)
        }
    }

    /// The body as a C string.
    pub fn path(&mut self) -> *const core::ffi::c_char {
        let start = self.buffer.as_mut_ptr().cast::<u8>();
        // SAFETY: `len` is at most SHORT_REPLY_BYTES, and the buffer has one byte more.
        unsafe {
            *start.add(self.len.max(REPLY_HEADER_BYTES)) = 0;
            start.add(REPLY_HEADER_BYTES).cast()
        }
    }

    /// The granted descriptor.
    pub fn take_fd(&mut self) -> Result<OwnFd, Errno> {
        self.fd.take().ok_or(libc::EIO)
    }
}

/// Sends `request` and waits for the answer. `cloexec`: how a granted descriptor is to be.
pub fn ask(
    config: &Config,
    request: &mut Request<'_>,
    cloexec: bool,
    answer: &mut Answer,
) -> Result<(), Fail> {
    let start = answer.buffer.as_mut_ptr().cast::<u8>();
    answer.len = 0;
    answer.fd = None;
    // SAFETY: the buffer has more than SHORT_REPLY_BYTES.
    let got = unsafe { exchange(config, request, cloexec, start, SHORT_REPLY_BYTES) }?;
    answer.len = got.len;
    answer.fd = got.fd;
    // SAFETY: the kernel wrote `len` bytes.
    let reply = Reply::decode(unsafe { core::slice::from_raw_parts(start, got.len) })
        .map_err(|_| libc::EIO)?;
    answer.aux = reply.aux;
    answer.kind = reply.kind;
    verdict(reply.status)
}

fn verdict(status: i32) -> Result<(), Fail> {
    match status {
        0 => Ok(()),
        STATUS_REDIRECT => Err(Fail::Redirect),
        e if (1..4096).contains(&e) => Err(Fail::Errno(e)),
        _ => Err(Fail::Errno(libc::EIO)),
    }
}

/// Like [`ask`], for a listing: the reply goes into memory of the caller. Gives body length and `aux`.
///
/// # Safety
/// `out` is writable for `room` bytes.
pub unsafe fn ask_long(
    config: &Config,
    request: &mut Request<'_>,
    out: *mut u8,
    room: usize,
) -> Result<(usize, u64), Fail> {
    // SAFETY: the caller's promise.
    let got = unsafe { exchange(config, request, true, out, room) }?;
    // SAFETY: the kernel wrote `len` bytes.
    let reply = Reply::decode(unsafe { core::slice::from_raw_parts(out, got.len) })
        .map_err(|_| libc::EIO)?;
    verdict(reply.status)?;
    Ok((reply.body.len(), reply.aux))
}

/// Attributes of the object.
pub fn stat(target: &Target<'_>, flags: u32, answer: &mut Answer) -> Result<Attr, Fail> {
    let mut request = target.request(forebay_wire::Op::Stat);
    request.arg0 = flags;
    ask(target.config, &mut request, true, answer)?;
    if answer.kind != ReplyKind::Attr {
        return Err(Fail::Errno(libc::EIO));
    }
    Ok(Attr::decode(answer.body()).map_err(|_| libc::EIO)?)
}

/// An `O_PATH` descriptor of the object.
pub fn resolve(target: &Target<'_>, flags: u32, answer: &mut Answer) -> Result<OwnFd, Fail> {
    resolve_as(target, flags, true, answer)
}

/// [`resolve`], where the program gets the descriptor.
pub fn resolve_as(
    target: &Target<'_>,
    flags: u32,
    cloexec: bool,
    answer: &mut Answer,
) -> Result<OwnFd, Fail> {
    let mut request = target.request(forebay_wire::Op::Resolve);
    request.arg0 = flags;
    ask(target.config, &mut request, cloexec, answer)?;
    Ok(answer.take_fd()?)
}

struct Received {
    len: usize,
    fd: Option<OwnFd>,
}

/// # Safety
/// `out` is writable for `room` bytes.
unsafe fn exchange(
    config: &Config,
    request: &mut Request<'_>,
    cloexec: bool,
    out: *mut u8,
    room: usize,
) -> Result<Received, Errno> {
    let mut short = [0u8; SHORT_REQUEST_BYTES];
    let (process, pid) = process::own();
    match process {
        Some(p) => (request.client, request.seq) = (p.client(), p.next_seq()),
        None => (request.client, request.seq) = (sys::random(), 1),
    }
    let exchange = Exchange {
        config,
        process,
        pid,
        cloexec,
        out,
        room,
    };
    match request.encode(&mut short) {
        Ok(n) => exchange.run(request.seq, &mut short[..n]),
        Err(_) => exchange.run_long(request),
    }
}

struct Exchange<'a> {
    config: &'a Config,
    process: Option<&'static Process>,
    pid: c_int,
    cloexec: bool,
    out: *mut u8,
    room: usize,
}

/// How an attempt ended without a reply.
enum Broken {
    /// The connection is gone; a new one may do.
    Connection(Errno),
    /// No use in trying again.
    Final(Errno),
}

/// Place of the retry mark in an encoded request.
const RETRY_BYTE: usize = 7;

impl Exchange<'_> {
    #[inline(never)]
    fn run_long(&self, request: &Request<'_>) -> Result<Received, Errno> {
        let mut long = [0u8; MAX_REQUEST_BYTES];
        let n = request.encode(&mut long).map_err(|_| libc::ENAMETOOLONG)?;
        self.run(request.seq, &mut long[..n])
    }

    fn run(&self, seq: u32, message: &mut [u8]) -> Result<Received, Errno> {
        let mut lease = Lease::take(self.process);
        let mut deadline = 0u64;
        let mut pause = RETRY_FIRST_NS;
        loop {
            let sent = match lease.socket(self.config) {
                Ok(fd) => match self.send(fd, message) {
                    // A bridge that refuses a connection says why before it stops to listen.
                    Ok(()) | Err(Broken::Connection(libc::EPIPE)) => {
                        message[RETRY_BYTE] = 1;
                        self.receive(fd, seq)
                    }
                    Err(broken) => Err(broken),
                },
                Err(e @ (libc::EMFILE | libc::ENFILE | libc::ENOMEM)) => Err(Broken::Final(e)),
                Err(e) => Err(Broken::Connection(e)),
            };
            let why = match sent {
                Ok(got) => {
                    self.reached();
                    return Ok(got);
                }
                Err(Broken::Final(e)) => return Err(e),
                Err(Broken::Connection(e)) => e,
            };
            lease.broken();
            let now = sys::now_ns();
            if deadline == 0 {
                deadline = now
                    + if self.given_up() {
                        0
                    } else {
                        self.config.reconnect_ns
                    };
                if deadline > now {
                    continue; // the first new attempt without a pause: the bridge may only have closed an idle connection
                }
            }
            if now >= deadline {
                self.give_up(why);
                return Err(libc::EIO);
            }
            sys::sleep_ns(pause.min(deadline - now));
            pause = (pause * 2).min(RETRY_LONGEST_NS);
        }
    }

    fn given_up(&self) -> bool {
        self.process
            .is_some_and(|p| p.lost.load(Ordering::Relaxed) != 0)
    }

    fn reached(&self) {
        if let Some(p) = self.process
            && p.lost.load(Ordering::Relaxed) != 0
        {
            p.lost.store(0, Ordering::Relaxed);
        }
    }

    fn give_up(&self, why: Errno) {
        let first = self
            .process
            .is_none_or(|p| p.lost.swap(1, Ordering::Relaxed) == 0);
        if first {
            let reason: &[u8] = match why {
                libc::ENOENT => b"its socket is gone",
                libc::ECONNREFUSED => b"nobody listens on its socket",
                libc::EACCES => b"its socket may not be opened",
                _ => b"the connection broke",
            };
            let (socket, root) = (self.config.socket(), self.config.root());
            sys::complain(&[
                b"forebay: the bridge of ",
                root,
                b" at ",
                socket,
                b" cannot be reached (",
                reason,
                b"); calls on paths in the buffer fail with EIO\n",
            ]);
        }
    }

    fn send(&self, fd: c_int, message: &[u8]) -> Result<(), Broken> {
        let (uid, gid) = sys::effective_ids();
        let mut control = Credentials {
            len: CREDENTIALS_BYTES,
            level: libc::SOL_SOCKET,
            kind: libc::SCM_CREDENTIALS,
            ucred: libc::ucred {
                pid: self.pid,
                uid,
                gid,
            },
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

    fn receive(&self, fd: c_int, seq: u32) -> Result<Received, Broken> {
        let mut spins = self.spin_budget();
        let spinning = spins > 0;
        loop {
            let flags = if spins > 0 { libc::MSG_DONTWAIT } else { 0 };
            match self.receive_once(fd, flags) {
                Ok(None) => return Err(Broken::Connection(libc::ECONNRESET)),
                Ok(Some((got, truncated))) => {
                    // SAFETY: the kernel wrote `len` bytes.
                    let reply =
                        Reply::decode(unsafe { core::slice::from_raw_parts(self.out, got.len) });
                    let Ok(reply) = reply else {
                        return Err(Broken::Final(libc::EIO));
                    };
                    // Number 0: the bridge refused before it read a request.
                    let refused = reply.seq == 0 && reply.status != 0;
                    if reply.seq != seq && !refused {
                        continue;
                    }
                    if reply.status == 0
                        && reply.kind == ReplyKind::Grant
                        && got.fd.is_none()
                        && truncated
                    {
                        return Err(Broken::Final(libc::EMFILE));
                    }
                    if spinning {
                        self.spun(spins > 0);
                    }
                    return Ok(got);
                }
                Err(libc::EAGAIN) => {
                    spins = spins.saturating_sub(1);
                    if spins.is_multiple_of(POLLS_PER_YIELD) {
                        sys::give_way();
                    }
                    core::hint::spin_loop();
                }
                Err(libc::EINTR) => {}
                Err(e) => return Err(Broken::Connection(e)),
            }
        }
    }

    /// One message: what came, and whether a descriptor was cut off. `None` at the end of the connection.
    fn receive_once(&self, fd: c_int, flags: c_int) -> Result<Option<(Received, bool)>, Errno> {
        let mut control = Rights {
            len: 0,
            level: 0,
            kind: 0,
            fds: [-1; 2],
        };
        let mut iov = libc::iovec {
            iov_base: self.out.cast(),
            iov_len: self.room,
        };
        let mut header = header(&mut iov, (&raw mut control).cast(), size_of::<Rights>());
        let flags = flags
            | if self.cloexec {
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
        if header.msg_flags & libc::MSG_TRUNC != 0 {
            return Err(libc::EPROTO);
        }
        Ok(Some((got, header.msg_flags & libc::MSG_CTRUNC != 0)))
    }

    fn spin_budget(&self) -> u32 {
        let Some(p) = self.process else { return 0 };
        if one_cpu() {
            return 0;
        }
        let score = p.spin_score.load(Ordering::Relaxed);
        if score == 0
            || score > SPIN_LEAST
            || PROBE
                .fetch_add(1, Ordering::Relaxed)
                .is_multiple_of(SPIN_PROBE_EVERY)
        {
            SPIN_POLLS
        } else {
            0
        }
    }

    /// Moving average over about eight requests.
    fn spun(&self, paid: bool) {
        if let Some(p) = self.process {
            let old = match p.spin_score.load(Ordering::Relaxed) {
                0 => SPIN_SCALE,
                score => score - 1,
            };
            let new = old - old / 8 + if paid { SPIN_SCALE / 8 } else { 0 };
            p.spin_score.store(new + 1, Ordering::Relaxed);
        }
    }
}

static PROBE: AtomicU32 = AtomicU32::new(0);

/// May this process run on one CPU only? Then spinning keeps the bridge from answering.
fn one_cpu() -> bool {
    /// 0: not asked, 1: one, 2: more.
    static CPUS: AtomicU32 = AtomicU32::new(0);
    match CPUS.load(Ordering::Relaxed) {
        0 => {
            let mut mask = [0u64; 128];
            // SAFETY: `mask` is writable for its size.
            let got = unsafe {
                call!(
                    libc::SYS_sched_getaffinity,
                    0,
                    size_of_val(&mask),
                    mask.as_mut_ptr()
                )
            };
            let count: u32 = mask.iter().map(|w| w.count_ones()).sum();
            let one = got.is_err() || count < 2;
            CPUS.store(if one { 1 } else { 2 }, Ordering::Relaxed);
            one
        }
        n => n == 1,
    }
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
