//! `kill -9` at any moment: what was acknowledged is there, and nothing else.

mod common;

use common::Place;
use common::load::{Load, Random};
use common::process::Process;
use forebay_core::table::{Marks, Tables};
use forebay_server::fsck::{self, Options};
use forebay_tables::Rocks;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const CLIENTS: usize = 3;
const KILLS: u64 = 30;
/// Steps of all clients between two kills, at most.
const STEPS: u64 = 400;
/// A kill comes so long after the step that it waited for, at most: in the midst of the next one.
const WITHIN_US: u64 = 400;

#[test]
#[ignore = "the bridge of the other tests"]
fn bridge_process() {
    common::process::serve();
}

fn seed() -> u64 {
    match std::env::var("FBY_TEST_SEED") {
        Ok(text) => text.parse().unwrap(),
        Err(_) => 20_261,
    }
}

fn problems(place: &Place, options: Options) -> Vec<String> {
    fsck::fsck(&place.instance(), options).unwrap().problems
}

/// Kills the bridge of `place` again and again while `steps` are counted.
fn kill_and_restart(place: &Place, first: Process, steps: &AtomicU64, seed: u64) -> Process {
    let mut random = Random::new(seed);
    let mut bridge = first;
    for kill in 0..KILLS {
        let until = steps.load(Ordering::Relaxed) + 1 + random.below(STEPS);
        let deadline = Instant::now() + Duration::from_secs(60);
        while steps.load(Ordering::Relaxed) < until {
            assert!(
                Instant::now() < deadline,
                "kill {kill}: the clients are stuck"
            );
            thread::yield_now();
        }
        let within = Instant::now() + Duration::from_micros(random.below(WITHIN_US));
        while Instant::now() < within {
            std::hint::spin_loop();
        }
        bridge.kill();
        // A check does what the next start would do. Both have to be right.
        if kill % 2 == 1 {
            assert_eq!(
                problems(place, Options::default()),
                Vec::<String>::new(),
                "kill {kill}"
            );
        }
        bridge = Process::start(place);
    }
    bridge
}

#[test]
fn whatever_was_acknowledged_survives_the_death_of_the_bridge_at_any_moment() {
    let seed = seed();
    println!("seed {seed} (FBY_TEST_SEED sets it)");
    let place = Place::new();
    for n in 0..CLIENTS {
        Load::prepare(&place.root(), &format!("w{n}"));
    }
    std::fs::create_dir(place.root().join("shared")).unwrap();
    let bridge = Process::start(&place);
    let steps = AtomicU64::new(0);
    let ended = AtomicBool::new(false);
    let (bridge, mut loads, won) = thread::scope(|scope| {
        let workers: Vec<_> = (0..CLIENTS)
            .map(|n| {
                let (place, steps, ended) = (&place, &steps, &ended);
                scope.spawn(move || work(place, n, seed, steps, ended))
            })
            .collect();
        let bridge = kill_and_restart(&place, bridge, &steps, seed);
        ended.store(true, Ordering::Relaxed);
        let (loads, won): (Vec<_>, Vec<_>) = workers.into_iter().map(|w| w.join().unwrap()).unzip();
        (bridge, loads, won)
    });
    println!("{KILLS} kills, {} steps", steps.load(Ordering::Relaxed));
    let mut won = won.concat();
    let wins = won.len();
    won.sort_unstable();
    won.dedup();
    assert_eq!(won.len(), wins, "each name has one winner");
    let named = loads[0].client.list("shared").unwrap().len();
    assert_eq!(named, wins, "and each winner its name");
    for load in &mut loads {
        load.verify();
    }
    bridge.end();
    assert_eq!(problems(&place, Options::default()), Vec::<String>::new());

    // The tables are lost: the labels on the objects tell the same.
    std::fs::remove_dir_all(place.instance().join("meta")).unwrap();
    let rebuild = Options {
        rebuild: true,
        ..Options::default()
    };
    assert_eq!(problems(&place, rebuild), Vec::<String>::new());
    let bridge = Process::start(&place);
    for load in &mut loads {
        load.verify();
    }
    bridge.end();
    assert_eq!(problems(&place, Options::default()), Vec::<String>::new());
}

fn backing_files(place: &Place) -> usize {
    let objects = forebay_testkit::entries_below(&place.instance().join("obj"));
    objects.iter().filter(|(_, about)| about.is_file()).count()
}

#[test]
fn a_removal_that_has_no_marker_yet_survives_a_kill_and_gets_one() {
    let place = Place::new();
    let dir = place.root().join("d");
    std::fs::create_dir(&dir).unwrap();
    for name in ["gone", "old", "shown"] {
        std::fs::write(dir.join(name), name).unwrap();
    }
    let markers = || backing_files(&place);
    let names = || -> Vec<_> {
        let entries = place.client().list("d").unwrap().into_iter();
        entries.map(|entry| entry.name).collect()
    };
    let no_problem = Vec::<String>::new();
    let bridge = Process::start(&place);
    let mut client = place.client();
    client.unlink("d/gone").unwrap();
    // That of a rename is there before anybody sees the rename: a drain that did not know of it would destroy what was renamed.
    client.rename("d/old", "d/new").unwrap();
    let seen = names();
    assert_eq!(markers(), 1);
    bridge.kill();
    let bridge = Process::start(&place);
    assert_eq!((markers(), names()), (1, seen.clone()), "calls do not wait");
    bridge.kill();
    // A check ends in order.
    assert_eq!(problems(&place, Options::default()), no_problem);
    assert_eq!(markers(), 3);
    let bridge = Process::start(&place);
    assert_eq!(names(), seen);
    place.client().unlink("d/shown").unwrap();
    assert_eq!(markers(), 3);
    let seen = names();
    bridge.end();
    assert_eq!(markers(), 4);
    std::fs::remove_dir_all(place.instance().join("meta")).unwrap();
    let rebuild = Options {
        rebuild: true,
        ..Options::default()
    };
    assert_eq!(problems(&place, rebuild), no_problem);
    let bridge = Process::start(&place);
    assert_eq!(names(), seen);
    bridge.end();
}

#[test]
fn a_marker_is_made_although_its_folder_has_gone_with_what_a_kill_left() {
    let place = Place::new();
    std::fs::write(place.root().join("gone"), "theirs").unwrap();
    let bridge = Process::start(&place);
    let mut client = place.client();
    // A file that nobody needs is all that keeps the folder.
    client
        .open("f", libc::O_CREAT | libc::O_WRONLY, 0o644)
        .unwrap();
    client.unlink("gone").unwrap();
    client.unlink("f").unwrap();
    bridge.kill();
    Process::start(&place).end();
    assert_eq!(backing_files(&place), 1, "the marker");
    assert_eq!(problems(&place, Options::default()), Vec::<String>::new());
}

#[test]
fn what_is_removed_with_its_directory_leaves_no_marker() {
    let place = Place::new();
    let dir = place.root().join("d");
    std::fs::create_dir(&dir).unwrap();
    for n in 0..100 {
        std::fs::write(dir.join(n.to_string()), "theirs").unwrap();
    }
    let bridge = Process::start(&place);
    let mut client = place.client();
    for n in 0..100 {
        client.unlink(format!("d/{n}")).unwrap();
    }
    client.rmdir("d").unwrap();
    bridge.end();
    assert_eq!(backing_files(&place), 1, "of the directory");
    assert_eq!(problems(&place, Options::default()), Vec::<String>::new());
    let tables = Rocks::open(&place.instance().join("meta")).unwrap();
    assert_eq!(tables.marks().unwrap(), Marks::default());
}

/// One client: steps of its own, and races with the others for names in `shared`.
fn work(
    place: &Place,
    n: usize,
    seed: u64,
    steps: &AtomicU64,
    ended: &AtomicBool,
) -> (Load, Vec<u64>) {
    let mut client = place.client();
    client.set_patience(Duration::from_secs(60));
    let mut load = Load::new(client, &format!("w{n}"), seed.wrapping_add(n as u64));
    let mut won = Vec::new();
    let exclusive = libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY;
    let mut next = 0;
    while !ended.load(Ordering::Relaxed) {
        load.step();
        if steps.fetch_add(1, Ordering::Relaxed).is_multiple_of(8) {
            next += 1;
            match load.client.open(format!("shared/{next}"), exclusive, 0o644) {
                Ok(_) => won.push(next),
                Err(e) => assert_eq!(e.errno(), Some(libc::EEXIST), "{e}"),
            }
        }
    }
    (load, won)
}
