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
    moved.switches = 8000;
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
    // 20 s per rank in MPI-IO, where it waits for locks, too; 1 GiB of 7 was needed.
    about(found.seconds_lost, 20.0 * (1.0 - 1.0 / 7.0));
    assert!(
        found.files[0].detail.contains("POSIX wrote 4.0 GiB"),
        "{:?}",
        found.files
    );
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
    is_silent(&job, "read-write-switches");
    is_silent(&sieved(3, 1), "read-modify-write");
    let unread = fires(&sieved(0, 4), "read-modify-write");
    assert!(!unread.title.contains("reads"), "{}", unread.title);
    assert!(
        unread.evidence[0].contains("nothing is read"),
        "{:?}",
        unread.evidence
    );
    let mut collective = job;
    let write = &mut collective.layers[1].uses[0].total.write;
    (write.collective, write.independent) = (64, 0);
    let found = fires(&collective, "read-modify-write");
    // 10 s per rank in POSIX: in MPI-IO it waits for other ranks, too.
    about(found.seconds_lost, 10.0 * (1.0 - 1.0 / 7.0));
    assert!(found.advice.contains("romio_cb_write"), "{}", found.advice);
}

/// A program that writes so many KiB through MPI-IO, which reads and writes so many KiB, within so many seconds.
fn sieved_kib(asked: u64, moved: u64, seconds: f64) -> Job {
    let mut job = mpi_job(2);
    let mut total = writes(64, (asked << 10) / 64, seconds);
    total.write.independent = 64;
    by_rank(&mut job, Interface::MpiIo, "/pfs/a", 0, total);
    let mut total = writes(64, (moved << 10) / 64, seconds / 2.0);
    total.read = flow(64, (moved << 10) / 64, seconds / 2.0);
    by_rank(&mut job, Interface::Posix, "/pfs/a", 0, total);
    job
}

#[test]
fn what_mpi_io_moves_beyond_decides_and_not_what_it_was_asked_for() {
    let code = "read-modify-write";
    // 640 KiB asked for, 320 MiB written, and as many read.
    let found = fires(&sieved_kib(640, 320 << 10, 10.0), code);
    assert!(
        found.title.contains("320 MiB for 640 KiB"),
        "{}",
        found.title
    );
    // Beyond 64 KiB: 16 MiB, and 2 KiB less.
    fires(&sieved_kib(64, (8 << 10) + 32, 10.0), code);
    is_silent(&sieved_kib(64, (8 << 10) + 31, 10.0), code);
}

#[test]
fn bytes_that_memory_has_taken_have_no_price() {
    let code = "read-modify-write";
    // 640 MiB at a gibibyte each second.
    let cached = fires(&sieved_kib(640, 320 << 10, 0.625), code);
    assert_eq!(cached.seconds_lost, None);
    about(cached.concerned_seconds, 0.625 * (1.0 - 1.0 / 1024.0));
    let stored = fires(&sieved_kib(640, 320 << 10, 0.626), code);
    assert!(stored.seconds_lost.is_some());
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

/// 16 ranks that write 1,600 x 16 KiB by collective calls, of which so many ranks do the POSIX calls.
fn collective(writers: u32, size: u64) -> Job {
    let mut job = mpi_job(16);
    for rank in 0..16 {
        let mut asked = writes(100, 16 << 10, 10.0);
        asked.write.collective = 100;
        by_rank(&mut job, Interface::MpiIo, "/pfs/a", rank, asked);
        let mut done = Counters {
            opens: 1,
            ..Counters::default()
        };
        if rank < writers {
            let ops = 1600 * (16 << 10) / size / u64::from(writers);
            done = writes(ops, size, 160.0 / f64::from(writers));
        }
        by_rank(&mut job, Interface::Posix, "/pfs/a", rank, done);
    }
    job
}

#[test]
fn collective_calls_that_every_rank_carries_out_for_itself_are_told_from_gathered_ones() {
    let code = "collective-writes-not-gathered";
    let job = collective(16, 16 << 10);
    let found = fires(&job, code);
    // 100 requests of 16 KiB on each rank, which 1 of 1,600 / 256 would do.
    let requests = (1600.0 - 7.0) / 1600.0;
    let fixed = 262_144.0 / (262_144.0 + 16_384.0);
    about(found.seconds_lost, 10.0 * requests * fixed);
    assert!(
        found.advice.contains("romio_cb_write=enable"),
        "{}",
        found.advice
    );
    is_silent(&job, "small-writes-shared");
    // One rank is not among those that write.
    is_silent(&collective(15, 16 << 10), code);
    // Requests of a mebibyte are gathered already, and fewer than 1,000.
    is_silent(&collective(16, 1 << 20), code);
    let mut independent = job;
    let write = &mut independent.layers[1].uses[0].total.write;
    (write.collective, write.independent) = (0, write.collective);
    is_silent(&independent, code);
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
    let job = with(8, 20.0, 1 << 20);
    let found = fires(&job, "slow-target");
    about(found.seconds_lost, 18.0);
    // What the job gains if that target is as quick as the others.
    let seconds = |job: &Job| Account::of(job).slowest.unwrap().seconds;
    let gained = seconds(&job) - seconds(&with(8, 2.0, 1 << 20));
    about(found.seconds_lost, gained);
    assert!(found.title.contains("OST 14 is slow"), "{}", found.title);
    let (slowest, last) = (&found.measured[0], found.measured.last().unwrap());
    assert_eq!(
        (slowest.name.as_str(), last.name.as_str()),
        ("OST 14", "median of 8")
    );
    about(Some(slowest.seconds), 20.0);
    about(Some(last.seconds), 2.0);
    is_silent(&with(8, 5.9, 1 << 20), "slow-target");
    is_silent(&with(7, 20.0, 1 << 20), "slow-target");
    // The rank with two files there loses the time of both.
    let mut two = with(8, 20.0, 1 << 20);
    by_rank(
        &mut two,
        Interface::Posix,
        "/pfs/more",
        5,
        writes(8, 1 << 20, 20.0),
    );
    two.files[8].targets = vec![14];
    about(fires(&two, "slow-target").seconds_lost, 36.0);
    // Larger files take longer.
    is_silent(&with(8, 20.0, 10 << 20), "slow-target");
}
