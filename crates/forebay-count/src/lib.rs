//! Counters of what a process reads and writes, in memory that outlives it.
//!
//! The recorder maps one **table** per process image and counts every call in it; the collector reads the same
//! file, at any instant, whatever has killed the process. A table holds one **record** per file and interface
//! ([`Kind`]), with the counters that Darshan defines, in Darshan's order, and next to them what the rules of
//! counting have to remember.
//!
//! Memory is bounded. When it is full, the files that moved the least are folded into one record of their directory:
//! patterns are lost, totals stay exact.
//!
//! No std, no allocation, no unsafe code, no waiting: a thread that finds a record locked for too long leaves its
//! event in a side slot ([`pending`]), and whoever comes next counts it. So a signal handler that interrupts a counted
//! section, a thread that dies in one, or a process that is killed in one holds up nobody.
//!
//! | module | what it does |
//! |---|---|
//! | [`layout`] | where things stand in a table |
//! | [`table`] | records: find, make, count, fold |
//! | [`record`] | one record |
//! | [`event`] | one call, as the rules see it |
//! | [`posix`], [`stdio`] | the rules of libc's interfaces |
//! | [`mpiio`], [`hdf5`], [`pnetcdf`] | the rules of I/O libraries; what they share is in [`library`] |
//! | [`handles`] | which record a library's handle leads to |
//! | [`track`] | common values, timers, size buckets |
//! | [`heat`] | bytes over time |
//! | [`pending`] | events that found their record locked |
//! | [`path`] | names and their ids; what is left out |
//! | [`read`], [`library_read`] | the other side: a table as values |
#![no_std]
#![forbid(unsafe_code)]

pub mod event;
pub mod handles;
pub mod hdf5;
mod heap;
pub mod heat;
pub mod layout;
pub mod library;
pub mod library_read;
pub mod lock;
pub mod mpiio;
pub mod path;
pub mod pending;
pub mod pnetcdf;
pub mod posix;
pub mod read;
pub mod record;
pub mod stdio;
pub mod table;
pub mod track;

pub use event::{Event, Op};
pub use layout::Kind;
pub use table::{Host, Table};

/// Environment variable: absolute path of the directory for the tables. Without it nothing is recorded.
pub const ENV_RECORD_DIR: &str = "FOREBAY_RECORD";
/// Environment variable: bytes of memory for the table of one process.
pub const ENV_RECORD_MEMORY: &str = "FOREBAY_RECORD_MEMORY";
/// Environment variable: directories, separated by `:`, that are recorded although they lie below one that is left out.
pub const ENV_RECORD_INCLUDE: &str = "FOREBAY_RECORD_INCLUDE";
/// Bytes of a table where the environment names none.
pub const DEFAULT_TABLE_BYTES: usize = 2 << 20;
/// A table is called `<pid>-<start of the process in clock ticks>-<serial><this>`.
pub const TABLE_SUFFIX: &str = ".table";
/// What the recorder could not write into a table is in files called `<this><pid>`.
pub const TROUBLE_PREFIX: &str = "trouble.";
