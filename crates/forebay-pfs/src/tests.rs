//! What an open on the PFS does when neighbours change things.

use super::*;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

/// A PFS in a folder of its own, with something beside it.
struct Place(tempfile::TempDir, Lower);

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("pfs/d")).unwrap();
        fs::create_dir(dir.path().join("outside")).unwrap();
        let lower = Lower::open_root(&dir.path().join("pfs"), Some(false)).unwrap();
        Place(dir, lower)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

fn path(text: &str) -> TreePath {
    TreePath::new(text.as_bytes()).unwrap()
}

#[test]
#[should_panic(expected = "an open makes nothing on the PFS: made")]
fn an_open_that_would_make_a_file_is_a_broken_assertion() {
    let place = Place::new();
    let _ = place.1.open(&path("made"), libc::O_WRONLY | libc::O_CREAT);
}

#[test]
fn only_what_was_judged_is_opened() {
    let place = Place::new();
    let file = path("d/f");
    let open = |judged: &Judged, flags| place.1.open_judged(&file, judged, flags).map(drop);
    let look = || Judged::new(&place.1.attr(&file).unwrap().unwrap());
    fs::write(place.at("pfs/d/f"), "mine").unwrap();
    fs::write(place.at("pfs/d/g"), "not mine").unwrap();
    let judged = look();
    for flags in [libc::O_RDONLY, libc::O_RDWR, libc::O_PATH] {
        assert_eq!(open(&judged, flags), Ok(()));
    }
    // Another file has its name now: it is not even truncated.
    fs::rename(place.at("pfs/d/g"), place.at("pfs/d/f")).unwrap();
    for flags in [libc::O_RDONLY, libc::O_RDWR | libc::O_TRUNC, libc::O_PATH] {
        assert_eq!(open(&judged, flags), Err(Errno::NOENT));
    }
    assert_eq!(fs::read(place.at("pfs/d/f")).unwrap(), b"not mine");
    // The same file with other permissions.
    let judged = look();
    let mut permissions = fs::metadata(place.at("pfs/d/f")).unwrap().permissions();
    permissions.set_readonly(true);
    fs::set_permissions(place.at("pfs/d/f"), permissions).unwrap();
    assert_eq!(open(&judged, libc::O_RDONLY), Err(Errno::NOENT));
    // An open of a FIFO would wait for a writer.
    let judged = look();
    fs::remove_file(place.at("pfs/d/f")).unwrap();
    let dir = sys::open_path(&place.at("pfs/d"), libc::O_PATH).unwrap();
    sys::mknod(dir.as_fd(), b"f", libc::S_IFIFO | 0o600, 0).unwrap();
    assert_eq!(open(&judged, libc::O_RDONLY), Err(Errno::NOENT));
}

#[test]
fn no_look_leads_out_by_a_link() {
    let place = Place::new();
    fs::write(place.at("outside/secret"), "s").unwrap();
    symlink(place.at("outside"), place.at("pfs/d/l")).unwrap();
    assert_eq!(place.1.attr(&path("d/l/secret")), Ok(None));
    let link = place.1.attr(&path("d/l")).unwrap().unwrap();
    assert_eq!(link.mode & libc::S_IFMT, libc::S_IFLNK);
    assert_eq!(place.1.attr(&path("d/none")), Ok(None));
}

#[test]
fn a_drain_takes_back_its_own_times_of_a_directory_and_not_those_of_others() {
    let folder = tempfile::tempdir().unwrap();
    let lower = Lower::open_root(folder.path(), Some(false)).unwrap();
    let at = |sec| Timestamp { sec, nsec: 0 };
    let path = |name: &str| TreePath::new(name.as_bytes()).unwrap();
    let set = |name: &str, time| {
        let dir = lower.open(&path(name), libc::O_RDONLY).unwrap();
        sys::set_times(dir.as_fd(), b"", None, Some(time)).unwrap();
    };
    let act = |name: &str, file: &str| {
        let changing = lower.begin_act(&[path(name), path(name)]);
        std::fs::write(folder.path().join(name).join(file), "").unwrap();
        lower.end_act(changing);
    };
    let names = ["ours", "after", "between", "program"];
    for name in names {
        std::fs::create_dir(folder.path().join(name)).unwrap();
        set(name, at(1_000));
    }
    lower.times().begin_drain();
    for name in names {
        act(name, "one");
    }
    set("after", at(2_000));
    set("between", at(2_000));
    let look = |name| lower.attr(&path(name)).unwrap().unwrap();
    let (program, other) = (look("program"), look("ours"));
    lower.touch(&path("program"), Some(Identity::of_dir(&program)));
    let touched = lower.times().waits(&path("program"), &program).unwrap();
    // A directory that has got the path of the one that a program has changed has its own times.
    lower.touch(&path("ours"), Some(Identity::of_dir(&program)));
    assert_eq!(lower.times().waits(&path("ours"), &other), None);
    lower.flush_touches();
    for name in ["ours", "between", "program"] {
        act(name, "two");
    }
    lower
        .times()
        .end_drain(|dir| lower.open(dir, libc::O_RDONLY | libc::O_DIRECTORY));
    let mtime = |name| lower.attr(&path(name)).unwrap().unwrap().mtime;
    assert_eq!(mtime("ours"), at(1_000));
    assert_eq!(mtime("after"), at(2_000));
    assert_eq!(mtime("between"), at(2_000));
    assert!(mtime("program") >= touched);
}

/// Acts in one directory begin and end in each other's midst.
#[test]
fn acts_side_by_side_are_not_taken_for_changes_of_others() {
    let place = Place::new();
    let lower = &place.1;
    let dir = path("d");
    let before = lower.attr(&dir).unwrap().unwrap().mtime;
    lower.times().begin_drain();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (dir, at) = (&dir, place.at("pfs/d"));
            scope.spawn(move || {
                for n in 0..500 {
                    let changing = lower.begin_act(std::slice::from_ref(dir));
                    fs::write(at.join(format!("{thread}-{n}")), "").unwrap();
                    lower.end_act(changing);
                }
            });
        }
    });
    lower
        .times()
        .end_drain(|dir| lower.open(dir, libc::O_RDONLY | libc::O_DIRECTORY));
    assert_eq!(lower.attr(&dir).unwrap().unwrap().mtime, before);
}

#[test]
fn a_directory_at_the_path_of_one_that_the_drain_has_renamed_gets_its_own_time_back() {
    let place = Place::new();
    let lower = &place.1;
    let at = |sec| Timestamp { sec, nsec: 0 };
    for (name, sec) in [("one", 1_000), ("two", 2_000)] {
        fs::create_dir(place.at("pfs").join(name)).unwrap();
        let dir = lower.open(&path(name), libc::O_RDONLY).unwrap();
        sys::set_times(dir.as_fd(), b"", None, Some(at(sec))).unwrap();
    }
    let act = |dir: &str, work: &dyn Fn()| {
        let changing = lower.begin_act(&[path(dir)]);
        work();
        lower.end_act(changing);
    };
    let make = |file: &str| fs::write(place.at("pfs").join(file), "").unwrap();
    let rename = |from: &str, to: &str| {
        fs::rename(place.at("pfs").join(from), place.at("pfs").join(to)).unwrap();
    };
    lower.times().begin_drain();
    act("one", &|| make("one/a"));
    act("two", &|| make("two/a"));
    act("", &|| rename("one", "three"));
    act("", &|| rename("two", "one"));
    act("one", &|| make("one/b"));
    act("three", &|| make("three/b"));
    lower
        .times()
        .end_drain(|dir| lower.open(dir, libc::O_RDONLY | libc::O_DIRECTORY));
    let mtime = |name| lower.attr(&path(name)).unwrap().unwrap().mtime;
    assert_eq!((mtime("three"), mtime("one")), (at(1_000), at(2_000)));
}

#[test]
fn a_list_that_has_changed_is_seen_at_once_however_long_it_was_known() {
    /// A list that gives `rights` to user 1501, nothing to the group, and whose mask gives all.
    fn list(rights: u8) -> Vec<u8> {
        let entries = [(1, 6, [255; 4]), (2, rights, 1501u32.to_le_bytes())];
        let rest = [(4, 0, [255; 4]), (16, 7, [255; 4]), (32, 0, [255; 4])];
        let entries = entries.into_iter().chain(rest);
        let bytes = entries.flat_map(|(tag, rights, [a, b, c, d])| [tag, 0, rights, 0, a, b, c, d]);
        [2, 0, 0, 0].into_iter().chain(bytes).collect()
    }
    let place = Place::new();
    let file = path("d/f");
    fs::write(place.at("pfs/d/f"), "text").unwrap();
    let open = fs::File::options()
        .write(true)
        .open(place.at("pfs/d/f"))
        .unwrap();
    let asker = Cred {
        uid: 1501,
        gid: 1501,
        groups: Vec::new(),
    };
    for turn in 0..16u64 {
        let rights = [0, 4, 6, 2][turn as usize % 4];
        match sys::set_xattr(open.as_fd(), access_list::XATTR, &list(rights)) {
            Err(Errno::OPNOTSUPP) => {
                forebay_testkit::without_data("the temporary folder has no access control lists");
                return;
            }
            set => set.unwrap(),
        }
        // It is believed after a while, which ends at each change.
        for pause in [0, 60 * (turn % 3), 1] {
            std::thread::sleep(std::time::Duration::from_millis(pause));
            let attr = place.1.attr_in(&file, None, Some(&asker)).unwrap().unwrap();
            let granted = (0..8u8).filter(|want| attr.granted.unwrap() >> want & 1 == 1);
            assert!(granted.eq((0..8).filter(|want| rights & want == *want)));
        }
    }
}
