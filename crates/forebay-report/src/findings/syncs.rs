//! Rules about fsync: calls that are frequent, and few calls that are waited for long.

use super::loss::{Loss, Part, longest_wait, slowest_path};
use super::requests::lowest;
use super::{
    Confidence, Finding, MOST_MEASURED, Measured, NAMED_RANKS, Subject, buffer_setting, timeline,
};
use crate::model::{FileUse, Interface};
use crate::units::{self, bytes, share};
use std::collections::HashSet;

/// Both rules. A file that has the one finding is not in the other.
pub(super) fn rules(subject: &Subject) -> Vec<Finding> {
    let mut found = Vec::new();
    found.extend(frequent(subject));
    found.extend(bursts(subject));
    found
}

/// Seconds in syncs, of which the log tells only that they are a part of those of writes: those of all writes and syncs, less the
/// writes, each taken for as long as the longest one. Where no write was timed by itself, a sync is taken for as long as a write.
fn least_sync_seconds(one: &FileUse) -> f64 {
    let write = &one.total.write;
    if write.ops > 0 && write.longest <= 0.0 {
        return sync_seconds(one);
    }
    (write.seconds - write.ops as f64 * write.longest).max(0.0)
}

/// The same, but at least as if a sync took as long as a write.
fn sync_seconds(one: &FileUse) -> f64 {
    let (write, syncs) = (&one.total.write, one.total.syncs as f64);
    let as_a_write = write.seconds * share(syncs, syncs + write.ops as f64);
    if write.longest <= 0.0 {
        return as_a_write;
    }
    let measured = write.seconds - write.ops as f64 * write.longest;
    as_a_write.max(measured)
}

/// What waited for storage in some files.
struct Waits<'a> {
    files: Vec<&'a FileUse>,
    loss: Loss<'a>,
    /// True if the time of every sync is known.
    is_timed: bool,
    /// "fsync", or "sync" if there are calls of more than one file.
    noun: &'static str,
    syncs: u64,
    synced_writes: u64,
    writes: u64,
    written: u64,
}

impl<'a> Waits<'a> {
    /// Of these files. `estimated` tells the seconds in syncs of a file where they are not known.
    fn of(subject: &Subject, files: Vec<&'a FileUse>, estimated: fn(&FileUse) -> f64) -> Self {
        let (timed, others): (Vec<&FileUse>, Vec<&FileUse>) =
            files.iter().partition(|one| one.total.has_timed_syncs());
        let is_timed = others.is_empty();
        let guessed = slowest_path(subject, others.into_iter(), Part::WriteAndSync, estimated);
        let loss = longest_wait(subject, timed.into_iter()).and(guessed);
        let sum = |of: fn(&FileUse) -> u64| {
            let each = files.iter().map(|one| of(one));
            each.fold(0, u64::saturating_add)
        };
        let is_any = files.iter().any(|one| subject.job.files[one.file].is_calls);
        Waits {
            loss,
            is_timed,
            noun: if is_any { "sync" } else { "fsync" },
            syncs: sum(|one| one.total.syncs),
            synced_writes: sum(|one| one.total.flushing.synced_writes),
            writes: sum(|one| one.total.write.ops),
            written: sum(|one| one.total.write.bytes),
            files,
        }
    }

    /// "5 fsyncs and 3 synced writes".
    fn calls(&self) -> String {
        calls(self.noun, self.syncs, self.synced_writes)
    }

    /// How the seconds were found, in the text of an estimate.
    fn source(&self) -> &'static str {
        match self.is_timed {
            true => "measured: time in fsync, its kin, and writes with O_SYNC or O_DSYNC",
            false => {
                "time to write (which includes fsync) less the writes, each taken for as long as the longest one"
            }
        }
    }
}

fn calls(noun: &str, syncs: u64, synced_writes: u64) -> String {
    let synced = units::count(synced_writes, "synced write", "synced writes");
    let syncs_named = units::count(syncs, noun, &format!("{noun}s"));
    match (syncs, synced_writes) {
        (_, 0) => syncs_named,
        (0, _) => synced,
        _ => format!("{syncs_named} and {synced}"),
    }
}

/// Calls on a file that waited for storage.
fn waits_of(one: &FileUse) -> u64 {
    one.total
        .syncs
        .saturating_add(one.total.flushing.synced_writes)
}

/// Files with an fsync after few writes, or with writes that wait like one, if there are so many that they are a pattern.
fn often_synced<'a>(subject: &'a Subject) -> Vec<&'a FileUse> {
    let limits = subject.limits;
    let hits: Vec<&FileUse> = lowest(subject, Interface::has_pattern)
        .filter(|one| {
            let waits = waits_of(one);
            // A few calls that concern all files are no pattern of a file.
            let is_file = !subject.job.files[one.file].is_calls;
            (is_file || waits >= limits.syncs)
                && waits > 0
                && waits as f64 >= limits.syncs_per_write * one.total.write.ops as f64
        })
        .collect();
    let total = hits.iter().map(|one| waits_of(one));
    let total = total.fold(0, u64::saturating_add);
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
    let waits = Waits::of(subject, hits, sync_seconds);
    let estimate = match waits.is_timed {
        true => waits.source().to_owned(),
        false => format!(
            "{}; at least x fsyncs / (fsyncs + writes), as if an fsync cost as much as a write",
            waits.source()
        ),
    };
    let title = match waits.syncs {
        0 => format!("Every write waits for storage: {}", waits.calls()),
        _ => format!(
            "Frequent {}: {} for {}",
            waits.noun,
            waits.calls(),
            units::count(waits.writes, "write", "writes")
        ),
    };
    let mut finding = Finding::of_loss(subject, "frequent-fsync", title, &waits.loss, estimate);
    finding.evidence = vec![format!(
        "in {}",
        units::count(waits.files.len() as u64, "file", "files")
    )];
    finding.files = waits.loss.evidence(subject, |one| {
        let flushing = &one.total.flushing;
        format!(
            "{}, {}",
            calls(waits.noun, one.total.syncs, flushing.synced_writes),
            units::count(one.total.write.ops, "write", "writes")
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
        .filter(|one| waits_of(one) > 0 && !often.contains(&one.file))
        .collect();
    let mut waits = Waits::of(subject, hits, least_sync_seconds);
    let loss = &mut waits.loss;
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
    let longest = units::seconds(seconds);
    let (all, noun) = (waits.calls(), waits.noun);
    let title = match waiting.len() {
        1 if job.ranks == 1 => format!("The only {} waits {longest} in {noun}: {all}", job.who()),
        1 => {
            let name = job.name_of(slowest);
            let (first, rest) = name.split_at(1);
            let first = first.to_uppercase();
            format!("{first}{rest} waits {longest} in {noun}: {all} in all")
        }
        ranks => format!(
            "{} wait in {noun}, the slowest for {longest}: {all} in all",
            job.count_of(ranks as u32)
        ),
    };
    let mut finding = Finding::not_estimated_for(
        subject,
        "fsync-bursts",
        title,
        &waits.loss,
        &format!(
            "an fsync moves what was written before it, and a log does not tell how much of that could have happened while \
             the program went on; {}",
            waits.source()
        ),
    );
    finding.confidence = Confidence::Low;
    finding.evidence = evidence(subject, &waits, &waiting);
    finding.evidence.insert(
        0,
        format!(
            "{all} behind {} in {}",
            bytes(waits.written),
            units::count(waits.files.len() as u64, "file", "files")
        ),
    );
    let measured = waiting.iter().take(MOST_MEASURED);
    finding.measured = measured
        .map(|(rank, seconds)| Measured {
            name: job.name_of(*rank),
            seconds: *seconds,
        })
        .collect();
    finding.files = waits.loss.evidence(subject, |one| {
        let (total, ranks) = (&one.total, f64::from(one.ranks.max(1)));
        let waited = match total.has_timed_syncs() {
            true => format!(
                "{} in them",
                units::seconds(total.flushing.seconds() / ranks)
            ),
            false => format!(
                "{} or more in fsync",
                units::seconds(least_sync_seconds(one) / ranks)
            ),
        };
        format!(
            "{} behind {} of {} in all, {waited}",
            calls(waits.noun, total.syncs, total.flushing.synced_writes),
            units::count(total.write.ops, "write", "writes"),
            bytes(total.write.bytes),
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

/// How long which ranks wait, and whether another finding is about the same seconds.
fn evidence(subject: &Subject, waits: &Waits, waiting: &[(u32, f64)]) -> Vec<String> {
    let mut evidence = Vec::new();
    if waits.loss.by_rank.len() > 1 {
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
        let least = if waits.is_timed { "" } else { " at least" };
        evidence.push(format!(
            "in {}{least}: {}{more}",
            waits.noun,
            named.join(", ")
        ));
    }
    if timeline::has_bursts(subject) {
        evidence.push(
            "the same seconds are a part of those that write-bursts names: the time to write includes fsync".to_owned(),
        );
    }
    evidence
}
