//! The counters of PnetCDF files and variables: Darshan's modules PNETCDF_FILE, version 3, and PNETCDF_VAR, version 1.

use crate::heat::Direction;
use crate::layout::{LAST_META_END, LAST_READ_END};
use crate::library::{self, Places, Span, Words};

/// Dimensions that a record shows: the last ones, the slowest of them first.
const SHOWN_DIMS: usize = 5;
/// Words of an access: size in bytes, lengths, strides.
pub const ACCESS_WORDS: usize = 1 + 2 * SHOWN_DIMS;

mod file {
    pub const CREATES: usize = 0;
    pub const OPENS: usize = 1;
    pub const REDEFS: usize = 2;
    pub const INDEP_WAITS: usize = 3;
    pub const COLL_WAITS: usize = 4;
    pub const SYNCS: usize = 5;
    pub const BYTES_READ: usize = 6;
    pub const BYTES_WRITTEN: usize = 7;
    pub const WAIT_FAILURES: usize = 8;
    pub const OPEN_START: usize = 0;
    pub const CLOSE_START: usize = 1;
    pub const WAIT_START: usize = 2;
    pub const OPEN_END: usize = 3;
    pub const CLOSE_END: usize = 4;
    pub const WAIT_END: usize = 5;
    pub const META_TIME: usize = 6;
    pub const WAIT_TIME: usize = 7;
}

const OPENS: usize = 0;
const PUT_VAR: usize = 10;
const GET_VAR: usize = 17;
const IPUT_VAR: usize = 24;
const IGET_VAR: usize = 30;
const BPUT_VAR: usize = 36;
const NDIMS: usize = 112;
const NPOINTS: usize = 113;
const DATATYPE_SIZE: usize = 114;
const IS_RECORD_VAR: usize = 115;

pub(crate) const PLACES: Places = Places {
    bytes_read: 7,
    rw_switches: 9,
    max_read_time_size: 42,
    size_read: 44,
    access: (64, 108),
};

/// Counts `ncmpi_create`, or `ncmpi_open`.
pub fn open_file(record: Words<'_>, create: bool, span: Span) {
    record.add(if create { file::CREATES } else { file::OPENS }, 1);
    record.mark(file::OPEN_START, file::OPEN_END, span);
    meta(record, span);
}

fn meta(record: Words<'_>, span: Span) {
    record.spend(file::META_TIME, LAST_META_END, span);
}

/// Counts `ncmpi_enddef`.
pub fn enddef(record: Words<'_>, span: Span) {
    meta(record, span);
}

/// Counts `ncmpi_redef`.
pub fn redef(record: Words<'_>, span: Span) {
    record.add(file::REDEFS, 1);
    meta(record, span);
}

/// Counts `ncmpi_sync`.
pub fn sync(record: Words<'_>, span: Span) {
    record.add(file::SYNCS, 1);
    meta(record, span);
}

/// Counts `ncmpi_wait`, or `ncmpi_wait_all` if `collective`; `ok` is true if it succeeded.
pub fn wait(record: Words<'_>, collective: bool, ok: bool, span: Span) {
    let counter = match (ok, collective) {
        (false, _) => file::WAIT_FAILURES,
        (true, true) => file::COLL_WAITS,
        (true, false) => file::INDEP_WAITS,
    };
    record.add(counter, 1);
    record.mark(file::WAIT_START, file::WAIT_END, span);
    // Waiting moves data in either direction. The word of reads keeps its time apart from that of other calls.
    record.spend(file::WAIT_TIME, LAST_READ_END, span);
}

/// Counts `ncmpi_close`, and the bytes that the library says it has read and written through this handle. `None` if it
/// would not say; the counter is -1 from then on.
pub fn close_file(record: Words<'_>, read: Option<i64>, written: Option<i64>, span: Span) {
    for (counter, bytes) in [(file::BYTES_READ, read), (file::BYTES_WRITTEN, written)] {
        let total = record.get(counter);
        record.set(
            counter,
            match bytes {
                Some(bytes) if total >= 0 => total + bytes,
                _ => -1,
            },
        );
    }
    record.mark(file::CLOSE_START, file::CLOSE_END, span);
    meta(record, span);
}

/// The function by which a call reads or writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// `ncmpi_put_var...`, `_all` if collective.
    Put {
        /// True for `_all`.
        collective: bool,
    },
    /// `ncmpi_get_var...`, `_all` if collective.
    Get {
        /// True for `_all`.
        collective: bool,
    },
    /// `ncmpi_iput_var...`, counted when it is posted.
    Iput,
    /// `ncmpi_iget_var...`, counted when it is posted.
    Iget,
    /// `ncmpi_bput_var...`, counted when it is posted.
    Bput,
}

impl Verb {
    /// Which way the bytes go.
    pub fn direction(self) -> Direction {
        match self {
            Verb::Get { .. } | Verb::Iget => Direction::Read,
            Verb::Put { .. } | Verb::Iput | Verb::Bput => Direction::Write,
        }
    }

    /// The first of the counters by shape.
    fn first_counter(self) -> usize {
        match self {
            Verb::Put { .. } => PUT_VAR,
            Verb::Get { .. } => GET_VAR,
            Verb::Iput => IPUT_VAR,
            Verb::Iget => IGET_VAR,
            Verb::Bput => BPUT_VAR,
        }
    }

    /// The counter of independent, collective or non-blocking calls.
    fn mode_counter(self) -> usize {
        let reads = match self {
            Verb::Put { collective: false } | Verb::Get { collective: false } => 1,
            Verb::Put { collective: true } | Verb::Get { collective: true } => 3,
            Verb::Iput | Verb::Iget | Verb::Bput => 5,
        };
        reads + self.direction() as usize
    }
}

/// The part of a variable that a function takes, by the letter after `var` in its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// `var`: all of it.
    Var,
    /// `var1`: one element.
    Var1,
    /// `vara`: a block.
    Vara,
    /// `vars`: a block with strides.
    Vars,
    /// `varm`: the same, laid out in memory by a map.
    Varm,
    /// `varn`: a list of blocks.
    Varn,
    /// `vard`: an MPI data type in the file.
    Vard,
}

/// The shape of a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Dimensions.
    pub ndims: i64,
    /// Elements; those of one record if it is a record variable.
    pub npoints: i64,
    /// Bytes of an element in the file.
    pub element_bytes: i64,
    /// True if its first dimension grows.
    pub record: bool,
}

/// Counts `ncmpi_def_var` or `ncmpi_inq_varid`.
pub fn open(record: Words<'_>, span: Span) {
    record.add(OPENS, 1);
    library::open(record, span);
}

/// Notes the shape of the variable.
pub fn describe(record: Words<'_>, shape: &Shape) {
    record.set(NDIMS, shape.ndims);
    record.set(NPOINTS, shape.npoints);
    record.set(DATATYPE_SIZE, shape.element_bytes);
    if shape.record {
        record.set(IS_RECORD_VAR, 1);
    }
}

/// The shape that [`describe`] noted.
pub fn shape(record: Words<'_>) -> Shape {
    Shape {
        ndims: record.get(NDIMS),
        npoints: record.get(NPOINTS),
        element_bytes: record.get(DATATYPE_SIZE),
        record: record.get(IS_RECORD_VAR) == 1,
    }
}

/// The words by which an access of `bytes` differs from others. `lengths` and `strides` are by dimension, slowest
/// first, or empty where the call has none.
pub fn access(bytes: i64, lengths: &[i64], strides: &[i64]) -> [i64; ACCESS_WORDS] {
    let mut words = [0; ACCESS_WORDS];
    words[0] = bytes;
    let last = |dims: &[i64]| dims.len().saturating_sub(SHOWN_DIMS);
    for (at, values) in [(1, lengths), (1 + SHOWN_DIMS, strides)] {
        let kept = &values[last(values)..];
        words[at..][..kept.len()].copy_from_slice(kept);
    }
    words
}

/// Counts one call that moves data.
pub fn transfer(record: Words<'_>, verb: Verb, part: Part, bytes: i64, span: Span) {
    record.add(verb.first_counter() + part as usize, 1);
    record.add(verb.mode_counter(), 1);
    library::transfer(record, &PLACES, verb.direction(), bytes, span);
}

/// Bytes of an element of a netCDF type in the file. An unknown type counts as 8, the largest there is.
pub fn element_bytes(nc_type: i32) -> i64 {
    match nc_type {
        1 | 2 | 7 => 1,
        3 | 8 => 2,
        4 | 5 | 9 => 4,
        _ => 8,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Kind;
    use crate::library::tests::{Alone, counters, span};

    #[test]
    fn every_verb_and_part_has_a_counter_of_its_own() {
        let parts = [
            Part::Var,
            Part::Var1,
            Part::Vara,
            Part::Vars,
            Part::Varm,
            Part::Varn,
            Part::Vard,
        ];
        let record = Alone::new(Kind::PnetcdfVar);
        for verb in [
            Verb::Put { collective: false },
            Verb::Get { collective: true },
            Verb::Iput,
            Verb::Iget,
            Verb::Bput,
        ] {
            let blocking = matches!(verb, Verb::Put { .. } | Verb::Get { .. });
            for &part in &parts[..if blocking { 7 } else { 6 }] {
                transfer(record.words(), verb, part, 10, span(1, 2));
            }
        }
        let ints = record.ints();
        assert_eq!(ints[PUT_VAR..PLACES.max_read_time_size], [1; 32]);
        // Independent writes, collective reads, the rest without blocking.
        assert_eq!(ints[1..7], [0, 7, 7, 0, 6, 12]);
        assert_eq!((ints[7], ints[8], ints[9]), (130, 190, 4));
        assert_eq!((ints[44], ints[54]), (13, 19));
    }

    #[test]
    fn lengths_and_strides_are_those_of_the_last_five_dimensions() {
        assert_eq!(
            access(24, &[2, 3], &[1, 4]),
            [24, 2, 3, 0, 0, 0, 1, 4, 0, 0, 0]
        );
        assert_eq!(
            access(720, &[1, 2, 3, 4, 5, 6], &[]),
            [720, 2, 3, 4, 5, 6, 0, 0, 0, 0, 0]
        );
    }

    #[test]
    fn a_variable_is_described_once_and_read_back() {
        let record = Alone::new(Kind::PnetcdfVar);
        let given = Shape {
            ndims: 3,
            npoints: 120,
            element_bytes: element_bytes(5),
            record: true,
        };
        open(record.words(), span(1, 2));
        describe(record.words(), &given);
        assert_eq!(shape(record.words()), given);
        assert_eq!(
            record.ints(),
            counters(&[(0, 1), (112, 3), (113, 120), (114, 4), (115, 1)])
        );
    }

    #[test]
    fn a_file_adds_up_what_each_handle_moved() {
        let record = Alone::new(Kind::PnetcdfFile);
        let words = record.words();
        open_file(words, true, span(1, 2));
        enddef(words, span(2, 3));
        wait(words, true, true, span(3, 4));
        wait(words, false, true, span(4, 5));
        wait(words, true, false, span(5, 7));
        sync(words, span(7, 8));
        close_file(words, Some(5), Some(7), span(8, 9));
        open_file(words, false, span(9, 10));
        redef(words, span(10, 11));
        close_file(words, Some(10), None, span(11, 12));
        assert_eq!(record.ints()[..9], [1, 1, 1, 1, 1, 1, 15, -1, 1]);
        assert_eq!(record.times()[..8], [1, 8, 3, 10, 12, 7, 7, 4]);
    }
}
