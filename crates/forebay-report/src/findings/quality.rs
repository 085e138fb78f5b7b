//! Findings about the data itself: what the numbers leave out.

use super::{Confidence, Finding, Severity, Subject};
use crate::model::{Coverage, Job, Unplaced};
use crate::sentences::coverage_text;
use crate::units::{bytes, count, percent};

/// All rules on the data.
pub(super) fn rules(subject: &Subject) -> Vec<Finding> {
    let nothing = nothing_recorded(subject);
    // That it was nothing says more than how much it was not.
    let coverage = coverage(subject).filter(|_| nothing.is_none());
    [
        damage(subject),
        nothing,
        partial(subject),
        coverage,
        losses(subject),
        unplaced(subject),
        condensed(subject),
        contradictions(subject),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn about_data(code: &'static str, title: String) -> Finding {
    Finding {
        severity: Severity::Data,
        seconds_lost: None,
        confidence: Confidence::High,
        ..Finding::new(code, title, 0.0)
    }
}

fn partial(subject: &Subject) -> Option<Finding> {
    let names: Vec<&str> = subject
        .job
        .modules
        .iter()
        .filter(|module| module.is_partial)
        .map(|module| module.name.as_str())
        .collect();
    if names.is_empty() {
        return None;
    }
    let mut finding = about_data(
        "partial-data",
        format!(
            "The log is incomplete: {} ran out of memory",
            names.join(", ")
        ),
    );
    finding.evidence = names
        .iter()
        .map(|name| {
            if name.starts_with("DXT") {
                format!("{name}: later requests are not in the trace; counters are not affected")
            } else {
                format!("{name}: files opened later are missing; sums are lower bounds")
            }
        })
        .collect();
    finding.advice =
        "Record again with more memory for the recorder, or leave out files that do not matter."
            .to_owned();
    Some(finding)
}

fn coverage(subject: &Subject) -> Option<Finding> {
    let coverage = subject.job.coverage.filter(Coverage::is_known)?;
    let unseen = coverage.total.saturating_sub(coverage.seen);
    let unseen = unseen.saturating_sub(LINKER_BYTES * processes(subject.job).unwrap_or(0));
    if coverage.share() >= subject.limits.coverage_share
        || unseen < subject.limits.coverage_unseen_bytes
    {
        return None;
    }
    let mut finding = about_data(
        "low-coverage",
        format!(
            "The recorder saw {} of the bytes that the kernel counted",
            percent(coverage.share())
        ),
    );
    finding.evidence = vec![format!(
        "{} of {} in /proc/PID/io",
        bytes(coverage.seen),
        bytes(coverage.total)
    )];
    finding.advice = "Look for statically linked programs, io_uring or direct system calls: the recorder misses them."
        .to_owned();
    Some(finding)
}

/// Bytes that the dynamic linker reads in a process, before and beside what can be recorded.
const LINKER_BYTES: u64 = 16 << 10;

fn processes(job: &Job) -> Option<u64> {
    let text = job.metadata.get("processes")?;
    // Within what a machine can run.
    text.parse().ok().filter(|n| *n < 1 << 32)
}

/// The code of the finding on a job of which nothing is known.
pub(crate) const NOTHING_RECORDED: &str = "nothing-recorded";

/// Bytes that a process reads without any I/O of its own: its libraries.
const START_BYTES: u64 = 64 << 10;

/// Fires on a job that did I/O of which no file is in the log, or whose processes left nothing at all.
fn nothing_recorded(subject: &Subject) -> Option<Finding> {
    let job = subject.job;
    let has_files = job
        .layers
        .iter()
        .flat_map(|layer| &layer.uses)
        .any(|one| !job.files[one.file].is_std_stream && one.total.opens + one.total.ops() > 0);
    let processes = processes(job);
    let unseen = job
        .coverage
        .map_or(0, |coverage| coverage.total.saturating_sub(coverage.seen));
    let is_most = job.coverage.is_some_and(|coverage| coverage.share() < 0.5);
    let is_much = is_most && unseen > START_BYTES * processes.unwrap_or(1).max(1);
    let title = match processes {
        Some(0) => "Nothing was recorded: no process of this job left a count",
        _ if !has_files && is_much => "Nothing was recorded of what this job read and wrote",
        _ => return None,
    };
    let mut finding = about_data(NOTHING_RECORDED, title.to_owned());
    finding.evidence = job.coverage.iter().map(coverage_text).collect();
    finding.advice = "The program did not load the recorder: it is linked statically, was started with an LD_PRELOAD of \
                      its own or in a sandbox, or makes its own system calls."
        .to_owned();
    Some(finding)
}

fn losses(subject: &Subject) -> Option<Finding> {
    if subject.job.losses.is_empty() {
        return None;
    }
    let mut finding = about_data(
        "lost-data",
        "Part of the job was not recorded: numbers are lower bounds".to_owned(),
    );
    finding.evidence = subject.job.losses.clone();
    finding.advice = "Record again.".to_owned();
    Some(finding)
}

/// Fires on calls that the recorder counted, and that are in no record, and so in no sum of the report.
fn unplaced(subject: &Subject) -> Option<Finding> {
    let Unplaced {
        calls,
        bytes_read,
        bytes_written,
    } = subject.job.unplaced;
    if calls == 0 {
        return None;
    }
    let mut finding = about_data(
        "unplaced-data",
        format!(
            "The sums leave out {} of a file",
            count(
                calls,
                "call that is in no record",
                "calls that are in no record"
            )
        ),
    );
    finding.evidence = vec![format!(
        "{}: read {}, wrote {}",
        count(calls, "call", "calls"),
        bytes(bytes_read),
        bytes(bytes_written)
    )];
    finding.advice = "If these are many, record again with more memory (--memory).".to_owned();
    Some(finding)
}

fn condensed(subject: &Subject) -> Option<Finding> {
    if subject.job.condensed.is_empty() {
        return None;
    }
    let mut finding = about_data(
        "condensed-data",
        "Files are summed by directory, because the recorder's memory was full; no sum of calls, bytes or time loses anything by that"
            .to_owned(),
    );
    finding.evidence = subject.job.condensed.clone();
    finding.advice =
        "For all files one by one record again with more memory (--memory).".to_owned();
    Some(finding)
}

/// Fires on a job whose numbers contradict each other, which is a defect of the report, or a log that is not true.
fn contradictions(subject: &Subject) -> Option<Finding> {
    let broken = crate::identities::broken(subject.job, subject.account);
    if broken.is_empty() {
        return None;
    }
    let mut finding = about_data(
        "contradiction",
        "The numbers of this report contradict each other: do not rely on them".to_owned(),
    );
    finding.evidence = broken;
    finding.advice = "Please report this, with the log.".to_owned();
    Some(finding)
}

/// Most pieces of damage that are named.
const NAMED_DAMAGE: usize = 10;

fn damage(subject: &Subject) -> Option<Finding> {
    let damage = &subject.job.damage;
    if damage.is_empty() {
        return None;
    }
    let mut finding = about_data(
        "damaged-log",
        "Part of the log could not be read: numbers are lower bounds".to_owned(),
    );
    finding.evidence = damage.iter().take(NAMED_DAMAGE).cloned().collect();
    if damage.len() > NAMED_DAMAGE {
        finding
            .evidence
            .push(format!("{} more", damage.len() - NAMED_DAMAGE));
    }
    finding.advice = "Check that the copy of the log is complete.".to_owned();
    Some(finding)
}
