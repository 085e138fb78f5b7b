//! The stamp that tells whether a backing file has changed since its last drain.

use crate::Timestamp;

/// State of a backing file at its last drain. The file is clean as long as it still has
/// this state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Stamp {
    /// Size in bytes.
    pub size: u64,
    /// Last change of the inode.
    pub ctime: Timestamp,
}
