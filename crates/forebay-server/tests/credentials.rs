//! Who asks is what the kernel says, message by message. The tests need root, because
//! only root can be several users.

mod common;

use common::raw::{Raw, Said, request};
use common::{Place, names, read, write};
use forebay_admin::AdminError;
use forebay_client::{Client, Control};
use forebay_wire::{Base, Op, Request};
use std::os::fd::{AsRawFd, OwnedFd};
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

/// Changes all user and group ids of this thread for good: of a message without credentials the kernel tells the real ones.
#[allow(unsafe_code)]
fn be_for_good(uid: u32) {
    let none: [u32; 0] = [];
    // SAFETY: the raw calls change this thread only; no group is read.
    unsafe {
        assert_eq!(libc::syscall(libc::SYS_setgroups, 0, none.as_ptr()), 0);
        assert_eq!(libc::syscall(libc::SYS_setresgid, uid, uid, uid), 0);
        assert_eq!(libc::syscall(libc::SYS_setresuid, uid, uid, uid), 0);
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

/// What a name stands for is not for who may not search the directories above it.
#[test]
fn the_table_of_names_is_for_the_bridges_own_user_alone() {
    as_root(|| {
        let place = Place::new();
        let server = place.start();
        let ask = |client: &mut Client| client.ask(Request::new(Op::NameTable));
        let granted = ask(&mut place.client()).unwrap();
        assert!(granted.fd.is_some());
        in_thread(|| {
            be(NOBODY, NOBODY, &[]);
            let refused = ask(&mut place.client()).unwrap_err();
            assert_eq!(refused.errno(), Some(libc::EPERM));
        });
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

/// The identity of what a descriptor in the buffer leads to, as the library in programs reads it.
fn object_behind(fd: &OwnedFd) -> u128 {
    let path = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd())).unwrap();
    u128::from_str_radix(path.file_name().unwrap().to_str().unwrap(), 16).unwrap()
}

/// Every message that names something below a directory, or the directory itself, by this base. Says which of them were not refused.
fn not_refused(raw: &Raw, base: Base<'_>) -> Vec<Op> {
    let flags = (libc::O_CREAT | libc::O_RDWR) as u32;
    let asked = |op, str1, arg0| Request {
        client: 1,
        seq: 1,
        base1: base,
        str1,
        arg0,
        // The mode of what is made. `stat` reads it as the number of a link.
        arg1: if op == Op::Stat { 0 } else { 0o666 },
        ..Request::new(op)
    };
    let link = Request {
        base2: base,
        str2: b"link",
        ..asked(Op::Link, b"f", 0)
    };
    let rename = Request {
        base2: base,
        str2: b"g",
        ..asked(Op::Rename, b"f", 0)
    };
    let symlink = Request {
        str2: b"text",
        ..asked(Op::Symlink, b"s", 0)
    };
    let messages = [
        asked(Op::Open, b"f", libc::O_RDONLY as u32),
        asked(Op::Open, b"new", flags),
        asked(Op::Open, b"", libc::O_RDONLY as u32),
        asked(Op::Resolve, b"f", 0),
        asked(Op::Stat, b"f", 0),
        asked(Op::Stat, b"", 0),
        asked(Op::Mkdir, b"d", 0),
        asked(Op::Mknod, b"p", libc::S_IFIFO | 0o666),
        symlink,
        link,
        rename,
        asked(Op::Unlink, b"f", 0),
        asked(Op::Readlink, b"l", 0),
        asked(Op::ReadDir, b"", 0),
        asked(Op::NameOf, b"", 0),
        asked(Op::Realpath, b"f", 0),
    ];
    let denied = Said::Status(libc::EACCES);
    let open = messages.iter().filter(|message| raw.ask(message) != denied);
    open.map(|message| message.op).collect()
}

/// Others may exchange that one, natively, with one that they may search.
#[test]
fn no_way_to_name_a_directory_leads_into_one_that_has_an_open_one_in_its_place_now() {
    as_root(|| {
        let place = Place::new();
        let at = |path: &str| place.root().join(path);
        for dir in ["d/p", "d2", "open/p", "open2/p2"] {
            std::fs::create_dir_all(at(dir)).unwrap();
        }
        std::fs::write(at("d/p/f"), "private").unwrap();
        for (dir, mode) in [
            ("d", 0o700),
            ("d2", 0o700),
            ("d/p", 0o777),
            ("open", 0o777),
            ("open2", 0o777),
        ] {
            std::fs::set_permissions(at(dir), std::fs::Permissions::from_mode(mode)).unwrap();
        }
        let renamed = std::fs::metadata(at("d/p")).unwrap();
        let server = place.start();
        let mut client = place.client();
        client.mkdir("d/b", 0o777).unwrap();
        write(&mut client, "d/b/f", b"private");
        client.rename("d/p", "d2/p2").unwrap();
        let directory = libc::O_RDONLY | libc::O_DIRECTORY;
        let born = object_behind(&client.open("d/b", directory, 0).unwrap());
        let file = object_behind(&client.open("d/b/f", libc::O_RDONLY, 0).unwrap());
        let refused = || {
            in_thread(|| {
                be_for_good(NOBODY);
                let raw = Raw::connect(&place.socket()).unwrap();
                let lower = Base::Lower(b"d/p", (renamed.dev(), renamed.ino()));
                for base in [Base::Object(born), lower] {
                    assert_eq!(not_refused(&raw, base), [], "{base:?}");
                }
                for op in [Op::Stat, Op::NameOf] {
                    let asked = Request {
                        base1: Base::Object(file),
                        ..request(op, b"")
                    };
                    // Where it was, there is nothing in the other one.
                    let refusals = [libc::EACCES, libc::ENOENT].map(Said::Status);
                    assert!(refusals.contains(&raw.ask(&asked)), "{op:?}");
                }
            });
        };
        refused();
        for (dir, other) in [("d", "open"), ("d2", "open2")] {
            std::fs::rename(at(dir), at("aside")).unwrap();
            std::fs::rename(at(other), at(dir)).unwrap();
            std::fs::rename(at("aside"), at(other)).unwrap();
        }
        refused();
        drop(client);
        server.stop().unwrap();
    });
}

#[test]
fn no_way_to_name_a_directory_leads_around_one_that_may_not_be_searched() {
    as_root(|| {
        let place = Place::new();
        std::fs::create_dir_all(place.root().join("old/sub")).unwrap();
        std::fs::write(place.root().join("old/sub/f"), "old").unwrap();
        let mode = |path: &str, mode| {
            let path = place.root().join(path);
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        mode("old/sub", 0o777);
        mode("old", 0o700);
        let old = std::fs::metadata(place.root().join("old/sub")).unwrap();
        let old = Base::Lower(b"old/sub", (old.dev(), old.ino()));
        let server = place.start();
        let mut client = place.client();
        client.mkdir("new", 0o700).unwrap();
        client.mkdir("new/sub", 0o777).unwrap();
        write(&mut client, "new/sub/f", b"new");
        let directory = libc::O_RDONLY | libc::O_DIRECTORY;
        let new = object_behind(&client.open("new/sub", directory, 0).unwrap());
        let file = object_behind(&client.open("new/sub/f", libc::O_RDONLY, 0).unwrap());
        let all = |open: &[Op]| {
            let raw = Raw::connect(&place.socket()).unwrap();
            for base in [old, Base::Object(new)] {
                assert_eq!(not_refused(&raw, base), open, "{base:?}");
            }
            // Nor is it told whether something is there, or which one.
            for (path, inode) in [
                (&b"old/sub"[..], (1, 1)),
                (b"old/none", (1, 1)),
                (b"new/sub", (1, 1)),
            ] {
                assert_eq!(
                    not_refused(&raw, Base::Lower(path, inode)),
                    open,
                    "{path:?}"
                );
            }
            let name = Request {
                base1: Base::Object(file),
                ..request(Op::NameOf, b"")
            };
            assert_eq!(raw.ask(&name), Said::Status(libc::EACCES));
        };
        in_thread(|| {
            be_for_good(NOBODY);
            all(&[]);
        });
        // They are refused for the directories above, and not for what they are.
        let opened = client.open("new", directory, 0).unwrap();
        let permissions = std::fs::Permissions::from_mode(0o711);
        std::fs::File::from(opened)
            .set_permissions(permissions)
            .unwrap();
        mode("old", 0o711);
        in_thread(|| {
            be_for_good(NOBODY);
            let raw = Raw::connect(&place.socket()).unwrap();
            for base in [old, Base::Object(new)] {
                assert!(not_refused(&raw, base).len() > 10, "{base:?}");
            }
        });
        server.stop().unwrap();
    });
}

#[test]
fn who_may_not_reach_the_buffer_from_outside_may_not_either_by_its_bridge() {
    as_root(|| {
        let place = Place::new();
        let link = place.root().join("around");
        std::os::unix::fs::symlink(place.root().join("f"), link).unwrap();
        std::fs::write(place.root().join("f"), "text").unwrap();
        let mode = |mode| {
            let permissions = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(place.path(), permissions).unwrap();
        };
        let server = place.start();
        let reach = || {
            in_thread(|| {
                let raw = Raw::connect(&place.socket()).unwrap();
                be_for_good(NOBODY);
                ["f", "around", ""].map(|path| raw.ask(&request(Op::Stat, path.as_bytes())))
            })
        };
        mode(0o711);
        assert_eq!(reach(), [Said::Status(0), Said::Status(0), Said::Status(0)]);
        mode(0o700);
        let denied = || Said::Status(libc::EACCES);
        assert_eq!(reach(), [denied(), denied(), denied()]);
        server.stop().unwrap();
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
