//! Processes, launches and hosts that become one log.

use crate::stage::{Does, MS, S, START, Stage, image};
use darshan_log::counters::posix::{Counter as C, FCounter as F};
use darshan_log::{Heatmap, Log, Posix, Record, record_id};
use forebay_collect::recording::CommandEnd;
use forebay_count::Op;
use std::collections::BTreeMap;

/// Records of a file by rank.
fn records(log: &Log, name: &str) -> BTreeMap<i64, Record<Posix>> {
    let id = record_id(name.as_bytes());
    let all = log.records::<Posix>().map(|record| record.unwrap());
    all.filter(|record| record.id == id)
        .map(|record| (record.rank, record))
        .collect()
}

fn written(log: &Log, name: &str) -> BTreeMap<i64, i64> {
    let records = records(log, name).into_iter();
    records
        .map(|(rank, r)| (rank, r.get(C::BytesWritten)))
        .collect()
}

fn ranks(n: u32) -> impl Iterator<Item = (u32, crate::stage::Image)> {
    (0..n).map(move |r| (r, image(100 + r, 50, "sim").rank(r, n)))
}

#[test]
fn files_of_all_some_and_one_of_the_ranks() {
    let mut stage = Stage::new();
    for (rank, image) in ranks(4) {
        stage.table(&image, |does| {
            does.open("/d/all", None, 1);
            does.write("/d/all", 0, 1 << rank, 2);
            if rank < 2 {
                does.write("/d/some", 0, 10, 3);
            }
            does.write(&format!("/d/own.{rank}"), 0, 5, 4);
        });
    }
    let (collected, log) = stage.collect();
    assert_eq!(
        (collected.ranks, collected.processes, log.job.nprocs),
        (4, 4, 4)
    );
    assert!(collected.remarks.is_empty(), "{:?}", collected.remarks);
    assert_eq!(written(&log, "/d/all"), [(-1, 15)].into());
    let all = records(&log, "/d/all")[&-1];
    assert_eq!(all.get(C::Opens), 4);
    // 1, 2, 4 and 8 bytes.
    assert_eq!(all.getf(F::VarianceRankBytes), 7.1875);
    assert_eq!(
        (all.get(C::FastestRank), all.get(C::SlowestRankBytes) > 0),
        (0, true)
    );
    assert_eq!(written(&log, "/d/some"), [(0, 10), (1, 10)].into());
    assert_eq!(written(&log, "/d/own.3"), [(3, 5)].into());
    let facts = log.facts().unwrap().unwrap();
    let some = facts.file(record_id(b"/d/some")).unwrap();
    assert_eq!((some.ranks, some.lowest_rank, some.highest_rank), (2, 0, 1));
    let all = facts.file(record_id(b"/d/all")).unwrap();
    assert_eq!(
        (all.ranks, all.created, all.size_at_open),
        (4, Some(true), Some(0))
    );
}

#[test]
fn programs_of_one_process_and_its_children_are_one_record_of_their_rank() {
    let mut stage = Stage::new();
    let shell = image(10, 1, "bash").rank(1, 2);
    let write = |does: &Does| does.write("/d/f", 0, 100, 1);
    stage.table(&image(9, 1, "sim").rank(0, 2), write);
    stage.table(&shell, write);
    let mut program = shell.then("sim");
    program.rank = Some((1, 2, false));
    stage.table(&program, |does| does.write("/d/f", 100, 50, 1));
    stage.table(&image(11, 10, "gzip"), |does| does.read("/d/f", 0, 150, 1));
    let (collected, log) = stage.collect();
    assert_eq!((collected.ranks, collected.processes), (2, 3));
    let joined = records(&log, "/d/f")[&-1];
    assert_eq!(joined.get(C::BytesWritten), 250);
    assert_eq!((joined.get(C::Writes), joined.get(C::Reads)), (3, 1));
    assert_eq!(joined.get(C::Access1Access), 100);
    assert_eq!(joined.get(C::Access1Count), 2);
}

#[test]
fn times_count_from_the_start_of_the_job_whenever_a_process_began() {
    let mut stage = Stage::new();
    for (after_ms, pid) in [(500, 20), (1500, 30)] {
        let mut image = image(pid, 1, "sim");
        image.after_ns = after_ms * MS;
        stage.table(&image, |does| {
            does.call(&format!("/d/{pid}"), Op::Open, 0, 0, 100);
            does.write(&format!("/d/{pid}"), 0, 1000, 200);
        });
    }
    let (_, log) = stage.collect();
    let start = |name: &str, counter| {
        let of_rank = records(&log, name);
        let record = of_rank.values().next().unwrap().getf(counter);
        (record * 1000.0).round() / 1000.0
    };
    assert_eq!(start("/d/20", F::OpenStartTimestamp), 0.6);
    assert_eq!(start("/d/30", F::WriteStartTimestamp), 1.7);
    assert_eq!(start("/d/30", F::WriteEndTimestamp), 1.701);
    assert_eq!(start("/d/30", F::ReadStartTimestamp), 0.0);
    assert_eq!(
        (log.job.start.sec, log.job.start.nsec),
        (1_700_000_000, 50_000_000)
    );
    assert_eq!(log.run_time(), 2.0);
}

#[test]
fn the_heat_maps_of_all_processes_lie_on_one_axis_and_no_byte_is_lost() {
    let mut stage = Stage::new();
    for (rank, mut image) in ranks(3) {
        image.after_ns = u64::from(rank) * 300 * MS;
        stage.table(&image, |does| {
            does.write("/d/f", 0, 1000, 0);
            does.write("/d/f", 0, 500, 400);
            does.read("/d/f", 0, 7, 900);
        });
    }
    let (_, log) = stage.collect();
    let maps: Vec<_> = log.records::<Heatmap>().map(|r| r.unwrap()).collect();
    assert_eq!(maps.len(), 3);
    for (rank, map) in maps.iter().enumerate() {
        assert_eq!(
            (map.rank, map.bin_width, map.written.len()),
            (rank as i64, 0.1, 21)
        );
        assert_eq!(map.written.iter().sum::<i64>(), 1500, "rank {rank}");
        assert_eq!(map.read.iter().sum::<i64>(), 7);
        // The axis begins with the tick in which the job began.
        assert_eq!(map.written[3 * rank], 1000, "{map:?}");
        assert_eq!(map.written[3 * rank + 4], 500, "{map:?}");
    }
    assert_eq!(log.names.get(maps[0].id).as_deref(), Some("heatmap:POSIX"));
}

#[test]
fn one_launch_on_two_hosts_is_one_job() {
    let mut stage = Stage::new();
    for (rank, mut image) in ranks(4) {
        image.host = if rank < 2 { "node1" } else { "node2" };
        image.key = "prterun-node1-99@1";
        stage.table(&image, |does| does.write("/pfs/out", 0, 10, 1));
    }
    let (collected, log) = stage.collect();
    assert_eq!((collected.ranks, collected.processes), (4, 4));
    assert_eq!(written(&log, "/pfs/out"), [(-1, 40)].into());
    let line = |key| log.job.metadata.get(key);
    assert_eq!(
        (line("nnodes"), line("hosts")),
        (Some("2"), Some("node1,node2"))
    );
    assert_eq!((line("launches"), line("mpi")), (Some("4"), Some("1")));
}

#[test]
fn a_job_of_several_hosts_tells_where_each_rank_ran_and_what_it_moved_there() {
    let mut stage = Stage::new();
    for (rank, mut image) in ranks(4) {
        image.host = if rank < 2 { "node2" } else { "node1" };
        image.key = "prterun-node1-99@1";
        stage.table(&image, |does| {
            for n in 0..=u64::from(rank) {
                does.write("/pfs/out", 0, 10, 2 * n);
            }
            does.read("/pfs/in", 0, 7, 100);
        });
    }
    let (_, log) = stage.collect();
    // The log has joined what the four ranks wrote.
    assert_eq!(written(&log, "/pfs/out"), [(-1, 100)].into());
    let facts = log.facts().unwrap().unwrap();
    let note: serde_json::Value = serde_json::from_str(facts.note("nodes").unwrap()).unwrap();
    assert_eq!(note["hosts"], serde_json::json!(["node1", "node2"]));
    assert_eq!(note["mounts"], serde_json::json!(["/"]));
    let ranks = serde_json::json!([[0, 1], [1, 1], [2, 0], [3, 0]]);
    assert_eq!(note["ranks"], ranks);
    let ms = 1_000_000;
    let work = serde_json::json!([
        [0, "POSIX", 0, 1, 7, ms, 1, 10, ms, 0, 0],
        [1, "POSIX", 0, 1, 7, ms, 2, 20, 2 * ms, 0, 0],
        [2, "POSIX", 0, 1, 7, ms, 3, 30, 3 * ms, 0, 0],
        [3, "POSIX", 0, 1, 7, ms, 4, 40, 4 * ms, 0, 0],
    ]);
    assert_eq!(note["work"], work);
}

#[test]
fn a_job_of_one_host_has_no_note_of_nodes() {
    let mut stage = Stage::new();
    for (_, image) in ranks(2) {
        stage.table(&image, |does| does.write("/pfs/out", 0, 10, 1));
    }
    let (_, log) = stage.collect();
    assert_eq!(log.facts().unwrap().unwrap().note("nodes"), None);
}

#[test]
fn work_before_and_after_two_launches_comes_after_their_ranks() {
    let mut stage = Stage::new();
    let write = |does: &Does| does.write("/d/x", 0, 1, 1);
    stage.table(&image(10, 1, "bash"), |does| {
        does.read("/d/job.sh", 0, 50, 1)
    });
    stage.table(&image(11, 10, "prep.py"), write);
    stage.table(&image(12, 10, "mpirun"), |_| {});
    stage.table(&image(13, 12, "sim").rank(0, 2), write);
    stage.table(&image(14, 12, "sim").rank(1, 2), write);
    stage.table(&image(15, 10, "mpirun"), |_| {});
    stage.table(&image(16, 15, "sim").rank(0, 2), |_| {});
    let (collected, log) = stage.collect();
    assert_eq!((collected.ranks, collected.processes), (5, 7));
    // All ranks of the first launch; prep.py has a record of its own.
    assert_eq!(written(&log, "/d/x"), [(-1, 2), (4, 1)].into());
    assert!(records(&log, "/d/job.sh").is_empty());
    let line = |key| log.job.metadata.get(key);
    assert_eq!(line("launches"), Some("2,2"));
    assert_eq!(line("ranks_missing"), Some("1"));
    assert_eq!(line("outside_launches"), Some("1"));
    assert_eq!(line("launchers_read"), Some("50"));
    assert_eq!(log.exe, "sim -x");
}

#[test]
fn how_it_ended_is_in_the_log() {
    let mut stage = Stage::new();
    let mut killed = image(10, 1, "sim");
    killed.end = (0, 0);
    // This process is there, but another one has its id.
    killed.pid = std::process::id();
    stage.table(&killed, |does| does.write("/d/x", 0, 1, 1));
    let mut aborted = image(20, 1, "sim");
    aborted.end = (3, 0);
    stage.table(&aborted, |_| {});
    stage.table(&image(30, 1, "sh"), |_| {});
    stage.recording("node1").note.end = Some(CommandEnd {
        end_ns: START + S,
        signal: Some(9),
        ..CommandEnd::default()
    });
    let (_, log) = stage.collect();
    let line = |key| log.job.metadata.get(key);
    assert_eq!(line("exit"), Some("signal 9"));
    assert_eq!(line("processes"), Some("3"));
    assert_eq!(line("abnormal_ends"), Some("2"));
    assert_eq!(log.exe, "./job.sh a b");
    assert_eq!((log.job.uid, log.job.id), (7, 4000));
}

#[test]
fn a_recorder_that_was_killed_leaves_a_log_until_the_last_sign_of_life() {
    let mut stage = Stage::new();
    stage.table(&image(10, 1, "sim"), |does| does.write("/d/x", 0, 1, 700));
    stage.recording("node1").note.end = None;
    let (_, log) = stage.collect();
    assert_eq!(log.job.metadata.get("exit"), Some("unknown"));
    assert!((0.7..0.8).contains(&log.run_time()), "{}", log.run_time());
}

#[test]
fn bytes_fetched_from_storage_are_those_of_the_recorder_or_else_of_each_process() {
    let with_end = |change: fn(&mut Option<CommandEnd>)| {
        let mut stage = Stage::new();
        let mut child = image(20, 1, "sim");
        child.parent = 10;
        stage.table(&image(10, 1, "sh"), |does| {
            does.fetched(100, 1000);
            does.write("/d/x", 0, 1, 500);
        });
        stage.table(&child, |does| does.fetched(30, 700));
        change(&mut stage.recording("node1").note.end);
        let (_, log) = stage.collect();
        let line = |key| log.job.metadata.get(key).map(str::to_owned);
        (line("fetched"), line("fetched_at_start"))
    };
    let code = Some("130".to_owned());
    let noted = with_end(|end| end.as_mut().unwrap().fetched_bytes = Some(1234));
    assert_eq!(noted, (Some("1234".to_owned()), code.clone()));
    // Of the 1,000 bytes of the shell 700 are those of its child, which count once.
    assert_eq!(with_end(|end| *end = None), (Some("1000".to_owned()), code));
    // A recorder that did not note it.
    assert_eq!(with_end(|_| ()), (None, None));
}

#[test]
fn the_job_id_is_the_number_of_the_batch_job() {
    let mut stage = Stage::new();
    stage.recording("node1").note.batch_job = Some("123[4].server".to_owned());
    let (collected, log) = stage.collect();
    assert_eq!((log.job.id, collected.ranks), (123, 1));
}

#[test]
fn a_thousand_processes_become_one_log() {
    let mut stage = Stage::new();
    for (rank, mut image) in ranks(1000) {
        image.bytes = 64 << 10;
        stage.table(&image, |does| {
            does.write("/d/all", 0, 1, 1);
            does.write(&format!("/d/{rank}"), 0, 2, 2);
        });
    }
    let (collected, log) = stage.collect();
    assert_eq!(collected.ranks, 1000);
    assert_eq!(written(&log, "/d/all"), [(-1, 1000)].into());
    let total: i64 = log
        .records::<Posix>()
        .map(|r| r.unwrap().get(C::BytesWritten))
        .sum();
    assert_eq!(total, 3000);
}
