//! Which names a client may look at itself: what the bridge writes into the memory that it shares with clients of its own
//! user (`forebay_wire::NameTable` in the drivers).

use crate::path::TreePath;
use crate::record::{BridgeId, Kind, ObjectName, PathRecord};
use crate::table::{Change, TableError, Tables};

/// A name whose attributes are those of a backing object, whoever asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plain {
    /// The object.
    pub object: ObjectName,
    /// A directory; else a regular file.
    pub is_dir: bool,
}

/// What `stat` of this record shows if the attributes of its object are all of it. That is so for files of this bridge that
/// no drain is working at. Of directories only the mode counts: their times may wait to be written.
pub fn plain(record: &PathRecord, me: BridgeId) -> Option<Plain> {
    let is_dir = match record.kind {
        Kind::File => false,
        Kind::Dir => true,
        Kind::Symlink | Kind::Special | Kind::Moved | Kind::Whiteout => return None,
    };
    let is_mine = record.owner == me && record.segments.is_empty();
    (is_mine && record.transit.is_none()).then_some(Plain {
        object: record.object,
        is_dir,
    })
}

/// How many of the directories above a record, from the nearest on, were made in the buffer. The others are directories of
/// the PFS, and are there at the same path: else `None`.
///
/// # Errors
/// The tables failed.
pub fn born_above(path: &TreePath, tables: &dyn Tables) -> Result<Option<u16>, TableError> {
    let mut at = path.clone();
    let mut born = 0;
    while !at.is_root() {
        at = at.parent();
        // A record exists only where all of its ancestors are directories.
        match tables.get(&at)?.map(|above| above.kind) {
            Some(Kind::Dir) if born < u16::MAX => born += 1,
            Some(_) => return Ok(None),
            // A directory of the PFS. It would have a record, or one above it, if it had been renamed.
            None => return is_in_place(&at, tables).map(|is| is.then_some(born)),
        }
    }
    Ok(Some(born))
}

/// Is this directory of the PFS at its own path, and all above it, too?
fn is_in_place(dir: &TreePath, tables: &dyn Tables) -> Result<bool, TableError> {
    let mut at = dir.clone();
    while !at.is_root() {
        at = at.parent();
        if tables.get(&at)?.is_some() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The path and the record that a change leaves there, if it changes a record.
pub fn outcome(change: &Change) -> Option<(&TreePath, Option<&PathRecord>)> {
    match change {
        Change::Put { path, record } => Some((path, Some(record))),
        Change::Delete { path, .. } => Some((path, None)),
        _ => None,
    }
}
