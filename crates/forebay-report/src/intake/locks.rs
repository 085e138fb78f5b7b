//! Finds the writes that lie in lock units which several nodes write, by all requests of a trace.
//!
//! It reads the trace twice: who wrote into which unit is known only at its end. So the order of requests makes no difference. Memory is
//! bounded by [`MOST_UNITS`], time by [`MOST_TOUCHED`]: how many units a file can have is known from its counters. Files are taken by
//! their seconds in writes as long as their units fit, and [`Locks::left_out`] counts the others. Of these nothing is told, because a part of the units of a file
//! would make some look as if one node had written them.

use super::counters::{natural, seconds};
use super::{NamedLog, Seat};
use crate::model::{Amount, FileUse, Interface, Job, LockedFile, Locks, RankWrites};
use darshan_log::{DxtPosix, DxtRecord, Segment, size_bucket};
use std::collections::{BTreeMap, HashMap};

/// Most units of all files together; each takes up to 32 bytes.
const MOST_UNITS: u64 = 2 << 20;
/// Most units that all writes together touch, so that a log with counters too large to be true ends, too.
const MOST_TOUCHED: u64 = 64 << 20;
/// Alignment of a file from which on it may be the unit of its locks: less is not even a page.
const LEAST_UNIT: u64 = 4096;
/// The owner of a unit that several nodes have written.
const SEVERAL: u32 = u32::MAX;
/// Added to the rank that stands for a node whose name is unknown.
const NAMELESS: u32 = 1 << 31;

/// The writes of a job by lock units; `None` if no file has a trace of every write, or if no two nodes wrote into a unit.
pub(super) fn of(
    job: &Job,
    logs: &[(&NamedLog, Seat)],
    ids: &HashMap<u64, usize>,
) -> Option<Locks> {
    let (files, left_out) = candidates(job, MOST_UNITS, MOST_TOUCHED);
    if files.is_empty() {
        return None;
    }
    let mut watch = Watch::of(files);
    let each = |act: &mut dyn FnMut(usize, u32, &DxtRecord)| {
        for (named, seat) in logs {
            for record in named.log.records::<DxtPosix>().map_while(Result::ok) {
                if let Some(file) = ids.get(&record.id) {
                    act(*file, seat.rank(record.rank), &record);
                }
            }
        }
    };
    each(&mut |file, rank, record| watch.note(file, rank, record));
    watch.drop_incomplete();
    let mut sums = Sums::default();
    each(&mut |file, rank, record| sums.add(&mut watch, file, rank, record));
    let mut locks = sums.locks;
    locks.left_out = left_out;
    locks.ranks = sums.ranks.into_values().collect();
    locks.files = watch.told();
    (!locks.ranks.is_empty()).then_some(locks)
}

/// A shared file that is looked at.
struct Watched {
    told: LockedFile,
    /// Units that it can have, by its counters.
    most_units: u64,
    /// Units that its writes can touch, by its counters, less those that they have touched so far.
    untouched: u64,
    /// Writes by its counters, less those in the trace so far.
    missing: u64,
    /// By unit the node that wrote it, or [`SEVERAL`].
    owners: HashMap<u64, u32>,
    /// True if the trace says other than the counters.
    is_contradicted: bool,
}

/// Files that several ranks write, with a trace of every request, whose units fit, and how many files do not fit.
fn candidates(job: &Job, most_units: u64, most_touched: u64) -> (Vec<Watched>, u64) {
    let mut traces = job.traces.iter();
    let trace = traces.find(|trace| trace.interface == Interface::Posix);
    let layer = job.layer(Interface::Posix).filter(|one| !one.is_partial);
    let (Some(_), Some(layer)) = (trace.filter(|trace| !trace.is_partial), layer) else {
        return (Vec::new(), 0);
    };
    let mut uses: Vec<(&FileUse, u64)> = layer
        .uses
        .iter()
        .filter(|one| one.ranks > 1 && one.total.write.ops > 0)
        .filter_map(|one| Some((one, unit_of(job, one)?)))
        .collect();
    uses.sort_by(|(a, _), (b, _)| {
        let order = b.total.write.seconds.total_cmp(&a.total.write.seconds);
        order.then(a.file.cmp(&b.file))
    });
    let (mut room, mut touches, mut left_out) = (most_units, most_touched, 0);
    let mut files = Vec::new();
    for (one, unit) in uses {
        let write = &one.total.write;
        let touched = (write.bytes / unit).saturating_add(write.ops.saturating_mul(2));
        let extent = write.max_byte.map_or(u64::MAX, |byte| byte / unit);
        let units = touched.min(extent.saturating_add(1));
        if units > room || touched > touches {
            left_out += 1;
            continue;
        }
        room -= units;
        touches -= touched;
        files.push(Watched {
            told: LockedFile {
                file: one.file,
                unit,
                ..LockedFile::default()
            },
            most_units: units,
            untouched: touched,
            missing: write.ops,
            owners: HashMap::new(),
            is_contradicted: false,
        });
    }
    (files, left_out)
}

/// Bytes of a lock unit: a stripe on Lustre, else the alignment. NFS locks no ranges of its own.
fn unit_of(job: &Job, one: &FileUse) -> Option<u64> {
    let file = &job.files[one.file];
    let is_file = !file.is_rest() && !file.is_std_stream && !file.is_calls;
    let unit = match file.stripes {
        Some((size, _)) => size,
        None => one.total.alignment,
    };
    (is_file && !file.fs.starts_with("nfs") && unit >= LEAST_UNIT).then_some(unit)
}

/// The files that are looked at, and the nodes that write them.
struct Watch {
    files: Vec<Watched>,
    /// By the number of a file its place in `files`.
    places: HashMap<usize, usize>,
    nodes: HashMap<String, u32>,
}

impl Watch {
    fn of(files: Vec<Watched>) -> Self {
        let places = files.iter().enumerate();
        let places = places.map(|(at, one)| (one.told.file, at)).collect();
        Watch {
            files,
            places,
            nodes: HashMap::new(),
        }
    }

    fn file(&mut self, file: usize) -> Option<&mut Watched> {
        let at = *self.places.get(&file)?;
        let one = &mut self.files[at];
        (!one.is_contradicted).then_some(one)
    }

    /// Notes which node writes which units: the first pass.
    fn note(&mut self, file: usize, rank: u32, record: &DxtRecord) {
        if record.writes.is_empty() || !self.places.contains_key(&file) {
            return;
        }
        let next = self.nodes.len() as u32;
        let node = match record.hostname.as_str() {
            "" => NAMELESS | rank,
            host => *self.nodes.entry(host.to_owned()).or_insert(next),
        };
        if let Some(one) = self.file(file) {
            one.note(node, &record.writes);
        }
    }

    /// Drops files of which some writes are not in the trace, or lie elsewhere than counters say.
    fn drop_incomplete(&mut self) {
        for one in &mut self.files {
            one.is_contradicted |= one.missing > 0;
            let several = one.owners.values().filter(|owner| **owner == SEVERAL);
            one.told.contended = several.count() as u64;
            one.told.units = one.owners.len() as u64;
            if one.is_contradicted {
                one.owners = HashMap::new();
            }
        }
    }

    /// The files with units of several nodes.
    fn told(&self) -> Vec<LockedFile> {
        let files = self.files.iter().filter(|one| !one.is_contradicted);
        let mut told: Vec<LockedFile> = files
            .map(|one| one.told)
            .filter(|told| told.contended > 0)
            .collect();
        told.sort_by_key(|one| one.file);
        told
    }
}

impl Watched {
    fn units(&self, one: &Segment) -> Option<std::ops::RangeInclusive<u64>> {
        let offset = u64::try_from(one.offset).ok()?;
        let end = offset.checked_add(natural(one.length).max(1))?;
        Some(offset / self.told.unit..=(end - 1) / self.told.unit)
    }

    fn note(&mut self, node: u32, writes: &[Segment]) {
        self.missing = self.missing.saturating_sub(writes.len() as u64);
        for one in writes.iter().filter(|one| one.length > 0) {
            let units = self.units(one);
            let count = |units: &std::ops::RangeInclusive<u64>| units.end() - units.start() + 1;
            let room = self.untouched.min(self.most_units);
            let Some(units) = units.filter(|units| count(units) <= room) else {
                self.is_contradicted = true;
                return;
            };
            self.untouched -= count(&units);
            for unit in units {
                let owner = self.owners.entry(unit).or_insert(node);
                if *owner != node {
                    *owner = SEVERAL;
                }
            }
            if self.owners.len() as u64 > self.most_units {
                self.is_contradicted = true;
                return;
            }
        }
    }

    fn is_contended(&self, one: &Segment) -> bool {
        let mut units = self.units(one).into_iter().flatten();
        units.any(|unit| self.owners.get(&unit) == Some(&SEVERAL))
    }
}

/// What the second pass adds up.
#[derive(Default)]
struct Sums {
    locks: Locks,
    ranks: BTreeMap<u32, RankWrites>,
}

impl Sums {
    fn add(&mut self, watch: &mut Watch, file: usize, rank: u32, record: &DxtRecord) {
        let Some(watched) = watch.file(file) else {
            return;
        };
        for one in record.writes.iter().filter(|one| one.length > 0) {
            let length = natural(one.length);
            let sum = Amount {
                requests: 1,
                bytes: length,
                seconds: (seconds(one.end) - seconds(one.start)).max(0.0),
                syncs: 0,
            };
            let bucket = size_bucket(length);
            if watched.is_contended(one) {
                watched.told.contended_writes.add(&sum);
                let of_rank = self.ranks.entry(rank).or_insert_with(|| RankWrites {
                    rank,
                    contended: Default::default(),
                });
                of_rank.contended[bucket].add(&sum);
            } else {
                watched.told.alone_writes.add(&sum);
                // Other files may lie on another file system.
                if watched.told.contended > 0 {
                    self.locks.alone[bucket].add(&sum);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::*;

    /// Two ranks on hosts that write one file in units of 1 MiB; `writes[rank]` has offsets and lengths in KiB.
    fn records(hosts: [&str; 2], writes: [&[(i64, i64)]; 2]) -> Vec<(u32, DxtRecord)> {
        let ranks = hosts.iter().zip(writes).zip(0..);
        let record = ranks.map(|((host, writes), rank)| {
            let segments = writes.iter().map(|(offset, length)| Segment {
                offset: offset << 10,
                length: length << 10,
                start: 1.0,
                end: 1.5,
                thread: None,
            });
            let record = DxtRecord {
                hostname: (*host).to_owned(),
                writes: segments.collect(),
                ..DxtRecord::default()
            };
            (rank, record)
        });
        record.collect()
    }

    fn watched(most_units: u64, writes: u64) -> Watch {
        Watch::of(vec![Watched {
            told: LockedFile {
                file: 7,
                unit: 1 << 20,
                ..LockedFile::default()
            },
            most_units,
            untouched: 100,
            missing: writes,
            owners: HashMap::new(),
            is_contradicted: false,
        }])
    }

    fn locks(mut watch: Watch, records: &[(u32, DxtRecord)]) -> (Vec<LockedFile>, Sums) {
        for (rank, record) in records {
            watch.note(7, *rank, record);
        }
        watch.drop_incomplete();
        let mut sums = Sums::default();
        for (rank, record) in records {
            sums.add(&mut watch, 7, *rank, record);
        }
        (watch.told(), sums)
    }

    /// Rank 0 has 0 to 2.5 MiB, rank 1 the rest: they meet in the third unit.
    const PARTS: [&[(i64, i64)]; 2] = [&[(0, 1024), (1024, 1536)], &[(2560, 512), (3072, 1024)]];

    #[test]
    fn writes_that_touch_a_unit_of_two_nodes_are_told_from_others_in_any_order() {
        let mut records = records(["a", "b"], PARTS);
        for _ in 0..2 {
            let (files, sums) = locks(watched(8, 4), &records);
            assert_eq!((files[0].units, files[0].contended), (4, 1));
            let (shared, alone) = (files[0].contended_writes, files[0].alone_writes);
            assert_eq!((shared.requests, shared.bytes), (2, 2048 << 10));
            assert_eq!((alone.requests, alone.seconds), (2, 1.0));
            let buckets = &sums.ranks[&0].contended;
            assert_eq!(buckets[size_bucket(1536 << 10)].requests, 1);
            assert_eq!(sums.ranks[&1].contended[size_bucket(512 << 10)].requests, 1);
            assert_eq!(sums.locks.alone[size_bucket(1024 << 10)].requests, 2);
            records.reverse();
        }
    }

    #[test]
    fn ranks_of_one_node_share_its_locks_and_a_node_without_a_name_is_a_rank() {
        assert!(
            locks(watched(8, 4), &records(["a", "a"], PARTS))
                .0
                .is_empty()
        );
        assert_eq!(locks(watched(8, 4), &records(["", ""], PARTS)).0.len(), 1);
    }

    #[test]
    fn a_file_whose_trace_is_not_what_was_counted_is_not_judged() {
        let records = records(["a", "b"], PARTS);
        assert!(
            locks(watched(8, 5), &records).0.is_empty(),
            "a write is missing"
        );
        assert!(
            locks(watched(3, 4), &records).0.is_empty(),
            "more units than there are"
        );
        let far: [&[(i64, i64)]; 2] = [&[(0, 1)], &[(0, i64::MAX >> 20)]];
        let records = self::records(["a", "b"], far);
        assert!(
            locks(watched(8, 2), &records).0.is_empty(),
            "an endless write"
        );
    }

    #[test]
    fn files_are_taken_by_their_seconds_as_long_as_their_units_fit() {
        let mut job = mpi_job(2);
        for (name, seconds) in [("/pfs/b", 3.0), ("/pfs/a", 5.0), ("/nfs/c", 9.0)] {
            for rank in 0..2 {
                by_rank(
                    &mut job,
                    Interface::Posix,
                    name,
                    rank,
                    writes(4, 1 << 20, seconds),
                );
            }
        }
        job.files[1].stripes = Some((1 << 20, 4));
        job.files[2].fs = "nfs4".to_owned();
        assert!(
            candidates(&job, 1 << 20, 1 << 20).0.is_empty(),
            "there is no trace"
        );
        job.traces.push(crate::model::Trace {
            interface: Interface::Posix,
            recorded: 24,
            segments: Vec::new(),
            rule: None,
            is_partial: false,
        });
        let told = |job: &Job, most, touched| {
            let (files, left_out) = candidates(job, most, touched);
            let units = files.iter().map(|one| (one.told.file, one.told.unit));
            (units.collect::<Vec<_>>(), left_out)
        };
        let both = vec![(1, 1 << 20), (0, 4096)];
        assert_eq!(told(&job, 1 << 20, 1 << 20), (both, 0));
        // File 1 has 4 units, file 0 has 1,024.
        assert_eq!(told(&job, 1027, 1 << 20), (vec![(1, 1 << 20)], 1));
        // Its 8 writes of 1 MiB touch 2,048 and 16 more at most, those of file 1 24.
        assert_eq!(told(&job, 1 << 20, 2064 + 24).1, 0);
        assert_eq!(told(&job, 1 << 20, 2063 + 24).1, 1);
        job.traces[0].is_partial = true;
        assert!(told(&job, 1 << 20, 1 << 20).0.is_empty());
    }
}
