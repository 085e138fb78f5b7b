//! Modification times of PFS directories. A program changes entries only in the buffer, so the directory on the
//! PFS must be given the new time. A drain changes entries on the PFS, so the directory must get its old time
//! back.

use forebay_core::facts::{Attr, Timestamp};
use forebay_core::path::TreePath;
use forebay_sys::{self as sys, Sys};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
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
    fd: Option<OwnedFd>,
    identity: (u64, u64),
    atime: Timestamp,
    mtime: Timestamp,
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
    /// under another name, the first times count.
    pub fn keep(&self, path: &TreePath, fd: OwnedFd, attr: &Attr) {
        let Some(kept) = &mut *self.kept.lock() else {
            return;
        };
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
                    fd: (number < OPEN_DIRS).then_some(fd),
                    identity: identity(attr),
                    atime: attr.atime,
                    mtime: attr.mtime,
                });
                number
            }
        };
        kept.by_path.insert(path.clone(), number);
    }

    /// Gives the visited directories their times back, after the last change of a drain. `open` opens a
    /// directory for reading.
    pub fn end_drain(&self, open: impl Fn(&TreePath) -> Sys<OwnedFd>) {
        let Some(kept) = self.kept.lock().take() else {
            return;
        };
        for dir in kept.dirs {
            let Some(fd) = dir.fd.or_else(|| open(&dir.path).ok()) else {
                continue;
            };
            let mtime = match kept.touched.get(&dir.path) {
                Some(&at) => at.max(dir.mtime),
                None => dir.mtime,
            };
            if sys::stat(fd.as_fd(), b"")
                .is_ok_and(|now| identity(&now) == dir.identity && now.mtime != mtime)
            {
                // This fails for a directory of another user, which then shows the time of the drain.
                let _ = sys::set_times(fd.as_fd(), b"", Some(dir.atime), Some(mtime));
            }
        }
    }
}
