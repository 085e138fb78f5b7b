//! `forebay report`: shows where the I/O time of a job went, from its Darshan logs.

use crate::cli::{self, exit};
use crate::error::{Fault, fault};
use crate::place::plain;
use crate::verbs::tell;
use forebay_report::findings::Thresholds;
use forebay_report::{Report, compare};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Runs the verb.
pub fn report(args: &cli::ReportArgs, verbose: bool) -> Result<u8, Fault> {
    let limits = limits(args.rules.as_deref())?;
    match args.compare.as_slice() {
        [before, after] => {
            let (before, after) = (one_job(before, &limits)?, one_job(after, &limits)?);
            let comparison = compare(&before, &after);
            if let Some(file) = &args.html {
                save(file, &comparison.html())?;
            }
            tell(&match (args.json, &args.html) {
                (true, _) => format!("{:#}\n", comparison.json()),
                (false, Some(file)) => format!("{} written\n", file.display()),
                (false, None) => comparison.text(),
            })?;
            Ok(exit::OK)
        }
        _ => jobs(args, &limits, verbose),
    }
}

fn jobs(args: &cli::ReportArgs, limits: &Thresholds, verbose: bool) -> Result<u8, Fault> {
    let mut paths = Vec::new();
    for path in &args.logs {
        paths.extend(logs_at(path)?);
    }
    let (reports, errors) = forebay_report::read_with(&paths, limits);
    for error in &errors {
        eprintln!("forebay: {error}");
    }
    if let Some(file) = &args.html {
        let [report] = reports.as_slice() else {
            return Err(fault(format!(
                "--html shows one job, these logs are of {}",
                reports.len()
            ))
            .hint("name the logs of one job; without --html all jobs are listed"));
        };
        save(file, &report.html())?;
    }
    tell(&match &args.html {
        _ if args.json => format!("{:#}\n", Value::from_iter(reports.iter().map(Report::json))),
        Some(file) => format!("{} written\n", file.display()),
        None => texts(&reports, verbose),
    })?;
    Ok(if errors.is_empty() {
        exit::OK
    } else {
        exit::FAILURE
    })
}

/// The text of each job, with a line of dashes between them.
fn texts(reports: &[Report], verbose: bool) -> String {
    let texts: Vec<String> = reports
        .iter()
        .map(|report| {
            if verbose {
                report.long_text()
            } else {
                report.text()
            }
        })
        .collect();
    texts.join(&format!("{}\n", "-".repeat(80)))
}

/// The log at `path`, or all logs in that directory.
fn logs_at(path: &Path) -> Result<Vec<PathBuf>, Fault> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let failed = |e| fault(format!("{}: {}", path.display(), plain(&e)));
    let mut logs = Vec::new();
    for entry in std::fs::read_dir(path).map_err(failed)? {
        let entry = entry.map_err(failed)?.path();
        if entry
            .extension()
            .is_some_and(|extension| extension == "darshan")
        {
            logs.push(entry);
        }
    }
    if logs.is_empty() {
        return Err(fault(format!("{} holds no log", path.display()))
            .hint("logs are files whose names end in .darshan"));
    }
    logs.sort();
    Ok(logs)
}

fn one_job(path: &Path, limits: &Thresholds) -> Result<Report, Fault> {
    let (mut reports, errors) = forebay_report::read_with(&logs_at(path)?, limits);
    if let Some(error) = errors.into_iter().next() {
        return Err(fault(error.to_string()).because(error));
    }
    match (reports.pop(), reports.is_empty()) {
        (Some(report), true) => Ok(report),
        _ => Err(
            fault(format!("{} holds logs of several jobs", path.display())).hint(
                "--compare takes a log, or a directory with the logs of one job, for each run",
            ),
        ),
    }
}

fn limits(file: Option<&Path>) -> Result<Thresholds, Fault> {
    let Some(file) = file else {
        return Ok(Thresholds::default());
    };
    let text = std::fs::read_to_string(file)
        .map_err(|e| fault(format!("--rules {}: {}", file.display(), plain(&e))))?;
    Thresholds::from_json(&text).map_err(|e| {
        fault(format!("--rules {}: {e}", file.display())).hint("docs/REPORT.md names all limits")
    })
}

fn save(file: &Path, text: &str) -> Result<(), Fault> {
    std::fs::write(file, text)
        .map_err(|e| fault(format!("--html {}: {}", file.display(), plain(&e))))
}
