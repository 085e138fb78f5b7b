//! On which node each rank ran, and what it read and wrote there.

use super::{Counters, Interface};
use std::collections::BTreeMap;

/// Where ranks ran, as far as the logs tell it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Placement {
    /// Names of nodes, printable.
    pub hosts: Vec<String>,
    /// By rank its node, an index of `hosts`.
    pub host_of: BTreeMap<u32, usize>,
    /// What ranks read and wrote, one entry for each rank, direction, interface and mount point.
    pub work: Vec<Work>,
}

/// What a rank read, or wrote, through one interface in the files of one mount point.
#[derive(Debug, Clone, PartialEq)]
pub struct Work {
    /// Rank.
    pub rank: u32,
    /// Interface; nothing is below it.
    pub interface: Interface,
    /// Mount point; empty if unknown.
    pub mount: String,
    /// True for writes, false for reads.
    pub is_write: bool,
    /// How much it was.
    pub amount: Amount,
}

/// Requests of one direction.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Amount {
    /// Requests.
    pub requests: u64,
    /// Bytes moved.
    pub bytes: u64,
    /// Seconds in them; of writes with `syncs`.
    pub seconds: f64,
    /// Calls that flush a file, if these are writes, and requests that wait for storage by the flags of their descriptor.
    pub syncs: u64,
}

impl Amount {
    /// The writes, or the reads, of counters.
    pub fn of(counters: &Counters, is_write: bool) -> Self {
        let flushing = &counters.flushing;
        let (flow, syncs) = match is_write {
            true => (
                &counters.write,
                counters.syncs.saturating_add(flushing.synced_writes),
            ),
            false => (&counters.read, 0),
        };
        let direct = flushing.direct.min(flow.ops);
        Amount {
            requests: flow.ops,
            bytes: flow.bytes,
            seconds: flow.seconds,
            syncs: syncs.saturating_add(direct),
        }
    }

    /// Adds another one.
    pub fn add(&mut self, other: &Amount) {
        self.requests = self.requests.saturating_add(other.requests);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.seconds += other.seconds;
        self.syncs = self.syncs.saturating_add(other.syncs);
    }
}
