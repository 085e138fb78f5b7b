//! A journal before other tables.
//!
//! A batch is acknowledged when it is in the journal, which is one small write. What batches come to ([`Net`]) is kept in
//! memory, on top of the tables below, and goes there at a *sync point*, as one write that is durable when it returns:
//! names that come and go cost those tables nothing, and the tables below are at any moment those of one sync point.
//! That is what a power loss leaves. The death of the process leaves the journal as well.
//!
//! While a sync point is being written, batches go on into the next lap of the journal and into a net of their own. The
//! tables store the number of the lap that they do not hold yet. It changes in the write that takes a lap over, so a crash
//! leaves the old tables with their lap, or the new tables. Entries state results, so replaying a lap is harmless while
//! nothing came after it.

use crate::Rocks;
use crate::journal::{Found, Journal, Life};
use crate::net::{Base, Changed, Net, merge, nearer, only_adds};
use crate::old_journal;
use forebay_core::batch;
use forebay_core::encoding::{decode_batch, encode_batch};
use forebay_core::path::TreePath;
use forebay_core::record::{ObjectId, ObjectName, PathRecord};
use forebay_core::recovery::Loss;
use forebay_core::reserve::Purpose;
use forebay_core::table::{Change, Marks, Order, TableError, Tables, WriteTables};
use parking_lot::{Mutex, RwLock};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

const LAP: &[u8] = b"store/lap";

/// What else has to happen at a sync point.
pub trait Settling: Send + Sync {
    /// A sync point begins: what is committed from now on belongs to the next one. Gives changes that go with it. It is
    /// called under the lock of the tables.
    fn begins(&self) -> Vec<Change>;

    /// Makes everything durable that the names of this sync point rely on.
    ///
    /// # Errors
    /// It is not durable; then neither are the names.
    fn prepare(&self) -> Result<(), TableError>;
}

/// Tables with a journal before them. All access has to go through it.
pub struct Journaled<T> {
    below: T,
    state: RwLock<State>,
    /// One sync point at a time.
    syncing: Mutex<()>,
    /// The lap is half full.
    is_due: AtomicBool,
    /// The last sync point failed.
    failing: AtomicBool,
    settling: OnceLock<Arc<dyn Settling>>,
}

struct State {
    journal: Journal,
    /// What the lap of the journal comes to.
    net: Net,
    /// What the lap before it comes to, on its way to the tables below.
    frozen: Option<Arc<Net>>,
    /// Perhaps the tables below have the number of the lap before, which has no entries.
    has_skipped: bool,
}

/// Entries of the tables below that are read for a page at least.
pub(crate) const READ_AT_ONCE: usize = if cfg!(test) { 2 } else { 64 };

fn lap_change(lap: u64) -> Change {
    Change::Meta {
        key: LAP.to_vec(),
        value: Some(lap.to_le_bytes().to_vec()),
    }
}

impl Journaled<Rocks> {
    /// The tables in `dir`: a database with a journal in the same place. `life` is that of the storage, `purpose` what they are
    /// opened for.
    ///
    /// # Errors
    /// As [`Rocks::open`] and [`Journaled::new`].
    pub fn open(dir: &Path, life: Life, purpose: Purpose) -> Result<Self, TableError> {
        Journaled::new(Rocks::open_for(dir, purpose)?, dir, life)
    }

    /// See [`Rocks::serve_for`].
    pub fn serve_for(&self, purpose: Purpose) {
        self.below.serve_for(purpose);
    }
}

/// What the entries of a journal come to.
fn net_of(entries: Vec<Vec<u8>>) -> Result<Net, TableError> {
    let mut net = Net::default();
    for entry in entries {
        let batch = decode_batch(&entry)
            .map_err(|why| TableError::unread("batch", "an entry of the journal".into(), why))?;
        if let Err(fault) = batch::check(&batch) {
            return Err(TableError::Damaged {
                what: "batch",
                at: format!("an entry of the journal: {fault}"),
            });
        }
        net.absorb(&batch);
    }
    Ok(net)
}

impl<T: Base> Journaled<T> {
    /// Puts the journal in `dir` before `below`, and takes up what is in it.
    ///
    /// # Errors
    /// The journal or the tables can't be read.
    pub fn new(below: T, dir: &Path, life: Life) -> Result<Self, TableError> {
        let stored = below.meta(LAP)?;
        let mut lap = match &stored {
            None => 0,
            Some(bytes) => <[u8; 8]>::try_from(&bytes[..])
                .map(u64::from_le_bytes)
                .map_err(|_| TableError::damaged("number of the journal's lap", LAP))?,
        };
        let old = dir.join("journal");
        let mut is_new = stored.is_none();
        if let Some(entries) = old_journal::read(&old, lap)? {
            let mut net = net_of(entries)?;
            // A lap that no file tells of, so that this counts as a loss of power: nobody can tell how the bridge of the
            // earlier program ended.
            lap += 2;
            net.absorb(&[lap_change(lap)]);
            below.write_net(&net)?;
            below.flush()?;
            std::fs::remove_file(&old).map_err(|e| TableError::Failed(format!("journal: {e}")))?;
            is_new = false;
        }
        let loss_of = |found: &Found| match found {
            Found::Torn(_) => Loss::Torn,
            _ => Loss::Power,
        };
        let (journal, found) = Journal::open(dir, lap, life, is_new, |found, out| {
            encode_batch(&[loss_of(found).noted()], out);
        })?;
        let last = if journal.lap() == lap {
            &found[0]
        } else {
            &found[1]
        };
        let loss = match last {
            Found::Whole(_) => None,
            Found::Nothing if is_new => None,
            found => Some(loss_of(found)),
        };
        let [first, second] = found.map(|lap| match lap {
            Found::Whole(entries) | Found::Torn(entries) => net_of(entries).map(Some),
            Found::Nothing | Found::OtherLife => Ok(None),
        });
        let (frozen, mut net) = match (first?, second?) {
            (Some(mut first), Some(second)) => {
                first.absorb(&[lap_change(lap + 1)]);
                (Some(Arc::new(first)), second)
            }
            (first, _) => (None, first.unwrap_or_default()),
        };
        net.absorb(&loss.map(Loss::noted).into_iter().collect::<Vec<_>>());
        Ok(Journaled {
            below,
            state: RwLock::new(State {
                journal,
                net,
                frozen,
                has_skipped: false,
            }),
            syncing: Mutex::new(()),
            is_due: AtomicBool::new(false),
            failing: AtomicBool::new(false),
            settling: OnceLock::new(),
        })
    }

    /// Says what else has to happen at each sync point from now on.
    ///
    /// # Panics
    /// It was said before.
    pub fn settle_with(&self, settling: Arc<dyn Settling>) {
        let is_first = self.settling.set(settling).is_ok();
        assert!(is_first, "there is one that settles");
    }

    /// Is it time for a sync point, so that no batch has to wait for one?
    pub fn is_sync_due(&self) -> bool {
        self.is_due.load(Ordering::Relaxed)
    }

    /// Is it time for a sync point, or is one under way? Who writes much waits for its end, and leaves the room of the
    /// journal to others.
    pub fn is_sync_near(&self) -> bool {
        self.is_sync_due() || self.state.read().frozen.is_some()
    }

    /// Would [`WriteTables::apply`] wait for a sync point with this batch? Who asks others to wait meanwhile waits before it.
    /// `more_bytes`: what the batch may still grow by.
    pub fn waits_for_sync(&self, batch: &[Change], more_bytes: usize) -> bool {
        // Half a lap has room for every batch that goes into the journal.
        if !self.is_sync_due() {
            return false;
        }
        let state = self.state.read();
        if state.frozen.is_none() && !self.failing.load(Ordering::Relaxed) {
            // The next lap begins at once.
            return false;
        }
        if !removes(batch) {
            return true;
        }
        let mut entry = Vec::new();
        encode_batch(batch, &mut entry);
        !state.journal.has_room(entry.len() + more_bytes)
    }

    /// Makes everything durable that was applied before the call: a sync point.
    ///
    /// # Errors
    /// The tables failed, or what they rely on could not be made durable. Nothing is lost, and later calls try again.
    pub fn sync(&self) -> Result<(), TableError> {
        self.sync_telling(&mut || {})
    }

    /// [`Journaled::sync`]. `written` is called when all is written, and only its way to the disk is left: whoever
    /// syncs something else of the same file system now waits for the same disk. It is not called if nothing was left to do.
    ///
    /// # Errors
    /// As [`Journaled::sync`], perhaps after `written`.
    pub fn sync_telling(&self, written: &mut dyn FnMut()) -> Result<(), TableError> {
        let outcome = self.try_sync(&self.syncing.lock(), written);
        self.failing.store(outcome.is_err(), Ordering::Relaxed);
        outcome
    }

    fn try_sync(
        &self,
        _one: &parking_lot::MutexGuard<'_, ()>,
        written: &mut dyn FnMut(),
    ) -> Result<(), TableError> {
        self.write_frozen(&mut || {})?;
        {
            let mut state = self.state.write();
            if state.has_skipped {
                self.below.apply(&[lap_change(state.journal.lap())])?;
                state.has_skipped = false;
            }
            state.freeze(self.settling.get())?;
            self.is_due
                .store(state.journal.is_half_full(), Ordering::Relaxed);
        }
        self.write_frozen(written)
    }

    fn write_frozen(&self, written: &mut dyn FnMut()) -> Result<(), TableError> {
        let Some(frozen) = self.state.read().frozen.clone() else {
            return Ok(());
        };
        if let Some(settling) = self.settling.get() {
            settling.prepare()?;
        }
        self.below.write_net(&frozen)?;
        written();
        self.below.flush()?;
        let written = self.state.write().frozen.take();
        // Not under the lock: it may be large.
        drop(written);
        Ok(())
    }

    /// Takes a batch past the journal.
    fn apply_below(&self, batch: &[Change]) -> Result<(), TableError> {
        let one = self.syncing.lock();
        loop {
            self.try_sync(&one, &mut || {})?;
            let mut state = self.state.write();
            if state.net.len() > 0 {
                continue;
            }
            // The lap has no entries, and must get none that would be taken up after this batch.
            state.journal.next()?;
            state.has_skipped = true;
            let mut batch = batch.to_vec();
            batch.push(lap_change(state.journal.lap()));
            self.below.apply(&batch)?;
            state.has_skipped = false;
            return Ok(());
        }
    }

    /// Calls `f` with the tables as they are now.
    fn now<R>(&self, f: impl FnOnce(&dyn Tables) -> R) -> R {
        let state = self.state.read();
        match &state.frozen {
            None => f(&Over {
                net: &state.net,
                below: &self.below,
            }),
            Some(frozen) => f(&Over {
                net: &state.net,
                below: &Over {
                    net: frozen,
                    below: &self.below,
                },
            }),
        }
    }
}

/// What became of a batch.
enum Taken {
    Yes,
    /// There is no room before a sync point.
    NoRoom,
    TooLarge,
}

impl State {
    /// Begins the next lap. What the last one comes to is to be written.
    fn freeze(&mut self, settling: Option<&Arc<dyn Settling>>) -> Result<(), TableError> {
        if self.net.len() == 0 || self.frozen.is_some() || self.has_skipped {
            return Ok(());
        }
        self.journal.next()?;
        if let Some(settling) = settling {
            self.net.absorb(&settling.begins());
        }
        self.net.absorb(&[lap_change(self.journal.lap())]);
        self.frozen = Some(Arc::new(std::mem::take(&mut self.net)));
        Ok(())
    }

    fn take(
        &mut self,
        batch: &[Change],
        is_failing: bool,
        settling: Option<&Arc<dyn Settling>>,
    ) -> Result<Taken, TableError> {
        let fits = self.journal.prepare(|out| encode_batch(batch, out));
        if self.journal.is_large() {
            return Ok(Taken::TooLarge);
        }
        if !fits && self.frozen.is_none() && !is_failing {
            self.freeze(settling)?;
        }
        // If the tables below turn out to be full, the last room is for removals.
        let waits = is_failing || self.frozen.is_some();
        let is_kept_back = waits && self.journal.is_half_full() && !removes(batch);
        if !self.journal.fits() || is_kept_back {
            return Ok(Taken::NoRoom);
        }
        self.journal.write()?;
        self.net.absorb(batch);
        Ok(Taken::Yes)
    }
}

/// Does a batch take a name away?
fn removes(batch: &[Change]) -> bool {
    batch.iter().any(|c| matches!(c, Change::Delete { .. }))
}

/// A net on top of tables.
struct Over<'a, T: ?Sized> {
    net: &'a Net,
    below: &'a T,
}

impl<T: Tables + ?Sized> Tables for Over<'_, T> {
    fn get(&self, path: &TreePath) -> Result<Option<PathRecord>, TableError> {
        match self.net.records.get(&path.key()) {
            Some((_, record)) => Ok(record.clone()),
            None => self.below.get(path),
        }
    }

    fn children(
        &self,
        dir: &TreePath,
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<(Vec<u8>, PathRecord)>, TableError> {
        self.net.children(self.below, dir, after, limit)
    }

    fn page_below(
        &self,
        dir: &TreePath,
        after: Option<&TreePath>,
        limit: usize,
    ) -> Result<Vec<(TreePath, PathRecord)>, TableError> {
        self.net.page_below(self.below, dir, after, limit)
    }

    fn page(
        &self,
        _: Option<&TreePath>,
        _: Order,
        _: usize,
    ) -> Result<Vec<(TreePath, PathRecord)>, TableError> {
        unreachable!("a page holds the lock for a part of the time only")
    }

    fn names_of(&self, oid: ObjectId) -> Result<Vec<(ObjectName, TreePath)>, TableError> {
        self.net.names_of(self.below, oid)
    }

    fn path_of(&self, object: ObjectName) -> Result<Option<TreePath>, TableError> {
        match self.net.paths.get(&object) {
            Some(path) => Ok(path.clone()),
            None => self.below.path_of(object),
        }
    }

    fn marks(&self) -> Result<Marks, TableError> {
        self.net.marks(self.below)
    }

    fn meta(&self, key: &[u8]) -> Result<Option<Vec<u8>>, TableError> {
        match self.net.meta.get(key) {
            Some(value) => Ok(value.clone()),
            None => self.below.meta(key),
        }
    }

    fn metas(&self, prefix: &[u8]) -> Result<Vec<(Vec<u8>, Vec<u8>)>, TableError> {
        self.net.metas(self.below, prefix)
    }
}

impl State {
    /// What has changed of the records that come after `from` in a walk; see [`Net::after`].
    fn after(
        &self,
        from: Option<&TreePath>,
        order: Order,
        most: usize,
    ) -> (Changed, Option<TreePath>) {
        let (mut changed, end) = match &self.frozen {
            Some(frozen) => frozen.after(from, order, most),
            None => (Changed::new(), None),
        };
        let (later, later_end) = self.net.after(from, order, most);
        changed.extend(later);
        (changed, nearer(end, later_end, order))
    }
}

impl<T: Base> Tables for Journaled<T> {
    fn get(&self, path: &TreePath) -> Result<Option<PathRecord>, TableError> {
        self.now(|tables| tables.get(path))
    }

    fn children(
        &self,
        dir: &TreePath,
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<(Vec<u8>, PathRecord)>, TableError> {
        let page = self.now(|tables| tables.children(dir, after, limit))?;
        batch::assert_page(&page, after, limit);
        Ok(page)
    }

    fn page_below(
        &self,
        dir: &TreePath,
        after: Option<&TreePath>,
        limit: usize,
    ) -> Result<Vec<(TreePath, PathRecord)>, TableError> {
        self.now(|tables| tables.page_below(dir, after, limit))
    }

    fn page(
        &self,
        after: Option<&TreePath>,
        order: Order,
        limit: usize,
    ) -> Result<Vec<(TreePath, PathRecord)>, TableError> {
        let mut from = after.cloned();
        let mut page = Vec::new();
        // Entries that have gone make a page of the tables below shorter, so one page may take several of theirs.
        while page.len() < limit {
            // What is read beyond the page costs less than to begin anew for each entry that has gone.
            let want = (limit - page.len()).max(READ_AT_ONCE);
            let state = self.state.read();
            let (changed, end) = state.after(from.as_ref(), order, want);
            // A walk past many keys that have gone takes long, so the lock is dropped as soon as the page is fixed.
            let mut held = Some(state);
            let entries = self
                .below
                .page_of_now(from.as_ref(), order, want, &mut || drop(held.take()))?;
            let until = match entries.len() < want {
                true => None,
                false => entries.last().map(|(path, _)| path.clone()),
            };
            let until = nearer(until, end, order);
            page.extend(merge(entries, changed, until.as_ref(), order));
            if until.is_none() {
                break;
            }
            from = until;
        }
        page.truncate(limit);
        Ok(page)
    }

    fn names_of(&self, oid: ObjectId) -> Result<Vec<(ObjectName, TreePath)>, TableError> {
        self.now(|tables| tables.names_of(oid))
    }

    fn path_of(&self, object: ObjectName) -> Result<Option<TreePath>, TableError> {
        self.now(|tables| tables.path_of(object))
    }

    fn marks(&self) -> Result<Marks, TableError> {
        self.now(|tables| tables.marks())
    }

    fn meta(&self, key: &[u8]) -> Result<Option<Vec<u8>>, TableError> {
        self.now(|tables| tables.meta(key))
    }

    fn metas(&self, prefix: &[u8]) -> Result<Vec<(Vec<u8>, Vec<u8>)>, TableError> {
        self.now(|tables| tables.metas(prefix))
    }
}

impl<T: Base> WriteTables for Journaled<T> {
    fn apply(&self, batch: &[Change]) -> Result<(), TableError> {
        self.below.admit(&|| only_adds(self, batch))?;
        loop {
            let is_failing = self.failing.load(Ordering::Relaxed);
            let taken = {
                let mut state = self.state.write();
                let taken = state.take(batch, is_failing, self.settling.get())?;
                self.is_due
                    .store(state.journal.is_half_full(), Ordering::Relaxed);
                taken
            };
            match taken {
                Taken::Yes => return Ok(()),
                Taken::NoRoom => self.sync()?,
                Taken::TooLarge => return self.apply_below(batch),
            }
        }
    }
}
