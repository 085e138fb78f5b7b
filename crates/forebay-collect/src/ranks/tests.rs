//! Roles of processes, by the process trees of jobs.

use super::*;

/// A process of host `h`: pid, parent, program; it starts at `pid` and lives for 100 ticks.
fn process(pid: u32, parent_pid: u32, program: &str) -> Process {
    Process {
        host: "h".to_owned(),
        pid,
        parent_pid,
        start_ticks: pid.into(),
        first_ns: u64::from(pid) * 1000,
        last_ns: u64::from(pid) * 1000 + 100_000,
        programs: vec![program.to_owned()],
        claim: None,
        io_ns: Some(u64::from(pid) * 1000),
        weight: 50 * MIB,
    }
}

const MS: u64 = 1_000_000;
const MIB: u64 = 1 << 20;

/// The same with another life and other I/O.
fn lived(mut process: Process, (first, last): (u64, u64), weight: u64) -> Process {
    (process.first_ns, process.last_ns) = (first * MS, last * MS);
    process.io_ns = Some(process.first_ns);
    process.weight = weight;
    process
}

fn rank(mut process: Process, rank: u32, size: u32, key: u64) -> Process {
    process.claim = Some(Claim {
        rank,
        size,
        key,
        by_mpi: true,
    });
    process
}

fn silent(mut process: Process) -> Process {
    (process.io_ns, process.weight) = (None, 0);
    process
}

const fn r(rank: u32) -> Role {
    Role::Rank(rank)
}

#[test]
fn without_launches_processes_that_work_side_by_side_are_ranks_in_start_order() {
    let job = [
        process(30, 10, "sort"),
        silent(process(10, 1, "bash")),
        process(20, 10, "cat"),
    ];
    let ranks = assign(&job);
    assert_eq!(ranks.roles, [r(1), r(0), r(0)]);
    assert_eq!((ranks.count(), ranks.single), (2, 2));
}

#[test]
fn a_shell_that_becomes_the_last_program_of_its_script_counts_from_that() {
    let mut shell = process(10, 1, "bash");
    shell.programs.push("post.py".to_owned());
    shell.io_ns = Some(30_000);
    let aside = process(20, 10, "prep.py");
    let job = [shell, aside, process(21, 10, "aside.py")];
    assert_eq!(assign(&job).roles, [r(2), r(0), r(1)]);
}

#[test]
fn commands_one_after_the_other_are_one_process_and_side_by_side_they_are_several() {
    let shell = || silent(process(10, 1, "bash"));
    let dd = |pid, from, to| lived(process(pid, 10, "dd"), (from, to), 90 * MIB);
    let job = [shell(), dd(20, 0, 100), dd(21, 100, 200), dd(22, 201, 300)];
    assert_eq!(assign(&job).roles, [r(0); 4]);
    let job = [shell(), dd(20, 0, 100), dd(21, 50, 200), dd(22, 201, 300)];
    let ranks = assign(&job);
    assert_eq!(ranks.roles, [r(0), r(0), r(1), r(1)]);
    assert_eq!(ranks.count(), 2);
}

#[test]
fn helpers_are_folded_into_the_program_that_started_them() {
    // A program that writes, and two pipes of `cat` on the way.
    let main = lived(process(10, 1, "sim.py"), (0, 1000), 700 * MIB);
    let cat = |pid, at| lived(process(pid, 10, "cat"), (at, at + 10), 2 * MIB);
    let job = [
        main.clone(),
        cat(20, 100),
        cat(21, 105),
        cat(22, 500),
        cat(23, 505),
    ];
    assert_eq!(assign(&job).roles, [r(0); 5]);
    // The shim before an interpreter, with helpers of its own, and the workers that it starts.
    let mut job = vec![lived(process(10, 1, "bash"), (0, 1000), MIB)];
    job.push(lived(process(11, 10, "dirname"), (1, 2), 0));
    job.push(lived(process(12, 10, "uname"), (1, 3), 0));
    for pid in 20..24 {
        job.push(lived(process(pid, 10, "worker"), (100, 900), 500 * MIB));
    }
    let ranks = assign(&job);
    assert_eq!(ranks.roles, [r(0), r(0), r(0), r(0), r(1), r(2), r(3)]);
}

#[test]
fn a_main_program_that_works_beside_its_pool_is_a_rank_too() {
    let job = [
        lived(process(10, 1, "train.py"), (0, 1000), 100 * MIB),
        lived(process(11, 10, "train.py"), (100, 900), 500 * MIB),
        lived(process(12, 10, "train.py"), (100, 900), 500 * MIB),
    ];
    assert_eq!(assign(&job).roles, [r(0), r(1), r(2)]);
}

#[test]
fn processes_that_come_and_go_in_turns_are_as_many_workers_as_ran_at_once() {
    let mut job = vec![silent(process(10, 1, "xargs"))];
    for n in 0..40u32 {
        let at = u64::from(n / 4) * 100;
        job.push(lived(process(20 + n, 10, "gzip"), (at, at + 90), 50 * MIB));
    }
    assert_eq!(assign(&job).count(), 4);
}

#[test]
fn workers_with_equal_work_count_however_small_it_is_and_a_long_row_hides_none() {
    let mut job = vec![silent(process(10, 1, "main.py"))];
    for pid in 20..276 {
        job.push(lived(process(pid, 10, "main.py"), (100, 900), MIB / 2));
    }
    assert_eq!(assign(&job).count(), 256);
    // A writer in the background, and a row of readers beside it.
    let mut job = vec![silent(process(10, 1, "bash"))];
    job.push(lived(process(20, 10, "dd"), (0, 1000), 10 * MIB));
    for n in 0..30u32 {
        let at = u64::from(n) * 10;
        job.push(lived(process(21 + n, 10, "cat"), (at, at + 9), 10 * MIB));
    }
    assert_eq!(assign(&job).count(), 2);
}

#[test]
fn programs_that_a_busier_program_starts_on_the_way_are_its_helpers() {
    let main = lived(process(10, 1, "sim.py"), (0, 1000), 100 * MIB);
    let mut job = vec![main];
    for n in 0..40u32 {
        let at = u64::from(n / 2) * 10;
        job.push(lived(process(20 + n, 10, "cat"), (at, at + 9), 2 * MIB));
    }
    assert_eq!(assign(&job).count(), 1);
    // The same program forked is a pool.
    for one in &mut job {
        one.programs = vec!["sim.py".to_owned()];
    }
    assert_eq!(assign(&job).count(), 3);
}

#[test]
fn two_hundred_processes_that_do_nothing_are_one() {
    let mut job = vec![silent(process(10, 1, "bash"))];
    for n in 0..200u32 {
        let at = u64::from(n);
        job.push(lived(process(20 + n, 10, "true"), (at, at + 2), 0));
    }
    assert_eq!(assign(&job).count(), 1);
}

#[test]
fn a_job_without_any_io_has_one_rank() {
    assert_eq!(assign(&[silent(process(1, 0, "true"))]).count(), 1);
    assert_eq!(assign(&[]).count(), 1);
}

#[test]
fn ranks_keep_their_numbers_and_children_belong_to_the_rank_above_them() {
    let job = [
        process(10, 1, "mpiexec.mpich"),
        process(11, 10, "hydra_pmi_proxy"),
        rank(process(12, 11, "sim"), 1, 2, 0),
        rank(process(13, 11, "sim"), 0, 2, 0),
        process(14, 12, "gzip"),
        process(15, 14, "sh"),
    ];
    let ranks = assign(&job);
    assert_eq!(
        ranks.roles,
        [Role::Launcher, Role::Launcher, r(1), r(0), r(1), r(1)]
    );
    assert_eq!(ranks.launches.len(), 1);
    assert_eq!((ranks.launches[0].seen, ranks.count()), (2, 2));
}

#[test]
fn a_script_with_work_before_between_and_after_two_launches_counts_launches_first() {
    let job = [
        process(10, 1, "bash"),
        process(11, 10, "prep.py"),
        process(12, 10, "mpirun"),
        rank(process(13, 12, "sim"), 0, 2, 77),
        rank(process(14, 12, "sim"), 1, 2, 77),
        process(15, 10, "mpirun"),
        rank(process(16, 15, "sim"), 0, 3, 78),
        rank(process(17, 15, "sim"), 1, 3, 78),
        process(19, 10, "post.py"),
    ];
    let ranks = assign(&job);
    let l = Role::Launcher;
    assert_eq!(ranks.roles, [l, r(5), l, r(0), r(1), l, r(2), r(3), r(6)]);
    // Rank 2 of the second launch has left no table, but it counts.
    assert_eq!(ranks.count(), 7);
    assert_eq!((ranks.launches[1].size, ranks.launches[1].seen), (3, 2));
}

#[test]
fn launches_without_a_key_are_told_apart_by_who_started_them() {
    let mut job = Vec::new();
    for proxy in [20, 40] {
        job.push(process(proxy, 1, "hydra_pmi_proxy"));
        for n in 0..2 {
            job.push(rank(process(proxy + 1 + n, proxy, "sim"), n, 2, 0));
        }
    }
    let ranks = assign(&job);
    let l = Role::Launcher;
    assert_eq!(ranks.roles, [l, r(0), r(1), l, r(2), r(3)]);
}

#[test]
fn the_same_rank_again_after_its_end_is_another_launch_and_at_the_same_time_it_is_not() {
    let again = |start: u32| {
        let mut p = rank(process(50, 1, "train.py"), 0, 2, 0);
        p.first_ns = u64::from(start) * 1000;
        [
            rank(process(20, 1, "train.py"), 0, 2, 0),
            rank(process(21, 1, "train.py"), 1, 2, 0),
            p,
        ]
    };
    assert_eq!(assign(&again(500)).roles, [r(0), r(1), r(2)]);
    assert_eq!(assign(&again(50)).roles, [r(0), r(1), r(0)]);
}

#[test]
fn a_shell_that_has_the_rank_of_its_program_is_the_same_rank() {
    let job = [
        rank(process(20, 10, "bash"), 0, 2, 0),
        rank(process(21, 10, "bash"), 1, 2, 0),
        rank(process(22, 20, "sim"), 0, 2, 0),
        rank(process(23, 21, "sim"), 1, 2, 0),
        process(24, 23, "cp"),
    ];
    assert_eq!(assign(&job).roles, [r(0), r(1), r(0), r(1), r(1)]);
}

#[test]
fn one_launch_on_two_hosts_is_one_with_and_without_a_key() {
    for key in [0, 5] {
        let mut job: Vec<Process> = (0..4)
            .map(|n| rank(process(20 + n, 10, "sim"), n, 4, key))
            .collect();
        for p in &mut job[2..] {
            p.host = "other".to_owned();
        }
        let ranks = assign(&job);
        assert_eq!(ranks.roles, [r(0), r(1), r(2), r(3)], "key {key}");
        assert_eq!((ranks.launches.len(), ranks.launches[0].seen), (1, 4));
    }
}

#[test]
fn two_programs_that_are_each_rank_0_of_1_are_two_ranks() {
    let job = [
        rank(process(20, 10, "a"), 0, 1, 0),
        rank(process(30, 10, "b"), 0, 1, 0),
    ];
    assert_eq!(assign(&job).roles, [r(0), r(1)]);
}

#[test]
fn a_batch_script_with_rank_0_of_1_is_not_a_rank_when_a_launch_runs_below_it() {
    let job = [
        rank(process(10, 1, "bash"), 0, 1, 9),
        rank(process(11, 10, "mpirun"), 0, 1, 9),
        rank(process(12, 11, "sim"), 0, 2, 3),
        rank(process(13, 11, "sim"), 1, 2, 3),
    ];
    assert_eq!(
        assign(&job).roles,
        [Role::Launcher, Role::Launcher, r(0), r(1)]
    );
}

#[test]
fn a_driver_that_does_io_of_its_own_is_a_rank_after_those_it_launched() {
    let job = [
        process(10, 1, "workflow.py"),
        process(11, 10, "mpirun"),
        rank(process(12, 11, "sim"), 0, 1, 3),
    ];
    assert_eq!(assign(&job).roles, [r(1), Role::Launcher, r(0)]);
}

#[test]
fn the_agent_that_starts_the_workers_of_a_training_is_no_rank() {
    let job = [
        process(10, 1, "torch.distributed.run"),
        rank(process(11, 10, "train.py"), 0, 2, 4),
        rank(process(12, 10, "train.py"), 1, 2, 4),
    ];
    assert_eq!(assign(&job).roles, [Role::Launcher, r(0), r(1)]);
}

#[test]
fn the_workers_of_a_pool_in_a_rank_are_that_rank() {
    let job = [
        rank(process(10, 1, "train.py"), 0, 2, 4),
        rank(process(11, 1, "train.py"), 1, 2, 4),
        rank(process(12, 11, "worker"), 1, 2, 4),
        process(13, 12, "grandchild"),
    ];
    assert_eq!(assign(&job).roles, [r(0), r(1), r(1), r(1)]);
}

#[test]
fn a_process_id_that_came_again_is_not_the_parent_of_older_processes() {
    let mut old = process(12, 11, "gzip");
    old.start_ticks = 50;
    let mut new = rank(process(11, 1, "sim"), 0, 1, 0);
    new.start_ticks = 60;
    assert_eq!(assign(&[old.clone(), new.clone()]).roles, [r(1), r(0)]);
    old.start_ticks = 70;
    assert_eq!(assign(&[old, new]).roles, [r(0), r(0)]);
}

#[test]
fn claims_that_cannot_be_true_are_none() {
    for (number, size) in [(2, 2), (0, 0), (5, u32::MAX), (0, MOST_RANKS + 1)] {
        let ranks = assign(&[rank(process(10, 1, "sim"), number, size, 0)]);
        assert_eq!(ranks.roles, [r(0)], "{number} of {size}");
        assert_eq!((ranks.launches.len(), ranks.single), (0, 1));
    }
}

#[test]
fn processes_that_are_each_others_parent_do_not_hang() {
    let job = [
        process(10, 11, "a"),
        process(11, 10, "b"),
        process(12, 12, "c"),
    ];
    assert_eq!(assign(&job).roles, [r(0), r(0), r(1)]);
}

#[test]
fn a_script_by_which_a_launcher_reaches_a_node_is_no_step() {
    let job = [
        process(10, 1, "mpiexec.mpich"),
        process(11, 10, "nsenter"),
        process(12, 11, "sed"),
        rank(process(20, 99, "sim"), 0, 2, 7),
        rank(process(21, 99, "sim"), 1, 2, 7),
        process(30, 1, "forebay"),
        process(31, 30, "post.py"),
    ];
    let no = Role::Launcher;
    let roles = [no, no, no, r(0), r(1), no, r(2)];
    assert_eq!(assign(&job).roles, roles);
}

#[test]
fn a_program_with_the_name_of_a_launcher_that_starts_nothing_is_a_program() {
    let job = [silent(process(10, 1, "bash")), process(20, 10, "flux")];
    assert_eq!(assign(&job).roles, [r(0), r(0)]);
    // One that starts another program is a launcher, whether that knows its rank or not.
    let job = [process(20, 1, "flux"), process(30, 20, "sim")];
    assert_eq!(assign(&job).roles, [Role::Launcher, r(0)]);
}
