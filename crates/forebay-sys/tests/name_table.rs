//! What a client finds in the shared table of names is what the bridge would have said at the same moment.

use forebay_sys::SharedNames;
use forebay_wire::{NAMES_THAT_FIT, ObjectId, ObjectName, Shown};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

fn file(number: u64) -> Shown {
    Shown {
        object: ObjectName {
            oid: ObjectId(u128::from(number) << 64 | u128::from(!number)),
            link: number as u32,
        },
        is_dir: false,
        born_above: 0,
    }
}

fn begun() -> (SharedNames, OwnedFd) {
    let (names, memory) = SharedNames::new().unwrap();
    names.table().begin(1, 5, 1000);
    (names, memory)
}

#[test]
fn a_name_is_found_from_when_it_is_shown_until_it_is_covered() {
    let (names, _memory) = begun();
    let table = names.table();
    assert!(table.find(b"a/b").is_none());
    assert!(!table.cover(b"a/b"), "nothing to cover");
    let one = file(u64::MAX - 1);
    table.show(b"a/b", Some(one));
    let (shown, seen) = table.find(b"a/b").unwrap();
    assert_eq!(shown, one);
    assert!(table.still_stands(seen));
    assert!(table.find(b"a/bb").is_none());
    assert!(table.cover(b"a/b"));
    assert!(!table.still_stands(seen));
    assert!(table.find(b"a/b").is_none());
    let dir = Shown {
        is_dir: true,
        born_above: u16::MAX,
        ..file(9)
    };
    table.show(b"a/b", Some(dir));
    assert_eq!(table.find(b"a/b").unwrap().0, dir);
    // Though it stands for something again, what was found before stands no more.
    assert!(!table.still_stands(seen));
    table.show(b"a/b", None);
    assert!(table.find(b"a/b").is_none());
    table.show(b"never", None);
}

#[test]
fn more_names_than_fit_are_forgotten_and_never_confused() {
    let (names, _memory) = begun();
    let table = names.table();
    let many = 3 * NAMES_THAT_FIT;
    for i in 0..many {
        table.show(format!("dir/{i}").as_bytes(), Some(file(i as u64)));
    }
    let mut found = 0;
    for i in 0..many {
        if let Some((shown, _)) = table.find(format!("dir/{i}").as_bytes()) {
            assert_eq!(shown, file(i as u64));
            found += 1;
        }
    }
    assert!(
        found > NAMES_THAT_FIT * 9 / 10 && found <= NAMES_THAT_FIT,
        "{found} found"
    );
}

/// One thread commits: the number behind each name grows, or the name goes. Others find the name, look at the committed
/// number in between, as a client looks at an object, and ask whether the name still stands.
#[test]
fn a_name_that_still_stands_was_true_in_between() {
    const NAMES: usize = 3;
    const COMMITS: u64 = 400_000;
    let (names, _memory) = begun();
    // 0: there is no such name.
    let committed = [const { AtomicU64::new(0) }; NAMES];
    let ended = AtomicBool::new(false);
    let path = |i: usize| [b'd', b'/', b'a' + i as u8];
    let held: u64 = std::thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|r| {
                let (names, committed, ended) = (&names, &committed, &ended);
                scope.spawn(move || {
                    let mut held = 0;
                    let mut i = r;
                    while !ended.load(Ordering::Relaxed) {
                        i = (i + 1) % NAMES;
                        let Some((shown, seen)) = names.table().find(&path(i)) else {
                            continue;
                        };
                        let now = committed[i].load(Ordering::SeqCst);
                        if names.table().still_stands(seen) {
                            assert_eq!(shown, file(now), "name {i}");
                            held += 1;
                        }
                    }
                    held
                })
            })
            .collect();
        for n in 1..=COMMITS {
            // As a rename: one name goes, and another one gets what it stood for.
            let (from, to) = (n as usize % NAMES, (n as usize + 1) % NAMES);
            if names.table().cover(&path(from)) | names.table().cover(&path(to)) {
                names.table().covered();
            }
            committed[from].store(0, Ordering::SeqCst);
            committed[to].store(n, Ordering::SeqCst);
            names.table().show(&path(from), None);
            names.table().show(&path(to), Some(file(n)));
        }
        ended.store(true, Ordering::Relaxed);
        readers.into_iter().map(|r| r.join().unwrap()).sum()
    });
    assert!(held > 0, "nobody has found anything");
}
