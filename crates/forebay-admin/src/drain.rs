//! What a drain is asked, how it goes, what it leaves, and what is in the buffer.

use serde::{Deserialize, Serialize};

/// What a drain is asked to do.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DrainRequest {
    /// Keep the buffered copies.
    pub keep: bool,
    /// Limit in bytes per second.
    pub rate: Option<u64>,
    /// Files copied at the same time.
    pub workers: Option<u32>,
    /// Milliseconds from the start of the drain in which a file that is open for writing is waited for:
    /// a program that has just ended may still be closing its files.
    pub patience_ms: u64,
}

/// Where a drain is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DrainState {
    /// None since the bridge has started.
    #[default]
    Idle,
    /// One is at work.
    Running,
    /// It has ended; see what is left.
    Done,
    /// It was stopped before its end.
    Stopped,
    /// The tables or the local disk failed; see `failure`.
    Failed,
}

/// Counters of the running or the last drain.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DrainStatus {
    /// Where it is.
    pub state: DrainState,
    /// Files, symbolic links and nodes to copy.
    pub files_total: u64,
    /// Of these, done or given up.
    pub files_done: u64,
    /// Of these, on the PFS, verified and under their names.
    pub files_drained: u64,
    /// Bytes to copy (data, without holes).
    pub bytes_total: u64,
    /// Bytes copied.
    pub bytes_done: u64,
    /// Bytes read back from the PFS and found equal.
    pub bytes_verified: u64,
    /// Directories made or changed on the PFS.
    pub dirs: u64,
    /// Names renamed on the PFS.
    pub renamed: u64,
    /// Names removed from the PFS.
    pub removed: u64,
    /// Seconds since it began, or that it took.
    pub seconds: f64,
    /// Number of things that are not on the PFS yet.
    pub left: u64,
    /// Their bytes.
    pub left_bytes: u64,
    /// The buffered copies are gone; the PFS alone shows the same tree.
    pub released: bool,
    /// Why the copies were kept although nobody asked for it.
    pub kept_because: Option<String>,
    /// Things that arrived with less than they had (extended attributes that the PFS does not take).
    pub remarks: Vec<String>,
    /// Why it failed.
    pub failure: Option<String>,
}

/// Why something is not on the PFS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reason {
    /// A process has it open for writing, or mapped.
    Open,
    /// It changed while it was copied, twice.
    Changing,
    /// The PFS or the local disk refused.
    Error,
    /// Something that had to come first did not come about.
    Blocked,
    /// The drain was stopped before its turn.
    Stopped,
}

/// One thing that is not on the PFS.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Left {
    /// Its path below the buffer root; bytes that are no UTF-8 are replaced.
    pub path: String,
    /// Its bytes.
    pub bytes: u64,
    /// What kind of reason.
    pub reason: Reason,
    /// The operation that failed, as `fsync` or `rename`.
    pub operation: String,
    /// What the system said.
    pub cause: String,
}

/// A file and its size.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Named {
    /// Path below the buffer root.
    pub path: String,
    /// Size in bytes.
    pub bytes: u64,
}

/// What is in the buffer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inventory {
    /// Files that are not on the PFS in their present state (hard links count once).
    pub dirty_files: u64,
    /// Their sizes, summed.
    pub dirty_bytes: u64,
    /// The largest of them.
    pub largest: Vec<Named>,
    /// Files that are on the PFS already and kept as copies.
    pub clean_files: u64,
    /// Their sizes, summed.
    pub clean_bytes: u64,
    /// Directories made in the buffer that are not on the PFS.
    pub dirs: u64,
    /// Symbolic links, likewise.
    pub symlinks: u64,
    /// FIFOs, sockets, device nodes, likewise.
    pub specials: u64,
    /// Things of the PFS that were renamed, to be carried out there.
    pub renamed: u64,
    /// Things of the PFS that were removed or replaced, to be carried out there.
    pub removed: u64,
}

impl Inventory {
    /// Does the PFS differ from the buffer's view in anything?
    pub fn is_dirty(&self) -> bool {
        self.dirty_files + self.dirs + self.symlinks + self.specials + self.renamed + self.removed
            > 0
    }
}
