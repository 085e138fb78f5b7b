//! Puts directories of the PFS aside that are to be removed, and sweeps them. `core::drain::AsideNote` says what becomes of
//! each, and what the note beside it tells: a symbolic link, which is whole or not there, whatever is killed.

use crate::counters::Counters;
use crate::pfs::{self, During, Trouble, Work};
use crate::removal::{self, Spared, Touched};
use forebay_core::drain::{AsideFate, AsideNote, Tick, note_name, paths_aside};
use forebay_core::facts::Timestamp;
use forebay_core::path::TreePath;
use forebay_pfs::Lower;
use forebay_sys::{self as sys, Errno};
use std::os::fd::AsFd;

fn note_path(aside: &TreePath) -> TreePath {
    aside.parent().join(&note_name(aside.name()))
}

/// Notes that `path`, which has this inode number, is going to be `aside`. Gives the moment: whatever was changed before the
/// call is older. EEXIST if there is such a note.
fn make_note(lower: &Lower, aside: &TreePath, path: &TreePath, ino: u64) -> Work<Timestamp> {
    let at = note_path(aside);
    let dir = pfs::parent(lower, &at)?;
    let text = AsideNote::text(path, ino);
    let make = || {
        sys::symlink(&text, dir.as_fd(), at.name())?;
        sys::stat(dir.as_fd(), at.name()).map(|attr| attr.mtime)
    };
    let mut since = make().during("symlink")?;
    let mut tick = Tick::since(since);
    while let Some(pause) = tick.pause(since) {
        std::thread::sleep(pause);
        sys::unlink(dir.as_fd(), at.name(), false).during("unlink")?;
        since = make().during("symlink")?;
    }
    Ok(since)
}

fn forget_note(lower: &Lower, aside: &TreePath) {
    let at = note_path(aside);
    if let Ok(dir) = pfs::parent(lower, &at) {
        // If it stays, the next sweep finds it without a directory.
        let _ = sys::unlink(dir.as_fd(), at.name(), false);
    }
}

/// Why nothing is aside.
pub(crate) enum Refused {
    /// It is not what it was.
    Check(Trouble),
    /// It is what it was, and there can be no note. Without one nobody could tell later what it was, and what others have added.
    Note(Trouble),
    /// The PFS has refused the rename; the moment that the note told.
    Rename(Trouble, Timestamp),
}

/// Renames the directory at `path`, which has this inode number, to `aside`, or to that with a number behind it: an
/// earlier drain may have left one there. Gives the name. `check` looks whether it still is what it was: after the note is
/// there, so that nothing is older than the note and was not seen.
pub(crate) fn put(
    lower: &Lower,
    path: &TreePath,
    ino: u64,
    aside: &TreePath,
    check: impl Fn() -> Work<()>,
) -> Result<TreePath, Refused> {
    let exists = |trouble: &Trouble| trouble.errno == Errno::EXIST;
    for free in paths_aside(aside) {
        let note = make_note(lower, &free, path, ino);
        if note.as_ref().is_err_and(exists) {
            continue;
        }
        if let Err(trouble) = check() {
            forget_note(lower, &free);
            return Err(Refused::Check(trouble));
        }
        let since = note.map_err(|trouble| {
            // It may be there in part.
            forget_note(lower, &free);
            Refused::Note(trouble)
        })?;
        match pfs::rename(lower, path, &free) {
            Ok(()) => return Ok(free),
            Err(trouble) => {
                forget_note(lower, &free);
                if !exists(&trouble) {
                    return Err(Refused::Rename(trouble, since));
                }
            }
        }
    }
    let full = Trouble {
        operation: "symlink",
        errno: Errno::EXIST,
    };
    Err(Refused::Note(full))
}

/// Undoes [`put`], because it was not the directory that is to go.
pub(crate) fn put_back(lower: &Lower, aside: &TreePath, path: &TreePath) -> Work<()> {
    pfs::rename(lower, aside, path)?;
    forget_note(lower, aside);
    Ok(())
}

/// Removes the directory at `aside`, except for what others have changed since. If something is left, the directory gets its
/// old name back, and the report of the drain says so. False: it is not ours.
pub(crate) fn sweep(
    lower: &Lower,
    aside: &TreePath,
    touched: &Touched,
    counters: &Counters,
) -> Work<bool> {
    let found = pfs::look(lower, aside)?;
    let Some(note) = read_note(lower, aside)? else {
        return Ok(found.is_none());
    };
    match note.fate(found.as_ref()) {
        AsideFate::None => return Ok(true),
        AsideFate::Remove => {
            let spared = Spared {
                since: note.since,
                touched,
            };
            let dir = pfs::parent(lower, aside)?;
            if removal::remove_dir_but(dir.as_fd(), aside.name(), note.ino, &spared)? {
                forget_note(lower, aside);
                return Ok(true);
            }
        }
        AsideFate::GiveBack => {}
    }
    let place = give_back(lower, aside, &note)?;
    forget_note(lower, aside);
    counters.came_back(place);
    Ok(true)
}

/// Our note about what is aside, if there is one.
fn read_note(lower: &Lower, aside: &TreePath) -> Work<Option<AsideNote>> {
    let at = note_path(aside);
    let Some(attr) = pfs::look(lower, &at)? else {
        return Ok(None);
    };
    let (me, _) = sys::my_ids();
    match lower.link_text(&at) {
        Ok(text) => Ok(AsideNote::of(&attr, &text, me)),
        // It has just gone, or is no symbolic link.
        Err(Errno::NOENT | Errno::INVAL) => Ok(None),
        Err(e) => Err(e).during("readlink"),
    }
}

/// Renames what is aside to where it was, or to another of its places.
fn give_back(lower: &Lower, aside: &TreePath, note: &AsideNote) -> Work<TreePath> {
    let mut places = note.places();
    loop {
        let place = places.place();
        match pfs::rename(lower, aside, &place) {
            Ok(()) => {
                lower.note_changed(aside.parent());
                lower.note_changed(places.dir().clone());
                return Ok(place);
            }
            Err(trouble) if places.move_on(trouble.errno.raw_os_error()) => {}
            Err(trouble) => return Err(trouble),
        }
    }
}

/// Removes the note about `aside` if that is no longer there. False: it is not ours.
pub(crate) fn sweep_note(lower: &Lower, aside: &TreePath) -> Work<bool> {
    if read_note(lower, aside)?.is_none() {
        return Ok(pfs::look(lower, &note_path(aside))?.is_none());
    }
    if pfs::look(lower, aside)?.is_none() {
        forget_note(lower, aside);
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pfs_acts;
    use forebay_core::drain::{self, discarded_name, is_aside, noted_name};
    use forebay_core::identity::Identity;
    use forebay_core::record::ObjectId;
    use std::ffi::OsStr;
    use std::fs::{self, File};
    use std::os::unix::ffi::OsStrExt;
    use std::path::{Path, PathBuf};

    /// A tree with the directory `up/d`, on this file system.
    struct Scene {
        folder: tempfile::TempDir,
        lower: Lower,
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
            let scene = Scene {
                lower: Lower::open_root(folder.path(), Some(false)).unwrap(),
                folder,
                touched: Touched::default(),
                counters: Counters::new(true),
            };
            for name in ["up/d/old", "up/d/s/a", "up/d/s/b", "up/d/t/c"] {
                scene.write(name);
            }
            scene
        }

        fn at(&self, name: &str) -> PathBuf {
            self.folder.path().join(name)
        }

        fn write(&self, name: &str) {
            fs::create_dir_all(self.at(name).parent().unwrap()).unwrap();
            fs::write(self.at(name), name).unwrap();
        }

        fn discard(&self, path: &str) {
            self.discard_what(path, None).unwrap();
        }

        fn discard_what(&self, path: &str, is: Option<Identity>) -> drain::Work<()> {
            let aside = TreePath::root().join(&discarded_name(ObjectId(7)));
            let path = TreePath::new(path).unwrap();
            pfs_acts::discard(&self.lower, &path, is, &aside, &self.touched)
        }

        fn known(&self, path: &str) -> Option<Identity> {
            let path = TreePath::new(path).unwrap();
            Some(pfs_acts::know(&self.lower, &path).unwrap())
        }

        /// What is aside, as others reach it who are in it.
        fn aside(&self) -> PathBuf {
            let all = fs::read_dir(self.folder.path()).unwrap();
            let mut paths = all.map(|entry| entry.unwrap().path());
            let is = |path: &PathBuf| is_aside(path.file_name().unwrap().as_encoded_bytes());
            paths.find(is).unwrap()
        }

        /// Sweeps. All files are listed after it.
        fn sweep(&self) -> Vec<String> {
            pfs_acts::sweep(
                &self.lower,
                &TreePath::root(),
                None,
                &self.touched,
                &self.counters,
            )
            .unwrap();
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
                    // As soon as the note shows, or the directory is gone.
                    let has_note = || {
                        let mut all = fs::read_dir(scene.folder.path()).unwrap();
                        all.any(|e| noted_name(e.unwrap().file_name().as_encoded_bytes()).is_some())
                    };
                    while !has_note() && scene.at("up/d").exists() {}
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
        for scene in scenes() {
            fs::hard_link(scene.at("up/d/old"), scene.at("up/d/s/old2")).unwrap();
            fs::hard_link(scene.at("up/d/s/a"), scene.at("a2")).unwrap();
            fs::hard_link(scene.at("up/d/s/b"), scene.at("b2")).unwrap();
            scene.discard("up/d");
            let a2 = TreePath::new("a2").unwrap();
            let attr = sys::stat(scene.lower.root(), b"a2").unwrap();
            let is = forebay_core::identity::Identity::of(&attr);
            pfs_acts::remove(&scene.lower, &a2, is, &scene.touched).unwrap();
            let (from, to) = (TreePath::new("b2").unwrap(), TreePath::new("b3").unwrap());
            let is = Identity::of_copy(&pfs::look(&scene.lower, &from).unwrap().unwrap());
            pfs_acts::rename(&scene.lower, &from, &to, is, &scene.touched).unwrap();
            assert_eq!(scene.sweep(), ["b3"]);
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
            // Killed before the note went.
            let note = note_name(&discarded_name(ObjectId(9)));
            sys::symlink(b"1/up/d", scene.lower.root(), &note).unwrap();
            assert_eq!(scene.sweep(), [""; 0]);
            assert!(scene.counters.take_back_list().is_empty());
        }
    }

    #[test]
    fn what_was_put_aside_in_its_place_comes_back_whole() {
        for scene in scenes() {
            scene.write("instead/x");
            scene.discard("up/d");
            let aside = scene.aside();
            fs::remove_dir_all(&aside).unwrap();
            fs::rename(scene.at("instead"), &aside).unwrap();
            assert_eq!(scene.sweep(), ["up/d/x"]);
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
    fn where_there_is_no_room_for_a_note_the_directory_stays() {
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
    fn a_directory_that_only_has_such_a_name_stays() {
        for scene in scenes() {
            for (number, suffix) in [(3, ""), (4, "1"), (5, "")] {
                let name = String::from_utf8(discarded_name(ObjectId(number))).unwrap() + suffix;
                fs::create_dir_all(scene.at(&name).join("s")).unwrap();
                File::create(scene.at(&name).join("s/theirs")).unwrap();
                // A link of ours that somebody has given the name of a note, and a file of ours.
                let note = note_name(name.as_bytes());
                match number {
                    4 => sys::symlink(b"run5", scene.lower.root(), &note).unwrap(),
                    5 => drop(
                        File::create(scene.folder.path().join(OsStr::from_bytes(&note))).unwrap(),
                    ),
                    _ => {}
                }
                let root = TreePath::root();
                let (touched, counters) = (&scene.touched, &scene.counters);
                pfs_acts::sweep(&scene.lower, &root, None, touched, counters).unwrap();
                assert!(scene.at(&name).join("s/theirs").exists(), "{name}");
            }
            let remarks = scene.counters.status().remarks;
            assert!(remarks[0].ends_with("and is not: it stays"), "{remarks:?}");
        }
    }
}
