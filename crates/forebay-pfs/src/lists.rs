//! Access control lists of what is looked at for somebody.
//!
//! To read one takes longer than the look itself, so they are kept for a while: [`access_list::is_believed`] says for how long.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Instant;

use forebay_core::access_list::{self, XATTR};
use forebay_core::facts::{Attr, Cred, Inode, Timestamp};
use forebay_sys::{self as sys, Errno, Sys};
use parking_lot::RwLock;

/// Most lists that are kept.
const MOST: usize = 1 << 14;

/// An access control list; `None`: there is none.
type List = Option<Arc<[u8]>>;

/// Lists that were read lately.
#[derive(Debug, Default)]
pub struct Lists(RwLock<HashMap<(Inode, Timestamp), Kept>>);

#[derive(Debug)]
struct Kept {
    first_seen: Instant,
    read: Instant,
    list: List,
}

impl Lists {
    /// `attr` with what the list gives to `asker`; `None`: the list has to be read ([`Lists::read`]).
    pub fn known(&self, attr: Attr, asker: &Cred) -> Option<Attr> {
        if !access_list::matters(asker, &attr) {
            return Some(attr);
        }
        let known = self.0.read();
        let kept = known.get(&key(&attr))?;
        let after = kept.read.duration_since(kept.first_seen);
        access_list::is_believed(attr.ctime, after, kept.read.elapsed())
            .then(|| access_list::with_list(attr, kept.list.as_deref(), asker))
    }

    /// `attr` of something open, which may have been opened with `O_PATH`, with what its list gives to `asker`. Needs `/proc`.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn read(&self, what: BorrowedFd<'_>, attr: Attr, asker: &Cred) -> Sys<Attr> {
        let read = Instant::now();
        let list: List = list_of(what)?.map(Arc::from);
        let told = access_list::with_list(attr, list.as_deref(), asker);
        let mut known = self.0.write();
        let key = key(&attr);
        if known.len() >= MOST && !known.contains_key(&key) {
            known.clear();
        }
        let kept = known.entry(key).or_insert(Kept {
            first_seen: read,
            read,
            list: None,
        });
        (kept.read, kept.list) = (read, list);
        Ok(told)
    }

    /// Attributes of `name` in `dir`, or of `dir` itself if the name is empty. `asker`: whose rights matter; `None`: nobody's.
    pub(crate) fn attr_for(
        &self,
        dir: BorrowedFd<'_>,
        name: &[u8],
        asker: Option<&Cred>,
    ) -> Sys<Attr> {
        let attr = sys::stat(dir, name)?;
        let Some(asker) = asker else {
            return Ok(attr);
        };
        if let Some(known) = self.known(attr, asker) {
            return Ok(known);
        }
        if name.is_empty() {
            return self.read(dir, attr, asker);
        }
        // Others may put something else there, so list and attributes are taken of one thing.
        let found = sys::open(dir, name, libc::O_PATH | libc::O_NOFOLLOW, 0)?;
        self.read(found.as_fd(), sys::stat(found.as_fd(), b"")?, asker)
    }
}

fn key(attr: &Attr) -> (Inode, Timestamp) {
    (attr.inode(), attr.ctime)
}

/// The list of an open file or directory. A file system may have no lists at all.
pub(crate) fn list_of(what: BorrowedFd<'_>) -> Sys<Option<Vec<u8>>> {
    match sys::get_xattr_of_path(what, XATTR) {
        Err(Errno::OPNOTSUPP) => Ok(None),
        // What is open is there. Its link in `/proc` is not.
        Err(Errno::NOENT) => Err(Errno::IO),
        list => list,
    }
}
