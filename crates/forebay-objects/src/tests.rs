//! Rules for ids and links that hold for all callers.

use super::*;
use forebay_core::facts::{Attr, Judged, Label, LabelParent};
use forebay_core::markers::Unmade;
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
        let dir = std::fs::File::open(&self.0).unwrap();
        let labels = LabelsOf::best(dir.as_fd());
        Objects::open(&self.0, labels, BridgeId(1), epoch, 0).unwrap()
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
            renamed: None,
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
fn what_could_not_be_made_and_not_be_removed_stays_without_a_name_for_the_next_start() {
    let instance = Instance::new("stays");
    let objects = instance.objects(1);
    let made = objects.make(&file(), None, None).unwrap();
    objects.settle(&made);
    let seq = made.fresh.object.oid.seq();
    let folder = instance.0.join(format!("obj/{:x}", folder_of(seq)));
    let chattr = |flag: &str| {
        let mut command = std::process::Command::new("chattr");
        let outcome = command.arg(flag).arg(&folder).output();
        outcome.is_ok_and(|output| output.status.success())
    };
    let staged = NewObject {
        what: NewKind::Staged {
            lower: TreePath::root(),
            judged: Judged::new(&Attr::default()),
            bytes: 4,
        },
        ..file()
    };
    // Nothing can be read through it.
    let source = sys::open_path(&instance.0, libc::O_PATH).unwrap();
    let fails = || objects.make(&staged, None, Some(source.as_fd())).is_err();
    assert!(fails() && !objects.has_unnamed());
    if !chattr("+a") {
        return forebay_testkit::skip("only root can forbid removals, and not everywhere");
    }
    let failed = fails();
    assert!(chattr("-a"));
    assert!(failed && objects.has_unnamed());
    let all = objects.scan(0).unwrap();
    let is_left =
        |s: &&Scanned| matches!(s, Scanned::Object(o) if o.oid.seq() >= objects.settled());
    assert_eq!(all.iter().filter(is_left).count(), 1, "{all:?}");
    assert!(objects.settled() > seq);
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
                judged: Judged::new(&Attr::default()),
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

/// A file with these bytes, which no commit has named.
fn stray(objects: &Objects, bytes: &[u8]) -> ObjectName {
    use std::io::Write;
    let made = objects.make(&file(), Some(libc::O_WRONLY), None).unwrap();
    let mut fd = std::fs::File::from(made.fd.unwrap());
    fd.write_all(bytes).unwrap();
    made.fresh.object
}

fn quarantine_of(instance: &Instance) -> Quarantine {
    Quarantine::open(&instance.0).unwrap().unwrap()
}

#[test]
fn what_is_put_into_quarantine_is_no_object_any_more_and_is_listed_by_its_path() {
    let instance = Instance::new("withheld");
    let objects = instance.objects(1);
    assert!(Quarantine::open(&instance.0).unwrap().is_none());
    assert_eq!(objects.withheld(), Ok(Vec::new()));
    let [b, a, lost] = [&b"bytes of b"[..], b"a", b"lost"].map(|bytes| stray(&objects, bytes));
    for (object, path) in [(b, &b"d/b"[..]), (a, b"a"), (lost, b"../lost")] {
        objects.quarantine(object, path).unwrap();
        assert_eq!(objects.attr(object), Err(Errno::NOENT));
    }
    assert_eq!(objects.scan(0).unwrap(), []);
    let listed = objects.withheld().unwrap();
    assert_eq!(listed, quarantine_of(&instance).list().unwrap());
    let told: Vec<_> = listed
        .iter()
        .map(|file| (file.object, file.path.as_ref(), file.bytes))
        .collect();
    let path = |text: &str| TreePath::new(text).unwrap();
    assert_eq!(
        told,
        [
            (lost, None, 4),
            (a, Some(&path("a")), 1),
            (b, Some(&path("d/b")), 10),
        ]
    );
    assert_eq!(
        listed[0].path_or_lost(),
        forebay_core::repair::lost(lost),
        "one name stands for a lost path everywhere"
    );
    assert_eq!(
        parse_name(withheld_as(b).as_bytes()),
        Some((b, false)),
        "what people are shown leads back to the object"
    );
}

#[test]
fn a_second_recovery_puts_the_same_object_into_quarantine_again() {
    let instance = Instance::new("again");
    let objects = instance.objects(1);
    let object = stray(&objects, b"text");
    // The first one has lost its power between the text and the rename.
    objects.quarantine(object, b"first").unwrap();
    let within = instance.0.join("quarantine").join(withheld_as(object));
    let back = String::from_utf8(path_of_file(object)).unwrap();
    std::fs::rename(within, instance.0.join(back)).unwrap();
    assert_eq!(objects.withheld(), Ok(Vec::new()));
    objects.quarantine(object, b"at").unwrap();
    assert_eq!(objects.withheld().unwrap()[0].path, TreePath::new("at"));
}

#[test]
#[should_panic(expected = "only a file holds data")]
fn a_directory_is_never_put_into_quarantine() {
    let instance = Instance::new("no-dir");
    let objects = instance.objects(1);
    let dir = NewObject {
        what: NewKind::Dir,
        ..file()
    };
    let made = objects.make(&dir, None, None).unwrap();
    let _ = objects.quarantine(made.fresh.object, b"d");
}

#[test]
fn a_copy_out_of_quarantine_is_whole_or_is_not_there() {
    let instance = Instance::new("copy-out");
    let objects = instance.objects(1);
    let object = stray(&objects, b"text");
    objects.quarantine(object, b"at").unwrap();
    let quarantine = quarantine_of(&instance);
    // Its owner may not read it.
    let within = instance.0.join("quarantine").join(withheld_as(object));
    let mode = |mode| std::os::unix::fs::PermissionsExt::from_mode(mode);
    std::fs::set_permissions(&within, mode(0o200)).unwrap();
    let out = instance.0.join("out");
    std::fs::create_dir(&out).unwrap();
    let dir = sys::open_path(&out, libc::O_PATH | libc::O_DIRECTORY).unwrap();
    let copy = |name: &[u8]| quarantine.copy_out(object, dir.as_fd(), name);
    let long = [b'n'; 300];
    assert_eq!(copy(&long).unwrap_err().errno, Errno::NAMETOOLONG);
    assert_eq!(copy(b"copy"), Ok(Vec::new()));
    let exists = copy(b"copy").unwrap_err();
    assert_eq!((exists.operation, exists.errno), ("create", Errno::EXIST));
    let names: Vec<_> = std::fs::read_dir(&out).unwrap().flatten().collect();
    assert_eq!(names.len(), 1, "{names:?}");
    for path in [&within, &out.join("copy")] {
        let attr = sys::stat(dir.as_fd(), path.as_os_str().as_encoded_bytes()).unwrap();
        assert_eq!((attr.mode & 0o7777, attr.size), (0o200, 4));
    }
    quarantine.discard(object).unwrap();
    assert_eq!(quarantine.list(), Ok(Vec::new()));
    let again = quarantine.discard(object).unwrap_err();
    assert_eq!(again.errno, Errno::NOENT);
}

/// Alone in its process: a program that another test starts has the lock as well, between `fork` and `exec`.
#[test]
fn one_process_at_a_time_empties_a_quarantine() {
    let test = "tests::one_process_at_a_time_empties_a_quarantine";
    forebay_testkit::without_threads(test, || {
        let instance = Instance::new("lock");
        let objects = instance.objects(1);
        let object = stray(&objects, b"text");
        objects.quarantine(object, b"at").unwrap();
        let first = quarantine_of(&instance);
        first.lock().unwrap();
        let second = quarantine_of(&instance);
        assert_eq!(second.lock(), Err(Errno::WOULDBLOCK));
        // To look, and to add, takes no lock.
        assert_eq!(second.list().unwrap().len(), 1);
        objects
            .quarantine(stray(&objects, b"more"), b"more")
            .unwrap();
        drop(first);
        second.lock().unwrap();
    });
}

/// A label of this many bytes has no room in any inode.
fn too_long() -> Label {
    let mut label = file().label;
    let long = [&b"d/"[..]; 40_000].concat();
    label.origin = TreePath::new([&long[..], b"name"].concat());
    assert!(label.origin.is_some());
    label
}

#[test]
fn a_label_beside_its_object_is_replaced_whole_and_counts_only_when_it_is_there() {
    let instance = Instance::new("beside");
    let objects = instance.objects(1);
    let object = objects.make(&file(), None, None).unwrap().fresh.object;
    let first = objects.read_label(object).unwrap();
    // It can't be written: the one in the inode goes on to hold.
    std::fs::remove_dir(instance.0.join("label")).unwrap();
    assert!(objects.write_label(object, &too_long()).is_err());
    assert_eq!(objects.labels_beside(), []);
    assert_eq!(objects.read_label(object).unwrap(), first);
    std::fs::create_dir(instance.0.join("label")).unwrap();
    objects.write_label(object, &too_long()).unwrap();
    assert_eq!(objects.labels_beside(), [object]);
    // The old file is not written to.
    let name = Backing::name(object, false);
    let path = instance
        .0
        .join("label")
        .join(OsString::from_vec(name.to_vec()));
    let kept = instance.0.join("kept");
    std::fs::hard_link(&path, &kept).unwrap();
    let before = std::fs::read(&kept).unwrap();
    let mut second = too_long();
    second.name = b"other".to_vec();
    objects.write_label(object, &second).unwrap();
    assert_eq!(std::fs::read(&kept).unwrap(), before);
    assert_eq!(objects.read_label(object).unwrap(), Some(second));
    // What a life that was killed has begun is gone at the next start.
    std::fs::write(instance.0.join("label/.new-0"), "half").unwrap();
    let again = instance.objects(2);
    assert_eq!(again.labels_beside(), [object]);
    assert_eq!(
        std::fs::read_dir(instance.0.join("label")).unwrap().count(),
        1
    );
    again.write_label(object, &file().label).unwrap();
    assert_eq!(again.labels_beside(), []);
    assert_eq!(again.read_label(object).unwrap(), first);
}

#[test]
fn a_note_about_what_is_aside_is_there_once_and_nobody_else_may_look() {
    use std::os::unix::fs::MetadataExt;
    let instance = Instance::new("aside");
    let notes = PfsNotes::about_aside(&instance.0);
    assert_eq!(notes.names().unwrap().len(), 0);
    assert_eq!(notes.read(b"n").unwrap(), None);
    notes.write(b"n", b"text").unwrap();
    assert_eq!(notes.write(b"n", b"other"), Err(Errno::EXIST));
    assert_eq!(notes.read(b"n").unwrap().as_deref(), Some(&b"text"[..]));
    assert_eq!(notes.names().unwrap(), [b"n".to_vec()]);
    let mode = |name: &str| instance.0.join(name).metadata().unwrap().mode();
    assert_eq!(mode("aside") & 0o777, 0o700);
    assert_eq!(mode("aside/n") & 0o777, 0o600);
    notes.forget(b"n").unwrap();
    notes.forget(b"n").unwrap();
    assert_eq!(notes.read(b"n").unwrap(), None);
}

/// A drain tells by the change time whether a file has changed since it was copied.
#[test]
fn a_file_that_its_owner_may_not_read_keeps_its_change_time_when_it_is_written_out() {
    let test =
        "tests::a_file_that_its_owner_may_not_read_keeps_its_change_time_when_it_is_written_out";
    forebay_testkit::without_privileges(test, || {
        let instance = Instance::new("write-out");
        let objects = instance.objects(1);
        if objects.storage() != forebay_core::storage::StorageOrder::Ordered {
            return forebay_testkit::skip(
                "temporary files are not on a file system with a journal",
            );
        }
        let of_mode = |mode| NewObject {
            mode: libc::S_IFREG | mode,
            ..file()
        };
        let make = |mode| objects.make(&of_mode(mode), None, None).unwrap();
        let all = [0, 0o111, 0o200, 0o222, 0o600].map(|mode| make(mode).fresh.object);
        let times = || all.map(|object| objects.attr(object).unwrap().ctime);
        let before = times();
        // A change from now on gets another time.
        let now = || objects.attr(make(0o600).fresh.object).unwrap().ctime;
        while now() <= before[4] {}
        for object in all {
            objects.distrust_contents([object]);
            objects.write_out_own().unwrap();
        }
        objects.distrust_contents(all);
        objects.write_out_own().unwrap();
        assert_eq!(times(), before);
    });
}

#[test]
fn markers_wait_are_made_once_and_those_that_go_before_leave_nothing() {
    let instance = Instance::new("markers");
    let objects = instance.objects(1);
    let label = file().label;
    let count = || objects.scan(0).unwrap().len();
    let [made, gone, late] = [(); 3].map(|()| objects.new_marker());
    assert!(objects.mark_later(made) && !objects.mark_later(gone));
    assert_eq!((objects.unmade(), count()), (Unmade::New, 0));
    assert_eq!(objects.due_markers(9).len(), 2);
    // What comes now is not due before all that are have been tried.
    objects.mark_later(late);
    assert_eq!(objects.due_markers(9).len(), 2);
    objects.make_marker(made, &label).unwrap();
    assert_eq!(objects.retire(gone), Ok(Retired::Unmade));
    assert_eq!((objects.unmade(), count()), (Unmade::New, 1));
    assert_eq!(objects.read_label(made), Ok(Some(label.clone())));
    // One that could not be made waits as the new ones do.
    assert_eq!(objects.due_markers(9), [late]);
    objects.put_off_marker(late);
    assert_eq!(objects.unmade(), Unmade::New);
    // Once it has a file it is an object like any other, however often it is labelled.
    objects.make_marker(made, &label).unwrap();
    assert!(!objects.is_unmade(made) && objects.is_unmade(late));
    objects.remove(made).unwrap();
    objects.retire(late).unwrap();
    assert_eq!((objects.unmade(), count()), (Unmade::None, 0));
}
