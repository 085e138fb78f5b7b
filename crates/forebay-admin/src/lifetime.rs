//! How long a bridge lives, for whoever asks.

use serde::{Deserialize, Serialize};

/// How long a bridge lives, and who needs it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LifetimeStatus {
    /// It lives until it is told to end.
    pub stay: bool,
    /// It is about to end and takes no further run.
    pub ending: bool,
    /// Processes of runs that use it.
    pub runs: Vec<u32>,
}
