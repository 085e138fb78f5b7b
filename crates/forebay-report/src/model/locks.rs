//! Which writes lie in lock units that several nodes write, by a trace of every request.

use super::{Amount, BUCKET_NAMES};

/// Writes of shared files, by whether another node has written into the same lock unit. A file system that locks ranges hands
/// such a unit from node to node; ranks of one node share its lock.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Locks {
    /// The files, by their index in [`super::Job::files`].
    pub files: Vec<LockedFile>,
    /// Ranks that wrote into units of several nodes, in ascending order.
    pub ranks: Vec<RankWrites>,
    /// Writes that lie in units of one node alone, of all ranks and files, by size; see [`BUCKET_NAMES`].
    pub alone: [Amount; BUCKET_NAMES.len()],
    /// Files with too many units to look at.
    pub left_out: u64,
}

/// One shared file.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct LockedFile {
    /// Index in [`super::Job::files`].
    pub file: usize,
    /// Bytes of a lock unit.
    pub unit: u64,
    /// Units that were written.
    pub units: u64,
    /// Those of them that several nodes wrote.
    pub contended: u64,
    /// Writes that touch such a unit.
    pub contended_writes: Amount,
    /// All others.
    pub alone_writes: Amount,
}

/// What one rank wrote into units of several nodes.
#[derive(Debug, Clone, PartialEq)]
pub struct RankWrites {
    /// Rank.
    pub rank: u32,
    /// Writes by size, see [`BUCKET_NAMES`].
    pub contended: [Amount; BUCKET_NAMES.len()],
}
