//! The tables under one lock, and the one door through which they change.
//!
//! Reads decide under the shared lock. A change decides under the upgradable
//! lock, so that nothing it has read can change before it is committed, and
//! takes the exclusive lock only for the write itself. Work on backing objects
//! follows after the lock; the marks that make it survive a crash are taken away
//! by later commits, not by writes of their own.

use crate::limits::{MARKS_PER_COMMIT, RETRY_WINDOW};
use forebay_core::ops::Decision;
use forebay_core::path::TreePath;
use forebay_core::record::{Kind, ObjectName, Record, Token};
use forebay_core::table::{Change, Marks, TableError, Tables};
use forebay_store::{Cached, Rocks};
use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockUpgradableReadGuard, RwLockWriteGuard};
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// What the namespace lock protects beside the tables.
#[derive(Debug, Default)]
pub struct State {
    /// Where things of the PFS are that were renamed, by their path there.
    moved: HashMap<TreePath, TreePath>,
}

impl State {
    /// Where in the buffer the thing is that is at `origin` on the PFS, if it was renamed.
    pub fn moved(&self, origin: &TreePath) -> Option<TreePath> {
        if self.moved.is_empty() {
            return None;
        }
        self.moved.get(origin).cloned()
    }

    fn learn(&mut self, path: &TreePath, record: &Record) {
        if let (Kind::Moved, Some(origin)) = (record.kind, &record.origin) {
            self.moved.insert(origin.clone(), path.clone());
        }
    }

    /// The PFS is about to show this thing somewhere else.
    fn unlearn(&mut self, path: &TreePath, record: &Record) {
        if let (Kind::Moved, Some(origin)) = (record.kind, &record.origin)
            && self.moved.get(origin) == Some(path)
        {
            self.moved.remove(origin);
        }
    }

    /// Renames within a batch delete first and put then, so the last word is the put.
    fn follow(&mut self, batch: &[Change]) {
        for change in batch {
            match change {
                Change::Delete { path, .. } if !self.moved.is_empty() => {
                    self.moved.retain(|_, at| at != path);
                }
                Change::Put { path, record } => self.learn(path, record),
                _ => {}
            }
        }
    }
}

/// Marks whose work is done, on their way out.
#[derive(Default)]
struct Finished {
    /// Removals by age. A mark stays for a while, because it also answers a
    /// client that asks whether its own request removed the name.
    removed: VecDeque<(Instant, ObjectName, Token)>,
    /// Removals whose object still has to be unlinked.
    removing: HashSet<ObjectName>,
    relabeled: HashSet<ObjectName>,
    /// Links that were announced and then not made.
    withdrawn: Vec<ObjectName>,
}

/// The namespace of one bridge.
pub struct Namespace {
    tables: Cached<Rocks>,
    state: RwLock<State>,
    version: AtomicU64,
    lower_changes: AtomicU64,
    finished: Mutex<Finished>,
}

/// Versions of one epoch of the bridge are greater than all of the epochs before.
const VERSION_EPOCH_SHIFT: u32 = 40;

impl Namespace {
    /// The namespace in `tables`.
    ///
    /// # Errors
    /// The tables can't be read.
    pub fn open(tables: Cached<Rocks>, epoch: u32) -> Result<Self, TableError> {
        let mut state = State::default();
        for (path, record) in tables.subtree(&TreePath::root())? {
            state.learn(&path, &record);
        }
        Ok(Namespace {
            tables,
            state: RwLock::new(state),
            version: AtomicU64::new(u64::from(epoch) << VERSION_EPOCH_SHIFT),
            lower_changes: AtomicU64::new(0),
            finished: Mutex::default(),
        })
    }

    /// The tables. Write to them only through [`Namespace::commit`].
    pub fn tables(&self) -> &Cached<Rocks> {
        &self.tables
    }

    /// The lock for decisions that change nothing.
    pub fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read()
    }

    /// The lock for decisions that may change something: one holder, and readers beside it.
    pub fn upgradable(&self) -> RwLockUpgradableReadGuard<'_, State> {
        self.state.upgradable_read()
    }

    /// Next version number for a record.
    pub fn next_version(&self) -> u64 {
        self.version.fetch_add(1, Ordering::Relaxed)
    }

    /// How often this bridge itself has changed the PFS.
    pub fn lower_changes(&self) -> u64 {
        self.lower_changes.load(Ordering::Acquire)
    }

    /// The bridge has changed the PFS (a drain): what requests saw there before is stale.
    /// To be called between the change there and the commit that tells of it.
    pub fn lower_changed(&self) {
        self.lower_changes.fetch_add(1, Ordering::Release);
    }

    /// Commits a decision that was made under `guard`. `settled` are further changes of the
    /// bridge itself that have to be in the same batch.
    ///
    /// # Errors
    /// The store failed; nothing is changed then.
    pub fn commit(
        &self,
        guard: RwLockUpgradableReadGuard<'_, State>,
        decision: &Decision,
        own: Vec<Change>,
    ) -> Result<(), TableError> {
        let mut batch = decision.batch.clone();
        batch.extend(own);
        let mut finished = self.finished.lock();
        finished.announce(&decision.batch);
        finished.take_marks(&mut batch);
        drop(finished);
        let mut state = RwLockUpgradableReadGuard::upgrade(guard);
        self.tables.apply(&batch)?;
        state.follow(&decision.batch);
        Ok(())
    }

    /// The lock that nobody holds beside you, not even to read: for who changes the PFS and
    /// the tables together.
    pub fn exclusive(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write()
    }

    /// Commits under [`Namespace::exclusive`].
    ///
    /// # Errors
    /// The store failed; nothing is changed then.
    pub fn commit_alone(
        &self,
        state: &mut State,
        mut batch: Vec<Change>,
    ) -> Result<(), TableError> {
        let mut replaced = Vec::new();
        for change in &batch {
            if let Change::Put { path, .. } = change
                && let Some(before) = self.tables.get(path)?
            {
                replaced.push((path.clone(), before));
            }
        }
        let own = batch.len();
        let mut finished = self.finished.lock();
        finished.announce(&batch);
        finished.take_marks(&mut batch);
        drop(finished);
        self.tables.apply(&batch)?;
        for (path, before) in replaced {
            state.unlearn(&path, &before);
        }
        state.follow(&batch[..own]);
        Ok(())
    }

    /// Writes changes of the bridge itself that no request can see.
    ///
    /// # Errors
    /// The store failed.
    pub fn note(&self, changes: &[Change]) -> Result<(), TableError> {
        self.tables.apply(changes)
    }

    /// The object of a removed name has been unlinked.
    pub fn object_removed(&self, object: ObjectName) {
        self.finished.lock().removing.remove(&object);
    }

    /// The label follows the table again. To be called under a lock of the namespace that
    /// was taken before the record was read.
    pub fn object_relabeled(&self, object: ObjectName) {
        self.finished.lock().relabeled.insert(object);
    }

    /// An announced link was not made after all.
    pub fn link_withdrawn(&self, link: ObjectName) {
        self.finished.lock().withdrawn.push(link);
    }

    /// Has the request with this token removed something lately?
    pub fn removed_by(&self, token: Token) -> bool {
        let finished = self.finished.lock();
        finished.removed.iter().any(|&(_, _, t)| t == token)
    }

    /// Takes over marks that an earlier life left; their work is done.
    pub fn adopt(&self, marks: &Marks) {
        let mut finished = self.finished.lock();
        let now = Instant::now();
        for &(object, token) in &marks.doomed {
            finished.removed.push_back((now, object, token));
        }
        finished.relabeled.extend(&marks.relabel);
    }

    /// All marks whose work is done, whatever their age (at a clean end).
    pub fn all_marks(&self) -> Vec<Change> {
        let mut finished = self.finished.lock();
        let mut changes = Vec::new();
        let Finished {
            removed, removing, ..
        } = &mut *finished;
        changes.extend(
            removed
                .drain(..)
                .filter(|(_, o, _)| !removing.contains(o))
                .map(|(_, o, _)| Change::Undoom(o)),
        );
        changes.extend(finished.relabeled.drain().map(Change::Relabeled));
        changes.extend(finished.withdrawn.drain(..).map(Change::Undoom));
        changes
    }
}

impl Finished {
    /// Work that a batch announces is not done, whatever was done before.
    fn announce(&mut self, batch: &[Change]) {
        let now = Instant::now();
        for change in batch {
            match *change {
                Change::Doom { object, token } => {
                    self.removed.push_back((now, object, token));
                    self.removing.insert(object);
                }
                Change::Relabel(object) => {
                    self.relabeled.remove(&object);
                }
                _ => {}
            }
        }
    }

    fn take_marks(&mut self, batch: &mut Vec<Change>) {
        for _ in 0..MARKS_PER_COMMIT {
            match self.removed.front() {
                Some((at, ..)) if at.elapsed() >= RETRY_WINDOW => {}
                _ => break,
            }
            let Some((at, object, token)) = self.removed.pop_front() else {
                break;
            };
            if self.removing.contains(&object) {
                self.removed.push_back((at, object, token));
                break;
            }
            batch.push(Change::Undoom(object));
        }
        if !self.relabeled.is_empty() {
            let some: Vec<_> = self
                .relabeled
                .iter()
                .copied()
                .take(MARKS_PER_COMMIT)
                .collect();
            for object in some {
                self.relabeled.remove(&object);
                batch.push(Change::Relabeled(object));
            }
        }
        batch.extend(self.withdrawn.drain(..).map(Change::Undoom));
    }
}
