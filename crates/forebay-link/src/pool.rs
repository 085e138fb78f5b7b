//! Connections to the bridge.
//!
//! A process has up to [`MAX_CONNECTIONS`] sockets, each guarded by a try-lock.
//! Nobody waits for a lock: a signal handler or a second thread takes another
//! socket, or makes a connection for one request. Connections have high descriptor
//! numbers, because a program may rely on `open` returning the lowest free one.
//!
//! A program may close descriptors that it does not know. If it closes them
//! through libc, a hook sees it, and [`Doors`] says which are connections. A bare
//! system call goes unseen, and the program may then get the same number for a
//! file of its own. So every use of a connection first checks the mark that the
//! connection carries in the kernel, and a request never goes into a file of the
//! program. Before a descriptor is closed, its socket cookie is compared, too;
//! the kernel never uses a cookie twice.

use core::ffi::c_int;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use forebay_hook::kernel::{self, Errno, OwnFd, call};
use forebay_hook::thread;
use forebay_wire::{LANE_BYTES, LanePage};

use crate::process::{MAX_CONNECTIONS, Process};
use crate::socket::connect;

/// Requests through a socket before the connection gets a lane. A process with few requests saves the time to set
/// it up.
const LANE_AFTER: u32 = 8;

/// The mark of a connection: its signal for asynchronous input, which is never switched on. To ask for this signal
/// is the cheapest system call that tells two open files apart.
const MARK_SIGNAL: c_int = 61;
/// `fcntl` commands, which the `libc` crate lacks.
const F_SETSIG: c_int = 10;
const F_GETSIG: c_int = 11;

/// One connection of the pool. All zeroes: free and not connected.
pub struct Slot {
    /// The thread that uses the slot ([`thread::id`]), 0 for none.
    busy: AtomicU64,
    /// Stack address of the call that uses the slot. 0 while it is not known, or if the use outlasts that call.
    frame: AtomicUsize,
    /// Descriptor plus one, 0 if not connected.
    fd1: AtomicI32,
    generation: AtomicU32,
    cookie: AtomicU64,
    /// Requests through the socket, up to [`LANE_AFTER`].
    requests: AtomicU32,
    /// The lane of the connection; null for none.
    lane: AtomicPtr<LanePage>,
    /// Effective user and group that asked for the lane.
    lane_uid: AtomicU32,
    lane_gid: AtomicU32,
}

/// A copy of the descriptors (plus one) and cookies of all slots, in memory that a
/// forked child inherits: the child must close these descriptors.
pub struct Doors {
    open: [AtomicI32; MAX_CONNECTIONS],
    cookies: [AtomicU64; MAX_CONNECTIONS],
    /// No connection was ever placed below this number.
    lowest: AtomicI32,
}

/// How long a connection is used.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// Until the current call returns. A jump out of that call ends the use, too.
    InThisCall,
    /// Beyond the current call, and perhaps by another thread.
    Beyond,
}

/// A connection that only the caller uses.
pub enum Lease<'l> {
    /// A connection of the pool. The number is its slot in the process.
    Slot(&'l Doors, &'static Process, usize),
    /// A connection for one request, closed afterwards.
    Transient(Option<OwnFd>),
}

impl<'l> Lease<'l> {
    /// A free slot, or a connection for this request alone.
    pub fn take(doors: &'l Doors, process: Option<&'static Process>, how_long: Use) -> Self {
        let me = thread::id();
        let here = core::ptr::from_ref(&me) as usize;
        if let Some(process) = process {
            for (at, slot) in process.slots.iter().enumerate() {
                if slot.enter(me, here, how_long) {
                    return Lease::Slot(doors, process, at);
                }
            }
        }
        Lease::Transient(None)
    }

    fn slot(&self) -> Option<&'static Slot> {
        match self {
            Lease::Slot(_, process, at) => Some(&process.slots[*at]),
            Lease::Transient(_) => None,
        }
    }

    /// The socket. Connects to the bridge's socket at `path` if there is no connection yet.
    pub fn socket(&mut self, path: &[u8]) -> Result<c_int, Errno> {
        match self {
            Lease::Transient(Some(fd)) => Ok(fd.0),
            Lease::Transient(none) => Ok(none.insert(connect(path)?).0),
            Lease::Slot(doors, process, at) => {
                let slot = &process.slots[*at];
                let fd = slot.fd1.load(Ordering::Relaxed) - 1;
                let current = process.generation();
                if fd >= 0 {
                    if slot.generation.load(Ordering::Relaxed) == current && is_marked(fd) {
                        return Ok(fd);
                    }
                    slot.forget_if_ours(doors, *at);
                }
                let fd = connect(path)?.into_raw();
                let _ = kernel::fcntl(fd, F_SETSIG, MARK_SIGNAL as usize);
                slot.generation.store(current, Ordering::Relaxed);
                slot.place(doors, *at, fd, cookie(fd).unwrap_or(0));
                Ok(fd)
            }
        }
    }

    /// The socket, if it is still connected.
    pub fn connected(&self) -> Option<c_int> {
        match self {
            Lease::Transient(fd) => fd.as_ref().map(|fd| fd.0),
            Lease::Slot(_, process, at) => {
                let fd = process.slots[*at].fd1.load(Ordering::Relaxed) - 1;
                (fd >= 0 && is_marked(fd)).then_some(fd)
            }
        }
    }

    /// The lane of the connection, if it has one.
    pub fn page(&self) -> Option<&LanePage> {
        // SAFETY: the lane is mapped until the slot forgets its connection, which only the holder of the lease does.
        unsafe { self.slot()?.lane.load(Ordering::Relaxed).as_ref() }
    }

    /// The lane of the connection, if a caller with this effective user and group may use it.
    pub fn lane(&self, ids: (u32, u32)) -> Option<&LanePage> {
        let Lease::Slot(_, process, at) = self else {
            return None;
        };
        let slot = &process.slots[*at];
        let page = self.page()?;
        let own = (
            slot.lane_uid.load(Ordering::Relaxed),
            slot.lane_gid.load(Ordering::Relaxed),
        );
        let current = process.generation();
        (own == ids && slot.generation.load(Ordering::Relaxed) == current).then_some(page)
    }

    /// Counts a request through the socket. True exactly once, when it is time to ask for a lane.
    pub fn is_due_for_lane(&self) -> bool {
        let Some(slot) = self.slot() else {
            return false;
        };
        let before = slot.requests.load(Ordering::Relaxed);
        if before > LANE_AFTER {
            return false;
        }
        slot.requests.store(before + 1, Ordering::Relaxed);
        before == LANE_AFTER
    }

    /// Stores the lane that a caller with this effective user and group was given; null for none.
    pub fn use_lane(&self, page: *const LanePage, ids: (u32, u32)) {
        if let Some(slot) = self.slot() {
            slot.lane_uid.store(ids.0, Ordering::Relaxed);
            slot.lane_gid.store(ids.1, Ordering::Relaxed);
            slot.lane.store(page.cast_mut(), Ordering::Relaxed);
        }
    }

    /// Drops the connection after it broke.
    pub fn broken(&mut self) {
        match self {
            Lease::Slot(doors, process, at) => process.slots[*at].forget_if_ours(doors, *at),
            Lease::Transient(fd) => *fd = None,
        }
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        if let Some(slot) = self.slot() {
            slot.leave();
        }
    }
}

impl Slot {
    /// Takes the slot if it is free, or if its user, the same thread, has jumped out of the call that took it.
    fn enter(&self, me: u64, here: usize, how_long: Use) -> bool {
        let free = self
            .busy
            .compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed);
        let mine =
            free.is_ok() || free == Err(me) && was_left(self.frame.load(Ordering::Relaxed), here);
        if mine {
            let frame = match how_long {
                Use::InThisCall => here,
                Use::Beyond => 0,
            };
            self.frame.store(frame, Ordering::Relaxed);
        }
        mine
    }

    fn leave(&self) {
        self.frame.store(0, Ordering::Relaxed);
        self.busy.store(0, Ordering::Release);
    }

    fn place(&self, doors: &Doors, at: usize, fd: c_int, id: u64) {
        self.cookie.store(id, Ordering::Relaxed);
        self.fd1.store(fd + 1, Ordering::Relaxed);
        doors.cookies[at].store(id, Ordering::Relaxed);
        doors.open[at].store(fd + 1, Ordering::Release);
        doors.lowest.fetch_min(fd, Ordering::Relaxed);
    }

    /// Forgets the connection. Closes the descriptor only if it still is that connection.
    fn forget_if_ours(&self, doors: &Doors, at: usize) {
        let fd = self.fd1.load(Ordering::Relaxed) - 1;
        if fd >= 0 {
            let close = cookie(fd) == Some(self.cookie.load(Ordering::Relaxed));
            self.forget(doors, at, close);
        }
    }

    fn forget(&self, doors: &Doors, at: usize, close: bool) {
        self.requests.store(0, Ordering::Relaxed);
        let lane = self.lane.swap(null_mut(), Ordering::Relaxed);
        if !lane.is_null() {
            // SAFETY: the lane was mapped for this connection, whose lease the caller holds.
            unsafe { kernel::unmap(lane.cast(), LANE_BYTES) };
        }
        let fd = self.fd1.swap(0, Ordering::Relaxed) - 1;
        doors.open[at].store(0, Ordering::Release);
        if close && fd >= 0 {
            kernel::close(fd);
        }
    }
}

/// True if the stack frame at `frame` no longer exists, seen from the address `here` in the same thread. A signal
/// handler runs below the frames that it interrupts, or on the alternate signal stack.
#[cold]
fn was_left(frame: usize, here: usize) -> bool {
    let (signal_stack, in_use) = thread::signal_stack();
    match (in_use, signal_stack.contains(&frame)) {
        _ if frame == 0 => false,
        (true, false) => false,
        (false, true) => true,
        _ => frame < here,
    }
}

fn is_marked(fd: c_int) -> bool {
    kernel::fcntl(fd, F_GETSIG, 0) == Ok(MARK_SIGNAL)
}

/// The kernel's identity of a socket; `None` if the descriptor is no socket.
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

impl Doors {
    /// No connection.
    pub const fn new() -> Self {
        Doors {
            open: [const { AtomicI32::new(0) }; MAX_CONNECTIONS],
            cookies: [const { AtomicU64::new(0) }; MAX_CONNECTIONS],
            lowest: AtomicI32::new(c_int::MAX),
        }
    }

    fn is_open_at(&self, at: usize, fd: c_int) -> bool {
        cookie(fd) == Some(self.cookies[at].load(Ordering::Relaxed))
    }

    /// Closes the connections of the parent. For a forked child.
    pub fn forget_inherited(&self) {
        for (at, open) in self.open.iter().enumerate() {
            let fd = open.swap(0, Ordering::AcqRel) - 1;
            if fd >= 0 && self.is_open_at(at, fd) {
                kernel::close(fd);
            }
        }
    }

    /// True if `fd` is one of the connections, which the program does not know.
    #[inline]
    pub fn is_ours(&self, fd: c_int) -> bool {
        fd >= self.lowest.load(Ordering::Relaxed) && self.slot_of(fd).is_some()
    }

    fn slot_of(&self, fd: c_int) -> Option<usize> {
        let is_here = |open: &AtomicI32| open.load(Ordering::Acquire) == fd + 1;
        let at = self.open.iter().position(is_here)?;
        self.is_open_at(at, fd).then_some(at)
    }

    /// Closes the connection of `process` at the number `fd`, if there is one. False if a request is using it.
    pub fn make_way(&self, process: &'static Process, fd: c_int) -> bool {
        let Some(at) = self.slot_of(fd) else {
            return true;
        };
        let slot = &process.slots[at];
        let me = thread::id();
        if !slot.enter(me, core::ptr::from_ref(&me) as usize, Use::InThisCall) {
            return false;
        }
        slot.forget(self, at, true);
        slot.leave();
        true
    }

    /// The numbers from `first` to `last` that are connections.
    pub fn within(&self, first: u32, last: u32) -> impl Iterator<Item = c_int> {
        let any = i64::from(last) >= i64::from(self.lowest.load(Ordering::Relaxed));
        let all = if any { &self.open[..] } else { &[] };
        all.iter()
            .map(|open| open.load(Ordering::Acquire) - 1)
            .filter(move |&fd| fd >= 0 && (first..=last).contains(&(fd as u32)) && self.is_ours(fd))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_use_that_was_jumped_out_of_is_told_from_one_that_goes_on_below() {
        // The stack grows towards lower addresses.
        assert!(was_left(1000, 2000));
        assert!(!was_left(2000, 1000));
        assert!(!was_left(0, 2000));
    }

    #[test]
    fn a_slot_has_one_user_until_that_one_leaves() {
        // SAFETY: all zeroes is a free slot.
        let slot: Slot = unsafe { core::mem::zeroed() };
        assert!(slot.enter(1, 5000, Use::InThisCall));
        assert!(!slot.enter(2, 9000, Use::InThisCall));
        // The same thread, first in a signal handler, then after a jump out of it.
        assert!(!slot.enter(1, 4000, Use::InThisCall));
        assert!(slot.enter(1, 6000, Use::InThisCall));
        slot.leave();
        assert!(slot.enter(2, 9000, Use::InThisCall));
    }

    #[test]
    fn a_use_that_outlives_its_call_is_not_taken_for_one_that_was_left() {
        // SAFETY: all zeroes is a free slot.
        let slot: Slot = unsafe { core::mem::zeroed() };
        assert!(slot.enter(1, 5000, Use::Beyond));
        assert!(!slot.enter(1, 6000, Use::InThisCall));
        assert!(!slot.enter(1, 4000, Use::Beyond));
        slot.leave();
        assert!(slot.enter(1, 4000, Use::Beyond));
    }
}
