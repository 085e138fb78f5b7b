//! All who have one file open see one file: whoever opens it later, for whatever, and wherever its bytes are.

use crate::stage::{Stage, start, wait};
use std::fs;

/// Above the size up to which a file is staged.
const LARGE: u64 = (1 << 30) + 1;

fn large_file(stage: &Stage) {
    let file = fs::File::create(stage.path("pfs/f")).unwrap();
    file.set_len(LARGE).unwrap();
}

#[test]
fn a_writer_in_place_and_one_that_truncates_write_to_one_file() {
    let stage = Stage::new();
    large_file(&stage);
    stage
        .script(
            &[],
            "exec 3>> pfs/f; echo first > pfs/f; echo second >&3; cat pfs/f; stat -c %s pfs/f",
        )
        .ends_with(0)
        .prints("first\nsecond\n13\n");
    assert_eq!(stage.on_pfs()["f"], "first\nsecond\n");
}

#[test]
fn a_file_that_was_opened_in_place_because_it_was_large_stays_there_when_it_is_small() {
    let stage = Stage::new();
    large_file(&stage);
    stage
        .script(
            &[],
            "exec 3>> pfs/f; truncate -s 0 pfs/f; echo first >> pfs/f; echo second >&3
             mv pfs/f pfs/g; echo third >> pfs/g; echo fourth >&3; cat pfs/g",
        )
        .ends_with(0)
        .prints("first\nsecond\nthird\nfourth\n");
    assert_eq!(stage.on_pfs()["g"], "first\nsecond\nthird\nfourth\n");
}

#[test]
fn a_file_of_two_names_that_loses_one_stays_one_file_for_its_writer() {
    let stage = Stage::new();
    fs::write(stage.path("pfs/f"), "old\n").unwrap();
    fs::hard_link(stage.path("pfs/f"), stage.path("pfs/g")).unwrap();
    stage
        .script(
            &[],
            "exec 3>> pfs/f; rm pfs/g; \"$FOREBAY\" drain --buffer pfs || exit
             echo first > pfs/f; echo second >&3; cat pfs/f",
        )
        .ends_with(0)
        .prints("first\nsecond\n");
    assert_eq!(stage.on_pfs().len(), 1);
    assert_eq!(stage.on_pfs()["f"], "first\nsecond\n");
}

#[test]
fn a_reader_in_place_sees_what_others_append() {
    let stage = Stage::new();
    fs::write(stage.path("pfs/f"), "old\n").unwrap();
    stage
        .script(
            &[],
            "exec 3< pfs/f; cat <&3; echo first >> pfs/f; cat <&3
             mv pfs/f pfs/g; echo second >> pfs/g; cat <&3; ln pfs/g pfs/h 2> refused; echo $?",
        )
        .ends_with(0)
        .prints("old\nfirst\nsecond\n1\n");
    assert_eq!(stage.on_pfs()["g"], "old\nfirst\nsecond\n");
}

#[test]
fn a_reader_of_a_file_that_was_drained_sees_what_others_append() {
    let stage = Stage::new();
    // Held over the drain: its copy stays. Opened after it: it is read on the PFS.
    stage
        .script(
            &[],
            "echo old > pfs/f; echo old > pfs/g; exec 3< pfs/f
             \"$FOREBAY\" drain --buffer pfs || exit
             exec 4< pfs/g; echo new >> pfs/f; echo new >> pfs/g; cat <&3; cat <&4",
        )
        .ends_with(0)
        .prints("old\nnew\nold\nnew\n");
    assert_eq!(stage.on_pfs()["f"], "old\nnew\n");
    assert_eq!(stage.on_pfs()["g"], "old\nnew\n");
}

#[test]
fn a_file_stays_in_place_when_the_bridge_that_granted_it_is_killed() {
    let stage = Stage::new();
    fs::write(stage.path("pfs/f"), "old\n").unwrap();
    let reader = "exec 3< pfs/f; touch open; while [ ! -e go ]; do sleep 0.02; done; cat <&3";
    let reader = start(stage.script_command(&["--no-record"], reader));
    stage.wait_for_file("open");
    // The bridge that has granted it is killed, and the next one knows nothing of the grant.
    let pid = stage.bridge_pid();
    crate::stage::kill("KILL", pid);
    stage.wait_for("another bridge", || {
        stage.bridges().iter().any(|b| b["pid"] != pid)
    });
    stage
        .script(&["--no-drain"], "echo new >> pfs/f")
        .ends_with(0);
    fs::write(stage.path("go"), "").unwrap();
    wait(reader).ends_with(0).prints("old\nnew\n");
    assert_eq!(stage.on_pfs()["f"], "old\nnew\n");
}

#[test]
fn a_file_that_nobody_has_open_any_more_is_staged() {
    let stage = Stage::new();
    fs::write(stage.path("pfs/f"), "old\n").unwrap();
    let script = "cat pfs/f; exec 3< pfs/f; exec 3<&-; echo new >> pfs/f; cat pfs/f";
    stage
        .script(&["--no-drain"], script)
        .ends_with(0)
        .prints("old\nold\nnew\n");
    assert_eq!(stage.on_pfs()["f"], "old\n");
    stage.say(&["drain", "--buffer", "pfs"]).ends_with(0);
    assert_eq!(stage.on_pfs()["f"], "old\nnew\n");
}

#[test]
fn a_file_that_is_opened_for_writing_keeps_its_attributes_its_rights_and_its_holes() {
    let stage = Stage::new();
    let natively = |script: &str| {
        let mut shell = stage.command("sh");
        shell.args(["-c", script]);
        wait(start(shell)).ends_with(0).out
    };
    let shown = "getfattr -d pfs/f; getfacl -nc pfs/f; stat -c %s pfs/holes; du -k pfs/holes";
    let before = natively(&format!(
        "echo text > pfs/f; setfattr -n user.t -v 1 pfs/f; setfacl -m u:1000:rw,g::--- pfs/f
         truncate -s 20M pfs/holes; echo middle >> pfs/holes; truncate -s 40M pfs/holes; {shown}"
    ));
    assert!(
        before.contains("user.t=\"1\"") && before.contains("user:1000:rw-"),
        "{before}"
    );
    stage
        .script(
            &[],
            &format!("for f in pfs/f pfs/holes; do : >> $f; done; {shown}"),
        )
        .ends_with(0)
        .prints(&before);
    assert_eq!(natively(shown), before);
}

#[test]
fn a_changed_file_of_the_pfs_does_not_get_the_access_list_of_its_directory_and_a_new_one_does() {
    let stage = Stage::new();
    let natively = |script: &str| {
        let mut shell = stage.command("sh");
        shell.args(["-c", script]);
        wait(start(shell)).ends_with(0).out
    };
    natively("echo text > pfs/f; chmod 640 pfs/f; setfacl -d -m u:1501:rwx pfs");
    let script = "echo more >> pfs/f; echo new > pfs/new";
    stage
        .script(&[], script)
        .ends_with(0)
        .tells(" 2 files, 14 B");
    let rights = |name: &str| natively(&format!("getfacl -cnE pfs/{name}"));
    assert_eq!(rights("f"), "user::rw-\ngroup::r--\nother::---\n\n");
    let of_new = rights("new");
    assert!(of_new.contains("user:1501:rwx"), "{of_new}");
}
