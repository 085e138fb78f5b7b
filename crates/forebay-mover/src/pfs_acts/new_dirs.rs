//! Directories come.

use super::Work;
use crate::pfs::{self, During, Trouble};
use forebay_core::drain::{self, NewDir};
use forebay_core::facts::Attr;
use forebay_core::identity::Identity;
use forebay_pfs::Lower;
use forebay_sys::{self as sys, Errno};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// See [`drain::Act::MakeDir`]. `own` are the attributes of the backing directory.
pub(crate) fn make_dir(
    lower: &Lower,
    new: &NewDir,
    own: impl FnOnce() -> pfs::Work<Attr>,
) -> Work<Identity> {
    ensure_dir(lower, new, own).map_err(Trouble::into_core)
}

fn ensure_dir(
    lower: &Lower,
    new: &NewDir,
    own: impl FnOnce() -> pfs::Work<Attr>,
) -> pfs::Work<Identity> {
    let dir = pfs::parent(lower, &new.path)?;
    pfs::check_within(dir.as_fd(), new.within)?;
    let around = sys::stat(dir.as_fd(), b"").during("stat")?;
    let by = sys::my_ids().0;
    let made = match new.was_made {
        true => Made::Not,
        false if drain::is_put_by(by, &around) => made_by_name(dir.as_fd(), new.path.name())?,
        false => made_apart(lower, new, dir.as_fd())?,
    };
    let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW;
    let there = match sys::open(dir.as_fd(), new.path.name(), flags, 0) {
        Err(Errno::NOTDIR | Errno::LOOP) => return Err(Errno::EXIST).during("mkdir"),
        there => there.during("open directory")?,
    };
    let found = sys::stat(there.as_fd(), b"").during("stat")?;
    let open = || sys::open(there.as_fd(), b".", libc::O_RDONLY | libc::O_DIRECTORY, 0);
    let is_empty = || {
        let mut entries = Vec::new();
        let read = |dir: OwnedFd| sys::read_dir(dir.as_fd(), &mut entries);
        open().and_then(read).is_ok() && entries.is_empty()
    };
    let is_marked = || {
        let mark = open().and_then(|dir| sys::get_xattr(dir.as_fd(), drain::made_for(by)));
        mark.is_ok_and(|mark| mark == Some(mark_of(new)))
    };
    let is_it = match made {
        Made::Apart(made) => made.is_dir_of(&found),
        Made::ByName => NewDir::is_made(&found, by, around.uid, is_empty),
        Made::Not => new.may_be(&found, &own()?, by, &around, is_empty, is_marked),
    };
    if !is_it {
        return Err(Errno::EXIST).during("mkdir");
    }
    // It gets its own mode back with the other attributes, at the end.
    if found.mode & drain::NEW_DIR_MODE != drain::NEW_DIR_MODE {
        let mode = found.mode & 0o7777 | drain::NEW_DIR_MODE;
        sys::chmod_of_path(there.as_fd(), mode).during("chmod")?;
    }
    Ok(Identity::of_dir(&found))
}

/// How a directory was made.
enum Made {
    /// It was not: something is there.
    Not,
    /// Under its name.
    ByName,
    /// Where nobody else can get at it. It is this one.
    Apart(Identity),
}

fn mark_of(new: &NewDir) -> Vec<u8> {
    new.object.oid.to_string().into_bytes()
}

fn made_by_name(dir: BorrowedFd<'_>, name: &[u8]) -> pfs::Work<Made> {
    match sys::mkdir(dir, name, drain::NEW_DIR_MODE) {
        Ok(()) => Ok(Made::ByName),
        Err(Errno::EXIST) => Ok(Made::Not),
        Err(e) => Err(e).during("mkdir"),
    }
}

/// The name of a directory that is made apart.
const MADE: &[u8] = b"d";

/// Removes the directory in which one was made apart, with that, if it is still there. False: it is not one of this user.
pub(crate) fn remove_apart(root: BorrowedFd<'_>, name: &[u8]) -> Result<bool, Errno> {
    let apart = open_apart(root, name)?;
    let Some(apart) = apart else {
        return Ok(false);
    };
    match sys::unlink(apart.as_fd(), MADE, true) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(e) => return Err(e),
    }
    sys::unlink(root, name, true).map(|()| true)
}

/// The directory of this name, if only this user can enter it.
fn open_apart(root: BorrowedFd<'_>, name: &[u8]) -> Result<Option<OwnedFd>, Errno> {
    let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW;
    let apart = match sys::open(root, name, flags, 0) {
        Err(Errno::NOTDIR | Errno::LOOP) => return Ok(None),
        apart => apart?,
    };
    let attr = sys::stat(apart.as_fd(), b"")?;
    let is_mine = attr.uid == sys::my_ids().0 && attr.mode & 0o777 == drain::NEW_DIR_MODE;
    Ok(is_mine.then_some(apart))
}

/// Makes it in a directory that only this user can enter, marks it, and gives it its name: others, who may rename in `dir`, can't put
/// another one in its place before it is known.
fn made_apart(lower: &Lower, new: &NewDir, dir: BorrowedFd<'_>) -> pfs::Work<Made> {
    let (root, name) = (lower.root(), drain::apart_name(new.object.oid));
    match sys::mkdir(root, &name, drain::NEW_DIR_MODE) {
        // One that a drain has left which was killed.
        Ok(()) | Err(Errno::EXIST) => {}
        Err(Errno::ACCESS | Errno::PERM) => return made_by_name(dir, new.path.name()),
        Err(e) => return Err(e).during("mkdir"),
    }
    let Some(apart) = open_apart(root, &name).during("open directory")? else {
        return Err(Errno::EXIST).during("mkdir");
    };
    let end = || {
        // What is left goes with the next sweep of the root.
        let _ = remove_apart(root, &name);
    };
    match sys::mkdir(apart.as_fd(), MADE, drain::NEW_DIR_MODE) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(e) => {
            end();
            return Err(e).during("mkdir");
        }
    }
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW;
    let made = sys::open(apart.as_fd(), MADE, flags, 0).during("open directory")?;
    // Without a mark it is listed if the drain is killed before it has noted that it is there.
    let _ = sys::set_xattr(
        made.as_fd(),
        drain::made_for(sys::my_ids().0),
        &mark_of(new),
    );
    let known = Identity::of_dir(&sys::stat(made.as_fd(), b"").during("stat")?);
    let named = sys::rename_noreplace(apart.as_fd(), MADE, dir, new.path.name());
    end();
    match named {
        Ok(()) => Ok(Made::Apart(known)),
        Err(Errno::EXIST) => Ok(Made::Not),
        // Another file system is mounted there, or this one has no such rename.
        Err(Errno::XDEV | Errno::INVAL | Errno::NOSYS) => made_by_name(dir, new.path.name()),
        Err(e) => Err(e).during("rename"),
    }
}
