//! Modification times of PFS directories. A program changes entries only in the buffer, so the directory on the
//! PFS must be given the new time. A drain changes entries on the PFS, so the directory must get its old time
//! back.

use forebay_core::facts::{Attr, Timestamp};
use forebay_core::path::TreePath;
use forebay_sys::{self as sys, Sys};
use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many directories a drain keeps open. These get their times back even if the drain has renamed them. The
/// others are found again by their paths.
const OPEN_DIRS: usize = 256;

/// Times of directories that are not on the PFS yet.
#[derive(Default)]
pub struct DirTimes {
    /// Directories changed by programs. Their times are written later, once for many changes, because each write is a
    /// request to the PFS.
    waiting: Mutex<HashMap<TreePath, Timestamp>>,
    count: AtomicUsize,
    /// Held while times are written. A program that opens a directory may set its times a moment later, and
    /// they must not be overwritten then.
    writing: Mutex<()>,
    kept: Mutex<Option<Kept>>,
}

/// The directories that the current drain has visited.
#[derive(Default)]
struct Kept {
    dirs: Vec<Dir>,
    by_path: HashMap<TreePath, usize>,
    by_identity: HashMap<(u64, u64), usize>,
    /// Directories changed by programs since the drain began.
    touched: HashMap<TreePath, Timestamp>,
}

struct Dir {
    /// The path at which the drain visited it last.
    path: TreePath,
    fd: Option<Arc<OwnedFd>>,
    identity: (u64, u64),
    /// The times that it gets back.
    atime: Timestamp,
    mtime: Timestamp,
    /// Its modification time when the drain changed an entry last. If it has another one, somebody else has changed it since.
    /// `None`: it could not be found then.
    left: Option<Timestamp>,
    /// Acts of the drain that may be changing entries now. What changes meanwhile counts as the drain's.
    acts: usize,
    /// Begins and ends of such acts. A look during which this has grown says nothing.
    turns: u64,
}

/// Directories in which an act of a drain may be changing entries: their numbers.
#[must_use = "the changes of others are told from those of the drain when it ends"]
pub struct Changing(BTreeSet<usize>);

/// What a look at a directory has shown.
#[derive(Clone, Copy)]
struct Glance {
    /// Its modification time, unless it can't be found.
    mtime: Option<Timestamp>,
    /// [`Dir::turns`] before the look.
    turns: u64,
}

impl Dir {
    /// An act begins. False if a look has to come first that no other act has crossed.
    fn begins(&mut self, seen: Glance) -> bool {
        if self.acts == 0 {
            if self.turns != seen.turns {
                return false;
            }
            if let (Some(mtime), Some(left)) = (seen.mtime, self.left)
                && mtime != left
            {
                // Others have changed it: it keeps that time.
                self.mtime = mtime;
            }
        }
        self.acts += 1;
        self.turns += 1;
        true
    }

    /// An act ends. The last one needs a look that no other act has crossed: false without that.
    fn ends(&mut self, seen: Glance) -> bool {
        debug_assert!(self.acts > 0, "{} was not begun", self.path);
        if self.acts == 1 {
            if self.turns != seen.turns {
                return false;
            }
            self.left = seen.mtime;
        }
        self.acts -= 1;
        self.turns += 1;
        true
    }
}

fn identity(attr: &Attr) -> (u64, u64) {
    (attr.dev, attr.ino)
}

impl DirTimes {
    /// Notes that a program has just changed entries of this directory.
    pub fn touch(&self, path: &TreePath) {
        let now = sys::now_coarse();
        if let Some(kept) = &mut *self.kept.lock() {
            kept.touched.insert(path.clone(), now);
        }
        let mut waiting = self.waiting.lock();
        waiting.insert(path.clone(), now);
        self.count.store(waiting.len(), Ordering::Relaxed);
    }

    /// True if there are times that are not on the PFS yet.
    pub fn any_waits(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    /// The time of this directory that is not on the PFS yet.
    pub fn waits(&self, path: &TreePath) -> Option<Timestamp> {
        if !self.any_waits() {
            return None;
        }
        self.waiting.lock().get(path).copied()
    }

    /// Calls `write` with the time of one directory, if that is not on the PFS yet.
    pub fn write_one(&self, path: &TreePath, write: impl Fn(&TreePath, Timestamp)) {
        if !self.any_waits() {
            return;
        }
        let _alone = self.writing.lock();
        if let Some(at) = self.waits(path) {
            write(path, at);
            self.is_written(path, at);
        }
    }

    /// Calls `write` with each time that is not on the PFS yet.
    pub fn write_all(&self, write: impl Fn(&TreePath, Timestamp)) {
        if !self.any_waits() {
            return;
        }
        let _alone = self.writing.lock();
        // The PFS may be slow, so the lock is not held while programs change further directories.
        let all = self.waiting.lock().clone();
        for (path, at) in all {
            write(&path, at);
            self.is_written(&path, at);
        }
    }

    /// The time of a change by a program has been written to a directory.
    pub(super) fn has_written(&self, dir: &Attr, at: Timestamp) {
        if let Some(kept) = &mut *self.kept.lock()
            && let Some(&number) = kept.by_identity.get(&identity(dir))
        {
            kept.dirs[number].left = Some(at);
        }
    }

    fn is_written(&self, path: &TreePath, at: Timestamp) {
        let mut waiting = self.waiting.lock();
        if waiting.get(path) == Some(&at) {
            waiting.remove(path);
        }
        self.count.store(waiting.len(), Ordering::Relaxed);
    }

    /// Begins to remember the directories that a drain visits.
    pub fn begin_drain(&self) {
        *self.kept.lock() = Some(Kept::default());
    }

    /// True if the times of this directory are remembered already, or no drain is at work.
    pub fn is_kept(&self, path: &TreePath) -> bool {
        match &*self.kept.lock() {
            Some(kept) => kept.by_path.contains_key(path),
            None => true,
        }
    }

    /// Remembers the times that a directory has before the drain changes it. If the drain visits it again
    /// under another name, the first times count. Gives its number; `None`: no drain is at work.
    pub(super) fn keep(&self, path: &TreePath, fd: OwnedFd, attr: &Attr) -> Option<usize> {
        let mut kept = self.kept.lock();
        let kept = kept.as_mut()?;
        let number = match kept.by_identity.get(&identity(attr)) {
            Some(&number) => {
                kept.dirs[number].path = path.clone();
                number
            }
            None => {
                let number = kept.dirs.len();
                kept.by_identity.insert(identity(attr), number);
                kept.dirs.push(Dir {
                    path: path.clone(),
                    fd: (number < OPEN_DIRS).then(|| Arc::new(fd)),
                    identity: identity(attr),
                    atime: attr.atime,
                    mtime: attr.mtime,
                    left: Some(attr.mtime),
                    acts: 0,
                    turns: 0,
                });
                number
            }
        };
        kept.by_path.insert(path.clone(), number);
        Some(number)
    }

    /// An act of the drain begins that may change entries of the directories with these numbers. `look` looks at a directory
    /// by its path.
    pub(super) fn begin_act(
        &self,
        numbers: BTreeSet<usize>,
        look: impl Fn(&TreePath) -> Sys<Attr>,
    ) -> Changing {
        for &number in &numbers {
            self.look_until(number, &look, Dir::begins);
        }
        Changing(numbers)
    }

    /// The act has ended.
    pub(super) fn end_act(&self, changing: Changing, look: impl Fn(&TreePath) -> Sys<Attr>) {
        for number in changing.0 {
            self.look_until(number, &look, Dir::ends);
        }
    }

    /// Looks at a directory until what was seen is of use. Each time that it is not, another act has begun or ended.
    fn look_until(
        &self,
        number: usize,
        look: impl Fn(&TreePath) -> Sys<Attr>,
        take: impl Fn(&mut Dir, Glance) -> bool,
    ) {
        while let Some(seen) = self.glance(number, &look) {
            let is_taken = |kept: &mut Kept| take(&mut kept.dirs[number], seen);
            if self.kept.lock().as_mut().is_none_or(is_taken) {
                return;
            }
        }
    }

    /// `None` if no drain is at work. No lock is held while the PFS is asked.
    fn glance(&self, number: usize, look: impl Fn(&TreePath) -> Sys<Attr>) -> Option<Glance> {
        let (fd, path, is, turns) = {
            let kept = self.kept.lock();
            let dir = kept.as_ref()?.dirs.get(number)?;
            (dir.fd.clone(), dir.path.clone(), dir.identity, dir.turns)
        };
        let now = match fd {
            Some(fd) => sys::stat(fd.as_fd(), b""),
            None => look(&path),
        };
        let now = now.ok().filter(|now| identity(now) == is);
        Some(Glance {
            mtime: now.map(|now| now.mtime),
            turns,
        })
    }

    /// Gives the visited directories their times back, after the last change of a drain. One that others have changed since
    /// keeps the time that it has from them. `open` opens a directory for reading.
    pub fn end_drain(&self, open: impl Fn(&TreePath) -> Sys<OwnedFd>) {
        let Some(kept) = self.kept.lock().take() else {
            return;
        };
        for dir in kept.dirs {
            let Some(fd) = dir.fd.or_else(|| open(&dir.path).ok().map(Arc::new)) else {
                continue;
            };
            let is_as_left =
                |now: &Attr| dir.acts > 0 || dir.left.is_none_or(|left| now.mtime == left);
            let mtime = match kept.touched.get(&dir.path) {
                Some(&at) => at.max(dir.mtime),
                None => dir.mtime,
            };
            if sys::stat(fd.as_fd(), b"").is_ok_and(|now| {
                identity(&now) == dir.identity && now.mtime != mtime && is_as_left(&now)
            }) {
                // This fails for a directory of another user, which then shows the time of the drain.
                let _ = sys::set_times(fd.as_fd(), b"", Some(dir.atime), Some(mtime));
            }
        }
    }
}
