//! What a check finds, what it can mend, and what the labels alone can tell.

mod common;

use common::{Place, names, read, write};
use forebay_admin::drain::{DrainRequest, DrainState};
use forebay_client::Control;
use forebay_core::path::TreePath;
use forebay_core::table::{Change, Tables, WriteTables};
use forebay_server::fsck::{self, FsckReport, Options};
use forebay_server::{Error, start};
use forebay_sys as sys;
use forebay_tables::Rocks;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

const MEND: Options = Options {
    mend: true,
    rebuild: false,
};

fn check(place: &Place, options: Options) -> FsckReport {
    fsck::fsck(&place.instance(), options).unwrap()
}

/// The backing file whose contents are these.
fn backing(place: &Place, bytes: &[u8]) -> PathBuf {
    let folders = std::fs::read_dir(place.instance().join("obj")).unwrap();
    folders
        .flat_map(|folder| std::fs::read_dir(folder.unwrap().path()).unwrap())
        .map(|file| file.unwrap().path())
        .find(|path| std::fs::read(path).unwrap() == bytes)
        .unwrap()
}

fn files_below(dir: &Path) -> Vec<PathBuf> {
    let entries = forebay_testkit::entries_below(dir).into_iter();
    let files = entries.filter(|(_, about)| about.is_file());
    files.map(|(path, _)| dir.join(path)).collect()
}

/// A stopped buffer with three files in a directory of their own, that nobody has opened since.
fn three_new_files() -> Place {
    let place = Place::new();
    let server = place.start();
    let mut client = place.client();
    client.mkdir("dir", 0o755).unwrap();
    for name in ["one", "two", "three"] {
        write(&mut client, &format!("dir/{name}"), name.as_bytes());
    }
    server.stop().unwrap();
    place
}

/// The same, checked.
fn three_files() -> Place {
    let place = three_new_files();
    assert_eq!(
        check(&place, Options::default()).problems,
        Vec::<String>::new()
    );
    place
}

/// The check finds one thing, which speaks of `what`; mended, nothing is left of it.
fn is_found_and_mended(place: &Place, what: &str) {
    for options in [Options::default(), MEND] {
        let report = check(place, options);
        assert_eq!(report.problems.len(), 1, "{:?}", report.problems);
        assert!(report.problems[0].contains(what), "{:?}", report.problems);
    }
    assert_eq!(
        check(place, Options::default()).problems,
        Vec::<String>::new()
    );
}

fn names_of(place: &Place, dir: &str) -> Vec<String> {
    let server = place.start();
    let names = names(&mut place.client(), dir);
    server.stop().unwrap();
    names
}

#[test]
fn a_lost_backing_file_is_found() {
    let place = three_files();
    std::fs::remove_file(backing(&place, b"two")).unwrap();
    is_found_and_mended(&place, "dir/two: backing object");
    assert_eq!(names_of(&place, "dir"), ["one", "three"]);
}

#[test]
fn a_lost_record_is_found_and_comes_back_from_the_label() {
    let place = three_files();
    let path = TreePath::new(*b"dir/two").unwrap();
    let tables = Rocks::open(&place.instance().join("meta")).unwrap();
    let object = tables.get(&path).unwrap().unwrap().object;
    tables.apply(&[Change::Delete { path, object }]).unwrap();
    drop(tables);
    is_found_and_mended(&place, "has no name");
    let server = place.start();
    let mut client = place.client();
    assert_eq!(names(&mut client, "dir"), ["one", "three", "two"]);
    assert_eq!(read(&mut client, "dir/two"), b"two");
    server.stop().unwrap();
}

#[test]
fn an_object_whose_place_is_taken_is_kept_beside() {
    let place = three_files();
    let path = TreePath::new(*b"dir/two").unwrap();
    let tables = Rocks::open(&place.instance().join("meta")).unwrap();
    let object = tables.get(&path).unwrap().unwrap().object;
    tables.apply(&[Change::Delete { path, object }]).unwrap();
    drop(tables);
    let server = place.start();
    write(&mut place.client(), "dir/two", b"another");
    server.stop().unwrap();
    is_found_and_mended(&place, "has no name");
    let server = place.start();
    let mut client = place.client();
    assert_eq!(read(&mut client, "dir/two"), b"another");
    assert_eq!(read(&mut client, &format!("lost-{object}")), b"two");
    server.stop().unwrap();
}

#[test]
fn a_damaged_label_is_found_and_written_anew() {
    let place = three_files();
    let file = backing(&place, b"two");
    let file = std::fs::File::open(file).unwrap();
    sys::set_xattr(file.as_fd(), place.label_attribute(), b"nonsense").unwrap();
    is_found_and_mended(&place, "dir/two: its object has no label, or a damaged one");
}

#[test]
fn a_label_that_can_not_be_written_does_not_count_as_mended() {
    let place = three_files();
    let path = backing(&place, b"two");
    let file = std::fs::File::open(&path).unwrap();
    sys::set_xattr(file.as_fd(), place.label_attribute(), b"nonsense").unwrap();
    let chattr = |flag: &str| {
        let mut command = std::process::Command::new("chattr");
        let outcome = command.arg(flag).arg(&path).output();
        outcome.is_ok_and(|output| output.status.success())
    };
    if !chattr("+i") {
        return forebay_testkit::skip("only root can make a file immutable, and not everywhere");
    }
    let report = check(&place, MEND);
    assert!(chattr("-i"));
    assert_eq!(report.mended, 0, "{:?}", report.problems);
    let [failed, found] = &report.problems[..] else {
        panic!("{:?}", report.problems);
    };
    assert!(
        failed.starts_with("could not mend: backing object"),
        "{failed}"
    );
    assert!(found.contains("no label, or a damaged one"), "{found}");
    is_found_and_mended(&place, "dir/two: its object has no label, or a damaged one");
}

#[test]
fn a_file_exchanged_for_another_is_found() {
    let place = three_files();
    let file = backing(&place, b"two");
    let copy = file.with_extension("copy");
    // The copy has another inode number, and no label.
    std::fs::copy(&file, &copy).unwrap();
    std::fs::rename(&copy, &file).unwrap();
    for options in [Options::default(), MEND] {
        let problems = check(&place, options).problems;
        assert_eq!(problems.len(), 2, "{problems:?}");
        assert!(
            problems[0].contains("dir/two: inode number"),
            "{problems:?}"
        );
    }
    assert_eq!(
        check(&place, Options::default()).problems,
        Vec::<String>::new()
    );
}

#[test]
fn what_is_no_backing_object_is_found_and_left_alone() {
    let place = three_files();
    let strange = backing(&place, b"two").with_file_name("strange");
    std::fs::write(&strange, b"?").unwrap();
    for options in [Options::default(), MEND] {
        let problems = check(&place, options).problems;
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(
            problems[0].contains("strange is no backing object"),
            "{problems:?}"
        );
    }
    assert!(strange.exists());
}

#[test]
fn a_running_bridge_is_not_checked() {
    let place = Place::new();
    let server = place.start();
    let refused = fsck::fsck(&place.instance(), Options::default());
    assert!(matches!(refused, Err(Error::InUse { ref instance }) if *instance == place.instance()));
    server.stop().unwrap();
}

#[test]
fn lost_tables_come_back_from_the_labels() {
    let place = Place::new();
    for dir in ["old/sub", "away"] {
        std::fs::create_dir_all(place.root().join(dir)).unwrap();
        std::fs::write(place.root().join(dir).join("file"), dir).unwrap();
    }
    let server = place.start();
    let mut client = place.client();
    write(&mut client, "plain", b"bytes");
    client.link("plain", "old/linked").unwrap();
    client.mkdir("a", 0o711).unwrap();
    client.mkdir("a/b", 0o700).unwrap();
    write(&mut client, "a/b/deep", b"deep");
    client.rename("a", "c").unwrap();
    client.symlink("c/b/deep", "sym").unwrap();
    client.mknod("fifo", libc::S_IFIFO | 0o640, 0).unwrap();
    client.rename("old", "young").unwrap();
    write(&mut client, "young/sub/new", b"in what was renamed");
    client.unlink("young/sub/file").unwrap();
    client.unlink("away/file").unwrap();
    client.rmdir("away").unwrap();
    write(&mut client, "away", b"a file where a directory was");
    let file = std::fs::File::from(client.open("plain", libc::O_RDWR, 0).unwrap());
    file.set_permissions(std::fs::Permissions::from_mode(0o604))
        .unwrap();
    drop(file);
    let paths = [
        "plain",
        "young/linked",
        "c",
        "c/b",
        "c/b/deep",
        "fifo",
        "away",
        "young/sub/new",
    ];
    let before: Vec<_> = paths.iter().map(|p| client.lstat(p).unwrap()).collect();
    server.stop().unwrap();

    std::fs::remove_dir_all(place.instance().join("meta")).unwrap();
    assert!(fsck::fsck(&place.instance(), Options::default()).is_err());
    let rebuild = Options {
        mend: false,
        rebuild: true,
    };
    let report = check(&place, rebuild);
    assert_eq!(report.problems, Vec::<String>::new());
    assert_eq!(report.rebuilt, report.records);
    let server = place.start();
    let after: Vec<_> = paths.iter().map(|p| client.lstat(p).unwrap()).collect();
    assert_eq!(after, before);
    assert_eq!(
        names(&mut client, ""),
        ["away", "c", "fifo", "plain", "sym", "young"]
    );
    assert_eq!(names(&mut client, "young"), ["linked", "sub"]);
    assert_eq!(names(&mut client, "young/sub"), ["new"]);
    assert_eq!(names(&mut client, "c/b"), ["deep"]);
    assert_eq!(read(&mut client, "sym"), b"deep");
    assert_eq!(read(&mut client, "young/linked"), b"bytes");
    assert_eq!(client.stat("plain").unwrap().nlink, 2);
    let fifo = client.resolve("fifo", 0).unwrap();
    let fifo = std::fs::File::from(fifo).metadata().unwrap();
    assert!(fifo.file_type().is_fifo());
    server.stop().unwrap();
    assert_eq!(
        check(&place, Options::default()).problems,
        Vec::<String>::new()
    );
}

#[test]
fn a_label_of_a_later_format_stops_a_rebuild_and_costs_no_name() {
    let place = three_files();
    let file = std::fs::File::open(backing(&place, b"two")).unwrap();
    let label = sys::get_xattr(file.as_fd(), place.label_attribute())
        .unwrap()
        .unwrap();
    let mut later = label.clone();
    later[0] = 2;
    sys::set_xattr(file.as_fd(), place.label_attribute(), &later).unwrap();
    let meta = place.instance().join("meta");
    std::fs::rename(&meta, place.instance().join("meta.away")).unwrap();
    let rebuild = Options {
        mend: false,
        rebuild: true,
    };
    let refused = fsck::fsck(&place.instance(), rebuild).unwrap_err();
    let text = refused.to_string();
    assert!(
        text.ends_with("a label of format 2; this program reads format 1"),
        "{text}"
    );
    assert!(!meta.exists());
    sys::set_xattr(file.as_fd(), place.label_attribute(), &label).unwrap();
    assert_eq!(check(&place, rebuild).problems, Vec::<String>::new());
    let server = place.start();
    assert_eq!(read(&mut place.client(), "dir/two"), b"two");
    server.stop().unwrap();
}

#[test]
fn a_file_whose_label_is_lost_or_damaged_keeps_its_data_through_a_rebuild() {
    const REBUILD: Options = Options {
        mend: false,
        rebuild: true,
    };
    let place = three_files();
    let file = std::fs::File::open(backing(&place, b"two")).unwrap();
    sys::set_xattr(file.as_fd(), place.label_attribute(), b"\x01").unwrap();
    std::fs::remove_dir_all(place.instance().join("meta")).unwrap();
    let report = check(&place, REBUILD);
    let told = |p: &String| p.contains("has no label");
    assert!(report.problems.iter().any(told), "{:?}", report.problems);
    assert_eq!(report.withheld.len(), 1, "{:?}", report.withheld);
    assert_eq!(check(&place, Options::default()).problems, [""; 0]);
    assert_eq!(names_of(&place, "dir"), ["one", "three"]);
    let kept = std::fs::read_dir(place.instance().join("quarantine")).unwrap();
    let kept = kept.map(|file| std::fs::read(file.unwrap().path()).unwrap());
    assert!(kept.into_iter().any(|bytes| bytes == b"two"));
}

#[test]
fn the_record_of_a_renamed_thing_is_not_dropped_with_its_marker() {
    let place = Place::new();
    std::fs::create_dir(place.root().join("dir")).unwrap();
    std::fs::write(place.root().join("dir/f"), "theirs").unwrap();
    let server = place.start();
    place.client().rename("dir", "moved").unwrap();
    server.stop().unwrap();
    let folders = std::fs::read_dir(place.instance().join("obj")).unwrap();
    for folder in folders {
        for object in std::fs::read_dir(folder.unwrap().path()).unwrap() {
            std::fs::remove_file(object.unwrap().path()).unwrap();
        }
    }
    let report = check(&place, MEND);
    let told = |p: &String| p.starts_with("moved: backing object");
    assert!(report.problems.iter().any(told), "{:?}", report.problems);
    let server = place.start();
    let mut control = Control::connect(&place.socket()).unwrap();
    control.drain(DrainRequest::default()).unwrap();
    let last = control.follow_drain().unwrap().last().unwrap().unwrap();
    assert_eq!(last.state, DrainState::Done);
    server.stop().unwrap();
    let kept = ["dir/f", "moved/f"].map(|path| place.root().join(path).exists());
    assert!(kept.contains(&true), "what was renamed is still on the PFS");
}

/// Whatever label is lost: the only copy of something that was renamed stays on the PFS until somebody decides.
#[test]
fn a_rebuild_without_the_label_of_something_that_was_renamed_removes_nothing_from_the_pfs() {
    let made = || {
        let place = Place::new();
        std::fs::create_dir(place.root().join("dir")).unwrap();
        for name in ["dir/f", "file", "again"] {
            std::fs::write(place.root().join(name), format!("theirs, {name}")).unwrap();
        }
        let server = place.start();
        let mut client = place.client();
        for (from, to) in [("dir", "moved"), ("file", "other"), ("again", "kept")] {
            client.rename(from, to).unwrap();
        }
        write(&mut client, "again", b"in its place");
        server.stop().unwrap();
        place
    };
    let objects = |place: &Place| {
        let mut paths = files_below(&place.instance().join("obj"));
        paths.sort();
        paths
    };
    let count = objects(&made()).len();
    assert!(count >= 6, "{count}");
    let mut listed = 0;
    for n in 0..count {
        let place = made();
        let object = std::fs::File::open(&objects(&place)[n]).unwrap();
        let has_label = sys::remove_xattr(object.as_fd(), place.label_attribute()).is_ok();
        assert!(has_label);
        std::fs::remove_dir_all(place.instance().join("meta")).unwrap();
        let rebuild = Options {
            mend: false,
            rebuild: true,
        };
        assert_ne!(check(&place, rebuild).problems, [""; 0]);
        let server = place.start();
        let mut control = Control::connect(&place.socket()).unwrap();
        control.drain(DrainRequest::default()).unwrap();
        let last = control.follow_drain().unwrap().last().unwrap().unwrap();
        assert_eq!(last.state, DrainState::Done);
        listed += usize::from(last.left > 0);
        server.stop().unwrap();
        let there = files_below(&place.root()).into_iter();
        let there: Vec<_> = there.filter_map(|path| std::fs::read(path).ok()).collect();
        for name in ["dir/f", "file", "again"] {
            let theirs = format!("theirs, {name}").into_bytes();
            assert!(there.contains(&theirs), "{name} without label {n}");
        }
    }
    assert!(listed > 0);
}

/// Everything in an instance: paths, kinds, sizes, times.
fn picture(place: &Place) -> Vec<(PathBuf, u64, u64, i64, i64)> {
    let entries = forebay_testkit::entries_below(&place.instance()).into_iter();
    let seen = entries.map(|(path, about)| {
        let times = (about.mtime(), about.mtime_nsec());
        (path, about.ino(), about.len(), times.0, times.1)
    });
    seen.collect()
}

/// Bytes at the beginning of the log hold the first that was written to the tables. Without them RocksDB opens, and finds nothing.
#[test]
fn a_start_with_tables_that_have_lost_the_beginning_is_refused() {
    let place = three_new_files();
    let meta = std::fs::read_dir(place.instance().join("meta")).unwrap();
    let logs = meta.map(|entry| entry.unwrap().path());
    let logs: Vec<_> = logs
        .filter(|path| path.extension().is_some_and(|e| e == "log"))
        .collect();
    assert!(!logs.is_empty());
    for log in logs {
        let file = std::fs::OpenOptions::new().write(true).open(log).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &[0; 4096], 0).unwrap();
    }
    for _ in 0..2 {
        let Err(refused) = start(place.config()) else {
            panic!("it has started");
        };
        assert!(matches!(refused, Error::TablesLost { .. }), "{refused}");
    }
    let checked = fsck::fsck(&place.instance(), Options::default());
    assert!(matches!(checked, Err(Error::TablesLost { .. })));
    assert!(std::fs::symlink_metadata(place.root().join(".forebay-lock")).is_ok());
    assert_eq!(place.rebuilt(), Vec::<String>::new());
    assert_eq!(names_of(&place, "dir"), ["one", "three", "two"]);
}

#[test]
fn a_start_without_tables_over_objects_is_refused_and_touches_nothing() {
    let meta = |place: &Place| place.instance().join("meta");
    // All of it; what is in it; the file without which a database counts as none.
    let losses: [fn(PathBuf); 3] = [
        |meta| std::fs::remove_dir_all(meta).unwrap(),
        |meta| {
            std::fs::remove_dir_all(&meta).unwrap();
            std::fs::create_dir(&meta).unwrap();
        },
        |meta| std::fs::remove_file(meta.join("CURRENT")).unwrap(),
    ];
    for loss in losses {
        let place = three_files();
        loss(meta(&place));
        let before = picture(&place);
        let lock = place.root().join(".forebay-lock");
        let claimed = std::fs::read_link(&lock).unwrap();
        let instance = place.instance();
        for _ in 0..2 {
            let Err(refused) = start(place.config()) else {
                panic!("it has started");
            };
            assert!(
                matches!(refused, Error::TablesLost { instance: ref lost } if *lost == instance),
                "{refused}"
            );
            assert_eq!(refused.to_string().lines().count(), 1);
            let hint = refused.hint().unwrap();
            let command = format!("forebay fsck --rebuild --storage {}", instance.display());
            assert!(hint.ends_with(&command), "{hint}");
        }
        let checked = fsck::fsck(&instance, Options::default());
        assert!(matches!(checked, Err(Error::TablesLost { .. })));
        assert_eq!(picture(&place), before);
        assert_eq!(std::fs::read_link(&lock).unwrap(), claimed);
        assert_eq!(place.rebuilt(), Vec::<String>::new());
        assert_eq!(names_of(&place, "dir"), ["one", "three", "two"]);
    }
}

/// The directory of the tables is there, but not yet the tables; a folder for objects, but none in it.
#[test]
fn a_start_that_was_killed_before_it_had_tables_is_begun_again() {
    let place = Place::new();
    for sub in ["", "meta", "obj", "obj/0", "dir"] {
        forebay_server::make_private(&place.instance().join(sub)).unwrap();
    }
    assert_eq!(names_of(&place, ""), [""; 0]);
}

#[test]
fn an_instance_that_was_drained_empty_starts_without_its_tables() {
    let place = three_files();
    let server = place.start();
    let mut control = Control::connect(&place.socket()).unwrap();
    control.drain(DrainRequest::default()).unwrap();
    let last = control.follow_drain().unwrap().last().unwrap().unwrap();
    assert_eq!((last.state, last.left), (DrainState::Done, 0));
    drop(control);
    server.stop().unwrap();
    std::fs::remove_dir_all(place.instance().join("meta")).unwrap();
    assert_eq!(names_of(&place, "dir"), ["one", "three", "two"]);
}
