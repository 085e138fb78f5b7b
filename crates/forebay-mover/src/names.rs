//! The first part of a drain: names change places on the PFS, and directories come into being.
//!
//! All of it happens while nobody else can change or read the namespace, in slices, because
//! the PFS and the tables must never be seen apart. Each step is short: a directory that has to
//! go is only renamed here, and removed later.

use crate::ground::{Ground, Halt, Namespace, commit, picture};
use crate::pass::Pass;
use crate::pfs::{self, During, Trouble, Work};
use forebay_admin::drain::Reason;
use forebay_core::drain::{Picture, Step, Update, discarded_name, is_leftover};
use forebay_core::path::TreePath;
use forebay_core::record::{Kind, Stamp};
use forebay_sys::{self as sys, Errno};
use std::collections::BTreeSet;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// Nobody waits longer than this for a slice (and one step).
const SLICE: Duration = Duration::from_millis(50);

/// What one step came to.
enum Did {
    /// The PFS is as the step wants it.
    Done,
    /// There was nothing to do yet; the contents will replace what is there.
    Left,
}

/// Finds out whether a drain died between a rename on the PFS and its commit, and makes the tables say
/// what the PFS shows. Without it the thing would be missing until the next drain.
///
/// # Errors
/// The tables failed.
pub fn resume(ground: &(impl Ground + ?Sized)) -> Result<(), Halt> {
    let there = |path: &TreePath| pfs::look(ground.lower(), path).is_ok_and(|a| a.is_some());
    ground.exclusively(&mut |ns| {
        let mut picture = picture(ns)?;
        for step in picture
            .evacuations()
            .into_iter()
            .chain(picture.placements())
        {
            let is_done = match &step {
                Step::Evacuate { from, to, .. } => !there(from) && there(to),
                Step::Place { path, from } => !there(from) && there(path),
                Step::Clear { .. } => false,
            };
            if is_done {
                let labels = picture.labels_changed_by(&step);
                let updates = picture.advance(&step);
                commit(ns, updates, labels)?;
            }
        }
        Ok(())
    })
}

impl<G: Ground + ?Sized> Pass<'_, G> {
    /// Carries out all renames and removals, and makes all directories.
    pub(crate) fn settle_names(&self) -> Result<(), Halt> {
        let mut skipped = BTreeSet::new();
        let mut more = true;
        while more {
            self.ground.exclusively(&mut |ns| {
                let started = Instant::now();
                let mut picture = picture(ns)?;
                // With very many records the copy itself takes its time; then a slice may, too.
                let slice = SLICE.max(started.elapsed() * 2);
                let over = || started.elapsed() > slice || self.is_stopping();
                more = self.slice(ns, &mut picture, &mut skipped, &over)?;
                Ok(())
            })?;
            more &= !self.is_stopping();
        }
        self.remove_leftovers(&TreePath::root());
        Ok(())
    }

    /// Does steps until all are done or the slice is over; true if there are more.
    fn slice(
        &self,
        ns: &mut dyn Namespace,
        picture: &mut Picture,
        skipped: &mut BTreeSet<TreePath>,
        over: &dyn Fn() -> bool,
    ) -> Result<bool, Halt> {
        loop {
            let steps: Vec<Step> = picture
                .evacuations()
                .into_iter()
                .filter(|s| !skipped.contains(s.path()))
                .collect();
            if steps.is_empty() {
                break;
            }
            for step in steps {
                if over() {
                    return Ok(true);
                }
                self.step(ns, picture, skipped, &step)?;
            }
        }
        for step in picture.clearances().into_iter().chain(picture.placements()) {
            if skipped.contains(step.path()) {
                continue;
            }
            if over() {
                return Ok(true);
            }
            if matches!(step, Step::Place { .. }) {
                for dir in picture.born_dirs_above(step.path()) {
                    self.make_dir(ns, picture, skipped, &dir)?;
                }
            }
            self.step(ns, picture, skipped, &step)?;
        }
        let dirs: Vec<TreePath> = picture.born_dirs().map(|(path, _)| path.clone()).collect();
        for dir in dirs {
            if over() {
                return Ok(true);
            }
            self.make_dir(ns, picture, skipped, &dir)?;
        }
        Ok(false)
    }

    fn step(
        &self,
        ns: &mut dyn Namespace,
        picture: &mut Picture,
        skipped: &mut BTreeSet<TreePath>,
        step: &Step,
    ) -> Result<(), Halt> {
        self.points.pass()?;
        let outcome = match step {
            Step::Evacuate { from, to, .. } => self.evacuate(from, to),
            Step::Clear {
                path,
                target,
                replaced,
            } => {
                if let Some(target) = target
                    && picture.holds_something_moved(target)
                {
                    skipped.insert(path.clone());
                    let cause = format!("{target} still holds something that could not be renamed");
                    self.leave_blocked(path, 0, cause);
                    return Ok(());
                }
                self.clear(picture, path, target.as_ref(), *replaced)
            }
            Step::Place { path, from } => {
                if !picture.is_settled(&path.parent()) || picture.is_obstructed(path) {
                    skipped.insert(path.clone());
                    self.leave_blocked(path, 0, self.obstacle(picture, path));
                    return Ok(());
                }
                self.place(from, path)
            }
        };
        match outcome {
            Ok(Did::Done) => {
                self.points.pass()?;
                let labels = picture.labels_changed_by(step);
                let updates = picture.advance(step);
                commit(ns, updates, labels)
            }
            Ok(Did::Left) => Ok(()),
            Err(trouble) => {
                skipped.insert(step.path().clone());
                self.leave(step.path(), 0, trouble);
                Ok(())
            }
        }
    }

    fn evacuate(&self, from: &TreePath, to: &TreePath) -> Work<Did> {
        if pfs::look(self.ground.lower(), to)?.is_none() {
            pfs::rename(self.ground.lower(), from, to)?;
        }
        self.note_dir(from);
        Ok(Did::Done)
    }

    fn clear(
        &self,
        picture: &Picture,
        path: &TreePath,
        target: Option<&TreePath>,
        replaced: bool,
    ) -> Work<Did> {
        let lower = self.ground.lower();
        let Some(target) = target else {
            return Ok(Did::Done);
        };
        let Some(attr) = pfs::look(lower, target)? else {
            return Ok(Did::Done);
        };
        if !pfs::is_dir(&attr) {
            if replaced {
                return Ok(Did::Left);
            }
            let dir = pfs::parent(lower, target)?;
            sys::unlink(dir.as_fd(), target.name(), false).during("unlink")?;
            self.counters.removed(1);
            self.note_dir(target);
            return Ok(Did::Done);
        }
        let Some(record) = picture.get(path) else {
            return Ok(Did::Done);
        };
        let dir = pfs::parent(lower, target)?;
        // An empty one needs no detour.
        if sys::unlink(dir.as_fd(), target.name(), true).is_err() {
            let aside = self.free_name(&discarded_name(record.object.oid))?;
            match pfs::rename(lower, target, &aside) {
                Ok(()) => {}
                // Another parent takes write permission on the directory itself, removal does not.
                Err(Trouble {
                    errno: Errno::ACCESS | Errno::PERM | Errno::XDEV,
                    ..
                }) => pfs::remove_tree(dir.as_fd(), target.name())?,
                Err(e) => return Err(e),
            }
        }
        self.counters.removed(1);
        self.note_dir(target);
        Ok(Did::Done)
    }

    /// A name in the root that nothing has yet: an earlier drain may have left one behind.
    fn free_name(&self, name: &[u8]) -> Work<TreePath> {
        let mut path = TreePath::root().join(name);
        let mut n = 0;
        while pfs::look(self.ground.lower(), &path)?.is_some() {
            n += 1;
            path = TreePath::root().join(&[name, format!("{n}").as_bytes()].concat());
        }
        Ok(path)
    }

    fn place(&self, from: &TreePath, to: &TreePath) -> Work<Did> {
        let lower = self.ground.lower();
        if pfs::look(lower, from)?.is_some() {
            pfs::rename(lower, from, to)?;
            self.counters.renamed(1);
        } else if pfs::look(lower, to)?.is_none() {
            return Err(Errno::NOENT).during("rename");
        }
        self.note_dir(to);
        Ok(Did::Done)
    }

    fn make_dir(
        &self,
        ns: &mut dyn Namespace,
        picture: &mut Picture,
        skipped: &mut BTreeSet<TreePath>,
        path: &TreePath,
    ) -> Result<(), Halt> {
        let Some(before) = picture.get(path).cloned() else {
            return Ok(());
        };
        if skipped.contains(path) || before.kind != Kind::Dir {
            return Ok(());
        }
        if !picture.is_settled(&path.parent()) || picture.is_obstructed(path) {
            skipped.insert(path.clone());
            self.leave_blocked(path, 0, self.obstacle(picture, path));
            return Ok(());
        }
        self.points.pass()?;
        if let Err(trouble) = self.ensure_dir(path) {
            skipped.insert(path.clone());
            self.leave(path, 0, trouble);
            return Ok(());
        }
        if before.drained.is_some() {
            return Ok(());
        }
        self.points.pass()?;
        let mut after = before.clone();
        // Its attributes are still to come: a stamp that no directory has.
        after.drained = Some(Stamp::default());
        picture.put(path.clone(), after.clone());
        let update = Update {
            path: path.clone(),
            before,
            after: Some(after),
        };
        commit(ns, vec![update], Vec::new())
    }

    fn ensure_dir(&self, path: &TreePath) -> Work<()> {
        let dir = pfs::parent(self.ground.lower(), path)?;
        match sys::mkdir(dir.as_fd(), path.name(), 0o700) {
            Ok(()) => {
                self.note_dir(path);
                return Ok(());
            }
            Err(Errno::EXIST) => self.note_unsynced(path),
            Err(e) => return Err(e).during("mkdir"),
        }
        let attr = sys::stat(dir.as_fd(), path.name()).during("stat")?;
        if !pfs::is_dir(&attr) {
            return Err(Errno::EXIST).during("mkdir");
        }
        // It gets its own mode back with the other attributes, at the end.
        if attr.mode & 0o700 != 0o700 {
            sys::chmod_at(dir.as_fd(), path.name(), attr.mode & 0o7777 | 0o700).during("chmod")?;
        }
        Ok(())
    }

    /// Why nothing may be put at a path.
    pub(crate) fn obstacle(&self, picture: &Picture, path: &TreePath) -> String {
        let mut at = path.parent();
        let mut highest = None;
        loop {
            if !picture.is_settled(&at) {
                highest = Some(at.clone());
            }
            if at.is_root() {
                break;
            }
            at = at.parent();
        }
        match highest {
            Some(dir) => format!("its directory {dir} is not on the PFS yet"),
            None => "what it replaces could not be removed".to_owned(),
        }
    }

    /// Removes what earlier drains left in a directory: it holds nothing of value. What can't be removed
    /// now will be at the next drain.
    pub(crate) fn remove_leftovers(&self, dir: &TreePath) {
        let Ok(dir) = self
            .ground
            .lower()
            .open(dir, libc::O_RDONLY | libc::O_DIRECTORY)
        else {
            return;
        };
        let mut entries = Vec::new();
        while let Ok(true) = sys::read_dir(dir.as_fd(), &mut entries) {}
        for entry in entries.iter().filter(|e| is_leftover(&e.name)) {
            if let Err(e) = pfs::remove_tree(dir.as_fd(), &entry.name) {
                self.counters.remark(format!(
                    "{} could not be removed from the PFS ({}: {})",
                    String::from_utf8_lossy(&entry.name),
                    e.operation,
                    e.errno
                ));
            }
        }
    }

    pub(crate) fn leave_blocked(&self, path: &TreePath, bytes: u64, cause: String) {
        self.counters.leave(path, bytes, Reason::Blocked, "", cause);
    }

    pub(crate) fn leave(&self, path: &TreePath, bytes: u64, trouble: Trouble) {
        let cause = trouble.errno.to_string();
        let cause = cause
            .split_once(" (os error")
            .map_or(cause.as_str(), |(text, _)| text)
            .to_owned();
        self.counters
            .leave(path, bytes, Reason::Error, trouble.operation, cause);
    }
}
