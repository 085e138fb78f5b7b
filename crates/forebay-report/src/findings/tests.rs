//! Every rule: where it fires, where it must not, and both sides of its threshold.

mod calls;
mod containers;
mod data;
mod layers;
mod places;
mod ranks;
mod read_ahead;
mod syncs;

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

/// A job with one file of all ranks, which took equally long.
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
        // One byte more is in the next bucket, so no request of this file is small.
        is_silent(&with_own(total(1000, (100 << 10) + 1, 10.0)), code);
        let mut mixed = total(2000, 500, 1.0);
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
fn the_empty_read_at_the_end_of_a_file_is_no_small_request() {
    let with_empty = |extra: u64| {
        let mut total = reads(2000, 1 << 20, 10.0);
        total.read.ops += 2000 + extra;
        total.read.sizes[0] = 2000 + extra;
        total.opens = 2000;
        with_own(total)
    };
    is_silent(&with_empty(0), "small-reads");
    fires(&with_empty(2000), "small-reads");
}

#[test]
fn small_requests_lose_what_fewer_of_them_would_save() {
    // 4096 requests of 1 KiB are 4 MiB, which is one request when gathered. In the model each costs 257 KiB, and all of
    // them 1028 MiB.
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
    // The logger has summed the ranks: 320 s of 16 ranks are 20 s each.
    let mut reduced = with_shared(Interface::Posix, writes(65_536, 1024, 320.0));
    reduced.run_seconds = 200.0;
    let found = fires(&reduced, "small-writes-shared");
    let seconds = found.seconds_lost.unwrap();
    assert!((19.0..20.0).contains(&seconds), "{seconds}");
    // The same with a file and a record per rank: the slowest rank counts, not the sum.
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
    let mut total = writes(5000, 1 << 20, 160.0);
    total.misaligned = 1000;
    let found = fires(
        &with_shared(Interface::Posix, total.clone()),
        "misaligned-writes",
    );
    // 10 s per rank, a fifth misaligned, half a block of 4 KiB for a request of 1 MiB.
    assert_eq!(found.seconds_lost, None);
    about(
        found.concerned_seconds,
        10.0 * 0.2 * 0.5 * 4096.0 / (4096.0 + 1_048_576.0),
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
    // Far fewer bytes than the extent: a program that reads parts of a file reads nothing twice.
    total.read.max_byte = Some(1 << 40);
    is_silent(&with_own(total), "repeated-reads");
}

#[test]
fn data_that_every_rank_reads_is_told_from_data_that_one_reads_twice() {
    // 16 ranks read the same 16 MiB.
    let mut total = reads(256, 1 << 20, 32.0);
    total.read.max_byte = Some((16 << 20) - 1);
    let job = with_shared(Interface::Posix, total.clone());
    let found = fires(&job, "read-by-many");
    about(found.concerned_seconds, 2.0 * 15.0 / 16.0);
    assert_eq!(found.seconds_lost, None);
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
    job.files[0].rest = Some(2);
    is_silent(&job, "repeated-opens");
    is_silent(&job, "repeated-reads");
    is_silent(&job, "read-by-many");
    let mut total = writes(5000, 100, 5.0);
    (total.write.sequential, total.switches) = (0, 2000);
    let mut job = with_own(total);
    fires(&job, "random-writes");
    fires(&job, "read-write-switches");
    job.files[0].rest = Some(2);
    is_silent(&job, "random-writes");
    is_silent(&job, "read-write-switches");
}

#[test]
fn files_that_the_recorder_has_summed_are_small_files_all_the_same() {
    let mut total = writes(50_000, 100, 0.5);
    total.opens = 50_000;
    total.meta_seconds = 5.0;
    let mut job = plain_job(1);
    by_rank(&mut job, Interface::Posix, "/pfs/<other files>", 0, total);
    is_silent(&job, "many-small-files");
    job.files[0].rest = Some(50_000);
    let found = fires(&job, "many-small-files");
    assert!(found.title.contains("50,000 with 100 B"), "{}", found.title);
    about(found.seconds_lost, 5.0 * (1.0 - 1.0 / 50_000.0));
    assert_eq!(Account::of(&job).moved.files, 50_000);
}

#[test]
fn the_modules_of_a_program_are_not_to_be_put_into_hdf5() {
    let with_files = |ending: &str| {
        let mut job = plain_job(1);
        for n in 0..100 {
            let mut total = reads(1, 1000, 0.1);
            total.meta_seconds = 0.1;
            by_rank(
                &mut job,
                Interface::Posix,
                &format!("/home/me/lib/{n}{ending}"),
                0,
                total,
            );
        }
        // What is only asked for is no file.
        let asked = Counters {
            stats: 9,
            meta_seconds: 0.1,
            ..Counters::default()
        };
        by_rank(&mut job, Interface::Posix, "/home/me/lib", 0, asked);
        job
    };
    let modules = with_files(".pyc");
    let found = fires(&modules, "import-storm");
    assert!(found.advice.contains("node-local"), "{}", found.advice);
    about(found.seconds_lost, 20.0 * 0.99);
    is_silent(&modules, "many-small-files");
    assert_eq!(Account::of(&modules).moved.files, 100);
    let data = with_files(".dat");
    is_silent(&data, "import-storm");
    assert!(
        fires(&data, "many-small-files").advice.contains("HDF5"),
        "{data:#?}"
    );
}

#[test]
fn modules_that_all_ranks_load_are_an_import_storm_with_a_price_where_calls_are_slow() {
    let with = |files: u32, seconds: f64| {
        let mut job = mpi_job(16);
        for n in 0..files {
            // Two calls for each open, and one read.
            let mut total = reads(16, 1000, 16.0 * seconds);
            total.opens = 16;
            total.meta_seconds = 2.0 * 16.0 * seconds;
            let name = format!("/home/me/lib/{n}.py");
            let even = slowest(0, 3.0 * seconds, 1000);
            by_all(&mut job, Interface::Posix, &name, even, total);
        }
        job
    };
    let slow = fires(&with(100, 1e-3), "import-storm");
    about(slow.seconds_lost, 100.0 * 3e-3 * 0.99);
    is_silent(&with(99, 1e-3), "import-storm");
    let quick = fires(&with(1000, 0.99e-4), "import-storm");
    assert_eq!(quick.seconds_lost, None);
    about(quick.concerned_seconds, 1000.0 * 2.97e-4 * 0.999);
}

#[test]
fn opens_that_wait_are_neither_metadata_nor_small_files_and_have_no_price() {
    let with_pipes = |seconds: f64| {
        let mut job = plain_job(1);
        for n in 0..1000 {
            let mut total = reads(1, 100, 0.001);
            total.meta_seconds = seconds;
            by_rank(
                &mut job,
                Interface::Posix,
                &format!("/pfs/pipe{n}"),
                0,
                total,
            );
        }
        job.run_seconds = 1e6;
        job
    };
    let waiting = with_pipes(10.0);
    let found = fires(&waiting, "waiting-opens");
    assert_eq!((found.seconds_lost, found.severity), (None, Severity::Low));
    about(found.concerned_seconds, 10_000.0);
    assert_eq!(found.measured.len(), 8);
    assert!(found.measured[0].name.starts_with("/pfs/pipe"));
    about(Some(found.measured[0].seconds), 10.0);
    is_silent(&waiting, "metadata-time");
    is_silent(&waiting, "many-small-files");
    is_silent(&with_pipes(9.9), "waiting-opens");
    fires(&with_pipes(9.9), "many-small-files");
}

#[test]
fn a_file_waits_by_its_longest_call_and_not_by_the_mean() {
    let with = |opens: u64, stats: u64, seconds: f64| {
        let mut job = mpi_job(16);
        for n in 0..200 {
            let mut total = reads(1, 100, 0.001);
            total.meta_seconds = 0.01;
            by_rank(
                &mut job,
                Interface::Posix,
                &format!("/pfs/{n}"),
                n % 16,
                total,
            );
        }
        let mut total = reads(1, 100, 0.001);
        (total.opens, total.stats) = (opens, stats);
        total.meta_seconds = seconds;
        by_rank(&mut job, Interface::Posix, "/pfs/pipe", 3, total);
        job.run_seconds = 1e3;
        job
    };
    // Three calls of which two took 2 s at most.
    let pipe = with(3, 0, 15.3);
    about(fires(&pipe, "waiting-opens").concerned_seconds, 15.3);
    is_silent(&pipe, "metadata-time");
    is_silent(&pipe, "straggler-ranks");
    is_silent(&with(3, 0, 13.9), "waiting-opens");
    // Many quick calls are no wait.
    is_silent(&with(1, 100_000, 60.0), "waiting-opens");
    fires(&with(1, 100_000, 60.0), "stat-storm");
    // A rank that waited is known by its record, however many others there are.
    let mut of_record = with(1, 1000, 60.0);
    let uses = &mut of_record.layers[0].uses;
    uses.last_mut().unwrap().total.longest_call = 12.0;
    fires(&of_record, "waiting-opens");
    is_silent(&of_record, "stat-storm");
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
fn calls_that_ask_for_attributes_have_a_finding_of_their_own_if_most_are_such() {
    let with_stats = |opens: u64, stats: u64| {
        let mut total = reads(100, 1 << 20, 7.0);
        (total.opens, total.stats) = (opens, stats);
        total.meta_seconds = 3.0;
        with_own(total)
    };
    let storm = with_stats(100, 800);
    let found = fires(&storm, "stat-storm");
    about(found.seconds_lost, 3.0 * (1.0 - 2.0 / 1000.0));
    assert!(found.advice.contains("inotify"), "{}", found.advice);
    is_silent(&storm, "metadata-time");
    fires(&with_stats(101, 800), "metadata-time");
    is_silent(&with_stats(101, 800), "stat-storm");
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
        fires(&with_files(512, 1, 1 << 24), "file-per-process").concerned_seconds,
        0.04,
    );
    is_silent(&with_files(511, 1, 1 << 24), "file-per-process");
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
fn what_has_no_price_is_judged_by_half_of_the_seconds_it_is_about() {
    // All 16 ranks read the same: each waits for 20 s of it, of which 15/16 may be lost.
    let with = |run: f64| {
        let mut total = reads(1600, 1 << 20, 320.0);
        total.read.max_byte = Some((100 << 20) - 1);
        let mut job = with_shared(Interface::Posix, total);
        job.run_seconds = run;
        job
    };
    let concerned = 20.0 * 15.0 / 16.0;
    for (share, severity) in [
        (0.201, Severity::High),
        (0.199, Severity::Medium),
        (0.041, Severity::Medium),
        (0.039, Severity::Low),
        (0.0039, Severity::Note),
    ] {
        let found = fires(&with(concerned / share), "read-by-many");
        assert_eq!(found.seconds_lost, None);
        assert_eq!(found.severity, severity, "{share}");
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
