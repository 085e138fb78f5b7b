//! Where things are in a table. Writer and reader share it; it may change only together with [`MAGIC`].
//!
//! A table is an array of 64-bit words in the byte order of the machine. The header comes first, then the side slots, the heat
//! maps, the busy map, the buckets of the index, the ids of folded files, and the heap. The heap is counted in **cells** of
//! [`CELL_WORDS`] words, from the start of the table; a record and a name are runs of cells.

/// "FBTABLE" and the version of this layout.
pub const MAGIC: u64 = u64::from_le_bytes(*b"FBTABLE4");
/// Words of one cell.
pub const CELL_WORDS: usize = 8;
/// Bytes of one word.
pub const WORD_BYTES: usize = 8;

/// An interface through which a file is used. Each has records of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Kind {
    /// POSIX calls on descriptors.
    Posix = 1,
    /// Streams of C.
    Stdio = 2,
    /// MPI_File.
    Mpiio = 3,
    /// HDF5 files.
    H5f = 4,
    /// HDF5 datasets.
    H5d = 5,
    /// PnetCDF files.
    PnetcdfFile = 6,
    /// PnetCDF variables.
    PnetcdfVar = 7,
}

/// Words of a record behind its head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Integer counters, in Darshan's order.
    pub ints: usize,
    /// Time counters, in Darshan's order. They are nanoseconds; points in time are those of the monotonic clock.
    pub times: usize,
    /// Words that the rules of counting remember; they are no part of a log.
    pub state: usize,
    /// Words of one value whose frequency is tracked: 1, or 11 for the shape of a selection; 0 if none is tracked.
    pub value_words: usize,
    /// How many sets of such values there are: accesses, and strides.
    pub value_sets: usize,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Kind; 7] = [
        Kind::Posix,
        Kind::Stdio,
        Kind::Mpiio,
        Kind::H5f,
        Kind::H5d,
        Kind::PnetcdfFile,
        Kind::PnetcdfVar,
    ];

    /// The kind with this number.
    pub fn from_number(n: u64) -> Option<Kind> {
        Kind::ALL.into_iter().find(|k| *k as u64 == n)
    }

    /// What a record of this kind holds.
    #[inline(always)]
    pub const fn shape(self) -> Shape {
        let (ints, times, state, value_words, value_sets) = match self {
            Kind::Posix => (69, 17, 24, 1, 2),
            Kind::Stdio => (14, 15, 12, 0, 0),
            Kind::Mpiio => (51, 17, 12, 1, 1),
            Kind::H5f => (3, 5, 11, 0, 0),
            Kind::H5d => (94, 17, 12, 11, 1),
            Kind::PnetcdfFile => (9, 8, 11, 0, 0),
            Kind::PnetcdfVar => (120, 17, 12, 11, 1),
        };
        Shape {
            ints,
            times,
            state,
            value_words,
            value_sets,
        }
    }

    /// Cells of a record.
    #[inline(always)]
    pub const fn cells(self) -> usize {
        let s = self.shape();
        (HEAD_WORDS + s.ints + s.times + s.state).div_ceil(CELL_WORDS)
    }
}

// ---- head of a record, in words ----

/// Lock ([`crate::lock`]).
pub const LOCK: usize = 0;
/// Note of the lock: which count was seen held, and when.
pub const LOCK_NOTE: usize = 1;
/// Kind in the lowest byte, flags above.
pub const KIND_FLAGS: usize = 2;
/// Record id.
pub const ID: usize = 3;
/// Next record of the bucket (upper half) and the name (lower half), both as cells.
pub const NEXT_NAME: usize = 4;
/// Open handles that lead to this record. It is not folded while there is one.
pub const HANDLES: usize = 5;
/// How many files were folded into this record.
pub const FILES: usize = 6;
/// Record id of the file that holds this dataset or variable; else 0.
pub const PARENT: usize = 7;
/// Overflow of tracked values, as cells: of the first set (lower half) and of the second.
pub const OVERFLOW: usize = 8;
/// Words before the integer counters.
pub const HEAD_WORDS: usize = 10;

/// Flag: the record stands for files that were folded, or that never had room.
pub const FOLDED: u64 = 1 << 8;
/// Flag: this file was folded before, so a folded record already counts it.
pub const COUNTED_BEFORE: u64 = 1 << 9;
/// Flag: a value could not be tracked for want of memory; the four common values may be wrong.
pub const VALUES_LOST: u64 = 1 << 10;

// ---- first words of the state of every kind ----

/// End of the last read, for timers that do not overlap.
pub const LAST_READ_END: usize = 0;
/// End of the last write.
pub const LAST_WRITE_END: usize = 1;
/// End of the last other call.
pub const LAST_META_END: usize = 2;
/// Direction of the last call: 0 none, 1 read, 2 write.
pub const LAST_DIRECTION: usize = 3;
/// Tick of the heat map to which the next two words belong.
pub const HEAT_TICK: usize = 4;
/// Bytes read in that tick, not yet in the map.
pub const HEAT_READ: usize = 5;
/// Bytes written in that tick.
pub const HEAT_WRITTEN: usize = 6;
/// Tick of the busy map in which the last call of this record ended.
pub const BUSY_TICK: usize = 7;
/// Nanoseconds of calls that are not in the busy map yet, the start of the first of them, and the end of the last one.
pub const BUSY_NS: usize = 8;
/// See [`BUSY_NS`].
pub const BUSY_FROM: usize = 9;
/// See [`BUSY_NS`].
pub const BUSY_TO: usize = 10;
/// Words of state that all kinds share. Those of a single kind follow.
pub const COMMON_STATE: usize = 11;

// ---- name ----

/// Words before the text of a name: its length in bytes, and how many records use it.
pub const NAME_HEAD_WORDS: usize = 2;

// ---- header, in words ----

/// Words of the header.
pub const HEADER_WORDS: usize = 1024;

/// Names of the words of the header, one after the other.
macro_rules! words {
    ($from:expr; $($(#[$doc:meta])* $name:ident : $len:expr),* $(,)?) => {
        words!(@ $from; $($(#[$doc])* $name : $len,)*);
    };
    (@ $at:expr; $(#[$doc:meta])* $name:ident : $len:expr, $($rest:tt)*) => {
        $(#[$doc])*
        pub const $name: usize = $at;
        words!(@ $name + $len; $($rest)*);
    };
    (@ $at:expr;) => {
        const _: () = assert!($at <= HEADER_WORDS);
    };
}

words! { 0;
    /// [`MAGIC`], written last, when the table is ready.
    H_MAGIC: 1,
    /// Words of the whole table.
    H_WORDS: 1,
    /// Process id.
    H_PID: 1,
    /// Process id of the parent when the table began.
    H_PPID: 1,
    /// Start of the process, clock ticks since boot.
    H_START_TICKS: 1,
    /// Number of this table among those of the process, from 0.
    H_SERIAL: 1,
    /// What began the table: 0 a program, 1 a fork.
    H_ORIGIN: 1,
    /// Real user.
    H_UID: 1,
    /// CLOCK_REALTIME at the start, ns.
    H_START_REALTIME: 1,
    /// CLOCK_MONOTONIC at the same moment, ns.
    H_START_MONOTONIC: 1,
    /// Rank + 1; 0 unknown.
    H_RANK: 1,
    /// Number of ranks; 0 unknown.
    H_RANKS: 1,
    /// Where the rank is from: 1 MPI, 2 the environment.
    H_RANK_SOURCE: 1,
    /// How the process ended, see [`crate::read::End`].
    H_END: 1,
    /// Exit code or signal.
    H_END_CODE: 1,
    /// CLOCK_MONOTONIC at the end or, while the process runs, at the last look at /proc/self/io.
    H_LAST: 1,
    /// The seven figures of /proc/self/io at the start of the table.
    H_IO_FIRST: 7,
    /// The same at the last look.
    H_IO_LAST: 7,
    /// Bytes that the recorder itself has read in this program. They are in no figure above, but in the kernel's count of the process.
    H_OWN_READ: 1,
    /// 1 once a second thread has made calls.
    H_THREADS: 1,
    /// The lock of the structure (heap, index, names), and its note.
    H_LOCK: 2,
    /// Next cell of the heap that was never used.
    H_HEAP_NEXT: 1,
    /// First cell of the heap.
    H_HEAP_FIRST: 1,
    /// First cell that is not backed by memory.
    H_HEAP_BACKED: 1,
    /// Cell behind the heap. It moves down once memory has run out.
    H_HEAP_END: 1,
    /// First word of the buckets.
    H_BUCKETS: 1,
    /// Number of buckets, a power of two.
    H_BUCKET_COUNT: 1,
    /// First word of the ids of folded files.
    H_FOLDED: 1,
    /// How many ids there is room for.
    H_FOLDED_ROOM: 1,
    /// How many ids there are.
    H_FOLDED_COUNT: 1,
    /// 1 once that room is backed by memory, 2 if there was none for it.
    H_FOLDED_BACKED: 1,
    /// Records that stand for folded files.
    H_FOLDED_RECORDS: 1,
    /// Where the next search for a file to fold begins.
    H_HAND: 1,
    /// Files that may have been counted twice, because [`H_FOLDED_ROOM`] was full.
    H_UNSURE_FILES: 1,
    /// Side slots in use.
    H_PENDING: 1,
    /// Events that found neither their record nor a side slot: [`crate::read::Totals`].
    H_UNPLACED: 8,
    /// Traffic on paths that are left out.
    H_EXCLUDED: 8,
    /// Traffic on pipes, sockets and terminals.
    H_NO_FILES: 8,
    /// Calls and nanoseconds of [`crate::event::Extra`].
    H_EXTRAS: 64,
    /// Free runs of cells, by length.
    H_FREE: 80,
    /// Host name.
    H_HOSTNAME: 8,
    /// What the launcher calls the job.
    H_JOB_KEY: 8,
    /// Executable.
    H_EXE: 128,
    /// Arguments, each closed with a NUL.
    H_ARGS: 384,
    /// Working directory at the start.
    H_CWD: 128,
    /// How often a thread found at the end of a change that another had taken its lock over.
    H_OVERLAPS: 1,
    /// The thread that took [`H_LOCK`] last and still has it, 0 if there is none; and the count of that lock for whose end somebody
    /// has waited in vain.
    H_LOCK_HOLDER: 2,
}

/// Words of [`H_HOSTNAME`] and [`H_JOB_KEY`].
pub const SHORT_TEXT_WORDS: usize = 8;
/// Words of [`H_EXE`] and [`H_CWD`].
pub const PATH_TEXT_WORDS: usize = 128;
/// Words of [`H_ARGS`].
pub const ARGS_TEXT_WORDS: usize = 384;
/// Longest free run that is kept, in cells.
pub const MAX_FREE_CELLS: usize = 79;

// ---- fixed parts behind the header ----

/// Side slots.
pub const PENDING_SLOTS: usize = 64;
/// Words of a side slot.
pub const PENDING_WORDS: usize = 8;
/// First word of the side slots.
pub const PENDING_AT: usize = HEADER_WORDS;
/// Heat maps: POSIX, MPI-IO, STDIO.
pub const HEAT_MAPS: usize = 3;
/// Bins of a heat map.
pub const HEAT_BINS: usize = 200;
/// Words before the bins of a map over time: lock, note, shift.
pub const MAP_HEAD_WORDS: usize = 8;
/// Words of a heat map.
pub const HEAT_WORDS: usize = MAP_HEAD_WORDS + 2 * HEAT_BINS;
/// First word of the heat maps.
pub const HEAT_AT: usize = PENDING_AT + PENDING_SLOTS * PENDING_WORDS;
/// Rows of the busy map: POSIX and calls on names, STDIO, MPI-IO.
pub const BUSY_ROWS: usize = 3;
/// Bins of the busy map.
pub const BUSY_BINS: usize = 256;
/// First word of the busy map.
pub const BUSY_AT: usize = HEAT_AT + HEAT_MAPS * HEAT_WORDS;
/// First word behind the fixed parts.
pub const FIXED_WORDS: usize = BUSY_AT + MAP_HEAD_WORDS + BUSY_ROWS * BUSY_BINS;

/// Least size of a table.
pub const MIN_TABLE_BYTES: usize = 64 << 10;
/// Largest size of a table: a cell's number fits in 32 bits with much to spare.
pub const MAX_TABLE_BYTES: usize = 1 << 30;
/// One part in this many of a table is kept for the ids of folded files.
pub const FOLDED_SHARE: usize = 4;
/// Bytes of a table per bucket.
pub const BYTES_PER_BUCKET: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_of_posix_takes_little_more_than_its_counters() {
        assert_eq!(Kind::Posix.cells() * CELL_WORDS * WORD_BYTES, 960);
    }

    #[test]
    fn every_kind_finds_itself_by_number() {
        for kind in Kind::ALL {
            assert_eq!(Kind::from_number(kind as u64), Some(kind));
        }
        assert_eq!(Kind::from_number(0), None);
        assert_eq!(Kind::from_number(99), None);
    }
}
