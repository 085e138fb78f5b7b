//! `forebay drain` and `forebay fsck`: after runs, after crashes, and again.

use crate::common;
use crate::stage::{SmallDisk, Stage, finish, kill, start, tree, wait};
use serde_json::Value;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// The program of these tests. It also runs natively for comparison, so it sets all times itself.
const WORK: &str = "
    set -e
    cd \"$1\"
    printf 'new text' > changed
    rm removed
    mkdir -p new/deep
    printf contents > new/f
    printf '' > new/empty
    head -c 300000 /dev/zero | tr '\\0' x > new/deep/large
    ln new/f new/deep/hard
    ln -s ../changed new/link
    mkfifo new/pipe
    mv moved/one new/one
    mv moved/sub new/deep/sub
    mv a tmp; mv b a; mv tmp b
    chmod 640 new/f
    find . ! -type d -exec touch -h -d '2020-02-02 02:02:02.123456789' {} +
";

fn before(stage: &Stage, name: &str) {
    let make = "
        mkdir -p moved/sub
        printf old > changed; printf old > removed; printf stays > stays
        printf 1 > moved/one; printf 2 > moved/sub/two
        printf A > a; printf B > b
    ";
    let dir = stage.path(name);
    fs::create_dir_all(&dir).unwrap();
    let made = Command::new("sh")
        .args(["-c", make])
        .current_dir(&dir)
        .status();
    assert!(made.unwrap().success());
}

fn work(stage: &Stage) {
    before(stage, "pfs");
    stage
        .say(&[
            "run",
            "--buffer",
            "pfs",
            "--no-drain",
            "--",
            "sh",
            "-c",
            WORK,
            "sh",
            "pfs",
        ])
        .ends_with(0);
}

/// The tree that the program makes without a buffer.
fn native(stage: &Stage) -> std::collections::BTreeMap<String, String> {
    before(stage, "native");
    let mut command = stage.command("sh");
    command.args(["-c", WORK, "sh", "native"]);
    finish(command).ends_with(0);
    tree(&stage.path("native"))
}

#[test]
fn a_drain_makes_the_pfs_what_a_native_run_would_have_made_it() {
    let stage = Stage::new();
    work(&stage);
    stage
        .say(&["drain", "--buffer", "pfs"])
        .ends_with(0)
        .prints("synced and verified");
    assert_eq!(tree(&stage.pfs()), native(&stage));
    // A second drain finds nothing to do.
    stage
        .say(&["drain", "--buffer", "pfs"])
        .ends_with(0)
        .prints("drained 0 files, 0 B");
    assert!(stage.bridges().is_empty());
}

#[test]
fn a_bridge_killed_at_any_point_of_a_drain_leaves_nothing_that_the_next_drain_does_not_mend() {
    let stage = Stage::new();
    let expected = native(&stage);
    let mut killed = 0;
    loop {
        let _ = fs::remove_dir_all(stage.pfs());
        stage.clear_storage();
        work(&stage);
        let mut command = stage.forebay(&["drain", "--buffer", "pfs", "--drain-workers", "1"]);
        command.env("FOREBAY_TEST_ABORT_DRAIN_AT", killed.to_string());
        let said = finish(command);
        if said.code == 0 {
            break;
        }
        assert_eq!(said.code, 1, "{said:?}");
        // After each killed drain, programs see the same tree.
        if killed % 8 == 0 {
            let said = stage
                .script(
                    &["--no-drain"],
                    "cat pfs/new/one pfs/a pfs/new/deep/sub/two",
                )
                .ends_with(0);
            assert_eq!(said.out, "1B2", "killed at {killed}");
        }
        stage.say(&["drain", "--buffer", "pfs"]).ends_with(0);
        assert_eq!(tree(&stage.pfs()), expected, "killed at {killed}");
        killed += 1;
    }
    assert!(killed > 30, "only {killed} points");
}

#[test]
fn the_json_form_has_counters_and_what_is_left() {
    let stage = Stage::new();
    stage
        .script(&["--no-drain"], "echo 1 > pfs/f; echo 2 > pfs/g")
        .ends_with(0);
    fs::write(stage.path("pfs/g"), "not ours").unwrap();
    let said = stage
        .say(&["drain", "--buffer", "pfs", "--json"])
        .ends_with(75);
    let report: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(report["complete"], false);
    assert_eq!(report["counters"]["files_drained"], 1);
    // Both were copied, and one got its name.
    assert_eq!(report["counters"]["bytes_done"], 4);
    assert_eq!(report["counters"]["bytes_drained"], 2);
    assert_eq!(report["left"][0]["path"], "g");
    assert_eq!(report["left"][0]["reason"], "taken");
    assert_eq!(report["left"].as_array().unwrap().len(), 1);
}

#[test]
fn where_nothing_was_buffered_there_is_nothing_to_drain() {
    let stage = Stage::new();
    stage
        .say(&["drain", "--buffer", "pfs"])
        .ends_with(1)
        .tells("holds nothing for ")
        .tells("--storage DIR");
}

#[test]
fn a_pfs_directory_without_permission_is_named_and_its_files_follow_later() {
    forebay_testkit::skip_unless!(
        forebay_testkit::is_root(),
        "only root may become another user"
    );
    let stage = Stage::new();
    for dir in ["pfs", "run", "home", "pfs/locked", "storage"] {
        fs::create_dir_all(stage.path(dir)).unwrap();
        std::os::unix::fs::chown(stage.path(dir), Some(65534), Some(65534)).unwrap();
    }
    std::os::unix::fs::chown(&stage.dir, Some(65534), Some(65534)).unwrap();
    // Another user may not be able to reach the folder of the build.
    for (from, to) in [
        (common::forebay(), "forebay"),
        (common::preload(), "preload.so"),
        (common::recorder(), "record.so"),
    ] {
        fs::copy(from, stage.path(to)).unwrap();
        fs::set_permissions(stage.path(to), fs::Permissions::from_mode(0o755)).unwrap();
    }
    let as_nobody = |arguments: &[&str]| {
        let mut command = stage.command("setpriv");
        command
            .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
            .arg(stage.path("forebay"))
            .args(arguments)
            .env("FOREBAY_PRELOAD", stage.path("preload.so"))
            .env("FOREBAY_RECORDER", stage.path("record.so"));
        finish(command)
    };
    // It belongs to somebody else, who takes the permission of the group away.
    let locked = stage.path("pfs/locked");
    std::os::unix::fs::chown(&locked, Some(0), Some(65534)).unwrap();
    let chmod = |mode| fs::set_permissions(&locked, fs::Permissions::from_mode(mode)).unwrap();
    chmod(0o775);
    let script = "echo 1 > pfs/locked/f; echo 2 > pfs/g";
    as_nobody(&[
        "run",
        "--no-drain",
        "--buffer",
        "pfs",
        "--",
        "sh",
        "-c",
        script,
    ])
    .ends_with(0);
    chmod(0o755);
    as_nobody(&["drain", "--buffer", "pfs"])
        .ends_with(75)
        .tells("locked/f: create: Permission denied");
    assert!(stage.path("pfs/g").exists());
    chmod(0o775);
    as_nobody(&["drain", "--buffer", "pfs"]).ends_with(0);
    assert_eq!(fs::read_to_string(locked.join("f")).unwrap(), "1\n");
}

#[test]
fn a_folder_that_may_not_be_looked_into_is_not_taken_for_one_without_a_buffer() {
    forebay_testkit::skip_unless!(forebay_testkit::is_root(), "only root can give up rights");
    let stage = Stage::new();
    stage.script(&["--no-drain"], "echo 1 > pfs/f").ends_with(0);
    let mut instances = fs::read_dir(stage.path("storage")).unwrap();
    let instance = instances.next().unwrap().unwrap().path();
    let closed = |mode| fs::set_permissions(&instance, fs::Permissions::from_mode(mode)).unwrap();
    let fsck = || {
        let mut command = stage.command("setpriv");
        let rights = "-dac_override,-dac_read_search";
        command
            .arg(format!("--bounding-set={rights}"))
            .arg(format!("--inh-caps={rights}"))
            .arg(common::forebay())
            .args(["fsck", "--storage", "storage"]);
        finish(command)
    };
    closed(0);
    let said = fsck();
    closed(0o700);
    said.ends_with(1).tells("is closed to you");
    fsck().ends_with(0).prints("nothing wrong");
}

#[test]
fn lost_tables_are_rebuilt_and_then_drained() {
    let stage = Stage::new();
    work(&stage);
    let expected = native(&stage);
    let storage = stage.path("storage");
    let instance = fs::read_dir(&storage)
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    fs::remove_dir_all(instance.join("meta")).unwrap();
    stage
        .say(&["fsck", "--storage", "storage"])
        .ends_with(1)
        .prints("has lost its tables");
    stage
        .say(&["fsck", "--storage", "storage", "--rebuild"])
        .ends_with(0)
        .prints("rebuilt from the objects");
    stage
        .say(&["fsck", "--storage", instance.to_str().unwrap()])
        .ends_with(0)
        .prints("nothing wrong");
    stage.say(&["drain", "--buffer", "pfs"]).ends_with(0);
    assert_eq!(tree(&stage.pfs()), expected);
}

#[test]
fn a_run_and_a_drain_over_lost_tables_name_the_command_that_makes_them_anew() {
    let stage = Stage::new();
    work(&stage);
    let expected = native(&stage);
    let mut instances = fs::read_dir(stage.path("storage")).unwrap();
    let instance = instances.next().unwrap().unwrap().path();
    fs::remove_dir_all(instance.join("meta")).unwrap();
    let instance = instance.canonicalize().unwrap();
    let picture = || {
        let mut kept = tree(&instance);
        // It tells of each start that was refused.
        kept.remove("bridge.log");
        (tree(&stage.pfs()), kept)
    };
    let before = picture();
    let hint = format!("forebay fsck --rebuild --storage {}\n", instance.display());
    let buffer = ["--buffer", "pfs"];
    for (verb, code) in [("up", 1), ("run", 125), ("drain", 1)] {
        let mut command = stage.forebay(&[verb]);
        command.args(buffer);
        if verb == "run" {
            command.args(["--", "touch", "ran"]);
        }
        finish(command)
            .ends_with(code)
            .tells("has lost its tables")
            .tells(&hint);
    }
    assert!(!stage.path("ran").exists());
    assert!(picture() == before, "something was touched");
    let (_, command) = hint.trim().split_once(' ').unwrap();
    let words: Vec<&str> = command.split(' ').collect();
    stage.say(&words).ends_with(0);
    stage.say(&["drain", "--buffer", "pfs"]).ends_with(0);
    assert_eq!(tree(&stage.pfs()), expected);
}

#[test]
fn a_check_of_a_bridge_that_runs_is_refused() {
    let stage = Stage::new();
    stage.say(&["up", "--buffer", "pfs"]).ends_with(0);
    stage
        .say(&["fsck", "--storage", "storage"])
        .ends_with(1)
        .prints("another bridge is using");
    stage.say(&["down", "--buffer", "pfs"]).ends_with(0);
    let said = stage
        .say(&["fsck", "--storage", "storage", "--json"])
        .ends_with(0);
    let report: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(report[0]["sound"], true);
}

#[test]
fn a_run_that_ends_during_somebody_elses_drain_is_drained_all_the_same() {
    let stage = Stage::new();
    stage.say(&["up", "--buffer", "pfs"]).ends_with(0);
    stage
        .script(&["--no-drain"], "head -c 3000000 /dev/zero > pfs/large")
        .ends_with(0);
    let slow = ["drain", "--buffer", "pfs", "--drain-rate", "1M"];
    let drain = start(stage.forebay(&slow));
    stage.wait_for("a copy on the PFS", || {
        stage
            .on_pfs()
            .keys()
            .any(|name| name.starts_with(".forebay-"))
    });
    // The drain has been through the names already.
    stage.script(&[], "echo new > pfs/new").ends_with(0);
    assert_eq!(stage.on_pfs()["new"], "new\n");
    wait(drain);
    stage.say(&["down", "--buffer", "pfs"]).ends_with(0);
}

#[test]
fn what_is_left_is_listed_whoever_else_begins_a_drain() {
    let stage = Stage::new();
    stage.say(&["up", "--buffer", "pfs"]).ends_with(0);
    stage
        .script(&["--no-drain"], "echo ours > pfs/f")
        .ends_with(0);
    fs::write(stage.path("pfs/f"), "not ours").unwrap();
    for _ in 0..30 {
        let drains: Vec<_> = (0..4)
            .map(|_| start(stage.forebay(&["drain", "--buffer", "pfs"])))
            .collect();
        for drain in drains {
            wait(drain)
                .ends_with(75)
                .tells("f: something else has appeared there on the PFS");
        }
    }
    stage
        .say(&["down", "--buffer", "pfs", "--no-drain"])
        .ends_with(0);
}

/// Does the process of this `/proc/PID/status` handle SIGINT itself?
pub fn catches_interrupts(status: &str) -> bool {
    let status = fs::read_to_string(status).unwrap();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = u64::from_str_radix(caught.unwrap().trim(), 16).unwrap();
    caught & (1 << (libc::SIGINT - 1)) != 0
}

#[test]
fn a_signal_to_a_command_that_waits_for_the_drain_of_another_ends_the_wait_and_not_the_drain() {
    let stage = Stage::new();
    stage.say(&["up", "--buffer", "pfs"]).ends_with(0);
    let script = "for i in $(seq 100); do head -c 10000 /dev/zero > pfs/f$i; done";
    stage.script(&["--no-drain"], script).ends_with(0);
    // It would take long enough for anything.
    let slow = ["drain", "--buffer", "pfs", "--drain-rate", "20K"];
    let first = start(stage.forebay(&slow));
    let copies = |b: &Value| b["drain"]["state"] == "running" && b["drain"]["bytes_done"] != 0;
    stage.wait_for("the first copied bytes", || {
        stage.bridges().iter().any(copies)
    });
    for take in [&["--take", "ours", "f1"][..], &[]] {
        let mut second = start(stage.forebay(&[&["drain", "--buffer", "pfs"], take].concat()));
        let status = format!("/proc/{}/status", second.id());
        // One that came before it is ready would end it at once, or not count.
        stage.wait_for("a handler of SIGINT", || catches_interrupts(&status));
        stage.wait_for("its end", || {
            kill("INT", second.id());
            second.try_wait().unwrap().is_some()
        });
        let ended = wait(second).ends_with(75);
        let ended =
            ended.tells("interrupted: the drain of another command is at work, and goes on");
        if !take.is_empty() {
            ended.tells("not taken: f1: interrupted before it was tried");
        }
    }
    let down = stage.say(&["down", "--buffer", "pfs"]).ends_with(1);
    down.tells(&format!("a drain (process {}) is at work", first.id()));
    kill("INT", first.id());
    wait(first).ends_with(75).tells("left in the buffer");
    stage.say(&["drain", "--buffer", "pfs"]).ends_with(0);
    assert_eq!(stage.on_pfs().len(), 100);
    stage.say(&["down", "--buffer", "pfs"]).ends_with(0);
}

#[test]
fn one_signal_stops_a_drain_whenever_it_comes() {
    let stage = Stage::new();
    let script = "head -c 800000 /dev/zero > pfs/big; echo ours > pfs/f";
    stage.script(&["--no-drain"], script).ends_with(0);
    fs::write(stage.pfs().join("f"), "theirs\n").unwrap();
    // At the first moment at which it does not end the command at once: before there is a bridge.
    let slow = ["drain", "--buffer", "pfs", "--drain-rate", "2K"];
    let drain = start(stage.forebay(&[&slow[..], &["--take", "ours", "f"]].concat()));
    let status = format!("/proc/{}/status", drain.id());
    stage.wait_for("a handler of SIGINT", || catches_interrupts(&status));
    kill("INT", drain.id());
    let ended = wait(drain).ends_with(75).tells("left in the buffer");
    let is_taken = fs::read(stage.pfs().join("f")).unwrap() == b"ours\n";
    if !is_taken {
        ended.tells("not taken: f: interrupted before it was tried");
    }
    stage.say(&["drain", "--buffer", "pfs", "--take", "ours", "f"]);
    assert_eq!(fs::read(stage.pfs().join("f")).unwrap(), b"ours\n");
    assert!(stage.pfs().join("big").exists());
}

#[test]
fn fifos_devices_and_links_keep_their_xattrs_and_rights() {
    let stage = Stage::new();
    let natively = |script: &str| {
        let mut shell = stage.command("sh");
        shell.args(["-c", script]);
        finish(shell)
    };
    // A link and a device may have what only root sees.
    let roots = "mknod pfs/dev c 1 3; setfattr -n trusted.a -v 1 pfs/dev
        ln -s to pfs/link; setfattr -h -n trusted.a -v 1 pfs/link
        getfattr -hdm- pfs/dev pfs/link";
    let is_root = natively(&format!("{roots}; rm -f pfs/*")).code == 0;
    let make = "mkfifo -m 600 pfs/pipe; setfacl -m u:77:rw pfs/pipe";
    let shown = "getfacl -ncp pfs/*; getfattr -hdm trusted pfs/*; stat -c '%n %A' pfs/*";
    let all = match is_root {
        true => format!("{make}; {roots} > /dev/null"),
        false => make.to_owned(),
    };
    let native = natively(&format!("{all}; {shown}; rm pfs/*")).out;
    assert!(
        native.contains("user:77:rw-\ngroup::---\nmask::rw-"),
        "{native}"
    );
    assert_eq!(
        native.matches("trusted.a").count(),
        2 * usize::from(is_root)
    );
    stage.script(&[], &all).ends_with(0);
    assert_eq!(natively(shown).out, native);
}

/// What others leave of the storage: no byte, or no file that could be made.
#[test]
fn a_storage_that_others_have_filled_is_drained_by_the_next_bridge() {
    type Fill = fn(&Path);
    let fill: [(&str, Fill); 2] = [
        ("bytes", |dir| {
            let mut file = fs::File::create(dir.join("ballast")).unwrap();
            for piece in [1 << 20, 4096] {
                let bytes = vec![1; piece];
                while file.write(&bytes).is_ok_and(|n| n > 0) {}
            }
        }),
        ("names", |dir| {
            let mut names = (0..).map(|n| dir.join(format!("ballast{n}")));
            while fs::File::create(names.next().unwrap()).is_ok() {}
        }),
    ];
    for (what, fill) in fill {
        let stage = Stage::without_storage();
        let options = "size=200m,nr_inodes=3000";
        let Some(disk) = SmallDisk::new(stage.path("storage"), options) else {
            return forebay_testkit::skip("only root can mount a small disk");
        };
        let work = "cd pfs; mkdir d; for n in $(seq 100); do echo $n > d/$n; done";
        stage.script(&["--no-drain"], work).ends_with(0);
        fill(disk.path());
        let refused = stage
            .script(&["--no-drain"], "echo > pfs/new; cat pfs/d/7 && exit 3")
            .ends_with(3);
        assert!(refused.err.contains("No space left"), "{what}");
        assert_eq!(refused.out, "7\n", "{what}");
        stage.say(&["drain", "--buffer", "pfs"]).ends_with(0);
        assert_eq!(fs::read_dir(stage.path("pfs/d")).unwrap().count(), 100);
        assert_eq!(fs::read(stage.path("pfs/d/100")).unwrap(), b"100\n");
    }
}

/// Writes to a page of a mapping that it has read before: on tmpfs that changes no time of the file.
const MAPPED: &str = "
import mmap
with open('f', 'r+b') as file:
    page = mmap.mmap(file.fileno(), 0)
    first = page[:1]
    page[:6] = b'mapped'
    page.close()
";

#[test]
fn what_is_written_through_a_mapping_to_a_copy_that_was_drained_arrives() {
    let in_memory = tempfile::tempdir_in("/dev/shm").expect("/dev/shm takes directories");
    for storage in [Some(in_memory.path().join("storage")), None] {
        let stage = Stage::new();
        let storage = storage.unwrap_or_else(|| stage.path("other"));
        let run = |command: &[&str]| {
            let mut run = stage.forebay(&["run", "--buffer", "pfs", "--keep", "--storage"]);
            run.arg(&storage).arg("--").args(command);
            finish(run)
        };
        run(&["sh", "-c", "echo before > pfs/f"]).ends_with(0);
        let mapped = format!("import os; os.chdir('pfs')\n{MAPPED}");
        let said = run(&["python3", "-c", &mapped]).ends_with(0);
        said.tells(" 1 file, 7 B");
        assert_eq!(fs::read_to_string(stage.path("pfs/f")).unwrap(), "mapped\n");
        // A reader changes nothing.
        run(&["cat", "pfs/f"]).ends_with(0).tells(" 0 files");
    }
}

#[test]
fn what_was_drained_leaves_the_storage_although_the_bridge_stays() {
    let stage = Stage::new();
    let pfs = stage.pfs();
    fs::create_dir_all(pfs.join("d")).unwrap();
    fs::write(pfs.join("d/old"), "old\n").unwrap();
    stage.say(&["up", "--buffer", "pfs"]).ends_with(0);
    let script = "echo new > pfs/new; rm -r pfs/d; mv pfs/f pfs/g";
    fs::write(pfs.join("f"), "f\n").unwrap();
    stage.script(&["--no-drain"], script).ends_with(0);
    stage.say(&["drain", "--buffer", "pfs"]).ends_with(0);
    // Nobody changes anything any more, and the space comes back all the same.
    stage.wait_for("the end of the backing files", || {
        let mut find = stage.command("find");
        find.args(["storage", "-path", "*/obj/*", "-type", "f"]);
        finish(find).out.is_empty()
    });
    stage.say(&["down", "--buffer", "pfs"]).ends_with(0);
}

#[test]
fn what_is_replaced_or_renamed_is_no_removal() {
    let stage = Stage::new();
    for name in ["appended", "renamed", "replaced", "removed"] {
        fs::write(stage.pfs().join(name), "old\n").unwrap();
    }
    stage.say(&["up", "--buffer", "pfs"]).ends_with(0);
    let script =
        "cd pfs; echo x >> appended; mv renamed new; echo y > z; mv z replaced; rm removed";
    stage.script(&["--no-drain"], script).ends_with(0);
    let status = stage.say(&["status", "--buffer", "pfs"]);
    status.ends_with(0).prints("1 to rename, 1 to remove");
    stage.say(&["down", "--buffer", "pfs"]).ends_with(0);
}
