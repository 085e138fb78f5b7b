//! The directories of the PFS in which batches make temporary names, written down before they do: a
//! pass after one that was killed removes what is left in them.

use super::act::Commit;
use crate::facts::{Outcome, Stop};
use crate::path::TreePath;
use crate::table::Change;

/// Names of the notes in the tables begin so. Each batch has its own, so that none overtakes another.
pub(super) const NOTES: &[u8] = b"drain/workplaces";

/// What is noted for each place that a batch can have.
#[derive(Debug, Default)]
pub(super) struct Workplaces {
    slots: Vec<Slot>,
}

#[derive(Debug, Default)]
struct Slot {
    is_taken: bool,
    noted: Vec<TreePath>,
}

impl Workplaces {
    /// A place for a batch.
    pub(super) fn take(&mut self) -> usize {
        let free = self.slots.iter().position(|slot| !slot.is_taken);
        let slot = free.unwrap_or_else(|| {
            self.slots.push(Slot::default());
            self.slots.len() - 1
        });
        self.slots[slot].is_taken = true;
        slot
    }

    /// Is it noted that a batch may work in these directories?
    pub(super) fn has_noted(&self, slot: usize, dirs: &[TreePath]) -> bool {
        let noted = &self.slots[slot].noted;
        dirs.iter().all(|dir| noted.binary_search(dir).is_ok())
    }

    /// The commit before a batch works in these directories.
    pub(super) fn note(slot: usize, dirs: &[TreePath]) -> Commit {
        commit(vec![change(slot, dirs)])
    }

    /// It is noted. The directories are sorted.
    pub(super) fn noted(&mut self, slot: usize, dirs: Vec<TreePath>) {
        debug_assert!(dirs.is_sorted());
        self.slots[slot].noted = dirs;
    }

    /// A batch has ended, and has left nothing behind.
    pub(super) fn give_back(&mut self, slot: usize) {
        self.slots[slot].is_taken = false;
    }

    /// All batches have ended: the commit that takes the notes away, those that were found at the
    /// beginning as well.
    pub(super) fn forget(&mut self, found: &[Vec<u8>]) -> Option<Commit> {
        assert!(
            self.slots.iter().all(|slot| !slot.is_taken),
            "all batches have ended"
        );
        let slots = std::mem::take(&mut self.slots);
        let noted = slots.iter().enumerate();
        let mut changes: Vec<_> = noted
            .filter(|(_, slot)| !slot.noted.is_empty())
            .map(|(n, _)| change(n, &[]))
            .collect();
        changes.extend(found.iter().map(|key| Change::Meta {
            key: key.clone(),
            value: None,
        }));
        (!changes.is_empty()).then(|| commit(changes))
    }
}

fn change(slot: usize, dirs: &[TreePath]) -> Change {
    let paths: Vec<&[u8]> = dirs.iter().map(TreePath::as_bytes).collect();
    Change::Meta {
        key: [NOTES, format!("/{slot}").as_bytes()].concat(),
        value: (!dirs.is_empty()).then(|| paths.join(&0)),
    }
}

fn commit(batch: Vec<Change>) -> Commit {
    Commit {
        batch,
        ..Commit::default()
    }
}

/// Reads one of the notes.
pub(super) fn read(key: &[u8], bytes: &[u8]) -> Outcome<Vec<TreePath>> {
    let paths = bytes.split(|&b| b == 0).map(|path| {
        let damaged = || Stop::Fault(format!("damaged value of {}", key.escape_ascii()));
        TreePath::new(path).ok_or_else(damaged)
    });
    paths.collect()
}
