//! Counters of the POSIX interface, as Darshan defines them.
//!
//! Three rules are more exact than Darshan's own library. Offsets are those of the descriptor; Darshan keeps one per
//! file. Appended bytes are counted where they landed. What `copy_file_range` and its kin move is counted as reads and
//! writes.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::busy;
use crate::event::{CREATED, DIRECT, Event, MEMORY_NOT_ALIGNED, Op, SYNCED, WAS_THERE};
use crate::heat::{self, Direction};
use crate::layout::{
    COMMON_STATE, Kind, LAST_DIRECTION, LAST_META_END, LAST_READ_END, LAST_WRITE_END,
};
use crate::record::SizedWords;
use crate::table::{Host, Record, Table};
use crate::track::{self, add, bucket, earliest, latest, raise, timer};

/// Integer counters.
pub const INTS: usize = Kind::Posix.shape().ints;
/// Time counters.
pub const TIMES: usize = Kind::Posix.shape().times;

// Indices of the integer counters.
/// `OPENS`, with `FILENOS` and `DUPS`.
pub const OPENS: usize = 0;
/// `FILENOS`.
pub const FILENOS: usize = 1;
/// `DUPS`.
pub const DUPS: usize = 2;
/// `READS`.
pub const READS: usize = 3;
/// `WRITES`.
pub const WRITES: usize = 4;
/// `SEEKS`.
pub const SEEKS: usize = 5;
/// `STATS`.
pub const STATS: usize = 6;
/// `MMAPS`.
pub const MMAPS: usize = 7;
/// `FSYNCS`.
pub const FSYNCS: usize = 8;
/// `FDSYNCS`.
pub const FDSYNCS: usize = 9;
/// `RENAME_SOURCES`.
pub const RENAME_SOURCES: usize = 10;
/// `RENAME_TARGETS`.
pub const RENAME_TARGETS: usize = 11;
/// `RENAMED_FROM`, a record id.
pub const RENAMED_FROM: usize = 12;
/// `MODE`.
pub const MODE: usize = 13;
/// `BYTES_READ`.
pub const BYTES_READ: usize = 14;
/// `BYTES_WRITTEN`.
pub const BYTES_WRITTEN: usize = 15;
/// `MAX_BYTE_READ`.
pub const MAX_BYTE_READ: usize = 16;
/// `MAX_BYTE_WRITTEN`.
pub const MAX_BYTE_WRITTEN: usize = 17;
/// `CONSEC_READS`.
pub const CONSEC_READS: usize = 18;
/// `CONSEC_WRITES`.
pub const CONSEC_WRITES: usize = 19;
/// `SEQ_READS`.
pub const SEQ_READS: usize = 20;
/// `SEQ_WRITES`.
pub const SEQ_WRITES: usize = 21;
/// `RW_SWITCHES`.
pub const RW_SWITCHES: usize = 22;
/// `MEM_NOT_ALIGNED`.
pub const MEM_NOT_ALIGNED: usize = 23;
/// `MEM_ALIGNMENT`.
pub const MEM_ALIGNMENT: usize = 24;
/// `FILE_NOT_ALIGNED`.
pub const FILE_NOT_ALIGNED: usize = 25;
/// `FILE_ALIGNMENT`.
pub const FILE_ALIGNMENT: usize = 26;
/// `MAX_READ_TIME_SIZE`.
pub const MAX_READ_TIME_SIZE: usize = 27;
/// `MAX_WRITE_TIME_SIZE`.
pub const MAX_WRITE_TIME_SIZE: usize = 28;
/// `SIZE_READ_0_100` and nine more.
pub const SIZE_READ: usize = 29;
/// `SIZE_WRITE_0_100` and nine more.
pub const SIZE_WRITE: usize = 39;
/// `STRIDE1_STRIDE` and three more.
pub const STRIDE: usize = 49;
/// `STRIDE1_COUNT` and three more.
pub const STRIDE_COUNT: usize = 53;
/// `ACCESS1_ACCESS` and three more.
pub const ACCESS: usize = 57;
/// `ACCESS1_COUNT` and three more.
pub const ACCESS_COUNT: usize = 61;

// Indices of the time counters.
/// `F_OPEN_START_TIMESTAMP`.
pub const OPEN_START: usize = 0;
/// `F_READ_START_TIMESTAMP`.
pub const READ_START: usize = 1;
/// `F_WRITE_START_TIMESTAMP`.
pub const WRITE_START: usize = 2;
/// `F_CLOSE_START_TIMESTAMP`.
pub const CLOSE_START: usize = 3;
/// `F_OPEN_END_TIMESTAMP`.
pub const OPEN_END: usize = 4;
/// `F_READ_END_TIMESTAMP`.
pub const READ_END: usize = 5;
/// `F_WRITE_END_TIMESTAMP`.
pub const WRITE_END: usize = 6;
/// `F_CLOSE_END_TIMESTAMP`.
pub const CLOSE_END: usize = 7;
/// `F_READ_TIME`.
pub const READ_TIME: usize = 8;
/// `F_WRITE_TIME`.
pub const WRITE_TIME: usize = 9;
/// `F_META_TIME`.
pub const META_TIME: usize = 10;
/// `F_MAX_READ_TIME`.
pub const MAX_READ_TIME: usize = 11;
/// `F_MAX_WRITE_TIME`.
pub const MAX_WRITE_TIME: usize = 12;

// What the rules remember.
/// Last byte of the last read.
const LAST_BYTE_READ: usize = COMMON_STATE;
const LAST_BYTE_WRITTEN: usize = COMMON_STATE + 1;
/// Size at the first open + 1; 0 unknown.
pub const SIZE_AT_OPEN: usize = COMMON_STATE + 2;
/// 1: the file was not there before its first open; 2: it was; 0 unknown.
pub const BEFORE: usize = COMMON_STATE + 3;
/// Bytes mapped by `mmap`.
pub const MAPPED_BYTES: usize = COMMON_STATE + 4;
/// Calls and bytes of `copy_file_range` and its kin that read this file.
pub const COPIED_OUT: usize = COMMON_STATE + 5;
/// Calls and bytes of the same calls that wrote this file.
pub const COPIED_IN: usize = COMMON_STATE + 7;
/// The part of `F_WRITE_TIME` that `fsync` and `fdatasync` took.
pub const SYNC_TIME: usize = COMMON_STATE + 9;
/// Writes by descriptors with `O_SYNC` or `O_DSYNC`.
pub const SYNCED_WRITES: usize = COMMON_STATE + 10;
/// The part of `F_WRITE_TIME` that these took.
pub const SYNCED_WRITE_TIME: usize = COMMON_STATE + 11;
/// Reads and writes by descriptors with `O_DIRECT`.
pub const DIRECT_REQUESTS: usize = COMMON_STATE + 12;
const STATE_WORDS: usize = COMMON_STATE + 13;
const _: () = assert!(STATE_WORDS <= Kind::Posix.shape().state);

/// Memory at a multiple of this counts as aligned, as with Darshan by default.
pub const MEMORY_ALIGNMENT: u64 = 8;

type Words<'t> = SizedWords<'t, INTS, TIMES, { Kind::Posix.shape().state }>;

/// Counts one call. The caller holds the lock of the record.
#[inline(always)]
pub fn apply(table: &Table<'_>, record: &Record<'_>, event: &Event, host: &impl Host) {
    let Some(w) = Words::of(record) else {
        return;
    };
    let (start, end) = (event.start_ns, event.end_ns);
    busy::note(table, record, w.state, (start, end));
    match event.op {
        Op::Read => transfer::<true>(table, record, &w, event, host),
        Op::Write => transfer::<false>(table, record, &w, event, host),
        Op::Open | Op::Dup | Op::Number => open(&w, event),
        Op::Close => {
            earliest(&w.times[CLOSE_START], start);
            latest(&w.times[CLOSE_END], end);
            meta(&w, start, end);
        }
        Op::Seek => {
            add(&w.ints[SEEKS], 1);
            meta(&w, start, end);
        }
        Op::Stat => {
            add(&w.ints[STATS], 1);
            meta(&w, start, end);
        }
        Op::Sync | Op::DataSync => {
            let counter = if event.op == Op::Sync {
                FSYNCS
            } else {
                FDSYNCS
            };
            add(&w.ints[counter], 1);
            earliest(&w.times[WRITE_START], start);
            latest(&w.times[WRITE_END], end);
            let took = timer(&w.times[WRITE_TIME], &w.state[LAST_WRITE_END], start, end);
            add(&w.state[SYNC_TIME], took as i64);
        }
        Op::Map => {
            add(&w.ints[MMAPS], 1);
            add(&w.state[MAPPED_BYTES], event.bytes);
            meta(&w, start, end);
        }
        Op::RenameSource => {
            add(&w.ints[RENAME_SOURCES], 1);
            meta(&w, start, end);
        }
        Op::RenameTarget => {
            add(&w.ints[RENAME_TARGETS], 1);
            w.ints[RENAMED_FROM].store(event.aux, Relaxed);
            meta(&w, start, end);
        }
        Op::CopyOut => {
            add(&w.state[COPIED_OUT], 1);
            add(&w.state[COPIED_OUT + 1], event.bytes);
            transfer::<true>(table, record, &w, event, host);
        }
        Op::CopyIn => {
            add(&w.state[COPIED_IN], 1);
            add(&w.state[COPIED_IN + 1], event.bytes);
            transfer::<false>(table, record, &w, event, host);
        }
    }
}

#[inline(always)]
fn meta(w: &Words<'_>, start: u64, end: u64) {
    timer(&w.times[META_TIME], &w.state[LAST_META_END], start, end);
}

fn open(w: &Words<'_>, event: &Event) {
    add(&w.ints[OPENS], 1);
    match event.op {
        Op::Dup => add(&w.ints[DUPS], 1),
        Op::Number => add(&w.ints[FILENOS], 1),
        _ => {
            facts(w, event);
            earliest(&w.times[OPEN_START], event.start_ns);
            latest(&w.times[OPEN_END], event.end_ns);
        }
    }
    if w.times[OPEN_START].load(Relaxed) == 0 {
        earliest(&w.times[OPEN_START], event.start_ns);
        latest(&w.times[OPEN_END], event.end_ns);
    }
    meta(w, event.start_ns, event.end_ns);
}

/// Notes what an open tells of the file itself.
fn facts(w: &Words<'_>, event: &Event) {
    let mode = event.aux >> 32 & 0xffff;
    if mode != 0 {
        w.ints[MODE].store(mode, Relaxed);
    }
    let alignment = event.aux & u64::from(u32::MAX);
    if alignment != 0 {
        w.ints[FILE_ALIGNMENT].store(alignment, Relaxed);
    }
    w.ints[MEM_ALIGNMENT].store(MEMORY_ALIGNMENT, Relaxed);
    if w.state[SIZE_AT_OPEN].load(Relaxed) == 0 && event.offset >= 0 {
        w.state[SIZE_AT_OPEN].store((event.offset as u64).wrapping_add(1), Relaxed);
    }
    if w.state[BEFORE].load(Relaxed) == 0 {
        let before = match event.aux {
            aux if aux & CREATED != 0 => 1,
            aux if aux & WAS_THERE != 0 => 2,
            _ => 0,
        };
        w.state[BEFORE].store(before, Relaxed);
    }
}

/// The word of `FILE_ALIGNMENT`.
pub(crate) fn alignment<'t>(record: &Record<'t>) -> Option<&'t AtomicU64> {
    Words::of(record).map(|words| &words.ints[FILE_ALIGNMENT])
}

/// Counter indices of one direction.
struct Side {
    count: usize,
    bytes: usize,
    max_byte: usize,
    consecutive: usize,
    sequential: usize,
    sizes: usize,
    slowest_size: usize,
    start: usize,
    end: usize,
    time: usize,
    slowest: usize,
    last_byte: usize,
    last_end: usize,
    direction: u64,
    heat: Direction,
}

const READ_SIDE: Side = Side {
    count: READS,
    bytes: BYTES_READ,
    max_byte: MAX_BYTE_READ,
    consecutive: CONSEC_READS,
    sequential: SEQ_READS,
    sizes: SIZE_READ,
    slowest_size: MAX_READ_TIME_SIZE,
    start: READ_START,
    end: READ_END,
    time: READ_TIME,
    slowest: MAX_READ_TIME,
    last_byte: LAST_BYTE_READ,
    last_end: LAST_READ_END,
    direction: 1,
    heat: Direction::Read,
};

const WRITE_SIDE: Side = Side {
    count: WRITES,
    bytes: BYTES_WRITTEN,
    max_byte: MAX_BYTE_WRITTEN,
    consecutive: CONSEC_WRITES,
    sequential: SEQ_WRITES,
    sizes: SIZE_WRITE,
    slowest_size: MAX_WRITE_TIME_SIZE,
    start: WRITE_START,
    end: WRITE_END,
    time: WRITE_TIME,
    slowest: MAX_WRITE_TIME,
    last_byte: LAST_BYTE_WRITTEN,
    last_end: LAST_WRITE_END,
    direction: 2,
    heat: Direction::Write,
};

#[inline(always)]
fn transfer<const READ: bool>(
    table: &Table<'_>,
    record: &Record<'_>,
    w: &Words<'_>,
    event: &Event,
    host: &impl Host,
) {
    let side = const { if READ { &READ_SIDE } else { &WRITE_SIDE } };
    let (offset, bytes) = (event.offset, event.bytes);
    let (start, end) = (event.start_ns, event.end_ns);
    add(&w.ints[side.count], 1);
    add(&w.ints[side.bytes], bytes);
    add(&w.ints[side.sizes + bucket(bytes)], 1);
    raise(
        &w.ints[side.max_byte],
        offset.wrapping_add(bytes).wrapping_sub(1),
    );
    if event.aux & MEMORY_NOT_ALIGNED != 0 {
        add(&w.ints[MEM_NOT_ALIGNED], 1);
    }
    let alignment = w.ints[FILE_ALIGNMENT].load(Relaxed);
    if !is_aligned(offset, alignment) {
        add(&w.ints[FILE_NOT_ALIGNED], 1);
    }
    // The accesses of several files have no common order.
    if !record.is_folded() {
        order(table, record, w, side, event, host);
    }
    record.track(table, 0, (ACCESS, ACCESS_COUNT), &[bytes], 1, host);
    earliest(&w.times[side.start], start);
    latest(&w.times[side.end], end);
    let took = end.saturating_sub(start);
    if took > w.times[side.slowest].load(Relaxed) {
        w.times[side.slowest].store(took, Relaxed);
        w.ints[side.slowest_size].store(bytes as u64, Relaxed);
    }
    let took = timer(&w.times[side.time], &w.state[side.last_end], start, end);
    if event.aux & (SYNCED | DIRECT) != 0 {
        uncached::<READ>(w, event.aux, took);
    }
    heat::note(table, Kind::Posix, w.state, side.heat, bytes, (start, end));
}

/// Counts a request that does not end in memory; `took` is its part of the time.
#[cold]
fn uncached<const READ: bool>(w: &Words<'_>, aux: u64, took: u64) {
    if aux & DIRECT != 0 {
        add(&w.state[DIRECT_REQUESTS], 1);
    }
    if aux & SYNCED != 0 && !READ {
        add(&w.state[SYNCED_WRITES], 1);
        add(&w.state[SYNCED_WRITE_TIME], took as i64);
    }
}

#[inline(always)]
fn is_aligned(offset: i64, alignment: u64) -> bool {
    if alignment.is_power_of_two() {
        offset as u64 & (alignment - 1) == 0
    } else {
        alignment == 0 || (offset as u64).is_multiple_of(alignment)
    }
}

/// Counts sequential and consecutive accesses, strides, and changes of direction.
#[inline(always)]
fn order(
    table: &Table<'_>,
    record: &Record<'_>,
    w: &Words<'_>,
    side: &Side,
    event: &Event,
    host: &impl Host,
) {
    let offset = event.offset;
    let last_byte = w.state[side.last_byte].load(Relaxed) as i64;
    if offset > last_byte {
        add(&w.ints[side.sequential], 1);
    }
    let next = last_byte.wrapping_add(1);
    if offset == next {
        add(&w.ints[side.consecutive], 1);
    }
    if offset > next && last_byte != 0 {
        let stride = offset.wrapping_sub(next);
        record.track(table, 1, (STRIDE, STRIDE_COUNT), &[stride], 1, host);
    }
    w.state[side.last_byte].store(
        offset.wrapping_add(event.bytes).wrapping_sub(1) as u64,
        Relaxed,
    );
    let before = w.state[LAST_DIRECTION].load(Relaxed);
    if before != side.direction {
        if before != 0 {
            add(&w.ints[RW_SWITCHES], 1);
        }
        w.state[LAST_DIRECTION].store(side.direction, Relaxed);
    }
}

/// Adds the record of a file to that of its directory. The caller holds both locks.
pub fn fold(table: &Table<'_>, from: &Record<'_>, into: &Record<'_>, host: &impl Host) {
    let (Some(a), Some(b)) = (Words::of(from), Words::of(into)) else {
        return;
    };
    for (i, (x, y)) in a.ints.iter().zip(b.ints).enumerate() {
        let value = x.load(Relaxed) as i64;
        match i {
            MODE | MEM_ALIGNMENT | FILE_ALIGNMENT | RENAMED_FROM => {
                if y.load(Relaxed) == 0 {
                    y.store(value as u64, Relaxed);
                }
            }
            MAX_BYTE_READ | MAX_BYTE_WRITTEN => raise(y, value),
            MAX_READ_TIME_SIZE | MAX_WRITE_TIME_SIZE => {}
            _ if i >= STRIDE => {}
            _ => add(y, value),
        }
    }
    for (time, size) in [
        (MAX_READ_TIME, MAX_READ_TIME_SIZE),
        (MAX_WRITE_TIME, MAX_WRITE_TIME_SIZE),
    ] {
        let value = a.times[time].load(Relaxed);
        if value > b.times[time].load(Relaxed) {
            b.times[time].store(value, Relaxed);
            b.ints[size].store(a.ints[size].load(Relaxed), Relaxed);
        }
    }
    for i in [OPEN_START, READ_START, WRITE_START, CLOSE_START] {
        earliest(&b.times[i], a.times[i].load(Relaxed));
    }
    for i in [OPEN_END, READ_END, WRITE_END, CLOSE_END] {
        latest(&b.times[i], a.times[i].load(Relaxed));
    }
    for i in [READ_TIME, WRITE_TIME, META_TIME] {
        add(&b.times[i], a.times[i].load(Relaxed) as i64);
    }
    for i in MAPPED_BYTES..STATE_WORDS {
        add(&b.state[i], a.state[i].load(Relaxed) as i64);
    }
    for (set, places) in [(0, (ACCESS, ACCESS_COUNT)), (1, (STRIDE, STRIDE_COUNT))] {
        from.tracked(table, set, places, 1, |value, count| {
            let value = value[0].load(Relaxed) as i64;
            into.track(table, set, places, &[value], count, host);
        });
    }
}

/// What the record weighs, see [`track::weight`].
pub fn weight(record: &Record<'_>) -> u64 {
    track::weight(
        &record.ints()[BYTES_READ..=BYTES_WRITTEN],
        &record.times()[READ_TIME..=META_TIME],
    )
}
