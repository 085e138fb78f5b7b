//! The counters of an MPI-IO record: Darshan's MPI-IO module, version 3.

use crate::heat::Direction;
use crate::library::{self, Places, Span, Words};

const INDEP_OPENS: usize = 0;
const COLL_OPENS: usize = 1;
const SYNCS: usize = 10;
const HINTS: usize = 11;
const VIEWS: usize = 12;
pub(crate) const MODE: usize = 13;

pub(crate) const PLACES: Places = Places {
    bytes_read: 14,
    rw_switches: 16,
    max_read_time_size: 17,
    size_read: 19,
    access: (39, 43),
};

/// The kinds of reads and writes that have counters of their own. The discriminant is the counter of reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// By one process: plain, at an offset, or at the shared pointer.
    Independent = 2,
    /// By all: `_all`, `_at_all`, `_ordered`.
    Collective = 4,
    /// `_begin` of a split collective.
    Split = 6,
    /// `i...`, independent or collective; counted when it starts.
    NonBlocking = 8,
}

/// Counts `MPI_File_open` on a communicator of `processes` with access mode `amode`; `hints` is true if it came with
/// an info object.
pub fn open(record: Words<'_>, processes: i32, amode: i32, hints: bool, span: Span) {
    record.add(
        if processes == 1 {
            INDEP_OPENS
        } else {
            COLL_OPENS
        },
        1,
    );
    record.set(MODE, i64::from(amode));
    record.add(HINTS, i64::from(hints));
    library::open(record, span);
}

/// Counts `MPI_File_close`.
pub fn close(record: Words<'_>, span: Span) {
    library::close(record, span);
}

/// Counts `MPI_File_sync`. Its time is time spent writing.
pub fn sync(record: Words<'_>, span: Span) {
    record.add(SYNCS, 1);
    library::write_time(record, span);
}

/// Counts `MPI_File_set_view`. Its time counts only if it came with hints, as Darshan's format has it.
pub fn set_view(record: Words<'_>, hints: bool, span: Span) {
    record.add(VIEWS, 1);
    if hints {
        record.add(HINTS, 1);
        library::meta(record, span);
    }
}

/// Counts a read or a write of `bytes`, this process' part of the call.
pub fn transfer(record: Words<'_>, mode: Mode, direction: Direction, bytes: i64, span: Span) {
    record.add(mode as usize + direction as usize, 1);
    library::transfer(record, &PLACES, direction, bytes, span);
}

/// Bytes of `count` elements of `type_size` bytes; 0 if the size is none (a null type, `MPI_UNDEFINED`).
pub fn bytes(count: i64, type_size: i64) -> i64 {
    count.max(0).saturating_mul(type_size.max(0))
}

/// Names of file systems that may stand before a path and a colon.
const FILE_SYSTEMS: [&[u8]; 17] = [
    b"ufs",
    b"nfs",
    b"xfs",
    b"lustre",
    b"gpfs",
    b"pfs",
    b"pvfs",
    b"pvfs2",
    b"panfs",
    b"daos",
    b"ime",
    b"testfs",
    b"sfs",
    b"hfs",
    b"piofs",
    b"zoidfs",
    b"bglockless",
];

/// The path in a file name for MPI, without the prefix by which ROMIO knows a file system (`ufs:/scratch/x`).
pub fn path(name: &[u8]) -> &[u8] {
    match name.iter().position(|&b| b == b':') {
        Some(colon) if FILE_SYSTEMS.contains(&&name[..colon]) => &name[colon + 1..],
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Kind;
    use crate::library::tests::{Alone, counters, span};

    #[test]
    fn every_call_finds_its_counter() {
        let record = Alone::new(Kind::Mpiio);
        let words = record.words();
        open(words, 4, 9, true, span(10, 20));
        set_view(words, false, span(20, 30));
        transfer(
            words,
            Mode::Collective,
            Direction::Write,
            4096,
            span(30, 40),
        );
        transfer(
            words,
            Mode::NonBlocking,
            Direction::Write,
            100,
            span(40, 45),
        );
        transfer(words, Mode::Split, Direction::Read, 4096, span(50, 70));
        sync(words, span(70, 80));
        close(words, span(80, 85));
        let modes = [
            (COLL_OPENS, 1),
            (5, 1),
            (6, 1),
            (9, 1),
            (SYNCS, 1),
            (HINTS, 1),
            (VIEWS, 1),
            (MODE, 9),
        ];
        let data = [
            (14, 4096),
            (15, 4196),
            (16, 1),
            (17, 4096),
            (18, 4096),
            (21, 1),
            (29, 1),
            (31, 1),
        ];
        let mut both = [(0, 0); 16];
        both[..8].copy_from_slice(&modes);
        both[8..].copy_from_slice(&data);
        assert_eq!(record.ints(), counters(&both));
        assert_eq!(
            record.times()[..13],
            [10, 50, 30, 80, 20, 70, 45, 85, 20, 25, 15, 20, 10]
        );
    }

    #[test]
    fn an_open_by_one_process_is_independent() {
        let record = Alone::new(Kind::Mpiio);
        open(record.words(), 1, 2, false, span(1, 2));
        assert_eq!(record.ints(), counters(&[(INDEP_OPENS, 1), (MODE, 2)]));
    }

    #[test]
    fn the_time_of_a_view_counts_with_hints_only() {
        let record = Alone::new(Kind::Mpiio);
        set_view(record.words(), false, span(1, 2));
        set_view(record.words(), true, span(3, 5));
        assert_eq!(record.ints(), counters(&[(VIEWS, 2), (HINTS, 1)]));
        assert_eq!(record.times()[10], 2);
    }

    #[test]
    fn only_a_file_system_is_cut_off_a_path() {
        assert_eq!(path(b"ufs:/scratch/x"), b"/scratch/x");
        assert_eq!(path(b"/data/run-12:30.nc"), b"/data/run-12:30.nc");
        assert_eq!(path(b"c:x"), b"c:x");
        assert_eq!(path(b"plain"), b"plain");
    }

    #[test]
    fn what_is_no_size_moves_no_bytes() {
        assert_eq!(bytes(3, 8), 24);
        assert_eq!(bytes(-1, 8), 0);
        assert_eq!(bytes(3, -32766), 0);
        assert_eq!(bytes(1 << 40, 8), 8 << 40);
    }
}
