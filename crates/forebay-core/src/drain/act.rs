//! What a drain asks of its driver, and what comes back.

use super::known_dir::KnownDir;
use super::rules::OURS;
use crate::bridge::{Fact, ReadSet};
use crate::facts::{Attr, Need};
use crate::identity::Identity;
use crate::ops::FollowUp;
use crate::path::TreePath;
use crate::record::{BridgeId, Kind, ObjectId, ObjectName};
use crate::table::{Change, TableError, Tables};
use std::collections::BTreeSet;
use std::fmt;

/// The number of an act that is under way.
pub type ActTicket = u64;

/// The PFS or the local disk refused something. The thing at hand stays in the buffer; the others go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trouble {
    /// What was tried.
    pub operation: &'static str,
    /// What the kernel said.
    pub errno: i32,
}

impl Trouble {
    /// Does a network file system say so of what it has done, when the answer was lost? The kernel repeats by itself a call that
    /// was told ESTALE: then a rename does not find any more what the first one has renamed.
    pub fn may_be_done(self) -> bool {
        matches!(
            self.errno,
            libc::EIO
                | libc::ETIMEDOUT
                | libc::EINTR
                | libc::ESTALE
                | libc::EREMOTEIO
                | libc::ENOTCONN
                | libc::ENOENT
        )
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let error = std::io::Error::from_raw_os_error(self.errno);
        write!(f, "{}: {error}", self.operation)
    }
}

/// Result of work on the PFS or on the local disk.
pub type Work<T> = Result<T, Trouble>;

/// All records below a directory, as a commit relies on them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BelowRead {
    /// The directory.
    pub dir: TreePath,
    /// Path and version of each, in the order of the tables.
    pub seen: Vec<(TreePath, u64)>,
}

/// Table changes that are true together or not at all, and what follows them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DrainCommit {
    /// What they rely on. If any of it has changed, nothing happens and the outcome is
    /// [`DrainVerdict::Conflict`].
    pub reads: ReadSet,
    /// What this bridge has below these directories, all of it. Empty with more than one bridge: [`DrainCommit::reads`] has the ranges
    /// then.
    pub below: Vec<BelowRead>,
    /// The changes, deletions first. Each record has its new version already.
    pub batch: Vec<Change>,
    /// Work on backing objects that follows. Marks in the batch stand for it until it is done.
    pub follow_ups: Vec<FollowUp>,
    /// Clients that were given a backing file by name and have not opened it must ask again. The driver makes this
    /// true before it reports the verdict.
    pub forbids_late_opens: bool,
}

impl DrainCommit {
    /// True if every record that it relies on is still the one that was read, and no other has come below directories that it
    /// relies on. With one bridge that is all that has to be checked.
    ///
    /// # Errors
    /// The tables failed.
    pub fn still_holds(&self, tables: &dyn Tables) -> Result<bool, TableError> {
        for (path, seen) in &self.reads.records {
            if tables.get(path)?.map(|r| r.version) != seen.version {
                return Ok(false);
            }
        }
        for BelowRead { dir, seen } in &self.below {
            let now = tables.page_below(dir, None, seen.len() + 1)?;
            let now = now.iter().map(|(path, record)| (path, record.version));
            if !now.eq(seen.iter().map(|(path, version)| (path, *version))) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// True if requests must look at the PFS anew: the commit removes a record, turns one into [`Kind::Moved`], or says that a
    /// directory has been made, or is about to be.
    pub fn uncovers(&self) -> bool {
        self.batch.iter().any(|change| match change {
            Change::Delete { .. } => true,
            Change::Put { record, .. } => match record.kind {
                Kind::Moved => true,
                Kind::Dir => record.drained == Some(OURS),
                _ => false,
            },
            _ => false,
        })
    }
}

/// How a commit ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DrainVerdict {
    /// It is true now.
    Committed,
    /// Something that it relied on has changed; nothing of it happened. Facts that were fetched from
    /// other bridges are to be forgotten.
    Conflict,
}

/// A temporary name on the PFS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Temporary {
    /// The object whose contents it has.
    pub oid: ObjectId,
    /// The name with its directory.
    pub path: TreePath,
}

/// One object to be copied to the PFS under a temporary name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Copy {
    /// What to copy.
    pub object: ObjectName,
    /// What it is: a file, a symbolic link or a node.
    pub kind: Kind,
    /// Where to. Nothing of ours is there.
    pub temporary: Temporary,
    /// See [`crate::record::Dirs::within`].
    pub within: Option<Identity>,
}

/// What became of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Copied {
    /// The copy is complete.
    Whole {
        /// The attributes of the object. They were taken before its first byte was read, and after the clock tick of its
        /// last change.
        of: Attr,
        /// What the copy is known by.
        copy: Identity,
        /// Bytes of data that were written to it.
        bytes: u64,
    },
    /// The object became shorter during the copy. There is no copy.
    Short,
    /// Somebody has it open for writing, or mapped. There is no copy.
    InUse,
    /// The drain is being stopped. There is no copy.
    Stopped,
    /// The directory that it would get its name in is not on the PFS. There is no copy.
    NoDirectory,
    /// Others have something under its temporary name, or have put it there meanwhile. There is no copy.
    Supplanted,
}

/// A copy that gets its names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Naming {
    /// The copy.
    pub temporary: Temporary,
    /// The first name is given by a rename of the copy, the others by hard links.
    pub names: Vec<Name>,
}

/// What became of a copy that was to get its names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Named {
    /// It has them: it was seen there, after its contents had been verified. What it is known by from then on: a name changes
    /// its change time.
    Whole(Identity),
    /// It may have none or some of them. Others have put something else under its temporary name, or have taken it away from there,
    /// or something else was under its final name when it should have been there.
    Supplanted,
}

impl Named {
    /// Has it all its names?
    pub fn is_whole(self) -> bool {
        matches!(self, Named::Whole(_))
    }
}

/// The operation of a [`Trouble`] that is none of the PFS: another directory is there than [`crate::record::Dirs`] tell.
pub const OTHER_DIR: &str = "another directory";

/// A name on the PFS that a copy gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name {
    /// The name.
    pub path: TreePath,
    /// What the drain has found there, and replaces; `None`: nothing.
    pub replaces: Option<Identity>,
    /// See [`crate::record::Dirs::within`].
    pub within: Option<Identity>,
}

impl Name {
    /// May it replace this? Since the drain has looked, others may have put something else there.
    pub fn may_replace(&self, found: &Attr) -> bool {
        self.replaces.is_some_and(|known| known.is(found))
    }
}

/// A directory to be made on the PFS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewDir {
    /// Its path.
    pub path: TreePath,
    /// The backing directory.
    pub object: ObjectName,
    /// The one that an earlier pass has made or found there.
    pub known: Option<Identity>,
    /// See [`crate::record::Dirs::within`].
    pub within: Option<Identity>,
    /// The directory in which it is made where others could put another one in its place: beside it, under a name that nobody can
    /// guess.
    pub apart: TreePath,
    /// See [`crate::facts::Settings::knows_dirs`].
    pub knows_dirs: bool,
    /// An earlier pass has made it. It is not made again, and nothing else is taken for it.
    pub was_made: bool,
}

impl NewDir {
    /// Does this say that it is not where it was? Nothing is there, or something else, or another directory has the place of the one around.
    pub(super) fn is_absent(trouble: Trouble) -> bool {
        matches!(trouble.errno, libc::ENOENT | libc::ENOTDIR | libc::EEXIST)
            || trouble.operation == OTHER_DIR
    }

    /// May the directory that was found there, in the directory `around`, be taken for it? It will get the attributes of the backing
    /// directory, which are `own`: that of another user must not, nor one that others may have moved there. A drain by the user `by`
    /// that was killed may have made it and not have noted that, and a network file system may have made it and lost the answer: where
    /// others may have put it there, it has the mark of the object then ([`made_for`]).
    pub fn may_be(
        &self,
        found: &Attr,
        own: &Attr,
        by: u32,
        around: &Attr,
        is_empty: impl FnOnce() -> bool,
        is_marked: impl FnOnce() -> bool,
    ) -> bool {
        let is_known = self.known.is_some_and(|known| known.is_dir_of(found));
        // What is known has another number now.
        let is_told_by_owner = !self.knows_dirs && self.known.is_some();
        let is_put_by_owner = || is_put_by(own.uid, around) || is_kept_by(own.uid, around, found);
        let is_of_owner = || found.uid == own.uid && (is_told_by_owner || is_put_by_owner());
        // Before it got its owner, or after that.
        let is_new = [by, own.uid].contains(&found.uid) && found.mode & 0o777 == NEW_DIR_MODE;
        let is_just_made = || is_new && (is_put_by(by, around) || is_marked()) && is_empty();
        let is_taken = || !self.was_made && (is_of_owner() || is_just_made());
        found.is_dir() && (is_known || is_taken())
    }

    /// Is this what was made a moment ago by the user `by`, in a directory of the user `around`? The call that makes a directory
    /// gives no descriptor, so others may have put theirs in its place. For a file system on which it can't be made apart.
    pub fn is_made(found: &Attr, by: u32, around: u32, is_empty: impl FnOnce() -> bool) -> bool {
        [by, around].contains(&found.uid) && is_empty()
    }
}

/// Can only this user, or root, have put something into the directory `around`? If not, a new directory is made apart and gets its name when
/// it is known.
pub fn is_put_by(user: u32, around: &Attr) -> bool {
    [user, 0].contains(&around.uid) && around.mode & 0o022 == 0
}

/// Can nobody but this user, or root, have put `found`, which is theirs, into the sticky directory `around`? Others rename nothing of theirs
/// in it, and from another directory only a directory to which they may write.
fn is_kept_by(user: u32, around: &Attr, found: &Attr) -> bool {
    let is_sticky = around.mode & libc::S_ISVTX != 0 && found.mode & 0o022 == 0;
    [user, 0].contains(&around.uid) && is_sticky
}

/// The extended attribute of a directory that the user `by` has made apart: for which object, until it gets the mode of that. Until then only
/// its owner can enter the directory; others can't set it.
pub fn made_for(by: u32) -> &'static [u8] {
    match by {
        0 => b"trusted.forebay.made-for",
        _ => b"user.forebay.made-for",
    }
}

/// The mode of a directory of the PFS until it gets that of its backing directory. It has its owner from the first, so that one which others move
/// meanwhile is in reach of that, and of nobody else.
pub const NEW_DIR_MODE: u32 = 0o700;

/// Who has an object open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// Nobody. The attributes are those of a moment at which that was so.
    Free(Attr),
    /// A process has.
    Held,
    /// Only the bridge itself has, on the way to a client or back. It will be known soon.
    Passing,
}

/// The mode of a file was changed for a moment, to open it: its owner may not read it. That alone gives it another change
/// time, by which it would count as changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LentMode {
    /// Its attributes before.
    pub before: Attr,
    /// Its attributes when it was open, with its own mode again.
    pub opened: Attr,
}

impl Use {
    /// Nobody has the file open, and it had the attributes `now` after that was seen. If it was only opened since
    /// `lent.before`, these are the ones that count.
    pub fn free(now: Attr, lent: Option<LentMode>) -> Use {
        let only_opened = lent.filter(|LentMode { before, opened }| {
            (now.ctime, now.size) == (opened.ctime, opened.size)
                && (before.size, before.mtime) == (opened.size, opened.mtime)
        });
        Use::Free(only_opened.map_or(now, |lent| lent.before))
    }
}

/// An entry of a backing directory. The bridge makes none there: the kernel or a program has, without a call that the
/// library saw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StrayEntry {
    /// Its name in the directory.
    pub name: Vec<u8>,
    /// Its size in bytes.
    pub bytes: u64,
}

/// Something that the driver has to do. Several may be under way at a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    /// Obtain a fact of other bridges ([`crate::bridge::Bridge::fetch`]): [`Got::Fetched`]. If that is refused, try
    /// again later.
    Fetch(Need),
    /// Commit: [`Got::Verdict`]. With an empty batch it only checks that what it relies on still holds.
    Commit(DrainCommit),
    /// `fstat` of backing objects, with what is still to be written to them: [`Got::Attrs`].
    Examine(Vec<ObjectName>),
    /// List these backing directories: [`Got::Strays`].
    ListBacking(Vec<ObjectName>),
    /// `lstat` on the PFS: [`Got::Seen`].
    Look(Vec<TreePath>),
    /// What a directory of the PFS is known by, with all that is in it ([`Identity::with_contents`]): [`Got::Known`].
    Know {
        /// The directory.
        path: TreePath,
        /// What does not count, because it is about to leave.
        without: BTreeSet<TreePath>,
        /// Are the files in it to be told?
        with_files: bool,
    },
    /// Rename on the PFS; `to` is free: [`Got::Did`].
    Rename {
        /// From here.
        from: TreePath,
        /// To here.
        to: TreePath,
        /// What it is. If something else has come to `to` by this, that goes back to `from`, or beside it: EEXIST.
        is: Identity,
        /// See [`crate::record::Dirs::out_of`], of the directory of `from`.
        out_of: Option<Identity>,
        /// See [`crate::record::Dirs::within`], of the directory of `to`.
        within: Option<Identity>,
    },
    /// Remove what is no directory from the PFS, if it is still there: [`Got::Did`].
    Remove {
        /// Where it is.
        path: TreePath,
        /// What it is. If something else is there now, that stays: EEXIST.
        is: Identity,
        /// It goes by this name in the same directory, under which it is looked at once more: what has come in its place since the
        /// first look gets its name back, or one beside it. If it can't get this name, it is removed by its own. `None`: it has a name
        /// of the drain already.
        by: Option<TreePath>,
        /// See [`crate::record::Dirs::within`].
        within: Option<Identity>,
    },
    /// Take a directory of the PFS away with all that is in it: [`Got::Did`]. If it is not empty it is best
    /// renamed to `aside`, or to that name in its own directory (or to one with a number behind it, if that exists): it will be swept.
    Discard {
        /// The directory.
        path: TreePath,
        /// Identity of the directory and its contents, if known. A directory that differs stays: EEXIST. What others change
        /// while it is on its way out is given back.
        is: Option<Identity>,
        /// A name for what is on its way out.
        aside: TreePath,
        /// See [`crate::record::Dirs::within`].
        within: Option<Identity>,
    },
    /// Make a directory on the PFS that only its owner may use yet: [`Got::Made`]. One that is there is fine if it may be taken
    /// for it ([`NewDir::may_be`]): else EEXIST.
    MakeDir(NewDir),
    /// Copy to temporary names: [`Got::Copies`]. What fails may leave its name, here as in the acts that follow: [`Act::Forget`]
    /// takes it away. The bridge that keeps an object brings its contents to the disk before another
    /// one reads them: after a loss of power it must not hold older ones than the PFS.
    Copy {
        /// What and where to.
        copies: Vec<Copy>,
        /// All of them were in use a moment ago: wait a little before.
        after_a_pause: bool,
        /// The directories were noted for this act, which has to be durable first.
        is_noted_anew: bool,
    },
    /// Bring these copies to the disks of the PFS: [`Got::Each`]. What they were copied from gets to the disk of the buffer at
    /// the sync point before they are named: after a power loss it is copied again, and must not be older then.
    Sync(Vec<ObjectId>),
    /// Read these copies back and compare: [`Got::Each`].
    Verify(Vec<ObjectId>),
    /// Give copies their names: [`Got::Named`]. A name where something is that it may not replace ([`Name::may_replace`])
    /// fails with EEXIST; that is looked at last thing before. Only the file that was written and verified gets a name: what is under
    /// the temporary name is compared with that before, and what is under the final name after.
    Name(Vec<Naming>),
    /// These copies are of no use: their temporary names go, wherever making them has stopped. What others have put under such a
    /// name stays. [`Got::Each`]: it is certain that nothing of ours is there.
    Forget(Vec<Temporary>),
    /// Clear `hides` in the labels of these objects: [`Got::Each`].
    Unhide(Vec<ObjectName>),
    /// Give a directory on the PFS the attributes of a backing directory: [`Got::Did`].
    Dress {
        /// The directory on the PFS.
        path: TreePath,
        /// Which it is. If another one is there now, that stays as it is: EEXIST.
        is: Identity,
        /// The backing directory.
        object: ObjectName,
    },
    /// Bring the entries of these directories of the PFS to its disks: [`Got::Each`].
    SyncDirs(Vec<TreePath>),
    /// Remove from these directories of the PFS what an interrupted drain has left: [`Got::Each`]. One that is not there holds
    /// nothing. Of the root: also everything that is aside elsewhere, so that after a success no name is.
    Sweep {
        /// Which directories.
        dirs: Vec<TreePath>,
        /// What drains of this bridge have left ([`super::is_leftover_of`]); `None`: what any has left
        /// ([`super::is_leftover`]).
        of: Option<BridgeId>,
    },
    /// Who has these backing objects open? [`Got::Users`]
    Probe(Vec<ObjectName>),
    /// Which backing directories does a process have open, or as its working directory, or is about to receive? A
    /// descriptor that was opened before the act is asked for must not escape it, wherever it goes meanwhile: first
    /// the bridge is looked at, then what it has sent and nobody has received, then all others. [`Got::Busy`]
    ProbeDirs,
    /// Let a moment pass: [`Got::Done`].
    Pause,
}

impl Act {
    /// Does it change names on the PFS? Then every commit before it has to be durable first: a power loss must not leave a
    /// PFS that the tables do not know.
    pub fn changes_names_of_pfs(&self) -> bool {
        let makes_temporaries = matches!(
            self,
            Act::Copy {
                is_noted_anew: true,
                ..
            }
        );
        makes_temporaries || !self.changed_dirs().is_empty()
    }

    /// The directories of the PFS whose entries it changes. They have to be synced before any later commit is durable: a
    /// power loss must not leave tables that tell of more than the PFS. Temporary names do not count, because nothing is
    /// said of them.
    pub fn changed_dirs(&self) -> Vec<TreePath> {
        match self {
            Act::Rename { from, to, .. }
            | Act::Discard {
                path: from,
                aside: to,
                ..
            } => vec![from.parent(), to.parent()],
            Act::Remove { path, .. } | Act::MakeDir(NewDir { path, .. }) => vec![path.parent()],
            Act::Name(all) => {
                // With several bridges a copy is made in another directory than it gets its name in.
                let from = all.iter().map(|naming| &naming.temporary.path);
                let names = all.iter().flat_map(|naming| &naming.names);
                let to = names.map(|name| &name.path);
                let mut dirs: Vec<_> = from.chain(to).map(TreePath::parent).collect();
                dirs.sort_unstable();
                dirs.dedup();
                dirs
            }
            Act::Fetch(_)
            | Act::Commit(_)
            | Act::Examine(_)
            | Act::ListBacking(_)
            | Act::Look(_)
            | Act::Know { .. }
            | Act::Copy { .. }
            | Act::Sync(_)
            | Act::Verify(_)
            | Act::Forget(_)
            | Act::Sweep { .. }
            | Act::Unhide(_)
            | Act::Dress { .. }
            | Act::SyncDirs(_)
            | Act::Probe(_)
            | Act::ProbeDirs
            | Act::Pause => Vec::new(),
        }
    }

    /// The directories that its user has to have the permission to change, each with where it is after the act. Nothing for a
    /// sweep: whether it finds something is not known before, and its driver looks.
    pub fn needs_to_change(&self) -> Vec<[TreePath; 2]> {
        let mut dirs = match self {
            Act::Sweep { .. } => Vec::new(),
            act => act.visited_dirs(),
        };
        dirs.sort_unstable();
        dirs.dedup();
        let mut dirs: Vec<_> = dirs.into_iter().map(|dir| [dir.clone(), dir]).collect();
        if let Act::Rename { from, to, is, .. } = self
            && is.is_dir()
            && from.parent() != to.parent()
        {
            // It is changed itself: its `..` is an entry.
            dirs.push([from.clone(), to.clone()]);
        }
        dirs
    }

    /// The directories in which it may make or remove an entry, for however short a time: [`Act::changed_dirs`], and those in
    /// which copies are made and leftovers removed.
    pub fn visited_dirs(&self) -> Vec<TreePath> {
        match self {
            Act::Copy { copies, .. } => {
                let made = copies.iter().map(|copy| copy.temporary.path.parent());
                made.collect()
            }
            Act::Forget(all) => all.iter().map(|left| left.path.parent()).collect(),
            Act::Sweep { dirs, .. } => dirs.clone(),
            act => act.changed_dirs(),
        }
    }
}

/// What became of an act.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)] // each is described where it is asked for
pub enum Got {
    Fetched(Box<Fact>),
    Verdict(DrainVerdict),
    Attrs(Vec<Work<Attr>>),
    Strays(Vec<Work<Vec<StrayEntry>>>),
    Seen(Vec<Work<Option<Attr>>>),
    Known(Work<KnownDir>),
    Did(Work<()>),
    /// What it is known by, made or found.
    Made(Work<Identity>),
    Copies(Vec<Work<Copied>>),
    Named(Vec<Work<Named>>),
    Each(Vec<Work<()>>),
    Users(Vec<Work<Use>>),
    Busy(Work<Vec<ObjectId>>),
    Done,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bridge::tests::Table;
    use crate::facts::Timestamp;
    use crate::record::PathRecord;
    use crate::table::WriteTables;

    fn at(mtime: i64, ctime: i64, size: u64) -> Attr {
        let moment = |sec| Timestamp { sec, nsec: 0 };
        Attr {
            mtime: moment(mtime),
            ctime: moment(ctime),
            size,
            ..Attr::default()
        }
    }

    #[test]
    fn to_move_a_directory_into_another_one_takes_the_permission_to_change_it() {
        let path = |text: &str| TreePath::new(text).unwrap();
        let is = |mode| {
            Identity::of_copy(&Attr {
                mode,
                ..Attr::default()
            })
        };
        let rename = |from, to, is| {
            Act::Rename {
                from: path(from),
                to: path(to),
                is,
                out_of: None,
                within: None,
            }
            .needs_to_change()
        };
        let [a, b, d] = ["a", "b", "a/d"].map(|text| [path(text), path(text)]);
        let moves = [path("a/d"), path("b/d")];
        let dir = is(libc::S_IFDIR);
        assert_eq!(rename("a/d", "b/d", dir), [a.clone(), b.clone(), moves]);
        assert_eq!(rename("a/d", "b/d", is(libc::S_IFREG)), [a.clone(), b]);
        assert_eq!(rename("a/d", "a/e", dir), [a]);
        let remove = Act::Remove {
            path: path("a/d/e"),
            is: is(libc::S_IFREG),
            by: None,
            within: None,
        };
        assert_eq!(remove.needs_to_change(), [d]);
        let sweep = Act::Sweep {
            dirs: vec![path("a")],
            of: None,
        };
        assert_eq!(sweep.needs_to_change(), Vec::<[TreePath; 2]>::new());
    }

    #[test]
    fn what_others_put_in_place_of_a_directory_that_was_just_made_is_not_taken_for_it() {
        let (root, user, other) = (0, 1001, 1002);
        let of = |uid| Attr {
            mode: libc::S_IFDIR | 0o700,
            uid,
            ..Attr::default()
        };
        let is_made =
            |found, by, around, is_empty| NewDir::is_made(&of(found), by, around, || is_empty);
        assert!(is_made(root, root, user, true));
        // Some file systems show one owner for all.
        assert!(is_made(user, root, user, true));
        assert!(!is_made(other, root, user, true));
        assert!(!is_made(root, root, user, false), "it holds something");
        assert!(is_made(user, user, root, true));
        assert!(!is_made(other, user, user, true));
    }

    #[test]
    fn a_directory_that_is_found_is_taken_for_a_new_one_only_if_it_is_known_or_its_owner_has_put_it_there()
     {
        let dir = |uid, mode| Attr {
            ino: 5,
            mode: libc::S_IFDIR | mode,
            uid,
            ..Attr::default()
        };
        let (root, user, other) = (0, 1001, 1002);
        let new = |known, knows_dirs| NewDir {
            path: TreePath::new("d").unwrap(),
            object: ObjectName {
                oid: ObjectId::new(BridgeId(1), 1, 1),
                link: 0,
            },
            known,
            within: None,
            apart: TreePath::new("made").unwrap(),
            knows_dirs,
            was_made: false,
        };
        let own = dir(user, 0o755);
        let may_be = |known, found: &Attr, by, is_empty| {
            let around = dir(user, 0o755);
            new(known, true).may_be(found, &own, by, &around, || is_empty, || true)
        };
        assert!(may_be(None, &dir(user, 0o777), user, false));
        assert!(!may_be(None, &dir(other, 0o777), user, false));
        let known = Some(Identity::of_dir(&dir(other, 0o777)));
        assert!(may_be(known, &dir(other, 0o777), root, false));
        // A drain of root was killed, here in a directory that gives its group on.
        assert!(may_be(None, &dir(root, 0o2700), root, true));
        assert!(!may_be(None, &dir(root, 0o700), root, false));
        assert!(!may_be(None, &dir(root, 0o755), root, true));
        assert!(!may_be(None, &dir(root, 0o700), user, true));
        let file = Attr {
            mode: libc::S_IFREG | 0o700,
            ..dir(user, 0)
        };
        assert!(!may_be(None, &file, user, true));
        // Others may have moved one of the user there.
        let in_dir = |known, knows_dirs, around: &Attr| {
            let found = dir(user, 0o700);
            new(known, knows_dirs).may_be(&found, &own, root, around, || false, || true)
        };
        // Or one of root, which has no mark.
        let without_mark = |around: &Attr| {
            new(None, true).may_be(&dir(root, 0o700), &own, root, around, || true, || false)
        };
        assert!(without_mark(&dir(root, 0o755)));
        assert!(!without_mark(&dir(user, 0o755)));
        assert!(!without_mark(&dir(root, 0o777)));
        assert!(in_dir(None, true, &dir(root, 0o755)));
        assert!(in_dir(None, true, &dir(root, 0o1777)));
        assert!(!in_dir(None, true, &dir(other, 0o755)));
        assert!(!in_dir(None, true, &dir(other, 0o1777)));
        assert!(!in_dir(None, true, &dir(user, 0o775)));
        // Into a sticky directory they can have moved one to which they may write.
        let moved = |mode, is_empty, is_marked| {
            let found = dir(user, mode);
            let around = dir(root, 0o1777);
            new(None, true).may_be(&found, &own, root, &around, || is_empty, || is_marked)
        };
        assert!(moved(0o755, false, false));
        assert!(!moved(0o733, false, true) && !moved(0o770, true, false));
        // A drain that was killed had made it.
        let is_marked = |mode, is_empty| {
            let found = dir(user, mode);
            let around = dir(other, 0o777);
            new(None, true).may_be(&found, &own, root, &around, || is_empty, || true)
        };
        assert!(is_marked(0o700, true));
        assert!(!is_marked(0o700, false) && !is_marked(0o777, true));
        let another = Some(Identity::of_dir(&Attr {
            ino: 6,
            ..dir(user, 0o700)
        }));
        assert!(!in_dir(another, true, &dir(other, 0o755)));
        // Where numbers tell nothing the owner tells it.
        assert!(in_dir(another, false, &dir(other, 0o755)));
        assert!(!in_dir(None, false, &dir(other, 0o755)));
        let made = NewDir {
            was_made: true,
            ..new(another, true)
        };
        assert!(!made.may_be(&dir(user, 0o700), &own, user, &own, || true, || true));
    }

    #[test]
    fn a_file_that_was_only_opened_counts_as_it_was_before() {
        let lent = LentMode {
            before: at(1, 2, 10),
            opened: at(1, 5, 10),
        };
        assert_eq!(Use::free(at(1, 5, 10), Some(lent)), Use::Free(lent.before));
        let now = at(1, 2, 10);
        assert_eq!(Use::free(now, None), Use::Free(now));
    }

    #[test]
    fn a_file_that_somebody_has_changed_meanwhile_counts_as_it_is() {
        let lent = |before, opened| Some(LentMode { before, opened });
        let before = at(1, 2, 10);
        let opened = at(1, 5, 10);
        for (now, lent) in [
            // Since it was opened.
            (at(1, 6, 10), lent(before, opened)),
            (at(1, 5, 11), lent(before, opened)),
            // Between the look before and the open.
            (at(3, 5, 10), lent(before, at(3, 5, 10))),
            (at(1, 5, 11), lent(before, at(1, 5, 11))),
        ] {
            assert_eq!(Use::free(now, lent), Use::Free(now));
        }
    }

    #[test]
    fn a_commit_holds_only_while_all_is_below_a_directory_that_was_seen_there() {
        let path = |text: &str| TreePath::new(text.as_bytes()).unwrap();
        let tables = Table::default();
        let put = |at: &str, seq| {
            let oid = ObjectId::new(BridgeId(0), 1, seq);
            let object = ObjectName { oid, link: 0 };
            let record = PathRecord {
                version: seq,
                ..PathRecord::new(Kind::File, object, BridgeId(0))
            };
            let path = path(at);
            tables.apply(&[Change::Put { path, record }]).unwrap();
        };
        let seen = |all: &[(&str, u64)]| DrainCommit {
            below: vec![BelowRead {
                dir: path("m"),
                seen: all.iter().map(|(at, v)| (path(at), *v)).collect(),
            }],
            ..DrainCommit::default()
        };
        let holds = |all: &[(&str, u64)]| seen(all).still_holds(&tables).unwrap();
        put("m", 1);
        put("n/x", 2);
        assert!(holds(&[]));
        put("m/x", 3);
        assert!(!holds(&[]) && holds(&[("m/x", 3)]));
        put("m/x", 4);
        assert!(!holds(&[("m/x", 3)]) && holds(&[("m/x", 4)]));
        put("m/y", 5);
        assert!(!holds(&[("m/x", 4)]) && holds(&[("m/x", 4), ("m/y", 5)]));
    }
}
