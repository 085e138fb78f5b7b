//! When a backing file counts as unchanged.

/// State of a backing file at the moment it was last drained. As long as the
/// file still looks like this, it is clean.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Stamp {
    /// Size in bytes.
    pub size: u64,
    /// Last change of the inode, nanoseconds since the epoch.
    pub ctime_ns: i128,
}
