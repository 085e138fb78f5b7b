//! The lock laboratory: core's plans for collective I/O on a modelled machine, with one of several lock managers.
//!
//! # What runs
//!
//! Core's own code ([`forebay_core::collective`]) divides the file, plans the exchange and selects the aggregators. Around
//! it are modelled: aggregators with a write-behind window, a network, I/O servers that serve first come first served and
//! seek, and a lock manager. Times are whole nanoseconds; there is no chance in it, so the same parameters give the
//! same output.
//!
//! The lock managers ([`Locks`]): the greedy extent locks of the SC'08 paper on each server, byte-range tokens of the whole
//! file (FAST'02), the growth rules of Lustre's `ldlm_extent.c` on each server, one lock for the whole file, and none.
//!
//! The benchmark is ROMIO's `coll_perf`, and the figures are 4 to 7 of the paper. Systems and figures are
//! [`Parameters`]; those that are compiled in name the source of each value.
//!
//! A [`Trace`] of the collective layer is run in the same way: a [`Replay`] has its calls with as many processes as were
//! captured, and with more by the pattern of their accesses ([`forebay_core::collective::Decomposition`]).
//!
//! # What is not
//!
//! The exchange of a round costs what it costs its busiest aggregator; messages do not meet each other on the network.
//! Servers have no cache of their own but in `read_seek_us`. Every call begins without locks. Granules that
//! nobody accesses are neither written nor read; holes inside a granule are (the benchmark has none).
//!
//! ```
//! use forebay_core::collective::Method;
//! use forebay_sim::collective::{Parameters, measure};
//! let lustre = &Parameters::default().systems["lustre"];
//! let conflicts = |method| measure(lustre, method, u32::MAX, 100, 64).write.conflicts;
//! assert_eq!(conflicts(Method::StaticCyclic), 0);
//! assert!(conflicts(Method::Aligned) > 400);
//! ```

mod benchmark;
mod chart;
mod locks;
mod machine;
mod parameters;
mod replay;
mod report;
mod trace;

pub use benchmark::{Point, array_blocks, choice, measure, run_figure};
pub use chart::{chart, chart_replays};
pub use locks::{LockTable, Locks};
pub use machine::{Direction, Outcome, System};
pub use parameters::{DEFAULT_PARAMETERS, Figure, ParameterError, Parameters};
pub use replay::{AlikeCalls, NotReplayed, Replay, ReplayError, UnderLocks, alike};
pub use report::tables;
pub use trace::{CapturedCall, CapturedSettings, MAX_PROCESSES, Trace, TraceError};
