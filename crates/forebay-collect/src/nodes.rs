//! On which node each rank ran, and what it read and wrote there. Records of a file that all ranks share are sums, which do not
//! tell one node from another. So the sums of each rank are taken before its records are joined. They are kept by mount point, because
//! only what is on the same file system can be compared.

use crate::flushing;
use crate::job::Job;
use crate::mounts;
use darshan_log::{CounterModule, Mount, Record, RecordView};
use forebay_count::Kind;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// What a rank did through one interface in the files of one mount point.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Sums {
    reads: u64,
    bytes_read: u64,
    read_ns: u64,
    writes: u64,
    bytes_written: u64,
    /// With `syncs`.
    write_ns: u64,
    /// With writes by descriptors with `O_SYNC` or `O_DSYNC`.
    syncs: u64,
    /// Requests by descriptors with `O_DIRECT`.
    direct: u64,
}

/// The sums of the ranks of a job.
pub struct RankSums<'j> {
    job: &'j Job<'j>,
    /// Empty for a job of one node, which needs no sums.
    hosts: Vec<&'j str>,
    mounts: Vec<Mount>,
    /// By record id the place of its mount.
    places: HashMap<u64, Option<usize>>,
    sums: BTreeMap<(u32, &'static str, usize), Sums>,
}

impl<'j> RankSums<'j> {
    /// No sums yet.
    pub fn new(job: &'j Job<'j>, mounts: Vec<Mount>) -> Self {
        let of_ranks = job.members.values().flatten();
        let hosts: BTreeSet<&str> = of_ranks
            .map(|&at| job.tables.images[at].host.as_str())
            .collect();
        RankSums {
            job,
            hosts: match hosts.len() {
                0 | 1 => Vec::new(),
                _ => hosts.into_iter().collect(),
            },
            mounts,
            places: HashMap::new(),
            sums: BTreeMap::new(),
        }
    }

    /// The job.
    pub fn job(&self) -> &'j Job<'j> {
        self.job
    }

    /// Adds what a rank did with one file.
    pub fn add<M: CounterModule>(&mut self, rank: u32, kind: Kind, record: &Record<M>) {
        let interface = match kind {
            Kind::Posix => "POSIX",
            Kind::Stdio => "STDIO",
            // What they read and write is counted below them.
            _ => return,
        };
        if self.hosts.is_empty() {
            return;
        }
        if let Some(sums) = self.at(rank, interface, record.id) {
            sums.add(&record.view());
        }
    }

    /// Adds the requests that did not end in memory, of all ranks.
    pub fn add_uncached(&mut self) {
        if self.hosts.is_empty() {
            return;
        }
        for (rank, entry) in flushing::each(self.job) {
            if let Some(sums) = self.at(rank, "POSIX", entry.id) {
                let of = &entry.flushing;
                sums.syncs = sums.syncs.saturating_add(of.synced_writes);
                sums.direct = sums.direct.saturating_add(of.direct_requests);
            }
        }
    }

    /// The sums of a rank for the place of a file.
    fn at(&mut self, rank: u32, interface: &'static str, id: u64) -> Option<&mut Sums> {
        let (job, mounts) = (self.job, &self.mounts);
        let place = self.places.entry(id).or_insert_with(|| {
            let name = job.tables.names.get(&id)?;
            mounts::mount_of(mounts, std::str::from_utf8(name).ok()?)
        });
        Some(self.sums.entry((rank, interface, (*place)?)).or_default())
    }

    /// The note `nodes` of a log; `None` for a job of one node. `hosts` and `mounts` are names, `ranks` has `[rank, host]`, and `work`
    /// `[rank, interface, mount, reads, bytes read, nanoseconds, writes, bytes written, nanoseconds with syncs, syncs, direct requests]`.
    pub fn note(&self) -> Option<String> {
        if self.hosts.is_empty() {
            return None;
        }
        let host_of = |members: &Vec<usize>| {
            let first = &self.job.tables.images[*members.first()?];
            self.hosts.binary_search(&first.host.as_str()).ok()
        };
        let ranks = self.job.members.iter();
        let ranks: Vec<_> = ranks
            .filter_map(|(rank, members)| Some(json!([rank, host_of(members)?])))
            .collect();
        let mounts: Vec<&str> = self.mounts.iter().map(|one| one.path.as_str()).collect();
        let work: Vec<_> = self
            .sums
            .iter()
            .filter(|(_, sums)| **sums != Sums::default())
            .map(|((rank, interface, mount), of)| {
                json!([
                    rank,
                    interface,
                    mount,
                    of.reads,
                    of.bytes_read,
                    of.read_ns,
                    of.writes,
                    of.bytes_written,
                    of.write_ns,
                    of.syncs,
                    of.direct
                ])
            })
            .collect();
        let note = json!({ "hosts": self.hosts, "ranks": ranks, "mounts": mounts, "work": work });
        Some(note.to_string())
    }
}

impl Sums {
    fn add(&mut self, record: &RecordView) {
        let natural = |value: i64| u64::try_from(value).unwrap_or(0);
        let prefix = record.layout.counters[0].split('_').next().unwrap_or("");
        let count = |name: &str| natural(record.counter(&format!("{prefix}_{name}")).unwrap_or(0));
        let syncs = ["FSYNCS", "FDSYNCS", "FLUSHES"].map(count);
        let ns = |seconds: f64| (seconds * 1e9) as u64;
        let times = record.layout.times;
        let (read, written) = times.map_or((0.0, 0.0), |at| {
            (record.fcounters[at.read], record.fcounters[at.write])
        });
        for (sum, more) in [
            (&mut self.reads, count("READS")),
            (&mut self.bytes_read, natural(record.bytes_read())),
            (&mut self.read_ns, ns(read)),
            (&mut self.writes, count("WRITES")),
            (&mut self.bytes_written, natural(record.bytes_written())),
            (&mut self.write_ns, ns(written)),
            (
                &mut self.syncs,
                syncs.into_iter().fold(0, u64::saturating_add),
            ),
        ] {
            *sum = sum.saturating_add(more);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use darshan_log::{Posix, Stdio};

    #[test]
    fn the_sums_of_a_rank_have_its_calls_bytes_and_time() {
        let mut posix = Record::<Posix>::new(7, 0);
        for (name, value) in [
            ("POSIX_READS", 3),
            ("POSIX_BYTES_READ", 300),
            ("POSIX_WRITES", 5),
            ("POSIX_BYTES_WRITTEN", 5000),
            ("POSIX_FSYNCS", 1),
            ("POSIX_FDSYNCS", 1),
        ] {
            let at = Posix::layout().counter(name).expect("a counter");
            posix.counters[at] = value;
        }
        for (name, value) in [("POSIX_F_READ_TIME", 0.5), ("POSIX_F_WRITE_TIME", 2.0)] {
            let at = Posix::layout().fcounter(name).expect("a counter");
            posix.fcounters[at] = value;
        }
        let mut stdio = Record::<Stdio>::new(8, 0);
        for (name, value) in [("STDIO_WRITES", 2), ("STDIO_FLUSHES", 1)] {
            let at = Stdio::layout().counter(name).expect("a counter");
            stdio.counters[at] = value;
        }
        let mut sums = Sums::default();
        sums.add(&posix.view());
        sums.add(&stdio.view());
        let expected = Sums {
            reads: 3,
            bytes_read: 300,
            read_ns: 500_000_000,
            writes: 7,
            bytes_written: 5000,
            write_ns: 2_000_000_000,
            syncs: 3,
            direct: 0,
        };
        assert_eq!(sums, expected);
    }
}
