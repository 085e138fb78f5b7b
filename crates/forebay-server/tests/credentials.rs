//! Who asks is what the kernel says, message by message. The tests need root, because
//! only root can be several users.

mod common;

use common::{Place, names, read, write};
use forebay_admin::AdminError;
use forebay_client::{Client, Control};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::thread;

const NOBODY: u32 = 65_534;

/// Runs a test as root, or says why not.
fn as_root(test: impl FnOnce()) {
    forebay_testkit::skip_unless!(forebay_testkit::is_root(), "only root can be several users");
    test();
}

/// Changes the effective user, group and groups of this thread alone.
#[allow(unsafe_code)]
fn be(uid: u32, gid: u32, groups: &[u32]) {
    let keep = u32::MAX;
    // SAFETY: the raw calls change this thread only; `groups` has the length that is passed.
    unsafe {
        libc::syscall(libc::SYS_setresuid, keep, 0, keep);
        assert_eq!(
            libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()),
            0
        );
        assert_eq!(libc::syscall(libc::SYS_setresgid, keep, gid, keep), 0);
        assert_eq!(libc::syscall(libc::SYS_setresuid, keep, uid, keep), 0);
    }
}

fn in_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|s| s.spawn(work).join().unwrap())
}

fn create(client: &mut Client, path: &str, mode: u32) -> Result<(), Option<i32>> {
    let flags = libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY;
    client
        .open(path, flags, mode)
        .map(drop)
        .map_err(|e| e.errno())
}

fn open(client: &mut Client, path: &str, flags: i32) -> Result<(), Option<i32>> {
    client.open(path, flags, 0).map(drop).map_err(|e| e.errno())
}

#[test]
fn a_bridge_takes_control_messages_of_its_own_user_alone() {
    as_root(|| {
        let place = Place::new();
        let server = place.start();
        let mut control = Control::connect(&place.socket()).unwrap();
        control.status().unwrap();
        in_thread(|| {
            let mut before = Control::connect(&place.socket()).unwrap();
            be(NOBODY, NOBODY, &[]);
            let mut after = Control::connect(&place.socket()).unwrap();
            for control in [&mut before, &mut after] {
                let refused = control.stop().unwrap_err();
                assert!(
                    matches!(refused, AdminError::NotPermitted { .. }),
                    "{refused}"
                );
                assert!(control.status().is_err());
            }
        });
        assert!(!server.handle().stopping());
        control.status().unwrap();
        server.stop().unwrap();
    });
}

#[test]
fn a_process_that_changes_its_user_is_judged_by_the_new_one() {
    as_root(|| {
        let place = Place::new();
        let server = place.start();
        let denied = Err(Some(libc::EACCES));
        in_thread(|| {
            let mut client = place.client();
            client.mkdir("private", 0o700).unwrap();
            client.mkdir("public", 0o1777).unwrap();
            client.mkdir("shared", 0o770).unwrap();
            create(&mut client, "private/f", 0o644).unwrap();
            create(&mut client, "public/secret", 0o600).unwrap();
            create(&mut client, "public/text", 0o644).unwrap();
            be(NOBODY, NOBODY, &[]);
            assert_eq!(open(&mut client, "private/f", libc::O_RDONLY), denied);
            assert_eq!(open(&mut client, "public/secret", libc::O_RDONLY), denied);
            assert_eq!(open(&mut client, "public/text", libc::O_RDWR), denied);
            assert_eq!(open(&mut client, "public/text", libc::O_RDONLY), Ok(()));
            assert_eq!(create(&mut client, "here", 0o644), denied);
            assert_eq!(create(&mut client, "shared/f", 0o644), denied);
            assert_eq!(create(&mut client, "public/mine", 0o600), Ok(()));
            // The sticky bit.
            let stolen = client.unlink("public/text").unwrap_err();
            assert_eq!(stolen.errno(), Some(libc::EPERM));
            let mine = client.stat("public/mine").unwrap();
            assert_eq!((mine.uid, mine.gid), (NOBODY, NOBODY));
            be(0, 0, &[]);
            assert_eq!(open(&mut client, "private/f", libc::O_RDWR), Ok(()));
        });
        // Groups are those with which the connection was made.
        in_thread(|| {
            be(NOBODY, NOBODY, &[0]);
            let mut client = place.client();
            assert_eq!(create(&mut client, "shared/g", 0o640), Ok(()));
        });
        server.stop().unwrap();
        assert_eq!(place.problems(), Vec::<String>::new());
    });
}

#[test]
fn a_bridge_without_privilege_serves_its_own_user_and_no_other() {
    as_root(|| {
        let place = Place::new();
        for path in [place.path().to_owned(), place.root(), place.storage()] {
            std::os::unix::fs::chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        let server = in_thread(|| {
            be(NOBODY, NOBODY, &[]);
            place.start()
        });
        in_thread(|| {
            be(NOBODY, NOBODY, &[]);
            let mut client = place.client();
            write(&mut client, "f", b"own");
            // What its owner may not write is labelled all the same.
            create(&mut client, "locked", 0o000).unwrap();
            client.rename("locked", "moved").unwrap();
            assert_eq!(names(&mut client, ""), ["f", "moved"]);
            assert_eq!(read(&mut client, "f"), b"own");
            assert_eq!(
                open(&mut client, "moved", libc::O_RDONLY),
                Err(Some(libc::EACCES))
            );
        });
        // Nobody else gets in, and root, whom no file mode keeps out, is told.
        in_thread(|| {
            be(NOBODY - 1, NOBODY - 1, &[]);
            assert!(Client::connect(&place.socket()).is_err());
        });
        let refused = place.client().stat("f").unwrap_err();
        assert_eq!(refused.errno(), Some(libc::EPERM));
        assert!(place.logged().contains("refused user 0"));
        in_thread(|| {
            be(NOBODY, NOBODY, &[]);
            server.stop().unwrap();
            assert_eq!(place.problems(), Vec::<String>::new());
        });
    });
}

#[test]
fn nobody_can_reach_backing_objects_by_path() {
    as_root(|| {
        let place = Place::new();
        let server = place.start();
        let mut client = place.client();
        create(&mut client, "open-to-all", 0o666).unwrap();
        let closed = |path: &Path| {
            let found = std::fs::metadata(path).unwrap();
            assert_eq!(found.uid(), 0);
            assert_eq!(found.permissions().mode() & 0o077, 0, "{}", path.display());
        };
        closed(&place.instance());
        server.stop().unwrap();
    });
}
