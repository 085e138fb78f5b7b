//! Logs whose contents make no sense, and large logs, give a report of bounded size all the same.

mod common;

use common::{HOSTILE_NAMES, Sketch, full_job};
use darshan_log::counters::posix::{Counter, FCounter};
use darshan_log::{HeatmapRecord, MpiIo, OpenOptions, Posix, Record, Segment, record_id};
use forebay_report::intake::{NamedLog, group, job};
use forebay_report::model::Interface;
use forebay_report::{Report, compare, of_log};

fn views(report: &Report) -> String {
    let all = [
        report.text(),
        report.long_text(),
        report.short_text(),
        report.json().to_string(),
    ];
    let mut text = all.concat();
    text.push_str(&report.html());
    text
}

#[test]
fn hostile_names_stay_text_in_every_view() {
    let report = full_job().report();
    for text in [report.text(), report.long_text(), report.short_text()] {
        assert!(!text.chars().any(|c| c != '\n' && c.is_control()), "{text}");
        assert!(!text.contains('\u{202e}'), "{text}");
    }
    let page = report.html();
    assert_eq!(page.matches("<script").count(), 2);
    assert_eq!(page.matches("</script").count(), 2);
    assert!(
        !page.contains("<img") && !page.contains("<svg onload") && !page.contains("<!--"),
        "markup from a name"
    );
    assert!(!page.contains('\u{1b}') && !page.contains('\u{202e}'));
    let names: Vec<&str> = report
        .job
        .files
        .iter()
        .map(|file| file.name.as_str())
        .collect();
    assert_eq!(
        names
            .iter()
            .filter(|name| name.contains("\\xff\\xfe\\x80"))
            .count(),
        1
    );
    let hostile = HOSTILE_NAMES.len();
    assert!(names.len() > hostile);
    let comparison = compare(&report, &report);
    assert_eq!(comparison.html().matches("<script").count(), 2);
}

#[test]
fn values_that_cannot_be_are_left_out() {
    let mut sketch = Sketch::new(3, "nonsense");
    let mut record = Record::<Posix>::new(sketch.name(b"/pfs/x"), 77);
    for counter in [
        Counter::Reads,
        Counter::BytesRead,
        Counter::SizeRead0To100,
        Counter::Opens,
    ] {
        record.set(counter, i64::MAX);
    }
    for counter in [
        Counter::Writes,
        Counter::BytesWritten,
        Counter::Stats,
        Counter::MaxByteRead,
    ] {
        record.set(counter, i64::MIN);
    }
    for (counter, value) in [
        (FCounter::ReadTime, f64::NAN),
        (FCounter::WriteTime, f64::INFINITY),
        (FCounter::MetaTime, -1.0),
        (FCounter::ReadStartTimestamp, 1e300),
        (FCounter::ReadEndTimestamp, 1e308),
        (FCounter::WriteStartTimestamp, 5.0),
        (FCounter::WriteEndTimestamp, f64::NAN),
    ] {
        record.setf(counter, value);
    }
    sketch.posix.push(record);
    record.rank = -1;
    record.set(Counter::SlowestRank, i64::MAX);
    record.setf(FCounter::SlowestRankTime, f64::NAN);
    sketch.posix.push(record);
    sketch.heatmaps.push(HeatmapRecord {
        id: record_id(b"heatmap:POSIX"),
        rank: i64::MAX,
        bin_width: f64::NAN,
        written: vec![i64::MAX; 3],
        read: vec![i64::MIN; 3],
    });
    sketch.trace(b"/pfs/x", 1);
    sketch.traces[0].writes.push(Segment {
        offset: i64::MIN,
        length: i64::MAX,
        start: f64::NAN,
        end: f64::NEG_INFINITY,
        thread: None,
    });
    let report = sketch.report();
    let text = views(&report);
    assert!(
        !text.contains("NaN") && !text.contains(" inf"),
        "{}",
        report.text()
    );
    assert_eq!(report.account.time.metadata.to_bits(), 0.0f64.to_bits());
}

#[test]
fn claims_of_a_job_decide_no_allocation() {
    for (nprocs, end) in [
        (i64::MAX, i64::MAX),
        (i64::MIN, i64::MIN),
        (0, 0),
        (1 << 40, 1_700_000_001),
    ] {
        let mut sketch = full_job();
        sketch.job.nprocs = nprocs;
        sketch.job.end.sec = end;
        sketch.traces.clear();
        let report = sketch.report();
        assert!(report.job.ranks <= 1 << 21);
        assert!(
            !report.job.damage.is_empty() || nprocs == i64::from(report.job.ranks),
            "{nprocs}"
        );
        assert!(views(&report).len() < 64 << 20);
        assert!(
            report.findings.iter().any(|one| one.code == "damaged-log"),
            "{nprocs}"
        );
    }
}

#[test]
fn a_log_that_was_cut_gives_a_report_that_says_so() {
    let bytes = full_job().bytes();
    let whole = full_job().report();
    let mut reported = 0;
    for length in (1328..bytes.len()).step_by(bytes.len() / 60) {
        let Ok(log) = OpenOptions::new()
            .lenient(true)
            .from_bytes(bytes[..length].to_vec())
        else {
            continue;
        };
        let report = of_log("cut.darshan", &log);
        reported += 1;
        assert_eq!(report.findings[0].code, "damaged-log", "cut at {length}");
        assert!(report.account.moved.bytes() <= whole.account.moved.bytes());
        assert!(!views(&report).is_empty());
    }
    assert!(reported > 30, "{reported}");
}

/// A linear congruential generator with the constants of Knuth's MMIX: the same numbers in every run.
fn numbers(seed: u64) -> impl FnMut() -> usize {
    let mut state = seed;
    move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize
    }
}

#[test]
fn changed_bytes_never_break_the_report() {
    let bytes = full_job().bytes();
    let mut next = numbers(42);
    for _ in 0..150 {
        let mut changed = bytes.clone();
        for _ in 0..3 {
            let at = 16 + next() % (changed.len() - 16);
            changed[at] = next() as u8;
        }
        if let Ok(log) = OpenOptions::new().lenient(true).from_bytes(changed) {
            assert!(!of_log("changed.darshan", &log).text().is_empty());
        }
    }
}

#[test]
fn no_values_of_counters_break_the_report() {
    let ints = [
        0,
        1,
        -1,
        2,
        1000,
        1 << 20,
        1 << 40,
        1 << 57,
        1 << 59,
        i64::MAX,
        i64::MIN,
    ];
    let floats = [
        0.0,
        1e-9,
        1.0,
        3.5,
        1e9,
        1e300,
        -1.0,
        f64::NAN,
        f64::INFINITY,
    ];
    let mut next = numbers(7);
    for _ in 0..150 {
        let mut sketch = Sketch::new(4, "random");
        sketch.diagonal_heatmap();
        for file in 0..4 {
            let id = sketch.name(format!("/pfs/{file}").as_bytes());
            let mut posix = Record::<Posix>::new(id, next() as i64 % 5 - 1);
            let mut mpiio = Record::<MpiIo>::new(id, next() as i64 % 5 - 1);
            // A record uses only the first few of these values, so that some sums are plausible.
            let most = 1 + next() % ints.len();
            posix.counters.fill_with(|| ints[next() % most]);
            posix.fcounters.fill_with(|| floats[next() % floats.len()]);
            mpiio.counters.fill_with(|| ints[next() % most]);
            mpiio.fcounters.fill_with(|| floats[next() % floats.len()]);
            sketch.posix.push(posix);
            sketch.mpiio.push(mpiio);
        }
        let report = sketch.report();
        let text = report.long_text() + &report.json().to_string();
        assert!(!text.contains("NaN"), "{}", report.long_text());
        assert!(!report.html().is_empty());
        for finding in &report.findings {
            let lost = finding.seconds_lost.unwrap_or(0.0);
            assert!(
                (0.0..=report.job.run_seconds).contains(&lost),
                "{finding:#?}"
            );
        }
    }
}

#[test]
fn logs_are_joined_by_job_user_and_time() {
    let log = |id: i64, uid: i64, start: i64| {
        let mut sketch = Sketch::new(1, "a");
        (sketch.job.id, sketch.job.uid) = (id, uid);
        (sketch.job.start.sec, sketch.job.end.sec) = (start, start + 10);
        sketch.own_file(b"/pfs/common", 0, 4, 1 << 20);
        sketch.own_file(format!("/pfs/{start}").as_bytes(), 0, 4, 1 << 20);
        darshan_log::Log::from_bytes(sketch.bytes()).unwrap()
    };
    let logs = [
        log(1, 5, 1000),
        log(2, 5, 1005),
        log(1, 5, 1004),
        log(1, 6, 1000),
        log(1, 5, 80_000),
        log(1, 5, 1_000_000),
    ];
    let named: Vec<NamedLog> = logs.iter().map(|log| NamedLog { name: "x", log }).collect();
    let mut groups = group(&named);
    groups.sort();
    assert_eq!(groups, [vec![0, 2, 4], vec![1], vec![3], vec![5]]);
    let members: Vec<NamedLog> = [2, 0]
        .map(|at| NamedLog {
            name: "x",
            log: &logs[at],
        })
        .into();
    let job = job(&members);
    assert_eq!((job.ranks, job.start), (2, 1000.0));
    assert!((job.run_seconds - 14.0).abs() < 1e-9);
    assert_eq!(job.logs.len(), 2);
    let posix = job.layer(Interface::Posix).unwrap();
    let ranks: Vec<u32> = posix.uses.iter().map(|one| one.ranks).collect();
    assert_eq!(
        ranks.iter().filter(|n| **n == 2).count(),
        1,
        "the common file: {ranks:?}"
    );
    // The second log begins 4 s later, and so do its times.
    let spans: Vec<f64> = posix
        .uses
        .iter()
        .filter_map(|one| Some(one.total.write.span?.0))
        .collect();
    assert!(spans.contains(&5.0) && spans.contains(&9.0), "{spans:?}");
}

#[test]
fn large_jobs_stay_small() {
    let mut sketch = Sketch::new(2048, "large");
    for rank in 0..2048 {
        for i in 0..8 {
            sketch.own_file(format!("/pfs/{rank}/{i}").as_bytes(), rank, 100, 1 << 20);
        }
    }
    sketch.trace(b"/pfs/0/0", 64);
    sketch.diagonal_heatmap();
    sketch.heatmaps.truncate(48);
    let report = sketch.report();
    assert_eq!(report.job.files.len(), 2048 * 8);
    let trace = &report.job.traces[0];
    assert_eq!(trace.recorded, 2048 * (64 + 16));
    assert!(trace.segments.len() <= 21_000);
    assert!(report.html().len() < 12 << 20, "{}", report.html().len());
}

#[test]
fn what_the_recorder_noted_is_shown() {
    let mut sketch = full_job();
    for (key, value) in [
        ("nnodes", "4"),
        ("hosts", "n1,n2,+2"),
        ("exit", "killed by signal 9"),
        ("coverage_read", "10000000/100000000"),
        ("coverage_written", "40000000/100000000"),
        ("mpi", "0"),
    ] {
        sketch.job.metadata.insert(key, value).unwrap();
    }
    let report = sketch.report();
    assert_eq!(report.job.nodes, Some(4));
    assert_eq!(report.job.hosts, ["n1", "n2"]);
    assert!(!report.job.is_mpi() || report.job.layer(Interface::MpiIo).is_some());
    assert!(
        report
            .findings
            .iter()
            .any(|one| one.code == "low-coverage" && one.title.contains("25 %"))
    );
    let text = report.text();
    assert!(
        text.contains("killed by signal 9") && text.contains("4 nodes"),
        "{text}"
    );
    let expected = report.account.mib_per_second().unwrap() / 4.0;
    let per_node = report.account.mib_per_second_per_node(&report.job).unwrap();
    assert!((per_node - expected).abs() < 1e-9);
}

#[test]
fn a_comparison_says_what_changed_and_what_cannot_be_compared() {
    let (before, mut after) = (full_job(), full_job());
    after
        .posix
        .retain(|record| record.get(Counter::Writes) < 1000);
    after.exe = "/other/program".to_owned();
    after.job.nprocs = 4;
    let (before, after) = (before.report(), after.report());
    let comparison = compare(&before, &after);
    let text = comparison.text();
    assert!(
        text.contains("different programs") && text.contains("different numbers of processes"),
        "{text}"
    );
    assert!(
        comparison
            .gone()
            .iter()
            .any(|one| one.code == "small-writes"),
        "{text}"
    );
    assert!(
        compare(&after, &before)
            .new_ones()
            .iter()
            .any(|one| one.code == "small-writes")
    );
    let json = comparison.json();
    assert_eq!(json["comparable"], false);
    assert_eq!(json["figures"]["run_seconds"]["before"], 100.0);
    assert_eq!(
        json["figures"]["posix_writes"]["before"],
        f64::from(8 * 2000 + 8 * 20 * 4)
    );
    let same = compare(&before, &before);
    assert!(same.warnings.is_empty() && same.gone().is_empty() && same.new_ones().is_empty());
    assert!(!text.chars().any(|c| c != '\n' && c.is_control()));
}
