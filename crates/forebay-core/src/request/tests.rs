//! The machine effect by effect, with others at work between any two of them.

mod links;

use super::*;
use crate::bridge::tests::Table;
use crate::bridge::{Fact, OthersBelow, Verdict};
use crate::facts::{
    Attr, Cred, Fresh, LowerEntry, LowerPage, Need, NewKind, PfsLook, Settings, Through,
};
use crate::ops::{Answer, GrantTarget, Op, Path, Request, Start};
use crate::path::TreePath;
use crate::record::{BridgeId, Kind, ObjectId, ObjectName, PathRecord, Token, Transit};
use crate::table::{Change, TableError, Tables, WriteTables};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A bridge, alone if nothing else is said, over a PFS that waits.
#[derive(Default)]
struct Hand {
    tables: Table,
    /// What the PFS has; `None` where a look at it waits.
    lower: Option<BTreeMap<TreePath, Attr>>,
    versions: Cell<u64>,
    moment: u64,
    pfs_changes: u64,
    times_wait: bool,
    /// What symbolic links say.
    texts: BTreeMap<ObjectName, Vec<u8>>,
    /// It is not alone: all paths but the root have other homes.
    has_peers: bool,
}

impl World for Hand {
    fn tables(&self) -> &dyn Tables {
        &self.tables
    }
    fn is_single(&self) -> bool {
        !self.has_peers
    }
    fn is_at_hand(&self, path: &TreePath) -> bool {
        !self.has_peers || path.is_root()
    }
    fn is_held_below(&self, _: &TreePath) -> bool {
        false
    }
    fn path_of(&self, object: ObjectName) -> Result<Option<TreePath>, TableError> {
        self.tables.path_of(object)
    }
    fn moved(&self, _: &TreePath) -> Option<TreePath> {
        None
    }
    fn attr(&self, object: ObjectName) -> Result<Attr, i32> {
        Ok(Attr {
            mode: libc::S_IFREG | 0o644,
            ino: object.oid.seq(),
            ..Attr::default()
        })
    }
    fn link_text(&self, object: ObjectName) -> Result<Vec<u8>, i32> {
        self.texts.get(&object).cloned().ok_or(libc::EINVAL)
    }
    fn lower(&self, path: &TreePath, _: Option<Through>) -> Option<Result<Option<Attr>, i32>> {
        let lower = self.lower.as_ref()?;
        Some(Ok(if path.is_root() {
            Some(dir())
        } else {
            lower.get(path).copied()
        }))
    }
    fn lower_link(&self, _: &TreePath, _: Option<Through>) -> Option<Result<Vec<u8>, i32>> {
        None
    }
    fn is_plain(&self, _: ObjectName) -> bool {
        true
    }
    fn times_wait(&self) -> bool {
        self.times_wait
    }
    fn next_version(&self) -> u64 {
        self.versions.set(self.versions.get() + 1);
        self.versions.get()
    }
    fn new_marker(&self) -> ObjectName {
        let number = self.next_version();
        ObjectName {
            oid: ObjectId::new(BridgeId(1), 1, 1 << 32 | number),
            link: 0,
        }
    }
    fn me(&self) -> BridgeId {
        BridgeId(1)
    }
    fn moment(&self) -> u64 {
        self.moment
    }
    fn pfs_changes(&self) -> u64 {
        self.pfs_changes
    }
    fn was_carried_out(&self, _: Token) -> bool {
        false
    }
    fn is_undecided(&self, _: Token) -> bool {
        false
    }
}

impl Hand {
    /// Over an empty PFS that does not wait.
    fn new() -> Self {
        Hand {
            lower: Some(BTreeMap::new()),
            ..Hand::default()
        }
    }

    /// Others commit something.
    fn commit(&mut self, batch: &[Change]) {
        self.tables.apply(batch).unwrap();
        self.moment += 1;
    }

    /// Others make a file.
    fn has_file(&mut self, path: &str, seq: u64) {
        let record = file(self.next_version(), seq);
        let path = at(path);
        self.commit(&[Change::Put { path, record }]);
    }

    fn loses(&mut self, path: &str, seq: u64) {
        self.commit(&[Change::Delete {
            path: at(path),
            object: object(seq),
        }]);
    }

    /// Steps with the turn to commit if that is asked for.
    fn step(&self, pending: &mut Pending) -> Effect {
        let settings = Settings {
            root: b"/pfs".to_vec(),
            stage_limit_bytes: 1 << 20,
            stamps_mapped_writes: true,
            bridge_uid: 0,
            removed_at_once: 256,
            devices: Default::default(),
            keeps_numbers: true,
            protections: Default::default(),
        };
        match pending.step(&settings, self, pending.changes()) {
            Effect::TakeTurn => {
                assert!(pending.changes());
                pending.step(&settings, self, true)
            }
            effect => effect,
        }
    }
}

fn file(version: u64, seq: u64) -> PathRecord {
    PathRecord {
        version,
        ino: seq,
        ..PathRecord::new(Kind::File, object(seq), BridgeId(1))
    }
}

/// What the home of a path says.
fn said(path: TreePath, record: Option<PathRecord>) -> Fact {
    Fact::Record {
        path,
        record,
        absence: 0,
    }
}

fn at(path: &str) -> TreePath {
    TreePath::new(path.as_bytes()).unwrap()
}

fn object(seq: u64) -> ObjectName {
    ObjectName {
        oid: ObjectId::new(BridgeId(1), 1, seq),
        link: 0,
    }
}

fn dir() -> Attr {
    Attr {
        mode: libc::S_IFDIR | 0o755,
        ..Attr::default()
    }
}

fn path(path: &str) -> Path {
    Path {
        start: Start::Root,
        bytes: path.as_bytes().to_vec(),
    }
}

fn pending(op: Op) -> Pending {
    let request = Request {
        op,
        token: Token { client: 1, seq: 1 },
        retry: false,
    };
    let caller = Caller {
        cred: Arc::new(Cred::default()),
        by_name: false,
    };
    Pending::new(request, caller)
}

fn open(name: &str, flags: i32) -> Pending {
    pending(Op::Open {
        path: path(name),
        flags,
        mode: 0o644,
    })
}

/// The open that an effect asks for.
fn granting(effect: Effect) -> Granting {
    match effect {
        Effect::Grant(granting) => granting,
        other => panic!("{other:?} is no grant"),
    }
}

fn finished(effect: Effect) -> Finish {
    match effect {
        Effect::Finish(finish) => finish,
        other => panic!("{other:?} is not the end"),
    }
}

#[test]
fn what_nobody_has_changed_since_is_granted_without_a_second_look() {
    let mut world = Hand::new();
    world.has_file("f", 4);
    let mut p = open("f", libc::O_RDONLY);
    let opened = granting(world.step(&mut p));
    assert_eq!(opened.target, GrantTarget::Object(object(4)));
    p.granted(Ok(()));
    let finish = p
        .finish_without_step(world.moment)
        .expect("nothing happened");
    assert!(matches!(finish.outcome, Ok(Answer::Grant { .. })));
}

#[test]
fn an_open_that_others_have_overtaken_is_made_again_for_what_is_there_now() {
    let mut world = Hand::new();
    world.has_file("f", 4);
    let mut p = open("f", libc::O_RDONLY);
    granting(world.step(&mut p));
    // Replaced while it was being opened.
    world.loses("f", 4);
    world.has_file("f", 8);
    p.granted(Ok(()));
    assert_eq!(p.finish_without_step(world.moment), None);
    let again = granting(world.step(&mut p));
    assert_eq!(again.target, GrantTarget::Object(object(8)));
    // What others do elsewhere takes a second look, and no second open.
    world.has_file("other", 12);
    p.granted(Ok(()));
    assert_eq!(p.finish_without_step(world.moment), None);
    assert!(finished(world.step(&mut p)).outcome.is_ok());
}

#[test]
fn nothing_is_truncated_before_it_is_certain_that_it_is_the_file_that_is_meant() {
    let mut world = Hand::new();
    world.has_file("f", 4);
    let mut p = open("f", libc::O_WRONLY | libc::O_TRUNC);
    assert_eq!(granting(world.step(&mut p)).flags, libc::O_WRONLY);
    world.loses("f", 4);
    world.has_file("f", 8);
    p.granted(Ok(()));
    let again = granting(world.step(&mut p));
    assert_eq!(
        (again.target, again.flags),
        (GrantTarget::Object(object(8)), libc::O_WRONLY)
    );
    p.granted(Ok(()));
    assert_eq!(
        p.finish_without_step(world.moment),
        None,
        "it is not truncated yet"
    );
    let last = granting(world.step(&mut p));
    assert_eq!(last.target, GrantTarget::Object(object(8)));
    assert_eq!(last.flags, libc::O_WRONLY | libc::O_TRUNC);
    // Whatever comes now comes after the truncation.
    world.loses("f", 8);
    p.granted(Ok(()));
    assert!(finished(world.step(&mut p)).outcome.is_ok());
}

#[test]
fn an_object_that_is_gone_is_looked_for_again_but_not_for_ever() {
    let mut world = Hand::new();
    world.has_file("f", 4);
    let mut p = open("f", libc::O_RDONLY);
    let mut pauses = 0;
    let mut go_on = |world: &Hand, p: &mut Pending| match world.step(p) {
        Effect::Pause => {
            pauses += 1;
            world.step(p)
        }
        effect => effect,
    };
    for _ in 0..=MAX_LOST_RACES {
        granting(go_on(&world, &mut p));
        p.granted(Err(libc::ENOENT));
    }
    let outcome = finished(go_on(&world, &mut p)).outcome;
    assert_eq!(pauses, 12);
    assert!(matches!(outcome, Err(Failure::Fault(_))), "{outcome:?}");
    // And if the name is gone as well, that is the answer.
    let mut p = open("f", libc::O_RDONLY);
    granting(world.step(&mut p));
    world.loses("f", 4);
    p.granted(Err(libc::ENOENT));
    assert_eq!(
        finished(world.step(&mut p)).outcome,
        Err(Failure::Errno(libc::ENOENT))
    );
}

#[test]
fn a_file_of_the_pfs_that_a_drain_has_moved_is_looked_for_again() {
    let mut world = Hand::new();
    let file = Attr {
        mode: libc::S_IFREG | 0o644,
        nlink: 1,
        ..Attr::default()
    };
    world.lower = Some(BTreeMap::from([(at("f"), file)]));
    let mut reader = open("f", libc::O_RDONLY);
    granting(world.step(&mut reader));
    reader.granted(Err(libc::ENOENT));
    granting(world.step(&mut reader));
    reader.granted(Err(libc::ENOENT));
    let mut writer = open("f", libc::O_RDWR);
    world.step(&mut writer);
    writer.has_turn(at("f"));
    for _ in 0..2 {
        assert!(matches!(world.step(&mut writer), Effect::Make { .. }));
        writer.made(Err(libc::ENOENT));
    }
    // If it has gone for good, that is the answer.
    world.lower = Some(BTreeMap::new());
    for request in [&mut reader, &mut writer] {
        assert_eq!(
            finished(world.step(request)).outcome,
            Err(Failure::Errno(libc::ENOENT))
        );
    }
}

#[test]
fn a_copy_of_a_file_that_a_drain_has_replaced_meanwhile_is_made_anew() {
    let mut world = Hand::new();
    let file = |ino| Attr {
        mode: libc::S_IFREG | 0o644,
        nlink: 1,
        ino,
        ..Attr::default()
    };
    world.lower = Some(BTreeMap::from([(at("f"), file(7))]));
    let mut writer = open("f", libc::O_RDWR);
    world.step(&mut writer);
    writer.has_turn(at("f"));
    assert!(matches!(world.step(&mut writer), Effect::Make { .. }));
    writer.made(Ok(Fresh::new(object(4), 4)));
    world.lower = Some(BTreeMap::from([(at("f"), file(8))]));
    world.pfs_changes += 1;
    assert!(matches!(world.step(&mut writer), Effect::Make { .. }));
    writer.made(Ok(Fresh::new(object(5), 5)));
    let granted = granting(world.step(&mut writer));
    assert_eq!(granted.target, GrantTarget::Object(object(5)));
}

#[test]
fn a_new_file_is_made_then_named_then_granted_as_it_was_made() {
    let world = Hand::new();
    let mut p = open("f", libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL);
    let Effect::Make { spec, open, link } = world.step(&mut p) else {
        panic!("a file has to be made");
    };
    assert_eq!(
        (&spec.what, open, link),
        (&NewKind::File, Some(libc::O_WRONLY), None)
    );
    p.made(Ok(Fresh {
        is_open: true,
        is_doomed: true,
        ..Fresh::new(object(4), 4)
    }));
    let Effect::Commit(commit) = world.step(&mut p) else {
        panic!("nothing is left to obtain");
    };
    assert!(
        commit.batch.contains(&Change::Undoom(object(4))),
        "a spare file is doomed no more"
    );
    assert_eq!(p.committed(Verdict::Committed).len(), 1);
    let finish = p
        .finish_without_step(world.moment + 1)
        .expect("what others do now comes after it");
    assert!(finish.outcome.is_ok() && finish.unused.is_empty());
}

#[test]
fn who_loses_a_create_gets_the_file_of_the_winner_and_gives_its_own_back() {
    let mut world = Hand::new();
    let mut p = open("f", libc::O_RDWR | libc::O_CREAT);
    assert!(matches!(world.step(&mut p), Effect::Make { .. }));
    world.has_file("f", 4);
    p.made(Ok(Fresh::new(object(8), 8)));
    assert_eq!(
        granting(world.step(&mut p)).target,
        GrantTarget::Object(object(4))
    );
    p.granted(Ok(()));
    let finish = finished(world.step(&mut p));
    assert_eq!(finish.unused, [Fresh::new(object(8), 8)]);
}

#[test]
fn a_link_is_announced_before_it_is_made() {
    let mut world = Hand::new();
    world.has_file("f", 4);
    let mut p = pending(Op::Link {
        old: path("f"),
        new: path("g"),
        follow: false,
    });
    assert_eq!(world.step(&mut p), Effect::Announce { of: object(4) });
    let link = ObjectName {
        link: 9,
        ..object(4)
    };
    p.announced(link);
    let Effect::Make { link: name, .. } = world.step(&mut p) else {
        panic!("it is announced");
    };
    assert_eq!(name, Some(link));
    p.made(Ok(Fresh::new(link, 4)));
    let Effect::Commit(commit) = world.step(&mut p) else {
        panic!("it is made");
    };
    assert!(commit.batch.contains(&Change::Undoom(link)));
}

#[test]
fn a_file_of_the_pfs_is_copied_in_turn_and_who_has_waited_decides_anew() {
    let mut world = Hand::new();
    let file = Attr {
        mode: libc::S_IFREG | 0o644,
        size: 10,
        nlink: 1,
        ..Attr::default()
    };
    world.lower = Some(BTreeMap::from([(at("f"), file)]));
    let mut first = open("f", libc::O_RDWR);
    let mut second = open("f", libc::O_RDWR);
    let enter = Effect::Enter {
        path: at("f"),
        leaves: None,
    };
    assert_eq!(world.step(&mut first), enter);
    assert_eq!(world.step(&mut second), enter);
    first.has_turn(at("f"));
    let Effect::Make { spec, .. } = world.step(&mut first) else {
        panic!("it has the turn");
    };
    assert!(matches!(spec.what, NewKind::Staged { bytes: 10, .. }));
    world.has_file("f", 4);
    second.woken();
    assert_eq!(
        granting(world.step(&mut second)).target,
        GrantTarget::Object(object(4))
    );
}

#[test]
fn a_pfs_that_waits_is_looked_at_without_a_step_and_forgotten_when_this_bridge_changes_it() {
    let mut world = Hand::default();
    let mut p = pending(Op::Stat {
        path: path("f"),
        follow: true,
    });
    // The root as a directory of the PFS needs no look for a caller that may do all.
    assert_eq!(world.step(&mut p), Effect::Look(PfsLook::Attr(at("f"))));
    p.looked(Ok(Looked::Attr(None)));
    world.pfs_changes += 1;
    assert_eq!(world.step(&mut p), Effect::Look(PfsLook::Attr(at("f"))));
    p.looked(Err(libc::EIO));
    assert_eq!(
        finished(world.step(&mut p)).outcome,
        Err(Failure::Errno(libc::EIO))
    );
}

#[test]
fn times_of_directories_are_written_once_before_one_is_looked_at() {
    let mut world = Hand::new();
    world.times_wait = true;
    let mut p = pending(Op::Stat {
        path: path("."),
        follow: true,
    });
    assert_eq!(world.step(&mut p), Effect::WriteTimes);
    p.times_written();
    assert!(
        finished(world.step(&mut p)).outcome.is_ok(),
        "others go on all the time"
    );
}

#[test]
fn a_conflict_is_followed_by_a_pause_and_a_new_decision() {
    let world = Hand::new();
    let mut p = pending(Op::Mkdir {
        path: path("d"),
        mode: 0o755,
    });
    assert!(matches!(world.step(&mut p), Effect::Make { .. }));
    p.made(Ok(Fresh::new(object(5), 5)));
    assert!(matches!(world.step(&mut p), Effect::Commit(_)));
    assert!(p.committed(Verdict::Conflict(Vec::new())).is_empty());
    assert_eq!(world.step(&mut p), Effect::Pause);
    assert!(matches!(world.step(&mut p), Effect::Commit(_)));
    p.fails(Failure::Errno(libc::ENOSPC));
    let finish = finished(world.step(&mut p));
    assert_eq!(finish.outcome, Err(Failure::Errno(libc::ENOSPC)));
    assert_eq!(finish.unused.len(), 1);
}

#[test]
fn a_request_that_never_gets_what_it_needs_is_given_up() {
    let world = Hand::default();
    let mut p = pending(Op::Stat {
        path: path("f"),
        follow: true,
    });
    for _ in 0..MAX_STEPS {
        assert!(matches!(world.step(&mut p), Effect::Look(_)));
        p.looked(Ok(Looked::Attr(None)));
        p.known.forget_attrs();
    }
    assert_eq!(finished(world.step(&mut p)).outcome, Err(Failure::GaveUp));
}

/// A path may have a thousand `..`: it is decided anew once for all of them.
#[test]
fn a_long_way_up_is_decided_twice() {
    let deep = vec!["d"; 700].join("/");
    let mut world = Hand::new();
    let mut made = at(&deep);
    let lower = world.lower.as_mut().unwrap();
    let mut ino = 1000;
    while !made.is_root() {
        ino += 1;
        lower.insert(made.clone(), Attr { ino, ..dir() });
        made = made.parent();
    }
    let start = Start::Lower(at(&deep), lower[&at(&deep)].inode());
    let mut p = pending(Op::Stat {
        path: Path {
            start,
            bytes: b"../".repeat(699),
        },
        follow: true,
    });
    let outcome = finished(world.step(&mut p)).outcome;
    assert!(
        matches!(outcome, Ok(Answer::Attr(attr)) if attr.ino == ino),
        "{outcome:?}"
    );
    assert_eq!((p.steps, p.known.levels_above), (2, 699));
}

#[test]
fn a_request_waits_for_what_another_bridge_has_marked_as_long_as_that_one_is_down() {
    let world = Hand {
        has_peers: true,
        ..Hand::new()
    };
    let record = PathRecord {
        kind: Kind::Moved,
        origin: Some(at("g")),
        transit: Some(Transit::Placing),
        ..file(3, 4)
    };
    let mut p = pending(Op::Stat {
        path: path("f"),
        follow: true,
    });
    for _ in 0..MAX_STEPS {
        assert_eq!(world.step(&mut p), Effect::Fetch(Need::Record(at("f"))));
        p.fetched(said(at("f"), Some(record.clone())));
        assert_eq!(world.step(&mut p), Effect::Await(at("f")));
        p.woken();
    }
}

#[test]
#[should_panic(expected = "a request is stepped in Looking")]
fn a_request_is_not_stepped_while_it_waits() {
    let world = Hand::default();
    let mut p = pending(Op::Stat {
        path: path("f"),
        follow: true,
    });
    world.step(&mut p);
    world.step(&mut p);
}

#[test]
#[should_panic(expected = "no look was under way")]
fn an_outcome_comes_only_for_what_was_asked() {
    let mut p = pending(Op::Stat {
        path: path("f"),
        follow: true,
    });
    p.looked(Ok(Looked::Attr(None)));
}

#[test]
fn what_is_known_of_others_is_asked_for_by_its_need() {
    let world = Hand {
        has_peers: true,
        ..Hand::new()
    };
    let settings = Settings {
        root: b"/pfs".to_vec(),
        stage_limit_bytes: 0,
        stamps_mapped_writes: true,
        bridge_uid: 0,
        removed_at_once: 256,
        devices: Default::default(),
        keeps_numbers: true,
        protections: Default::default(),
    };
    let mut p = pending(Op::Mkdir {
        path: path("d"),
        mode: 0o755,
    });
    let effect = p.step(&settings, &world, true);
    assert_eq!(effect, Effect::Fetch(Need::Record(at("d"))));
    p.fetched(said(at("d"), None));
    let effect = p.step(&settings, &world, true);
    assert_eq!(effect, Effect::Fetch(Need::Below(at("d"))));
    let others = OthersBelow::default();
    p.fetched(Fact::Below {
        dir: at("d"),
        others,
    });
    assert!(matches!(
        p.step(&settings, &world, true),
        Effect::Make { .. }
    ));
    p.made(Ok(Fresh::new(object(5), 5)));
    let Effect::Commit(commit) = p.step(&settings, &world, true) else {
        panic!("all is known");
    };
    let relied: Vec<_> = commit.reads.records.keys().cloned().collect();
    assert_eq!(
        relied,
        [TreePath::root(), at("d")],
        "homes check what it relied on"
    );
}

/// The record of the whiteout goes between the look at the PFS and the list of the records: it is in no later list.
#[test]
fn a_list_of_the_pfs_is_read_again_when_a_record_has_gone_since() {
    let mut world = Hand {
        has_peers: true,
        ..Hand::new()
    };
    let record = PathRecord {
        kind: Kind::Whiteout,
        ..file(3, 4)
    };
    let path = at("f");
    world.commit(&[Change::Put { path, record }]);
    let mut p = pending(Op::ReadDir {
        path: Path {
            start: Start::Root,
            bytes: b".".to_vec(),
        },
        after: None,
        limit: 10,
    });
    let (dir, after) = (TreePath::root(), None);
    let list = PfsLook::List { dir, after };
    let said = |p: &mut Pending, effect| {
        let Effect::Fetch(Need::Children { dir, after, .. }) = effect else {
            panic!("{effect:?} asks nobody for children");
        };
        p.fetched(Fact::Children {
            dir,
            after,
            children: Vec::new(),
            seen: 0,
        });
    };
    let shown = |name: &str| {
        let entry = LowerEntry {
            name: name.into(),
            ino: 9,
            dtype: libc::DT_REG,
        };
        let page = LowerPage {
            entries: vec![entry],
            after: None,
            ends: true,
        };
        Ok(Looked::List(Arc::new(page)))
    };
    let effect = world.step(&mut p);
    said(&mut p, effect);
    assert_eq!(world.step(&mut p), Effect::Look(list.clone()));
    p.looked(shown("f"));
    world.loses("f", 4);
    let effect = world.step(&mut p);
    said(&mut p, effect);
    assert_eq!(world.step(&mut p), Effect::Look(list));
    p.looked(shown("g"));
    let effect = world.step(&mut p);
    said(&mut p, effect);
    let Ok(Answer::Entries { entries, .. }) = finished(world.step(&mut p)).outcome else {
        panic!("two looks saw the same");
    };
    let names: Vec<_> = entries.iter().map(|e| &e.name[..]).collect();
    assert_eq!(names, [&b"."[..], b"..", b"g"]);
}

/// Over a PFS with the file `f`, which is opened for writing, when its copy is to be made.
fn about_to_copy() -> (Hand, Pending) {
    let mut world = Hand::new();
    let attr = Attr {
        mode: libc::S_IFREG | 0o644,
        nlink: 1,
        ..Attr::default()
    };
    world.lower = Some(BTreeMap::from([(at("f"), attr)]));
    let mut p = open("f", libc::O_RDWR);
    let entered = world.step(&mut p);
    assert!(matches!(entered, Effect::Enter { .. }), "{entered:?}");
    p.has_turn(at("f"));
    let made = world.step(&mut p);
    assert!(matches!(made, Effect::Make { .. }), "{made:?}");
    (world, p)
}

#[test]
fn a_file_that_somebody_has_open_in_place_is_granted_in_place() {
    let (world, mut p) = about_to_copy();
    p.held_in_place(at("f"));
    let opened = granting(world.step(&mut p));
    assert!(matches!(opened.target, GrantTarget::Lower(path, _) if path == at("f")));
    assert_eq!(opened.flags, libc::O_RDWR);
    p.granted(Ok(()));
    let finish = finished(world.step(&mut p));
    assert!(finish.outcome.is_ok());
    assert_eq!(finish.turn, Some(at("f")));
}

#[test]
fn a_copy_of_what_was_granted_in_place_meanwhile_is_of_no_use() {
    let (world, mut p) = about_to_copy();
    p.made(Ok(Fresh::new(object(4), 4)));
    let opened = granting(world.step(&mut p));
    assert_eq!(opened.target, GrantTarget::Object(object(4)));
    p.granted(Ok(()));
    let commit = world.step(&mut p);
    assert!(matches!(commit, Effect::Commit(_)), "{commit:?}");
    p.held_in_place(at("f"));
    let opened = granting(world.step(&mut p));
    assert!(matches!(opened.target, GrantTarget::Lower(path, _) if path == at("f")));
    p.granted(Ok(()));
    let finish = finished(world.step(&mut p));
    assert!(finish.outcome.is_ok());
    assert_eq!(finish.unused, [Fresh::new(object(4), 4)]);
}
