//! Messages about drains: the request, its progress, what it left, and the contents of the buffer.

use serde::{Deserialize, Serialize};

/// What a drain is asked to do.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DrainRequest {
    /// Keep the buffered copies.
    pub keep: bool,
    /// Limit in bytes per second.
    pub rate: Option<u64>,
    /// Files copied at the same time. With 1 names change one after the other, too.
    pub workers: Option<u32>,
    /// What is decided about changes of others on the PFS, before anything is drained.
    pub take: Vec<Take>,
    /// Milliseconds from the start of the drain for which it waits for files that are open for writing. A program
    /// that has just ended may still be closing its files.
    pub patience_ms: u64,
}

/// Whose version stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// That of the buffer.
    Ours,
    /// That of the PFS.
    Theirs,
    /// That of the PFS, and that of the buffer under a second name.
    Both,
}

/// A decision about one path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Take {
    /// Bytes of the path below the buffer root.
    pub path: Vec<u8>,
    /// Whose version stays.
    pub side: Side,
}

/// Where a drain is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DrainState {
    /// There was no drain since the start of the bridge.
    #[default]
    Idle,
    /// A drain is at work.
    Running,
    /// The drain has ended. [`DrainStatus::left`] says how much is not on the PFS.
    Done,
    /// The drain was stopped before its end.
    Stopped,
    /// The tables or the local disk failed. [`DrainStatus::failure`] says how.
    Failed,
}

/// Counters of the running or the last drain.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DrainStatus {
    /// Where the drain is.
    pub state: DrainState,
    /// Which drain of the bridge it is; 0 before the first one.
    #[serde(default)]
    pub number: u64,
    /// Files, symbolic links and nodes to copy.
    pub files_total: u64,
    /// How many of `files_total` the drain has finished or given up.
    pub files_done: u64,
    /// How many of `files_total` are on the PFS, verified and under their names.
    pub files_drained: u64,
    /// Bytes to copy (data, without holes).
    pub bytes_total: u64,
    /// Bytes copied.
    pub bytes_done: u64,
    /// Bytes of `files_drained`.
    #[serde(default)]
    pub bytes_drained: u64,
    /// Bytes read back from the PFS and found equal.
    pub bytes_verified: u64,
    /// What was done to bring it to the disks of the PFS, in words; empty before there was a drain.
    #[serde(default)]
    pub synced_by: String,
    /// Directories made or changed on the PFS.
    pub dirs: u64,
    /// Names renamed on the PFS.
    pub renamed: u64,
    /// Names removed from the PFS.
    pub removed: u64,
    /// Seconds since the drain began; after its end, the seconds it took.
    pub seconds: f64,
    /// Number of entries that are not on the PFS yet.
    pub left: u64,
    /// Bytes of these entries.
    pub left_bytes: u64,
    /// The buffered copies are gone; the PFS alone shows the same tree.
    pub released: bool,
    /// Why the copies were kept although the request did not ask for that.
    pub kept_because: Option<String>,
    /// Losses on the way to the PFS, such as extended attributes that the PFS does not take. One line each.
    pub remarks: Vec<String>,
    /// Decisions that were asked for and not carried out, and why. One line each.
    pub refused: Vec<String>,
    /// Why the drain failed.
    pub failure: Option<String>,
}

/// The answer to a request to drain.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DrainBegun {
    /// The drain.
    #[serde(flatten)]
    pub status: DrainStatus,
    /// Somebody else had begun it already.
    #[serde(default)]
    pub joined: bool,
}

/// Why something is not on the PFS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reason {
    /// A process has it open for writing, or mapped.
    Open,
    /// It changed while it was copied, twice.
    Changing,
    /// Others have changed on the PFS what it would replace or remove.
    Changed,
    /// Others have put something there on the PFS that it would replace.
    Taken,
    /// Others have removed or renamed on the PFS the directory that it would be in.
    #[serde(rename = "no-directory")]
    NoDirectory,
    /// On the PFS another directory has the place of the one that it goes into, or comes out of.
    #[serde(rename = "other-directory")]
    OtherDirectory,
    /// The PFS or the local disk refused.
    Error,
    /// What a drain has left in this directory of the PFS under names of its own could not be removed.
    Leftovers,
    /// Another change had to come first, and failed.
    Blocked,
    /// Nothing of the buffer: others have changed it while it was removed or replaced, and it is on the PFS, here.
    #[serde(rename = "came-back")]
    CameBack,
    /// The drain was stopped before its turn.
    Stopped,
    /// It is in quarantine since a power loss.
    Withheld,
    /// It was made past the buffer, and the drain does not touch it.
    Stray,
}

/// One thing that is not on the PFS.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Left {
    /// Its path below the buffer root. Bytes that are no UTF-8 are replaced.
    pub path: String,
    /// The path as it is, if that is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_bytes: Option<Vec<u8>>,
    /// Its size in bytes.
    pub bytes: u64,
    /// The kind of reason.
    pub reason: Reason,
    /// The operation that failed, such as `fsync` or `rename`.
    pub operation: String,
    /// The error text of the system; for what is in quarantine its name there; for a
    /// stray where it lies in the storage.
    pub cause: String,
}

impl Left {
    /// Its path below the buffer root, byte by byte.
    pub fn exact_path(&self) -> &[u8] {
        self.path_bytes.as_deref().unwrap_or(self.path.as_bytes())
    }
}

/// A file and its size.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileSize {
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
    /// Sum of their sizes.
    pub dirty_bytes: u64,
    /// The largest of the dirty files.
    pub largest: Vec<FileSize>,
    /// Files that are on the PFS already; the buffer keeps copies of them.
    pub clean_files: u64,
    /// Sum of their sizes.
    pub clean_bytes: u64,
    /// Directories made in the buffer that are not on the PFS.
    pub dirs: u64,
    /// Symbolic links made in the buffer that are not on the PFS.
    pub symlinks: u64,
    /// FIFOs, sockets and device nodes made in the buffer that are not on the PFS.
    pub specials: u64,
    /// Entries of the PFS that were renamed in the buffer, but not yet on the PFS.
    pub renamed: u64,
    /// Entries of the PFS that were removed in the buffer, but not yet on the PFS.
    pub removed: u64,
    /// Places of the PFS where the buffer shows something else, or from which something was renamed; the PFS does not have that yet.
    #[serde(default)]
    pub replaced: u64,
}

impl Inventory {
    /// Does the PFS differ from the buffer's view in anything?
    pub fn is_dirty(&self) -> bool {
        let gone = self.removed + self.replaced;
        let made = self.dirty_files + self.dirs + self.symlinks + self.specials;
        made + self.renamed + gone > 0
    }
}
