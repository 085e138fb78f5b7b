//! Requests that are woken when the record at a path changes.

use forebay_core::bridge::Ticket;
use forebay_core::path::TreePath;
use forebay_core::table::Change;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A request that waits: its shard, and its ticket there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waker {
    /// Number of the shard.
    pub shard: usize,
    /// Where it is parked.
    pub ticket: Ticket,
}

/// Requests that wait for records to change.
#[derive(Default)]
pub(crate) struct Wakers {
    waiting: Mutex<BTreeMap<TreePath, Vec<Waker>>>,
    count: AtomicUsize,
}

impl Wakers {
    /// `waker` waits for the record at `path`. False, and it does not, if `is_current` says that there is nothing
    /// to wait for any more.
    #[must_use]
    pub fn wait(&self, path: &TreePath, waker: Waker, is_current: impl FnOnce() -> bool) -> bool {
        let mut waiting = self.waiting.lock();
        // A commit is visible before it reads this count, and this adds to the count before it looks. One sees the other.
        self.count.fetch_add(1, Ordering::SeqCst);
        if !is_current() {
            self.count.fetch_sub(1, Ordering::SeqCst);
            return false;
        }
        waiting.entry(path.clone()).or_default().push(waker);
        true
    }

    /// The requests that wait for a path that a batch has changed.
    pub fn changed_by(&self, batch: &[Change]) -> Vec<Waker> {
        // The usual case: nobody waits.
        if self.count.load(Ordering::SeqCst) == 0 {
            return Vec::new();
        }
        let mut waiting = self.waiting.lock();
        let mut woken = Vec::new();
        for change in batch {
            if let Change::Put { path, .. } | Change::Delete { path, .. } = change {
                woken.extend(waiting.remove(path).unwrap_or_default());
            }
        }
        self.count.fetch_sub(woken.len(), Ordering::SeqCst);
        woken
    }
}
