//! What the page draws and says is what the JSON says: read by Python's own parsers of HTML and XML.

mod common;

use common::{Sketch, full_job, logs_below, random};
use darshan_log::Log;
use forebay_report::{Report, of_log, read};
use forebay_testkit::{optional_data, sample_logs};
use std::path::Path;
use std::process::Command;

/// Random logs whose pages are compared.
const SEEDS: u64 = 25;

/// Bars and numbers that were compared; `None` if there is no Python.
#[track_caller]
fn compared(report: &Report, what: &str) -> Option<(u64, u64)> {
    let dir = tempfile::tempdir().unwrap();
    let (page, json) = (dir.path().join("page.html"), dir.path().join("report.json"));
    std::fs::write(&page, report.html()).unwrap();
    std::fs::write(&json, report.json().to_string()).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/pictures.py");
    let Ok(done) = Command::new("python3")
        .arg(script)
        .arg(page)
        .arg(json)
        .output()
    else {
        forebay_testkit::skip("python3 is not installed");
        return None;
    };
    let (out, err) = (
        String::from_utf8_lossy(&done.stdout),
        String::from_utf8_lossy(&done.stderr),
    );
    assert!(done.status.success(), "{what}: {err}");
    let mut counts = out.split_whitespace().map(|n| n.parse().unwrap());
    Some((counts.next().unwrap(), counts.next().unwrap()))
}

#[test]
fn bars_and_numbers_of_the_page_are_those_of_the_json() {
    let Some((bars, numbers)) = compared(&full_job().report(), "a full job") else {
        return;
    };
    assert!(bars > 100 && numbers > 40, "{bars} bars, {numbers} numbers");
}

#[test]
fn a_job_without_io_has_a_page_that_says_so() {
    let report = Sketch::new(4, "idle").report();
    assert!(report.html().contains("there is nothing to draw"));
    let Some((bars, _)) = compared(&report, "an idle job") else {
        return;
    };
    assert_eq!(bars, 0);
}

#[test]
fn a_job_of_which_nothing_was_recorded_is_unknown_on_its_page_and_not_at_rest() {
    let mut sketch = Sketch::new(4, "static");
    let job = &mut sketch.job;
    job.metadata.insert("lib_ver", "forebay-0.1.0").unwrap();
    job.metadata.insert("processes", "0").unwrap();
    job.metadata.insert("coverage_read", "0/13000000").unwrap();
    let html = sketch.report().html().replace('\u{a0}', " ");
    assert_eq!(html.matches(">unknown</div>").count(), 4);
    assert!(html.contains("Unknown: nothing was recorded of this job's I/O"));
    for claim in [
        "Moved</h3><div class=\"figure\">0 B",
        "0 % in I/O",
        "holds no I/O",
    ] {
        assert!(!html.contains(claim), "{claim}");
    }
    // A job that did no I/O is known to have done none.
    let idle = Sketch::new(4, "idle").report().html();
    let idle = idle.replace('\u{a0}', " ");
    assert!(idle.contains("0 % in I/O") && !idle.contains(">unknown</div>"));
}

#[test]
fn small_requests_are_proved_by_the_sizes_of_their_own_files_and_direction() {
    let mut sketch = Sketch::new(4, "small");
    for rank in 0..4 {
        sketch.own_file(format!("/pfs/small.{rank}").as_bytes(), rank, 3000, 512);
        sketch.own_file(format!("/pfs/large.{rank}").as_bytes(), rank, 400, 1 << 20);
    }
    let report = sketch.report();
    let at = report
        .findings
        .iter()
        .position(|one| one.code == "small-writes");
    let at = at.expect("small writes are found");
    let sizes = report.findings[at].sizes.unwrap();
    assert_eq!(sizes.iter().sum::<u64>(), 4 * 3000, "{sizes:?}");
    let bars = |html: &str| {
        let pointer = format!("data-json=\"/findings/{at}/sizes/");
        html.matches(&pointer).count()
    };
    assert_eq!(bars(&report.html()), 1);
    compared(&report, "small writes");
}

#[test]
fn sharing_is_drawn_for_jobs_of_several_processes() {
    let mut sketch = Sketch::new(4, "sharing");
    sketch.own_file(b"/pfs/own", 1, 100, 1 << 20);
    sketch.shared_file(b"/pfs/all", 400, 1 << 20);
    let report = sketch.report();
    let html = report.html();
    let (_, rest) = html.split_once("<strong>Sharing</strong>").unwrap();
    let (picture, _) = rest.split_once("</figure>").unwrap();
    // One file of one rank, one of all; none is partly shared. Nothing was read.
    for (place, bars, numbers) in [
        ("/sharing/0/files", 1, 1),
        ("/sharing/1/files", 1, 1),
        ("/sharing/2/files", 0, 1),
        ("/sharing/0/bytes_read", 0, 1),
        ("/sharing/0/bytes_written", 1, 1),
        ("/sharing/1/bytes_written", 1, 1),
    ] {
        let at = format!("data-json=\"{place}\"");
        let found = picture.matches(&at).count();
        assert_eq!(found, bars + numbers, "{place} in {picture}");
    }
    compared(&report, "sharing");
    let mut alone = Sketch::new(1, "alone");
    alone.own_file(b"/pfs/own", 0, 100, 1 << 20);
    assert!(!alone.report().html().contains("<strong>Sharing</strong>"));
}

#[test]
fn five_hundred_ranks_are_drawn_in_groups() {
    let mut sketch = Sketch::new(512, "many");
    for rank in 0..512 {
        sketch.own_file(format!("/pfs/out.{rank}").as_bytes(), rank % 40, 10, 4096);
    }
    sketch.diagonal_heatmap();
    let report = sketch.report();
    assert_eq!(report.plots().ranks.len(), 64);
    assert!(report.html().len() < 1 << 20);
    compared(&report, "512 ranks");
}

#[test]
fn pages_of_random_logs_say_what_their_json_says() {
    for seed in 0..SEEDS {
        let (bytes, _) = random::log(seed);
        let report = of_log("random.darshan", &Log::from_bytes(bytes).unwrap());
        if compared(&report, &format!("seed {seed}")).is_none() {
            return;
        }
    }
}

#[test]
fn pages_of_all_sample_logs_say_what_their_json_says() {
    let samples = optional_data!(sample_logs());
    for path in logs_below(&samples) {
        for report in read(std::slice::from_ref(&path)).unwrap() {
            if compared(&report, &path.display().to_string()).is_none() {
                return;
            }
        }
    }
}
