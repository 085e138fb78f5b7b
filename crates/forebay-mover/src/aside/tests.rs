//! Directories that go aside, and what comes back of them.

use super::*;
use crate::pfs_acts;
use crate::{known, leftovers};
use forebay_core::drain::{self, discarded_name, is_aside};
use forebay_core::identity::Identity;
use forebay_core::record::ObjectId;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A tree with the directory `up/d`, on this file system.
struct Scene {
    folder: tempfile::TempDir,
    lower: Lower,
    _storage: tempfile::TempDir,
    notes: PfsNotes,
    touched: Touched,
    counters: Counters,
}

/// On the file system of the temporary files, and in memory.
fn scenes() -> Vec<Scene> {
    let dirs = [std::env::temp_dir(), PathBuf::from("/dev/shm")];
    let dirs = dirs.iter().filter(|dir| dir.is_dir());
    dirs.map(|dir| Scene::new(dir)).collect()
}

impl Scene {
    fn new(dir: &Path) -> Scene {
        let folder = tempfile::tempdir_in(dir).unwrap();
        let storage = tempfile::tempdir().unwrap();
        let scene = Scene {
            notes: PfsNotes::about_aside(storage.path()),
            touched: Touched::noted(PfsNotes::about_touched(storage.path())),
            _storage: storage,
            lower: Lower::open_root(folder.path(), Some(false)).unwrap(),
            folder,
            counters: Counters::new(1),
        };
        for name in ["up/d/old", "up/d/s/a", "up/d/s/b", "up/d/t/c"] {
            scene.write(name);
        }
        scene
    }

    /// As the next drain finds it if this one is killed.
    fn killed(self) -> Scene {
        let touched = Touched::noted(PfsNotes::about_touched(self._storage.path()));
        Scene { touched, ..self }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str) {
        fs::create_dir_all(self.at(name).parent().unwrap()).unwrap();
        fs::write(self.at(name), name).unwrap();
    }

    fn rename(&self, from: &TreePath, to: &TreePath, is: Identity) -> drain::Work<()> {
        let (lower, notes) = (&self.lower, &self.notes);
        pfs_acts::rename(
            lower,
            notes,
            [from, to],
            is,
            [None; 2],
            &self.touched,
            &self.counters,
        )
    }

    fn discard(&self, path: &str) {
        self.discard_what(path, None).unwrap();
    }

    fn discard_what(&self, path: &str, is: Option<Identity>) -> drain::Work<()> {
        let aside = TreePath::root().join(&discarded_name(ObjectId(7)));
        let path = TreePath::new(path).unwrap();
        let removal = pfs_acts::Removal {
            lower: &self.lower,
            notes: &self.notes,
            touched: &self.touched,
            counters: &self.counters,
            is_lent: false,
        };
        removal.discard(&path, is, &aside, None)
    }

    /// Puts `up/d` aside in its own directory.
    fn put_beside(&self) -> TreePath {
        let [up, path] = ["up", "up/d"].map(|path| TreePath::new(path).unwrap());
        let ino = sys::stat(self.lower.root(), b"up/d").unwrap().ino;
        let aside = up.join(&discarded_name(ObjectId(7)));
        let dir = pfs::parent(&self.lower, &path).unwrap();
        let going = GoingDir {
            dir: dir.as_fd(),
            path: &path,
            ino,
            within: None,
        };
        let put = put(&self.lower, &self.notes, &going, &aside, || Ok(()));
        assert!(put.is_ok_and(|at| at == aside));
        aside
    }

    fn known(&self, path: &str) -> Option<Identity> {
        let path = TreePath::new(path).unwrap();
        Some(
            known::know(&self.lower, &path, &BTreeSet::new(), false)
                .unwrap()
                .is,
        )
    }

    /// What is aside, as others reach it who are in it.
    fn aside(&self) -> PathBuf {
        let all = fs::read_dir(self.folder.path()).unwrap();
        let mut paths = all.map(|entry| entry.unwrap().path());
        let is = |path: &PathBuf| is_aside(path.file_name().unwrap().as_encoded_bytes());
        paths.find(is).unwrap()
    }

    fn forget_gone(&self) {
        forget_gone(&self.lower, &self.notes, &self.touched);
    }

    fn has_notes(&self) -> bool {
        !self.notes.names().unwrap().is_empty()
    }

    /// Sweeps. All files are listed after it.
    fn sweep(&self) -> Vec<String> {
        leftovers::sweep(
            &self.lower,
            &self.notes,
            &TreePath::root(),
            None,
            &self.touched,
            &self.counters,
        )
        .unwrap();
        self.forget_gone();
        assert_eq!(self.counters.status().remarks, [""; 0]);
        let mut found = Vec::new();
        let mut dirs = vec![self.folder.path().to_owned()];
        while let Some(dir) = dirs.pop() {
            for entry in fs::read_dir(dir).unwrap() {
                let path = entry.unwrap().path();
                let name = path.strip_prefix(self.folder.path()).unwrap();
                match path.is_dir() && !path.is_symlink() {
                    true => dirs.push(path),
                    false => found.push(name.display().to_string()),
                }
            }
        }
        found.sort();
        found
    }
}

#[test]
fn what_others_put_into_it_after_it_was_known_stays() {
    for scene in scenes() {
        let known = scene.known("up/d");
        scene.write("up/d/s/late");
        let refused = scene.discard_what("up/d", known).unwrap_err();
        assert_eq!(refused.errno, libc::EEXIST);
        assert!(scene.at("up/d/s/late").exists());
        let names = scene.sweep();
        assert!(
            !names.iter().any(|name| name.contains(".forebay")),
            "{names:?}"
        );
    }
}

#[test]
fn what_others_put_into_it_while_it_is_put_aside_is_not_removed() {
    for scene in scenes() {
        let known = scene.known("up/d");
        std::thread::scope(|scope| {
            let late = scope.spawn(|| {
                // As soon as the drain reads the clock, or the directory is gone.
                let has_begun = || {
                    let mut all = fs::read_dir(scene.folder.path()).unwrap();
                    all.any(|e| {
                        e.unwrap()
                            .file_name()
                            .as_encoded_bytes()
                            .starts_with(b".forebay")
                    })
                };
                while !has_begun() && scene.at("up/d").exists() {}
                fs::write(scene.at("up/d/s/late"), "late").is_ok()
            });
            let outcome = scene.discard_what("up/d", known);
            let names = scene.sweep();
            let is_made = late.join().unwrap();
            let is_there = names.iter().any(|name| name.ends_with("/late"));
            assert!(!is_made || is_there, "{outcome:?}: {names:?}");
        });
    }
}

#[test]
fn what_is_older_than_the_moment_goes_with_the_note() {
    for scene in scenes() {
        scene.discard("up/d");
        assert!(scene.aside().join("s/a").exists());
        assert_eq!(scene.sweep(), [""; 0]);
        assert!(scene.counters.take_back_list().is_empty());
        assert_eq!(fs::read_dir(scene.folder.path()).unwrap().count(), 1);
    }
}

#[test]
fn what_others_put_into_it_or_change_in_it_or_move_to_it_comes_back() {
    for scene in scenes() {
        scene.write("other/deep/theirs");
        scene.write("file");
        scene.discard("up/d");
        let aside = scene.aside();
        fs::write(aside.join("s/new"), "new").unwrap();
        fs::write(aside.join("t/c"), "changed").unwrap();
        fs::rename(scene.at("other"), aside.join("other")).unwrap();
        fs::rename(scene.at("file"), aside.join("file")).unwrap();
        fs::create_dir(aside.join("s/empty")).unwrap();
        let left = scene.sweep();
        let expected = ["file", "other/deep/theirs", "s/new", "t/c"];
        assert_eq!(left, expected.map(|name| format!("up/d/{name}")));
        assert!(scene.at("up/d/s/empty").is_dir());
        let back = scene.counters.take_back_list();
        assert_eq!(back, [TreePath::new("up/d").unwrap()]);
    }
}

#[test]
fn a_directory_that_others_move_there_and_add_to_comes_back_with_what_it_held() {
    for scene in scenes() {
        scene.write("other/deep/old");
        scene.write("other/old");
        let known = scene.known("up/d");
        scene.discard_what("up/d", known).unwrap();
        let aside = scene.aside();
        fs::rename(scene.at("other"), aside.join("s/other")).unwrap();
        fs::write(aside.join("s/other/new"), "new").unwrap();
        fs::write(aside.join("t/late"), "late").unwrap();
        let left = scene.sweep();
        let expected = ["s/other/deep/old", "s/other/new", "s/other/old", "t/late"];
        assert_eq!(left, expected.map(|name| format!("up/d/{name}")));
    }
}

#[test]
fn what_comes_back_replaces_nothing_and_finds_a_place_without_its_directory() {
    for scene in scenes() {
        for (taken, place) in [
            ("up/d", "up/d.theirs1"),
            ("up", "d.theirs1"),
            ("up/", "d.theirs2"),
        ] {
            if !scene.at("up/d").is_dir() {
                scene.write("up/d/again");
            }
            scene.discard("up/d");
            fs::write(scene.aside().join("new"), "new").unwrap();
            match taken {
                "up/d" => fs::write(scene.at("up/d"), "other").unwrap(),
                _ => fs::remove_dir_all(scene.at("up")).unwrap(),
            }
            let left = scene.sweep();
            assert!(left.contains(&format!("{place}/new")), "{left:?}");
            let back = scene.counters.take_back_list();
            assert_eq!(back, [TreePath::new(place).unwrap()]);
            if taken == "up/d" {
                fs::remove_dir_all(scene.at("up")).unwrap();
            }
        }
    }
}

#[test]
fn a_file_of_several_names_that_the_drain_itself_takes_away_is_old() {
    let alive = scenes().into_iter().map(|scene| (scene, false));
    let killed = scenes().into_iter().map(|scene| (scene, true));
    for (scene, is_killed) in alive.chain(killed) {
        fs::hard_link(scene.at("up/d/old"), scene.at("up/d/s/old2")).unwrap();
        fs::hard_link(scene.at("up/d/s/a"), scene.at("a2")).unwrap();
        fs::hard_link(scene.at("up/d/s/b"), scene.at("b2")).unwrap();
        scene.discard("up/d");
        let a2 = TreePath::new("a2").unwrap();
        let attr = sys::stat(scene.lower.root(), b"a2").unwrap();
        let is = forebay_core::identity::Identity::of(&attr);
        let (touched, counters) = (&scene.touched, &scene.counters);
        pfs_acts::remove(&scene.lower, &a2, is, None, None, touched, counters).unwrap();
        let (from, to) = (TreePath::new("b2").unwrap(), TreePath::new("b3").unwrap());
        let is = Identity::of_copy(&pfs::look(&scene.lower, &from).unwrap().unwrap());
        scene.rename(&from, &to, is).unwrap();
        let scene = match is_killed {
            true => scene.killed(),
            false => scene,
        };
        assert_eq!(scene.sweep(), ["b3"]);
    }
}

#[test]
fn a_sweep_that_was_killed_between_two_names_of_a_file_is_finished() {
    for scene in scenes() {
        fs::hard_link(scene.at("up/d/s/a"), scene.at("up/d/t/a2")).unwrap();
        scene.discard("up/d");
        let a = scene.aside().join("s/a");
        scene
            .touched
            .note(&sys::stat(scene.lower.root(), a.as_os_str().as_bytes()).unwrap());
        fs::remove_file(a).unwrap();
        assert_eq!(scene.killed().sweep(), [""; 0]);
    }
}

#[test]
fn a_new_file_with_the_number_of_one_that_was_touched_is_of_others() {
    for scene in scenes() {
        scene.discard("up/d");
        let new = scene.aside().join("s/new");
        fs::write(&new, "new").unwrap();
        fs::hard_link(&new, scene.at("new2")).unwrap();
        let old = Timestamp { sec: 10, nsec: 0 };
        let new = sys::open_path(&new, libc::O_RDONLY).unwrap();
        sys::set_times(new.as_fd(), b"", None, Some(old)).unwrap();
        let attr = sys::stat(new.as_fd(), b"").unwrap();
        if attr.btime == Timestamp::default() {
            forebay_testkit::skip("the file system tells no time of birth");
            continue;
        }
        scene.touched.note(&attr);
        assert_eq!(scene.killed().sweep(), ["new2", "up/d/s/new"]);
    }
}

#[test]
fn a_sweep_that_was_killed_is_finished_without_a_word() {
    for scene in scenes() {
        scene.discard("up/d");
        let aside = scene.aside();
        fs::remove_file(aside.join("s/a")).unwrap();
        fs::remove_dir_all(aside.join("t")).unwrap();
        assert_eq!(scene.sweep(), [""; 0]);
        // Killed before the note went, or before it was whole.
        for text in [&b"1 2 3\0gone\0up/d\0"[..], b"1 2"] {
            scene.notes.write(b"gone", text).unwrap();
            assert_eq!(scene.sweep(), [""; 0]);
            assert!(!scene.has_notes());
        }
        assert!(scene.counters.take_back_list().is_empty());
    }
}

#[test]
fn what_was_put_aside_in_its_place_stays_whole_in_the_same_directory() {
    for scene in scenes() {
        scene.write("instead/x");
        scene.discard("up/d");
        let aside = scene.aside();
        fs::remove_dir_all(&aside).unwrap();
        fs::rename(scene.at("instead"), &aside).unwrap();
        assert_eq!(scene.sweep(), ["d.theirs1/x"]);
        let back = scene.counters.take_back_list();
        assert_eq!(back, [TreePath::new("d.theirs1").unwrap()]);
        assert!(!scene.at("up/d").exists());
    }
}

#[test]
fn what_came_in_its_place_while_it_was_swept_goes_to_no_other_directory() {
    for scene in scenes() {
        let note = |ino| AsideNote {
            since: Timestamp::default(),
            aside: TreePath::new("aside").unwrap(),
            path: TreePath::new("up/e").unwrap(),
            ino,
            within: None,
        };
        let ino = || sys::stat(scene.lower.root(), b"aside").unwrap().ino;
        scene.write("aside/x");
        let theirs = bring_out(&scene.lower, &note(ino() + 1)).unwrap();
        assert_eq!(theirs, TreePath::new("e.theirs1"));
        scene.write("aside/y");
        let ours = bring_out(&scene.lower, &note(ino())).unwrap();
        assert_eq!(ours, TreePath::new("up/e"));
        assert_eq!(bring_out(&scene.lower, &note(1)).unwrap(), None);
    }
}

#[test]
fn what_is_aside_beside_its_place_is_swept_at_the_next_drain() {
    for scene in scenes() {
        let aside = scene.put_beside();
        fs::write(
            scene
                .at("up")
                .join(OsStr::from_bytes(aside.name()))
                .join("late"),
            "",
        )
        .unwrap();
        assert_eq!(scene.sweep(), ["up/d/late"]);
        assert!(!scene.has_notes());
    }
}

#[test]
fn what_is_aside_in_a_directory_is_swept_before_that_moves_or_goes() {
    let up = TreePath::new("up").unwrap();
    for scene in scenes() {
        let aside = scene.put_beside();
        let late = |name: &[u8]| scene.at("up").join(OsStr::from_bytes(name)).join("late");
        fs::write(late(aside.name()), "").unwrap();
        let is = Identity::of_copy(&pfs::look(&scene.lower, &up).unwrap().unwrap());
        let to = TreePath::new("to").unwrap();
        scene.rename(&up, &to, is).unwrap();
        assert_eq!(scene.sweep(), ["to/d/late"]);
    }
    for scene in scenes() {
        let aside = scene.put_beside();
        let late = |name: &[u8]| scene.at("up").join(OsStr::from_bytes(name)).join("late");
        // Before it is looked at what is to go.
        fs::write(late(aside.name()), "").unwrap();
        let known = known::know(&scene.lower, &up, &BTreeSet::new(), false)
            .unwrap()
            .is;
        let refused = scene.discard_what("up", Some(known)).unwrap_err();
        assert_eq!(refused.errno, libc::EEXIST);
        assert_eq!(scene.sweep(), ["up/d/late"]);
    }
    // Where it can't be swept, nothing moves.
    let scene = &scenes()[0];
    let aside = scene.put_beside();
    let note = scene
        ._storage
        .path()
        .join("aside")
        .join(OsStr::from_bytes(aside.name()));
    fs::remove_file(&note).unwrap();
    fs::create_dir(&note).unwrap();
    scene.touched.has_put_beside(aside.clone());
    scene
        .touched
        .aside_below(&up, || Ok(BTreeSet::from([aside])))
        .unwrap();
    let is = Identity::of_copy(&pfs::look(&scene.lower, &up).unwrap().unwrap());
    let refused = scene.rename(&up, &TreePath::new("to").unwrap(), is);
    assert_eq!(refused.unwrap_err().operation, "read note");
    assert!(scene.at("up").exists());
}

/// A loss of power before that would bring back what nobody knows any more.
#[test]
fn a_note_stays_until_it_is_on_the_disks_that_nothing_is_aside() {
    for scene in scenes() {
        let aside = scene.put_beside();
        let (touched, counters) = (&scene.touched, &scene.counters);
        let sweep = || {
            sweep(&scene.lower, &scene.notes, &aside, touched, counters).unwrap();
            assert_eq!(counters.status().remarks, [""; 0]);
        };
        sweep();
        assert!(
            !scene
                .at("up")
                .join(OsStr::from_bytes(aside.name()))
                .exists()
        );
        sweep();
        assert!(scene.has_notes());
        // The drain is killed before it forgets the note: the next one does.
        let next = scene.killed();
        next.sweep();
        assert!(!next.has_notes());
    }
}

#[test]
fn of_what_is_aside_in_a_directory_that_others_have_moved_the_report_tells() {
    for scene in scenes() {
        scene.put_beside();
        fs::rename(scene.at("up"), scene.at("moved")).unwrap();
        let (touched, counters) = (&scene.touched, &scene.counters);
        sweep_elsewhere(&scene.lower, &scene.notes, touched, counters).unwrap();
        let remarks = counters.status().remarks;
        assert_eq!(remarks.len(), 1, "{remarks:?}");
        assert!(
            remarks[0].contains("if others have moved up"),
            "{remarks:?}"
        );
        scene.forget_gone();
        assert!(!scene.has_notes());
    }
}

#[test]
fn a_note_that_can_not_be_read_keeps_nothing_else_from_being_swept() {
    for scene in scenes() {
        scene.put_beside();
        for n in 0..8 {
            fs::create_dir(scene._storage.path().join(format!("aside/{n}"))).unwrap();
        }
        let root = TreePath::root();
        let (touched, counters) = (&scene.touched, &scene.counters);
        let swept = leftovers::sweep(&scene.lower, &scene.notes, &root, None, touched, counters);
        assert_eq!(swept.unwrap_err().operation, "read note");
        assert_eq!(fs::read_dir(scene.at("up")).unwrap().count(), 0);
    }
}

#[test]
fn the_moment_is_not_later_than_the_look_whatever_lies_there() {
    for scene in scenes() {
        let aside = TreePath::root().join(&discarded_name(ObjectId(7)));
        scene.write("late");
        let before = sys::stat(scene.lower.root(), b"late").unwrap().ctime;
        // A drain that was killed has left one, and somebody has put another thing there.
        let taken = clock_path(&aside);
        sys::symlink(b"x", scene.lower.root(), taken.name()).unwrap();
        let told = moment(&scene.lower, &aside).unwrap();
        scene.write("later");
        let after = sys::stat(scene.lower.root(), b"later").unwrap().ctime;
        assert!(before < told && told <= after);
        assert_eq!(scene.sweep().len(), 6);
    }
}

/// A file system in memory with room for so many inodes.
struct Few(tempfile::TempDir);

impl Few {
    fn mounted(inodes: usize) -> Option<Few> {
        let few = Few(tempfile::tempdir().unwrap());
        let options = format!("nr_inodes={inodes}");
        let mut mount = std::process::Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &options, "none"]);
        let outcome = mount.arg(few.0.path()).output();
        outcome.is_ok_and(|o| o.status.success()).then_some(few)
    }
}

impl Drop for Few {
    fn drop(&mut self) {
        let mut umount = std::process::Command::new("umount");
        let _ = umount.arg("-l").arg(self.0.path()).output();
    }
}

#[test]
fn where_the_clock_of_a_full_pfs_cannot_be_read_the_directory_stays() {
    let few = Few::mounted(30);
    forebay_testkit::skip_unless!(few.is_some(), "only root can mount a tmpfs");
    let few = few.unwrap();
    let scene = Scene::new(few.0.path());
    let mut made = 0;
    while File::create(scene.at(&format!("full{made}"))).is_ok() {
        made += 1;
    }
    assert!(made > 0);
    let refused = scene.discard_what("up/d", scene.known("up/d")).unwrap_err();
    assert_eq!(
        (refused.operation, refused.errno),
        ("symlink", libc::ENOSPC)
    );
    assert!(scene.at("up/d/s/a").exists());
    fs::remove_file(scene.at("full0")).unwrap();
    scene.discard("up/d");
    assert!(!scene.at("up/d").exists());
}

#[test]
fn the_clock_is_read_where_a_sweep_finds_what_is_left_of_that() {
    let pfs = Scene::new(Path::new("/dev/shm"));
    let up = sys::open_path(&pfs.at("up"), libc::O_RDONLY).unwrap();
    let old = Timestamp { sec: 10, nsec: 0 };
    sys::set_times(up.as_fd(), b"", None, Some(old)).unwrap();
    let aside = TreePath::new("up")
        .unwrap()
        .join(&discarded_name(ObjectId(7)));
    assert!(moment(&pfs.lower, &aside).unwrap() > old);
    let now = sys::stat(up.as_fd(), b"").unwrap();
    assert_eq!(now.mtime, old, "nothing was made in it");
    // What a killed drain has left in the root goes with the next one.
    let clock = clock_path(&TreePath::root().join(aside.name()));
    let (lower, notes) = (&pfs.lower, &pfs.notes);
    sys::symlink(CLOCK_TEXT, lower.root(), clock.name()).unwrap();
    let is_there = || sys::stat(lower.root(), clock.name()).is_ok();
    assert!(is_there());
    let root = TreePath::root();
    leftovers::sweep(lower, notes, &root, None, &pfs.touched, &pfs.counters).unwrap();
    assert!(!is_there());
    // Also the next look at the clock takes it away, where a sweep does not look, but not what is something else.
    for (text, stays) in [(CLOCK_TEXT, false), (&b"theirs"[..], true)] {
        sys::symlink(text, lower.root(), clock.name()).unwrap();
        assert!(moment(lower, &aside).is_ok(), "another name is free");
        assert_eq!(is_there(), stays);
    }
}

#[test]
fn a_directory_that_only_has_such_a_name_stays() {
    for scene in scenes() {
        for (number, suffix) in [(3, ""), (4, "1"), (5, "")] {
            let name = String::from_utf8(discarded_name(ObjectId(number))).unwrap() + suffix;
            fs::create_dir_all(scene.at(&name).join("s")).unwrap();
            File::create(scene.at(&name).join("s/theirs")).unwrap();
            // Links and files of ours that somebody has given the name that notes had once.
            let note = [name.as_bytes(), b".from"].concat();
            let ino = fs::symlink_metadata(scene.at(&name)).unwrap().ino();
            let text = format!("{ino:x}/up/e");
            match number {
                3 | 4 => sys::symlink(text.as_bytes(), scene.lower.root(), &note).unwrap(),
                5 => {
                    drop(File::create(scene.folder.path().join(OsStr::from_bytes(&note))).unwrap())
                }
                _ => {}
            }
            let root = TreePath::root();
            let (touched, counters) = (&scene.touched, &scene.counters);
            leftovers::sweep(&scene.lower, &scene.notes, &root, None, touched, counters).unwrap();
            assert!(scene.at(&name).join("s/theirs").exists(), "{name}");
        }
        let remarks = scene.counters.status().remarks;
        assert!(remarks[0].ends_with("and is not: it stays"), "{remarks:?}");
    }
}
