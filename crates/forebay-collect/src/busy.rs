//! How long a job was in I/O: the union of the times of its processes.
//!
//! A process has the time in its calls in bins ([`forebay_count::busy`]). In a bin it was in I/O no longer than the bin is wide,
//! and no longer than its calls took, of all threads together. What several processes did in one bin may have been at the
//! same time or not. So the union has two bounds: the most of any one, and the sum, but no more than the bin. Of a process with
//! threads only the upper one is known.

use crate::job::Job;
use forebay_count::busy::BusyMap;
use serde_json::json;
use std::collections::BTreeMap;

/// When one process was in I/O.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timeline {
    width_ns: u64,
    /// Nanoseconds, at most the width, by the number of the bin since the epoch.
    bins: Vec<(u64, u64)>,
    /// True if its threads may have been in I/O at the same time within a bin, so that it was in I/O for less.
    is_most: bool,
}

impl Timeline {
    /// The timeline of a table's map.
    pub fn of(map: &BusyMap) -> Self {
        let [posix, stdio, mpi_io] = &map.rows;
        let ns = posix.iter().zip(stdio).zip(mpi_io);
        // The calls of POSIX that MPI-IO makes are within those of MPI-IO.
        let ns = ns.map(|((posix, stdio), mpi_io)| stdio.saturating_add(*posix.max(mpi_io)));
        let bins = (map.first_bin..).zip(ns.map(|ns| ns.min(map.bin_ns)));
        Timeline {
            width_ns: map.bin_ns.max(1),
            bins: bins.filter(|(_, ns)| *ns > 0).collect(),
            is_most: map.has_threads,
        }
    }
}

/// Bounds of a time in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Bounds {
    /// It was no less.
    pub least_ns: u64,
    /// It was no more.
    pub most_ns: u64,
}

/// How long any of some processes was in I/O.
pub fn union<'t>(timelines: impl Iterator<Item = &'t Timeline>) -> Bounds {
    let mut by_width: BTreeMap<u64, Vec<&Timeline>> = BTreeMap::new();
    for one in timelines {
        by_width.entry(one.width_ns).or_default().push(one);
    }
    let mut joined: BTreeMap<u64, Bounds> = BTreeMap::new();
    let mut before_ns = 0;
    // Bins of a process are a whole number of those of one with narrower bins, and begin where one of these does.
    for (width_ns, timelines) in by_width {
        if let Some(times) = width_ns.checked_div(before_ns) {
            joined = widened(joined, times);
        }
        before_ns = width_ns;
        let bins = timelines.into_iter();
        for (one, (bin, ns)) in bins.flat_map(|one| one.bins.iter().map(move |bin| (one, bin))) {
            let sum = joined.entry(*bin).or_default();
            if !one.is_most {
                sum.least_ns = sum.least_ns.max(*ns);
            }
            sum.most_ns = sum.most_ns.saturating_add(*ns).min(width_ns);
        }
    }
    joined.values().fold(Bounds::default(), |sum, bin| Bounds {
        least_ns: sum.least_ns.saturating_add(bin.least_ns),
        most_ns: sum.most_ns.saturating_add(bin.most_ns),
    })
}

/// The same in bins so many times as wide.
fn widened(bins: BTreeMap<u64, Bounds>, times: u64) -> BTreeMap<u64, Bounds> {
    let mut wide: BTreeMap<u64, Bounds> = BTreeMap::new();
    for (bin, ns) in bins {
        let sum = wide.entry(bin / times.max(1)).or_default();
        sum.least_ns = sum.least_ns.saturating_add(ns.least_ns);
        sum.most_ns = sum.most_ns.saturating_add(ns.most_ns);
    }
    wide
}

/// The note `busy` of a log: bounds for the job, and `[rank, least, most]` for each rank that was in I/O. All in nanoseconds.
pub fn note(job: &Job) -> String {
    let of = |members: &[usize]| {
        let members: Vec<_> = members
            .iter()
            .map(|&at| &job.tables.images[at].busy)
            .collect();
        union(members.into_iter())
    };
    let all: Vec<usize> = job.members.values().flatten().copied().collect();
    let whole = of(&all);
    let ranks: Vec<_> = job
        .members
        .iter()
        .map(|(rank, members)| (rank, of(members)))
        .filter(|(_, bounds)| bounds.most_ns > 0)
        .map(|(rank, bounds)| json!([rank, bounds.least_ns, bounds.most_ns]))
        .collect();
    json!({ "job": [whole.least_ns, whole.most_ns], "ranks": ranks }).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_count::table::{Birth, InMemory, Name};
    use forebay_count::{Event, Kind, Op, Table};
    use std::sync::atomic::AtomicU64;

    fn timeline(width_ns: u64, bins: &[(u64, u64)]) -> Timeline {
        Timeline {
            width_ns,
            bins: bins.to_vec(),
            is_most: false,
        }
    }

    fn bounds(timelines: &[Timeline]) -> (u64, u64) {
        let union = union(timelines.iter());
        (union.least_ns, union.most_ns)
    }

    #[test]
    fn a_process_alone_is_exact_and_threads_fill_no_more_than_the_bin() {
        let mut map = BusyMap {
            bin_ns: 100,
            first_bin: 7,
            rows: [[0; _]; _],
            has_threads: false,
        };
        map.rows[0][..3].copy_from_slice(&[40, 3200, 10]);
        map.rows[1][..3].copy_from_slice(&[5, 0, 0]);
        map.rows[2][..3].copy_from_slice(&[0, 0, 60]);
        let one = Timeline::of(&map);
        assert_eq!(one.bins, [(7, 45), (8, 100), (9, 60)]);
        assert_eq!(bounds(std::slice::from_ref(&one)), (205, 205));
        map.has_threads = true;
        assert_eq!(bounds(&[Timeline::of(&map)]), (0, 205));
        assert_eq!(bounds(&[]), (0, 0));
    }

    #[test]
    fn processes_in_one_bin_are_between_the_longest_and_the_sum() {
        let a = timeline(100, &[(1, 30), (2, 100)]);
        let b = timeline(100, &[(1, 20), (2, 100), (5, 70)]);
        assert_eq!(bounds(&[a, b]), (30 + 100 + 70, 50 + 100 + 70));
    }

    #[test]
    fn bins_of_several_widths_are_joined_as_exactly_as_they_are() {
        let fine = [
            timeline(10, &[(0, 10), (1, 4)]),
            timeline(10, &[(0, 10), (3, 2)]),
        ];
        let coarse = timeline(40, &[(0, 5), (1, 40)]);
        // The fine ones: 16 in the first coarse bin.
        let [a, b] = fine;
        assert_eq!(bounds(&[a, b, coarse]), (16 + 40, 21 + 40));
    }

    /// Numbers that look random and are the same in each run.
    struct Random(u64);

    impl Random {
        fn below(&mut self, n: u64) -> u64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            self.0 % n
        }
    }

    /// The length of the union of intervals.
    fn length(mut intervals: Vec<(u64, u64)>) -> u64 {
        intervals.sort_unstable();
        let mut end = 0;
        let mut sum = 0;
        for (from, to) in intervals {
            sum += to.saturating_sub(from.max(end));
            end = end.max(to);
        }
        sum
    }

    /// The timeline of a process with so many threads, of which every fourth uses the same files, and the intervals of the calls.
    fn process(random: &mut Random, run_ns: u64, threads: u64) -> (Timeline, Vec<(u64, u64)>) {
        let memory: Vec<AtomicU64> = (0..1 << 18).map(|_| AtomicU64::new(0)).collect();
        let birth = Birth {
            realtime_ns: 77_777_777_777,
            ..Birth::default()
        };
        let table = Table::format(&memory, &birth, &InMemory).unwrap();
        let mut calls = Vec::new();
        for thread in 0..threads {
            let (longest, pause) = (1 + random.below(30_000_000), 1 + random.below(30_000_000));
            let mut at = random.below(run_ns);
            while at < run_ns {
                let end = at + 1 + random.below(longest);
                calls.push((end, at, thread));
                at = end + random.below(pause);
            }
        }
        // A call is counted when it ends.
        calls.sort_unstable();
        for &(end, start, thread) in &calls {
            let owner = thread % 4;
            let name = format!("/data/{owner}.{}", random.below(3));
            let handle = table.hold(Kind::Posix, &Name::of(name.as_bytes()), &InMemory);
            let (handle, op) = (
                handle.unwrap(),
                [Op::Read, Op::Write, Op::Stat][(end % 3) as usize],
            );
            table.count(
                Kind::Posix,
                handle,
                &Event::plain(op, start, end),
                &InMemory,
            );
            table.let_go(Kind::Posix, handle);
        }
        table.settle();
        let intervals = calls.iter().map(|&(end, start, _)| (start, end)).collect();
        (Timeline::of(&BusyMap::of(&table)), intervals)
    }

    #[test]
    fn the_time_of_random_calls_is_between_the_bounds() {
        for seed in 1..=200u64 {
            let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let run_ns = 1_000_000_000 << random.below(8);
            let made: Vec<_> = (0..1 + random.below(6))
                .map(|_| process(&mut random, run_ns, 1))
                .collect();
            for (timeline, intervals) in &made {
                let (least, most) = bounds(std::slice::from_ref(timeline));
                // Nothing overlaps, so nothing is in doubt.
                assert_eq!(
                    (least, most),
                    (most, length(intervals.clone())),
                    "seed {seed}"
                );
            }
            let truth = length(made.iter().flat_map(|one| one.1.clone()).collect());
            let (least, most) = bounds(&made.into_iter().map(|one| one.0).collect::<Vec<_>>());
            let doubt = run_ns / 100;
            assert!(
                least <= truth + doubt && truth <= most + doubt,
                "seed {seed}: {least} {truth} {most}"
            );
        }
    }

    #[test]
    fn threads_are_in_io_no_longer_than_their_calls_and_no_longer_than_the_wall_clock() {
        for seed in 1..=50u64 {
            let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let run_ns = 10_000_000_000;
            let (timeline, intervals) = process(&mut random, run_ns, 16);
            let (_, most) = bounds(&[timeline]);
            let sum: u64 = intervals.iter().map(|(from, to)| to - from).sum();
            let (first, last) = intervals.iter().fold((u64::MAX, 0), |(first, last), one| {
                (first.min(one.0), last.max(one.1))
            });
            let truth = length(intervals);
            let doubt = run_ns / 100;
            assert!(
                truth <= most + doubt && most <= sum.min(last - first + doubt),
                "seed {seed}: {truth} {most}"
            );
        }
    }
}
