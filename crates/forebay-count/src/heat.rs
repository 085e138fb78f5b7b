//! Bytes over time, in [`HEAT_BINS`] bins. A bin is a tenth of a second at first, and wider later.
//!
//! A tick is a tenth of a second. [`crate::time_map`] says how bins lie.
//!
//! All threads share a map. To spare it, each record keeps the bytes of its current tick to itself and adds them to
//! the map when the tick is over.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::layout::{
    HEAT_AT, HEAT_BINS, HEAT_MAPS, HEAT_READ, HEAT_TICK, HEAT_WORDS, HEAT_WRITTEN, Kind,
};
use crate::table::Table;
use crate::time_map::TimeMap;
use crate::track::add;

/// A tick in nanoseconds.
pub const TICK_NS: u64 = 100_000_000;
/// The direction in which bytes moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// To the program.
    Read,
    /// From the program.
    Write,
}

/// The number of an interface's map, if it has one.
pub const fn map_of(kind: Kind) -> Option<usize> {
    match kind {
        Kind::Posix => Some(0),
        Kind::Mpiio => Some(1),
        Kind::Stdio => Some(2),
        _ => None,
    }
}

/// Notes `bytes` that moved between two points of the monotonic clock. `state` is the state of the record.
#[inline]
pub fn note(
    table: &Table<'_>,
    kind: Kind,
    state: &[AtomicU64],
    direction: Direction,
    bytes: i64,
    (start_ns, end_ns): (u64, u64),
) {
    if bytes <= 0 {
        return;
    }
    let (first, last) = (table.tick(start_ns), table.tick(end_ns));
    // A damaged table may tell any times.
    if start_ns < end_ns && first < last {
        if let Some(map) = map_of(kind) {
            let span = (table.realtime(start_ns), table.realtime(end_ns));
            map_at(table, map).add_span(row(direction), bytes as u64, span);
        }
        return;
    }
    if state[HEAT_TICK].load(Relaxed) != last {
        flush(table, kind, state);
        state[HEAT_TICK].store(last, Relaxed);
    }
    let word = match direction {
        Direction::Read => HEAT_READ,
        Direction::Write => HEAT_WRITTEN,
    };
    add(&state[word], bytes);
}

/// Adds the bytes that a record has kept to itself to the map.
pub fn flush(table: &Table<'_>, kind: Kind, state: &[AtomicU64]) {
    let Some(map) = map_of(kind) else {
        return;
    };
    let tick = state[HEAT_TICK].load(Relaxed);
    for (word, direction) in [
        (HEAT_READ, Direction::Read),
        (HEAT_WRITTEN, Direction::Write),
    ] {
        let bytes = state[word].swap(0, Relaxed);
        if bytes != 0 {
            map_at(table, map).add(row(direction), tick, bytes);
        }
    }
}

fn map_at<'t>(table: &Table<'t>, map: usize) -> TimeMap<'t> {
    debug_assert!(map < HEAT_MAPS);
    let words = &table.words()[HEAT_AT + map * HEAT_WORDS..][..HEAT_WORDS];
    TimeMap::new(words, HEAT_BINS, TICK_NS, table.first_ns())
}

fn row(direction: Direction) -> usize {
    match direction {
        Direction::Write => 0,
        Direction::Read => 1,
    }
}

/// A heat map as values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeatMap {
    /// Width of a bin in ticks of [`TICK_NS`]; a power of two.
    pub ticks_per_bin: u64,
    /// The first bin begins at `first_bin * ticks_per_bin` ticks after the epoch.
    pub first_bin: u64,
    /// Bytes written per bin.
    pub written: [u64; HEAT_BINS],
    /// Bytes read per bin.
    pub read: [u64; HEAT_BINS],
}

impl HeatMap {
    /// The map of an interface; `None` if it has none or nothing moved. Call [`Table::settle`] first.
    pub fn of(table: &Table<'_>, kind: Kind) -> Option<HeatMap> {
        let map = map_at(table, map_of(kind)?);
        let values = |direction| {
            let mut out = [0; HEAT_BINS];
            for (to, from) in out.iter_mut().zip(map.row(row(direction))) {
                *to = from.load(Relaxed);
            }
            out
        };
        let map = HeatMap {
            ticks_per_bin: map.ticks_per_bin(),
            first_bin: map.first_bin(),
            written: values(Direction::Write),
            read: values(Direction::Read),
        };
        let some = map.written.iter().chain(&map.read).any(|&b| b != 0);
        some.then_some(map)
    }
}
