//! Access control lists of what is looked at for somebody.

use std::os::fd::{AsFd, BorrowedFd};

use forebay_core::access_list::{self, XATTR};
use forebay_core::facts::{Attr, Cred};
use forebay_sys::{self as sys, Errno, Sys};

/// The list of an open file or directory, which may have been opened with `O_PATH`. `None`: it has none, or its file system
/// has no lists. Needs `/proc`.
///
/// # Errors
/// Those of the file system.
pub fn read(what: BorrowedFd<'_>) -> Sys<Option<Vec<u8>>> {
    match sys::get_xattr_of_path(what, XATTR) {
        Err(Errno::OPNOTSUPP) => Ok(None),
        list => list,
    }
}

/// `attr` of something open, with what its list gives to `asker`.
///
/// # Errors
/// Those of [`read`].
pub fn with_list(what: BorrowedFd<'_>, attr: Attr, asker: &Cred) -> Sys<Attr> {
    if !access_list::matters(asker, &attr) {
        return Ok(attr);
    }
    let list = read(what)?;
    Ok(access_list::with_list(attr, list.as_deref(), asker))
}

/// Attributes of `name` in `dir`, or of `dir` itself if the name is empty. `asker`: whose rights matter; `None`: nobody's.
pub(crate) fn attr_for(dir: BorrowedFd<'_>, name: &[u8], asker: Option<&Cred>) -> Sys<Attr> {
    let attr = sys::stat(dir, name)?;
    let Some(asker) = asker.filter(|asker| access_list::matters(asker, &attr)) else {
        return Ok(attr);
    };
    if name.is_empty() {
        return with_list(dir, attr, asker);
    }
    // Others may put something else there, so list and attributes are taken of one thing.
    let found = sys::open(dir, name, libc::O_PATH | libc::O_NOFOLLOW, 0)?;
    with_list(found.as_fd(), sys::stat(found.as_fd(), b"")?, asker)
}
