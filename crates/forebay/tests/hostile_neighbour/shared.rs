//! A user who is not root, in directories that are shared with others, and among modes that let nobody read.

use super::{HOSTILE, VICTIM, as_root, run_of_victim};
use crate::stage::{Said, Stage, finish};
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};

/// A script of the victim in its buffer, drained.
fn run(stage: &Stage, script: &str) -> Said {
    let mut command = run_of_victim(stage, VICTIM);
    let script = format!("cd own/pfs && {script}");
    command.args(["--", "sh", "-ec", &script]);
    finish(command)
}

fn mode(path: &std::path::Path) -> u32 {
    path.metadata().unwrap().mode() & 0o7777
}

#[test]
fn directories_that_their_owner_may_not_read_are_removed_renamed_and_drained() {
    as_root!();
    let stage = Stage::new();
    let script = "mkdir inbox; echo x > inbox/a; chmod 311 inbox
        mkdir -m 000 d; rmdir d; mkdir -m 300 e; rmdir e; mkdir g; chmod 0 g; rm -r g
        mkdir h k; chmod 0 k; mv -T h k";
    run(&stage, script).ends_with(0);
    let at = |name: &str| stage.path("own/pfs").join(name);
    assert_eq!(fs::read_to_string(at("inbox/a")).unwrap(), "x\n");
    assert_eq!(mode(&at("inbox")), 0o311);
    assert!(at("k").is_dir());
    for name in ["d", "e", "g", "h"] {
        assert!(!at(name).exists(), "{name}");
    }
    // Once more, when it is there.
    run(&stage, "echo y > inbox/b; chmod 0333 inbox").ends_with(0);
    assert_eq!(fs::read_to_string(at("inbox/b")).unwrap(), "y\n");
    assert_eq!(mode(&at("inbox")), 0o333);
}

#[test]
fn a_name_of_others_that_looks_like_one_of_a_drain_stops_nobody_and_tells_a_terminal_nothing() {
    as_root!();
    let stage = Stage::new();
    run(&stage, "true").ends_with(0);
    let pfs = stage.path("own/pfs");
    // `give` would take it back: everybody may make names in it, and nobody else remove them.
    let name = format!(".forebay-{}.tmp", "01".repeat(16));
    let loud = format!(".forebay-{}.gone\x1b[31mred\n x", "01".repeat(16));
    for name in [&name, &loud] {
        fs::write(pfs.join(name), "theirs").unwrap();
        chown(pfs.join(name), Some(HOSTILE), Some(HOSTILE)).unwrap();
    }
    let mut command = run_of_victim(&stage, VICTIM);
    chown(&pfs, Some(0), Some(0)).unwrap();
    fs::set_permissions(&pfs, Permissions::from_mode(0o1777)).unwrap();
    command.args(["--", "sh", "-c", "echo x > own/pfs/f"]);
    let said = finish(command).ends_with(0);
    assert!(!said.err.contains('\x1b'), "{:?}", said.err);
    assert!(pfs.join("f").exists());
    for name in [&name, &loud] {
        assert!(pfs.join(name).exists(), "{name:?}");
    }
}

#[test]
fn nobody_can_take_the_temporary_names_of_a_drain_first() {
    as_root!();
    let stage = Stage::new();
    run(&stage, "true").ends_with(0);
    let pfs = stage.path("own/pfs");
    // Objects are numbered one after the other.
    let names: Vec<_> = (0..0x1200)
        .map(|seq| format!(".forebay-{:016x}{seq:016x}.tmp", 0x1_0000_0001_u64))
        .collect();
    for name in &names {
        fs::write(pfs.join(name), "theirs").unwrap();
        chown(pfs.join(name), Some(HOSTILE), Some(HOSTILE)).unwrap();
    }
    let mut command = run_of_victim(&stage, VICTIM);
    chown(&pfs, Some(0), Some(0)).unwrap();
    fs::set_permissions(&pfs, Permissions::from_mode(0o1777)).unwrap();
    let script = "cd own/pfs && echo ours > f && ln -s f link && mkfifo pipe && ln f g";
    command.args(["--", "sh", "-ec", script]);
    finish(command).ends_with(0);
    for name in ["f", "g", "link"] {
        assert_eq!(fs::read_to_string(pfs.join(name)).unwrap(), "ours\n");
    }
    assert!(pfs.join("pipe").exists());
    for name in &names {
        assert!(pfs.join(name).exists(), "{name}");
    }
}

#[test]
fn what_could_not_be_put_back_as_it_was_is_written_in_place() {
    as_root!();
    let stage = Stage::new();
    run(&stage, "true").ends_with(0);
    let pfs = stage.path("own/pfs");
    // Of a colleague, for the group; and the user's own, in a directory in which only root makes names.
    fs::write(pfs.join("theirs"), "a\n").unwrap();
    chown(pfs.join("theirs"), Some(HOSTILE), Some(VICTIM)).unwrap();
    fs::set_permissions(pfs.join("theirs"), Permissions::from_mode(0o664)).unwrap();
    fs::create_dir(pfs.join("ro")).unwrap();
    fs::write(pfs.join("ro/own"), "a\n").unwrap();
    chown(pfs.join("ro/own"), Some(VICTIM), Some(VICTIM)).unwrap();
    run(&stage, "echo b >> theirs; echo b >> ro/own; cat theirs").ends_with(0);
    for name in ["theirs", "ro/own"] {
        assert_eq!(fs::read_to_string(pfs.join(name)).unwrap(), "a\nb\n");
    }
    let owner = pfs.join("theirs").metadata().unwrap();
    assert_eq!((owner.uid(), owner.gid()), (HOSTILE, VICTIM));
}
