//! What others do while somebody decides.

use super::directories::drive_while;
use super::model::{Node, World, p};
use super::*;
use crate::facts::Attr;
use crate::identity::Identity;
use std::collections::BTreeSet;

#[test]
fn ours_in_the_place_of_nothing_replaces_nothing_that_comes_then() {
    let comes = [Node::File(8), Node::Dir];
    for (ours, comes) in [true, false]
        .into_iter()
        .flat_map(|ours| comes.map(|n| (ours, n)))
    {
        let f = p("f");
        let mut world = World::default();
        world.pfs.insert(f.clone(), Node::File(1));
        match ours {
            true => world.write(&f, 2),
            false => world.remove(&f),
        }
        world.pfs.insert(f.clone(), Node::File(7));
        let mut drain = Drain::new(terms(1));
        assert!(drive_while(&mut drain, &mut world, |_, _| true));
        assert_eq!(drain.report().left[0].reason, Reason::Changed);
        world.pfs.remove(&f);
        let choice = SideChoice {
            path: f.clone(),
            side: Side::Ours,
        };
        let mut drain = Drain::new(terms(1)).choosing(vec![choice]);
        let mut is_decided = false;
        assert!(drive_while(&mut drain, &mut world, |world, act| {
            if matches!(act, Act::Commit(_)) && !std::mem::replace(&mut is_decided, true) {
                world.pfs.insert(f.clone(), comes);
            }
            true
        }));
        assert!(is_decided);
        let report = drain.report();
        assert_eq!(world.pfs.get(&f), Some(&comes), "{report:?}");
        assert_eq!(
            (report.left.len(), report.released),
            (1, false),
            "{report:?}"
        );
        // Nobody comes: it is done.
        world.pfs.remove(&f);
        let choice = SideChoice {
            path: f.clone(),
            side: Side::Ours,
        };
        let mut drain = Drain::new(terms(1)).choosing(vec![choice]);
        assert!(drive_while(&mut drain, &mut world, |_, _| true));
        assert!(drain.report().released, "{:?}", drain.report());
        assert_eq!(world.pfs.contains_key(&f), ours);
    }
}

/// A world in which something is to be given up for theirs, and a path below it that a program makes at any moment.
fn given_up_while_used() -> [(World, TreePath, TreePath); 2] {
    let mut in_no_directory = World::default();
    in_no_directory.pfs.insert(p("a"), Node::Dir);
    in_no_directory.create(&p("a/d"), Node::Dir);
    in_no_directory.pfs.remove(&p("a"));
    // A file was renamed, and others have put a directory in its old place.
    let mut renamed = World::default();
    renamed.pfs.insert(p("f"), Node::File(1));
    renamed.rename(&p("f"), &p("m"));
    renamed.pfs.insert(p("f"), Node::Dir);
    [
        (in_no_directory, p("a/d"), p("a/d/x")),
        (renamed, p("m"), p("m/x")),
    ]
}

#[test]
fn that_in_which_a_program_makes_something_meanwhile_is_not_given_up() {
    for (world, d, x) in given_up_while_used() {
        let mut made = 0;
        for moment in 0..20 {
            let mut world = world.clone();
            let choice = SideChoice {
                path: d.clone(),
                side: Side::Theirs,
            };
            let mut drain = Drain::new(terms(1)).choosing(vec![choice]);
            let mut acts = 0;
            while let NextAct::Act(ticket, act) = drain.next(&world).unwrap() {
                // As soon as the program may: also between what is decided and its commit.
                let may_be_made = world.is_free(&x) && world.records.contains_key(&d);
                if acts >= moment && may_be_made && !world.records.contains_key(&x) {
                    world.create(&x, Node::File(1));
                    made += 1;
                }
                acts += 1;
                let got = world.carry_out(&act);
                drain.done(ticket, got);
            }
            let report = drain.report();
            let has = |path| world.records.contains_key(path);
            assert!(has(&d) || !has(&x), "at {moment}: {report:?}");
            let is_refused = !report.refused.is_empty();
            assert_eq!(has(&d), is_refused, "at {moment}: {report:?}");
            assert!(world.records.values().all(|r| r.transit.is_none()));
        }
        assert!((2..20).contains(&made), "{d}: {made}");
    }
}

/// The outcome of a pass that begins with these choices.
fn choose(world: &mut World, choices: &[(&str, Side)]) -> DrainReport {
    let choices = choices.iter().map(|(path, side)| SideChoice {
        path: p(path),
        side: *side,
    });
    let mut drain = Drain::new(terms(1)).choosing(choices.collect());
    assert!(drive_while(&mut drain, world, |_, _| true));
    drain.report().clone()
}

#[test]
fn where_others_have_changed_nothing_no_side_is_taken() {
    let uses: [fn(&mut World); 6] = [
        |world| world.write(&p("f"), 2),
        |world| world.remove(&p("f")),
        |world| world.remove(&p("d")),
        |world| {
            world.rename(&p("f"), &p("g"));
            world.rename(&p("g"), &p("f"));
            let mut record = world.records[&p("f")].clone();
            record.replaces = record.replaces.map(Identity::leaving);
            world.put(p("f"), record);
        },
        |world| world.rename(&p("g"), &p("f")),
        |world| {
            world.remove(&p("d"));
            world.create(&p("d"), Node::File(2));
        },
    ];
    for (n, program) in uses.into_iter().enumerate() {
        for side in [Side::Ours, Side::Theirs, Side::Both] {
            let mut world = World::default();
            for (path, node) in [
                ("f", Node::File(1)),
                ("d", Node::Dir),
                ("d/a", Node::File(3)),
            ] {
                world.pfs.insert(p(path), node);
            }
            if n == 4 {
                world.pfs.insert(p("g"), Node::File(4));
            }
            let with_contents = world.know(&p("d"), &BTreeSet::new()).is;
            program(&mut world);
            if let Some(mut record) = world.records.get(&p("d")).cloned() {
                record.replaces = Some(with_contents);
                world.put(p("d"), record);
            }
            let shown = world.view();
            let path = world.records.keys().next().expect("a record").to_string();
            let report = choose(&mut world, &[(&path, side)]);
            assert_eq!(report.refused.len(), 1, "{n}, {side:?} {path}: {report:?}");
            assert!(report.released, "{n}, {side:?}: {report:?}");
            assert_eq!(world.pfs, shown, "{n}, {side:?} {path}");
        }
    }
}

#[test]
fn choices_are_carried_out_in_their_order() {
    let mut world = World::default();
    for path in ["d", "e"] {
        world.pfs.insert(p(path), Node::Dir);
        world.pfs.insert(p(path).join(b"f"), Node::File(1));
        world.write(&p(path).join(b"f"), 2);
        world.pfs.insert(p(path).join(b"f"), Node::File(7));
    }
    let report = choose(
        &mut world,
        &[
            ("e/f", Side::Both),
            ("none", Side::Ours),
            ("d/f", Side::Both),
            ("d", Side::Ours),
        ],
    );
    let refused: Vec<_> = report
        .refused
        .iter()
        .map(|(path, _)| path.clone())
        .collect();
    assert_eq!(refused, [p("none"), p("d")]);
}

#[test]
fn a_copy_that_may_be_there_stays_known_while_a_choice_is_refused() {
    let mut world = World::default();
    world.pfs.insert(p("f"), Node::File(1));
    world.write(&p("f"), 2);
    world.pfs.insert(p("f"), Node::File(7));
    let earlier = Some(Box::new(Identity::of_copy(&Attr::default())));
    let mut record = world.records[&p("f")].clone();
    record.arriving.clone_from(&earlier);
    let oid = record.object.oid;
    world.put(p("f"), record);
    world.open.insert(oid);
    let report = choose(&mut world, &[("f", Side::Theirs)]);
    assert_eq!(report.refused.len(), 1, "{report:?}");
    assert_eq!(world.records[&p("f")].arriving, earlier);
    // Also if it dies between.
    let choice = SideChoice {
        path: p("f"),
        side: Side::Theirs,
    };
    let mut drain = Drain::new(terms(1)).choosing(vec![choice]);
    let is_marked = |world: &World| world.records[&p("f")].transit.is_some();
    assert!(!drive_while(&mut drain, &mut world, |world, _| !is_marked(
        world
    )));
    let mut view = world.view();
    resume(&mut world, &mut view, &mut Rng::new(1));
    assert_eq!(world.records[&p("f")].arriving, earlier);
}

#[test]
fn a_choice_for_ours_that_could_not_be_carried_out_yet_can_be_revoked() {
    for (ours, side) in [true, false]
        .into_iter()
        .flat_map(|ours| [Side::Theirs, Side::Both].map(|side| (ours, side)))
    {
        let mut world = World::default();
        world.pfs.insert(p("f"), Node::File(1));
        match ours {
            true => world.write(&p("f"), 2),
            false => world.remove(&p("f")),
        }
        world.pfs.insert(p("f"), Node::File(7));
        let choice = SideChoice {
            path: p("f"),
            side: Side::Ours,
        };
        // It is decided, and the drain dies.
        let mut drain = Drain::new(terms(1)).choosing(vec![choice]);
        let is_decided = |world: &World| world.records[&p("f")].is_chosen();
        assert!(!drive_while(
            &mut drain,
            &mut world,
            |world, _| !is_decided(world)
        ));
        let report = choose(&mut world, &[("f", side)]);
        assert!(report.refused.is_empty(), "{ours}, {side:?}: {report:?}");
        assert_eq!(world.pfs[&p("f")], Node::File(7));
        let second = world.pfs.get(&p("f.ours")).copied();
        let is_kept = ours && side == Side::Both;
        assert_eq!(second, is_kept.then_some(Node::File(2)));
    }
}

#[test]
fn ours_of_a_directory_of_both_can_be_revoked_until_it_is_carried_out() {
    let mut world = World::default();
    world.create(&p("d"), Node::Dir);
    world.create(&p("d/x"), Node::File(2));
    world.pfs.insert(p("d"), Node::Dir);
    world.of_another_user.insert(p("d"));
    let is_chosen = |world: &World| world.records[&p("d")].is_chosen();
    let mut carried_out = world.clone();

    let choice = SideChoice {
        path: p("d"),
        side: Side::Ours,
    };
    let mut drain = Drain::new(terms(1)).choosing(vec![choice]);
    assert!(!drive_while(&mut drain, &mut world, |world, _| {
        !is_chosen(world)
    }));
    let report = choose(&mut world, &[("d", Side::Theirs)]);
    assert!(report.refused.is_empty(), "{report:?}");
    assert!(world.of_another_user.contains(&p("d")));
    assert_eq!(world.pfs[&p("d/x")], Node::File(2));

    // What was carried out is no choice that waits.
    carried_out
        .open
        .insert(carried_out.records[&p("d/x")].object.oid);
    let report = choose(&mut carried_out, &[("d", Side::Ours)]);
    assert!(report.refused.is_empty(), "{report:?}");
    assert!(!carried_out.of_another_user.contains(&p("d")));
    assert_eq!(carried_out.records[&p("d")].chosen, None);
}

#[test]
fn ours_of_something_renamed_that_others_have_replaced_can_be_revoked() {
    for hides_something in [false, true] {
        let [a, b] = [p("a"), p("b")];
        let mut world = World::default();
        world.pfs.insert(a.clone(), Node::File(1));
        world.made.insert(a.clone(), 1);
        if hides_something {
            world.pfs.insert(b.clone(), Node::File(2));
        }
        world.rename(&a, &b);
        world.pfs.insert(a.clone(), Node::File(7));
        world.made.insert(a.clone(), 7);
        let choice = SideChoice {
            path: p("b"),
            side: Side::Ours,
        };
        let mut drain = Drain::new(terms(1)).choosing(vec![choice]);
        // It is decided, and the drain dies.
        assert!(!drive_while(&mut drain, &mut world, |world, _| {
            !world.records[&p("b")].adopts
        }));
        let report = choose(&mut world, &[("b", Side::Theirs)]);
        assert!(report.refused.is_empty(), "{report:?}");
        assert_eq!(world.pfs[&a], Node::File(7));
        let there = world.pfs.get(&b).copied();
        assert_eq!(there, hides_something.then_some(Node::File(2)));
        assert!(world.records.is_empty(), "{:?}", world.records);
    }
}
