//! The mover: brings what is in the buffer to the PFS, and says what is left.
//!
//! `forebay_core::drain` plans; here is what carries the plan out. A drain is one [`Pass`] in a thread of the
//! bridge: [`names`] change places first, then [`contents`] are copied, then directories get their attributes
//! and, if nothing is left, the buffered copies go ([`finish`]).
#![forbid(unsafe_code)]

mod contents;
mod counters;
mod finish;
mod ground;
mod inventory;
mod names;
mod notes;
mod pass;
mod pfs;
mod processes;
mod publish;
mod throttle;

pub use counters::Counters;
pub use ground::{ENV_ABORT_AT, Ground, Halt, Namespace, Points};
pub use inventory::take as take_inventory;
pub use names::resume;
pub use pass::Pass;

/// Files copied at the same time, if nobody says otherwise.
pub const DEFAULT_WORKERS: u32 = 4;
