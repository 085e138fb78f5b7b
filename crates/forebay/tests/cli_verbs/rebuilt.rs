//! Tables that were made anew from the labels: what they say of the PFS is so, also if a drain was killed before that.

use crate::neighbours::{Scene, changed, holds, tree};
use crate::stage::{kill, wait_dead};
use std::collections::BTreeMap;
use std::fs;

#[test]
fn what_others_change_after_a_rebuild_is_not_touched() {
    for (outside, left) in [
        ("", &[][..]),
        (
            "echo theirs > f; echo more >> k; echo more >> d/a; echo new > was/new; echo theirs > m; echo theirs > n",
            &["d", "f", "k", "was"][..],
        ),
        ("rm n; echo theirs > d/new", &["d", "x"]),
    ] {
        let scene = Scene::new();
        scene.outside(
            "mkdir was e; echo k > k; echo m > m; echo n > n; echo e > e/f; echo l > d/left",
        );
        scene.inside(
            "echo ours >> f; rm k; mv d/left left; rm -r d; rm -r was; mkdir was; echo x > was/x;
            mv m m2; echo ours > m; mv n x; mv e e2; echo more >> e2/f",
        );
        rebuild(&scene);
        scene.outside(outside);
        let before = tree(&scene.pfs);
        let (code, said) = scene.drain(&[]);
        let listed = changed(&said);
        assert_eq!(
            code,
            if left.is_empty() { 0 } else { 75 },
            "{outside}: {said}"
        );
        assert_eq!(listed, left, "{outside}: {said}");
        let now = tree(&scene.pfs);
        // What they write to a renamed file goes with it.
        let is_theirs = |text: &&String| text.contains("theirs") || text.contains("more");
        for theirs in before.values().filter(is_theirs) {
            assert!(holds(&now, theirs), "{theirs}: {said}");
        }
        assert_eq!((&*now["e2/f"], &*now["left"]), ("e\nmore\n", "l\n"));
    }
}

#[test]
fn what_is_away_while_tables_are_rebuilt_is_listed_when_it_comes_back_and_can_be_settled() {
    for side in ["theirs", "ours"] {
        let scene = Scene::new();
        scene.outside("echo n > d/n");
        scene.inside("mv d/n x; rm d/a");
        scene.outside("mv d away");
        rebuild(&scene);
        scene.outside("mv away d");
        // The label of what was renamed tells what it was. That of what was removed does not.
        let (code, said) = scene.drain(&[]);
        assert_eq!((code, changed(&said)), (75, vec!["d/a"]), "{said}");
        let (code, said) = scene.drain(&["--take", side, "d/a"]);
        assert_eq!(code, 0, "{said}");
        let now = tree(&scene.pfs);
        assert_eq!(now["x"], "n\n", "{said}: {now:?}");
        assert_eq!(now.contains_key("d/a"), side == "theirs", "{said}: {now:?}");
    }
}

#[test]
fn what_is_removed_after_a_rebuild_is_no_conflict() {
    let scene = Scene::new();
    scene.outside("echo n > d/n; mkdir e; echo e > e/f");
    scene.inside("mv d/n x; rm d/a; mv e e2");
    rebuild(&scene);
    scene.inside("rm -r d; echo more >> e2/f");
    let (code, said) = scene.drain(&[]);
    assert_eq!(code, 0, "{said}");
    let now = tree(&scene.pfs);
    assert_eq!((&*now["x"], &*now["e2/f"]), ("n\n", "e\nmore\n"));
    assert!(!scene.pfs.join("d").exists());
}

fn rebuild(scene: &Scene) {
    let storage = scene.stage.path("storage").display().to_string();
    let fsck = ["fsck", "--storage", &storage, "--rebuild"];
    scene.stage.say(&fsck).ends_with(0).prints("nothing wrong");
}

/// It has its old path, and lies on the PFS in another directory that goes.
#[test]
fn what_was_renamed_to_its_old_path_is_known_after_a_rebuild() {
    for inside in [
        "mv d/a t; rm -r d; mkdir d; mv t d/a",
        "mkdir e; mv d/a e/a; rm -r d; mv -T e d",
    ] {
        for theirs in [false, true] {
            let scene = Scene::new();
            scene.inside(inside);
            rebuild(&scene);
            if theirs {
                scene.outside("rm d/a; echo theirs > d/a");
            }
            let (code, said) = scene.drain(&[]);
            assert_eq!(code, if theirs { 75 } else { 0 }, "{inside}: {said}");
            let now = tree(&scene.pfs);
            assert!(
                holds(&now, if theirs { "theirs\n" } else { "a\n" }),
                "{now:?}"
            );
            assert_eq!(now.contains_key("d/b"), theirs, "{inside}: {now:?}");
        }
    }
}

/// What is on the PFS, and what a program does.
const RENAMES: [(&str, &str, &str); 7] = [
    ("files exchanged", "echo A > x; echo B > y", "exchange x y"),
    (
        "directories exchanged",
        "mkdir x y; echo A > x/f; echo B > y/f",
        "exchange x y",
    ),
    (
        "one makes room for the next",
        "echo A > x; echo B > y; echo C > z",
        "mv z new; mv y z; mv x y",
    ),
    (
        "three in a ring",
        "echo A > x; echo B > y; mkdir z; echo C > z/f",
        "mv x t; mv y x; mv z y; mv t z",
    ),
    (
        "out of a directory and that into it",
        "mkdir -p x/y/z; echo A > x/y/z/f; echo B > x/g",
        "mv x/y/z t; mv x t/x; mv t x",
    ),
    (
        "something goes from what has come to the old place",
        "mkdir x m; echo A > x/g; echo B > m/g; echo C > m/h",
        "mv x z; mv m x; rm x/g",
    ),
    (
        "something new in each of two that are exchanged",
        "mkdir x y; echo A > x/f; echo B > y/f",
        "exchange x y; echo n > x/n; echo k > y/n",
    ),
];

const EXCHANGE: &str = "exchange() { python3 -c 'import ctypes, os, sys
names = [os.fsencode(name) for name in sys.argv[1:]]
sys.exit(ctypes.CDLL(None).renameat2(-100, names[0], -100, names[1], 2))' \"$1\" \"$2\"; }";

/// A drain is killed in a rename or at a label, at each that is the n-th of its thread, and when it has ended.
#[test]
fn what_a_killed_drain_has_renamed_is_found_by_labels_alone() {
    crate::common::need!("strace", "python3");
    for (name, before, inside) in RENAMES {
        let inside = format!("{EXCHANGE}; {inside}");
        let expected = {
            let scene = Scene::new();
            scene.outside(before);
            scene.outside(&inside);
            tree(&scene.pfs)
        };
        for calls in ["renameat,renameat2", "setxattr,fsetxattr"] {
            let dies = |at: &u32| dies_and_is_rebuilt(name, before, &inside, calls, *at, &expected);
            let kills = (1..).take_while(dies).count();
            assert!(kills > 0, "{name}: killed {kills} times in {calls}");
        }
    }
}

/// False if the drain had ended before the call with this number; then the bridge is killed after it.
fn dies_and_is_rebuilt(
    name: &str,
    before: &str,
    inside: &str,
    calls: &str,
    at: u32,
    expected: &BTreeMap<String, String>,
) -> bool {
    let scene = Scene::new();
    scene.outside(before);
    let up = ["up", "--buffer", scene.root()];
    scene.stage.say(&up).ends_with(0);
    scene.inside(inside);
    // At the end of a bridge all that was removed is on the disk.
    let down = ["down", "--no-drain", "--buffer", scene.root()];
    scene.stage.say(&down).ends_with(0);
    scene.stage.say(&up).ends_with(0);
    let is_killed = scene.is_killed_in_drain(calls, at);
    if !is_killed {
        let bridge = scene.stage.bridge_pid();
        kill("KILL", bridge);
        wait_dead(bridge);
    }
    let mut instances = fs::read_dir(scene.stage.path("storage")).unwrap();
    fs::remove_dir_all(instances.next().unwrap().unwrap().path().join("meta")).unwrap();
    rebuild(&scene);
    let (code, said) = scene.drain(&[]);
    let mut now = tree(&scene.pfs);
    // Temporary names of a killed drain are not known any more.
    now.retain(|path, _| !path.ends_with(".tmp"));
    for text in expected.values() {
        assert!(
            holds(&now, text),
            "{name}, {calls} {at}: {text} is lost: {said}"
        );
    }
    assert_eq!(&now, expected, "{name}, {calls} {at}: {said}");
    // No label tells which copies are on the PFS.
    let has_appeared = code == 75 && said.contains("something else has appeared there");
    let is_right = code == 0 || has_appeared && name.starts_with("something new");
    assert!(is_right, "{name}, {calls} {at}: {said}");
    is_killed
}
