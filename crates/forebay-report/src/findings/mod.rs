//! Findings: what costs the job time, how much, by what evidence, and what to change.
//!
//! A rule is a pure function of the [`Job`]. It fires on a pattern that exceeds [`Thresholds`]. Then it estimates the
//! **seconds lost**, by which the slowest rank would have been quicker. The finding states the formula and its
//! assumptions. Severity follows from the estimate alone. Estimates of different findings overlap, so they don't add
//! up.

mod balance;
mod collective;
mod loss;
mod metadata;
mod quality;
mod requests;
mod rereads;
mod thresholds;
mod timeline;

pub use thresholds::Thresholds;

use loss::Loss;

use crate::account::Account;
use crate::model::Job;
use crate::units;
use serde::Serialize;

/// How much a finding matters, by its seconds lost as a share of the run time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The finding is not about time: the numbers themselves are incomplete.
    Data,
    /// From [`Thresholds::high_share`] on.
    High,
    /// From [`Thresholds::medium_share`] on.
    Medium,
    /// From [`Thresholds::low_share`] on.
    Low,
    /// The pattern is there, but costs next to nothing in this job.
    Note,
}

impl Severity {
    /// The name in one word.
    pub fn name(self) -> &'static str {
        match self {
            Severity::Data => "data",
            Severity::High => "high",
            Severity::Medium => "medium",
            Severity::Low => "low",
            Severity::Note => "note",
        }
    }
}

/// How far the estimate can be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Confidence {
    /// It is made of measured times alone.
    High,
    /// It is made of measured times and a cost model.
    Medium,
    /// It needs a cost model whose assumptions may not hold on this file system.
    Low,
}

impl Confidence {
    /// The name in one word.
    pub fn name(self) -> &'static str {
        match self {
            Confidence::High => "high",
            Confidence::Medium => "medium",
            Confidence::Low => "low",
        }
    }
}

/// A file that a finding is about.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FileEvidence {
    /// Printable name.
    pub name: String,
    /// What was found in this file.
    pub detail: String,
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    /// Stable name of the rule.
    pub code: &'static str,
    /// The finding in one line.
    pub title: String,
    /// How much it matters; [`find`] sets it.
    pub severity: Severity,
    /// Estimate of the seconds that the slowest rank lost; `None` for findings about the data.
    pub seconds_lost: Option<f64>,
    /// Formula of the estimate, with its assumptions.
    pub estimate: String,
    /// How far the estimate can be trusted.
    pub confidence: Confidence,
    /// Counters and ranks.
    pub evidence: Vec<String>,
    /// Files, most costly first.
    pub files: Vec<FileEvidence>,
    /// What to change.
    pub advice: String,
    /// The Forebay command that does it, if there is one.
    pub setting: Option<String>,
}

/// What rules look at.
struct Subject<'a> {
    job: &'a Job,
    account: &'a Account,
    limits: &'a Thresholds,
}

/// Most files that a finding names.
const NAMED_FILES: usize = 5;

/// Applies all rules: findings about the data first, then by seconds lost.
pub fn find(job: &Job, account: &Account, limits: &Thresholds) -> Vec<Finding> {
    let subject = Subject {
        job,
        account,
        limits,
    };
    let rules: [fn(&Subject) -> Vec<Finding>; 8] = [
        quality::rules,
        requests::rules,
        rereads::rules,
        metadata::rules,
        balance::rules,
        collective::rules,
        timeline::rules,
        requests::layer_rules,
    ];
    let mut found: Vec<Finding> = rules.iter().flat_map(|rule| rule(&subject)).collect();
    for finding in &mut found {
        settle(finding, job, account, limits);
    }
    found.sort_by(|a, b| {
        (a.severity != Severity::Data)
            .cmp(&(b.severity != Severity::Data))
            .then(
                b.seconds_lost
                    .unwrap_or(0.0)
                    .total_cmp(&a.seconds_lost.unwrap_or(0.0)),
            )
            .then(a.code.cmp(b.code))
    });
    found
}

/// Sets the severity by the share of the run time. The seconds lost are limited to those that the slowest rank spent in
/// I/O.
fn settle(finding: &mut Finding, job: &Job, account: &Account, limits: &Thresholds) {
    let Some(seconds) = finding.seconds_lost else {
        finding.severity = Severity::Data;
        return;
    };
    let spent = account.slowest.map_or(0.0, |slowest| slowest.seconds);
    let seconds = seconds.clamp(0.0, spent.max(0.0)).min(job.run_seconds);
    finding.seconds_lost = Some(seconds);
    let share = units::share(seconds, job.run_seconds);
    finding.severity = if share >= limits.high_share {
        Severity::High
    } else if share >= limits.medium_share {
        Severity::Medium
    } else if share >= limits.low_share {
        Severity::Low
    } else {
        Severity::Note
    };
}

/// The share of the run time that a finding lost, for texts.
pub fn lost_share(finding: &Finding, job: &Job) -> f64 {
    units::share(finding.seconds_lost.unwrap_or(0.0), job.run_seconds)
}

/// The command that puts Forebay's buffer under the job; `None` for jobs on several nodes, which it can't serve.
fn buffer_setting(subject: &Subject, effect: &str) -> Option<String> {
    let may_be_one_node = subject.job.nodes.is_none_or(|nodes| nodes == 1);
    may_be_one_node.then(|| {
        let unless = if subject.job.nodes.is_none() {
            " (jobs on one node; this log does not say on how many it ran)"
        } else {
            ""
        };
        format!("forebay run --buffer DIR -- CMD: {effect}{unless}")
    })
}

impl Finding {
    /// A finding without evidence; [`settle`] sets its severity.
    fn new(code: &'static str, title: String, seconds_lost: f64) -> Self {
        Finding {
            code,
            title,
            severity: Severity::Note,
            seconds_lost: Some(seconds_lost),
            estimate: String::new(),
            confidence: Confidence::Medium,
            evidence: Vec::new(),
            files: Vec::new(),
            advice: String::new(),
            setting: None,
        }
    }

    /// A finding whose seconds are those of `loss`. Its estimate ends with the rank that lost most.
    fn of_loss(code: &'static str, title: String, loss: &Loss, estimate: String) -> Self {
        Finding {
            estimate: format!("{estimate}; {}", loss.where_lost()),
            ..Finding::new(code, title, loss.seconds)
        }
    }
}

#[cfg(test)]
mod tests;
