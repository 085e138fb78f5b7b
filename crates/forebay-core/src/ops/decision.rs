//! Requests and decisions as values.

use super::Unseen;
use crate::facts::{Attr, Inode, Judged};
use crate::identity::Identity;
use crate::path::TreePath;
use crate::record::{ObjectName, Token};
use crate::table::Change;

/// Where a relative path starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Start {
    /// The buffer root.
    Root,
    /// A directory made in the buffer, by its backing object.
    Object(ObjectName),
    /// A directory of the PFS by its path there (it may have another name in the buffer by now), and which one it is.
    Lower(TreePath, Inode),
}

/// A path as the program wrote it: not normalised, relative to `start`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Path {
    /// Where it starts.
    pub start: Start,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// One operation. Flags and modes have their Linux values.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)] // the fields are the arguments of the system calls of the same names
pub enum Op {
    Open {
        path: Path,
        flags: i32,
        mode: u32,
    },
    Resolve {
        path: Path,
        follow: bool,
        for_write: bool,
        directory: bool,
    },
    Stat {
        path: Path,
        follow: bool,
    },
    Mkdir {
        path: Path,
        mode: u32,
    },
    Mknod {
        path: Path,
        mode: u32,
        dev: u64,
    },
    Symlink {
        path: Path,
        text: Vec<u8>,
    },
    Link {
        old: Path,
        new: Path,
        follow: bool,
    },
    Unlink {
        path: Path,
        dir: bool,
    },
    Rename {
        old: Path,
        new: Path,
        flags: u32,
    },
    Readlink {
        path: Path,
    },
    ReadDir {
        path: Path,
        after: Option<Vec<u8>>,
        limit: usize,
    },
    NameOf {
        start: Start,
    },
    Realpath {
        path: Path,
    },
}

impl Op {
    /// True if an empty batch rests on comparing several records. With several bridges they are read one after the
    /// other, so the decision is proposed all the same.
    pub fn compares(&self) -> bool {
        // Two names of one object: nothing to rename.
        matches!(self, Op::Rename { .. })
    }

    /// Does it begin in a directory that the client has open?
    pub fn starts_within(&self) -> bool {
        let starts = match self {
            Op::Open { path, .. }
            | Op::Resolve { path, .. }
            | Op::Stat { path, .. }
            | Op::Mkdir { path, .. }
            | Op::Mknod { path, .. }
            | Op::Symlink { path, .. }
            | Op::Unlink { path, .. }
            | Op::Readlink { path }
            | Op::ReadDir { path, .. }
            | Op::Realpath { path } => [Some(&path.start), None],
            Op::Link { old, new, .. } | Op::Rename { old, new, .. } => {
                [Some(&old.start), Some(&new.start)]
            }
            Op::NameOf { start } => [Some(start), None],
        };
        let is_open = |start: &Start| !matches!(start, Start::Root);
        starts.into_iter().flatten().any(is_open)
    }
}

/// An operation with its identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// What.
    pub op: Op,
    /// Which request of which client.
    pub token: Token,
    /// Sent again after a lost connection.
    pub retry: bool,
}

/// What a grant opens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GrantTarget {
    /// A backing file, directory, or node.
    Object(ObjectName),
    /// What was judged at this path on the PFS.
    Lower(TreePath, Judged),
}

/// A directory entry of a merged listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Name.
    pub name: Vec<u8>,
    /// Inode number.
    pub ino: u64,
    /// `DT_*` value.
    pub dtype: u8,
}

/// What the client gets once the batch is committed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Success, nothing to say.
    Done,
    /// A descriptor: open the target with these `O_*` flags (never `O_CREAT`), `O_PATH` among them where only the identity is
    /// wanted. Beside `O_PATH` the access mode says what the client is going to do by the path of the descriptor.
    Grant {
        /// What to open.
        target: GrantTarget,
        /// How.
        flags: i32,
    },
    /// Attributes.
    Attr(Attr),
    /// A path or link text.
    Bytes(Vec<u8>),
    /// A part of a listing; `more` if it goes on after the last name.
    Entries {
        /// The entries, sorted by name; "." and ".." come first in the first part.
        entries: Vec<Entry>,
        /// Is there more?
        more: bool,
    },
}

/// Work on backing objects after the commit. The batch holds a mark for each
/// where a crash before it is done would leave a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FollowUp {
    /// Unlink the backing object (and its node); then the doom mark may go.
    Remove(ObjectName),
    /// Write the label anew from the record at this path; then the relabel mark may go.
    Relabel(ObjectName, TreePath),
    /// Write on a marker that no record names any more that it speaks of nothing: it is unlinked later, and another thing may come to the
    /// place of which it spoke before.
    Void(ObjectName, TreePath),
    /// Make the marker, which a record names from now on, some time; then the relabel mark may go. Most are gone before.
    Mark(ObjectName),
    /// A name in this directory appeared or went: set its mtime and ctime to now.
    Touch(Touched),
}

/// A directory, as its times are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Touched {
    /// Its backing object.
    Object(ObjectName),
    /// Its place on the PFS, and which one it is there, if that can be known later on.
    Lower(TreePath, Option<Identity>),
}

/// The outcome of policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// Table changes, atomic. Empty for reads.
    pub batch: Vec<Change>,
    /// What goes with the batch, at once or afterwards.
    pub unseen: Option<Unseen>,
    /// What follows the commit.
    pub follow_ups: Vec<FollowUp>,
    /// What the client gets.
    pub answer: Answer,
}
