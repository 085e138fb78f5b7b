//! The PFS as the mover changes it. Each failure names its operation.

use forebay_core::drain::{Name, names_beside};
use forebay_core::facts::Attr;
use forebay_core::identity::Identity;
use forebay_core::path::TreePath;
use forebay_core::record::Kind;
use forebay_pfs::Lower;
use forebay_sys::{self as sys, Errno};
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

/// `lstat`; `None` if nothing is there.
pub fn look(lower: &Lower, path: &TreePath) -> Work<Option<Attr>> {
    LastDir::default().look(lower, path)
}

/// The directory used last: neighbours in the queue mostly share it.
#[derive(Default)]
pub(crate) struct LastDir(Option<(TreePath, Arc<OwnedFd>)>);

impl LastDir {
    pub(crate) fn parent(&mut self, lower: &Lower, path: &TreePath) -> Work<Arc<OwnedFd>> {
        let at_parent = path.parent();
        if let Some((at, dir)) = &self.0
            && *at == at_parent
        {
            return Ok(dir.clone());
        }
        let dir = Arc::new(parent(lower, path)?);
        self.0 = Some((at_parent, dir.clone()));
        Ok(dir)
    }

    /// [`LastDir::parent`]; `None`: there is no such directory.
    pub(crate) fn parent_if_there(
        &mut self,
        lower: &Lower,
        path: &TreePath,
    ) -> Work<Option<Arc<OwnedFd>>> {
        match self.parent(lower, path) {
            Ok(dir) => Ok(Some(dir)),
            Err(Trouble {
                errno: Errno::NOENT | Errno::NOTDIR | Errno::LOOP,
                ..
            }) => Ok(None),
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

/// Is it a directory?
pub fn is_dir(attr: &Attr) -> bool {
    attr.mode & libc::S_IFMT == libc::S_IFDIR
}

/// Renames on the PFS, and replaces nothing: EEXIST if something is at `to`. A file system that can't promise that (Lustre
/// and NFS can't) is asked first; there, what comes between the question and the rename is replaced.
pub fn rename(lower: &Lower, from: &TreePath, to: &TreePath) -> Work<()> {
    let (a, b) = (parent(lower, from)?, parent(lower, to)?);
    rename_free(a.as_fd(), from.name(), b.as_fd(), to.name())
}

/// Renames a copy in its directory to a name. EEXIST if something is there that it may not replace.
pub fn give_name(dir: BorrowedFd<'_>, copy: &[u8], name: &Name) -> Work<()> {
    let to = name.path.name();
    if name.replaces.is_none() {
        return rename_free(dir, copy, dir, to);
    }
    let found = match sys::stat(dir, to) {
        Err(Errno::NOENT) => return rename_free(dir, copy, dir, to),
        found => found.during("stat")?,
    };
    if !name.may_replace(&found) {
        return Err(Errno::EXIST).during("rename");
    }
    let ours = sys::stat(dir, copy).during("stat")?;
    // What came between the look and this comes back, and is known by that.
    match sys::exchange(dir, copy, to) {
        Ok(()) => {}
        Err(Errno::NOENT) => return rename_free(dir, copy, dir, to),
        Err(Errno::INVAL | Errno::NOSYS) => {
            return sys::rename(dir, copy, dir, to).during("rename");
        }
        Err(e) => return Err(e).during("rename"),
    }
    let is_found = |back: Attr| Identity::of_copy(&back) == Identity::of_copy(&found);
    match sys::stat(dir, copy) {
        Ok(back) if is_found(back) => return sys::unlink(dir, copy, false).during("unlink"),
        _ => {}
    }
    // They get their name back. What they have put there meanwhile, once more, comes back in its place.
    let _ = sys::exchange(dir, copy, to);
    let is_ours = |at: Attr| (at.dev, at.ino) == (ours.dev, ours.ino);
    match sys::stat(dir, copy) {
        Ok(at) if is_ours(at) => {}
        Err(Errno::NOENT) => {}
        // The caller removes the name of the copy: so that gets a name that nobody removes.
        _ => {
            names_beside(to).find(|beside| rename_free(dir, copy, dir, beside).is_ok());
        }
    }
    Err(Errno::EXIST).during("rename")
}

fn rename_free(
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

/// Gives an open file or directory the extended attributes of another one, but for those of Forebay. Returns the names
/// of those that the PFS does not take.
pub fn copy_xattrs(from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> Work<Vec<String>> {
    sys::copy_xattrs(from, to, |name| name.starts_with(b"user.forebay."))
        .during("copy extended attributes")
}

/// As [`copy_xattrs`], for `O_PATH` descriptors of a symbolic link or a node. A link has no access list: the file
/// that keeps its text may have one.
pub fn copy_xattrs_of_path(
    kind: Kind,
    from: BorrowedFd<'_>,
    to: BorrowedFd<'_>,
) -> Work<Vec<String>> {
    let is_left_out = |name: &[u8]| {
        name.starts_with(b"user.forebay.")
            || kind == Kind::Symlink && name.starts_with(b"system.posix_acl_")
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
            let gave = give_name(dir.as_fd(), b"copy", &Name { path, replaces });
            let errno = gave.map_err(|trouble| trouble.errno);
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
        assert_eq!(give(found()), (Ok(()), "ours".to_owned()));
        let before = found();
        fs::remove_file(at("name")).unwrap();
        assert_eq!(give(before), (Ok(()), "ours".to_owned()));
    }
}
