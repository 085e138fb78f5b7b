//! A user who is not root drains files and directories whose modes lock their owner out.

use super::{HOSTILE, VICTIM, as_root, forebay_of_victim, give, python, run_of_victim, user};
use crate::common::slow_pfs::SlowPfs;
use crate::stage::{Said, Stage, finish, start, wait};
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
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

/// The kernel lets programs read attributes of users in what they may read, and set them in what they may write to.
#[test]
fn attributes_of_files_that_their_owner_may_not_read_or_write_to_arrive_and_staged_ones_have_them()
{
    as_root!();
    let stage = Stage::new();
    let before = "for m in 400 444 500; do echo $m > old$m; setfattr -n user.a -v $m old$m; chmod $m old$m; done
        echo l > oldlist; setfacl -m u:99:r oldlist; setfattr -n user.a -v l oldlist; chmod 440 oldlist";
    let script = "echo l > list; setfacl -m u:99:r list; setfattr -n user.a -v l list; chmod 440 list; ln oldlist newlist
        for m in 0 200 400 444 600; do echo $m > f$m; setfattr -n user.a -v $m f$m; chmod $m f$m; done
        for m in 400 444 500; do ln old$m new$m; chmod u+w old$m; echo more >> old$m; chmod $m old$m; done";
    let attributes = |dir: &str| {
        let mut command = stage.command("sh");
        command.args(["-c", "cd $0; { getfattr -d *; getfacl -n *; } | sort", dir]);
        finish(command).ends_with(0).out
    };
    for dir in ["own/native", "own/pfs"] {
        native(&stage, dir, before);
    }
    native(&stage, "own/native", script);
    run(&stage, &["--keep"], script).ends_with(0);
    assert_eq!(tree(&stage, "own/pfs"), tree(&stage, "own/native"));
    assert_eq!(attributes("own/pfs"), attributes("own/native"));
    let mut drain = forebay_of_victim(&stage, VICTIM);
    drain.args(["drain", "--buffer", "own/pfs"]);
    finish(drain).ends_with(0).prints("drained 0 files");
}

/// Opens every temporary file that it sees, until there is enough. Tells whether it saw any, and how many it could open.
const SPY: &str = "
import os
seen, held = False, 0
open('spy/ready', 'w').close()
while not os.path.exists('enough'):
    for name in os.listdir('own/pfs/shared'):
        if name.startswith('.forebay-'):
            seen = True
            try:
                os.close(os.open('own/pfs/shared/' + name, os.O_RDWR))
                held += 1
            except OSError:
                pass
print(seen, held)
";

/// A directory with the set-group-id bit hands its group to what is made in it, before that has its own.
#[test]
fn what_is_copied_into_a_directory_of_another_group_is_not_open_to_that_under_its_temporary_name() {
    as_root!();
    let stage = Stage::new();
    let mut command = run_of_victim(&stage, VICTIM);
    give(&stage.path("spy"), HOSTILE);
    let open = |dir: &str, mode| {
        fs::set_permissions(stage.path(dir), Permissions::from_mode(mode)).unwrap();
    };
    fs::create_dir(stage.path("own/pfs/shared")).unwrap();
    chown(stage.path("own/pfs/shared"), Some(VICTIM), Some(HOSTILE)).unwrap();
    open("own/pfs/shared", 0o2775);
    for dir in ["own", "own/pfs"] {
        open(dir, 0o711);
    }
    let spy = start(python(&stage, HOSTILE, SPY));
    stage.wait_for_file("spy/ready");
    let script = "cd own/pfs && head -c 300000 /dev/zero > f && chmod 660 f && mv f shared";
    command.args(["--drain-rate", "200K", "--", "sh", "-ec", script]);
    finish(command).ends_with(0);
    fs::write(stage.path("enough"), "").unwrap();
    wait(spy).ends_with(0).prints("True 0");
    let found = stage.path("own/pfs/shared/f").metadata().unwrap();
    assert_eq!((found.gid(), found.mode() & 0o777), (VICTIM, 0o660));
}

/// Beside a list the bits of the group are its mask: without it they would let the group in.
#[test]
fn a_directory_that_its_owner_may_not_read_has_its_access_list_whatever_other_attributes_it_has() {
    as_root!();
    let stage = Stage::new();
    let script = "umask 077; for m in 0 1 2 3 5 7; do mkdir d$m; setfacl -m u:99:rwx d$m; setfattr -n user.x -v 1 d$m
        chmod ${m}70 d$m; done";
    let lists = |dir: &str| {
        let mut command = stage.command("sh");
        command.args(["-c", "cd $0; getfacl -n d* && stat -c '%n %a' d*", dir]);
        finish(command).ends_with(0).out
    };
    native(&stage, "own/native", script);
    give(&stage.path("own/pfs"), VICTIM);
    let said = run(&stage, &[], script).ends_with(0);
    assert!(lists("own/native").contains("user:99:rwx"));
    assert_eq!(lists("own/pfs"), lists("own/native"));
    let remark =
        "attributes user.* of directories that their owner may not read or write to are left out";
    assert!(said.err.contains(remark), "{said:?}");
    let of_user = ["d0", "d7"].map(|dir| {
        let mut command = stage.command("getfattr");
        command
            .args(["-n", "user.x"])
            .arg(stage.path("own/pfs").join(dir));
        finish(command).code
    });
    assert_eq!(of_user, [1, 0]);
}

#[test]
fn a_kept_directory_that_its_owner_may_not_search_has_the_time_that_it_was_given() {
    as_root!();
    let stage = Stage::new();
    give(&stage.path("own"), VICTIM);
    give(&stage.path("own/pfs"), VICTIM);
    run(&stage, &["--keep"], "mkdir d; echo c > d/c; chmod 0 d").ends_with(0);
    run(&stage, &["--keep"], "touch -d @6 d").ends_with(0);
    let found = stage.path("own/pfs/d").metadata().unwrap();
    assert_eq!((found.mtime(), found.mode() & 0o7777), (6, 0));
}

/// A directory that its owner has locked, with a locked one in it.
const BEFORE: &str =
    "mkdir -p d/sub/in d/old; echo f > d/f; echo g > d/g; echo x > d/sub/in/x; echo o > d/old/o
    chmod 444 d/f; chmod 555 d/old d";

/// What a program does that may change it for a moment.
const WORK: &str = "chmod u+w d d/f; echo more >> d/f; echo new > d/new; rm d/g; rm -r d/sub; mkdir -p d/made/deep; ln -s new d/link
    mv d/old d/moved; ln d/new d/second; echo y > d/made/deep/y; chmod 444 d/f; chmod 500 d/made/deep; chmod u-w d";

#[test]
fn what_was_changed_in_a_directory_that_its_owner_may_not_change_arrives_and_its_mode_stays() {
    as_root!();
    let stage = Stage::new();
    native(&stage, "own/native", BEFORE);
    native(&stage, "own/native", WORK);
    native(&stage, "own/pfs", BEFORE);
    run(&stage, &[], WORK).ends_with(0);
    assert_eq!(tree(&stage, "own/pfs"), tree(&stage, "own/native"));
    assert_eq!(mode(&stage.path("own/pfs/d")), 0o555);
    assert_eq!(mode(&stage.path("own/pfs/d/moved")), 0o555);
    // And out of it, together with what is locked.
    let script = "chmod u+w d d/moved; mv d/moved up; echo 1 > up/more; chmod u-w d up";
    native(&stage, "own/native", script);
    run(&stage, &[], script).ends_with(0);
    assert_eq!(tree(&stage, "own/pfs"), tree(&stage, "own/native"));
}

#[test]
fn a_directory_moves_whatever_was_removed_from_a_locked_one_in_it() {
    as_root!();
    let before =
        "mkdir -p p/q/d/e r/s; echo f > p/q/d/e/f; echo g > p/g; chmod 500 p/q; chmod 700 p";
    let work = "chmod u+w p/q; rm -r p/q/d; chmod u-w p/q; mkdir new; mv p new/p; mv r new/p/r";
    for options in [&[][..], &["--drain-workers", "1"]] {
        let stage = Stage::new();
        for dir in ["own/native", "own/pfs"] {
            native(&stage, dir, before);
        }
        native(&stage, "own/native", work);
        run(&stage, options, work).ends_with(0);
        assert_eq!(tree(&stage, "own/pfs"), tree(&stage, "own/native"));
    }
}

#[test]
fn a_locked_directory_gets_its_mode_back_also_if_what_it_was_unlocked_for_fails() {
    as_root!();
    let stage = Stage::new();
    native(&stage, "own/pfs", BEFORE);
    run(&stage, &["--no-drain"], WORK).ends_with(0);
    let theirs = stage.path("own/pfs/d/new");
    fs::write(&theirs, "theirs").unwrap();
    let mut drain = forebay_of_victim(&stage, VICTIM);
    drain.args(["drain", "--buffer", "own/pfs"]);
    finish(drain).ends_with(75).tells("d/new");
    assert_eq!(fs::read_to_string(&theirs).unwrap(), "theirs");
    assert_eq!(mode(&stage.path("own/pfs/d")), 0o555);
}

#[test]
fn a_drain_that_is_killed_while_a_directory_is_unlocked_is_mended_by_the_next_one() {
    as_root!();
    let stage = Stage::new();
    native(&stage, "own/native", BEFORE);
    native(&stage, "own/native", WORK);
    let expected = tree(&stage, "own/native");
    let (mut killed, mut unlocked) = (0, 0);
    loop {
        let _ = fs::remove_dir_all(stage.path("own/pfs"));
        native(&stage, "own/pfs", BEFORE);
        run(&stage, &["--no-drain"], WORK).ends_with(0);
        let drain = |at: Option<u32>| {
            let mut command = forebay_of_victim(&stage, VICTIM);
            command.args(["drain", "--buffer", "own/pfs", "--drain-workers", "1"]);
            if let Some(at) = at {
                command.env("FOREBAY_TEST_ABORT_DRAIN_AT", at.to_string());
            }
            finish(command)
        };
        let said = drain(Some(killed));
        if said.code == 0 {
            break;
        }
        assert_eq!(said.code, 1, "{said:?}");
        unlocked += u32::from(mode(&stage.path("own/pfs/d")) != 0o555);
        // The next bridge does it before anything else.
        if killed % 16 == 0 {
            let said = run(&stage, &["--no-drain"], "stat -c %a d; cat d/f d/moved/o").ends_with(0);
            assert_eq!(said.out, "555\nf\nmore\no\n", "killed at {killed}");
        }
        drain(None).ends_with(0);
        assert_eq!(tree(&stage, "own/pfs"), expected, "killed at {killed}");
        killed += 1;
    }
    assert!(unlocked > 10, "only {unlocked} of {killed}");
}

#[test]
fn what_is_below_a_locked_directory_is_drained_at_once_where_each_directory_is_synced() {
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
