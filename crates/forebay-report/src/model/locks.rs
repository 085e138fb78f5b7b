//! Which writes lie in lock units that several nodes write, by a trace of every request.

use super::BUCKET_NAMES;

/// Writes of shared files, by whether another node has written into the same lock unit. A file system that locks ranges hands
/// such a unit from node to node; ranks of one node share its lock.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Locks {
    /// The files, by their index in [`super::Job::files`].
    pub files: Vec<LockedFile>,
    /// Ranks that wrote into units of several nodes, in ascending order.
    pub ranks: Vec<RankWrites>,
    /// Writes that lie in units of one node alone, of all ranks and files, by size; see [`BUCKET_NAMES`].
    pub alone: [Writes; BUCKET_NAMES.len()],
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
    pub contended_writes: Writes,
    /// All others.
    pub alone_writes: Writes,
}

/// What one rank wrote into units of several nodes.
#[derive(Debug, Clone, PartialEq)]
pub struct RankWrites {
    /// Rank.
    pub rank: u32,
    /// Writes by size, see [`BUCKET_NAMES`].
    pub contended: [Writes; BUCKET_NAMES.len()],
}

/// A sum over writes.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Writes {
    /// How many.
    pub requests: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Their seconds.
    pub seconds: f64,
}

impl Writes {
    /// Adds another sum.
    pub fn add(&mut self, other: &Writes) {
        self.requests = self.requests.saturating_add(other.requests);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.seconds += other.seconds;
    }
}
