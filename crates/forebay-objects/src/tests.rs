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

#[test]
fn a_copy_has_all_extended_attributes_of_its_source_or_is_not_made() {
    let instance = Instance::new("xattrs");
    let objects = instance.objects(1);
    // tmpfs takes more than ext4 does.
    let path = format!("/dev/shm/fby-objects-source-{}", std::process::id());
    std::fs::write(&path, "text").unwrap();
    let source = sys::open_path(Path::new(&path), libc::O_RDWR);
    std::fs::remove_file(&path).unwrap();
    let source = source.unwrap();
    let other = std::fs::File::create(instance.0.join("other")).unwrap();
    for bytes in [100, 30_000] {
        let value = vec![b'v'; bytes];
        sys::set_xattr(source.as_fd(), b"user.t", &value).unwrap();
        let is_taken = sys::set_xattr(other.as_fd(), b"user.t", &value).is_ok();
        let staged = NewObject {
            what: NewKind::Staged {
                lower: TreePath::root(),
                bytes: 4,
            },
            ..file()
        };
        let made = objects.make(&staged, None, Some(source.as_fd()));
        assert_eq!(
            made.as_ref().err(),
            (!is_taken).then_some(&Errno::OPNOTSUPP),
            "{bytes} bytes"
        );
        if let Ok(made) = made {
            let copy = objects
                .open_file(made.fresh.object, libc::O_RDONLY)
                .unwrap();
            assert_eq!(sys::get_xattr(copy.as_fd(), b"user.t"), Ok(Some(value)));
        }
    }
}
