//! Slow nodes and locks that go from node to node, found in logs with a trace of every request, whose records of shared files are sums.

mod common;

use common::Sketch;
use darshan_log::counters::posix::{Counter, FCounter};
use darshan_log::{
    DxtRecord, Log, LogWriter, Lustre, ModuleId, Mount, Posix, Record, Segment, record_id,
};
use forebay_report::findings::Finding;
use forebay_report::{Report, of_log};
use std::io::Cursor;

/// Ranks on each node, and writes of each rank.
const RANKS: i64 = 2;
const WRITES: i64 = 1000;

/// What a rank writes, one request after the other: offset and bytes, and its seconds.
struct Part {
    requests: Vec<(i64, i64)>,
    seconds: f64,
}

/// The log of a job on these nodes, in which each rank writes its part of one file.
fn sketch(nodes: i64, part: impl Fn(i64, i64) -> Part) -> Sketch {
    let name: &[u8] = b"/pfs/shared";
    let mut sketch = Sketch::new(nodes * RANKS, "./sim");
    let id = sketch.name(name);
    let (mut writes, mut bytes, mut end, mut total, mut most) = (0, 0, 0, 0.0, 0.0f64);
    for rank in 0..nodes * RANKS {
        let part = part(rank / RANKS, rank);
        let each = part.seconds / part.requests.len() as f64;
        let mut at = 1.0;
        let mut segments = Vec::new();
        for (offset, length) in &part.requests {
            segments.push(Segment {
                offset: *offset,
                length: *length,
                start: at,
                end: at + each,
                thread: None,
            });
            at += each;
            bytes += length;
            end = end.max(offset + length);
        }
        writes += part.requests.len() as i64;
        total += part.seconds;
        most = most.max(part.seconds);
        sketch.traces.push(DxtRecord {
            id,
            rank,
            shared: -1,
            hostname: format!("n{}", rank / RANKS),
            writes: segments,
            reads: Vec::new(),
        });
    }
    let mut record = Record::<Posix>::new(id, -1);
    for (counter, value) in [
        (Counter::Opens, nodes * RANKS),
        (Counter::Writes, writes),
        (Counter::BytesWritten, bytes),
        (Counter::MaxByteWritten, end - 1),
        (Counter::FileAlignment, 4096),
    ] {
        record.set(counter, value);
    }
    record.setf(FCounter::WriteTime, total);
    record.setf(FCounter::SlowestRankTime, most);
    sketch.posix.push(record);
    sketch
}

/// Parts of the file one behind the other, with requests of 64 KiB; node 2 takes so many seconds.
fn with_node(seconds: f64) -> Sketch {
    sketch(4, |node, rank| Part {
        requests: (0..WRITES)
            .map(|n| ((rank * WRITES + n) << 16, 1 << 16))
            .collect(),
        seconds: if node == 2 { seconds } else { 2.0 },
    })
}

/// A file on Lustre with stripes of 1 MiB, half of each part in requests of 64 KiB that ranks write in turns.
fn in_turns(seconds: f64) -> Sketch {
    let mut sketch = sketch(4, |_, rank| {
        let own = (0..WRITES).map(|n| ((rank * 64 + n % 64) << 20, 1 << 16));
        let turns = (0..WRITES).map(|n| ((1 << 30) + ((n * 8 + rank) << 16), 1 << 16));
        Part {
            requests: own.chain(turns).collect(),
            seconds,
        }
    });
    for trace in &mut sketch.traces {
        // A write in turns takes three times as long.
        let mut at = 1.0;
        let each = seconds / (4 * WRITES) as f64;
        for one in &mut trace.writes {
            let takes = if one.offset >= 1 << 30 {
                3.0 * each
            } else {
                each
            };
            (one.start, one.end) = (at, at + takes);
            at += takes;
        }
    }
    let id = record_id(b"/pfs/shared");
    sketch.stripes.push(common::four_stripes(id));
    sketch
}

fn found<'a>(report: &'a Report, code: &str) -> Option<&'a Finding> {
    report.findings.iter().find(|one| one.code == code)
}

#[track_caller]
fn about(value: Option<f64>, expected: f64) {
    let value = value.expect("an estimate");
    assert!((value - expected).abs() < 1e-3, "{value} is not {expected}");
}

#[test]
fn a_trace_tells_a_slow_node_of_a_file_that_all_ranks_share() {
    let report = with_node(20.0).report();
    let slow = found(&report, "slow-node").expect("a slow node");
    assert!(slow.title.starts_with("Node n2 is slow"), "{}", slow.title);
    about(slow.seconds_lost, 18.0);
    // What the job is quicker by if the node is.
    let slowest = |report: &Report| report.account.slowest.expect("a rank").seconds;
    let mended = with_node(2.0).report();
    about(slow.seconds_lost, slowest(&report) - slowest(&mended));
    assert_eq!(found(&mended, "slow-node"), None);
    assert!(report.html().contains("for the same work on each node"));
}

#[test]
fn a_trace_tells_writes_in_lock_units_of_several_nodes() {
    let report = in_turns(80.0).report();
    let locks = found(&report, "lock-ping-pong").expect("ping-pong");
    // Each rank spends 60 s in its 1,000 writes in turns, and 20 s in as many of its own.
    about(locks.seconds_lost, 40.0);
    assert!(locks.title.starts_with("8,000 writes"), "{}", locks.title);
    let units = "500 of 1,012 units of 1.0 MiB, 8,000 of 16,000 writes";
    assert_eq!(locks.files[0].detail, units);
    assert!(report.html().contains("Seconds of a write"));
    // The unit of a file without stripes is its alignment, which all writes keep.
    let mut aligned = in_turns(80.0);
    aligned.stripes.clear();
    assert_eq!(found(&aligned.report(), "lock-ping-pong"), None);
    // On one node all share its locks.
    let mut one_node = in_turns(80.0);
    for trace in &mut one_node.traces {
        trace.hostname = "n0".to_owned();
    }
    assert_eq!(found(&one_node.report(), "lock-ping-pong"), None);
}

#[test]
fn the_order_of_a_trace_makes_no_difference_and_a_missing_write_ends_the_judgement() {
    let mut reversed = in_turns(80.0);
    reversed.traces.reverse();
    for trace in &mut reversed.traces {
        trace.writes.reverse();
    }
    let (report, other) = (in_turns(80.0).report(), reversed.report());
    let of = |report| found(report, "lock-ping-pong").expect("ping-pong").clone();
    about(of(&other).seconds_lost, 40.0);
    assert_eq!(of(&other).files, of(&report).files);
    assert_eq!(of(&other).title, of(&report).title);
    let mut missing = in_turns(80.0);
    missing.traces[0].writes.pop();
    assert_eq!(found(&missing.report(), "lock-ping-pong"), None);
}

#[test]
fn a_trace_that_ran_out_of_memory_proves_nothing() {
    let sketch = in_turns(80.0);
    let report = |is_partial: bool| {
        let mounts = [Mount {
            path: "/pfs".to_owned(),
            fs_type: "lustre".to_owned(),
        }];
        let sink = Cursor::new(Vec::new());
        let mut writer = LogWriter::new(sink, &sketch.job, &sketch.exe, &mounts).unwrap();
        writer
            .name(record_id(b"/pfs/shared"), b"/pfs/shared")
            .unwrap();
        writer.record::<Posix>(&sketch.posix[0]).unwrap();
        writer.record::<Lustre>(&sketch.stripes[0]).unwrap();
        for record in &sketch.traces {
            writer.record::<darshan_log::DxtPosix>(record).unwrap();
        }
        if is_partial {
            writer.mark_partial(ModuleId::DxtPosix);
        }
        let bytes = writer.finish().unwrap().0.into_inner();
        of_log("sketch.darshan", &Log::from_bytes(bytes).unwrap())
    };
    assert!(found(&report(false), "lock-ping-pong").is_some());
    assert_eq!(found(&report(true), "lock-ping-pong"), None);
}
