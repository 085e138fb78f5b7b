//! What undecided transactions hold.
//!
//! There are no lock queues: who finds something held gets a conflict and
//! decides again, so there are no deadlocks. Only readers wait, and they hold nothing.

use super::messages::{Part, TxnId};
use super::persist::owned_object;
use crate::path::TreePath;
use crate::record::ObjectName;
use crate::table::Change;
use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub(super) struct Locks {
    /// Records about to change.
    paths: BTreeMap<TreePath, TxnId>,
    /// Records that have to stay as they are; any number of transactions may want that.
    reads: BTreeMap<TreePath, Vec<TxnId>>,
    objects: BTreeMap<ObjectName, TxnId>,
    /// Nobody else may write below these.
    ranges: Vec<(TreePath, TxnId)>,
    /// Directories that are about to end, in their incarnations: nothing may be made in them.
    ending: Vec<((TreePath, u64), TxnId)>,
}

/// Paths that a batch writes.
pub(super) fn paths(changes: &[Change]) -> impl Iterator<Item = &TreePath> {
    changes.iter().filter_map(|c| match c {
        Change::Put { path, .. } | Change::Delete { path, .. } => Some(path),
        _ => None,
    })
}

/// Objects whose marks or paths a batch changes, in the local table of a home or at their owner.
fn objects(changes: &[Change]) -> impl Iterator<Item = ObjectName> {
    changes.iter().filter_map(|c| match c {
        Change::Put { record, .. } => Some(record.object),
        Change::Delete { object, .. } | Change::Doom(object) | Change::Relabel(object) => {
            Some(*object)
        }
        Change::Meta { key, .. } => owned_object(key),
        _ => None,
    })
}

impl Locks {
    pub(super) fn is_empty(&self) -> bool {
        self.paths.is_empty()
            && self.reads.is_empty()
            && self.ranges.is_empty()
            && self.ending.is_empty()
            && self.objects.is_empty()
    }

    pub(super) fn take(&mut self, txn: TxnId, part: &Part) {
        for (path, _) in &part.reads {
            self.reads.entry(path.clone()).or_default().push(txn);
        }
        let ranges = part.ranges.iter().map(|(dir, _)| (dir.clone(), txn));
        self.ranges.extend(ranges);
        let ending = part.ended.iter().map(|dir| (dir.clone(), txn));
        self.ending.extend(ending);
        self.take_changes(txn, &part.changes);
    }

    pub(super) fn take_changes(&mut self, txn: TxnId, changes: &[Change]) {
        for path in paths(changes) {
            self.paths.insert(path.clone(), txn);
        }
        for object in objects(changes) {
            self.objects.insert(object, txn);
        }
    }

    pub(super) fn release(&mut self, txn: TxnId) {
        self.paths.retain(|_, t| *t != txn);
        self.reads.retain(|_, holders| {
            holders.retain(|t| *t != txn);
            !holders.is_empty()
        });
        self.objects.retain(|_, t| *t != txn);
        self.ranges.retain(|(_, t)| *t != txn);
        self.ending.retain(|(_, t)| *t != txn);
    }

    /// Is the record at `path` about to change?
    pub(super) fn holds(&self, path: &TreePath) -> bool {
        self.paths.contains_key(path)
    }

    /// Is a record strictly below `dir` about to change?
    pub(super) fn holds_below(&self, dir: &TreePath) -> bool {
        self.paths.keys().any(|p| p != dir && p.is_within(dir))
    }

    /// May a transaction do its part now?
    pub(super) fn admit(&self, part: &Part) -> bool {
        !part.reads.iter().any(|(p, _)| self.holds(p))
            && !part.ranges.iter().any(|(dir, _)| self.holds_below(dir))
            && !self.ending.iter().any(|(dir, _)| part.above.contains(dir))
            && self.admit_changes(&part.changes)
    }

    /// May a transaction make these changes now?
    pub(super) fn admit_changes(&self, changes: &[Change]) -> bool {
        let free_path = |p: &TreePath| {
            !self.holds(p)
                && !self.reads.contains_key(p)
                && !self.ranges.iter().any(|(d, _)| p != d && p.is_within(d))
        };
        paths(changes).all(free_path) && objects(changes).all(|o| !self.objects.contains_key(&o))
    }
}
