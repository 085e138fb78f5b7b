//! fsync: often, and seldom but long.

use super::*;

#[test]
fn fsync_storms_are_found() {
    let mut total = writes(1000, 1 << 20, 11.0);
    total.syncs = 100;
    about(
        fires(&with_own(total.clone()), "frequent-fsync").seconds_lost,
        1.0,
    );
    // Where writes are known to be short, the rest of the time is that of fsync.
    total.write.longest = 0.002;
    about(
        fires(&with_own(total.clone()), "frequent-fsync").seconds_lost,
        9.0,
    );
    total.write.longest = 0.5;
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

/// A job in which each of these ranks writes and syncs a file of its own: 5 writes of 0.1 s at most, and 5 fsyncs, in so
/// many seconds together.
fn with_checkpoints(ranks: u32, seconds: &[f64]) -> Job {
    let mut job = mpi_job(ranks);
    for (rank, seconds) in (0..).zip(seconds) {
        let mut total = writes(5, 32 << 20, *seconds);
        (total.syncs, total.write.longest) = (5, 0.1);
        let name = format!("/pfs/checkpoint.{rank}");
        by_rank(&mut job, Interface::Posix, &name, rank, total);
    }
    job
}

#[test]
fn few_long_fsyncs_of_several_ranks_are_found_from_two_hundredths_of_the_run_on() {
    let job = with_checkpoints(4, &[2.5, 4.5, 2.5, 2.4]);
    let found = fires(&job, "fsync-bursts");
    assert_eq!(found.seconds_lost, None);
    // 5 writes took half a second at most; 100 s is the run.
    about(found.concerned_seconds, 4.0);
    assert_eq!(
        found.title,
        "3 ranks wait in fsync, the slowest for 4.0 s: 20 fsyncs in all"
    );
    assert_eq!(
        found.evidence,
        [
            "20 fsyncs behind 640 MiB in 4 files",
            "in fsync at least: rank 1 4.0 s, rank 0 2.0 s, rank 2 2.0 s",
        ]
    );
    assert_eq!(found.files[0].name, "/pfs/checkpoint.1");
    assert_eq!(
        found.files[0].detail,
        "5 fsyncs behind 5 writes of 160 MiB in all, 4.0 s or more in fsync"
    );
    assert!(found.estimate.ends_with("on rank 1"), "{}", found.estimate);
    assert!(found.setting.is_some());
    is_silent(&with_checkpoints(4, &[2.4, 2.4, 2.4, 2.4]), "fsync-bursts");
    let mut without = with_checkpoints(4, &[9.0, 9.0]);
    for one in &mut without.layers[0].uses {
        one.total.syncs = 0;
    }
    is_silent(&without, "fsync-bursts");
}

#[test]
fn one_rank_that_waits_in_fsync_is_said_to_be_the_only_one() {
    let found = fires(&with_checkpoints(4, &[2.4, 4.5]), "fsync-bursts");
    assert_eq!(found.title, "Rank 1 waits 4.0 s in fsync: 10 fsyncs in all");
    let mut alone = with_checkpoints(1, &[4.5]);
    alone.launches.clear();
    alone.logs[0].is_mpi = false;
    let found = fires(&alone, "fsync-bursts");
    assert_eq!(
        found.title,
        "The only process waits 4.0 s in fsync: 5 fsyncs"
    );
    assert!(found.advice.contains("sync_file_range"), "{}", found.advice);
}

#[test]
fn what_writes_may_have_taken_is_not_said_of_fsync() {
    // The longest write could have been that of all of them.
    let mut job = with_checkpoints(4, &[50.0, 50.0]);
    for one in &mut job.layers[0].uses {
        one.total.write.longest = 10.0;
    }
    is_silent(&job, "fsync-bursts");
    // Nobody has timed a single write: an fsync counts as one of them.
    for one in &mut job.layers[0].uses {
        one.total.write.longest = 0.0;
    }
    about(fires(&job, "fsync-bursts").concerned_seconds, 25.0);
}

#[test]
fn threads_that_wait_at_the_same_time_wait_once() {
    // Two threads of a process, for 30 s each; the process was in I/O for 35 s.
    let mut job = with_checkpoints(1, &[60.5]);
    let bounds = Bounds {
        least: 34.0,
        most: 35.0,
    };
    job.busy = Some(Busy {
        whole: bounds,
        ranks: vec![bounds],
    });
    let found = fires(&job, "fsync-bursts");
    about(found.concerned_seconds, 35.0);
    assert!(found.title.contains("waits 35.0 s"), "{}", found.title);
}

#[test]
fn an_fsync_is_frequent_or_long_and_not_both() {
    let mut job = with_checkpoints(4, &[4.5, 4.5]);
    for one in &mut job.layers[0].uses {
        one.total.syncs = 50;
    }
    fires(&job, "frequent-fsync");
    is_silent(&job, "fsync-bursts");
    job.layers[0].uses[0].total.syncs = 49;
    is_silent(&job, "frequent-fsync");
    fires(&job, "fsync-bursts");
}

#[test]
fn seconds_that_another_finding_names_are_said_to_be_the_same() {
    let mut job = with_checkpoints(4, &[4.5, 4.5, 4.5, 4.5]);
    let of_rank = |at: usize| {
        let mut bins = vec![0.0; 100];
        bins[at] = 160.0 * 1_048_576.0;
        bins
    };
    let same = |found: &Finding| {
        found
            .evidence
            .iter()
            .any(|one| one.contains("write-bursts"))
    };
    is_silent(&job, "write-bursts");
    assert!(!same(&fires(&job, "fsync-bursts")));
    job.timelines = vec![timeline(
        1.0,
        &[of_rank(10), of_rank(10), of_rank(10), of_rank(10)],
    )];
    fires(&job, "write-bursts");
    assert!(same(&fires(&job, "fsync-bursts")));
}

/// Makes the time of the syncs of all files known, with so many seconds by rank.
fn time_syncs(job: &mut Job, waits: &[(u32, f64)]) {
    for one in &mut job.layers[0].uses {
        let is_of = |rank: u32| {
            let single = one.by_rank.iter().any(|share| share.rank == rank);
            let summed = one.reduced.iter();
            single
                || summed
                    .clone()
                    .any(|sum| (sum.first_rank..sum.first_rank + sum.ranks).contains(&rank))
        };
        one.waits = waits
            .iter()
            .copied()
            .filter(|(rank, _)| is_of(*rank))
            .collect();
        one.total.flushing.timed_syncs = one.total.syncs;
        one.total.flushing.sync_seconds = one.waits.iter().map(|(_, seconds)| seconds).sum();
    }
}

#[test]
fn where_the_time_of_syncs_is_known_nothing_is_guessed() {
    // The longest write could have been that of all of them.
    let mut job = with_checkpoints(4, &[50.0, 50.0]);
    for one in &mut job.layers[0].uses {
        one.total.write.longest = 10.0;
    }
    is_silent(&job, "fsync-bursts");
    time_syncs(&mut job, &[(0, 3.0), (1, 5.0)]);
    let found = fires(&job, "fsync-bursts");
    about(found.concerned_seconds, 5.0);
    assert_eq!(
        found.title,
        "2 ranks wait in fsync, the slowest for 5.0 s: 10 fsyncs in all"
    );
    assert_eq!(found.evidence[1], "in fsync: rank 1 5.0 s, rank 0 3.0 s");
    assert!(
        found.files[0].detail.ends_with("5.0 s in them"),
        "{:?}",
        found.files
    );
    time_syncs(&mut job, &[(0, 1.9), (1, 1.9)]);
    is_silent(&job, "fsync-bursts");
}

#[test]
fn small_writes_are_not_blamed_for_the_time_of_syncs() {
    let mut total = writes(2000, 4096, 10.0);
    total.syncs = 1000;
    let mut job = with_own(total);
    let blamed = fires(&job, "small-writes").seconds_lost.unwrap();
    time_syncs(&mut job, &[(3, 9.5)]);
    about(fires(&job, "frequent-fsync").seconds_lost, 9.5);
    about(fires(&job, "small-writes").seconds_lost, blamed / 20.0);
}

#[test]
fn few_calls_of_all_files_are_no_frequent_fsync() {
    let mut total = writes(1000, 1 << 20, 11.0);
    total.syncs = 100;
    let mut job = with_own(total);
    time_syncs(&mut job, &[(3, 1.0)]);
    let add_calls = |job: &mut Job, syncs: u64| {
        let mut calls = Counters {
            syncs,
            ..Counters::default()
        };
        calls.write.seconds = 5.0;
        calls.flushing.timed_syncs = syncs;
        calls.flushing.sync_seconds = 5.0;
        by_rank(job, Interface::Posix, "(sync)", 3, calls);
        let (file, one) = (job.files.last_mut(), job.layers[0].uses.last_mut());
        file.unwrap().is_calls = true;
        one.unwrap().waits = vec![(3, 5.0)];
    };
    let mut storm = job.clone();
    add_calls(&mut job, 1);
    about(fires(&job, "frequent-fsync").seconds_lost, 1.0);
    let found = fires(&job, "fsync-bursts");
    assert_eq!(found.title, "Rank 3 waits 5.0 s in sync: 1 sync in all");
    add_calls(&mut storm, 100);
    let found = fires(&storm, "frequent-fsync");
    about(found.seconds_lost, 6.0);
    assert_eq!(found.title, "Frequent sync: 200 syncs for 1,000 writes");
}

#[test]
fn of_a_file_of_all_ranks_it_is_told_who_waited() {
    let mut job = mpi_job(4);
    let mut total = writes(100, 1 << 20, 20.0);
    total.syncs = 2;
    by_all(
        &mut job,
        Interface::Posix,
        "/pfs/all",
        slowest(2, 8.0, 25 << 20),
        total,
    );
    time_syncs(&mut job, &[(2, 6.0)]);
    let found = fires(&job, "fsync-bursts");
    assert_eq!(found.title, "Rank 2 waits 6.0 s in fsync: 2 fsyncs in all");
}

#[test]
fn writes_that_wait_by_their_descriptor_are_frequent_syncs() {
    let mut total = writes(200, 4096, 3.0);
    total.flushing.synced_writes = 200;
    total.flushing.synced_seconds = 2.5;
    let mut job = with_own(total);
    job.layers[0].uses[0].waits = vec![(3, 2.5)];
    let found = fires(&job, "frequent-fsync");
    about(found.seconds_lost, 2.5);
    assert_eq!(
        found.title,
        "Every write waits for storage: 200 synced writes"
    );
    assert_eq!(found.files[0].detail, "200 synced writes, 200 writes");
}
