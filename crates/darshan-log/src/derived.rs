//! What Darshan's tools derive from the records of a module.

use std::collections::{BTreeMap, HashMap};

use crate::{CounterModule, Record, Result};

/// A class of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Category {
    /// All files.
    All,
    /// Bytes were read, none written.
    ReadOnly,
    /// Bytes were written, none read.
    WriteOnly,
    /// Bytes were read and written.
    ReadWrite,
    /// One rank used it (N:N).
    Unique,
    /// All ranks used it (N:1).
    Shared,
    /// Some ranks used it (N:M).
    PartShared,
}

impl Category {
    /// All categories, in the order of darshan-util.
    pub const ALL: [Category; 7] = [
        Category::All,
        Category::ReadOnly,
        Category::WriteOnly,
        Category::ReadWrite,
        Category::Unique,
        Category::Shared,
        Category::PartShared,
    ];
}

/// Totals of the files of one [`Category`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CategoryTotals {
    /// Files.
    pub count: i64,
    /// Bytes read.
    pub bytes_read: i64,
    /// Bytes written.
    pub bytes_written: i64,
    /// Most bytes read of one file.
    pub max_bytes_read: i64,
    /// Most bytes written to one file.
    pub max_bytes_written: i64,
    /// Sum of the highest offsets; -1 if the module has none.
    pub sum_max_offset: i64,
    /// Highest offset; -1 if the module has none.
    pub max_offset: i64,
    /// Records of single ranks in the category; -1 stands for all ranks of the job.
    pub nprocs: i64,
}

/// What [`fn@derive`] computes for one module.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Derived {
    /// Bytes read and written.
    pub total_bytes: i64,
    /// Aggregate rate in MiB/s: bytes over [`agg_time_by_slowest`](Self::agg_time_by_slowest);
    /// 0 if that is 0.
    pub agg_perf_by_slowest: f64,
    /// Seconds: the slowest rank's time on files of its own, and for each shared file the time
    /// of its slowest rank.
    pub agg_time_by_slowest: f64,
    /// Seconds of the slowest rank on files that are not shared by all.
    pub unique_time_by_slowest: f64,
    /// The part of `unique_time_by_slowest` spent reading and writing.
    pub unique_transfer_time_by_slowest: f64,
    /// The part of `unique_time_by_slowest` spent in all else.
    pub unique_meta_time_by_slowest: f64,
    /// That rank; 0 if no rank spent time.
    pub unique_slowest_rank: i64,
    /// Seconds of the slowest ranks on shared files, one file after the other.
    pub shared_time_by_slowest: f64,
    /// Totals by kind of files.
    categories: [CategoryTotals; 7],
    /// Seconds of each rank on files that are not shared by all.
    pub rank_times: BTreeMap<i64, RankTime>,
}

/// Seconds that one rank spent on files that are not shared by all.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RankTime {
    /// Reading, writing and all else.
    pub total: f64,
    /// Reading and writing.
    pub transfer: f64,
    /// All else.
    pub meta: f64,
}

impl Derived {
    /// Totals of one kind of files.
    pub fn category(&self, category: Category) -> &CategoryTotals {
        &self.categories[category as usize]
    }
}

/// What all records of one file add up to.
#[derive(Default)]
struct FileTotals {
    bytes_read: i64,
    bytes_written: i64,
    /// `None`: the module has no offsets.
    max_offset: Option<i64>,
    /// Records of single ranks.
    ranks: i64,
    /// True if one of the records is of all ranks.
    shared: bool,
}

/// Computes what darshan-util's accumulators (and so darshan-parser, PyDarshan and its
/// summaries) derive from all records of a module in a job of `nprocs` processes.
///
/// The time of a record of one rank is that of its reads, writes and metadata calls; a record
/// of all ranks counts with the time of its slowest rank. Both are exact for POSIX, MPI-IO, STDIO,
/// DFS and DAOS; the other modules have no such figures in darshan-util.
///
/// # Errors
/// The first error among `records`.
///
/// ```no_run
/// use darshan_log::{Category, Log, Posix, derive};
/// let log = Log::open("job.darshan")?;
/// let posix = derive(log.records::<Posix>(), log.job.nprocs)?;
/// println!("{:.1} MiB/s, {} shared files", posix.agg_perf_by_slowest, posix.category(Category::Shared).count);
/// # Ok::<(), darshan_log::Error>(())
/// ```
pub fn derive<M: CounterModule>(
    records: impl IntoIterator<Item = Result<Record<M>>>,
    nprocs: i64,
) -> Result<Derived> {
    let mut derived = Derived::default();
    let mut files: HashMap<u64, FileTotals> = HashMap::new();
    for record in records {
        let record = record?;
        add_times(&mut derived, &record);
        add_to_file(files.entry(record.id).or_default(), &record);
    }
    finish_times(&mut derived);
    for file in files.values() {
        add_to_categories(&mut derived.categories, file, nprocs);
    }
    Ok(derived)
}

fn add_times<M: CounterModule>(derived: &mut Derived, record: &Record<M>) {
    let view = record.view();
    let bytes = view.bytes_read().saturating_add(view.bytes_written());
    derived.total_bytes = derived.total_bytes.saturating_add(bytes);
    if record.rank < 0 {
        derived.shared_time_by_slowest += view.slowest_rank_time().unwrap_or(0.0);
    } else {
        let rank = derived.rank_times.entry(record.rank).or_default();
        rank.total += view.io_time();
        rank.transfer += view.transfer_time();
        rank.meta += view.meta_time();
    }
}

fn finish_times(derived: &mut Derived) {
    for (rank, time) in &derived.rank_times {
        if time.total > derived.unique_time_by_slowest {
            derived.unique_time_by_slowest = time.total;
            derived.unique_transfer_time_by_slowest = time.transfer;
            derived.unique_meta_time_by_slowest = time.meta;
            derived.unique_slowest_rank = *rank;
        }
    }
    derived.agg_time_by_slowest = derived.unique_time_by_slowest + derived.shared_time_by_slowest;
    if derived.agg_time_by_slowest != 0.0 {
        let mib = derived.total_bytes as f64 / 1_048_576.0;
        derived.agg_perf_by_slowest = mib / derived.agg_time_by_slowest;
    }
}

fn add_to_file<M: CounterModule>(file: &mut FileTotals, record: &Record<M>) {
    let view = record.view();
    file.bytes_read = file.bytes_read.saturating_add(view.bytes_read());
    file.bytes_written = file.bytes_written.saturating_add(view.bytes_written());
    file.max_offset = view
        .max_offset()
        .map(|offset| file.max_offset.unwrap_or(0).max(offset));
    if record.rank < 0 {
        file.shared = true;
    } else {
        file.ranks += 1;
    }
}

fn add_to_categories(categories: &mut [CategoryTotals; 7], file: &FileTotals, nprocs: i64) {
    let by_direction = match (file.bytes_read > 0, file.bytes_written > 0) {
        (true, false) => Some(Category::ReadOnly),
        (false, true) => Some(Category::WriteOnly),
        (true, true) => Some(Category::ReadWrite),
        (false, false) => None,
    };
    let by_ranks = match (file.shared, file.ranks) {
        (true, _) => Category::Shared,
        (false, 1) => Category::Unique,
        (false, _) => Category::PartShared,
    };
    for category in [Some(Category::All), by_direction, Some(by_ranks)]
        .into_iter()
        .flatten()
    {
        add_to_category(&mut categories[category as usize], file, nprocs);
    }
}

fn add_to_category(totals: &mut CategoryTotals, file: &FileTotals, nprocs: i64) {
    totals.count += 1;
    totals.bytes_read = totals.bytes_read.saturating_add(file.bytes_read);
    totals.bytes_written = totals.bytes_written.saturating_add(file.bytes_written);
    totals.max_bytes_read = totals.max_bytes_read.max(file.bytes_read);
    totals.max_bytes_written = totals.max_bytes_written.max(file.bytes_written);
    match file.max_offset {
        Some(offset) => {
            totals.sum_max_offset = totals.sum_max_offset.saturating_add(offset);
            totals.max_offset = totals.max_offset.max(offset);
        }
        None => (totals.sum_max_offset, totals.max_offset) = (-1, -1),
    }
    if totals.nprocs >= 0 {
        totals.nprocs = totals.nprocs.saturating_add(file.ranks);
    }
    if file.shared || totals.nprocs >= nprocs {
        totals.nprocs = -1;
    }
}
