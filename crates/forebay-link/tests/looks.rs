//! A client looks at files by the table of its bridge, and asks as soon as anything is uncertain.

mod common;

use common::{Peer, Place, encoded};
use forebay_link::{Config, Link};
use forebay_sys::{DurabilityOwner, DurabilityWords, SharedNames, my_ids};
use forebay_types::{Backing, BridgeId};
use forebay_wire::{ObjectId, ObjectName, Op, Reply, ReplyKind, Shown};
use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A bridge that answers only for its memory.
struct Bridge {
    owner: DurabilityOwner,
    names: SharedNames,
    memory: Arc<[OwnedFd; 2]>,
}

impl Bridge {
    fn new(life: u64, user: u32) -> Self {
        let (words, page) = DurabilityWords::new().unwrap();
        words.page().set_life(life);
        let owner = words.own().unwrap();
        let (names, table) = SharedNames::new().unwrap();
        names.table().begin(life, 77 + life, user);
        Bridge {
            owner,
            names,
            memory: Arc::new([page, table]),
        }
    }

    fn show(&self, path: &str, shown: Option<Shown>) {
        self.names.table().show(path.as_bytes(), shown);
    }
}

/// Grants a bridge's memory when it is asked for.
fn grant(peer: &Peer, memory: &[OwnedFd; 2]) {
    for (op, memory) in [Op::Words, Op::NameTable].iter().zip(memory) {
        let asked = peer.asked();
        assert_eq!(asked.op, *op);
        let grant = Reply {
            kind: ReplyKind::Grant,
            ..Reply::status(asked.seq, 0)
        };
        peer.send_with(&encoded(&grant), Some(memory.as_raw_fd()));
    }
}

fn file(number: u64) -> Shown {
    Shown {
        object: ObjectName {
            oid: ObjectId::new(BridgeId(1), 1, number << 2),
            link: 0,
        },
        is_dir: false,
        born_above: 0,
    }
}

fn dir(number: u64) -> Shown {
    Shown {
        is_dir: true,
        ..file(number)
    }
}

fn at(dir: &Path, below: &[u8]) -> PathBuf {
    let path = dir.join(OsStr::from_bytes(below));
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    path
}

fn size(link: &Link, config: &Config, path: &str) -> Option<u64> {
    link.look(config, path.as_bytes()).map(|attr| attr.size)
}

/// The table is asked for after a few looks.
fn size_at_last(link: &Link, config: &Config, path: &str) -> u64 {
    (0..20)
        .find_map(|_| size(link, config, path))
        .expect("nothing is found")
}

#[test]
fn a_file_is_looked_at_as_long_as_its_name_and_its_bridge_stand() {
    let place = Place::new();
    let (config, storage) = (place.config(20), place.storage());
    let bridge = Bridge::new(1, 0);
    fs::write(at(&storage, &Backing::file(file(1).object)), "one").unwrap();
    bridge.show("d/one", Some(file(1)));
    bridge.show("gone", Some(file(2)));
    bridge.show("dir", Some(dir(3)));
    let link: &Link = Box::leak(Box::default());
    std::thread::scope(|scope| {
        let (memory, here) = (bridge.memory.clone(), &place);
        let served = scope.spawn(move || {
            let peer = here.accept();
            grant(&peer, &memory);
            peer
        });
        assert_eq!(size_at_last(link, config, "d/one"), 3);
        let open = served.join().unwrap();
        // What is not there, or is no file, is for the bridge to tell.
        for path in [
            "gone",
            "dir",
            "never",
            "",
            "d/one/",
            "d//one",
            "./d/one",
            "d/../d/one",
        ] {
            assert_eq!(size(link, config, path), None, "{path}");
        }
        assert!(bridge.names.table().cover(b"d/one"));
        assert_eq!(size(link, config, "d/one"), None);
        let below = Shown {
            born_above: 1,
            ..file(1)
        };
        bridge.show("d/one", Some(below));
        assert_eq!(
            size(link, config, "d/one"),
            None,
            "its directory is not shown"
        );
        bridge.show("d", Some(dir(4)));
        assert_eq!(size(link, config, "d/one"), Some(3));
        drop(bridge.owner);
        assert_eq!(size(link, config, "d/one"), None);
        // The next bridge knows another file by this name.
        let next = Bridge::new(2, 0);
        fs::write(at(&storage, &Backing::file(file(5).object)), "other").unwrap();
        next.show("d/one", Some(file(5)));
        drop(open);
        let memory = next.memory.clone();
        let served = scope.spawn(move || {
            let peer = here.accept();
            grant(&peer, &memory);
            peer
        });
        assert_eq!(size_at_last(link, config, "d/one"), 5);
        let _open = served.join().unwrap();
    });
}

#[test]
fn who_may_not_search_a_directory_on_the_way_has_to_ask() {
    let place = Place::new();
    let (config, storage) = (place.config(20), place.storage());
    fs::create_dir_all(place.buffer()).unwrap();
    let me = my_ids().0;
    // As a bridge of an ordinary user has it, whoever runs this.
    let user = me.max(1);
    let bridge = Bridge::new(1, user);
    let backing = at(&storage, &Backing::dir(dir(7).object));
    fs::create_dir_all(&backing).unwrap();
    std::os::unix::fs::chown(&backing, Some(if me == 0 { user } else { me }), None).unwrap();
    fs::write(at(&storage, &Backing::file(file(1).object)), "one").unwrap();
    let born = Shown {
        born_above: 1,
        ..file(1)
    };
    bridge.show("born/f", Some(born));
    bridge.show("f", Some(file(1)));
    let link: &Link = Box::leak(Box::default());
    std::thread::scope(|scope| {
        let (memory, here) = (bridge.memory.clone(), &place);
        let served = scope.spawn(move || {
            let peer = here.accept();
            grant(&peer, &memory);
            peer
        });
        assert_eq!(size_at_last(link, config, "f"), 3);
        let _open = served.join().unwrap();
        assert_eq!(size(link, config, "born/f"), None, "not shown");
        bridge.show("born", Some(dir(7)));
        assert_eq!(size(link, config, "born/f"), Some(3));
        for mode in [0o700, 0o100, 0o600, 0o077, 0o711] {
            fs::set_permissions(&backing, Permissions::from_mode(mode)).unwrap();
            let may = (mode & 0o100 != 0).then_some(3);
            assert_eq!(size(link, config, "born/f"), may, "{mode:o}");
        }
        assert!(bridge.names.table().cover(b"born"));
        assert_eq!(size(link, config, "born/f"), None, "covered");
    });
}

#[test]
fn a_bridge_that_gives_no_table_is_asked_for_everything() {
    let bridge = Bridge::new(1, 0);
    let memory = bridge.memory.clone();
    let (config, served) = Place::scripted(0, move |place| {
        let peer = place.accept();
        let asked = peer.asked();
        let grant = Reply {
            kind: ReplyKind::Grant,
            ..Reply::status(asked.seq, 0)
        };
        peer.send_with(&encoded(&grant), Some(memory[0].as_raw_fd()));
        let asked = peer.asked();
        assert_eq!(asked.op, Op::NameTable);
        peer.refuse(&asked, libc::EPERM);
        peer
    });
    let link: &Link = Box::leak(Box::default());
    for _ in 0..100 {
        assert_eq!(size(link, config, "f"), None);
    }
    served.join().unwrap();
}
