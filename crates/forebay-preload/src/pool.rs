//! Connections to the bridge.
//!
//! Up to [`MAX_CONNECTIONS`] sockets, each guarded by a try-lock: nobody ever
//! waits for a lock, so a signal handler or a second thread simply takes
//! another one, or a connection for one request. They stand at high descriptor
//! numbers, because a program may rely on `open` giving the lowest free one.
//!
//! A program may close descriptors that it does not know. Through libc that is
//! seen (`hooks::descriptors`); through a bare system call it is not. So every
//! use of a connection first looks for the mark that it carries in the kernel:
//! our bytes never go into a descriptor of the program that has taken the
//! number. Before a descriptor is closed, its socket cookie is compared, too,
//! which the kernel never gives out twice.

use core::ffi::c_int;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use forebay_wire::{LANE_BYTES, LanePage};

use crate::config::Config;
use crate::process::{MAX_CONNECTIONS, Process};
use crate::sys::{self, Errno, call};

/// Connections are placed at the end of the first so many descriptors, or of what the limit allows.
/// Not higher: the kernel copies a table up to the highest number at every fork.
const HIGH_DESCRIPTORS: u64 = 1024;
/// Numbers that the connections and their neighbours take there.
const RESERVED_DESCRIPTORS: u64 = 32;

/// Requests through a socket before the connection gets shared memory: a process that asks little saves the
/// time to set it up.
const LANE_AFTER: u32 = 8;

/// The mark of a connection: the signal for asynchronous input, of which there is none. Asking for it is the
/// cheapest call that tells one open file from another.
const MARK_SIGNAL: c_int = 61;
/// `fcntl` commands.
const F_SETSIG: c_int = 10;
const F_GETSIG: c_int = 11;

/// One connection of the pool. All zeroes: free and not connected.
pub struct Slot {
    /// The thread that uses it ([`sys::thread`]), 0 for none.
    busy: AtomicU64,
    /// Place of that use on the thread's stack; 0 while it is not known.
    frame: AtomicUsize,
    /// Descriptor plus one, 0 if not connected.
    fd1: AtomicI32,
    generation: AtomicU32,
    cookie: AtomicU64,
    /// Requests through the socket, up to [`LANE_AFTER`].
    requests: AtomicU32,
    /// Memory that it shares with the bridge; null for none.
    lane: AtomicPtr<LanePage>,
    /// Effective user and group that asked for it.
    lane_uid: AtomicU32,
    lane_gid: AtomicU32,
}

/// Descriptors plus one and cookies of all slots once more, in memory that a
/// forked child inherits: it has to know which descriptors it should close.
static OPEN: [AtomicI32; MAX_CONNECTIONS] = [const { AtomicI32::new(0) }; MAX_CONNECTIONS];
static COOKIES: [AtomicU64; MAX_CONNECTIONS] = [const { AtomicU64::new(0) }; MAX_CONNECTIONS];
/// No connection was ever placed below this number.
static LOWEST: AtomicI32 = AtomicI32::new(c_int::MAX);

/// A connection that the caller has for itself.
pub enum Lease<'p> {
    /// One of the pool.
    Slot(&'p Process, usize),
    /// For one request; closed at the end.
    Transient(Option<c_int>),
}

impl Lease<'_> {
    /// A free slot, or a connection for this request alone.
    pub fn take(process: Option<&Process>) -> Lease<'_> {
        let me = sys::thread();
        let here = core::ptr::from_ref(&me) as usize;
        if let Some(process) = process {
            for (at, slot) in process.slots.iter().enumerate() {
                if slot.enter(me, here) {
                    return Lease::Slot(process, at);
                }
            }
        }
        Lease::Transient(None)
    }

    /// The socket, connected if need be.
    pub fn socket(&mut self, config: &Config) -> Result<c_int, Errno> {
        match self {
            Lease::Transient(Some(fd)) => Ok(*fd),
            Lease::Transient(none) => {
                let fd = connect(config)?;
                *none = Some(fd);
                Ok(fd)
            }
            Lease::Slot(process, at) => {
                let slot = &process.slots[*at];
                let fd = slot.fd1.load(Ordering::Relaxed) - 1;
                let current = process.generation.load(Ordering::Acquire);
                if fd >= 0 {
                    if slot.generation.load(Ordering::Relaxed) == current && is_marked(fd) {
                        return Ok(fd);
                    }
                    slot.forget(*at, cookie(fd) == Some(slot.cookie.load(Ordering::Relaxed)));
                }
                let fd = connect(config)?;
                let _ = sys::fcntl(fd, F_SETSIG, MARK_SIGNAL as usize);
                let id = cookie(fd).unwrap_or(0);
                slot.generation.store(current, Ordering::Relaxed);
                slot.place(*at, fd, id);
                Ok(fd)
            }
        }
    }

    /// The socket, if it is there still.
    pub fn connected(&self) -> Option<c_int> {
        let Lease::Slot(process, at) = self else {
            return None;
        };
        let fd = process.slots[*at].fd1.load(Ordering::Relaxed) - 1;
        (fd >= 0 && is_marked(fd)).then_some(fd)
    }

    /// The memory shared with the bridge, if it is there for a caller of this user and group.
    pub fn lane(&self, ids: (u32, u32)) -> Option<&LanePage> {
        let Lease::Slot(process, at) = self else {
            return None;
        };
        let slot = &process.slots[*at];
        // SAFETY: mapped until the slot forgets its connection, which only the holder of the lease does.
        let page = unsafe { slot.lane.load(Ordering::Relaxed).as_ref() }?;
        let own = (
            slot.lane_uid.load(Ordering::Relaxed),
            slot.lane_gid.load(Ordering::Relaxed),
        );
        let current = process.generation.load(Ordering::Acquire);
        (own == ids && slot.generation.load(Ordering::Relaxed) == current).then_some(page)
    }

    /// Counts a request through the socket. True once, when it is time to ask for shared memory.
    pub fn is_due_for_lane(&self) -> bool {
        let Lease::Slot(process, at) = self else {
            return false;
        };
        let requests = &process.slots[*at].requests;
        let before = requests.load(Ordering::Relaxed);
        if before > LANE_AFTER {
            return false;
        }
        requests.store(before + 1, Ordering::Relaxed);
        before == LANE_AFTER
    }

    /// Uses the memory that a caller of this user and group was given; null for none.
    pub fn use_lane(&self, page: *const LanePage, ids: (u32, u32)) {
        if let Lease::Slot(process, at) = self {
            let slot = &process.slots[*at];
            slot.lane_uid.store(ids.0, Ordering::Relaxed);
            slot.lane_gid.store(ids.1, Ordering::Relaxed);
            slot.lane.store(page.cast_mut(), Ordering::Relaxed);
        }
    }

    /// The connection broke.
    pub fn broken(&mut self) {
        match self {
            Lease::Slot(process, at) => {
                let slot = &process.slots[*at];
                let fd = slot.fd1.load(Ordering::Relaxed) - 1;
                if fd >= 0 {
                    slot.forget(*at, cookie(fd) == Some(slot.cookie.load(Ordering::Relaxed)));
                }
            }
            Lease::Transient(fd) => {
                if let Some(fd) = fd.take() {
                    sys::close(fd);
                }
            }
        }
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        match self {
            Lease::Slot(process, at) => process.slots[*at].leave(),
            Lease::Transient(_) => self.broken(),
        }
    }
}

impl Slot {
    /// Takes the slot if it is free, or if the use that holds it has been left by a jump out of a signal handler.
    fn enter(&self, me: u64, here: usize) -> bool {
        let free = self
            .busy
            .compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed);
        let mine =
            free.is_ok() || free == Err(me) && was_left(self.frame.load(Ordering::Relaxed), here);
        if mine {
            self.frame.store(here, Ordering::Relaxed);
        }
        mine
    }

    fn leave(&self) {
        self.frame.store(0, Ordering::Relaxed);
        self.busy.store(0, Ordering::Release);
    }

    fn place(&self, at: usize, fd: c_int, id: u64) {
        self.cookie.store(id, Ordering::Relaxed);
        self.fd1.store(fd + 1, Ordering::Relaxed);
        COOKIES[at].store(id, Ordering::Relaxed);
        OPEN[at].store(fd + 1, Ordering::Release);
        LOWEST.fetch_min(fd, Ordering::Relaxed);
    }

    fn forget(&self, at: usize, close: bool) {
        self.requests.store(0, Ordering::Relaxed);
        let lane = self.lane.swap(null_mut(), Ordering::Relaxed);
        if !lane.is_null() {
            // SAFETY: mapped for this connection, of which the caller holds the lease.
            unsafe { sys::unmap(lane.cast(), LANE_BYTES) };
        }
        let fd = self.fd1.swap(0, Ordering::Relaxed) - 1;
        OPEN[at].store(0, Ordering::Release);
        if close && fd >= 0 {
            sys::close(fd);
        }
    }
}

/// Does the stack frame at `frame` no longer exist, seen from `here` in the same thread? A signal handler runs
/// deeper in the stack than what it interrupts, or on the stack for signals.
#[cold]
fn was_left(frame: usize, here: usize) -> bool {
    let (signal_stack, in_use) = sys::signal_stack();
    match (in_use, signal_stack.contains(&frame)) {
        _ if frame == 0 => false,
        (true, false) => false,
        (false, true) => true,
        _ => frame < here,
    }
}

fn is_marked(fd: c_int) -> bool {
    sys::fcntl(fd, F_GETSIG, 0) == Ok(MARK_SIGNAL)
}

/// Identity of a socket; `None` if the descriptor is none.
fn cookie(fd: c_int) -> Option<u64> {
    let mut id = 0u64;
    let mut len = 8u32;
    // SAFETY: `id` and `len` are writable.
    let r = unsafe {
        call!(
            libc::SYS_getsockopt,
            fd,
            libc::SOL_SOCKET,
            libc::SO_COOKIE,
            &raw mut id,
            &raw mut len
        )
    };
    r.ok().map(|_| id)
}

/// Moves a descriptor of ours out of the program's way.
pub fn to_high_number(fd: c_int) -> Result<c_int, Errno> {
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
    match sys::fcntl(fd, libc::F_DUPFD_CLOEXEC, from as usize) {
        Ok(high) => {
            sys::close(fd);
            Ok(high)
        }
        // Everything up there is taken: stay.
        Err(_) => Ok(fd),
    }
}

fn connect(config: &Config) -> Result<c_int, Errno> {
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    // SAFETY: plain integers.
    let fd = unsafe { call!(libc::SYS_socket, libc::AF_UNIX, kind, 0) }? as c_int;
    let fd = to_high_number(fd)?;
    let mut address = libc::sockaddr_un {
        sun_family: libc::AF_UNIX as libc::sa_family_t,
        sun_path: [0; 108],
    };
    for (to, from) in address.sun_path.iter_mut().zip(config.socket()) {
        *to = *from as core::ffi::c_char;
    }
    loop {
        // SAFETY: `address` is a complete address.
        match unsafe {
            call!(
                libc::SYS_connect,
                fd,
                &raw const address,
                size_of::<libc::sockaddr_un>()
            )
        } {
            Ok(_) | Err(libc::EISCONN) => return Ok(fd),
            Err(libc::EINTR) => {}
            Err(e) => {
                sys::close(fd);
                return Err(e);
            }
        }
    }
}

/// In a forked child: closes the connections of the parent.
pub fn forget_inherited() {
    for (open, id) in OPEN.iter().zip(&COOKIES) {
        let fd = open.swap(0, Ordering::AcqRel) - 1;
        if fd >= 0 && cookie(fd) == Some(id.load(Ordering::Relaxed)) {
            sys::close(fd);
        }
    }
}

/// Is `fd` one of the library's connections? The program does not know it then.
#[inline]
pub fn is_ours(fd: c_int) -> bool {
    fd >= LOWEST.load(Ordering::Relaxed) && slot_of(fd).is_some()
}

fn slot_of(fd: c_int) -> Option<usize> {
    let at = OPEN
        .iter()
        .position(|o| o.load(Ordering::Acquire) == fd + 1)?;
    (cookie(fd) == Some(COOKIES[at].load(Ordering::Relaxed))).then_some(at)
}

/// Makes the number `fd` free if a connection stands there. False if it is in use at this moment.
pub fn make_way(fd: c_int) -> bool {
    if !is_ours(fd) {
        return true;
    }
    let (Some(process), _) = crate::process::own() else {
        return true; // a child that shares our memory has its own descriptors
    };
    let Some(at) = slot_of(fd) else {
        return true;
    };
    let slot = &process.slots[at];
    let me = sys::thread();
    if !slot.enter(me, core::ptr::from_ref(&me) as usize) {
        return false;
    }
    slot.forget(at, true);
    slot.leave();
    true
}

/// The lowest number from `first` to `last` at which a connection stands.
pub fn next_connection(first: u32, last: u32) -> Option<u32> {
    OPEN.iter()
        .map(|open| open.load(Ordering::Acquire) - 1)
        .filter(|&fd| fd >= 0 && (first..=last).contains(&(fd as u32)) && is_ours(fd))
        .min()
        .map(|fd| fd as u32)
}

/// Closes every connection between two numbers that is not in use at this moment.
pub fn make_way_for_range(first: u32, last: u32) {
    if i64::from(last) < i64::from(LOWEST.load(Ordering::Relaxed)) {
        return;
    }
    for open in &OPEN {
        let fd = open.load(Ordering::Acquire) - 1;
        if fd >= 0 && (first..=last).contains(&(fd as u32)) {
            make_way(fd);
        }
    }
}
