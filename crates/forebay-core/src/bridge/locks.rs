//! What undecided transactions hold.
//!
//! There are no lock queues: who finds something held gets a conflict and
//! decides again, so there are no deadlocks. Only readers wait, and they hold nothing.

use super::messages::{Part, TxnId};
use super::persist::owned_object;
use crate::path::TreePath;
use crate::record::ObjectId;
use crate::record::ObjectName;
use crate::speakers::{Lowers, Speakers, Word};
use crate::table::Change;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Default)]
pub(super) struct Locks {
    /// Records about to change.
    paths: BTreeMap<TreePath, TxnId>,
    /// Records that have to stay as they are; any number of transactions may want that.
    reads: BTreeMap<TreePath, Vec<TxnId>>,
    objects: BTreeMap<ObjectName, TxnId>,
    /// Nobody else may write below these.
    ranges: Vec<(TreePath, TxnId)>,
    /// Paths of the PFS of which other records are about to speak.
    lowers: Vec<(TreePath, TxnId)>,
    /// Paths of the PFS of which nobody else may begin or cease to speak.
    speakers: Vec<(Lowers, TxnId)>,
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

/// Paths of the PFS of which a batch makes other records speak than those that do now.
fn lowers(changes: &[Change], now: &Speakers) -> BTreeSet<TreePath> {
    let mut touched = BTreeSet::new();
    for change in changes {
        let (path, after) = match change {
            Change::Put { path, record } => {
                let words = [(&record.origin, Word::Origin), (&record.hides, Word::Hides)];
                let said = words.into_iter();
                let said = said.filter_map(|(lower, word)| Some((lower.clone()?, word)));
                (path, said.collect())
            }
            Change::Delete { path, .. } => (path, BTreeSet::new()),
            _ => continue,
        };
        let before = now.words_of(path);
        if before != after {
            touched.extend(before.into_iter().chain(after).map(|(lower, _)| lower));
        }
    }
    touched
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
            && self.lowers.is_empty()
            && self.speakers.is_empty()
    }

    pub(super) fn take(&mut self, txn: TxnId, part: &Part, now: &Speakers) {
        let touched = lowers(&part.changes, now);
        self.lowers
            .extend(touched.into_iter().map(|lower| (lower, txn)));
        let relied = part.speakers.iter().map(|(of, _)| (of.clone(), txn));
        self.speakers.extend(relied);
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
        self.lowers.retain(|(_, t)| *t != txn);
        self.speakers.retain(|(_, t)| *t != txn);
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

    /// Is a record about to begin or to cease to speak of one of these paths?
    pub(super) fn holds_speakers(&self, of: &Lowers) -> bool {
        self.lowers.iter().any(|(lower, _)| of.contains(lower))
    }

    /// Is a name of this object about to change?
    pub(super) fn holds_object(&self, oid: ObjectId) -> bool {
        self.objects.keys().any(|object| object.oid == oid)
    }

    /// May a transaction do its part now?
    pub(super) fn admit(&self, part: &Part, now: &Speakers) -> bool {
        let is_free = |lower: &TreePath| !self.speakers.iter().any(|(of, _)| of.contains(lower));
        (self.speakers.is_empty() || lowers(&part.changes, now).iter().all(is_free))
            && !part.speakers.iter().any(|(of, _)| self.holds_speakers(of))
            && !part.reads.iter().any(|(p, _)| self.holds(p))
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
