//! The line that `forebay-load` prints after a workload.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The cost of one operation.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Seconds of wall time, divided by the operations of all processes.
    pub wall: f64,
    /// Seconds of processor time (user and system) of the processes that make the calls. On a
    /// busy machine it varies less than the wall time.
    pub cpu: f64,
}

/// One workload, run once in one place.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// [`crate::catalogue::Workload::name`].
    pub workload: String,
    /// The cost of one operation in each repetition, by [`crate::catalogue::Row::name`].
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub costs: BTreeMap<String, Vec<Cost>>,
    /// The error, if the workload failed. There are no costs then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}
