//! What Forebay keeps to after a power loss.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The executable under test, beside which the preload library is.
fn forebay() -> PathBuf {
    let built = || {
        let target = Path::new(env!("CARGO_BIN_EXE_forebay-powerloss"));
        target
            .ancestors()
            .nth(2)
            .expect("it lies two folders below target")
            .join("release/forebay")
    };
    let path = std::env::var_os("FOREBAY_BIN").map_or_else(built, PathBuf::from);
    assert!(path.exists(), "{} is missing: make build", path.display());
    path
}

/// How many images of a workload have a fault of this kind?
fn images_with(fault: &str, arguments: &[&str]) -> u64 {
    let output = Command::new(env!("CARGO_BIN_EXE_forebay-powerloss"))
        .arg("hunt")
        .args(arguments)
        .args([
            "--json",
            "--keep",
            concat!(env!("CARGO_TARGET_TMPDIR"), "/powerloss"),
            "--forebay",
        ])
        .arg(forebay())
        .output()
        .expect("the machine can be started");
    let said = String::from_utf8_lossy(&output.stdout);
    let found: serde_json::Value = serde_json::from_str(said.trim())
        .unwrap_or_else(|e| panic!("{e}: {said}{}", String::from_utf8_lossy(&output.stderr)));
    assert!(found["distinct"].as_u64() >= Some(30), "{found}");
    found["faults"][fault].as_u64().unwrap_or(0)
}

#[test]
fn a_bridge_starts_on_whatever_a_first_run_leaves() {
    if let Err(reason) = forebay_powerloss::rig::check() {
        forebay_testkit::skip(&reason);
        return;
    }
    assert_eq!(
        images_with("recovery-failed", &["fresh/create", "--images", "60"]),
        0
    );
}

#[test]
fn nothing_that_was_synced_is_lost_when_the_power_goes() {
    if let Err(reason) = forebay_powerloss::rig::check() {
        forebay_testkit::skip(&reason);
        return;
    }
    let output = Command::new(env!("CARGO_BIN_EXE_forebay-powerloss"))
        .args(["hunt", "--preset", "ci", "--forebay"])
        .arg(forebay())
        .args(["--keep", concat!(env!("CARGO_TARGET_TMPDIR"), "/powerloss")])
        .output()
        .expect("the machine can be started");
    let said = String::from_utf8_lossy(&output.stdout);
    println!("{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "what went wrong is above");
}
