//! The message that says how long a bridge lives. `core::lifetime` decides it.

use serde::{Deserialize, Serialize};

/// The verb by which a process uses a bridge.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verb {
    /// `forebay run`.
    #[default]
    Run,
    /// `forebay attach`, whose process becomes its command.
    Attach,
    /// `forebay mount`.
    Mount,
    /// `forebay drain`, or `down`.
    Drain,
    /// `forebay quarantine`.
    Quarantine,
}

/// How long a bridge lives, and who needs it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LifetimeStatus {
    /// The bridge lives until it is told to end.
    pub stay: bool,
    /// The bridge is about to end and takes no further run.
    pub ending: bool,
    /// Process ids of the runs, mounts and drains that use the bridge.
    pub runs: Vec<u32>,
    /// What each of them is.
    #[serde(default)]
    pub verbs: Vec<Verb>,
    /// Processes that have connected as programs. One that is dead has left its connection to a child.
    #[serde(default)]
    pub programs: Vec<u32>,
}

impl LifetimeStatus {
    /// The processes of [`LifetimeStatus::runs`], each with what it is.
    pub fn users(&self) -> impl Iterator<Item = (u32, Verb)> {
        let verbs = self.verbs.iter().copied();
        let verbs = verbs.chain(std::iter::repeat(Verb::default()));
        self.runs.iter().copied().zip(verbs)
    }
}
