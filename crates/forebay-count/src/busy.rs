//! Time in calls over time: when the process was in I/O, and how long.
//!
//! Sums of the durations of calls say nothing of when they were, and calls of threads overlap. So the durations are also
//! summed in bins ([`crate::time_map`]) of a millisecond at first: in a bin a process was in I/O no longer than the bin is
//! wide. There are [`BUSY_BINS`] of them, so the error is less than a hundredth of the run where calls overlap, and none where
//! they do not.
//!
//! To spare the map, which all threads share, a record adds to it what its own timers have gained when a tick is over.

use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::layout::{
    BUSY_AT, BUSY_BINS, BUSY_COUNTED, BUSY_ROWS, BUSY_TICK, FIXED_WORDS, Kind, LAST_META_END,
    LAST_READ_END, LAST_WRITE_END,
};
use crate::table::{Record, Table};
use crate::time_map::TimeMap;
use crate::{heap, library, posix, stdio};

/// A tick in nanoseconds.
pub const TICK_NS: u64 = 1_000_000;

/// The row of an interface. HDF5 and PnetCDF do their I/O by one of the others.
fn row_of(kind: Kind) -> Option<usize> {
    match kind {
        Kind::Posix => Some(0),
        Kind::Stdio => Some(1),
        Kind::Mpiio => Some(2),
        _ => None,
    }
}

/// The timers of a record: reading, writing, other calls.
fn timers(kind: Kind) -> Range<usize> {
    match kind {
        Kind::Posix => posix::READ_TIME..posix::META_TIME + 1,
        Kind::Stdio => stdio::META_TIME..stdio::READ_TIME + 1,
        _ => library::timers(kind),
    }
}

fn spent(record: &Record<'_>) -> u64 {
    let timers = &record.times()[timers(record.kind)];
    timers
        .iter()
        .fold(0, |sum: u64, ns| sum.wrapping_add(ns.load(Relaxed)))
}

fn map<'t>(table: &Table<'t>) -> TimeMap<'t> {
    let words = &table.words()[BUSY_AT..FIXED_WORDS];
    TimeMap::new(words, BUSY_BINS, TICK_NS, table.first_ns())
}

/// To be called before a call is counted that ends at a point of the monotonic clock. `state` is that of the record, which the
/// caller has locked.
#[inline(always)]
pub(crate) fn roll(table: &Table<'_>, record: &Record<'_>, state: &[AtomicU64], end_ns: u64) {
    let tick = table.realtime(end_ns) / TICK_NS;
    if state[BUSY_TICK].load(Relaxed) != tick {
        state[BUSY_TICK].store(tick, Relaxed);
        flush(table, record);
    }
}

/// Adds to the map what the timers of a record have gained. The caller has locked it.
#[cold]
pub fn flush(table: &Table<'_>, record: &Record<'_>) {
    let Some(row) = row_of(record.kind) else {
        return;
    };
    let (state, spent) = (record.state(), spent(record));
    let fresh = spent.wrapping_sub(state[BUSY_COUNTED].swap(spent, Relaxed));
    // Who waits for a terminal or a pipe does no I/O.
    if fresh == 0 || fresh > i64::MAX as u64 || !heap::is_of_file(table, record) {
        return;
    }
    let last = [LAST_READ_END, LAST_WRITE_END, LAST_META_END].map(|at| state[at].load(Relaxed));
    let end_ns = table.realtime(last.into_iter().max().unwrap_or(0));
    map(table).add_span(row, fresh, (end_ns.saturating_sub(fresh), end_ns));
}

/// Notes that one record has taken over what another one has counted, and added to the map.
pub(crate) fn fold(from: &Record<'_>, into: &Record<'_>) {
    let word = &into.state()[BUSY_COUNTED];
    word.store(word.load(Relaxed).wrapping_add(spent(from)), Relaxed);
}

/// Adds a call on a name, between two points of the monotonic clock.
pub(crate) fn call(table: &Table<'_>, start_ns: u64, end_ns: u64) {
    if let Some(ns) = end_ns.checked_sub(start_ns).filter(|ns| *ns > 0) {
        let span = (table.realtime(start_ns), table.realtime(end_ns));
        map(table).add_span(0, ns, span);
    }
}

/// A busy map as values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BusyMap {
    /// Width of a bin in nanoseconds.
    pub bin_ns: u64,
    /// The first bin begins at so many times the width of a bin since the epoch.
    pub first_bin: u64,
    /// Nanoseconds in calls, of all threads together, per bin: of POSIX and on names, of STDIO, of MPI-IO.
    pub rows: [[u64; BUSY_BINS]; BUSY_ROWS],
}

impl BusyMap {
    /// The map of a table. Call [`Table::settle`] first.
    pub fn of(table: &Table<'_>) -> BusyMap {
        let map = map(table);
        let mut rows = [[0; BUSY_BINS]; BUSY_ROWS];
        for (row, to) in rows.iter_mut().enumerate() {
            for (to, from) in to.iter_mut().zip(map.row(row)) {
                *to = from.load(Relaxed);
            }
        }
        BusyMap {
            bin_ns: TICK_NS.saturating_mul(map.ticks_per_bin()),
            first_bin: map.first_bin(),
            rows,
        }
    }
}
