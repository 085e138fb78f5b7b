//! Storages that other versions of this program have written: older ones are read in full and brought up, newer ones
//! are not touched.
//!
//! `data/format-1.tar.gz` was made by the program as it was before storages named their format: an instance directory
//! and the PFS directory below it, after one bridge that ended in order and one that was killed. Its tables are in
//! RocksDB and in the journal.

mod common;

use common::{Place, names, read};
use forebay_server::fsck::{self, FsckReport, Options};
use forebay_server::{STORAGE_FORMAT, start};
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

/// The sample of a format, laid out for a bridge over a folder of this test.
fn sample(name: &str) -> Sample {
    let turn = TURN.lock();
    let place = Place::new();
    let archive = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(name);
    let status = Command::new("tar")
        .args(["--xattrs", "--xattrs-include=user.*", "-xzf"])
        .arg(archive)
        .arg("-C")
        .arg(place.path())
        .status()
        .unwrap();
    assert!(status.success());
    std::fs::rename(place.path().join("instance"), place.instance()).unwrap();
    // It was another folder that the buffer lay over.
    std::fs::write(
        place.instance().join("root"),
        place.root().as_os_str().as_bytes(),
    )
    .unwrap();
    Sample { place, _turn: turn }
}

/// One test at a time: a process that another one starts has the lock of this one's storage as well, until it executes `tar`.
static TURN: Mutex<()> = Mutex::new(());

struct Sample {
    place: Place,
    _turn: MutexGuard<'static, ()>,
}

impl std::ops::Deref for Sample {
    type Target = Place;

    fn deref(&self) -> &Place {
        &self.place
    }
}

/// Every file of a storage with its contents.
fn contents(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let contents = forebay_testkit::entries_below(dir)
        .into_iter()
        .map(|(path, what)| {
            let bytes = match what.is_file() {
                true => std::fs::read(dir.join(&path)).unwrap(),
                false => Vec::new(),
            };
            (path.display().to_string(), bytes)
        });
    contents.collect()
}

fn format_file(place: &Place) -> String {
    std::fs::read_to_string(place.instance().join("format.json")).unwrap()
}

fn set_format(place: &Place, text: &str) {
    std::fs::write(place.instance().join("format.json"), text).unwrap();
}

/// All that the program saw that filled the sample.
fn is_read_in_full(place: &Place) {
    let mut client = place.client();
    assert_eq!(
        names(&mut client, ""),
        [
            "after",
            "dir",
            "empty",
            "late",
            "moved-again",
            "new",
            "pipe2",
            "soft"
        ]
    );
    assert_eq!(names(&mut client, "dir"), ["deep", "late"]);
    assert_eq!(names(&mut client, "moved-again"), ["b", "sub"]);
    for (path, text) in [
        ("after", "renamed\n"),
        ("late", "late\n"),
        ("moved-again/b", "second\n"),
        ("moved-again/sub/a", "from the PFS\n"),
        ("new", "first\n"),
        ("soft", "first\n"),
        ("dir/late/twin", "first\n"),
        ("dir/deep/x5000", &"x".repeat(5000)),
    ] {
        assert_eq!(
            String::from_utf8(read(&mut client, path)).unwrap(),
            text,
            "{path}"
        );
    }
    assert_eq!(
        client.stat("dir/deep/x5000").unwrap().mode,
        libc::S_IFREG | 0o640
    );
    assert_eq!(
        client.stat("pipe2").unwrap().mode & libc::S_IFMT,
        libc::S_IFIFO
    );
    let (first, second) = (
        client.stat("new").unwrap(),
        client.stat("dir/late/twin").unwrap(),
    );
    assert_eq!((first.ino, first.nlink), (second.ino, 2));
    for gone in [
        "gone", "before", "old", "keep", "pipe", "twin", "moved", "dead",
    ] {
        assert_eq!(
            client.stat(gone).unwrap_err().errno(),
            Some(libc::ENOENT),
            "{gone}"
        );
    }
}

/// A check finds nothing but what unpacking has changed, the inode numbers, and mends that.
fn is_sound_but_for_inode_numbers(place: &Place) -> FsckReport {
    let mend = Options {
        mend: true,
        ..Options::default()
    };
    let report = fsck::fsck(&place.instance(), mend).unwrap();
    assert_eq!(report.mended, report.problems.len());
    for problem in &report.problems {
        assert!(problem.contains(": inode number "), "{problem}");
    }
    assert_eq!(place.problems(), Vec::<String>::new());
    report
}

#[test]
fn a_storage_of_format_1_is_brought_up_read_in_full_and_found_sound() {
    let place = sample("format-1.tar.gz");
    assert!(!place.instance().join("format.json").exists());
    let server = place.start();
    let said = format!("the storage had format 1 and has format {STORAGE_FORMAT} now");
    assert!(place.logged().contains(&said));
    let begin = format!("{{\"format\":{STORAGE_FORMAT},\"written_by\":\"forebay ");
    assert!(format_file(&place).starts_with(&begin));
    is_read_in_full(&place);
    server.stop().unwrap();
    assert_eq!(is_sound_but_for_inode_numbers(&place).upgraded_from, None);
    // And once more, as what it is now.
    let server = place.start();
    is_read_in_full(&place);
    server.stop().unwrap();
    assert_eq!(place.logged().matches("the storage had format").count(), 1);
}

#[test]
fn a_storage_of_format_2_is_one_of_format_1_with_its_name() {
    let place = sample("format-1.tar.gz");
    set_format(&place, "{\"format\":2,\"written_by\":\"forebay 0.1.0\"}");
    let server = place.start();
    let said = format!("the storage had format 2 and has format {STORAGE_FORMAT} now");
    assert!(place.logged().contains(&said));
    is_read_in_full(&place);
    assert!(!place.instance().join("meta/journal").exists());
    server.stop().unwrap();
    is_sound_but_for_inode_numbers(&place);
}

#[test]
fn a_check_brings_a_storage_of_format_1_up_and_says_so() {
    let place = sample("format-1.tar.gz");
    let report = is_sound_but_for_inode_numbers(&place);
    assert_eq!(report.upgraded_from, Some(1));
    assert!(report.recovered, "the last bridge was killed");
    let again = fsck::fsck(&place.instance(), Options::default()).unwrap();
    assert_eq!((again.upgraded_from, again.recovered), (None, false));
    let server = place.start();
    is_read_in_full(&place);
    server.stop().unwrap();
}

#[test]
fn the_labels_of_format_1_are_enough_to_make_the_tables_anew() {
    let place = sample("format-1.tar.gz");
    // Finishes what the killed bridge left: only then do all labels tell of today.
    place.start().stop().unwrap();
    std::fs::remove_dir_all(place.instance().join("meta")).unwrap();
    assert_eq!(place.rebuilt(), Vec::<String>::new());
    let server = place.start();
    is_read_in_full(&place);
    server.stop().unwrap();
}

#[test]
fn a_new_storage_names_its_format() {
    let place = Place::new();
    let server = place.start();
    let text = format_file(&place);
    assert!(
        text.starts_with(&format!("{{\"format\":{STORAGE_FORMAT},")),
        "{text}"
    );
    server.stop().unwrap();
    assert!(!place.logged().contains("the storage had format"));
    assert_eq!(format_file(&place), text);
}

#[test]
fn of_a_storage_of_a_later_program_nothing_is_touched() {
    let place = sample("format-1.tar.gz");
    set_format(&place, "{\"format\": 9, \"written_by\": \"forebay 2.0.0\"}");
    let before = contents(&place.instance());
    let mtime = std::fs::metadata(place.instance()).unwrap().mtime_nsec();
    let rebuild = Options {
        mend: true,
        rebuild: true,
    };
    let errors = [
        start(place.config()).err().unwrap().to_string(),
        fsck::fsck(&place.instance(), Options::default())
            .unwrap_err()
            .to_string(),
        fsck::fsck(&place.instance(), rebuild)
            .unwrap_err()
            .to_string(),
    ];
    for error in errors {
        assert_eq!(error.lines().count(), 1);
        for part in [
            "storage format 9",
            "written by forebay 2.0.0",
            &format!("knows formats up to {STORAGE_FORMAT}"),
            "use forebay 2.0.0 or later",
        ] {
            assert!(error.contains(part), "{error}");
        }
    }
    assert!(contents(&place.instance()) == before);
    assert_eq!(
        std::fs::metadata(place.instance()).unwrap().mtime_nsec(),
        mtime
    );
}

#[test]
fn of_a_storage_whose_format_cannot_be_told_nothing_is_touched() {
    for damaged in ["", "{\"format\":", "forebay 0.1.0"] {
        let place = sample("format-1.tar.gz");
        set_format(&place, damaged);
        let before = contents(&place.instance());
        let mend = Options {
            mend: true,
            rebuild: true,
        };
        for error in [
            start(place.config()).err().unwrap().to_string(),
            fsck::fsck(&place.instance(), mend).unwrap_err().to_string(),
        ] {
            assert_eq!(error.lines().count(), 1);
            assert!(error.contains("format.json is damaged ("), "{error}");
        }
        assert!(contents(&place.instance()) == before);
        // The way on that the line names.
        std::fs::remove_file(place.instance().join("format.json")).unwrap();
        let server = place.start();
        is_read_in_full(&place);
        server.stop().unwrap();
    }
}
