//! What Forebay's collective layer did with files of MPI-IO, as it tells it itself.

use serde::{Deserialize, Serialize};

/// One file, from its opening to its closing.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Collective {
    /// Its path; printable.
    pub path: String,
    /// Ranks that had it open together.
    pub ranks: u64,
    /// What became of its collective calls.
    pub calls: Calls,
    /// How aggregators divide the file; `None` if it was left to the MPI library as a whole.
    pub method: Option<String>,
    /// Why.
    pub reason: Option<String>,
    /// The ranks that are aggregators.
    pub aggregators: Vec<u32>,
    /// The lock protocol that was reckoned with.
    pub locks: Option<String>,
    /// Pieces of all ranks in the calls that the layer carried out.
    pub pieces: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Reads and writes of the file in place of these pieces.
    pub file_calls: u64,
    /// Rounds of exchange, of the aggregator with most.
    pub rounds: u64,
    /// Seconds in these calls of the slowest rank.
    pub seconds: f64,
    /// The share of them in which that rank read and wrote the file.
    pub file_share: f64,
    /// Locks that each method needs for the largest call.
    pub predicted: Vec<Prediction>,
}

/// What became of collective calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Calls {
    /// Carried out by aggregators.
    pub exchanged: u64,
    /// Carried out by each rank for itself.
    pub direct: u64,
    /// Left to the MPI library, because it is as good there.
    pub left_as_good: u64,
    /// Left to it in atomic mode.
    pub left_atomic: u64,
    /// Left to it because of what they are.
    pub left_unfit: u64,
}

/// Locks that a method needs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Prediction {
    /// The method.
    pub method: String,
    /// Lock requests, if they can be predicted.
    pub requests: Option<u64>,
    /// Those that another aggregator has to give up a lock for.
    pub conflicts: Option<u64>,
}

/// What the report would have found if nobody had gathered the calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Avoided {
    /// The code of the finding.
    pub code: &'static str,
    /// Requests of the file that there would have been.
    pub requests: u64,
}

impl Collective {
    /// Calls that the layer carried out.
    pub fn taken(&self) -> u64 {
        self.calls.exchanged.saturating_add(self.calls.direct)
    }

    /// Calls that it left to the MPI library.
    pub fn left(&self) -> u64 {
        let calls = &self.calls;
        let left = [calls.left_as_good, calls.left_atomic, calls.left_unfit];
        left.into_iter().fold(0, u64::saturating_add)
    }

    /// Conflicts of the method that was chosen, and those of domains of equal size, as stock MPI-IO divides a file.
    pub fn conflicts(&self) -> Option<(u64, u64)> {
        let of = |method: &str| {
            let found = self.predicted.iter().find(|one| one.method == method)?;
            found.conflicts
        };
        Some((of(self.method.as_deref()?)?, of("even")?))
    }
}
