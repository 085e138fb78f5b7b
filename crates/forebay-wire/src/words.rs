//! A page in which the bridge says whether the names of its buffer are durable.
//!
//! All clients of a bridge map the same page, and can only read it. A client whose program calls `fsync` looks here
//! first. If everything that was committed is durable, the bridge need not be asked.
//!
//! The page outlives its bridge in the clients that have mapped it, and what it says then is out of date. So it also
//! says whether its bridge lives. The kernel itself writes down the death of the bridge, as it does for the holder of a
//! robust futex, and it does so before anything of the bridge is closed: the lock on the storage, the sockets. The next
//! bridge takes that lock before it commits anything. So a client that learns of a commit of the next bridge finds this
//! page dead.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Size of the shared memory in bytes: one page.
pub const WORDS_BYTES: usize = 4096;

/// The bit that the kernel sets when the thread that owns the page dies (`FUTEX_OWNER_DIED`).
const OWNER_DIED: u32 = 0x4000_0000;
/// The bits that hold the thread that owns the page (`FUTEX_TID_MASK`).
const OWNER_THREAD: u32 = 0x3fff_ffff;

/// What a page says about the names of the buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Names {
    /// Everything that was committed before the look is durable.
    Durable,
    /// Something may not be durable yet.
    Pending,
    /// The bridge of this page is gone, or does not say that it lives.
    Unknown,
}

/// The shared page. All zeroes say nothing.
#[derive(Debug, Default)]
#[repr(C, align(4096))]
pub struct DurabilityPage {
    /// Number of the last commit.
    committed: AtomicU64,
    /// Number of the last commit that is durable.
    durable: AtomicU64,
    /// The thread of the bridge with whose end the page dies.
    owner: AtomicU32,
    /// A number that no other life of a bridge has; 0 if the bridge gives none.
    life: AtomicU64,
}

const _: () = assert!(size_of::<DurabilityPage>() == WORDS_BYTES);

/// The client's side.
impl DurabilityPage {
    /// What the page says now.
    #[inline]
    pub fn names(&self) -> Names {
        // In this order: a commit after the first load does not matter to the caller, and need not be durable.
        let committed = self.committed.load(Ordering::Acquire);
        let durable = self.durable.load(Ordering::Acquire);
        let owner = self.owner.load(Ordering::Acquire);
        if owner & OWNER_DIED != 0 || owner & OWNER_THREAD == 0 {
            Names::Unknown
        } else if durable >= committed {
            Names::Durable
        } else {
            Names::Pending
        }
    }

    /// Is this the page of that life, and does its bridge live?
    pub fn is_alive(&self, life: u64) -> bool {
        self.names() != Names::Unknown && self.life.load(Ordering::Relaxed) == life
    }

    /// Does the page say that this commit is durable?
    pub fn is_durable(&self, commit: u64) -> bool {
        self.names() != Names::Unknown && self.durable() >= commit
    }
}

/// The bridge's side.
impl DurabilityPage {
    /// Counts a commit. Call this when the commit is in the tables, and before anybody is told of it.
    pub fn commit(&self) {
        self.committed.fetch_add(1, Ordering::Release);
    }

    /// Number of the last commit. Whoever makes the tables durable after this call has made all commits up to that
    /// number durable.
    pub fn committed(&self) -> u64 {
        self.committed.load(Ordering::Acquire)
    }

    /// The number of the last commit that is durable.
    pub fn durable(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    /// Says that all commits up to the number `upto` are durable.
    pub fn set_durable(&self, upto: u64) {
        debug_assert!(upto <= self.committed(), "durable before it is committed");
        self.durable.fetch_max(upto, Ordering::Release);
    }

    /// Gives this life its number, before clients see the page.
    pub fn set_life(&self, life: u64) {
        self.life.store(life, Ordering::Relaxed);
    }

    /// The word that names the owner, for the kernel.
    pub fn owner(&self) -> &AtomicU32 {
        &self.owner
    }

    /// Says that the bridge is about to end.
    pub fn die(&self) {
        self.owner.store(OWNER_DIED, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owned() -> DurabilityPage {
        let page = DurabilityPage::default();
        page.owner().store(4711, Ordering::Release);
        page
    }

    #[test]
    fn names_are_durable_when_the_last_commit_is() {
        let page = owned();
        assert_eq!(page.names(), Names::Durable);
        page.commit();
        page.commit();
        assert_eq!(page.names(), Names::Pending);
        page.set_durable(1);
        assert_eq!(page.names(), Names::Pending);
        page.set_durable(2);
        assert_eq!(page.names(), Names::Durable);
    }

    #[test]
    fn a_number_that_is_durable_stays_so() {
        let page = owned();
        page.commit();
        page.set_durable(1);
        page.set_durable(0);
        assert_eq!(page.names(), Names::Durable);
    }

    #[test]
    fn a_page_without_a_living_owner_says_nothing() {
        let page = DurabilityPage::default();
        assert_eq!(page.names(), Names::Unknown);
        page.owner().store(4711, Ordering::Release);
        assert_eq!(page.names(), Names::Durable);
        // What the kernel does, and what the bridge does.
        page.owner().fetch_or(OWNER_DIED, Ordering::Release);
        assert_eq!(page.names(), Names::Unknown);
        page.owner().store(4711, Ordering::Release);
        page.die();
        assert_eq!(page.names(), Names::Unknown);
    }

    #[test]
    fn a_page_is_alive_for_its_own_life() {
        let page = owned();
        page.set_life(5);
        assert!(page.is_alive(5) && !page.is_alive(6));
        page.die();
        assert!(!page.is_alive(5));
    }

    #[test]
    #[should_panic(expected = "durable before it is committed")]
    fn what_was_never_committed_is_not_said_to_be_durable() {
        owned().set_durable(1);
    }
}
