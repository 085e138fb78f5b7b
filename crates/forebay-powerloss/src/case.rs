//! One recording, and how its images are recovered.

use crate::log::Log;
use crate::oracle::Progress;
use crate::pick::Pick;
use crate::workload::Workload;
use std::fmt;
use std::str::FromStr;

/// How a storage is recovered after a power loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Recovery {
    /// `forebay drain`.
    Drain,
    /// The start of a bridge for a run; then, unless the power goes, `forebay drain`.
    Start,
    /// `forebay fsck --rebuild`, then `forebay drain`.
    Rebuild,
}

const RECOVERIES: [(Recovery, &str); 3] = [
    (Recovery::Drain, "drain"),
    (Recovery::Start, "start"),
    (Recovery::Rebuild, "rebuild"),
];

impl fmt::Display for Recovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = RECOVERIES.iter().find(|(recovery, _)| recovery == self);
        f.write_str(known.map_or("", |(_, name)| name))
    }
}

impl FromStr for Recovery {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = RECOVERIES.iter().find(|(_, name)| *name == text);
        known
            .map(|(recovery, _)| *recovery)
            .ok_or_else(|| format!("{text} is not drain, start or rebuild"))
    }
}

/// A recovery that lost the power, too: how, and of which image of the first recording. As text `RECOVERY@PICK`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Interrupted {
    /// How it recovered.
    pub recovery: Recovery,
    /// What it found.
    pub first: Pick,
}

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.recovery, self.first)
    }
}

impl FromStr for Interrupted {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (recovery, first) = text
            .split_once('@')
            .ok_or_else(|| format!("{text} is not RECOVERY@POINT:RULE:SEED"))?;
        Ok(Interrupted {
            recovery: recovery.parse()?,
            first: first.parse()?,
        })
    }
}

/// One recording, and how its images are recovered. As text: the arguments by which the command knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Case {
    /// What runs.
    pub workload: Workload,
    /// The seed of that.
    pub seed: u64,
    /// If not the workload was recorded, but a recovery after it.
    pub interrupted: Option<Interrupted>,
    /// How images are recovered.
    pub recovery: Recovery,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.arguments().join(" "))
    }
}

impl Case {
    /// As arguments of the command.
    pub fn arguments(&self) -> Vec<String> {
        let mut all = vec![
            self.workload.to_string(),
            "--seed".into(),
            self.seed.to_string(),
        ];
        if let Some(interrupted) = self.interrupted {
            all.extend(["--interrupted".into(), interrupted.to_string()]);
        }
        if self.recovery != Recovery::Drain {
            all.extend(["--recovery".into(), self.recovery.to_string()]);
        }
        all
    }

    /// Name of the log of its recording.
    pub fn log_name(&self) -> String {
        let mut name = format!("{}-{}", self.workload, self.seed);
        if let Some(interrupted) = self.interrupted {
            name = format!("{name}-{interrupted}");
        }
        if self.recovery != Recovery::Drain {
            name = format!("{name}-{}", self.recovery);
        }
        name.replace(['/', '@', ':'], "-") + ".log"
    }

    /// How far the workload was when the power went before the event `point`.
    pub fn progress(&self, log: &Log, point: usize) -> Progress {
        let mut progress = Progress::of(log.said(point), log.time_of(point));
        if !self.workload.has_names_limit() {
            progress.aged = 0;
        }
        progress
    }

    /// Were, or will be, the tables made anew from the labels?
    pub fn is_rebuilt(&self) -> bool {
        let before = self.interrupted.map(|interrupted| interrupted.recovery);
        self.recovery == Recovery::Rebuild || before == Some(Recovery::Rebuild)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_is_read_as_it_is_written() {
        let text = "rebuild@12:torn:34";
        let interrupted: Interrupted = text.parse().unwrap();
        assert_eq!(interrupted.to_string(), text);
        assert!("rebuild".parse::<Interrupted>().is_err());
        assert!("undo@1:none:0".parse::<Interrupted>().is_err());
        let case = Case {
            workload: "up/mixed".parse().unwrap(),
            seed: 7,
            interrupted: Some(interrupted),
            recovery: Recovery::Start,
        };
        let wanted = "up/mixed --seed 7 --interrupted rebuild@12:torn:34 --recovery start";
        assert_eq!(case.to_string(), wanted);
        assert_eq!(case.log_name(), "up-mixed-7-rebuild-12-torn-34-start.log");
    }
}
