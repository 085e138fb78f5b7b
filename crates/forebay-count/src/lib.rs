//! Counters of what a process reads and writes, in memory that outlives it.
//!
//! The recorder maps one **table** per process image and counts every call in it. The collector can read the same file
//! at any moment, whatever has killed the process. A table holds one **record** per file and interface ([`Kind`]): the
//! counters that Darshan defines, in Darshan's order, and next to them what the rules of counting have to remember.
//!
//! Memory is bounded. When it is full, the files that moved least are folded into one record of their directory. Their
//! patterns are lost; totals stay exact.
//!
//! The crate has no std, no allocation, no unsafe code, and never waits for long. A thread that finds a record locked
//! leaves its event in a side slot ([`pending`]), and the next thread to release the record counts it. So a signal
//! handler that interrupts a counted section holds up nobody, nor does a thread or process that is killed in one.
//!
//! | module | what it does |
//! |---|---|
//! | [`layout`] | where things are in a table |
//! | [`table`] | finds records, makes them, counts in them |
//! | [`record`] | one record |
//! | [`event`] | one call, as the rules see it |
//! | [`posix`], [`stdio`] | the rules of libc's interfaces |
//! | [`mpiio`], [`hdf5`], [`pnetcdf`] | the rules of I/O libraries; what they share is in [`library`] |
//! | [`handles`] | from a library's handle to a record |
//! | [`track`] | common values, timers, size buckets |
//! | [`heat`], [`busy`] | bytes and time in calls over time; what they share is in [`time_map`] |
//! | [`counter_clock`] | a clock that is cheaper than the kernel's |
//! | [`pending`] | events that found their record locked |
//! | [`path`] | names, their ids, and which paths are left out |
//! | [`read`], [`library_read`] | the reader's side: a table as values |
#![no_std]
#![forbid(unsafe_code)]

pub mod busy;
pub mod counter_clock;
pub mod event;
pub mod handles;
pub mod hdf5;
mod heap;
pub mod heat;
pub mod layout;
pub mod library;
mod library_read;
pub mod lock;
pub mod mpiio;
pub mod path;
mod pending;
pub mod pnetcdf;
pub mod posix;
pub mod read;
mod record;
pub mod stdio;
pub mod table;
mod time_map;
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
/// A table's file name is `<pid>-<start of the process in clock ticks>-<serial>` and this suffix.
pub const TABLE_SUFFIX: &str = ".table";
/// A process that could not make a table leaves a file whose name is this prefix and its pid.
pub const TROUBLE_PREFIX: &str = "trouble.";
/// A process with collective I/O that the layer for MPI-IO carried out tells of it in a file whose name is this prefix and
/// its pid: a line of JSON for each file that it has closed.
pub const COLLECTIVE_PREFIX: &str = "collective.";
