//! What is buffered for a directory goes into that directory, and into no other one that has its path: below a mount point, after a
//! rotation, in another container.

use crate::stage::{Said, SmallDisk, Stage, finish, start, wait};
use forebay_testkit::{is_root, skip_unless};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const LOCK: &str = ".forebay-lock";

/// A directory that is mounted at another path, as a PFS is.
struct Bound {
    from: PathBuf,
    at: PathBuf,
}

impl Bound {
    fn new(from: PathBuf, at: PathBuf) -> Bound {
        fs::create_dir_all(&from).unwrap();
        let bound = Bound { from, at };
        bound.mount();
        bound
    }

    fn mount(&self) {
        succeeds(
            Command::new("mount")
                .arg("--bind")
                .args([&self.from, &self.at]),
        );
    }

    fn unmount(&self) {
        succeeds(Command::new("umount").arg(&self.at));
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-lq").arg(&self.at).status();
    }
}

#[track_caller]
fn succeeds(command: &mut Command) {
    assert!(command.status().unwrap().success(), "{command:?}");
}

/// `forebay run` with this script, over `buffer`.
fn run(stage: &Stage, buffer: &str, options: &[&str], script: &str) -> Said {
    let mut command = stage.forebay(&["run", "--buffer", buffer]);
    command.args(options).args(["--", "sh", "-ec", script]);
    finish(command)
}

/// This script in a mount namespace of its own.
fn in_other_namespace(stage: &Stage, script: &str) -> Said {
    let mut command = stage.command("unshare");
    command.args(["-m", "sh", "-ec", script]);
    finish(command)
}

fn has_nothing(dir: &Path) {
    let names: Vec<_> = fs::read_dir(dir).unwrap().collect();
    assert!(names.is_empty(), "{names:?}");
}

fn refuses(said: Said, code: i32) {
    said.ends_with(code)
        .tells("holds files for the directory that was")
        .tells("is the PFS mounted?")
        .tells("--root-has-moved");
}

#[test]
fn what_is_not_drained_stays_in_the_buffer_while_the_pfs_is_not_mounted() {
    skip_unless!(is_root(), "only root can mount");
    // A directory in the PFS, which a job script makes, and the mount point itself.
    for buffer in ["pfs/b", "pfs"] {
        let stage = Stage::new();
        let pfs = Bound::new(stage.path("real"), stage.pfs());
        fs::create_dir_all(stage.path(buffer)).unwrap();
        run(
            &stage,
            buffer,
            &["--no-drain"],
            &format!("echo 1 > {buffer}/f"),
        )
        .ends_with(0);
        pfs.unmount();
        fs::create_dir_all(stage.path(buffer)).unwrap();
        refuses(stage.say(&["drain", "--buffer", buffer]), 1);
        refuses(run(&stage, buffer, &[], "true"), 125);
        refuses(stage.say(&["up", "--buffer", buffer]), 1);
        let storage = stage.path("storage").display().to_string();
        stage
            .say(&["fsck", "--storage", &storage])
            .ends_with(0)
            .prints("only the storage was looked at");
        // Not even a lock, by which the next drain would take it for the right one.
        has_nothing(&stage.path(buffer));
        pfs.mount();
        stage.say(&["drain", "--buffer", buffer]).ends_with(0);
        let drained = fs::read_to_string(stage.path(buffer).join("f"));
        assert_eq!(drained.unwrap(), "1\n", "{buffer}");
    }
}

#[test]
fn of_a_pfs_that_is_unmounted_while_it_is_buffered_the_report_does_not_say_that_others_have_renamed_it()
 {
    skip_unless!(is_root(), "only root can mount");
    let stage = Stage::new();
    let _pfs = Bound::new(stage.path("real"), stage.pfs());
    let script = "echo data > pfs/f; : > ready; until test -e go; do sleep 0.01; done";
    let run = ["run", "--buffer", "pfs", "--", "sh", "-ec", script];
    let run = start(stage.forebay(&run));
    stage.wait_for_file("ready");
    succeeds(Command::new("umount").arg("-l").arg(stage.pfs()));
    fs::write(stage.path("go"), "").unwrap();
    wait(run).ends_with(0).tells("pfs leads elsewhere now");
    has_nothing(&stage.pfs());
    let drained = fs::read_to_string(stage.path("real/f"));
    assert_eq!(drained.unwrap(), "data\n");
}

#[test]
fn a_file_system_that_was_mounted_again_is_the_same() {
    skip_unless!(is_root(), "only root can mount");
    let stage = Stage::new();
    fs::remove_dir(stage.pfs()).unwrap();
    let Some(disk) = SmallDisk::ext4(stage.pfs(), 16) else {
        return forebay_testkit::skip("no ext4 can be mounted");
    };
    let number = || stage.pfs().metadata().unwrap().dev();
    let before = number();
    run(&stage, "pfs", &["--no-drain"], "echo 1 > pfs/f").ends_with(0);
    let image = disk.path().with_extension("image");
    let unmount = || succeeds(Command::new("umount").arg(disk.path()));
    unmount();
    // Others take its device meanwhile.
    let mut others = Vec::new();
    loop {
        let other = stage.path(&format!("other{}", others.len()));
        others.push(SmallDisk::ext4(other, 16).unwrap());
        let options = ["-o", "loop"];
        succeeds(
            Command::new("mount")
                .args(options)
                .args([&image, disk.path()]),
        );
        if number() != before {
            break;
        }
        unmount();
    }
    stage.say(&["drain", "--buffer", "pfs"]).ends_with(0);
    assert_eq!(stage.on_pfs()["f"], "1\n");
    drop(others);
}

#[test]
fn a_directory_that_was_rotated_is_another_one_until_somebody_says_so() {
    let stage = Stage::new();
    let script = "echo 1 > pfs/f";
    let rotate = || {
        fs::rename(stage.pfs(), stage.path("was")).unwrap();
        fs::create_dir(stage.pfs()).unwrap();
    };
    run(&stage, "pfs", &["--no-drain"], script).ends_with(0);
    rotate();
    refuses(stage.say(&["drain", "--buffer", "pfs"]), 1);
    refuses(run(&stage, "pfs", &[], "true"), 125);
    has_nothing(&stage.pfs());
    // It is moved back.
    fs::remove_dir(stage.pfs()).unwrap();
    fs::rename(stage.path("was"), stage.pfs()).unwrap();
    stage.say(&["drain", "--buffer", "pfs"]).ends_with(0);
    assert_eq!(stage.on_pfs()["f"], "1\n");
    // With nothing in the buffer it may be any.
    rotate();
    run(&stage, "pfs", &["--no-drain"], script).ends_with(0);
    fs::remove_dir_all(stage.path("was")).unwrap();
    rotate();
    // On purpose.
    stage
        .say(&["drain", "--buffer", "pfs", "--root-has-moved"])
        .ends_with(0);
    assert_eq!(stage.on_pfs()["f"], "1\n");
    assert!(!stage.path("was/f").exists());
    // The next ones need not be told.
    run(&stage, "pfs", &["--no-drain"], "echo 2 > pfs/f").ends_with(0);
    stage.say(&["drain", "--buffer", "pfs"]).ends_with(0);
}

#[test]
fn a_tree_that_was_copied_back_with_its_lock_is_the_same() {
    let stage = Stage::new();
    run(&stage, "pfs", &["--no-drain"], "echo 1 > pfs/f").ends_with(0);
    fs::rename(stage.pfs(), stage.path("was")).unwrap();
    succeeds(
        Command::new("cp")
            .arg("-a")
            .args([stage.path("was"), stage.pfs()]),
    );
    run(&stage, "pfs", &["--no-drain"], "cat pfs/f; echo 2 > pfs/g")
        .ends_with(0)
        .prints("1");
    stage.say(&["drain", "--buffer", "pfs"]).ends_with(0);
    assert_eq!(stage.on_pfs().len(), 2);
    assert!(fs::symlink_metadata(stage.pfs().join(LOCK)).is_err());
}

#[test]
fn a_storage_without_a_note_of_its_directory_is_used_and_has_one_then() {
    let stage = Stage::new();
    run(&stage, "pfs", &["--no-drain"], "echo 1 > pfs/f").ends_with(0);
    let mut instances = fs::read_dir(stage.path("storage")).unwrap();
    let note = instances.next().unwrap().unwrap().path().join("root-dir");
    let text = fs::read_to_string(&note).unwrap();
    fs::remove_file(&note).unwrap();
    run(&stage, "pfs", &["--no-drain"], "cat pfs/f")
        .ends_with(0)
        .prints("1");
    assert_eq!(fs::read_to_string(&note).unwrap(), text);
}

#[test]
fn a_bridge_serves_nobody_for_whom_its_path_is_another_directory() {
    skip_unless!(is_root(), "only root can mount");
    let stage = Stage::new();
    stage.say(&["up", "--buffer", "pfs"]).ends_with(0);
    run(&stage, "pfs", &["--no-drain"], "echo one > pfs/f").ends_with(0);
    let forebay = "mount -t tmpfs two pfs; echo two > pfs/which; \"$FOREBAY\"";
    let storage = stage.path("storage").display().to_string();
    for (verb, code) in [
        ("run --buffer pfs -- cat pfs/f", 125),
        ("attach --buffer pfs -- cat pfs/f", 125),
        ("drain --buffer pfs", 1),
        ("down --buffer pfs", 1),
        ("up --buffer pfs", 1),
        ("status --buffer pfs", 1),
    ] {
        let said = in_other_namespace(&stage, &format!("{forebay} {verb}"));
        assert!(!said.out.contains("one"), "{verb}: {}", said.out);
        said.ends_with(code)
            .tells("another container or mount namespace")
            .tells(&storage);
    }
    in_other_namespace(&stage, &format!("{forebay} status"))
        .ends_with(0)
        .prints("this path is another directory than for the bridge");
    // With a storage of its own it has a buffer of its own.
    let own =
        "run --buffer pfs --storage own -- sh -c 'cat pfs/which; echo 2 > pfs/new'; cat pfs/new";
    in_other_namespace(&stage, &format!("{forebay} {own}"))
        .ends_with(0)
        .prints("two\n2\n");
    assert!(!stage.pfs().join("f").exists());
    stage.say(&["down", "--buffer", "pfs"]).ends_with(0);
    assert_eq!(stage.on_pfs().len(), 1);
}

#[test]
fn what_is_buffered_for_one_container_is_not_drained_in_another() {
    skip_unless!(is_root(), "only root can mount");
    let stage = Stage::new();
    run(&stage, "pfs", &["--no-drain"], "echo one > pfs/f").ends_with(0);
    for (verb, code) in [
        ("run --buffer pfs -- cat pfs/f", 125),
        ("drain --buffer pfs", 1),
    ] {
        let script = format!(
            "mount -t tmpfs two pfs; code=0; \"$FOREBAY\" {verb} || code=$?; test -z \"$(ls -A pfs)\"; exit $code"
        );
        refuses(in_other_namespace(&stage, &script), code);
    }
    stage.say(&["drain", "--buffer", "pfs"]).ends_with(0);
    assert_eq!(stage.on_pfs()["f"], "one\n");
}

#[test]
fn the_same_directory_in_another_namespace_by_a_bind_mount_and_in_the_mount_of_a_run_is_the_same() {
    skip_unless!(is_root(), "only root can mount");
    let stage = Stage::new();
    stage.say(&["up", "--buffer", "pfs"]).ends_with(0);
    run(&stage, "pfs", &["--no-drain"], "echo one > pfs/f").ends_with(0);
    for mounts in ["true", "mount --bind pfs pfs"] {
        let run = "\"$FOREBAY\" run --no-drain --buffer pfs -- cat pfs/f";
        in_other_namespace(&stage, &format!("{mounts}; {run}"))
            .ends_with(0)
            .prints("one");
        let attach = "\"$FOREBAY\" attach --buffer pfs -- cat pfs/f";
        in_other_namespace(&stage, &format!("{mounts}; {attach}"))
            .ends_with(0)
            .prints("one");
    }
    // In a run the directory looks as the buffer shows it.
    let inside = "\"$FOREBAY\" status --buffer pfs && \"$FOREBAY\" attach --buffer pfs -- cat pfs/f && \"$FOREBAY\" drain --buffer pfs";
    run(&stage, "pfs", &["--no-drain"], inside)
        .ends_with(0)
        .prints("one");
    if Path::new("/dev/fuse").exists() {
        run(&stage, "pfs", &["--no-drain", "--via", "mount"], inside)
            .ends_with(0)
            .prints("one");
    } else {
        forebay_testkit::skip("no /dev/fuse");
    }
    stage.say(&["down", "--buffer", "pfs"]).ends_with(0);
}

#[test]
fn a_bridge_whose_directory_was_replaced_is_asked_nothing_and_is_told_how_to_end() {
    let stage = Stage::new();
    stage.say(&["up", "--buffer", "pfs"]).ends_with(0);
    run(&stage, "pfs", &["--no-drain"], "echo 1 > pfs/f").ends_with(0);
    let pid = stage.bridge_pid();
    fs::rename(stage.pfs(), stage.path("was")).unwrap();
    fs::create_dir(stage.pfs()).unwrap();
    for verb in ["drain", "down", "up", "status"] {
        stage
            .say(&[verb, "--buffer", "pfs"])
            .ends_with(1)
            .tells("has another directory than the one that is there now")
            .tells(&format!("kill {pid}"));
    }
    has_nothing(&stage.pfs());
    fs::remove_dir(stage.pfs()).unwrap();
    fs::rename(stage.path("was"), stage.pfs()).unwrap();
    stage.say(&["down", "--buffer", "pfs"]).ends_with(0);
    assert_eq!(stage.on_pfs()["f"], "1\n");
}

/// Natively, and in the buffer. A directory that is new in the buffer is where it will be.
#[test]
fn no_name_goes_to_another_file_system_that_is_mounted_below_the_directory() {
    skip_unless!(is_root(), "only root can mount");
    let stage = Stage::new();
    let forebay = crate::common::forebay().display().to_string();
    let calls = r#"
        call() { perl -e '$ARGV[0] eq "mv" ? rename($ARGV[1], $ARGV[2]) : link($ARGV[1], $ARGV[2]) or exit $!' "$@"; echo $?; }
        cd pfs; call mv f m/f; call mv d m/d; call ln f m/g; call mv m/x x
        mkdir m/new; call mv m/x m/new/x; call mv m/new new; call mv m/new/x m/x; rmdir m/new"#;
    let exdev = libc::EXDEV;
    let expected = format!("{exdev}\n{exdev}\n{exdev}\n{exdev}\n0\n{exdev}\n0\n1\n2\nd\nf\nm\nx\n");
    for run in [
        "sh -c".to_owned(),
        format!("{forebay} run -q --via preload --buffer pfs -- sh -c"),
    ] {
        let script = format!(
            "rm -rf pfs; mkdir -p pfs/d pfs/m; echo 1 > pfs/f; mount -t tmpfs none pfs/m; echo 2 > pfs/m/x
            {run} \"$CALLS\"; cat pfs/f pfs/m/x; ls pfs; ls pfs/m"
        );
        let mut command = stage.command("unshare");
        command
            .args(["-m", "sh", "-ec", &script])
            .env("CALLS", calls);
        let said = finish(command).ends_with(0);
        assert_eq!(said.out, expected, "{run}: {}", said.err);
    }
}

/// Natively, and in the buffer: a program that has entered a mount namespace, and changes its directory there.
#[test]
fn the_working_directory_of_a_program_in_a_mount_namespace_of_its_own_is_in_the_buffer() {
    skip_unless!(is_root(), "only root can make a mount namespace");
    let stage = Stage::new();
    let forebay = crate::common::forebay().display().to_string();
    let script = r#"
        echo new > pfs/old/f
        unshare -m sh -ec '
            cd pfs/old; cat f; echo more >> f; echo x > x; rm gone; ls -A; pwd -P; python3 -c "import os; print(os.getcwd())"
            cd ..; mkdir made; ls -A; /bin/pwd; cd made; echo y > y; mv y z; cat "$PFS/made/z"; /bin/pwd; cd ../old; cat f'
        cat pfs/old/x pfs/made/z"#;
    let mut told = Vec::new();
    for run in [
        "sh -ec".to_owned(),
        format!("{forebay} run -q --via preload --buffer pfs -- sh -ec"),
    ] {
        let _ = fs::remove_dir_all(stage.pfs());
        fs::create_dir_all(stage.pfs().join("old")).unwrap();
        for name in ["old/f", "old/gone"] {
            fs::write(stage.pfs().join(name), "old\n").unwrap();
        }
        let mut command = stage.command("sh");
        command.args(["-c", &format!("{run} \"$SCRIPT\"")]);
        command.env("SCRIPT", script).env("PFS", stage.pfs());
        let said = finish(command).ends_with(0);
        told.push((said.out, stage.on_pfs()));
    }
    assert_eq!(told[0], told[1]);
    assert!(told[0].0.contains("more"), "{}", told[0].0);
}
