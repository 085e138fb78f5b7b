//! A user who may rename directories of others to the place of own ones: natively that is allowed, and to make anything in them is not.

use super::{VICTIM, as_root, common, run_of_victim};
use crate::stage::{Said, Stage, finish, start, tree};
use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// A shell script of root.
fn by_root(stage: &Stage, script: &str) -> Said {
    let mut command = stage.command("bash");
    command.args(["-c", &format!("set -e; {AS_USER}; {script}")]);
    finish(command)
}

/// `mallory CMD...` and `victim CMD...` run it as a user.
const AS_USER: &str = "mallory() { setpriv --reuid 65534 --regid 65534 --clear-groups \"$@\"; }; \
                       victim() { setpriv --reuid 1000 --regid 1000 --clear-groups \"$@\"; }";

/// A run of root, with a script in which users make something.
fn run(stage: &Stage, options: &[&str], script: &str) -> Command {
    stage.script_command(options, &format!("set -e; {AS_USER}; {script}"))
}

/// What is in the directory of the victim: root may look.
fn in_victims(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap().map(Result::unwrap);
    let mut names: Vec<_> = entries
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// `top` and `top/nd` belong to mallory, `top/vd` to the victim alone.
const BEFORE: &str = "chmod 755 .; mkdir -p pfs/top/nd pfs/top/vd; echo conf > pfs/top/vd/conf; \
                      chown -R 65534:65534 pfs/top; chown -R 1000:1000 pfs/top/vd; chmod 700 pfs/top/vd; \
                      mallory sh -c 'echo f > pfs/top/nd/f; echo f > pfs/top/old; echo f > pfs/top/linked; mkdir pfs/top/od; echo f > pfs/top/od/f'";

const SWAP: &str = "mallory mv pfs/top/nd pfs/top/gone; mallory mv pfs/top/vd pfs/top/nd; \
                    ! mallory touch pfs/top/nd/natively 2> /dev/null";

/// Does something while mallory, natively, exchanges `top/nd` and `top/vd` again and again. They are in their places afterwards.
fn while_they_change_places(stage: &Stage, work: Command) -> Said {
    let said = while_exchanged(stage, "pfs/top/nd pfs/top/vd", work);
    let back = format!("[ -e pfs/top/vd/conf ] || {{ {EXCHANGE}; }}");
    by_root(stage, &back).ends_with(0);
    said
}

/// Runs a command while mallory, natively, exchanges two directories again and again.
fn while_exchanged(stage: &Stage, dirs: &str, work: Command) -> Said {
    fs::write(stage.path("turn.py"), TURN).unwrap();
    let mut turns = stage.command("bash");
    let turn = format!("{AS_USER}; mallory /usr/bin/python3 turn.py {dirs}");
    turns.args(["-c", &turn]);
    turns.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut turns = start(turns);
    let mut begun = [0];
    turns.stdout.take().unwrap().read_exact(&mut begun).unwrap();
    // It ends with its input, also if what follows fails.
    let input = turns.stdin.take();
    let said = finish(work);
    drop(input);
    assert!(turns.wait().unwrap().success());
    said
}

/// Exchanges two directories until its input ends. Says so when it has begun.
const TURN: &str = r#"
import ctypes, select, sys
syscall = ctypes.CDLL(None).syscall
one, other = (path.encode() for path in sys.argv[1:])
turns, begun = 0, False
while not select.select([0], [], [], 0)[0]:
    turns += sum(syscall(316, -100, one, -100, other, 2) == 0 for _ in range(50))
    if turns > 50 and not begun:
        begun = print("begun", flush=True) is None
"#;

const EXCHANGE: &str = "mv pfs/top/vd pfs/top/x; mv pfs/top/nd pfs/top/vd; mv pfs/top/x pfs/top/nd";

#[test]
fn what_a_user_has_made_comes_into_no_directory_of_another_one_that_has_its_place_now() {
    as_root!();
    let makes = [
        "mallory sh -c 'echo evil > pfs/top/nd/f'",
        "mallory sh -c 'echo more >> pfs/top/nd/f'",
        "mallory sh -c 'mv pfs/top/old pfs/top/nd/g; echo more >> pfs/top/nd/g'",
        "mallory sh -c 'ln pfs/top/nd/f pfs/top/f2; echo more >> pfs/top/f2'",
        "mallory sh -c 'exec 3<> pfs/top/nd/f; echo more >&3'",
        "mallory truncate -s 7 pfs/top/nd/f",
        "mallory sh -c 'echo f > pfs/top/x; mv pfs/top/x pfs/top/nd/f'",
        "mallory sh -c 'echo evil > pfs/top/nd/authorized_keys'",
        "mallory mkdir pfs/top/nd/dir; mallory touch pfs/top/nd/dir/in",
        "mallory mv pfs/top/old pfs/top/nd/renamed",
        "mallory mv pfs/top/od pfs/top/nd/moved",
        "mallory ln -s /etc/passwd pfs/top/nd/link; mallory mkfifo pfs/top/nd/fifo",
        "mallory sh -c 'echo f > pfs/top/first; ln pfs/top/first pfs/top/nd/second'",
        "mallory ln pfs/top/linked pfs/top/nd/name",
        "mallory sh -c 'echo f > pfs/top/here; mv pfs/top/here pfs/top/nd/there'",
    ];
    for make in makes {
        let stage = Stage::new();
        by_root(&stage, BEFORE).ends_with(0);
        finish(run(&stage, &["--no-drain"], make)).ends_with(0);
        by_root(&stage, SWAP).ends_with(0);
        let drained = stage.say(&["drain", "--buffer", "pfs"]).ends_with(75);
        let victims = stage.pfs().join("top/nd");
        assert_eq!(in_victims(&victims), ["conf"], "{make}: {drained:?}");
        // Back in its place it gets all.
        by_root(
            &stage,
            "mv pfs/top/nd pfs/top/vd; mv pfs/top/gone pfs/top/nd",
        )
        .ends_with(0);
        stage.say(&["drain", "--buffer", "pfs"]).ends_with(0);
        assert_eq!(in_victims(&stage.pfs().join("top/vd")), ["conf"]);
        assert_ne!(in_victims(&victims), [""; 0], "{make}");
    }
}

#[test]
fn what_was_drained_and_is_written_again_does_not_either() {
    as_root!();
    for made in ["", "mallory rmdir pfs/top/nd; mallory mkdir pfs/top/nd; "] {
        let stage = Stage::new();
        by_root(&stage, BEFORE).ends_with(0);
        by_root(&stage, "rm pfs/top/nd/f").ends_with(0);
        let first = format!("{made}mallory sh -c 'echo one > pfs/top/nd/a'");
        finish(run(&stage, &["--keep"], &first)).ends_with(0);
        let again = "mallory sh -c 'echo two > pfs/top/nd/a'";
        finish(run(&stage, &["--no-drain"], again)).ends_with(0);
        by_root(&stage, SWAP).ends_with(0);
        stage.say(&["drain", "--buffer", "pfs"]).ends_with(75);
        let victims = stage.pfs().join("top/nd");
        assert_eq!(in_victims(&victims), ["conf"], "{made}");
    }
}

#[test]
fn the_same_where_the_directory_was_made_in_the_buffer_and_drained() {
    as_root!();
    for keep in [&[][..], &["--keep"]] {
        let stage = Stage::new();
        by_root(&stage, BEFORE).ends_with(0);
        by_root(&stage, "rm -r pfs/top/nd").ends_with(0);
        let first = "mallory mkdir pfs/top/nd; mallory touch pfs/top/nd/a";
        finish(run(&stage, keep, first)).ends_with(0);
        let second = "mallory sh -c 'echo evil > pfs/top/nd/authorized_keys'";
        finish(run(&stage, &["--no-drain"], second)).ends_with(0);
        by_root(&stage, SWAP).ends_with(0);
        stage.say(&["drain", "--buffer", "pfs"]).ends_with(75);
        let victims = stage.pfs().join("top/nd");
        assert_eq!(in_victims(&victims), ["conf"], "{keep:?}");
    }
}

/// What a drain knows of directories that it has made is not held against what programs do with them.
#[test]
fn directories_that_were_drained_and_are_renamed_by_programs_arrive() {
    as_root!();
    for who in ["mallory ", ""] {
        let stage = Stage::new();
        by_root(
            &stage,
            "chmod 755 .; mkdir pfs/top; chown 65534:65534 pfs/top",
        )
        .ends_with(0);
        // With an open file some copies stay, and their directories open.
        let script = format!(
            "{who} sh -c '
            cd pfs/top; mkdir -p a/b/c x/y; echo 1 > a/b/c/f; echo 2 > a/g; echo 3 > x/y/f
            exec 3>> a/b/c/f; touch ready; while [ -e ready ]; do sleep 0.01; done
            echo new > a/b/new; mv a/b/c x/c; mv a d; mkdir a; mv d/b a/b; mv x/y a/b/y; echo late >&3
            mv a/b d/b; mv d z; echo k > z/b/y/k; chmod 700 z; mv z/b w; mv w z/w' &
            until [ -e pfs/top/ready ]; do sleep 0.01; done
            \"$FOREBAY\" drain --buffer pfs > /dev/null 2>&1 || drained=$?; rm pfs/top/ready
            wait $!; [ $drained = 75 ]
            "
        );
        for options in [&[][..], &["--keep"]] {
            let mut command = run(&stage, options, &script);
            command.env("FOREBAY", crate::common::forebay());
            finish(command).ends_with(0);
            let found = tree(&stage.pfs());
            let files = found.iter().filter(|(_, text)| text.starts_with("100"));
            let names: Vec<&str> = files.map(|(name, _)| name.as_str()).collect();
            assert_eq!(
                names,
                [
                    "top/x/c/f",
                    "top/z/g",
                    "top/z/w/new",
                    "top/z/w/y/f",
                    "top/z/w/y/k"
                ],
                "{who}{options:?}"
            );
            assert!(found["top/x/c/f"].ends_with("1\nlate\n"), "{found:?}");
            by_root(&stage, "rm -r pfs/top/*").ends_with(0);
            stage.say(&["drain", "--buffer", "pfs"]).ends_with(0);
        }
    }
}

/// Directories change places while names are made in one of them.
#[test]
fn what_is_made_while_directories_change_places_comes_where_its_maker_may_make_it() {
    as_root!();
    let stage = Stage::new();
    by_root(&stage, BEFORE).ends_with(0);
    let make = "mallory sh -c 'for n in $(seq 300); do (echo evil > pfs/top/nd/n$n) 2> /dev/null; \
                    mkdir pfs/top/nd/d$n 2> /dev/null; ln -s x pfs/top/nd/l$n 2> /dev/null; done; true'";
    while_they_change_places(&stage, run(&stage, &["--no-drain"], make)).ends_with(0);
    by_root(&stage, SWAP).ends_with(0);
    stage.say(&["drain", "--buffer", "pfs"]);
    assert_eq!(in_victims(&stage.pfs().join("top/nd")), ["conf"]);
}

/// A file of which both have a name is the same one in the other directory.
#[test]
fn what_a_user_removes_or_renames_goes_from_no_directory_of_another_one_that_has_its_place_now() {
    as_root!();
    for change in [
        "mallory rm pfs/top/nd/same",
        "mallory mv pfs/top/nd/same pfs/top/moved",
        "mallory sh -c 'echo new > pfs/top/x; mv pfs/top/x pfs/top/nd/same'",
        "mallory rm -r pfs/top/nd/dir",
    ] {
        let stage = Stage::new();
        by_root(&stage, BEFORE).ends_with(0);
        by_root(
            &stage,
            "mkdir pfs/top/nd/dir pfs/top/vd/dir; echo same > pfs/top/vd/same; ln pfs/top/vd/same pfs/top/nd/same; \
             ln pfs/top/vd/same pfs/top/nd/dir/in; ln pfs/top/vd/same pfs/top/vd/dir/in; \
             chown 65534:65534 pfs/top/nd/dir; chown 1000:1000 pfs/top/vd/dir",
        )
        .ends_with(0);
        finish(run(&stage, &["--no-drain"], change)).ends_with(0);
        by_root(&stage, SWAP).ends_with(0);
        stage.say(&["drain", "--buffer", "pfs"]).ends_with(75);
        let victims = stage.pfs().join("top/nd");
        assert_eq!(in_victims(&victims), ["conf", "dir", "same"], "{change}");
        assert_eq!(in_victims(&victims.join("dir")), ["in"], "{change}");
        assert_eq!(fs::read(victims.join("same")).unwrap(), b"same\n");
    }
}

/// The old place of what was renamed is a path of the PFS, at which another directory may lie by now.
#[test]
fn what_was_renamed_out_of_a_directory_is_looked_for_in_that_alone() {
    as_root!();
    for renames in [
        "mallory mv pfs/top/nd/f pfs/top/g; mallory mv pfs/top/nd/dir pfs/top/gd",
        "mallory mkdir pfs/top/n; mallory mv pfs/top/nd/f pfs/top/n/g; mallory mv pfs/top/nd/dir pfs/top/n/gd; \
         mallory mv pfs/top/n/g pfs/top/n/gd pfs/top",
        "mv pfs/top/nd/f pfs/top/g; mv pfs/top/nd/dir pfs/top/gd",
    ] {
        let stage = Stage::new();
        by_root(&stage, BEFORE).ends_with(0);
        by_root(
            &stage,
            "mkdir -p pfs/top/nd/dir/in pfs/top/vd/dir/in; echo own > pfs/top/nd/dir/in/f; \
             echo secret | tee pfs/top/vd/f pfs/top/vd/dir/in/f > pfs/top/vd/dir/in/secret; \
             chmod -R a+rwX pfs/top/nd/dir pfs/top/vd/dir pfs/top/vd/f",
        )
        .ends_with(0);
        finish(run(&stage, &["--no-drain"], renames)).ends_with(0);
        by_root(&stage, SWAP).ends_with(0);
        let attack = "mallory sh -c 'cd pfs/top; cat g gd/in/f; ls -R gd; rm gd/in/f; mv gd/in/secret .; \
                      echo evil > gd/in/secret; cd gd/in && rm f' 2> /dev/null || true";
        let said = finish(run(&stage, &["--no-drain", "-q"], attack)).ends_with(0);
        assert!(!said.out.contains("secret"), "{renames}: {said:?}");
        stage.say(&["drain", "--buffer", "pfs"]);
        let inner = stage.pfs().join("top/nd/dir/in");
        assert_eq!(in_victims(&inner), ["f", "secret"], "{renames}");
        for name in ["f", "secret"] {
            assert_eq!(
                fs::read(inner.join(name)).unwrap(),
                b"secret\n",
                "{renames}"
            );
        }
    }
}

#[test]
fn what_root_decides_about_a_swapped_directory_is_done_in_the_one_that_is_there_now() {
    as_root!();
    for (side, f) in [("ours", None), ("theirs", Some(&b"fresh\n"[..]))] {
        let stage = Stage::new();
        by_root(&stage, BEFORE).ends_with(0);
        finish(run(&stage, &["--no-drain"], "mallory rm pfs/top/nd/f")).ends_with(0);
        by_root(
            &stage,
            "mallory mv pfs/top/nd pfs/top/gone; mallory mkdir pfs/top/nd; mallory sh -c 'echo fresh > pfs/top/nd/f'",
        )
        .ends_with(0);
        stage.say(&["drain", "--buffer", "pfs"]).ends_with(75);
        let take = ["drain", "--buffer", "pfs", "--take", side, "top/nd/f"];
        stage.say(&take).ends_with(0);
        let top = stage.pfs().join("top");
        assert_eq!(fs::read(top.join("nd/f")).ok().as_deref(), f, "{side}");
        assert_eq!(fs::read(top.join("gone/f")).unwrap(), b"f\n");
    }
}

/// A tree that was copied back has other directories, and is the same one all the same.
#[test]
fn what_users_have_made_comes_into_a_tree_that_was_copied_back_or_has_moved() {
    as_root!();
    for (lock, options) in [
        ("", &[][..]),
        ("rm -f new/.forebay*;", &["--root-has-moved"]),
    ] {
        let stage = Stage::new();
        by_root(&stage, BEFORE).ends_with(0);
        let first = "mallory mkdir pfs/top/made; mallory touch pfs/top/made/a";
        finish(run(&stage, &["--keep"], first)).ends_with(0);
        let make = "mallory sh -c 'echo f > pfs/top/nd/new; echo f > pfs/top/made/b'";
        finish(run(&stage, &["--no-drain"], make)).ends_with(0);
        by_root(
            &stage,
            &format!("cp -a pfs new; {lock} mv pfs old; mv new pfs"),
        )
        .ends_with(0);
        let drain = [&["drain", "--buffer", "pfs"][..], options].concat();
        stage.say(&drain).ends_with(0);
        let top = stage.pfs().join("top");
        assert_eq!(in_victims(&top.join("nd")), ["f", "new"]);
        assert_eq!(in_victims(&top.join("made")), ["a", "b"]);
    }
}

/// The tables are lost, and with them which directory was the right one.
#[test]
fn after_a_rebuild_what_users_have_made_comes_into_the_directory_that_is_there() {
    as_root!();
    let stage = Stage::new();
    by_root(&stage, BEFORE).ends_with(0);
    let make = "mallory sh -c 'echo f > pfs/top/nd/new'";
    finish(run(&stage, &["--no-drain"], make)).ends_with(0);
    stage
        .say(&["fsck", "--storage", "storage", "--rebuild"])
        .ends_with(0);
    by_root(&stage, "cd pfs/top; mv nd gone; mallory mkdir nd").ends_with(0);
    stage.say(&["drain", "--buffer", "pfs"]).ends_with(0);
    assert_eq!(in_victims(&stage.pfs().join("top/nd")), ["new"]);
    assert_eq!(in_victims(&stage.pfs().join("top/gone")), ["f"]);
}

/// `fs.protected_*`, whatever they are here: the answers are those of the kernel.
#[test]
fn what_linux_forbids_about_links_and_files_of_others_is_forbidden_in_the_buffer() {
    as_root!();
    let stage = Stage::new();
    let make = "chmod 755 .; mkdir -m 1777 pfs/sticky; echo text > pfs/sticky/file; chmod 666 pfs/sticky/file; \
                echo text > pfs/sticky/mine; chmod 600 pfs/sticky/mine; cp pfs/sticky/mine pfs/sticky/read; \
                chmod 644 pfs/sticky/read; cp pfs/sticky/file pfs/sticky/suid; chmod 4666 pfs/sticky/suid; \
                victim sh -c 'ln -s file pfs/sticky/link; echo text > pfs/sticky/theirs; chmod 666 pfs/sticky/theirs; mkfifo -m 666 pfs/sticky/fifo'";
    by_root(&stage, make).ends_with(0);
    let work = "set +e; cd pfs/sticky; \
                answer() { \"$@\" > /dev/null 2>&1; echo \"$? $*\"; }; \
                for f in file mine read suid theirs; do answer mallory ln $f ln-$f; answer victim ln -P $f lv-$f; answer ln $f lr-$f; done; \
                answer mallory ln fifo ln-fifo; answer mallory ln link ln-link; \
                for who in mallory victim ''; do \
                  answer $who cat link; answer $who cat link/; answer $who sh -c 'echo 1 > link'; \
                  answer $who sh -c 'echo 1 > theirs'; answer $who sh -c 'echo 1 >> file'; \
                  answer $who /usr/bin/python3 -c 'import os; os.open(\"fifo\", os.O_CREAT | os.O_RDWR | os.O_NONBLOCK)'; \
                done";
    let in_the_buffer = finish(run(&stage, &["--no-drain", "-q"], work)).ends_with(0);
    let natively = by_root(&stage, work).ends_with(0);
    assert_eq!(in_the_buffer.out, natively.out);
}

/// Natively nobody gets into the directory of the victim, whatever the modes of what is in it.
#[test]
fn what_is_read_while_directories_change_places_is_what_its_reader_may_see() {
    as_root!();
    let stage = Stage::new();
    by_root(&stage, BEFORE).ends_with(0);
    by_root(
        &stage,
        "victim mkdir pfs/top/vd/sub; victim sh -c 'echo secret > pfs/top/vd/f; echo secret > pfs/top/vd/sub/g; \
                                                    touch pfs/top/vd/secret pfs/top/vd/sub/secret'; \
         mallory mkdir pfs/top/nd/sub; mallory sh -c 'echo own > pfs/top/nd/f; echo own > pfs/top/nd/sub/g'",
    )
    .ends_with(0);
    fs::write(stage.path("read.py"), READ).unwrap();
    let read = run(
        &stage,
        &["--no-drain", "-q"],
        "mallory /usr/bin/python3 read.py",
    );
    let said = while_they_change_places(&stage, read).ends_with(0);
    let seen: Vec<&str> = said.out.split_whitespace().collect();
    assert!(seen.contains(&"own"), "{seen:?}");
    assert!(!said.out.contains("secret"), "{seen:?}");
}

/// What a program does in a directory that it has open, be it of root or of the victim, is done in no other one: this is what `rm -r` and
/// `chown -R` rely on.
#[test]
fn what_is_done_relative_to_a_directory_is_done_in_no_other_one_that_has_its_place_now() {
    as_root!();
    for (who, own, other) in [("", "nd", "vd"), ("victim", "vd", "nd")] {
        let stage = Stage::new();
        by_root(&stage, BEFORE).ends_with(0);
        let files = "for n in $(seq 40); do for d in nd vd; do for f in read gone mode old; do echo $d > pfs/top/$d/$f$n; done; done; done; \
                     chown 65534:65534 pfs/top/nd/*; chown 1000:1000 pfs/top/vd/*; chmod 777 pfs/top/nd";
        by_root(&stage, files).ends_with(0);
        fs::write(stage.path("relative.py"), RELATIVE).unwrap();
        let seen = |at: &str| {
            let dir = stage.pfs().join("top").join(at);
            let seen = in_victims(&dir).into_iter().map(|name| {
                let mode = fs::metadata(dir.join(&name)).unwrap().permissions().mode() & 0o777;
                (name, mode)
            });
            seen.collect::<Vec<_>>()
        };
        let before = seen(other);
        let work = format!("{who} /usr/bin/python3 relative.py pfs/top {own}");
        let work = run(&stage, &["--no-drain"], &work);
        while_they_change_places(&stage, work).ends_with(0);
        assert_eq!(seen(other), before);
        // A name in the buffer has a path: what was done while the directory was at the other path arrives when it is there.
        by_root(&stage, EXCHANGE).ends_with(0);
        stage.say(&["drain", "--buffer", "pfs"]);
        assert_eq!(seen(own), before, "{own} is {other} now");
        by_root(&stage, EXCHANGE).ends_with(0);
        stage.say(&["drain", "--buffer", "pfs"]).ends_with(0);
        assert_eq!(seen(other), before);
        let own = seen(own);
        let count = |what: &str, modes: &[u32]| {
            let is_one =
                |(name, mode): &&(String, u32)| name.starts_with(what) && modes.contains(mode);
            own.iter().filter(is_one).count()
        };
        let usual = &[0o644];
        assert_eq!(
            [count("gone", usual), count("old", usual)],
            [0, 0],
            "{own:?}"
        );
        assert_eq!(
            [
                count("new", usual),
                count("name", usual),
                count("mode", &[0o604])
            ],
            [40, 40, 40],
            "{own:?}"
        );
    }
}

/// What waits for a directory is in that one: neither does it show in another one that has its place, nor can anybody get at it there.
#[test]
fn what_waits_for_a_directory_is_not_in_the_one_that_has_its_place_now() {
    as_root!();
    let in_run = |stage: &Stage, script: &str| {
        let script = format!("set +e; {script}; true");
        finish(run(stage, &["--no-drain", "-q"], &script))
            .ends_with(0)
            .out
    };
    // Of the victim, for mallory.
    let stage = Stage::new();
    by_root(&stage, BEFORE).ends_with(0);
    let make = "victim sh -c 'cd pfs/top/vd; echo secret > f; echo kept > g; echo k > h; chmod 666 h; mkdir e; mv conf moved'";
    in_run(&stage, make);
    by_root(&stage, EXCHANGE).ends_with(0);
    let steal = "mallory sh -c 'cd pfs/top/vd; cat f ../vd/f moved; rm g ../vd/g; echo evil > h; mv f ../stolen; rmdir e; ls'; \
                 mallory sh -c 'cd pfs/top; cat vd/f; echo evil >> vd/h; mkdir vd/g; mv vd/e taken; ls vd; mv vd mine; rmdir vd'";
    let said = in_run(&stage, &format!("{{ {steal}; }} 2>&1"));
    assert!(!said.contains("secret") && said.contains("busy"), "{said}");
    by_root(&stage, EXCHANGE).ends_with(0);
    stage.say(&["drain", "--buffer", "pfs"]).ends_with(0);
    let kept = by_root(&stage, "cd pfs/top/vd; cat f g h moved; ls; ls ..").ends_with(0);
    assert_eq!(
        kept.out,
        "secret\nkept\nk\nconf\ne\nf\ng\nh\nmoved\nlinked\nnd\nod\nold\nvd\n"
    );
    // In a directory of the victim that another one is around now: it does not move with that.
    let stage = Stage::new();
    let around =
        "mallory mkdir pfs/top/a pfs/top/b; mv pfs/top/vd pfs/top/a/vd; chmod 777 pfs/top/a";
    by_root(&stage, &format!("{BEFORE}; {around}")).ends_with(0);
    in_run(&stage, "victim sh -c 'echo secret > pfs/top/a/vd/f'");
    let turn = "mv pfs/top/a pfs/top/x; mv pfs/top/b pfs/top/a; mv pfs/top/x pfs/top/b";
    by_root(&stage, turn).ends_with(0);
    let said = in_run(&stage, "mallory mv pfs/top/a pfs/top/out 2>&1");
    assert!(said.contains("busy"), "{said}");
    // Nor does what mallory has removed where it is now, in a directory that is elsewhere, keep it from view.
    let there = "mv pfs/top/a/vd pfs/top/b/vd; mallory mkdir pfs/top/a/vd";
    by_root(&stage, &format!("{turn}; {there}")).ends_with(0);
    in_run(&stage, "mallory rmdir pfs/top/a/vd");
    by_root(&stage, turn).ends_with(0);
    let said = in_run(&stage, "victim sh -c 'cd pfs/top/a/vd; ls; cat conf'");
    assert!(said.ends_with("conf\n"), "{said}");
    // Of mallory, for root, who works in a directory.
    let stage = Stage::new();
    by_root(&stage, BEFORE).ends_with(0);
    by_root(
        &stage,
        "echo deny > pfs/top/vd/deny; echo own > pfs/top/vd/own",
    )
    .ends_with(0);
    let make = "mallory sh -c 'cd pfs/top/nd; echo deny > deny; rm deny; echo evil > GNUmakefile; touch log; chmod 666 log; mkdir own'";
    in_run(&stage, make);
    by_root(&stage, EXCHANGE).ends_with(0);
    let work = "cd pfs/top/nd; ls; cat deny own; echo password > log; ls";
    let said = in_run(&stage, &format!("{{ {work}; }} 2>&1"));
    assert!(said.starts_with("conf\ndeny\nown\ndeny\nown\n"), "{said}");
    assert!(said.contains("log: Device or resource busy"), "{said}");
    by_root(&stage, EXCHANGE).ends_with(0);
    let read = in_run(&stage, "mallory sh -c 'ls pfs/top/nd; cat pfs/top/nd/log'");
    assert_eq!(read, "GNUmakefile\nf\nlog\nown\n");
    // What was renamed out of a directory keeps nothing of its name in the other one from view.
    let stage = Stage::new();
    let before = "mallory mkdir pfs/top/nd/d; mallory touch pfs/top/nd/d/x; \
                  victim sh -c 'cd pfs/top/vd; echo own > f; mkdir d; echo in > d/own'";
    by_root(&stage, &format!("{BEFORE}; {before}")).ends_with(0);
    in_run(&stage, "mallory sh -c 'cd pfs/top; mv nd/f nd/d .'");
    by_root(&stage, SWAP).ends_with(0);
    let look = "victim sh -c 'cd pfs/top/nd; cat f d/own; ls . d; cat ../nd/f; ls ../d'; mallory ls pfs/top/d pfs/top/f";
    let said = in_run(&stage, &format!("{{ {look}; }} 2>&1"));
    let own = "own\nin\n.:\nconf\nd\nf\n\nd:\nown\nown\n";
    assert!(said.starts_with(own), "{said}");
    // What was renamed is not in the directory in which it was.
    let gone = |path: &str| said.contains(&format!("'{path}': No such file or directory"));
    assert!(
        gone("../d") && gone("pfs/top/d") && gone("pfs/top/f"),
        "{said}"
    );
    let back = "mv pfs/top/nd pfs/top/vd; mv pfs/top/gone pfs/top/nd";
    by_root(&stage, back).ends_with(0);
    stage.say(&["drain", "--buffer", "pfs"]).ends_with(0);
    let drained = by_root(&stage, "cd pfs/top; cat f vd/f; ls d nd").ends_with(0);
    assert_eq!(drained.out, "f\nown\nd:\nx\n\nnd:\n");
}

/// The directory is away, and something else that has its place for a while is removed in the buffer.
#[test]
fn nobody_else_takes_the_name_of_a_directory_in_which_something_was_renamed() {
    as_root!();
    for gives_way in ["rm pfs/w/v", "mv pfs/w/v pfs/w/away"] {
        let stage = Stage::new();
        let before = "mkdir -m 777 pfs/w; chmod 777 pfs/w; victim sh -c 'umask 077; mkdir pfs/w/v; umask 0; echo secret > pfs/w/v/x'";
        by_root(&stage, before).ends_with(0);
        let script = |script: &str| finish(run(&stage, &["--no-drain", "-q"], script));
        script("victim mv pfs/w/v/x pfs/w/v/y").ends_with(0);
        by_root(
            &stage,
            "mallory sh -c 'mv pfs/w/v pfs/w/v2; echo f > pfs/w/v'",
        )
        .ends_with(0);
        let takes = format!(
            "mallory {gives_way}; ! mallory mkdir pfs/w/v; mallory mkdir pfs/w/m; ! mallory mv -T pfs/w/m pfs/w/v"
        );
        let said = script(&takes).ends_with(0);
        assert_eq!(said.err.matches("busy").count(), 2, "{said:?}");
        by_root(&stage, "mallory sh -c 'rm -f pfs/w/v; mv pfs/w/v2 pfs/w/v'").ends_with(0);
        script("! mallory cat pfs/w/v/y").ends_with(0);
    }
}

/// Results are rotated past the buffer while some of them wait: the user of the bridge, who sees those by a path, writes the next ones.
#[test]
fn the_user_of_the_bridge_changes_nothing_by_a_path_that_waits_for_another_directory() {
    as_root!();
    let changes = [
        "echo 2 > q/out",
        "echo 2 >> q/out",
        "truncate -s 0 q/out",
        "rm q/out",
        "touch t; mv t q/out",
        "mv q/out t",
        "ln -sf t q/out",
        "cp --remove-destination d/f q/out",
        "mv -T q/old q/o",
        "mv d/f q/old",
    ];
    let rotate = "mv q q.1; mkdir q";
    for (rotate, changes) in [
        (rotate, &changes[..]),
        (
            "mv q q.1",
            &[
                "mkdir q && echo 2 > q/out",
                "mkdir n; touch n/out; mv -T n q",
                "mkdir n n/old; mv -T n q",
                "mv -T d q",
            ],
        ),
    ] {
        for change in changes {
            let stage = Stage::new();
            let before = "mkdir -p pfs/q pfs/d; touch pfs/q/out pfs/was pfs/d/f pfs/d/out";
            by_root(&stage, before).ends_with(0);
            let first = run(
                &stage,
                &["--no-drain", "-q"],
                "cd pfs; echo 1 > q/out; mv was q/old",
            );
            finish(first).ends_with(0);
            by_root(&stage, &format!("cd pfs; {rotate}")).ends_with(0);
            let next = format!("cd pfs; {change} || exit 9");
            let next = run(&stage, &["--no-drain", "-q"], &next);
            let said = finish(next).ends_with(9);
            assert!(said.err.contains("busy"), "{change}: {said:?}");
            stage
                .say(&[
                    "fsck",
                    "--storage",
                    &stage.path("storage").display().to_string(),
                ])
                .ends_with(0);
            let back = "cd pfs; rmdir q 2> /dev/null || true; mv q.1 q";
            by_root(&stage, back).ends_with(0);
            stage.say(&["drain", "--buffer", "pfs"]).ends_with(0);
            let after = by_root(&stage, "cd pfs; cat q/out; ls q").ends_with(0);
            assert_eq!(after.out, "1\nold\nout\n", "{change}");
        }
    }
}

/// The next results come into directories that were made in the buffer, below one of the PFS that was rotated.
#[test]
fn nor_what_is_below_a_directory_that_was_made_in_it() {
    as_root!();
    for change in [
        "mkdir -p q/step; echo 2 > q/step/out",
        "echo 2 > q/step/new",
        "mkdir q/step/new",
        "ln -s x q/step/new",
        "rm -r q/step",
        "mv q/step/out t",
        "touch t; mv t q/step/out",
        "ln q/step/out t",
        "ln q/out t",
        "ls q/step",
        "mv q z",
        "python3 -c \"import os; os.open('new', os.O_CREAT | os.O_WRONLY, dir_fd=os.open('q/step', os.O_PATH))\"",
        "python3 -c \"import os; os.chdir('q/step')\" && echo 2 > q/out",
    ] {
        let stage = Stage::new();
        by_root(&stage, "mkdir -p pfs/q").ends_with(0);
        let first = "cd pfs; mkdir q/step; echo 1 > q/step/out; echo 1 > q/out";
        finish(run(&stage, &["--no-drain", "-q"], first)).ends_with(0);
        by_root(&stage, "cd pfs; mv q q.1; mkdir q").ends_with(0);
        let next = format!("cd pfs; {{ {change}; }} || exit 9");
        let said = finish(run(&stage, &["--no-drain", "-q"], &next)).ends_with(9);
        assert!(said.err.contains("busy"), "{change}: {said:?}");
        by_root(&stage, "cd pfs; rmdir q; mv q.1 q").ends_with(0);
        stage.say(&["drain", "--buffer", "pfs"]).ends_with(0);
        let after = by_root(&stage, "cd pfs; cat q/step/out q/out; ls q/step").ends_with(0);
        assert_eq!(after.out, "1\n1\nout\n", "{change}");
    }
}

/// What waits is below something renamed, in a directory of the buffer.
#[test]
fn nor_below_what_was_renamed_into_one() {
    as_root!();
    let stage = Stage::new();
    by_root(&stage, "mkdir -p pfs/m/s pfs/m/s2").ends_with(0);
    let first = "cd pfs; mkdir born; mv m born/m; mkdir -p born/m/s/x/y; echo 1 > born/m/s/x/y/f";
    finish(run(&stage, &["--no-drain", "-q"], first)).ends_with(0);
    by_root(&stage, "cd pfs/m; mv s s.1; mv s2 s").ends_with(0);
    let change =
        "cd pfs; echo 2 > born/m/s/x/y/f; rm born/m/s/x/y/f; mkdir born/m/s/x/y/z; ls born/m/s/x/y";
    let said = finish(run(
        &stage,
        &["--no-drain", "-q"],
        &format!("set +e; {{ {change}; }} 2>&1"),
    ));
    assert_eq!(said.out.matches("busy").count(), 4, "{said:?}");
    by_root(&stage, "cd pfs/m; mv s s2; mv s.1 s").ends_with(0);
    stage.say(&["drain", "--buffer", "pfs"]).ends_with(0);
    let after = by_root(&stage, "cd pfs/born/m/s/x/y; cat f; ls").ends_with(0);
    assert_eq!(after.out, "1\nf\n");
}

/// A directory was drained and more waits in it: what has the place of the one around it neither moves nor goes.
#[test]
fn nor_moves_what_waits_below_a_directory_that_was_drained() {
    as_root!();
    let stage = Stage::new();
    by_root(&stage, "mkdir -p pfs/q/s pfs/o").ends_with(0);
    let in_run = |script: &str| finish(run(&stage, &["--no-drain", "-q"], script));
    in_run("mkdir pfs/q/s/nd; echo 1 > pfs/q/s/nd/x").ends_with(0);
    stage
        .say(&["drain", "--keep", "--buffer", "pfs"])
        .ends_with(0);
    in_run("echo 2 > pfs/q/s/nd/y").ends_with(0);
    by_root(&stage, "mv pfs/q/s pfs/R; mkdir pfs/q/s").ends_with(0);
    let said = in_run("set +e; { mv pfs/q/s pfs/o/dd; rmdir pfs/q/s; } 2>&1");
    assert_eq!(said.out.matches("busy").count(), 2, "{said:?}");
    by_root(&stage, "rmdir pfs/q/s; mv pfs/R pfs/q/s").ends_with(0);
    stage.say(&["drain", "--buffer", "pfs"]).ends_with(0);
    let after = by_root(&stage, "cd pfs; ls -A q q/s o; cat q/s/nd/x q/s/nd/y").ends_with(0);
    assert_eq!(after.out, "o:\n\nq:\ns\n\nq/s:\nnd\n1\n2\n");
}

/// Natively a user may rename a directory of root where that user may make names, and not get into it.
#[test]
fn a_private_directory_that_a_user_has_renamed_to_the_place_of_a_new_one_stays_private() {
    as_root!();
    let stage = Stage::new();
    by_root(&stage, &format!("{BEFORE}; mkdir -m 700 pfs/top/private")).ends_with(0);
    let make = "mallory mkdir pfs/top/new pfs/top/more; mallory touch pfs/top/more/f";
    finish(run(&stage, &["--no-drain", "-q"], make)).ends_with(0);
    by_root(&stage, "mallory mv -T pfs/top/private pfs/top/new").ends_with(0);
    let listed = stage.say(&["drain", "--buffer", "pfs"]).ends_with(75);
    assert!(listed.err.contains("top/new"), "{listed:?}");
    let after = by_root(&stage, "cd pfs; stat -c '%u %a' top/new; ls -A . top/more").ends_with(0);
    let lock = after.out.replace(".forebay-lock\n", "");
    assert_eq!(lock, "0 700\n.:\ntop\n\ntop/more:\nf\n");
}

/// What is sticky lets nobody take away what is there, and lets everybody put something there.
#[test]
fn a_drop_box_that_others_have_moved_to_the_place_of_a_new_directory_stays_closed() {
    as_root!();
    let stage = Stage::new();
    let before = "mkdir pfs/sty; chmod 1777 pfs/sty; mallory sh -c 'mkdir pfs/top/e; chmod 777 pfs/top/e'; \
                  victim sh -c 'mkdir pfs/top/e/drop; echo secret > pfs/top/e/drop/s; chmod 733 pfs/top/e/drop'";
    by_root(&stage, &format!("{BEFORE}; {before}")).ends_with(0);
    let make = "victim sh -c 'mkdir pfs/sty/nd pfs/sty/own; echo mine > pfs/sty/nd/mine'";
    finish(run(&stage, &["--no-drain", "-q"], make)).ends_with(0);
    let put = "mallory mv pfs/top/e/drop pfs/sty/nd; victim mkdir pfs/sty/own";
    by_root(&stage, put).ends_with(0);
    let listed = stage.say(&["drain", "--buffer", "pfs"]).ends_with(75);
    assert!(listed.err.contains("sty/nd"), "{listed:?}");
    assert!(!listed.err.contains("sty/own"), "{listed:?}");
    let after = by_root(&stage, "stat -c %a pfs/sty/nd; ls pfs/sty/nd").ends_with(0);
    assert_eq!(after.out, "733\ns\n");
}

/// Where others may rename, a new directory is made apart: it gets what its own parent gives on, and nothing is left of how it was made.
#[test]
fn a_directory_that_is_made_in_a_shared_one_is_as_if_it_was_made_there() {
    as_root!();
    let stage = Stage::new();
    let before = "cd pfs; setfacl -d -m u:1501:rwx .; mkdir -m 2777 s plain; chmod 2777 s plain; chgrp 2000 s plain; \
                  setfacl -b -k plain; setfacl -b -k s; setfacl -d -m u:1502:rwx s";
    by_root(&stage, before).ends_with(0);
    let make =
        "umask 0; cd pfs; mkdir s/new plain/new; mkdir -m 300 plain/closed; echo x > s/new/f";
    finish(run(&stage, &["-q"], make)).ends_with(0);
    by_root(
        &stage,
        "cd pfs; umask 0; mkdir s/twin plain/twin; mkdir -m 300 plain/twins",
    )
    .ends_with(0);
    let look = |dir: &str| {
        let dir = format!("cd pfs/{dir}; stat -c '%A %u %g' .; getfacl -cnp .; getfattr -dm- .");
        by_root(&stage, &dir).ends_with(0).out
    };
    for (new, twin) in [
        ("s/new", "s/twin"),
        ("plain/new", "plain/twin"),
        ("plain/closed", "plain/twins"),
    ] {
        assert_eq!(look(new), look(twin));
    }
    assert!(look("s/new").contains("1502"));
    let left = by_root(&stage, "find pfs -name '.forebay-*' ! -name .forebay-lock").ends_with(0);
    assert_eq!(left.out, "");
}

/// A name at which nothing shows, since its directory or what was renamed to it is elsewhere, is nobody else's.
#[test]
fn nobody_else_takes_a_name_at_which_something_waits() {
    as_root!();
    let stage = Stage::new();
    let before = "chmod 755 .; mkdir -m 777 pfs/w pfs/w/mid pfs/w/o; chmod 777 pfs/w pfs/w/mid pfs/w/o; mkdir -m 1777 pfs/t; chmod 1777 pfs/t; \
                  chown 65534:65534 pfs/w/mid; victim sh -c 'umask 077; mkdir pfs/w/v pfs/w/o/r pfs/w/mid/v; echo x > pfs/w/mid/v/x; echo g > pfs/w/mid/v/gone'";
    by_root(&stage, before).ends_with(0);
    let script = |script: &str| {
        run(
            &stage,
            &["--no-drain", "-q"],
            &format!("set +e; {script}; true"),
        )
    };
    let make = "victim sh -c 'echo secret > pfs/w/v/s; mv pfs/w/o/r pfs/t/r; echo secret > pfs/t/r/s; mv pfs/w/mid/v/x pfs/w/mid/v/y; rm pfs/w/mid/v/gone'";
    finish(script(make)).ends_with(0);
    let away = "mallory sh -c 'mv pfs/w/v pfs/w/v2; mv pfs/w/o/r pfs/w/o/r2; mv pfs/w/mid pfs/w/mid2; mkdir pfs/w/mid'";
    by_root(&stage, away).ends_with(0);
    let takes = [
        "mkdir pfs/w/v",
        "touch pfs/w/v",
        "ln -s x pfs/w/v",
        "ln pfs/w/own pfs/w/v",
        "mv pfs/w/own pfs/w/v",
        "mkdir pfs/t/r",
        "touch pfs/t/r",
        "mv pfs/w/own pfs/t/r",
        "rmdir pfs/w/mid",
        "mv pfs/w/mid pfs/w/other",
    ];
    let takes = takes.map(|take| format!("mallory {take}")).join("; ");
    let said = finish(script(&format!(
        "mallory touch pfs/w/own; {{ {takes}; }} 2>&1"
    )))
    .ends_with(0);
    let refused = |line: &&str| line.contains("busy") || line.contains("File exists");
    assert_eq!(said.out.lines().filter(refused).count(), 10, "{said:?}");
    assert!(!said.out.contains("secret"), "{said:?}");
    // Nor by way of something else that has its place for a while, or of a directory around it.
    let around = "mallory sh -c 'mv pfs/w/mid pfs/w/m3; echo f > pfs/w/v'";
    by_root(&stage, around).ends_with(0);
    let exchange = "import ctypes, os; libc = ctypes.CDLL(None, use_errno=True); \
                    libc.renameat2(-100, b'pfs/w/mine', -100, b'pfs/w/v', 2) and print(os.strerror(ctypes.get_errno()))";
    let takes = format!(
        "mallory mkdir pfs/w/mine; mallory {} -c \"{exchange}\"; mallory mv -T pfs/w/own pfs/w/v; mallory mv pfs/w/v pfs/w/mine/v; \
         mallory rm -f pfs/w/v; mallory mkdir pfs/w/v; mallory mkdir pfs/w/mid pfs/w/mid/v; mallory cat pfs/w/v/s; mallory rm -r pfs/w/mine",
        common::PYTHON
    );
    let said = finish(script(&format!("{{ {takes}; }} 2>&1"))).ends_with(0);
    assert_eq!(said.out.lines().filter(refused).count(), 4, "{said:?}");
    assert!(!said.out.contains("secret"), "{said:?}");
    by_root(&stage, "mallory sh -c 'rm pfs/w/v; mv pfs/w/m3 pfs/w/mid'").ends_with(0);
    let back = "mallory sh -c 'mv pfs/w/v2 pfs/w/v; mv pfs/w/o/r2 pfs/w/o/r; rmdir pfs/w/mid; mv pfs/w/mid2 pfs/w/mid'";
    by_root(&stage, back).ends_with(0);
    // What mallory has removed there was another thing.
    stage.say(&["drain", "--buffer", "pfs"]).ends_with(75);
    let settle = ["drain", "--buffer", "pfs", "--take", "theirs", "w/v"];
    stage.say(&settle).ends_with(0);
    let now = by_root(&stage, "cat pfs/w/v/s pfs/t/r/s; ls pfs/w/mid/v").ends_with(0);
    assert_eq!(now.out, "secret\nsecret\ny\n");
}

/// A directory that was drained before it was renamed is known as well.
#[test]
fn what_was_drained_and_renamed_is_not_what_others_put_where_it_was() {
    as_root!();
    let stage = Stage::new();
    by_root(&stage, BEFORE).ends_with(0);
    let before = "mkdir -m 755 pfs/top/vd/D pfs/top/vd/D/E; echo secret > pfs/top/vd/D/s; echo secret > pfs/top/vd/D/E/s; chown -R 1000 pfs/top/vd";
    by_root(&stage, before).ends_with(0);
    let make = "mallory sh -c 'mkdir -p pfs/top/nd/D/E; echo x > pfs/top/nd/D/E/x'";
    finish(run(&stage, &["--keep", "-q"], make)).ends_with(0);
    let rename = "mallory mv pfs/top/nd/D pfs/top/q";
    finish(run(&stage, &["--no-drain", "-q"], rename)).ends_with(0);
    by_root(&stage, SWAP).ends_with(0);
    let look = "set +e; mallory ls pfs/top/q pfs/top/q/E; mallory cat pfs/top/q/s pfs/top/q/E/s pfs/top/q/E/x; true";
    let said = finish(run(&stage, &["--no-drain", "-q"], look)).ends_with(0);
    assert_eq!(said.out, "", "{said:?}");
    by_root(
        &stage,
        "mallory mv pfs/top/nd pfs/top/vd; mallory mv pfs/top/gone pfs/top/nd",
    )
    .ends_with(0);
    stage.say(&["drain", "--buffer", "pfs"]).ends_with(0);
    let now = by_root(&stage, "cat pfs/top/q/E/x pfs/top/vd/D/E/s").ends_with(0);
    assert_eq!(now.out, "x\nsecret\n");
}

/// Others may move a directory that a drain has made, and a private one of the same user to its place.
#[test]
fn what_a_drain_has_made_is_not_made_again_where_others_have_moved_it_and_what_has_its_place_gets_nothing()
 {
    as_root!();
    let stage = Stage::new();
    by_root(&stage, BEFORE).ends_with(0);
    let open = "mallory sh -c 'umask 0; mkdir pfs/top/open pfs/top/other'; mkdir -m 777 pfs/g; chmod 777 pfs/g; \
                mv pfs/top/vd pfs/top/open/p";
    by_root(&stage, open).ends_with(0);
    let make = "victim sh -c 'umask 0; mkdir pfs/top/open/a pfs/top/open/b pfs/top/other/c; echo x > pfs/g/x'";
    finish(run(&stage, &["--no-drain", "-q"], make)).ends_with(0);
    by_root(&stage, "mv pfs/g pfs/gg").ends_with(0);
    // What is left keeps all in the buffer.
    let drain = || stage.say(&["drain", "--buffer", "pfs"]).ends_with(75);
    drain();
    let swap = "mallory sh -c 'cd pfs/top; mv open/a a2; mv open/b b2; mv open/p open/b; mv other o2; mkdir other'";
    by_root(&stage, swap).ends_with(0);
    drain();
    let look = "cd pfs/top; stat -c %u:%a a2 b2 o2/c open/b";
    let now = by_root(&stage, look).ends_with(0);
    let is_gone = |at: &str| !fs::exists(stage.path(at)).unwrap();
    assert!(
        is_gone("pfs/top/open/a") && is_gone("pfs/top/other/c"),
        "{now:?}"
    );
    assert_eq!(now.out, "1000:777\n1000:777\n1000:777\n1000:700\n");
    // Nor where one is to be made for the first time.
    let make = "victim sh -c 'umask 0; mkdir pfs/top/open/n; echo y > pfs/top/open/n/y'";
    finish(run(&stage, &["--no-drain", "-q"], make)).ends_with(0);
    by_root(&stage, "mallory mv pfs/top/open/b pfs/top/open/n").ends_with(0);
    drain().tells("top/open/n");
    let now = by_root(&stage, "stat -c %u:%a pfs/top/open/n; ls pfs/top/open/n").ends_with(0);
    assert_eq!(now.out, "1000:700\nconf\n");
}

/// `..` leads to the directory above, and not to one that has its place.
#[test]
fn the_way_up_from_a_directory_leads_into_no_other_one() {
    as_root!();
    let stage = Stage::new();
    by_root(&stage, BEFORE).ends_with(0);
    let before = "echo private > private; chmod 600 private; mkdir pfs/top/vd/sub; mallory mkdir pfs/top/nd/sub; \
                  echo own > pfs/top/vd/m; mallory ln -s ../../../private pfs/top/nd/m";
    by_root(&stage, before).ends_with(0);
    finish(run(&stage, &["--no-drain", "-q"], "mkdir pfs/top/vd/born")).ends_with(0);
    by_root(&stage, EXCHANGE).ends_with(0);
    // Root finds by its path what waits for the directory that is elsewhere now.
    let work = "set +e; cd pfs/top/vd/born; chmod 666 ../m; cat ../m; echo evil > ../m; echo new > ../new; ls ..; ls ../..";
    let said = finish(run(&stage, &["--no-drain", "-q"], work));
    assert!(!said.out.contains("private"), "{said:?}");
    by_root(&stage, EXCHANGE).ends_with(0);
    stage.say(&["drain", "--buffer", "pfs"]).ends_with(0);
    let after = by_root(&stage, "stat -c %a private; cat private; ls pfs/top/nd").ends_with(0);
    assert_eq!(after.out, "600\nprivate\nf\nm\nsub\n");
    // While they change places.
    fs::write(stage.path("up.py"), UP).unwrap();
    let work = run(
        &stage,
        &["--no-drain", "-q"],
        "/usr/bin/python3 up.py pfs/top vd",
    );
    let said = while_they_change_places(&stage, work).ends_with(0);
    assert_eq!(said.out, "own\n");
    let after = by_root(&stage, "stat -c %a private").ends_with(0);
    assert_eq!(after.out, "600\n");
}

/// Reads and changes something in the directory above its own one.
const UP: &str = r#"
import os, sys
top, own = sys.argv[1:]
while True:
    fd = os.open(f'{top}/{own}/sub', os.O_RDONLY | os.O_DIRECTORY)
    if os.fstat(fd).st_uid == 0:
        break
    os.close(fd)
os.fchdir(fd)
seen = set()
for _ in range(2000):
    seen.add(open('../m').read())
    os.chmod('../m', 0o644, dir_fd=fd)
print(*seen, end='')
"#;

/// Whoever owned the directory out of which something was renamed has no say any more in what that is.
#[test]
fn what_was_renamed_is_not_what_others_put_where_it_was() {
    as_root!();
    for who in ["", "victim"] {
        let stage = Stage::new();
        let before = format!(
            "{BEFORE}; mkdir -m 755 pfs/out; echo private > pfs/private; chmod 600 pfs/private; mallory chmod 777 pfs/top/nd; \
             mallory sh -c 'cd pfs/top/nd; echo 1 > r1; echo 2 > r2; echo 3 > r3; mkdir t'; [ -z '{who}' ] || chown 1000:1000 pfs/out pfs/private"
        );
        by_root(&stage, &before).ends_with(0);
        let renames =
            format!("{who} sh -c 'mv pfs/top/nd/r[123] pfs/out'; mv pfs/top/nd/t pfs/out");
        finish(run(&stage, &["--no-drain", "-q"], &renames)).ends_with(0);
        let replace = "cd pfs/top/nd; for r in r1 r2 r3; do mallory rm $r; mallory ln -s ../../private $r; done; \
                       mallory mv t u; mallory mkdir t; mallory touch t/evil";
        by_root(&stage, replace).ends_with(0);
        let work = "cd pfs/out; chmod 644 r1; echo new > r2; cat r3; ls t; cd ..; cat out/r3; chmod 644 out/r1";
        let work = format!("set +e; {who} sh -c '{work}' 2>&1");
        let said = finish(run(&stage, &["--no-drain", "-q"], &work));
        assert!(!said.out.contains("private\n"), "{said:?}");
        assert!(!said.out.contains("evil"), "{said:?}");
        let listed = stage.say(&["drain", "--buffer", "pfs"]).ends_with(75);
        assert!(
            listed.err.contains("out/r1") && listed.err.contains("out/t"),
            "{listed:?}"
        );
        let after = by_root(&stage, "stat -c %a pfs/private; cat pfs/private").ends_with(0);
        assert_eq!(after.out, "600\nprivate\n");
    }
}

/// In the other directory lie links to private files.
#[test]
fn the_same_in_a_buffer_of_ones_own() {
    as_root!();
    let stage = Stage::new();
    let mut work = run_of_victim(&stage, VICTIM);
    let before = format!(
        "chmod 755 . own own/pfs; cd own/pfs; mkdir -m 777 top; chmod 777 top; mkdir top/own private; \
         for n in $(seq 50); do echo own > top/own/f$n; echo private > private/f$n; done; chmod 600 private/* top/own/*; \
         chown -R {VICTIM}:{VICTIM} private top/own; \
         mallory mkdir top/links; for n in $(seq 50); do mallory ln -s ../../private/f$n top/links/f$n; done"
    );
    by_root(&stage, &before).ends_with(0);
    fs::write(stage.path("chmod.py"), CHMOD).unwrap();
    work.args([
        "--no-drain",
        "--no-record",
        "--",
        common::PYTHON,
        "chmod.py",
    ]);
    while_exchanged(&stage, "own/pfs/top/own own/pfs/top/links", work).ends_with(0);
    let modes = by_root(&stage, "stat -c %a own/pfs/private/* | sort -u").ends_with(0);
    assert_eq!(modes.out, "600\n");
}

/// Changes the modes of its own files, relative to its own directory.
const CHMOD: &str = r#"
import os
fd = -1
while fd < 0 or os.fstat(fd).st_uid != os.getuid():
    fd = os.open('own/pfs/top/own', os.O_RDONLY)
for n in range(6000):
    name = f'f{n % 50 + 1}'
    os.chmod(name, 0o644, dir_fd=fd)
    assert open(os.open(name, os.O_RDONLY, dir_fd=fd)).read() == 'own\n'
"#;

/// Works in a directory that changes its place, by a descriptor of it and as its working directory.
const RELATIVE: &str = r#"
import os, sys
top, own = sys.argv[1:]
os.umask(0o022)
while True:
    fd = os.open(f'{top}/{own}', os.O_RDONLY | os.O_DIRECTORY)
    if os.fstat(fd).st_uid == (65534 if own == 'nd' else 1000):
        break
    os.close(fd)
os.fchdir(fd)
for _ in range(1000):
    assert open('read1').read() == own + '\n'
    assert os.stat('read2', dir_fd=fd).st_uid == os.fstat(fd).st_uid
for n in range(1, 41):
    os.unlink(f'gone{n}', dir_fd=fd)
    with open(os.open(f'new{n}', os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644, dir_fd=fd), 'w') as new:
        new.write(own)
    os.chmod(f'mode{n}', 0o604)
    os.rename(f'old{n}', f'name{n}', src_dir_fd=fd, dst_dir_fd=fd)
"#;

/// Reads what it can get in the directory that changes its place, and says what it has seen.
const READ: &str = r#"
import os
seen = set()
def look(call):
    try:
        seen.add(call())
    except OSError:
        pass
for _ in range(4000):
    for path in ('pfs/top/nd/f', 'pfs/top/nd/sub/g'):
        look(lambda: open(path).read().strip())
        look(lambda: str(os.stat(path).st_uid))
    for path in ('pfs/top/nd', 'pfs/top/nd/sub'):
        look(lambda: ' '.join(sorted(os.listdir(path))))
print(*seen)
"#;

/// While a drain is at work the directory that it has made is swapped, again and again.
#[test]
fn the_same_while_a_drain_makes_the_directory() {
    as_root!();
    let stage = Stage::new();
    by_root(&stage, BEFORE).ends_with(0);
    by_root(&stage, "rm -r pfs/top/nd").ends_with(0);
    let make = "mallory mkdir pfs/top/nd; \
                mallory sh -c 'for n in $(seq 200); do echo evil > pfs/top/nd/keys$n; done'";
    finish(run(&stage, &["--no-drain"], make)).ends_with(0);
    let mut swaps = stage.command("bash");
    let endless = format!(
        "{AS_USER}; cd pfs/top; \
         mallory sh -c 'until [ -e stop ]; do \
            if [ -d nd ] && mv -T nd gone 2> /dev/null; then mv -T vd nd; mv -T nd vd; mv -T gone nd; touch swapped; fi; done'"
    );
    swaps.args(["-c", &endless]);
    let mut swaps = start(swaps);
    let mut drains = 0;
    // Until the directory was swapped while it was drained, and a few times more.
    while drains < 3 || (drains < 50 && !stage.pfs().join("top/swapped").exists()) {
        let drained = stage.say(&["drain", "--buffer", "pfs"]);
        assert!([0, 75].contains(&drained.code), "{drained:?}");
        drains += 1;
    }
    assert!(stage.pfs().join("top/swapped").exists());
    fs::write(stage.pfs().join("top/stop"), "").unwrap();
    swaps.wait().unwrap();
    assert_eq!(in_victims(&stage.pfs().join("top/vd")), ["conf"]);
    let drained = stage.say(&["drain", "--buffer", "pfs"]);
    match drained.code {
        // A drain may have made another one while the first one was away.
        0 => {
            let dirs = ["nd", "gone"].map(|name| stage.pfs().join("top").join(name));
            let dirs = dirs.iter().filter(|dir| dir.exists());
            let names = dirs.flat_map(|dir| in_victims(dir));
            assert_eq!(names.collect::<BTreeSet<_>>().len(), 200);
        }
        // One that was swapped before it was noted is taken for theirs.
        _ => drop(
            drained
                .ends_with(75)
                .tells("top/nd: something else has appeared"),
        ),
    }
}
