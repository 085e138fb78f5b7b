//! A drain to a file system on which calls fail: nothing is lost, nothing is left over, and what it says is so.

mod common;

use common::{Scene, forebay, is_possible};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

const FILES: u64 = 40;
/// What `forebay drain` says with its exit status when something is left.
const LEFT: i32 = 75;

/// All files below a directory: what each holds.
fn files(dir: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(dir).expect("a directory") {
        let entry = entry.expect("an entry");
        let name = entry.file_name().into_string().expect("text");
        let kind = entry.file_type().expect("a type");
        if kind.is_dir() {
            let below = files(&entry.path()).into_iter();
            found.extend(below.map(|(path, text)| (format!("{name}/{path}"), text)));
        } else if !kind.is_symlink() {
            // A link is the lock of a buffer that still holds something.
            found.insert(name, fs::read_to_string(entry.path()).expect("text"));
        }
    }
    found
}

#[test]
fn of_a_drain_while_calls_fail_nothing_is_left_over_and_nothing_is_lost() {
    forebay_testkit::skip_unless!(
        is_possible(),
        "this needs root, FUSE and {}",
        forebay().display()
    );
    let mut scene = Scene::new("failing");
    let mut made = BTreeMap::new();
    let (mut whole, mut parts) = (0, 0);
    // Of so many calls one fails, so that now this and now that does.
    for every in [2, 3, 5, 7, 11, 13, 29, 31, 97, 101] {
        for dir in ["d", "d/e"] {
            for n in 0..FILES {
                made.insert(format!("{dir}/{n}"), format!("{every} {n}\n"));
            }
        }
        let make = format!(
            "mkdir -p d/e; for d in d d/e; do for n in $(seq 0 {}); do echo {every} $n > $d/$n; done; done",
            FILES - 1
        );
        scene.run(&make);
        for _ in 0..3 {
            scene.pfs.set_weather(&format!("eio {every}"));
            let drained = scene.forebay("drain").output().expect("it starts");
            scene.pfs.set_weather("ok");
            let there = files(&scene.buffer);
            match drained.status.code() {
                Some(0) => {
                    assert_eq!(there, made, "{drained:?}");
                    whole += 1;
                }
                // Without the PFS it may not even begin.
                Some(LEFT | 1) => parts += 1,
                _ => panic!("{drained:?}"),
            }
        }
        let drained = scene.forebay("drain").output().expect("it starts");
        assert!(drained.status.success(), "{drained:?}");
        assert_eq!(files(&scene.buffer), made, "{drained:?}");
    }
    let came = scene.pfs.unmount();
    assert_eq!(came["unsynced_files"], 0, "{came}");
    println!("{whole} drains have brought everything, {parts} not");
    assert!(parts > 0, "calls fail");
}
