//! Modification times of PFS directories: programs change entries there only in the buffer, and a drain
//! changes them without any program having done so. Both must look as if it were the other way round.

use crate::sys;
use forebay_core::facts::{Attr, Timestamp};
use forebay_core::path::TreePath;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many directories a drain keeps open to give them their times back at its end. Beyond that the
/// oldest half gets them early.
const KEPT_DIRS: usize = 256;

/// Times to be written.
#[derive(Default)]
pub struct DirTimes {
    /// Changed by programs. Written a little later, once for many changes: each write is a request to the PFS.
    waiting: Mutex<HashMap<TreePath, Timestamp>>,
    count: AtomicUsize,
    kept: Mutex<Option<Kept>>,
}

/// What the drain that is at work has met.
#[derive(Default)]
struct Kept {
    /// In the order in which they were met. Open, because the drain renames directories.
    dirs: Vec<Dir>,
    /// Changed by programs since the drain began.
    touched: HashMap<TreePath, Timestamp>,
}

struct Dir {
    path: TreePath,
    fd: OwnedFd,
    atime: Timestamp,
    mtime: Timestamp,
}

impl DirTimes {
    /// A program has changed entries of this directory now.
    pub fn touch(&self, path: &TreePath) {
        let now = sys::now_coarse();
        if let Some(kept) = &mut *self.kept.lock() {
            kept.touched.insert(path.clone(), now);
        }
        let mut waiting = self.waiting.lock();
        waiting.insert(path.clone(), now);
        self.count.store(waiting.len(), Ordering::Relaxed);
    }

    /// Are there times that the PFS does not know yet?
    pub fn any_waits(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    /// The time that waits for this directory.
    pub fn waits(&self, path: &TreePath) -> Option<Timestamp> {
        if !self.any_waits() {
            return None;
        }
        self.waiting.lock().get(path).copied()
    }

    /// Hands out the time of one directory for writing.
    pub fn take(&self, path: &TreePath) -> Option<Timestamp> {
        if !self.any_waits() {
            return None;
        }
        let mut waiting = self.waiting.lock();
        let at = waiting.remove(path);
        self.count.store(waiting.len(), Ordering::Relaxed);
        at
    }

    /// Hands out all times for writing.
    pub fn take_all(&self) -> HashMap<TreePath, Timestamp> {
        if !self.any_waits() {
            return HashMap::new();
        }
        let mut waiting = self.waiting.lock();
        self.count.store(0, Ordering::Relaxed);
        std::mem::take(&mut *waiting)
    }

    /// From now on a drain is at work.
    pub fn begin_drain(&self) {
        *self.kept.lock() = Some(Kept::default());
    }

    /// Is there nothing to remember about this directory (any more)?
    pub fn is_kept(&self, path: &TreePath) -> bool {
        match &*self.kept.lock() {
            Some(kept) => kept.dirs.iter().any(|dir| dir.path == *path),
            None => true,
        }
    }

    /// Remembers the times that a directory has before the drain changes it.
    pub fn keep(&self, path: &TreePath, fd: OwnedFd, attr: &Attr) {
        if let Some(kept) = &mut *self.kept.lock() {
            if kept.dirs.len() == KEPT_DIRS {
                kept.give_back(KEPT_DIRS / 2);
            }
            kept.dirs.push(Dir {
                path: path.clone(),
                fd,
                atime: attr.atime,
                mtime: attr.mtime,
            });
        }
    }

    /// The drain changes nothing more: all directories that it met get their times back.
    pub fn end_drain(&self) {
        if let Some(mut kept) = self.kept.lock().take() {
            kept.give_back(kept.dirs.len());
        }
    }
}

impl Kept {
    fn give_back(&mut self, number: usize) {
        // Backwards: a directory that the drain has renamed was met twice, and its first times count.
        for dir in self.dirs.drain(..number).rev() {
            let mtime = match self.touched.get(&dir.path) {
                Some(&at) => at.max(dir.mtime),
                None => dir.mtime,
            };
            if sys::stat(dir.fd.as_fd(), b"").is_ok_and(|now| now.mtime != mtime) {
                // Not our directory: then it shows when the drain was at work.
                let _ = sys::set_times(dir.fd.as_fd(), b"", Some(dir.atime), Some(mtime));
            }
        }
    }
}
