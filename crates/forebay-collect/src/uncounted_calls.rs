//! Calls that Darshan has no counter for, by rank: they take time, or wait for somebody else, and are in no record.

use crate::job::Job;
use forebay_count::event::Extra;
use serde_json::json;
use std::collections::BTreeMap;

/// The names of the calls that are in no record.
pub fn names() -> impl Iterator<Item = &'static str> {
    let calls = Extra::NAMES.into_iter();
    calls
        .filter(|(_, call)| call.takes_time())
        .map(|(name, _)| name)
}

/// The note `calls` of a log: a list of `[rank, name, calls, nanoseconds]`, by rank.
pub fn note(job: &Job) -> String {
    let mut rows = Vec::new();
    for (rank, members) in &job.members {
        let mut sums: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        for image in members.iter().map(|&at| &job.tables.images[at]) {
            let told = Extra::NAMES.into_iter();
            let told = told.filter(|(_, call)| call.takes_time() || call.waits());
            for (name, (calls, ns)) in told.filter_map(|(name, _)| image.extras.get_key_value(name))
            {
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
