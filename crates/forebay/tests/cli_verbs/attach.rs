//! `forebay attach`: a command from elsewhere joins a run.

use crate::common::{PYTHON, find_program, need};
use crate::stage::{Said, Stage, finish, kill, start, wait};
use forebay_testkit::{is_root, skip_unless};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Child, Command};

/// What the command of a run does here: makes a file, and goes on until the test says so.
const COMMAND: &str = "echo one > pfs/one; : > ready; cat go";

/// A run whose command waits until [`let_go`].
fn running(stage: &Stage, options: &[&str]) -> Child {
    running_until(stage, "go", options)
}

/// The same with another FIFO.
fn running_until(stage: &Stage, fifo: &str, options: &[&str]) -> Child {
    make_fifo(stage, fifo);
    let _ = fs::remove_file(stage.path("ready"));
    let command = COMMAND.replace("cat go", &format!("cat {fifo}"));
    let run = start(stage.script_command(options, &command));
    stage.wait_for_file("ready");
    run
}

fn make_fifo(stage: &Stage, name: &str) {
    if !stage.path(name).exists() {
        assert_eq!(finish(stage_command(stage, "mkfifo", &[name])).code, 0);
    }
}

fn stage_command(stage: &Stage, program: &str, arguments: &[&str]) -> Command {
    let mut command = stage.command(program);
    command.args(arguments);
    command
}

/// Lets whoever reads from this FIFO go on.
fn let_go(stage: &Stage, fifo: &str) {
    // It can be opened like this only while somebody reads.
    let mut options = fs::OpenOptions::new();
    options.write(true).custom_flags(libc::O_NONBLOCK);
    stage.wait_for("a reader", || options.open(stage.path(fifo)).is_ok());
}

fn attach(stage: &Stage, options: &[&str], command: &[&str]) -> Command {
    let mut attach = stage.forebay(&["attach", "--buffer", "pfs"]);
    attach.args(options).arg("--").args(command);
    attach
}

fn joined(stage: &Stage, command: &[&str]) -> Said {
    finish(attach(stage, &[], command))
}

#[test]
fn a_command_that_joins_a_run_sees_its_files_and_is_drained_and_recorded_with_it() {
    let stage = Stage::new();
    let run = running(&stage, &["--report", "report.json"]);
    let script = "
import os, sqlite3
print(open('pfs/one').read().strip())
os.rename('pfs/one', 'pfs/moved')
db = sqlite3.connect('pfs/base')
db.execute('create table t (x)'); db.executemany('insert into t values (?)', [(i,) for i in range(100)])
db.commit(); db.close()
raise SystemExit(7)
";
    joined(&stage, &[PYTHON, "-c", script])
        .ends_with(7)
        .prints("one\n");
    assert!(stage.on_pfs().is_empty(), "it is in the buffer");
    let_go(&stage, "go");
    wait(run).ends_with(0).tells("attached").tells("python3");
    let names: Vec<_> = stage.on_pfs().into_keys().collect();
    assert_eq!(names, ["base", "moved"]);
    let report: Value =
        serde_json::from_slice(&fs::read(stage.path("report.json")).unwrap()).unwrap();
    let command = report["attached"][0]["command"].as_str().unwrap();
    assert!(command.starts_with(PYTHON), "{command}");
    assert_eq!(report["drain"]["complete"], true);
    let log = report["log"]["path"].as_str().unwrap();
    let files = stage.say(&["report", log, "--json"]).ends_with(0).out;
    assert!(
        files.contains("pfs/base"),
        "the log of the run knows both: {files}"
    );
}

#[test]
fn a_run_waits_for_who_has_joined_it_and_takes_nobody_after_its_command() {
    let stage = Stage::new();
    let mut run = running(&stage, &[]);
    make_fifo(&stage, "later");
    // It has nothing of the buffer until the command of the run has ended.
    let script = ": > joined; cat later; echo late > pfs/late; exit 3";
    let guest = start(attach(&stage, &[], &["sh", "-c", script]));
    stage.wait_for_file("joined");
    let_go(&stage, "go");
    let mut said = BufReader::new(run.stderr.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    assert!(
        line.contains("waiting for ") && line.contains(&guest.id().to_string()),
        "{line}"
    );
    joined(&stage, &["true"])
        .ends_with(125)
        .tells("takes nobody any more");
    let_go(&stage, "later");
    wait(guest).ends_with(3);
    wait(run).ends_with(0);
    assert_eq!(stage.on_pfs()["late"], "late\n");
}

#[test]
fn a_bridge_that_is_killed_makes_a_run_forget_nobody_who_has_joined() {
    let stage = Stage::new();
    let run = running(&stage, &[]);
    make_fifo(&stage, "later");
    let script = ": > joined; cat later; echo late > pfs/late";
    let guest = start(attach(&stage, &[], &["sh", "-c", script]));
    stage.wait_for_file("joined");
    let bridge = stage.bridge_pid();
    kill("KILL", bridge);
    stage.wait_for("another bridge", || {
        stage.bridges().iter().any(|found| found["pid"] != bridge)
    });
    let_go(&stage, "go");
    let_go(&stage, "later");
    wait(guest).ends_with(0);
    wait(run).ends_with(0);
    assert_eq!(stage.on_pfs()["late"], "late\n");
}

#[test]
fn of_several_runs_one_must_be_chosen() {
    let stage = Stage::new();
    let first = running_until(&stage, "go1", &["--no-record"]);
    let second = running_until(&stage, "go2", &["--no-record"]);
    joined(&stage, &["cat", "pfs/one"])
        .ends_with(125)
        .tells("2 runs use the buffer")
        .tells("--run PID");
    finish(attach(&stage, &["--run", "1"], &["true"]))
        .ends_with(125)
        .tells("process 1 is no run");
    let runs = stage.bridges()[0]["users"]["runs"].clone();
    for run in runs.as_array().unwrap() {
        finish(attach(
            &stage,
            &["--run", &run.to_string()],
            &["cat", "pfs/one"],
        ))
        .ends_with(0)
        .prints("one\n");
    }
    for (run, fifo) in [(first, "go1"), (second, "go2")] {
        let_go(&stage, fifo);
        wait(run).ends_with(0);
    }
}

#[test]
fn over_a_bridge_that_stays_a_command_works_without_a_run_and_down_waits_for_its_end() {
    let stage = Stage::new();
    stage.say(&["up", "--buffer", "pfs"]).ends_with(0);
    make_fifo(&stage, "go");
    let guest = start(attach(&stage, &[], &["sh", "-c", COMMAND]));
    stage.wait_for_file("ready");
    // `sh` has opened and closed; it may have nothing of the buffer now.
    stage
        .say(&["down", "--buffer", "pfs"])
        .ends_with(1)
        .tells("has joined the buffer");
    let_go(&stage, "go");
    wait(guest).ends_with(0);
    assert!(stage.on_pfs().is_empty());
    stage.say(&["down", "--buffer", "pfs"]).ends_with(0);
    assert_eq!(stage.on_pfs()["one"], "one\n");
}

#[test]
fn a_static_program_joins_the_mount_of_a_run() {
    skip_unless!(
        is_root() && std::path::Path::new("/dev/fuse").exists(),
        "a mount needs root and /dev/fuse"
    );
    need!("busybox");
    let busybox = find_program("busybox").unwrap();
    let busybox = busybox.to_str().unwrap();
    let stage = Stage::new();
    let run = running(&stage, &["--via", "mount"]);
    joined(&stage, &[busybox, "cat", "pfs/one"])
        .ends_with(0)
        .prints("one\n");
    // The working directory is in the buffer.
    let mut inside = stage.forebay(&["attach", "--buffer", ".", "--", busybox, "sh", "-c"]);
    inside
        .arg("cat one; echo two > two")
        .current_dir(stage.pfs());
    finish(inside).ends_with(0).prints("one\n");
    assert!(stage.on_pfs().is_empty(), "nobody else sees the mount");
    let_go(&stage, "go");
    wait(run).ends_with(0).tells("attached");
    assert_eq!(stage.on_pfs()["two"], "two\n");
}

#[test]
fn a_program_that_exists_only_in_the_buffer_can_join() {
    let stage = Stage::new();
    let run = running(&stage, &["--no-record"]);
    joined(&stage, &["cp", "/bin/cat", "pfs/tool"]).ends_with(0);
    joined(&stage, &["pfs/tool", "pfs/one"])
        .ends_with(0)
        .prints("one\n");
    let_go(&stage, "go");
    wait(run).ends_with(0);
}

#[test]
fn a_command_that_cannot_be_started_has_the_status_that_a_shell_gives() {
    let stage = Stage::new();
    let run = running(&stage, &["--no-record"]);
    joined(&stage, &["no-such-program"]).ends_with(127);
    joined(&stage, &["/etc/passwd"]).ends_with(126);
    stage.say(&["attach", "--buffer", "pfs"]).ends_with(125);
    joined(&stage, &["sh", "-c", "kill -TERM $$"]).ends_with(128 + 15);
    let_go(&stage, "go");
    wait(run).ends_with(0);
}

#[test]
fn what_cannot_be_joined_is_said_in_one_line() {
    let stage = Stage::new();
    let refused = |text: &str| {
        let said = joined(&stage, &["true"]).ends_with(125).tells(text);
        assert!(said.out.is_empty());
    };
    refused("no bridge runs over");
    finish(attach(&stage, &["--storage", "no"], &["true"]))
        .ends_with(125)
        .tells("storage no: ");
    let lock = stage.pfs().join(".forebay-lock");
    let place = |text: &str| {
        let _ = fs::remove_file(&lock);
        std::os::unix::fs::symlink(text, &lock).unwrap();
    };
    place("forebay-9 uid=0");
    refused("is of another version");
    let (me, _) = forebay_sys::my_ids();
    let host = String::from_utf8(forebay_sys::host_name()).unwrap();
    let claim = |uid: u32, host: &str| {
        format!(
            "forebay-1 uid={uid} host={host} boot=x pids=1 mounts=1 pid=1 started=1 since=1 dir=1 storage=1 root=/x instance={}",
            stage.path("storage/x").display()
        )
    };
    place(&claim(me, "elsewhere"));
    refused("is on node elsewhere");
    place(&claim(me + 4242, &host));
    refused("belongs to user");
    // A storage that is not there, and one whose socket somebody else has.
    place(&claim(me, &host));
    refused("no bridge runs over");
}

#[test]
fn a_bridge_of_root_is_joined_by_root_alone() {
    skip_unless!(is_root(), "only root can become another user");
    need!("setpriv");
    let stage = Stage::new();
    let run = running(&stage, &["--no-record"]);
    let mut other = stage.command("setpriv");
    other
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(crate::common::forebay())
        .args(["attach", "--buffer", "pfs", "--", "true"]);
    finish(other).ends_with(125).tells("belongs to user root");
    let_go(&stage, "go");
    wait(run).ends_with(0);
}
