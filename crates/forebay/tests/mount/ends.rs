//! What becomes of programs and data when a server dies.

use crate::common::{self, case};
use crate::need_fuse;
use std::fs;
use std::path::Path;
use std::process::Command;

/// A shell function that names the processes of this test by a part of their command lines.
const PROCESSES: &str = r#"
    pid_of() {
        for p in /proc/[0-9]*; do
            { tr '\0' ' ' < $p/cmdline; } 2>/dev/null | grep -q "$1" && echo ${p#/proc/}
        done
    }
"#;

#[test]
fn a_bridge_that_is_killed_comes_back_under_the_mount() {
    need_fuse!();
    let script = format!(
        r#"{PROCESSES}
        echo before > before; sync before
        exec 3> open; echo 1 >&3
        kill -9 $(pid_of "bridge --root $PWD ")
        echo 2 >&3; exec 3>&-; cat before open; echo after > after; ls
        "#
    );
    let case = case!().via("mount").without_walk();
    let outcome = case.buffered(&script);
    assert_eq!(outcome.code, 0, "{}", outcome.forebay_said);
    assert_eq!(outcome.text(), "before\n1\n2\nafter\nbefore\nopen\n");
    assert_eq!(fs::read(outcome.dir.join("open")).unwrap(), b"1\n2\n");
    assert_eq!(fs::read(outcome.dir.join("after")).unwrap(), b"after\n");
    case.passes();
}

#[test]
fn without_its_server_a_mount_gives_an_error_and_what_was_written_arrives() {
    need_fuse!();
    // The server is the only one with this socket among those that serve a mount, and the bridge knows its socket.
    let script = format!(
        r#"{PROCESSES}
        echo before > before; sync before
        exec 3> open; echo 1 >&3
        for server in $(pid_of 'serve-mount --socket'); do
            ls -l /proc/$server/fd 2>/dev/null | grep -q "$OUTSIDE/../run\|${{PWD}}" && kill -9 $server
        done
        cat before 2>&1 | sed 's/.*: //'; echo more 2>/dev/null > more || echo "status $?"
        "#
    );
    let case = case!().via("mount").without_walk();
    let outcome = case.buffered(&script);
    let text = outcome.text();
    assert!(
        text.starts_with("Transport endpoint is not connected\nstatus "),
        "{text}\n{}",
        outcome.forebay_said
    );
    assert_eq!(fs::read(outcome.dir.join("before")).unwrap(), b"before\n");
    assert_eq!(fs::read(outcome.dir.join("open")).unwrap(), b"1\n");
    assert!(!outcome.dir.join("more").exists());
    case.passes();
}

#[test]
fn a_run_ends_when_the_last_process_in_the_mount_has() {
    need_fuse!();
    // The process in the background has nothing open in the buffer until it writes.
    let script = r#"
        mkfifo "$OUTSIDE/go"
        (read -r _ < "$OUTSIDE/go"; echo late > late) &
        (echo > "$OUTSIDE/go") &
        echo done
    "#;
    let case = case!().via("mount").without_walk();
    let outcome = case.buffered(script);
    assert_eq!((outcome.code, outcome.text().as_str()), (0, "done\n"));
    assert_eq!(fs::read(outcome.dir.join("late")).unwrap(), b"late\n");
    case.passes();
}

/// Runs `forebay` with these arguments. Gives its exit code and what it said.
fn forebay(arguments: &[&str], buffer: Option<(&Path, &Path)>) -> (i32, String) {
    let mut command = Command::new(common::forebay());
    command.args(arguments);
    if let Some((root, storage)) = buffer {
        command
            .arg("--buffer")
            .arg(root)
            .arg("--storage")
            .arg(storage);
    }
    let output = command.output().expect("run forebay");
    let said = [output.stdout, output.stderr].concat();
    (
        output.status.code().unwrap_or(-1),
        String::from_utf8_lossy(&said).into_owned(),
    )
}

#[test]
fn a_mount_point_in_the_buffer_directory_is_refused_and_so_is_unmounting_something_else() {
    need_fuse!();
    let dir = tempfile::tempdir().unwrap();
    let (root, storage) = (dir.path().join("pfs"), dir.path().join("storage"));
    fs::create_dir_all(root.join("inside")).unwrap();
    for at in [root.clone(), root.join("inside"), dir.path().to_owned()] {
        let at = at.to_str().unwrap();
        let (code, said) = forebay(&["mount", at], Some((&root, &storage)));
        assert!(code == 1 && said.contains("overlap"), "{code}: {said}");
    }
    let (code, said) = forebay(&["umount", "/proc"], None);
    assert!(
        code == 1 && said.contains("is no mount of a buffer"),
        "{code}: {said}"
    );
}

#[test]
fn a_mount_in_the_background_goes_with_umount_and_leaves_nothing_but_data() {
    need_fuse!();
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let (root, storage, at) = (
        dir.path().join("pfs"),
        dir.path().join("storage"),
        dir.path().join("at"),
    );
    for dir in [&root, &at] {
        fs::create_dir(dir).unwrap();
    }
    let mountpoint = at.to_str().unwrap();
    let (code, said) = forebay(&["mount", mountpoint], Some((&root, &storage)));
    assert_eq!(code, 0, "{said}");
    fs::write(at.join("file"), "through the mount").unwrap();
    assert!(!root.join("file").exists(), "it is in the buffer");
    let open = fs::File::open(at.join("file")).unwrap();
    let (code, said) = forebay(&["umount", mountpoint], None);
    assert!(code == 1 && said.contains("busy"), "{code}: {said}");
    drop(open);
    let (code, said) = forebay(&["umount", mountpoint], None);
    assert_eq!(code, 0, "{said}");
    assert!(!at.join("file").exists());
    let (code, said) = forebay(&["drain"], Some((&root, &storage)));
    assert_eq!(code, 0, "{said}");
    assert_eq!(
        fs::read_to_string(root.join("file")).unwrap(),
        "through the mount"
    );
}

#[test]
fn a_buffer_over_or_in_or_above_a_mount_of_another_one_is_refused() {
    need_fuse!();
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let other = tempfile::tempdir_in("/var/tmp").unwrap();
    let path = |name: &str| dir.path().join(name);
    let (root, storage, at) = (path("pfs"), path("storage"), path("view/mnt"));
    fs::create_dir_all(root.join("sub")).unwrap();
    fs::create_dir_all(&at).unwrap();
    let buffer = Some((root.as_path(), storage.as_path()));
    let (mounted, said) = forebay(&["mount", at.to_str().unwrap()], buffer);
    let try_over = |over: &Path| {
        let over = over.to_str().unwrap();
        let storage = other.path().to_str().unwrap();
        let arguments = ["run", "--buffer", over, "--storage", storage, "--", "true"];
        forebay(&arguments, None)
    };
    let tried = [at.clone(), at.join("sub"), path("view")].map(|over| try_over(&over));
    let (unmounted, _) = forebay(&["umount", at.to_str().unwrap()], None);
    assert_eq!((mounted, unmounted), (0, 0), "{said}");
    for (code, said) in tried {
        assert!(
            code == 125 && said.contains("is a mount of a buffer"),
            "{code}: {said}"
        );
    }
}

#[test]
fn a_mount_whose_directory_was_renamed_is_named_where_it_is_now() {
    need_fuse!();
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let path = |name: &str| dir.path().join(name);
    let (root, storage) = (path("pfs"), path("storage"));
    let (before, now) = (path("view/mnt"), path("moved/mnt"));
    for dir in [&root, &before] {
        fs::create_dir_all(dir).unwrap();
    }
    let mount = ["mount", before.to_str().unwrap()];
    let (mounted, said) = forebay(&mount, Some((&root, &storage)));
    fs::rename(path("view"), path("moved")).unwrap();
    let (refused, told) = forebay(&["umount", before.to_str().unwrap()], None);
    let (unmounted, _) = forebay(&["umount", now.to_str().unwrap()], None);
    assert_eq!((mounted, refused, unmounted), (0, 1, 0), "{said}");
    assert!(told.contains("mnt is not there"), "{told}");
    assert!(told.contains(now.to_str().unwrap()), "{told}");
}
