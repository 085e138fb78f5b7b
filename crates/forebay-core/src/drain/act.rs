//! What a drain asks of its driver, and what comes back.

use super::copies::{Copied, Copy, Named, Naming, Temporary};
use super::known_dir::KnownDir;
use super::new_dir::NewDir;
use super::rules::OURS;
use super::usage::Use;
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

/// The operation of a [`Trouble`] that is none of the PFS: another directory is there than [`crate::record::Dirs`] tell.
pub const OTHER_DIR: &str = "another directory";

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
    /// Give copies their names: [`Got::Named`]. A name where something is that it may not replace
    /// ([`super::copies::Name::may_replace`]) fails with EEXIST; that is looked at last thing before. Only the file that was written and verified gets a name: what is under
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
    use crate::record::PathRecord;
    use crate::table::WriteTables;

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
