//! The PFS as the mover changes it. Each failure names its operation.

use forebay_core::drain::{self, Name, Named, Places, names_beside};
use forebay_core::facts::{Attr, Inode};
use forebay_core::identity::Identity;
use forebay_core::path::TreePath;
use forebay_core::record::Kind;
use forebay_objects::label::is_own_attribute;
use forebay_pfs::Lower;
use forebay_sys::{self as sys, Errno, Xattr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// The PFS or the local disk refused something. What was being drained stays in the buffer; the drain goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trouble {
    /// What was tried.
    pub operation: &'static str,
    /// What the kernel said.
    pub errno: Errno,
}

impl Trouble {
    /// Is it that nothing is there?
    pub(crate) fn is_absence(self) -> bool {
        matches!(self.errno, Errno::NOENT | Errno::NOTDIR | Errno::LOOP)
    }

    /// The same failure as a type of core.
    pub(crate) fn into_core(self) -> forebay_core::drain::Trouble {
        forebay_core::drain::Trouble {
            operation: self.operation,
            errno: self.errno.raw_os_error(),
        }
    }
}

/// Result of work on the PFS.
pub type Work<T> = Result<T, Trouble>;

/// Gives a failure its operation.
pub trait During<T> {
    /// See [`Trouble::operation`].
    fn during(self, operation: &'static str) -> Work<T>;
}

impl<T> During<T> for Result<T, Errno> {
    fn during(self, operation: &'static str) -> Work<T> {
        self.map_err(|errno| Trouble { operation, errno })
    }
}

/// The directory that holds `path`, to be used in calls relative to it. `path` is not the root.
/// Its times are kept: an entry of it is about to change, or may change after a look at it.
pub fn parent(lower: &Lower, path: &TreePath) -> Work<OwnedFd> {
    let dir = path.parent();
    lower.keep_times(&dir);
    lower
        .open(&dir, libc::O_PATH | libc::O_DIRECTORY)
        .during("open directory")
}

/// EACCES unless this is the directory in which alone something is to be put: see [`forebay_core::record::Dirs::within`].
pub(crate) fn check_within(dir: BorrowedFd<'_>, within: Option<Identity>) -> Work<()> {
    match within {
        Some(known) if !known.is_dir_of(&sys::stat(dir, b"").during("stat")?) => {
            Err(Errno::ACCESS).during(drain::OTHER_DIR)
        }
        _ => Ok(()),
    }
}

/// `lstat`; `None` if nothing is there.
pub fn look(lower: &Lower, path: &TreePath) -> Work<Option<Attr>> {
    LastDir::default().look(lower, path)
}

/// The directory used last: neighbours in the queue mostly share it.
#[derive(Default)]
pub(crate) struct LastDir {
    dir: Option<(TreePath, Arc<OwnedFd>)>,
    group: Option<u32>,
}

impl LastDir {
    pub(crate) fn parent(&mut self, lower: &Lower, path: &TreePath) -> Work<Arc<OwnedFd>> {
        let at_parent = path.parent();
        if let Some((at, dir)) = &self.dir
            && *at == at_parent
        {
            return Ok(dir.clone());
        }
        let dir = Arc::new(parent(lower, path)?);
        self.dir = Some((at_parent, dir.clone()));
        self.group = None;
        Ok(dir)
    }

    /// The group of the directory that was used last.
    pub(crate) fn group(&mut self) -> Work<u32> {
        let Some((_, dir)) = &self.dir else {
            return Err(Errno::NOENT).during("stat");
        };
        let group = match self.group {
            Some(group) => group,
            None => sys::stat(dir.as_fd(), b"").during("stat")?.gid,
        };
        self.group = Some(group);
        Ok(group)
    }

    /// [`LastDir::parent`]; `None`: there is no such directory.
    pub(crate) fn parent_if_there(
        &mut self,
        lower: &Lower,
        path: &TreePath,
    ) -> Work<Option<Arc<OwnedFd>>> {
        match self.parent(lower, path) {
            Ok(dir) => Ok(Some(dir)),
            Err(e) if e.is_absence() => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// As [`look`].
    pub(crate) fn look(&mut self, lower: &Lower, path: &TreePath) -> Work<Option<Attr>> {
        let Some(dir) = self.parent_if_there(lower, path)? else {
            return Ok(None);
        };
        match sys::stat(dir.as_fd(), path.name()) {
            Ok(attr) => Ok(Some(attr)),
            Err(Errno::NOENT) => Ok(None),
            Err(e) => Err(e).during("stat"),
        }
    }
}

/// Renames on the PFS, and replaces nothing: EEXIST if something is at `to`. A file system that can't promise that (Lustre
/// and NFS can't) is asked first; there, what comes between the question and the rename is replaced.
pub fn rename(lower: &Lower, from: &TreePath, to: &TreePath) -> Work<()> {
    let (a, b) = (parent(lower, from)?, parent(lower, to)?);
    rename_free(a.as_fd(), from.name(), b.as_fd(), to.name())
}

/// Gives what is at `at` the first of these places that is free. Gives that.
pub(crate) fn give_back(lower: &Lower, at: &TreePath, mut places: Places) -> Work<TreePath> {
    loop {
        let place = places.place();
        match rename(lower, at, &place) {
            Ok(()) => {
                lower.note_changed(at.parent());
                lower.note_changed(places.dir().clone());
                return Ok(place);
            }
            Err(trouble) if places.move_on(trouble.errno.raw_os_error()) => {}
            Err(trouble) => return Err(trouble),
        }
    }
}

/// Gives what is at `from` the name `to` in this directory, or one beside that. Gives the name. ENOSPC: none of them is free.
pub(crate) fn give_back_in(
    from_dir: BorrowedFd<'_>,
    from: &[u8],
    dir: BorrowedFd<'_>,
    to: &[u8],
) -> Work<Vec<u8>> {
    for name in std::iter::once(to.to_vec()).chain(names_beside(to)) {
        match rename_free(from_dir, from, dir, &name) {
            Err(trouble) if trouble.errno == Errno::EXIST => {}
            renamed => return renamed.map(|()| name),
        }
    }
    Err(Errno::NOSPC).during("rename")
}

/// What may be removed from under the temporary name of a copy: the copy, and what the copy has replaced. Everything else there is
/// of others.
#[derive(Debug)]
pub(crate) struct Ours {
    copy: Inode,
    replaced: Vec<Identity>,
    /// The name of something of others that came between the last look and a rename, and did not get its own name back: one beside it, or
    /// still the temporary one.
    displaced: Option<Vec<u8>>,
    /// A client of this file system shows each change time at once.
    shows_at_once: bool,
}

impl Ours {
    /// Of a copy that is held open.
    pub(crate) fn new(copy: &Attr, shows_at_once: bool) -> Self {
        Ours {
            copy: copy.inode(),
            replaced: Vec::new(),
            displaced: None,
            shows_at_once,
        }
    }

    /// The copy, if it is itself under this name. Nothing there is an answer, too.
    pub(crate) fn at(&self, dir: BorrowedFd<'_>, name: &[u8]) -> Work<Option<Attr>> {
        match sys::stat(dir, name) {
            Ok(there) => Ok(Some(there).filter(|there| there.inode() == self.copy)),
            Err(Errno::NOENT) => Ok(None),
            Err(e) => Err(e).during("stat"),
        }
    }

    /// What others have put there is under this name now, if that is not the one that they have given it.
    pub(crate) fn take_displaced(&mut self) -> Option<Vec<u8>> {
        self.displaced.take()
    }

    fn has_replaced(&self, there: &Attr) -> bool {
        self.replaced.contains(&Identity::of_copy(there))
    }

    /// Removes a temporary name, if it is there and what has it may go.
    pub(crate) fn remove(&self, dir: BorrowedFd<'_>, temporary: &[u8]) -> Work<()> {
        match sys::stat(dir, temporary) {
            Ok(there) if there.inode() == self.copy || self.has_replaced(&there) => {}
            Ok(_) | Err(Errno::NOENT) => return Ok(()),
            Err(e) => return Err(e).during("stat"),
        }
        // What others put there between this and the look goes.
        match sys::unlink(dir, temporary, false) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(e) => Err(e).during("unlink"),
        }
    }
}

/// Renames a copy in its directory to a name. EEXIST if something is there that it may not replace.
pub(crate) fn give_name(
    dir: BorrowedFd<'_>,
    copy: &[u8],
    name: &Name,
    ours: &mut Ours,
) -> Work<Named> {
    give_name_after(dir, copy, name, ours, || {})
}

/// As [`give_name`]. What happens last thing before the rename is `meanwhile`.
fn give_name_after(
    dir: BorrowedFd<'_>,
    copy: &[u8],
    name: &Name,
    ours: &mut Ours,
    meanwhile: impl FnOnce(),
) -> Work<Named> {
    let to = name.path.name();
    let Some(before) = ours.at(dir, copy)? else {
        return Ok(Named::Supplanted);
    };
    let found = match name.replaces.map(|_| sys::stat(dir, to)) {
        None | Some(Err(Errno::NOENT)) => None,
        Some(found) => Some(found.during("stat")?),
    };
    if found.is_some_and(|found| !name.may_replace(&found)) {
        return Err(Errno::EXIST).during("rename");
    }
    meanwhile();
    // What others have put under the temporary name since then comes to the final one by this, and stays there.
    let has_arrived = |ours: &Ours| {
        let there = ours.at(dir, to)?;
        Ok(there.map_or(Named::Supplanted, |now| {
            Named::Whole(Identity::of_named(&before, &now, ours.shows_at_once))
        }))
    };
    let Some(found) = found else {
        rename_free(dir, copy, dir, to)?;
        return has_arrived(ours);
    };
    ours.replaced.push(Identity::of_copy(&found));
    // What came between the look and this comes back, and is known by that.
    match sys::exchange(dir, copy, to) {
        Ok(()) => {}
        Err(Errno::NOENT) => {
            rename_free(dir, copy, dir, to)?;
            return has_arrived(ours);
        }
        Err(Errno::INVAL | Errno::NOSYS) => {
            sys::rename(dir, copy, dir, to).during("rename")?;
            return has_arrived(ours);
        }
        Err(e) => return Err(e).during("rename"),
    }
    let named = has_arrived(ours)?;
    let is_whole = named.is_whole();
    let is_found = |back: Attr| Identity::of_copy(&back) == Identity::of_copy(&found);
    match sys::stat(dir, copy) {
        Ok(back) if is_found(back) && is_whole => {
            sys::unlink(dir, copy, false).during("unlink")?;
            return Ok(named);
        }
        // The copy has its name, and nothing says that others have changed what came back.
        Err(e) if e != Errno::NOENT && is_whole => return Err(e).during("stat"),
        _ => {}
    }
    // They get their name back, or what was there before does. What they have put there meanwhile, once more, comes back in its
    // place.
    let _ = sys::exchange(dir, copy, to);
    // It is not replaced any more.
    ours.replaced.pop();
    match sys::stat(dir, copy) {
        Ok(at) if at.inode() == ours.copy => {}
        Err(Errno::NOENT) => {}
        // A later drain sweeps temporary names: so that gets a name that nobody removes.
        _ => {
            let beside =
                names_beside(to).find(|beside| rename_free(dir, copy, dir, beside).is_ok());
            ours.displaced = Some(beside.unwrap_or_else(|| copy.to_vec()));
        }
    }
    match is_whole {
        true => Err(Errno::EXIST).during("rename"),
        false => Ok(named),
    }
}

pub(crate) fn rename_free(
    from_dir: BorrowedFd<'_>,
    from: &[u8],
    to_dir: BorrowedFd<'_>,
    to: &[u8],
) -> Work<()> {
    match sys::rename_noreplace(from_dir, from, to_dir, to) {
        Err(Errno::INVAL | Errno::NOSYS) => {}
        outcome => return outcome.during("rename"),
    }
    match sys::stat(to_dir, to) {
        Err(Errno::NOENT) => sys::rename(from_dir, from, to_dir, to).during("rename"),
        Ok(_) => Err(Errno::EXIST).during("rename"),
        Err(e) => Err(e).during("stat"),
    }
}

/// The extended attributes of an open file or directory, but for those of Forebay.
pub fn read_xattrs(from: BorrowedFd<'_>) -> Work<Vec<Xattr>> {
    sys::read_xattrs(from, is_own_attribute).during("read extended attributes")
}

/// Gives an open file or directory extended attributes. Returns the names of those that the PFS does not take.
pub fn write_xattrs(to: BorrowedFd<'_>, xattrs: &[Xattr]) -> Work<Vec<String>> {
    sys::write_xattrs(to, xattrs).during("set extended attributes")
}

/// The two at once, for `O_PATH` descriptors of a symbolic link or a node. A link has no access list: the file
/// that keeps its text may have one. Those whose names begin with `but` are left out, if it is not empty.
pub fn copy_xattrs_of_path(
    kind: Kind,
    from: BorrowedFd<'_>,
    to: BorrowedFd<'_>,
    but: &[u8],
) -> Work<Vec<String>> {
    let is_left_out = |name: &[u8]| {
        is_own_attribute(name)
            || kind == Kind::Symlink && name.starts_with(b"system.posix_acl_")
            || !but.is_empty() && name.starts_with(but)
    };
    sys::copy_xattrs_of_path(from, to, is_left_out).during("copy extended attributes")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_copy_gets_its_name_only_over_what_the_drain_has_found_there() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let lower = Lower::open_root(folder.path(), Some(false)).unwrap();
        let path = TreePath::new(b"name").unwrap();
        let dir = parent(&lower, &path).unwrap();
        let found = || Some(Identity::of(&look(&lower, &path).unwrap()?));
        let give = |replaces| {
            fs::write(at("copy"), "ours").unwrap();
            let path = path.clone();
            let mut ours = Ours::new(&sys::stat(dir.as_fd(), b"copy").unwrap(), true);
            let name = Name {
                path,
                replaces,
                within: None,
            };
            let gave = give_name(dir.as_fd(), b"copy", &name, &mut ours);
            let is_whole = gave.map(Named::is_whole);
            let errno = is_whole.map_err(|trouble| trouble.errno);
            (errno, fs::read_to_string(at("name")).unwrap())
        };
        // Nothing was there, and something has come.
        let before = found();
        fs::write(at("name"), "theirs").unwrap();
        assert_eq!(give(before), (Err(Errno::EXIST), "theirs".to_owned()));
        // It was changed, and replaced.
        let before = found();
        fs::write(at("name"), "theirs again").unwrap();
        assert_eq!(give(before), (Err(Errno::EXIST), "theirs again".to_owned()));
        let before = found();
        fs::write(at("other"), "new").unwrap();
        fs::rename(at("other"), at("name")).unwrap();
        assert_eq!(give(before), (Err(Errno::EXIST), "new".to_owned()));
        // Nobody has touched it, or it has gone.
        assert_eq!(give(found()), (Ok(true), "ours".to_owned()));
        let before = found();
        fs::remove_file(at("name")).unwrap();
        assert_eq!(give(before), (Ok(true), "ours".to_owned()));
    }

    /// A directory with the copy of a drain in it.
    struct Copied {
        folder: tempfile::TempDir,
        dir: OwnedFd,
        ours: Ours,
        /// The drain holds it open.
        _copy: fs::File,
    }

    impl Copied {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let dir = sys::open_path(folder.path(), libc::O_PATH).unwrap();
            fs::write(folder.path().join("copy"), "ours").unwrap();
            fs::write(folder.path().join("theirs"), "theirs").unwrap();
            Copied {
                ours: Ours::new(&sys::stat(dir.as_fd(), b"copy").unwrap(), true),
                _copy: fs::File::open(folder.path().join("copy")).unwrap(),
                folder,
                dir,
            }
        }

        fn replace(&self, from: &str, to: &str) {
            fs::rename(self.folder.path().join(from), self.folder.path().join(to)).unwrap();
        }

        fn exchange(&self, one: &str, other: &str) {
            sys::exchange(self.dir.as_fd(), one.as_bytes(), other.as_bytes()).unwrap();
        }

        /// What all names hold.
        fn texts(&self) -> Vec<(String, String)> {
            let entries = fs::read_dir(self.folder.path())
                .unwrap()
                .map(Result::unwrap);
            let text = |entry: fs::DirEntry| {
                let name = entry.file_name().into_string().unwrap();
                (name, fs::read_to_string(entry.path()).unwrap())
            };
            let mut texts: Vec<_> = entries.map(text).collect();
            texts.sort();
            texts
        }

        /// Over what is there now.
        fn name(&self) -> Name {
            let found = sys::stat(self.dir.as_fd(), b"name").ok();
            Name {
                path: TreePath::new(b"name").unwrap(),
                replaces: found.as_ref().map(Identity::of),
                within: None,
            }
        }
    }

    fn texts<'a>(all: impl IntoIterator<Item = (&'a str, &'a str)>) -> Vec<(String, String)> {
        let owned = |(name, text): (&str, &str)| (name.to_owned(), text.to_owned());
        all.into_iter().map(owned).collect()
    }

    #[test]
    fn what_others_have_put_in_place_of_a_copy_gets_no_name_of_ours_and_is_not_removed() {
        for is_free in [true, false] {
            let mut at = Copied::new();
            if !is_free {
                fs::write(at.folder.path().join("name"), "before").unwrap();
            }
            let name = at.name();
            at.replace("theirs", "copy");
            let mut expected = texts([("copy", "theirs")]);
            expected.extend(texts((!is_free).then_some(("name", "before"))));
            let named = give_name(at.dir.as_fd(), b"copy", &name, &mut at.ours);
            assert_eq!(named, Ok(Named::Supplanted));
            at.ours.remove(at.dir.as_fd(), b"copy").unwrap();
            assert_eq!(at.texts(), expected);
            // It has gone altogether.
            fs::remove_file(at.folder.path().join("copy")).unwrap();
            let named = give_name(at.dir.as_fd(), b"copy", &name, &mut at.ours);
            assert_eq!(named, Ok(Named::Supplanted));
        }
    }

    #[test]
    fn what_others_put_in_place_of_a_copy_at_the_last_moment_is_not_taken_for_it() {
        // Nothing was there. What has come by the rename stays.
        let at = Copied::new();
        let name = at.name();
        let mut ours = Ours::new(&sys::stat(at.dir.as_fd(), b"copy").unwrap(), true);
        let swap = || at.exchange("theirs", "copy");
        let named = give_name_after(at.dir.as_fd(), b"copy", &name, &mut ours, swap);
        assert_eq!(named, Ok(Named::Supplanted));
        ours.remove(at.dir.as_fd(), b"copy").unwrap();
        assert_eq!(at.texts(), texts([("name", "theirs"), ("theirs", "ours")]));
        // What was there comes back, and theirs is kept beside it.
        let at = Copied::new();
        fs::write(at.folder.path().join("name"), "before").unwrap();
        let name = at.name();
        let mut ours = Ours::new(&sys::stat(at.dir.as_fd(), b"copy").unwrap(), true);
        let swap = || at.exchange("theirs", "copy");
        let named = give_name_after(at.dir.as_fd(), b"copy", &name, &mut ours, swap);
        assert_eq!(named, Ok(Named::Supplanted));
        assert_eq!(ours.take_displaced().as_deref(), Some(&b"name.theirs1"[..]));
        ours.remove(at.dir.as_fd(), b"copy").unwrap();
        let kept = [
            ("name", "before"),
            ("name.theirs1", "theirs"),
            ("theirs", "ours"),
        ];
        assert_eq!(at.texts(), texts(kept));
    }

    #[test]
    fn what_a_copy_has_replaced_goes_from_its_temporary_name_and_what_others_put_there_does_not() {
        let mut at = Copied::new();
        fs::write(at.folder.path().join("name"), "before").unwrap();
        let replaced = sys::stat(at.dir.as_fd(), b"name").unwrap();
        // The exchange was done, and the answer to it was lost.
        at.ours.replaced.push(Identity::of_copy(&replaced));
        at.exchange("copy", "name");
        at.ours.remove(at.dir.as_fd(), b"theirs").unwrap();
        at.ours.remove(at.dir.as_fd(), b"copy").unwrap();
        at.ours.remove(at.dir.as_fd(), b"copy").unwrap();
        assert_eq!(at.texts(), texts([("name", "ours"), ("theirs", "theirs")]));
    }
}
