//! What was found about one image, as workers tell it.

use crate::oracle::Fault;
use serde::{Deserialize, Serialize};

/// The faults of one image; none if all is well.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// Kind, and what was seen.
    pub faults: Vec<(Fault, String)>,
    /// The recovery said that it withholds something (exit status 75).
    pub withheld: bool,
}

impl Verdict {
    /// The verdict of one fault.
    pub fn of(fault: Fault, seen: impl Into<String>) -> Self {
        Verdict {
            faults: vec![(fault, seen.into())],
            withheld: false,
        }
    }

    /// Adds a fault.
    pub fn fault(&mut self, fault: Fault, seen: impl Into<String>) {
        self.faults.push((fault, seen.into()));
    }

    /// Does it name a fault of this kind?
    pub fn has(&self, fault: Fault) -> bool {
        self.faults.iter().any(|(kind, _)| *kind == fault)
    }
}
