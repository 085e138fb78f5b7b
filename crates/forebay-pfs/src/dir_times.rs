//! Modification times of PFS directories. A program changes entries only in the buffer, so the directory on the
//! PFS must be given the new time. A drain changes entries on the PFS, so the directory must get its old time
//! back: `core::drain::VisitedDirs` says which time, this looks and sets it.

use forebay_core::drain::{DirSeen, VisitedDirs};
use forebay_core::facts::{Attr, Timestamp};
use forebay_core::identity::Identity;
use forebay_core::path::TreePath;
use forebay_sys::{self as sys, Errno, Sys};
use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

type Visited = VisitedDirs<Arc<OwnedFd>>;

/// Times of directories that are not on the PFS yet.
#[derive(Default)]
pub struct DirTimes {
    /// Directories changed by programs. Their times are written later, once for many changes, because each write is a
    /// request to the PFS.
    waiting: Mutex<HashMap<TreePath, Touch>>,
    count: AtomicUsize,
    /// Held while times are written. A program that opens a directory may set its times a moment later, and
    /// they must not be overwritten then.
    writing: Mutex<()>,
    /// What the drain that is at work has visited.
    visited: Mutex<Option<Visited>>,
}

/// When a program has changed entries of a directory, and of which one.
type Touch = (Timestamp, Option<Identity>);

/// Directories in which an act of a drain may be changing entries: their numbers.
#[must_use = "the changes of others are told from those of the drain when it ends"]
pub struct Changing(BTreeSet<usize>);

impl DirTimes {
    /// Notes that a program has just changed entries of this directory.
    pub fn touch(&self, path: &TreePath, dir: Option<Identity>) {
        let now = sys::now_coarse();
        if let Some(visited) = &mut *self.visited.lock() {
            visited.touch(path, dir, now);
        }
        let mut waiting = self.waiting.lock();
        waiting.insert(path.clone(), (now, dir));
        self.count.store(waiting.len(), Ordering::Relaxed);
    }

    /// True if there are times that are not on the PFS yet.
    pub fn any_waits(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    /// The time of this directory, which has these attributes, that is not on the PFS yet.
    pub fn waits(&self, path: &TreePath, dir: &Attr) -> Option<Timestamp> {
        let touch = self.touch_of(path);
        touch.and_then(|(at, known)| known.is_none_or(|known| known.is_dir_of(dir)).then_some(at))
    }

    fn touch_of(&self, path: &TreePath) -> Option<Touch> {
        if !self.any_waits() {
            return None;
        }
        self.waiting.lock().get(path).copied()
    }

    /// Calls `write` with the time of one directory, if that is not on the PFS yet.
    pub fn write_one(&self, path: &TreePath, write: impl Fn(&TreePath, Touch)) {
        if !self.any_waits() {
            return;
        }
        let _alone = self.writing.lock();
        if let Some(touch) = self.touch_of(path) {
            write(path, touch);
            self.is_written(path, touch);
        }
    }

    /// Calls `write` with each time that is not on the PFS yet.
    pub fn write_all(&self, write: impl Fn(&TreePath, Touch)) {
        if !self.any_waits() {
            return;
        }
        let _alone = self.writing.lock();
        // The PFS may be slow, so the lock is not held while programs change further directories.
        let all = self.waiting.lock().clone();
        for (path, touch) in all {
            write(&path, touch);
            self.is_written(&path, touch);
        }
    }

    /// The time of a change by a program comes to the directory at this path, which is open and has these attributes.
    pub(super) fn write(&self, path: &TreePath, file: &OwnedFd, now: &Attr, at: Timestamp) {
        let crossings = |visited: &Visited| visited.crossings(now);
        let before = self.visited.lock().as_ref().and_then(crossings);
        // The file system may have stamped it by a finer clock; a later time must stay.
        let is_later = now.mtime >= at;
        // A failure is ignored: the directory belongs to another user.
        if is_later || set_times(file, None, at).is_ok() {
            match &mut *self.visited.lock() {
                Some(visited) if is_later => visited.has_later(path, now, at),
                Some(visited) => visited.has_written(path, now, at, before),
                None => {}
            }
        }
    }

    fn is_written(&self, path: &TreePath, touch: Touch) {
        let mut waiting = self.waiting.lock();
        if waiting.get(path) == Some(&touch) {
            waiting.remove(path);
        }
        self.count.store(waiting.len(), Ordering::Relaxed);
    }

    /// Begins to remember the directories that a drain visits.
    pub fn begin_drain(&self) {
        *self.visited.lock() = Some(Visited::default());
    }

    /// True if the times of this directory are remembered already, or no drain is at work.
    pub fn is_kept(&self, path: &TreePath) -> bool {
        let visited = self.visited.lock();
        visited.as_ref().is_none_or(|visited| visited.has(path))
    }

    /// Remembers the times that a directory has before the drain changes it. Gives its number; `None`: no drain is at work.
    pub(super) fn keep(&self, path: &TreePath, fd: OwnedFd, attr: &Attr) -> Option<usize> {
        let mut visited = self.visited.lock();
        Some(visited.as_mut()?.keep(path, Arc::new(fd), attr))
    }

    /// An act of the drain begins that may change entries of the directories with these numbers. `look` looks at a directory
    /// by its path.
    pub(super) fn begin_act(
        &self,
        numbers: BTreeSet<usize>,
        look: impl Fn(&TreePath) -> Sys<Attr>,
    ) -> Changing {
        for &number in &numbers {
            self.look_until(number, &look, Visited::begins);
        }
        Changing(numbers)
    }

    /// The act has ended.
    pub(super) fn end_act(&self, changing: Changing, look: impl Fn(&TreePath) -> Sys<Attr>) {
        for number in changing.0 {
            self.look_until(number, &look, Visited::ends);
        }
    }

    /// Looks at a directory until what was seen is of use. Each time that it is not, another act has begun or ended,
    /// or a time was written.
    fn look_until(
        &self,
        number: usize,
        look: impl Fn(&TreePath) -> Sys<Attr>,
        take: impl Fn(&mut Visited, usize, DirSeen) -> bool,
    ) {
        while let Some(seen) = self.look_at(number, &look) {
            let is_taken = |visited: &mut Visited| take(visited, number, seen);
            if self.visited.lock().as_mut().is_none_or(is_taken) {
                return;
            }
        }
    }

    /// `None` if no drain is at work. No lock is held while the PFS is asked.
    fn look_at(&self, number: usize, look: impl Fn(&TreePath) -> Sys<Attr>) -> Option<DirSeen> {
        let asked = self.visited.lock().as_ref()?.look(number)?;
        let now = match &asked.file {
            Some(fd) => sys::stat(fd.as_fd(), b""),
            None => look(&asked.path),
        };
        Some(asked.seen(now.ok().as_ref()))
    }

    /// Gives the visited directories their times back, after the last change of a drain. `open` opens a directory for that.
    pub fn end_drain(&self, open: impl Fn(&TreePath) -> Sys<OwnedFd>) {
        let Some(visited) = self.visited.lock().take() else {
            return;
        };
        for mut dir in visited.into_visited() {
            let file = dir.file.take();
            let Some(fd) = file.or_else(|| open(&dir.path).ok().map(Arc::new)) else {
                continue;
            };
            if let Ok(now) = sys::stat(fd.as_fd(), b"")
                && let Some((atime, mtime)) = dir.gets(&now)
            {
                // This fails for a directory of another user, which then shows the time of the drain.
                let _ = set_times(&fd, Some(atime), mtime);
            }
        }
    }
}

/// Sets the times of a directory, also of one that its owner may not read: that is open with `O_PATH`.
fn set_times(dir: &OwnedFd, atime: Option<Timestamp>, mtime: Timestamp) -> Sys<()> {
    match sys::set_times(dir.as_fd(), b"", atime, Some(mtime)) {
        Err(Errno::BADF) => sys::set_times_of_path(dir.as_fd(), atime, Some(mtime)),
        set => set,
    }
}
