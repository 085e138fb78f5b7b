//! One drain from its beginning to its end.

use super::counters::Counters;
use super::ground::{Ground, Halt, Points, picture};
use super::protocol::DrainRequest;
use super::throttle::Throttle;
use forebay_core::drain::Picture;
use forebay_core::path::TreePath;
use parking_lot::Mutex;
use std::collections::BTreeSet;

/// A drain at work.
pub(super) struct Pass<'g, G: Ground + ?Sized> {
    pub(super) ground: &'g G,
    pub(super) request: &'g DrainRequest,
    pub(super) counters: &'g Counters,
    pub(super) points: &'g Points,
    pub(super) throttle: Throttle,
    /// Directories of the PFS whose entries are not known to be on its disks.
    unsynced: Mutex<BTreeSet<TreePath>>,
}

impl<'g, G: Ground + ?Sized> Pass<'g, G> {
    pub(super) fn new(
        ground: &'g G,
        request: &'g DrainRequest,
        counters: &'g Counters,
        points: &'g Points,
    ) -> Self {
        Pass {
            ground,
            request,
            counters,
            points,
            throttle: Throttle::new(request.rate),
            unsynced: Mutex::default(),
        }
    }

    /// Drains. What cannot be drained is noted and does not keep the rest from it.
    ///
    /// # Errors
    /// The tables failed, or a test has cut the drain short.
    pub(super) fn run(&self) -> Result<(), Halt> {
        let root = self.times_of_root();
        self.settle_names()?;
        if !self.is_stopping() {
            let tasks = self.plan_contents(&self.picture()?);
            self.copy_all(tasks)?;
        }
        self.finish_dirs()?;
        self.give_back_times_of_root(root);
        self.sync_dirs();
        self.list_what_is_left()?;
        self.release()
    }

    /// All records as they are now.
    pub(super) fn picture(&self) -> Result<Picture, Halt> {
        let mut taken = Picture::default();
        self.ground.exclusively(&mut |ns| {
            taken = picture(ns)?;
            Ok(())
        })?;
        Ok(taken)
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.counters.is_stopping()
    }

    /// The directory around `path` got or lost an entry.
    pub(super) fn note_dir(&self, path: &TreePath) {
        self.unsynced.lock().insert(path.parent());
    }

    pub(super) fn take_unsynced(&self) -> BTreeSet<TreePath> {
        std::mem::take(&mut self.unsynced.lock())
    }

    /// Did the directory itself get or lose an entry, under a name that programs know?
    pub(super) fn is_noted(&self, dir: &TreePath) -> bool {
        self.unsynced.lock().contains(dir)
    }
}
