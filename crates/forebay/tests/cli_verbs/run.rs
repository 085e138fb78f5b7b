//! `forebay run`.

use crate::common;
use crate::drain::catches_interrupts;
use crate::stage::{Stage, finish, kill, start, wait};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;

#[test]
fn the_exit_status_is_that_of_the_command() {
    let stage = Stage::new();
    for (script, code) in [("true", 0), ("exit 3", 3), ("exit 255", 255)] {
        stage.script(&[], script).ends_with(code);
    }
    stage.script(&[], "kill -9 $$").ends_with(128 + 9);
    stage.script(&[], "kill -15 $$").ends_with(128 + 15);
}

#[test]
fn a_command_that_is_not_there_or_no_program_has_the_codes_of_env() {
    let stage = Stage::new();
    let run = |program: &str| stage.say(&["run", "--buffer", "pfs", "--", program]);
    run("no-such-program")
        .ends_with(127)
        .tells("no-such-program: No such file or directory");
    fs::write(stage.path("text"), "no program").unwrap();
    run("./text")
        .ends_with(126)
        .tells("./text: Permission denied");
    assert!(stage.bridges().is_empty());
}

#[test]
fn standard_output_is_the_commands_alone_and_its_input_arrives() {
    let stage = Stage::new();
    fs::write(stage.path("input"), "from standard input\n").unwrap();
    let mut command = stage.script_command(&[], "cat; echo to standard error >&2");
    command.stdin(fs::File::open(stage.path("input")).unwrap());
    let said = finish(command).ends_with(0);
    assert_eq!(said.out, "from standard input\n");
    assert!(
        said.err
            .starts_with("to standard error\n  exit status  0 after "),
        "{}",
        said.err
    );
}

#[test]
fn a_run_ends_with_five_rows_or_with_none_and_says_what_is_left_in_any_case() {
    let stage = Stage::new();
    let said = stage.script(&[], "echo one > pfs/a").ends_with(0);
    let names: Vec<&str> = said
        .err
        .lines()
        .map(|line| line.get(2..14).unwrap_or(line).trim())
        .collect();
    assert_eq!(
        names,
        ["exit status", "drained", "left", "log", "I/O"],
        "{}",
        said.err
    );
    let said = stage.script(&["-q"], "echo two > pfs/a").ends_with(0);
    assert_eq!(said.err, "");
    assert_eq!(stage.on_pfs()["a"], "two\n");
    let all = stage.script(&["-q", "-v"], "true").ends_with(0);
    for name in ["  buffer  ", "  in buffer ", "  system calls "] {
        assert!(all.err.contains(name), "{name} in {}", all.err);
    }
}

#[test]
fn programs_with_address_sanitizer_run() {
    let stage = Stage::new();
    fs::write(
        stage.path("a.c"),
        "#include <stdio.h>\nint main(void) { FILE *f = fopen(\"pfs/f\", \"w\"); fputs(\"text\", f); return fclose(f); }\n",
    )
    .unwrap();
    let compiled = std::process::Command::new("gcc")
        .args(["-fsanitize=address", "a.c", "-o", "a"])
        .current_dir(stage.path(""))
        .output();
    forebay_testkit::skip_unless!(
        compiled.is_ok_and(|compiled| compiled.status.success()),
        "gcc cannot build with -fsanitize=address"
    );
    stage.script(&[], "./a").ends_with(0).tells("wrote 4 B");
    assert_eq!(stage.on_pfs()["f"], "text");
}

#[test]
fn files_arrive_on_the_pfs_and_no_process_and_no_copy_stays() {
    let stage = Stage::new();
    let said = stage
        .script(
            &[],
            "echo one > pfs/a; mkdir pfs/d; echo two > pfs/d/b; ls pfs/d",
        )
        .ends_with(0);
    assert_eq!(said.out, "b\n");
    assert_eq!(fs::read_to_string(stage.path("pfs/a")).unwrap(), "one\n");
    assert_eq!(fs::read_to_string(stage.path("pfs/d/b")).unwrap(), "two\n");
    assert!(stage.bridges().is_empty());
    let status = stage.script(&["--no-drain"], "true").ends_with(0);
    assert!(!status.err.contains("of other runs"), "{}", status.err);
}

#[test]
fn the_report_names_files_bytes_rates_and_what_is_left() {
    let stage = Stage::new();
    stage
        .script(
            &["--verbose", "--report", "report.json"],
            "head -c 3000000 /dev/zero > pfs/large; echo x > pfs/small; mkdir pfs/d; exit 7",
        )
        .ends_with(7)
        .tells("exit status  7 after")
        .tells("in buffer    2 files created or changed, 2.9 MiB by their sizes; 1 directory")
        .tells("large  2.9 MiB")
        .tells("read back and compared; ")
        .tells("); 1 directory")
        .tells("left         nothing");
    let text = fs::read_to_string(stage.path("report.json")).unwrap();
    let report: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(report["forebay_report"], 1);
    assert_eq!(report["command"][0], "sh");
    assert_eq!(report["exit_status"], 7);
    assert_eq!(report["buffer"], stage.pfs().to_str().unwrap());
    assert_eq!(report["in_buffer"]["dirty_files"], 2);
    assert_eq!(report["in_buffer"]["dirty_bytes"], 3_000_002);
    let drain = &report["drain"];
    assert_eq!(drain["complete"], true);
    assert_eq!(drain["left"], Value::Array(vec![]));
    assert_eq!(drain["counters"]["files_drained"], 2);
    assert_eq!(drain["counters"]["bytes_done"], 3_000_002);
    assert_eq!(drain["counters"]["bytes_drained"], 3_000_002);
    assert_eq!(drain["counters"]["bytes_verified"], 3_000_002);
    assert!(report["storage"]["free_bytes"].as_u64().unwrap() > 0);
    assert!(report["operations"]["open"].as_u64().unwrap() >= 2);
    // The program wrote at least what is in its files.
    let written = report["system_call_bytes_all_files"]["written"].as_u64();
    assert!(written.unwrap() >= 3_000_002, "{written:?}");
}

#[test]
fn without_a_drain_the_data_stays_and_the_next_run_sees_and_drains_it() {
    let stage = Stage::new();
    stage
        .script(&["--no-drain"], "echo kept > pfs/f")
        .ends_with(0)
        .tells("drained      not asked for; later: forebay drain --buffer ");
    assert!(stage.on_pfs().is_empty());
    let said = stage
        .script(&[], "cat pfs/f; echo more >> pfs/f")
        .ends_with(0)
        .tells("the buffer has 1 file (5 B) of other runs");
    assert_eq!(said.out, "kept\n");
    assert_eq!(stage.on_pfs()["f"], "kept\nmore\n");
}

#[test]
fn kept_copies_are_clean_and_are_read_again() {
    let stage = Stage::new();
    stage
        .script(&["--keep"], "echo text > pfs/f")
        .ends_with(0)
        .tells("copies kept");
    assert_eq!(stage.on_pfs()["f"], "text\n");
    let said = stage.script(&["--keep"], "cat pfs/f").ends_with(0);
    assert_eq!(said.out, "text\n");
    assert!(said.err.contains("drained      0 files"), "{}", said.err);
}

#[test]
fn the_program_keeps_its_paths_whichever_way_the_buffer_is_spelled() {
    let stage = Stage::new();
    std::os::unix::fs::symlink(stage.pfs(), stage.path("link")).unwrap();
    let run = |buffer: &str, path: &str| {
        let script = format!("echo {path} > {path}");
        stage
            .say(&[
                "run",
                "--buffer",
                buffer,
                "--no-drain",
                "--",
                "sh",
                "-c",
                &script,
            ])
            .ends_with(0);
    };
    run("link", "link/a");
    run("./pfs//", "pfs/b");
    run(stage.pfs().to_str().unwrap(), "./pfs/../pfs/c");
    assert!(stage.on_pfs().is_empty(), "{:?}", stage.on_pfs());
    stage.say(&["drain", "--buffer", "link"]).ends_with(0);
    let names: Vec<_> = stage.on_pfs().into_keys().collect();
    assert_eq!(names, ["a", "b", "c"]);
}

#[test]
fn a_program_that_only_the_buffer_has_can_be_run() {
    let stage = Stage::new();
    let make = "printf '#!/bin/sh\\necho in the buffer: $1\\n' > pfs/tool; chmod +x pfs/tool";
    stage.script(&["--no-drain"], make).ends_with(0);
    for tool in ["pfs/tool", stage.path("pfs/tool").to_str().unwrap()] {
        let said = stage
            .say(&["run", "--buffer", "pfs", "--no-drain", "--", tool, "yes"])
            .ends_with(0);
        assert_eq!(said.out, "in the buffer: yes\n");
    }
    stage
        .say(&["run", "--buffer", "pfs", "--no-drain", "--", "pfs/none"])
        .ends_with(127);
}

#[test]
fn a_file_that_stays_open_is_left_with_75_and_the_command_that_retries() {
    let stage = Stage::new();
    // The command waits until the background process has written, so that the size of the open file is certain.
    let script = "echo done > pfs/closed; \
                  (echo begun; echo $$ >/dev/null; exec sleep 1000) > pfs/open 2>/dev/null </dev/null & \
                  echo $! > holder; \
                  while ! [ -s pfs/open ]; do sleep 0.01; done";
    let said = stage
        .script(&["--no-wait"], script)
        .ends_with(75)
        .tells("1 thing (6 B) left in the buffer, not on the PFS yet; nothing is lost")
        .tells("open: still open for writing")
        .tells("hint: to go on, run: forebay drain --buffer ");
    let holder: u32 = fs::read_to_string(stage.path("holder"))
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    assert_eq!(stage.on_pfs().into_keys().collect::<Vec<_>>(), ["closed"]);
    kill("KILL", holder);
    stage.wait_for("the end of the holder", || {
        !std::path::Path::new(&format!("/proc/{holder}/fd/1")).exists()
    });
    let retry = said.err.rsplit("run: forebay ").next().unwrap().trim();
    let words: Vec<&str> = retry.split(' ').collect();
    stage.say(&words).ends_with(0);
    assert_eq!(stage.on_pfs()["open"], "begun\n");
}

#[test]
fn a_signal_to_run_reaches_the_command_and_what_is_closed_is_drained() {
    for (signal, code) in [("INT", 130), ("TERM", 143), ("HUP", 129)] {
        let stage = Stage::new();
        let script = "echo saved > pfs/f; touch started; exec sleep 1000";
        let child = start(stage.script_command(&[], script));
        stage.wait_for_file("started");
        kill(signal, child.id());
        wait(child).ends_with(code).tells("left         nothing");
        assert_eq!(stage.on_pfs()["f"], "saved\n");
        assert!(stage.bridges().is_empty());
    }
}

#[test]
fn a_command_that_handles_the_signal_decides_about_the_status() {
    let stage = Stage::new();
    let script =
        "trap 'echo saved > pfs/f; exit 5' TERM; touch started; while :; do sleep 0.05; done";
    let child = start(stage.script_command(&[], script));
    stage.wait_for_file("started");
    kill("TERM", child.id());
    wait(child).ends_with(5);
    assert_eq!(stage.on_pfs()["f"], "saved\n");
}

#[test]
fn a_signal_during_the_drain_stops_it_and_says_what_is_not_there() {
    let stage = Stage::new();
    let script =
        "for i in 1 2 3 4 5 6 7 8; do head -c 200000 /dev/zero > pfs/f$i; done; touch ended";
    let child = start(stage.script_command(&["--drain-rate", "100K"], script));
    stage.wait_for_file("ended");
    stage.wait_for("the first copied bytes", || {
        stage
            .bridges()
            .iter()
            .any(|b| b["drain"]["state"] == "running" && b["drain"]["bytes_done"] != 0)
    });
    kill("INT", child.id());
    wait(child)
        .ends_with(75)
        .tells("the drain was stopped before its turn")
        .tells("hint: to go on, run: ");
    stage.say(&["drain", "--buffer", "pfs"]).ends_with(0);
    assert_eq!(stage.on_pfs().len(), 8);
}

#[test]
fn two_runs_at_once_share_a_bridge_and_the_last_one_ends_it() {
    let stage = Stage::new();
    let script =
        "echo 1 > pfs/first; touch started; while [ ! -e go ]; do sleep 0.02; done; cat pfs/second";
    let first = start(stage.script_command(&["-v"], script));
    stage.wait_for_file("started");
    let pid = stage.bridge_pid();
    let second = stage
        .script(&["-v"], "cat pfs/first; echo 2 > pfs/second")
        .ends_with(0)
        .tells(&format!("bridge {pid} at "));
    assert_eq!(second.out, "1\n");
    assert_eq!(stage.bridge_pid(), pid);
    fs::write(stage.path("go"), "").unwrap();
    let first = wait(first).ends_with(0);
    assert_eq!(first.out, "2\n");
    assert!(stage.bridges().is_empty());
    assert_eq!(stage.on_pfs().len(), 2);
}

#[test]
fn many_runs_that_start_at_once_find_one_bridge() {
    let stage = Stage::new();
    let children: Vec<_> = (0..8)
        .map(|n| start(stage.script_command(&["--no-drain"], &format!("echo {n} > pfs/f{n}"))))
        .collect();
    for child in children {
        wait(child).ends_with(0);
    }
    assert!(stage.bridges().is_empty());
    stage.say(&["drain", "--buffer", "pfs"]).ends_with(0);
    assert_eq!(stage.on_pfs().len(), 8);
}

#[test]
fn what_a_killed_run_has_left_is_picked_up_by_the_next_one() {
    let stage = Stage::new();
    let script = "echo left > pfs/f; echo $$ > program; touch started; exec sleep 1000";
    let mut child = start(stage.script_command(&[], script));
    stage.wait_for_file("started");
    kill("KILL", child.id());
    child.wait().unwrap();
    let program = fs::read_to_string(stage.path("program")).unwrap();
    kill("KILL", program.trim().parse().unwrap());
    // No process tells the bridge to end; it notices that the run is gone.
    stage.wait_for("the end of the bridge", || stage.bridges().is_empty());
    assert!(stage.on_pfs().is_empty());
    let said = stage
        .script(&[], "cat pfs/f")
        .ends_with(0)
        .tells("the buffer has 1 file (5 B) of other runs");
    assert_eq!(said.out, "left\n");
    assert_eq!(stage.on_pfs()["f"], "left\n");
}

#[test]
fn a_bridge_that_is_killed_during_a_run_comes_back_with_all_that_was_done() {
    let stage = Stage::new();
    let script = "echo 1 > pfs/before; exec 5> pfs/open; \
                  touch started; while [ ! -e go ]; do sleep 0.02; done; \
                  echo through an old descriptor >&5; exec 5>&-; \
                  echo 2 > pfs/after; cat pfs/before; ls pfs";
    let child = start(stage.script_command(&[], script));
    stage.wait_for_file("started");
    let pid = stage.bridge_pid();
    kill("KILL", pid);
    fs::write(stage.path("go"), "").unwrap();
    let said = wait(child)
        .ends_with(0)
        .tells("bridge       died 1 time and was started again");
    assert_eq!(said.out, "1\nafter\nbefore\nopen\n");
    let found = stage.on_pfs();
    assert_eq!(found["open"], "through an old descriptor\n");
    assert_eq!(found.len(), 3);
}

/// Lets a program call `late` while its bridge is stopped, kills the program, and runs `then` when its death is known. The
/// bridge goes on when `then` has made the file `reaped`. Gives what was said on standard output.
fn after_a_death(late: &str, then: &str) -> String {
    let stage = Stage::new();
    let mut mkfifo = stage.command("mkfifo");
    mkfifo.arg(stage.path("go"));
    finish(mkfifo).ends_with(0);
    // The signal has come when kill returns, but each thread stops by itself.
    let victim = format!(
        "import glob, os, signal\n\
         for n in range(100): os.mkdir(f\"pfs/{{n}}\"); os.rmdir(f\"pfs/{{n}}\")\n\
         bridge = int(open(\"bridge\").read())\n\
         os.kill(bridge, signal.SIGSTOP)\n\
         states = f\"/proc/{{bridge}}/task/*/stat\"\n\
         state = lambda path: open(path).read().rpartition(\")\")[2].split()[0]\n\
         while any(state(path) != \"T\" for path in glob.glob(states)): pass\n\
         {late}"
    );
    let script = format!(
        "echo old > pfs/file; exec 5<> pfs/file; touch started; read go < go; \
         python3 -c '{victim}' & echo $! > victim; wait; {then}"
    );
    let child = start(stage.script_command(&[], &script));
    stage.wait_for_file("started");
    let bridge = stage.bridge_pid();
    fs::write(stage.path("bridge"), bridge.to_string()).unwrap();
    fs::write(stage.path("go"), "go\n").unwrap();
    let is_in = |state: &str, pid: u32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        status.contains(&format!("State:\t{state}"))
    };
    stage.wait_for("the bridge to be stopped", || is_in("T", bridge));
    let written = || fs::read_to_string(stage.path("victim")).is_ok_and(|pid| pid.ends_with('\n'));
    stage.wait_for("its number", written);
    let victim = fs::read_to_string(stage.path("victim")).unwrap();
    let victim = victim.trim().parse().unwrap();
    stage.wait_for("a program that waits", || is_in("S", victim));
    kill("KILL", victim);
    stage.wait_for_file("reaped");
    kill("CONT", bridge);
    wait(child).ends_with(0).out
}

/// The bridge comes to it only when the program is dead, and somebody who knows that has asked for more.
#[test]
fn what_a_killed_program_has_asked_for_is_not_done_after_its_death() {
    let out = after_a_death(
        "os.mkdir(\"pfs/late\")",
        ": > reaped; ls pfs; mkdir pfs/late && echo made",
    );
    assert_eq!(out, "file\nmade\n");
}

/// Nobody asks the bridge for anything between the death and the write.
#[test]
fn a_file_that_a_killed_program_was_about_to_empty_is_not_emptied_after_its_death() {
    for also in ["", "|os.O_APPEND"] {
        let out = after_a_death(
            &format!("os.open(\"pfs/file\", os.O_WRONLY|os.O_TRUNC{also})"),
            "echo precious >&5; : > reaped; ls pfs; cat pfs/file",
        );
        assert_eq!(out, "file\nprecious\n");
    }
}

#[test]
fn a_bridge_whose_first_restart_fails_is_started_once_more() {
    let stage = Stage::new();
    let script = "echo 1 > pfs/before; touch started; while [ ! -e go ]; do sleep 0.02; done; \
                  echo 2 > pfs/after; cat pfs/before";
    let child = start(stage.script_command(&[], script));
    stage.wait_for_file("started");
    let pid = stage.bridge_pid();
    let mut instances = fs::read_dir(stage.path("storage")).unwrap();
    let instance = instances.next().unwrap().unwrap().path();
    let log = instance.join("bridge.log");
    fs::remove_file(&log).unwrap();
    let (tables, away) = (instance.join("meta"), instance.join("away"));
    fs::rename(&tables, &away).unwrap();
    fs::write(&tables, "no tables").unwrap();
    kill("KILL", pid);
    stage.wait_for("the first one that fails", || {
        fs::read_to_string(&log).is_ok_and(|said| said.contains("meta"))
    });
    fs::remove_file(&tables).unwrap();
    fs::rename(&away, &tables).unwrap();
    fs::write(stage.path("go"), "").unwrap();
    let ended = wait(child).ends_with(0).tells("and was started again");
    assert_eq!(ended.out, "1\n");
    assert!(!ended.err.contains("cannot be started"), "{}", ended.err);
    assert_eq!(stage.on_pfs().len(), 2);
}

#[test]
fn if_no_bridge_served_at_last_the_report_says_so() {
    let stage = Stage::new();
    let script = "echo 1 > pfs/before; touch started; while [ ! -e go ]; do sleep 0.02; done; \
                  echo 2 > pfs/after; echo $?";
    let mut command = stage.script_command(&["--report", "report.json"], script);
    command.env("FOREBAY_RECONNECT_S", "1");
    let child = start(command);
    stage.wait_for_file("started");
    let mut pid = stage.bridge_pid();
    for restart in 0..=10 {
        kill("KILL", pid);
        if restart < 10 {
            let is_other =
                |now: &Value| now["pid"].as_u64().is_some_and(|now| now != u64::from(pid));
            stage.wait_for("the next bridge", || stage.bridges().iter().any(is_other));
            pid = stage.bridge_pid();
        }
    }
    fs::write(stage.path("go"), "").unwrap();
    let ended = wait(child).ends_with(0);
    let ended = ended.tells("died 11 times, and none served at last");
    assert_ne!(ended.out, "0\n");
    let report: Value =
        serde_json::from_slice(&fs::read(stage.path("report.json")).unwrap()).unwrap();
    assert_eq!(report["bridge_given_up"], true);
    assert!(stage.on_pfs().keys().eq(["before"]));
}

/// It comes before there is a bridge, and reaches either the run or the command.
#[test]
fn one_signal_ends_a_run_whenever_it_comes() {
    let stage = Stage::new();
    let child = start(stage.script_command(&[], "exec sleep 1000"));
    let status = format!("/proc/{}/status", child.id());
    stage.wait_for("a handler of SIGINT", || catches_interrupts(&status));
    kill("INT", child.id());
    let ended = wait(child);
    assert!([125, 130].contains(&ended.code), "{ended:?}");
    if ended.code == 125 {
        ended.tells("interrupted before the command was started");
    }
}

#[test]
fn a_program_in_the_midst_of_its_calls_outlives_the_bridge_again_and_again() {
    const KILLS: usize = 4;
    let stage = Stage::new();
    // Every call takes effect exactly once, even if the bridge dies in the middle of it.
    let script = "exec /usr/bin/python3 -c \"
import os
n = 0
while not os.path.exists('enough'):
    name = 'pfs/%d' % n
    os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    os.rename(name, 'pfs/moved')
    os.stat('pfs/moved')
    os.close(os.open('pfs/moved', os.O_RDWR))
    os.unlink('pfs/moved')
    n += 1
    if n % 50 == 0:
        os.close(os.open('steps.%d' % (n // 50), os.O_CREAT))
\"";
    let child = start(stage.script_command(&[], script));
    let mut steps = 0;
    for _ in 0..KILLS {
        // The program must have made this many further steps, so that it certainly works with the new bridge.
        while stage.path(&format!("steps.{}", steps + 1)).exists() {
            steps += 1;
        }
        steps += 2;
        stage.wait_for_file(&format!("steps.{steps}"));
        kill("KILL", stage.bridge_pid());
    }
    stage.wait_for_file(&format!("steps.{}", steps + 2));
    fs::write(stage.path("enough"), "").unwrap();
    wait(child)
        .ends_with(0)
        .tells(&format!("died {KILLS} times and was started again"));
    assert!(stage.on_pfs().is_empty());
}

#[test]
fn ranks_under_mpiexec_write_through_the_buffer_without_further_options() {
    for mpiexec in ["mpiexec.openmpi", "mpiexec.mpich"] {
        if let Err(reason) = common::find_program(mpiexec) {
            forebay_testkit::skip(&reason);
            continue;
        }
        let stage = Stage::new();
        let rank = "echo $LD_PRELOAD > pfs/rank.${OMPI_COMM_WORLD_RANK:-$PMI_RANK}";
        let mut arguments = vec!["run", "--buffer", "pfs", "--no-drain", "--", mpiexec];
        if mpiexec.ends_with("openmpi") {
            arguments.extend(["--oversubscribe", "--allow-run-as-root"]);
        }
        arguments.extend(["-n", "2", "sh", "-c", rank]);
        stage.say(&arguments).ends_with(0);
        assert!(stage.on_pfs().is_empty(), "{mpiexec}");
        stage.say(&["drain", "--buffer", "pfs"]).ends_with(0);
        let names: Vec<_> = stage.on_pfs().into_keys().collect();
        assert_eq!(names, ["rank.0", "rank.1"], "{mpiexec}");
    }
}

#[test]
fn logs_go_where_they_are_asked_for() {
    let stage = Stage::new();
    stage.script(&["--log-dir", "logs"], "true").ends_with(0);
    let log = fs::read_to_string(stage.path("logs/bridge.log")).unwrap();
    assert!(log.contains("serves") && log.contains("has ended"), "{log}");
}

#[test]
fn the_storage_is_closed_to_others() {
    let stage = Stage::new();
    stage
        .script(&["--no-drain"], "echo secret > pfs/f")
        .ends_with(0);
    for entry in fs::read_dir(stage.path("storage")).unwrap() {
        let mode = entry.unwrap().metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{mode:o}");
    }
}

#[test]
fn a_standard_error_or_output_that_takes_nothing_ends_no_run_and_leaves_nothing_undrained() {
    let stage = Stage::new();
    let sh = |script: &str| {
        let mut sh = stage.command("sh");
        sh.args(["-c", script]).output().unwrap()
    };
    for (n, (options, to)) in [
        ("-v", "2>/dev/full"),
        ("", "2>&-"),
        ("-v", "2>/dev/full >/dev/full"),
    ]
    .into_iter()
    .enumerate()
    {
        let script =
            format!("echo {n} > pfs/f{n}; (exec > pfs/late{n}; sleep 3; echo late) & exit 4");
        let ran = sh(&format!(
            "\"$FOREBAY\" run {options} --buffer pfs -- sh -c '{script}' {to}"
        ));
        assert_eq!(ran.status.code(), Some(4), "{options} {to}: {ran:?}");
        assert_eq!(stage.on_pfs()[&format!("f{n}")], format!("{n}\n"));
        assert_eq!(stage.on_pfs()[&format!("late{n}")], "late\n");
    }
    let said = sh("\"$FOREBAY\" status --json >/dev/full");
    assert_eq!(said.status.code(), Some(1), "{said:?}");
    let words = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(
        words.starts_with("forebay: standard output: No space left"),
        "{words}"
    );
}
