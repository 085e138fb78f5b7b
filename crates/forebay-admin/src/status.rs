//! The message that describes the state of a bridge.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The state of a bridge, for people and scripts. What is in the buffer is in [`crate::drain::Inventory`], which takes
/// longer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Process id.
    pub pid: u32,
    /// How often the bridge has been started.
    pub epoch: u32,
    /// Seconds since the last start.
    pub uptime_s: u64,
    /// The buffer root.
    pub root: PathBuf,
    /// Which directory that is. `None`: an earlier version does not say.
    #[serde(default)]
    pub root_dir: Option<RootDir>,
    /// The instance directory.
    pub storage: PathBuf,
    /// Bytes of the file system that holds the storage.
    pub space_bytes: u64,
    /// Bytes free there for ordinary users.
    pub free_bytes: u64,
    /// Open connections.
    pub connections: u64,
    /// How many of these connections have a lane; the others use only their sockets.
    pub lanes: u64,
    /// Requests that came through lanes.
    pub requests_by_lane: u64,
    /// Number of requests since the start, by operation. Operations without a request are left out.
    pub operations: BTreeMap<String, u64>,
    /// Descriptors handed out.
    pub grants: u64,
    /// Files copied from the PFS because they were opened for writing.
    pub staged_files: u64,
    /// Bytes of these files.
    pub staged_bytes: u64,
    /// Programs that were started although the library does not reach them.
    #[serde(default)]
    pub bypassing: Vec<BypassingProgram>,
}

/// How the buffer root looks to the bridge. To others its path may lead elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RootDir {
    /// Device that it is on.
    pub dev: u64,
    /// Its inode number.
    pub ino: u64,
    /// When it was made, in seconds since 1970 and nanoseconds; zero if its file system does not tell.
    pub born: (i64, u32),
    /// Identity of the space in which the bridge sees it: containers and jobs may have others.
    pub mount_space: u64,
}

/// A program that sees the PFS instead of the buffer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BypassingProgram {
    /// Its path as it was given; `None`: those that are not remembered by name.
    pub path: Option<String>,
    /// Why; empty for those.
    pub why: String,
    /// How often it was started.
    pub starts: u64,
    /// So often its working directory was in the buffer, or an argument named it.
    pub may_look: u64,
}
