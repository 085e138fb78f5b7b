//! Modification times of PFS directories: programs change entries there only in the buffer, and a drain
//! changes them without any program having done so. Both must look as if it were the other way round.

use forebay_core::facts::{Attr, Timestamp};
use forebay_core::path::TreePath;
use forebay_sys::{self as sys, Sys};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many directories a drain keeps open, so that they get their times back also when it has renamed
/// them. The others are found again by their paths.
const OPEN_DIRS: usize = 256;

/// Times to be written.
#[derive(Default)]
pub struct DirTimes {
    /// Changed by programs. Written a little later, once for many changes: each write is a request to the PFS.
    waiting: Mutex<HashMap<TreePath, Timestamp>>,
    count: AtomicUsize,
    /// Held while times are written: who opens a directory may set its times a moment later, and
    /// must not find them overwritten.
    writing: Mutex<()>,
    kept: Mutex<Option<Kept>>,
}

/// What the drain that is at work has met.
#[derive(Default)]
struct Kept {
    dirs: Vec<Dir>,
    by_path: HashMap<TreePath, usize>,
    by_identity: HashMap<(u64, u64), usize>,
    /// Changed by programs since the drain began.
    touched: HashMap<TreePath, Timestamp>,
}

struct Dir {
    /// Where it was met last.
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

    /// Has the time of one directory written, if it waits.
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

    /// Has all times written that wait.
    pub fn write_all(&self, write: impl Fn(&TreePath, Timestamp)) {
        if !self.any_waits() {
            return;
        }
        let _alone = self.writing.lock();
        // The PFS may be slow, and programs go on changing directories meanwhile.
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

    /// From now on a drain is at work.
    pub fn begin_drain(&self) {
        *self.kept.lock() = Some(Kept::default());
    }

    /// Is there nothing to remember about this directory (any more)?
    pub fn is_kept(&self, path: &TreePath) -> bool {
        match &*self.kept.lock() {
            Some(kept) => kept.by_path.contains_key(path),
            None => true,
        }
    }

    /// Remembers the times that a directory has before the drain changes it. Met again under another
    /// name, its first times count.
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

    /// The drain changes nothing more: the directories that it met get their times back. `open` opens
    /// one for reading.
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
                // Not our directory: then it shows when the drain was at work.
                let _ = sys::set_times(fd.as_fd(), b"", Some(dir.atime), Some(mtime));
            }
        }
    }
}
