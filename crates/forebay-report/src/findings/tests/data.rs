//! Findings about the log itself, and what a report says if it finds nothing.

use super::*;
use crate::model::Unplaced;

#[test]
fn low_coverage_is_said_below_nine_tenths_if_it_is_about_more_than_libraries() {
    let mut job = with_own(writes(1, 1, 0.1));
    let mut covered = |seen, total| {
        job.coverage = Some(Coverage {
            seen,
            total,
            ..Coverage::default()
        });
        job.clone()
    };
    const MIB: u64 = 1 << 20;
    fires(&covered(899 * MIB, 1000 * MIB), "low-coverage");
    is_silent(&covered(900 * MIB, 1000 * MIB), "low-coverage");
    fires(&covered(MIB, 5 * MIB), "low-coverage");
    is_silent(&covered(MIB + 1, 5 * MIB), "low-coverage");
    is_silent(&covered(0, 0), "low-coverage");
}

#[test]
fn a_job_of_which_nothing_was_recorded_says_so_loudly() {
    let mut job = plain_job(1);
    is_silent(&job, "nothing-recorded");
    job.metadata.insert("processes".to_owned(), "0".to_owned());
    let found = fires(&job, "nothing-recorded");
    assert_eq!(found.severity, Severity::Data);
    let report = crate::Report::new(job.clone(), &Thresholds::default());
    assert!(
        report.one_line().starts_with("NOTHING WAS RECORDED"),
        "{}",
        report.one_line()
    );
    // A process reads its libraries; more than that is I/O that nobody saw.
    job.metadata.insert("processes".to_owned(), "2".to_owned());
    is_silent(&job, "nothing-recorded");
    let unseen = |total| {
        Some(Coverage {
            seen: 0,
            total,
            ..Coverage::default()
        })
    };
    job.coverage = unseen(128 << 10);
    is_silent(&job, "nothing-recorded");
    job.coverage = unseen((128 << 10) + 1);
    fires(&job, "nothing-recorded");
    by_rank(
        &mut job,
        Interface::Stdio,
        "<STDOUT>",
        0,
        writes(1, 10, 0.0),
    );
    fires(&job, "nothing-recorded");
    by_rank(&mut job, Interface::Posix, "/pfs/a", 0, writes(1, 10, 0.0));
    is_silent(&job, "nothing-recorded");
}

#[test]
fn more_seen_than_the_kernel_counted_is_no_coverage_of_100_percent() {
    let mut job = plain_job(1);
    let report = |job: &Job| crate::Report::new(job.clone(), &Thresholds::default()).text();
    job.coverage = Some(Coverage {
        seen: 800 << 20,
        total: 10_000,
        ..Coverage::default()
    });
    assert!(
        report(&job).contains("unknown: 800 MiB seen"),
        "{}",
        report(&job)
    );
    job.coverage = Some(Coverage {
        seen: 99,
        total: 100,
        ..Coverage::default()
    });
    assert!(report(&job).contains("99 %: 99 B seen"), "{}", report(&job));
}

#[test]
fn condensed_data_is_said() {
    let mut job = mpi_job(1);
    is_silent(&job, "condensed-data");
    job.condensed = vec!["12 files summed up by directory".to_owned()];
    fires(&job, "condensed-data");
}

#[test]
fn calls_in_no_record_are_missing_in_the_sums_and_nothing_says_that_those_are_exact() {
    let mut job = mpi_job(1);
    is_silent(&job, "unplaced-data");
    job.unplaced = Unplaced {
        calls: 1,
        bytes_read: 0,
        bytes_written: 36,
    };
    let found = fires(&job, "unplaced-data");
    assert_eq!(
        found.title,
        "The sums leave out 1 call that is in no record of a file"
    );
    assert_eq!(found.evidence, ["1 call: read 0 B, wrote 36 B"]);
    is_silent(&job, "lost-data");
    job.condensed = vec!["12 files summed up by directory".to_owned()];
    job.unplaced.calls = 1_200;
    let text = crate::Report::new(job, &Thresholds::default()).text();
    assert!(text.contains("leave out 1,200 calls that are in"), "{text}");
    assert!(!text.contains("exact"), "{text}");
    assert!(!text.contains("lower bounds"), "{text}");
    assert!(
        text.contains("none in the part that was recorded"),
        "{text}"
    );
}

#[test]
fn less_than_a_millisecond_is_no_finding() {
    let job = |seconds| with_own(writes(4096, 1024, seconds));
    let found = fires(&job(0.01), "small-writes");
    assert!(found.seconds_lost.is_some_and(|seconds| seconds < 0.01));
    is_silent(&job(0.001), "small-writes");
}

#[test]
fn a_job_that_spends_a_fifth_of_its_run_in_io_is_never_told_that_nothing_costs_time() {
    let job = |seconds| {
        let mut job = with_shared(Interface::MpiIo, reads(64, 64 << 20, 16.0 * seconds));
        let below = slowest(0, 60.0, 4 << 26);
        by_all(
            &mut job,
            Interface::Posix,
            "/pfs/shared",
            below,
            reads(64, 64 << 20, 960.0),
        );
        crate::Report::new(job, &Thresholds::default())
    };
    let much = job(92.0);
    assert_eq!(much.costly(), Vec::<&Finding>::new());
    let text = much.text().replace("\n               ", " ");
    for part in [
        "92 % of the run",
        "reading",
        "in MPI-IO for 1 min 32 s, in the POSIX calls for 1 min 00 s",
        "Not known",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("no known pattern costs"), "{text}");
    let little = job(20.0);
    assert_eq!(little.unexplained, None);
    assert!(little.text().contains("no known pattern costs"));
}
