//! What Forebay keeps to after a power loss.

#[macro_use]
mod common;

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

#[test]
fn nothing_that_was_synced_is_lost_when_the_power_goes() {
    need_the_machine!();
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
