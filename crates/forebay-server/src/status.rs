//! What the bridge counts, and how it looks from outside.

use crate::ServerHandle;
use forebay_core::path::TreePath;
use forebay_core::record::Kind;
use forebay_core::table::{TableError, Tables};
use forebay_wire::Op;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

const OPS: [(Op, &str); 16] = [
    (Op::Hello, "hello"),
    (Op::Open, "open"),
    (Op::Resolve, "resolve"),
    (Op::Stat, "stat"),
    (Op::Mkdir, "mkdir"),
    (Op::Mknod, "mknod"),
    (Op::Symlink, "symlink"),
    (Op::Link, "link"),
    (Op::Unlink, "unlink"),
    (Op::Rename, "rename"),
    (Op::Readlink, "readlink"),
    (Op::ReadDir, "readdir"),
    (Op::NameOf, "nameof"),
    (Op::Realpath, "realpath"),
    (Op::Admin, "admin"),
    (Op::Lane, "lane"),
];

/// Counters since the start.
#[derive(Default)]
pub struct Counters {
    requests: [AtomicU64; 32],
    by_lane: AtomicU64,
    grants: AtomicU64,
    staged_files: AtomicU64,
    staged_bytes: AtomicU64,
}

impl Counters {
    /// A request was read.
    pub fn request(&self, op: Op) {
        self.requests[op as usize & 31].fetch_add(1, Ordering::Relaxed);
    }
    /// A request came through shared memory.
    pub fn by_lane(&self) {
        self.by_lane.fetch_add(1, Ordering::Relaxed);
    }
    /// A descriptor was sent.
    pub fn grant(&self) {
        self.grants.fetch_add(1, Ordering::Relaxed);
    }
    /// A file of the PFS was copied into the buffer.
    pub fn staged(&self, bytes: u64) {
        self.staged_files.fetch_add(1, Ordering::Relaxed);
        self.staged_bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// Connections by process.
#[derive(Default)]
pub struct Clients {
    by_process: Mutex<HashMap<i32, usize>>,
    limit: AtomicU64,
    count: AtomicU64,
}

impl Clients {
    /// At most `limit` connections.
    pub fn new(limit: u64) -> Self {
        Clients {
            limit: AtomicU64::new(limit),
            ..Self::default()
        }
    }

    /// One more of a process.
    ///
    /// # Errors
    /// Which limit is reached.
    pub fn admit(&self, pid: i32, per_process: usize) -> Result<(), &'static str> {
        let mut by_process = self.by_process.lock();
        if self.count.load(Ordering::Relaxed) >= self.limit.load(Ordering::Relaxed) {
            return Err("there are as many as there may be");
        }
        let count = by_process.entry(pid).or_default();
        if *count >= per_process {
            return Err("it has as many as one process may have");
        }
        *count += 1;
        self.count.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// One less.
    pub fn leave(&self, pid: i32) {
        let mut by_process = self.by_process.lock();
        if let Some(count) = by_process.get_mut(&pid) {
            *count -= 1;
            if *count == 0 {
                by_process.remove(&pid);
            }
        }
        self.count.fetch_sub(1, Ordering::Relaxed);
    }

    /// Open connections.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }
}

/// The state of a bridge, for people and scripts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Process.
    pub pid: u32,
    /// How often the bridge has been started.
    pub epoch: u32,
    /// Seconds since the last start.
    pub uptime_s: u64,
    /// The buffer root.
    pub root: PathBuf,
    /// The instance directory.
    pub storage: PathBuf,
    /// Bytes of the file system that holds the storage.
    pub space_bytes: u64,
    /// Bytes free there for ordinary users.
    pub free_bytes: u64,
    /// Open connections.
    pub connections: u64,
    /// Of these, how many share memory with the bridge; the others have their sockets alone.
    #[serde(default)]
    pub lanes: u64,
    /// Requests that came through shared memory.
    #[serde(default)]
    pub requests_by_lane: u64,
    /// Requests since the start, by operation; those that did not occur are left out.
    pub operations: BTreeMap<String, u64>,
    /// Descriptors handed out.
    pub grants: u64,
    /// Files copied from the PFS because they were opened for writing.
    pub staged_files: u64,
    /// Their bytes.
    pub staged_bytes: u64,
    /// Names of regular files whose data is in the buffer.
    pub files: u64,
    /// Bytes in these files.
    pub file_bytes: u64,
    /// Directories made in the buffer.
    pub directories: u64,
    /// Symbolic links, FIFOs, sockets, devices.
    pub others: u64,
    /// Things of the PFS that were renamed or removed, and are not yet there.
    pub pending_below: u64,
    /// Names that have not been drained since they were made or moved.
    pub undrained: u64,
}

impl Status {
    /// Takes stock: looks at every record and its object.
    ///
    /// # Errors
    /// The tables can't be read.
    pub fn take(server: &ServerHandle) -> Result<Self, TableError> {
        let (space_bytes, free_bytes) = server.objects.space().unwrap_or_default();
        let counters = &server.counters;
        let load = |n: &AtomicU64| n.load(Ordering::Relaxed);
        let mut status = Status {
            pid: std::process::id(),
            epoch: server.epoch,
            uptime_s: server.started.elapsed().as_secs(),
            root: server.root().to_owned(),
            storage: server.instance_dir().to_owned(),
            space_bytes,
            free_bytes,
            connections: server.clients.count(),
            lanes: server.lanes.count(),
            requests_by_lane: load(&counters.by_lane),
            operations: OPS
                .iter()
                .map(|(op, name)| ((*name).to_owned(), load(&counters.requests[*op as usize])))
                .filter(|(_, count)| *count > 0)
                .collect(),
            grants: load(&counters.grants),
            staged_files: load(&counters.staged_files),
            staged_bytes: load(&counters.staged_bytes),
            files: 0,
            file_bytes: 0,
            directories: 0,
            others: 0,
            pending_below: 0,
            undrained: 0,
        };
        let tables = server.namespace.tables();
        for (_, record) in tables.subtree(&TreePath::root())? {
            if record.drained.is_none() {
                status.undrained += 1;
            }
            match record.kind {
                Kind::File => {
                    status.files += 1;
                    // Removed since: it counts for nothing.
                    status.file_bytes += server.objects.attr(record.object).map_or(0, |a| a.size);
                }
                Kind::Dir => status.directories += 1,
                Kind::Symlink | Kind::Special => status.others += 1,
                Kind::Moved | Kind::Whiteout => status.pending_below += 1,
            }
        }
        Ok(status)
    }
}
