//! Bytes over time, in [`HEAT_BINS`] bins. A bin is a tenth of a second at first, and wider later.
//!
//! A **tick** is a tenth of a second of CLOCK_REALTIME since the epoch. The bins of a map of shift `s` are `2^s` ticks
//! wide and begin at multiples of their width, so whole bins of different processes can be added up. When time passes
//! the end, neighbours are added up and the width doubles.
//!
//! All threads share a map. To spare it, each record keeps the bytes of its current tick to itself and adds them to
//! the map when the tick is over.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::layout::{
    HEAT_AT, HEAT_BINS, HEAT_HEAD_WORDS, HEAT_MAPS, HEAT_READ, HEAT_TICK, HEAT_WORDS, HEAT_WRITTEN,
    Kind,
};
use crate::lock;
use crate::table::Table;
use crate::track::add;

/// A tick in nanoseconds.
pub const TICK_NS: u64 = 100_000_000;
/// Words of a map's head.
const LOCK: usize = 0;
const NOTE: usize = 1;
const SHIFT: usize = 2;
/// Most parts into which a transfer is spread; a longer one has parts of several ticks.
const MAX_PARTS: u64 = 400;

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
            spread(table, map, direction, bytes, (start_ns, end_ns));
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
            add_to_map(table, map, direction, tick, bytes);
        }
    }
}

/// Spreads a transfer over its ticks, in proportion to time.
fn spread(
    table: &Table<'_>,
    map: usize,
    direction: Direction,
    bytes: i64,
    (start, end): (u64, u64),
) {
    let ticks = table.tick(end) - table.tick(start) + 1;
    let part = TICK_NS.saturating_mul(ticks.div_ceil(MAX_PARTS));
    let mut placed = 0;
    let mut at = start;
    while at < end {
        let next = end.min(at.saturating_add(part - table.realtime(at) % part));
        let share = u128::from(next - start) * bytes as u128 / u128::from(end - start);
        add_to_map(table, map, direction, table.tick(at), share as u64 - placed);
        placed = share as u64;
        at = next;
    }
}

fn map_words<'t>(table: &Table<'t>, map: usize) -> &'t [AtomicU64] {
    debug_assert!(map < HEAT_MAPS);
    &table.words()[HEAT_AT + map * HEAT_WORDS..][..HEAT_WORDS]
}

fn add_to_map(table: &Table<'_>, map: usize, direction: Direction, tick: u64, bytes: u64) {
    let words = map_words(table, map);
    let base = table.first_tick();
    let bin = loop {
        let shift = words[SHIFT].load(Relaxed).min(63);
        let bin = (tick >> shift).saturating_sub(base >> shift) as usize;
        if bin < HEAT_BINS {
            break bin;
        }
        if !lock::acquire(&words[LOCK], &words[NOTE], tick.wrapping_mul(TICK_NS)) {
            break HEAT_BINS - 1;
        }
        // Another thread may have doubled it in between.
        if words[SHIFT].load(Relaxed) == shift {
            double(words, base, shift);
        }
        lock::release(&words[LOCK]);
    };
    bins(words, direction)[bin].fetch_add(bytes, Relaxed);
}

fn bins(words: &[AtomicU64], direction: Direction) -> &[AtomicU64] {
    let from = match direction {
        Direction::Write => HEAT_HEAD_WORDS,
        Direction::Read => HEAT_HEAD_WORDS + HEAT_BINS,
    };
    &words[from..from + HEAT_BINS]
}

/// Adds up neighbours. A thread that adds bytes at the same time may hit the wrong bin, but no byte is lost.
fn double(words: &[AtomicU64], base: u64, shift: u64) {
    for direction in [Direction::Write, Direction::Read] {
        let bins = bins(words, direction);
        for (i, bin) in bins.iter().enumerate() {
            let to = (((base >> shift) + i as u64) >> 1) - (base >> (shift + 1));
            let bytes = bin.swap(0, Relaxed);
            bins[to as usize].fetch_add(bytes, Relaxed);
        }
    }
    words[SHIFT].store(shift + 1, Relaxed);
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
        let words = map_words(table, map_of(kind)?);
        let shift = words[SHIFT].load(Relaxed).min(63);
        let values = |direction| {
            let mut out = [0; HEAT_BINS];
            for (to, from) in out.iter_mut().zip(bins(words, direction)) {
                *to = from.load(Relaxed);
            }
            out
        };
        let map = HeatMap {
            ticks_per_bin: 1 << shift,
            first_bin: table.first_tick() >> shift,
            written: values(Direction::Write),
            read: values(Direction::Read),
        };
        let some = map.written.iter().chain(&map.read).any(|&b| b != 0);
        some.then_some(map)
    }
}
