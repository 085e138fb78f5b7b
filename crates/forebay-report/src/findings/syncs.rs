//! Rules about fsync: calls that are frequent, and few calls that are waited for long.

use super::loss::{Loss, Part, slowest_path};
use super::requests::lowest;
use super::{
    Confidence, Finding, MOST_MEASURED, Measured, NAMED_RANKS, Subject, buffer_setting, timeline,
};
use crate::model::{FileUse, Interface};
use crate::units::{self, bytes, number, share};
use std::collections::HashSet;

/// Both rules. A file that has the one finding is not in the other.
pub(super) fn rules(subject: &Subject) -> Vec<Finding> {
    let mut found = Vec::new();
    found.extend(frequent(subject));
    found.extend(bursts(subject));
    found
}

/// Seconds in fsync at least: those of all writes and fsyncs, less the writes, each taken for as long as the longest one.
/// Where no write was timed by itself, an fsync is taken for as long as a write.
fn least_sync_seconds(one: &FileUse) -> f64 {
    let write = &one.total.write;
    if write.ops > 0 && write.longest <= 0.0 {
        return sync_seconds(one);
    }
    (write.seconds - write.ops as f64 * write.longest).max(0.0)
}

/// Seconds in fsync, which a log adds to those of writes. The longest write is that of a write alone, so that all writes
/// together took no more than so many of the longest.
fn sync_seconds(one: &FileUse) -> f64 {
    let (write, syncs) = (&one.total.write, one.total.syncs as f64);
    let as_a_write = write.seconds * share(syncs, syncs + write.ops as f64);
    if write.longest <= 0.0 {
        return as_a_write;
    }
    let measured = write.seconds - write.ops as f64 * write.longest;
    as_a_write.max(measured)
}

/// Files with an fsync after few writes, if there are so many that they are a pattern.
fn often_synced<'a>(subject: &'a Subject) -> Vec<&'a FileUse> {
    let limits = subject.limits;
    let hits: Vec<&FileUse> = lowest(subject, Interface::has_pattern)
        .filter(|one| {
            let total = &one.total;
            total.syncs > 0 && total.syncs as f64 >= limits.syncs_per_write * total.write.ops as f64
        })
        .collect();
    let total: u64 = hits
        .iter()
        .map(|one| one.total.syncs)
        .fold(0, u64::saturating_add);
    if total < limits.syncs {
        return Vec::new();
    }
    hits
}

fn frequent(subject: &Subject) -> Option<Finding> {
    let hits = often_synced(subject);
    if hits.is_empty() {
        return None;
    }
    let total: u64 = hits
        .iter()
        .map(|one| one.total.syncs)
        .fold(0, u64::saturating_add);
    let writes: u64 = hits
        .iter()
        .map(|one| one.total.write.ops)
        .fold(0, u64::saturating_add);
    let loss = slowest_path(subject, hits.iter().copied(), Part::Write, sync_seconds);
    let mut finding = Finding::of_loss(
        subject,
        "frequent-fsync",
        format!(
            "Frequent fsync: {} for {}",
            units::count(total, "call", "calls"),
            units::count(writes, "write", "writes")
        ),
        &loss,
        "time to write (which includes fsync) less the writes, each taken for as long as the longest one; at least \
         x fsyncs / (fsyncs + writes), as if an fsync cost as much as a write".to_owned(),
    );
    finding.evidence = vec![format!(
        "in {}",
        units::count(hits.len() as u64, "file", "files")
    )];
    finding.files = loss.evidence(subject, |one| {
        format!(
            "{} fsyncs, {} writes",
            number(one.total.syncs),
            number(one.total.write.ops)
        )
    });
    finding.advice = "Sync once per checkpoint, at the end, not after each piece.".to_owned();
    finding.setting = buffer_setting(subject, "fsync waits for local storage only");
    Some(finding)
}

/// Fires where ranks wait long in few calls. A single rank that does so (one process writes all checkpoints) has the same
/// finding in other words: its program waits as long, but for its own data alone.
fn bursts(subject: &Subject) -> Option<Finding> {
    let job = subject.job;
    let often: HashSet<usize> = often_synced(subject).iter().map(|one| one.file).collect();
    let hits: Vec<&FileUse> = lowest(subject, Interface::has_pattern)
        .filter(|one| one.total.syncs > 0 && !often.contains(&one.file))
        .collect();
    let mut loss = slowest_path(
        subject,
        hits.iter().copied(),
        Part::Write,
        least_sync_seconds,
    );
    // Threads may wait at the same time.
    for (seconds, of_rank) in loss.by_rank.iter_mut().zip(&subject.account.ranks) {
        *seconds = seconds.min(of_rank.seconds());
    }
    let limit = subject.limits.sync_wait_share * job.run_seconds;
    let mut waiting: Vec<(u32, f64)> = (0..)
        .zip(loss.by_rank.iter().copied())
        .filter(|(_, seconds)| *seconds > 0.0 && *seconds >= limit)
        .collect();
    waiting.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    let &(slowest, seconds) = waiting.first()?;
    loss.seconds = seconds;
    loss.rank = loss.rank.map(|_| slowest);
    let sum = |of: fn(&FileUse) -> u64| -> u64 {
        let each = hits.iter().map(|one| of(one));
        each.fold(0, u64::saturating_add)
    };
    let (syncs, written) = (sum(|one| one.total.syncs), sum(|one| one.total.write.bytes));
    let longest = units::seconds(seconds);
    let calls = units::count(syncs, "fsync", "fsyncs");
    let title = match waiting.len() {
        1 if job.ranks == 1 => format!("The only {} waits {longest} in fsync: {calls}", job.who()),
        1 => {
            let name = job.name_of(slowest);
            let (first, rest) = name.split_at(1);
            let first = first.to_uppercase();
            format!("{first}{rest} waits {longest} in fsync: {calls} in all")
        }
        ranks => format!(
            "{} wait in fsync, the slowest for {longest}: {calls} in all",
            job.count_of(ranks as u32)
        ),
    };
    let mut finding = Finding::not_estimated_for(
        subject,
        "fsync-bursts",
        title,
        &loss,
        "an fsync moves what was written before it, and a log does not tell how much of that could have happened while the \
         program went on; time to write (which includes fsync) less the writes, each taken for as long as the longest one",
    );
    finding.confidence = Confidence::Low;
    finding.evidence = evidence(subject, &loss, &waiting);
    finding.evidence.insert(
        0,
        format!(
            "{calls} behind {} in {}",
            bytes(written),
            units::count(hits.len() as u64, "file", "files")
        ),
    );
    let measured = waiting.iter().take(MOST_MEASURED);
    finding.measured = measured
        .map(|(rank, seconds)| Measured {
            name: job.name_of(*rank),
            seconds: *seconds,
        })
        .collect();
    finding.files = loss.evidence(subject, |one| {
        format!(
            "{} behind {} of {} in all, {} or more in fsync",
            units::count(one.total.syncs, "fsync", "fsyncs"),
            units::count(one.total.write.ops, "write", "writes"),
            bytes(one.total.write.bytes),
            units::seconds(least_sync_seconds(one) / f64::from(one.ranks.max(1)))
        )
    });
    finding.advice = if waiting.len() > 1 {
        "Let the program go on while the data reaches the storage: sync in a thread, or at the next step what the last one \
         wrote. Where a checkpoint may be lost, sync only the last one."
    } else {
        "Let the program go on while the data reaches the storage: sync in a thread, or start write-back early \
         (sync_file_range) and sync at the end."
    }
    .to_owned();
    finding.setting = buffer_setting(subject, "fsync waits for local storage only");
    Some(finding)
}

/// How long which ranks wait at least, and whether another finding is about the same seconds.
fn evidence(subject: &Subject, loss: &Loss, waiting: &[(u32, f64)]) -> Vec<String> {
    let mut evidence = Vec::new();
    if loss.by_rank.len() > 1 {
        let named = waiting.iter().take(NAMED_RANKS).map(|(rank, seconds)| {
            format!(
                "{} {}",
                subject.job.name_of(*rank),
                units::seconds(*seconds)
            )
        });
        let named: Vec<String> = named.collect();
        let more = match waiting.len() - named.len() {
            0 => String::new(),
            n => format!(", and {n} more"),
        };
        evidence.push(format!("in fsync at least: {}{more}", named.join(", ")));
    }
    if timeline::has_bursts(subject) {
        evidence.push(
            "the same seconds are a part of those that write-bursts names: the time to write includes fsync".to_owned(),
        );
    }
    evidence
}
