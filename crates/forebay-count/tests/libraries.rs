//! Records of MPI-IO, HDF5 and PnetCDF in a table: common accesses, heat, and totals that stay exact when it is full.

use std::sync::atomic::AtomicU64;

use forebay_count::heat::{Direction, HeatMap};
use forebay_count::library::{Span, Words, note_access};
use forebay_count::mpiio::Mode;
use forebay_count::table::{Birth, Handle, InMemory, Name};
use forebay_count::{Kind, Table, hdf5, layout, mpiio, pnetcdf, read};

fn words(bytes: usize) -> Vec<AtomicU64> {
    (0..bytes / 8).map(|_| AtomicU64::new(0)).collect()
}

fn table(words: &[AtomicU64]) -> Table<'_> {
    let birth = Birth {
        realtime_ns: 1_700_000_000_000_000_000,
        monotonic_ns: 1_000_000_000,
        ..Birth::default()
    };
    Table::format(words, &birth, &InMemory).unwrap()
}

const SPAN: Span = Span {
    start_ns: 2_000_000_000,
    end_ns: 2_000_000_500,
};

fn write(table: &Table<'_>, handle: Handle, bytes: i64) {
    table
        .with(Kind::Mpiio, handle, &InMemory, |record| {
            mpiio::transfer(
                Words::of(record),
                Mode::Independent,
                Direction::Write,
                bytes,
                SPAN,
            );
            note_access(table, record, Direction::Write, &[bytes], SPAN, &InMemory);
        })
        .unwrap();
}

#[test]
fn the_four_most_common_sizes_of_mpi_io_are_shown_without_those_of_nothing() {
    let words = words(1 << 20);
    let table = table(&words);
    let handle = table
        .hold(Kind::Mpiio, &Name::of(b"/d/f"), &InMemory)
        .unwrap();
    for bytes in [0, 0, 0, 1, 2, 3, 4, 5, 6, 6, 1, 1] {
        write(&table, handle, bytes);
    }
    table.settle();
    let mut seen = 0;
    read::each_file(&table, |file| {
        let counters = file.mpiio().unwrap();
        assert_eq!(counters.ints[39..47], [1, 6, 5, 4, 3, 2, 1, 1]);
        assert_eq!(counters.ints[3], 12);
        assert_eq!(counters.ints[15], 29);
        assert_eq!(counters.floats[2], 1.0);
        assert!((counters.floats[9] - 5e-7).abs() < 1e-12);
        seen += 1;
    });
    assert_eq!(seen, 1);
    let map = HeatMap::of(&table, Kind::Mpiio).unwrap();
    assert_eq!(map.written.iter().sum::<u64>(), 29);
}

#[test]
fn accesses_of_datasets_are_told_apart_by_their_shape() {
    let words = words(1 << 20);
    let table = table(&words);
    let parent = Name::of(b"/d/x.h5");
    let name = Name {
        parent: parent.id,
        ..Name::of(b"/d/x.h5:/grid")
    };
    let handle = table.hold(Kind::H5d, &name, &InMemory).unwrap();
    let mut shapes: Vec<[u64; 2]> = (1..=20).map(|n| [n, 40 - n]).collect();
    shapes.extend([[7, 33], [7, 33], [9, 31]]);
    for lengths in &shapes {
        let selection = hdf5::Selection::Regular {
            lengths,
            strides: &[1, 1],
        };
        table
            .with(Kind::H5d, handle, &InMemory, |record| {
                let access = hdf5::access(400, selection);
                hdf5::transfer(
                    Words::of(record),
                    Direction::Read,
                    400,
                    selection,
                    false,
                    SPAN,
                );
                note_access(&table, record, Direction::Read, &access, SPAN, &InMemory);
            })
            .unwrap();
    }
    table.settle();
    read::each_file(&table, |file| {
        assert_eq!(file.parent, parent.id);
        let counters = file.h5d().unwrap();
        assert_eq!(counters.ints[32..43], [400, 0, 0, 0, 33, 7, 0, 0, 0, 1, 1]);
        assert_eq!(counters.ints[43..54], [400, 0, 0, 0, 31, 9, 0, 0, 0, 1, 1]);
        assert_eq!(counters.ints[76..80], [3, 2, 1, 1]);
        let mut room = [([0; 11], 0); 32];
        let all = file.wide_accesses(&mut room);
        assert_eq!(all.len(), 20);
        assert_eq!(all.iter().map(|(_, count)| count).sum::<i64>(), 23);
    });
}

#[test]
fn a_full_table_keeps_exact_totals_of_every_kind() {
    let words = words(layout::MIN_TABLE_BYTES);
    let table = table(&words);
    for n in 0..500i64 {
        let path = format!("/scratch/dir{}/file{n}", n % 7);
        let file = Name::of(path.as_bytes());
        let handle = table.hold(Kind::Mpiio, &file, &InMemory).unwrap();
        table.with(Kind::Mpiio, handle, &InMemory, |r| {
            mpiio::open(Words::of(r), 1, 2, false, SPAN)
        });
        write(&table, handle, 100 + n);
        table.let_go(Kind::Mpiio, handle);

        let handle = table.hold(Kind::H5f, &file, &InMemory).unwrap();
        table.with(Kind::H5f, handle, &InMemory, |r| {
            hdf5::open_file(Words::of(r), true, SPAN)
        });
        table.let_go(Kind::H5f, handle);

        let inside = format!("{path}:/grid");
        let handle = table
            .hold(Kind::H5d, &Name::of(inside.as_bytes()), &InMemory)
            .unwrap();
        table.with(Kind::H5d, handle, &InMemory, |r| {
            hdf5::transfer(
                Words::of(r),
                Direction::Read,
                8,
                hdf5::Selection::Whole,
                false,
                SPAN,
            );
        });
        table.let_go(Kind::H5d, handle);

        let handle = table.hold(Kind::PnetcdfFile, &file, &InMemory).unwrap();
        table.with(Kind::PnetcdfFile, handle, &InMemory, |r| {
            pnetcdf::close_file(Words::of(r), Some(3), Some(4), SPAN);
        });
        table.let_go(Kind::PnetcdfFile, handle);

        let handle = table
            .hold(Kind::PnetcdfVar, &Name::of(inside.as_bytes()), &InMemory)
            .unwrap();
        table.with(Kind::PnetcdfVar, handle, &InMemory, |r| {
            pnetcdf::transfer(
                Words::of(r),
                pnetcdf::Verb::Iput,
                pnetcdf::Part::Vara,
                16,
                SPAN,
            );
        });
        table.let_go(Kind::PnetcdfVar, handle);
    }
    table.settle();
    let mut sums = [0; 10];
    let mut folded = 0;
    read::each_file(&table, |file| {
        folded += usize::from(file.folded.is_some());
        if let Some(c) = file.mpiio() {
            sums[0] += c.ints[0];
            sums[1] += c.ints[3];
            sums[2] += c.ints[15];
            sums[3] += c.ints[30];
        } else if let Some(c) = file.h5f() {
            sums[4] += c.ints[0];
        } else if let Some(c) = file.h5d() {
            sums[5] += c.ints[4];
            sums[6] += c.ints[12];
        } else if let Some(c) = file.pnetcdf_file() {
            sums[7] += c.ints[6] + c.ints[7];
        } else if let Some(c) = file.pnetcdf_var() {
            sums[8] += c.ints[8];
            sums[9] += c.ints[26];
        }
    });
    let written: i64 = (0..500).map(|n| 100 + n).sum();
    assert_eq!(
        sums,
        [500, 500, written, 499, 500, 4000, 500, 3500, 8000, 500]
    );
    assert!(folded > 0);
}
