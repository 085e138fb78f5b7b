//! What the PFS holds when the power fails.
//!
//! A change of names is durable when all directories are synced whose entries it has changed. Of the others some are there
//! and some not, in no order, but for those that one that is there builds upon.

use super::random::Random;
use forebay_core::path::TreePath;
use std::collections::{BTreeMap, BTreeSet};

/// Names, with the numbers of their inodes.
pub(super) type Names = BTreeMap<TreePath, u64>;

/// Names that change at one moment, with what they are then.
#[derive(Debug, Clone)]
struct Change {
    names: Vec<(TreePath, Option<u64>)>,
    /// Directories that have to be synced.
    dirs: BTreeSet<TreePath>,
}

impl Change {
    /// Could this not have been done without that?
    fn builds_upon(&self, earlier: &Change) -> bool {
        let mut pairs = self
            .names
            .iter()
            .flat_map(|a| earlier.names.iter().map(move |b| (a, b)));
        pairs.any(|((a, _), (b, _))| a.is_within(b) || b.is_within(a))
    }
}

/// What is durable, and what was done since.
#[derive(Debug, Clone)]
pub(super) struct PfsLog {
    durable: Names,
    changes: Vec<Change>,
}

impl PfsLog {
    /// Everything is durable now.
    pub(super) fn new(durable: Names) -> Self {
        PfsLog {
            durable,
            changes: Vec::new(),
        }
    }

    /// Entries of these directories have changed.
    pub(super) fn did(&mut self, dirs: BTreeSet<TreePath>, names: Vec<(TreePath, Option<u64>)>) {
        self.changes.push(Change { names, dirs });
    }

    /// The last change is durable.
    pub(super) fn sync_last(&mut self) {
        if let Some(change) = self.changes.last_mut() {
            change.dirs.clear();
        }
    }

    pub(super) fn sync_dir(&mut self, dir: &TreePath) {
        for change in &mut self.changes {
            change.dirs.remove(dir);
        }
        // What comes first and is synced needs no memory.
        let synced = self.changes.iter().take_while(|c| c.dirs.is_empty());
        let synced = synced.count();
        for change in self.changes.drain(..synced) {
            apply(change, &mut self.durable);
        }
    }

    /// The power fails: what is left.
    pub(super) fn lose(&mut self, random: &mut Random) -> Names {
        let changes = std::mem::take(&mut self.changes);
        let mut kept: Vec<_> = changes
            .iter()
            .map(|c| c.dirs.is_empty() || random.chance(500_000))
            .collect();
        for later in (0..changes.len()).rev() {
            for earlier in 0..later {
                kept[earlier] |= kept[later] && changes[later].builds_upon(&changes[earlier]);
            }
        }
        for (change, _) in changes.into_iter().zip(kept).filter(|(_, kept)| *kept) {
            apply(change, &mut self.durable);
        }
        self.durable.clone()
    }
}

fn apply(change: Change, names: &mut Names) {
    for (name, number) in change.names {
        match number {
            Some(number) => drop(names.insert(name, number)),
            None => drop(names.remove(&name)),
        }
    }
}
