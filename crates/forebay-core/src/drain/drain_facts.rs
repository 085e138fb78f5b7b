//! What a drain needs to know of the records.

use crate::bridge::{Mutation, ReadSet};
use crate::facts::{Attr, Outcome};
use crate::path::TreePath;
use crate::record::{BridgeId, ObjectId, ObjectName, PathRecord};
use crate::speakers::{Lowers, Speaker};
use crate::table::{KeyValue, Order};

/// Read access to the records, of all bridges. What another bridge has to be asked for stops with
/// [`crate::facts::Need`], and the drain asks its driver for it.
///
/// Answers may be of different moments: what a commit relies on is in its
/// [`reads`](super::DrainCommit::reads).
///
/// The driver of one bridge of several says here what that bridge can say alone, and stops with the need for all
/// else: the machine asks for it, and joins the two.
pub trait DrainFacts {
    /// Is this bridge alone? Then nothing ever stops with a need.
    fn is_single(&self) -> bool {
        true
    }

    /// See [`crate::facts::Settings::knows_dirs`].
    fn knows_dirs(&self) -> bool {
        true
    }

    /// The record of a path. `Need::Record` if its home is elsewhere and it was not fetched yet.
    fn record(&self, path: &TreePath) -> Outcome<Option<PathRecord>>;

    /// After a record was read and there was none: see [`crate::bridge::Bridge::absence`].
    fn absence(&self, _path: &TreePath) -> u64 {
        0
    }

    /// The next records whose home is this bridge: see [`crate::table::Tables::page`].
    fn page(
        &self,
        after: Option<&TreePath>,
        order: Order,
        limit: usize,
    ) -> Outcome<Vec<(TreePath, PathRecord)>>;

    /// Records whose home is this bridge that speak of a path of the PFS: see
    /// [`crate::speakers::Speakers::within`].
    fn speakers_here(&self, before: Option<&TreePath>, limit: usize) -> Outcome<Vec<Speaker>>;

    /// Records of all bridges that speak of this path of the PFS or of something below it, in the order
    /// of [`crate::speakers::Speakers::within`].
    fn speakers(
        &self,
        lower: &TreePath,
        before: Option<&TreePath>,
        limit: usize,
    ) -> Outcome<Vec<Speaker>>;

    /// Records of all bridges that speak of exactly this path of the PFS.
    fn speakers_of(&self, lower: &TreePath) -> Outcome<Vec<Speaker>>;

    /// Records in transit whose home is this bridge, by path, after `after`, at most `limit`.
    fn in_transit(&self, after: Option<&TreePath>, limit: usize) -> Outcome<Vec<TreePath>>;

    /// Records strictly below a directory, of all bridges. `Need::Below` if others were not asked yet.
    fn below(&self, dir: &TreePath) -> Outcome<Vec<(TreePath, PathRecord)>>;

    /// Direct children of a directory with their records, of all bridges, at most `limit`. `Need::Below` if
    /// others were not asked yet.
    fn children(&self, dir: &TreePath, limit: usize) -> Outcome<Vec<(Vec<u8>, PathRecord)>>;

    /// All names of an object, with their paths.
    fn names_of(&self, object: ObjectId) -> Outcome<Vec<(ObjectName, TreePath)>>;

    /// All named values of this bridge whose name begins with `prefix`.
    fn notes(&self, prefix: &[u8]) -> Outcome<Vec<KeyValue>>;

    /// The next version number for records.
    fn next_version(&self) -> u64;

    /// This bridge.
    fn me(&self) -> BridgeId;

    /// Can programs of this bridge have made this file of the PFS what these attributes tell, by writing to it in place
    /// ([`crate::in_place::WrittenInPlace::may_have_made`])?
    fn is_written_in_place(&self, _file: &Attr) -> bool {
        false
    }

    /// Adds to `reads` that a commit relies on all that other bridges hold below `dir`. With one bridge there
    /// is nothing to add.
    fn rely_on_range(&self, _dir: &TreePath, _reads: &mut ReadSet) -> Outcome<()> {
        Ok(())
    }

    /// Adds to `reads` that a commit relies on who speaks of these paths of the PFS, as the page told that begins
    /// below `before`. With one bridge there is nothing to add.
    fn rely_on_speakers(&self, _of: &Lowers, _before: Option<&TreePath>, _reads: &mut ReadSet) {}

    /// See [`Mutation`].
    #[doc(hidden)]
    fn planted(&self) -> Option<Mutation> {
        None
    }
}
