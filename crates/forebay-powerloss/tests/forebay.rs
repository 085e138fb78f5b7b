//! What Forebay keeps to after a power loss.

#[macro_use]
mod common;

use forebay_testkit::built::{self, Library};
use std::process::Command;

#[test]
fn nothing_that_was_synced_is_lost_when_the_power_goes() {
    need_the_machine!();
    let mut hunt = Command::new(env!("CARGO_BIN_EXE_forebay-powerloss"));
    let output = built::with_libraries(&mut hunt, &[Library::Preload, Library::Recorder])
        .args(["hunt", "--preset", "ci", "--forebay"])
        .arg(built::forebay())
        .args(["--keep", concat!(env!("CARGO_TARGET_TMPDIR"), "/powerloss")])
        .output()
        .expect("the machine can be started");
    let said = String::from_utf8_lossy(&output.stdout);
    println!("{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "what went wrong is above");
}
