//! A job as the report sees it: sums per file and interface, small shares per rank, timelines.
//!
//! It does not know how a log is laid out: [`crate::intake`] fills it from logs, tests fill it by hand. Its size grows
//! with files and ranks, not with operations. What has no bound in a log (trace segments, heat map cells of many ranks)
//! is condensed before it gets here.

mod busy;
mod collective;
mod counters;
mod coverage;
mod launches;
mod layers;
mod locks;
mod placement;
mod programs;
mod timeline;

pub use busy::{Bounds, Busy};
pub use collective::{Avoided, Calls, Collective, Prediction};
pub use counters::{BUCKET_NAMES, Counters, Flow, Flushing, join};
pub use coverage::{Coverage, Fetched, Unplaced};
pub use locks::{LockedFile, Locks, RankWrites};
pub use placement::{Amount, Placement, Work};
pub use programs::Program;
pub use timeline::{Segment, Timeline, TimelineSource, Trace};

use serde::Serialize;
use std::collections::BTreeMap;

/// Calls of a rank that may wait for somebody else, and do no I/O.
#[derive(Debug, Clone, PartialEq)]
pub struct Wait {
    /// Rank.
    pub rank: u32,
    /// What they are, in the plural.
    pub what: &'static str,
    /// How many.
    pub calls: u64,
    /// Seconds in them.
    pub seconds: f64,
}

/// A layer at which data operations are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Interface {
    /// System calls on descriptors.
    Posix,
    /// C streams.
    Stdio,
    /// DAOS file system.
    Dfs,
    /// DAOS objects.
    Daos,
    /// `MPI_File_*`.
    MpiIo,
    /// HDF5 data sets.
    Hdf5,
    /// PnetCDF variables.
    Pnetcdf,
}

impl Interface {
    /// The name as people write it.
    pub fn name(self) -> &'static str {
        match self {
            Interface::Posix => "POSIX",
            Interface::Stdio => "STDIO",
            Interface::Dfs => "DFS",
            Interface::Daos => "DAOS",
            Interface::MpiIo => "MPI-IO",
            Interface::Hdf5 => "HDF5",
            Interface::Pnetcdf => "PnetCDF",
        }
    }

    /// True if its bytes pass through a lower layer, which counts them, too.
    pub fn is_library(self) -> bool {
        matches!(
            self,
            Interface::MpiIo | Interface::Hdf5 | Interface::Pnetcdf
        )
    }

    /// True if it counts sizes of single requests.
    pub fn has_sizes(self) -> bool {
        self != Interface::Stdio
    }

    /// True if it counts sequential and consecutive requests, alignment and mmap.
    pub fn has_pattern(self) -> bool {
        self == Interface::Posix
    }
}

/// How many ranks touch a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Sharing {
    /// One rank only (N:N when every rank has files of its own).
    Unique,
    /// Some ranks, not all (N:M).
    Partial,
    /// All ranks (N:1).
    Shared,
}

impl Sharing {
    /// All classes, in table order.
    pub const ALL: [Sharing; 3] = [Sharing::Unique, Sharing::Shared, Sharing::Partial];

    /// The name as people write it.
    pub fn name(self) -> &'static str {
        match self {
            Sharing::Unique => "unique (N:N)",
            Sharing::Shared => "shared (N:1)",
            Sharing::Partial => "partly shared (N:M)",
        }
    }
}

/// What one rank did with a file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct RankShare {
    /// Rank.
    pub rank: u32,
    /// Seconds reading.
    pub read_seconds: f64,
    /// Seconds writing.
    pub write_seconds: f64,
    /// Seconds in metadata.
    pub meta_seconds: f64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// [`Counters::in_use`] of its files.
    #[serde(skip)]
    pub in_use: Option<(f64, f64)>,
}

impl RankShare {
    /// Seconds in I/O.
    pub fn seconds(&self) -> f64 {
        self.read_seconds + self.write_seconds + self.meta_seconds
    }

    /// Bytes of both directions.
    pub fn bytes(&self) -> u64 {
        self.bytes_read + self.bytes_written
    }

    /// Adds another share; the rank stays.
    pub fn add(&mut self, other: &RankShare) {
        self.read_seconds += other.read_seconds;
        self.write_seconds += other.write_seconds;
        self.meta_seconds += other.meta_seconds;
        self.bytes_read += other.bytes_read;
        self.bytes_written += other.bytes_written;
        self.in_use = join(self.in_use, other.in_use);
    }
}

/// The fastest or slowest rank on a file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Extreme {
    /// Rank.
    pub rank: u32,
    /// Its seconds in I/O on the file.
    pub seconds: f64,
    /// Its bytes.
    pub bytes: u64,
}

/// A record that the logger has summed over all ranks of one log. Of single ranks only the extremes are known.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Reduced {
    /// The first of the ranks.
    pub first_rank: u32,
    /// How many ranks.
    pub ranks: u32,
    /// Seconds reading, all ranks together.
    pub read_seconds: f64,
    /// Seconds writing.
    pub write_seconds: f64,
    /// Seconds in metadata.
    pub meta_seconds: f64,
    /// Bytes of both directions.
    pub bytes: u64,
    /// [`Counters::in_use`] of all ranks together.
    pub in_use: Option<(f64, f64)>,
    /// The slowest rank.
    pub slowest: Extreme,
    /// The fastest rank.
    pub fastest: Extreme,
}

impl Reduced {
    /// Seconds of all ranks together.
    pub fn seconds(&self) -> f64 {
        self.read_seconds + self.write_seconds + self.meta_seconds
    }
}

/// One file through one interface.
#[derive(Debug, Clone, PartialEq)]
pub struct FileUse {
    /// Index in [`Job::files`].
    pub file: usize,
    /// Ranks that touched it.
    pub ranks: u32,
    /// Whether that is one rank, some or all.
    pub sharing: Sharing,
    /// Sums over all ranks.
    pub total: Counters,
    /// Seconds that ranks waited in syncs and synced writes, as far as they are known; by ascending rank.
    pub waits: Vec<(u32, f64)>,
    /// Single ranks, in ascending order, as far as the logs tell them apart.
    pub by_rank: Vec<RankShare>,
    /// Sums over the ranks of one log each (one for most jobs, more when logs were joined).
    pub reduced: Vec<Reduced>,
    /// True if no lower layer saw this file, so that its bytes count for the job.
    pub is_lowest: bool,
    /// True if no higher layer saw this file, so that its time is what the program waited for.
    pub is_highest: bool,
}

impl FileUse {
    /// Seconds that these ranks waited in syncs and synced writes, as far as they are known.
    pub fn waited(&self, ranks: std::ops::RangeInclusive<u32>) -> f64 {
        let first = self.waits.partition_point(|(rank, _)| rank < ranks.start());
        let ours = self.waits[first..].iter();
        let ours = ours.take_while(|(rank, _)| rank <= ranks.end());
        ours.map(|(_, seconds)| seconds).sum()
    }

    /// The slowest rank, if one is known.
    pub fn slowest(&self) -> Option<Extreme> {
        self.slowest_of(|_| true)
    }

    /// The slowest of the ranks that `counts` picks.
    pub fn slowest_of(&self, counts: impl Fn(u32) -> bool) -> Option<Extreme> {
        self.extremes()
            .filter(|one| counts(one.rank))
            .max_by(|a, b| a.seconds.total_cmp(&b.seconds).then(b.rank.cmp(&a.rank)))
    }

    /// The known times of ranks: every single rank, and the slowest of each reduced record.
    fn extremes(&self) -> impl Iterator<Item = Extreme> + '_ {
        let single = self.by_rank.iter().map(|share| Extreme {
            rank: share.rank,
            seconds: share.seconds(),
            bytes: share.bytes(),
        });
        single.chain(self.reduced.iter().map(|r| r.slowest))
    }
}

/// All files through one interface.
#[derive(Debug, Clone, PartialEq)]
pub struct Layer {
    /// The interface.
    pub interface: Interface,
    /// Ordered by [`FileUse::file`].
    pub uses: Vec<FileUse>,
    /// Darshan's `agg_time_by_slowest` in seconds and `agg_perf_by_slowest` in MiB/s, as far as they exist.
    pub by_slowest: Option<BySlowest>,
    /// True if the logger ran out of memory here and counted no further files, so that numbers are lower bounds.
    pub is_partial: bool,
    /// True if the logger ran out of memory here and summed files. Sums are exact.
    pub is_condensed: bool,
}

/// Darshan's derived rate: bytes over the I/O time of the slowest rank.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct BySlowest {
    /// `agg_time_by_slowest`, seconds.
    pub seconds: f64,
    /// `agg_perf_by_slowest`, MiB/s.
    pub mib_per_second: f64,
}

impl Layer {
    /// Sums over all files.
    pub fn total(&self) -> Counters {
        let mut total = Counters::default();
        for one in &self.uses {
            total.add(&one.total);
        }
        total
    }
}

/// A file of the job.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct File {
    /// Printable name, see [`crate::text::printable`].
    pub name: String,
    /// File system type of its mount point; empty if unknown.
    pub fs: String,
    /// Its mount point; empty if unknown.
    pub mount: String,
    /// Stripe size in bytes and count, on Lustre.
    pub stripes: Option<(u64, u64)>,
    /// Numbers of the storage targets that hold it, on Lustre; empty if there are many.
    pub targets: Vec<u32>,
    /// Size at the first open, if the recorder noted it.
    pub size_at_open: Option<u64>,
    /// Whether the job created it, if the recorder noted it.
    pub created: Option<bool>,
    /// True if a recorder noted what it saw when the file was opened. Then a size that it did not note was none.
    pub is_noted: bool,
    /// True if an open was to make it if it was missing, as is done with files only.
    pub is_made: bool,
    /// True if it was opened, nothing was done with it, and nothing tells that it is a file. [`Job::settle_layers`] finds
    /// that out.
    pub is_only_opened: bool,
    /// True for a standard stream.
    pub is_std_stream: bool,
    /// True if it is no file: it stands for calls on names that are in no record.
    pub is_calls: bool,
    /// `Some` if it stands for several files of a directory, which a recorder short of memory has summed: how many. If
    /// several ranks have summed the same files, these count for each of them.
    pub rest: Option<u64>,
    /// For a data set of HDF5 or PnetCDF, the index of the file that holds it, if that is among the files.
    pub container: Option<usize>,
}

impl File {
    /// True if it stands for several files.
    pub fn is_rest(&self) -> bool {
        self.rest.is_some()
    }

    /// True if it is known to be a directory: the recorder notes sizes of files alone.
    pub fn is_directory(&self) -> bool {
        self.is_only_opened && self.is_noted
    }

    /// How many files it stands for.
    pub fn count(&self) -> u64 {
        self.rest.unwrap_or(1)
    }

    /// The directory of the files that a sum stands for, with a `/` at its end.
    fn summed_directory(&self) -> Option<&str> {
        self.name.strip_suffix(REST_NAME).filter(|_| self.is_rest())
    }
}

/// What follows the directory in the name of a record that stands for several files.
pub const REST_NAME: &str = "<other files>";

/// A module found in a log.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ModuleFacts {
    /// Darshan's name for it.
    pub name: String,
    /// Version of its records.
    pub version: u32,
    /// Number of records.
    pub records: u64,
    /// True if the logger ran out of memory here and counted no further files.
    pub is_partial: bool,
    /// True if the report can't read its records.
    pub is_unknown: bool,
}

/// A log that went into the job.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct LogFacts {
    /// Printable file name.
    pub name: String,
    /// Format version.
    pub version: String,
    /// First rank that it has in the job.
    pub first_rank: u32,
    /// Ranks.
    pub ranks: u32,
    /// True if its ranks are those of an MPI program.
    pub is_mpi: bool,
}

/// A job: all processes of one launch, or of several launches with the same job id.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Job {
    /// The logs it was read from.
    pub logs: Vec<LogFacts>,
    /// Program and arguments, printable.
    pub exe: String,
    /// Scheduler's job id, or what the logger used instead.
    pub job_id: i64,
    /// User id.
    pub uid: i64,
    /// Processes.
    pub ranks: u32,
    /// Ranges of ranks that were launched together and wait for each other.
    pub launches: Vec<std::ops::Range<u32>>,
    /// Start, seconds since 1970 (UTC).
    pub start: f64,
    /// From the start to the end, seconds.
    pub run_seconds: f64,
    /// True if the log has whole seconds only.
    pub run_seconds_rounded: bool,
    /// Compute nodes, if known.
    pub nodes: Option<u32>,
    /// Hosts, if known.
    pub hosts: Vec<String>,
    /// Everything else that the logger noted, printable.
    pub metadata: BTreeMap<String, String>,
    /// Coverage, if the recorder noted it.
    pub coverage: Option<Coverage>,
    /// What the recorder had to condense, without a loss to any sum; printable.
    pub condensed: Vec<String>,
    /// What the recorder could not count; printable.
    pub losses: Vec<String>,
    /// What the recorder counted, and could place at no file.
    pub unplaced: Unplaced,
    /// What could not be read of the logs; printable sentences.
    pub damage: Vec<String>,
    /// The programs that it has run, parents before children; empty if the logger did not note them.
    pub programs: Vec<Program>,
    /// Calls that may wait for somebody else.
    pub waits: Vec<Wait>,
    /// When it was in I/O, if the recorder noted it.
    pub busy: Option<Busy>,
    /// What the collective layer did with files of MPI-IO; empty without it.
    pub collective: Vec<Collective>,
    /// Modules, by name.
    pub modules: Vec<ModuleFacts>,
    /// Files.
    pub files: Vec<File>,
    /// Interfaces in use, in the order of [`Interface`].
    pub layers: Vec<Layer>,
    /// Timelines, in the order of [`Interface`].
    pub timelines: Vec<Timeline>,
    /// Traces, in the order of [`Interface`].
    pub traces: Vec<Trace>,
    /// Where ranks ran; `None` if that is unknown, or if it was one node.
    pub placement: Option<Placement>,
    /// Which writes may have waited for locks; `None` if there is no trace of every write, or if one node has made all.
    pub locks: Option<Locks>,
}

impl Job {
    /// The layer of an interface.
    pub fn layer(&self, interface: Interface) -> Option<&Layer> {
        self.layers
            .iter()
            .find(|layer| layer.interface == interface)
    }

    /// True if the program is known to use MPI.
    pub fn is_mpi(&self) -> bool {
        self.layer(Interface::MpiIo).is_some() || self.logs.iter().any(|log| log.is_mpi)
    }
}
