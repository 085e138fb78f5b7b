//! Whether the names of the buffer are durable, as the bridge says in memory that all its clients map.
//!
//! The memory is mapped when it is first needed. A forked child inherits the mapping, and a child of `vfork` shares it.
//! When the bridge has died its memory says nothing any more ([`Names::Unknown`]), and that of the next bridge is mapped.
//! The old mapping stays, because another thread may be reading it: one page for each bridge that the process has seen.

use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};

use forebay_hook::kernel::{self, OwnFd, call};
use forebay_wire::{DurabilityPage, Names, WORDS_BYTES};

/// The mapped memory.
pub struct Durability(AtomicPtr<DurabilityPage>);

impl Durability {
    /// Not mapped yet.
    pub const fn new() -> Self {
        Durability(AtomicPtr::new(null_mut()))
    }

    fn page(&self) -> *mut DurabilityPage {
        self.0.load(Ordering::Acquire)
    }

    /// What the bridge says now. `Unknown` if nothing is mapped.
    #[inline]
    pub fn names(&self) -> Names {
        // SAFETY: a mapping that was published is never unmapped, and its page consists of atomics.
        match unsafe { self.page().as_ref() } {
            Some(page) => page.names(),
            None => Names::Unknown,
        }
    }

    /// Does the bridge of this life live, and is it the one that is mapped?
    pub fn is_alive(&self, life: u64) -> bool {
        // SAFETY: as in `names`.
        let page = unsafe { self.page().as_ref() };
        page.is_some_and(|page| page.is_alive(life))
    }

    /// Does the bridge say that this commit is durable?
    pub fn is_durable(&self, commit: u64) -> bool {
        // SAFETY: as in `names`.
        let page = unsafe { self.page().as_ref() };
        page.is_some_and(|page| page.is_durable(commit))
    }

    /// Maps `memory`. If that fails, or the memory says nothing, the old mapping stays.
    pub fn map(&self, memory: &OwnFd) {
        let before = self.page();
        let (prot, flags) = (libc::PROT_READ, libc::MAP_SHARED);
        // SAFETY: makes a new mapping.
        let mapped = unsafe { call!(libc::SYS_mmap, 0, WORDS_BYTES, prot, flags, memory.0, 0) };
        let Ok(at) = mapped else {
            return;
        };
        let fresh = at as *mut DurabilityPage;
        // SAFETY: mapped just now, and the bridge grants no shorter memory.
        let speaks = unsafe { &*fresh }.names() != Names::Unknown;
        let publish = || {
            self.0
                .compare_exchange(before, fresh, Ordering::AcqRel, Ordering::Acquire)
                .is_ok()
        };
        // Another thread may have been first.
        if !speaks || !publish() {
            // SAFETY: nobody else knows this mapping.
            unsafe { kernel::unmap(fresh.cast(), WORDS_BYTES) };
        }
    }
}
