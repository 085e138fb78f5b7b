//! Copies on the PFS: how they are made under a temporary name, and get their names.

use crate::facts::Attr;
use crate::identity::Identity;
use crate::path::TreePath;
use crate::record::{Kind, ObjectId, ObjectName};

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
