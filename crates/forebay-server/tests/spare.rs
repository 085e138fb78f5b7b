//! Removed files are used again: nobody can tell, whatever was done to them before and
//! whatever ends the bridge in between.

mod common;

use common::process::Process;
use common::raw::{Raw, Said, request};
use common::{Place, names, read, write};
use forebay_client::Client;
use forebay_server::Server;
use forebay_sys as sys;
use forebay_wire::{BY_NAME, Op, Request};
use std::fs::{File, Permissions};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::time::Duration;

/// A bridge in which no sync point comes between two requests: a file that one knows is not used again.
fn start(place: &Place) -> Server {
    let mut config = place.config();
    config.longest_unsynced = Duration::from_secs(3600);
    forebay_server::start(config).unwrap()
}

#[test]
#[ignore = "the bridge of the other tests"]
fn bridge_process() {
    common::process::serve();
}

fn create(client: &mut Client, path: &str, mode: u32) -> OwnedFd {
    let flags = libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY;
    client.open(path, flags, mode).unwrap()
}

fn raw(place: &Place) -> Raw {
    Raw::connect(&place.socket()).unwrap()
}

/// Paths of all backing files.
fn backing(place: &Place) -> Vec<PathBuf> {
    let folders = std::fs::read_dir(place.instance().join("obj")).unwrap();
    let mut files: Vec<_> = folders
        .flat_map(|folder| std::fs::read_dir(folder.unwrap().path()).unwrap())
        .map(|file| file.unwrap().path())
        .collect();
    files.sort();
    files
}

/// Makes a file, does something with it, removes it: is its backing file used again for
/// the next one?
fn is_used_again(what: impl FnOnce(&mut Client, OwnedFd) -> Option<OwnedFd>) -> bool {
    let place = Place::new();
    let server = start(&place);
    let mut client = place.client();
    let fd = create(&mut client, "old", 0o644);
    let before = backing(&place);
    assert_eq!(before.len(), 1);
    let held = what(&mut client, fd);
    client.unlink("old").unwrap();
    let new = create(&mut client, "new", 0o640);
    let again = backing(&place).contains(&before[0]);
    let file = File::from(new);
    let attr = file.metadata().unwrap();
    assert_eq!((attr.len(), attr.mode() & 0o7777), (0, 0o640));
    assert_eq!(attr.nlink(), 1);
    assert_eq!((attr.uid(), attr.gid()), sys::my_ids());
    let xattrs = sys::list_xattr(file.as_fd()).unwrap();
    assert_eq!(xattrs, [place.label_attribute(), b"\0"].concat());
    if let Some(held) = held {
        let attr = File::from(held).metadata().unwrap();
        assert_eq!(attr.nlink(), 0, "who still has a removed file sees that");
    }
    drop(file);
    server.stop().unwrap();
    assert_eq!(
        backing(&place).len(),
        1,
        "a clean end leaves no spare files"
    );
    assert_eq!(place.problems(), Vec::<String>::new());
    again
}

#[test]
fn an_empty_file_that_nobody_has_open_is_used_again() {
    // A process that another test starts has all files of this one open, until it executes its program.
    assert!((0..20).any(|_| is_used_again(|_, _| None)));
}

#[test]
fn mode_and_times_of_the_earlier_life_are_gone() {
    let place = Place::new();
    let server = start(&place);
    let mut client = place.client();
    let file = File::from(create(&mut client, "old", 0o600));
    file.set_permissions(Permissions::from_mode(0o4711))
        .unwrap();
    let long_ago = std::time::SystemTime::UNIX_EPOCH;
    let times = std::fs::FileTimes::new().set_modified(long_ago);
    file.set_times(times.set_accessed(long_ago)).unwrap();
    drop(file);
    let before = backing(&place);
    client.unlink("old").unwrap();
    let now = sys::now_coarse();
    let new = create(&mut client, "new", 0o604);
    assert_eq!(backing(&place), before, "it is the same file");
    let attr = client.lstat("new").unwrap();
    assert_eq!(attr.mode & 0o7777, 0o604);
    assert!(attr.mtime >= now && attr.atime >= now && attr.ctime >= now);
    drop(new);
    server.stop().unwrap();
    assert_eq!(place.problems(), Vec::<String>::new());
}

#[test]
fn what_somebody_holds_is_not_used_again() {
    assert!(!is_used_again(|_, fd| Some(fd)));
    assert!(!is_used_again(|client, _| {
        Some(client.open("old", libc::O_RDONLY, 0).unwrap())
    }));
    assert!(!is_used_again(|client, _| {
        Some(client.resolve("old", 0).unwrap())
    }));
}

#[test]
fn what_was_within_reach_of_somebody_is_not_used_again() {
    // The descriptor is closed, but what it led to may be opened by it still.
    assert!(!is_used_again(|client, _| {
        client.resolve("old", 0).unwrap();
        None
    }));
}

#[test]
fn what_somebody_may_open_by_its_name_on_disk_is_not_used_again() {
    for (arg2, again) in [(0, true), (BY_NAME, false)] {
        let place = Place::new();
        let server = start(&place);
        let mut client = place.client();
        drop(create(&mut client, "old", 0o644));
        let before = backing(&place);
        let open = Request {
            arg2,
            ..request(Op::Open, b"old")
        };
        // Without a name on disk it is a descriptor, which nobody takes. Whoever answers the next request of
        // the connection has closed its copy of it.
        let raw = raw(&place);
        assert_eq!(raw.ask(&open), Said::Status(0));
        assert_eq!(raw.ask(&request(Op::Stat, b"old")), Said::Status(0));
        client.unlink("old").unwrap();
        create(&mut client, "new", 0o644);
        assert_eq!(backing(&place).contains(&before[0]), again);
        server.stop().unwrap();
    }
}

#[test]
fn a_staged_file_that_was_within_reach_is_not_used_again() {
    let place = Place::new();
    std::fs::write(place.root().join("low"), "").unwrap();
    let server = start(&place);
    let mut client = place.client();
    drop(client.resolve("low", forebay_wire::FOR_WRITE).unwrap());
    let before = backing(&place);
    assert_eq!(before.len(), 1, "it was staged");
    client.unlink("low").unwrap();
    create(&mut client, "new", 0o644);
    assert!(!backing(&place).contains(&before[0]));
    server.stop().unwrap();
}

#[test]
fn what_is_not_as_new_is_not_used_again() {
    assert!(!is_used_again(|client, _| {
        write(client, "old", b"bytes");
        None
    }));
    assert!(!is_used_again(|_, fd| {
        sys::set_xattr(fd.as_fd(), b"user.mine", b"1").unwrap();
        None
    }));
    assert!(!is_used_again(|client, _| {
        client.link("old", "other").unwrap();
        client.unlink("other").unwrap();
        client.link("old", "third").unwrap();
        client.unlink("old").unwrap();
        client.rename("third", "old").unwrap();
        None
    }));
}

#[test]
#[allow(unsafe_code)]
fn a_file_with_the_flags_of_another_request_is_opened_with_these() {
    let place = Place::new();
    let server = start(&place);
    let mut client = place.client();
    for flags in [libc::O_WRONLY, libc::O_RDWR, libc::O_RDWR | libc::O_APPEND] {
        for _ in 0..2 {
            let create = libc::O_CREAT | libc::O_EXCL;
            let fd = client.open("f", create | flags, 0o644).unwrap();
            // SAFETY: plain integers.
            let found = unsafe { libc::fcntl(std::os::fd::AsRawFd::as_raw_fd(&fd), libc::F_GETFL) };
            assert_eq!(found & (libc::O_ACCMODE | libc::O_APPEND), flags);
            drop(fd);
            client.unlink("f").unwrap();
        }
    }
    assert_eq!(backing(&place).len(), 1);
    server.stop().unwrap();
}

/// A bridge with some files, all but `stay` of which have been removed, is killed.
fn killed_with_spare_files() -> Place {
    let place = Place::new();
    let bridge = Process::start(&place);
    let mut client = place.client();
    write(&mut client, "data", b"data");
    create(&mut client, "stay", 0o644);
    for n in 0..10 {
        create(&mut client, &format!("gone{n}"), 0o644);
    }
    for n in 0..10 {
        client.unlink(format!("gone{n}")).unwrap();
    }
    // Two of them have a name again.
    create(&mut client, "again", 0o644);
    write(&mut client, "full", b"full");
    bridge.kill();
    assert_eq!(
        backing(&place).len(),
        12,
        "ten were used again or are spare"
    );
    place
}

fn is_as_acknowledged(place: &Place) {
    let server = start(place);
    let mut client = place.client();
    assert_eq!(names(&mut client, ""), ["again", "data", "full", "stay"]);
    assert_eq!(read(&mut client, "data"), b"data");
    assert_eq!(read(&mut client, "full"), b"full");
    server.stop().unwrap();
    assert_eq!(backing(place).len(), 4);
    assert_eq!(place.problems(), Vec::<String>::new());
}

#[test]
fn spare_files_do_not_survive_the_death_of_the_bridge() {
    let place = killed_with_spare_files();
    assert_eq!(place.problems(), Vec::<String>::new());
    is_as_acknowledged(&place);
}

#[test]
fn spare_files_are_not_mistaken_for_files_when_the_tables_are_lost() {
    let place = killed_with_spare_files();
    std::fs::remove_dir_all(place.instance().join("meta")).unwrap();
    assert_eq!(place.rebuilt(), Vec::<String>::new());
    is_as_acknowledged(&place);
}

#[test]
fn an_old_register_takes_no_data_away() {
    let place = Place::new();
    let bridge = Process::start(&place);
    let mut client = place.client();
    drop(create(&mut client, "old", 0o644));
    client.unlink("old").unwrap();
    let register = place.instance().join("spare");
    let then = std::fs::read(&register).unwrap();
    write(&mut client, "new", b"bytes");
    bridge.kill();
    // As after a power failure: the file has reached the disk, the register has not.
    std::fs::write(&register, then).unwrap();
    std::fs::remove_dir_all(place.instance().join("meta")).unwrap();
    assert_eq!(place.rebuilt(), Vec::<String>::new());
    let server = start(&place);
    assert_eq!(read(&mut place.client(), "new"), b"bytes");
    server.stop().unwrap();
}
