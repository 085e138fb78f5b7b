//! How much of a job's I/O the recorder has seen.

use serde::Serialize;

/// Bytes that the recorder saw, of those the kernel counted for the same processes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Coverage {
    /// Bytes recorded.
    pub seen: u64,
    /// Bytes in `/proc/PID/io` (`rchar` + `wchar`).
    pub total: u64,
    /// Bytes of those recorded that were of no file of the job: pipes, terminals, the system's files, those of launchers.
    pub elsewhere: u64,
    /// What the kernel fetched from storage; `None` if the log does not say so.
    pub fetched: Option<Fetched>,
}

/// Bytes that the kernel fetched from storage for the job's processes (`read_bytes` of `/proc/PID/io`), and what the job
/// asked for. Block file systems and NFS account what they fetch, FUSE does not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Fetched {
    /// Bytes fetched.
    pub bytes: u64,
    /// Those of them that were fetched before a program made its first call: its code.
    pub at_start: u64,
    /// Bytes that calls of the job have read, by the kernel's count, less those from pipes and terminals.
    pub asked: u64,
}

/// Calls that the recorder counted, and that are in no record of a file: it had no memory for one, or could not get at it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Unplaced {
    /// Opens, reads and writes.
    pub calls: u64,
    /// Bytes that these read.
    pub bytes_read: u64,
    /// Bytes that these wrote.
    pub bytes_written: u64,
}

impl Coverage {
    /// The share that was seen, from 0 to 1.
    pub fn share(&self) -> f64 {
        if self.total == 0 {
            1.0
        } else {
            (self.seen as f64 / self.total as f64).min(1.0)
        }
    }

    /// False if the recorder saw more than the kernel had counted at the last look, as in jobs that were killed. Then
    /// nothing is known of the share.
    pub fn is_known(&self) -> bool {
        self.seen
            <= self
                .total
                .saturating_add(self.total / 10)
                .saturating_add(64 << 10)
    }
}
