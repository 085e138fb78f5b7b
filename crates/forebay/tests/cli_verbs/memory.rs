//! What names cost a bridge in memory.

use crate::stage::Stage;
use std::fs;

const NAMES: u64 = 60_000;
/// As SEMANTICS.md says it.
const FIXED_BYTES: u64 = 32 << 20;
const BYTES_PER_NAME: u64 = 200;
const DRAINED_BYTES: u64 = 80 << 20;

/// Memory of the bridge that belongs to no file.
fn anonymous_bytes(bridge: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{bridge}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon:"));
    let kib = line.unwrap().split_whitespace().nth(1).unwrap();
    kib.parse::<u64>().unwrap() << 10
}

#[test]
fn a_name_that_nobody_lists_costs_200_bytes_and_gives_them_back_after_the_drain() {
    let stage = Stage::new();
    stage.say(&["up", "--buffer", "pfs"]).ends_with(0);
    let bridge = stage.bridge_pid();
    let make = format!("mkdir pfs/d; cd pfs/d; seq -f name%06g 1 {NAMES} | xargs touch");
    stage.script(&["--no-drain"], &make).ends_with(0);
    let made = anonymous_bytes(bridge);
    let bound = FIXED_BYTES + BYTES_PER_NAME * NAMES;
    assert!(
        made <= bound,
        "{made} bytes with {NAMES} names, not {bound}"
    );
    stage.say(&["drain", "--buffer", "pfs"]).ends_with(0);
    let drained = anonymous_bytes(bridge);
    assert!(
        drained <= DRAINED_BYTES,
        "{drained} bytes after the drain, not {DRAINED_BYTES}"
    );
    stage.say(&["down", "--buffer", "pfs"]).ends_with(0);
}
