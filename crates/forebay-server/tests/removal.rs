//! A directory of the PFS with many removals below it goes while others look, and whoever dies meanwhile.

mod common;

use common::{Place, names, read, write};
use forebay_admin::drain::DrainRequest;
use forebay_client::{Client, Control};
use forebay_core::ops::Unseen;
use forebay_core::path::TreePath;
use forebay_core::record::PathRecord;
use forebay_core::table::{Change, Tables, WriteTables};
use forebay_tables::Rocks;
use forebay_wire::{Op, Request};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// More than are looked at where requests arrive, and many parts.
const FILES: usize = 3_000;

fn file(n: usize) -> String {
    format!("d/f{n:05}")
}

/// A PFS with a directory of this many files.
fn with_files(count: usize) -> Place {
    let place = Place::new();
    std::fs::create_dir(place.root().join("d")).unwrap();
    for n in 0..count {
        std::fs::write(place.root().join(file(n)), "old").unwrap();
    }
    place
}

fn remove_files(client: &mut Client, count: usize) {
    for n in 0..count {
        client.unlink(file(n)).unwrap();
    }
}

fn fails<T>(outcome: forebay_client::Result<T>, errno: i32) {
    assert_eq!(outcome.err().and_then(|e| e.errno()), Some(errno));
}

fn tables(place: &Place) -> Rocks {
    Rocks::open(&place.instance().join("meta")).unwrap()
}

fn d() -> TreePath {
    TreePath::new(*b"d").unwrap()
}

#[test]
fn others_see_it_whole_or_not_at_all_while_a_large_directory_goes() {
    let place = with_files(FILES);
    let server = place.start();
    let mut client = place.client();
    remove_files(&mut client, FILES - 1);
    fails(client.rmdir("d"), libc::ENOTEMPTY);
    client.unlink(file(FILES - 1)).unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let look = || {
            let mut client = place.client();
            while !is_over.load(Ordering::Relaxed) {
                match client.list("d") {
                    Ok(entries) => assert_eq!(entries, []),
                    Err(e) => assert_eq!(e.errno(), Some(libc::ENOENT)),
                }
                fails(client.stat(file(7)), libc::ENOENT);
            }
        };
        scope.spawn(look);
        scope.spawn(look);
        client.rmdir("d").unwrap();
        client.mkdir("d", 0o755).unwrap();
        assert_eq!(names(&mut client, "d"), [] as [&str; 0]);
        is_over.store(true, Ordering::Relaxed);
    });
    write(&mut client, &file(7), b"new");
    assert_eq!(names(&mut client, "d"), ["f00007"]);
    assert_eq!(read(&mut client, &file(7)), b"new");
    server.stop().unwrap();
    let left = tables(&place).subtree(&d()).unwrap();
    assert_eq!(left.len(), 1, "the new file alone");
    assert_eq!(place.problems(), Vec::<String>::new());
}

#[test]
fn what_others_have_added_on_the_pfs_keeps_a_large_directory() {
    let place = with_files(FILES);
    let server = place.start();
    let mut client = place.client();
    remove_files(&mut client, FILES);
    std::fs::write(place.root().join("d/theirs"), "theirs").unwrap();
    fails(client.rmdir("d"), libc::ENOTEMPTY);
    assert_eq!(names(&mut client, "d"), ["theirs"]);
    server.stop().unwrap();
    assert_eq!(place.problems(), Vec::<String>::new());
}

/// The storage as it is when a bridge has died after some parts: the directory is gone, some records below it are not.
fn died_in_between() -> Place {
    let place = with_files(FILES);
    let server = place.start();
    remove_files(&mut place.client(), FILES);
    server.stop().unwrap();
    let below: Vec<(TreePath, PathRecord)> = tables(&place).subtree(&d()).unwrap();
    assert_eq!(below.len(), FILES);
    let server = place.start();
    place.client().rmdir("d").unwrap();
    server.stop().unwrap();
    let tables = tables(&place);
    assert_eq!(tables.subtree(&d()).unwrap().len(), 0);
    let mark = Unseen {
        dir: d(),
        records: Vec::new(),
        per_part: 1,
    };
    let left = below.into_iter().skip(FILES / 2);
    let mut batch: Vec<_> = left
        .map(|(path, record)| Change::Put { path, record })
        .collect();
    batch.push(mark.mark());
    tables.apply(&batch).unwrap();
    place
}

#[test]
fn the_next_start_takes_away_what_is_left_of_a_directory_that_is_gone() {
    let place = died_in_between();
    let server = place.start();
    let mut client = place.client();
    fails(client.stat("d"), libc::ENOENT);
    client.mkdir("d", 0o755).unwrap();
    assert_eq!(names(&mut client, "d"), [] as [&str; 0]);
    server.stop().unwrap();
    let tables = tables(&place);
    assert_eq!(tables.subtree(&d()).unwrap().len(), 0);
    assert_eq!(Unseen::left(&tables, 1).unwrap(), []);
    drop(tables);
    assert_eq!(place.problems(), Vec::<String>::new());
    assert!(
        Path::new(&place.root().join(file(1))).exists(),
        "no drain yet"
    );
}

#[test]
fn a_large_directory_goes_once_while_others_rename_what_is_above_it_and_make_things_in_it() {
    let place = Place::new();
    std::fs::create_dir_all(place.root().join("p/d")).unwrap();
    for n in 0..FILES {
        std::fs::write(place.root().join("p").join(file(n)), "old").unwrap();
    }
    let server = place.start();
    let mut client = place.client();
    for n in 0..FILES {
        client.unlink(format!("p/{}", file(n))).unwrap();
    }
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for (from, to) in [("p", "q"), ("q", "p")] {
            let (place, is_over) = (&place, &is_over);
            scope.spawn(move || {
                let mut client = place.client();
                while !is_over.load(Ordering::Relaxed) {
                    let _ = client.rename(from, to);
                    let _ = client.mkdir(format!("{from}/d/{to}"), 0o755);
                    let _ = client.rmdir(format!("p/d/{to}"));
                    let _ = client.rmdir(format!("q/d/{to}"));
                }
            });
        }
        let mut tries = 0;
        while client.rmdir("p/d").is_err() && client.rmdir("q/d").is_err() {
            tries += 1;
            assert!(tries < 10_000, "it never goes");
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let now = names(&mut client, "").remove(0);
    assert_eq!(names(&mut client, &now), [] as [&str; 0]);
    fails(client.stat(format!("{now}/d")), libc::ENOENT);
    server.stop().unwrap();
    assert_eq!(Unseen::left(&tables(&place), 1).unwrap(), []);
    assert_eq!(place.problems(), Vec::<String>::new());
    assert_eq!(place.rebuilt(), Vec::<String>::new());
}

#[test]
fn a_rename_of_two_trees_of_which_the_first_is_large_moves_all_of_both() {
    const MANY: usize = 400;
    let place = Place::new();
    let server = place.start();
    let mut client = place.client();
    for dir in ["big", "small"] {
        client.mkdir(dir, 0o755).unwrap();
    }
    for n in 0..MANY {
        write(&mut client, &format!("big/f{n:05}"), b"big");
    }
    write(&mut client, "small/f00399", b"small");
    let exchange = Request {
        arg0: libc::RENAME_EXCHANGE,
        str1: b"big",
        str2: b"small",
        ..Request::new(Op::Rename)
    };
    client.ask(exchange).unwrap();
    assert_eq!(names(&mut client, "big"), ["f00399"]);
    assert_eq!(names(&mut client, "small").len(), MANY);
    assert_eq!(read(&mut client, "big/f00399"), b"small");
    assert_eq!(read(&mut client, "small/f00399"), b"big");
    server.stop().unwrap();
    assert_eq!(place.problems(), Vec::<String>::new());
}

#[test]
fn a_directory_with_one_file_behind_many_removals_is_not_empty() {
    const MANY: usize = 400;
    let place = Place::new();
    let server = place.start();
    let mut client = place.client();
    client.mkdir("d", 0o755).unwrap();
    for n in 0..MANY {
        write(&mut client, &file(n), b"ours");
    }
    // On the PFS, so that a removal leaves a record.
    let keep = DrainRequest {
        keep: true,
        ..DrainRequest::default()
    };
    let mut control = Control::connect(&place.socket()).unwrap();
    control.drain(keep).unwrap();
    assert!(control.follow_drain().unwrap().all(|state| state.is_ok()));
    drop(control);
    remove_files(&mut client, MANY - 1);
    client.mkdir("other", 0o755).unwrap();
    write(&mut client, "other/in", b"x");
    fails(client.rename("other", "d"), libc::ENOTEMPTY);
    fails(client.rmdir("d"), libc::ENOTEMPTY);
    assert_eq!(names(&mut client, "d"), [file(MANY - 1)[2..].to_owned()]);
    server.stop().unwrap();
    assert_eq!(place.problems(), Vec::<String>::new());
}
