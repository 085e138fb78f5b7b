//! What undecided transactions hold.
//!
//! There are no lock queues: who finds something held gets a conflict and
//! decides again, so there are no deadlocks. Only readers wait, and they hold nothing.

use super::messages::TxnId;
use super::persist::owned_object;
use crate::path::TreePath;
use crate::record::ObjectName;
use crate::table::Change;
use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub(super) struct Locks {
    paths: BTreeMap<TreePath, TxnId>,
    objects: BTreeMap<ObjectName, TxnId>,
    /// Nobody else may write below these.
    ranges: Vec<(TreePath, TxnId)>,
}

/// Paths that a batch writes.
pub(super) fn paths(changes: &[Change]) -> impl Iterator<Item = &TreePath> {
    changes.iter().filter_map(|c| match c {
        Change::Put { path, .. } | Change::Delete { path, .. } => Some(path),
        _ => None,
    })
}

/// Objects whose marks or names a batch changes at their owner.
fn objects(changes: &[Change]) -> impl Iterator<Item = ObjectName> {
    changes.iter().filter_map(|c| match c {
        Change::Doom { object, .. } | Change::Relabel(object) => Some(*object),
        Change::Meta { key, .. } => owned_object(key),
        _ => None,
    })
}

impl Locks {
    pub(super) fn is_empty(&self) -> bool {
        self.paths.is_empty() && self.ranges.is_empty() && self.objects.is_empty()
    }

    pub(super) fn take<'a>(
        &mut self,
        txn: TxnId,
        changes: &[Change],
        ranges: impl Iterator<Item = &'a TreePath>,
    ) {
        for path in paths(changes) {
            self.paths.insert(path.clone(), txn);
        }
        for object in objects(changes) {
            self.objects.insert(object, txn);
        }
        self.ranges.extend(ranges.map(|dir| (dir.clone(), txn)));
    }

    pub(super) fn release(&mut self, txn: TxnId) {
        self.paths.retain(|_, t| *t != txn);
        self.objects.retain(|_, t| *t != txn);
        self.ranges.retain(|(_, t)| *t != txn);
    }

    /// Is the record at `path` about to change?
    pub(super) fn holds(&self, path: &TreePath) -> bool {
        self.paths.contains_key(path)
    }

    /// Is a record strictly below `dir` about to change?
    pub(super) fn holds_below(&self, dir: &TreePath) -> bool {
        self.paths.keys().any(|p| p != dir && p.is_within(dir))
    }

    /// May a transaction write `changes`, and rely on nothing happening in `ranges`?
    pub(super) fn free<'a>(
        &self,
        changes: &[Change],
        mut ranges: impl Iterator<Item = &'a TreePath>,
    ) -> bool {
        let free_path = |p: &TreePath| {
            !self.holds(p) && !self.ranges.iter().any(|(d, _)| p != d && p.is_within(d))
        };
        paths(changes).all(free_path)
            && objects(changes).all(|o| !self.objects.contains_key(&o))
            && ranges.all(|dir| !self.holds_below(dir))
    }
}
