//! Rules over several interfaces.

use super::*;

const GIB: u64 = 1 << 30;

/// A file that 16 ranks write through MPI-IO: 1 GiB is asked for, and POSIX moves so many GiB.
fn sieved(read: u64, written: u64) -> Job {
    let mut job = mpi_job(16);
    let asked = Counters {
        write: Flow {
            independent: 64,
            ..flow(64, GIB / 64, 320.0)
        },
        ..Counters::default()
    };
    by_all(
        &mut job,
        Interface::MpiIo,
        "/pfs/a",
        slowest(0, 20.0, 0),
        asked,
    );
    let mut moved = writes(4096, written * GIB / 4096, 80.0);
    moved.read = Flow {
        sequential: 0,
        ..flow(8192, (read * GIB / 8192).min(100 << 10), 80.0)
    };
    moved.read.bytes = read * GIB;
    by_all(
        &mut job,
        Interface::Posix,
        "/pfs/a",
        slowest(0, 10.0, 0),
        moved,
    );
    job
}

#[test]
fn mpi_io_that_reads_and_writes_more_than_it_was_asked_for_is_found() {
    let job = sieved(3, 4);
    let found = fires(&job, "read-modify-write");
    // 10 s per rank in POSIX; 1 GiB of 7 was needed.
    about(found.seconds_lost, 10.0 * (1.0 - 1.0 / 7.0));
    assert!(
        found.title.contains("4.0 GiB for 1.0 GiB"),
        "{}",
        found.title
    );
    assert!(
        found.advice.contains("MPI_File_write_at_all"),
        "{}",
        found.advice
    );
    // Its reads are not the program's.
    is_silent(&job, "small-reads-shared");
    is_silent(&job, "random-reads");
    is_silent(&sieved(3, 1), "read-modify-write");
    is_silent(&sieved(0, 4), "read-modify-write");
    let mut collective = job;
    let write = &mut collective.layers[1].uses[0].total.write;
    (write.collective, write.independent) = (64, 0);
    let found = fires(&collective, "read-modify-write");
    assert!(found.advice.contains("romio_cb_write"), "{}", found.advice);
}

#[test]
fn a_program_whose_calls_are_collective_is_not_told_to_use_collective_calls() {
    let mut job = with_shared(Interface::Posix, writes(4096, 1024, 160.0));
    let mut asked = writes(64, 65_536, 160.0);
    asked.write.collective = 64;
    by_all(
        &mut job,
        Interface::MpiIo,
        "/pfs/shared",
        slowest(0, 10.0, 0),
        asked,
    );
    let found = fires(&job, "small-writes-shared");
    assert!(
        found.advice.contains("collective already"),
        "{}",
        found.advice
    );
    let write = &mut job.layers[1].uses[0].total.write;
    (write.collective, write.independent) = (0, 64);
    let found = fires(&job, "small-writes-shared");
    assert!(
        found.advice.contains("Use collective calls"),
        "{}",
        found.advice
    );
}

#[test]
fn time_in_mpi_io_that_is_not_in_the_calls_below_is_told_without_a_price() {
    let with = |seconds: f64| {
        let mut job = mpi_job(16);
        let total = |seconds: f64| writes(64, 1 << 20, 16.0 * seconds);
        by_all(
            &mut job,
            Interface::MpiIo,
            "/pfs/a",
            slowest(0, seconds, 0),
            total(seconds),
        );
        by_all(
            &mut job,
            Interface::Posix,
            "/pfs/a",
            slowest(0, 4.0, 0),
            total(4.0),
        );
        job
    };
    let found = fires(&with(60.0), "library-time");
    assert_eq!(found.seconds_lost, None);
    about(found.concerned_seconds, 56.0);
    is_silent(&with(23.9), "library-time");
    let mut partial = with(60.0);
    partial.layers[0].is_partial = true;
    is_silent(&partial, "library-time");
}

#[test]
fn a_storage_target_that_is_slower_than_all_others_is_named() {
    let with = |targets: u32, seconds: f64, bytes: u64| {
        let mut job = mpi_job(targets);
        for rank in 0..targets {
            let (size, time) = if rank == 5 {
                (bytes, seconds)
            } else {
                (1 << 20, 2.0)
            };
            by_rank(
                &mut job,
                Interface::Posix,
                &format!("/pfs/{rank}"),
                rank,
                writes(8, size, time),
            );
            job.files[rank as usize].targets = vec![rank + 9];
        }
        job
    };
    let found = fires(&with(8, 20.0, 1 << 20), "slow-target");
    about(found.seconds_lost, 18.0);
    assert!(found.title.contains("OST 14 is slow"), "{}", found.title);
    is_silent(&with(8, 5.9, 1 << 20), "slow-target");
    is_silent(&with(7, 20.0, 1 << 20), "slow-target");
    // Larger files take longer.
    is_silent(&with(8, 20.0, 10 << 20), "slow-target");
}
