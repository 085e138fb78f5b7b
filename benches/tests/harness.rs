//! Tests the harness at its smallest scale: every workload runs, and every row gets figures. The
//! figures themselves decide nothing.

use forebay_benches::catalogue::WORKLOADS;
use forebay_benches::sample::Sample;
use forebay_testkit::built::{self, Library};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A fresh directory below cargo's directory for tests.
fn folder(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).expect("a folder for the test");
    dir
}

fn load(dir: &Path, workloads: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_forebay-load"))
        .args(["run", "--scale", "smoke", "--dir"])
        .arg(dir)
        .args(workloads)
        .output()
        .expect("forebay-load starts")
}

fn samples(output: &Output) -> Vec<Sample> {
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).expect("a line of forebay-load is a sample"))
        .collect()
}

#[test]
fn every_workload_fills_the_rows_that_the_catalogue_promises() {
    let dir = folder("every-workload");
    let output = load(&dir, &["all"]);
    assert!(output.status.success(), "{output:?}");
    let samples = samples(&output);
    assert_eq!(samples.len(), WORKLOADS.len());
    for (workload, sample) in WORKLOADS.iter().zip(samples) {
        assert_eq!(sample.workload, workload.name);
        let promised: BTreeSet<&str> = workload.rows.iter().map(|row| row.name).collect();
        let filled: BTreeSet<&str> = sample.costs.keys().map(String::as_str).collect();
        assert_eq!(filled, promised, "rows of {}", workload.name);
        for (row, costs) in &sample.costs {
            assert!(!costs.is_empty(), "{row} has no repetition");
            assert!(costs.iter().all(|c| c.wall > 0.0), "{row} took no time");
        }
    }
}

#[test]
fn a_workload_leaves_nothing_behind_but_the_file_outside() {
    let dir = folder("nothing-left");
    assert!(load(&dir, &["all"]).status.success());
    let left: Vec<_> = fs::read_dir(&dir)
        .expect("the folder of the test")
        .map(|entry| entry.expect("an entry").file_name())
        .collect();
    assert_eq!(left, ["file-outside"]);
}

#[test]
fn a_workload_that_fails_says_why_and_the_exit_code_tells() {
    let dir = folder("failing");
    let no_directory = dir.join("file");
    fs::write(&no_directory, "in the way").expect("a file in the way");
    let output = load(&no_directory, &["one-file"]);
    assert!(!output.status.success());
    let error = samples(&output)[0].error.clone().expect("an error");
    assert!(error.contains("file/one-file"), "{error}");
}

/// Runs the whole harness, with the command of the same build as this test.
#[test]
fn the_table_has_a_figure_for_every_row_on_both_file_systems() {
    let forebay = built::forebay();
    forebay_testkit::skip_unless!(
        forebay.is_file(),
        "{} is missing (`make test` builds it)",
        forebay.display()
    );
    let dir = folder("table");
    let json = dir.join("report.json");
    let mut bench = Command::new(env!("CARGO_BIN_EXE_forebay-bench"));
    let output = built::with_libraries(&mut bench, &[Library::Preload])
        .args(["--scale", "smoke", "--rounds", "1", "--forebay"])
        .arg(&forebay)
        .arg("--dir")
        .arg(&dir)
        .arg("--json")
        .arg(&json)
        .output()
        .expect("forebay-bench starts");
    assert!(output.status.success(), "{output:?}");
    let report: serde_json::Value =
        serde_json::from_slice(&fs::read(&json).expect("the report")).expect("JSON");
    for number in 0..2 {
        let system = &report["file_systems"][number];
        for (position, workload) in WORKLOADS.iter().enumerate() {
            let measured = &system["workloads"][position];
            assert_eq!(measured["name"], workload.name);
            assert!(measured["error"].is_null(), "{measured}");
            for (at, row) in workload.rows.iter().enumerate() {
                let ratio = &measured["rows"][at]["ratio"]["median"];
                let is_number = ratio.as_f64().is_some_and(|r| r > 0.0);
                assert!(is_number, "{} has the ratio {ratio}", row.name);
            }
        }
    }
    let left: Vec<_> = fs::read_dir(&dir).expect("the folder").flatten().collect();
    assert_eq!(left.len(), 1, "only the report is left: {left:?}");
}
