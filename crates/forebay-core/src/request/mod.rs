//! The request machine: one request from its arrival to its answer, without I/O.
//!
//! A request of a client becomes a [`Pending`]. Its driver calls [`Pending::step`] and carries out
//! the [`Effect`] that comes back: look at the PFS, fetch what another bridge knows, make a backing
//! object, open what is granted, commit, answer. It hands the outcome in ([`Pending::looked`],
//! [`Pending::made`], ...) and steps again, until the effect is [`Effect::Finish`]. The server and
//! the fault simulator drive this machine and have no other loop around [`crate::ops::decide`].
//!
//! - **Nothing waits in a thread.** While an effect is carried out elsewhere the driver parks the
//!   request ([`Parking`]) and goes on with others.
//! - **A step sees one moment.** `step` reads the tables through [`World`]; the driver guarantees
//!   that no commit happens meanwhile. A decision that changes something is only carried out if the
//!   driver holds the *turn to commit* from the step to the commit; else the step answers
//!   [`Effect::TakeTurn`]. A `rmdir` that takes long may be stepped without that; then [`Meanwhile`]
//!   says whether the driver may carry out what comes back. With several bridges what the decision relied on goes along as a
//!   [`crate::bridge::ReadSet`] and is checked at its homes.
//! - **What is opened is looked at again.** A grant is opened after the step, without a lock. If a
//!   commit has happened meanwhile the machine decides anew, and only the same answer makes the
//!   open count. So an object may get another name, another life or none at any time.

mod effect;
mod grant;
mod known;
mod look;
mod meanwhile;
mod outcome;
mod parking;
mod pending;
#[cfg(test)]
mod tests;
mod turns;

pub use effect::{Caller, Commit, Effect, Failure, Finish, Looked};
pub use grant::{Form, GRANT_FLAGS, Granting, new_file_flags};
pub use known::Known;
pub use look::{Look, World};
pub use meanwhile::Meanwhile;
pub use parking::{MAX_PARKED, Parking};
pub use pending::{MAX_LOST_RACES, MAX_STEPS, Pending};
pub use turns::{Entered, Turns};
