//! A drain brings everything over, and one that was cut short anywhere can be done again.

use super::scene::{Bridge, Scene, Work, assert_same, one_by_one, tree_of, view_of};
use forebay_admin::drain::{DrainRequest, DrainState};
use forebay_client::Client;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicI64, Ordering};

/// Directories that the script makes.
const BORN: [&str; 5] = ["new", "new/deep", "new/deep/er", "was", "a"];

fn below(scene: &Scene) {
    scene.below("keep", "stays as it is");
    scene.below("change", "old text");
    scene.below("gone", "to be removed");
    scene.below("a", "a file that becomes a directory");
    scene.below("dir/one", "1");
    scene.below("dir/two", "2");
    scene.below("dir/sub/three", "3");
    scene.below("d1/x", "x of d1");
    scene.below("d2/y", "y of d2");
    scene.below("swap1", "first");
    scene.below("swap2", "second");
    scene.below("full/of/things", "!");
    scene.below("full/more", "?");
    scene.below("was/dir", "goes away");
}

/// Everything that a program can do to names and contents.
fn script(c: &mut Client) {
    c.write("change", "new text, longer");
    c.unlink("gone").unwrap();
    c.mkdir("new", 0o750).unwrap();
    c.mkdir("new/deep", 0o700).unwrap();
    c.mkdir("new/deep/er", 0o711).unwrap();
    c.write("new/f", "file in a new directory");
    c.write("new/deep/g", "");
    c.write("new/deep/er/h", &"0123456789".repeat(40_000));
    c.symlink("../keep", "new/link").unwrap();
    c.mknod("new/pipe", libc::S_IFIFO | 0o620, 0).unwrap();
    c.link("new/f", "new/deep/hard").unwrap();
    c.link("new/f", "dir/hard").unwrap();
    // What was renamed into a new directory, and a chain.
    c.rename("dir/one", "new/one").unwrap();
    c.rename("dir/two", "dir/three").unwrap();
    c.rename("dir/sub", "new/deep/sub").unwrap();
    c.write("new/deep/sub/added", "in a directory of the PFS that moved");
    // Two directories and two files change places.
    c.rename("d1", "tmp").unwrap();
    c.rename("d2", "d1").unwrap();
    c.rename("tmp", "d2").unwrap();
    c.rename("swap1", "tmp").unwrap();
    c.rename("swap2", "swap1").unwrap();
    c.rename("tmp", "swap2").unwrap();
    // A file becomes a directory; a directory goes with all that is in it; one is made anew.
    c.unlink("a").unwrap();
    c.mkdir("a", 0o755).unwrap();
    c.write("a/b", "below what was a file");
    c.unlink("full/of/things").unwrap();
    c.rmdir("full/of").unwrap();
    c.unlink("full/more").unwrap();
    c.rmdir("full").unwrap();
    c.write("full", "was a directory");
    c.unlink("was/dir").unwrap();
    c.rmdir("was").unwrap();
    c.mkdir("was", 0o700).unwrap();
    c.chmod("new/deep/g", 0o400);
    for (second, dir) in BORN.into_iter().enumerate() {
        c.age(dir, 100 + second as u64);
    }
}

struct Outcome {
    scene: Scene,
    bridge: Bridge,
    view: super::scene::Tree,
}

fn played() -> Outcome {
    let scene = Scene::new();
    below(&scene);
    let bridge = scene.serve();
    let mut client = bridge.client();
    script(&mut client);
    // Reading is not what changes a time that is compared.
    let view = view_of(&mut client, &BORN);
    Outcome {
        scene,
        bridge,
        view,
    }
}

#[test]
fn after_a_drain_the_pfs_shows_what_the_buffer_showed() {
    let Outcome {
        scene,
        bridge,
        view,
    } = played();
    assert!(bridge.inventory().is_dirty());
    let (status, left) = bridge.drain(&DrainRequest::default());
    assert_eq!(left, []);
    assert_eq!(status.state, DrainState::Done);
    assert!(status.released, "{status:?}");
    assert_eq!(status.files_drained, status.files_total);
    assert_eq!(status.bytes_done, status.bytes_verified);
    assert_eq!(status.bytes_done, status.bytes_drained);
    assert_same("PFS", &view, &tree_of(&scene.pfs(), &BORN));
    assert_same("buffer", &view, &view_of(&mut bridge.client(), &BORN));
    assert!(!bridge.inventory().is_dirty());
    assert_eq!(bridge.inventory().clean_files, 0);
}

#[test]
fn a_drain_that_keeps_the_copies_leaves_them_clean_and_a_second_one_does_nothing() {
    let Outcome {
        scene,
        bridge,
        view,
    } = played();
    let keep = DrainRequest {
        keep: true,
        ..DrainRequest::default()
    };
    let (status, left) = bridge.drain(&keep);
    assert_eq!(left, []);
    assert!(!status.released);
    assert!(!bridge.inventory().is_dirty(), "{:?}", bridge.inventory());
    assert_same("PFS", &view, &tree_of(&scene.pfs(), &BORN));
    assert_same("buffer", &view, &view_of(&mut bridge.client(), &BORN));
    // Also after a restart.
    let bridge = bridge.restart(&scene);
    let (status, left) = bridge.drain(&keep);
    assert_eq!(left, []);
    assert_eq!(
        (
            status.files_total,
            status.renamed,
            status.removed,
            status.dirs
        ),
        (0, 0, 0, 0)
    );
    // What changes again is dirty again, alone.
    let mut client = bridge.client();
    client.write("new/f", "third version");
    client.age("new", 100);
    assert_eq!(bridge.inventory().dirty_files, 1);
    let view = view_of(&mut client, &BORN);
    let (status, left) = bridge.drain(&DrainRequest::default());
    assert_eq!(left, []);
    assert_eq!(status.files_drained, 1);
    assert!(status.released);
    assert_same("PFS", &view, &tree_of(&scene.pfs(), &BORN));
    assert_same("buffer", &view, &view_of(&mut client, &BORN));
}

/// Cuts a drain at a point and does it again; false if it came to its end before that point.
fn survives_a_cut_at(point: i64) -> bool {
    let Outcome {
        scene,
        bridge,
        view,
    } = played();
    let (ended, ..) = bridge.drain_until(point, &one_by_one());
    let bridge = bridge.restart(&scene);
    let now = view_of(&mut bridge.client(), &BORN);
    assert_same(
        &format!("buffer after restart, cut at {point}"),
        &view,
        &now,
    );
    let (_, left) = bridge.drain(&one_by_one());
    assert_eq!(left, [], "cut at {point}");
    let found = tree_of(&scene.pfs(), &BORN);
    assert_same(&format!("PFS, cut at {point}"), &view, &found);
    !ended
}

#[test]
fn a_drain_that_ends_at_any_point_can_be_done_again() {
    let next = AtomicI64::new(0);
    let cuts: i64 = std::thread::scope(|scope| {
        // They mostly wait for the disk.
        let threads: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    let mut cuts = 0;
                    while survives_a_cut_at(next.fetch_add(1, Ordering::Relaxed)) {
                        cuts += 1;
                    }
                    cuts
                })
            })
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).sum()
    });
    assert!(cuts > 40, "only {cuts} points");
}

/// A name of a file goes with a directory that is put aside, and another one by itself: that changes the time of change of the first.
#[test]
fn a_drain_that_ends_between_two_names_of_a_file_gives_no_removed_directory_back() {
    let mut point = 0;
    loop {
        let scene = Scene::new();
        for path in ["gone/in/a", "gone/b", "other/stays"] {
            scene.below(path, path);
        }
        let link = |from: &str, to: &str| {
            fs::hard_link(scene.pfs().join(from), scene.pfs().join(to)).unwrap();
        };
        link("gone/in/a", "other/a");
        link("gone/b", "other/b");
        link("gone/b", "gone/in/b");
        let bridge = scene.serve();
        let mut client = bridge.client();
        for path in ["gone/in/a", "gone/in/b", "gone/b", "other/a"] {
            client.unlink(path).unwrap();
        }
        client.rename("other/b", "other/c").unwrap();
        client.rmdir("gone/in").unwrap();
        client.rmdir("gone").unwrap();
        client.write("gone", "it is a file now");
        let (ended, ..) = bridge.drain_until(point, &one_by_one());
        let bridge = bridge.restart(&scene);
        let (_, left) = bridge.drain(&one_by_one());
        let found = tree_of(&scene.pfs(), &BORN).into_keys();
        assert_eq!(
            found.collect::<Vec<_>>(),
            ["gone", "other", "other/c", "other/stays"],
            "cut at {point}"
        );
        assert_eq!(left, [], "cut at {point}");
        let stored = forebay_testkit::entries_below(&scene.dir.join("storage"));
        let is_note = |path: &Path| path.ends_with("touched/files");
        assert!(
            !stored.into_iter().any(|(path, _)| is_note(&path)),
            "cut at {point}"
        );
        if ended {
            break;
        }
        point += 1;
    }
    assert!(point > 10, "only {point} points");
}
