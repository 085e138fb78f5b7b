//! A job leaves a log, however it ends.

use crate::common::{PYTHON, need};
use crate::job::{Job, only, record, record_command, write};
use crate::stage::{Stage, finish, kill, start, wait};
use std::fs;
use std::path::PathBuf;

#[test]
fn a_program_that_is_killed_or_aborts_leaves_all_that_it_has_done() {
    for (how, code) in [
        ("os.kill(os.getpid(), 9)", 128 + 9),
        ("os.kill(os.getpid(), 15)", 128 + 15),
        ("os.abort()", 128 + 6),
        ("os._exit(7)", 7),
        ("ctypes.string_at(0)", 128 + 11),
    ] {
        let stage = Stage::new();
        let script = format!(
            "ulimit -c 0; exec {PYTHON} -c \"import ctypes, os; fd = os.open('out', os.O_WRONLY | os.O_CREAT); \
             os.write(fd, b'x' * 777); {how}\""
        );
        record(&stage, &script)
            .ends_with(code)
            .tells("forebay: log ");
        let job = Job::of(&stage);
        assert_eq!(job.bytes(&stage, "out"), only(0, 0, 777), "{how}");
        let abnormal = job.line("abnormal_ends");
        assert_eq!(abnormal, if code == 7 { "" } else { "1" }, "{how}");
        let exit = match code {
            7 => "code 7".to_owned(),
            killed => format!("signal {}", killed - 128),
        };
        assert_eq!(job.line("exit"), exit, "{how}");
    }
}

#[test]
fn a_program_that_runs_out_of_memory_leaves_a_log() {
    let stage = Stage::new();
    // The limit makes an allocation fail. The program then kills itself, as the kernel would if memory were short.
    let script = format!(
        "exec {PYTHON} -c \"\nimport os, resource\nopen('out', 'w').write('x' * 500)\n\
         resource.setrlimit(resource.RLIMIT_AS, (1 << 28, 1 << 28))\n\
         try: keep = [bytearray(1 << 26) for _ in range(64)]\n\
         except MemoryError: os.kill(os.getpid(), 9)\""
    );
    record(&stage, &script).ends_with(128 + 9);
    assert_eq!(Job::of(&stage).bytes(&stage, "out"), only(0, 0, 500));
}

#[test]
fn a_signal_to_the_recorder_reaches_the_command_and_there_is_a_log() {
    for (signal, code) in [("INT", 130), ("TERM", 143), ("HUP", 129)] {
        let stage = Stage::new();
        let script = format!("{}; echo > started; exec sleep 1000", write("out", 6));
        let child = start(record_command(&stage, &script));
        stage.wait_for_file("started");
        kill(signal, child.id());
        wait(child).ends_with(code).tells("forebay: log ");
        let job = Job::of(&stage);
        assert_eq!(job.written(&stage, "out"), 6, "{signal}");
    }
}

/// Recording directories that wait for their log.
fn left(stage: &Stage) -> Vec<PathBuf> {
    let entries = fs::read_dir(stage.path("tables")).unwrap();
    entries.map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn a_recorder_that_is_killed_is_told_of_and_collect_makes_its_log() {
    let stage = Stage::new();
    let script = format!(
        "echo $$ > pid\n{}; echo > started; exec sleep 1000",
        write("out", 6)
    );
    let mut child = start(record_command(&stage, &script));
    stage.wait_for_file("started");
    let pid = fs::read_to_string(stage.path("pid")).unwrap();
    kill("KILL", child.id());
    child.wait().unwrap();
    kill("KILL", pid.trim().parse().unwrap());
    let notice = "was interrupted; for its log, run: forebay collect ";
    let said = stage.say(&["status"]).ends_with(0).tells(notice);
    assert_eq!(said.err.trim().lines().count(), 1, "{said:?}");
    let command = said.err.rsplit("run: forebay ").next().unwrap().trim();
    stage.wait_for("the end of the program", || {
        !PathBuf::from(format!("/proc/{}/exe", pid.trim())).exists()
    });
    let words: Vec<&str> = command.split(' ').collect();
    stage.say(&words).ends_with(0).prints("log ");
    let job = Job::of(&stage);
    assert_eq!(job.written(&stage, "out"), 6);
    assert_eq!(job.line("exit"), "unknown");
    assert!(left(&stage).is_empty());
    assert_eq!(stage.say(&["status"]).ends_with(0).err, "");
}

#[test]
fn what_outlives_the_command_is_collected_as_it_stands_and_said() {
    need!("setsid");
    let stage = Stage::new();
    let early = write("out", 6);
    let daemon = format!("{early}; echo $BASHPID > pid; echo > started; exec sleep 1000");
    let script = format!(
        "setsid bash -c '{daemon}' </dev/null >/dev/null 2>&1 & while [ ! -e started ]; do sleep 0.01; done"
    );
    record(&stage, &script).ends_with(0).tells(
        "1 of the command's processes still run; what they do from now on is not in the log",
    );
    let pid = fs::read_to_string(stage.path("pid")).unwrap();
    kill("KILL", pid.trim().parse().unwrap());
    let job = Job::of(&stage);
    assert_eq!(job.written(&stage, "out"), 6);
    assert_eq!(job.line("outlived"), "1");
}

#[test]
fn nothing_of_a_recording_stays() {
    let stage = Stage::new();
    record(&stage, "echo 1 > out").ends_with(0);
    assert!(left(&stage).is_empty());
    let said = stage.say(&["record", "--log", "two.darshan", "--", "no-such-program"]);
    said.ends_with(127)
        .tells("no-such-program: No such file or directory");
    assert!(left(&stage).is_empty());
    assert!(!stage.path("two.darshan").exists());
}

#[test]
fn tables_of_several_recordings_become_one_log() {
    let stage = Stage::new();
    for n in 0..2 {
        let script = format!("exec {}", write(&format!("out.{n}"), 3));
        let arguments = ["record", "--tables", "kept", "--", "bash", "-c", &script];
        finish(stage.forebay(&arguments))
            .ends_with(0)
            .tells("for the log, run: forebay collect ");
    }
    stage
        .say(&["collect", "kept", "--log", "job.darshan"])
        .ends_with(0)
        .prints("job.darshan (2 processes)");
    let job = Job::of(&stage);
    // One ran after the other, so they are one worker.
    assert_eq!(job.bytes(&stage, "out.0"), only(0, 0, 3));
    assert_eq!(job.bytes(&stage, "out.1"), only(0, 0, 3));
}
