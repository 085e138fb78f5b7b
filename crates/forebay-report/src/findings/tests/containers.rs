//! HDF5 and PnetCDF against the calls on their files.

use super::*;

const MIB: u64 = 1 << 20;

fn both(read: Counters, write: Counters) -> Counters {
    Counters {
        write: write.write,
        ..read
    }
}

/// A program that writes so many MiB to a data set within 20 s, of which the calls below have 8 s.
fn with_set(asked: u64, read: u64, written: u64) -> Job {
    let mut job = plain_job(1);
    let mut below = both(
        reads(2048, read * MIB / 2048, 4.0),
        writes(2048, written * MIB / 2048, 4.0),
    );
    below.switches = 4000;
    by_rank(&mut job, Interface::Posix, "/pfs/a.h5", 0, below);
    let asked = writes(64, asked * MIB / 64, 20.0);
    by_rank(&mut job, Interface::Hdf5, "/pfs/a.h5:/x", 0, asked);
    job.files[1].container = Some(0);
    job.settle_layers();
    job
}

#[test]
fn a_library_that_moves_more_than_it_was_asked_for_is_named_and_not_its_requests() {
    let job = with_set(1, 500, 600);
    let found = fires(&job, "data-set-amplification");
    about(found.seconds_lost, 20.0 * (1.0 - 1.0 / 600.0));
    assert_eq!(
        found.title,
        "HDF5 writes 600 MiB for 1.0 MiB that the program writes (600 times as much), and reads 500 MiB for it"
    );
    assert!(found.advice.contains("chunk"), "{}", found.advice);
    for code in [
        "read-write-switches",
        "repeated-reads",
        "small-reads",
        "small-writes",
        "data-set-time",
    ] {
        is_silent(&job, code);
    }
    // The calls are those of the program where it asked for as much.
    let plain = with_set(600, 500, 600);
    is_silent(&plain, "data-set-amplification");
    fires(&plain, "read-write-switches");
}

#[test]
fn what_a_library_moves_beyond_counts_from_16_mib_on_also_without_reads() {
    let code = "data-set-amplification";
    let found = fires(&with_set(2, 0, 18), code);
    assert!(!found.title.contains("reads"), "{}", found.title);
    assert!(
        found.evidence[1].contains("fill values"),
        "{:?}",
        found.evidence
    );
    is_silent(&with_set(2, 0, 17), code);
    // 1.5 times the bytes.
    fires(&with_set(100, 0, 150), code);
    is_silent(&with_set(100, 0, 149), code);
}

#[test]
fn a_copy_of_the_file_is_no_work_of_the_library() {
    let code = "data-set-amplification";
    // By the same process: it reads nothing through the library.
    is_silent(&with_set(100, 100, 100), code);
    let mut job = with_set(100, 0, 100);
    by_rank(
        &mut job,
        Interface::Posix,
        "/pfs/a.h5",
        1,
        both(reads(64, 100 * MIB, 1.0), writes(64, 100 * MIB, 1.0)),
    );
    is_silent(&job, code);
}

#[test]
fn reads_of_whole_chunks_for_small_parts_are_found() {
    let mut job = plain_job(1);
    by_rank(
        &mut job,
        Interface::Posix,
        "/pfs/a.nc",
        0,
        reads(64, 10 * MIB, 30.0),
    );
    by_rank(
        &mut job,
        Interface::Pnetcdf,
        "/pfs/a.nc:x",
        0,
        reads(64, MIB, 20.0),
    );
    job.files[1].container = Some(0);
    job.settle_layers();
    let found = fires(&job, "data-set-amplification");
    // The calls below took longer than those of the library, which has read ahead.
    about(found.seconds_lost, 30.0 * 0.9);
    assert!(
        found
            .title
            .starts_with("PnetCDF reads 640 MiB for 64.0 MiB"),
        "{}",
        found.title
    );
    // Which data sets are missing is not known of a module that ran out of memory.
    job.layers[1].is_partial = true;
    is_silent(&job, "data-set-amplification");
}

#[test]
fn time_in_a_library_that_is_not_in_the_calls_below_is_told_without_a_price() {
    let with = |seconds: f64| {
        let mut job = with_set(1, 0, 1);
        let total = &mut job.layers[1].uses[0];
        total.total.write.seconds = seconds;
        total.by_rank[0].write_seconds = seconds;
        job
    };
    // The calls below have 8 s, the job takes 100 s.
    let found = fires(&with(60.0), "data-set-time");
    assert_eq!(found.seconds_lost, None);
    about(found.concerned_seconds, 52.0);
    is_silent(&with(27.9), "data-set-time");
    fires(&with(28.1), "data-set-time");
}
