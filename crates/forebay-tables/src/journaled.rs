//! A journal before other tables.
//!
//! A batch is acknowledged when it is in the journal, which is one small write.
//! What batches come to ([`Net`]) is kept in memory, on top of the tables below, and
//! goes there from time to time, all at once: names that come and go cost those
//! tables nothing, and the others share one write.
//!
//! The tables store the number of the lap that they do not hold yet. It changes in the write that takes the lap over,
//! so a crash leaves the old tables with their lap, or the new tables. Entries state results, so replaying a lap is
//! harmless while nothing came after it.

use crate::Rocks;
use crate::journal::Journal;
use crate::net::{Base, Net, merge};
use forebay_core::batch;
use forebay_core::encoding::{decode_batch, encode_batch};
use forebay_core::path::TreePath;
use forebay_core::record::{ObjectId, ObjectName, PathRecord};
use forebay_core::table::{Change, Marks, Order, TableError, Tables, WriteTables};
use parking_lot::RwLock;
use std::path::Path;

const LAP: &[u8] = b"store/lap";
/// Keys in memory that make it time to write them to the tables below. Everybody waits for that write: about a
/// millisecond of processor time. With eight times as many it was ten, and a key cost the same.
const KEYS: usize = 512;
/// Bytes in the journal that make it time. The rest is room for changes while the tables below can't be written.
const BYTES: usize = 512 << 10;

/// Tables with a journal before them. All access has to go through it.
pub struct Journaled<T> {
    below: T,
    state: RwLock<State>,
}

struct State {
    journal: Journal,
    net: Net,
}

fn lap_change(lap: u64) -> Change {
    Change::Meta {
        key: LAP.to_vec(),
        value: Some(lap.to_le_bytes().to_vec()),
    }
}

impl Journaled<Rocks> {
    /// The tables in `dir`: a database with a journal in the same place.
    ///
    /// # Errors
    /// As [`Rocks::open`] and [`Journaled::new`].
    pub fn open(dir: &Path) -> Result<Self, TableError> {
        Journaled::new(Rocks::open(dir)?, &dir.join("journal"))
    }
}

impl<T: Base> Journaled<T> {
    /// Puts the journal at `path` before `below`, and takes up what is in it.
    ///
    /// # Errors
    /// The journal or the tables can't be read, or are damaged.
    pub fn new(below: T, path: &Path) -> Result<Self, TableError> {
        let lap = match below.meta(LAP)? {
            None => 0,
            Some(bytes) => bytes
                .try_into()
                .map(u64::from_le_bytes)
                .map_err(|_| TableError::damaged("number of the journal's lap", LAP))?,
        };
        let (journal, entries) = Journal::open(path, lap)?;
        let mut net = Net::default();
        for entry in entries {
            let batch = decode_batch(&entry).map_err(|why| {
                TableError::unread("batch", "an entry of the journal".into(), why)
            })?;
            if let Err(fault) = batch::check(&batch) {
                return Err(TableError::Damaged {
                    what: "batch",
                    at: format!("an entry of the journal: {fault}"),
                });
            }
            net.absorb(&batch);
        }
        Ok(Journaled {
            below,
            state: RwLock::new(State { journal, net }),
        })
    }

    /// Writes everything to the tables below. Until the next change they hold everything, and the
    /// journal will not be looked at.
    ///
    /// # Errors
    /// The tables failed; nothing is lost.
    pub fn flush(&self) -> Result<(), TableError> {
        let mut state = self.state.write();
        if state.net.len() > 0 {
            state.flush(&self.below)?;
        }
        // A lap without entries, so that those before it are not taken up once more.
        state.flush(&self.below)
    }
}

impl State {
    fn flush(&mut self, below: &impl Base) -> Result<(), TableError> {
        let next = self.journal.lap() + 1;
        self.net.absorb(&[lap_change(next)]);
        below.write_net(&self.net)?;
        self.net.clear();
        self.journal.begin(next);
        Ok(())
    }

    /// Makes room for the prepared entry.
    fn make_room(&mut self, below: &impl Base, batch: &[Change]) -> Result<(), TableError> {
        let fits = self.journal.prepare(|out| encode_batch(batch, out));
        let due = self.net.len() >= KEYS || self.journal.used() >= BYTES;
        if fits && !due {
            return Ok(());
        }
        match self.flush(below) {
            // A removal may take the last room in the journal.
            Err(e) if !fits || !removes(batch) => Err(e),
            _ => Ok(()),
        }
    }

    fn apply(&mut self, below: &impl Base, batch: &[Change]) -> Result<(), TableError> {
        self.make_room(below, batch)?;
        if self.journal.is_large() {
            return self.apply_below(below, batch);
        }
        self.journal.write()?;
        self.net.absorb(batch);
        Ok(())
    }

    /// Takes a batch past the journal.
    fn apply_below(&mut self, below: &impl Base, batch: &[Change]) -> Result<(), TableError> {
        self.flush(below)?;
        // If a lap has no entries, a start takes up those of the lap before it. They are older than this batch, so a lap
        // is skipped.
        let next = self.journal.lap() + 2;
        let mut batch = batch.to_vec();
        batch.push(lap_change(next));
        below.apply(&batch)?;
        self.journal.begin(next);
        Ok(())
    }
}

/// Does a batch take a name away?
fn removes(batch: &[Change]) -> bool {
    batch.iter().any(|c| matches!(c, Change::Delete { .. }))
}

impl<T: Base> Tables for Journaled<T> {
    fn get(&self, path: &TreePath) -> Result<Option<PathRecord>, TableError> {
        let state = self.state.read();
        match state.net.records.get(&path.key()) {
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
        let state = self.state.read();
        let page = state.net.children(&self.below, dir, after, limit)?;
        batch::assert_page(&page, after, limit);
        Ok(page)
    }

    fn page_below(
        &self,
        dir: &TreePath,
        after: Option<&TreePath>,
        limit: usize,
    ) -> Result<Vec<(TreePath, PathRecord)>, TableError> {
        let state = self.state.read();
        state.net.page_below(&self.below, dir, after, limit)
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
            let want = limit - page.len();
            let state = self.state.read();
            let changed = state.net.after(from.as_ref(), order);
            // A walk past many keys that have gone takes long, so the lock is dropped as soon as the page is fixed.
            let mut held = Some(state);
            let entries = self
                .below
                .page_of_now(from.as_ref(), order, want, &mut || drop(held.take()))?;
            let until = match entries.len() < want {
                true => None,
                false => entries.last().map(|(path, _)| path.clone()),
            };
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
        self.state.read().net.names_of(&self.below, oid)
    }

    fn path_of(&self, object: ObjectName) -> Result<Option<TreePath>, TableError> {
        let state = self.state.read();
        match state.net.paths.get(&object) {
            Some(path) => Ok(path.clone()),
            None => self.below.path_of(object),
        }
    }

    fn marks(&self) -> Result<Marks, TableError> {
        self.state.read().net.marks(&self.below)
    }

    fn meta(&self, key: &[u8]) -> Result<Option<Vec<u8>>, TableError> {
        let state = self.state.read();
        match state.net.meta.get(key) {
            Some(value) => Ok(value.clone()),
            None => self.below.meta(key),
        }
    }

    fn metas(&self, prefix: &[u8]) -> Result<Vec<(Vec<u8>, Vec<u8>)>, TableError> {
        self.state.read().net.metas(&self.below, prefix)
    }
}

impl<T: Base> WriteTables for Journaled<T> {
    fn apply(&self, batch: &[Change]) -> Result<(), TableError> {
        self.below.admit(batch)?;
        self.state.write().apply(&self.below, batch)
    }
}
