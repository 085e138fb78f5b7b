//! What to say of a job that spends much of its run in I/O without a pattern that explains it.

use super::{Finding, Severity, Thresholds};
use crate::account::{Account, split_of};
use crate::model::{Interface, Job};
use crate::units::{percent, seconds, share};

/// What is known and what is not, if I/O takes much of the run and no finding explains it.
pub(crate) fn unexplained(
    job: &Job,
    account: &Account,
    findings: &[Finding],
    limits: &Thresholds,
) -> Option<String> {
    let slowest = account.slowest?;
    let of_run = account.slowest_share(job);
    let explains = |one: &Finding| !matches!(one.severity, Severity::Data | Severity::Note);
    if of_run <= limits.unexplained_share || findings.iter().any(explains) {
        return None;
    }
    let time = &account.time;
    let parts = [
        (time.read, "reading"),
        (time.write, "writing"),
        (time.metadata, "metadata"),
    ];
    let (most, what) = parts
        .into_iter()
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .expect("three parts");
    let mut text = format!(
        "no known pattern explains the {} in I/O ({} of the run). Known: most of it is {what} ({} of the I/O of a mean rank)",
        seconds(slowest.seconds),
        percent(of_run),
        percent(share(most, time.io())),
    );
    let of = |interface| job.layer(interface).map(|_| split_of(job, interface).io());
    if let (Some(library), Some(below)) = (of(Interface::MpiIo), of(Interface::Posix)) {
        text += &format!(
            "; a mean rank is in MPI-IO for {}, in the POSIX calls for {}",
            seconds(library),
            seconds(below)
        );
    }
    text += ". Not known: how loaded file system and network were.";
    Some(text)
}
