//! What a drain says is synced was synced, on a file system that is never told of a `syncfs`.

mod common;

use common::{Scene, is_possible};
use forebay_testkit::built::forebay;

const FILES: u64 = 100;

#[test]
fn each_file_and_each_directory_is_synced_where_nothing_is_known_of_syncfs() {
    forebay_testkit::skip_unless!(
        is_possible(),
        "this needs root, FUSE and {}",
        forebay().display()
    );
    let mut scene = Scene::new("synced", &[]);
    let make = format!("mkdir d d/e; for n in $(seq {FILES}); do echo $n > d/e/f$n; done");
    scene.run(&make);
    let drained = scene.forebay("drain").output().expect("it starts");
    assert!(drained.status.success(), "{drained:?}");
    let said = String::from_utf8_lossy(&drained.stdout);
    assert!(said.contains("fsync of each file and directory"), "{said}");
    let came = scene.pfs.unmount();
    let calls = |name: &str| came["calls"][name].as_u64().unwrap_or(0);
    assert_eq!(came["unsynced_files"], 0, "{came}");
    // The lock, which the bridge that ends moves aside and removes, once after the run and once after the drain.
    assert_eq!(came["named_unsynced"], 2, "{came}");
    // That of the stand-in itself, in which this test has made the buffer; and the buffer, since the lock went.
    assert_eq!(came["unsynced_dirs"], 2, "{came}");
    assert!(calls("fsyncdir") >= 3, "{came}");
    assert_eq!(calls("fsync"), FILES, "{came}");
}
