//! The machine has teeth for what only a buffer can do wrong: a stand-in for Forebay does it.

#[macro_use]
mod common;

use std::process::Command;

/// Images, and how many of them have a fault of this kind.
fn hunt(stand_in: &str, fault: &str, arguments: &[&str]) -> (u64, u64) {
    let output = Command::new(env!("CARGO_BIN_EXE_forebay-powerloss"))
        .args(["hunt", "fresh/create", "--images", "40", "--json", "--keep"])
        .arg(concat!(env!("CARGO_TARGET_TMPDIR"), "/stand-in"))
        .args([
            "--forebay",
            concat!(env!("CARGO_MANIFEST_DIR"), "/tests/stand-in.sh"),
        ])
        .args(arguments)
        .env("STAND_IN", stand_in)
        .output()
        .expect("the machine can be started");
    let said = String::from_utf8_lossy(&output.stdout);
    let found: serde_json::Value = serde_json::from_str(said.trim())
        .unwrap_or_else(|e| panic!("{e}: {said}{}", String::from_utf8_lossy(&output.stderr)));
    assert_eq!(found["failures"], serde_json::json!([]), "{found}");
    let images = found["distinct"].as_u64().expect("a number");
    assert!(images >= 10, "{found}");
    let bad = match fault {
        "any" => found["bad"].as_u64(),
        _ => found["faults"][fault].as_u64(),
    };
    (images, bad.unwrap_or(0))
}

#[test]
fn who_loses_nothing_and_names_what_it_withholds_is_right() {
    need_the_machine!();
    assert_eq!(hunt("honest", "any", &[]).1, 0);
    assert_eq!(hunt("names", "any", &[]).1, 0);
    assert_eq!(hunt("refers", "any", &[]).1, 0);
    assert_eq!(hunt("honest", "any", &["--recovery", "start"]).1, 0);
    let interrupted = ["--interrupt", "drain", "--recoveries", "2"];
    assert_eq!(hunt("honest", "any", &interrupted).1, 0);
}

#[test]
fn what_is_left_and_not_named_is_found() {
    need_the_machine!();
    for stand_in in ["silent", "mute"] {
        let (images, bad) = hunt(stand_in, "not-named", &[]);
        assert!(bad * 2 > images, "{stand_in}: {bad} of {images}");
    }
}

#[test]
fn to_withhold_something_excuses_no_loss() {
    need_the_machine!();
    let (images, bad) = hunt("excuse", "synced-file-lost", &[]);
    assert!(bad * 2 > images, "{bad} of {images}");
    let (images, bad) = hunt("excuse", "synced-file-lost", &["--recovery", "rebuild"]);
    assert!(bad * 2 > images, "{bad} of {images}");
}

#[test]
fn what_was_called_drained_and_is_not_durable_is_found() {
    need_the_machine!();
    let interrupted = ["--interrupt", "drain", "--recoveries", "2"];
    assert!(hunt("early", "drained-undone", &interrupted).1 > 0);
}

#[test]
fn a_second_recovery_that_changes_something_and_a_complaint_of_fsck_are_found() {
    need_the_machine!();
    assert!(hunt("grows", "not-settled", &[]).1 > 0);
    let (images, bad) = hunt("complains", "fsck-finds", &[]);
    assert!(bad * 2 > images, "{bad} of {images}");
}
