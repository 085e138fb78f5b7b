//! Directories of the PFS that are put aside to be removed, and what comes back of them.
//!
//! A program whose working directory is in such a directory goes on making files there. So the removal takes only what
//! is older than the moment at which the directory was put aside; what came later, or was changed later, comes back
//! with the directories around it. A note beside it tells that moment, and where it was: a symbolic link, which is
//! whole or not there, whatever is killed. Its own time of change is the moment, by the clock of the PFS.

use crate::counters::Counters;
use crate::pfs::{self, During, Trouble, Work};
use crate::removal::{self, Spared, Touched};
use forebay_core::drain::{DISCARDED_NOTE as NOTE, Places, discarded_name, leftover_of};
use forebay_core::facts::Timestamp;
use forebay_core::path::TreePath;
use forebay_pfs::Lower;
use forebay_sys::{self as sys, Errno};
use std::os::fd::AsFd;
use std::time::Duration;

/// Some other name is free after at most so many: each drain that was killed in a discard leaves one behind.
const MOST_ASIDE: u32 = 10_000;
/// The clocks by which file systems stamp files tick more often than this.
const LONGEST_TICK: Duration = Duration::from_secs(2);

/// The note about what is aside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Note {
    /// What was changed before this was there when the directory was put aside.
    pub(crate) since: Timestamp,
    /// Where it was, and its inode number; `None`: a drain of an older version has left it.
    origin: Option<(TreePath, u64)>,
}

/// Is this the name of something aside, and not of the note about it?
pub(crate) fn is_aside(name: &[u8]) -> bool {
    let starts = leftover_of(name).is_some_and(|oid| name.starts_with(&discarded_name(oid)));
    starts && !name.ends_with(NOTE)
}

/// The name of the note about what is aside.
pub(crate) fn note_name(aside: &[u8]) -> Vec<u8> {
    [aside, NOTE].concat()
}

fn note_path(aside: &TreePath) -> TreePath {
    aside.parent().join(&note_name(aside.name()))
}

impl Note {
    /// Notes that `path`, which has this inode number, is going to be `aside`. Whatever was changed before the call is
    /// older than [`Note::since`]. EEXIST if there is such a note.
    fn make(lower: &Lower, aside: &TreePath, path: &TreePath, ino: u64) -> Work<Note> {
        let at = note_path(aside);
        let dir = pfs::parent(lower, &at)?;
        let text = [format!("{ino:x}/").as_bytes(), path.as_bytes()].concat();
        let make = || {
            sys::symlink(&text, dir.as_fd(), at.name())?;
            sys::stat(dir.as_fd(), at.name()).map(|attr| attr.mtime)
        };
        let first = make().during("symlink")?;
        let mut since = first;
        let mut pause = Duration::from_millis(1);
        while since <= first && pause < LONGEST_TICK {
            std::thread::sleep(pause);
            pause *= 2;
            sys::unlink(dir.as_fd(), at.name(), false).during("unlink")?;
            since = make().during("symlink")?;
        }
        let origin = Some((path.clone(), ino));
        Ok(Note { since, origin })
    }

    fn forget(lower: &Lower, aside: &TreePath) {
        let at = note_path(aside);
        if let Ok(dir) = pfs::parent(lower, &at) {
            // If it stays, the next sweep finds it without a directory.
            let _ = sys::unlink(dir.as_fd(), at.name(), false);
        }
    }

    /// The note about what is aside here. Without one the moment is that of the last change of the directory itself.
    fn read(lower: &Lower, aside: &TreePath) -> Work<Note> {
        let at = note_path(aside);
        if let Some(attr) = pfs::look(lower, &at)?
            && let Ok(text) = lower.link_text(&at)
            && let Some(origin) = origin(&text)
        {
            let (since, origin) = (attr.mtime, Some(origin));
            return Ok(Note { since, origin });
        }
        let attr = pfs::look(lower, aside)?;
        Ok(Note {
            since: attr.map(|attr| attr.ctime).unwrap_or_default(),
            origin: None,
        })
    }
}

/// The path and the inode number in the text of a note.
fn origin(text: &[u8]) -> Option<(TreePath, u64)> {
    let slash = text.iter().position(|byte| *byte == b'/')?;
    let ino = std::str::from_utf8(&text[..slash]).ok()?;
    let ino = u64::from_str_radix(ino, 16).ok()?;
    Some((TreePath::new(&text[slash + 1..])?, ino))
}

/// Why nothing is aside.
pub(crate) enum Refused {
    /// It is not what it was.
    Check(Trouble),
    /// The PFS has refused the rename; what the note said.
    Rename(Trouble, Option<Note>),
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
    for n in 0..=MOST_ASIDE {
        let free = match n {
            0 => aside.clone(),
            n => {
                let name = [aside.name(), format!("{n}").as_bytes()].concat();
                aside.parent().join(&name)
            }
        };
        let note = match Note::make(lower, &free, path, ino) {
            Ok(note) => Some(note),
            Err(trouble) if exists(&trouble) => continue,
            // The directory itself tells the moment as well as it can.
            Err(_) => None,
        };
        if let Err(trouble) = check() {
            Note::forget(lower, &free);
            return Err(Refused::Check(trouble));
        }
        match pfs::rename(lower, path, &free) {
            Ok(()) => return Ok(free),
            Err(trouble) => {
                Note::forget(lower, &free);
                if !exists(&trouble) {
                    return Err(Refused::Rename(trouble, note));
                }
            }
        }
    }
    let full = Trouble {
        operation: "rename",
        errno: Errno::EXIST,
    };
    Err(Refused::Rename(full, None))
}

/// Undoes [`put`], because it was not the directory that is to go.
pub(crate) fn put_back(lower: &Lower, aside: &TreePath, path: &TreePath) -> Work<()> {
    pfs::rename(lower, aside, path)?;
    Note::forget(lower, aside);
    Ok(())
}

/// Removes the directory at `aside`, except for what others have changed since. If something is left, the directory gets its
/// old name back, and the report of the drain says so.
pub(crate) fn sweep(
    lower: &Lower,
    aside: &TreePath,
    touched: &Touched,
    counters: &Counters,
) -> Work<()> {
    let note = Note::read(lower, aside)?;
    let Some(found) = pfs::look(lower, aside)? else {
        return Ok(());
    };
    let is_it = note
        .origin
        .as_ref()
        .is_none_or(|(_, ino)| *ino == found.ino);
    if is_it && pfs::is_dir(&found) {
        let spared = Spared {
            since: note.since,
            touched,
        };
        let dir = pfs::parent(lower, aside)?;
        if removal::remove_dir_but(dir.as_fd(), aside.name(), &spared)? {
            Note::forget(lower, aside);
            return Ok(());
        }
    }
    let place = give_back(lower, aside, &note)?;
    Note::forget(lower, aside);
    counters.came_back(place);
    Ok(())
}

/// Renames what is aside to where it was, or to another of its [`Places`].
fn give_back(lower: &Lower, aside: &TreePath, note: &Note) -> Work<TreePath> {
    let mut places = Places::of(note.origin.as_ref().map(|(path, _)| path));
    loop {
        let place = places.place();
        let trouble = match pfs::rename(lower, aside, &place) {
            Ok(()) => {
                lower.note_changed(aside.parent());
                lower.note_changed(places.dir().clone());
                return Ok(place);
            }
            Err(trouble) => trouble,
        };
        let has_another = match trouble.errno {
            Errno::EXIST => places.is_taken(),
            Errno::NOENT | Errno::NOTDIR | Errno::LOOP => places.has_no_dir(),
            _ => false,
        };
        if !has_another {
            return Err(trouble);
        }
    }
}

/// Removes a note if what it is about is no longer aside.
pub(crate) fn sweep_note(lower: &Lower, dir: &TreePath, name: &[u8]) -> Work<()> {
    let about = name.strip_suffix(NOTE).unwrap_or(name);
    if pfs::look(lower, &dir.join(about))?.is_none() {
        Note::forget(lower, &dir.join(about));
    }
    Ok(())
}

/// Is this the name of a note?
pub(crate) fn is_note(name: &[u8]) -> bool {
    name.strip_suffix(NOTE).is_some_and(is_aside)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pfs_acts;
    use forebay_core::drain;
    use forebay_core::identity::Identity;
    use forebay_core::record::ObjectId;
    use std::fs::{self, File};
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
                        all.any(|e| is_note(e.unwrap().file_name().as_encoded_bytes()))
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
            pfs_acts::rename(&scene.lower, &from, &to, &scene.touched).unwrap();
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
            let note = [discarded_name(ObjectId(9)), NOTE.to_vec()].concat();
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

    #[test]
    fn without_a_note_what_is_newer_than_the_directory_comes_back() {
        for scene in scenes() {
            let name = String::from_utf8(discarded_name(ObjectId(3))).unwrap();
            let aside = scene.at(&name);
            fs::create_dir_all(aside.join("s")).unwrap();
            File::create(aside.join("s/new")).unwrap();
            let left = scene.sweep();
            assert!(left.contains(&"removed/s/new".to_owned()), "{left:?}");
        }
    }
}
