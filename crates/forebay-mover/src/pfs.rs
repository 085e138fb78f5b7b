//! The PFS as the mover works on it: every failure knows its operation.

use forebay_core::facts::Attr;
use forebay_core::path::TreePath;
use forebay_pfs::Lower;
use forebay_sys::{self as sys, Errno};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The PFS or the local disk refused something. The thing at hand stays in the buffer; the others go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trouble {
    /// What was tried.
    pub operation: &'static str,
    /// What the kernel said.
    pub errno: Errno,
}

impl Trouble {
    /// As the drain of core knows it.
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
/// Whoever asks for it is about to change its entries: its times are kept.
pub fn parent(lower: &Lower, path: &TreePath) -> Work<OwnedFd> {
    let dir = path.parent();
    lower.keep_times(&dir);
    lower
        .open(&dir, libc::O_PATH | libc::O_DIRECTORY)
        .during("open directory")
}

/// `lstat`; `None` if nothing is there.
pub fn look(lower: &Lower, path: &TreePath) -> Work<Option<Attr>> {
    let dir = match parent(lower, path) {
        Ok(dir) => dir,
        Err(Trouble {
            errno: Errno::NOENT | Errno::NOTDIR | Errno::LOOP,
            ..
        }) => return Ok(None),
        Err(e) => return Err(e),
    };
    match sys::stat(dir.as_fd(), path.name()) {
        Ok(attr) => Ok(Some(attr)),
        Err(Errno::NOENT) => Ok(None),
        Err(e) => Err(e).during("stat"),
    }
}

/// Is it a directory?
pub fn is_dir(attr: &Attr) -> bool {
    attr.mode & libc::S_IFMT == libc::S_IFDIR
}

/// `rename` on the PFS.
pub fn rename(lower: &Lower, from: &TreePath, to: &TreePath) -> Work<()> {
    let (a, b) = (parent(lower, from)?, parent(lower, to)?);
    sys::rename(a.as_fd(), from.name(), b.as_fd(), to.name()).during("rename")
}

/// Removes `name` in `dir` with everything in it; nothing there is fine. Symbolic links are not followed.
pub fn remove_tree(dir: BorrowedFd<'_>, name: &[u8]) -> Work<()> {
    match sys::unlink(dir, name, false) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        // POSIX says EPERM, Linux says EISDIR.
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(e) => return Err(e).during("unlink"),
    }
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW;
    let inner = match sys::open(dir, name, flags, 0) {
        Ok(fd) => fd,
        Err(Errno::ACCESS) => {
            // Its owner has locked himself out; what goes anyway may be opened first.
            sys::chmod_at(dir, name, 0o700).during("chmod")?;
            sys::open(dir, name, flags, 0).during("open directory")?
        }
        Err(e) => return Err(e).during("open directory"),
    };
    let mut entries = Vec::new();
    while sys::read_dir(inner.as_fd(), &mut entries).during("list directory")? {}
    let mut opened = false;
    for entry in &entries {
        let mut removed = remove_tree(inner.as_fd(), &entry.name);
        if let Err(Trouble {
            errno: Errno::ACCESS,
            ..
        }) = removed
            && !opened
        {
            opened = true;
            sys::chmod(inner.as_fd(), 0o700).during("chmod")?;
            removed = remove_tree(inner.as_fd(), &entry.name);
        }
        removed?;
    }
    match sys::unlink(dir, name, true) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(e) => Err(e).during("rmdir"),
    }
}

/// Gives an open file or directory the extended attributes of another one, but for those of Forebay. Returns the names
/// of those that the PFS does not take.
pub fn copy_xattrs(from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> Work<Vec<String>> {
    sys::copy_xattrs(from, to, |name| name.starts_with(b"user.forebay."))
        .during("copy extended attributes")
}
