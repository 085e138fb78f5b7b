//! The directories of the PFS in which batches make temporary names, written down before they do: what is left in them is
//! removed at the end of the pass, or by the next one, if this one was killed.

use super::act::{Act, DrainCommit, Got, Trouble, Work};
use super::drain_facts::DrainFacts;
use super::sheet::Sheet;
use super::strand::{Strand, with_outcomes};
use crate::facts::{Outcome, Stop};
use crate::fault::Fault;
use crate::path::TreePath;
use crate::record::BridgeId;
use crate::table::Change;
use std::collections::BTreeMap;

/// Names of the notes in the tables begin so. Each batch has its own, so that none overtakes another.
pub(super) const NOTES: &[u8] = b"drain/workplaces";

/// What is noted for each place that a batch can have.
#[derive(Debug, Default)]
pub(super) struct Workplaces {
    slots: Vec<NoteSlot>,
    /// Directories that could not be swept.
    unswept: BTreeMap<TreePath, Trouble>,
}

#[derive(Debug, Default)]
struct NoteSlot {
    is_taken: bool,
    /// A temporary name could not be removed there.
    is_doubtful: bool,
    noted: Vec<TreePath>,
}

impl Workplaces {
    /// A place for a batch, or for a directory that is to be made.
    pub(super) fn take(&mut self) -> usize {
        let free = self.slots.iter().position(|slot| !slot.is_taken);
        let slot = free.unwrap_or_else(|| {
            self.slots.push(NoteSlot::default());
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

    /// These directories, and those in which something may be left: the next note takes the place of an older one, maybe that
    /// of an earlier pass.
    pub(super) fn with_doubtful(&self, slot: usize, mut dirs: Vec<TreePath>) -> Vec<TreePath> {
        dirs.extend(self.unswept.keys().cloned());
        let slot = &self.slots[slot];
        if slot.is_doubtful {
            dirs.extend(slot.noted.iter().cloned());
        }
        dirs.sort_unstable();
        dirs.dedup();
        dirs
    }

    /// The commit before a batch works in these directories.
    pub(super) fn note(slot: usize, dirs: &[TreePath]) -> DrainCommit {
        commit(vec![change(slot, dirs)])
    }

    /// The change that notes one directory, unless it is noted already.
    pub(super) fn note_one(&self, slot: usize, dir: &TreePath) -> Option<(Change, Vec<TreePath>)> {
        if self.has_noted(slot, std::slice::from_ref(dir)) {
            return None;
        }
        let dirs = self.with_doubtful(slot, vec![dir.clone()]);
        Some((change(slot, &dirs), dirs))
    }

    /// It is noted. The directories are sorted.
    pub(super) fn noted(&mut self, slot: usize, dirs: Vec<TreePath>) {
        debug_assert!(dirs.is_sorted());
        self.slots[slot].noted = dirs;
    }

    /// The batch of this place could not remove a temporary name.
    pub(super) fn doubt(&mut self, slot: usize) {
        self.slots[slot].is_doubtful = true;
    }

    /// The directories in which a temporary name may be left: to be swept, once.
    pub(super) fn take_doubtful(&mut self) -> Vec<TreePath> {
        let doubtful = self.slots.iter_mut().filter(|slot| slot.is_doubtful);
        let mut dirs = Vec::new();
        for slot in doubtful {
            slot.is_doubtful = false;
            dirs.extend(slot.noted.iter().cloned());
        }
        dirs.sort_unstable();
        dirs.dedup();
        dirs
    }

    /// Is there a name left to remove where nobody has looked since?
    pub(super) fn is_doubtful(&self) -> bool {
        self.slots.iter().any(|slot| slot.is_doubtful)
    }

    /// Records the outcome of sweeping this directory.
    fn swept(&mut self, dir: &TreePath, did: Work<()>) {
        match did {
            Ok(()) => self.unswept.remove(dir),
            Err(trouble) => self.unswept.insert(dir.clone(), trouble),
        };
    }

    /// Directories in which something may be left over, and why it is.
    pub(super) fn unswept(&self) -> &BTreeMap<TreePath, Trouble> {
        &self.unswept
    }

    /// A directory in this one, or this one itself, that could not be swept.
    pub(super) fn unswept_in(&self, dir: &TreePath) -> Option<&TreePath> {
        self.unswept.keys().find(|unswept| unswept.is_within(dir))
    }

    /// May something be left over?
    pub(super) fn has_leftovers(&self) -> bool {
        self.is_doubtful() || !self.unswept.is_empty()
    }

    /// A batch has ended.
    pub(super) fn give_back(&mut self, slot: usize) {
        self.slots[slot].is_taken = false;
    }

    /// All batches have ended: the commit that takes the notes away, those that were found at the
    /// beginning as well.
    pub(super) fn forget(&mut self, found: &[Vec<u8>]) -> Option<DrainCommit> {
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

fn commit(batch: Vec<Change>) -> DrainCommit {
    DrainCommit {
        batch,
        ..DrainCommit::default()
    }
}

/// Removes what was left over in some directories.
pub(super) struct WorkplaceSweep {
    dirs: Vec<TreePath>,
    of: Option<BridgeId>,
    has_asked: bool,
}

impl WorkplaceSweep {
    pub(super) fn new(dirs: Vec<TreePath>, of: Option<BridgeId>) -> Self {
        WorkplaceSweep {
            dirs,
            of,
            has_asked: false,
        }
    }
}

impl Strand for WorkplaceSweep {
    fn take(&mut self, got: Got, sheet: &mut Sheet) {
        let Got::Each(each) = got else {
            unreachable!("{got:?} answers nothing that was asked");
        };
        for (dir, did) in with_outcomes(&self.dirs, each) {
            sheet.workplaces.swept(dir, did);
        }
        let is_left = !sheet.workplaces.unswept().is_empty();
        sheet.shared_files.swept(is_left);
    }

    fn next(&mut self, _facts: &dyn DrainFacts, _sheet: &mut Sheet) -> Outcome<Option<Act>> {
        if std::mem::replace(&mut self.has_asked, true) {
            return Ok(None);
        }
        Ok(Some(Act::Sweep {
            dirs: self.dirs.clone(),
            of: self.of,
        }))
    }
}

/// Reads one of the notes.
pub(super) fn read(key: &[u8], bytes: &[u8]) -> Outcome<Vec<TreePath>> {
    let paths = bytes.split(|&b| b == 0).map(|path| {
        let damaged = || Stop::from(Fault::DamagedValue(key.to_vec()));
        TreePath::new(path).ok_or_else(damaged)
    });
    paths.collect()
}

#[cfg(test)]
mod tests {
    use super::super::name_secret::NameSecret;
    use super::super::sheet::{PassTerms, Reason};
    use super::*;

    const TROUBLE: Trouble = Trouble {
        operation: "unlink",
        errno: libc::EIO,
    };

    fn path(text: &str) -> TreePath {
        TreePath::new(text.as_bytes()).unwrap()
    }

    fn sheet() -> Sheet {
        Sheet::new(PassTerms {
            keep: false,
            batches: 1,
            objects: 1,
            patient: false,
            secret: NameSecret([0, 0]),
        })
    }

    fn sweep(sheet: &mut Sheet, dir: &TreePath, did: Work<()>) {
        WorkplaceSweep::new(vec![dir.clone()], None).take(Got::Each(vec![did]), sheet);
    }

    fn listed(mut sheet: Sheet) -> Vec<TreePath> {
        sheet.close_list();
        let left = sheet.report.left.into_iter();
        left.map(|left| left.path).collect()
    }

    #[test]
    fn a_place_that_is_taken_again_keeps_the_directories_in_doubt() {
        let mut places = Workplaces::default();
        let slot = places.take();
        places.noted(slot, vec![path("a")]);
        places.doubt(slot);
        places.give_back(slot);
        assert_eq!(places.take(), slot);
        let dirs = places.with_doubtful(slot, vec![path("b")]);
        assert_eq!(dirs, [path("a"), path("b")]);
        places.noted(slot, dirs.clone());
        assert_eq!(places.take_doubtful(), dirs);
        assert!(!places.has_leftovers());
    }

    #[test]
    fn what_can_not_be_swept_is_listed_once_until_it_is_swept() {
        let dir = path("d");
        let mut failing = sheet();
        sweep(&mut failing, &dir, Err(TROUBLE));
        assert!(failing.workplaces.has_leftovers());
        assert_eq!(failing.workplaces.unswept_in(&path("d")), Some(&dir));
        // Another failure there, which has disappeared since, hides nothing.
        failing.leave(&dir, 0, Reason::Open);
        assert_eq!(listed(failing), std::slice::from_ref(&dir));
        let mut twice = sheet();
        sweep(&mut twice, &dir, Err(TROUBLE));
        twice.leave(&dir, 0, Reason::Open);
        twice.list_left(&dir, None);
        assert_eq!(listed(twice), std::slice::from_ref(&dir));
        let mut mended = sheet();
        sweep(&mut mended, &dir, Err(TROUBLE));
        sweep(&mut mended, &dir, Ok(()));
        assert!(!mended.workplaces.has_leftovers());
        assert_eq!(listed(mended), []);
    }
}
