//! Which process is this? State that must not be inherited.
//!
//! The state lies in a page that the kernel wipes in a forked child ([`forebay_hook::fork`]). A child of `vfork` shares
//! the page instead; it is told by its pid and changes nothing. A fork handler claims the page where it can
//! ([`crate::Link::after_fork_in_child`]), so that a forked child that calls `vfork` before its first request stays the
//! owner.

use core::ffi::c_int;
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

use forebay_hook::fork::ZeroIsNew;
use forebay_hook::kernel;

use crate::pool::Slot;
use crate::spin::Spin;

/// Connections per process; more requests at once use connections for one request.
pub const MAX_CONNECTIONS: usize = 16;

/// The state of one process. All zeroes is the state of a new process.
pub struct Process {
    /// Owner; 0 until claimed.
    pid: AtomicI32,
    /// Counted up when the process changes its identity: older connections are not used again.
    generation: AtomicU32,
    client: AtomicU64,
    seq: AtomicU32,
    /// Whether waiting awake pays.
    pub spin: Spin,
    /// The bridge could not be reached: do not wait for it again and again.
    pub lost: Flag,
    /// It has been said that the bridge speaks another version.
    pub other_version: Flag,
    /// Connections.
    pub slots: [Slot; MAX_CONNECTIONS],
}

// SAFETY: atomics; zero is the first value of each.
unsafe impl ZeroIsNew for Process {}

/// True or false for the whole process.
pub struct Flag(AtomicU32);

impl Flag {
    /// Is it true?
    pub fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    /// Makes it true. Was it already?
    pub fn raise(&self) -> bool {
        self.0.swap(1, Ordering::Relaxed) != 0
    }

    /// Makes it false.
    pub fn lower(&self) {
        if self.get() {
            self.0.store(0, Ordering::Relaxed);
        }
    }
}

impl Process {
    /// Identity of this process towards the bridge.
    pub fn client(&self) -> u64 {
        let id = self.client.load(Ordering::Relaxed);
        if id != 0 {
            return id;
        }
        match self.client.compare_exchange(
            0,
            kernel::random(),
            Ordering::Relaxed,
            Ordering::Relaxed,
        ) {
            Ok(_) => self.client.load(Ordering::Relaxed),
            Err(other) => other,
        }
    }

    /// Connections of another generation are those of an earlier identity.
    pub fn generation(&self) -> u32 {
        self.generation.load(Ordering::Acquire)
    }

    /// The process has another identity from now on.
    pub fn identity_changed(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    /// Number for the next request; never 0, which stands for no request at all.
    pub fn next_seq(&self) -> u32 {
        let next = || self.seq.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        match next() {
            0 => next(),
            seq => seq,
        }
    }

    /// Does the process `pid` own this state? One that nobody has claimed yet it claims, after `at_first`.
    pub fn claim(&self, pid: c_int, at_first: impl FnOnce()) -> bool {
        let owner = self.pid.load(Ordering::Acquire);
        owner == pid
            || owner == 0 && {
                at_first();
                match self
                    .pid
                    .compare_exchange(0, pid, Ordering::AcqRel, Ordering::Acquire)
                {
                    Ok(_) => true,
                    Err(other) => other == pid,
                }
            }
    }
}
