//! The reader's side: a table as values.
//!
//! The bytes of a table may come from a process that was killed in the middle of a call, or that is still at work. So
//! everything is checked, and nothing is waited for. Counters are those of the moment when the bytes were copied.
//!
//! ```
//! use forebay_count::{Kind, read};
//! # use forebay_count::{Event, Op, Table, table::{Birth, InMemory, Name}};
//! # use std::sync::atomic::AtomicU64;
//! # let memory: Vec<AtomicU64> = (0..32768).map(|_| AtomicU64::new(0)).collect();
//! # let table = Table::format(&memory, &Birth { pid: 7, exe: b"/bin/x", ..Birth::default() }, &InMemory).unwrap();
//! # let handle = table.hold(Kind::Posix, &Name::of(b"/data/a"), &InMemory).unwrap();
//! # table.count(Kind::Posix, handle, &Event { bytes: 10, ..Event::plain(Op::Write, 1, 2) }, &InMemory);
//! # let bytes: Vec<u8> = memory.iter().flat_map(|w| w.load(std::sync::atomic::Ordering::Relaxed).to_ne_bytes()).collect();
//! // `bytes` is the content of a *.table file.
//! let words: Vec<AtomicU64> = read::words(&bytes).collect();
//! let table = read::open(&words)?;
//! assert_eq!(read::process(&table).pid, 7);
//! read::each_file(&table, |file| {
//!     let posix = file.posix().unwrap();
//!     assert_eq!((file.name, posix.ints[forebay_count::posix::BYTES_WRITTEN]), (&b"/data/a"[..], 10));
//! });
//! # Ok::<(), read::NoTable>(())
//! ```

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::event::Extra;
use crate::heap::{self, read_name};
use crate::layout::*;
use crate::path::MAX_NAME_BYTES;
use crate::posix;
use crate::stdio;
use crate::table::{Bulk, Record, Table};
use crate::track::{COMMON_VALUES, TRACKED_VALUES, sort_common};

/// The bytes are no table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoTable;

impl core::fmt::Display for NoTable {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("not a table of I/O counters, or of another version")
    }
}

impl core::error::Error for NoTable {}

/// The words of a table file. An incomplete last word is dropped.
pub fn words(bytes: &[u8]) -> impl Iterator<Item = AtomicU64> {
    bytes
        .chunks_exact(WORD_BYTES)
        .map(|c| AtomicU64::new(u64::from_ne_bytes(c.try_into().unwrap_or_default())))
}

/// Opens a copy of a table and counts the events in its side slots.
///
/// # Errors
/// [`NoTable`] if the words are no table, for instance because its process was killed while it made it.
pub fn open(words: &[AtomicU64]) -> Result<Table<'_>, NoTable> {
    let table = Table::attach(words).ok_or(NoTable)?;
    table.settle();
    Ok(table)
}

/// Are these words, which are no table, what a process leaves that is killed while it makes its table? Then it has counted
/// nothing. It writes the size first and [`MAGIC`] last, and its first look at `/proc/self/io` comes after that.
pub fn is_unbegun(words: &[AtomicU64]) -> bool {
    let are_zero = |some: &[AtomicU64]| some.iter().all(|word| word.load(Relaxed) == 0);
    let bytes = words.len() * WORD_BYTES;
    if !(MIN_TABLE_BYTES..=MAX_TABLE_BYTES).contains(&bytes) || !are_zero(&words[..=H_MAGIC]) {
        return false;
    }
    match words[H_WORDS].load(Relaxed) {
        0 => are_zero(words),
        size => size == words.len() as u64 && are_zero(&words[H_IO_FIRST..H_IO_LAST]),
    }
}

/// How a process, or the program in it, ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The process wrote nothing about its end: it runs, or was killed.
    Unsaid,
    /// It exited with this code.
    Exit(i32),
    /// It called exec; the next program has a table of its own.
    Exec,
    /// It called abort.
    Abort,
    /// It called MPI_Abort with this code.
    MpiAbort(i32),
}

impl End {
    /// The numbers for [`H_END`] and [`H_END_CODE`].
    pub fn to_words(self) -> (u64, u64) {
        match self {
            End::Unsaid => (0, 0),
            End::Exit(code) => (1, code as u64),
            End::Exec => (2, 0),
            End::Abort => (3, 0),
            End::MpiAbort(code) => (4, code as u64),
        }
    }

    fn from_words(kind: u64, code: u64) -> End {
        match kind {
            1 => End::Exit(code as i32),
            2 => End::Exec,
            3 => End::Abort,
            4 => End::MpiAbort(code as i32),
            _ => End::Unsaid,
        }
    }
}

/// Where a rank's number comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RankSource {
    /// MPI_Comm_rank.
    Mpi,
    /// The environment.
    Environment,
}

/// Figures of /proc/self/io.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ProcIo {
    /// Bytes that calls read.
    pub rchar: u64,
    /// Bytes that calls wrote.
    pub wchar: u64,
    /// Reading calls.
    pub syscr: u64,
    /// Writing calls.
    pub syscw: u64,
    /// Bytes fetched from storage.
    pub read_bytes: u64,
    /// Bytes sent to storage.
    pub write_bytes: u64,
    /// Bytes that were to be written to storage and were not.
    pub cancelled_write_bytes: u64,
}

impl ProcIo {
    /// From the numbers in the order of the file.
    pub fn from_array(a: [u64; 7]) -> Self {
        ProcIo {
            rchar: a[0],
            wchar: a[1],
            syscr: a[2],
            syscw: a[3],
            read_bytes: a[4],
            write_bytes: a[5],
            cancelled_write_bytes: a[6],
        }
    }
}

/// What a table says of its process.
#[derive(Debug, Clone)]
pub struct Process {
    /// Process id.
    pub pid: u32,
    /// Process id of the parent when the table began.
    pub ppid: u32,
    /// Start of the process, clock ticks since boot.
    pub start_ticks: u64,
    /// Number of the table in this process.
    pub serial: u64,
    /// True if a fork began the table, false if a program did.
    pub by_fork: bool,
    /// Real user.
    pub uid: u32,
    /// CLOCK_REALTIME when the table began, ns. Times of records count from here.
    pub start_realtime_ns: u64,
    /// CLOCK_REALTIME of the last sign of life, ns: a call that was counted, or the end.
    pub last_realtime_ns: u64,
    /// Rank, number of ranks (0 unknown), and where they are from.
    pub rank: Option<(u32, u32, RankSource)>,
    /// How the process ended.
    pub end: End,
    /// /proc/self/io when the table began.
    pub io_first: ProcIo,
    /// The same at the last look, which is before the end if the process was killed.
    pub io_last: ProcIo,
    /// Bytes that the recorder itself has read, which the two figures leave out.
    pub own_read: u64,
    hostname: [u8; SHORT_TEXT_WORDS * WORD_BYTES],
    job_key: [u8; SHORT_TEXT_WORDS * WORD_BYTES],
    exe: [u8; PATH_TEXT_WORDS * WORD_BYTES],
    args: [u8; ARGS_TEXT_WORDS * WORD_BYTES],
    cwd: [u8; PATH_TEXT_WORDS * WORD_BYTES],
}

impl Process {
    /// Host name.
    pub fn hostname(&self) -> &[u8] {
        until_nul(&self.hostname)
    }
    /// What the launcher calls the job; may be empty.
    pub fn job_key(&self) -> &[u8] {
        until_nul(&self.job_key)
    }
    /// Executable, at most 1 KiB of it.
    pub fn exe(&self) -> &[u8] {
        until_nul(&self.exe)
    }
    /// Arguments, the program's name first; at most 3 KiB.
    pub fn args(&self) -> impl Iterator<Item = &[u8]> {
        let end = self.args.iter().rposition(|&b| b != 0).map_or(0, |n| n + 1);
        self.args[..end]
            .split(|&b| b == 0)
            .take(if end == 0 { 0 } else { usize::MAX })
    }
    /// Working directory at the start, at most 1 KiB.
    pub fn cwd(&self) -> &[u8] {
        until_nul(&self.cwd)
    }
}

fn until_nul(text: &[u8]) -> &[u8] {
    &text[..text.iter().position(|&b| b == 0).unwrap_or(text.len())]
}

fn text<const N: usize>(table: &Table<'_>, at: usize) -> [u8; N] {
    let mut out = [0; N];
    for (i, piece) in out.chunks_exact_mut(WORD_BYTES).enumerate() {
        piece.copy_from_slice(&table.get(at + i).to_ne_bytes());
    }
    out
}

/// Reads the header.
pub fn process(table: &Table<'_>) -> Process {
    let io = |at| ProcIo::from_array(core::array::from_fn(|i| table.get(at + i)));
    let rank = table.get(H_RANK).checked_sub(1).map(|rank| {
        let source = match table.get(H_RANK_SOURCE) {
            1 => RankSource::Mpi,
            _ => RankSource::Environment,
        };
        (rank as u32, table.get(H_RANKS) as u32, source)
    });
    let mut last = table.get(H_LAST);
    table.each_record(|_, record| {
        for time in last_calls(record) {
            last = last.max(time);
        }
    });
    Process {
        pid: table.get(H_PID) as u32,
        ppid: table.get(H_PPID) as u32,
        start_ticks: table.get(H_START_TICKS),
        serial: table.get(H_SERIAL),
        by_fork: table.get(H_ORIGIN) == 1,
        uid: table.get(H_UID) as u32,
        start_realtime_ns: table.get(H_START_REALTIME),
        last_realtime_ns: table.realtime(last),
        rank,
        end: End::from_words(table.get(H_END), table.get(H_END_CODE)),
        io_first: io(H_IO_FIRST),
        io_last: io(H_IO_LAST),
        own_read: table.get(H_OWN_READ),
        hostname: text(table, H_HOSTNAME),
        job_key: text(table, H_JOB_KEY),
        exe: text(table, H_EXE),
        args: text(table, H_ARGS),
        cwd: text(table, H_CWD),
    }
}

fn last_calls(record: &Record<'_>) -> [u64; 3] {
    [LAST_READ_END, LAST_WRITE_END, LAST_META_END].map(|i| record.state()[i].load(Relaxed))
}

/// The counters of a record, in Darshan's order; times in seconds, points in time since the start of the table.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Counters<const I: usize, const F: usize> {
    /// Integer counters.
    pub ints: [i64; I],
    /// Time counters.
    pub floats: [f64; F],
}

/// A value and how often it occurred.
pub type Frequency = (i64, i64);

/// The record of a file in one interface.
pub struct File<'a, 't> {
    /// The interface.
    pub kind: Kind,
    /// Record id.
    pub id: u64,
    /// Id of the file that holds this dataset or variable, or 0.
    pub parent: u64,
    /// Its name.
    pub name: &'a [u8],
    /// `Some` if the record stands for several files, whose patterns are lost: how many, without those that have a
    /// record again.
    pub folded: Option<u64>,
    /// True if a folded record already counts the file.
    pub counted_before: bool,
    /// True if the four most common values may be wrong, because memory was full.
    pub values_lost: bool,
    record: Record<'t>,
    table: &'a Table<'t>,
}

impl<'t> File<'_, 't> {
    /// Counters of the POSIX interface.
    pub fn posix(&self) -> Option<Counters<{ posix::INTS }, { posix::TIMES }>> {
        let mut c = self.counters(Kind::Posix, posix::READ_TIME..posix::TIMES)?;
        for (set, values, counts) in [
            (0, posix::ACCESS, posix::ACCESS_COUNT),
            (1, posix::STRIDE, posix::STRIDE_COUNT),
        ] {
            let mut room = [(0, 0); TRACKED_VALUES];
            let common = self.common(set, (values, counts), &mut room);
            for i in 0..COMMON_VALUES {
                let (value, count) = common.get(i).copied().unwrap_or_default();
                c.ints[values + i] = value;
                c.ints[counts + i] = count;
            }
        }
        Some(c)
    }

    /// Counters of the stream interface.
    pub fn stdio(&self) -> Option<Counters<{ stdio::INTS }, { stdio::TIMES }>> {
        let mut c = self.counters(Kind::Stdio, 0..stdio::OPEN_START)?;
        // These are no points in time. They are found out when ranks are joined.
        c.floats[stdio::READ_END + 1..].fill(0.0);
        Some(c)
    }

    /// Counters of any interface. Those in `durations` are lengths of time, the others points in time. `None` if the
    /// record is of another kind, or if `I` and `F` are not its numbers of counters.
    pub fn counters<const I: usize, const F: usize>(
        &self,
        kind: Kind,
        durations: core::ops::Range<usize>,
    ) -> Option<Counters<I, F>> {
        let (ints, times) = (self.record.ints(), self.record.times());
        if self.kind != kind || ints.len() != I || times.len() != F {
            return None;
        }
        let start = self.table.get(H_START_MONOTONIC);
        Some(Counters {
            ints: core::array::from_fn(|i| ints[i].load(Relaxed) as i64),
            floats: core::array::from_fn(|i| {
                let ns = times[i].load(Relaxed);
                match ns {
                    0 => 0.0,
                    _ if durations.contains(&i) => ns as f64 * 1e-9,
                    // A point in time is never 0, which would mean "never".
                    _ => (ns.saturating_sub(start)).max(1) as f64 * 1e-9,
                }
            }),
        })
    }

    /// All accesses whose frequency is known, the most frequent first; at most [`TRACKED_VALUES`].
    pub fn posix_accesses<'o>(&self, room: &'o mut [Frequency; TRACKED_VALUES]) -> &'o [Frequency] {
        self.common(0, (posix::ACCESS, posix::ACCESS_COUNT), room)
    }

    /// All strides whose frequency is known, in the same order.
    pub fn posix_strides<'o>(&self, room: &'o mut [Frequency; TRACKED_VALUES]) -> &'o [Frequency] {
        self.common(1, (posix::STRIDE, posix::STRIDE_COUNT), room)
    }

    /// The tracked values of a set of single words; see [`Record::tracked`].
    pub fn common<'o>(
        &self,
        set: usize,
        places: (usize, usize),
        room: &'o mut [Frequency; TRACKED_VALUES],
    ) -> &'o [Frequency] {
        let mut n = 0;
        if self.kind.shape().value_words == 1 && set < self.kind.shape().value_sets {
            self.record
                .tracked(self.table, set, places, 1, |value, count| {
                    if let Some(place) = room.get_mut(n) {
                        *place = (value[0].load(Relaxed) as i64, count);
                        n += 1;
                    }
                });
        }
        sort_common(&mut room[..n]);
        &room[..n]
    }

    /// What is known of a file beside Darshan's counters.
    pub fn facts(&self) -> Facts {
        let state = |i: usize| self.record.state()[i].load(Relaxed);
        match self.kind {
            Kind::Posix => Facts {
                size_at_open: state(posix::SIZE_AT_OPEN).checked_sub(1),
                created: match state(posix::BEFORE) {
                    1 => Some(true),
                    2 => Some(false),
                    _ => None,
                },
                mapped_bytes: state(posix::MAPPED_BYTES),
                copied_out: (state(posix::COPIED_OUT), state(posix::COPIED_OUT + 1)),
                copied_in: (state(posix::COPIED_IN), state(posix::COPIED_IN + 1)),
                flushing: Flushing {
                    sync_ns: state(posix::SYNC_TIME),
                    synced_writes: state(posix::SYNCED_WRITES),
                    synced_write_ns: state(posix::SYNCED_WRITE_TIME),
                    direct_requests: state(posix::DIRECT_REQUESTS),
                },
            },
            Kind::Stdio => Facts {
                size_at_open: state(stdio::SIZE_AT_OPEN).checked_sub(1),
                ..Facts::default()
            },
            _ => Facts::default(),
        }
    }

    /// The record as it is in its table, and that table.
    pub fn record(&self) -> (&Record<'t>, &Table<'t>) {
        (&self.record, self.table)
    }
}

/// What is known of a file beside Darshan's counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Facts {
    /// Bytes in the file when this process first opened it, before that open truncated it; `None` if unknown.
    pub size_at_open: Option<u64>,
    /// True if this process created the file; `None` if unknown.
    pub created: Option<bool>,
    /// Bytes mapped into memory.
    pub mapped_bytes: u64,
    /// Calls and bytes of `copy_file_range` and its kin from this file. The counters have them, too.
    pub copied_out: (u64, u64),
    /// The same to this file.
    pub copied_in: (u64, u64),
    /// What waited for storage by the program's will.
    pub flushing: Flushing,
}

/// What a process has asked to reach storage at once, or to go there without the page cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flushing {
    /// Nanoseconds of `POSIX_F_WRITE_TIME` in `fsync` and `fdatasync`.
    pub sync_ns: u64,
    /// Writes by descriptors with `O_SYNC` or `O_DSYNC`.
    pub synced_writes: u64,
    /// Nanoseconds of `POSIX_F_WRITE_TIME` in these.
    pub synced_write_ns: u64,
    /// Reads and writes by descriptors with `O_DIRECT`.
    pub direct_requests: u64,
}

/// Calls `act` for every record that counted something.
pub fn each_file(table: &Table<'_>, mut act: impl FnMut(&File<'_, '_>)) {
    let mut room = [0; MAX_NAME_BYTES];
    table.each_record(|_, record| {
        if !record.is_used() {
            return;
        }
        let flags = record.words[KIND_FLAGS].load(Relaxed);
        let name_cell = record.words[NEXT_NAME].load(Relaxed) as u32;
        act(&File {
            kind: record.kind,
            id: record.id(),
            parent: record.words[PARENT].load(Relaxed),
            name: read_name(table, name_cell, &mut room),
            folded: (flags & FOLDED != 0).then(|| record.words[FILES].load(Relaxed)),
            counted_before: flags & COUNTED_BEFORE != 0,
            values_lost: flags & VALUES_LOST != 0,
            record: *record,
            table,
        });
    });
}

/// Traffic that is counted without a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// Files opened.
    pub opens: u64,
    /// Reading calls.
    pub reads: u64,
    /// Writing calls.
    pub writes: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Time of reads, ns; of [`Bulk::Unplaced`] alone.
    pub read_ns: u64,
    /// Time of writes, ns; as above.
    pub write_ns: u64,
    /// Time of other calls, ns; as above.
    pub meta_ns: u64,
}

/// Reads one of the totals.
pub fn totals(table: &Table<'_>, bulk: Bulk) -> Totals {
    let word = |i| table.get(bulk as usize + i);
    Totals {
        opens: word(0),
        reads: word(1),
        writes: word(2),
        bytes_read: word(3),
        bytes_written: word(4),
        read_ns: word(5),
        write_ns: word(6),
        meta_ns: word(7),
    }
}

/// The calls without a counter of their own that occurred: name, calls, nanoseconds.
pub fn extras(table: &Table<'_>) -> impl Iterator<Item = (&'static str, u64, u64)> {
    Extra::NAMES.into_iter().filter_map(move |(name, extra)| {
        let at = H_EXTRAS + 2 * extra as usize;
        let calls = table.get(at);
        (calls != 0).then(|| (name, calls, table.get(at + 1)))
    })
}

/// What stands for the files that have been folded, as far as the list of them had room: the [`folded_key`] of each.
pub fn folded_keys(table: &Table<'_>) -> impl Iterator<Item = u64> {
    let (first, room) = (table.get(H_FOLDED), table.get(H_FOLDED_ROOM));
    let words = usize::try_from(first)
        .ok()
        .and_then(|at| table.words().get(at..));
    let words = words
        .filter(|_| table.get(H_FOLDED_BACKED) == 1)
        .unwrap_or(&[]);
    let keys = words.iter().take(usize::try_from(room).unwrap_or(0));
    keys.map(|key| key.load(Relaxed)).filter(|key| *key != 0)
}

/// What stands for a file of this kind among [`folded_keys`], of whatever process.
pub fn folded_key(kind: Kind, id: u64) -> u64 {
    heap::folded_key(kind, id)
}

/// How often two threads may have changed the same counters at the same time, so that they are wrong.
pub fn overlaps(table: &Table<'_>) -> u64 {
    table.get(H_OVERLAPS)
}

/// How many files may have been counted twice in folded records, because the list of their ids was full.
pub fn unsure_files(table: &Table<'_>) -> u64 {
    table.get(H_UNSURE_FILES)
}
