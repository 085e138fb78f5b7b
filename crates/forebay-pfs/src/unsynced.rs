//! Directories whose entries the bridge has changed and that are not on the disks of the PFS yet.

use super::Lower;
use forebay_core::path::TreePath;
use forebay_sys::{self as sys, Errno, Sys};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::os::fd::AsFd;

/// More directories than this are synced with the whole file system.
const ONE_BY_ONE: usize = 64;

/// The directories.
#[derive(Debug, Default)]
pub(super) struct Unsynced(Mutex<Changed>);

#[derive(Debug, Default)]
struct Changed {
    dirs: BTreeSet<TreePath>,
    /// There may be others.
    all: bool,
}

impl Lower {
    /// Notes that the bridge has changed entries of this directory.
    pub fn note_changed(&self, dir: TreePath) {
        self.unsynced.0.lock().dirs.insert(dir);
    }

    /// Notes that entries of any directory may have changed.
    pub fn note_all_changed(&self) {
        self.unsynced.0.lock().all = true;
    }

    /// Brings the entries of a directory to the disks of the PFS.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn sync_dir(&self, dir: &TreePath) -> Sys<()> {
        let dir = self.open(dir, libc::O_PATH | libc::O_DIRECTORY)?;
        let root = || self.open(&TreePath::root(), libc::O_RDONLY | libc::O_DIRECTORY);
        sys::sync_names(dir.as_fd(), root)
    }

    /// Makes everything durable that the bridge has changed so far in the names of the PFS.
    ///
    /// # Errors
    /// Those of the file system; the next call tries again.
    pub fn sync_changed(&self) -> Sys<()> {
        let Changed { dirs, all } = std::mem::take(&mut *self.unsynced.0.lock());
        if dirs.is_empty() && !all {
            return Ok(());
        }
        let synced = if all || dirs.len() > ONE_BY_ONE {
            self.open(&TreePath::root(), libc::O_RDONLY | libc::O_DIRECTORY)
                .and_then(|fd| sys::syncfs(fd.as_fd()))
        } else {
            dirs.iter().try_for_each(|dir| match self.sync_dir(dir) {
                // It is gone as well, which is a change of the directory that it was in.
                Err(Errno::NOENT | Errno::NOTDIR) => Ok(()),
                other => other,
            })
        };
        if synced.is_err() {
            let mut changed = self.unsynced.0.lock();
            changed.dirs.extend(dirs);
            changed.all |= all;
        }
        synced
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_gone_is_synced_with_the_directory_that_it_was_in() {
        let folder = std::env::temp_dir().join(format!("fby-unsynced-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("d")).unwrap();
        let lower = Lower::open_root(&folder, None).unwrap();
        for dir in ["", "d", "gone"] {
            lower.note_changed(TreePath::new(dir).unwrap());
        }
        lower.note_all_changed();
        assert_eq!(lower.sync_changed(), Ok(()));
        let left = lower.unsynced.0.lock();
        assert!(left.dirs.is_empty() && !left.all);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
