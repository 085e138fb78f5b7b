//! A user who is not root drains files and directories whose modes lock their owner out.

use super::{VICTIM, as_root, forebay_of_victim, give, run_of_victim, user};
use crate::common::slow_pfs::SlowPfs;
use crate::stage::{Said, Stage, finish};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// A script of the victim in its buffer.
fn run(stage: &Stage, options: &[&str], script: &str) -> Said {
    let mut command = run_of_victim(stage, VICTIM);
    let script = format!("cd own/pfs && {script}");
    command.args(options).args(["--", "sh", "-ec", &script]);
    finish(command)
}

/// The same without a buffer, below `own`.
fn native(stage: &Stage, dir: &str, script: &str) {
    give(&stage.path("own"), VICTIM);
    give(&stage.path(dir), VICTIM);
    let mut command = user(stage, VICTIM, "sh");
    command.args(["-ec", &format!("cd {dir} && {script}")]);
    finish(command).ends_with(0);
}

/// Names, types, modes and contents.
fn tree(stage: &Stage, dir: &str) -> String {
    let mut command = stage.command("sh");
    let script = "cd $0; find . -name .forebay-lock -o -printf '%P %y %m %l\n' | sort
        find . -type f -exec grep -H '' {} + | sort";
    command.args(["-c", script, dir]);
    finish(command).ends_with(0).out
}

fn mode(path: &Path) -> u32 {
    path.symlink_metadata().unwrap().mode() & 0o7777
}

#[test]
fn files_that_their_owner_may_not_read_arrive_with_their_modes_and_once() {
    as_root!();
    let stage = Stage::new();
    // Few at a time: many are synced together, and none is opened for that.
    let scripts = [
        "for m in 0 100 111 200 222 400; do echo $m > f$m; chmod $m f$m; done",
        "(umask 777; echo a > masked)
        python3 -c 'import os; os.open(\"lock\", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0)'",
    ];
    for script in scripts {
        native(&stage, "own/native", script);
        run(&stage, &["--keep"], script).ends_with(0);
        assert_eq!(tree(&stage, "own/pfs"), tree(&stage, "own/native"));
        let mut drain = forebay_of_victim(&stage, VICTIM);
        drain.args(["drain", "--buffer", "own/pfs"]);
        finish(drain).ends_with(0).prints("drained 0 files");
    }
}

#[test]
fn what_is_below_a_locked_directory_gets_to_the_disks_where_each_directory_is_synced() {
    as_root!();
    let stage = Stage::new();
    let Some(pfs) = SlowPfs::mount() else {
        return;
    };
    let buffer = pfs.at.join("w");
    give(&buffer, VICTIM);
    let run = |options: &[&str], script: &str| {
        let mut command = forebay_of_victim(&stage, VICTIM);
        command.args(["run", "--buffer"]).arg(&buffer).args(options);
        let script = format!("cd {} && {script}", buffer.display());
        command.args(["--", "sh", "-ec", &script]);
        finish(command)
    };
    let script =
        "for m in 0 100 300; do mkdir -p x$m/y; echo 1 > x$m/y/f; chmod $m x$m/y x$m; done";
    run(&["--keep"], script).ends_with(0);
    // What is there already is looked at once more.
    let mut drain = forebay_of_victim(&stage, VICTIM);
    drain.args(["drain", "--buffer"]).arg(&buffer);
    finish(drain).ends_with(0);
    for m in ["0", "100", "300"] {
        let expected = u32::from_str_radix(m, 8).unwrap();
        for dir in [format!("x{m}"), format!("x{m}/y")] {
            assert_eq!(mode(&buffer.join(&dir)), expected, "{dir}");
        }
        let text = fs::read_to_string(buffer.join(format!("x{m}/y/f")));
        assert_eq!(text.unwrap(), "1\n");
    }
}
