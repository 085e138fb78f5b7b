//! What a drain has made or pulled aside on the PFS is never forgotten: a directory that a program removes from the buffer goes. One
//! that takes its place keeps what is in it.

use super::*;
use crate::facts::Attr;
use crate::identity::Identity;
use crate::record::{BridgeId, ObjectId, ObjectName, PathRecord, Transit};
use crate::table::Change;

/// Drives a pass as far as `goes_on` lets it; true if it came to its end.
pub(super) fn drive_while(
    drain: &mut Drain,
    world: &mut World,
    mut goes_on: impl FnMut(&mut World, &Act) -> bool,
) -> bool {
    loop {
        match drain.next(world).unwrap() {
            NextAct::End => return true,
            NextAct::Wait => panic!("one act at a time"),
            NextAct::Act(ticket, act) => {
                let got = world.carry_out(&act);
                drain.done(ticket, got);
                if !goes_on(world, &act) {
                    return false;
                }
            }
        }
    }
}

fn drain_the_rest(world: &mut World, what: &str) {
    let mut view = world.view();
    drain_all(world, &mut view, &mut Rng::new(1), what);
}

#[test]
fn what_waits_for_nobody_and_was_changed_by_others_is_listed_until_that_is_taken_away() {
    let waits = TreePath::root().join(&waiting_name(ObjectId::new(BridgeId(0), 1, 1)));
    let mut world = World {
        pfs: Tree::from([(waits.clone(), Node::Dir)]),
        ..World::default()
    };
    let known = Identity::of(&world.lower_attr(&waits).unwrap()).with_contents([]);
    let key = [orphans::NOTES, waits.name()].concat();
    world.notes.insert(key, known.encode().to_vec());
    let theirs = waits.join(b"theirs");
    world.pfs.insert(theirs.clone(), Node::File(1));
    for _ in 0..2 {
        let mut drain = Drain::new(terms(1));
        assert!(drive_while(&mut drain, &mut world, |_, _| true));
        let report = drain.report();
        let [left] = &report.left[..] else {
            panic!("{:?}", report.left);
        };
        assert_eq!(left.path, waits);
        assert!(matches!(left.reason, Reason::Blocked(_)) && !report.released);
        assert!(world.pfs.contains_key(&theirs));
    }
    world.pfs.remove(&theirs);
    drain_the_rest(&mut world, "it is taken away");
    assert_eq!(world.pfs, Tree::new());
}

#[test]
fn a_file_that_waits_for_nobody_goes_as_it_is_known_and_else_is_listed() {
    let oid = ObjectId::new(BridgeId(0), 1, 1);
    let waits = TreePath::root().join(&waiting_name(oid));
    let with = |contents| World {
        pfs: Tree::from([(waits.clone(), Node::File(contents))]),
        ..World::default()
    };
    let found = with(1).lower_attr(&waits).unwrap();
    let another = Attr {
        ino: found.ino + 1,
        ..found
    };
    let abandoned = |known: Option<&Attr>, renamed: &Attr| {
        let record = PathRecord {
            origin: Some(waits.clone()),
            arriving: Some(Box::new(Identity::of_leaving(renamed))),
            ..PathRecord::new(Kind::Moved, ObjectName { oid, link: 0 }, BridgeId(0))
        };
        abandon(&record, known.map(Identity::of))
    };
    // What is known of it when its record goes, and what is there then.
    for (note, contents, goes) in [
        (abandoned(Some(&found), &found), 1, true),
        (abandoned(Some(&found), &found), 2, false),
        (abandoned(None, &found), 2, true),
        (abandoned(None, &another), 1, false),
    ] {
        let Some(Change::Meta { key, value }) = note else {
            panic!("it waits");
        };
        let mut world = with(contents);
        world.notes.extend(value.map(|value| (key, value)));
        let mut drain = Drain::new(terms(1));
        assert!(drive_while(&mut drain, &mut world, |_, _| true));
        let left = &drain.report().left;
        let is_listed = matches!(&left[..], [left] if left.path == waits);
        assert_eq!((left.is_empty(), is_listed), (goes, !goes), "{left:?}");
        assert_eq!(world.pfs.is_empty(), goes);
    }
}

#[test]
fn a_pass_that_dies_after_any_act_leaves_no_directory_that_a_program_removes() {
    for blind in [0, 3] {
        for acts in 1..40 {
            let mut world = World::default();
            world.create(&p("d"), Node::Dir);
            let mut done = 0;
            drive_while(&mut Drain::new(terms(1)), &mut world, |_, _| {
                done += 1;
                done < acts
            });
            // The PFS may not answer when the next bridge starts.
            world.blind = blind;
            let mut view = world.view();
            resume(&mut world, &mut view, &mut Rng::new(1));
            world.blind = 0;
            world.remove(&p("d"));
            drain_the_rest(&mut world, &format!("{acts} acts, blind: {blind}"));
            assert_eq!(world.pfs, Tree::new(), "{acts} acts, blind: {blind}");
        }
    }
}

#[test]
fn directories_are_synced_before_they_get_modes_by_which_nobody_gets_there() {
    let mut world = World::default();
    for (path, node) in [
        ("x", Node::Dir),
        ("x/y", Node::Dir),
        ("x/y/f", Node::File(1)),
    ] {
        world.create(&p(path), node);
    }
    let (mut synced, mut dressed) = (Vec::new(), Vec::new());
    drive_while(&mut Drain::new(terms(1)), &mut world, |_, act| {
        match act {
            Act::SyncDirs(dirs) => {
                assert_eq!(dressed, [], "before {dirs:?}");
                synced.extend(dirs.clone());
            }
            Act::Dress { path, .. } => dressed.push(path.clone()),
            _ => {}
        }
        true
    });
    assert_eq!(synced, [p(""), p("x"), p("x/y")]);
    assert_eq!(dressed, [p("x/y"), p("x")]);
}

#[test]
fn a_directory_that_was_made_though_the_pfs_said_otherwise_is_removed_with_its_name() {
    for blind in [0, 3] {
        let mut world = World::default();
        world.create(&p("d"), Node::Dir);
        world.lost_answers = Some(libc::EIO);
        let mut drain = Drain::new(terms(1));
        drive_while(&mut drain, &mut world, |world, act| {
            assert_eq!(
                world.pfs.len(),
                usize::from(world.pfs.contains_key(&p("d")))
            );
            !matches!(act, Act::MakeDir(_))
        });
        world.blind = blind;
        assert!(drive_while(&mut drain, &mut world, |_, _| true));
        (world.lost_answers, world.blind) = (None, 0);
        world.remove(&p("d"));
        drain_the_rest(&mut world, "after the answer was lost");
        assert_eq!(world.pfs, Tree::new());
    }
}

#[test]
fn a_stranger_at_the_old_place_of_what_was_pulled_aside_is_not_taken_for_it() {
    let mut world = World {
        pfs: Tree::from([(p("a"), Node::File(1))]),
        ..World::default()
    };
    world.create(&p("n"), Node::Dir);
    world.rename(&p("a"), &p("n/b"));
    world.create(&p("a"), Node::Dir);
    let mut view = world.view();
    drive_while(&mut Drain::new(terms(1)), &mut world, |_, act| {
        !matches!(act, Act::Rename { .. })
    });
    assert_eq!(world.pfs.insert(p("a"), Node::File(7)), None);
    resume(&mut world, &mut view, &mut Rng::new(1));
    assert_eq!(world.view()[&p("n/b")], Node::File(1));
}

/// A file of the PFS that was renamed in the buffer, maybe away from where a new one is.
fn renamed(has_new: bool) -> World {
    let mut world = World {
        pfs: Tree::from([(p("old"), Node::File(1))]),
        ..World::default()
    };
    world.rename(&p("old"), &p("new"));
    if has_new {
        world.create(&p("old"), Node::Dir);
        world.create(&p("new-dir"), Node::Dir);
        world.rename(&p("new"), &p("new-dir/new"));
    }
    world
}

#[test]
fn what_can_get_its_final_name_at_once_is_nowhere_else_in_between_and_known_there_after_a_crash() {
    let renames = |act: &Act| matches!(act, Act::Rename { .. });
    let mut world = renamed(false);
    let mut view = world.view();
    assert!(!drive_while(
        &mut Drain::new(terms(1)),
        &mut world,
        |_, act| !renames(act)
    ));
    assert_eq!(world.pfs, Tree::from([(p("new"), Node::File(1))]));
    // Where it was somebody else has made something.
    world.pfs.insert(p("old"), Node::Dir);
    resume(&mut world, &mut view, &mut Rng::new(1));
    assert!(!world.records.contains_key(&p("new")));
    let everything = |_: &mut World, _: &Act| true;
    assert!(drive_while(
        &mut Drain::new(terms(1)),
        &mut world,
        everything
    ));
    let both = [(p("new"), Node::File(1)), (p("old"), Node::Dir)];
    assert_eq!(world.pfs, Tree::from(both));
    // Where something is to be made or removed first it stays in its place until then.
    for over in [false, true] {
        let mut world = World {
            pfs: Tree::from([(p("a"), Node::File(1)), (p("b"), Node::File(2))]),
            ..World::default()
        };
        let end = if over { p("b") } else { p("n/a") };
        world.create(&p("n"), Node::Dir);
        world.rename(&p("a"), &end);
        let mut ways = Vec::new();
        assert!(drive_while(
            &mut Drain::new(terms(1)),
            &mut world,
            |_, act| {
                if let Act::Rename { from, to, .. } = act {
                    ways.push((from.clone(), to.clone()));
                }
                true
            }
        ));
        assert_eq!(ways, [(p("a"), end)]);
        assert!(world.records.is_empty());
    }
    // What was renamed away and back is not touched.
    let mut world = renamed(false);
    world.rename(&p("new"), &p("old"));
    assert!(drive_while(
        &mut Drain::new(terms(1)),
        &mut world,
        |_, act| !renames(act)
    ));
    assert!(world.records.is_empty());
}

#[test]
fn what_others_have_put_in_place_of_what_was_renamed_is_a_conflict_and_no_rename() {
    let why = |drain: &Drain, path: &str| {
        let mut left = drain.report().left.iter();
        left.find(|l| l.path == p(path)).map(|l| l.reason.clone())
    };
    // At the last moment before it leaves its place, or gets its final name.
    for (has_new, renames) in [(false, 0), (true, 0), (true, 1)] {
        let path = if has_new { "new-dir/new" } else { "new" };
        let mut world = renamed(has_new);
        world.usurped = 1 - renames;
        let mut drain = Drain::new(terms(1));
        let strikes = |world: &mut World, act: &Act| {
            if renames == 1 && matches!(act, Act::Rename { .. }) && world.usurped == 0 {
                world.usurped = 1;
            }
            true
        };
        assert!(drive_while(&mut drain, &mut world, strikes));
        assert_eq!(why(&drain, path), Some(Reason::Changed));
        assert_eq!(drain.tally().renamed, 0);
        world.usurped = 0;
        drain_the_rest(&mut world, "when they are gone");
    }
    // While it waits for its final name.
    let mut world = renamed(true);
    let record = &world.records[&p("new-dir/new")];
    let waits = reserved_names::waiting_path(record.object.oid);
    let mut drain = Drain::new(terms(1));
    assert!(drive_while(&mut drain, &mut world, |world, act| {
        if matches!(act, Act::Rename { .. }) {
            world.pfs.insert(waits.clone(), Node::Dir);
        }
        true
    }));
    assert_eq!(why(&drain, "new-dir/new"), Some(Reason::Changed));
    assert_eq!(drain.tally().renamed, 0);
    assert_eq!(world.pfs.get(&waits), Some(&Node::Dir));
}

#[test]
fn a_file_of_somebody_else_in_the_place_of_a_directory_is_not_taken_for_it() {
    let mut world = World::default();
    world.create(&p("d"), Node::Dir);
    world.pfs.insert(p("d"), Node::File(7));
    let mut drain = Drain::new(terms(1));
    assert!(drive_while(&mut drain, &mut world, |_, _| true));
    assert_eq!(drain.report().left.len(), 1);
    world.remove(&p("d"));
    drain_the_rest(&mut world, "beside a stranger");
    assert_eq!(world.pfs, Tree::from([(p("d"), Node::File(7))]));
}

#[test]
fn a_directory_of_another_user_is_not_taken_for_the_one_in_the_buffer_until_somebody_says_so() {
    let of_another_user = || {
        let mut world = World::default();
        world.create(&p("d"), Node::Dir);
        world.create(&p("d/f"), Node::File(1));
        world.pfs.insert(p("d"), Node::Dir);
        world.pfs.insert(p("d/theirs"), Node::File(7));
        world.of_another_user.insert(p("d"));
        world
    };
    let both = Tree::from([
        (p("d"), Node::Dir),
        (p("d/f"), Node::File(1)),
        (p("d/theirs"), Node::File(7)),
    ]);
    for (side, keeps_their_owner) in [(Side::Ours, false), (Side::Theirs, true)] {
        let mut world = of_another_user();
        let pfs = world.pfs.clone();
        // Known or not, and also after a pass that died.
        for _ in 0..2 {
            let mut drain = Drain::new(terms(1));
            assert!(drive_while(&mut drain, &mut world, |_, _| true));
            let first = &drain.report().left[0];
            assert_eq!((&first.path, &first.reason), (&p("d"), &Reason::Taken));
            assert_eq!((&world.pfs, world.dressed.len()), (&pfs, 0));
        }
        let choice = SideChoice { path: p("d"), side };
        let mut drain = Drain::new(terms(1)).choosing(vec![choice]);
        assert!(drive_while(&mut drain, &mut world, |_, _| true));
        assert_eq!(drain.report().refused, []);
        assert!(drain.report().released, "{:?}", drain.report());
        assert_eq!(world.pfs, both);
        assert_eq!(world.dressed.contains_key(&p("d")), !keeps_their_owner);
    }
}

#[test]
fn what_others_put_in_place_of_a_drained_directory_or_remove_is_judged_anew() {
    let keep = || {
        Drain::new(PassTerms {
            keep: true,
            ..terms(1)
        })
    };
    let drained = || {
        let mut world = World::default();
        world.create(&p("d"), Node::Dir);
        assert!(drive_while(&mut keep(), &mut world, |_, _| true));
        world
    };
    // Of another user.
    let mut world = drained();
    world.of_another_user.insert(p("d"));
    world.create(&p("d/f"), Node::File(1));
    let mut drain = keep();
    assert!(drive_while(&mut drain, &mut world, |_, _| true));
    assert_eq!(drain.report().left[0].reason, Reason::Taken);
    assert_eq!(world.pfs, Tree::from([(p("d"), Node::Dir)]));
    // Where it is gone, root makes it again, and knows its own also after a pass that died.
    for acts in 1..20 {
        let mut world = drained();
        assert!(world.pfs.remove(&p("d")).is_some() && world.made.remove(&p("d")).is_some());
        world.dressed.clear();
        world.create(&p("d/f"), Node::File(1));
        let mut done = 0;
        let ended = drive_while(&mut keep(), &mut world, |_, _| {
            done += 1;
            done < acts
        });
        if !ended {
            let mut view = world.view();
            resume(&mut world, &mut view, &mut Rng::new(1));
        }
        drain_the_rest(&mut world, &format!("{acts} acts"));
        let all = Tree::from([(p("d"), Node::Dir), (p("d/f"), Node::File(1))]);
        assert_eq!(world.pfs, all);
    }
}

#[test]
fn a_directory_in_which_something_was_made_past_the_buffer_is_not_given_up_for_theirs() {
    let mut world = World::default();
    world.create(&p("d"), Node::Dir);
    world.pfs.insert(p("d"), Node::Dir);
    world.of_another_user.insert(p("d"));
    let object = world.records[&p("d")].object;
    let core = StrayEntry {
        name: b"core".to_vec(),
        bytes: 4096,
    };
    world.strays.insert(object.oid, vec![core]);
    let choose = || SideChoice {
        path: p("d"),
        side: Side::Theirs,
    };
    let mut drain = Drain::new(terms(1)).choosing(vec![choose()]);
    assert!(drive_while(&mut drain, &mut world, |_, _| true));
    assert_eq!(drain.report().refused.len(), 1);
    assert_eq!(world.records[&p("d")].kind, Kind::Dir);
    world.strays.clear();
    let mut drain = Drain::new(terms(1)).choosing(vec![choose()]);
    assert!(drive_while(&mut drain, &mut world, |_, _| true));
    assert!(drain.report().released);
}

#[test]
fn what_is_renamed_at_any_moment_of_a_pass_and_then_removed_leaves_nothing() {
    for (node, acts) in [Node::Dir, Node::File(1)]
        .into_iter()
        .flat_map(|node| (1..60).map(move |acts| (node, acts)))
    {
        for crash in 0..30 {
            let what = format!("{node:?}, renamed after {acts} acts, dead after {crash} more");
            // A name that a walk meets after that of the directory.
            let mut world = World {
                pfs: Tree::from([(p("z"), Node::Dir)]),
                ..World::default()
            };
            world.create(&p("d"), Node::Dir);
            world.create(&p("d/s"), node);
            let keep = PassTerms {
                keep: true,
                ..terms(1)
            };
            assert!(drive_while(
                &mut Drain::new(keep.clone()),
                &mut world,
                |_, _| true
            ));
            let mut done = 0;
            let ended = drive_while(&mut Drain::new(keep), &mut world, |world, _| {
                done += 1;
                if done == acts && world.is_free(&p("d")) && world.is_free(&p("z/e")) {
                    world.rename(&p("d"), &p("z/e"));
                }
                done < acts + crash
            });
            if !ended {
                let mut view = world.view();
                resume(&mut world, &mut view, &mut Rng::new(1));
            }
            if !world.view().contains_key(&p("z/e/s")) {
                continue;
            }
            world.remove(&p("z/e/s"));
            drain_the_rest(&mut world, &what);
            let left = Tree::from([(p("z"), Node::Dir), (p("z/e"), Node::Dir)]);
            assert_eq!(world.pfs, left, "{what}");
        }
    }
}

#[test]
fn what_is_to_go_from_a_directory_is_not_looked_for_in_the_one_that_takes_its_place() {
    let mut world = World {
        pfs: Tree::from([(p("b"), Node::Dir), (p("b/x"), Node::Dir)]),
        ..World::default()
    };
    world.create(&p("a"), Node::Dir);
    world.create(&p("a/x"), Node::File(1));
    let mut rng = Rng::new(1);
    let keep = PassTerms {
        keep: true,
        ..terms(1)
    };
    let mut view = world.view();
    drive(Drain::new(keep), &mut world, &mut view, &mut rng, &CALM).unwrap();
    world.rename(&p("a"), &p("c"));
    world.rename(&p("b"), &p("a"));
    world.rename(&p("c"), &p("b"));
    let mut view = world.view();
    // The first directory goes, what was in it can't be looked at, and the pass dies when the other has its place.
    drive_while(&mut Drain::new(terms(1)), &mut world, |world, act| {
        if matches!(act, Act::Discard { .. }) {
            world.blind = 1;
        }
        world.records.contains_key(&p("a"))
    });
    world.blind = 0;
    resume(&mut world, &mut view, &mut rng);
    drain_all(&mut world, &mut view, &mut rng, "another pass");
}

#[test]
fn what_was_renamed_out_of_a_directory_that_moves_has_labels_to_be_written_in_it() {
    let mut world = World {
        pfs: Tree::from([(p("b"), Node::Dir), (p("b/x"), Node::Dir)]),
        ..World::default()
    };
    world.rename(&p("b/x"), &p("x"));
    world.create(&p("x/new"), Node::Dir);
    world.create(&p("x/new/born"), Node::File(1));
    world.rename(&p("b"), &p("y"));
    world.create(&p("y/new"), Node::File(2));
    let to = reserved_names::waiting_path(world.records[&p("y")].object.oid);
    let mut reads = crate::bridge::ReadSet::default();
    let moved = commits::relocated(&world, &p("y"), &p("b"), &to, false, &mut reads);
    let labels: Vec<_> = moved.unwrap().1.into_iter().map(|(path, _)| path).collect();
    // What lies in a directory made in the buffer names that one. What is in something comes before that.
    assert_eq!(labels, [p("y/x"), p("y/new"), p("x/new")]);
}

#[test]
fn what_was_made_past_the_buffer_is_named_in_every_pass_and_keeps_its_directory_until_it_goes() {
    let mut world = World::default();
    world.create(&p("d"), Node::Dir);
    world.create(&p("d/f"), Node::File(1));
    // The directory is drained once, and keeps its record.
    assert!(drive_while(
        &mut Drain::new(PassTerms {
            keep: true,
            ..terms(1)
        }),
        &mut world,
        |_, _| true
    ));
    let object = world.records[&p("d")].object;
    let core = StrayEntry {
        name: b"core".to_vec(),
        bytes: 4096,
    };
    world.strays.insert(object.oid, vec![core]);
    for _ in 0..2 {
        let mut drain = Drain::new(terms(1));
        assert!(drive_while(&mut drain, &mut world, |_, _| true));
        let report = drain.report();
        let left = Left {
            path: p("d/core"),
            bytes: 4096,
            reason: Reason::Stray(object),
        };
        assert_eq!(report.left, [left]);
        assert_eq!((report.left_count, report.left_bytes), (1, 4096));
        assert!(!report.released);
        assert_eq!(world.records[&p("d")].kind, Kind::Dir);
    }
    world.strays.clear();
    let mut drain = Drain::new(terms(1));
    assert!(drive_while(&mut drain, &mut world, |_, _| true));
    assert_eq!(drain.report().left, []);
    assert!(drain.report().released);
    assert!(world.records.is_empty());
}

/// Something that others do on the PFS.
fn meddle(rng: &mut Rng, world: &mut World) {
    let (a, b) = (rng.path(), rng.path());
    let contents = world.number();
    match rng.below(4) {
        0 if is_dir(&world.pfs, &a.parent()) && !is_dir(&world.pfs, &a) => {
            world.pfs.insert(a, Node::File(contents));
        }
        1 if is_dir(&world.pfs, &a.parent()) && !world.pfs.contains_key(&a) => {
            world.pfs.insert(a, Node::Dir);
        }
        2 => {
            for (path, _) in subtree(&world.pfs, &a) {
                world.pfs.remove(&path);
            }
        }
        3 if world.pfs.contains_key(&a)
            && is_dir(&world.pfs, &b.parent())
            && !world.pfs.contains_key(&b)
            && !b.is_within(&a) =>
        {
            move_tree(&mut world.pfs, &a, &b);
        }
        _ => {}
    }
}

#[test]
fn whatever_others_have_done_to_what_was_kept_shows_after_a_refresh_and_the_rest_is_still_kept() {
    let (mut differed, mut kept) = (0, 0);
    for seed in 1..=400 {
        let mut rng = Rng::new(seed ^ 0x5e_ef);
        let (mut world, mut model) = in_use(&mut rng);
        let keep = PassTerms {
            keep: true,
            ..terms(1)
        };
        drive(Drain::new(keep), &mut world, &mut model, &mut rng, &CALM).unwrap();
        assert_eq!(world.pfs, model, "seed {seed}: all is drained");
        for _ in 0..rng.below(12) {
            meddle(&mut rng, &mut world);
        }
        differed += usize::from(world.view() != world.pfs);
        assert!(drive_while(&mut Drain::refresh(), &mut world, |_, _| true));
        assert_eq!(world.view(), world.pfs, "seed {seed}");
        let files = world.records.values().filter(|r| r.kind == Kind::File);
        kept += files.count();
        drain_the_rest(&mut world, &format!("seed {seed}"));
    }
    assert!(differed > 100 && kept > 100, "{differed}, {kept}");
}

#[test]
fn a_refresh_touches_nothing_that_is_not_drained() {
    for seed in 1..=400 {
        let mut rng = Rng::new(seed ^ 0x5e_f0);
        let (mut world, view) = in_use(&mut rng);
        let (pfs, records) = (world.pfs.clone(), world.records.clone());
        assert!(drive_while(&mut Drain::refresh(), &mut world, |_, _| true));
        assert_eq!((world.view(), &world.pfs), (view, &pfs), "seed {seed}");
        assert_eq!(world.records, records, "seed {seed}");
    }
}

#[test]
fn what_the_storage_does_not_show_is_named_as_that_and_not_as_changed_or_open() {
    let refused = Trouble {
        operation: "stat in the buffer",
        errno: libc::EIO,
    };
    let mut world = World::default();
    world.create(&p("d"), Node::Dir);
    let oids: Vec<_> = world.objects.keys().copied().collect();
    world.unreadable.extend(oids);
    let mut drain = Drain::new(terms(1));
    assert!(drive_while(&mut drain, &mut world, |_, _| true));
    let left: Vec<_> = drain.report().left.iter().map(|l| &l.reason).collect();
    assert_eq!(left, [&Reason::Refused(refused)]);
    for kind in [Node::Dir, Node::File(1)] {
        let mut world = World::default();
        world.create(&p("a"), kind);
        let mut drain = Drain::new(terms(1));
        let ended = drive_while(&mut drain, &mut world, |world, _| {
            let is_marked = |r: &PathRecord| r.transit == Some(Transit::Releasing);
            let marked = world.records.values().filter(|r| is_marked(r));
            world.unreadable = marked.map(|r| r.object.oid).collect();
            true
        });
        assert!(ended && !drain.report().released);
        let why = drain.report().kept_because.clone();
        assert_eq!(why, Some(format!("a: {refused}")));
    }
}
