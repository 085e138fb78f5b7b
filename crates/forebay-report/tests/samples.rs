//! Reports of logs that others recorded have the figures of Darshan's own tools (PyDarshan 3.5.0).

mod common;

use common::logs_below;
use forebay_report::model::{Interface, Sharing, TimelineSource};
use forebay_report::{Report, read};
use forebay_testkit::{optional_data, sample_logs};
use std::path::PathBuf;

/// The reports of the logs in a folder of the samples, or of one of them; an error if there are no samples.
fn reports(name: &str) -> Result<Vec<Report>, String> {
    let dir = sample_logs()?.join(name);
    let logs = if dir.is_dir() {
        logs_below(&dir)
    } else {
        vec![dir]
    };
    assert!(!logs.is_empty(), "{name}");
    Ok(read(&logs).unwrap())
}

fn one(name: &str) -> Result<Report, String> {
    let mut reports = reports(name)?;
    assert_eq!(reports.len(), 1, "{name}");
    Ok(reports.remove(0))
}

#[track_caller]
fn about(value: f64, expected: f64) {
    assert!(
        (value - expected).abs() <= 1e-4 * expected.abs(),
        "{value} is not {expected}"
    );
}

fn rate(report: &Report, interface: Interface) -> f64 {
    report
        .job
        .layer(interface)
        .unwrap()
        .by_slowest
        .unwrap()
        .mib_per_second
}

/// Checks what must hold for every view, whatever the log holds.
fn check_views(report: &Report) {
    for text in [report.text(), report.long_text(), report.short_text()] {
        for c in text.chars() {
            assert!(
                c == '\n' || !c.is_control(),
                "control character {c:?} in {text}"
            );
        }
    }
    for line in report.text().lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    assert!(
        report.short_text().lines().count() <= 12,
        "{}",
        report.short_text()
    );
    assert_eq!(report.json()["forebay_job_report"], 1);
    let page = report.html();
    assert_eq!(page.matches("<script").count(), 2, "data and program");
    assert!(
        !page.contains("http://") && !page.contains("https://"),
        "an address in the page"
    );
}

#[test]
fn every_sample_has_views_that_keep_to_the_rules_and_are_the_same_each_time() {
    let all = optional_data!(reports("."));
    let again = reports(".").unwrap();
    assert!(all.len() >= 30, "{} jobs", all.len());
    for (report, again) in all.iter().zip(&again) {
        check_views(report);
        assert_eq!(report.html(), again.html());
        assert_eq!(report.json(), again.json());
        assert_eq!(report.job.damage, Vec::<String>::new());
    }
}

#[test]
fn releases_3_0_to_3_5_of_both_byte_orders_say_the_same() {
    let dir = optional_data!(sample_logs());
    let logs = logs_below(&dir.join("release_logs"));
    assert_eq!(logs.len(), 36);
    for log in logs {
        let report = read(std::slice::from_ref(&log)).unwrap().pop().unwrap();
        let name = log.display();
        assert_eq!(report.job.ranks, 4, "{name}");
        for interface in [Interface::Posix, Interface::MpiIo] {
            let total = report.job.layer(interface).unwrap().total();
            assert_eq!(
                (total.read.bytes, total.write.bytes),
                (67_108_864, 67_108_864),
                "{name}"
            );
            assert_eq!((total.read.ops, total.write.ops), (4, 4), "{name}");
        }
        // The bytes count once although two interfaces counted them. STDIO adds what was printed.
        assert_eq!(report.account.moved.bytes_read, 67_108_864, "{name}");
        assert!(
            report.timed().iter().all(|one| one.code != "small-writes"),
            "{name}"
        );
    }
}

#[test]
fn the_newest_release_log_has_the_derived_figures_of_pydarshan() {
    let report = optional_data!(one("release_logs/mpi-io-test-x86_64-3.5.0.darshan"));
    about(report.job.run_seconds, 0.051284);
    about(rate(&report, Interface::Posix), 3122.2865);
    about(rate(&report, Interface::MpiIo), 2897.6663);
    let posix = report.job.layer(Interface::Posix).unwrap();
    about(posix.by_slowest.unwrap().seconds, 0.040996);
    assert_eq!(posix.total().opens, 16);
    assert_eq!(posix.total().alignment, 1 << 20);
    let stdio = report.job.layer(Interface::Stdio).unwrap().total();
    assert_eq!(stdio.write.bytes, 322);
    let shared = &posix.uses[0];
    assert_eq!(shared.sharing, Sharing::Shared);
    assert_eq!(
        (
            shared.reduced[0].slowest.rank,
            shared.reduced[0].fastest.rank
        ),
        (3, 2)
    );
    assert_eq!(report.job.files[shared.file].stripes, Some((1 << 20, 1)));
    assert!(
        report
            .job
            .timelines
            .iter()
            .all(|line| line.source == TimelineSource::Heatmap && line.bins == 1)
    );
    assert_eq!(report.job.timelines.len(), 3);
    let old = one("release_logs/mpi-io-test-ppc64-3.0.0.darshan").unwrap();
    about(old.job.run_seconds, 2.0);
    about(rate(&old, Interface::Posix), 456.7445);
    about(rate(&old, Interface::MpiIo), 233.0285);
    let posix = old.job.layer(Interface::Posix).unwrap().total();
    assert_eq!((posix.stats, posix.seeks), (16, 6));
}

#[test]
fn an_imbalanced_job_is_found_to_be_one_and_its_log_incomplete() {
    let report = optional_data!(one("imbalanced_io"));
    assert_eq!(report.job.ranks, 496);
    let posix = report.job.layer(Interface::Posix).unwrap();
    let total = posix.total();
    assert_eq!(
        (total.read.bytes, total.write.bytes),
        (53_791_619_826, 52_938_480_076)
    );
    assert_eq!(
        (total.opens, total.read.ops, total.write.ops),
        (16_745, 67_861, 50_832)
    );
    about(rate(&report, Interface::Posix), 164.9925);
    about(posix.by_slowest.unwrap().seconds, 616.9115);
    about(rate(&report, Interface::MpiIo), 101.5801);
    let mpiio = report.job.layer(Interface::MpiIo).unwrap().total();
    assert_eq!(
        (mpiio.read.bytes, mpiio.write.bytes),
        (52_939_424_612, 79_523_848_632)
    );
    let classes: Vec<usize> = Sharing::ALL
        .iter()
        .map(|class| {
            posix
                .uses
                .iter()
                .filter(|one| one.sharing == *class)
                .count()
        })
        .collect();
    assert_eq!(classes, [1023, 1, 2]);
    let shared = posix
        .uses
        .iter()
        .find(|one| one.sharing == Sharing::Shared)
        .unwrap();
    assert_eq!(
        (
            shared.reduced[0].slowest.rank,
            shared.reduced[0].slowest.bytes
        ),
        (0, 105_876_790_000)
    );
    assert_eq!(
        (
            shared.reduced[0].fastest.rank,
            shared.reduced[0].fastest.bytes
        ),
        (465, 2_072)
    );
    assert_eq!(report.findings[0].code, "partial-data");
    assert_eq!(report.costly()[0].code, "rank-0-io");
    assert!(
        report.text().contains("at least 50.1 GiB"),
        "{}",
        report.text()
    );
    assert_eq!(report.account.mib_per_second_per_node(&report.job), None);
    let text = report
        .text()
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    assert!(text.contains("per node unknown"), "{text}");
}

#[test]
fn the_logs_of_one_job_of_many_processes_become_one_report() {
    let report = optional_data!(one("dlio_logs"));
    let job = &report.job;
    assert_eq!((job.logs.len(), job.ranks, job.job_id), (24, 24, 3_116_902));
    let total = job.layer(Interface::Posix).unwrap().total();
    assert_eq!(
        (total.read.bytes, total.write.bytes),
        (129_953_991_223, 523_946_754)
    );
    assert_eq!(
        (total.opens, total.read.ops, total.write.ops),
        (1482, 35_762, 168)
    );
    about(job.start, 1_734_633_357.062);
    about(job.start + job.run_seconds, 1_734_633_516.668);
    assert!(
        (job.run_seconds - 159.606).abs() < 0.01,
        "{}",
        job.run_seconds
    );
    assert!(!job.is_mpi());
    for finding in &report.findings {
        assert!(!finding.advice.contains("MPI"), "{finding:#?}");
    }
    assert!(
        report
            .timed()
            .iter()
            .any(|one| one.code == "repeated-reads")
    );
}

#[test]
fn traces_are_joined_counted_and_thinned() {
    let report = optional_data!(one("mpi_io_test_with_dxt"));
    let total = report.job.layer(Interface::Posix).unwrap().total();
    assert_eq!(
        (total.read.bytes, total.write.bytes),
        (2_147_483_648, 2_147_486_208)
    );
    let recorded: Vec<u64> = report
        .job
        .traces
        .iter()
        .map(|trace| trace.recorded)
        .collect();
    assert_eq!(recorded, [192 + 128, 128 + 128]);
    assert_eq!(report.job.nodes, Some(1));
    for line in &report.job.timelines {
        if line.interface != Interface::Stdio {
            assert_eq!(line.source, TimelineSource::Trace);
        }
    }
    let overflowed = one("partial_data_dxt").unwrap();
    let recorded: Vec<u64> = overflowed
        .job
        .traces
        .iter()
        .map(|trace| trace.recorded)
        .collect();
    assert_eq!(recorded.iter().sum::<u64>(), 65_536 + 65_529);
    assert!(
        overflowed
            .job
            .traces
            .iter()
            .all(|trace| trace.is_partial && trace.segments.len() <= 21_000)
    );
    assert_eq!(overflowed.findings[0].code, "partial-data");
    assert!(
        overflowed.job.traces[0]
            .rule
            .as_ref()
            .unwrap()
            .contains("of 65,5")
    );
    assert!(overflowed.html().len() < 4 << 20, "the page stays small");
}

#[test]
fn data_sets_are_shown_but_their_bytes_count_once() {
    let jobs = optional_data!(reports("ior_pnetcdf_hdf5"));
    assert_eq!(jobs.len(), 2);
    for report in &jobs {
        let library = report.job.layers.last().unwrap();
        assert!(matches!(
            library.interface,
            Interface::Hdf5 | Interface::Pnetcdf
        ));
        let total = library.total();
        assert_eq!(
            (total.read.bytes, total.write.bytes),
            (4_194_304, 4_194_304)
        );
        assert!(
            library
                .uses
                .iter()
                .all(|one| !one.is_lowest && !one.is_highest)
        );
        let moved = report.account.moved;
        assert!(moved.bytes_written < 2 * 4_194_304, "{moved:?}");
        if library.interface == Interface::Hdf5 {
            assert_eq!((total.read.ops, total.write.ops, total.opens), (16, 16, 8));
        }
    }
    let diagonal = one("hdf5_diagonal_write_only").unwrap();
    let ranks = &diagonal.job.layer(Interface::Hdf5).unwrap().uses;
    let mut written = [0u64; 10];
    for share in ranks.iter().flat_map(|one| &one.by_rank) {
        written[share.rank as usize] += share.bytes_written;
    }
    assert_eq!(written, [10, 20, 30, 40, 50, 60, 70, 80, 90, 100]);
    assert_eq!(
        diagonal
            .job
            .layer(Interface::Posix)
            .unwrap()
            .total()
            .write
            .bytes,
        16_470
    );
}

#[test]
fn a_log_without_modules_says_that_nothing_was_recorded() {
    let report = optional_data!(one("empty_log"));
    assert_eq!(report.job.layers.len(), 0);
    assert!(report.text().contains("none recorded"), "{}", report.text());
    assert_eq!(report.timed().len(), 0);
}

#[test]
fn a_file_that_is_no_log_is_named_and_the_others_are_reported() {
    let dir = tempfile::tempdir().unwrap();
    let broken: PathBuf = dir.path().join("broken\u{1b}[31m.darshan");
    std::fs::write(&broken, b"no log").unwrap();
    let error = read(std::slice::from_ref(&broken)).unwrap_err().to_string();
    assert!(error.contains("broken\\u{1b}[31m.darshan: "), "{error}");
    let good = dir.path().join("good.darshan");
    std::fs::write(&good, common::full_job().bytes()).unwrap();
    let limits = forebay_report::findings::Thresholds::default();
    let (reports, errors) = forebay_report::read_with(&[broken, good], &limits);
    assert_eq!((reports.len(), errors.len()), (1, 1));
}
