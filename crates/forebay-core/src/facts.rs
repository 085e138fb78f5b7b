//! What policy needs to know, and how it asks.
//!
//! [`crate::ops::decide`] reads facts through [`Facts`]. A fact that is not at
//! hand makes it stop with [`Stop::Need`]; the driver obtains the fact, holding
//! no lock, and asks again. So policy never waits, and the same code serves a
//! real server, where a look at the PFS may take milliseconds, and a simulator.

use crate::fault::Fault;
use crate::identity::Identity;
use crate::path::TreePath;
use crate::record::{BridgeId, ObjectId, ObjectName, PathRecord, Token};
use crate::speakers::Lowers;
use crate::table::TableError;
use std::sync::Arc;

pub use crate::access::Protections;
pub use forebay_types::{Attr, Devices, Inode, Timestamp};

/// What a look at the PFS has to go through. Natively a program that has got to a directory goes on from that, whatever others put in its
/// place; here each look begins at the root, and whoever asks may see less than the bridge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Through {
    /// What this request has seen before.
    Seen(Inode),
    /// The directory out of which something was renamed.
    Known(Identity),
}

impl Through {
    /// Is it what has these attributes?
    pub fn is(self, attr: &Attr) -> bool {
        match self {
            Through::Seen(inode) => inode == attr.inode(),
            Through::Known(dir) => dir.is_dir_of(attr),
        }
    }
}

/// Who asks. From the kernel, never from the message.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cred {
    /// Effective user.
    pub uid: u32,
    /// Effective group.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
}

impl Cred {
    /// Does the caller belong to `gid`?
    pub fn in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }
}

/// Identity and permissions of an entry of the PFS as a decision saw them. Only that entry may be opened: others may put
/// another one there before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Judged {
    dev: u64,
    ino: u64,
    mode: u32,
    uid: u32,
    gid: u32,
}

impl Judged {
    /// What has these attributes.
    pub fn new(attr: &Attr) -> Self {
        Judged {
            dev: attr.dev,
            ino: attr.ino,
            mode: attr.mode,
            uid: attr.uid,
            gid: attr.gid,
        }
    }

    /// Is it a regular file?
    pub fn is_file(&self) -> bool {
        self.mode & libc::S_IFMT == libc::S_IFREG
    }
}

/// A new backing object that a decision needs before it can commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewObject {
    /// What to make.
    pub what: NewKind,
    /// Its label: identity that the backing object itself carries.
    pub label: Label,
    /// Type and permission bits (type bits only for nodes).
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

/// What a new backing object is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NewKind {
    /// An empty regular file.
    File,
    /// An empty directory.
    Dir,
    /// A regular file that holds the text of a symbolic link.
    Symlink(Vec<u8>),
    /// A FIFO, socket or device node (type in `mode`, this is the device number) beside its label file.
    Node(u64),
    /// A further hard link to this backing object.
    LinkTo(ObjectName),
    /// The marker of something renamed: an empty file that only carries its label. That of a removal comes later
    /// ([`Facts::new_marker`]).
    Marker,
    /// A copy of the PFS file at this path, with its mode, owner and times; at most `bytes` of it.
    Staged {
        /// Where on the PFS.
        lower: TreePath,
        /// Which file was judged there.
        judged: Judged,
        /// Copy at most so many bytes (0 when it is truncated anyway).
        bytes: u64,
    },
}

/// Identity that a backing object carries in an xattr, so that the tables can be rebuilt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    /// Kind of the record.
    pub kind: crate::record::Kind,
    /// The directory that holds the name.
    pub parent: LabelParent,
    /// The name in it.
    pub name: Vec<u8>,
    /// See [`PathRecord::origin`].
    pub origin: Option<TreePath>,
    /// See [`PathRecord::hides`].
    pub hides: Option<TreePath>,
    /// Of something that was renamed: see [`PathRecord::arriving`]. Labels of older versions do not tell it.
    pub renamed: Option<Identity>,
}

/// How a label names its directory: by an identity that a rename of an ancestor does not change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LabelParent {
    /// A directory made in the buffer.
    Object(crate::record::ObjectId),
    /// A directory of the PFS, by its path there (the root has the empty path).
    Lower(TreePath),
}

/// A backing object that the driver made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fresh {
    /// Its name.
    pub object: ObjectName,
    /// Its inode number.
    pub ino: u64,
    /// A doom mark names it: the commit that puts it into the tables takes that away.
    pub is_doomed: bool,
    /// The driver keeps a descriptor of it, with the flags that were asked for.
    pub is_open: bool,
}

impl Fresh {
    /// An object that was made just now and has no marks.
    pub fn new(object: ObjectName, ino: u64) -> Self {
        Fresh {
            object,
            ino,
            is_doomed: false,
            is_open: false,
        }
    }
}

/// An entry of a PFS directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LowerEntry {
    /// Name.
    pub name: Vec<u8>,
    /// Inode number.
    pub ino: u64,
    /// `DT_*` value.
    pub dtype: u8,
}

/// Records of children that are asked for at a time, and so what one message between bridges holds.
pub const CHILDREN_PER_PAGE: usize = 1024;

/// Entries of a PFS directory that are kept at a time. A larger directory is read several times, once for
/// each part of its names: so a listing takes bounded memory, whatever it lists.
pub const LOWER_PAGE_ENTRIES: usize = 1 << 17;

/// A part of the names of a PFS directory, sorted, without "." and "..".
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LowerPage {
    /// All entries between `after` and the last of them.
    pub entries: Vec<LowerEntry>,
    /// The page begins after this name; `None`: at the beginning.
    pub after: Option<Vec<u8>>,
    /// Nothing comes after the last entry.
    pub ends: bool,
}

impl LowerPage {
    /// Asserts, in builds with debug assertions, that the page is sorted, begins after its bound, and is no longer
    /// than [`LOWER_PAGE_ENTRIES`].
    #[track_caller]
    pub(crate) fn assert_well_formed(&self) {
        debug_assert!(
            self.entries.is_sorted_by(|a, b| a.name < b.name),
            "a page of the PFS is sorted by name, and has each once"
        );
        debug_assert!(
            self.entries
                .first()
                .is_none_or(|first| self.after.as_ref().is_none_or(|after| first.name > *after)),
            "a page of the PFS begins after its bound"
        );
        debug_assert!(
            self.entries.len() <= LOWER_PAGE_ENTRIES,
            "a page of the PFS with {} entries",
            self.entries.len()
        );
    }

    /// Does the page know what comes next after `after`?
    pub fn covers(&self, after: Option<&[u8]>) -> bool {
        let begins = match (&self.after, after) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(from), Some(after)) => &from[..] <= after,
        };
        let last = self.entries.last().map(|e| &e.name[..]);
        begins && (self.ends || last.is_some_and(|last| after.is_none_or(|after| after < last)))
    }

    /// The entries after `after`.
    pub fn entries_after(&self, after: Option<&[u8]>) -> &[LowerEntry] {
        let from = match after {
            None => 0,
            Some(after) => self.entries.partition_point(|e| &e.name[..] <= after),
        };
        &self.entries[from..]
    }
}

/// A look at the PFS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PfsLook {
    /// `lstat` of what has this name there.
    Attr(TreePath),
    /// `lstat` of what is where something renamed was.
    Renamed {
        /// Where.
        origin: TreePath,
        /// In this directory, if that can be told again.
        out_of: Option<Identity>,
    },
    /// Text of a symbolic link.
    Link(TreePath),
    /// The first names of a directory after one, sorted: a [`LowerPage`].
    List {
        /// Which directory.
        dir: TreePath,
        /// After this name.
        after: Option<Vec<u8>>,
    },
}

/// Something that must be obtained before `decide` can go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Need {
    /// The record of a path whose home is another bridge.
    Record(TreePath),
    /// The first children of a directory, after a name, that other bridges hold.
    Children {
        /// Which directory.
        dir: TreePath,
        /// After this name.
        after: Option<Vec<u8>>,
        /// Not more than these.
        limit: usize,
    },
    /// All that other bridges hold below a directory.
    Below(TreePath),
    /// Who speaks of paths of the PFS, of all bridges: a page, see [`crate::speakers::SpeakersPage`].
    Speakers {
        /// Of which paths.
        of: Lowers,
        /// The page begins below this path.
        before: Option<TreePath>,
        /// About so many of each bridge.
        limit: usize,
    },
    /// All names of an object of another bridge.
    Names(ObjectId),
    /// What is at this path is being carried out on the PFS: look again when its record has changed.
    Settled(TreePath),
    /// A look at the PFS.
    Look(PfsLook),
    /// The request goes up further from where it begins, by so many levels at most. What was seen on the PFS is looked at anew, from so many
    /// levels higher up ([`Facts::levels_above`]).
    FurtherUp(usize),
    /// A new backing object.
    Object(Arc<NewObject>),
}

/// Why `decide` did not decide.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// The operation fails with this errno.
    Errno(i32),
    /// The path leaves the buffer: go on natively with this absolute path.
    Redirect(Vec<u8>),
    /// A fact is missing.
    Need(Need),
    /// Nobody can go on; the text goes to the log, EIO to the client.
    Fault(Fault),
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Self {
        Stop::Fault(fault)
    }
}

impl From<TableError> for Stop {
    fn from(e: TableError) -> Self {
        Stop::Fault(e.into())
    }
}

/// Result of everything that may stop.
pub type Outcome<T> = Result<T, Stop>;

/// Shorthand for an errno.
pub fn errno<T>(e: i32) -> Outcome<T> {
    Err(Stop::Errno(e))
}

/// Read access to the state of the world.
pub trait Facts {
    /// Record of a path. `Need::Record` if its home is elsewhere and it was not fetched yet.
    fn record(&self, path: &TreePath) -> Outcome<Option<PathRecord>>;
    /// Records of direct children by name, after `after`, at most `limit`. `Need::Children` if other
    /// bridges may hold some and were not asked yet.
    fn children(
        &self,
        dir: &TreePath,
        after: Option<&[u8]>,
        limit: usize,
    ) -> Outcome<Vec<(Vec<u8>, PathRecord)>>;
    /// Records strictly below `dir`, parents first. `Need::Below` as for `children`.
    fn subtree(&self, dir: &TreePath) -> Outcome<Vec<(TreePath, PathRecord)>>;
    /// Path of an object.
    fn path_of(&self, object: ObjectName) -> Outcome<Option<TreePath>>;
    /// Where in the buffer the thing is that was at exactly this PFS path and was renamed
    /// ([`crate::record::Kind::Moved`] with this origin). Cheap when nothing was ever moved.
    fn moved(&self, origin: &TreePath) -> Outcome<Option<TreePath>>;
    /// `fstat` of a backing object (for a node: of the node).
    fn attr(&self, object: ObjectName) -> Outcome<Attr>;
    /// Text that a backing symbolic link holds.
    fn link_text(&self, object: ObjectName) -> Outcome<Vec<u8>>;
    /// Is there something in a backing directory? The bridge makes nothing there, so it was made past the buffer.
    fn has_strays(&self, _dir: ObjectName) -> Outcome<bool> {
        Ok(false)
    }
    /// `lstat` on the PFS of what has this name there.
    fn lower(&self, path: &TreePath) -> Outcome<Option<Attr>>;
    /// The same of what this record says was renamed and is still at its `origin` there. `None`: others have removed it, or put
    /// something else in its place or in that of its directory, as far as that can be told.
    fn renamed(&self, record: &PathRecord) -> Outcome<Option<Attr>>;
    /// Text of a symbolic link on the PFS.
    fn lower_link(&self, path: &TreePath) -> Outcome<Vec<u8>>;
    /// A page of a PFS directory that [covers](LowerPage::covers) `after`.
    fn lower_list(&self, path: &TreePath, after: Option<&[u8]>) -> Outcome<Arc<LowerPage>>;
    /// A symbolic link at this path is followed: the decision relies on it, and not on what lies below its path.
    fn followed(&self, _: &TreePath) {}
    /// So many directories above the one in which a request begins are looked at before that one, from the highest on: so each is
    /// known to be in the one above. For more there is [`Need::FurtherUp`].
    fn levels_above(&self) -> usize;
    /// True if somebody has this PFS file open, so that a copy would part its users. Known only after an attempt to
    /// copy.
    fn is_held_in_place(&self, _: &TreePath) -> bool {
        false
    }
    /// The directories above the root of the buffer, which its own modes say nothing about.
    fn above_root(&self) -> Outcome<Vec<Attr>> {
        Ok(Vec::new())
    }
    /// Has the caller this very file or directory open, or as its working directory? Asked only where it matters: of another
    /// user, about something that this user could not reach by its path.
    fn has_open(&self, _: &Attr) -> bool {
        false
    }
    /// The new backing object made for this very specification, or `Need::Object`.
    fn fresh(&self, spec: &NewObject) -> Outcome<Fresh>;
    /// The name of a new marker, of which there is nothing yet ([`FollowUp::Mark`](crate::ops::FollowUp::Mark)).
    fn new_marker(&self) -> ObjectName;
    /// Next version number for records.
    fn next_version(&self) -> u64;
    /// This bridge.
    fn me(&self) -> BridgeId;
    /// Has an earlier try of this request changed the tables already? (One that is sent again after a
    /// lost connection finds its own token among those of the recent past.)
    fn was_carried_out(&self, token: Token) -> Outcome<bool>;

    /// See [`Mutation`](crate::bridge::Mutation).
    #[doc(hidden)]
    fn planted(&self) -> Option<crate::bridge::Mutation> {
        None
    }
}

/// Settings of one buffer that policy depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Canonical absolute path of the buffer root.
    pub root: Vec<u8>,
    /// PFS files above this size in bytes are written in place instead of being staged.
    pub stage_limit_bytes: u64,
    /// The user that runs the bridge.
    pub bridge_uid: u32,
    /// So many records below a directory of the PFS go with it in one batch; of more each part has so many.
    pub removed_at_once: usize,
    /// The file systems on which its objects lie.
    pub devices: Devices,
    /// A write through a mapping shows in the times of an object.
    pub stamps_mapped_writes: bool,
    /// A directory of the PFS has one inode number as long as it is there.
    pub keeps_numbers: bool,
    /// What this node forbids beyond POSIX.
    pub protections: Protections,
}

impl Settings {
    /// May anything be known by the number of its directory later on? Where numbers change only a bridge of root relies on them: what
    /// other users do must not come into a directory in which they may not do it.
    pub fn knows_dirs(&self) -> bool {
        self.keeps_numbers || self.bridge_uid == 0
    }

    /// The same of what this user does.
    pub fn knows_dirs_of(&self, uid: u32) -> bool {
        self.keeps_numbers || self.bridge_uid == 0 && uid != 0
    }
}
