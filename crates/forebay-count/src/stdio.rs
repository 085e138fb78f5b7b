//! Counters of streams, as Darshan defines them.

use core::sync::atomic::Ordering::Relaxed;

use crate::busy;
use crate::event::{Event, Op};
use crate::heat::{self, Direction};
use crate::layout::{COMMON_STATE, Kind, LAST_META_END, LAST_READ_END, LAST_WRITE_END};
use crate::record::SizedWords;
use crate::table::{Record, Table};
use crate::track::{self, add, earliest, latest, raise, timer};

/// Integer counters.
pub const INTS: usize = Kind::Stdio.shape().ints;
/// Time counters.
pub const TIMES: usize = Kind::Stdio.shape().times;

// Indices of the integer counters.
/// `OPENS`, with `FDOPENS`.
pub const OPENS: usize = 0;
/// `FDOPENS`.
pub const FDOPENS: usize = 1;
/// `READS`.
pub const READS: usize = 2;
/// `WRITES`.
pub const WRITES: usize = 3;
/// `SEEKS`.
pub const SEEKS: usize = 4;
/// `FLUSHES`.
pub const FLUSHES: usize = 5;
/// `BYTES_WRITTEN`.
pub const BYTES_WRITTEN: usize = 6;
/// `BYTES_READ`.
pub const BYTES_READ: usize = 7;
/// `MAX_BYTE_READ`.
pub const MAX_BYTE_READ: usize = 8;
/// `MAX_BYTE_WRITTEN`.
pub const MAX_BYTE_WRITTEN: usize = 9;

// Indices of the time counters.
/// `F_META_TIME`.
pub const META_TIME: usize = 0;
/// `F_WRITE_TIME`.
pub const WRITE_TIME: usize = 1;
/// `F_READ_TIME`.
pub const READ_TIME: usize = 2;
/// `F_OPEN_START_TIMESTAMP`.
pub const OPEN_START: usize = 3;
/// `F_CLOSE_START_TIMESTAMP`.
pub const CLOSE_START: usize = 4;
/// `F_WRITE_START_TIMESTAMP`.
pub const WRITE_START: usize = 5;
/// `F_READ_START_TIMESTAMP`.
pub const READ_START: usize = 6;
/// `F_OPEN_END_TIMESTAMP`.
pub const OPEN_END: usize = 7;
/// `F_CLOSE_END_TIMESTAMP`.
pub const CLOSE_END: usize = 8;
/// `F_WRITE_END_TIMESTAMP`.
pub const WRITE_END: usize = 9;
/// `F_READ_END_TIMESTAMP`.
pub const READ_END: usize = 10;

/// Size at the first open + 1; 0 unknown.
pub const SIZE_AT_OPEN: usize = COMMON_STATE;
const _: () = assert!(COMMON_STATE < Kind::Stdio.shape().state);

type Words<'t> = SizedWords<'t, INTS, TIMES, { Kind::Stdio.shape().state }>;

/// Counts one call. The caller holds the lock of the record.
#[inline(always)]
pub fn apply(table: &Table<'_>, record: &Record<'_>, event: &Event) {
    let Some(w) = Words::of(record) else {
        return;
    };
    let (start, end) = (event.start_ns, event.end_ns);
    busy::note(table, record, w.state, (start, end));
    match event.op {
        Op::Read | Op::CopyOut => {
            add(&w.ints[READS], 1);
            add(&w.ints[BYTES_READ], event.bytes);
            raise(
                &w.ints[MAX_BYTE_READ],
                event.offset.wrapping_add(event.bytes).wrapping_sub(1),
            );
            earliest(&w.times[READ_START], start);
            latest(&w.times[READ_END], end);
            timer(&w.times[READ_TIME], &w.state[LAST_READ_END], start, end);
            heat::note(
                table,
                Kind::Stdio,
                w.state,
                Direction::Read,
                event.bytes,
                (start, end),
            );
        }
        Op::Write | Op::CopyIn => {
            add(&w.ints[WRITES], 1);
            add(&w.ints[BYTES_WRITTEN], event.bytes);
            raise(
                &w.ints[MAX_BYTE_WRITTEN],
                event.offset.wrapping_add(event.bytes).wrapping_sub(1),
            );
            written(&w, start, end);
            heat::note(
                table,
                Kind::Stdio,
                w.state,
                Direction::Write,
                event.bytes,
                (start, end),
            );
        }
        Op::Sync | Op::DataSync => {
            add(&w.ints[FLUSHES], 1);
            written(&w, start, end);
        }
        Op::Open | Op::Number | Op::Dup => {
            add(&w.ints[OPENS], 1);
            if event.op == Op::Number {
                add(&w.ints[FDOPENS], 1);
            }
            if w.state[SIZE_AT_OPEN].load(Relaxed) == 0 && event.offset >= 0 {
                w.state[SIZE_AT_OPEN].store((event.offset as u64).wrapping_add(1), Relaxed);
            }
            earliest(&w.times[OPEN_START], start);
            latest(&w.times[OPEN_END], end);
            meta(&w, start, end);
        }
        Op::Close => {
            earliest(&w.times[CLOSE_START], start);
            latest(&w.times[CLOSE_END], end);
            meta(&w, start, end);
        }
        Op::Seek => {
            add(&w.ints[SEEKS], 1);
            meta(&w, start, end);
        }
        Op::Stat | Op::Map | Op::RenameSource | Op::RenameTarget => {}
    }
}

fn written(w: &Words<'_>, start: u64, end: u64) {
    earliest(&w.times[WRITE_START], start);
    latest(&w.times[WRITE_END], end);
    timer(&w.times[WRITE_TIME], &w.state[LAST_WRITE_END], start, end);
}

fn meta(w: &Words<'_>, start: u64, end: u64) {
    timer(&w.times[META_TIME], &w.state[LAST_META_END], start, end);
}

/// Adds the record of a file to that of its directory. The caller holds both locks.
pub fn fold(from: &Record<'_>, into: &Record<'_>) {
    let (Some(a), Some(b)) = (Words::of(from), Words::of(into)) else {
        return;
    };
    for (i, (x, y)) in a
        .ints
        .iter()
        .zip(b.ints)
        .enumerate()
        .take(MAX_BYTE_WRITTEN + 1)
    {
        let value = x.load(Relaxed) as i64;
        match i {
            MAX_BYTE_READ | MAX_BYTE_WRITTEN => raise(y, value),
            _ => add(y, value),
        }
    }
    for (i, (x, y)) in a.times.iter().zip(b.times).enumerate() {
        let value = x.load(Relaxed);
        match i {
            META_TIME | WRITE_TIME | READ_TIME => add(y, value as i64),
            OPEN_START | CLOSE_START | WRITE_START | READ_START => earliest(y, value),
            OPEN_END | CLOSE_END | WRITE_END | READ_END => latest(y, value),
            _ => {}
        }
    }
}

/// What the record weighs, see [`track::weight`].
pub fn weight(record: &Record<'_>) -> u64 {
    track::weight(
        &record.ints()[BYTES_WRITTEN..=BYTES_READ],
        &record.times()[META_TIME..=READ_TIME],
    )
}
