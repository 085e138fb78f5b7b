//! State of one process, which a child must not inherit.
//!
//! The state lies in a page that the kernel wipes in a forked child ([`forebay_hook::fork`]). A child of `vfork` shares
//! the page with its parent instead. Its pid tells the two apart, and the child must not change the page. A fork
//! handler claims the page for a forked child ([`crate::Link::after_fork_in_child`]). Otherwise a forked child that
//! calls `vfork` before its first request would lose the page to its own child.

use core::ffi::c_int;
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

use forebay_hook::fork::ZeroIsNew;
use forebay_hook::kernel;

use crate::pool::Slot;
use crate::spin::Spin;

/// Lasting connections of a process. A further request at the same time makes its own connection.
pub const MAX_CONNECTIONS: usize = 16;

/// The state of one process. All zeroes is the state of a new process.
pub struct Process {
    /// The owner; 0 until a process claims the state.
    pid: AtomicI32,
    /// Grows when the process changes its identity. Connections of an older generation are not used again.
    generation: AtomicU32,
    client: AtomicU64,
    seq: AtomicU32,
    /// Whether polling for an answer pays.
    pub spin: Spin,
    /// The last request waited for the bridge in vain; the next ones do not wait.
    pub lost: Flag,
    /// The user was told that the bridge speaks another version.
    pub other_version: Flag,
    /// Connections.
    pub slots: [Slot; MAX_CONNECTIONS],
}

// SAFETY: the state consists of atomics, and zero is the first value of each.
unsafe impl ZeroIsNew for Process {}

/// A Boolean of the whole process.
pub struct Flag(AtomicU32);

impl Flag {
    /// Reads the flag.
    pub fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    /// Makes the flag true. Returns what it was.
    pub fn raise(&self) -> bool {
        self.0.swap(1, Ordering::Relaxed) != 0
    }

    /// Makes the flag false.
    pub fn lower(&self) {
        if self.get() {
            self.0.store(0, Ordering::Relaxed);
        }
    }
}

impl Process {
    /// The identity of this process in its requests: random, never 0.
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

    /// The generation of new connections. A connection of another generation has an earlier user or group.
    pub fn generation(&self) -> u32 {
        self.generation.load(Ordering::Acquire)
    }

    /// Begins a new generation, because the process has changed its user or groups.
    pub fn identity_changed(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    /// Number for the next request; never 0, which means "no request".
    pub fn next_seq(&self) -> u32 {
        let next = || self.seq.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        match next() {
            0 => next(),
            seq => seq,
        }
    }

    /// True if the process `pid` owns this state. If no process does, runs `at_first` and claims the state for `pid`.
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
