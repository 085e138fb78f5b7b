//! The machine has teeth: on ext4 itself it finds nothing where programs do it right, and much where they do not.

#[macro_use]
mod common;

use std::process::Command;

/// Judges images of a workload on ext4, without Forebay.
fn hunt(arguments: &[&str]) -> (u64, u64) {
    let output = Command::new(env!("CARGO_BIN_EXE_forebay-powerloss"))
        .arg("hunt")
        .args(arguments)
        .args([
            "--json",
            "--keep",
            concat!(env!("CARGO_TARGET_TMPDIR"), "/powerloss"),
        ])
        .output()
        .expect("the machine can be started");
    let said = String::from_utf8_lossy(&output.stdout);
    let found: serde_json::Value = serde_json::from_str(said.trim())
        .unwrap_or_else(|e| panic!("{e}: {said}{}", String::from_utf8_lossy(&output.stderr)));
    let number = |name: &str| found[name].as_u64().expect("a number");
    assert_eq!(found["failures"], serde_json::json!([]), "{found}");
    assert_eq!(
        number("unconfirmed"),
        0,
        "faults that did not show again: {found}"
    );
    assert!(number("distinct") >= 50, "{found}");
    (number("distinct"), number("bad"))
}

#[test]
fn sqlite_with_its_log_loses_no_transaction() {
    need_the_machine!();
    assert_eq!(hunt(&["native/sqlite", "--images", "200"]).1, 0);
}

#[test]
fn programs_that_sync_lose_nothing_on_ext4() {
    need_the_machine!();
    for program in ["sqlite-delete", "git", "untar", "generations"] {
        let bad = hunt(&[&format!("native/{program}"), "--images", "80"]).1;
        assert_eq!(bad, 0, "{program}");
    }
}

#[test]
fn names_older_than_the_limit_are_missed_where_nobody_makes_them_durable() {
    need_the_machine!();
    // ext4 alone commits every five seconds.
    let (distinct, bad) = hunt(&["native/steady", "--images", "100"]);
    assert!(bad * 10 > distinct, "{bad} of {distinct}");
}

#[test]
fn the_rename_of_editors_and_all_kinds_of_sync_lose_nothing_on_ext4() {
    need_the_machine!();
    assert_eq!(hunt(&["native/replace", "--images", "200"]).1, 0);
    assert_eq!(
        hunt(&["native/mixed", "--images", "120", "--seeds", "2"]).1,
        0
    );
    assert_eq!(
        hunt(&["native/sequences", "--images", "120", "--seeds", "2"]).1,
        0
    );
}

#[test]
fn a_program_without_fsync_loses_what_it_claims_in_more_than_half_of_the_images() {
    need_the_machine!();
    let (distinct, bad) = hunt(&["native/careless", "--images", "200"]);
    assert!(bad * 2 > distinct, "{bad} of {distinct}");
}

#[test]
fn a_disk_that_ignores_one_flush_in_twenty_is_caught() {
    need_the_machine!();
    let (_, bad) = hunt(&[
        "native/create",
        "--images",
        "300",
        "--seeds",
        "2",
        "--lies",
        "0.05",
    ]);
    assert!(bad > 0);
}
