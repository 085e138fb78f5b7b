//! Records that belong in a directory of the PFS which has another one in its place now.

use super::{Dir, Found, Place, Walk};
use crate::facts::{Outcome, Stop, errno};
use crate::path::TreePath;
use crate::record::{Kind, PathRecord};
use crate::table::Change;
use std::collections::BTreeSet;

/// What is about to get a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comes {
    /// No directory.
    File,
    /// A new directory.
    EmptyDir,
    /// A directory with what is in it.
    Dir,
}

impl Walk<'_> {
    /// The record of this name in `dir`, if it belongs there.
    pub(super) fn record_in(&self, dir: &Dir, name: &[u8]) -> Outcome<Option<PathRecord>> {
        let at = dir.path.join(name);
        match self.facts.record(&at)? {
            Some(record) if self.belongs_elsewhere(dir, name, &record)? => {
                self.seen.borrow_mut().passed_over.push(at);
                Ok(None)
            }
            record => Ok(record),
        }
    }

    /// Was the record of this name made in another directory than this one, which has the path of that now? Or has one above it been passed
    /// over?
    pub fn belongs_elsewhere(&self, dir: &Dir, name: &[u8], record: &PathRecord) -> Outcome<bool> {
        // In a directory that was made in the buffer is what its records say.
        let Place::Merged(lower) = &dir.place else {
            return Ok(false);
        };
        if !self.hides_elsewhere {
            return Ok(false);
        }
        if self.is_passed_over(&dir.path) {
            return Ok(true);
        }
        let Some(within) = record.dirs().within else {
            return Ok(false);
        };
        // Of a directory that has opened it is that directory itself.
        if record.is_open_at(&dir.path.join(name)) {
            return Ok(false);
        }
        let now = self.merged_attr(dir, lower)?;
        Ok(now.is_some_and(|now| !within.is_dir_of(&now)))
    }

    /// EBUSY if what is at this name, or a directory on the way to it, was made in another directory than the one that is there now. The user
    /// of the bridge sees by a path what waits for a directory, and must not change it.
    pub fn check_here(&self, found: &Found) -> Outcome<()> {
        if !self.settings.keeps_numbers {
            return Ok(());
        }
        if let Some(record) = &found.record {
            self.check_is_of(&found.dir, &found.path, record)?;
        }
        if self.hides_elsewhere {
            // Such names are hidden from this request, or it began in a directory that the caller has open.
            return Ok(());
        }
        let mut dir = self.root();
        for name in found.dir.path.components() {
            let path = dir.path.join(name);
            let record = self.facts.record(&path)?;
            if let Some(record) = &record {
                self.check_is_of(&dir, &path, record)?;
            }
            dir = Self::entered(&dir, name, record.as_ref())?;
        }
        Ok(())
    }

    /// EBUSY if the record at `path`, in `dir`, was made in another directory than that.
    fn check_is_of(&self, dir: &Dir, path: &TreePath, record: &PathRecord) -> Outcome<()> {
        let (Some(within), Place::Merged(lower)) = (record.dirs().within, &dir.place) else {
            return Ok(());
        };
        if record.is_open_at(path) {
            return Ok(());
        }
        match self.merged_attr(dir, lower)? {
            Some(now) if within.is_dir_of(&now) => Ok(()),
            _ => errno(libc::EBUSY),
        }
    }

    /// EBUSY if something else waits for this name, at which nothing or no directory shows: something that was renamed to it, or things in
    /// a directory that had this path. The user of the bridge may take its place, but not with a directory: what is in that, or comes
    /// there, would take the places of what waits. A new one is allowed in the place of something renamed that others have taken away: that
    /// gives the rename up.
    pub fn check_vacant(&self, found: &Found, comes: Comes) -> Outcome<()> {
        self.check_here(found)?;
        let is_of_bridge = self.cred.uid == self.settings.bridge_uid;
        match (&found.node, &found.record) {
            _ if is_of_bridge && comes == Comes::File => return Ok(()),
            (None, Some(record)) if record.is_visible() => match (is_of_bridge, comes) {
                (false, _) => return errno(libc::EBUSY),
                (true, Comes::EmptyDir) => return Ok(()),
                (true, _) => {}
            },
            _ => {}
        }
        let is_removed = match &found.node {
            Some(node) if self.is_dir(node) => return Ok(()),
            Some(_) => false,
            None => found.record.is_some(),
        };
        if !is_removed && matches!(found.dir.place, Place::Born(_)) {
            return Ok(());
        }
        let below = self.facts.subtree(&found.path)?;
        match below.iter().any(|(_, record)| record.is_visible()) {
            true => errno(libc::EBUSY),
            false => Ok(()),
        }
    }

    /// EBUSY if one of these records, below a directory at `top`, was made in a directory of the PFS that is not at its path now, or is of something
    /// renamed that is not where it was: it neither moves nor goes with what is there. The user of the bridge is refused only for what
    /// was made in the one at `top` itself, and not where no directory is there any more: this user may give that up. But what was
    /// drained as a directory, and holds more, does not move without the one that it became.
    pub fn check_all_here(&self, top: &TreePath, below: &[(TreePath, PathRecord)]) -> Outcome<()> {
        if !self.settings.keeps_numbers {
            return Ok(());
        }
        let is_of_bridge = self.cred.uid == self.settings.bridge_uid;
        let around = match is_of_bridge {
            true => dirs_around(top, below),
            false => BTreeSet::new(),
        };
        let is_bound = |path: &TreePath, record: &PathRecord| {
            !is_of_bridge || record.is_open_at(path) && around.contains(path)
        };
        let mut dir: Option<Dir> = None;
        for (path, record) in below {
            if record.kind == Kind::Moved
                && record.transit.is_none()
                && is_bound(path, record)
                && self.facts.renamed(record)?.is_none()
            {
                return errno(libc::EBUSY);
            }
            let Some(within) = record.dirs().within else {
                continue;
            };
            let parent = path.parent();
            if record.is_open_at(path) || is_of_bridge && parent != *top {
                continue;
            }
            let dir = match &mut dir {
                Some(last) if last.path == parent => last,
                other => match self.dir_shown_at(&parent) {
                    // It goes with a directory that was removed.
                    Err(Stop::Errno(libc::ENOENT)) => continue,
                    found => other.insert(found?),
                },
            };
            let Place::Merged(lower) = &dir.place else {
                continue;
            };
            let is_here = match self.merged_attr(dir, lower)? {
                Some(now) => within.is_dir_of(&now),
                None => is_of_bridge,
            };
            if !is_here || self.belongs_elsewhere(dir, path.name(), record)? {
                return errno(libc::EBUSY);
            }
        }
        Ok(())
    }

    /// Has this walk passed over the record at this path, or over one above it?
    pub(super) fn is_passed_over(&self, path: &TreePath) -> bool {
        let seen = self.seen.borrow();
        seen.passed_over.iter().any(|met| path.is_within(met))
    }

    /// Does this change a record that this walk has passed over?
    pub fn changes_passed_over(&self, change: &Change) -> bool {
        match change {
            Change::Put { path, .. } | Change::Delete { path, .. } => self.is_passed_over(path),
            _ => false,
        }
    }

    /// A look beside the walk: neither relies on what the other has seen.
    pub(super) fn apart<T>(&self, look: impl FnOnce() -> T) -> T {
        let seen = self.seen.take();
        let looked = look();
        self.seen.replace(seen);
        looked
    }
}

/// The directories below `top` around what shows of these records.
fn dirs_around(top: &TreePath, below: &[(TreePath, PathRecord)]) -> BTreeSet<TreePath> {
    let mut around = BTreeSet::new();
    for (path, _) in below.iter().filter(|(_, record)| record.is_visible()) {
        let mut dir = path.parent();
        while dir != *top && around.insert(dir.clone()) {
            dir = dir.parent();
        }
    }
    around
}
