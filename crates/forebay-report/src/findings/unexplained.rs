//! What to say of a job that spends much of its run in I/O without a pattern that explains it.

use super::{Finding, Severity, Thresholds};
use crate::account::{Account, split_of};
use crate::model::{Interface, Job};
use crate::units::{percent, seconds, share};

/// A finding that is about so much of the time in I/O explains it.
const EXPLAINED_SHARE: f64 = 0.5;

/// What is known and what is not, if I/O takes much of the run and no finding explains it.
pub(crate) fn unexplained(
    job: &Job,
    account: &Account,
    findings: &[Finding],
    limits: &Thresholds,
) -> Option<String> {
    let slowest = account.slowest?;
    let of_run = account.slowest_share(job);
    // Estimates overlap, so the sum of all says no more than the largest does.
    let costly = |one: &&Finding| !matches!(one.severity, Severity::Data | Severity::Note);
    let explained = findings.iter().filter(costly);
    let explained = explained.flat_map(|one| [one.seconds_lost, one.concerned_seconds]);
    let explained = explained.flatten().fold(0.0, f64::max);
    if of_run <= limits.unexplained_share || explained >= EXPLAINED_SHARE * slowest.seconds {
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
    let patterns = match explained {
        0.0 => "no known pattern explains".to_owned(),
        most => format!("no finding explains more than {} of", seconds(most)),
    };
    let mut text = format!(
        "{patterns} the {} in I/O ({} of the run). Known: most of it is {what} ({} of the I/O of a mean {})",
        seconds(slowest.seconds),
        percent(of_run),
        percent(share(most, time.io())),
        job.who(),
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
