//! Names change at the same time, where they have nothing to do with each other.

use super::*;
use crate::drain::moves::Reach;
use crate::drain::new_dir::NewDir;
use crate::record::{BridgeId, ObjectId, ObjectName, PathRecord};

/// What an act changes the name of.
fn moved(act: &Act) -> Vec<TreePath> {
    match act {
        Act::Rename { from, to, .. } => vec![from.clone(), to.clone()],
        Act::Remove { path, .. } | Act::Discard { path, .. } => vec![path.clone()],
        Act::MakeDir(NewDir { path, .. }) => vec![path.clone()],
        _ => Vec::new(),
    }
}

/// Drains, and lets moves wait until nothing else can begin. Gives how many waited at most.
fn most_at_once(world: &mut World, batches: usize) -> usize {
    let mut drain = Drain::new(terms(batches));
    let (mut held, mut most): (Vec<(ActTicket, Act)>, _) = (Vec::new(), 0);
    loop {
        match drain.next(world).unwrap() {
            NextAct::Act(ticket, act) if moved(&act).is_empty() => {
                let got = world.carry_out(&act);
                drain.done(ticket, got);
            }
            NextAct::Act(ticket, act) => {
                let is_near = |other: &TreePath| {
                    let mut own = moved(&act).into_iter();
                    own.any(|one| one.is_within(other) || other.is_within(&one))
                };
                for (_, other) in &held {
                    assert!(
                        !moved(other).iter().any(is_near),
                        "{act:?} beside {other:?}"
                    );
                }
                held.push((ticket, act));
                most = most.max(held.len());
            }
            NextAct::Wait => {
                // The last one first.
                let (ticket, act) = held.pop().expect("something is under way");
                let got = world.carry_out(&act);
                drain.done(ticket, got);
            }
            NextAct::End => {
                assert!(held.is_empty());
                assert!(drain.report().released, "{:?}", drain.report());
                return most;
            }
        }
    }
}

/// A tree in whose buffer `work` was done.
fn after(work: impl FnOnce(&mut World)) -> (World, Tree) {
    let mut world = World::default();
    for n in 0..200 {
        world.pfs.insert(p(&format!("f{n}")), Node::File(n));
    }
    for dir in ["d", "d/e"] {
        world.pfs.insert(p(dir), Node::Dir);
    }
    world.pfs.insert(p("d/e/f"), Node::File(1));
    work(&mut world);
    let view = world.view();
    (world, view)
}

fn each(mut work: impl FnMut(TreePath, String)) {
    for n in 0..200 {
        work(p(&format!("f{n}")), n.to_string());
    }
}

#[test]
fn siblings_come_and_go_at_the_same_time_unless_one_thing_at_a_time_was_asked_for() {
    for (batches, most) in [(2, 128), (1, 1)] {
        for work in [
            (|world| each(|path, _| world.remove(&path))) as fn(&mut World),
            |world| each(|path, n| world.rename(&path, &p(&format!("d/{n}")))),
            |world| each(|_, n| world.create(&p(&format!("n{n}")), Node::Dir)),
        ] {
            let (mut world, view) = after(work);
            assert_eq!(most_at_once(&mut world, batches), most);
            assert_eq!(world.pfs, view);
        }
    }
}

#[test]
fn what_is_in_the_way_of_something_or_around_it_moves_before_or_after_it() {
    for work in [
        // Each leaves its place to the next one.
        (|world| {
            world.remove(&p("f0"));
            for n in 1..200 {
                world.rename(&p(&format!("f{n}")), &p(&format!("f{}", n - 1)));
            }
        }) as fn(&mut World),
        // Each is made in the one before.
        |world| {
            let mut at = p("n");
            for _ in 0..20 {
                world.create(&at, Node::Dir);
                at = at.join(b"n");
            }
        },
        // What a directory holds leaves it, and it goes into what is made where that was.
        |world| {
            world.rename(&p("d/e/f"), &p("g"));
            world.remove(&p("f0"));
            world.create(&p("f0"), Node::Dir);
            world.rename(&p("d"), &p("f0/d"));
        },
    ] {
        let (mut world, view) = after(work);
        most_at_once(&mut world, 2);
        assert_eq!(world.pfs, view);
    }
}

#[test]
fn a_pass_that_is_stopped_waits_for_the_moves_under_way_and_begins_no_more() {
    let (mut world, _) = after(|world| each(|path, _| world.remove(&path)));
    let mut drain = Drain::new(terms(2));
    let mut held = Vec::new();
    loop {
        match drain.next(&world).unwrap() {
            NextAct::Act(ticket, act) if moved(&act).is_empty() => {
                let got = world.carry_out(&act);
                drain.done(ticket, got);
            }
            NextAct::Act(ticket, act) => held.push((ticket, act)),
            NextAct::Wait => break,
            NextAct::End => panic!("moves are under way"),
        }
    }
    drain.stop();
    assert_eq!(drain.next(&world), Ok(NextAct::Wait));
    let begun = held.len();
    for (ticket, act) in held {
        let got = world.carry_out(&act);
        drain.done(ticket, got);
    }
    loop {
        match drain.next(&world).unwrap() {
            NextAct::Act(ticket, act) => {
                assert_eq!(moved(&act), [], "{act:?} begins");
                let got = world.carry_out(&act);
                drain.done(ticket, got);
            }
            NextAct::Wait => panic!("one act at a time"),
            NextAct::End => break,
        }
    }
    assert_eq!(drain.report().left_count, 200 - begun as u64);
    assert!(world.records.values().all(|r| r.transit.is_none()));
}

#[test]
fn what_has_made_room_takes_its_place_also_if_the_pass_is_stopped_in_between() {
    let (mut world, view) = after(|world| world.rename(&p("f1"), &p("f0")));
    let mut drain = Drain::new(terms(2));
    loop {
        match drain.next(&world).unwrap() {
            NextAct::Act(ticket, act) => {
                let got = world.carry_out(&act);
                drain.done(ticket, got);
                if matches!(act, Act::Remove { .. }) {
                    drain.stop();
                }
            }
            NextAct::Wait => panic!("one act at a time"),
            NextAct::End => break,
        }
    }
    assert_eq!(world.pfs, view);
    // What says that nothing is at the old name goes with the next pass.
    let left = drain.report().left.iter().map(|left| &left.path);
    assert_eq!(left.collect::<Vec<_>>(), [&p("f1")]);
}

#[test]
fn a_move_is_apart_from_what_has_no_path_in_common_with_it_nor_one_around_it() {
    let reach = |paths: &[&str]| {
        let [path, others @ ..] = paths else {
            unreachable!("it is about something");
        };
        let object = ObjectName {
            oid: ObjectId::new(BridgeId(1), 1, 1),
            link: 0,
        };
        let record = PathRecord {
            origin: others.first().map(|path| p(path)),
            hides: others.get(1).map(|path| p(path)),
            ..PathRecord::new(Kind::Moved, object, BridgeId(1))
        };
        Reach::of(&p(path), &record)
    };
    for (one, other, is_apart) in [
        (&["a"][..], &["b"][..], true),
        (&["a"], &["ab"], true),
        (&["a"], &["a"], false),
        (&["a"], &["a/b/c"], false),
        (&["a", "o"], &["b", "p"], true),
        (&["a", "o"], &["o"], false),
        (&["a", "o/p"], &["b", "q", "o"], false),
        (&["a", "o", "h"], &["b", "h/i"], false),
    ] {
        let (one, other) = (reach(one), reach(other));
        assert_eq!(one.is_apart_from(&other), is_apart, "{one:?} and {other:?}");
        assert_eq!(other.is_apart_from(&one), is_apart, "{other:?} and {one:?}");
    }
}
