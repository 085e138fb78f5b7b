//! One drain from its beginning to its end.

use crate::contents::Task;
use crate::counters::Counters;
use crate::ground::{Ground, Halt, Points, picture};
use crate::notes::{self, INTENDED, WORKPLACES};
use crate::throttle::Throttle;
use forebay_admin::drain::DrainRequest;
use forebay_core::drain::Picture;
use forebay_core::path::TreePath;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// A drain at work.
pub struct Pass<'g, G: Ground + ?Sized> {
    pub(crate) ground: &'g G,
    pub(crate) request: &'g DrainRequest,
    pub(crate) counters: &'g Counters,
    pub(crate) points: &'g Points,
    pub(crate) throttle: Throttle,
    started: Instant,
    /// What [`INTENDED`] says.
    pub(crate) intended: Mutex<BTreeSet<TreePath>>,
    /// Directories of the PFS that got or lost an entry.
    changed: Mutex<BTreeSet<TreePath>>,
    /// Directories of the PFS whose entries are not known to be on its disks.
    unsynced: Mutex<BTreeSet<TreePath>>,
}

impl<'g, G: Ground + ?Sized> Pass<'g, G> {
    /// A drain of `ground` that is asked for by `request`; where it is shows in `counters`.
    pub fn new(
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
            started: Instant::now(),
            intended: Mutex::default(),
            changed: Mutex::default(),
            unsynced: Mutex::default(),
        }
    }

    /// Drains. What cannot be drained is noted and does not keep the rest from it.
    ///
    /// # Errors
    /// The tables failed, or a test has cut the drain short.
    pub fn run(&self) -> Result<(), Halt> {
        let lower = self.ground.lower();
        lower.flush_touches();
        lower.times().begin_drain();
        let changed = self.change_the_pfs();
        let open = |dir: &TreePath| lower.open(dir, libc::O_RDONLY | libc::O_DIRECTORY);
        lower.times().end_drain(open);
        changed?;
        self.finish_dirs()?;
        self.list_what_is_left()?;
        self.sync_dirs();
        self.release()
    }

    /// Everything that changes entries of directories there.
    fn change_the_pfs(&self) -> Result<(), Halt> {
        self.ground.lower().keep_times(&TreePath::root());
        self.clean_up_after_the_last()?;
        self.settle_names()?;
        if !self.is_stopping() {
            let tasks = self.plan_contents(&self.picture()?);
            self.write_down_workplaces(&tasks)?;
            self.copy_all(tasks)?;
            self.forget_workplaces()?;
        }
        Ok(())
    }

    /// Removes the temporary names that a killed drain has left.
    fn clean_up_after_the_last(&self) -> Result<(), Halt> {
        let mut workplaces = BTreeSet::new();
        self.ground.exclusively(&mut |ns| {
            *self.intended.lock() = notes::read(ns, INTENDED)?;
            workplaces = notes::read(ns, WORKPLACES)?;
            Ok(())
        })?;
        self.remove_leftovers(&TreePath::root());
        for dir in &workplaces {
            self.remove_leftovers(dir);
        }
        Ok(())
    }

    fn write_down_workplaces(&self, tasks: &[Task]) -> Result<(), Halt> {
        let dirs = tasks.iter().flat_map(Task::workplaces).collect();
        self.note(WORKPLACES, &dirs)
    }

    fn forget_workplaces(&self) -> Result<(), Halt> {
        self.note(WORKPLACES, &BTreeSet::new())
    }

    fn note(&self, key: &[u8], paths: &BTreeSet<TreePath>) -> Result<(), Halt> {
        self.ground
            .exclusively(&mut |ns| ns.commit(vec![notes::change(key, paths)], Vec::new()))
    }

    /// All records as they are now.
    pub(crate) fn picture(&self) -> Result<Picture, Halt> {
        let mut taken = Picture::default();
        self.ground.exclusively(&mut |ns| {
            taken = picture(ns)?;
            Ok(())
        })?;
        Ok(taken)
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.counters.is_stopping()
    }

    /// May a file that is still open be waited for?
    pub(crate) fn has_patience(&self) -> bool {
        self.started.elapsed() < Duration::from_millis(self.request.patience_ms)
    }

    /// The directory around `path` got or lost an entry.
    pub(crate) fn note_dir(&self, path: &TreePath) {
        self.changed.lock().insert(path.parent());
        self.note_unsynced(path);
    }

    /// The directory around `path` may have changed in an earlier drain that did not come to its end.
    pub(crate) fn note_unsynced(&self, path: &TreePath) {
        self.unsynced.lock().insert(path.parent());
    }

    pub(crate) fn take_unsynced(&self) -> BTreeSet<TreePath> {
        std::mem::take(&mut self.unsynced.lock())
    }

    /// Did the directory itself get or lose an entry, under a name that programs know?
    pub(crate) fn has_changed(&self, dir: &TreePath) -> bool {
        self.changed.lock().contains(dir)
    }
}
