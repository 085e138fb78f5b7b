//! One directory of the PFS has one buffer at a time, whoever asks, from wherever, by whatever path.

use crate::stage::{Said, SmallDisk, Stage, finish, kill, wait_dead};
use forebay_core::claim::Claim;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

const LOCK: &str = ".forebay-lock";

/// `forebay run` with another storage, and with sockets elsewhere: nothing of the other buffer is found that way.
fn from_elsewhere(stage: &Stage, buffer: &Path, options: &[&str]) -> Said {
    fs::create_dir_all(stage.path("run2")).unwrap();
    let mut command = stage.command(crate::common::forebay());
    command
        .env("XDG_RUNTIME_DIR", stage.path("run2"))
        .env("FOREBAY_STORAGE", stage.path("storage2"))
        .args(["run", "--buffer"])
        .arg(buffer)
        .args(options)
        .args(["--", "true"]);
    finish(command)
}

fn lock_of(dir: &Path) -> Option<PathBuf> {
    fs::read_link(dir.join(LOCK)).ok()
}

/// Leaves a file in the buffer over `pfs`, and no bridge.
fn undrained(stage: &Stage) {
    stage.script(&["--no-drain"], "echo 1 > pfs/f").ends_with(0);
    assert!(lock_of(&stage.pfs()).is_some());
}

struct Mounted(PathBuf);

impl Mounted {
    fn bind(from: &Path, at: &Path) -> Mounted {
        fs::create_dir_all(at).unwrap();
        let mut mount = Command::new("mount");
        let status = mount.arg("--bind").args([from, at]).status().unwrap();
        assert!(status.success());
        Mounted(at.to_owned())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_second_buffer_is_refused_while_the_first_runs_by_each_path() {
    let stage = Stage::new();
    stage.say(&["up", "--buffer", "pfs"]).ends_with(0);
    symlink("pfs", stage.path("link")).unwrap();
    let mut paths = vec![stage.pfs(), stage.path("link")];
    let mut mounts = Vec::new();
    if forebay_testkit::is_root() {
        mounts.push(Mounted::bind(&stage.pfs(), &stage.path("bound")));
        paths.push(stage.path("bound"));
    } else {
        forebay_testkit::skip("only root can bind mounts");
    }
    let pid = stage.bridge_pid();
    for path in &paths {
        from_elsewhere(&stage, path, &[])
            .ends_with(125)
            .tells("another buffer has ")
            .tells(&format!("process {pid}"))
            .tells("that bridge runs")
            .tells("forebay down --buffer");
    }
    stage.say(&["down", "--buffer", "pfs"]).ends_with(0);
    assert_eq!(lock_of(&stage.pfs()), None);
    for path in &paths {
        from_elsewhere(&stage, path, &[]).ends_with(0);
    }
}

#[test]
fn buffers_that_lie_in_each_other_are_refused_in_both_orders_and_by_each_path() {
    let stage = Stage::new();
    fs::create_dir_all(stage.path("pfs/a/b")).unwrap();
    fs::create_dir_all(stage.path("pfs/beside")).unwrap();
    stage.say(&["up", "--buffer", "pfs/a"]).ends_with(0);
    let mut above = vec![stage.pfs()];
    let mut below = vec![stage.path("pfs/a/b")];
    let mut mounts = Vec::new();
    if forebay_testkit::is_root() {
        mounts.push(Mounted::bind(&stage.pfs(), &stage.path("bound")));
        mounts.push(Mounted::bind(&stage.path("pfs/a/b"), &stage.path("deep")));
        above.push(stage.path("bound"));
        below.push(stage.path("deep"));
    } else {
        forebay_testkit::skip("only root can bind mounts");
    }
    for path in &below {
        from_elsewhere(&stage, path, &[])
            .ends_with(125)
            .tells(" lies in ")
            .tells("which another buffer has");
        assert_eq!(lock_of(path), None);
    }
    for path in &above {
        from_elsewhere(&stage, path, &[])
            .ends_with(125)
            .tells("pfs/a, which another buffer has");
        assert_eq!(lock_of(path), None);
    }
    from_elsewhere(&stage, &stage.path("pfs/beside"), &[]).ends_with(0);
    stage.say(&["down", "--buffer", "pfs/a"]).ends_with(0);
    for path in above.iter().chain(&below) {
        from_elsewhere(&stage, path, &[]).ends_with(0);
    }
}

#[test]
fn what_is_not_drained_keeps_the_directory_until_it_is() {
    let stage = Stage::new();
    undrained(&stage);
    let storage = stage.path("storage").display().to_string();
    from_elsewhere(&stage, &stage.pfs(), &[])
        .ends_with(125)
        .tells("its storage holds files that may not be drained")
        .tells(&format!("--storage {storage}"))
        .tells("forebay drain --buffer");
    // One over a directory above, with the same storage: that knows of all its buffers.
    stage
        .say(&["run", "--buffer", ".", "--storage", &storage, "--", "true"])
        .ends_with(125);
    stage.say(&["drain", "--buffer", "pfs"]).ends_with(0);
    assert_eq!(lock_of(&stage.pfs()), None);
    from_elsewhere(&stage, &stage.pfs(), &[]).ends_with(0);
    // Copies that are kept belong to the directory, too.
    stage.script(&["--keep"], "echo 2 > pfs/g").ends_with(0);
    from_elsewhere(&stage, &stage.pfs(), &[]).ends_with(125);
}

#[test]
fn the_lock_of_a_killed_bridge_is_no_hindrance_where_nothing_can_be_lost() {
    let stage = Stage::new();
    let killed = |stage: &Stage| {
        let pid = stage.bridge_pid();
        kill("KILL", pid);
        wait_dead(pid);
        assert!(lock_of(&stage.pfs()).is_some());
    };
    stage.say(&["up", "--buffer", "pfs"]).ends_with(0);
    killed(&stage);
    from_elsewhere(&stage, &stage.pfs(), &[])
        .ends_with(0)
        .tells("took over the lock of")
        .tells("its storage holds nothing");
    assert_eq!(lock_of(&stage.pfs()), None);
    // With something in it only the same storage may go on, and it does so without a word.
    stage.say(&["up", "--buffer", "pfs"]).ends_with(0);
    stage.script(&["--no-drain"], "echo 1 > pfs/f").ends_with(0);
    killed(&stage);
    from_elsewhere(&stage, &stage.pfs(), &[]).ends_with(125);
    let said = stage.say(&["drain", "--buffer", "pfs"]).ends_with(0);
    assert!(!said.err.contains("lock"), "{}", said.err);
    assert_eq!(stage.on_pfs()["f"], "1\n");
    assert_eq!(lock_of(&stage.pfs()), None);
    // A storage that is not there may be one that is not mounted.
    undrained(&stage);
    let away = stage.path("storage-away");
    fs::rename(stage.path("storage"), &away).unwrap();
    from_elsewhere(&stage, &stage.pfs(), &[])
        .ends_with(125)
        .tells("it may be gone, moved, or not mounted");
    fs::rename(&away, stage.path("storage")).unwrap();
    stage.say(&["drain", "--buffer", "pfs"]).ends_with(0);
}

#[test]
fn what_a_killed_bridge_has_left_of_its_lock_goes_with_the_next() {
    let stage = Stage::new();
    undrained(&stage);
    let lock = stage.pfs().join(LOCK);
    let text = fs::read_link(&lock).unwrap();
    let aside = Claim::name_aside(text.as_os_str().as_bytes());
    let aside = stage.pfs().join(std::ffi::OsStr::from_bytes(&aside));
    // It died after the rename, and before it removed that.
    fs::rename(&lock, &aside).unwrap();
    let of_others = stage.pfs().join(".forebay-lock-0123456789abcdef");
    symlink("forebay-1 uid=0", &of_others).unwrap();
    stage.say(&["drain", "--buffer", "pfs"]).ends_with(0);
    assert!(!aside.is_symlink());
    assert!(!lock.is_symlink());
    assert!(of_others.is_symlink());
    assert_eq!(fs::read_to_string(stage.pfs().join("f")).unwrap(), "1\n");
}

#[test]
fn a_lock_of_another_node_is_never_taken_over_but_by_hand() {
    let stage = Stage::new();
    undrained(&stage);
    let text = lock_of(&stage.pfs()).unwrap();
    let text = text.to_str().unwrap();
    let host = |word: &&str| word.starts_with("host=");
    let ours = text.split(' ').find(host).unwrap();
    let theirs = text.replace(ours, "host=node99");
    let put = |text: &str| {
        let _ = fs::remove_file(stage.pfs().join(LOCK));
        symlink(text, stage.pfs().join(LOCK)).unwrap();
    };
    put(&theirs);
    // Not even for the storage with that very path: it is that of another node.
    for said in [
        from_elsewhere(&stage, &stage.pfs(), &[]),
        stage.script(&[], "true"),
    ] {
        said.ends_with(125)
            .tells("host node99")
            .tells("on host node99 run: forebay drain")
            .tells("forebay unlock --buffer");
    }
    put("what is this");
    stage
        .script(&[], "true")
        .ends_with(125)
        .tells("can't be read");
    put(&theirs);
    stage
        .say(&["unlock", "--buffer", "pfs"])
        .ends_with(0)
        .prints("host node99");
    stage
        .say(&["unlock", "--buffer", "pfs"])
        .prints("has no lock");
    stage.script(&[], "true").ends_with(0);
    // After a reboot the same storage goes on.
    undrained(&stage);
    let boot = |word: &&str| word.starts_with("boot=");
    put(&text.replace(text.split(' ').find(boot).unwrap(), "boot=before"));
    stage.say(&["drain", "--buffer", "pfs"]).ends_with(0);
    assert_eq!(lock_of(&stage.pfs()), None);
}

#[test]
fn a_buffer_that_has_lost_its_lock_changes_nothing_any_more() {
    let stage = Stage::new();
    stage.say(&["up", "--buffer", "pfs"]).ends_with(0);
    stage
        .say(&["unlock", "--buffer", "pfs"])
        .ends_with(1)
        .tells("that bridge runs");
    stage.script(&["--no-drain"], "echo 1 > pfs/f").ends_with(0);
    let lock = stage.pfs().join(LOCK);
    let text = lock_of(&stage.pfs()).unwrap();
    fs::remove_file(&lock).unwrap();
    let theirs = text.to_str().unwrap().replace("host=", "host=other-");
    symlink(&theirs, &lock).unwrap();
    stage
        .say(&["drain", "--buffer", "pfs"])
        .ends_with(75)
        .tells("another buffer has ");
    assert!(!stage.pfs().join("f").exists());
    // Gone without another one in its place: it is made anew.
    fs::remove_file(&lock).unwrap();
    stage.say(&["drain", "--buffer", "pfs"]).ends_with(0);
    assert_eq!(lock_of(&stage.pfs()), Some(text));
    stage.say(&["down", "--buffer", "pfs"]).ends_with(0);
    assert_eq!(lock_of(&stage.pfs()), None);
}

#[test]
fn programs_do_not_see_the_lock_and_copies_of_the_directory_are_free() {
    let stage = Stage::new();
    fs::write(stage.path("pfs/f"), "old").unwrap();
    let before = fs::metadata(stage.pfs()).unwrap().modified().unwrap();
    stage
        .script(
            &["--no-drain"],
            "ls -A pfs; test ! -e pfs/.forebay-lock -a ! -L pfs/.forebay-lock && echo hidden; touch pfs/.forebay-lock || echo refused",
        )
        .ends_with(0)
        .prints("f\nhidden\nrefused");
    undrained(&stage);
    let mut copy = Command::new("cp");
    copy.arg("-a").arg(stage.pfs()).arg(stage.path("copy"));
    assert!(copy.status().unwrap().success());
    assert!(lock_of(&stage.path("copy")).is_some());
    from_elsewhere(&stage, &stage.path("copy"), &[])
        .ends_with(0)
        .tells("it came with a copy of another directory");
    assert_eq!(lock_of(&stage.path("copy")), None);
    // Neither the lock nor its removal shows in the times of the directory.
    let now = fs::metadata(stage.pfs()).unwrap().modified().unwrap();
    assert_eq!(now, before);
}

#[test]
fn storage_inside_the_buffer_is_refused_by_each_path() {
    forebay_testkit::skip_unless!(forebay_testkit::is_root(), "only root can bind mounts");
    let stage = Stage::new();
    fs::create_dir_all(stage.path("pfs/in")).unwrap();
    let _mounted = Mounted::bind(&stage.path("pfs/in"), &stage.path("bound"));
    stage
        .say(&[
            "run",
            "--buffer",
            "pfs",
            "--storage",
            "bound/s",
            "--",
            "true",
        ])
        .ends_with(125)
        .tells("lies inside the buffer");
}

#[test]
fn a_directory_that_can_not_be_locked_is_buffered_and_the_user_is_told() {
    forebay_testkit::skip_unless!(forebay_testkit::is_root(), "only root can be several users");
    let stage = Stage::new();
    fs::write(stage.path("pfs/f"), "read me").unwrap();
    let theirs = stage.path("theirs");
    for dir in [
        stage.path("home"),
        stage.path("run"),
        theirs.clone(),
        stage.path("logs"),
        stage.path("tables"),
    ] {
        fs::create_dir_all(&dir).unwrap();
        std::os::unix::fs::chown(&dir, Some(65534), Some(65534)).unwrap();
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o700)).unwrap();
    }
    let mut command = stage.command("setpriv");
    command
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(crate::common::forebay())
        .env("FOREBAY_STORAGE", &theirs)
        .args(["run", "--buffer", "pfs", "--", "cat", "pfs/f"]);
    finish(command)
        .ends_with(0)
        .tells("can't be locked")
        .prints("read me");
}

#[test]
fn a_pfs_that_is_read_only_now_is_read_and_what_is_left_is_listed() {
    let stage = Stage::new();
    fs::remove_dir(stage.pfs()).unwrap();
    let Some(pfs) = SmallDisk::new(stage.pfs(), "size=1m") else {
        return forebay_testkit::skip("only root can mount a small disk");
    };
    let remount = |how: &str| {
        let mut mount = Command::new("mount");
        let status = mount
            .args(["-o", &format!("remount,{how}")])
            .arg(pfs.path());
        assert!(status.status().unwrap().success(), "{how}");
    };
    fs::write(stage.path("pfs/f"), "read me").unwrap();
    let work = "echo ours > pfs/new; mkdir pfs/d";
    stage.script(&["--no-drain"], work).ends_with(0);
    remount("ro");
    stage
        .script(&["--no-drain"], "cat pfs/f pfs/new; echo more >> pfs/new")
        .ends_with(0)
        .prints("read meours")
        .tells("can't be renewed");
    stage
        .say(&["drain", "--buffer", "pfs"])
        .ends_with(75)
        .tells("new: ")
        .tells("Read-only file system");
    // The lock still counts.
    from_elsewhere(&stage, &stage.pfs(), &[])
        .ends_with(125)
        .tells("its storage holds files that may not be drained");
    remount("rw");
    stage.say(&["drain", "--buffer", "pfs"]).ends_with(0);
    assert_eq!(fs::read(stage.path("pfs/new")).unwrap(), b"ours\nmore\n");
    assert!(fs::symlink_metadata(stage.path("pfs").join(LOCK)).is_err());
}
