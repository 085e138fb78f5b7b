//! A table: how its records are found, made, and counted in. It makes no system call but asks a [`Host`].

use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering, Ordering::Relaxed};

use crate::event::{Event, Extra, Op};
use crate::heap;
use crate::heat::{self, TICK_NS};
use crate::layout::*;
use crate::lock::{self, Held};
pub use crate::record::Record;
use crate::track::add;
use crate::{busy, pending, posix, stdio};

/// Most records of one bucket that are looked at. Only a damaged table has a longer chain.
const MAX_CHAIN: usize = 1 << 16;

/// What the table asks of the process that writes it.
pub trait Host {
    /// Makes sure that these words of the table are backed by memory. Returns `false` if there is none.
    fn back(&self, words: Range<usize>) -> bool;
    /// Monotonic clock, ns.
    fn now_ns(&self) -> u64;
    /// A number that no other living thread of the process has; 0 if that is not known.
    fn thread(&self) -> u64 {
        0
    }
    /// Lets other threads run. Returns `false` if it may not, so that nobody waits.
    fn give_way(&self) -> bool {
        false
    }
}

/// The host of a table that is only read, or that is in ordinary memory.
pub struct InMemory;

impl Host for InMemory {
    fn back(&self, _: Range<usize>) -> bool {
        true
    }

    fn now_ns(&self) -> u64 {
        0
    }
}

/// What a table says of its process when it begins.
#[derive(Debug, Clone, Copy, Default)]
pub struct Birth<'a> {
    /// Process id.
    pub pid: u32,
    /// Process id of the parent now.
    pub ppid: u32,
    /// Start of the process, clock ticks since boot.
    pub start_ticks: u64,
    /// Number of the table in this process, from 0.
    pub serial: u64,
    /// True if a fork began the table.
    pub by_fork: bool,
    /// Real user.
    pub uid: u32,
    /// CLOCK_REALTIME now, ns.
    pub realtime_ns: u64,
    /// CLOCK_MONOTONIC now, ns.
    pub monotonic_ns: u64,
    /// Host name.
    pub hostname: &'a [u8],
    /// What the launcher calls the job; may be empty.
    pub job_key: &'a [u8],
    /// Executable.
    pub exe: &'a [u8],
    /// Arguments, each closed with a NUL.
    pub args: &'a [u8],
    /// Working directory.
    pub cwd: &'a [u8],
}

/// A name and its id.
#[derive(Debug, Clone, Copy)]
pub struct Name<'a> {
    /// [`crate::path::record_id`] of `bytes`.
    pub id: u64,
    /// Cleaned path, or another name.
    pub bytes: &'a [u8],
    /// Id of the file that holds the dataset or variable, or 0.
    pub parent: u64,
}

impl<'a> Name<'a> {
    /// The name of a file.
    pub fn of(bytes: &'a [u8]) -> Self {
        Name {
            id: crate::path::record_id(bytes),
            bytes,
            parent: 0,
        }
    }
}

/// Where a record is. The record may be gone when the handle is used; then its id differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Handle {
    /// First cell.
    pub cell: u32,
    /// Id that the record must have.
    pub id: u64,
}

/// Traffic that is counted without a record. The words are in the order of the fields of
/// [`crate::read::Totals`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Bulk {
    /// Events that found neither their record nor a side slot.
    Unplaced = H_UNPLACED,
    /// Paths that are left out.
    Excluded = H_EXCLUDED,
    /// Pipes, sockets and terminals.
    NoFiles = H_NO_FILES,
}

/// A table in memory.
#[derive(Clone, Copy)]
pub struct Table<'t> {
    words: &'t [AtomicU64],
}

impl<'t> Table<'t> {
    /// Begins a table in `words`, which are all zero. `None` if they are too few or too many.
    pub fn format(words: &'t [AtomicU64], birth: &Birth<'_>, host: &impl Host) -> Option<Self> {
        let bytes = words.len() * WORD_BYTES;
        if !(MIN_TABLE_BYTES..=MAX_TABLE_BYTES).contains(&bytes) {
            return None;
        }
        let buckets = (bytes / BYTES_PER_BUCKET).next_power_of_two() / 2;
        let folded = FIXED_WORDS + buckets;
        let folded_room = words.len() / FOLDED_SHARE;
        let heap_cell = (folded + folded_room).div_ceil(CELL_WORDS);
        if !host.back(0..folded) {
            return None;
        }
        let table = Table { words };
        for (at, value) in [
            (H_WORDS, words.len()),
            (H_PID, birth.pid as usize),
            (H_PPID, birth.ppid as usize),
            (H_START_TICKS, birth.start_ticks as usize),
            (H_SERIAL, birth.serial as usize),
            (H_ORIGIN, birth.by_fork as usize),
            (H_UID, birth.uid as usize),
            (H_START_REALTIME, birth.realtime_ns as usize),
            (H_START_MONOTONIC, birth.monotonic_ns as usize),
            (H_LAST, birth.monotonic_ns as usize),
            (H_BUCKETS, FIXED_WORDS),
            (H_BUCKET_COUNT, buckets),
            (H_FOLDED, folded),
            (H_FOLDED_ROOM, folded_room),
            (H_HEAP_FIRST, heap_cell),
            (H_HEAP_NEXT, heap_cell),
            (H_HEAP_BACKED, heap_cell),
            (H_HEAP_END, words.len() / CELL_WORDS),
        ] {
            table.put(at, value as u64);
        }
        table.put_text(H_HOSTNAME, SHORT_TEXT_WORDS, birth.hostname);
        table.put_text(H_JOB_KEY, SHORT_TEXT_WORDS, birth.job_key);
        table.put_text(H_EXE, PATH_TEXT_WORDS, birth.exe);
        table.put_text(H_ARGS, ARGS_TEXT_WORDS, birth.args);
        table.put_text(H_CWD, PATH_TEXT_WORDS, birth.cwd);
        // Made now, because later there may be no room for the last resort of folding.
        for kind in [Kind::Posix, Kind::Stdio] {
            heap::make_last_resort(&table, kind, host)?;
        }
        table.words[H_MAGIC].store(MAGIC, Ordering::Release);
        Some(table)
    }

    /// A table that was begun before. `None` if these words are no table. What is inside may still be damaged.
    #[inline]
    pub fn attach(words: &'t [AtomicU64]) -> Option<Self> {
        let bytes = words.len() * WORD_BYTES;
        let table = Table { words };
        let is_table = (MIN_TABLE_BYTES..=MAX_TABLE_BYTES).contains(&bytes)
            && words[H_MAGIC].load(Ordering::Acquire) == MAGIC
            && table.get(H_WORDS) == words.len() as u64;
        is_table.then_some(table)
    }

    /// All words.
    #[inline(always)]
    pub fn words(&self) -> &'t [AtomicU64] {
        self.words
    }

    /// A word; 0 outside of the table.
    #[inline(always)]
    pub fn get(&self, at: usize) -> u64 {
        self.words.get(at).map_or(0, |w| w.load(Relaxed))
    }

    /// Sets a word.
    #[inline(always)]
    pub fn put(&self, at: usize, value: u64) {
        if let Some(word) = self.words.get(at) {
            word.store(value, Relaxed);
        }
    }

    /// CLOCK_REALTIME at a point of the monotonic clock, by what both said when the table began.
    #[inline(always)]
    pub fn realtime(&self, monotonic_ns: u64) -> u64 {
        self.get(H_START_REALTIME)
            .wrapping_add(monotonic_ns.wrapping_sub(self.get(H_START_MONOTONIC)))
    }

    /// The tick of a point of the monotonic clock.
    #[inline(always)]
    pub fn tick(&self, monotonic_ns: u64) -> u64 {
        self.realtime(monotonic_ns) / TICK_NS
    }

    /// CLOCK_REALTIME when the table began.
    pub(crate) fn first_ns(&self) -> u64 {
        self.get(H_START_REALTIME)
    }

    /// Stores as much of `text` as has room, closed with a NUL.
    pub fn put_text(&self, at: usize, words: usize, text: &[u8]) {
        let text = &text[..text.len().min(words * WORD_BYTES - 1)];
        for i in 0..words {
            let piece = text.get(i * WORD_BYTES..).unwrap_or(&[]);
            self.put(at + i, word_of(piece));
        }
    }

    /// Adds one call to traffic that has no record.
    pub fn add_bulk(&self, bulk: Bulk, event: &Event) {
        let at = bulk as usize;
        let (calls, bytes, time) = match event.op {
            Op::Open | Op::Dup | Op::Number => (0, None, 7),
            Op::Read | Op::CopyOut => (1, Some(3), 5),
            Op::Write | Op::CopyIn => (2, Some(4), 6),
            _ => (usize::MAX, None, 7),
        };
        let add = |i: usize, n: u64| {
            self.words[at + i].fetch_add(n, Relaxed);
        };
        if calls != usize::MAX {
            add(calls, 1);
        }
        if let Some(i) = bytes {
            add(i, event.bytes.max(0) as u64);
        }
        if bulk == Bulk::Unplaced {
            add(time, event.end_ns.saturating_sub(event.start_ns));
        }
    }

    /// Adds a call on names, or one that has no counter.
    pub fn add_extra(&self, extra: Extra, start_ns: u64, end_ns: u64) {
        let at = H_EXTRAS + 2 * extra as usize;
        self.words[at].fetch_add(1, Relaxed);
        self.words[at + 1].fetch_add(end_ns.saturating_sub(start_ns), Relaxed);
        if extra.takes_time() {
            busy::call(self, start_ns, end_ns);
        }
    }

    /// Takes back one call without a time, which did not happen after all.
    pub fn take_back(&self, extra: Extra) {
        add(&self.words[H_EXTRAS + 2 * extra as usize], -1);
    }

    /// Notes which rank this process is. `by_mpi` is true if MPI itself said so, false if the environment did.
    pub fn set_rank(&self, rank: u32, ranks: u32, by_mpi: bool) {
        self.put(H_RANK, u64::from(rank) + 1);
        self.put(H_RANKS, u64::from(ranks));
        self.put(H_RANK_SOURCE, if by_mpi { 1 } else { 2 });
    }

    /// The record of a kind at a cell; `None` if there is none.
    #[inline(always)]
    pub fn record(&self, kind: Kind, cell: u32) -> Option<Record<'t>> {
        let at = cell as usize * CELL_WORDS;
        // Cell 0 means "none". No record lies before the heap.
        if at < FIXED_WORDS {
            return None;
        }
        let words = self.words.get(at..at + kind.cells() * CELL_WORDS)?;
        (words[KIND_FLAGS].load(Relaxed) & 0xff == kind as u64).then_some(Record { words, kind })
    }

    /// The cell of the record with an id. It takes no lock, so it may miss a record that is being made.
    #[inline]
    pub fn find(&self, kind: Kind, id: u64) -> Option<u32> {
        self.chain(id)
            .find(|r| r.kind == kind && r.id() == id)
            .map(|r| r.cell)
    }

    /// The records in the bucket of an id.
    pub(crate) fn chain(&self, id: u64) -> impl Iterator<Item = Link<'t>> + use<'t> {
        let table = *self;
        let mut next = self.get(heap::bucket(self, id)) as u32;
        core::iter::from_fn(move || {
            let cell = next;
            let head = table.words.get(cell as usize * CELL_WORDS..)?;
            let kind = Kind::from_number(head.get(KIND_FLAGS)?.load(Ordering::Acquire) & 0xff)?;
            let record = table.record(kind, cell)?;
            next = (record.words[NEXT_NAME].load(Ordering::Acquire) >> 32) as u32;
            Some(Link { record, cell })
        })
        .take(MAX_CHAIN)
    }

    /// Takes memory for some 30 more files, as far as there is any. Afterwards the host may have no more to give.
    pub fn reserve(&self, host: &impl Host) {
        heap::reserve(self, host);
    }

    /// Holds the record of a file until [`Table::let_go`]. The record is made if it is new; when memory is full it is
    /// that of the file's directory. `None` if there is not even that; the calls belong in [`Bulk::Unplaced`] then.
    pub fn hold(&self, kind: Kind, name: &Name<'_>, host: &impl Host) -> Option<Handle> {
        self.hold_found(self.find(kind, name.id), kind, name, host)
    }

    /// [`Table::hold`] of a record that [`Table::find`] has just looked for.
    #[inline]
    pub fn hold_found(
        &self,
        mut found: Option<u32>,
        kind: Kind,
        name: &Name<'_>,
        host: &impl Host,
    ) -> Option<Handle> {
        for _ in 0..4 {
            let handle = match found {
                Some(cell) => Handle { cell, id: name.id },
                None => heap::obtain(self, kind, name, host)?,
            };
            let record = self.record(kind, handle.cell)?;
            record.words[HANDLES].fetch_add(1, Ordering::AcqRel);
            if record.id() == handle.id {
                return Some(handle);
            }
            record.words[HANDLES].fetch_sub(1, Ordering::AcqRel);
            found = self.find(kind, name.id);
        }
        None
    }

    /// The name of a record; `None` if the record is gone, or stands for folded files.
    pub fn name<'o>(
        &self,
        kind: Kind,
        handle: Handle,
        room: &'o mut [u8; crate::path::MAX_NAME_BYTES],
    ) -> Option<&'o [u8]> {
        let record = self.record(kind, handle.cell)?;
        if record.id() != handle.id || record.is_folded() {
            return None;
        }
        let cell = record.words[NEXT_NAME].load(Ordering::Acquire) as u32;
        Some(heap::read_name(self, cell, room)).filter(|name| !name.is_empty())
    }

    /// The word with the alignment of a file's file system in bytes, in its record for POSIX calls; 0 if it is not known.
    pub fn alignment(&self, handle: Handle) -> Option<&'t AtomicU64> {
        let record = self.record(Kind::Posix, handle.cell)?;
        (record.id() == handle.id).then(|| posix::alignment(&record))?
    }

    /// Holds a record that is held already once more.
    pub fn hold_again(&self, kind: Kind, handle: Handle) {
        if let Some(record) = self
            .record(kind, handle.cell)
            .filter(|r| r.id() == handle.id)
        {
            record.words[HANDLES].fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Ends one hold of a record.
    #[inline]
    pub fn let_go(&self, kind: Kind, handle: Handle) {
        if let Some(record) = self
            .record(kind, handle.cell)
            .filter(|r| r.id() == handle.id)
        {
            let _ =
                record.words[HANDLES].fetch_update(Ordering::AcqRel, Relaxed, |n| n.checked_sub(1));
        }
    }

    /// Counts a call on a record without waiting for long. An event that finds no place is added to the totals. Returns
    /// `false` if the record is gone and the handle of no more use.
    #[inline]
    pub fn count(&self, kind: Kind, handle: Handle, event: &Event, host: &impl Host) -> bool {
        let Some(record) = self.record(kind, handle.cell) else {
            self.add_bulk(Bulk::Unplaced, event);
            return false;
        };
        let locked = lock::acquire(&record.words[LOCK], &record.words[LOCK_NOTE], event.end_ns);
        let Some(held) = locked else {
            if !pending::leave(self, kind, handle, event) {
                self.add_bulk(Bulk::Unplaced, event);
            }
            return true;
        };
        let there = record.id() == handle.id;
        if there {
            self.apply(&record, event, host);
        }
        self.unlock(&record.words[LOCK], held);
        if !there {
            self.add_bulk(Bulk::Unplaced, event);
        }
        if self.get(H_PENDING) != 0 {
            pending::drain(self, host, false);
        }
        there
    }

    /// Counts an event from a side slot. Returns `false` if the record is locked.
    pub(crate) fn count_left(
        &self,
        kind: Kind,
        handle: Handle,
        event: &Event,
        host: &impl Host,
    ) -> bool {
        let record = self
            .record(kind, handle.cell)
            .filter(|r| r.id() == handle.id);
        let Some(record) = record else {
            self.add_bulk(Bulk::Unplaced, event);
            return true;
        };
        let Some(held) = lock::try_once(&record.words[LOCK]) else {
            return false;
        };
        self.apply(&record, event, host);
        self.unlock(&record.words[LOCK], held);
        true
    }

    /// Locks a record and runs `act` on it. `None` if it is gone, or was locked for too long.
    pub fn with<R>(
        &self,
        kind: Kind,
        handle: Handle,
        host: &impl Host,
        act: impl FnOnce(&Record<'t>) -> R,
    ) -> Option<R> {
        let record = self.record(kind, handle.cell)?;
        let held = lock::acquire(&record.words[LOCK], &record.words[LOCK_NOTE], host.now_ns())?;
        let result = (record.id() == handle.id).then(|| act(&record));
        self.unlock(&record.words[LOCK], held);
        result
    }

    /// Gives a lock of this table back. What was done under it may be wrong if another thread had taken it over.
    #[inline(always)]
    pub(crate) fn unlock(&self, word: &AtomicU64, held: Held) {
        if !lock::release(word, held) {
            self.words[H_OVERLAPS].fetch_add(1, Relaxed);
        }
    }

    #[inline(always)]
    fn apply(&self, record: &Record<'t>, event: &Event, host: &impl Host) {
        match record.kind {
            Kind::Posix => posix::apply(self, record, event, host),
            Kind::Stdio => stdio::apply(self, record, event),
            _ => {}
        }
    }

    /// Opens locks that were left behind, counts what is in the side slots, and brings the maps over time up to date. Only
    /// for a copy, or a table whose writer is gone.
    pub fn settle(&self) {
        self.each_record(|_, record| {
            lock::open(&record.words[LOCK]);
        });
        lock::open(&self.words[H_LOCK]);
        pending::drain(self, &InMemory, true);
        self.each_record(|_, record| {
            heat::flush(self, record.kind, record.state());
            busy::flush(self, record);
        });
    }

    /// Calls `act` for every record, in the order of the index.
    pub fn each_record(&self, mut act: impl FnMut(u32, &Record<'t>)) {
        let (first, count) = (
            self.get(H_BUCKETS) as usize,
            self.get(H_BUCKET_COUNT) as usize,
        );
        // A damaged chain may run in a circle. Every record is at least one cell, so there can't be more than this.
        let mut budget = self.words.len() / CELL_WORDS;
        for bucket in 0..count.min(self.words.len()) {
            let mut next = self.get(first.saturating_add(bucket)) as u32;
            while budget > 0
                && let Some(head) = self.words.get(next as usize * CELL_WORDS..)
                && let Some(word) = head.get(KIND_FLAGS)
                && let Some(kind) = Kind::from_number(word.load(Relaxed) & 0xff)
                && let Some(record) = self.record(kind, next)
            {
                act(next, &record);
                budget -= 1;
                next = (record.words[NEXT_NAME].load(Relaxed) >> 32) as u32;
            }
        }
    }
}

/// Up to eight bytes as a word, the first one lowest in memory.
pub(crate) fn word_of(bytes: &[u8]) -> u64 {
    let mut eight = [0; WORD_BYTES];
    let n = bytes.len().min(WORD_BYTES);
    eight[..n].copy_from_slice(&bytes[..n]);
    u64::from_ne_bytes(eight)
}

/// A record and where it is.
pub(crate) struct Link<'t> {
    record: Record<'t>,
    /// Its first cell.
    pub cell: u32,
}

impl<'t> core::ops::Deref for Link<'t> {
    type Target = Record<'t>;
    fn deref(&self) -> &Record<'t> {
        &self.record
    }
}
