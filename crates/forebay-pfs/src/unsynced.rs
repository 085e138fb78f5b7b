//! What is not on the disks of the PFS yet: directories whose entries the bridge has changed, and what it has written.

use super::Lower;
use forebay_core::path::TreePath;
use forebay_core::pfs_kind::SyncBy;
use forebay_sys::{self as sys, Errno, Sys};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::BTreeSet;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// More directories than this are synced with the whole file system, if that can be done.
const ONE_BY_ONE: usize = 64;
/// Directories that are synced at a time where each waits for another machine.
const SYNCED_TOGETHER: usize = 16;

/// What is not synced, and who is at it.
#[derive(Default)]
pub(super) struct Unsynced {
    state: Mutex<State>,
    change: Condvar,
    /// Open from the first sync on: the kernel tells of a failed write whoever had the file system open before.
    root: OnceLock<OwnedFd>,
}

#[derive(Debug, Default)]
struct State {
    changed: Changed,
    /// What the sync that is under way brings to the disks.
    under_way: Option<Changed>,
    /// Syncs of the whole file system that have begun, and that have ended.
    begun: u64,
    ended: u64,
    /// The last of them that failed.
    failed: Option<(u64, Errno)>,
}

#[derive(Debug, Default, Clone)]
struct Changed {
    dirs: BTreeSet<TreePath>,
    /// There may be others.
    all: bool,
}

impl Changed {
    fn has(&self, dir: &TreePath) -> bool {
        self.all || self.dirs.contains(dir)
    }
}

impl Unsynced {
    /// Takes what is not synced; it counts as such until [`Unsynced::end`]. One at a time.
    fn begin(&self) -> (MutexGuard<'_, State>, Changed) {
        let mut state = self.state.lock();
        while state.under_way.is_some() {
            self.change.wait(&mut state);
        }
        let taken = std::mem::take(&mut state.changed);
        state.under_way = Some(taken.clone());
        (state, taken)
    }

    fn end(&self, state: &mut State, outcome: Sys<()>) {
        let taken = state.under_way.take().unwrap_or_default();
        if outcome.is_err() {
            state.changed.dirs.extend(taken.dirs);
            state.changed.all |= taken.all;
        }
        self.change.notify_all();
    }
}

impl Lower {
    /// Notes that the bridge has changed entries or attributes of this directory.
    pub fn note_changed(&self, dir: TreePath) {
        self.unsynced.state.lock().changed.dirs.insert(dir);
    }

    /// Notes that entries of any directory may have changed.
    pub fn note_all_changed(&self) {
        self.unsynced.state.lock().changed.all = true;
    }

    /// Brings everything to the disks that was written and named before the call, with one `syncfs` for all who ask before
    /// it begins. Only where [`SyncBy::Whole`] is how that is done.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn sync_whole(&self) -> Sys<()> {
        let unsynced = &self.unsynced;
        let mut state = unsynced.state.lock();
        let wanted = state.begun + 1;
        while state.ended < wanted && state.under_way.is_some() {
            unsynced.change.wait(&mut state);
        }
        if state.ended < wanted {
            // It is up to this caller.
            drop(state);
            let (mut begun, _) = unsynced.begin();
            if begun.ended < wanted {
                begun.begun += 1;
                let number = begun.begun;
                drop(begun);
                let outcome = self.syncfs();
                begun = unsynced.state.lock();
                begun.ended = number;
                begun.failed = outcome.err().map(|e| (number, e)).or(begun.failed);
                unsynced.end(&mut begun, outcome);
            } else {
                // Somebody else has done it meanwhile.
                unsynced.end(&mut begun, Err(Errno::AGAIN));
            }
            state = begun;
        }
        match state.failed {
            Some((number, e)) if number >= wanted => Err(e),
            _ => Ok(()),
        }
    }

    fn syncfs(&self) -> Sys<()> {
        let root = match self.unsynced.root.get() {
            Some(root) => root,
            None => {
                let flags = libc::O_RDONLY | libc::O_DIRECTORY;
                let opened = self.open(&TreePath::root(), flags)?;
                self.unsynced.root.get_or_init(|| opened)
            }
        };
        sys::syncfs(root.as_fd())
    }

    /// Brings the entries of directories to the disks of the PFS, unless they are known to be there.
    ///
    /// # Errors
    /// For each directory those of the file system.
    pub fn sync_dirs(&self, dirs: &[TreePath]) -> Vec<Sys<()>> {
        let due: Vec<_> = {
            let state = self.unsynced.state.lock();
            let is_due = |dir: &TreePath| {
                let under_way = state.under_way.as_ref();
                state.changed.has(dir) || under_way.is_some_and(|taken| taken.has(dir))
            };
            dirs.iter().map(is_due).collect()
        };
        match self.sync_by() {
            SyncBy::Nothing => vec![Ok(()); dirs.len()],
            SyncBy::Whole if due.contains(&true) => {
                let whole = self.sync_whole();
                due.iter()
                    .map(|due| if *due { whole } else { Ok(()) })
                    .collect()
            }
            SyncBy::Whole => vec![Ok(()); dirs.len()],
            SyncBy::Each => self.sync_each(dirs),
        }
    }

    /// Syncs directories one by one, several at a time where that may wait.
    fn sync_each(&self, dirs: &[TreePath]) -> Vec<Sys<()>> {
        let helpers = match self.may_wait {
            true => dirs.len().min(SYNCED_TOGETHER),
            false => 1,
        };
        let next = AtomicUsize::new(0);
        let outcomes = Mutex::new(vec![Ok(()); dirs.len()]);
        let work = || {
            while let Some((n, dir)) = {
                let n = next.fetch_add(1, Ordering::Relaxed);
                dirs.get(n).map(|dir| (n, dir))
            } {
                let outcome = self.sync_dir(dir);
                outcomes.lock()[n] = outcome;
            }
        };
        std::thread::scope(|scope| {
            // This thread does what no other one can be started for.
            sys::start_threads(scope, 1..helpers, |_| work());
            work();
        });
        outcomes.into_inner()
    }

    fn sync_dir(&self, dir: &TreePath) -> Sys<()> {
        let dir = self.open(dir, libc::O_PATH | libc::O_DIRECTORY)?;
        let root = || self.open(&TreePath::root(), libc::O_RDONLY | libc::O_DIRECTORY);
        sys::sync_names(dir.as_fd(), root)
    }

    /// Makes everything durable that the bridge has changed so far in the names of the PFS.
    ///
    /// # Errors
    /// Those of the file system; the next call tries again.
    pub fn sync_changed(&self) -> Sys<()> {
        let (state, Changed { dirs, all }) = self.unsynced.begin();
        drop(state);
        let is_many = all || dirs.len() > ONE_BY_ONE;
        let synced = match self.sync_by() {
            _ if dirs.is_empty() && !all => Ok(()),
            SyncBy::Nothing => Ok(()),
            SyncBy::Whole if is_many => self.syncfs(),
            SyncBy::Whole | SyncBy::Each => {
                // Which directories an earlier life has changed is not known: this is what can be done about them.
                let whole = if all { self.syncfs() } else { Ok(()) };
                let dirs: Vec<_> = dirs.into_iter().collect();
                let each = self.sync_each(&dirs).into_iter();
                let mut is_barred = false;
                let each = each.fold(whole, |so_far, one| match one {
                    // It is gone as well, which is a change of the directory that it was in.
                    Err(Errno::NOENT | Errno::NOTDIR) => so_far,
                    Err(Errno::LOOP | Errno::ACCESS | Errno::PERM) => {
                        is_barred = true;
                        so_far
                    }
                    other => so_far.and(other),
                });
                match is_barred {
                    // Others have put a link in its place, or closed it: nobody gets there by its path, and everything else
                    // must not wait for it. This is what can be done.
                    true => each.and(self.syncfs()),
                    false => each,
                }
            }
        };
        self.unsynced.end(&mut self.unsynced.state.lock(), synced);
        synced
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> (std::path::PathBuf, Lower) {
        let folder = std::env::temp_dir().join(format!("fby-{name}-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("d")).unwrap();
        let lower = Lower::open_root(&folder, None).unwrap();
        (folder, lower)
    }

    fn is_clean(lower: &Lower) -> bool {
        let left = lower.unsynced.state.lock();
        left.changed.dirs.is_empty() && !left.changed.all && left.under_way.is_none()
    }

    #[test]
    fn what_has_gone_is_synced_with_the_directory_that_it_was_in() {
        let (folder, lower) = folder("unsynced");
        std::os::unix::fs::symlink("d", folder.join("link")).unwrap();
        for dir in ["", "d", "gone", "link", "link/below"] {
            lower.note_changed(TreePath::new(dir).unwrap());
        }
        lower.note_all_changed();
        assert_eq!(lower.sync_changed(), Ok(()));
        assert!(is_clean(&lower));
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_sync_of_everything_covers_names_and_serves_all_who_ask_before_it_begins() {
        let (folder, lower) = folder("whole");
        lower.note_changed(TreePath::new("d").unwrap());
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| assert_eq!(lower.sync_whole(), Ok(())));
            }
        });
        assert!(is_clean(&lower));
        let syncs = lower.unsynced.state.lock().begun;
        assert!((1..=8).contains(&syncs), "{syncs}");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn what_a_sync_under_way_has_taken_is_not_durable_before_it_ends() {
        let (folder, lower) = folder("under-way");
        lower.note_changed(TreePath::new("d").unwrap());
        let (state, _) = lower.unsynced.begin();
        drop(state);
        let (said, hears) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| said.send(lower.sync_changed()).unwrap());
            let waited = hears.recv_timeout(std::time::Duration::from_millis(50));
            assert!(waited.is_err(), "it waits for the sync under way");
            let failed = Err(Errno::IO);
            lower.unsynced.end(&mut lower.unsynced.state.lock(), failed);
            assert_eq!(hears.recv().unwrap(), Ok(()));
        });
        assert!(is_clean(&lower));
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn directories_are_synced_also_where_no_thread_can_be_started() {
        let test = "unsynced::tests::directories_are_synced_also_where_no_thread_can_be_started";
        forebay_testkit::without_threads(test, || {
            let folder = tempfile::tempdir().unwrap();
            let lower = Lower::open_root(folder.path(), Some(true)).unwrap();
            let dirs: Vec<_> = ["a", "b", "c"]
                .iter()
                .filter_map(|d| TreePath::new(*d))
                .collect();
            for name in ["a", "b"] {
                std::fs::create_dir(folder.path().join(name)).unwrap();
            }
            let outcomes = lower.sync_each(&dirs);
            assert_eq!(outcomes, [Ok(()), Ok(()), Err(Errno::NOENT)]);
        });
    }
}
