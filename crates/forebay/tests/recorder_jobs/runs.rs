//! `forebay run` with the recorder, which it loads by default.

use crate::job::{Job, only, write};
use crate::stage::{Stage, finish};
use darshan_log::Posix;
use serde_json::Value;
use std::fs;

#[test]
fn a_run_leaves_a_log_with_the_paths_of_the_program_and_the_report_names_it() {
    let stage = Stage::new();
    let options = ["--log", "job.darshan", "--report", "report.json"];
    stage
        .script(
            &options,
            &format!("{}; cat pfs/f > copy", write("pfs/f", 5)),
        )
        .ends_with(0)
        .tells("log          ")
        .tells("job.darshan (");
    let job = Job::of(&stage);
    let bytes = job.bytes(&stage, "pfs/f");
    let sum = bytes.values().fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
    assert_eq!(sum, (5, 5));
    // The shell opened this file as its standard output.
    assert_eq!(job.written(&stage, "copy"), 5);
    let text = fs::read_to_string(stage.path("report.json")).unwrap();
    let report: Value = serde_json::from_str(&text).unwrap();
    let log = report["log"]["path"].as_str().unwrap();
    assert_eq!(log, stage.path("job.darshan").to_str().unwrap());
}

/// The kernel knows only where such a file lies in the storage, which may be left out of the log.
#[test]
fn what_a_program_writes_by_a_descriptor_that_it_has_inherited_counts_for_the_file_of_the_buffer() {
    for stage in [Stage::new(), Stage::without_storage()] {
        let copy = "dd if=start bs=1000 count=3 status=none";
        fs::write(stage.path("start"), [b'.'; 3000]).unwrap();
        let script = format!(
            "{copy} > pfs/one
            first=${{LD_PRELOAD%%:*}} second=${{LD_PRELOAD#*:}}
            {copy} > pfs/two
            seq 500 > pfs/numbers; echo text > pfs/echoed; echo more; echo again > pfs/again
            LD_PRELOAD=$second:$first {copy} > pfs/turned
            {{ rm pfs/one; {copy}; }} >> pfs/one
            mv pfs/two pfs/three; exec 3< pfs/three; mv pfs/three pfs/four
            head -c 100 <&3 > copy; test $first != $second"
        );
        let options = ["--log", "job.darshan"];
        stage.script(&options, &script).ends_with(0);
        let job = Job::of(&stage);
        assert_eq!(job.written(&stage, "pfs/one"), 3000);
        assert_eq!(job.written(&stage, "pfs/two"), 3000);
        assert_eq!(job.written(&stage, "pfs/turned"), 3000);
        // Streams: of a program, and of the shell, which has others in between.
        assert_eq!(job.written(&stage, "pfs/numbers"), 1892);
        assert_eq!(job.written(&stage, "pfs/echoed"), 5);
        assert_eq!(job.written(&stage, "pfs/again"), 6);
        // By the name at the first use.
        let read: i64 = job.bytes(&stage, "pfs/four").values().map(|b| b.0).sum();
        assert!(read >= 100, "{read}");
    }
}

#[test]
fn a_run_counts_each_fsync_of_the_program_once_and_asks_the_bridge_for_it() {
    // On a storage in memory nobody is asked.
    let stage = Stage::without_storage();
    let script = "exec /usr/bin/python3 -S -c \"
import os
fd = os.open('pfs/f', os.O_CREAT | os.O_RDWR)
for n in range(5):
    os.close(os.open('pfs/other%d' % n, os.O_CREAT | os.O_WRONLY))
    os.fsync(fd)
    os.fdatasync(fd)
\"";
    let options = ["--log", "job.darshan", "--report", "report.json"];
    stage.script(&options, script).ends_with(0);
    let job = Job::of(&stage);
    let path = stage.path("pfs/f");
    let mut records = job.log.records::<Posix>().map(Result::unwrap);
    let of_file = records.find(|r| job.log.names.get(r.id).as_deref() == path.to_str());
    let view = of_file.as_ref().expect("a record").view();
    assert_eq!(view.counter("POSIX_FSYNCS"), Some(5));
    assert_eq!(view.counter("POSIX_FDSYNCS"), Some(5));
    let text = fs::read_to_string(stage.path("report.json")).unwrap();
    let report: Value = serde_json::from_str(&text).unwrap();
    // Once more if the names are not durable yet when the file is.
    let asked = report["operations"]["sync"].as_u64().unwrap();
    assert!((5..=10).contains(&asked), "{text}");
}

#[test]
fn a_buffer_in_a_directory_that_is_left_out_is_recorded() {
    let stage = Stage::new();
    // Like all of /dev, /dev/shm is left out.
    let dir = std::path::PathBuf::from(format!("/dev/shm/forebay-test-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    let file = dir.join("f");
    let script = format!("exec {}", write(&file.to_string_lossy(), 5));
    let arguments = [
        "run",
        "--buffer",
        dir.to_str().unwrap(),
        "--log",
        "job.darshan",
        "--",
        "bash",
        "-c",
        &script,
    ];
    let said = finish(stage.forebay(&arguments));
    let job = Job::of(&stage);
    let bytes = job.bytes_of::<darshan_log::Posix>(file.to_str().unwrap());
    fs::remove_dir_all(&dir).unwrap();
    said.ends_with(0);
    assert_eq!(bytes, only(0, 0, 5));
}

#[test]
fn a_run_that_is_not_to_be_recorded_is_not() {
    let stage = Stage::new();
    let said = stage
        .script(&["--no-record"], "echo $LD_PRELOAD $FOREBAY_RECORD")
        .ends_with(0);
    assert!(!said.out.contains("record"), "{}", said.out);
    assert!(!said.err.contains("darshan"), "{}", said.err);
    assert!(!stage.path("logs").exists());
}

#[test]
fn a_run_that_cannot_be_recorded_runs_all_the_same_and_says_so() {
    let stage = Stage::new();
    let mut command = stage.script_command(&[], "echo text > pfs/f");
    command.env("FOREBAY_RECORDER", stage.path("none.so"));
    finish(command)
        .ends_with(0)
        .tells("forebay: this run is not recorded:")
        .tells("$FOREBAY_RECORDER is ");
    assert_eq!(stage.on_pfs()["f"], "text\n");
}

#[test]
fn with_a_bridge_that_stays_each_run_has_its_own_log() {
    let stage = Stage::new();
    stage.say(&["up", "--buffer", "pfs"]).ends_with(0);
    for n in 0..2 {
        let log = format!("{n}.darshan");
        let script = format!("exec {}", write(&format!("pfs/f{n}"), 2));
        stage.script(&["--log", &log], &script).ends_with(0);
    }
    stage.say(&["down", "--buffer", "pfs"]).ends_with(0);
    for n in 0..2 {
        let job = Job::at(&stage, &format!("{n}.darshan"));
        assert_eq!(job.bytes(&stage, &format!("pfs/f{n}")), only(0, 0, 2));
        assert!(job.bytes(&stage, &format!("pfs/f{}", 1 - n)).is_empty());
    }
}

#[test]
fn a_run_inside_of_a_recording_is_in_its_log() {
    let stage = Stage::new();
    let inner = format!(
        "{} run --buffer pfs -- {}",
        crate::common::forebay().display(),
        write("pfs/f", 5)
    );
    let arguments = ["record", "--log", "job.darshan", "--", "bash", "-c", &inner];
    finish(stage.forebay(&arguments))
        .ends_with(0)
        .tells("a recorder around this run records it, too");
    assert_eq!(Job::of(&stage).written(&stage, "pfs/f"), 5);
}
