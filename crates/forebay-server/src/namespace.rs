//! The tables under one lock, and the only way to change them.
//!
//! Reads decide under the shared lock. A change decides under the upgradable
//! lock, so that nothing it has read can change before it is committed, and
//! takes the exclusive lock only for the write itself. A `rmdir` that takes long
//! decides without a lock, and asks what others have changed meanwhile
//! ([`OthersNoted`]). Work on backing objects follows after the lock; the marks
//! that make it survive a crash are taken away by later commits, not by writes of
//! their own.

use crate::durability::Durability;
use crate::limits::MARKS_PER_COMMIT;
use crate::limits::REMOVED_AT_ONCE;
use crate::name_board::NameBoard;
use forebay_core::bridge::{Bridge, Output, Proposal, ReadSet, Sweep, Verdict, version};
use forebay_core::drain::{DrainCommit, DrainVerdict};
use forebay_core::membership::Membership;
use forebay_core::ops::{Clearance, Leaving, Unseen};
use forebay_core::path::TreePath;
use forebay_core::record::{BridgeId, ObjectName, Token};
use forebay_core::request::{Effect, Meanwhile};
use forebay_core::reserve::Purpose;
use forebay_core::speakers::Speakers;
use forebay_core::table::{Change, Mark, Order, TableError, Tables, WriteTables};
use forebay_tables::{Cached, Journaled, Rocks};
use forebay_wire::NAMES_THAT_FIT;
use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockUpgradableReadGuard, RwLockWriteGuard};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Records that are read at a time at the start.
const PAGE: usize = 1024;

/// What the namespace lock protects beside the tables.
#[derive(Debug, Default)]
pub struct State {
    /// Which records speak of paths of the PFS, and which are in transit.
    speakers: Speakers,
}

impl State {
    /// Where in the buffer the thing is that is at `origin` on the PFS, if it was renamed.
    pub fn moved(&self, origin: &TreePath) -> Option<TreePath> {
        self.speakers.moved(origin)
    }

    /// Who speaks of paths of the PFS.
    pub(crate) fn speakers(&self) -> &Speakers {
        &self.speakers
    }
}

/// By so much a batch grows at most when it is committed: by marks that go, and by what the transaction layer adds.
const MARK_BYTES: usize = 64 * (2 * MARKS_PER_COMMIT + 1);

/// Marks whose work is done, on their way out.
#[derive(Default)]
struct Finished {
    /// Objects that have been unlinked, or were announced and then not made.
    gone: Vec<ObjectName>,
    relabeled: BTreeSet<ObjectName>,
}

/// What became of a batch.
pub enum Committed {
    /// It is committed, with these changes.
    Yes(Vec<Change>),
    /// It may not happen.
    Refused,
    /// Records below a directory that went have to go first, which is under way.
    HeldUp,
    /// A sync point has to come first: the journal has no room.
    NeedsSync,
    /// Records below a directory that went have to go first, and nobody does it. Who may block does, and commits then.
    Blocks,
}

/// Collects the paths that others commit while it exists.
pub(crate) struct OthersNoted<'n> {
    namespace: &'n Namespace,
    number: u64,
}

impl OthersNoted<'_> {
    /// See [`Meanwhile::allows`].
    pub fn allow(&self, effect: &Effect) -> bool {
        self.namespace.meanwhile.lock().allows(self.number, effect)
    }
}

impl Drop for OthersNoted<'_> {
    fn drop(&mut self) {
        self.namespace.meanwhile.lock().end(self.number);
    }
}

/// The namespace of one bridge.
pub struct Namespace {
    tables: Cached<Journaled<Rocks>>,
    state: RwLock<State>,
    /// The transaction layer. `None` after the store has failed: what the layer believes
    /// may not be in the tables then, and it has to take up anew what is.
    bridge: Mutex<Option<Box<Bridge>>>,
    me: BridgeId,
    epoch: u32,
    versions: AtomicU32,
    lower_changes: AtomicU64,
    /// Batches committed in this life.
    commits: AtomicU64,
    finished: Mutex<Finished>,
    /// What nobody can see any more, and is still in the tables.
    leaving: Mutex<Leaving>,
    /// For decisions that are made without a lock.
    meanwhile: Mutex<Meanwhile>,
    durability: Arc<Durability>,
    /// What clients may look at themselves.
    board: NameBoard,
}

impl Namespace {
    /// The namespace in `tables`, for a bridge that starts for the `epoch`-th time. Each commit is told to
    /// `durability`, and written on `board`.
    ///
    /// # Errors
    /// The tables can't be read.
    pub(crate) fn open(
        tables: Cached<Journaled<Rocks>>,
        me: BridgeId,
        epoch: u32,
        durability: Arc<Durability>,
        board: NameBoard,
    ) -> Result<Self, TableError> {
        let mut state = State::default();
        let mut after = None;
        // Of more names some would only take the places of others.
        let mut room = NAMES_THAT_FIT;
        loop {
            let page = tables.page(after.as_ref(), Order::ParentsFirst, PAGE)?;
            let Some((last, _)) = page.last() else { break };
            after = Some(last.clone());
            for (path, record) in &page {
                state.speakers.learn(path, record);
            }
            for (path, record) in page.iter().take(room) {
                board.show_one(path, Some(record), &tables);
            }
            room = room.saturating_sub(page.len());
        }
        let bridge = Bridge::recover(Membership::single(me), epoch, &tables, 0)?;
        Ok(Namespace {
            tables,
            state: RwLock::new(state),
            bridge: Mutex::new(Some(Box::new(bridge))),
            me,
            epoch,
            versions: AtomicU32::new(0),
            lower_changes: AtomicU64::new(0),
            commits: AtomicU64::new(0),
            finished: Mutex::default(),
            leaving: Mutex::default(),
            meanwhile: Mutex::default(),
            durability,
            board,
        })
    }

    /// The memory with the names that clients may look at themselves.
    pub(crate) fn board(&self) -> &NameBoard {
        &self.board
    }

    /// The tables, to read; see [`Namespace::commit`].
    pub fn tables(&self) -> &impl Tables {
        &self.tables
    }

    /// Says what the tables are for from now on; see [`Purpose`].
    pub(crate) fn serve_for(&self, purpose: Purpose) {
        self.tables.below().serve_for(purpose);
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
        let seq = self.versions.fetch_add(1, Ordering::Relaxed);
        version(self.epoch, seq, self.me)
    }

    /// A number that grows with each commit. While a lock on the namespace is held it stays what it is.
    pub fn moment(&self) -> u64 {
        self.commits.load(Ordering::SeqCst)
    }

    /// How often this bridge itself has changed the PFS.
    pub fn lower_changes(&self) -> u64 {
        self.lower_changes.load(Ordering::Acquire)
    }

    /// The bridge has changed the PFS (a drain): what requests saw there before is stale.
    /// To be called between the change there and the commit that tells of it.
    pub fn lower_changed(&self) {
        self.lower_changes.fetch_add(1, Ordering::Release);
        self.meanwhile.lock().pfs_changed();
        // A request that decided before this and has not opened its grant yet decides anew.
        self.commits.fetch_add(1, Ordering::SeqCst);
    }

    /// Begins to note what others commit, for a decision without a lock.
    pub(crate) fn note_others(&self) -> OthersNoted<'_> {
        // What is committed is noted before it is in the tables. While this lock is held there is none in between.
        let _state = self.state.read();
        OthersNoted {
            namespace: self,
            number: self.meanwhile.lock().begin(),
        }
    }

    /// Commits a batch decided under `guard`, or that still holds under it, for the request `token`, and then takes away
    /// what nobody can see any more. If the outcome is not [`Committed::Yes`], nothing has changed. `may_block`: the caller may
    /// wait for others and for the disk.
    ///
    /// # Errors
    /// The store failed; nothing is changed then.
    pub fn commit(
        &self,
        guard: RwLockUpgradableReadGuard<'_, State>,
        token: Token,
        batch: Vec<Change>,
        unseen: Option<Unseen>,
        may_block: bool,
        may_happen: impl FnOnce() -> bool,
    ) -> Result<Committed, TableError> {
        let way = self.leaving.lock().clearance_for(&batch);
        match way {
            Clearance::Free => {}
            Clearance::HeldUp => return Ok(Committed::HeldUp),
            Clearance::Stuck if !may_block => return Ok(Committed::Blocks),
            Clearance::Stuck => {
                drop(guard);
                self.take_unseen_away(None)?;
                return Ok(Committed::HeldUp);
            }
        }
        if self.waits_for_sync(&batch) {
            return Ok(Committed::NeedsSync);
        }
        let mut state = RwLockUpgradableReadGuard::upgrade(guard);
        // A request that decided before this and compares the number from here on decides anew, after this commit.
        self.commits.fetch_add(1, Ordering::SeqCst);
        if !may_happen() {
            return Ok(Committed::Refused);
        }
        let changes = self.propose(token, batch)?;
        state.speakers.follow(&changes);
        if let Some(unseen) = unseen {
            let dir = unseen.dir.clone();
            self.leaving.lock().begin(unseen);
            drop(state);
            // The batch is committed whatever becomes of this. If it fails, the next commit does it, or says why it can't.
            let _ = self.take_unseen_away(Some(&dir));
        }
        Ok(Committed::Yes(changes))
    }

    /// Would the commit of this batch wait for the disk? Nobody does that under the lock.
    pub(crate) fn waits_for_sync(&self, batch: &[Change]) -> bool {
        self.tables.below().waits_for_sync(batch, MARK_BYTES)
    }

    /// Takes away what nobody can see any more below `dir`, or below all directories that went; part by part, so that
    /// others are let in between.
    fn take_unseen_away(&self, dir: Option<&TreePath>) -> Result<(), TableError> {
        loop {
            if self.tables.below().is_sync_near() {
                // Else this would wait for it under the lock, or others would. If it fails, there may be room for the part.
                let _ = self.sync();
            }
            let mut state = self.state.write();
            let mut leaving = self.leaving.lock();
            let Some(part) = leaving.part(dir) else {
                return Ok(());
            };
            let outcome = self.propose(Token::default(), part);
            leaving.part_ended(dir, outcome.is_ok());
            state.speakers.follow(&outcome?);
            drop(leaving);
            RwLockWriteGuard::unlock_fair(state);
        }
    }

    /// Takes away what an earlier life has left of removed directories.
    ///
    /// # Errors
    /// The store failed.
    pub(crate) fn finish_removals(&self) -> Result<(), TableError> {
        *self.leaving.lock() = Leaving::of_earlier(&self.tables, REMOVED_AT_ONCE)?;
        self.take_unseen_away(None)
    }

    /// Commits what a drain has decided without a lock, if everything that it relied on is still so. The
    /// lock is held for that comparison and for the write.
    ///
    /// # Errors
    /// The store failed; nothing is changed then.
    pub fn commit_if(
        &self,
        commit: &DrainCommit,
        before: impl FnOnce(),
    ) -> Result<DrainVerdict, TableError> {
        let mut state = loop {
            let state = self.state.write();
            if !self.leaving.lock().is_empty() {
                drop(state);
                self.take_unseen_away(None)?;
            } else if self.waits_for_sync(&commit.batch) {
                drop(state);
                self.sync()?;
            } else {
                break state;
            }
        };
        if !commit.still_holds(&self.tables)? {
            return Ok(DrainVerdict::Conflict);
        }
        before();
        let changes = self.propose(Token::default(), commit.batch.clone())?;
        state.speakers.follow(&changes);
        self.commits.fetch_add(1, Ordering::SeqCst);
        Ok(DrainVerdict::Committed)
    }

    /// Takes a batch through the transaction layer, with marks that may go. Gives all changes that were committed.
    fn propose(&self, token: Token, mut batch: Vec<Change>) -> Result<Vec<Change>, TableError> {
        self.meanwhile.lock().changed(&batch);
        let marks = self.finished.lock().take(&batch);
        // The transaction layer adds one more.
        batch.reserve(marks.len() + 1);
        batch.extend_from_slice(&marks);
        let outcome = self.carry_out(Proposal {
            ticket: 0,
            reads: ReadSet::default(),
            batch,
            token,
            uncovers: false,
        });
        self.told();
        if outcome.is_err() {
            self.finished.lock().put_back(marks);
        }
        outcome
    }

    fn carry_out(&self, proposal: Proposal) -> Result<Vec<Change>, TableError> {
        let mut place = self.bridge.lock();
        let mut bridge = match place.take() {
            Some(bridge) => bridge,
            None => Box::new(self.recovered()?),
        };
        // One member needs no clock.
        bridge.propose(proposal, &self.tables, 0)?;
        let mut committed = None;
        let mut is_agreed = false;
        while let Some(output) = bridge.poll(&self.tables)? {
            match output {
                Output::Commit(changes) => {
                    self.write(&changes)?;
                    let before = committed.replace(changes);
                    assert!(before.is_none(), "a bridge that is alone commits once");
                }
                Output::Done { verdict, .. } => is_agreed = verdict == Verdict::Committed,
                other => {
                    return Err(TableError::Failed(format!(
                        "a bridge that is alone wants {other:?}"
                    )));
                }
            }
        }
        *place = Some(bridge);
        committed
            .filter(|_| is_agreed)
            .ok_or_else(|| TableError::Failed("a bridge that is alone did not agree".into()))
    }

    /// Writes to the tables, and to what clients see of them.
    fn write(&self, changes: &[Change]) -> Result<(), TableError> {
        self.board.cover(changes);
        let written = self.tables.apply(changes);
        written.inspect_err(|_| self.board.hide(changes))?;
        self.board.show(changes, &self.tables);
        Ok(())
    }

    fn recovered(&self) -> Result<Bridge, TableError> {
        let alone = Membership::single(self.me);
        Bridge::recover(alone, self.epoch, &self.tables, 0)
    }

    /// What is to be done about backing objects after a crash; see [`Bridge::sweep`].
    ///
    /// # Errors
    /// The tables failed.
    pub fn sweep(
        &self,
        suspects: impl IntoIterator<Item = ObjectName>,
    ) -> Result<Sweep, TableError> {
        match &*self.bridge.lock() {
            Some(bridge) => bridge.sweep(suspects, &self.tables),
            None => self.recovered()?.sweep(suspects, &self.tables),
        }
    }

    /// Writes what no request can see.
    ///
    /// # Errors
    /// The store failed.
    pub fn note(&self, marks: impl IntoIterator<Item = Mark>) -> Result<(), TableError> {
        let changes: Vec<_> = marks.into_iter().map(Change::from).collect();
        let outcome = self.tables.apply(&changes);
        self.told();
        outcome
    }

    /// Takes away some marks whose work is done; true if there may be more. No commit comes between that and its write, and sets one
    /// of them again.
    pub(crate) fn note_finished(&self, most: usize) -> bool {
        if self.tables.below().is_sync_near() {
            // This would wait for it under the lock. They go later.
            return false;
        }
        let _alone = self.state.write();
        let marks = self.finished.lock().some(most);
        if marks.is_empty() {
            return false;
        }
        let written = self.tables.apply(&marks);
        if written.is_err() {
            // The store says it at the next commit.
            self.finished.lock().put_back(marks);
        }
        self.told();
        written.is_ok()
    }

    /// Commits what a recovery or a check has found to be right, while nobody is served.
    ///
    /// # Errors
    /// The store failed; nothing is changed then.
    pub(crate) fn mend(&self, batch: Vec<Change>) -> Result<(), TableError> {
        let mut state = self.state.write();
        let changes = self.propose(Token::default(), batch)?;
        state.speakers.follow(&changes);
        self.commits.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    /// The tables have changed; perhaps also if they say that they failed.
    fn told(&self) {
        self.durability.committed();
        if self.is_sync_due() {
            self.durability.hurry();
        }
    }

    /// See [`forebay_tables::Journaled::is_sync_due`].
    pub(crate) fn is_sync_due(&self) -> bool {
        self.tables.below().is_sync_due()
    }

    /// Makes everything durable that is in the tables.
    ///
    /// # Errors
    /// The store failed.
    pub(crate) fn sync(&self) -> Result<(), TableError> {
        self.sync_telling(&mut || {})
    }

    /// [`Namespace::sync`]; `written` as with [`forebay_tables::Journaled::sync_telling`].
    ///
    /// # Errors
    /// The store failed.
    pub(crate) fn sync_telling(&self, written: &mut dyn FnMut()) -> Result<(), TableError> {
        self.tables.below().sync_telling(written)
    }

    /// Gives memory back that is kept for names which may be asked for again.
    pub(crate) fn give_memory_back(&self) {
        self.tables.forget();
        forebay_sys::trim_heap();
    }

    /// A doomed object is unlinked, or was announced and then not made.
    pub fn object_gone(&self, object: ObjectName) {
        self.finished.lock().gone.push(object);
    }

    /// A doomed marker was never made: both of its marks may go.
    pub fn unmade_marker_gone(&self, object: ObjectName) {
        let mut finished = self.finished.lock();
        finished.gone.push(object);
        finished.relabeled.insert(object);
    }

    /// The label follows the table again. `_locked` shows that the caller holds the lock of the namespace. It must have
    /// taken it before it read the record, so that no rename came between.
    pub fn object_relabeled(&self, object: ObjectName, _locked: &State) {
        self.finished.lock().relabeled.insert(object);
    }

    /// Has an earlier try of the request with this token been carried out?
    pub fn was_carried_out(&self, token: Token) -> bool {
        match &*self.bridge.lock() {
            Some(bridge) => bridge.was_carried_out(token),
            None => self.recovered().is_ok_and(|b| b.was_carried_out(token)),
        }
    }

    /// All marks whose work is done. Only for the end of a bridge: a commit beside it could set one of these marks again, and the
    /// caller's write would erase it.
    pub fn all_marks(&self) -> Vec<Mark> {
        let mut finished = self.finished.lock();
        let mut marks: Vec<_> = finished.gone.drain(..).map(Mark::Undoom).collect();
        let relabeled = std::mem::take(&mut finished.relabeled);
        marks.extend(relabeled.into_iter().map(Mark::Relabeled));
        marks
    }
}

impl Finished {
    /// Some marks that may go together with a batch.
    fn take(&mut self, batch: &[Change]) -> Vec<Change> {
        for change in batch {
            if let Change::Relabel(object) = change {
                // This work is not done, whatever was done before.
                self.relabeled.remove(object);
            }
        }
        self.some(MARKS_PER_COMMIT)
    }

    /// Up to so many marks of each kind.
    fn some(&mut self, most: usize) -> Vec<Change> {
        let keep = self.gone.len().saturating_sub(most);
        let gone = self.gone.drain(keep..).map(Change::Undoom);
        let relabeled = std::iter::from_fn(|| self.relabeled.pop_first());
        gone.chain(relabeled.take(most).map(Change::Relabeled))
            .collect()
    }

    fn put_back(&mut self, marks: Vec<Change>) {
        for mark in marks {
            match mark {
                Change::Undoom(object) => self.gone.push(object),
                Change::Relabeled(object) => {
                    self.relabeled.insert(object);
                }
                _ => {}
            }
        }
    }
}
