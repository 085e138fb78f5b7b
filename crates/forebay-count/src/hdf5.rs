//! The counters of HDF5 files and datasets: Darshan's modules H5F, version 3, and H5D, version 2.

use crate::heat::Direction;
use crate::layout::LAST_META_END;
use crate::library::{self, Places, Span, Words};

/// Dimensions that a record shows, the fastest first.
const SHOWN_DIMS: usize = 5;
/// Dimensions that HDF5 allows.
pub const MAX_DIMS: usize = 32;
/// Words by which accesses differ: size in bytes, lengths, strides.
pub const ACCESS_WORDS: usize = 1 + 2 * SHOWN_DIMS;

pub(crate) mod file {
    pub const OPENS: usize = 0;
    pub const FLUSHES: usize = 1;
    pub const USE_MPIIO: usize = 2;
    pub const OPEN_START: usize = 0;
    pub const CLOSE_START: usize = 1;
    pub const OPEN_END: usize = 2;
    pub const CLOSE_END: usize = 3;
    pub const META_TIME: usize = 4;
}

const OPENS: usize = 0;
const READS: usize = 1;
const FLUSHES: usize = 3;
const REGULAR_HYPERSLAB_SELECTS: usize = 7;
const IRREGULAR_HYPERSLAB_SELECTS: usize = 8;
const POINT_SELECTS: usize = 9;
const DATASPACE_NDIMS: usize = 80;
const DATASPACE_NPOINTS: usize = 81;
const DATATYPE_SIZE: usize = 82;
const CHUNK_SIZE: usize = 83;
const USE_MPIIO_COLLECTIVE: usize = 88;
const USE_DEPRECATED: usize = 89;

pub(crate) const PLACES: Places = Places {
    bytes_read: 4,
    rw_switches: 6,
    max_read_time_size: 10,
    size_read: 12,
    access: (32, 76),
};

/// Counts `H5Fcreate` or `H5Fopen`; `mpiio` is true if it went through the MPI-IO driver.
pub fn open_file(record: Words<'_>, mpiio: bool, span: Span) {
    record.add(file::OPENS, 1);
    record.set(file::USE_MPIIO, i64::from(mpiio));
    record.mark(file::OPEN_START, file::OPEN_END, span);
    record.spend(file::META_TIME, LAST_META_END, span);
}

/// Counts `H5Fflush` of the file or of an object in it.
pub fn flush_file(record: Words<'_>, span: Span) {
    record.add(file::FLUSHES, 1);
    record.spend(file::META_TIME, LAST_META_END, span);
}

/// Counts `H5Fclose`.
pub fn close_file(record: Words<'_>, span: Span) {
    record.mark(file::CLOSE_START, file::CLOSE_END, span);
    record.spend(file::META_TIME, LAST_META_END, span);
}

/// The shape of a dataset when it is opened.
#[derive(Debug, Clone, Copy)]
pub struct Shape<'d> {
    /// Dimensions of its data space.
    pub ndims: i64,
    /// Elements in it.
    pub npoints: i64,
    /// Bytes of an element in the file.
    pub element_bytes: i64,
    /// Lengths of a chunk, slowest dimension first; empty if it is not chunked.
    pub chunk: &'d [u64],
}

/// Which part of a dataset a call moves.
#[derive(Debug, Clone, Copy)]
pub enum Selection<'d> {
    /// All elements, or none.
    Whole,
    /// Single elements.
    Points,
    /// Blocks at equal distances, by dimension, slowest first.
    Regular {
        /// Elements taken: blocks times their length.
        lengths: &'d [u64],
        /// Distances between the starts of blocks.
        strides: &'d [u64],
    },
    /// Blocks at unequal distances.
    Irregular,
}

/// Counts a function that opens or creates a dataset; `deprecated` is true if HDF5 calls it so.
pub fn open(record: Words<'_>, deprecated: bool, span: Span) {
    record.add(OPENS, 1);
    record.set(USE_DEPRECATED, i64::from(deprecated));
    library::open(record, span);
}

/// Notes the shape of the dataset.
pub fn describe(record: Words<'_>, shape: &Shape<'_>) {
    record.set(DATASPACE_NDIMS, shape.ndims);
    record.set(DATASPACE_NPOINTS, shape.npoints);
    record.set(DATATYPE_SIZE, shape.element_bytes);
    for (at, &length) in shape.chunk.iter().rev().take(SHOWN_DIMS).enumerate() {
        record.set(CHUNK_SIZE + at, length as i64);
    }
}

/// Counts `H5Dflush`.
pub fn flush(record: Words<'_>, span: Span) {
    record.add(FLUSHES, 1);
    library::meta(record, span);
}

/// Counts `H5Dclose`, or `H5Oclose` of a dataset.
pub fn close(record: Words<'_>, span: Span) {
    library::close(record, span);
}

/// The words by which this access differs from others: `bytes`, lengths and strides.
pub fn access(bytes: i64, selection: Selection<'_>) -> [i64; ACCESS_WORDS] {
    let mut words = [0; ACCESS_WORDS];
    words[0] = bytes;
    if let Selection::Regular { lengths, strides } = selection {
        let (shown_lengths, shown_strides) = words[1..].split_at_mut(SHOWN_DIMS);
        show_dims(shown_lengths, lengths);
        show_dims(shown_strides, strides);
    }
    words
}

/// Counts `H5Dread` or `H5Dwrite`.
pub fn transfer(
    record: Words<'_>,
    direction: Direction,
    bytes: i64,
    selection: Selection<'_>,
    collective: bool,
    span: Span,
) {
    record.add(READS + direction as usize, 1);
    match selection {
        Selection::Whole => {}
        Selection::Points => record.add(POINT_SELECTS, 1),
        Selection::Regular { .. } => record.add(REGULAR_HYPERSLAB_SELECTS, 1),
        Selection::Irregular => record.add(IRREGULAR_HYPERSLAB_SELECTS, 1),
    }
    if collective {
        record.set(USE_MPIIO_COLLECTIVE, 1);
    }
    library::transfer(record, &PLACES, direction, bytes, span);
}

/// Fills the five places of the format from the last one. A dataset of fewer dimensions leaves the first places 0; of
/// one with more the last five dimensions are kept.
fn show_dims(shown: &mut [i64], dims: &[u64]) {
    let kept = &dims[dims.len().saturating_sub(SHOWN_DIMS)..];
    for (place, &value) in shown.iter_mut().rev().zip(kept) {
        *place = value as i64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Kind;
    use crate::library::tests::{Alone, counters, span};

    #[test]
    fn a_dataset_is_described_the_fastest_dimension_first() {
        let record = Alone::new(Kind::H5d);
        let shape = Shape {
            ndims: 2,
            npoints: 800,
            element_bytes: 8,
            chunk: &[16, 32],
        };
        describe(record.words(), &shape);
        let expected = [(80, 2), (81, 800), (82, 8), (83, 32), (84, 16)];
        assert_eq!(record.ints(), counters(&expected));
    }

    #[test]
    fn an_access_is_told_by_size_lengths_and_strides() {
        let selection = Selection::Regular {
            lengths: &[10, 20],
            strides: &[1, 2],
        };
        assert_eq!(
            access(1600, selection),
            [1600, 0, 0, 0, 20, 10, 0, 0, 0, 2, 1]
        );
        assert_eq!(
            access(16, Selection::Points),
            [16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
        );
        let mut shown = [0; SHOWN_DIMS];
        show_dims(&mut shown, &[9, 8, 1, 2, 3, 4, 5]);
        assert_eq!(shown, [5, 4, 3, 2, 1]);
    }

    #[test]
    fn every_selection_finds_its_counter() {
        let record = Alone::new(Kind::H5d);
        let words = record.words();
        open(words, true, span(1, 2));
        let regular = Selection::Regular {
            lengths: &[3],
            strides: &[1],
        };
        for selection in [
            Selection::Whole,
            Selection::Points,
            Selection::Irregular,
            Selection::Irregular,
        ] {
            transfer(words, Direction::Read, 12, selection, false, span(2, 3));
        }
        transfer(words, Direction::Write, 24, regular, true, span(3, 4));
        flush(words, span(4, 5));
        close(words, span(5, 6));
        let calls = [
            (0, 1),
            (1, 4),
            (2, 1),
            (3, 1),
            (4, 48),
            (5, 24),
            (6, 1),
            (7, 1),
            (8, 2),
            (9, 1),
        ];
        let sizes = [(10, 12), (11, 24), (12, 4), (22, 1), (88, 1), (89, 1)];
        let mut both = [(0, 0); 16];
        both[..10].copy_from_slice(&calls);
        both[10..].copy_from_slice(&sizes);
        assert_eq!(record.ints(), counters(&both));
        assert_eq!(record.times()[..11], [1, 2, 3, 5, 2, 3, 4, 6, 1, 1, 3]);
    }

    #[test]
    fn a_file_counts_opens_flushes_and_its_driver() {
        let record = Alone::new(Kind::H5f);
        let words = record.words();
        open_file(words, true, span(1, 2));
        flush_file(words, span(2, 4));
        close_file(words, span(5, 6));
        assert_eq!(record.ints(), counters(&[(0, 1), (1, 1), (2, 1)]));
        assert_eq!(record.times()[..5], [1, 5, 2, 6, 4]);
    }
}
