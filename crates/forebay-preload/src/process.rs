//! Which process is this? State that must not be inherited.
//!
//! The state lives in a page that the kernel wipes in a forked child
//! (`MADV_WIPEONFORK`), whatever made the child: `fork`, `_Fork` or a bare
//! `clone`. A child of `vfork` shares the page instead; it is told by its pid
//! and changes nothing. A fork handler claims the page where it can, so that a
//! forked child that calls `vfork` before its first request stays the owner.

use core::ffi::{c_int, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use crate::pool::{self, Slot};
use crate::sys::{self, call};

/// Size of the mapping; the state is smaller.
const PAGE_BYTES: usize = 4096;
/// Connections per process; more requests at once use connections for one request.
pub const MAX_CONNECTIONS: usize = 16;

/// The state of one process. All zeroes is the state of a new process.
pub struct Process {
    /// Owner; 0 until claimed.
    pid: AtomicI32,
    /// Counted up when the process changes its identity: older connections are not used again.
    pub generation: AtomicU32,
    client: AtomicU64,
    seq: AtomicU32,
    /// How often spinning paid lately, 0 to 1024, plus one; 0 before the first try.
    pub spin_score: AtomicU32,
    /// The bridge could not be reached: do not wait for it again and again.
    pub lost: AtomicU32,
    /// Connections.
    pub slots: [Slot; MAX_CONNECTIONS],
}

const _: () = assert!(size_of::<Process>() <= PAGE_BYTES);

static PROCESS: AtomicPtr<Process> = AtomicPtr::new(null_mut());

impl Process {
    /// Identity of this process towards the bridge.
    pub fn client(&self) -> u64 {
        let id = self.client.load(Ordering::Relaxed);
        if id != 0 {
            return id;
        }
        match self
            .client
            .compare_exchange(0, sys::random(), Ordering::Relaxed, Ordering::Relaxed)
        {
            Ok(_) => self.client.load(Ordering::Relaxed),
            Err(other) => other,
        }
    }

    /// Number for the next request.
    pub fn next_seq(&self) -> u32 {
        self.seq.fetch_add(1, Ordering::Relaxed).wrapping_add(1)
    }
}

/// The state, if this process owns it, and its pid. A child that shares its
/// parent's memory gets `None`.
pub fn own() -> (Option<&'static Process>, c_int) {
    let pid = sys::getpid();
    let Some(process) = page() else {
        return (None, pid);
    };
    let owner = process.pid.load(Ordering::Acquire);
    let mine = owner == pid
        || owner == 0 && {
            pool::forget_inherited();
            match process
                .pid
                .compare_exchange(0, pid, Ordering::AcqRel, Ordering::Acquire)
            {
                Ok(_) => true,
                Err(other) => other == pid,
            }
        };
    (mine.then_some(process), pid)
}

/// Does this process own its memory (no child of `vfork`)?
pub fn is_owner() -> bool {
    own().0.is_some()
}

/// The process changed its identity: connections must be made anew.
pub fn identity_changed() {
    if let (Some(process), _) = own() {
        process.generation.fetch_add(1, Ordering::AcqRel);
    }
}

fn page() -> Option<&'static Process> {
    let at = PROCESS.load(Ordering::Acquire);
    if !at.is_null() {
        // SAFETY: published once, never unmapped; zeroes are a valid state.
        return Some(unsafe { &*at });
    }
    let fresh = sys::map(PAGE_BYTES);
    if fresh.is_null() {
        return None;
    }
    // SAFETY: the mapping is ours. A kernel before 4.14 refuses; the fork handler is enough for fork() then.
    let _ = unsafe { call!(libc::SYS_madvise, fresh, PAGE_BYTES, libc::MADV_WIPEONFORK) };
    let at = match PROCESS.compare_exchange(
        null_mut(),
        fresh.cast(),
        Ordering::AcqRel,
        Ordering::Acquire,
    ) {
        Ok(_) => fresh.cast(),
        Err(other) => {
            // SAFETY: nobody saw it.
            unsafe { sys::unmap(fresh, PAGE_BYTES) };
            other
        }
    };
    // SAFETY: as above.
    Some(unsafe { &*at })
}

unsafe extern "C" {
    fn __register_atfork(
        prepare: Option<extern "C" fn()>,
        parent: Option<extern "C" fn()>,
        child: Option<extern "C" fn()>,
        dso: *mut c_void,
    ) -> c_int;
}

extern "C" fn after_fork_in_child() {
    if let Some(process) = page()
        && process.pid.load(Ordering::Relaxed) != 0
    {
        // SAFETY: the only thread of a new process; the atomics hold no references.
        unsafe {
            core::ptr::write_bytes(
                core::ptr::from_ref(process).cast_mut().cast::<u8>(),
                0,
                PAGE_BYTES,
            )
        };
    }
    own();
}

/// At load time, while there is one thread and no lock is held.
pub fn start() {
    own();
    // SAFETY: the handler is a static function of a library that is never unloaded.
    unsafe { __register_atfork(None, None, Some(after_fork_in_child), null_mut()) };
}
