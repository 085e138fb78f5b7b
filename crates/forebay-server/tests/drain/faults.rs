//! What cannot be drained is said, is not lost, and keeps nothing else from being drained.

use super::scene::{Scene, Work, assert_same, tree_of, view_of};
use forebay_admin::drain::{DrainRequest, DrainState, Left, Reason, Side, Take};
use forebay_testkit::{is_root, skip};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

fn paths(left: &[Left]) -> Vec<&str> {
    left.iter().map(|l| l.path.as_str()).collect()
}

/// A small ext4 of its own as the PFS; unmounted at the end.
struct SmallDisk<'s> {
    scene: &'s Scene,
}

impl<'s> SmallDisk<'s> {
    /// `None`, and a line on the terminal, where that cannot be had.
    fn mount(scene: &'s Scene, bytes: u64) -> Option<Self> {
        if !is_root() {
            skip("only root may mount");
            return None;
        }
        let image = scene.dir.join("image");
        File::create(&image).unwrap().set_len(bytes).unwrap();
        let run = |program: &str, arguments: &[&str], last: &Path| {
            Command::new(program)
                .args(arguments)
                .arg(&image)
                .arg(last)
                .output()
                .is_ok_and(|output| output.status.success())
        };
        let made = Command::new("mkfs.ext4")
            .args(["-q", "-F", "-m", "0"])
            .arg(&image)
            .output()
            .is_ok_and(|output| output.status.success());
        if !made || !run("mount", &["-o", "loop"], &scene.pfs()) {
            skip("no loop-mounted ext4 here");
            return None;
        }
        Some(SmallDisk { scene })
    }

    fn remount(&self, option: &str) {
        let status = Command::new("mount")
            .args(["-o", &format!("remount,{option}")])
            .arg(self.scene.pfs())
            .status()
            .unwrap();
        assert!(status.success(), "remount {option}");
    }
}

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.scene.pfs()).status();
    }
}

#[test]
fn when_the_pfs_is_full_what_fits_arrives_and_the_rest_follows_when_there_is_space() {
    let scene = Scene::new();
    let Some(_disk) = SmallDisk::mount(&scene, 8 << 20) else {
        return;
    };
    scene.below("ballast", &"x".repeat(3 << 20));
    let bridge = scene.serve();
    let mut client = bridge.client();
    client.write("small", "fits");
    client.write("large", &"0123456789abcdef".repeat(5 << 16));
    let view = view_of(&mut client, &[]);
    let (status, left) = bridge.drain(&DrainRequest::default());
    assert_eq!(status.state, DrainState::Done);
    assert_eq!(paths(&left), ["large"]);
    assert_eq!(left[0].reason, Reason::Error);
    assert_eq!(left[0].cause, "No space left on device");
    assert_eq!(left[0].bytes, 5 << 20);
    assert!(!status.released);
    assert_eq!(fs::read(scene.pfs().join("small")).unwrap(), b"fits");
    assert!(!scene.pfs().join("large").exists());
    assert_same("buffer", &view, &view_of(&mut client, &[]));
    fs::remove_file(scene.pfs().join("ballast")).unwrap();
    let (status, left) = bridge.drain(&DrainRequest::default());
    assert_eq!(left, []);
    assert!(status.released);
    let mut view = view;
    view.remove("ballast");
    let mut found = tree_of(&scene.pfs(), &[]);
    found.remove("lost+found");
    view.remove("lost+found");
    assert_same("PFS", &view, &found);
}

#[test]
fn a_read_only_pfs_leaves_everything_in_the_buffer() {
    let scene = Scene::new();
    let Some(disk) = SmallDisk::mount(&scene, 8 << 20) else {
        return;
    };
    scene.below("old", "old");
    scene.below("moved", "moved");
    let bridge = scene.serve();
    let mut client = bridge.client();
    client.write("new", "new");
    client.mkdir("dir", 0o755).unwrap();
    client.write("dir/f", "f");
    client.unlink("old").unwrap();
    client.rename("moved", "dir/moved").unwrap();
    let view = view_of(&mut client, &["dir"]);
    disk.remount("ro");
    let (status, left) = bridge.drain(&DrainRequest::default());
    assert_eq!(
        paths(&left),
        ["dir", "dir/f", "dir/moved", "moved", "new", "old"]
    );
    for l in &left {
        let blocked = ["dir/f", "dir/moved", "moved"].contains(&l.path.as_str());
        match l.reason {
            Reason::Error => assert_eq!(l.cause, "Read-only file system", "{l:?}"),
            Reason::Blocked => assert!(blocked, "{l:?}"),
            _ => panic!("{l:?}"),
        }
    }
    assert!(!status.released);
    assert_same("buffer", &view, &view_of(&mut client, &["dir"]));
    disk.remount("rw");
    let (_, left) = bridge.drain(&DrainRequest::default());
    assert_eq!(left, []);
    assert_same("PFS", &view, &tree_of(&scene.pfs(), &["dir"]));
    drop((client, bridge));
}

#[test]
fn a_file_that_is_open_for_writing_is_left_and_nothing_else() {
    let scene = Scene::new();
    let bridge = scene.serve();
    let mut client = bridge.client();
    client.write("closed", "closed");
    let flags = libc::O_WRONLY | libc::O_CREAT;
    let mut open = File::from(client.open("open", flags, 0o600).unwrap());
    open.write_all(b"first").unwrap();
    let (status, left) = bridge.drain(&DrainRequest::default());
    assert_eq!(paths(&left), ["open"]);
    assert_eq!(left[0].reason, Reason::Open);
    assert!(!status.released);
    assert!(scene.pfs().join("closed").exists());
    assert!(!scene.pfs().join("open").exists());
    open.write_all(b" second").unwrap();
    drop(open);
    let (status, left) = bridge.drain(&DrainRequest::default());
    assert_eq!(left, []);
    assert!(status.released);
    assert_eq!(status.files_total, 1);
    let found = fs::read_to_string(scene.pfs().join("open")).unwrap();
    assert_eq!(found, "first second");
}

#[test]
fn a_file_that_somebody_reads_is_drained_but_its_copy_is_kept() {
    let scene = Scene::new();
    let bridge = scene.serve();
    let mut client = bridge.client();
    client.write("f", "text");
    let reader = client.open("f", libc::O_RDONLY, 0).unwrap();
    let (status, left) = bridge.drain(&DrainRequest::default());
    assert_eq!(left, []);
    assert!(!status.released);
    assert_eq!(status.kept_because.as_deref(), Some("f is still open"));
    assert_eq!(fs::read(scene.pfs().join("f")).unwrap(), b"text");
    drop(reader);
    let (status, left) = bridge.drain(&DrainRequest::default());
    assert_eq!(left, []);
    assert!(status.released);
}

#[test]
fn a_fifo_that_somebody_waits_at_stays_where_it_is() {
    let scene = Scene::new();
    let bridge = scene.serve();
    let mut client = bridge.client();
    client.mknod("pipe", libc::S_IFIFO | 0o600, 0).unwrap();
    let fifo = client.resolve("pipe", 0).unwrap();
    // Another process, because the bridge does not count its own descriptors.
    let mut waits = Command::new("sleep")
        .arg("1000")
        .stdin(
            fs::OpenOptions::new()
                .read(true)
                .write(true)
                .open(super::scene::through(&fifo))
                .unwrap(),
        )
        .spawn()
        .unwrap();
    let (status, left) = bridge.drain(&DrainRequest::default());
    waits.kill().unwrap();
    waits.wait().unwrap();
    assert_eq!(left, []);
    assert_eq!(status.kept_because.as_deref(), Some("pipe is still open"));
    let (status, left) = bridge.drain(&DrainRequest::default());
    assert_eq!(left, []);
    assert!(status.released);
}

#[test]
fn a_writer_that_never_stops_leaves_no_torn_file_on_the_pfs() {
    // Every version is one letter throughout; a copy that is taken meanwhile mixes two.
    const SIZE: usize = 1 << 20;
    let scene = Scene::new();
    let bridge = scene.serve();
    let mut client = bridge.client();
    client.write("f", &"a".repeat(SIZE));
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let mut writer = bridge.client();
        let stop = &stop;
        scope.spawn(move || {
            for letter in (b'a'..=b'z').cycle() {
                if stop.load(std::sync::atomic::Ordering::Relaxed) {
                    break;
                }
                let file = File::from(writer.open("f", libc::O_WRONLY, 0).unwrap());
                std::os::unix::fs::FileExt::write_all_at(&file, &vec![letter; SIZE], 0).unwrap();
            }
        });
        for _ in 0..30 {
            let (_, left) = bridge.drain(&DrainRequest::default());
            for l in &left {
                assert!(matches!(l.reason, Reason::Open | Reason::Changing), "{l:?}");
            }
            if let Ok(bytes) = fs::read(scene.pfs().join("f")) {
                assert_eq!(bytes.len(), SIZE);
                // The writer may have been let through to the PFS's own file in the meantime.
                if !left.is_empty() {
                    assert!(bytes.iter().all(|b| *b == bytes[0]), "a torn copy");
                }
            }
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    let view = view_of(&mut client, &[]);
    let (_, left) = bridge.drain(&DrainRequest::default());
    assert_eq!(left, []);
    assert_same("PFS", &view, &tree_of(&scene.pfs(), &[]));
    assert_eq!(
        client.read("f"),
        fs::read_to_string(scene.pfs().join("f")).unwrap()
    );
}

#[test]
fn a_directory_that_vanished_from_the_pfs_is_named_and_its_files_stay() {
    let scene = Scene::new();
    scene.below("dir/old", "old");
    let bridge = scene.serve();
    let mut client = bridge.client();
    client.write("dir/new", "new");
    client.write("other", "other");
    fs::remove_dir_all(scene.pfs().join("dir")).unwrap();
    let (_, left) = bridge.drain(&DrainRequest::default());
    assert_eq!(paths(&left), ["dir/new"]);
    assert_eq!(left[0].reason, Reason::NoDirectory);
    assert!(scene.pfs().join("other").exists());
    // Nobody but who made this one knows whether it is for what was in the other.
    fs::create_dir(scene.pfs().join("dir")).unwrap();
    let (_, left) = bridge.drain(&DrainRequest::default());
    assert_eq!(paths(&left), ["dir/new"]);
    assert_eq!(left[0].reason, Reason::OtherDirectory);
    let take = vec![Take {
        path: b"dir/new".to_vec(),
        side: Side::Ours,
    }];
    let (_, left) = bridge.drain(&DrainRequest {
        take,
        ..DrainRequest::default()
    });
    assert_eq!(left, []);
    assert_eq!(fs::read(scene.pfs().join("dir/new")).unwrap(), b"new");
}

#[test]
fn what_somebody_else_put_in_the_same_place_meanwhile_is_not_destroyed() {
    let scene = Scene::new();
    let bridge = scene.serve();
    let mut client = bridge.client();
    client.write("f", "from the buffer");
    fs::write(scene.pfs().join("f"), "from elsewhere").unwrap();
    let (_, left) = bridge.drain(&DrainRequest::default());
    assert_eq!(paths(&left), ["f"]);
    assert_eq!(left[0].reason, Reason::Taken);
    assert_eq!(fs::read(scene.pfs().join("f")).unwrap(), b"from elsewhere");
    assert_eq!(client.read("f"), "from the buffer");
    fs::remove_file(scene.pfs().join("f")).unwrap();
    let (_, left) = bridge.drain(&DrainRequest::default());
    assert_eq!(left, []);
    assert_eq!(fs::read(scene.pfs().join("f")).unwrap(), b"from the buffer");
}

#[test]
fn what_was_removed_from_the_pfs_after_a_drain_is_brought_there_again() {
    let scene = Scene::new();
    let bridge = scene.serve();
    bridge.client().write("f", "text");
    let keep = DrainRequest {
        keep: true,
        ..DrainRequest::default()
    };
    bridge.drain(&keep);
    fs::remove_file(scene.pfs().join("f")).unwrap();
    let (status, left) = bridge.drain(&keep);
    assert_eq!(left, []);
    assert_eq!(status.files_drained, 1);
    assert_eq!(fs::read(scene.pfs().join("f")).unwrap(), b"text");
}

/// Runs a test of this program once more as a user without rights, because root may do anything. The
/// program is copied: that user may not reach where cargo has built it.
fn as_nobody(test: &str) {
    use std::os::unix::process::CommandExt;
    const NOBODY: u32 = 65_534;
    let scene = Scene::new();
    let program = scene.dir.join("test");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    for path in [&scene.dir, &program] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let output = Command::new(&program)
        .args([test, "--exact", "--nocapture"])
        .current_dir("/")
        .env_remove("XDG_RUNTIME_DIR")
        .uid(NOBODY)
        .gid(NOBODY)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{errors}");
    assert!(said.contains("1 passed"), "{said}");
}

#[test]
fn a_directory_without_permission_is_named_by_a_bridge_that_is_not_root() {
    if is_root() {
        return as_nobody(
            "faults::a_directory_without_permission_is_named_by_a_bridge_that_is_not_root",
        );
    }
    let scene = Scene::new();
    scene.below("locked/old", "old");
    let bridge = scene.serve();
    bridge.client().write("locked/new", "new");
    let locked = scene.pfs().join("locked");
    let chmod = |mode| fs::set_permissions(&locked, fs::Permissions::from_mode(mode)).unwrap();
    // It may not even be searched. Where only the permission to change it is missing, the drain of its owner gives that.
    chmod(0o600);
    let (_, left) = bridge.drain(&DrainRequest::default());
    assert_eq!(paths(&left), ["locked/new"]);
    assert_eq!(left[0].cause, "Permission denied");
    chmod(0o500);
    assert_eq!(bridge.drain(&DrainRequest::default()).1, []);
    use std::os::unix::fs::MetadataExt;
    assert_eq!(locked.metadata().unwrap().mode() & 0o777, 0o500);
}

#[test]
fn holes_stay_holes_and_the_tail_of_a_file_that_ends_in_one_is_kept() {
    use std::os::unix::fs::{FileExt, MetadataExt};
    let scene = Scene::new();
    let bridge = scene.serve();
    let mut client = bridge.client();
    let flags = libc::O_RDWR | libc::O_CREAT;
    let file = File::from(client.open("sparse", flags, 0o600).unwrap());
    file.write_all_at(b"begin", 0).unwrap();
    file.write_all_at(b"middle", 40 << 20).unwrap();
    file.set_len(64 << 20).unwrap();
    drop(file);
    let (status, left) = bridge.drain(&DrainRequest::default());
    assert_eq!(left, []);
    assert!(
        status.bytes_done < 1 << 20,
        "{} bytes copied",
        status.bytes_done
    );
    let copy = File::open(scene.pfs().join("sparse")).unwrap();
    let meta = copy.metadata().unwrap();
    assert_eq!(meta.len(), 64 << 20);
    assert!(meta.blocks() * 512 < 1 << 20);
    let mut found = [0; 8];
    copy.read_exact_at(&mut found, 40 << 20).unwrap();
    assert_eq!(&found, b"middle\0\0");
}

#[test]
fn extended_attributes_arrive_but_for_our_own() {
    let scene = Scene::new();
    let bridge = scene.serve();
    let mut client = bridge.client();
    client.write("f", "text");
    let fd = client.open("f", libc::O_RDWR, 0).unwrap();
    use std::os::fd::AsFd;
    forebay_sys::set_xattr(fd.as_fd(), b"user.comment", b"by hand").unwrap();
    drop(fd);
    let (status, left) = bridge.drain(&DrainRequest::default());
    assert_eq!((left, status.remarks), (vec![], vec![]));
    let copy = File::open(scene.pfs().join("f")).unwrap();
    let found = forebay_sys::get_xattr(copy.as_fd(), b"user.comment").unwrap();
    assert_eq!(found.as_deref(), Some(&b"by hand"[..]));
    assert_eq!(
        forebay_sys::list_xattr(copy.as_fd()).unwrap(),
        b"user.comment\0"
    );
}

#[test]
fn a_stopped_drain_says_what_it_did_not_get_to() {
    let scene = Scene::new();
    let bridge = scene.serve();
    let mut client = bridge.client();
    for n in 0..40 {
        client.write(&format!("f{n:02}"), &"z".repeat(100_000));
    }
    // A tenth of a second's worth of bytes per second: it cannot be through when it is stopped.
    let slow = DrainRequest {
        rate: Some(400_000),
        workers: Some(2),
        ..DrainRequest::default()
    };
    let (status, left) = bridge.drain_and_stop(&slow, 200_000);
    assert_eq!(status.state, DrainState::Stopped);
    assert!(!left.is_empty() && status.files_drained < 40, "{status:?}");
    assert!(left.iter().all(|l| l.reason == Reason::Stopped), "{left:?}");
    assert!(!status.released);
    let (status, left) = bridge.drain(&DrainRequest::default());
    assert_eq!(left, []);
    assert!(status.released);
    // With the lock of the buffer.
    assert_eq!(fs::read_dir(scene.pfs()).unwrap().count(), 40 + 1);
}

#[test]
fn the_throttle_holds_the_rate() {
    let scene = Scene::new();
    let bridge = scene.serve();
    bridge.client().write("f", &"z".repeat(3 << 20));
    let (status, left) = bridge.drain(&DrainRequest {
        rate: Some(4 << 20),
        ..DrainRequest::default()
    });
    assert_eq!(left, []);
    // The bucket is empty at the start, and each chunk is paid before it is copied.
    assert!(status.seconds >= 0.7, "{}", status.seconds);
}
