//! Somebody on the PFS puts files of their own in place of the copies of a drain, before these have got their names.

use super::scene::{Bridge, Scene, Work, one_by_one, tree_of, view_of};
use forebay_core::drain::is_leftover;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// How the copy goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Swap {
    /// It is replaced.
    Over,
    /// It gets another name, and theirs takes its place.
    Aside,
    /// It gets another name, and nothing takes its place.
    Away,
}

/// All temporary names that are on the PFS.
fn temporary_names(root: &Path) -> Vec<PathBuf> {
    let all = forebay_testkit::entries_below(root).into_iter();
    let left = all.filter(|(path, meta)| {
        let name = path.file_name().unwrap_or_default();
        !meta.is_dir() && is_leftover(name.as_bytes())
    });
    left.map(|(path, _)| root.join(path)).collect()
}

/// Puts something in place of each copy, or nothing; what it holds.
fn swap(root: &Path, how: Swap, number: &AtomicUsize) -> Vec<Option<String>> {
    let mut put = Vec::new();
    for copy in temporary_names(root) {
        let text = format!("theirs {}", number.fetch_add(1, Ordering::Relaxed));
        let at = |end: &str| root.join("theirs").join(text.clone() + end);
        if how != Swap::Over {
            fs::rename(&copy, at(" copy")).unwrap();
        }
        if how != Swap::Away {
            fs::write(at(""), &text).unwrap();
            fs::rename(at(""), &copy).unwrap();
        }
        put.push((how != Swap::Away).then_some(text));
    }
    put
}

/// What the files below hold.
fn texts(root: &Path) -> BTreeSet<String> {
    let things = tree_of(root, &[]).into_values();
    things
        .map(|thing| String::from_utf8(thing.contents).unwrap())
        .collect()
}

/// Nothing else is in their directory, nor has such a name.
fn is_of_others(path: &str) -> bool {
    path.starts_with("theirs") || path.split('/').any(|name| is_leftover(name.as_bytes()))
}

/// One drain, at this point of which the copies are swapped; `None` if it came to its end before, else how many were.
fn swapped_at(point: i64, how: Swap) -> Option<usize> {
    let what = format!("{how:?} at point {point}");
    let scene = Scene::new();
    for path in ["old", "d/old"] {
        scene.below(path, &format!("before {path}"));
    }
    fs::create_dir(scene.pfs().join("theirs")).unwrap();
    let bridge: Bridge = scene.serve();
    let mut client = bridge.client();
    for path in ["old", "d/old", "new", "d/new"] {
        client.write(path, &format!("ours {path}"));
    }
    client.link("new", "d/linked").unwrap();
    client.symlink("ours to", "link").unwrap();
    let view = view_of(&mut client, &[]);
    drop(client);
    let put = Arc::new(Mutex::new(None));
    let (root, number, puts) = (scene.pfs(), AtomicUsize::new(0), put.clone());
    let then = move || *puts.lock().unwrap() = Some(swap(&root, how, &number));
    let (status, left) = bridge.drain_while(point, then, &one_by_one());
    let put = put.lock().unwrap().take()?;
    assert_eq!(left, [], "{what}: the copies are made again");
    assert_eq!(status.kept_because, None, "{what}");
    let check = |when: &str| {
        let shown = view_of(&mut bridge.client(), &[]);
        let mut after = tree_of(&scene.pfs(), &[]);
        after.retain(|path, _| !is_of_others(path));
        for (path, thing) in view.iter().filter(|(path, _)| !is_of_others(path)) {
            assert_eq!(
                shown[path].contents, thing.contents,
                "{what}, {when}: {path}"
            );
            assert_eq!(
                after[path].contents, thing.contents,
                "{what}, {when}: {path}"
            );
        }
        let names = after.keys().filter(|path| !view.contains_key(*path));
        assert_eq!(
            names.collect::<Vec<_>>(),
            [] as [&String; 0],
            "{what}, {when}"
        );
    };
    check("after the drain");
    // Under a temporary name it stays for as long as no drain sweeps what earlier ones have left.
    let kept = texts(&scene.pfs());
    for text in put.iter().flatten() {
        assert!(kept.contains(text), "{what}: {text} is gone");
    }
    let (_, left) = bridge.drain(&one_by_one());
    assert_eq!(left, [], "{what}");
    check("after the next drain");
    Some(put.len())
}

#[test]
fn what_others_put_in_place_of_copies_at_any_point_of_a_drain_is_not_called_drained_and_not_removed()
 {
    std::thread::scope(|scope| {
        for how in [Swap::Over, Swap::Aside, Swap::Away] {
            scope.spawn(move || {
                let counts: Vec<_> = (0..).map_while(|point| swapped_at(point, how)).collect();
                let swapped = counts.iter().filter(|n| **n > 0).count();
                assert!(counts.len() > 20, "{how:?}: {} points", counts.len());
                assert!(swapped > 3, "{how:?}: at {swapped} points there was a copy");
            });
        }
    });
}
