//! Rules for ids and links that hold for all callers.

use super::*;
use forebay_core::facts::{Label, LabelParent};
use forebay_core::path::TreePath;
use forebay_core::record::Kind;
use std::path::PathBuf;

/// An instance directory, removed at the end.
struct Instance(PathBuf);

impl Instance {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("fby-objects-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir(&dir).unwrap();
        Instance(dir)
    }
    fn objects(&self, epoch: u32) -> Objects {
        Objects::open(&self.0, BridgeId(1), epoch, 0).unwrap()
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn file() -> NewObject {
    let (uid, gid) = sys::my_ids();
    NewObject {
        what: NewKind::File,
        label: Label {
            kind: Kind::File,
            parent: LabelParent::Lower(TreePath::root()),
            name: b"name".to_vec(),
            origin: None,
            hides: None,
        },
        mode: libc::S_IFREG | 0o600,
        uid,
        gid,
    }
}

#[test]
fn no_id_is_given_twice_and_none_is_0() {
    let instance = Instance::new("ids");
    let objects = instance.objects(1);
    let mut ids: Vec<_> = (0..8)
        .map(|_| objects.make(&file(), None, None).unwrap().fresh.object.oid)
        .collect();
    ids.dedup();
    assert_eq!(ids.len(), 8);
    assert!(ids.is_sorted() && ids[0] > ObjectId(0));
    assert!(
        objects.settled() <= ids[0].seq(),
        "no commit has named them yet"
    );
}

#[test]
#[should_panic(expected = "no object has the id 0")]
fn before_its_first_start_a_bridge_makes_no_object() {
    let instance = Instance::new("start");
    let _ = instance.objects(0).make(&file(), None, None);
}

#[test]
#[should_panic(expected = "is no further link of")]
fn a_link_belongs_to_its_object() {
    let instance = Instance::new("link");
    let objects = instance.objects(1);
    let [one, other] = [(); 2].map(|()| objects.make(&file(), None, None).unwrap().fresh.object);
    let _ = objects.make_link(one, objects.new_link(other), &file());
}
