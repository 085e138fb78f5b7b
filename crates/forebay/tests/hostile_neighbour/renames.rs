//! A user who is not root renames in a directory of its own that lies in one where it may change no names, and things of others.

use super::{HOSTILE, VICTIM, as_root, forebay_of_victim, run_of_victim};
use crate::stage::{Said, Stage, finish};
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};

/// What a drain of `script` in the victim's directory `w` says, after `before` there, in a PFS directory of root with this mode.
/// `others` is given to another user before.
fn run(stage: &Stage, mode: u32, before: &str, others: &[&str], script: &str) -> Said {
    let within = |mut command: std::process::Command, script: &str| {
        command.args(["-ec", &format!("cd own/pfs/w && {script}")]);
        finish(command)
    };
    let mut command = run_of_victim(stage, VICTIM);
    let pfs = stage.path("own/pfs");
    fs::create_dir(pfs.join("w")).unwrap();
    within(stage.command("sh"), before).ends_with(0);
    for (path, _) in forebay_testkit::entries_below(&pfs) {
        chown(pfs.join(path), Some(VICTIM), Some(VICTIM)).unwrap();
    }
    for path in others {
        chown(pfs.join("w").join(path), Some(HOSTILE), Some(HOSTILE)).unwrap();
    }
    chown(&pfs, Some(0), Some(0)).unwrap();
    fs::set_permissions(&pfs, Permissions::from_mode(mode)).unwrap();
    command.args(["--", "sh"]);
    within(command, script)
}

/// The names on the PFS, each with its owner and the first line of what is in it.
fn names(stage: &Stage) -> Vec<String> {
    let pfs = stage.path("own/pfs");
    let entries = forebay_testkit::entries_below(&pfs).into_iter();
    let tell = |(path, metadata): (std::path::PathBuf, fs::Metadata)| {
        let is_own = metadata.uid() == VICTIM;
        let owner = if is_own { "" } else { " of others" };
        let text = fs::read_to_string(pfs.join(&path)).unwrap_or_default();
        let told = format!("{}{owner} {}", path.display(), text.trim());
        told.trim().to_owned()
    };
    let mut names: Vec<_> = entries.map(tell).collect();
    names.retain(|name| !name.starts_with(".forebay-lock"));
    names.sort();
    names
}

#[test]
fn what_is_renamed_in_an_own_directory_needs_no_name_in_the_root_of_the_pfs() {
    as_root!();
    let stage = Stage::new();
    let before = "mkdir d e; echo a > a; echo f > d/f; echo x > x; echo y > y; echo z > z";
    let script = "mv a b; mv d/f f; mv d g; mv x y; mkdir n; mv z e n; rm -r g";
    run(&stage, 0o755, before, &[], script).ends_with(0);
    let after = ["w", "w/b a", "w/f f", "w/n", "w/n/e", "w/n/z z", "w/y x"];
    assert_eq!(names(&stage), after);
}

#[test]
fn what_is_renamed_to_make_room_for_something_new_needs_no_name_in_the_root_of_the_pfs() {
    as_root!();
    let stage = Stage::new();
    let before = "mkdir d; for f in log log.1 log.2 d/x d/y; do echo $f > $f; done";
    // A rotation, and a directory that makes room for a file.
    let script = "mv log.1 log.2; mv log log.1; echo new > log; mv d/x x; rm -r d; echo new > d";
    run(&stage, 0o755, before, &[], script).ends_with(0);
    let after = [
        "w",
        "w/d new",
        "w/log new",
        "w/log.1 log",
        "w/log.2 log.1",
        "w/x d/x",
    ];
    assert_eq!(names(&stage), after);
}

#[test]
fn what_others_own_goes_from_its_place_only_to_its_new_name() {
    as_root!();
    // In a directory in which everybody may make names, nobody could take it away again.
    let stage = Stage::new();
    let before = "mkdir d; echo a > a; echo b > b; echo c > c; echo o > d/o; chmod 777 d";
    let script = "mv a x; mv b c; mkdir n; mv x n/a; mv d e";
    run(&stage, 0o1777, before, &["a", "b", "d"], script).ends_with(0);
    let after = [
        "w",
        "w/c of others b",
        "w/e of others",
        "w/e/o o",
        "w/n",
        "w/n/a of others a",
    ];
    assert_eq!(names(&stage), after);
}

#[test]
fn a_directory_of_another_user_that_may_get_no_other_parent_is_renamed() {
    as_root!();
    let before = "mkdir sub; echo s > sub/file";
    for (script, name) in [
        ("mv sub subx", "w/subx"),
        ("mv sub subx; mv subx sub", "w/sub"),
        ("mv sub subx; cd ..; mv w v", "v/subx"),
    ] {
        let stage = Stage::new();
        run(&stage, 0o777, before, &["sub"], script).ends_with(0);
        let dir = name.split('/').next().unwrap();
        let file = format!("{name}/file s");
        let after = [dir.to_owned(), format!("{name} of others"), file];
        assert_eq!(names(&stage), after, "{script}");
        let mut drain = forebay_of_victim(&stage, VICTIM);
        drain.args(["drain", "--buffer", "own/pfs"]);
        finish(drain).ends_with(0);
    }
}
