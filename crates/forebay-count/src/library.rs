//! The rules that the records of MPI-IO, HDF5 and PnetCDF share. Opens, transfers and closes are counted alike, only
//! in other places of the record.
//!
//! The rules are those of Darshan's counters. Times are in nanoseconds.

use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::busy;
use crate::heat::{self, Direction};
use crate::layout::{Kind, LAST_DIRECTION, LAST_META_END, LAST_READ_END, LAST_WRITE_END};
use crate::table::{Host, Record, Table};
use crate::track::{self, add, bucket, earliest, latest, raise, timer};
use crate::{hdf5, mpiio, pnetcdf};

/// Size buckets of a histogram.
const BUCKETS: usize = 10;

/// The time of a call, by the monotonic clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Before the call, ns.
    pub start_ns: u64,
    /// After the call, ns.
    pub end_ns: u64,
}

/// The words of a record that the rules change. The caller holds its lock.
#[derive(Debug, Clone, Copy)]
pub struct Words<'t> {
    /// Integer counters.
    pub ints: &'t [AtomicU64],
    /// Time counters.
    pub times: &'t [AtomicU64],
    /// What the rules remember.
    pub state: &'t [AtomicU64],
}

impl<'t> Words<'t> {
    /// The words of a record of a table.
    pub fn of(record: &Record<'t>) -> Self {
        Words {
            ints: record.ints(),
            times: record.times(),
            state: record.state(),
        }
    }

    /// Adds to an integer counter.
    pub fn add(&self, counter: usize, n: i64) {
        add(&self.ints[counter], n);
    }

    /// Sets an integer counter.
    pub fn set(&self, counter: usize, value: i64) {
        self.ints[counter].store(value as u64, Relaxed);
    }

    /// An integer counter.
    pub fn get(&self, counter: usize) -> i64 {
        self.ints[counter].load(Relaxed) as i64
    }

    /// Keeps the first start and the last end of something.
    pub fn mark(&self, start: usize, end: usize, span: Span) {
        earliest(&self.times[start], span.start_ns);
        latest(&self.times[end], span.end_ns);
    }

    /// Adds the part of `span` that no earlier call has added to a time counter. `last` is the word of the state that
    /// holds the end of the latest one.
    pub fn spend(&self, counter: usize, last: usize, span: Span) {
        timer(
            &self.times[counter],
            &self.state[last],
            span.start_ns,
            span.end_ns,
        );
        busy::keep(self.state, (span.start_ns, span.end_ns));
    }
}

/// Time counters of a record with data: the same in MPI-IO, H5D and PNETCDF_VAR.
mod time {
    pub const OPEN_START: usize = 0;
    pub const READ_START: usize = 1;
    pub const WRITE_START: usize = 2;
    pub const CLOSE_START: usize = 3;
    pub const OPEN_END: usize = 4;
    pub const READ_END: usize = 5;
    pub const WRITE_END: usize = 6;
    pub const CLOSE_END: usize = 7;
    pub const READ: usize = 8;
    pub const WRITE: usize = 9;
    pub const META: usize = 10;
    pub const MAX_READ: usize = 11;
    pub const MAX_WRITE: usize = 12;
}

/// Places of the integer counters in a record that counts data.
#[derive(Debug, Clone, Copy)]
pub struct Places {
    /// Bytes read; bytes written is the next.
    pub bytes_read: usize,
    /// Changes of direction.
    pub rw_switches: usize,
    /// Size of the slowest read; that of the slowest write is the next.
    pub max_read_time_size: usize,
    /// First of the ten buckets of read sizes; those of writes follow.
    pub size_read: usize,
    /// First word of the four most common accesses, and first of their counts.
    pub access: (usize, usize),
}

/// Counts time that was neither read nor write.
pub fn meta(record: Words<'_>, span: Span) {
    record.spend(time::META, LAST_META_END, span);
}

/// Counts the time of an open. The caller counts the open itself.
pub fn open(record: Words<'_>, span: Span) {
    record.mark(time::OPEN_START, time::OPEN_END, span);
    meta(record, span);
}

/// Counts a close.
pub fn close(record: Words<'_>, span: Span) {
    record.mark(time::CLOSE_START, time::CLOSE_END, span);
    meta(record, span);
}

/// Counts time as writing although no bytes moved: a sync.
pub fn write_time(record: Words<'_>, span: Span) {
    record.spend(time::WRITE, LAST_WRITE_END, span);
}

/// Counts a transfer of `bytes`. [`note_access`] tracks common accesses.
pub fn transfer(record: Words<'_>, places: &Places, direction: Direction, bytes: i64, span: Span) {
    let way = direction as usize;
    record.add(places.bytes_read + way, bytes);
    record.add(places.size_read + way * BUCKETS + bucket(bytes), 1);

    // 0 stands for no transfer yet, so the first one is no switch.
    let this = way as u64 + 1;
    let before = record.state[LAST_DIRECTION].swap(this, Relaxed);
    if before != 0 && before != this {
        record.add(places.rw_switches, 1);
    }

    let (start, end, total, last_end, longest) = match direction {
        Direction::Read => (
            time::READ_START,
            time::READ_END,
            time::READ,
            LAST_READ_END,
            time::MAX_READ,
        ),
        Direction::Write => (
            time::WRITE_START,
            time::WRITE_END,
            time::WRITE,
            LAST_WRITE_END,
            time::MAX_WRITE,
        ),
    };
    record.mark(start, end, span);
    record.spend(total, last_end, span);
    let elapsed = span.end_ns.saturating_sub(span.start_ns);
    if record.times[longest].load(Relaxed) < elapsed {
        record.times[longest].store(elapsed, Relaxed);
        record.set(places.max_read_time_size + way, bytes);
    }
}

/// Notes what a table keeps of a transfer beside its counters: how common the access is (`access[0]` is its bytes), and
/// when the bytes moved. The caller holds the lock of the record.
pub fn note_access(
    table: &Table<'_>,
    record: &Record<'_>,
    direction: Direction,
    access: &[i64],
    span: Span,
    host: &impl Host,
) {
    if let Some(places) = places(record.kind)
        && !record.is_folded()
    {
        record.track(table, 0, places.access, access, 1, host);
    }
    let span = (span.start_ns, span.end_ns);
    heat::note(
        table,
        record.kind,
        record.state(),
        direction,
        access[0],
        span,
    );
}

/// Places of the counters of a kind; `None` if it counts no data.
pub(crate) fn places(kind: Kind) -> Option<&'static Places> {
    match kind {
        Kind::Mpiio => Some(&mpiio::PLACES),
        Kind::H5d => Some(&hdf5::PLACES),
        Kind::PnetcdfVar => Some(&pnetcdf::PLACES),
        _ => None,
    }
}

/// How the time counters of a kind are laid out: `(points, sums)` stands for `points` starts, then as many ends, then
/// `sums` sums.
fn time_groups(kind: Kind) -> (usize, usize) {
    match kind {
        Kind::H5f => (2, 1),
        Kind::PnetcdfFile => (3, 2),
        _ => (4, 3),
    }
}

/// The time counters of a kind that are lengths of time. Those before are points in time; those after are found out
/// when ranks are joined.
pub(crate) fn durations(kind: Kind) -> Range<usize> {
    let (points, sums) = time_groups(kind);
    let longest = if places(kind).is_some() { 2 } else { 0 };
    2 * points..2 * points + sums + longest
}

/// True if this integer counter of a kind adds up over files.
fn adds_up(kind: Kind, counter: usize) -> bool {
    match (kind, places(kind)) {
        (Kind::Mpiio, Some(places)) => {
            counter < places.max_read_time_size && counter != mpiio::MODE
                || is_size(places, counter)
        }
        (_, Some(places)) => counter < places.max_read_time_size || is_size(places, counter),
        (Kind::H5f, None) => counter != hdf5::file::USE_MPIIO,
        _ => true,
    }
}

fn is_size(places: &Places, counter: usize) -> bool {
    (places.size_read..places.size_read + 2 * BUCKETS).contains(&counter)
}

/// Adds a record to that of its directory. Totals stay; what is particular to the file is lost. The caller holds both
/// locks.
pub(crate) fn fold(from: &Record<'_>, into: &Record<'_>) {
    for (counter, (x, y)) in from.ints().iter().zip(into.ints()).enumerate() {
        if adds_up(from.kind, counter) {
            add(y, x.load(Relaxed) as i64);
        }
    }
    let (points, sums) = time_groups(from.kind);
    for (at, (x, y)) in from.times().iter().zip(into.times()).enumerate() {
        let value = x.load(Relaxed);
        if at < points {
            earliest(y, value);
        } else if at < 2 * points {
            latest(y, value);
        } else if at < 2 * points + sums {
            add(y, value as i64);
        } else {
            raise(y, value as i64);
        }
    }
}

/// What the record weighs, see [`track::weight`].
pub(crate) fn weight(record: &Record<'_>) -> u64 {
    let (points, sums) = time_groups(record.kind);
    let bytes = places(record.kind).map_or(0..0, |p| p.bytes_read..p.bytes_read + 2);
    track::weight(
        &record.ints()[bytes],
        &record.times()[2 * points..2 * points + sums],
    )
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::layout::Kind;

    /// A record outside of any table.
    pub struct Alone {
        ints: [AtomicU64; 128],
        times: [AtomicU64; 17],
        state: [AtomicU64; 12],
        kind: Kind,
    }

    impl Alone {
        pub fn new(kind: Kind) -> Self {
            Alone {
                ints: [const { AtomicU64::new(0) }; 128],
                times: [const { AtomicU64::new(0) }; 17],
                state: [const { AtomicU64::new(0) }; 12],
                kind,
            }
        }

        pub fn words(&self) -> Words<'_> {
            let shape = self.kind.shape();
            Words {
                ints: &self.ints[..shape.ints],
                times: &self.times[..shape.times],
                state: &self.state[..shape.state],
            }
        }

        pub fn ints(&self) -> [i64; 128] {
            core::array::from_fn(|at| self.ints[at].load(Relaxed) as i64)
        }

        pub fn times(&self) -> [u64; 17] {
            core::array::from_fn(|at| self.times[at].load(Relaxed))
        }
    }

    pub fn span(start_ns: u64, end_ns: u64) -> Span {
        Span { start_ns, end_ns }
    }

    /// Counters that are all zero but for these.
    pub fn counters(given: &[(usize, i64)]) -> [i64; 128] {
        let mut all = [0; 128];
        for &(at, value) in given {
            all[at] = value;
        }
        all
    }
}
