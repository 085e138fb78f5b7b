//! Rules about how ranks differ, collective calls, and time.

use super::*;

#[test]
fn a_slow_rank_on_a_shared_file_is_found_with_its_cause() {
    let with_slowest = |seconds: f64, bytes: u64| {
        let mut job = mpi_job(16);
        let total = writes(160, 1 << 20, 48.0);
        by_all(
            &mut job,
            Interface::Posix,
            "/pfs/s",
            slowest(5, seconds, bytes),
            total,
        );
        job
    };
    // The mean is 3 s.
    let found = fires(&with_slowest(4.0, 10 << 20), "straggler-shared-file");
    about(found.seconds_lost, 1.0);
    assert!(found.evidence[0].contains("served worse"), "{found:#?}");
    let uneven = fires(&with_slowest(4.0, 100 << 20), "straggler-shared-file");
    assert!(uneven.evidence[0].contains("uneven"), "{uneven:#?}");
    is_silent(&with_slowest(3.99, 10 << 20), "straggler-shared-file");
    let mut plain = with_slowest(40.0, 10 << 20);
    plain.logs[0].is_mpi = false;
    is_silent(&plain, "straggler-shared-file");
}

#[test]
fn time_in_mpi_io_is_not_counted_again_in_posix() {
    let mut job = mpi_job(16);
    let total = writes(160, 1 << 20, 48.0);
    by_all(
        &mut job,
        Interface::Posix,
        "/pfs/s",
        slowest(5, 9.0, 1),
        total.clone(),
    );
    by_all(
        &mut job,
        Interface::MpiIo,
        "/pfs/s",
        slowest(5, 9.0, 1),
        total,
    );
    about(fires(&job, "straggler-shared-file").seconds_lost, 6.0);
    let account = Account::of(&job);
    assert_eq!(account.moved.bytes_written, 160 << 20);
    assert_eq!(account.moved.files, 1);
    about(Some(account.time.write), 3.0);
}

#[test]
fn slow_ranks_on_their_own_files_are_compared_with_ranks_that_do_io() {
    let with_one = |seconds: f64, active: u32| {
        let mut job = mpi_job(16);
        for rank in 0..active {
            let mine = if rank == 2 { seconds } else { 3.0 };
            let name = format!("/pfs/{rank}");
            by_rank(
                &mut job,
                Interface::Posix,
                &name,
                rank,
                writes(10, 1 << 20, mine),
            );
        }
        job
    };
    // Mean of 3, 3, 3 and x: the excess is a quarter of x at x = 4.5.
    about(
        fires(&with_one(4.5, 4), "straggler-ranks").seconds_lost,
        4.5 - 13.5 / 4.0,
    );
    is_silent(&with_one(4.49, 4), "straggler-ranks");
    is_silent(&with_one(40.0, 3), "straggler-ranks");
}

#[test]
fn uneven_bytes_cost_only_what_the_busiest_rank_is_slower() {
    let with_one = |mib: u64, seconds: f64| {
        let mut job = mpi_job(16);
        for rank in 0..4 {
            let (mine, time) = if rank == 2 { (mib, seconds) } else { (10, 1.0) };
            let name = format!("/pfs/{rank}");
            by_rank(
                &mut job,
                Interface::Posix,
                &name,
                rank,
                writes(mine, 1 << 20, time),
            );
        }
        job
    };
    // The mean of 10, 10, 10 and 30 is 15: exactly half of the most.
    about(fires(&with_one(30, 3.0), "uneven-bytes").seconds_lost, 1.5);
    is_silent(&with_one(30, 1.0), "uneven-bytes");
    is_silent(&with_one(29, 3.0), "uneven-bytes");
}

#[test]
fn rank_0_alone_is_found_in_single_and_in_summed_records() {
    let with_rank0 = |mine: u64, others: u64| {
        let mut job = mpi_job(16);
        by_rank(
            &mut job,
            Interface::Posix,
            "/pfs/0",
            0,
            writes(mine, 1 << 20, 8.0),
        );
        by_rank(
            &mut job,
            Interface::Posix,
            "/pfs/1",
            1,
            writes(others, 1 << 20, 1.0),
        );
        job
    };
    about(fires(&with_rank0(90, 10), "rank-0-io").seconds_lost, 7.0);
    is_silent(&with_rank0(89, 11), "rank-0-io");
    is_silent(&with_rank0(8, 0), "rank-0-io");
    let mut summed = mpi_job(16);
    let total = writes(100, 1 << 20, 8.0);
    by_all(
        &mut summed,
        Interface::Posix,
        "/pfs/s",
        slowest(0, 8.0, 95 << 20),
        total,
    );
    fires(&summed, "rank-0-io");
    is_silent(&plain_with_one_process(), "rank-0-io");
}

#[test]
fn a_single_aggregator_is_told_from_a_program_that_writes_by_rank_0() {
    let mut job = mpi_job(16);
    let mut total = writes(100, 1 << 20, 80.0);
    total.write.collective = 100;
    let even = slowest(3, 5.0, 6 << 20);
    by_all(&mut job, Interface::MpiIo, "/pfs/s", even, total);
    let file = writes(100, 1 << 20, 5.0);
    by_rank(&mut job, Interface::Posix, "/pfs/s", 0, file);
    job.files[0].stripes = Some((1 << 20, 1));
    let found = fires(&job, "rank-0-io");
    assert!(found.advice.contains("cb_nodes"), "{found:#?}");
    assert!(found.evidence[1].contains("1 target"), "{found:#?}");
}

fn plain_with_one_process() -> Job {
    let mut job = plain_job(1);
    by_rank(
        &mut job,
        Interface::Posix,
        "/pfs/0",
        0,
        writes(90, 1 << 20, 8.0),
    );
    job
}

#[test]
fn independent_requests_are_a_topic_for_mpi_io_on_shared_files_only() {
    let with_requests = |independent: u64, collective: u64| {
        let mut total = writes(independent + collective, 1 << 20, 16.0);
        total.write.independent = independent;
        total.write.collective = collective;
        total
    };
    let code = "independent-writes";
    // A call of 16 us ends in memory.
    for (seconds, is_estimated) in [(1.6, false), (2.4, true)] {
        let mut quick = writes(100_000, 1 << 10, seconds);
        quick.write.independent = 100_000;
        let found = fires(&with_shared(Interface::MpiIo, quick), code);
        assert_eq!(found.seconds_lost.is_some(), is_estimated);
    }
    fires(
        &with_shared(Interface::MpiIo, with_requests(1000, 1000)),
        code,
    );
    is_silent(
        &with_shared(Interface::MpiIo, with_requests(1000, 1001)),
        code,
    );
    is_silent(&with_shared(Interface::MpiIo, with_requests(999, 0)), code);
    let mut own = mpi_job(16);
    by_rank(
        &mut own,
        Interface::MpiIo,
        "/pfs/own",
        0,
        with_requests(5000, 0),
    );
    is_silent(&own, code);
    // A program with many POSIX requests and no MPI-IO is not told to use MPI-IO.
    for one in findings(&with_shared(Interface::Posix, with_requests(5000, 0))) {
        assert!(!one.code.starts_with("independent"), "{one:#?}");
    }
    let mut read = reads(1000, 1 << 20, 16.0);
    read.read.independent = 1000;
    fires(&with_shared(Interface::MpiIo, read), "independent-reads");
}

#[test]
fn programs_without_mpi_are_not_told_to_use_it() {
    let mut job = plain_job(4);
    for rank in 0..4 {
        by_rank(
            &mut job,
            Interface::Posix,
            "/data/x",
            rank,
            reads(5000, 1024, 10.0),
        );
    }
    let found = findings(&job);
    assert!(!found.is_empty());
    for one in found {
        assert!(!one.advice.contains("MPI"), "{one:#?}");
        assert!(!one.advice.contains("collective"), "{one:#?}");
    }
}

#[test]
fn a_rank_that_is_late_at_the_end_is_found() {
    let with_late = |end: usize, seconds: f64| {
        let mut job = mpi_job(10);
        let mut rows = vec![vec![0.0; 100]; 10];
        for (rank, row) in rows.iter_mut().enumerate() {
            row[9] = 1000.0;
            let time = if rank == 7 { seconds } else { 1.0 };
            let name = format!("/pfs/{rank}");
            by_rank(
                &mut job,
                Interface::Posix,
                &name,
                rank as u32,
                writes(1, 1000, time),
            );
        }
        rows[7][end] = 1000.0;
        job.timelines = vec![timeline(1.0, &rows)];
        job
    };
    // The others are done at 10 s, this one at 15 s: 5 % of the run.
    about(fires(&with_late(14, 20.0), "idle-tail").seconds_lost, 5.0);
    is_silent(&with_late(13, 20.0), "idle-tail");
    // A rank that writes a line at the end, but spends no more time in I/O than the others.
    is_silent(&with_late(90, 1.0), "idle-tail");
    let mut estimated = with_late(14, 20.0);
    estimated.timelines[0].source = TimelineSource::Timestamps;
    is_silent(&estimated, "idle-tail");
}

/// 8 ranks that each write in `turn` columns, from column `start(rank)` on.
fn in_columns(turn: usize, starts: impl Fn(usize) -> Vec<usize>) -> Job {
    let mut job = mpi_job(8);
    let mut rows = vec![vec![0.0; 100]; 8];
    for (rank, row) in rows.iter_mut().enumerate() {
        for start in starts(rank) {
            row[start..start + turn].fill(1000.0);
        }
        let name = format!("/pfs/{rank}");
        let total = writes(1, 1000, turn as f64);
        by_rank(&mut job, Interface::Posix, &name, rank as u32, total);
    }
    job.timelines = vec![timeline(1.0, &rows)];
    job
}

#[test]
fn ranks_that_wait_for_their_turn_are_told_from_ranks_that_do_io_now_and_then() {
    let code = "ranks-take-turns";
    // Two phases, in each of which 8 ranks have 3 s each: all at once would save 21 s twice. No rank is in I/O that long.
    let found = fires(&in_columns(3, |rank| vec![3 * rank, 40 + 3 * rank]), code);
    about(found.seconds_lost, 42.0);
    assert!(
        found.evidence[0].contains("2 phases"),
        "{}",
        found.evidence[0]
    );
    // All at once, and all at once with little delays.
    is_silent(&in_columns(3, |_| vec![0, 40]), code);
    is_silent(&in_columns(3, |rank| vec![rank, 40 + rank]), code);
    // Turns that share a column each, and turns that are too short to tell.
    fires(&in_columns(3, |rank| vec![2 * rank, 40 + 2 * rank]), code);
    is_silent(&in_columns(1, |rank| vec![rank, 40 + rank]), code);
    // Each whenever it needs something: twice, at times that have nothing to do with one another.
    is_silent(
        &in_columns(3, |rank| vec![3 * rank, 24 + 3 * (rank * 5 % 8)]),
        code,
    );
    // Nobody waits for a turn that begins long after the last one has ended.
    is_silent(&in_columns(1, |rank| vec![12 * rank]), code);
    // Seven ranks are too few to speak of a pattern.
    is_silent(
        &in_columns(3, |rank| {
            (0..7).filter(|&n| n == rank).map(|n| 3 * n).collect()
        }),
        code,
    );
    let mut estimated = in_columns(3, |rank| vec![3 * rank]);
    fires(&estimated, code);
    estimated.timelines[0].source = TimelineSource::Timestamps;
    is_silent(&estimated, code);
}

#[test]
fn bursts_that_come_again_and_again_say_what_a_buffer_must_move() {
    let mut job = mpi_job(1);
    let mut row = vec![0.0; 100];
    for start in [5, 30, 55, 80] {
        row[start..start + 2].fill((1u64 << 30) as f64);
    }
    let total = writes(128, 64 << 20, 40.0);
    by_rank(&mut job, Interface::Posix, "/pfs/ckpt", 0, total);
    job.timelines = vec![timeline(1.0, &[row])];
    let found = fires(&job, "write-bursts");
    // 80 % of 8 GiB in 4 bursts, 25 s apart, at 7 GiB in 40 s.
    let said = found
        .evidence
        .iter()
        .find(|one| one.contains("one about every"));
    let said = said.unwrap_or_else(|| panic!("{:?}", found.evidence));
    assert!(said.contains("every 25.0 s, of 1.8 GiB each"), "{said}");
    assert!(said.contains("71.7 MiB/s"), "{said}");
}

#[test]
fn bursts_of_writes_are_found_by_a_measured_timeline_only() {
    let with_bursts = |busy: usize, seconds: f64| {
        let mut job = mpi_job(1);
        let mut row = vec![0.0; 100];
        for i in 0..busy {
            row[i * 2] = (1u64 << 30) as f64;
        }
        by_rank(
            &mut job,
            Interface::Posix,
            "/pfs/ckpt",
            0,
            writes(busy as u64 * 64, 16 << 20, seconds),
        );
        job.timelines = vec![timeline(1.0, &[row])];
        job
    };
    // 10 GiB take 10 s on local storage.
    let found = fires(&with_bursts(10, 50.0), "write-bursts");
    about(found.seconds_lost, 40.0);
    assert!(found.setting.unwrap().contains("--buffer"));
    // 25 of 100 columns hold 80 % of 31 equal bursts; 26 hold those of 32.
    fires(&with_bursts(31, 99.0), "write-bursts");
    is_silent(&with_bursts(32, 99.0), "write-bursts");
    // The file system is as fast as local storage.
    is_silent(&with_bursts(10, 10.0), "write-bursts");
    let mut estimated = with_bursts(10, 50.0);
    estimated.timelines[0].source = TimelineSource::Timestamps;
    is_silent(&estimated, "write-bursts");
}

/// Ranks that are in collective calls for so many seconds each, of which POSIX has so many.
fn in_collective_calls(seconds: &[f64], below: &[f64]) -> Job {
    let mut job = mpi_job(seconds.len() as u32);
    for (rank, (above, below)) in seconds.iter().zip(below).enumerate() {
        let mut asked = writes(4, 1 << 20, *above);
        asked.write.collective = 4;
        by_rank(&mut job, Interface::MpiIo, "/pfs/s", rank as u32, asked);
        let done = writes(4, 1 << 20, *below);
        by_rank(&mut job, Interface::Posix, "/pfs/s", rank as u32, done);
    }
    job
}

#[test]
fn a_rank_that_waits_for_a_late_one_is_not_slow() {
    let job = in_collective_calls(&[40.0, 1.0], &[0.5, 0.5]);
    let found = fires(&job, "late-ranks");
    // Rank 0 waits for 39.5 s, rank 1 for 0.5 s.
    about(found.seconds_lost, 19.5);
    assert!(
        found.evidence[0].starts_with("rank 1 waited least"),
        "{:?}",
        found.evidence
    );
    assert!(!found.advice.contains("aggregator"), "{}", found.advice);
    is_silent(&job, "straggler-shared-file");
    is_silent(&job, "library-time");
    let report = crate::Report::new(job, &Thresholds::default());
    assert_eq!(report.unexplained, None);
    // One of eight is late: all others wait.
    let mut seconds = [40.0; 8];
    seconds[5] = 1.0;
    let job = in_collective_calls(&seconds, &[0.5; 8]);
    about(
        fires(&job, "late-ranks").seconds_lost,
        (7.0 * 39.5 + 0.5) / 8.0 - 0.5,
    );
    is_silent(&job, "library-time");
    is_silent(&job, "straggler-ranks");
}

#[test]
fn ranks_that_wait_for_an_aggregator_or_all_wait_alike_are_not_late() {
    let code = "late-ranks";
    // Rank 1 is in POSIX while the others wait for it.
    is_silent(
        &in_collective_calls(&[40.0, 40.0, 40.0, 40.0], &[0.0, 39.0, 0.0, 0.0]),
        code,
    );
    let alike = in_collective_calls(&[60.0, 59.0, 58.0, 60.0], &[0.5; 4]);
    is_silent(&alike, code);
    fires(&alike, "library-time");
    // Without collective calls a rank waits for something else, but storage is not slow.
    let mut alone = in_collective_calls(&[40.0, 1.0], &[0.5, 0.5]);
    for one in &mut alone.layers[1].uses {
        let write = &mut one.total.write;
        (write.independent, write.collective) = (write.collective, 0);
    }
    is_silent(&alone, code);
    let found = fires(&alone, "straggler-shared-file");
    assert!(
        found.evidence[0].contains("no storage target"),
        "{:?}",
        found.evidence
    );
}

#[test]
fn of_ranks_that_the_logger_has_summed_the_fastest_came_last() {
    let mut job = mpi_job(16);
    let mut asked = writes(64, 1 << 20, 15.0 * 40.0);
    asked.write.collective = 64;
    by_all(
        &mut job,
        Interface::MpiIo,
        "/pfs/s",
        slowest(2, 40.0, 1),
        asked,
    );
    by_all(
        &mut job,
        Interface::Posix,
        "/pfs/s",
        slowest(0, 0.1, 1),
        writes(64, 1 << 20, 1.6),
    );
    // The fastest is not known.
    is_silent(&job, "late-ranks");
    job.layers[1].uses[0].reduced[0].fastest = slowest(7, 0.1, 1);
    let found = fires(&job, "late-ranks");
    about(found.seconds_lost, (600.0 - 1.6) / 16.0 - 0.1);
    assert!(
        found.evidence[0].starts_with("rank 7"),
        "{:?}",
        found.evidence
    );
}
