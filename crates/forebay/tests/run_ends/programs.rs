//! Usual programs that go on when the command has ended. They wait at a FIFO until the test lets them go on.

use crate::common::need;
use crate::stage::{Said, Stage, kill, start, wait};
use std::fs;
use std::path::PathBuf;
use std::process::Child;

/// A run whose standard error is a file, so that it can be read meanwhile.
struct Run {
    child: Child,
    err: PathBuf,
}

impl Run {
    /// `script`, a bash script, under `forebay run` with these options. `$GO` is a FIFO.
    fn begin(stage: &Stage, options: &[&str], script: &str) -> Run {
        let mut mkfifo = stage.command("mkfifo");
        mkfifo.arg(stage.path("go"));
        crate::stage::finish(mkfifo).ends_with(0);
        let mut command = stage.forebay(&["run", "--buffer", "pfs", "--no-record"]);
        command.args(options).args(["--", "bash", "-c", script]);
        command.env("GO", stage.path("go"));
        let err = stage.path("err");
        command.stderr(fs::File::create(&err).unwrap());
        Run {
            child: command.spawn().unwrap(),
            err,
        }
    }

    /// One that waits for a child, which writes at last and makes a file.
    fn that_waits(stage: &Stage) -> Run {
        let script = "(exec > pfs/held; echo $BASHPID > child; read < $GO; echo late; echo new > pfs/new) & \
                      until [ -s child ]; do :; done";
        let run = Run::begin(stage, &[], script);
        run.wait_until_it_says(stage, "waiting for 1 process: ");
        run
    }

    fn said(&self) -> String {
        fs::read_to_string(&self.err).unwrap()
    }

    fn wait_until_it_says(&self, stage: &Stage, text: &str) {
        stage.wait_for(text, || self.said().contains(text));
    }

    fn end(self) -> Said {
        let said = wait(self.child);
        Said {
            err: fs::read_to_string(&self.err).unwrap(),
            ..said
        }
    }
}

/// Lets everybody go on who waits at the FIFO.
fn go(stage: &Stage) {
    fs::write(stage.path("go"), "go\n").unwrap();
}

/// What became of the processes that the run has left, when the bridge has ended.
fn afterwards(stage: &Stage) -> String {
    let status = || stage.say(&["status"]).ends_with(0).out;
    stage.wait_for("the end of the processes", || {
        status().contains("the last drain")
    });
    stage.wait_for("the end of the bridge", || stage.bridges().is_empty());
    status()
}

#[test]
fn a_file_that_a_child_holds_when_the_command_ends_is_waited_for() {
    need!("bash");
    let stage = Stage::new();
    let script = "(exec > pfs/held; echo $BASHPID > child; read < $GO; echo late) & \
                  until [ -s child ]; do :; done; touch ended";
    let run = Run::begin(&stage, &[], script);
    run.wait_until_it_says(&stage, "waiting for 1 process: ");
    go(&stage);
    run.end().ends_with(0).tells("left         nothing");
    assert_eq!(stage.on_pfs()["held"], "late\n");
    assert!(stage.bridges().is_empty());
}

#[test]
fn a_file_that_a_child_makes_after_the_command_has_ended_is_on_the_pfs() {
    need!("bash");
    let stage = Stage::new();
    // Its connection is all that it has.
    let script = "(cat < pfs/seen; read < $GO; mkdir pfs/d; echo late > pfs/d/late) & touch ended";
    fs::write(stage.pfs().join("seen"), "").unwrap();
    let run = Run::begin(&stage, &[], script);
    stage.wait_for_file("ended");
    go(&stage);
    run.end().ends_with(0).tells("left         nothing");
    let late = stage.pfs().join("d/late");
    assert_eq!(fs::read_to_string(late).unwrap(), "late\n");
}

#[test]
fn what_a_process_substitution_writes_is_whole_on_the_pfs() {
    need!("bash");
    let stage = Stage::new();
    for n in 0..20 {
        let script = "exec > >(cat > pfs/log); echo begin; head -c 300000 /dev/zero; echo end";
        let command = ["run", "--buffer", "pfs", "--no-record", "--", "bash", "-c"];
        let said = stage.say(&[&command[..], &[script]].concat());
        said.ends_with(0).tells("left         nothing");
        let log = fs::read(stage.pfs().join("log")).unwrap();
        assert_eq!(log.len(), 300_010, "run {n}");
        assert!(log.ends_with(b"end\n"));
    }
}

#[test]
fn a_signal_while_the_run_waits_leaves_the_process_to_the_bridge() {
    need!("bash");
    let stage = Stage::new();
    let script = "trap '' INT; echo closed > pfs/closed; \
                  (exec > pfs/held; echo early; echo $BASHPID > child; read < $GO; echo late; echo new > pfs/new) & \
                  until [ -s child ]; do :; done";
    let run = Run::begin(&stage, &[], script);
    run.wait_until_it_says(&stage, "Ctrl-C leaves them");
    kill("INT", run.child.id());
    // A second one does no harm; it may stop the drain.
    kill("INT", run.child.id());
    let said = run.end().ends_with(75).tells("  held: ");
    assert!(
        said.err.contains("goes on      1 process: "),
        "{}",
        said.err
    );
    let status = stage
        .say(&["status"])
        .ends_with(0)
        .prints("goes on   1 process: ");
    assert!(
        status.out.contains("drained when they end"),
        "{}",
        status.out
    );
    stage
        .say(&["down", "--buffer", "pfs"])
        .ends_with(1)
        .tells("still uses the bridge");
    go(&stage);
    let status = afterwards(&stage);
    assert!(status.contains("left nothing"), "{status}");
    let found = stage.on_pfs();
    assert_eq!(found["closed"], "closed\n");
    assert_eq!(found["held"], "early\nlate\n");
    assert_eq!(found["new"], "new\n");
    // The next run begins anew.
    let next = ["run", "--buffer", "pfs", "--no-record", "--", "true"];
    stage.say(&next).ends_with(0).tells("left         nothing");
    let status = stage.say(&["status"]).ends_with(0);
    assert!(!status.out.contains("the last drain"), "{}", status.out);
}

#[test]
fn a_daemon_that_holds_nothing_is_served_when_the_run_has_ended() {
    need!("bash", "setsid", "nohup");
    let stage = Stage::new();
    let daemon = "import os, sys\nopen('ready', 'w')\nopen(os.environ['GO']).read()\n\
                  os.mkdir('pfs/d')\nopen('pfs/d/late', 'w').write('late')\nos.rename('pfs/d', 'pfs/e')\n";
    fs::write(stage.path("daemon.py"), daemon).unwrap();
    for options in [&[][..], &["--no-wait"]] {
        let script = "setsid nohup /usr/bin/python3 daemon.py < /dev/null > /dev/null 2>&1 & \
                      until [ -e ready ]; do :; done; echo now > pfs/now";
        let run = Run::begin(&stage, options, script);
        run.end().ends_with(0).tells("goes on      1 process: ");
        assert_eq!(stage.on_pfs()["now"], "now\n");
        go(&stage);
        let status = afterwards(&stage);
        assert!(status.contains("left nothing"), "{status}");
        let late = stage.pfs().join("e/late");
        assert_eq!(fs::read_to_string(late).unwrap(), "late");
        fs::remove_dir_all(stage.pfs().join("e")).unwrap();
        for name in ["go", "ready"] {
            fs::remove_file(stage.path(name)).unwrap();
        }
    }
}

#[test]
fn a_process_that_never_ends_keeps_nobody_who_does_not_wait() {
    need!("bash");
    let stage = Stage::new();
    let script = "(exec > pfs/held; echo $BASHPID > child; exec sleep 100000) & \
                  until [ -s child ]; do :; done";
    let run = Run::begin(&stage, &["--no-wait"], script);
    run.end().ends_with(75).tells("goes on      1 process: ");
    let child = fs::read_to_string(stage.path("child")).unwrap();
    kill("KILL", child.trim().parse().unwrap());
    let status = afterwards(&stage);
    assert!(status.contains("left nothing"), "{status}");
    assert_eq!(stage.on_pfs()["held"], "");
}

#[test]
fn each_run_that_has_left_processes_is_shown_until_the_next_one_after_their_end() {
    need!("bash");
    let stage = Stage::new();
    let leaves = |name: &str| {
        let script = format!(
            "(exec > pfs/{name} 2> /dev/null; touch {name}.on; until [ -e {name}.go ]; do sleep 0.02; done; echo {name}) & \
             until [ -e {name}.on ]; do :; done"
        );
        stage.script(&["--no-wait"], &script).ends_with(75);
    };
    let shown = || stage.say(&["status"]).ends_with(0).out;
    let lets = |name: &str| fs::write(stage.path(&format!("{name}.go")), "").unwrap();
    leaves("one");
    leaves("two");
    assert_eq!(shown().matches("drained when they end").count(), 2);
    lets("one");
    stage.wait_for("the end of the first", || {
        shown().contains("the last drain")
    });
    assert_eq!(shown().matches("drained when they end").count(), 1);
    // The next run forgets what has ended, and nothing else.
    stage.script(&[], "true").ends_with(75);
    let status = shown();
    assert!(!status.contains("the last drain"), "{status}");
    assert_eq!(status.matches("drained when they end").count(), 1);
    lets("two");
    let status = afterwards(&stage);
    assert!(status.contains("left nothing"), "{status}");
    let found = stage.on_pfs();
    assert_eq!((&*found["one"], &*found["two"]), ("one\n", "two\n"));
}

#[test]
fn a_command_that_takes_a_signal_for_something_else_and_goes_on_has_its_children_waited_for() {
    need!("bash");
    let stage = Stage::new();
    let script = "trap 'echo saved > pfs/saved; touch saved' TERM; \
                  (trap '' TERM; exec > pfs/held; echo $BASHPID > child; read < $GO; echo late) & \
                  until [ -s child ]; do :; done; touch started; \
                  until [ -e saved ]; do sleep 0.02; done; exit 0";
    let run = Run::begin(&stage, &[], script);
    stage.wait_for_file("started");
    kill("TERM", run.child.id());
    // Somebody who does not wait has no need to say so.
    run.wait_until_it_says(&stage, "waiting for 1 process: ");
    go(&stage);
    run.end().ends_with(0).tells("left         nothing");
    let found = stage.on_pfs();
    assert_eq!((&*found["saved"], &*found["held"]), ("saved\n", "late\n"));
}

#[test]
fn a_command_that_a_signal_ends_has_its_children_waited_for_for_a_moment_only() {
    need!("bash");
    let stage = Stage::new();
    let script = "(trap '' TERM; exec > pfs/held; echo $BASHPID > child; read < $GO) & \
                  until [ -s child ]; do :; done; touch started; exec sleep 100000";
    let run = Run::begin(&stage, &[], script);
    stage.wait_for_file("started");
    kill("TERM", run.child.id());
    let said = run.end().ends_with(75).tells("goes on      1 process: ");
    assert!(!said.err.contains("waiting for"), "{}", said.err);
    go(&stage);
    let status = afterwards(&stage);
    assert!(status.contains("left nothing"), "{status}");
}

#[test]
fn a_signal_to_who_looks_after_them_drains_what_is_closed_and_says_what_is_not() {
    need!("bash");
    let stage = Stage::new();
    let script = "(exec > pfs/held; echo $BASHPID > child; exec sleep 100000) & \
                  until [ -s child ]; do :; done";
    let run = Run::begin(&stage, &["--no-wait"], script);
    run.end().ends_with(75);
    let runs = stage.bridges()[0]["users"]["runs"].clone();
    kill("TERM", runs[0].as_u64().unwrap().try_into().unwrap());
    let status = afterwards(&stage);
    assert!(status.contains("left 1 thing"), "{status}");
    let child = fs::read_to_string(stage.path("child")).unwrap();
    kill("KILL", child.trim().parse().unwrap());
    stage.say(&["drain", "--buffer", "pfs"]).ends_with(0);
    assert_eq!(stage.on_pfs()["held"], "");
}

#[test]
fn a_bridge_that_dies_while_the_run_waits_is_started_again() {
    need!("bash");
    let stage = Stage::new();
    let run = Run::that_waits(&stage);
    kill("KILL", stage.bridge_pid());
    go(&stage);
    run.end().ends_with(0).tells("left         nothing");
    let found = stage.on_pfs();
    assert_eq!((&*found["held"], &*found["new"]), ("late\n", "new\n"));
}

/// Kills the bridge, and waits for the next one.
fn kill_the_bridge(stage: &Stage) {
    let pid = stage.bridge_pid();
    kill("KILL", pid);
    let is_next = |bridges: &[serde_json::Value]| matches!(bridges, [next] if next["pid"] != pid);
    stage.wait_for("the next bridge", || is_next(&stage.bridges()));
}

#[test]
fn a_bridge_that_dies_more_often_than_it_is_started_for_programs_loses_sight_of_no_process() {
    need!("bash");
    let stage = Stage::new();
    let run = Run::that_waits(&stage);
    for _ in 0..12 {
        kill_the_bridge(&stage);
    }
    go(&stage);
    let said = run.end().ends_with(0).tells("left         nothing");
    // One that dies before the run has asked it anything is not counted.
    let counts = [11, 12].map(|deaths| format!("died {deaths} times"));
    assert!(
        counts.iter().any(|count| said.err.contains(count)),
        "{}",
        said.err
    );
    let found = stage.on_pfs();
    assert_eq!((&*found["held"], &*found["new"]), ("late\n", "new\n"));
}

#[test]
fn a_bridge_that_dies_at_its_very_end_is_started_again() {
    need!("bash", "strace");
    let stage = Stage::new();
    let mut works = stage.command("strace");
    works.args(["-o", "/dev/null", "true"]);
    forebay_testkit::skip_unless!(
        crate::stage::finish(works).code == 0,
        "strace does not work here"
    );
    let script = "echo text > pfs/f; touch ready; read < $GO";
    let run = Run::begin(&stage, &[], script);
    stage.wait_for_file("ready");
    // When all else is done, it gives the directory back.
    let bridge = stage.bridge_pid();
    let mut strace = stage.command("strace");
    strace.args(["-f", "-o", "trace", "-P", ".forebay-lock"]);
    strace.args(["-e", "trace=renameat,renameat2"]);
    strace.args(["-e", "inject=renameat,renameat2:signal=KILL"]);
    strace.args(["-p", &bridge.to_string()]);
    let strace = start(strace);
    stage.wait_for_tracer(bridge);
    go(&stage);
    run.end()
        .ends_with(0)
        .tells("died 1 time")
        .tells("left         nothing");
    wait(strace);
    assert_eq!(stage.on_pfs()["f"], "text\n");
    assert!(!stage.pfs().join(".forebay-lock").is_symlink());
}

#[test]
fn two_runs_on_one_bridge_wait_for_their_own_processes_only() {
    need!("bash");
    let stage = Stage::new();
    let script = "(exec > pfs/held; echo $BASHPID > child; read < $GO; echo late) & \
                  until [ -s child ]; do :; done; touch ended";
    let first = Run::begin(&stage, &[], script);
    stage.wait_for_file("ended");
    let second = stage.script_command(&[], "echo 2 > pfs/second");
    let said = wait(start(second));
    // The file of the other one is open.
    said.ends_with(75).tells("held: still open for writing");
    assert_eq!(stage.on_pfs()["second"], "2\n");
    go(&stage);
    first.end().ends_with(0).tells("left         nothing");
    assert_eq!(stage.on_pfs()["held"], "late\n");
}

#[test]
fn a_mapping_without_a_descriptor_is_waited_for() {
    need!("bash");
    let stage = Stage::new();
    // It makes no call with a path in the buffer, so it has no connection.
    let child = "import mmap, os\nm = mmap.mmap(3, 5)\nos.close(3)\nopen('mapped', 'w')\n\
                 open(os.environ['GO']).read()\nm[:] = b'late\\n'\n";
    fs::write(stage.path("child.py"), child).unwrap();
    let script = "printf 01234 > pfs/f; /usr/bin/python3 child.py 3<> pfs/f & \
                  until [ -e mapped ]; do :; done";
    let run = Run::begin(&stage, &[], script);
    run.wait_until_it_says(&stage, "waiting for 1 process: ");
    go(&stage);
    run.end().ends_with(0).tells("left         nothing");
    assert_eq!(stage.on_pfs()["f"], "late\n");
}

#[test]
fn a_program_that_is_no_descendant_is_waited_for_by_the_last_run() {
    need!("bash");
    let stage = Stage::new();
    let script = "env -0 > vars.new; mv vars.new vars; until [ -e ready ]; do :; done";
    let run = Run::begin(&stage, &[], script);
    stage.wait_for_file("vars");
    // As a task that a daemon starts for the command.
    let mut task = stage.command("bash");
    let vars = fs::read_to_string(stage.path("vars")).unwrap();
    task.envs(vars.split('\0').filter_map(|var| var.split_once('=')));
    task.args([
        "-c",
        "echo early > pfs/early; touch ready; read < $GO; echo late > pfs/late",
    ]);
    let task = start(task);
    run.wait_until_it_says(
        &stage,
        &format!("waiting for 1 process: {} (bash)", task.id()),
    );
    // The next bridge has not seen it.
    kill_the_bridge(&stage);
    go(&stage);
    run.end().ends_with(0).tells("left         nothing");
    wait(task).ends_with(0);
    let found = stage.on_pfs();
    assert_eq!((&*found["early"], &*found["late"]), ("early\n", "late\n"));
}
