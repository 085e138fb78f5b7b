//! The line that `forebay-load` prints after a workload.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What one operation cost.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Seconds on the clock on the wall, over the operations of all processes.
    pub wall: f64,
    /// Seconds of processor time (user and system) of the processes that make the calls. On a
    /// machine that others use at the same time, this moves less than the wall time.
    pub cpu: f64,
}

/// One workload, run once in one place.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// [`crate::catalogue::Workload::name`].
    pub workload: String,
    /// By [`crate::catalogue::Row::name`]: one operation, once per repetition.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub costs: BTreeMap<String, Vec<Cost>>,
    /// What went wrong; there are no costs then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}
