//! The message that says how long a bridge lives. `core::lifetime` decides it.

use serde::{Deserialize, Serialize};

/// How long a bridge lives, and who needs it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LifetimeStatus {
    /// The bridge lives until it is told to end.
    pub stay: bool,
    /// The bridge is about to end and takes no further run.
    pub ending: bool,
    /// Process ids of the runs that use the bridge.
    pub runs: Vec<u32>,
    /// Processes that have connected as programs. One that is dead has left its connection to a child.
    #[serde(default)]
    pub programs: Vec<u32>,
}
