//! A user who is not root, in directories that are shared with others, and among modes that let nobody read.

use super::{HOSTILE, VICTIM, as_root, run_of_victim};
use crate::stage::{Said, Stage, finish};
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};

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

/// A directory `w` of the victim and its group in a PFS directory of this user and mode, with `w/d/s/old` in it. The victim has
/// removed `w/d` in the buffer.
fn with_removed_dir(stage: &Stage, uid: u32, mode: u32) -> std::path::PathBuf {
    run(stage, "mkdir -p w/d/s; echo x > w/d/s/old").ends_with(0);
    let pfs = stage.path("own/pfs");
    let mut command = run_of_victim(stage, VICTIM);
    chown(&pfs, Some(uid), Some(VICTIM)).unwrap();
    fs::set_permissions(&pfs, Permissions::from_mode(mode)).unwrap();
    command.args(["--", "rm", "-r", "own/pfs/w/d"]);
    finish(command).ends_with(0);
    pfs
}

#[test]
fn a_directory_goes_where_the_user_may_make_no_names_in_the_root_of_the_pfs() {
    as_root!();
    let stage = Stage::new();
    let pfs = with_removed_dir(&stage, 0, 0o755);
    assert_eq!(fs::read_dir(pfs.join("w")).unwrap().count(), 0);
    assert_eq!(fs::read_dir(&pfs).unwrap().count(), 1);
}

#[test]
fn a_link_of_the_user_that_somebody_has_renamed_makes_no_directory_go_or_move() {
    as_root!();
    let stage = Stage::new();
    run(&stage, "mkdir keep private; echo x > keep/data").ends_with(0);
    let pfs = stage.path("own/pfs");
    let number = |n: u32| pfs.join(format!(".forebay-{n:032x}.gone"));
    let note = |n: u32| pfs.join(format!(".forebay-{n:032x}.gone.from"));
    // A link that the victim has unpacked beside its directory, and one of the victim or of root beside a thing of another user.
    let inode = pfs.join("keep").metadata().unwrap().ino();
    fs::rename(pfs.join("keep"), number(1)).unwrap();
    symlink(format!("{inode:x}/x"), note(1)).unwrap();
    fs::write(number(2), "planted").unwrap();
    chown(number(2), Some(HOSTILE), Some(HOSTILE)).unwrap();
    symlink("1/private/planted", note(2)).unwrap();
    for n in [1, 2] {
        std::os::unix::fs::lchown(note(n), Some(VICTIM), Some(VICTIM)).unwrap();
    }
    let said = run(&stage, "echo 1 > new").ends_with(0);
    assert!(said.err.contains("and is not: it stays"), "{}", said.err);
    assert_eq!(fs::read_to_string(number(1).join("data")).unwrap(), "x\n");
    // The same of a bridge of root.
    for n in [1, 2] {
        std::os::unix::fs::lchown(note(n), Some(0), Some(0)).unwrap();
    }
    let mut command = stage.forebay(&["run", "--buffer", "own/pfs", "--", "sh", "-c"]);
    command.arg("echo 1 > own/pfs/new2");
    finish(command).ends_with(0);
    assert_eq!(fs::read_to_string(number(1).join("data")).unwrap(), "x\n");
    assert_eq!(fs::read_to_string(number(2)).unwrap(), "planted");
    assert_eq!(fs::read_dir(pfs.join("private")).unwrap().count(), 0);
    assert!(!pfs.join("x").exists());
}

/// A stage of root in which all users may work.
fn open_to_all() -> Stage {
    let stage = Stage::new();
    for (dir, mode) in [(stage.dir.clone(), 0o755), (stage.pfs(), 0o1777)] {
        fs::set_permissions(dir, Permissions::from_mode(mode)).unwrap();
    }
    stage
}

/// A command of root's own bridge, which is left to serve users.
fn of_root(stage: &Stage, args: &[&str]) -> Said {
    finish(stage.forebay(&[args, &["--buffer", "pfs"]].concat()))
}

#[test]
fn a_directory_of_another_user_in_place_of_a_new_one_is_not_given_away() {
    as_root!();
    let stage = open_to_all();
    let at = |name: &str| stage.pfs().join(name);
    fs::create_dir(at("shared")).unwrap();
    chown(at("shared"), Some(VICTIM), Some(VICTIM)).unwrap();
    let script = format!(
        "setpriv --reuid={VICTIM} --regid={VICTIM} --clear-groups -- sh -ec \
            'umask 022; cd pfs; mkdir x shared/y; echo mine > x/mine; echo mine > shared/y/mine'"
    );
    let mut command = stage.forebay(&["run", "--no-drain", "--buffer", "pfs", "--", "sh", "-ec"]);
    command.arg(script);
    finish(command).ends_with(0);
    // One that another user has made, and one of root that the victim, whose directory it is, moves there.
    for (name, uid) in [("x", HOSTILE), ("root", 0)] {
        fs::create_dir(at(name)).unwrap();
        fs::write(at(name).join("secret"), "secret").unwrap();
        fs::set_permissions(at(name), Permissions::from_mode(0o700)).unwrap();
        chown(at(name), Some(uid), Some(uid)).unwrap();
    }
    fs::rename(at("root"), at("shared/y")).unwrap();
    let owners = || {
        ["x", "shared/y"].map(|name| {
            let dir = at(name).metadata().unwrap();
            (dir.uid(), dir.mode() & 0o777)
        })
    };
    let left = of_root(&stage, &["drain"]).ends_with(75);
    assert!(left.err.contains("appeared there"), "{}", left.err);
    assert_eq!(owners(), [(HOSTILE, 0o700), (0, 0o700)]);
    assert!(!at("x/mine").exists() && !at("shared/y/mine").exists());
    // Root decides.
    of_root(&stage, &["drain", "--take", "theirs", "x"]).ends_with(75);
    of_root(&stage, &["drain", "--take", "ours", "shared/y"]).ends_with(0);
    assert_eq!(owners(), [(HOSTILE, 0o700), (VICTIM, 0o755)]);
    for name in ["x", "shared/y"] {
        for (file, text) in [("mine", "mine\n"), ("secret", "secret")] {
            let there = fs::read_to_string(at(name).join(file));
            assert_eq!(there.unwrap(), text, "{name}/{file}");
        }
    }
}

#[test]
fn labels_that_a_user_writes_mislead_no_rebuild_of_root() {
    as_root!();
    let stage = open_to_all();
    // By system calls past the library, which hides these attributes. The label is one of a later format, which stops a rebuild.
    let label = "import ctypes, mmap, os
code = mmap.mmap(-1, 4096, prot=7)
code.write(bytes.fromhex('4889f84889f74889d64889ca4d89c24d89c80f05c3'))
raw = ctypes.CFUNCTYPE(ctypes.c_long, *[ctypes.c_long] * 6)(ctypes.addressof(ctypes.c_char.from_buffer(code)))
fd = os.open('pfs/mine', os.O_CREAT | os.O_RDWR, 0o644)
os.write(fd, b'mine')
for name in [b'user.forebay.label', b'trusted.forebay.label']:
    name, label = ctypes.create_string_buffer(name), ctypes.create_string_buffer(bytes([5]))
    print(raw(190, fd, ctypes.addressof(name), ctypes.addressof(label), 1, 0))
print(os.listxattr(fd))";
    let script = format!(
        "echo root > pfs/roots; \
        setpriv --reuid={VICTIM} --regid={VICTIM} --clear-groups -- {} -c \"$LABEL\"",
        crate::common::PYTHON
    );
    let mut command = stage.forebay(&["run", "--no-drain", "--buffer", "pfs", "--", "sh", "-ec"]);
    command.arg(script).env("LABEL", label);
    let said = finish(command).ends_with(0);
    assert_eq!(said.out, "0\n-1\n[]\n", "{}", said.err);
    let found = fs::read_dir(stage.path("storage")).unwrap();
    let instances = found.map(|entry| entry.unwrap().path());
    let instances: Vec<_> = instances.filter(|dir| dir.join("meta").exists()).collect();
    let [instance] = &instances[..] else {
        panic!("{instances:?}");
    };
    let format = fs::read_to_string(instance.join("format.json")).unwrap();
    forebay_testkit::skip_unless!(
        format.contains("labels_of_root"),
        "root may not set trusted attributes in this storage"
    );
    fs::remove_dir_all(instance.join("meta")).unwrap();
    stage
        .say(&["fsck", "--storage", "storage", "--rebuild"])
        .ends_with(0);
    of_root(&stage, &["drain"]).ends_with(0);
    let at = |name: &str| fs::read_to_string(stage.pfs().join(name)).unwrap();
    assert_eq!([at("mine"), at("roots")], ["mine", "root\n"]);
}
