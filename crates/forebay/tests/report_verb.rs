//! `forebay report` as it is typed.

use darshan_log::counters::posix::{Counter, FCounter};
use darshan_log::{Job, LogWriter, Posix, Record, Time, record_id};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Writes the log of a job with one file.
fn log(dir: &Path, name: &str, id: i64, writes: i64) -> PathBuf {
    let path = dir.join(name);
    let job = Job {
        id,
        nprocs: 1,
        start: Time {
            sec: 1_700_000_000,
            nsec: 0,
        },
        end: Time {
            sec: 1_700_000_050,
            nsec: 0,
        },
        ..Job::default()
    };
    let mut writer = LogWriter::create(&path, &job, "./sim --steps 3", &[]).unwrap();
    let file = record_id(b"/pfs/out.\x1b[31mdat");
    writer.name(file, b"/pfs/out.\x1b[31mdat").unwrap();
    let mut record = Record::<Posix>::new(file, 0);
    record.set(Counter::Opens, 1);
    record.set(Counter::Writes, writes);
    record.set(Counter::SeqWrites, writes - 1);
    record.set(Counter::SizeWrite100To1K, writes);
    record.set(Counter::BytesWritten, writes * 512);
    record.setf(FCounter::WriteTime, 20.0);
    record.setf(FCounter::WriteStartTimestamp, 1.0);
    record.setf(FCounter::WriteEndTimestamp, 40.0);
    writer.record::<Posix>(&record).unwrap();
    writer.finish().unwrap();
    path
}

fn forebay(args: &[&str], dir: &Path) -> Output {
    let mut command = Command::new(forebay_testkit::built::forebay());
    command
        .arg("report")
        .args(args)
        .current_dir(dir)
        .output()
        .unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn a_job_is_shown_on_one_screen_without_anything_that_a_terminal_obeys() {
    let dir = tempfile::tempdir().unwrap();
    log(dir.path(), "a.darshan", 1, 5000);
    let output = forebay(&["a.darshan"], dir.path());
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(text.starts_with("./sim --steps 3\n"), "{text}");
    assert!(
        text.contains("wrote 2.4 MiB, 1 file (counted at POSIX)"),
        "{text}"
    );
    assert!(
        text.contains("HIGH") && text.contains("Small writes"),
        "{text}"
    );
    assert!(
        !text.contains('\u{1b}') && text.contains("\\u{1b}[31m"),
        "{text}"
    );
    assert!(text.lines().count() <= 40, "{text}");
    let long = stdout(&forebay(&["-v", "a.darshan"], dir.path()));
    assert!(long.contains("estimate (medium confidence)"), "{long}");
}

#[test]
fn jobs_are_shown_one_by_one_and_a_directory_stands_for_its_logs() {
    let dir = tempfile::tempdir().unwrap();
    log(dir.path(), "a.darshan", 1, 5000);
    log(dir.path(), "b.darshan", 2, 10);
    std::fs::write(dir.path().join("notes.txt"), "no log").unwrap();
    let text = stdout(&forebay(&["."], dir.path()));
    assert_eq!(text.matches("./sim --steps 3\n").count(), 2, "{text}");
    let json: Value =
        serde_json::from_slice(&forebay(&[".", "--json"], dir.path()).stdout).unwrap();
    let ids: Vec<i64> = json
        .as_array()
        .unwrap()
        .iter()
        .map(|job| job["job"]["id"].as_i64().unwrap())
        .collect();
    assert_eq!(ids, [1, 2]);
    let page = forebay(&[".", "--html", "x.html"], dir.path());
    assert_eq!(page.status.code(), Some(1));
    assert!(
        stderr(&page).contains("these logs are of 2") && stderr(&page).contains("hint"),
        "{}",
        stderr(&page)
    );
}

#[test]
fn the_page_is_written_where_it_is_wanted() {
    let dir = tempfile::tempdir().unwrap();
    log(dir.path(), "a.darshan", 1, 5000);
    let output = forebay(&["a.darshan", "--html", "a.html"], dir.path());
    assert_eq!(stdout(&output), "a.html written\n");
    let page = std::fs::read_to_string(dir.path().join("a.html")).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>") && page.contains("Content-Security-Policy"));
    let nowhere = forebay(&["a.darshan", "--html", "missing/a.html"], dir.path());
    assert_eq!(nowhere.status.code(), Some(1));
    assert!(
        stderr(&nowhere).contains("missing/a.html: No such file"),
        "{}",
        stderr(&nowhere)
    );
}

#[test]
fn a_broken_log_is_named_and_the_others_are_reported() {
    let dir = tempfile::tempdir().unwrap();
    log(dir.path(), "a.darshan", 1, 5000);
    std::fs::write(dir.path().join("broken.darshan"), "this is no log").unwrap();
    let output = forebay(&["broken.darshan", "a.darshan"], dir.path());
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("broken.darshan: "),
        "{}",
        stderr(&output)
    );
    assert!(stdout(&output).contains("./sim --steps 3"));
    assert_eq!(forebay(&[], dir.path()).status.code(), Some(2));
}

#[test]
fn two_runs_are_compared() {
    let dir = tempfile::tempdir().unwrap();
    log(dir.path(), "before.darshan", 1, 5000);
    log(dir.path(), "after.darshan", 2, 10);
    let output = forebay(
        &[
            "--compare",
            "before.darshan",
            "after.darshan",
            "--html",
            "c.html",
        ],
        dir.path(),
    );
    assert_eq!(stdout(&output), "c.html written\n", "{}", stderr(&output));
    let output = forebay(
        &["--compare", "before.darshan", "after.darshan"],
        dir.path(),
    );
    let text = stdout(&output);
    assert!(
        text.contains("Findings gone\n") && text.contains("different amounts of data"),
        "{text}"
    );
    let output = forebay(
        &["--compare", "before.darshan", "after.darshan", "--json"],
        dir.path(),
    );
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["forebay_job_comparison"], 1);
    assert_eq!(json["findings_gone"][0], "small-writes");
}

#[test]
fn limits_of_findings_can_be_replaced() {
    let dir = tempfile::tempdir().unwrap();
    log(dir.path(), "a.darshan", 1, 5000);
    let rules = dir.path().join("rules.json");
    std::fs::write(&rules, r#"{"min_requests": 5001}"#).unwrap();
    let text = stdout(&forebay(
        &["a.darshan", "--rules", "rules.json"],
        dir.path(),
    ));
    assert!(!text.contains("Small writes"), "{text}");
    std::fs::write(&rules, r#"{"min_request": 5001}"#).unwrap();
    let output = forebay(&["a.darshan", "--rules", "rules.json"], dir.path());
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("min_request"),
        "{}",
        stderr(&output)
    );
}
