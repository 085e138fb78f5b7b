//! Each rule: where it fires, where it must not, and on both sides of its threshold.

use super::*;
use crate::model::*;
use crate::sample::*;

fn findings(job: &Job) -> Vec<Finding> {
    find(job, &Account::of(job), &Thresholds::default())
}

fn finding(job: &Job, code: &str) -> Option<Finding> {
    findings(job).into_iter().find(|one| one.code == code)
}

#[track_caller]
fn fires(job: &Job, code: &str) -> Finding {
    let found = finding(job, code);
    found.unwrap_or_else(|| panic!("{code} is missing; there are {:#?}", findings(job)))
}

#[track_caller]
fn is_silent(job: &Job, code: &str) {
    if let Some(found) = finding(job, code) {
        panic!("{code} must not fire: {found:#?}");
    }
}

#[track_caller]
fn about(value: Option<f64>, expected: f64) {
    let value = value.expect("a finding about time");
    assert!(
        (value - expected).abs() <= 1e-6 * expected.abs().max(1.0),
        "{value} is not {expected}"
    );
}

fn slowest(rank: u32, seconds: f64, bytes: u64) -> Extreme {
    Extreme {
        rank,
        seconds,
        bytes,
    }
}

/// A job with one file of one rank.
fn with_own(total: Counters) -> Job {
    let mut job = mpi_job(16);
    by_rank(&mut job, Interface::Posix, "/pfs/own", 3, total);
    job
}

/// A job with one file of all ranks, who took equally long.
fn with_shared(interface: Interface, total: Counters) -> Job {
    let mut job = mpi_job(16);
    let even = slowest(0, total.seconds() / 16.0, total.bytes() / 16);
    by_all(&mut job, interface, "/pfs/shared", even, total);
    job
}

#[test]
fn a_job_without_io_and_a_well_behaved_job_have_no_findings() {
    assert_eq!(findings(&mpi_job(16)), []);
    assert_eq!(findings(&mpi_job(0)), []);
    let mut good = mpi_job(16);
    for rank in 0..16 {
        let name = format!("/pfs/part.{rank}");
        by_rank(
            &mut good,
            Interface::Posix,
            &name,
            rank,
            writes(256, 4 << 20, 1.0),
        );
    }
    assert_eq!(findings(&good), []);
}

#[test]
fn small_requests_count_from_a_thousand_on_and_from_a_fifth_of_all() {
    for (code, total) in [
        ("small-reads", reads as fn(u64, u64, f64) -> Counters),
        ("small-writes", writes),
    ] {
        fires(&with_own(total(1000, 100 << 10, 10.0)), code);
        is_silent(&with_own(total(999, 100 << 10, 10.0)), code);
        // One byte more is in the next bucket: no request of this file is small.
        is_silent(&with_own(total(1000, (100 << 10) + 1, 10.0)), code);
        let mut mixed = total(2000, 50, 1.0);
        mixed.add(&total(8000, 1 << 20, 9.0));
        fires(&with_own(mixed.clone()), code);
        mixed.add(&total(1, 1 << 20, 0.0));
        is_silent(&with_own(mixed), code);
        fires(
            &with_shared(Interface::Posix, total(1000, 1024, 10.0)),
            &format!("{code}-shared"),
        );
        is_silent(
            &with_shared(Interface::Posix, total(1000, 1024, 10.0)),
            code,
        );
    }
}

#[test]
fn small_requests_lose_what_fewer_of_them_would_save() {
    // 4096 requests of 1 KiB: 4 MiB, one request when gathered. Each costs 257 KiB in the model, the whole 1028 MiB.
    let found = fires(&with_own(writes(4096, 1024, 20.0)), "small-writes");
    let bytes_estimated: f64 = 4096.0 * 320.0;
    let gathered = (bytes_estimated / 4_194_304.0).ceil();
    let expected = 20.0 * (4096.0 - gathered) * 262_144.0 / (4096.0 * (262_144.0 + 1024.0));
    about(found.seconds_lost, expected);
    assert_eq!(found.severity, Severity::High);
    assert!(found.files[0].name == "/pfs/own" && found.estimate.contains("rank 3"));
    assert!(found.setting.unwrap().contains("forebay run --buffer"));
}

#[test]
fn the_same_requests_on_all_ranks_cost_each_its_part() {
    // Reduced by the logger: 320 s of 16 ranks are 20 s each.
    let mut reduced = with_shared(Interface::Posix, writes(65_536, 1024, 320.0));
    reduced.run_seconds = 200.0;
    let found = fires(&reduced, "small-writes-shared");
    let seconds = found.seconds_lost.unwrap();
    assert!((19.0..20.0).contains(&seconds), "{seconds}");
    // The same, one record per rank, on files of their own: the slowest rank counts, not the sum.
    let mut own = mpi_job(16);
    for rank in 0..16 {
        let name = format!("/pfs/part.{rank}");
        by_rank(
            &mut own,
            Interface::Posix,
            &name,
            rank,
            writes(4096, 1024, 20.0),
        );
    }
    let seconds = fires(&own, "small-writes").seconds_lost.unwrap();
    assert!((19.0..20.0).contains(&seconds), "{seconds}");
}

#[test]
fn random_access_is_told_from_ascending_access_with_gaps() {
    let mut random = reads(5000, 1 << 20, 10.0);
    random.read.sequential = 5000 - 1 - 1000;
    fires(&with_own(random.clone()), "random-reads");
    // One jump less is below a thousand.
    random.read.sequential += 1;
    is_silent(&with_own(random.clone()), "random-reads");
    // Gaps, but always forward.
    random.read.consecutive = 0;
    random.read.sequential = 4999;
    is_silent(&with_own(random), "random-reads");
    // The first access of each of 16 ranks is neither sequential nor random.
    let mut first = reads(5000, 1 << 20, 10.0);
    first.read.sequential = 5000 - 16;
    is_silent(&with_shared(Interface::Posix, first), "random-reads");
    let mut share = writes(10_000, 1 << 20, 10.0);
    share.write.sequential = 9_999 - 2000;
    fires(&with_own(share.clone()), "random-writes");
    share.write.sequential += 1;
    is_silent(&with_own(share), "random-writes");
}

#[test]
fn misalignment_matters_where_several_ranks_write() {
    let mut total = writes(5000, 1 << 20, 16.0);
    total.misaligned = 1000;
    let found = fires(
        &with_shared(Interface::Posix, total.clone()),
        "misaligned-writes",
    );
    // 1 s per rank, a fifth misaligned, half a block of 4 KiB for a request of 1 MiB.
    about(
        found.seconds_lost,
        0.2 * 0.5 * 4096.0 / (4096.0 + 1_048_576.0),
    );
    is_silent(&with_own(total.clone()), "misaligned-writes");
    total.misaligned = 999;
    is_silent(
        &with_shared(Interface::Posix, total.clone()),
        "misaligned-writes",
    );
    total.misaligned = 1000;
    total.alignment = 0;
    is_silent(&with_shared(Interface::Posix, total), "misaligned-writes");
    let mut only_read = reads(5000, 1 << 20, 16.0);
    only_read.misaligned = 5000;
    is_silent(
        &with_shared(Interface::Posix, only_read),
        "misaligned-writes",
    );
}

#[test]
fn alternating_reads_and_writes_are_found() {
    let mut total = reads(5000, 1 << 20, 5.0);
    total.add(&writes(5000, 1 << 20, 5.0));
    total.switches = 1000;
    fires(&with_own(total.clone()), "read-write-switches");
    total.switches = 999;
    is_silent(&with_own(total), "read-write-switches");
}

#[test]
fn reading_more_than_the_file_holds_is_found_the_right_way_round() {
    let mut total = reads(64, 1 << 20, 8.0);
    total.read.max_byte = Some((32 << 20) - 1);
    let found = fires(&with_own(total.clone()), "repeated-reads");
    about(found.seconds_lost, 4.0);
    total.read.max_byte = Some(32 << 20);
    is_silent(&with_own(total.clone()), "repeated-reads");
    // Far fewer bytes than the extent: a sparse reader is no redundant one.
    total.read.max_byte = Some(1 << 40);
    is_silent(&with_own(total), "repeated-reads");
}

#[test]
fn data_that_every_rank_reads_is_told_from_data_that_one_reads_twice() {
    // 16 ranks read the same 16 MiB.
    let mut total = reads(256, 1 << 20, 32.0);
    total.read.max_byte = Some((16 << 20) - 1);
    let job = with_shared(Interface::Posix, total.clone());
    about(
        fires(&job, "read-by-many").seconds_lost,
        0.5 * 2.0 * 15.0 / 16.0,
    );
    is_silent(&job, "repeated-reads");
    // Each reads a part of its own.
    total.read.max_byte = Some((256 << 20) - 1);
    is_silent(
        &with_shared(Interface::Posix, total.clone()),
        "read-by-many",
    );
    total.read.max_byte = Some((128 << 20) - 1);
    fires(
        &with_shared(Interface::Posix, total.clone()),
        "read-by-many",
    );
    total.read.max_byte = Some(128 << 20);
    is_silent(&with_shared(Interface::Posix, total), "read-by-many");
}

#[test]
fn a_sum_over_many_files_is_not_taken_for_one_file() {
    let mut total = reads(2000, 1 << 20, 8.0);
    total.opens = 2000;
    total.meta_seconds = 30.0;
    total.read.max_byte = Some((1 << 20) - 1);
    let mut job = with_own(total);
    fires(&job, "repeated-opens");
    fires(&job, "repeated-reads");
    job.files[0].is_rest = true;
    is_silent(&job, "repeated-opens");
    is_silent(&job, "repeated-reads");
    is_silent(&job, "read-by-many");
}

#[test]
fn fsync_storms_are_found() {
    let mut total = writes(1000, 1 << 20, 11.0);
    total.syncs = 100;
    about(
        fires(&with_own(total.clone()), "frequent-fsync").seconds_lost,
        1.0,
    );
    total.syncs = 99;
    is_silent(&with_own(total.clone()), "frequent-fsync");
    total.syncs = 100;
    total.write.ops = 1001;
    is_silent(&with_own(total), "frequent-fsync");
}

#[test]
fn bulk_data_through_streams_is_found_but_not_text() {
    let stream = |bytes: u64| {
        let mut total = writes(bytes / 4096, 4096, 10.0);
        total.write.sizes = [0; 10];
        total
    };
    let with_stream = |name: &str, bytes: u64, posix: u64| {
        let mut job = mpi_job(16);
        by_rank(&mut job, Interface::Stdio, name, 0, stream(bytes));
        by_rank(
            &mut job,
            Interface::Posix,
            "/pfs/data",
            1,
            writes(posix >> 20, 1 << 20, 1.0),
        );
        job
    };
    fires(&with_stream("/pfs/out", 100 << 20, 100 << 20), "stdio-bulk");
    is_silent(
        &with_stream("/pfs/out", (100 << 20) - 4096, 100 << 20),
        "stdio-bulk",
    );
    is_silent(&with_stream("<STDOUT>", 1 << 30, 100 << 20), "stdio-bulk");
    fires(&with_stream("/pfs/out", 100 << 20, 900 << 20), "stdio-bulk");
    is_silent(&with_stream("/pfs/out", 100 << 20, 901 << 20), "stdio-bulk");
}

#[test]
fn metadata_time_is_judged_by_its_share_of_the_time_in_io() {
    let with_meta = |opens: u64, meta: f64| {
        let mut total = reads(100, 1 << 20, 7.0);
        total.opens = opens;
        total.meta_seconds = meta;
        with_own(total)
    };
    let found = fires(&with_meta(500, 3.0), "metadata-time");
    about(found.seconds_lost, 3.0 * (1.0 - 2.0 / 1000.0));
    is_silent(&with_meta(499, 3.0), "metadata-time");
    is_silent(&with_meta(500, 2.99), "metadata-time");
}

#[test]
fn repeated_opens_are_counted_per_rank() {
    let with_opens = |opens: u64| {
        let mut total = reads(160, 1 << 20, 1.0);
        total.opens = opens;
        total.meta_seconds = 32.0;
        with_shared(Interface::Posix, total)
    };
    // 16 ranks; ROMIO's four opens per rank are no repetition.
    is_silent(&with_opens(64), "repeated-opens");
    is_silent(&with_opens(999), "repeated-opens");
    about(
        fires(&with_opens(1600), "repeated-opens").seconds_lost,
        2.0 * (1.0 - 1.0 / 100.0),
    );
    fires(&with_opens(1000), "repeated-opens");
}

#[test]
fn many_small_files_and_files_per_process_are_counted_per_rank() {
    let with_files = |ranks: u32, per_rank: u32, size: u64| {
        let mut job = mpi_job(ranks);
        for rank in 0..ranks {
            for i in 0..per_rank {
                let mut total = writes(1, size, 0.01);
                total.meta_seconds = 0.04;
                let name = format!("/pfs/{rank}.{i}");
                by_rank(&mut job, Interface::Posix, &name, rank, total);
            }
        }
        job
    };
    let found = fires(&with_files(2, 100, 1000), "many-small-files");
    about(found.seconds_lost, 4.0 * 0.99);
    is_silent(&with_files(2, 99, 1000), "many-small-files");
    is_silent(&with_files(2, 100, 1 << 20), "many-small-files");
    about(
        fires(&with_files(512, 1, 1 << 24), "file-per-process").seconds_lost,
        0.04,
    );
    is_silent(&with_files(511, 1, 1 << 24), "file-per-process");
}

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
    about(fires(&with_one(30, 1.0), "uneven-bytes").seconds_lost, 0.0);
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
    // Plenty of POSIX requests, no MPI-IO: nobody is told to use it.
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
    about(fires(&with_late(90, 1.0), "idle-tail").seconds_lost, 0.0);
    let mut estimated = with_late(14, 20.0);
    estimated.timelines[0].source = TimelineSource::Timestamps;
    is_silent(&estimated, "idle-tail");
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

#[test]
fn no_buffer_is_promised_to_jobs_on_several_nodes() {
    let mut job = with_own(writes(4096, 1024, 20.0));
    job.nodes = Some(2);
    assert_eq!(fires(&job, "small-writes").setting, None);
    job.nodes = Some(1);
    let setting = fires(&job, "small-writes").setting.unwrap();
    assert!(!setting.contains("does not say"), "{setting}");
}

#[test]
fn incomplete_data_comes_first_and_without_seconds() {
    let mut job = with_own(writes(4096, 1024, 20.0));
    job.modules.push(ModuleFacts {
        name: "POSIX".to_owned(),
        version: 4,
        records: 1,
        is_partial: false,
        is_unknown: false,
    });
    is_silent(&job, "partial-data");
    job.modules[0].is_partial = true;
    let all = findings(&job);
    assert_eq!(all[0].code, "partial-data");
    assert_eq!(all[0].severity, Severity::Data);
    assert_eq!(all[0].seconds_lost, None);
    assert_eq!(all[1].code, "small-writes");
}

#[test]
fn low_coverage_is_said_below_nine_tenths() {
    let mut job = mpi_job(1);
    job.coverage = Some(Coverage {
        seen: 899,
        total: 1000,
    });
    fires(&job, "low-coverage");
    job.coverage = Some(Coverage {
        seen: 900,
        total: 1000,
    });
    is_silent(&job, "low-coverage");
    job.coverage = Some(Coverage { seen: 0, total: 0 });
    is_silent(&job, "low-coverage");
    job.losses = vec!["12 files were summed per directory".to_owned()];
    fires(&job, "condensed-data");
}

#[test]
fn severity_follows_from_the_share_of_the_run_time() {
    for (run, severity) in [
        (195.0, Severity::High),
        (990.0, Severity::Medium),
        (9_900.0, Severity::Low),
        (11_000.0, Severity::Note),
    ] {
        let mut job = with_own(writes(4096, 1024, 20.0));
        job.run_seconds = run;
        assert_eq!(fires(&job, "small-writes").severity, severity, "{run}");
    }
}

#[test]
fn nothing_costs_more_than_the_slowest_rank_spent() {
    let mut job = with_own(writes(4096, 10, 20.0));
    job.run_seconds = 5.0;
    for one in findings(&job) {
        assert!(one.seconds_lost.unwrap_or(0.0) <= 5.0, "{one:#?}");
    }
}
