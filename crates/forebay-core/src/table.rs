//! The tables of a bridge, as policy sees them.
//!
//! The *global table* maps a path to its [`PathRecord`]; the *local table* maps an
//! object's name back to its path and holds the marks of unfinished work on
//! backing objects. Implementations live in `forebay-tables`.

use crate::path::TreePath;
use crate::record::{BadRecord, ObjectId, ObjectName, PathRecord};
use std::fmt;

/// One change of the tables. A batch of them is atomic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// `path` now has `record`; the local table learns where its object is.
    Put {
        /// Where.
        path: TreePath,
        /// What.
        record: PathRecord,
    },
    /// `path` has no record any more; `object` is the one it had. A batch lists
    /// its deletions before its puts.
    Delete {
        /// Where.
        path: TreePath,
        /// The object that it named.
        object: ObjectName,
    },
    /// The backing object of a removed name still has to be unlinked.
    Doom(ObjectName),
    /// It has been unlinked.
    Undoom(ObjectName),
    /// The label on the backing object still has to be written anew from the table.
    Relabel(ObjectName),
    /// It has been written.
    Relabeled(ObjectName),
    /// A named value of the bridge itself (epoch, watermark, open transactions); `None` removes it.
    Meta {
        /// Name.
        key: Vec<u8>,
        /// Value.
        value: Option<Vec<u8>>,
    },
}

/// A change of marks, or of a value of the bridge itself. No request can see it, so it needs no lock and no turn to commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mark {
    /// See [`Change::Doom`]. Of an object that is about to be made, so that it goes if nobody names it.
    Doom(ObjectName),
    /// See [`Change::Undoom`].
    Undoom(ObjectName),
    /// See [`Change::Relabeled`].
    Relabeled(ObjectName),
    /// See [`Change::Meta`].
    Meta {
        /// Name.
        key: Vec<u8>,
        /// Value.
        value: Option<Vec<u8>>,
    },
}

impl From<Mark> for Change {
    fn from(mark: Mark) -> Self {
        match mark {
            Mark::Doom(object) => Change::Doom(object),
            Mark::Undoom(object) => Change::Undoom(object),
            Mark::Relabeled(object) => Change::Relabeled(object),
            Mark::Meta { key, value } => Change::Meta { key, value },
        }
    }
}

impl Change {
    /// The path whose record it changes, if it changes one.
    pub fn path(&self) -> Option<&TreePath> {
        match self {
            Change::Put { path, .. } | Change::Delete { path, .. } => Some(path),
            _ => None,
        }
    }
}

/// Unfinished work that survived in the tables.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Marks {
    /// Names to unlink.
    pub doomed: Vec<ObjectName>,
    /// Objects to label anew.
    pub relabel: Vec<ObjectName>,
}

/// Why the tables did not do what they were asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TableError {
    /// The disk or the quota has no room for what would have to be written. Holds what the system said.
    NoSpace(String),
    /// What lies in the tables is not what was written there.
    Damaged {
        /// What it should be, as "record".
        what: &'static str,
        /// Where it lies: a key, or a place in a file.
        at: String,
    },
    /// What lies in the tables has a format that this program does not know. Holds which one, and where.
    OtherFormat(String),
    /// The store failed in another way. Holds what it said.
    Failed(String),
}

impl TableError {
    /// There is no space, and no system call has said so: the store keeps its last room back.
    pub fn no_space() -> Self {
        TableError::NoSpace("No space left on device".into())
    }

    /// What lies under `key` is not the `what` that was written there.
    pub fn damaged(what: &'static str, key: &[u8]) -> Self {
        TableError::Damaged {
            what,
            at: format!("key {}", key.escape_ascii()),
        }
    }

    /// What lies at a place is not the `what` that was written there, for this reason.
    pub fn unread(what: &'static str, at: String, why: BadRecord) -> Self {
        match why {
            BadRecord::Damaged => TableError::Damaged { what, at },
            BadRecord::Format(_) => TableError::OtherFormat(format!("{what} at {at}: {why}")),
        }
    }

    /// Is it that there is no space?
    pub fn is_no_space(&self) -> bool {
        matches!(self, TableError::NoSpace(_))
    }

    /// What a program is told; the log tells the rest.
    pub fn errno(&self) -> i32 {
        match self.is_no_space() {
            true => libc::ENOSPC,
            false => libc::EIO,
        }
    }
}

impl fmt::Display for TableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TableError::NoSpace(said)
            | TableError::OtherFormat(said)
            | TableError::Failed(said) => {
                write!(f, "metadata store: {said}")
            }
            TableError::Damaged { what, at } => write!(f, "metadata store: damaged {what} at {at}"),
        }
    }
}

impl std::error::Error for TableError {}

/// In which order a walk meets directories and what is in them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Order {
    /// Each directory before everything in it.
    ParentsFirst,
    /// Everything in a directory before the directory itself: the other way round.
    ChildrenFirst,
}

/// Records that [`Tables::subtree`] reads at once.
const SUBTREE_PAGE: usize = 1024;

/// A named value of the bridge itself.
pub type KeyValue = (Vec<u8>, Vec<u8>);

/// What the tables say.
pub trait Tables {
    /// The record of one path.
    ///
    /// # Errors
    /// The store failed or a record is damaged.
    fn get(&self, path: &TreePath) -> Result<Option<PathRecord>, TableError>;

    /// Records of direct children of `dir` in order of their names, whiteouts
    /// included, from the first name greater than `after`, at most `limit`.
    ///
    /// # Errors
    /// The store failed or a record is damaged.
    fn children(
        &self,
        dir: &TreePath,
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<(Vec<u8>, PathRecord)>, TableError>;

    /// The first `limit` records strictly below `dir` that come after `after` in the order of
    /// [`TreePath::key`], which has parents before children.
    ///
    /// # Errors
    /// The store failed or a record is damaged.
    fn page_below(
        &self,
        dir: &TreePath,
        after: Option<&TreePath>,
        limit: usize,
    ) -> Result<Vec<(TreePath, PathRecord)>, TableError>;

    /// All records strictly below `dir`, parents before children. They are read in pages, so that nobody who writes waits
    /// for all of them: without a lock on the namespace they may be of different moments.
    ///
    /// # Errors
    /// The store failed or a record is damaged.
    fn subtree(&self, dir: &TreePath) -> Result<Vec<(TreePath, PathRecord)>, TableError> {
        let mut all: Vec<(TreePath, PathRecord)> = Vec::new();
        loop {
            let page = self.page_below(dir, all.last().map(|(path, _)| path), SUBTREE_PAGE)?;
            let is_last = page.len() < SUBTREE_PAGE;
            all.extend(page);
            if is_last {
                return Ok(all);
            }
        }
    }

    /// The next records of a walk through the whole table: those that come after `after` in this order, at
    /// most `limit`. `after` itself need not be there (any more). The order is that of the keys
    /// ([`TreePath::key`]): the children of one directory follow each other.
    ///
    /// # Errors
    /// The store failed or a record is damaged.
    fn page(
        &self,
        after: Option<&TreePath>,
        order: Order,
        limit: usize,
    ) -> Result<Vec<(TreePath, PathRecord)>, TableError>;

    /// All names of an object (hard links) whose records are in this table, with their paths, in the order
    /// of their link numbers.
    ///
    /// # Errors
    /// The store failed.
    fn names_of(&self, object: ObjectId) -> Result<Vec<(ObjectName, TreePath)>, TableError>;

    /// The path that names an object.
    ///
    /// # Errors
    /// The store failed.
    fn path_of(&self, object: ObjectName) -> Result<Option<TreePath>, TableError>;

    /// Unfinished work.
    ///
    /// # Errors
    /// The store failed.
    fn marks(&self) -> Result<Marks, TableError>;

    /// A named value.
    ///
    /// # Errors
    /// The store failed.
    fn meta(&self, key: &[u8]) -> Result<Option<Vec<u8>>, TableError>;

    /// All named values whose name begins with `prefix`.
    ///
    /// # Errors
    /// The store failed.
    fn metas(&self, prefix: &[u8]) -> Result<Vec<KeyValue>, TableError>;
}

/// The way into the tables. Whoever decides has [`Tables`] alone: only a commit writes.
pub trait WriteTables: Tables {
    /// Writes a batch, all or nothing. A batch that was taken survives the death of the process.
    ///
    /// # Errors
    /// The store failed; nothing of the batch is visible then.
    fn apply(&self, batch: &[Change]) -> Result<(), TableError>;
}
