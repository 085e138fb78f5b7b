//! One request, one reply.
//!
//! The reply always belongs to the request: its number is compared, and what
//! an interrupted predecessor left in the socket is thrown away. When the
//! connection breaks, the same request goes out again under the same token,
//! marked as a retry, for as long as the bridge may need to come back.
//!
//! A request goes through the memory that the connection shares with the bridge
//! ([`crate::lane`]), if it has some and the bridge looks there, else through its
//! socket ([`crate::socket`]).

use core::ffi::c_int;
use core::sync::atomic::Ordering;

use forebay_wire::{BY_NAME, LanePage, MAX_REQUEST_BYTES, Op, Request};

use crate::config::Config;
use crate::lane::{self, Passed};
use crate::pool::Lease;
use crate::process::{self, Process};
use crate::socket::{self, Broken, Received, Room};
use crate::spin;
use crate::sys::{self, Errno, OwnFd};

/// Requests up to this size are built in a small frame, because most are.
const SHORT_REQUEST_BYTES: usize = 512;
/// First and longest pause between two attempts to reach a lost bridge.
const RETRY_FIRST_NS: u64 = 1_000_000;
const RETRY_LONGEST_NS: u64 = 100_000_000;
/// Places in an encoded request: the retry mark, and the lowest byte of `arg2`.
const RETRY_BYTE: usize = 7;
const BY_NAME_BYTE: usize = 32;

/// Sends `request` and waits for the reply. `cloexec`: how a granted descriptor is to be.
///
/// # Safety
/// `out` is writable for `room` bytes.
pub unsafe fn exchange(
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
        may_open: request.op == Op::Open,
        // SAFETY: the caller's promise.
        room: unsafe { Room::new(out, room, cloexec) },
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
    /// It asks for an open: the answer may be a name.
    may_open: bool,
    room: Room,
}

/// What became of a grant by name.
enum Named {
    /// It is none.
    Nothing,
    Open(OwnFd),
    /// It can't be used: a descriptor has to be asked for.
    Late,
}

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
            let why = match self.attempt(&mut lease, seq, message) {
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

    /// One attempt. From the moment when the bridge may have the message it is marked as a retry.
    fn attempt(
        &self,
        lease: &mut Lease<'_>,
        seq: u32,
        message: &mut [u8],
    ) -> Result<Received, Broken> {
        let ids = sys::effective_ids();
        if let Some(page) = lease.lane(ids)
            && let Some(got) = self.by_lane(lease, page, seq, message)?
        {
            return Ok(got);
        }
        let fd = match lease.socket(self.config) {
            Ok(fd) => fd,
            Err(e @ (libc::EMFILE | libc::ENFILE | libc::ENOMEM)) => return Err(Broken::Final(e)),
            Err(e) => return Err(Broken::Connection(e)),
        };
        if let Some(process) = self.process
            && lease.is_due_for_lane()
        {
            let page = lane::open(fd, process, self.pid, ids)?;
            lease.use_lane(page, ids);
        }
        match socket::send(fd, self.pid, ids, message) {
            // A bridge that refuses a connection says why before it stops to listen.
            Ok(()) | Err(Broken::Connection(libc::EPIPE)) => message[RETRY_BYTE] = 1,
            Err(broken) => return Err(broken),
        }
        let polls = spin::budget(self.process);
        let (got, in_time) = socket::receive(fd, &self.room, seq, polls)?;
        if polls > 0 {
            spin::learn(self.process, in_time);
        }
        Ok(got)
    }

    /// An attempt through shared memory. `None`: it has to go by the socket.
    fn by_lane(
        &self,
        lease: &Lease<'_>,
        page: &LanePage,
        seq: u32,
        message: &mut [u8],
    ) -> Result<Option<Received>, Broken> {
        let forbidden = page.words.late_opens_forbidden();
        if self.may_open {
            message[BY_NAME_BYTE] = BY_NAME as u8;
        }
        let passed = self.pass(lease, page, seq, message);
        // Whatever has become of it: through the socket only a descriptor will do.
        if self.may_open {
            message[BY_NAME_BYTE] = 0;
        }
        let Some(mut got) = passed? else {
            return Ok(None);
        };
        match self.open_named(lease, page, forbidden, &got)? {
            Named::Nothing => {}
            Named::Open(fd) => got.fd = Some(fd),
            Named::Late => {
                // The same request once more: it may have made what it opens.
                message[RETRY_BYTE] = 1;
                return Ok(None);
            }
        }
        Ok(Some(got))
    }

    /// The request's way into the memory and the answer's way back, from there or beside it through the socket.
    fn pass(
        &self,
        lease: &Lease<'_>,
        page: &LanePage,
        seq: u32,
        message: &mut [u8],
    ) -> Result<Option<Received>, Broken> {
        match lane::pass(page, message, &self.room, seq)? {
            Passed::Answered(got) => Ok(Some(got)),
            Passed::Beside => {
                message[RETRY_BYTE] = 1;
                let fd = lease.connected().ok_or(Broken::Connection(libc::EBADF))?;
                Ok(Some(socket::receive(fd, &self.room, seq, 0)?.0))
            }
            Passed::Unattended => Ok(None),
        }
    }

    /// Opens what was granted by name, if something was.
    fn open_named(
        &self,
        lease: &Lease<'_>,
        page: &LanePage,
        forbidden: u32,
        got: &Received,
    ) -> Result<Named, Broken> {
        let Some((path, flags)) = self.room.granted_name(got.len) else {
            return Ok(Named::Nothing);
        };
        // SAFETY: a C string.
        let fd = match unsafe { sys::openat(libc::AT_FDCWD, path, flags, 0) } {
            Ok(fd) => OwnFd(fd),
            Err(e @ (libc::EMFILE | libc::ENFILE)) => return Err(Broken::Final(e)),
            // Removed meanwhile, or this process sees other files or has less rights than its user.
            Err(_) => return Ok(Named::Late),
        };
        // The bridge lives that gave the name, and has not asked meanwhile whether somebody has the file open:
        // whoever asks from now on sees that we have.
        let in_time = page.words.late_opens_forbidden() == forbidden
            && lease.connected().is_some_and(socket::is_alive);
        Ok(match in_time {
            true => Named::Open(fd),
            false => Named::Late,
        })
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
}
