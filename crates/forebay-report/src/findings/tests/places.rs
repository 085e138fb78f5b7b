//! Slow nodes, slow mount points, and locks that go from node to node.

use super::*;

/// What each of two ranks on each node writes and reads: requests, bytes of each, seconds.
type Does = (u64, u64, f64);

/// A job of two ranks on each node, which all write into one file.
fn on_nodes(nodes: &[Does]) -> Job {
    let mut job = mpi_job(2 * nodes.len() as u32);
    let mut total = Counters::default();
    let mut worst = slowest(0, 0.0, 0);
    let mut placement = Placement::default();
    for (host, &(requests, size, seconds)) in nodes.iter().enumerate() {
        placement.hosts.push(format!("n{host}"));
        for rank in [2 * host as u32, 2 * host as u32 + 1] {
            placement.host_of.insert(rank, host);
            placement.work.push(Work {
                rank,
                interface: Interface::Posix,
                mount: "/pfs".to_owned(),
                is_write: true,
                amount: Amount {
                    requests,
                    bytes: requests * size,
                    seconds,
                    syncs: 0,
                },
            });
            total.add(&writes(requests, size, seconds));
            if seconds > worst.seconds {
                worst = slowest(rank, seconds, requests * size);
            }
        }
    }
    by_all(&mut job, Interface::Posix, "/pfs/shared", worst, total);
    job.placement = Some(placement);
    job
}

const USUAL: Does = (1000, 1 << 20, 2.0);

fn one_of(nodes: usize, other: Does) -> Job {
    let mut does = vec![USUAL; nodes];
    does[1] = other;
    on_nodes(&does)
}

#[test]
fn a_node_that_takes_longer_for_the_same_work_is_named() {
    let code = "slow-node";
    let job = one_of(4, (1000, 1 << 20, 20.0));
    let found = fires(&job, code);
    assert!(
        found.title.starts_with("Node n1 is slow"),
        "{}",
        found.title
    );
    about(found.seconds_lost, 18.0);
    // What the job gains if that node is as quick as the others.
    let seconds = |job: &Job| Account::of(job).slowest.unwrap().seconds;
    about(
        found.seconds_lost,
        seconds(&job) - seconds(&one_of(4, USUAL)),
    );
    let (first, last) = (&found.measured[0], found.measured.last().unwrap());
    assert_eq!(
        (first.name.as_str(), last.name.as_str()),
        ("n1", "median of 4 nodes")
    );
    about(Some(first.seconds), 20.0);
    about(Some(last.seconds), 2.0);
    assert_eq!(found.files[0].name, "n1");
    assert!(
        found.evidence[1].contains("on /pfs"),
        "{:?}",
        found.evidence
    );
    fires(&one_of(4, (1000, 1 << 20, 6.0)), code);
    is_silent(&one_of(4, (1000, 1 << 20, 5.9)), code);
    // Of two nodes, none is the usual one.
    fires(&one_of(3, (1000, 1 << 20, 20.0)), code);
    is_silent(&one_of(2, (1000, 1 << 20, 20.0)), code);
}

#[test]
fn a_node_with_more_data_or_other_work_is_not_slow() {
    let code = "slow-node";
    // Twice the data in six times the time is three times as long for each byte.
    fires(&one_of(4, (2000, 1 << 20, 12.0)), code);
    is_silent(&one_of(4, (2000, 1 << 20, 11.9)), code);
    is_silent(&one_of(4, (1000, 2 << 20, 11.9)), code);
    // The node that reads the input for all has work of its own.
    is_silent(&one_of(4, (2001, 1 << 20, 60.0)), code);
    is_silent(&one_of(4, (499, 1 << 20, 60.0)), code);
    // Too little to measure.
    is_silent(
        &on_nodes(&[(49, 1, 2.0), (49, 1, 90.0), (49, 1, 2.0)]),
        code,
    );
}

#[test]
fn a_slow_rank_is_no_slow_node_and_a_slow_node_that_nobody_waits_for_costs_nothing() {
    let code = "slow-node";
    let mut job = one_of(4, (1000, 1 << 20, 20.0));
    let work = &mut job.placement.as_mut().unwrap().work;
    // Half of its ranks are slow.
    work[2].amount.seconds = 2.0;
    fires(&job, code);
    let (placement, ranks) = (job.placement.as_mut().unwrap(), job.ranks);
    placement.host_of.insert(ranks, 1);
    placement.work.push(Work {
        rank: ranks,
        ..placement.work[2].clone()
    });
    job.ranks += 1;
    job.launches = std::iter::once(0..job.ranks).collect();
    is_silent(&job, code);
    // A rank elsewhere has as much to do on another mount point.
    let mut job = one_of(4, (1000, 1 << 20, 20.0));
    let work = &mut job.placement.as_mut().unwrap().work;
    let more = Work {
        mount: "/home".to_owned(),
        amount: Amount {
            seconds: 15.0,
            ..work[0].amount
        },
        ..work[0].clone()
    };
    work.push(more);
    about(fires(&job, code).seconds_lost, 3.0);
}

#[test]
fn steps_beside_ranks_are_no_node_to_compare() {
    let mut job = one_of(4, USUAL);
    job.ranks += 1;
    let placement = job.placement.as_mut().unwrap();
    placement.hosts.push("login".to_owned());
    placement.host_of.insert(8, 4);
    let mut step = placement.work[0].clone();
    (step.rank, step.amount.seconds) = (8, 60.0);
    placement.work.push(step);
    is_silent(&job, "slow-node");
}

/// A job with a file on each mount point of these types, written by a rank of its own.
fn on_mounts(mounts: &[(&str, &str, Counters)]) -> Job {
    let mut job = mpi_job(mounts.len() as u32);
    for (rank, (mount, fs, total)) in mounts.iter().enumerate() {
        let name = format!("{mount}/out");
        by_rank(
            &mut job,
            Interface::Posix,
            &name,
            rank as u32,
            total.clone(),
        );
        let file = job.files.last_mut().unwrap();
        (file.mount, file.fs) = ((*mount).to_owned(), (*fs).to_owned());
    }
    job
}

#[test]
fn a_mount_point_that_is_slower_than_others_of_its_type_is_named() {
    let code = "slow-mount";
    let with = |requests, size, seconds, fs| {
        on_mounts(&[
            ("/scratch", "nfs4", writes(1000, 1 << 20, 2.0)),
            ("/home", fs, writes(requests, size, seconds)),
        ])
    };
    let job = with(1000, 1 << 20, 20.0, "nfs4");
    let found = fires(&job, code);
    assert!(found.title.starts_with("/home is slow"), "{}", found.title);
    about(found.seconds_lost, 18.0);
    let seconds = |job: &Job| Account::of(job).slowest.unwrap().seconds;
    let mended = with(1000, 1 << 20, 2.0, "nfs4");
    about(found.seconds_lost, seconds(&job) - seconds(&mended));
    assert!(found.advice.contains("another nfs4"), "{}", found.advice);
    assert_eq!(
        found.measured.last().unwrap().name,
        "median of 2 mount points"
    );
    fires(&with(1000, 1 << 20, 6.0, "nfs4"), code);
    is_silent(&with(1000, 1 << 20, 5.9, "nfs4"), code);
    // Another type, other sizes, more of the same.
    is_silent(&with(1000, 1 << 20, 20.0, "xfs"), code);
    fires(&with(1000, 4 << 20, 80.0, "nfs4"), code);
    is_silent(&with(1000, (4 << 20) + 1, 80.0, "nfs4"), code);
    is_silent(&with(9000, 1 << 20, 20.0, "nfs4"), code);
    is_silent(&with(99, 1 << 10, 20.0, "nfs4"), code);
}

#[test]
fn memory_and_flushes_are_nothing_to_compare_a_mount_point_with() {
    let code = "slow-mount";
    let with = |quick: f64, syncs: u64| {
        let mut slow = writes(1000, 1 << 20, 20.0);
        slow.syncs = syncs;
        on_mounts(&[
            ("/a", "nfs", writes(1000, 1 << 20, quick)),
            ("/b", "nfs", slow),
        ])
    };
    fires(&with(1.0, 0), code);
    // A GiB each second.
    is_silent(&with(0.97, 0), code);
    // One in a hundred writes may be flushed.
    fires(&with(1.0, 10), code);
    is_silent(&with(1.0, 11), code);
}

fn sums(requests: u64, seconds: f64) -> Amount {
    Amount {
        requests,
        bytes: requests << 16,
        seconds,
        syncs: 0,
    }
}

/// A shared file that two ranks write by 64 KiB: so many writes in units of both by each, and of one by both together, with the
/// seconds of one write.
fn contended(each: (u64, f64), alone: (u64, f64)) -> Job {
    let mut job = with_shared(Interface::Posix, writes(4000, 1 << 16, 160.0));
    let (shared, own) = (
        sums(each.0, each.0 as f64 * each.1),
        sums(alone.0, alone.0 as f64 * alone.1),
    );
    let mut all = shared;
    all.add(&shared);
    let bucket = darshan_log::size_bucket(1 << 16);
    let mut locks = Locks {
        files: vec![LockedFile {
            file: 0,
            unit: 1 << 20,
            units: 100,
            contended: 90,
            contended_writes: all,
            alone_writes: own,
        }],
        ..Locks::default()
    };
    locks.alone[bucket] = own;
    for rank in [0, 5] {
        let mut of = [Amount::default(); BUCKET_NAMES.len()];
        of[bucket] = shared;
        locks.ranks.push(RankWrites {
            rank,
            contended: of,
        });
    }
    job.locks = Some(locks);
    job
}

#[test]
fn writes_in_units_of_several_nodes_cost_what_they_take_longer_than_others() {
    let code = "lock-ping-pong";
    let job = contended((500, 0.009), (100, 0.003));
    let found = fires(&job, code);
    about(found.seconds_lost, 500.0 * 0.006);
    // What a rank gains if its writes are as quick as those in units of one node.
    let seconds = |job: &Job| {
        job.locks.as_ref().unwrap().files[0]
            .contended_writes
            .seconds
            / 2.0
    };
    let mended = contended((500, 0.003), (100, 0.003));
    about(found.seconds_lost, seconds(&job) - seconds(&mended));
    assert!(found.title.contains("90 of 100 units"), "{}", found.title);
    assert!(
        found.files[0].detail.contains("of 1.0 MiB"),
        "{:?}",
        found.files
    );
    about(Some(found.measured[0].seconds), 0.009);
    about(Some(found.measured[1].seconds), 0.003);
    fires(&contended((500, 0.00451), (100, 0.003)), code);
    // They take little longer: nothing is lost by locks.
    is_silent(&contended((500, 0.00449), (100, 0.003)), code);
    is_silent(&mended, code);
    is_silent(&contended((499, 0.009), (100, 0.003)), code);
}

#[test]
fn without_writes_to_compare_with_the_cost_of_locks_is_not_estimated() {
    let found = fires(&contended((500, 0.009), (99, 0.003)), "lock-ping-pong");
    assert_eq!(found.seconds_lost, None);
    about(found.concerned_seconds, 4.5);
    assert!(found.estimate.contains("on rank 0"), "{}", found.estimate);
}

#[test]
fn only_programs_with_mpi_are_told_to_write_collectively() {
    let mut job = contended((500, 0.009), (100, 0.003));
    let found = fires(&job, "lock-ping-pong");
    assert!(found.advice.contains("collectively"), "{}", found.advice);
    assert_eq!(found.setting, None, "it does not use MPI-IO");
    by_all(
        &mut job,
        Interface::MpiIo,
        "/pfs/shared",
        slowest(0, 10.0, 0),
        writes(4000, 1 << 16, 160.0),
    );
    let setting = fires(&job, "lock-ping-pong").setting.unwrap();
    assert!(setting.contains("libforebay_mpiio.so"), "{setting}");
    let mut plain = contended((500, 0.009), (100, 0.003));
    plain.logs[0].is_mpi = false;
    plain.launches.clear();
    let advice = fires(&plain, "lock-ping-pong").advice;
    assert!(!advice.contains("collectively"), "{advice}");
}
