//! The mover: brings what is in the buffer to the PFS, and says what is left.
//!
//! `forebay_core::drain` plans; here is what carries the plan out. A drain is one [`pass`] in a thread of the
//! bridge: [`names`] change places first, then [`contents`] are copied, then directories get their attributes
//! and, if nothing is left, the buffered copies go ([`finish`]). [`Mover`] takes the JSON commands.

mod admin;
mod bridge;
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
pub mod protocol;
mod publish;
mod runs;
mod sys;
mod throttle;

pub use admin::Mover;
pub use ground::{ENV_ABORT_AT, Halt};
pub use names::resume;

/// Files copied at the same time, if nobody says otherwise.
pub const DEFAULT_WORKERS: u32 = 4;

#[cfg(test)]
mod tests;
