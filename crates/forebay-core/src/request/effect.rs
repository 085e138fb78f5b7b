//! What the machine asks of its driver, and what the driver tells it, as values.

use super::grant::{Form, Granting};
use crate::bridge::ReadSet;
use crate::facts::{Attr, Cred, Fresh, LowerPage, Need, NewObject, PfsLook};
use crate::fault::Fault;
use crate::ops::{self, Answer};
use crate::path::TreePath;
use crate::record::{ObjectName, Token};
use crate::table::Change;
use std::sync::Arc;

/// Who asks, and how it wants its grants.
#[derive(Debug, Clone)]
pub struct Caller {
    /// From the kernel.
    pub cred: Arc<Cred>,
    /// It would rather open a backing file itself than be handed a descriptor.
    pub by_name: bool,
}

/// What a look at the PFS has shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Looked {
    /// For [`PfsLook::Attr`] and [`PfsLook::Renamed`].
    Attr(Option<Attr>),
    /// For [`PfsLook::Link`].
    Link(Vec<u8>),
    /// For [`PfsLook::List`].
    List(Arc<LowerPage>),
}

/// A decision that is to become true.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commit {
    /// What it relied on; empty with one bridge.
    pub reads: ReadSet,
    /// What it changes, with the marks that go along.
    pub batch: Vec<Change>,
    /// What follows the batch, by a driver of which [`super::World::commits_in_parts`] is true.
    pub unseen: Option<ops::Unseen>,
    /// The request behind it.
    pub token: Token,
}

/// Why a request ends without an answer of policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// The operation fails with this errno.
    Errno(i32),
    /// The path leaves the buffer: go on natively with this absolute path.
    Redirect(Vec<u8>),
    /// Nobody can go on: EIO, and the text for the log.
    Fault(Fault),
    /// It has taken [`super::MAX_STEPS`] steps: EAGAIN.
    GaveUp,
}

/// The end of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finish {
    /// What the client gets.
    pub outcome: Result<Answer, Failure>,
    /// How it gets what is granted.
    pub form: Form,
    /// It has to open the object anew through the descriptor.
    pub reopen: bool,
    /// Work that follows the commit, before the answer.
    pub follow: Vec<ops::FollowUp>,
    /// Objects that were made and are of no use: to be removed.
    pub unused: Vec<Fresh>,
    /// A turn to copy that ends with the request.
    pub turn: Option<TreePath>,
}

/// What the driver does next for a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// The decision changes something: step again while holding the turn to commit.
    TakeTurn,
    /// The decision takes long: step again, not where other requests are served, and with a [`super::World`] that reads any
    /// number of records.
    TakesLong,
    /// Look at the PFS; ends in [`super::Pending::looked`].
    Look(PfsLook),
    /// Ask the other bridges ([`crate::bridge::Bridge::fetch`]); ends in [`super::Pending::fetched`].
    Fetch(Need),
    /// A drain is changing the PFS at this path. Ends in [`super::Pending::woken`] when the record has changed.
    Await(TreePath),
    /// Something is undecided or others were faster: step again a little later.
    Pause,
    /// Take the turn to copy this file of the PFS; ends in [`super::Pending::has_turn`], or in
    /// [`super::Pending::woken`] when another request's turn has ended.
    Enter {
        /// Which file.
        path: TreePath,
        /// The turn that it had for another one, and that ends.
        leaves: Option<TreePath>,
    },
    /// Commit a doom mark for a link before it is made: only this mark leads a restart to the link. Ends in
    /// [`super::Pending::announced`].
    Announce {
        /// The object to link to. The driver chooses the number of the link.
        of: ObjectName,
    },
    /// Make a backing object; ends in [`super::Pending::made`]. A file of the PFS is copied only if nobody
    /// has it open ([`super::Pending::held_in_place`]).
    Make {
        /// What to make.
        spec: Arc<NewObject>,
        /// Flags of a descriptor that is wanted along with a plain new file.
        open: Option<i32>,
        /// The announced name of a link.
        link: Option<ObjectName>,
    },
    /// Write the times of directories that wait; ends in [`super::Pending::times_written`].
    WriteTimes,
    /// Open what is granted; ends in [`super::Pending::granted`].
    Grant(Granting),
    /// Commit; ends in [`super::Pending::committed`] or [`super::Pending::fails`]. If the batch names a copy whose
    /// original was granted in place since the copy began, the driver must not commit and calls
    /// [`super::Pending::held_in_place`].
    Commit(Commit),
    /// It is committed, and keeps these files of the PFS from view, to which clients may have written in place. Where nobody has
    /// one open for writing any more, note what they have left ([`crate::in_place::Grants::note_left`]): what others make of it later is told from
    /// that. It has no outcome: the next step is the end.
    LookAtLeft(Vec<TreePath>),
    /// The end.
    Finish(Finish),
}
