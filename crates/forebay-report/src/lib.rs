//! Shows where a job's I/O time went, from any Darshan 3.x log: a summary for the terminal, one self-contained HTML
//! page, findings with seconds lost, and JSON for scripts.
//!
//! ```no_run
//! let logs = [std::path::PathBuf::from("job.darshan")];
//! for report in forebay_report::read(&logs)? {
//!     print!("{}", report.text());
//!     std::fs::write("job.html", report.html())?;
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`intake`] turns logs into a [`Job`], [`account`] sums it up, [`findings`] judges it. The views only show what these
//! say. Nothing looks at a clock or at the machine, so the same logs give the same report, byte by byte.
#![forbid(unsafe_code)]

mod account;
mod busy;
mod compare;
pub mod findings;
mod html;
mod identities;
pub mod intake;
mod json;
pub mod model;
mod plots;
#[cfg(test)]
mod sample;
mod sentences;
mod terminal;
pub mod text;
pub mod units;

pub use compare::{Comparison, compare};

pub use account::Account;
use darshan_log::{Log, OpenOptions};
use findings::{Finding, Severity, Thresholds};
use intake::NamedLog;
use model::{Avoided, FileUse, Job, Layer};
use plots::Plots;
use std::fmt;
use std::path::{Path, PathBuf};

/// A job with its sums and its findings.
#[derive(Debug, Clone)]
pub struct Report {
    /// The job.
    pub job: Job,
    /// The sums over it.
    pub account: Account,
    /// Its findings: those about the data first, then by seconds lost.
    pub findings: Vec<Finding>,
    /// What is known, and what not, if I/O takes much of the run and no finding says why.
    pub unexplained: Option<String>,
    /// For each of [`Job::collective`] the finding that there would have been without the collective layer.
    pub avoided: Vec<Option<Avoided>>,
}

/// A log that can't be read at all.
#[derive(Debug)]
pub struct Error {
    /// The log.
    pub path: PathBuf,
    /// What is wrong with it.
    pub source: darshan_log::Error,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", printable_path(&self.path), self.source)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// Reports of all jobs in these logs, ordered by the starts of jobs. Logs of one job are joined (see
/// [`intake::group`]).
///
/// # Errors
/// A file is no log, or its header is damaged. Other damage becomes a finding.
pub fn read(paths: &[PathBuf]) -> Result<Vec<Report>, Error> {
    let (reports, errors) = read_with(paths, &Thresholds::default());
    errors.into_iter().next().map_or(Ok(reports), Err)
}

/// Like [`read`], with other limits for the findings. It goes on after a log that can't be read.
pub fn read_with(paths: &[PathBuf], limits: &Thresholds) -> (Vec<Report>, Vec<Error>) {
    let (mut logs, mut errors) = (Vec::new(), Vec::new());
    for path in paths {
        match OpenOptions::new().lenient(true).open(path) {
            Ok(log) => {
                let name = path.file_name().map_or(path.as_path(), Path::new);
                logs.push((printable_path(name), log));
            }
            Err(source) => errors.push(Error {
                path: path.clone(),
                source,
            }),
        }
    }
    let named: Vec<NamedLog> = logs
        .iter()
        .map(|(name, log)| NamedLog { name, log })
        .collect();
    let reports = intake::group(&named)
        .into_iter()
        .map(|members| {
            let members: Vec<NamedLog> = members
                .iter()
                .map(|at| NamedLog {
                    name: named[*at].name,
                    log: named[*at].log,
                })
                .collect();
            Report::new(intake::job(&members), limits)
        })
        .collect();
    (reports, errors)
}

/// The report of one log that is open already, under the name `name`.
pub fn of_log(name: &str, log: &Log) -> Report {
    let name = text::printable(name.as_bytes());
    Report::new(
        intake::job(&[NamedLog { name: &name, log }]),
        &Thresholds::default(),
    )
}

fn printable_path(path: &Path) -> String {
    text::printable(path.as_os_str().as_encoded_bytes())
}

impl Report {
    /// Sums a job up and judges it.
    pub fn new(job: Job, limits: &Thresholds) -> Self {
        let account = Account::of(&job);
        let findings = findings::find(&job, &account, limits);
        let unexplained = findings::unexplained(&job, &account, &findings, limits);
        let told = job.collective.iter();
        let avoided = told
            .map(|one| findings::avoided(one, &job, limits))
            .collect();
        Report {
            avoided,
            job,
            account,
            findings,
            unexplained,
        }
    }

    /// The summary for a terminal: one screen of 80 columns, plain text, without anything that a terminal would obey.
    pub fn text(&self) -> String {
        terminal::screen(self, false)
    }

    /// [`text`](Self::text) with all findings and their evidence.
    pub fn long_text(&self) -> String {
        terminal::screen(self, true)
    }

    /// At most 12 rows (`  name         text`), to be shown at the end of a run.
    pub fn short_text(&self) -> String {
        terminal::short(self)
    }

    /// One line for the end of a run: what was moved, the time in I/O, and the most costly finding. A job of which
    /// nothing, or only a part, was recorded says so first.
    pub fn one_line(&self) -> String {
        terminal::one_line(self)
    }

    /// What nobody should miss: nothing was recorded, or only a part, or the numbers contradict each other.
    pub fn warning(&self) -> Option<&Finding> {
        terminal::warning(self)
    }

    /// The report as one self-contained HTML page.
    pub fn html(&self) -> String {
        html::page(self)
    }

    /// The report as JSON for scripts; docs/REPORT.md has the schema.
    pub fn json(&self) -> serde_json::Value {
        json::report(self)
    }

    /// What the pictures of the page draw.
    pub fn plots(&self) -> Plots {
        Plots::of(&self.job, &self.account)
    }

    /// Findings about time, most seconds first.
    pub fn timed(&self) -> Vec<&Finding> {
        self.findings
            .iter()
            .filter(|one| one.severity != Severity::Data)
            .collect()
    }

    /// Findings about time that are more than a note.
    pub fn costly(&self) -> Vec<&Finding> {
        self.timed()
            .into_iter()
            .filter(|one| one.severity != Severity::Note)
            .collect()
    }

    /// Files by the seconds of their slowest rank, at the interfaces whose time counts.
    pub fn slowest_files(&self, n: usize) -> Vec<(&Layer, &FileUse)> {
        let mut all: Vec<(f64, &Layer, &FileUse)> = self
            .job
            .layers
            .iter()
            .flat_map(|layer| layer.uses.iter().map(move |one| (layer, one)))
            .filter(|(_, one)| one.is_highest && !self.job.files[one.file].is_std_stream)
            .map(|(layer, one)| {
                (
                    one.slowest().map_or(0.0, |slowest| slowest.seconds),
                    layer,
                    one,
                )
            })
            .filter(|(seconds, ..)| *seconds > 0.0)
            .collect();
        all.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.2.file.cmp(&b.2.file)));
        all.into_iter()
            .take(n)
            .map(|(_, layer, one)| (layer, one))
            .collect()
    }
}
