//! `forebay sim`: the simulators.

use crate::cli::{self, SimVerb};
use crate::error::{Fault, fault};

/// Runs the verb.
pub fn sim(args: &cli::Sim, _verbose: bool) -> Result<u8, Fault> {
    match args.what {
        SimVerb::Faults { .. } => Err(fault("this build has no fault simulator")),
    }
}
