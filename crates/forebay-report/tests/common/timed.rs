//! Random logs of which the generator knows when each call was under way, and so for how long any process was in I/O.

use super::random::Random;
use darshan_log::{
    Job, LogWriter, Metadata, Posix, Record, Time, counters::posix::Counter,
    counters::posix::FCounter, file_facts::Facts, record_id,
};
use std::io::Cursor;

/// Length of the run, seconds.
pub const RUN: f64 = 100.0;

/// What is known of the times of a job, seconds.
#[derive(Debug, Clone, Default)]
pub struct Times {
    /// Any process was in I/O.
    pub union: f64,
    /// The rank that was in I/O for longest.
    pub longest_rank: f64,
    /// All calls together.
    pub sum: f64,
    /// Bytes that were written.
    pub bytes: u64,
    /// The ranks wait for each other.
    pub is_mpi: bool,
    /// Bounds that the log notes of [`Times::union`].
    pub noted: Option<(f64, f64)>,
}

/// A span of time, seconds since the start.
type Span = (f64, f64);

/// Seconds in which any of these spans is.
fn union(spans: &[Span]) -> f64 {
    let mut spans = spans.to_vec();
    spans.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (mut all, mut until) = (0.0, f64::NEG_INFINITY);
    for (start, end) in spans {
        all += (end - start.max(until)).max(0.0);
        until = until.max(end);
    }
    all
}

/// A log, and its times. Each file is written by one thread, so that threads and ranks overlap, and calls on a file don't.
pub fn log(seed: u64) -> (Vec<u8>, Times) {
    let mut random = Random(seed ^ 0x7157);
    let ranks = [1, 2, 5][random.below(3) as usize];
    let mut times = Times {
        is_mpi: random.one_in(2),
        ..Times::default()
    };
    let (mut names, mut records, mut all, mut of_ranks) = (vec![], vec![], vec![], vec![]);
    for rank in 0..ranks {
        let mut of_rank = Vec::new();
        for n in 0..1 + random.below(4) {
            let name = format!("/pfs/{rank}.{n}").into_bytes();
            let calls = calls(&mut random);
            let bytes = calls.len() as u64 * 1000;
            times.bytes += bytes;
            times.sum += calls.iter().map(|(start, end)| end - start).sum::<f64>();
            records.push(record(&name, rank, bytes, &calls));
            names.push(name);
            of_rank.extend(calls);
        }
        of_ranks.push(union(&of_rank));
        all.extend(of_rank);
    }
    times.union = union(&all);
    times.longest_rank = of_ranks.iter().copied().fold(0.0, f64::max);
    let mut facts = Facts::default();
    if random.one_in(2) {
        // Where a few milliseconds decide, the recorder knows bounds alone.
        let doubt = random.part() * if random.one_in(2) { 0.02 } else { 0.3 };
        let least = (times.union * (1.0 - doubt)).max(times.longest_rank);
        let most = (times.union * (1.0 + doubt)).min(RUN);
        times.noted = Some((least, most));
        facts
            .notes
            .push(("busy".to_owned(), note((least, most), &of_ranks)));
    }
    (write(&names, &records, ranks, &times, &facts), times)
}

/// Calls one after the other within the run.
fn calls(random: &mut Random) -> Vec<Span> {
    let mut at = random.part() * RUN * 0.5;
    let mut calls = Vec::new();
    for _ in 0..1 + random.below(5) {
        let end = at + random.part() * RUN * 0.05;
        calls.push((at, end));
        at = end + random.part() * RUN * 0.04;
    }
    calls
}

fn record(name: &[u8], rank: i64, bytes: u64, calls: &[Span]) -> Record<Posix> {
    let mut record = Record::<Posix>::new(record_id(name), rank);
    record.set(Counter::Opens, 1);
    record.set(Counter::Writes, calls.len() as i64);
    record.set(Counter::BytesWritten, bytes as i64);
    let (start, end) = (calls[0].0, calls[calls.len() - 1].1);
    let seconds = calls.iter().map(|(start, end)| end - start).sum();
    for (counter, value) in [
        (FCounter::WriteTime, seconds),
        (FCounter::OpenStartTimestamp, start),
        (FCounter::OpenEndTimestamp, start),
        (FCounter::WriteStartTimestamp, start),
        (FCounter::WriteEndTimestamp, end),
        (FCounter::CloseStartTimestamp, end),
        (FCounter::CloseEndTimestamp, end),
    ] {
        record.setf(counter, value);
    }
    record
}

/// The note of the recorder: nanoseconds, of the job and of each rank.
fn note((least, most): (f64, f64), of_ranks: &[f64]) -> String {
    let ns = |seconds: f64| (seconds * 1e9).round() as u64;
    let ranks: Vec<_> = (0u32..)
        .zip(of_ranks)
        .map(|(rank, seconds)| (rank, ns(*seconds), ns(*seconds)))
        .collect();
    serde_json::json!({ "job": (ns(least), ns(most)), "ranks": ranks }).to_string()
}

fn write(
    names: &[Vec<u8>],
    records: &[Record<Posix>],
    ranks: i64,
    times: &Times,
    facts: &Facts,
) -> Vec<u8> {
    let mut metadata = Metadata::default();
    metadata.insert("lib_ver", "forebay-0.1.0").unwrap();
    let mpi = if times.is_mpi { "1" } else { "0" };
    metadata.insert("mpi", mpi).unwrap();
    let start = 1_700_000_000;
    let at = |sec| Time { sec, nsec: 0 };
    let job = Job {
        uid: 1000,
        start: at(start),
        end: at(start + RUN as i64),
        nprocs: ranks,
        id: 4711,
        metadata,
    };
    let sink = Cursor::new(Vec::new());
    let mut writer = LogWriter::new(sink, &job, "/home/me/sim", &[]).unwrap();
    for name in names {
        writer.name(record_id(name), name).unwrap();
    }
    for record in records {
        writer.record::<Posix>(record).unwrap();
    }
    writer.trailing(&facts.encode()).unwrap();
    writer.finish().unwrap().0.into_inner()
}
