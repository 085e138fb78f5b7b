//! Reads and writes logs of [Darshan](https://www.mcs.anl.gov/research/projects/darshan/), the
//! I/O characterization tool, format 3.00 to 3.41.
//!
//! A log is about one job. It holds the job record, the names of files, and one record per module,
//! file and rank: counters, or for some modules traces, stripes or heat maps. [`Log`] opens a log
//! of any version, byte order and compression. [`LogWriter`] writes one in the current format.
//! [`reduce`] makes one record of those of many ranks. [`derive`](fn@derive) computes what
//! Darshan's tools derive: aggregate performance, file categories.
//!
//! A log is not believed. Lengths and counts in it never decide how much is allocated. What is cut,
//! damaged or larger than [`Limits`] is an [`enum@Error`] that names region and offset.
//! [Lenient opening](OpenOptions::lenient) gives what could be read all the same.
//!
//! ```
//! use darshan_log::counters::posix::Counter;
//! use darshan_log::{Job, Log, LogWriter, Posix, Record, derive, record_id};
//! use std::io::Cursor;
//!
//! let id = record_id(b"/scratch/out");
//! let mut record = Record::<Posix>::new(id, 0);
//! record.set(Counter::BytesWritten, 1 << 20);
//!
//! let job = Job { nprocs: 1, ..Job::default() };
//! let mut writer = LogWriter::new(Cursor::new(Vec::new()), &job, "./app -n 4", &[])?;
//! writer.name(id, b"/scratch/out")?;
//! writer.record::<Posix>(&record)?;
//! let (file, _) = writer.finish()?;
//!
//! let log = Log::from_bytes(file.into_inner())?;
//! assert_eq!(log.exe, "./app -n 4");
//! for record in log.records::<Posix>() {
//!     let record = record?;
//!     assert_eq!(log.names.get(record.id).as_deref(), Some("/scratch/out"));
//!     assert_eq!(record.get(Counter::BytesWritten), 1 << 20);
//! }
//! # Ok::<(), darshan_log::Error>(())
//! ```
#![forbid(unsafe_code)]

pub mod counters;
mod derived;
mod dxt;
mod entry;
mod error;
pub mod file_facts;
mod header;
mod heatmap;
mod job;
mod log;
mod lustre;
mod module;
mod record;
mod record_names;
mod reduce;
mod region;
mod rewrite;
mod upgrade;
mod writer;

pub use darshan_rules::{SIZE_BUCKETS, record_id, size_bucket};
pub use derived::{Category, CategoryTotals, Derived, RankTime, derive};
pub use dxt::{DxtMpiio, DxtPosix, DxtRecord, Segment};
pub use entry::{Module, Records};
pub use error::{Error, Region, Result};
pub use header::{Endian, FormatVersion, Header};
pub use heatmap::{Heatmap, HeatmapRecord, MAX_COMBINED_BINS, combine};
pub use job::{Job, Metadata, Mount, Time};
pub use log::{Limits, Log, OpenOptions};
pub use lustre::{LUSTRE_COMPONENT_COUNTERS, Lustre, LustreComponent, LustreRecord};
pub use module::{Extent, MAX_MODULES, ModuleId, ModuleInfo, newest_version};
pub use record::{
    Bgq, CounterModule, Daos, DaosContainer, DaosObject, Dfs, Extra, H5d, H5f, MpiIo, Parent,
    PnetcdfFile, PnetcdfVar, Posix, Record, RecordView, Stdio, Typed,
};
pub use record_names::Names;
pub use reduce::{Accumulator, Reducer, accumulate, reduce};
pub use region::Compression;
pub use rewrite::rewrite;
pub use writer::{LogWriter, Written};

/// The example of the README, compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
