//! How long each rank waited in `fsync` and `fdatasync`, by file, and its requests by descriptors with `O_SYNC`, `O_DSYNC` or `O_DIRECT`. In
//! a record they are a part of all writes and reads.

use crate::image::Entry;
use crate::job::Job;
use forebay_count::Kind;
use forebay_count::read::Flushing;
use serde_json::json;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// The name of the note.
pub const NOTE: &str = "syncs";
/// Most files of ranks that a log tells of: those that waited longest.
const MOST: usize = 100_000;

/// The records of system calls of each rank, with what was to reach storage at once.
pub fn each<'j>(job: &'j Job<'_>) -> impl Iterator<Item = (u32, &'j Entry)> {
    let ranks = job.members.iter();
    ranks.flat_map(|(&rank, members)| {
        let files = members.iter().flat_map(|&at| &job.tables.images[at].files);
        let ours = files
            .filter(|entry| entry.kind == Kind::Posix && entry.flushing != Flushing::default());
        ours.map(move |entry| (rank, entry))
    })
}

/// The note of a log: a list of `[rank, record id in hexadecimal, nanoseconds in syncs, writes with O_SYNC or O_DSYNC, nanoseconds in
/// these, requests with O_DIRECT]`, those that waited longest first; `None` if there is nothing to tell.
pub fn note(job: &Job<'_>) -> Option<String> {
    let mut sums: BTreeMap<(u32, u64), Flushing> = BTreeMap::new();
    for (rank, entry) in each(job) {
        add(sums.entry((rank, entry.id)).or_default(), &entry.flushing);
    }
    let rows = rows(sums);
    (!rows.is_empty()).then(|| serde_json::Value::from(rows).to_string())
}

fn add(sum: &mut Flushing, more: &Flushing) {
    for (sum, more) in [
        (&mut sum.sync_ns, more.sync_ns),
        (&mut sum.synced_writes, more.synced_writes),
        (&mut sum.synced_write_ns, more.synced_write_ns),
        (&mut sum.direct_requests, more.direct_requests),
    ] {
        *sum = sum.saturating_add(more);
    }
}

fn rows(sums: BTreeMap<(u32, u64), Flushing>) -> Vec<serde_json::Value> {
    let waited = |of: &Flushing| of.sync_ns.saturating_add(of.synced_write_ns);
    let mut sums: Vec<_> = sums.into_iter().collect();
    sums.sort_by_key(|(at, of)| (Reverse(waited(of)), *at));
    sums.truncate(MOST);
    let rows = sums.into_iter().map(|((rank, id), of)| {
        let id = format!("{id:x}");
        json!([
            rank,
            id,
            of.sync_ns,
            of.synced_writes,
            of.synced_write_ns,
            of.direct_requests
        ])
    });
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waited_longest_comes_first_and_the_rest_is_left_out() {
        let flushing = |sync_ns, synced_write_ns| Flushing {
            sync_ns,
            synced_writes: synced_write_ns,
            synced_write_ns,
            direct_requests: 1,
        };
        let mut sums = BTreeMap::from([
            ((0, 255), flushing(5, 0)),
            ((0, 7), flushing(0, 0)),
            ((1, 255), flushing(4, 6)),
        ]);
        add(sums.get_mut(&(0, 255)).unwrap(), &flushing(2, u64::MAX));
        add(sums.get_mut(&(0, 255)).unwrap(), &flushing(0, 1));
        let rows = rows(sums);
        assert_eq!(rows[0], json!([0, "ff", 7, u64::MAX, u64::MAX, 3]));
        assert_eq!(rows[1], json!([1, "ff", 4, 6, 6, 1]));
        assert_eq!(rows[2], json!([0, "7", 0, 0, 0, 1]));
        assert_eq!(rows.len(), 3);
        let many = (0..MOST as u64 + 5).map(|id| ((0, id), flushing(id + 1, 0)));
        let rows = super::rows(many.collect());
        assert_eq!(rows.len(), MOST);
        assert_eq!(rows[MOST - 1][2], 6);
    }
}
