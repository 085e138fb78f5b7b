//! What must hold for the numbers of every report: bytes count once, no share exceeds 100 %, no time exceeds the run.

mod common;

use common::{logs_below, random, timed};
use darshan_log::Log;
use forebay_report::{Report, of_log, read};
use forebay_testkit::{optional_data, sample_logs};

/// Random logs that are checked. A failing seed is printed.
const SEEDS: u64 = 1000;

/// Checks a report: its own identities, those of its findings, and what its views say.
#[track_caller]
fn check(report: &Report, what: &str) {
    let contradiction = report
        .findings
        .iter()
        .find(|one| one.code == "contradiction");
    assert_eq!(contradiction, None, "{what}");
    let slowest = report.account.slowest.map_or(0.0, |one| one.seconds);
    for finding in &report.findings {
        let lost = finding.seconds_lost.unwrap_or(0.0);
        // The own time of a library is not counted as I/O.
        let most = match finding.code {
            "data-set-amplification" => report.job.run_seconds,
            _ => slowest,
        };
        assert!((0.0..=most).contains(&lost), "{what}: {finding:#?}");
    }
    let texts = [report.text(), report.long_text(), report.short_text()];
    for text in &texts {
        for wrong in ["NaN", "inf %", "inf s", "inf MiB"] {
            assert!(!text.contains(wrong), "{what}: {wrong} in {text}");
        }
    }
    for line in texts
        .iter()
        .flat_map(|text| text.lines())
        .chain(report.html().split('<'))
    {
        for share in shares(line) {
            assert!(share <= 100, "{what}: {share} % in {line}");
        }
    }
}

/// All numbers before ` %`.
fn shares(text: &str) -> Vec<u64> {
    let text = text.replace('\u{a0}', " ");
    let parts: Vec<&str> = text.split(" %").collect();
    let before = parts[..parts.len() - 1].iter().map(|part| {
        let digits = part.len() - part.trim_end_matches(|c: char| c.is_ascii_digit()).len();
        part[part.len() - digits..].parse().ok()
    });
    before.flatten().collect()
}

#[test]
fn random_logs_obey_the_identities_and_their_bytes_count_once() {
    for seed in 0..SEEDS {
        let (bytes, truth) = random::log(seed);
        let log = Log::from_bytes(bytes).unwrap();
        let report = of_log("random.darshan", &log);
        let what = format!("seed {seed}, {truth:?}");
        assert_eq!(report.job.damage, Vec::<String>::new(), "{what}");
        let moved = report.account.moved;
        assert_eq!(
            (moved.bytes_read, moved.bytes_written, moved.files),
            (truth.read, truth.written, truth.files),
            "{what}: {:#?}",
            report.job.layers
        );
        assert_eq!(report.account.std_streams, truth.std_streams, "{what}");
        check(&report, &what);
    }
}

/// The seconds in I/O against those that the generator knows. Without a note of the recorder they are an upper bound for
/// processes, and those of the slowest rank for ranks; with one they are within its bounds.
#[test]
fn seconds_in_io_are_those_of_the_truth_as_far_as_a_log_tells_them() {
    /// Bounds further apart than this share make the speed a lower one.
    const DOUBT: f64 = 0.05;
    let mut noted = 0;
    for seed in 0..SEEDS {
        let (bytes, times) = timed::log(seed);
        let report = of_log("timed.darshan", &Log::from_bytes(bytes).unwrap());
        let what = format!("seed {seed}, {times:?}");
        let (account, io) = (&report.account, report.account.io_seconds);
        let dust = 1e-6 * timed::RUN;
        let is_least = report.json()["mib_per_second_is_least"] == true;
        assert_eq!(account.moved.bytes(), times.bytes, "{what}");
        assert!(
            io <= times
                .sum
                .min(timed::RUN)
                .max(times.noted.map_or(0.0, |n| n.1))
                + dust,
            "{io}: {what}"
        );
        assert!(io >= times.longest_rank - dust, "{io}: {what}");
        if let Some((least, most)) = times.noted {
            noted += 1;
            assert!((least - dust..=most + dust).contains(&io), "{io}: {what}");
            assert_eq!(is_least, most - least > most * DOUBT, "{what}");
            if !is_least {
                assert!(
                    (io - times.union).abs() <= io * DOUBT + dust,
                    "{io}: {what}"
                );
            }
        }
        // What is called "at least" is no more than the truth; so is every speed that is known to 5 %.
        if times.noted.is_some() || !times.is_mpi {
            assert!(io >= times.union - dust, "{io}: {what}");
            let most = times.bytes as f64 / f64::from(1 << 20) / times.union;
            assert!(
                account.mib_per_second().unwrap() <= most * (1.0 + 1e-5),
                "{what}"
            );
        }
        check(&report, &what);
    }
    assert!(noted > 300 && noted < 700, "{noted}");
}

#[test]
fn the_same_seed_gives_the_same_log_and_others_differ() {
    assert_eq!(random::log(7).0, random::log(7).0);
    assert_ne!(random::log(7).0, random::log(8).0);
}

#[test]
fn logs_of_others_obey_the_identities() {
    let dir = optional_data!(sample_logs());
    let reports = read(&logs_below(&dir)).unwrap();
    assert!(reports.len() >= 30, "{} jobs", reports.len());
    for report in &reports {
        check(report, &report.job.logs[0].name);
    }
}

#[test]
fn the_logs_that_come_with_pydarshan_obey_the_identities() {
    let dir = forebay_testkit::cache_dir().join("pydarshan");
    forebay_testkit::skip_unless!(dir.is_dir(), "no PyDarshan in {}", dir.display());
    let logs = logs_below(&dir);
    for log in &logs {
        for report in read(std::slice::from_ref(log)).unwrap() {
            check(&report, &log.display().to_string());
        }
    }
    // POSIX has 4 MiB and the headers; data sets of records without the id of their file have 3 MiB of them again.
    let hdf5 = logs
        .iter()
        .find(|log| log.ends_with("ior_hdf5_example.darshan"));
    let report = &read(std::slice::from_ref(hdf5.unwrap())).unwrap()[0];
    assert_eq!(report.account.moved.bytes_read, 4_202_504);
    assert_eq!(report.account.moved.files, 1);
    // Files on OST 14 took 47 times as long as those on others.
    let slow = logs
        .iter()
        .find(|log| log.ends_with("example_logs/sample-badost.darshan"));
    let report = &read(std::slice::from_ref(slow.unwrap())).unwrap()[0];
    let slow = report.costly();
    let slow = slow.iter().find(|one| one.code == "slow-target").unwrap();
    assert!(slow.title.contains("OST 14 is slow"), "{slow:#?}");
    // Eight threads wait for pipes, 24 minutes each: no rank is in metadata for 764 % of the run.
    let pipes = logs
        .iter()
        .find(|log| log.ends_with("example_logs/dxt.darshan"));
    let report = &read(std::slice::from_ref(pipes.unwrap())).unwrap()[0];
    assert!(
        report.text().contains("up to 8 at once"),
        "{}",
        report.text()
    );
}
