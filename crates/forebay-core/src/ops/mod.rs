//! File operations: what each of them does to the namespace.
//!
//! [`decide`] is the one door. It reads [`Facts`] and returns a [`Decision`]:
//! changes for the tables (one atomic batch), an answer for the client, and
//! work on backing objects that follows the commit.

mod decision;

pub use decision::{Answer, Decision, Effect, Entry, GrantTarget, Op, Request, Start};

use crate::facts::{Cred, Facts, Outcome, Settings};

/// Decides one request.
///
/// # Errors
/// [`crate::facts::Stop`]: an errno for the client, a redirect, or a fact that is needed first.
pub fn decide(
    _request: &Request,
    _cred: &Cred,
    _settings: &Settings,
    _facts: &dyn Facts,
) -> Outcome<Decision> {
    todo!("being written")
}
