//! `forebay up`, `down` and `status`.

use crate::stage::{Stage, kill, start, wait};
use std::fs;

#[test]
fn status_tells_of_a_buffer_that_nobody_serves_and_that_may_hold_something() {
    let stage = Stage::new();
    let script = "echo text > pfs/f";
    stage.script(&["--no-drain"], script).ends_with(0);
    let ask = ["status", "--buffer", "pfs"];
    let status = stage.say(&ask).ends_with(0).prints("no bridge runs");
    let status = status.prints("may hold what the PFS does not have");
    let drain = status
        .out
        .split("run there as that user: forebay ")
        .nth(1)
        .unwrap();
    let words: Vec<&str> = drain.split_whitespace().collect();
    stage.say(&words).ends_with(0);
    assert_eq!(stage.on_pfs()["f"], "text\n");
    assert_eq!(stage.say(&ask).ends_with(0).out, "no bridge runs\n");
}

#[test]
fn a_bridge_that_is_up_outlives_runs_until_it_goes_down() {
    let stage = Stage::new();
    stage
        .say(&["up", "--buffer", "pfs"])
        .ends_with(0)
        .prints("bridge started over ");
    let pid = stage.bridge_pid();
    stage
        .say(&["up", "--buffer", "pfs"])
        .ends_with(0)
        .prints("bridge runs already over ");
    stage.script(&["--no-drain"], "echo 1 > pfs/f").ends_with(0);
    stage
        .script(&["--no-drain"], "cat pfs/f")
        .ends_with(0)
        .prints("1\n");
    assert_eq!(stage.bridge_pid(), pid);
    assert!(stage.on_pfs().is_empty());
    stage
        .say(&["down", "--buffer", "pfs"])
        .ends_with(0)
        .prints("drained 1 file, 2 B")
        .prints("stopped the bridge");
    assert!(stage.bridges().is_empty());
    assert_eq!(stage.on_pfs()["f"], "1\n");
    stage
        .say(&["down", "--buffer", "pfs"])
        .ends_with(1)
        .tells("no bridge runs over ");
}

#[test]
fn status_says_who_where_and_how_much() {
    let stage = Stage::new();
    stage.say(&["status"]).ends_with(0).prints("no bridge runs");
    stage.say(&["up", "--buffer", "pfs"]).ends_with(0);
    stage
        .script(&["--no-drain"], "head -c 2000000 /dev/zero > pfs/f")
        .ends_with(0);
    stage
        .say(&["status"])
        .ends_with(0)
        .prints(stage.pfs().to_str().unwrap())
        .prints("stays until `forebay down`")
        .prints("dirty     1 file, 1.9 MiB");
    let bridges = stage.bridges();
    assert_eq!(bridges[0]["buffer"], stage.pfs().to_str().unwrap());
    assert_eq!(bridges[0]["inventory"]["dirty_bytes"], 2_000_000);
    assert_eq!(bridges[0]["users"]["stay"], true);
    fs::create_dir(stage.path("other")).unwrap();
    let said = stage.say(&["status", "--buffer", "other"]).ends_with(0);
    assert_eq!(said.out, "no bridge runs\n");
    stage.say(&["down", "--buffer", "pfs"]).ends_with(0);
}

#[test]
fn a_bridge_does_not_go_down_while_a_run_uses_it() {
    let stage = Stage::new();
    stage.say(&["up", "--buffer", "pfs"]).ends_with(0);
    let script = "echo 1 > pfs/f; touch started; while [ ! -e go ]; do sleep 0.02; done";
    let child = start(stage.script_command(&[], script));
    stage.wait_for_file("started");
    stage
        .say(&["down", "--buffer", "pfs"])
        .ends_with(1)
        .tells("still uses the bridge");
    fs::write(stage.path("go"), "").unwrap();
    wait(child).ends_with(0);
    stage.say(&["down", "--buffer", "pfs"]).ends_with(0);
}

#[test]
fn a_bridge_does_not_go_down_with_data_that_cannot_be_drained_unless_told_so() {
    let stage = Stage::new();
    stage.say(&["up", "--buffer", "pfs"]).ends_with(0);
    stage.script(&["--no-drain"], "echo 1 > pfs/f").ends_with(0);
    // Another program makes a file of the same name on the PFS.
    fs::write(stage.path("pfs/f"), "not ours").unwrap();
    stage
        .say(&["down", "--buffer", "pfs"])
        .ends_with(75)
        .tells("f: something else has appeared there on the PFS")
        .tells("hint: to settle it, run: forebay drain --buffer ")
        .tells("hint: to go on, run: forebay down --buffer ");
    assert_eq!(stage.bridges().len(), 1);
    stage
        .say(&["down", "--buffer", "pfs", "--no-drain"])
        .ends_with(0)
        .prints("stopped the bridge")
        .prints("to bring it to the PFS, run: forebay drain --buffer ");
    assert!(stage.bridges().is_empty());
    assert_eq!(stage.on_pfs()["f"], "not ours");
    fs::remove_file(stage.path("pfs/f")).unwrap();
    stage.say(&["drain", "--buffer", "pfs"]).ends_with(0);
    assert_eq!(stage.on_pfs()["f"], "1\n");
}

#[test]
fn a_run_makes_a_bridge_stay_only_if_it_stayed_before() {
    let stage = Stage::new();
    let script = "touch started; while [ ! -e go ]; do sleep 0.02; done";
    let child = start(stage.script_command(&[], script));
    stage.wait_for_file("started");
    // `forebay up` keeps the bridge of a run.
    stage
        .say(&["up", "--buffer", "pfs"])
        .ends_with(0)
        .prints("runs already");
    fs::write(stage.path("go"), "").unwrap();
    wait(child).ends_with(0);
    assert_eq!(stage.bridges().len(), 1);
    stage.say(&["down", "--buffer", "pfs"]).ends_with(0);
}

#[test]
fn one_directory_has_one_storage_at_a_time() {
    let stage = Stage::without_storage();
    stage
        .say(&["up", "--buffer", "pfs", "--storage", "here"])
        .ends_with(0);
    stage
        .say(&["run", "--buffer", "pfs", "--storage", "there", "--", "true"])
        .ends_with(125)
        .tells("another buffer has ")
        .tells("/here, since ")
        .tells("that bridge runs");
    // While the bridge runs, other verbs find its storage without `--storage`.
    stage.script(&[], "true").ends_with(0);
    stage.say(&["down", "--buffer", "pfs"]).ends_with(0);
    assert!(!stage.path("storage").exists());
}

#[test]
fn a_killed_bridge_that_was_up_is_started_again_with_all_its_data() {
    let stage = Stage::new();
    stage.say(&["up", "--buffer", "pfs"]).ends_with(0);
    stage
        .script(
            &["--no-drain"],
            "echo 1 > pfs/f; mkdir pfs/d; mv pfs/f pfs/d/g",
        )
        .ends_with(0);
    kill("KILL", stage.bridge_pid());
    stage.wait_for("the end of the bridge", || stage.bridges().is_empty());
    stage
        .say(&["fsck", "--storage", "storage"])
        .ends_with(0)
        .prints("nothing wrong");
    stage.say(&["up", "--buffer", "pfs"]).ends_with(0);
    stage
        .script(&["--no-drain"], "cat pfs/d/g")
        .ends_with(0)
        .prints("1\n");
    stage.say(&["down", "--buffer", "pfs"]).ends_with(0);
    assert_eq!(fs::read_to_string(stage.path("pfs/d/g")).unwrap(), "1\n");
}

#[test]
fn a_bridge_that_does_not_answer_is_named_and_holds_up_nobody() {
    let stage = Stage::new();
    stage.say(&["up", "--buffer", "pfs"]).ends_with(0);
    let pid = stage.bridge_pid();
    kill("STOP", pid);
    stage
        .say(&["status"])
        .ends_with(0)
        .tells("has not answered for")
        .prints("no bridge runs");
    kill("CONT", pid);
    assert_eq!(stage.bridge_pid(), pid);
}
