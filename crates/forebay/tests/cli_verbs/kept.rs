//! Copies that stay in the buffer when a run has ended, and others who change the PFS before the next one.

use crate::stage::Stage;
use std::process::Command;

/// On the PFS, while nobody uses the buffer.
fn outside(stage: &Stage, script: &str) {
    let mut sh = Command::new("sh");
    let ran = sh.args(["-ec", script]).current_dir(stage.pfs()).status();
    assert!(ran.unwrap().success(), "{script}");
}

const MADE: &str = "cd pfs; mkdir -p d/e; for f in edited same removed renamed replaced d/edited d/e/same; do echo $f > $f; done; ln edited linked";
const EDITS: &str = "echo new > edited; echo new > d/edited; echo new > d/added; echo new > d/e/added; rm removed; mv renamed moved; echo new > other; mv other replaced; chmod 600 d/e/same";
const SHOWN: &str = "cd pfs; cat edited same replaced d/edited d/added d/e/added d/e/same moved linked; ! cat removed renamed 2>&-; ls d d/e; stat -c %a d/e/same";
const SHOULD: &str = "new\nsame\nnew\nnew\nnew\nnew\nd/e/same\nrenamed\nnew\nd:\nadded\ne\nedited\n\nd/e:\nadded\nsame\n600\n";

#[track_caller]
fn shows_what_is_there(stage: &Stage) {
    let there = stage.on_pfs();
    let said = stage.script(&[], SHOWN).ends_with(0);
    assert_eq!(said.out, SHOULD);
    assert!(said.err.contains("left         nothing"), "{}", said.err);
    assert_eq!(stage.on_pfs(), there, "what others have done stays");
}

#[test]
fn what_others_have_done_since_the_copies_were_kept_shows_in_the_next_run() {
    let stage = Stage::new();
    stage.script(&["--keep"], MADE).ends_with(0);
    outside(&stage, EDITS);
    shows_what_is_there(&stage);
}

#[test]
fn so_it_does_where_the_bridge_has_gone_on() {
    let stage = Stage::new();
    stage.say(&["up", "--buffer", "pfs"]).ends_with(0);
    stage.script(&["--keep"], MADE).ends_with(0);
    outside(&stage, EDITS);
    let said = stage.script(&["--no-drain"], SHOWN).ends_with(0);
    assert_eq!(said.out, SHOULD);
    stage.say(&["down", "--buffer", "pfs"]).ends_with(0);
}

#[test]
fn so_it_does_where_copies_were_kept_because_of_another_file_that_was_left() {
    let stage = Stage::new();
    outside(&stage, "echo before > conflict");
    stage.script(&["--no-drain"], &format!("{MADE}; echo ours > conflict"));
    outside(&stage, "echo theirs > conflict");
    stage.say(&["drain", "--buffer", "pfs"]).ends_with(75);
    outside(&stage, EDITS);
    let said = stage.script(&["--no-drain"], SHOWN).ends_with(0);
    assert_eq!(said.out, SHOULD);
    let said = stage.script(&[], "cat pfs/conflict").ends_with(75);
    assert_eq!(said.out, "ours\n", "what is not drained stays");
}

#[test]
fn copies_that_nobody_has_touched_stay_in_the_buffer() {
    let stage = Stage::new();
    stage.script(&["--keep"], MADE).ends_with(0);
    let report = stage.path("report.json").display().to_string();
    let script = "echo more >> pfs/same; echo more >> pfs/d/e/same";
    stage.script(&["--report", &report], script).ends_with(0);
    let report = std::fs::read_to_string(report).unwrap();
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    // Otherwise they are copied from the PFS once more.
    assert_eq!(report["staged"]["files"], 0);
    let there = std::fs::read_to_string(stage.pfs().join("d/e/same")).unwrap();
    assert_eq!(there, "d/e/same\nmore\n");
}

#[test]
fn what_is_in_a_directory_that_was_renamed_away_and_back_is_found_by_its_label() {
    let stage = Stage::new();
    let script = "mkdir pfs/d; echo old > pfs/d/old";
    stage.script(&["--keep"], script).ends_with(0);
    // It is one of the PFS now, with a copy in it.
    let script = "cd pfs; mv d x; mv x d; echo more >> d/old";
    stage.script(&["--keep"], script).ends_with(0);
    let said = stage.say(&["fsck", "--storage", "storage"]).ends_with(0);
    assert!(said.out.contains("nothing wrong"), "{said:?}");
}
