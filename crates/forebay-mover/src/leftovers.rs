//! What earlier drains have left in directories of the PFS goes.

use crate::aside;
use crate::counters::Counters;
use crate::pfs::{During, Trouble};
use crate::pfs_acts;
use crate::removal;
use crate::touched::Touched;
use forebay_core::drain::{is_apart, is_aside, is_going, is_leftover, is_leftover_of, is_old_note};
use forebay_core::facts::Attr;
use forebay_core::path::TreePath;
use forebay_core::record::BridgeId;
use forebay_objects::PfsNotes;
use forebay_pfs::Lower;
use forebay_sys::{self as sys, Errno, RawEntry, Sys};
use std::os::fd::{AsFd, BorrowedFd};

/// Is it the name of what a drain of this bridge has left, or of any?
fn is_left(name: &[u8], of: Option<BridgeId>) -> bool {
    match of {
        Some(maker) => is_leftover_of(name, maker),
        None => is_leftover(name),
    }
}

/// What drains of this bridge, or of any, have left in an open directory. Of any: also what is on its way out.
fn leftovers(dir: BorrowedFd<'_>, of: Option<BridgeId>) -> Sys<Vec<RawEntry>> {
    let mut entries = Vec::new();
    while sys::read_dir(dir, &mut entries)? {}
    entries.retain(|entry| is_left(&entry.name, of) || of.is_none() && is_going(&entry.name));
    Ok(entries)
}

/// Is there something in this directory that [`sweep`] would remove?
pub(crate) fn has_any(lower: &Lower, at: &TreePath, of: Option<BridgeId>) -> bool {
    let dir = lower.open(at, libc::O_RDONLY | libc::O_DIRECTORY);
    let left = dir.and_then(|dir| leftovers(dir.as_fd(), of));
    left.is_ok_and(|left| left.iter().any(|entry| !is_going(&entry.name)))
}

/// Removes what earlier drains left in a directory: it holds nothing of value but what others have put into a directory
/// since it was put [`aside`], and that comes back. Gives the first failure; what can't be removed now will be at the next
/// drain. What others have given such a name is no failure, nor is a directory that may not be listed: both get a remark.
pub(crate) fn sweep(
    lower: &Lower,
    notes: &PfsNotes,
    at: &TreePath,
    of: Option<BridgeId>,
    touched: &Touched,
    counters: &Counters,
) -> Result<(), Trouble> {
    let dir = match lower.open(at, libc::O_RDONLY | libc::O_DIRECTORY) {
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(()),
        Err(Errno::ACCESS) => {
            counters.remark(format!(
                "{at}: may not be listed, so what a drain may have left there stays"
            ));
            return Ok(());
        }
        dir => dir.during("open to remove what a drain has left")?,
    };
    let left = leftovers(dir.as_fd(), of).during("list to remove what a drain has left")?;
    let mut outcome = Ok(());
    for RawEntry { name, .. } in &left {
        let path = at.join(name);
        if is_going(name) {
            counters.remark(format!(
                "{path}: a drain was about to remove it, and none has seen since what it is: it stays"
            ));
            continue;
        }
        let swept = match name {
            name if is_old_note(name) => Ok(false),
            name if is_apart(name) => match pfs_acts::remove_apart(dir.as_fd(), name) {
                Err(Errno::NOENT) => Ok(true),
                removed => removed.during("remove where a directory was made"),
            },
            name if is_aside(name) => aside::sweep(lower, notes, &path, touched, counters),
            name => match sys::stat(dir.as_fd(), name) {
                Ok(there) if !is_own(&there) => Ok(false),
                _ => removal::remove_file(dir.as_fd(), name),
            },
        };
        // What another bridge has put aside is in its own notes.
        if of.is_none() && swept.as_ref().is_ok_and(|is_ours| !is_ours) {
            counters.remark(format!(
                "{path} looks like what a drain has left on the PFS, and is not: it stays"
            ));
        }
        if let Err(e) = swept {
            aside::remark_on_failure(counters, &path, &e);
            if is_own_name(dir.as_fd(), notes, &path) {
                outcome = outcome.and(Err(e));
            }
        }
    }
    if at.is_root() {
        let elsewhere = aside::sweep_elsewhere(lower, notes, touched, counters);
        outcome = outcome.and(elsewhere);
    }
    outcome
}

/// Can a drain of this user have made it? Those of root make things for everybody.
pub(crate) fn is_own(attr: &Attr) -> bool {
    let (me, _) = sys::my_ids();
    me == 0 || attr.uid == me
}

/// Has this user made the name, or put aside what has it? What is aside may be of anybody.
fn is_own_name(dir: BorrowedFd<'_>, notes: &PfsNotes, path: &TreePath) -> bool {
    let found = || sys::stat(dir, path.name());
    aside::is_noted(notes, path) || found().map_or(sys::my_ids().0 == 0, |attr| is_own(&attr))
}
