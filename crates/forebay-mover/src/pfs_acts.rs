//! Names change on the PFS; how directories come and go is in rooms of their own.

use crate::aside;
use crate::counters::Counters;
use crate::pfs::{self, During, Trouble};
use crate::touched::Touched;
use forebay_core::drain;
use forebay_core::identity::Identity;
use forebay_core::path::TreePath;
use forebay_objects::PfsNotes;
use forebay_pfs::Lower;
use forebay_sys::{self as sys, Errno};
use std::os::fd::{AsFd, BorrowedFd};

mod discard;
mod new_dirs;

pub(crate) use discard::Removal;
pub(crate) use new_dirs::{make_dir, remove_apart};

type Work<T> = drain::Work<T>;

/// See [`drain::Act::Rename`].
pub(crate) fn rename(
    lower: &Lower,
    notes: &PfsNotes,
    [from, to]: [&TreePath; 2],
    is: Identity,
    [out_of, within]: [Option<Identity>; 2],
    touched: &Touched,
    counters: &Counters,
) -> Work<()> {
    let rename = || {
        let (old, new) = (pfs::parent(lower, from)?, pfs::parent(lower, to)?);
        pfs::check_within(old.as_fd(), out_of)?;
        pfs::check_within(new.as_fd(), within)?;
        aside::sweep_in(lower, notes, from, touched, counters)?;
        // Before its time of change is that of the rename, which one of its names may show to a sweep.
        if let Some(leaves) = pfs::look(lower, from)? {
            touched.note(&leaves);
        }
        match sys::stat(old.as_fd(), from.name()) {
            Ok(now) if !is.is_inode_of(&now) => return Err(Errno::EXIST).during("rename"),
            _ => pfs::rename_free(old.as_fd(), from.name(), new.as_fd(), to.name())?,
        }
        match sys::stat(new.as_fd(), to.name()) {
            Ok(moved) if !is.is_inode_of(&moved) => {
                // Into the very directory that it came from. Where nothing can be renamed it stays, and the next look finds it.
                let back = pfs::give_back_in(new.as_fd(), to.name(), old.as_fd(), from.name());
                if let Ok(back) = back
                    && back != from.name()
                {
                    counters.came_back(from.parent().join(&back));
                }
                Err(Errno::EXIST).during("rename")
            }
            Ok(_) | Err(Errno::NOENT) => Ok(()),
            Err(e) => Err(e).during("stat"),
        }
    };
    rename().map_err(Trouble::into_core)
}

/// See [`drain::Act::Remove`].
pub(crate) fn remove(
    lower: &Lower,
    path: &TreePath,
    is: Identity,
    by: Option<&TreePath>,
    within: Option<Identity>,
    touched: &Touched,
    counters: &Counters,
) -> Work<()> {
    let remove = || {
        let dir = pfs::parent(lower, path)?;
        pfs::check_within(dir.as_fd(), within)?;
        let now = match sys::stat(dir.as_fd(), path.name()) {
            Err(Errno::NOENT) => return Ok(()),
            now => now.during("stat")?,
        };
        if !is.is(&now) {
            return Err(Errno::EXIST).during("unlink");
        }
        touched.note(&now);
        match by {
            Some(by) => remove_by(dir.as_fd(), path, is, by.name(), counters),
            None => unlink(dir.as_fd(), path.name()),
        }
    };
    remove().map_err(Trouble::into_core)
}

fn unlink(dir: BorrowedFd<'_>, name: &[u8]) -> pfs::Work<()> {
    match sys::unlink(dir, name, false) {
        // The kernel repeats by itself a call that was told ESTALE.
        Err(Errno::NOENT) => Ok(()),
        removed => removed.during("unlink"),
    }
}

/// Removes what is at `path`, in this directory, by another name. EEXIST if it turns out to be something else.
fn remove_by(
    dir: BorrowedFd<'_>,
    path: &TreePath,
    is: Identity,
    by: &[u8],
    counters: &Counters,
) -> pfs::Work<()> {
    match pfs::rename_free(dir, path.name(), dir, by) {
        // It may be there by a first call that was told ESTALE.
        Ok(())
        | Err(Trouble {
            errno: Errno::NOENT,
            ..
        }) => {}
        Err(trouble) if trouble.into_core().may_be_done() => return Err(trouble),
        // It can't get that name: a full disk has no room for it, or somebody has something there.
        Err(_) => return unlink(dir, path.name()),
    }
    match sys::stat(dir, by) {
        Err(Errno::NOENT) => return Ok(()),
        there if is.renamed().is(&there.during("stat")?) => return unlink(dir, by),
        _ => {}
    }
    let back = pfs::give_back_in(dir, by, dir, path.name())?;
    if back != path.name() {
        counters.came_back(path.parent().join(&back));
    }
    Err(Errno::EXIST).during("unlink")
}

/// See [`drain::Act::SyncDirs`].
pub(crate) fn sync(lower: &Lower, dirs: &[TreePath]) -> Vec<Work<()>> {
    let each = lower.sync_dirs(dirs).into_iter();
    each.map(|did| did.during("fsync directory").map_err(Trouble::into_core))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aside::GoingDir;
    use forebay_core::drain::{NewDir, Places};
    use forebay_core::facts::Attr;
    use forebay_core::record::{BridgeId, ObjectId, ObjectName};
    use std::fs;

    struct Tree {
        folder: tempfile::TempDir,
        lower: Lower,
        _storage: tempfile::TempDir,
        notes: PfsNotes,
        counters: Counters,
    }

    impl Tree {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let lower = Lower::open_root(folder.path(), Some(false)).unwrap();
            let storage = tempfile::tempdir().unwrap();
            Tree {
                folder,
                lower,
                notes: PfsNotes::about_aside(storage.path()),
                _storage: storage,
                counters: Counters::new(1),
            }
        }

        fn rename(&self, from: &str, to: &str, is: Identity) -> Work<()> {
            let touched = Touched::default();
            let (lower, notes) = (&self.lower, &self.notes);
            let (from, to) = (path(from), path(to));
            rename(
                lower,
                notes,
                [&from, &to],
                is,
                [None; 2],
                &touched,
                &self.counters,
            )
        }

        fn discard(&self, name: &str, aside: &str) -> Work<()> {
            let touched = Touched::default();
            self.removal(&touched)
                .discard(&path(name), None, &path(aside), None)
        }

        fn removal<'t>(&'t self, touched: &'t Touched) -> Removal<'t> {
            Removal {
                lower: &self.lower,
                notes: &self.notes,
                touched,
                counters: &self.counters,
                is_lent: false,
            }
        }

        fn write(&self, name: &str) {
            let path = self.folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, name).unwrap();
        }

        /// Removes a file by the name `going`.
        fn remove(&self, name: &str, is: Identity) -> Work<()> {
            let (by, touched) = (path("going"), Touched::default());
            let (lower, counters) = (&self.lower, &self.counters);
            let removed = remove(lower, &path(name), is, Some(&by), None, &touched, counters);
            assert_eq!(self.text("going"), None);
            removed
        }

        fn text(&self, name: &str) -> Option<String> {
            fs::read_to_string(self.folder.path().join(name)).ok()
        }
    }

    fn path(name: &str) -> TreePath {
        TreePath::new(name.as_bytes()).unwrap()
    }

    fn errno(outcome: Work<()>) -> i32 {
        outcome.unwrap_err().errno
    }

    #[test]
    fn a_rename_replaces_nothing_that_somebody_has_put_there() {
        let tree = Tree::new();
        tree.write("ours");
        tree.write("theirs");
        tree.write("dir/in");
        fs::create_dir(tree.folder.path().join("empty")).unwrap();
        let is =
            |name: &str| Identity::of_copy(&sys::stat(tree.lower.root(), name.as_bytes()).unwrap());
        for (from, to) in [("ours", "theirs"), ("dir", "empty"), ("dir", "theirs")] {
            let outcome = tree.rename(from, to, is(from));
            assert_eq!(errno(outcome), libc::EEXIST, "{from} to {to}");
        }
        assert_eq!(tree.text("ours").as_deref(), Some("ours"));
        assert_eq!(tree.text("theirs").as_deref(), Some("theirs"));
        assert_eq!(tree.text("dir/in").as_deref(), Some("dir/in"));
        tree.rename("dir", "free", is("dir")).unwrap();
        assert_eq!(tree.text("free/in").as_deref(), Some("dir/in"));
    }

    #[test]
    fn what_somebody_has_put_in_place_of_what_was_to_be_renamed_gets_its_name_back() {
        let tree = Tree::new();
        for name in ["ours", "theirs", "new"] {
            tree.write(name);
        }
        let at = |name: &str| tree.folder.path().join(name);
        let is = Identity::of_copy(&sys::stat(tree.lower.root(), b"ours").unwrap());
        let renamed = |from: &str| tree.rename(from, "free", is);
        fs::rename(at("ours"), at("elsewhere")).unwrap();
        fs::rename(at("theirs"), at("ours")).unwrap();
        assert_eq!(errno(renamed("ours")), libc::EEXIST);
        assert_eq!(tree.text("free"), None);
        assert_eq!(tree.text("ours").as_deref(), Some("theirs"));
        // They have the name again already.
        fs::rename(at("ours"), at("free")).unwrap();
        tree.write("ours");
        pfs::give_back(&tree.lower, &path("free"), Places::of(&path("ours"))).unwrap();
        assert_eq!(tree.text("ours").as_deref(), Some("ours"));
        assert_eq!(tree.text("ours.theirs1").as_deref(), Some("theirs"));
        // It is the same, whatever has been written to it.
        fs::write(at("elsewhere"), "more").unwrap();
        renamed("elsewhere").unwrap();
        assert_eq!(tree.text("free").as_deref(), Some("more"));
    }

    #[test]
    fn what_somebody_has_put_in_place_of_a_file_or_written_to_it_is_not_removed() {
        let tree = Tree::new();
        tree.write("file");
        let seen = sys::stat(tree.lower.root(), b"file").unwrap();
        let is = Identity::of(&seen);
        tree.write("new");
        let at = |name| tree.folder.path().join(name);
        fs::rename(at("file"), at("aside")).unwrap();
        fs::rename(at("new"), at("file")).unwrap();
        assert_eq!(errno(tree.remove("file", is)), libc::EEXIST);
        assert_eq!(tree.text("file").as_deref(), Some("new"));
        fs::rename(at("aside"), at("file")).unwrap();
        fs::write(at("file"), "theirs now").unwrap();
        let outcome = tree.remove("file", Identity::of_copy(&seen));
        assert_eq!(errno(outcome), libc::EEXIST);
        assert_eq!(tree.text("file").as_deref(), Some("theirs now"));
        tree.remove("gone", is).unwrap();
        let now = Identity::of(&sys::stat(tree.lower.root(), b"file").unwrap());
        tree.remove("file", now).unwrap();
        assert_eq!(tree.text("file"), None);
    }

    #[test]
    fn what_comes_in_place_of_a_file_after_the_last_look_gets_its_name_back() {
        let tree = Tree::new();
        let at = |name| tree.folder.path().join(name);
        let dir = tree.lower.root();
        let remove_by = |name: &str, is| {
            let removed = remove_by(dir, &path(name), is, b"going", &tree.counters);
            removed.map_err(Trouble::into_core)
        };
        for name in ["file", "theirs", "squatter"] {
            tree.write(name);
        }
        let is = Identity::of(&sys::stat(dir, b"file").unwrap());
        fs::rename(at("file"), at("elsewhere")).unwrap();
        fs::rename(at("theirs"), at("file")).unwrap();
        assert_eq!(errno(remove_by("file", is)), libc::EEXIST);
        assert_eq!(tree.text("file").as_deref(), Some("theirs"));
        assert_eq!(tree.text("going"), None);
        // The kernel repeats a rename of which it has lost the answer.
        fs::rename(at("elsewhere"), at("going")).unwrap();
        remove_by("gone", is).unwrap();
        assert_eq!(tree.text("going"), None);
        // Where there can be no such name it goes by its own.
        fs::rename(at("squatter"), at("going")).unwrap();
        remove_by("file", is).unwrap();
        assert_eq!(tree.text("file"), None);
        assert_eq!(tree.text("going").as_deref(), Some("squatter"));
    }

    #[test]
    fn what_finds_its_name_taken_gets_one_beside_it() {
        let tree = Tree::new();
        for name in ["going", "file", "file.theirs1"] {
            tree.write(name);
        }
        let dir = tree.lower.root();
        let give_back = || pfs::give_back_in(dir, b"going", dir, b"file");
        assert_eq!(give_back(), Ok(b"file.theirs2".to_vec()));
        assert_eq!(tree.text("file.theirs2").as_deref(), Some("going"));
        assert_eq!(tree.text("file").as_deref(), Some("file"));
        // It stays where it is, and EEXIST would say that it is back.
        for n in 1..=100 {
            tree.write(&format!("file.theirs{n}"));
        }
        tree.write("going");
        assert_eq!(give_back().unwrap_err().errno, Errno::NOSPC);
        assert_eq!(tree.text("going").as_deref(), Some("going"));
    }

    #[test]
    fn what_somebody_has_put_in_place_of_a_directory_is_not_discarded() {
        let tree = Tree::new();
        tree.write("file");
        std::os::unix::fs::symlink("elsewhere", tree.folder.path().join("link")).unwrap();
        for name in ["file", "link"] {
            let outcome = tree.discard(name, ".forebay-aside");
            assert_eq!(errno(outcome), libc::EEXIST, "{name}");
            assert!(tree.folder.path().join(name).symlink_metadata().is_ok());
        }
        tree.discard("gone", ".forebay-aside").unwrap();
        assert!(!tree.folder.path().join(".forebay-aside").exists());
    }

    #[test]
    fn what_lies_where_only_some_may_look_goes_aside_there_until_it_is_swept() {
        use std::os::unix::fs::PermissionsExt;
        let tree = Tree::new();
        let root = tree.folder.path();
        for (mode, place) in [(0o755, ""), (0o711, "around/dir"), (0o700, "around/dir")] {
            tree.write("around/dir/in/file");
            for (dir, mode) in [("around/dir", 0o755), ("around", mode)] {
                let mode = fs::Permissions::from_mode(mode);
                fs::set_permissions(root.join(dir), mode).unwrap();
            }
            let touched = Touched::default();
            let removal = tree.removal(&touched);
            removal
                .take_away(&path("around/dir/in"), None, &path(".forebay-aside"), None)
                .unwrap();
            let asides = ["", "around/dir"].map(|dir| {
                let aside = root.join(dir).join(".forebay-aside");
                aside.join("file").exists().then_some(dir)
            });
            assert_eq!(asides.into_iter().flatten().collect::<Vec<_>>(), [place]);
            let aside = TreePath::new(place).unwrap().join(b".forebay-aside");
            let (lower, notes) = (&tree.lower, &tree.notes);
            aside::sweep(lower, notes, &aside, &touched, &tree.counters).unwrap();
            aside::forget_gone(lower, notes, &touched);
            let around = fs::read_dir(root.join("around/dir")).unwrap();
            assert_eq!(around.count(), 0, "{mode:o}");
            let known = touched.aside_below(&path("around"), || unreachable!("it is known"));
            let left = known.unwrap_or_default();
            assert_eq!(left, [], "{mode:o}");
        }
    }

    #[test]
    fn a_link_in_place_of_a_directory_is_not_followed_to_change_a_mode() {
        use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
        let tree = Tree::new();
        let at = |name: &str| tree.folder.path().join(name);
        fs::create_dir(at("outside")).unwrap();
        let locked = fs::Permissions::from_mode(0o500);
        fs::set_permissions(at("outside"), locked.clone()).unwrap();
        symlink("outside", at("dir")).unwrap();
        let make = |name: &str| {
            let own = sys::stat(tree.lower.root(), b"").unwrap();
            make_dir(&tree.lower, &new_dir(name), || Ok(own))
        };
        let outcome = make("dir");
        assert_eq!(outcome.unwrap_err().errno, libc::EEXIST);
        let dir = sys::open_path(tree.folder.path(), libc::O_PATH).unwrap();
        assert_eq!(
            sys::chmod_at(dir.as_fd(), b"dir", 0o700),
            Err(Errno::LOOP),
            "also if it came after a look"
        );
        assert_eq!(at("outside").metadata().unwrap().mode() & 0o777, 0o500);
        fs::create_dir(at("own")).unwrap();
        fs::set_permissions(at("own"), locked).unwrap();
        let found = Identity::of_dir(&sys::stat(tree.lower.root(), b"own").unwrap());
        assert_eq!(make("own"), Ok(found));
        // Root gets into any.
        let opened = if sys::my_ids().0 == 0 { 0o500 } else { 0o700 };
        assert_eq!(at("own").metadata().unwrap().mode() & 0o777, opened);
    }

    fn new_dir(name: &str) -> NewDir {
        NewDir {
            path: path(name),
            object: ObjectName {
                oid: ObjectId::new(BridgeId(1), 1, 1),
                link: 0,
            },
            known: None,
            within: None,
            apart: path(name).parent().join(APART),
            knows_dirs: true,
            was_made: false,
        }
    }

    const APART: &[u8] = b"apart";

    #[test]
    fn a_directory_of_another_user_is_neither_taken_nor_touched() {
        use std::os::unix::fs::{MetadataExt, PermissionsExt};
        let tree = Tree::new();
        let at = |name: &str| tree.folder.path().join(name);
        for name in ["known", "new", "mine", "just", "full/in"] {
            fs::create_dir_all(at(name)).unwrap();
        }
        for name in ["known", "new", "mine", "just", "full"] {
            fs::set_permissions(at(name), fs::Permissions::from_mode(0o500)).unwrap();
        }
        let me = sys::my_ids().0;
        let look = |name: &str| sys::stat(tree.lower.root(), name.as_bytes()).unwrap();
        let own = |uid| {
            let own = Attr { uid, ..look("new") };
            move || Ok(own)
        };
        let errno = |made: Work<Identity>| made.unwrap_err().errno;
        let refused = make_dir(&tree.lower, &new_dir("new"), own(me + 1));
        assert_eq!(errno(refused), libc::EEXIST);
        assert_eq!(at("new").metadata().unwrap().mode() & 0o777, 0o500);
        make_dir(&tree.lower, &new_dir("mine"), own(me)).unwrap();
        let known = NewDir {
            known: Some(Identity::of_dir(&look("known"))),
            ..new_dir("known")
        };
        make_dir(&tree.lower, &known, own(me + 1)).unwrap();
        // A drain of this user that was killed has made it, if anybody has.
        for name in ["just", "full"] {
            fs::set_permissions(at(name), fs::Permissions::from_mode(0o700)).unwrap();
            let made = make_dir(&tree.lower, &new_dir(name), own(me + 1));
            assert_eq!(made.is_ok(), name == "just", "{made:?}");
        }
    }

    #[test]
    fn where_others_may_rename_a_directory_is_made_apart_and_only_one_with_its_mark_is_taken() {
        use std::os::unix::fs::PermissionsExt;
        let tree = Tree::new();
        let at = |name: &str| tree.folder.path().join(name);
        fs::create_dir(at("shared")).unwrap();
        fs::set_permissions(at("shared"), fs::Permissions::from_mode(0o777)).unwrap();
        let me = sys::my_ids().0;
        let own = || {
            let uid = me + 1;
            Ok(Attr {
                uid,
                ..Attr::default()
            })
        };
        let new = new_dir("shared/new");
        let made = make_dir(&tree.lower, &new, own).unwrap();
        let dir = fs::File::open(at("shared/new")).unwrap();
        let found = sys::stat(dir.as_fd(), b"").unwrap();
        assert!(made.is_dir_of(&found));
        // Whoever moves it from here leaves it to its owner.
        let owner = if me == 0 { 1 } else { me };
        assert_eq!((found.uid, found.mode & 0o7777), (owner, 0o700));
        // Nothing is left where it was made.
        assert_eq!(fs::read_dir(at("shared")).unwrap().count(), 1);
        assert_eq!(fs::read_dir(tree.folder.path()).unwrap().count(), 1);
        // A drain that was killed has made it.
        let mark = sys::get_xattr(dir.as_fd(), drain::made_for(me)).unwrap();
        if mark.is_some() {
            assert_eq!(make_dir(&tree.lower, &new, own), Ok(made));
            sys::remove_xattr(dir.as_fd(), drain::made_for(me)).unwrap();
        }
        // Without the mark others may have moved it there.
        let refused = make_dir(&tree.lower, &new, own).unwrap_err();
        assert_eq!(refused.errno, libc::EEXIST);
    }

    /// Whoever sees the name can put a private directory of this user there.
    #[test]
    fn nothing_that_was_there_before_is_taken_for_what_is_made_apart() {
        use std::os::unix::fs::PermissionsExt;
        let tree = Tree::new();
        let at = |name: &str| tree.folder.path().join(name);
        for name in ["shared", "shared/apart", "shared/apart/d"] {
            fs::create_dir(at(name)).unwrap();
            fs::set_permissions(at(name), fs::Permissions::from_mode(0o700)).unwrap();
        }
        tree.write("shared/apart/d/key");
        fs::set_permissions(at("shared"), fs::Permissions::from_mode(0o777)).unwrap();
        let own = || Ok(Attr::default());
        let refused = make_dir(&tree.lower, &new_dir("shared/new"), own).unwrap_err();
        assert_eq!(refused.errno, libc::EBUSY);
        let dir = fs::File::open(at("shared")).unwrap();
        assert_eq!(remove_apart(dir.as_fd(), APART), Ok(false));
        assert!(at("shared/apart/d/key").exists() && !at("shared/new").exists());
        fs::remove_file(at("shared/apart/d/key")).unwrap();
        assert_eq!(remove_apart(dir.as_fd(), APART), Ok(true));
        assert!(!at("shared/apart").exists());
    }

    #[test]
    fn what_came_in_place_of_a_directory_at_the_last_moment_is_put_back() {
        let tree = Tree::new();
        tree.write("dir/in");
        let taken = tree
            .lower
            .open(&path("dir"), libc::O_PATH | libc::O_DIRECTORY)
            .unwrap();
        tree.write("aside");
        fs::rename(
            tree.folder.path().join("dir"),
            tree.folder.path().join("moved"),
        )
        .unwrap();
        let touched = Touched::default();
        let removal = tree.removal(&touched);
        let give_back = |from: &str, aside: &str| {
            let from = path(from);
            let going = GoingDir {
                dir: tree.lower.root(),
                path: &from,
                ino: 0,
                within: None,
            };
            let outcome = removal.give_back_another(&taken, &going, &path(aside));
            assert_eq!(outcome.unwrap_err().errno, Errno::NOTDIR);
        };
        give_back("dir", "aside");
        assert_eq!(tree.text("dir").as_deref(), Some("aside"));
        // Whoever has put it into another directory may not be allowed to write to this one.
        for (mode, place) in [(0o777, "away/gone.theirs1"), (0o755, "gone")] {
            use std::os::unix::fs::PermissionsExt;
            tree.write("away/aside");
            let mode = fs::Permissions::from_mode(mode);
            fs::set_permissions(tree.folder.path().join("away"), mode).unwrap();
            give_back("gone", "away/aside");
            assert_eq!(tree.text(place).as_deref(), Some("away/aside"));
        }
    }

    /// The user who has asked for it may rename other directories to the place.
    #[test]
    fn nothing_goes_from_another_directory_nor_leaves_it_nor_comes_back_to_it() {
        let tree = Tree::new();
        for name in ["own/f", "own/d/in", "theirs/f", "theirs/d/in", "theirs/e"] {
            tree.write(name);
        }
        let at = |name: &str| sys::stat(tree.lower.root(), name.as_bytes()).unwrap();
        let own = Some(Identity::of_dir(&at("own")));
        let touched = Touched::default();
        let (lower, counters) = (&tree.lower, &tree.counters);
        let is = Identity::of_copy(&at("theirs/f"));
        let removed = remove(lower, &path("theirs/f"), is, None, own, &touched, counters);
        assert_eq!(errno(removed), libc::EACCES);
        let (from, to) = (path("theirs/f"), path("own/g"));
        let ends = [&from, &to];
        let renamed = rename(lower, &tree.notes, ends, is, [own; 2], &touched, counters);
        assert_eq!(errno(renamed), libc::EACCES);
        let removal = tree.removal(&touched);
        let aside = path(".forebay-aside");
        let taken = removal.discard(&path("theirs/d"), None, &aside, own);
        assert_eq!(errno(taken), libc::EACCES);
        assert_eq!(tree.text("theirs/d/in").as_deref(), Some("theirs/d/in"));
        removal.discard(&path("own/d"), None, &aside, own).unwrap();
        tree.write(".forebay-aside/new");
        // Now the other one is there.
        let rename = |from: &str, to: &str| {
            let root = tree.folder.path();
            fs::rename(root.join(from), root.join(to)).unwrap();
        };
        rename("own", "away");
        rename("theirs", "own");
        aside::sweep(lower, &tree.notes, &aside, &touched, counters).unwrap();
        assert!(!tree.folder.path().join("own/d/new").exists());
        assert_eq!(
            tree.text("d.theirs1/new").as_deref(),
            Some(".forebay-aside/new")
        );
    }

    #[test]
    fn a_directory_is_discarded_beside_what_earlier_drains_have_left() {
        let tree = Tree::new();
        for name in ["aside/a", "aside1/b", "dir/c"] {
            tree.write(name);
        }
        fs::create_dir(tree.folder.path().join("empty")).unwrap();
        tree.discard("empty", "aside").unwrap();
        tree.discard("dir", "aside").unwrap();
        assert_eq!(tree.text("aside/a").as_deref(), Some("aside/a"));
        assert_eq!(tree.text("aside1/b").as_deref(), Some("aside1/b"));
        assert_eq!(tree.text("aside2/c").as_deref(), Some("dir/c"));
        assert!(!tree.folder.path().join("empty").exists());
    }
}
