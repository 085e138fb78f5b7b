//! Random histories against a tree that simply does what it is told: the view never changes by a drain, whatever
//! crashes, and in the end the PFS is the view.

mod acts;
mod choices;
mod directories;
mod model;
mod removals;
mod together;

use super::reserved_names::old_copy_path;
use super::*;
use crate::path::TreePath;
use crate::record::{Kind, Transit};
use model::{Node, Rng, Tree, World, move_tree, p, subtree};

fn terms(batches: usize) -> PassTerms {
    PassTerms {
        keep: false,
        batches,
        objects: BATCH_OBJECTS,
        patient: false,
        secret: NameSecret([1, 2]),
    }
}

fn is_dir(tree: &Tree, path: &TreePath) -> bool {
    path.is_root() || tree.get(path) == Some(&Node::Dir)
}

/// One random operation of a program, if the rules of requests let it be done now.
fn operate(rng: &mut Rng, world: &mut World, model: &mut Tree) {
    let (a, b) = (rng.path(), rng.path());
    let what = rng.below(8);
    if !world.is_free(&a) || what > 3 && !world.is_free(&b) {
        return;
    }
    match what {
        0 if is_dir(model, &a.parent()) && !is_dir(model, &a) => {
            let node = Node::File(world.number());
            world.create(&a, node);
            model.insert(a, node);
        }
        1 if is_dir(model, &a.parent()) && !model.contains_key(&a) => {
            world.create(&a, Node::Dir);
            model.insert(a, Node::Dir);
        }
        2 if model.contains_key(&a) => {
            world.remove(&a);
            for (path, _) in subtree(model, &a) {
                model.remove(&path);
            }
        }
        3 if matches!(model.get(&a), Some(Node::File(_))) => {
            let contents = world.number();
            world.write(&a, contents);
            // All names of it show the same.
            let view = world.view();
            *model = view;
            assert_eq!(model[&a], Node::File(contents));
        }
        4 if matches!(model.get(&a), Some(Node::File(_)))
            && is_dir(model, &b.parent())
            && !model.contains_key(&b) =>
        {
            if !world.link(&a, &b) {
                return;
            }
            model.insert(b, model[&a]);
        }
        5..=7
            if model.contains_key(&a)
                && is_dir(model, &b.parent())
                && !b.is_within(&a)
                && !a.is_within(&b)
                && subtree(model, &b).len() <= 1
                && model
                    .get(&b)
                    .is_none_or(|n| (*n == Node::Dir) == (model[&a] == Node::Dir)) =>
        {
            // Two names of one file: nothing to rename.
            let object = |path| world.records.get(path).map(|r| r.object.oid);
            if object(&a).is_some() && object(&a) == object(&b) {
                return;
            }
            world.rename(&a, &b);
            move_tree(model, &a, &b);
        }
        _ => {}
    }
}

/// What happens beside a pass.
struct Weather {
    /// The machine dies after so many acts.
    acts: usize,
    /// Operations of programs between two acts, in percent.
    operations: usize,
}

const CALM: Weather = Weather {
    acts: usize::MAX,
    operations: 0,
};

/// Drives a machine to its end, or until it dies; then `None`, and what was under way has happened or not.
fn drive(
    mut drain: Drain,
    world: &mut World,
    model: &mut Tree,
    rng: &mut Rng,
    weather: &Weather,
) -> Option<Drain> {
    let mut under_way: Vec<(ActTicket, Act)> = Vec::new();
    for _ in 0..weather.acts {
        if rng.below(100) < weather.operations {
            operate(rng, world, model);
        }
        // Asks for more, or ends something, as chance has it.
        let next = match under_way.len() {
            0 => Some(drain.next(world).unwrap()),
            _ if rng.below(2) == 0 => Some(drain.next(world).unwrap()),
            _ => None,
        };
        match next {
            Some(NextAct::Act(ticket, act)) => {
                under_way.push((ticket, act));
                continue;
            }
            Some(NextAct::End) => {
                assert!(under_way.is_empty());
                return Some(drain);
            }
            Some(NextAct::Wait) => assert!(!under_way.is_empty(), "it waits for nothing"),
            None => {}
        }
        let (ticket, act) = under_way.swap_remove(rng.below(under_way.len()));
        let got = world.carry_out(&act);
        let is_moving = world
            .records
            .values()
            .any(|r| r.kind == Kind::Moved && r.transit.is_some());
        if !is_moving {
            assert_eq!(&world.view(), model, "the view changed at {act:?}");
        }
        drain.done(ticket, got);
    }
    for (_, act) in under_way {
        if rng.below(2) == 0 {
            world.carry_out(&act);
        }
    }
    None
}

/// What a start does after a crash.
fn resume(world: &mut World, model: &mut Tree, rng: &mut Rng) {
    drive(Drain::resume(), world, model, rng, &CALM).unwrap();
    let in_transit = world.records.values().filter(|r| r.transit.is_some());
    assert_eq!(in_transit.count(), 0);
    assert_eq!(&world.view(), model, "after a start");
    for (path, record) in world.records.iter().filter(|(_, r)| r.hides.is_some()) {
        let is_told = !world.unhidden.contains(&record.object);
        assert!(is_told, "the label at {path} says that nothing is hidden");
    }
}

/// A start that can't look at the PFS, if it has to, fails and leaves the marks for the next one.
fn start_blind(world: &mut World) {
    world.blind = u32::MAX;
    let mut drain = Drain::resume();
    while let Ok(NextAct::Act(ticket, act)) = drain.next(world) {
        let got = world.carry_out(&act);
        drain.done(ticket, got);
    }
    world.blind = 0;
}

/// A random tree on which programs have worked for a while, and what it shows.
fn in_use(rng: &mut Rng) -> (World, Tree) {
    let mut world = World::random(rng);
    let mut model = world.pfs.clone();
    for _ in 0..30 {
        operate(rng, &mut world, &mut model);
    }
    (world, model)
}

fn drain_all(world: &mut World, model: &mut Tree, rng: &mut Rng, what: &str) {
    let drain = drive(Drain::new(terms(2)), world, model, rng, &CALM).unwrap();
    assert_eq!(drain.report().left, [], "{what}");
    assert!(drain.report().released, "{what}: {:?}", drain.report());
    assert_eq!(&world.pfs, model, "{what}");
    assert_eq!(world.records.len(), 0, "{what}");
    assert_eq!(world.objects.len(), 0, "{what}");
}

#[test]
fn a_drain_never_changes_the_view_and_ends_with_the_pfs_equal_to_it() {
    for seed in 1..=300 {
        let mut rng = Rng::new(seed);
        let mut world = World::random(&mut rng);
        let mut model = world.pfs.clone();
        for round in 0..3 {
            for _ in 0..25 {
                operate(&mut rng, &mut world, &mut model);
                assert_eq!(world.view(), model, "the test's own policy is wrong");
            }
            let keep = PassTerms {
                keep: round < 2,
                ..terms(1 + rng.below(3))
            };
            // The second and third rounds meet records that are drained already.
            let drain = Drain::new(keep);
            let drain = drive(drain, &mut world, &mut model, &mut rng, &CALM).unwrap();
            assert_eq!(drain.report().left, [], "seed {seed}");
            assert_eq!(world.pfs, model, "seed {seed}");
        }
        assert_eq!(world.records.len(), 0, "seed {seed}: released");
    }
}

#[test]
fn a_drain_that_dies_anywhere_and_is_run_again_ends_the_same() {
    for seed in 1..=600 {
        let mut rng = Rng::new(seed);
        let (mut world, mut model) = in_use(&mut rng);
        for _ in 0..1 + rng.below(4) {
            let weather = Weather {
                acts: 1 + rng.below(60),
                operations: 0,
            };
            let drain = Drain::new(terms(1 + rng.below(3)));
            world.blind = rng.below(4) as u32;
            drive(drain, &mut world, &mut model, &mut rng, &weather);
            if rng.below(4) == 0 {
                start_blind(&mut world);
            }
            // A PFS that does not answer for a moment is waited for.
            world.blind = rng.below(resume::MOST_LOOKS as usize) as u32;
            resume(&mut world, &mut model, &mut rng);
            world.blind = 0;
            for _ in 0..rng.below(12) {
                operate(&mut rng, &mut world, &mut model);
                assert_eq!(world.view(), model, "seed {seed}");
            }
        }
        drain_all(&mut world, &mut model, &mut rng, &format!("seed {seed}"));
    }
}

#[test]
fn programs_go_on_during_a_drain_and_nothing_of_what_they_do_is_lost() {
    let mut released = 0;
    for seed in 1..=400 {
        let mut rng = Rng::new(seed ^ 0xABCD);
        let mut world = World::random(&mut rng);
        let mut model = world.pfs.clone();
        for round in 0..4 {
            let weather = Weather {
                acts: 1 + rng.below(400),
                operations: [2, 10, 40][rng.below(3)],
            };
            let drain = Drain::new(terms(1 + rng.below(3)));
            match drive(drain, &mut world, &mut model, &mut rng, &weather) {
                Some(drain) => released += drain.tally().released,
                None => resume(&mut world, &mut model, &mut rng),
            }
            assert_eq!(world.view(), model, "seed {seed}, round {round}");
        }
        drain_all(&mut world, &mut model, &mut rng, &format!("seed {seed}"));
    }
    assert!(released > 100, "only {released} records were released");
}

#[test]
fn a_pfs_that_refuses_leaves_everything_and_says_so() {
    for seed in 1..=100 {
        let mut rng = Rng::new(seed);
        let mut world = World::random(&mut rng);
        let mut model = world.pfs.clone();
        for _ in 0..25 {
            operate(&mut rng, &mut world, &mut model);
        }
        let before = world.pfs.clone();
        world.broken = Some(libc::EROFS);
        let drain = Drain::new(terms(2));
        let drain = drive(drain, &mut world, &mut model, &mut rng, &CALM).unwrap();
        assert_eq!(world.pfs, before, "seed {seed}");
        assert_eq!(world.view(), model, "seed {seed}");
        assert_eq!(
            drain.report().left_count as usize,
            drain.report().left.len()
        );
        for left in &drain.report().left {
            match &left.reason {
                Reason::Refused(trouble) => assert_eq!(trouble.errno, libc::EROFS),
                Reason::Blocked(_) => {}
                other => panic!("seed {seed}: {} is left: {other:?}", left.path),
            }
        }
        assert_eq!(drain.report().left.is_empty(), drain.report().released);
        world.broken = None;
        drain_all(&mut world, &mut model, &mut rng, &format!("seed {seed}"));
    }
}

#[test]
fn where_a_pfs_keeps_failing_only_the_first_failures_are_waited_for() {
    const DIRS: usize = 30;
    let mut world = World::default();
    for n in 0..DIRS {
        world.create(&p(&format!("d{n:02}")), Node::Dir);
    }
    let mut model = world.view();
    world.broken = Some(libc::EIO);
    // To wait for each would take more.
    let weather = Weather {
        acts: 10 * MOST_IN_DOUBT as usize * LOOKS_IN_DOUBT as usize,
        operations: 0,
    };
    let mut rng = Rng::new(1);
    let drain = drive(
        Drain::new(terms(1)),
        &mut world,
        &mut model,
        &mut rng,
        &weather,
    );
    let drain = drain.expect("it comes to its end");
    let left = &drain.report().left;
    assert_eq!(left.len(), DIRS);
    assert!(left.iter().all(|l| matches!(l.reason, Reason::Refused(_))));
    world.broken = None;
    drain_all(&mut world, &mut model, &mut rng, "later");
}

/// A client says ENOENT of a rename that the kernel has repeated, or EIO, and goes on showing what was there before.
#[test]
fn what_was_done_though_the_pfs_said_otherwise_and_showed_otherwise_is_known() {
    for seed in 1..=300 {
        let mut rng = Rng::new(seed ^ 0x10_57);
        let (mut world, mut model) = in_use(&mut rng);
        world.lost_answers = Some([libc::EIO, libc::ESTALE, libc::ENOENT][rng.below(3)]);
        world.stale_looks = rng.below(LOOKS_IN_DOUBT as usize) as u32;
        let drain = drive(
            Drain::new(terms(1)),
            &mut world,
            &mut model,
            &mut rng,
            &CALM,
        )
        .unwrap();
        for left in &drain.report().left {
            let is_dir = world.records[&left.path].kind == Kind::Dir;
            let follows = matches!(left.reason, Reason::Blocked(_));
            assert!(is_dir || follows, "seed {seed}: {left:?}");
        }
        world.lost_answers = None;
        drain_all(&mut world, &mut model, &mut rng, &format!("seed {seed}"));
    }
}

#[test]
fn bytes_count_with_the_file_that_got_its_name_whatever_the_pfs_said() {
    for lost in [None, Some(libc::ESTALE)] {
        let mut world = World {
            lost_answers: lost,
            ..World::default()
        };
        world.create(&p("f"), Node::File(5));
        // Others have put something under the name of this one, so it is copied in vain.
        world.create(&p("g"), Node::File(7));
        world.pfs.insert(p("g"), Node::File(1));
        let mut model = world.view();
        let drain = Drain::new(terms(1));
        let drain = drive(drain, &mut world, &mut model, &mut Rng::new(1), &CALM).unwrap();
        let tally = drain.tally();
        assert_eq!(
            (tally.files_drained, tally.bytes_drained),
            (1, 5),
            "{lost:?}"
        );
    }
}

#[test]
fn what_was_done_on_a_pfs_that_keeps_failing_is_known_although_it_was_looked_at_once() {
    for seed in 1..=300 {
        let mut rng = Rng::new(seed ^ 0x0b5c);
        let (mut world, mut model) = in_use(&mut rng);
        world.lost_answers = Some([libc::EIO, libc::ESTALE][rng.below(2)]);
        world.stale_looks = 1 + rng.below(3) as u32;
        let drain = Drain::new(terms(1)).of_a_pfs_that_fails();
        drive(drain, &mut world, &mut model, &mut rng, &CALM).expect("it comes to its end");
        (world.lost_answers, world.shown_before) = (None, None);
        drain_all(&mut world, &mut model, &mut rng, &format!("seed {seed}"));
    }
}

/// Entries that somebody else puts on the PFS where the view has something of its own.
#[test]
fn what_strangers_put_in_the_way_is_not_destroyed() {
    let mut met = 0;
    for seed in 1..=300 {
        let mut rng = Rng::new(seed);
        let mut world = World::random(&mut rng);
        let mut model = world.pfs.clone();
        for _ in 0..20 {
            operate(&mut rng, &mut world, &mut model);
        }
        let mut strangers = Vec::new();
        for (path, record) in world.records.clone() {
            let is_new = record.kind == Kind::File && record.hides.is_none();
            let lower = world.lower_dir(&path.parent());
            let is_seen = lower.as_ref() == Some(&path.parent())
                && (path.parent().is_root() || world.pfs.contains_key(&path.parent()));
            if is_new && is_seen && !world.pfs.contains_key(&path) {
                let node = Node::File(1_000_000 + seed);
                world.pfs.insert(path.clone(), node);
                strangers.push((path, node));
            }
        }
        let drain = Drain::new(terms(2));
        let drain = drive(drain, &mut world, &mut model, &mut rng, &CALM).unwrap();
        for (path, node) in &strangers {
            assert!(
                world.pfs.values().any(|n| n == node),
                "seed {seed}: what was at {path} is gone"
            );
            let left = drain.report().left.iter().find(|l| l.path == *path);
            assert!(left.is_some(), "seed {seed}: {path} is left");
        }
        met += strangers.len();
        assert_eq!(world.view(), model, "seed {seed}");
    }
    assert!(met > 50, "only {met} strangers");
}

#[test]
fn a_swap_of_two_files_destroys_neither() {
    let mut world = World {
        pfs: Tree::from([(p("a"), Node::File(1)), (p("b"), Node::File(2))]),
        ..World::default()
    };
    world.rename(&p("a"), &p("c"));
    world.rename(&p("b"), &p("a"));
    world.rename(&p("c"), &p("b"));
    let mut view = world.view();
    drain_all(&mut world, &mut view, &mut Rng::new(1), "a swap");
    assert_eq!(
        world.pfs,
        Tree::from([(p("a"), Node::File(2)), (p("b"), Node::File(1))])
    );
}

#[test]
fn what_was_renamed_and_cannot_leave_its_place_is_not_replaced() {
    let mut world = World {
        pfs: Tree::from([(p("a"), Node::File(1))]),
        ..World::default()
    };
    world.rename(&p("a"), &p("b"));
    world.create(&p("a"), Node::File(2));
    let mut view = world.view();
    let mut rng = Rng::new(1);
    // The look at what is to leave.
    world.blind = 1;
    let pass = Drain::new(terms(1));
    let drain = drive(pass, &mut world, &mut view, &mut rng, &CALM).unwrap();
    let left: Vec<_> = drain.report().left.iter().map(|l| &l.path).collect();
    assert_eq!(left, [&p("a"), &p("b")]);
    assert_eq!(world.pfs, Tree::from([(p("a"), Node::File(1))]));
    drain_all(&mut world, &mut view, &mut rng, "when it can be looked at");
}

#[test]
fn a_file_in_place_of_a_directory_that_is_still_there_gets_none_of_its_names() {
    let mut world = World {
        pfs: Tree::from([(p("b"), Node::Dir)]),
        ..World::default()
    };
    world.create(&p("a"), Node::File(1));
    world.remove(&p("b"));
    assert!(world.link(&p("a"), &p("b")));
    let mut view = world.view();
    let mut rng = Rng::new(1);
    // The look at what is to go.
    world.blind = 1;
    let pass = Drain::new(terms(1));
    drive(pass, &mut world, &mut view, &mut rng, &CALM).unwrap();
    assert_eq!(world.pfs, Tree::from([(p("b"), Node::Dir)]));
    drain_all(&mut world, &mut view, &mut rng, "when it can be looked at");
}

#[test]
fn what_is_open_is_kept_alone_and_goes_with_the_next_pass() {
    let mut world = World::default();
    world.create(&p("d"), Node::Dir);
    world.create(&p("d/open"), Node::File(1));
    world.create(&p("d/closed"), Node::File(2));
    world.create(&p("e"), Node::Dir);
    let mut model = world.view();
    let mut rng = Rng::new(1);
    let keep = PassTerms {
        keep: true,
        ..terms(1)
    };
    drive(Drain::new(keep), &mut world, &mut model, &mut rng, &CALM).unwrap();
    let open = world.records[&p("d/open")].object.oid;
    // Read by somebody: that is no writer, but it keeps the copy.
    world.open.insert(open);
    let drain = drive(
        Drain::new(terms(1)),
        &mut world,
        &mut model,
        &mut rng,
        &CALM,
    )
    .unwrap();
    assert!(!drain.report().released);
    assert_eq!(
        drain.report().kept_because.as_deref(),
        Some("d/open is still open")
    );
    // The directory around it keeps its record, which opens it to the PFS.
    let paths: Vec<_> = world.records.keys().cloned().collect();
    assert_eq!(paths, [p("d"), p("d/open")]);
    assert_eq!(world.records[&p("d")].kind, Kind::Moved);
    assert_eq!(world.view(), model);
    world.open.clear();
    drain_all(&mut world, &mut model, &mut rng, "after the close");
}

#[test]
fn one_file_is_released_alone() {
    let mut world = World::default();
    world.create(&p("a"), Node::File(1));
    world.create(&p("b"), Node::File(2));
    world.link(&p("b"), &p("c"));
    let mut model = world.view();
    let mut rng = Rng::new(1);
    let release = |world: &mut World, model: &mut Tree, rng: &mut Rng, path: &str| {
        let drain = Drain::release(vec![p(path)]);
        let drain = drive(drain, world, model, rng, &CALM).unwrap();
        drain.report().clone()
    };
    let report = release(&mut world, &mut model, &mut rng, "a");
    assert!(!report.released, "it is dirty");
    assert_eq!(
        report.kept_because.as_deref(),
        Some("a has been changed again")
    );
    let keep = PassTerms {
        keep: true,
        ..terms(1)
    };
    drive(Drain::new(keep), &mut world, &mut model, &mut rng, &CALM).unwrap();
    assert!(release(&mut world, &mut model, &mut rng, "a").released);
    assert!(!world.records.contains_key(&p("a")));
    // Another strand has marked one of its names.
    let mark = |world: &mut World, mark| {
        world.records.get_mut(&p("c")).unwrap().transit = mark;
    };
    mark(&mut world, Some(Transit::Placing));
    assert!(!release(&mut world, &mut model, &mut rng, "b").released);
    assert_eq!(world.records[&p("c")].transit, Some(Transit::Placing));
    mark(&mut world, None);
    // All names go together.
    assert!(release(&mut world, &mut model, &mut rng, "b").released);
    assert_eq!(world.records.len(), 0);
    assert_eq!(world.view(), model);
}

#[test]
fn a_pass_that_is_stopped_begins_nothing_and_names_the_rest() {
    let mut world = World::default();
    for n in 0..5 {
        world.create(&p(&format!("f{n}")), Node::File(n));
    }
    let mut model = world.view();
    let mut drain = Drain::new(terms(1));
    drain.stop();
    let drain = drive(drain, &mut world, &mut model, &mut Rng::new(1), &CALM).unwrap();
    assert_eq!(drain.report().left_count, 5);
    let all_stopped = drain
        .report()
        .left
        .iter()
        .all(|l| l.reason == Reason::Stopped);
    assert!(all_stopped);
    assert_eq!(world.pfs.len(), 0);
}

#[test]
fn a_file_that_is_written_to_is_waited_for_until_patience_ends() {
    let mut world = World::default();
    world.create(&p("busy"), Node::File(1));
    world.create(&p("idle"), Node::File(2));
    let busy = world.records[&p("busy")].object.oid;
    world.open.insert(busy);
    let mut drain = Drain::new(PassTerms {
        patient: true,
        ..terms(1)
    });
    let mut pauses = 0;
    loop {
        match drain.next(&world).unwrap() {
            NextAct::End => break,
            NextAct::Wait => panic!("one act at a time"),
            NextAct::Act(ticket, act) => {
                if matches!(
                    act,
                    Act::Copy {
                        after_a_pause: true,
                        ..
                    }
                ) {
                    pauses += 1;
                    assert!(world.pfs.contains_key(&p("idle")), "the others go first");
                    if pauses == 5 {
                        drain.lose_patience();
                    }
                }
                let got = world.carry_out(&act);
                drain.done(ticket, got);
            }
        }
    }
    assert_eq!(pauses, 5);
    assert_eq!(drain.report().left.len(), 1);
    assert_eq!(drain.report().left[0].reason, Reason::Open);
}

#[test]
fn what_a_program_without_marks_was_naming_when_it_died_is_known_as_ours() {
    let mut world = World::default();
    for name in ["named", "not", "temporary"] {
        world.create(&p(name), Node::File(7));
    }
    let copy = |world: &World, name| {
        let oid = world.records[&p(name)].object.oid;
        old_copy_path(&p(name), oid, None)
    };
    let mut model = world.view();
    world.pfs.insert(p("named"), Node::File(7));
    // The copy is still there: the file is a stranger's.
    let left = copy(&world, "temporary");
    world.pfs.insert(left, Node::File(7));
    world.pfs.insert(p("temporary"), Node::File(8));
    let note = b"named\0not\0temporary\0gone".to_vec();
    world.notes.insert(b"drain/intended".to_vec(), note);
    let mut rng = Rng::new(1);
    resume(&mut world, &mut model, &mut rng);
    assert!(world.notes.is_empty());
    let drain = drive(
        Drain::new(terms(1)),
        &mut world,
        &mut model,
        &mut rng,
        &CALM,
    )
    .unwrap();
    let left: Vec<_> = drain.report().left.iter().map(|l| &l.path).collect();
    assert_eq!(left, [&p("temporary")]);
    assert_eq!(world.pfs[&p("named")], Node::File(7));
    assert_eq!(world.pfs[&p("temporary")], Node::File(8));
}

#[test]
fn whoever_opens_a_file_before_it_is_marked_can_write_to_it_at_any_time() {
    let keep = PassTerms {
        keep: true,
        ..terms(1)
    };
    let mut kept = 0;
    // Opened before the n-th act, written to before the m-th.
    for (n, m) in (0..9).flat_map(|n| (n..10).map(move |m| (n, m))) {
        let mut world = World::default();
        world.create(&p("f"), Node::File(1));
        let mut model = world.view();
        let mut rng = Rng::new(1);
        let pass = Drain::new(keep.clone());
        drive(pass, &mut world, &mut model, &mut rng, &CALM).unwrap();
        let mut drain = Drain::release(vec![p("f")]);
        let mut file = None;
        for step in 0.. {
            if step == n {
                // Those who ask later wait for the mark, or find the file of the PFS.
                let record = world.records.get(&p("f"));
                file = record.filter(|r| r.transit.is_none()).map(|r| r.object.oid);
                world.open.extend(file);
            }
            if step == m
                && let Some(file) = file
            {
                let contents = Node::File(2);
                let changed = world.number() as i64;
                let object = world.objects.get_mut(&file).expect("it is open");
                (object.node, object.changed) = (contents, changed);
                world.open.clear();
                model.insert(p("f"), contents);
            }
            match drain.next(&world).unwrap() {
                NextAct::End => break,
                NextAct::Wait => panic!("one act at a time"),
                NextAct::Act(ticket, act) => {
                    let got = world.carry_out(&act);
                    drain.done(ticket, got);
                }
            }
        }
        let is_written = model[&p("f")] == Node::File(2);
        if is_written {
            assert_eq!(world.view(), model, "opened at {n}, written at {m}");
            kept += 1;
        }
    }
    assert!(kept > 5, "only {kept} writes");
}

#[test]
fn a_copy_in_whose_place_others_have_put_something_is_made_again_elsewhere_and_never_called_drained()
 {
    for (times, after) in (0..6).flat_map(|times| [(times, 0), (times, 1)]) {
        let mut world = World::default();
        world.create(&p("f"), Node::File(7));
        assert!(world.link(&p("f"), &p("g")));
        world.supplanting = (times, after);
        let mut model = world.view();
        let mut rng = Rng::new(1);
        let keep = PassTerms {
            keep: true,
            ..terms(1)
        };
        let pass = Drain::new(keep.clone());
        let drain = drive(pass, &mut world, &mut model, &mut rng, &CALM).unwrap();
        let what = format!("{times} times after {after} names");
        let left: Vec<_> = drain.report().left.iter().map(|l| &l.path).collect();
        if world.foreign.len() < 4 {
            assert_eq!(left, [] as [&TreePath; 0], "{what}");
            assert_eq!(drain.tally().files_drained, 1, "{what}");
        } else {
            assert_eq!(left, [&p("f"), &p("g")], "{what}");
            let is_told = |l: &Left| matches!(&l.reason, Reason::Blocked(text) if text.starts_with("others have put"));
            assert!(drain.report().left.iter().all(is_told), "{what}");
            assert_eq!(drain.tally().files_drained, 0, "{what}");
        }
        assert!(
            world
                .foreign
                .iter()
                .all(|path| world.pfs.contains_key(path)),
            "{what}"
        );
        world.supplanting = (0, 0);
        let again = Drain::new(PassTerms {
            secret: NameSecret([3, 4]),
            ..keep
        });
        let drain = drive(again, &mut world, &mut model, &mut rng, &CALM).unwrap();
        assert_eq!(drain.report().left, [], "{what}");
        for name in ["f", "g"] {
            assert_eq!(world.pfs.get(&p(name)), Some(&Node::File(7)), "{what}");
        }
    }
}

#[test]
fn a_file_that_got_only_its_first_name_is_known_there() {
    for errno in [libc::EMLINK, libc::EACCES, libc::EIO] {
        let mut world = World::default();
        world.create(&p("a"), Node::File(1));
        world.link(&p("a"), &p("b"));
        world.refuses_links = Some(errno);
        let mut view = world.view();
        let mut rng = Rng::new(1);
        let pass = Drain::new(terms(1));
        let drain = drive(pass, &mut world, &mut view, &mut rng, &CALM).unwrap();
        let left = &drain.report().left;
        let is_refused =
            |left: &Left| matches!(left.reason, Reason::Refused(trouble) if trouble.errno == errno);
        assert!(left.iter().any(is_refused), "{left:?}");
        assert!(left.iter().all(|left| left.reason != Reason::Taken));
        assert!(world.pfs.contains_key(&p("a")));
        world.refuses_links = None;
        drain_all(&mut world, &mut view, &mut rng, "links are made again");
    }
}
