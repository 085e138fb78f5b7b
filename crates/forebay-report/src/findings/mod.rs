//! Findings: what costs the job time, how much, by what evidence, and what to change.
//!
//! A rule is a pure function of the [`Job`]. It fires on a pattern that exceeds [`Thresholds`]. Then it estimates the
//! **seconds lost**, by which the slowest rank would have been quicker. The finding states the formula and its
//! assumptions. Severity follows from the estimate alone; where none can be defended, from half of the seconds that the
//! finding is about. Estimates of different findings overlap, so they don't add
//! up.

mod balance;
mod calibration;
mod collective;
mod containers;
mod late;
mod layers;
mod locks;
mod loss;
mod metadata;
mod mounts;
mod nodes;
mod pace;
mod places;
mod quality;
mod read_ahead;
mod requests;
mod rereads;
mod storms;
mod syncs;
mod thresholds;
mod timeline;
mod unexplained;
mod waits;

pub(crate) use quality::NOTHING_RECORDED;
pub use thresholds::Thresholds;
pub(crate) use unexplained::unexplained;

pub(crate) use collective::avoided;

use loss::Loss;

use crate::account::Account;
use crate::model::{BUCKET_NAMES, Job};
use crate::text::speak_of_processes;
use crate::units;
use serde::Serialize;
use std::collections::HashSet;

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

/// The seconds of one of the things that a finding compares: a file, a storage target.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Measured {
    /// Printable name.
    pub name: String,
    /// Its seconds.
    pub seconds: f64,
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
    /// Estimate of the seconds that the slowest rank lost; `None` for findings about the data, and where no estimate
    /// can be defended.
    pub seconds_lost: Option<f64>,
    /// Where the loss is not estimated, or less than a rank waited: the seconds of the slowest rank that the finding is about.
    pub concerned_seconds: Option<f64>,
    /// Formula of the estimate, with its assumptions.
    pub estimate: String,
    /// How far the estimate can be trusted.
    pub confidence: Confidence,
    /// Counters and ranks.
    pub evidence: Vec<String>,
    /// Files, most costly first.
    pub files: Vec<FileEvidence>,
    /// Requests of these files by size, in the direction that the finding is about; `None` if it is not about sizes.
    pub sizes: Option<[u64; BUCKET_NAMES.len()]>,
    /// The seconds that it compares, most first; empty if it compares something else.
    pub measured: Vec<Measured>,
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
    /// Files whose requests are mostly those of a library, see [`containers::amplified`].
    amplified: HashSet<usize>,
}

/// Most files that a finding names.
const NAMED_FILES: usize = 5;
/// Most ranks that a finding names.
const NAMED_RANKS: usize = 5;
/// Most seconds that a finding compares.
const MOST_MEASURED: usize = 8;

/// Applies all rules: findings about the data first, then by seconds lost.
pub fn find(job: &Job, account: &Account, limits: &Thresholds) -> Vec<Finding> {
    let subject = Subject {
        job,
        account,
        limits,
        amplified: containers::amplified(job, limits),
    };
    let rules: &[fn(&Subject) -> Vec<Finding>] = &[
        quality::rules,
        requests::rules,
        syncs::rules,
        read_ahead::rules,
        rereads::rules,
        metadata::rules,
        storms::rules,
        balance::rules,
        collective::rules,
        timeline::rules,
        layers::rules,
        nodes::rules,
        mounts::rules,
        locks::rules,
        containers::rules,
        late::rules,
        requests::layer_rules,
        waits::rules,
    ];
    let mut found: Vec<Finding> = rules.iter().flat_map(|rule| rule(&subject)).collect();
    for finding in &mut found {
        settle(finding, job, account, limits);
        if job.rank_count() == 0 {
            finding.speak_of_processes();
        }
    }
    found.retain(|one| one.weight() >= LEAST_SECONDS || one.severity == Severity::Data);
    found.sort_by(|a, b| {
        (a.severity != Severity::Data)
            .cmp(&(b.severity != Severity::Data))
            .then((a.code != NOTHING_RECORDED).cmp(&(b.code != NOTHING_RECORDED)))
            .then(b.weight().total_cmp(&a.weight()))
            .then(a.code.cmp(b.code))
    });
    found
}

/// Sets the severity by the share of the run time. The seconds lost are limited to those that the slowest rank spent in
/// I/O, unless the finding is about ranks that wait for the I/O of others,
/// or about a library, whose own time is not counted as I/O.
fn settle(finding: &mut Finding, job: &Job, account: &Account, limits: &Thresholds) {
    let spent = match finding.code {
        timeline::TAKE_TURNS | waits::CODE | containers::AMPLIFICATION | containers::TIME => {
            job.run_seconds
        }
        _ => account.slowest.map_or(0.0, |slowest| slowest.seconds),
    };
    let most = spent.max(0.0).min(job.run_seconds);
    for seconds in [&mut finding.seconds_lost, &mut finding.concerned_seconds] {
        *seconds = seconds.map(|seconds| seconds.clamp(0.0, most));
    }
    if finding.seconds_lost.is_none() && finding.concerned_seconds.is_none() {
        finding.severity = Severity::Data;
        return;
    }
    let share = units::share(finding.weight(), job.run_seconds);
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

/// Less than this many seconds are no finding.
const LEAST_SECONDS: f64 = 1e-3;

/// The command that puts Forebay's buffer under the job; `None` for a job that had one, and for jobs on several nodes, which
/// it can't serve.
fn buffer_setting(subject: &Subject, effect: &str) -> Option<String> {
    let may_be_one_node = subject.job.nodes.is_none_or(|nodes| nodes == 1);
    (may_be_one_node && !subject.job.is_buffered()).then(|| {
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
            concerned_seconds: None,
            estimate: String::new(),
            confidence: Confidence::Medium,
            evidence: Vec::new(),
            files: Vec::new(),
            sizes: None,
            measured: Vec::new(),
            advice: String::new(),
            setting: None,
        }
    }

    /// A finding whose loss can't be estimated; it is about this many seconds of the slowest rank.
    fn not_estimated(code: &'static str, title: String, concerned_seconds: f64) -> Self {
        Finding {
            seconds_lost: None,
            concerned_seconds: Some(concerned_seconds),
            estimate: "not estimated".to_owned(),
            confidence: Confidence::Low,
            ..Finding::new(code, title, 0.0)
        }
    }

    /// The same with the seconds of `loss`, and the reason why no loss can be estimated.
    fn not_estimated_for(
        subject: &Subject,
        code: &'static str,
        title: String,
        loss: &Loss,
        why: &str,
    ) -> Self {
        Finding {
            estimate: format!("not estimated: {why}; {}", loss.where_lost(subject.job)),
            ..Finding::not_estimated(code, title, loss.seconds)
        }
    }

    /// Rules speak of ranks. In a job without MPI these are processes.
    fn speak_of_processes(&mut self) {
        let texts = [&mut self.title, &mut self.estimate, &mut self.advice];
        let details = self.files.iter_mut().map(|file| &mut file.detail);
        for text in texts.into_iter().chain(&mut self.evidence).chain(details) {
            *text = speak_of_processes(text);
        }
    }

    /// The seconds by which it is judged. Of those that an unknown part of was lost, half counts: the middle between
    /// none and all.
    fn weight(&self) -> f64 {
        let half = self.concerned_seconds.map(|seconds| seconds / 2.0);
        self.seconds_lost.or(half).unwrap_or(0.0)
    }

    /// What it costs, in a few words.
    pub(crate) fn cost_text(&self, job: &Job) -> String {
        let about = self.seconds_lost.or(self.concerned_seconds).unwrap_or(0.0);
        let share = units::percent(units::share(about, job.run_seconds));
        let seconds = units::seconds(about);
        match self.seconds_lost {
            Some(_) => format!("up to {seconds} ({share} of the run)"),
            None => format!("a part of {seconds} ({share} of the run), not estimated"),
        }
    }

    /// A finding whose seconds are those of `loss`. Its estimate ends with the rank that lost most.
    fn of_loss(
        subject: &Subject,
        code: &'static str,
        title: String,
        loss: &Loss,
        estimate: String,
    ) -> Self {
        Finding {
            estimate: format!("{estimate}; {}", loss.where_lost(subject.job)),
            ..Finding::new(code, title, loss.seconds)
        }
    }
}

#[cfg(test)]
mod tests;
