//! Makes one record of the records that all ranks have of one file.

use std::collections::BTreeMap;

use crate::counters::{Common, Extremes, FloatRule, Layout, Rule, Times};
use crate::{CounterModule, Record};

/// Reduces the records of one file, one per rank, to a single record with rank -1. The Darshan
/// runtime does so when all ranks have opened a file. `None` if there are no records.
///
/// Each counter follows its [`Rule`] or [`FloatRule`]. Fastest and slowest rank are those with
/// the least and the most time in read, write and metadata calls; among equals the lowest rank.
/// Variances are those of the population of the given records. The four most frequent values
/// have the highest sums of counts over all ranks' lists; among equals the largest value comes
/// first. The runtime merges lists pairwise and loses counts when more than four values compete,
/// so its counts may be lower, never higher.
///
/// ```
/// use darshan_log::counters::posix::{Counter, FCounter};
/// use darshan_log::{Posix, Record, reduce};
/// let ranks: Vec<_> = (0..4i64)
///     .map(|rank| {
///         let mut record = Record::<Posix>::new(7, rank);
///         record.set(Counter::BytesWritten, (rank + 1) << 20);
///         record.setf(FCounter::WriteTime, 1.0 + rank as f64);
///         record
///     })
///     .collect();
/// let shared = reduce(&ranks).unwrap();
/// assert_eq!((shared.id, shared.rank), (7, -1));
/// assert_eq!(shared.get(Counter::BytesWritten), 10 << 20);
/// assert_eq!(shared.get(Counter::SlowestRank), 3);
/// assert_eq!(shared.getf(FCounter::VarianceRankTime), 1.25);
/// ```
pub fn reduce<'a, M: CounterModule>(
    records: impl IntoIterator<Item = &'a Record<M>>,
) -> Option<Record<M>> {
    let mut reducer = Reducer::new();
    for record in records {
        reducer.add(record);
    }
    reducer.finish()
}

/// [`fn@reduce`], one record at a time. It keeps one record, and the distinct values of the lists
/// of most frequent ones.
#[derive(Clone, Debug)]
pub struct Reducer<M: CounterModule> {
    merged: Option<Merged<M>>,
    time: Spread,
    bytes: Spread,
}

impl<M: CounterModule> Default for Reducer<M> {
    fn default() -> Self {
        Reducer::new()
    }
}

impl<M: CounterModule> Reducer<M> {
    /// Starts without a record.
    pub fn new() -> Self {
        Reducer {
            merged: None,
            time: Spread::default(),
            bytes: Spread::default(),
        }
    }

    /// Adds the record of one rank.
    pub fn add(&mut self, record: &Record<M>) {
        let view = record.view();
        let bytes = view.bytes_read().saturating_add(view.bytes_written());
        self.time.add(view.io_time());
        self.bytes.add(bytes as f64);
        let rank = RankExtreme {
            rank: record.rank,
            bytes,
            time: view.io_time(),
        };
        match &mut self.merged {
            None => self.merged = Some(Merged::first(record, rank, rank)),
            Some(merged) => merged.add(record, rank, rank),
        }
    }

    /// The reduced record; `None` if nothing was added.
    pub fn finish(self) -> Option<Record<M>> {
        let mut record = self.merged?.finish();
        record.rank = -1;
        if let Some(Extremes {
            variances: Some(variances),
            ..
        }) = M::layout().extremes
        {
            let floats = record.fcounters.as_mut();
            floats[variances] = self.time.variance();
            floats[variances + 1] = self.bytes.variance();
        }
        Some(record)
    }
}

/// Adds up records of any files and ranks, as darshan-util does for a whole log.
///
/// It follows the rules of [`fn@reduce`] but for these: A record that is already reduced brings its
/// own fastest and slowest rank. The id is that of the file if all records are of one file, else 0.
/// The rank is that of all records if they agree, else -1. Once files differ, fastest and slowest
/// rank are -1 with 0 s. There is no variance.
pub fn accumulate<'a, M: CounterModule>(
    records: impl IntoIterator<Item = &'a Record<M>>,
) -> Option<Record<M>> {
    let mut accumulator = Accumulator::new();
    for record in records {
        accumulator.add(record);
    }
    accumulator.finish()
}

/// [`accumulate`] one record at a time.
#[derive(Clone, Debug)]
pub struct Accumulator<M: CounterModule> {
    merged: Option<Merged<M>>,
    one_file: bool,
}

impl<M: CounterModule> Default for Accumulator<M> {
    fn default() -> Self {
        Accumulator::new()
    }
}

impl<M: CounterModule> Accumulator<M> {
    /// Starts without a record.
    pub fn new() -> Self {
        Accumulator {
            merged: None,
            one_file: true,
        }
    }

    /// Adds a record.
    pub fn add(&mut self, record: &Record<M>) {
        let (fastest, slowest) = RankExtreme::of(record);
        match &mut self.merged {
            None => self.merged = Some(Merged::first(record, fastest, slowest)),
            Some(merged) => {
                self.one_file &= merged.record.id == record.id;
                if merged.record.rank != record.rank {
                    merged.record.rank = -1;
                }
                merged.add(record, fastest, slowest);
            }
        }
    }

    /// The sum; `None` if nothing was added.
    pub fn finish(self) -> Option<Record<M>> {
        let mut merged = self.merged?;
        if !self.one_file {
            merged.record.id = 0;
            let nobody = RankExtreme {
                rank: -1,
                bytes: -1,
                time: 0.0,
            };
            (merged.fastest, merged.slowest) = (nobody, nobody);
        }
        let mut record = merged.finish();
        if let Some(Extremes {
            variances: Some(variances),
            ..
        }) = M::layout().extremes
        {
            record.fcounters.as_mut()[variances..variances + 2].fill(0.0);
        }
        Some(record)
    }
}

/// A rank with what it moved and the time it took.
#[derive(Clone, Copy, Debug)]
struct RankExtreme {
    rank: i64,
    bytes: i64,
    time: f64,
}

impl RankExtreme {
    /// Fastest and slowest rank of a record: its own rank, or those of a reduced record.
    fn of<M: CounterModule>(record: &Record<M>) -> (RankExtreme, RankExtreme) {
        let view = record.view();
        if let (-1, Some(Extremes { ranks, times, .. })) = (record.rank, M::layout().extremes) {
            let (ints, floats) = (view.counters, view.fcounters);
            return (
                RankExtreme {
                    rank: ints[ranks],
                    bytes: ints[ranks + 1],
                    time: floats[times],
                },
                RankExtreme {
                    rank: ints[ranks + 2],
                    bytes: ints[ranks + 3],
                    time: floats[times + 1],
                },
            );
        }
        // In the order in which darshan-util adds here, so that the last bit agrees.
        let time = M::layout()
            .times
            .map_or(0.0, |Times { read, write, meta }| {
                view.fcounters[read] + view.fcounters[write] + view.fcounters[meta]
            });
        let bytes = view.bytes_read().saturating_add(view.bytes_written());
        let own = RankExtreme {
            rank: record.rank,
            bytes,
            time,
        };
        (own, own)
    }

    /// Decides between ranks of equal time, so that the order in which records come does not
    /// matter.
    fn precedes(&self, other: &RankExtreme) -> bool {
        self.time == other.time && self.rank < other.rank
    }
}

/// Mean and sum of squared differences from it (Welford).
#[derive(Clone, Copy, Debug, Default)]
struct Spread {
    count: f64,
    mean: f64,
    squares: f64,
}

impl Spread {
    fn add(&mut self, value: f64) {
        self.count += 1.0;
        let before = value - self.mean;
        self.mean += before / self.count;
        self.squares += before * (value - self.mean);
    }

    /// Population variance.
    fn variance(self) -> f64 {
        if self.count > 0.0 {
            self.squares / self.count
        } else {
            0.0
        }
    }
}

/// Counts by value, for one list of most frequent values. A value is up to eleven numbers.
type Frequencies = BTreeMap<Vec<i64>, i64>;

/// The sum of all records so far.
#[derive(Clone, Debug)]
struct Merged<M: CounterModule> {
    record: Record<M>,
    common: Vec<Frequencies>,
    fastest: RankExtreme,
    slowest: RankExtreme,
}

impl<M: CounterModule> Merged<M> {
    fn first(record: &Record<M>, fastest: RankExtreme, slowest: RankExtreme) -> Self {
        let mut sum = Record::new(record.id, record.rank);
        sum.extra = record.extra;
        let common = vec![Frequencies::new(); M::layout().common.len()];
        let mut merged = Merged {
            record: sum,
            common,
            fastest,
            slowest,
        };
        merged.add(record, fastest, slowest);
        merged
    }

    fn add(&mut self, record: &Record<M>, fastest: RankExtreme, slowest: RankExtreme) {
        self.record.keep_longest(record);
        add_ints(M::layout(), &mut self.record, record);
        add_floats(M::layout(), &mut self.record, record);
        self.add_common(record);
        if fastest.time < self.fastest.time || fastest.precedes(&self.fastest) {
            self.fastest = fastest;
        }
        if slowest.time > self.slowest.time || slowest.precedes(&self.slowest) {
            self.slowest = slowest;
        }
    }

    fn add_common(&mut self, record: &Record<M>) {
        let ints = record.counters.as_ref();
        for (
            list,
            Common {
                first,
                words,
                first_count,
            },
        ) in self.common.iter_mut().zip(M::layout().common)
        {
            for i in 0..4 {
                let value = &ints[first + i * words..first + (i + 1) * words];
                let count = ints[first_count + i];
                if count > 0 {
                    let sum = list.entry(value.to_vec()).or_insert(0);
                    *sum = sum.saturating_add(count);
                }
            }
        }
    }

    fn finish(mut self) -> Record<M> {
        let (ints, floats) = (
            self.record.counters.as_mut(),
            self.record.fcounters.as_mut(),
        );
        for (list, place) in self.common.iter().zip(M::layout().common) {
            store_common(list, place, ints);
        }
        if let Some(Extremes { ranks, times, .. }) = M::layout().extremes {
            let (fastest, slowest) = (self.fastest, self.slowest);
            ints[ranks..ranks + 4].copy_from_slice(&[
                fastest.rank,
                fastest.bytes,
                slowest.rank,
                slowest.bytes,
            ]);
            floats[times..times + 2].copy_from_slice(&[fastest.time, slowest.time]);
        }
        self.record
    }
}

/// Stores the four most frequent values, among equals the largest first.
fn store_common(list: &Frequencies, place: &Common, ints: &mut [i64]) {
    let mut values: Vec<(&Vec<i64>, &i64)> = list.iter().collect();
    values.sort_by(|a, b| (b.1, b.0).cmp(&(a.1, a.0)));
    let Common {
        first,
        words,
        first_count,
    } = *place;
    ints[first..first + 4 * words].fill(0);
    ints[first_count..first_count + 4].fill(0);
    for (i, (value, count)) in values.into_iter().take(4).enumerate() {
        ints[first + i * words..first + (i + 1) * words].copy_from_slice(value);
        ints[first_count + i] = *count;
    }
}

fn add_ints<M: CounterModule>(layout: &Layout, sum: &mut Record<M>, record: &Record<M>) {
    let values = record.counters.as_ref();
    for (i, total) in sum.counters.as_mut().iter_mut().enumerate() {
        match layout.rules[i] {
            // -1 stands for "not collected", and several of them still add up to -1.
            Rule::Sum => *total = total.saturating_add(values[i]).max(-1),
            Rule::Max => *total = (*total).max(values[i]),
            Rule::Keep => *total = values[i],
            Rule::OfLongest | Rule::Common | Rule::Extreme => {}
        }
    }
}

fn add_floats<M: CounterModule>(layout: &Layout, sum: &mut Record<M>, record: &Record<M>) {
    let values = record.fcounters.as_ref();
    for (i, total) in sum.fcounters.as_mut().iter_mut().enumerate() {
        match layout.float_rules[i] {
            FloatRule::Sum => *total += values[i],
            FloatRule::Min if values[i] > 0.0 && (*total <= 0.0 || values[i] < *total) => {
                *total = values[i]
            }
            FloatRule::Max if values[i] > *total => *total = values[i],
            FloatRule::Keep => *total = values[i],
            FloatRule::Min | FloatRule::Max | FloatRule::Extreme => {}
        }
    }
}
