//! The one table of numbers that rules compare with. `--rules FILE.json` may replace any of them.

use serde::{Deserialize, Serialize};

/// The limits at which rules fire, and what their estimates assume.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Thresholds {
    /// Seconds lost of this share of the run time make a finding severe.
    pub high_share: f64,
    /// Seconds lost of this share of the run time make it medium.
    pub medium_share: f64,
    /// Below this share of the run time a finding is only a note.
    pub low_share: f64,
    /// Assumed: a request costs as much as moving this many bytes, beside its own bytes.
    pub request_cost_bytes: f64,
    /// Assumed: requests can be gathered into ones of this many bytes.
    pub gathered_bytes: f64,
    /// Rules about requests need at least this many of them.
    pub min_requests: u64,
    /// Share of requests of at most 100 KiB.
    pub small_share: f64,
    /// Share of requests that start off the file's alignment.
    pub misaligned_share: f64,
    /// Share of requests that go backwards in their file.
    pub random_share: f64,
    /// Share of requests that change between reading and writing.
    pub switch_share: f64,
    /// Share of the I/O time that is metadata.
    pub metadata_share: f64,
    /// Seconds of a call that opens a file, or asks for it, from which on it waits for something else.
    pub waiting_seconds: f64,
    /// Share of the run time in I/O from which on a report never says that nothing costs time.
    pub unexplained_share: f64,
    /// Bytes written below MPI-IO, as a multiple of those that the program writes.
    pub amplified_writes: f64,
    /// Time of the files of a storage target, as a multiple of the median.
    pub slow_target: f64,
    /// Time of a request and of a byte on a node, as a multiple of the median.
    pub slow_node: f64,
    /// Time of a request and of a byte on a mount point, as a multiple of the median of those of its type.
    pub slow_mount: f64,
    /// Time of a write in lock units of several nodes, as a multiple of one in units of one node.
    pub lock_slowdown: f64,
    /// Opens of a file by the same rank.
    pub opens_per_rank: f64,
    /// Files of a rank.
    pub files_per_rank: f64,
    /// Mean bytes moved per file below which files are small.
    pub small_file_bytes: f64,
    /// Ranks with files of their own, from which number on this counts as file per process.
    pub file_per_process_ranks: u64,
    /// Share by which the slowest rank's I/O time exceeds the mean.
    pub straggler_share: f64,
    /// Share by which the busiest rank's bytes exceed the mean.
    pub imbalance_share: f64,
    /// Share of the bytes moved by rank 0.
    pub rank0_share: f64,
    /// Assumed: so many ranks share what rank 0 did alone, at the same speed each.
    pub rank0_spread: f64,
    /// Times that the same bytes are read.
    pub reread_factor: f64,
    /// Share of independent requests on files opened by several ranks through MPI-IO.
    pub independent_share: f64,
    /// Share of the bytes that go through C streams.
    pub stdio_share: f64,
    /// Bytes through C streams below which the rule does not fire.
    pub stdio_bytes: u64,
    /// fsync calls below which the rule does not fire.
    pub syncs: u64,
    /// fsync calls per write.
    pub syncs_per_write: f64,
    /// Share of the run time that a rank waits in fsync, however few calls that are.
    pub sync_wait_share: f64,
    /// Bytes that the kernel fetched from storage, as a multiple of those that the job read from files.
    pub fetched_factor: f64,
    /// Bytes that it must have fetched beyond those for the finding.
    pub fetched_bytes: u64,
    /// Share of the run time in which only few ranks still do I/O at the end.
    pub tail_share: f64,
    /// Share of the ranks that counts as few.
    pub tail_ranks: f64,
    /// Share of the written bytes that a burst holds.
    pub burst_bytes_share: f64,
    /// Share of the run time that these bursts may take at most.
    pub burst_time_share: f64,
    /// Assumed: bytes per second that local storage takes.
    pub local_bytes_per_second: f64,
    /// Share of the kernel's byte counts that the recorder should have seen.
    pub coverage_share: f64,
    /// Bytes that it must have missed for the finding: the dynamic linker alone reads some KiB of each library.
    pub coverage_unseen_bytes: u64,
}

impl Default for Thresholds {
    fn default() -> Self {
        Thresholds {
            high_share: 0.10,
            medium_share: 0.02,
            low_share: 0.002,
            request_cost_bytes: 262_144.0,
            gathered_bytes: 4_194_304.0,
            min_requests: 1000,
            small_share: 0.2,
            misaligned_share: 0.2,
            random_share: 0.2,
            switch_share: 0.1,
            metadata_share: 0.3,
            waiting_seconds: 10.0,
            unexplained_share: 0.2,
            amplified_writes: 1.5,
            slow_target: 3.0,
            slow_node: 3.0,
            slow_mount: 3.0,
            lock_slowdown: 1.5,
            opens_per_rank: 10.0,
            files_per_rank: 100.0,
            small_file_bytes: 1_048_576.0,
            file_per_process_ranks: 512,
            straggler_share: 0.25,
            imbalance_share: 0.5,
            rank0_share: 0.9,
            rank0_spread: 8.0,
            reread_factor: 2.0,
            independent_share: 0.5,
            stdio_share: 0.1,
            stdio_bytes: 100 << 20,
            syncs: 100,
            syncs_per_write: 0.1,
            sync_wait_share: 0.02,
            fetched_factor: 1.5,
            fetched_bytes: 16 << 20,
            tail_share: 0.05,
            tail_ranks: 0.1,
            burst_bytes_share: 0.8,
            burst_time_share: 0.25,
            local_bytes_per_second: 1_073_741_824.0,
            coverage_share: 0.9,
            coverage_unseen_bytes: 4 << 20,
        }
    }
}

impl Thresholds {
    /// Reads limits from JSON. A name that it does not have keeps its default.
    ///
    /// # Errors
    /// A name is unknown, or a value is no number; the error says which.
    pub fn from_json(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rules_file_replaces_what_it_names_and_nothing_else() {
        let changed = Thresholds::from_json(r#"{"small_share": 0.5}"#).unwrap();
        assert!((changed.small_share - 0.5).abs() < 1e-12);
        assert_eq!(
            Thresholds {
                small_share: 0.2,
                ..changed
            },
            Thresholds::default()
        );
        let wrong = Thresholds::from_json(r#"{"smal_share": 0.5}"#).unwrap_err();
        assert!(wrong.to_string().contains("smal_share"), "{wrong}");
    }
}
