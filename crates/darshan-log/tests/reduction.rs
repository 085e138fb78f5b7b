//! Records of many ranks as one: closed forms, order, and what Darshan's own reduced records obey.

mod common;

use common::sample_logs;
use darshan_log::counters::posix::{Counter, FCounter};
use darshan_log::counters::{CounterName, FloatRule, Rule, h5d, stdio};
use darshan_log::*;

/// Rank `rank` of a file: rank + 1 MiB written in rank + 1 seconds.
fn rank(rank: i64) -> Record<Posix> {
    let mut record = Record::new(7, rank);
    for (counter, value) in [
        (Counter::Opens, 1),
        (Counter::Mmaps, -1),
        (Counter::Writes, rank + 1),
        (Counter::BytesWritten, (rank + 1) << 20),
        (Counter::MaxByteWritten, 100 - rank),
        (Counter::Mode, 0o640),
        (Counter::FileAlignment, 4096),
        (Counter::SizeWrite100KTo1M, rank + 1),
        (Counter::MaxWriteTimeSize, 1000 + rank),
        (Counter::Access1Access, 1 << 20),
        (Counter::Access1Count, rank + 1),
    ] {
        record.set(counter, value);
    }
    for (counter, value) in [
        (
            FCounter::OpenStartTimestamp,
            if rank == 0 { 0.0 } else { 5.0 - rank as f64 },
        ),
        (FCounter::CloseEndTimestamp, rank as f64),
        (FCounter::WriteTime, rank as f64 + 1.0),
        (FCounter::MaxWriteTime, if rank == 2 { 9.0 } else { 1.0 }),
    ] {
        record.setf(counter, value);
    }
    record
}

fn ranks(n: i64) -> Vec<Record<Posix>> {
    (0..n).map(rank).collect()
}

#[test]
fn each_counter_follows_its_rule() {
    let n = 8;
    let shared = reduce(&ranks(n)).unwrap();
    assert_eq!((shared.id, shared.rank), (7, -1));
    let sum = n * (n + 1) / 2;
    for (counter, value) in [
        (Counter::Opens, n),
        (Counter::Mmaps, -1),
        (Counter::Writes, sum),
        (Counter::BytesWritten, sum << 20),
        (Counter::MaxByteWritten, 100),
        (Counter::Mode, 0o640),
        (Counter::FileAlignment, 4096),
        (Counter::SizeWrite100KTo1M, sum),
        (Counter::MaxWriteTimeSize, 1002),
        (Counter::Access1Access, 1 << 20),
        (Counter::Access1Count, sum),
        (Counter::Access2Count, 0),
        (Counter::FastestRank, 0),
        (Counter::FastestRankBytes, 1 << 20),
        (Counter::SlowestRank, n - 1),
        (Counter::SlowestRankBytes, n << 20),
    ] {
        assert_eq!(shared.get(counter), value, "{}", counter.name());
    }
    // The population variance of 1..=n is (n² - 1) / 12.
    let variance = (n * n - 1) as f64 / 12.0;
    let mib = 1_048_576.0;
    for (counter, value) in [
        // Of 0 (never), 4, 3, 2, 1 and times before the job's start.
        (FCounter::OpenStartTimestamp, 1.0),
        (FCounter::CloseEndTimestamp, 7.0),
        (FCounter::WriteTime, sum as f64),
        (FCounter::MaxWriteTime, 9.0),
        (FCounter::FastestRankTime, 1.0),
        (FCounter::SlowestRankTime, 8.0),
        (FCounter::VarianceRankTime, variance),
        (FCounter::VarianceRankBytes, variance * mib * mib),
    ] {
        let got = shared.getf(counter);
        assert!(
            (got - value).abs() <= value.abs() * 1e-12,
            "{}: {got}, not {value}",
            counter.name()
        );
    }
}

#[test]
fn a_single_rank_is_its_own_fastest_and_slowest() {
    let shared = reduce(&[rank(3)]).unwrap();
    assert_eq!(
        (
            shared.get(Counter::FastestRank),
            shared.get(Counter::SlowestRank)
        ),
        (3, 3)
    );
    assert_eq!(
        (
            shared.getf(FCounter::SlowestRankTime),
            shared.getf(FCounter::VarianceRankTime)
        ),
        (4.0, 0.0)
    );
    assert_eq!(reduce::<Posix>(&[]), None);
}

#[test]
fn of_equally_fast_ranks_the_lowest_is_named() {
    let mut ranks = ranks(4);
    for record in &mut ranks {
        record.setf(FCounter::WriteTime, 1.0);
    }
    ranks.reverse();
    let shared = reduce(&ranks).unwrap();
    assert_eq!(
        (
            shared.get(Counter::FastestRank),
            shared.get(Counter::SlowestRank)
        ),
        (0, 0)
    );
}

#[test]
fn the_four_most_frequent_values_come_first_and_ties_by_size() {
    let with = |accesses: &[(i64, i64)]| {
        let mut record = Record::<Posix>::new(7, 0);
        for (i, (size, count)) in accesses.iter().enumerate() {
            record.counters[Counter::Access1Access as usize + i] = *size;
            record.counters[Counter::Access1Count as usize + i] = *count;
        }
        record
    };
    let shared = reduce(&[
        with(&[(10, 5), (20, 4), (30, 3), (40, 2)]),
        with(&[(50, 4), (10, 1), (40, 1), (60, 1)]),
        with(&[(40, 3), (0, 0)]),
    ])
    .unwrap();
    assert_eq!(
        shared.view().common_accesses(),
        [(40, 6), (10, 6), (50, 4), (20, 4)]
    );
}

#[test]
fn tuples_of_datasets_are_told_apart_by_all_their_numbers() {
    let with = |length: i64, count: i64| {
        let mut record = Record::<H5d>::new(7, 0);
        record.set(h5d::Counter::Access1Access, 4096);
        record.set(h5d::Counter::Access1LengthD1, length);
        record.set(h5d::Counter::Access1Count, count);
        record.extra.file_id = 9;
        record
    };
    let shared = reduce(&[with(1, 2), with(2, 3), with(1, 2)]).unwrap();
    assert_eq!(shared.extra.file_id, 9);
    assert_eq!(shared.view().common_accesses(), [(4096, 4), (4096, 3)]);
    assert_eq!(shared.get(h5d::Counter::Access1LengthD1), 1);
    assert_eq!(shared.get(h5d::Counter::Access2LengthD1), 2);
}

#[test]
fn the_order_of_ranks_makes_no_difference() {
    let mut records = ranks(16);
    let forward = reduce(&records).unwrap();
    records.reverse();
    let backward = reduce(&records).unwrap();
    assert_eq!(forward.counters, backward.counters);
    for (a, b) in forward.fcounters.iter().zip(&backward.fcounters) {
        assert!((a - b).abs() <= a.abs() * 1e-12);
    }
}

#[test]
fn every_counter_of_every_module_has_a_rule_and_its_place() {
    fn check<M: CounterModule>() {
        let layout = M::layout();
        assert_eq!(layout.rules.len(), layout.counters.len());
        assert_eq!(layout.float_rules.len(), layout.fcounters.len());
        let places = |rule: Rule| layout.rules.iter().filter(|r| **r == rule).count();
        assert_eq!(places(Rule::OfLongest), layout.longest.len());
        let common: usize = layout.common.iter().map(|list| 4 * list.words + 4).sum();
        assert_eq!(places(Rule::Common), common, "{}", M::ID);
        assert_eq!(places(Rule::Extreme), layout.extremes.map_or(0, |_| 4));
        let names_end = |place: usize, end: &str| {
            assert!(
                layout.counters[place].ends_with(end),
                "{} {end}",
                layout.counters[place]
            );
        };
        if let Some((read, written)) = layout.bytes {
            names_end(read, "_BYTES_READ");
            names_end(written, "_BYTES_WRITTEN");
        }
        if let Some((read, written)) = layout.max_byte {
            names_end(read, "_MAX_BYTE_READ");
            names_end(written, "_MAX_BYTE_WRITTEN");
        }
        if let Some((read, written)) = layout.sizes {
            names_end(read, "_0_100");
            names_end(written + 9, "_1G_PLUS");
        }
        for list in layout.common {
            names_end(list.first_count, "1_COUNT");
            names_end(list.first_count + 3, "4_COUNT");
        }
        if let Some(times) = layout.times {
            assert!(layout.fcounters[times.read].ends_with("_F_READ_TIME"));
            assert!(layout.fcounters[times.write].ends_with("_F_WRITE_TIME"));
            assert!(layout.fcounters[times.meta].ends_with("_F_META_TIME"));
        }
        if let Some(extremes) = layout.extremes {
            names_end(extremes.ranks, "_FASTEST_RANK");
            names_end(extremes.ranks + 3, "_SLOWEST_RANK_BYTES");
            assert!(layout.fcounters[extremes.times].ends_with("_F_FASTEST_RANK_TIME"));
            if let Some(variances) = extremes.variances {
                assert!(layout.fcounters[variances].ends_with("_F_VARIANCE_RANK_TIME"));
            }
        }
        for (size, time) in layout.longest {
            let (size, time) = (layout.counters[*size], layout.fcounters[*time]);
            assert_eq!(size.replace("_SIZE", ""), time.replace("_F_", "_"));
            assert_eq!(
                layout.float_rules[layout.fcounter(time).unwrap()],
                FloatRule::Max
            );
        }
    }
    check::<Posix>();
    check::<MpiIo>();
    check::<Stdio>();
    check::<H5f>();
    check::<H5d>();
    check::<PnetcdfFile>();
    check::<PnetcdfVar>();
    check::<Bgq>();
    check::<Dfs>();
    check::<Daos>();
    assert_eq!(stdio::Counter::BytesWritten.index(), 6);
}

#[test]
fn accumulation_of_one_file_keeps_its_id_and_extremes() {
    let shared = reduce(&ranks(4)).unwrap();
    let sum = accumulate(&[shared, rank(9)]).unwrap();
    assert_eq!((sum.id, sum.rank), (7, -1));
    assert_eq!(
        (sum.get(Counter::FastestRank), sum.get(Counter::SlowestRank)),
        (0, 9)
    );
    assert_eq!(sum.getf(FCounter::VarianceRankTime), 0.0);
    let mut other = rank(1);
    other.id = 8;
    let sum = accumulate(&[rank(1), other]).unwrap();
    assert_eq!((sum.id, sum.rank), (0, 1));
    assert_eq!(
        (
            sum.get(Counter::FastestRank),
            sum.get(Counter::SlowestRankBytes)
        ),
        (-1, -1)
    );
}

/// Darshan's own reduced records obey what ours obey.
#[test]
fn records_that_darshan_reduced_obey_the_same_invariants() {
    let mut seen = 0;
    for path in forebay_testkit::optional_data!(sample_logs()) {
        let log = Log::open(&path).unwrap();
        // The ranks that took part can't be more than the job's.
        let ranks = log.job.nprocs as f64;
        for record in log
            .records::<Posix>()
            .map(Result::unwrap)
            .filter(|record| record.rank == -1)
        {
            let name = path.display();
            let total = record.view().io_time();
            let slowest = record.getf(FCounter::SlowestRankTime);
            let fastest = record.getf(FCounter::FastestRankTime);
            let (least, most) = (0.999_999 * total, 1.000_001 * total);
            assert!(
                fastest <= slowest && slowest <= most && least <= ranks * slowest,
                "{name}"
            );
            assert!(fastest * ranks <= most, "{name}");
            // Popoviciu: the variance is at most a quarter of the range squared.
            let range = slowest - fastest;
            let variance = record.getf(FCounter::VarianceRankTime);
            assert!(
                (0.0..=range * range / 4.0 * 1.001 + 1e-12).contains(&variance),
                "{name}: {variance}"
            );
            let bytes = record.view().bytes_read() + record.view().bytes_written();
            assert!(record.get(Counter::SlowestRankBytes) <= bytes, "{name}");
            let (reads, writes) = record.view().size_histograms().unwrap();
            assert_eq!(
                reads.iter().sum::<i64>(),
                record.get(Counter::Reads),
                "{name}"
            );
            assert_eq!(
                writes.iter().sum::<i64>(),
                record.get(Counter::Writes),
                "{name}"
            );
            let common: i64 = record
                .view()
                .common_accesses()
                .iter()
                .map(|(_, count)| count)
                .sum();
            assert!(
                common <= record.get(Counter::Reads) + record.get(Counter::Writes),
                "{name}"
            );
            seen += 1;
        }
    }
    assert!(seen > 30, "{seen}");
}
