//! Time in calls over time: when the process was in I/O, and how long.
//!
//! Sums of the durations of calls say nothing of when they were, and calls of threads overlap. So the durations are also
//! summed in bins ([`crate::time_map`]) of a millisecond at first: in a bin a process was in I/O no longer than the bin is
//! wide. Where calls do not overlap, that is exact; where they do it is the most that it can have been. There are [`BUSY_BINS`]
//! bins.
//!
//! To spare the map, which all threads share, a record keeps the calls of a tick to itself and adds them to the map when the
//! tick is over. They took no longer than the time from the first start to the last end.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::heap;
use crate::layout::{
    BUSY_AT, BUSY_BINS, BUSY_FROM, BUSY_NS, BUSY_ROWS, BUSY_TICK, BUSY_TO, FIXED_WORDS, H_THREADS,
    Kind,
};
use crate::table::{Record, Table};
use crate::time_map::TimeMap;
use crate::track::{add, earliest, latest};

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

fn map<'t>(table: &Table<'t>) -> TimeMap<'t> {
    let words = &table.words()[BUSY_AT..FIXED_WORDS];
    TimeMap::new(words, BUSY_BINS, TICK_NS, table.first_ns())
}

/// Notes a call between two points of the monotonic clock. `state` is that of the record, which the caller has locked.
#[inline(always)]
pub(crate) fn note(table: &Table<'_>, record: &Record<'_>, state: &[AtomicU64], span: (u64, u64)) {
    let tick = table.realtime(span.1) / TICK_NS;
    if state[BUSY_TICK].load(Relaxed) != tick {
        state[BUSY_TICK].store(tick, Relaxed);
        flush(table, record);
    }
    keep(state, span);
}

/// Notes a call in the state of a record. [`flush`] adds it to the map.
#[inline(always)]
pub(crate) fn keep(state: &[AtomicU64], (start_ns, end_ns): (u64, u64)) {
    if end_ns > start_ns {
        add(&state[BUSY_NS], (end_ns - start_ns) as i64);
        earliest(&state[BUSY_FROM], start_ns);
        latest(&state[BUSY_TO], end_ns);
    }
}

/// Adds to the map what a record has kept to itself. The caller has locked it.
#[cold]
pub fn flush(table: &Table<'_>, record: &Record<'_>) {
    let Some(row) = row_of(record.kind) else {
        return;
    };
    let state = record.state();
    let [ns, from, to] = [BUSY_NS, BUSY_FROM, BUSY_TO].map(|at| state[at].swap(0, Relaxed));
    let ns = ns.min(to.saturating_sub(from));
    // Who waits for a terminal or a pipe does no I/O.
    if ns > 0 && heap::is_of_file(table, record) {
        map(table).add_span(row, ns, (table.realtime(from), table.realtime(to)));
    }
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
    /// True if several threads made calls, which may have been at the same time.
    pub has_threads: bool,
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
            has_threads: table.get(H_THREADS) != 0,
        }
    }
}
