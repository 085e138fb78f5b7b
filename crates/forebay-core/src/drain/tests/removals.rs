//! A file goes by a name of the drain. Wherever that stops, it goes in the end, and what others have put in its place does not.

use super::directories::drive_while;
use super::*;
use crate::identity::Identity;
use crate::record::Dirs;

/// A program has removed `f`, which is on the PFS.
fn removed() -> World {
    let mut world = World {
        pfs: Tree::from([(p("f"), Node::File(7))]),
        ..World::default()
    };
    world.remove(&p("f"));
    world
}

/// A pass ends as it is killed between the two calls of the removal. Gives the name by which the file goes.
fn killed_on_the_way(world: &mut World) -> TreePath {
    let mut going = None;
    let mut drain = Drain::new(terms(1));
    loop {
        let NextAct::Act(ticket, act) = drain.next(world).unwrap() else {
            panic!("nothing was removed");
        };
        if let Act::Remove { path, by, .. } = &act {
            let by = by.clone().expect("it goes by a name of the drain");
            assert_eq!((path.name(), by.parent()), (&b"f"[..], path.parent()));
            let file = world.pfs.remove(path).unwrap();
            world.pfs.insert(by.clone(), file);
            going = Some(by);
        }
        if let Some(by) = going {
            return by;
        }
        let got = world.carry_out(&act);
        drain.done(ticket, got);
    }
}

fn pass(world: &mut World) -> DrainReport {
    let mut drain = Drain::new(terms(1));
    assert!(drive_while(&mut drain, world, |_, _| true));
    drain.report().clone()
}

fn has_notes(world: &World) -> bool {
    world.notes.keys().any(|key| key.starts_with(going::NOTES))
}

#[test]
fn a_file_that_a_killed_pass_has_left_on_its_way_out_goes() {
    for is_recreated in [false, true] {
        let mut world = removed();
        killed_on_the_way(&mut world);
        if is_recreated {
            world.create(&p("f"), Node::File(9));
        }
        assert!(pass(&mut world).released);
        let left: Vec<_> = world.pfs.values().copied().collect();
        assert_eq!(left, [Node::File(9)][usize::from(!is_recreated)..]);
        assert!(!has_notes(&world));
    }
}

#[test]
fn what_others_had_put_in_its_place_gets_its_name_back_or_one_beside_it() {
    for is_taken in [false, true] {
        let mut world = removed();
        let by = killed_on_the_way(&mut world);
        world.pfs.insert(by, Node::File(8));
        if is_taken {
            world.pfs.insert(p("f"), Node::File(9));
        }
        let report = pass(&mut world);
        let left: Vec<_> = report.left.iter().map(|left| left.path.clone()).collect();
        let (all, listed) = match is_taken {
            false => (vec![(p("f"), 8)], vec![p("f")]),
            true => (
                vec![(p("f"), 9), (p("f.theirs1"), 8)],
                vec![p("f"), p("f.theirs1")],
            ),
        };
        let all = all.into_iter().map(|(path, n)| (path, Node::File(n)));
        assert_eq!(world.pfs, all.collect::<Tree>());
        assert_eq!(left, listed);
        assert!(!has_notes(&world));
    }
}

#[test]
fn what_the_pfs_does_not_let_go_is_listed_and_its_directory_stays_where_it_is() {
    let mut world = World {
        pfs: Tree::from([(p("d"), Node::Dir), (p("d/f"), Node::File(1))]),
        ..World::default()
    };
    world.remove(&p("d/f"));
    let broken = |world: &mut World, act: &Act| {
        world.broken = matches!(act, Act::Look(_)).then_some(libc::EIO);
        true
    };
    let mut drain = Drain::new(terms(1));
    assert!(drive_while(&mut drain, &mut world, broken));
    assert!(drain.report().left.iter().any(|left| left.path == p("d/f")));
    assert!(has_notes(&world));
    // A program renames the directory, and the PFS goes on failing.
    world.broken = None;
    world.rename(&p("d"), &p("e"));
    let mut drain = Drain::new(terms(1));
    world.blind = 1;
    assert!(drive_while(&mut drain, &mut world, |_, _| true));
    let left: Vec<_> = drain.report().left.iter().map(|l| l.path.clone()).collect();
    assert!(
        left.contains(&p("d/f")) && left.contains(&p("e")),
        "{left:?}"
    );
    assert!(world.pfs.contains_key(&p("d")));
    pass(&mut world);
    assert_eq!(world.pfs, Tree::from([(p("e"), Node::Dir)]));
    assert!(!has_notes(&world));
}

#[test]
fn a_directory_does_not_go_with_what_could_not_be_looked_at_on_its_way_out() {
    let mut world = World {
        pfs: Tree::from([(p("d"), Node::Dir), (p("d/f"), Node::File(7))]),
        ..World::default()
    };
    world.remove(&p("d/f"));
    let by = killed_on_the_way(&mut world);
    world.pfs.insert(by.clone(), Node::File(8));
    // A program removes the directory, which is empty for it.
    for removes in [false, true] {
        if removes {
            world.remove(&p("d"));
        }
        // The first look is at what is on its way.
        world.blind = 1;
        let mut drain = Drain::new(terms(1));
        assert!(drive_while(&mut drain, &mut world, |_, _| true));
        assert!(!drain.report().released);
        assert!(world.pfs.contains_key(&by), "{:?}", drain.report().left);
    }
}

/// In a bridge of root.
#[test]
fn what_was_asked_for_in_a_directory_is_done_in_that_alone_also_by_the_next_pass() {
    let dir = Some(Identity::MADE_DIR);
    let told = |world: &mut World| {
        let mut told = Vec::new();
        let note = |_: &mut World, act: &Act| {
            if let Act::Remove { within, .. } | Act::Discard { within, .. } = act {
                told.push([None, *within]);
            }
            if let Act::Rename { out_of, within, .. } = act {
                told.push([*out_of, *within]);
            }
            true
        };
        assert!(drive_while(&mut Drain::new(terms(1)), world, note));
        told
    };
    let mut world = removed();
    world.records.get_mut(&p("f")).unwrap().dirs = Dirs::within(dir);
    let mut left = world.clone();
    assert_eq!(told(&mut world), [[None, dir]]);
    killed_on_the_way(&mut left);
    assert_eq!(told(&mut left), [[None, dir]]);
    let mut world = World {
        pfs: Tree::from([(p("f"), Node::File(7))]),
        ..World::default()
    };
    world.rename(&p("f"), &p("g"));
    let out_of = Some(Identity::NOTHING);
    world.records.get_mut(&p("g")).unwrap().dirs = Dirs {
        within: dir,
        out_of,
    }
    .boxed();
    assert_eq!(told(&mut world), [[out_of, dir]]);
}

#[test]
fn what_came_back_is_listed_before_anything_is_released_and_else_all_the_same() {
    let with_a_file = || {
        let mut world = removed();
        world.create(&p("g"), Node::File(8));
        world
    };
    let told = |drain: &Drain| -> Vec<(TreePath, Reason)> {
        let left = drain.report().left.iter();
        left.map(|left| (left.path.clone(), left.reason.clone()))
            .collect()
    };
    let expected = [(p("f.theirs1"), Reason::CameBack)];
    let mut world = with_a_file();
    let mut drain = Drain::new(terms(1));
    let is_removal = |act: &Act| matches!(act, Act::Remove { .. });
    while let NextAct::Act(ticket, act) = drain.next(&world).unwrap() {
        let got = world.carry_out(&act);
        if is_removal(&act) {
            drain.came_back(p("f.theirs1"));
        }
        drain.done(ticket, got);
    }
    assert_eq!(told(&drain), expected);
    assert!(!drain.report().released && !world.records.is_empty());
    // The copies go with the next one.
    let mut again = Drain::new(terms(1));
    assert!(drive_while(&mut again, &mut world, |_, _| true));
    assert!(again.report().released && world.records.is_empty());
    // It is heard of when all is released.
    again.came_back(p("f.theirs1"));
    assert_eq!(told(&again), expected);
    assert_eq!(again.report().left_count, 1);
}
