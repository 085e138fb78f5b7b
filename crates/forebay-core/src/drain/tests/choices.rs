//! What others do while somebody decides.

use super::directories::drive_while;
use super::model::{Node, World, p};
use super::*;

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

#[test]
fn a_directory_in_which_a_program_makes_something_meanwhile_is_not_given_up() {
    let (d, x) = (p("a/d"), p("a/d/x"));
    let mut made = 0;
    for moment in 0..20 {
        let mut world = World::default();
        world.pfs.insert(p("a"), Node::Dir);
        world.create(&d, Node::Dir);
        world.pfs.remove(&p("a"));
        let choice = SideChoice {
            path: d.clone(),
            side: Side::Theirs,
        };
        let mut drain = Drain::new(terms(1)).choosing(vec![choice]);
        let mut acts = 0;
        assert!(drive_while(&mut drain, &mut world, |world, _| {
            // As soon as the program may.
            let may_be_made = world.is_free(&x) && world.records.contains_key(&d);
            if acts >= moment && may_be_made && !world.records.contains_key(&x) {
                world.create(&x, Node::File(1));
                made += 1;
            }
            acts += 1;
            true
        }));
        let report = drain.report();
        let has = |path| world.records.contains_key(path);
        assert_eq!(has(&d), has(&x), "at {moment}: {report:?}");
        assert_eq!(
            has(&d),
            !report.refused.is_empty(),
            "at {moment}: {report:?}"
        );
        assert!(world.records.values().all(|r| r.transit.is_none()));
    }
    assert!((2..20).contains(&made), "{made}");
}
