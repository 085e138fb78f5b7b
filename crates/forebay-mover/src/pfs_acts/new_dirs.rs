//! Makes directories: by their names, or, where others may rename things, inside a private directory until it is known which one was made.

use super::Work;
use crate::pfs::{self, During, Trouble};
use forebay_core::drain::{self, NewDir};
use forebay_core::facts::Attr;
use forebay_core::identity::Identity;
use forebay_pfs::Lower;
use forebay_sys::{self as sys, Errno};
use std::cell::Cell;
use std::os::fd::{AsFd, BorrowedFd};

/// An open directory that may be one which this user may not read.
const DIR: libc::c_int = libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW;

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
    let own = own()?;
    let dir = pfs::parent(lower, &new.path)?;
    pfs::check_within(dir.as_fd(), new.within)?;
    let around = sys::stat(dir.as_fd(), b"").during("stat")?;
    let by = sys::my_ids().0;
    let made = match new.was_made {
        true => Made::Not,
        false if drain::is_put_by(by, &around) => made_by_name(dir.as_fd(), new.path.name())?,
        false => match sys::stat(dir.as_fd(), new.path.name()) {
            Err(Errno::NOENT) => made_apart(new, &own, dir.as_fd())?,
            Ok(_) => Made::Not,
            Err(e) => return Err(e).during("stat"),
        },
    };
    let there = match sys::open(dir.as_fd(), new.path.name(), DIR, 0) {
        Err(Errno::NOTDIR | Errno::LOOP) => return Err(Errno::EXIST).during("mkdir"),
        there => there.during("open directory")?,
    };
    let found = sys::stat(there.as_fd(), b"").during("stat")?;
    let open = || sys::open(there.as_fd(), b".", libc::O_RDONLY | libc::O_DIRECTORY, 0);
    // What can't be looked at is nobody's.
    let unseen = Cell::new(None);
    let told = |told: Result<bool, Errno>| {
        told.unwrap_or_else(|e| {
            unseen.set(Some(e));
            false
        })
    };
    let is_empty = || {
        let mut entries = Vec::new();
        let read = open().and_then(|dir| sys::read_dir(dir.as_fd(), &mut entries));
        told(read.map(|_| entries.is_empty()))
    };
    let is_marked = || {
        let mark = open().and_then(|dir| sys::get_xattr(dir.as_fd(), drain::made_for(by)));
        told(mark.map(|mark| mark == Some(mark_of(new))))
    };
    let is_it = match made {
        Made::Apart(made) => made.is_dir_of(&found),
        Made::ByName => NewDir::is_made(&found, by, around.uid, is_empty),
        Made::Not => new.may_be(&found, &own, by, &around, is_empty, is_marked),
    };
    if !is_it {
        return match unseen.take() {
            // It is one that this user may not look into, or nothing has marks here.
            None | Some(Errno::ACCESS | Errno::OPNOTSUPP) => Err(Errno::EXIST).during("mkdir"),
            Some(e) => Err(e).during("look into directory"),
        };
    }
    let is_known = new.known.is_some_and(|known| known.is_dir_of(&found));
    let is_bare = found.uid == by && found.mode & 0o777 == drain::NEW_DIR_MODE;
    match is_bare && !is_known {
        true => give_to_owner(there.as_fd(), &own),
        // It gets its own mode back with the other attributes, at the end.
        false if by != 0 => open_up(there.as_fd(), &found)?,
        false => {}
    }
    Ok(Identity::of_dir(&found))
}

/// Gives a new directory, which only this user can enter, its owner: what others move meanwhile is not to be one of root's. Where that fails, the
/// attributes that it gets at the end fail as well, and tell why.
fn give_to_owner(dir: BorrowedFd<'_>, own: &Attr) {
    if sys::my_ids().0 == 0 {
        let _ = sys::chown(dir, b"", own.uid, own.gid);
    }
}

/// Gives its owner all rights to a directory that has these attributes: it may have been found without, or a default access list takes
/// them from a new one.
fn open_up(dir: BorrowedFd<'_>, attr: &Attr) -> pfs::Work<()> {
    if attr.mode & drain::NEW_DIR_MODE == drain::NEW_DIR_MODE {
        return Ok(());
    }
    let mode = attr.mode & 0o7777 | drain::NEW_DIR_MODE;
    sys::chmod_of_path(dir, mode).during("chmod")
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

/// Removes from `dir` the directory in which one was made apart, with that, if it is still there. False: it is not one that this user
/// has made so, since somebody else may enter it or it holds something.
pub(crate) fn remove_apart(dir: BorrowedFd<'_>, name: &[u8]) -> Result<bool, Errno> {
    let apart = match sys::open(dir, name, DIR, 0) {
        Err(Errno::NOTDIR | Errno::LOOP) => return Ok(false),
        apart => apart?,
    };
    if !is_private(&sys::stat(apart.as_fd(), b"")?) {
        return Ok(false);
    }
    let removed = match sys::unlink(apart.as_fd(), MADE, true) {
        Ok(()) | Err(Errno::NOENT) => sys::unlink(dir, name, true),
        Err(e) => Err(e),
    };
    match removed {
        Err(Errno::NOTEMPTY | Errno::NOTDIR) => Ok(false),
        removed => removed.map(|()| true),
    }
}

/// Can only this user get into the directory?
fn is_private(dir: &Attr) -> bool {
    dir.uid == sys::my_ids().0 && dir.mode & 0o077 == 0
}

/// Makes it in a directory that only this user can enter, marks it, and gives it its name. Others, who may rename in `dir`, may meanwhile
/// put another private directory of this user in the place of that one. It does no harm: nobody else gets at what is made in it.
fn made_apart(new: &NewDir, own: &Attr, dir: BorrowedFd<'_>) -> pfs::Work<Made> {
    let name = new.apart.name();
    match sys::mkdir(dir, name, drain::NEW_DIR_MODE) {
        // Others can have put it there if they have seen the name, and then it is not what it looks like.
        Err(Errno::EXIST) => return Err(Errno::BUSY).during("mkdir of a temporary directory"),
        made => made.during("mkdir of a temporary directory")?,
    }
    let apart = sys::open(dir, name, DIR, 0).during("open a temporary directory")?;
    let attr = sys::stat(apart.as_fd(), b"").during("stat")?;
    let made = match is_private(&attr) {
        true => made_in(apart.as_fd(), &attr, (new, own), dir),
        // This file system gives directories modes or owners of its own.
        false => made_by_name(dir, new.path.name()),
    };
    let removed = match sys::unlink(dir, name, true) {
        // Others have moved it, or put another one there.
        Err(Errno::NOENT | Errno::NOTEMPTY | Errno::NOTDIR) => Ok(()),
        removed => removed.during("remove where a directory was made"),
    };
    let made = made?;
    removed.map(|()| made)
}

/// The part of [`made_apart`] in which the directory is there that it is made in. Nothing of it stays in that.
fn made_in(
    apart: BorrowedFd<'_>,
    attr: &Attr,
    (new, own): (&NewDir, &Attr),
    dir: BorrowedFd<'_>,
) -> pfs::Work<Made> {
    open_up(apart, attr)?;
    match sys::mkdir(apart, MADE, drain::NEW_DIR_MODE) {
        // One that is there already is not of this drain.
        Err(Errno::EXIST) => return Err(Errno::BUSY).during("mkdir in a temporary directory"),
        made => made.during("mkdir in a temporary directory")?,
    }
    let made = named_from(apart, (new, own), dir);
    match made {
        Ok(Made::Apart(_)) => {}
        _ => {
            let _ = sys::unlink(apart, MADE, true);
        }
    }
    made
}

/// Marks what was made in `apart`, and gives it its owner and its name.
fn named_from(
    apart: BorrowedFd<'_>,
    (new, own): (&NewDir, &Attr),
    dir: BorrowedFd<'_>,
) -> pfs::Work<Made> {
    let there = sys::open(apart, MADE, DIR, 0).during("open directory")?;
    open_up(
        there.as_fd(),
        &sys::stat(there.as_fd(), b"").during("stat")?,
    )?;
    let made = sys::open(there.as_fd(), b".", libc::O_RDONLY | libc::O_DIRECTORY, 0);
    let made = made.during("open directory")?;
    let mark = drain::made_for(sys::my_ids().0);
    // Without a mark it is listed if the drain is killed before it has noted that it is there.
    let _ = sys::set_xattr(made.as_fd(), mark, &mark_of(new));
    give_to_owner(there.as_fd(), own);
    let known = Identity::of_dir(&sys::stat(made.as_fd(), b"").during("stat")?);
    match sys::rename_noreplace(apart, MADE, dir, new.path.name()) {
        Ok(()) => Ok(Made::Apart(known)),
        Err(Errno::EXIST) => Ok(Made::Not),
        // This file system has no such rename, or none from one directory to another.
        Err(Errno::INVAL | Errno::NOSYS | Errno::XDEV) => made_by_name(dir, new.path.name()),
        Err(e) => Err(e).during("rename"),
    }
}
