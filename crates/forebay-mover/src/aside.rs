//! Puts directories of the PFS aside that are to be removed, and sweeps them. `core::drain::AsideNote` says what becomes of
//! each, and what the note about it tells, which is in the storage.

use crate::counters::Counters;
use crate::pfs::{self, During, Trouble, Work};
use crate::removal::{self, Spared};
use crate::touched::Touched;
use forebay_core::drain::{
    AsideFate, AsideNote, OTHER_DIR, Tick, clock_path, is_for_the_drain_alone, names_beside,
    paths_aside,
};
use forebay_core::facts::Timestamp;
use forebay_core::identity::Identity;
use forebay_core::path::TreePath;
use forebay_objects::PfsNotes;
use forebay_pfs::Lower;
use forebay_sys::{self as sys, Errno, Sys};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::os::fd::{AsFd, BorrowedFd};

/// What a symbolic link says that is there for a moment.
const CLOCK_TEXT: &[u8] = b"clock";

/// The moment by the clock of the PFS: whatever was changed before the call is older. It is read in the root, where a sweep finds what
/// a drain has left that is killed meanwhile; beside `aside` where that fails, or if it is on another file system.
fn moment(lower: &Lower, aside: &TreePath) -> Work<Timestamp> {
    let device = |at: &TreePath| {
        let dir = pfs::parent(lower, at)?;
        sys::stat(dir.as_fd(), b"")
            .during("stat")
            .map(|dir| dir.dev)
    };
    let in_root = TreePath::root().join(aside.name());
    if *aside != in_root && device(aside)? == device(&in_root)? {
        let told = moment_beside(lower, &in_root);
        if !matches!(&told, Err(e) if is_refused(e.errno)) {
            return told;
        }
    }
    moment_beside(lower, aside)
}

/// Is it a matter of this directory, or of who may make names in it?
fn is_refused(errno: Errno) -> bool {
    use Errno as E;
    matches!(errno, E::ACCESS | E::PERM | E::ROFS | E::NOSPC | E::DQUOT)
}

fn moment_beside(lower: &Lower, aside: &TreePath) -> Work<Timestamp> {
    // A drain that was killed may have left one.
    let is_taken = |told: &Work<Timestamp>| matches!(told, Err(e) if e.errno == Errno::EXIST);
    let mut told = paths_aside(aside).map(|path| moment_at(lower, &clock_path(&path)));
    told.find(|told| !is_taken(told))
        .unwrap_or(Err(Errno::EXIST).during("symlink"))
}

/// The time of change (`ctime`) of what lies at `at` after something was made there. Nobody can set it, and that of whatever somebody
/// may put there instead is not later than the look: so the moment is not later than that either, and what is spared is not less.
fn moment_at(lower: &Lower, at: &TreePath) -> Work<Timestamp> {
    let dir = pfs::parent(lower, at)?;
    let make = || {
        let made = match sys::symlink(CLOCK_TEXT, dir.as_fd(), at.name()) {
            // A drain that was killed has left it, where no sweep looks for it.
            Err(Errno::EXIST) if is_clock(dir.as_fd(), at.name()) => {
                sys::unlink(dir.as_fd(), at.name(), false).during("unlink")?;
                sys::symlink(CLOCK_TEXT, dir.as_fd(), at.name())
            }
            made => made,
        };
        made.during("symlink")?;
        let made = sys::stat(dir.as_fd(), at.name()).during("stat");
        let removed = sys::unlink(dir.as_fd(), at.name(), false).during("unlink");
        removed.and(made).map(|attr| attr.ctime)
    };
    let mut since = make()?;
    let mut tick = Tick::since(since);
    while let Some(pause) = tick.pause(since) {
        std::thread::sleep(pause);
        since = make()?;
    }
    Ok(since)
}

/// Has this user made the link to read the clock?
fn is_clock(dir: BorrowedFd<'_>, name: &[u8]) -> bool {
    let attr = sys::stat(dir, name);
    attr.is_ok_and(|attr| attr.uid == sys::my_ids().0)
        && sys::readlink(dir, name).is_ok_and(|text| text == CLOCK_TEXT)
}

/// If the note stays, the next sweep finds it without a directory.
fn forget(notes: &PfsNotes, aside: &TreePath) {
    let _ = notes.forget(aside.name());
}

/// What was aside has come back to `place`. The note goes when that is on the disks: if a loss of power undoes it, the next
/// sweep needs the note.
fn has_come_back(lower: &Lower, notes: &PfsNotes, aside: &TreePath, place: &TreePath) {
    let dirs = [aside.parent(), place.parent()];
    for dir in &dirs {
        lower.note_changed(dir.clone());
    }
    if lower.sync_dirs(&dirs).iter().all(Result::is_ok) {
        forget(notes, aside);
    }
}

/// Why nothing is aside.
pub(crate) enum Refused {
    /// It is not what it was.
    Check(Trouble),
    /// The moment can't be told, because no name can be made beside `aside`.
    Moment(Trouble),
    /// There can be no note. Without one nobody could tell later what it was, and what others have added.
    Note(Trouble),
    /// The PFS has refused the rename; the moment before it.
    Rename(Trouble, Timestamp),
}

/// A directory that is to go.
pub(crate) struct GoingDir<'d> {
    /// The directory that it is in.
    pub(crate) dir: BorrowedFd<'d>,
    /// Its path.
    pub(crate) path: &'d TreePath,
    /// Its inode number.
    pub(crate) ino: u64,
    /// See [`AsideNote::within`].
    pub(crate) within: Option<Identity>,
}

/// Renames a directory to `aside`, or to that with a number behind it: an
/// earlier drain may have left one there. Gives the name. `check` looks whether it still is what it was: after the moment
/// that the note tells, so that nothing is older than it and was not seen.
pub(crate) fn put(
    lower: &Lower,
    notes: &PfsNotes,
    going: &GoingDir<'_>,
    aside: &TreePath,
    check: impl Fn() -> Work<()>,
) -> Result<TreePath, Refused> {
    let since = moment(lower, aside);
    // What has changed is said of it also where no name can be made.
    check().map_err(Refused::Check)?;
    let since = since.map_err(Refused::Moment)?;
    let _held = notes.hold();
    for free in paths_aside(aside) {
        let note = AsideNote {
            since,
            aside: free.clone(),
            path: going.path.clone(),
            ino: going.ino,
            within: going.within,
        };
        match notes.write(free.name(), &note.text()) {
            Ok(()) => {}
            Err(Errno::EXIST) => continue,
            Err(e) => return Err(e).during("write note").map_err(Refused::Note),
        }
        let to = pfs::parent(lower, &free);
        let name = going.path.name();
        let renamed = to.and_then(|to| pfs::rename_free(going.dir, name, to.as_fd(), free.name()));
        match renamed {
            Ok(()) => return Ok(free),
            // A sweep finds out whether it is there, and forgets the note if it is not.
            Err(trouble) if trouble.into_core().may_be_done() => {
                return Err(Refused::Rename(trouble, since));
            }
            Err(trouble) => {
                forget(notes, &free);
                if trouble.errno != Errno::EXIST {
                    return Err(Refused::Rename(trouble, since));
                }
            }
        }
    }
    Err(Errno::EXIST).during("rename").map_err(Refused::Note)
}

/// Undoes [`put`], because it was not the directory that is to go. Gives the place: somebody may have put it under the name in this
/// directory who may not write to the one that the drain has taken it from.
pub(crate) fn put_back(
    lower: &Lower,
    notes: &PfsNotes,
    aside: &TreePath,
    going: &GoingDir<'_>,
) -> Work<TreePath> {
    let path = going.path;
    let around = pfs::parent(lower, aside)?;
    let attr = sys::stat(around.as_fd(), b"").during("stat")?;
    let is_from_there =
        aside.parent() == path.parent() || is_for_the_drain_alone(&attr, sys::my_ids().0);
    let place = match is_from_there {
        true => {
            let back = pfs::give_back_in(around.as_fd(), aside.name(), going.dir, path.name())?;
            path.parent().join(&back)
        }
        false => name_beside(lower, aside, path.name())?,
    };
    has_come_back(lower, notes, aside, &place);
    Ok(place)
}

/// Removes the directory at `aside`, except for what others have changed since. If something is left, the directory gets its
/// old name back, and the report of the drain says so. False: there is no note about it, so it is not ours. The directory that it
/// is in keeps its times.
pub(crate) fn sweep(
    lower: &Lower,
    notes: &PfsNotes,
    aside: &TreePath,
    touched: &Touched,
    counters: &Counters,
) -> Work<bool> {
    let changing = lower.begin_act(&[aside.parent()]);
    let swept = sweep_it(lower, notes, aside, touched, counters);
    lower.end_act(changing);
    lower.note_changed(aside.parent());
    if !is_noted(notes, aside) {
        touched.note_forgotten(aside);
    }
    swept
}

/// Nothing is aside there any more. The note stays until that is on the disks ([`forget_gone`]): a loss of power before that would
/// bring back what nobody knows.
fn has_gone(lower: &Lower, touched: &Touched, aside: &TreePath) {
    lower.note_changed(aside.parent());
    touched.note_gone(aside);
}

/// Brings to the disks of the PFS that what was swept is gone, and forgets the notes about it. Where that fails the notes stay for
/// the next drain.
pub(crate) fn forget_gone(lower: &Lower, notes: &PfsNotes, touched: &Touched) {
    touched.forget_gone(|gone| {
        let dirs: BTreeSet<_> = gone.iter().map(TreePath::parent).collect();
        let dirs: Vec<_> = dirs.into_iter().collect();
        let synced = lower.sync_dirs(&dirs).into_iter();
        // A directory that is nowhere can't be synced, and nothing is in it.
        let is_synced = |did: Sys<()>| {
            matches!(
                did,
                Ok(()) | Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP)
            )
        };
        let synced: BTreeMap<_, _> = dirs.iter().zip(synced.map(is_synced)).collect();
        gone.retain(|aside| {
            let forgets = synced[&aside.parent()];
            if forgets {
                forget(notes, aside);
                touched.note_forgotten(aside);
            }
            !forgets
        });
    });
}

fn sweep_it(
    lower: &Lower,
    notes: &PfsNotes,
    aside: &TreePath,
    touched: &Touched,
    counters: &Counters,
) -> Work<bool> {
    let Some(note) = read_note(notes, aside.name())?.filter(|note| note.aside == *aside) else {
        return Ok(pfs::look(lower, aside)?.is_none());
    };
    let found = pfs::look(lower, aside)?;
    match note.fate(found.as_ref()) {
        AsideFate::None if touched.is_gone(aside) => return Ok(true),
        AsideFate::None => {
            let _held = notes.hold();
            // It may have been on its way.
            if pfs::look(lower, aside)?.is_some() {
                return Ok(true);
            }
            let dir = aside.parent();
            if !dir.is_root() && pfs::look(lower, &dir)?.is_none() {
                counters.remark(format!(
                    "{aside} is not there any more, where a drain had put what was to be removed: if others have moved {dir}, it is still in it"
                ));
            }
            has_gone(lower, touched, aside);
            return Ok(true);
        }
        AsideFate::Remove => {
            let spared = Spared {
                since: note.since,
                dirs: touched.take_dirs_aside(note.ino),
                touched,
            };
            let dir = pfs::parent(lower, aside)?;
            if removal::remove_dir_but(dir.as_fd(), aside.name(), note.ino, &spared)? {
                has_gone(lower, touched, aside);
                return Ok(true);
            }
        }
        AsideFate::Rename => {}
    }
    match bring_out(lower, &note)? {
        Some(place) => {
            has_come_back(lower, notes, aside, &place);
            counters.came_back(place);
        }
        None => has_gone(lower, touched, aside),
    }
    Ok(true)
}

/// Sweeps what is aside in a directory, or anywhere below it, other than the root: it is about to move or to go, and a note tells
/// only where something was put.
///
/// # Errors
/// Those of the sweep; ENOTEMPTY: something stays aside.
pub(crate) fn sweep_in(
    lower: &Lower,
    notes: &PfsNotes,
    dir: &TreePath,
    touched: &Touched,
    counters: &Counters,
) -> Work<()> {
    let below = touched.aside_below(dir, || elsewhere(notes))?;
    for aside in below.iter().filter(|aside| is_noted(notes, aside)) {
        sweep(lower, notes, aside, touched, counters)?;
    }
    if !below.is_empty() {
        forget_gone(lower, notes, touched);
    }
    match below.iter().any(|aside| is_noted(notes, aside)) {
        true => Err(Errno::NOTEMPTY).during("remove what is aside"),
        false => Ok(()),
    }
}

/// Gives what is left aside another name, by what it is now: while the directory was swept, others may have put something of
/// theirs in its place. `None`: nothing is there.
fn bring_out(lower: &Lower, note: &AsideNote) -> Work<Option<TreePath>> {
    match note.fate(pfs::look(lower, &note.aside)?.as_ref()) {
        AsideFate::None => Ok(None),
        AsideFate::Remove => back_to_its_place(lower, note).map(Some),
        AsideFate::Rename => name_beside(lower, &note.aside, note.path.name()).map(Some),
    }
}

/// Gives what is left of a directory its name back. Where that is in another directory now than it may be in, it stays in the one in which
/// it lies.
fn back_to_its_place(lower: &Lower, note: &AsideNote) -> Work<TreePath> {
    let (aside, path) = (&note.aside, &note.path);
    if note.within.is_none() {
        return pfs::give_back(lower, aside, note.places());
    }
    let dir = pfs::parent(lower, path);
    let dir = dir.and_then(|dir| {
        pfs::check_within(dir.as_fd(), note.within)?;
        Ok(dir)
    });
    let dir = match dir {
        Err(e) if e.operation == OTHER_DIR || e.is_absence() => {
            return name_beside(lower, aside, path.name());
        }
        dir => dir?,
    };
    let around = pfs::parent(lower, aside)?;
    let back = pfs::give_back_in(around.as_fd(), aside.name(), dir.as_fd(), path.name())?;
    lower.note_changed(aside.parent());
    lower.note_changed(path.parent());
    Ok(path.parent().join(&back))
}

/// Sweeps what is aside in other directories than the root, where a sweep of that does not find it, and forgets the notes about what is gone.
/// Gives the first failure.
pub(crate) fn sweep_elsewhere(
    lower: &Lower,
    notes: &PfsNotes,
    touched: &Touched,
    counters: &Counters,
) -> Work<()> {
    let mut outcome = Ok(());
    for name in notes.names().during("list notes")? {
        outcome = outcome.and(sweep_by_note(lower, notes, &name, touched, counters));
    }
    outcome
}

/// What may be aside in other directories than the root.
///
/// # Errors
/// A note can't be read.
pub(crate) fn elsewhere(notes: &PfsNotes) -> Work<BTreeSet<TreePath>> {
    let mut found = BTreeSet::new();
    for name in notes.names().during("list notes")? {
        let aside = read_note(notes, &name)?.map(|note| note.aside);
        found.extend(aside.filter(|aside| !aside.parent().is_root()));
    }
    Ok(found)
}

/// Sweeps what the note with this name tells of, unless a sweep of the root does.
fn sweep_by_note(
    lower: &Lower,
    notes: &PfsNotes,
    name: &[u8],
    touched: &Touched,
    counters: &Counters,
) -> Work<()> {
    let told = || {
        let failed = |e: &Trouble| remark_on_failure(counters, name.escape_ascii(), e);
        read_note(notes, name).inspect_err(failed)
    };
    let Some(note) = told()? else {
        let _held = notes.hold();
        // Nothing was put aside before its note was whole.
        if told()?.is_none() {
            let _ = notes.forget(name);
        }
        return Ok(());
    };
    let sweep_it = || {
        let is_elsewhere = !note.aside.parent().is_root();
        match is_elsewhere || pfs::look(lower, &note.aside)?.is_none() {
            true => sweep(lower, notes, &note.aside, touched, counters).map(drop),
            false => Ok(()),
        }
    };
    sweep_it().inspect_err(|e| remark_on_failure(counters, &note.aside, e))
}

/// Remarks that something that a drain has left could not be removed.
pub(crate) fn remark_on_failure(counters: &Counters, what: impl Display, e: &Trouble) {
    let (operation, errno) = (e.operation, e.errno);
    counters.remark(format!(
        "{what} could not be removed from the PFS ({operation}: {errno})"
    ));
}

/// Is there a note about it? If nobody can tell, there may be one.
pub(crate) fn is_noted(notes: &PfsNotes, aside: &TreePath) -> bool {
    let note = read_note(notes, aside.name());
    note.map_or(true, |note| note.is_some_and(|note| note.aside == *aside))
}

fn read_note(notes: &PfsNotes, name: &[u8]) -> Work<Option<AsideNote>> {
    let text = notes.read(name).during("read note")?;
    Ok(text.and_then(|text| AsideNote::of(&text)))
}

/// Renames what is aside to a name beside `name`, in the directory in which it lies.
fn name_beside(lower: &Lower, aside: &TreePath, name: &[u8]) -> Work<TreePath> {
    for beside in names_beside(name) {
        let place = aside.parent().join(&beside);
        match pfs::rename(lower, aside, &place) {
            Err(trouble) if trouble.errno == Errno::EXIST => {}
            renamed => {
                renamed?;
                lower.note_changed(aside.parent());
                return Ok(place);
            }
        }
    }
    Err(Errno::EXIST).during("rename")
}

#[cfg(test)]
mod tests;
