//! Gives the owner of a directory of the PFS the permission to change entries for an act, and gives the mode back.
//! `core::drain::Lender` says to which directories, this does it. Notes in the storage tell of it as long as it lasts.

use crate::counters::Counters;
use crate::pfs::{During, Work};
use forebay_core::drain::{Lender, LentDir};
use forebay_core::facts::Inode;
use forebay_core::path::TreePath;
use forebay_core::pfs_kind::SyncBy;
use forebay_objects::PfsNotes;
use forebay_pfs::Lower;
use forebay_sys::{self as sys, Errno, Sys};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// The permissions that are given now.
pub(crate) struct LentDirs {
    lender: Lender,
    notes: PfsNotes,
    /// Set before the first permission is given. As long as it is not, a directory that gives the permission does so by its own
    /// mode.
    is_used: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    dirs: BTreeMap<Inode, Given>,
    /// The notes, by their numbers, with how many of their directories have not got their modes back.
    notes: BTreeMap<u64, usize>,
    next: u64,
}

/// A directory that has the permission.
struct Given {
    dir: OwnedFd,
    told: LentDir,
    note: u64,
    /// Acts that need it.
    acts: usize,
}

/// The directories that an act has got the permission for.
#[must_use = "the permissions are taken back when it ends"]
#[derive(Default)]
pub(crate) struct Loan(Vec<Inode>);

impl Loan {
    pub(crate) fn is_nothing(&self) -> bool {
        self.0.is_empty()
    }
}

/// A directory on the PFS, by a descriptor that was opened with `O_PATH`.
struct Found {
    dir: OwnedFd,
    attr: forebay_core::facts::Attr,
}

impl Found {
    fn at(lower: &Lower, path: &TreePath) -> Sys<Found> {
        let dir = lower.open(path, libc::O_PATH | libc::O_DIRECTORY)?;
        let attr = sys::stat(dir.as_fd(), b"")?;
        Ok(Found { dir, attr })
    }
}

impl LentDirs {
    /// None yet. The notes are in this instance directory.
    pub(crate) fn new(instance: &Path) -> Self {
        let (user, group) = sys::my_ids();
        LentDirs {
            lender: Lender {
                user,
                groups: sys::my_groups().unwrap_or(vec![group]),
            },
            notes: PfsNotes::about_lent(instance),
            is_used: AtomicBool::new(false),
            state: Mutex::default(),
        }
    }

    /// Would this directory, which is `to` after the act, get the permission?
    fn is_due(&self, lower: &Lower, [from, to]: [&TreePath; 2]) -> bool {
        let found = Found::at(lower, from);
        found.is_ok_and(|found| self.lender.lends([from, to], &found.attr).is_some())
    }

    /// Would this directory get the permission for an act that leaves it where it is?
    pub(crate) fn concerns(&self, lower: &Lower, path: &TreePath) -> bool {
        !self.lender.may_everything() && self.is_due(lower, [path, path])
    }

    /// Gives these directories the permission if they need it, each with where it is after the act. Where that fails, the act
    /// fails as well and says so.
    pub(crate) fn give(&self, lower: &Lower, dirs: &[[TreePath; 2]]) -> Loan {
        if self.lender.may_everything() || dirs.is_empty() {
            return Loan::default();
        }
        let due = dirs.iter();
        let due: Vec<_> = due
            .filter(|[from, to]| self.is_due(lower, [from, to]))
            .collect();
        // Once some were given, one that seems to need nothing may have a given mode, which has to last for this act as well.
        match self.is_used.load(Ordering::SeqCst) {
            false if due.is_empty() => Loan::default(),
            false => self.give_to(lower, due),
            true => self.give_to(lower, dirs),
        }
    }

    fn give_to<'d>(
        &self,
        lower: &Lower,
        dirs: impl IntoIterator<Item = &'d [TreePath; 2]>,
    ) -> Loan {
        self.is_used.store(true, Ordering::SeqCst);
        let mut needed = Loan::default();
        let mut due: Vec<(Inode, OwnedFd, LentDir)> = Vec::new();
        let state = &mut *self.state.lock();
        for [from, to] in dirs {
            let Ok(found) = Found::at(lower, from) else {
                continue;
            };
            let inode = found.attr.inode();
            // Two paths can lead to one directory.
            if needed.0.contains(&inode) || due.iter().any(|(due, ..)| *due == inode) {
                continue;
            }
            if let Some(given) = state.dirs.get_mut(&inode) {
                given.acts += 1;
                needed.0.push(inode);
            } else if let Some(told) = self.lender.lends([from, to], &found.attr) {
                due.push((inode, found.dir, told));
            }
        }
        let Some(note) = self.note(state, due.iter().map(|(.., told)| told.clone())) else {
            return needed;
        };
        state.notes.insert(note, due.len());
        for (inode, dir, told) in due {
            // A network file system may have done it and say that it failed. What did not get it gets nothing back.
            let _ = sys::chmod_of_path(dir.as_fd(), told.mode());
            needed.0.push(inode);
            let given = Given {
                dir,
                told,
                note,
                acts: 1,
            };
            state.dirs.insert(inode, given);
        }
        needed
    }

    /// Notes durably what is about to happen. `None`: nothing is, or it can't be noted, so that it may not happen.
    fn note(&self, state: &mut State, dirs: impl Iterator<Item = LentDir>) -> Option<u64> {
        let text = Some(dirs.collect::<Vec<_>>()).filter(|dirs| !dirs.is_empty());
        let text = LentDir::note(&text?);
        loop {
            let number = state.next;
            state.next += 1;
            match self.notes.write(name(number).as_bytes(), &text) {
                // One that could not be dealt with.
                Err(Errno::EXIST) => {}
                written => return written.ok().map(|()| number),
            }
        }
    }

    /// If it stays, the next drain finds that nothing is to be given back.
    fn forget(&self, note: u64) {
        let _ = self.notes.forget(name(note).as_bytes());
    }

    /// An act has ended: its directories get their modes back, unless another one needs the permission.
    pub(crate) fn take_back(&self, lower: &Lower, needed: Loan, counters: &Counters) {
        if needed.is_nothing() {
            return;
        }
        let state = &mut *self.state.lock();
        let mut over = Vec::new();
        for inode in needed.0 {
            let Some(mut given) = state.dirs.remove(&inode) else {
                continue;
            };
            given.acts -= 1;
            match given.acts {
                0 => over.push(given),
                _ => drop(state.dirs.insert(inode, given)),
            }
        }
        for Given {
            dir, told, note, ..
        } in over
        {
            // Wherever it is by now.
            let found = sys::stat(dir.as_fd(), b"").during("stat");
            let found = found.map(|attr| Found { dir, attr });
            match found.and_then(|found| give_back(lower, &told, &found)) {
                Ok(()) => {
                    let left = state.notes.get_mut(&note);
                    let left = left.expect("a note tells of each directory");
                    *left -= 1;
                    if *left == 0 {
                        state.notes.remove(&note);
                        self.forget(note);
                    }
                }
                Err(e) => remark(counters, &told, e),
            }
        }
    }

    /// Gives the modes back that a drain had not given back when it was killed.
    pub(crate) fn restore_all(&self, lower: &Lower, counters: &Counters) {
        let names = self.notes.names().unwrap_or_else(|e| {
            counters.remark(format!(
                "directories may have wrong modes since a drain was killed: the notes in lent/ in the storage can't be read: {e}"
            ));
            Vec::new()
        });
        for name in names {
            let text = match self.notes.read(&name) {
                Ok(text) => text,
                Err(e) => {
                    let name = name.escape_ascii();
                    counters.remark(format!(
                        "a directory may have a wrong mode since a drain was killed: the note lent/{name} in the storage can't be read: {e}"
                    ));
                    continue;
                }
            };
            let dirs = text.and_then(|text| LentDir::of_note(&text));
            let mut is_done = true;
            for told in dirs.unwrap_or_default() {
                match restore(lower, &told) {
                    Ok(true) => {}
                    Ok(false) => counters.remark(told.missed()),
                    Err(e) => {
                        is_done = false;
                        remark(counters, &told, e);
                    }
                }
            }
            if is_done {
                let _ = self.notes.forget(&name);
            }
        }
    }
}

fn name(number: u64) -> String {
    number.to_string()
}

fn remark(counters: &Counters, told: &LentDir, e: crate::pfs::Trouble) {
    let (operation, errno) = (e.operation, e.errno);
    counters.remark(format!(
        "{}: could not get its mode back that it had before a drain changed something in it ({operation}: {errno})",
        told.places()[0]
    ));
}

/// Gives a directory its own mode back, where a note says that it may be. False if it is not there.
fn restore(lower: &Lower, told: &LentDir) -> Work<bool> {
    let mut is_found = false;
    for path in told.places() {
        match Found::at(lower, path) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
            found => {
                let found = found.during("open directory")?;
                is_found |= told.is(&found.attr);
                give_back(lower, told, &found)?;
            }
        }
    }
    Ok(is_found)
}

/// Gives this directory its own mode back, if it is the one, and brings that to the disks: the note goes next.
fn give_back(lower: &Lower, told: &LentDir, found: &Found) -> Work<()> {
    let Some(mode) = told.gives_back(&found.attr) else {
        return Ok(());
    };
    let dir = found.dir.as_fd();
    // Opened before: by its own mode the owner may not be able to.
    let readable = sys::open(dir, b".", libc::O_RDONLY | libc::O_DIRECTORY, 0);
    sys::chmod_of_path(dir, mode).during("chmod")?;
    if lower.sync_by() != SyncBy::Nothing {
        let root = || lower.open(&TreePath::root(), libc::O_RDONLY | libc::O_DIRECTORY);
        match readable {
            Ok(readable) => sys::fsync(readable.as_fd()),
            Err(_) => sys::sync_names(dir, root),
        }
        .during("fsync directory")?;
    }
    for path in told.places() {
        lower.note_changed(path.clone());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};

    /// A PFS of a user who is not root, and a storage.
    struct Scene {
        pfs: tempfile::TempDir,
        storage: tempfile::TempDir,
        lower: Lower,
        counters: Counters,
        user: u32,
    }

    impl Scene {
        fn new() -> Self {
            let pfs = tempfile::tempdir().unwrap();
            let me = sys::my_ids().0;
            Scene {
                lower: Lower::open_root(pfs.path(), Some(false)).unwrap(),
                pfs,
                storage: tempfile::tempdir().unwrap(),
                counters: Counters::new(1),
                user: if me == 0 { 65_534 } else { me },
            }
        }

        fn lent(&self) -> LentDirs {
            let mut lent = LentDirs::new(self.storage.path());
            lent.lender.user = self.user;
            lent
        }

        fn dir(&self, name: &str, mode: u32) {
            let at = self.pfs.path().join(name);
            fs::create_dir(&at).unwrap();
            chown(&at, Some(self.user), None).unwrap();
            self.chmod(name, mode);
        }

        fn chmod(&self, name: &str, mode: u32) {
            let at = self.pfs.path().join(name);
            fs::set_permissions(at, Permissions::from_mode(mode)).unwrap();
        }

        fn mode(&self, name: &str) -> u32 {
            let at = self.pfs.path().join(name);
            at.metadata().unwrap().mode() & 0o7777
        }

        fn notes(&self) -> usize {
            PfsNotes::about_lent(self.storage.path())
                .names()
                .unwrap()
                .len()
        }
    }

    fn here(name: &str) -> [TreePath; 2] {
        [name; 2].map(|name| TreePath::new(name).unwrap())
    }

    #[test]
    fn a_directory_has_the_permission_until_the_last_act_that_needs_it_has_ended() {
        let scene = Scene::new();
        for (name, mode) in [("d", 0o555), ("e", 0o1500), ("open", 0o755)] {
            scene.dir(name, mode);
        }
        let lent = scene.lent();
        let modes = || ["d", "e", "open"].map(|name| scene.mode(name));
        let none = lent.give(&scene.lower, &[here("open"), here("gone")]);
        assert!(none.is_nothing() && scene.notes() == 0);
        let first = lent.give(&scene.lower, &[here("d"), here("e"), here("open")]);
        assert_eq!(modes(), [0o755, 0o1700, 0o755]);
        let second = lent.give(&scene.lower, &[here("d")]);
        assert_eq!(scene.notes(), 1);
        lent.take_back(&scene.lower, first, &scene.counters);
        assert_eq!(modes(), [0o755, 0o1500, 0o755]);
        assert_eq!(scene.notes(), 1, "it tells of d");
        lent.take_back(&scene.lower, second, &scene.counters);
        assert_eq!(modes(), [0o555, 0o1500, 0o755]);
        assert_eq!(scene.notes(), 0);
        // Once more, and this time somebody else changes the mode.
        let third = lent.give(&scene.lower, &[here("d"), here("e")]);
        scene.chmod("d", 0o711);
        lent.take_back(&scene.lower, third, &scene.counters);
        assert_eq!(modes(), [0o711, 0o1500, 0o755]);
        assert_eq!(scene.notes(), 0);
        assert_eq!(scene.counters.status().remarks, [""; 0]);
    }

    #[test]
    fn after_a_drain_that_was_killed_the_next_one_gives_back_what_is_as_that_one_left_it() {
        let scene = Scene::new();
        for name in ["d", "moved", "theirs", "gone"] {
            scene.dir(name, 0o555);
        }
        let lent = scene.lent();
        let [from, to] = [&here("moved")[0], &here("d/at")[0]].map(Clone::clone);
        let dirs = [here("d"), [from, to], here("theirs"), here("gone")];
        let needed = lent.give(&scene.lower, &dirs);
        assert_eq!((needed.0.len(), scene.notes()), (4, 1));
        drop(lent);
        let at = |name: &str| scene.pfs.path().join(name);
        fs::rename(at("moved"), at("d/at")).unwrap();
        fs::remove_dir(at("gone")).unwrap();
        scene.chmod("theirs", 0o700);
        // Another one, with another mode, has come to its name, and must not be taken for it.
        scene.dir("gone", 0o755);
        scene.lent().restore_all(&scene.lower, &scene.counters);
        assert_eq!([scene.mode("d"), scene.mode("d/at")], [0o555, 0o555]);
        assert_eq!([scene.mode("theirs"), scene.mode("gone")], [0o700, 0o755]);
        assert_eq!(scene.notes(), 0);
        let told = scene.counters.status().remarks;
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(
            told[0].starts_with("gone: is not there any more"),
            "{told:?}"
        );
        assert!(
            told[0].ends_with("its mode is 0755 in place of 0555"),
            "{told:?}"
        );
        // What was being noted when the drain was killed has changed nothing.
        let notes = PfsNotes::about_lent(scene.storage.path());
        notes.write(b"0", b"2\0a 555").unwrap();
        scene.lent().restore_all(&scene.lower, &scene.counters);
        assert_eq!(scene.notes(), 0);
    }

    #[test]
    fn nothing_gets_a_permission_of_which_no_note_can_tell() {
        let scene = Scene::new();
        scene.dir("d", 0o555);
        fs::write(scene.storage.path().join("lent"), "in the way").unwrap();
        let needed = scene.lent().give(&scene.lower, &[here("d")]);
        assert!(needed.is_nothing());
        assert_eq!(scene.mode("d"), 0o555);
    }
}
