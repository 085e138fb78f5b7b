//! Calls on names that Darshan has no counter for, by rank: they take time, and are in no record.

use crate::job::Job;
use serde_json::json;
use std::collections::BTreeMap;

/// The calls that are in no record. Renames are in those of both names. Copies, maps and transfers are in those of files.
pub const CALLS: [&str; 14] = [
    "access",
    "stat_missed",
    "open_failed",
    "readlink",
    "xattr",
    "mkdir",
    "rmdir",
    "unlink",
    "link",
    "symlink",
    "opendir",
    "readdir",
    "attributes",
    "truncate",
];

/// The note `calls` of a log: a list of `[rank, name, calls, nanoseconds]`, by rank.
pub fn note(job: &Job) -> String {
    let mut rows = Vec::new();
    for (rank, members) in &job.members {
        let mut sums: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        for image in members.iter().map(|&at| &job.tables.images[at]) {
            let extras = image.extras.iter();
            for (name, (calls, ns)) in extras.filter(|(name, _)| CALLS.contains(name)) {
                let sum = sums.entry(name).or_default();
                *sum = (sum.0.saturating_add(*calls), sum.1.saturating_add(*ns));
            }
        }
        rows.extend(
            sums.iter()
                .map(|(name, (calls, ns))| json!([rank, name, calls, ns])),
        );
    }
    serde_json::Value::from(rows).to_string()
}
