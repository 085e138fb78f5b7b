//! `forebay doctor` finds what is wrong here, and `--via auto` takes what works.

use crate::common::{self, find_program, need};
use crate::stage::{Said, Stage, finish};
use forebay_testkit::{is_root, skip_unless};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;

/// The answer of `forebay doctor --json`, and its exit status.
fn asked(mut doctor: Command) -> (i32, Value) {
    doctor.arg("--json");
    let said = finish(doctor);
    let answer = serde_json::from_str(&said.out).unwrap_or_else(|e| panic!("{e}: {said:?}"));
    (said.code, answer)
}

/// A check as state, what was found, and how to mend it.
fn check<'a>(answer: &'a Value, about: &str) -> (&'a str, &'a str, &'a str) {
    let checks = answer["checks"].as_array().unwrap();
    let found = checks.iter().find(|check| check["about"] == about);
    let found = found.unwrap_or_else(|| panic!("no {about} in {answer:#}"));
    let word = |key: &str| found[key].as_str().unwrap_or_default();
    (word("state"), word("found"), word("remedy"))
}

fn has_fuse() -> bool {
    is_root() && Path::new("/dev/fuse").exists()
}

/// A command without the right to mount, which root has otherwise.
fn without_rights(stage: &Stage, arguments: &[&str]) -> Command {
    let mut command = stage.command("setpriv");
    command
        .args(["--bounding-set=-sys_admin", "--inh-caps=-sys_admin"])
        .arg(common::forebay())
        .args(arguments);
    command
}

#[test]
fn the_doctor_looks_at_everything_and_leaves_nothing() {
    let stage = Stage::new();
    let (code, answer) = asked(stage.forebay(&["doctor", "--buffer", "pfs"]));
    assert_eq!(
        (code, &answer["works"]),
        (0, &Value::Bool(true)),
        "{answer:#}"
    );
    for about in ["storage", "sockets", "library", "buffer", "lock"] {
        let (state, found, _) = check(&answer, about);
        // Storage may be nearly full here.
        assert!(state == "works" || about == "storage", "{about}: {found}");
    }
    for about in [
        "mount",
        "fusermount3",
        "namespaces",
        "recorder",
        "descriptors",
        "file size",
    ] {
        check(&answer, about);
    }
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(
        !mounts.contains(stage.dir.to_str().unwrap()),
        "a mount is left"
    );
    let left: Vec<_> = fs::read_dir(stage.path("storage")).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
    let left: Vec<_> = fs::read_dir(stage.path("run/forebay")).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
    stage
        .say(&["doctor"])
        .ends_with(0)
        .prints("--via auto takes the ");
}

#[test]
fn a_library_that_the_linker_does_not_load_is_found_out() {
    let stage = Stage::new();
    fs::write(stage.path("no-library.so"), "nothing").unwrap();
    for (library, words) in [
        ("no-library.so", "not obeyed"),
        ("nowhere.so", "nowhere.so"),
    ] {
        let mut doctor = stage.forebay(&["doctor"]);
        doctor.env("FOREBAY_PRELOAD", stage.path(library));
        let (code, answer) = asked(doctor);
        let (state, found, remedy) = check(&answer, "library");
        assert_eq!(state, "fails");
        assert!(found.contains(words) && !remedy.is_empty(), "{found}");
        let mount = check(&answer, "mount").0 != "fails";
        assert_eq!(code, i32::from(!mount), "a mount is enough: {answer:#}");
    }
}

#[test]
fn without_any_door_the_status_is_1_and_a_run_says_why() {
    skip_unless!(is_root(), "only root can give up rights");
    need!("setpriv");
    let stage = Stage::new();
    let broken = |arguments: &[&str]| {
        let mut command = without_rights(&stage, arguments);
        command.env("FOREBAY_PRELOAD", stage.path("nowhere.so"));
        command
    };
    let (code, answer) = asked(broken(&["doctor"]));
    assert_eq!(
        (code, &answer["works"], &answer["via"]),
        (1, &Value::Bool(false), &Value::Null)
    );
    assert_eq!(check(&answer, "mount").0, "fails");
    let run = ["run", "--via", "auto", "--buffer", "pfs", "--", "true"];
    finish(broken(&run))
        .ends_with(125)
        .tells("no way for programs into the buffer")
        .tells("forebay doctor");
}

#[test]
fn storage_that_is_of_no_use_is_found_out() {
    let stage = Stage::new();
    fs::write(stage.path("file"), "").unwrap();
    for storage in ["/proc", "file", "pfs/inside"] {
        let doctor = stage.forebay(&["doctor", "--buffer", "pfs", "--storage", storage]);
        let (code, answer) = asked(doctor);
        let (state, found, remedy) = check(&answer, "storage");
        assert_eq!((code, state), (1, "fails"), "{found}");
        assert!(remedy.contains("--storage"), "{remedy}");
    }
    let (code, answer) = asked(stage.forebay(&["doctor", "--buffer", "nowhere"]));
    assert_eq!((code, check(&answer, "buffer").0), (1, "fails"));
}

#[test]
fn who_has_the_directory_is_said() {
    let stage = Stage::new();
    let ask = || asked(stage.forebay(&["doctor", "--buffer", "pfs"]));
    stage.say(&["up", "--buffer", "pfs"]).ends_with(0);
    let (code, answer) = ask();
    let (state, found, _) = check(&answer, "lock");
    assert!(code == 0 && state == "works", "{answer:#}");
    assert!(
        found.contains(&format!("process {}", stage.bridge_pid())),
        "{found}"
    );
    stage.say(&["down", "--buffer", "pfs"]).ends_with(0);
    assert!(check(&ask().1, "lock").1.contains("nobody"));
    let claim = "forebay-1 uid=7 host=elsewhere boot=x pids=1 mounts=1 pid=1 started=1 since=1 dir=1 storage=1 root=/x instance=/y/z";
    std::os::unix::fs::symlink(claim, stage.pfs().join(".forebay-lock")).unwrap();
    let (code, answer) = ask();
    let (state, found, remedy) = check(&answer, "lock");
    assert!(code == 1 && state == "fails", "{answer:#}");
    assert!(
        found.contains("elsewhere") && remedy.contains("unlock"),
        "{found}"
    );
    fs::create_dir(stage.path("pfs/sub")).unwrap();
    let (code, answer) = asked(stage.forebay(&["doctor", "--buffer", "pfs/sub"]));
    assert!(
        code == 1 && check(&answer, "lock").1.contains("holds this directory"),
        "{answer:#}"
    );
}

/// What a run with `--via auto` says, whose command is static.
fn static_run(mut run: Command, busybox: &str) -> Said {
    run.args([
        "run",
        "--no-record",
        "--via",
        "auto",
        "--report",
        "r.json",
        "--buffer",
        "pfs",
        "--",
    ])
    .args([busybox, "sh", "-c", "echo x > pfs/new"]);
    finish(run)
}

#[test]
fn auto_takes_the_mount_where_it_is_as_good_and_the_library_elsewhere_and_says_why() {
    skip_unless!(has_fuse(), "a mount needs root and /dev/fuse");
    need!("busybox", "setpriv");
    let busybox = find_program("busybox").unwrap();
    let busybox = busybox.to_str().unwrap();
    let stage = Stage::new();
    let via = || -> (String, String) {
        let report: Value =
            serde_json::from_slice(&fs::read(stage.path("r.json")).unwrap()).unwrap();
        let word = |key: &str| report["via"][key].as_str().unwrap().to_owned();
        (word("door"), word("reason"))
    };
    let (_, answer) = asked(stage.forebay(&["doctor", "--buffer", "pfs"]));
    let said = static_run(stage.forebay(&[]), busybox).ends_with(0);
    let (door, _) = via();
    assert_eq!(answer["via"], door.as_str(), "the doctor and the run agree");
    said.tells(&format!("via          {door}: "));
    if door == "mount" {
        // It was drained, so it was in the buffer.
        let report = fs::read_to_string(stage.path("r.json")).unwrap();
        let report: Value = serde_json::from_str(&report).unwrap();
        assert_eq!(
            report["drain"]["counters"]["files_drained"], 1,
            "{report:#}"
        );
    }
    assert_eq!(stage.on_pfs()["new"], "x\n");
    fs::remove_file(stage.path("pfs/new")).unwrap();
    let said = static_run(without_rights(&stage, &[]), busybox).ends_with(0);
    let (door, reason) = via();
    assert_eq!(door, "preload");
    assert!(reason.contains("no mount: "), "{reason}");
    said.tells("via          preload: no mount: ");
}
