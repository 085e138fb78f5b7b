//! Ranks that come late to calls which all ranks make together. The others wait for them in MPI-IO, and no storage is slow.

use super::layers::pairs;
use super::{FileEvidence, Finding, NAMED_FILES, Subject};
use crate::model::{FileUse, RankShare};
use crate::units;
use std::collections::HashMap;

/// Name of the finding.
pub(super) const LATE: &str = "late-ranks";

/// A file in whose calls ranks wait for others.
pub(super) struct Awaited<'a> {
    pub one: &'a FileUse,
    /// Seconds that a mean rank waits longer than the one that waits least.
    pub seconds: f64,
    /// The rank that waits most, and its seconds.
    most: (u32, f64),
    /// Ranks that wait least, and the seconds of the first of them.
    last: Vec<u32>,
    least: f64,
    /// Most seconds of a rank in the calls below.
    below: f64,
}

/// A rank that waits longer than the least one by at most this share of the mean came last, too.
const SAME_SHARE: f64 = 0.1;
/// Most ranks that are named as late.
const NAMED_RANKS: usize = 5;

/// Files of MPI-IO in whose calls ranks wait for late ones. A rank of an aggregator has the time for which the others wait in
/// POSIX. Where no rank has, and ranks differ, they came at different times.
pub(super) fn awaited<'a>(subject: &'a Subject) -> Vec<Awaited<'a>> {
    if !subject.job.is_mpi() || subject.job.rank_count() < 2 {
        return Vec::new();
    }
    let pairs = pairs(subject).into_iter();
    pairs
        .filter(|(_, above)| meets(above))
        .filter_map(|(below, above)| of_file(subject, below, above))
        .collect()
}

/// True if much of the time of a file is in calls that ranks make together: collective ones, and opening it.
fn meets(above: &FileUse) -> bool {
    let total = &above.total;
    let collective = total.read.collective + total.write.collective;
    above.ranks > 1 && (collective > 0 || total.meta_seconds >= 0.5 * total.seconds())
}

fn of_file<'a>(subject: &Subject, below: &FileUse, above: &'a FileUse) -> Option<Awaited<'a>> {
    let job = subject.job;
    let most_below = below.slowest_of(|rank| job.is_rank(rank));
    let most_below = most_below.map_or(0.0, |rank| rank.seconds);
    let alone: Vec<&RankShare> = above
        .by_rank
        .iter()
        .filter(|share| job.is_rank(share.rank))
        .collect();
    let (mean, most, least, last) = match (above.reduced.as_slice(), alone.as_slice()) {
        ([], shares) if shares.len() > 1 => {
            let known: HashMap<u32, f64> = below
                .by_rank
                .iter()
                .map(|share| (share.rank, share.seconds()))
                .collect();
            let waits: Vec<(u32, f64)> = shares
                .iter()
                .map(|share| {
                    let calls = known.get(&share.rank).copied().unwrap_or(0.0);
                    (share.rank, (share.seconds() - calls).max(0.0))
                })
                .collect();
            let mean = waits.iter().map(|(_, wait)| wait).sum::<f64>() / waits.len() as f64;
            let most = *waits.iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
            let least = waits.iter().map(|(_, wait)| *wait).fold(mean, f64::min);
            let same = least + SAME_SHARE * (mean - least);
            let last = waits.iter().filter(|(_, wait)| *wait <= same);
            (mean, most, least, last.map(|(rank, _)| *rank).collect())
        }
        // Of a sum over ranks the fastest one is known.
        ([sum], []) if sum.fastest.seconds > 0.0 && sum.ranks > 1 => {
            let waited = (sum.seconds() - below.total.seconds()).max(0.0);
            let most = (sum.slowest.rank, sum.slowest.seconds);
            let last = vec![sum.fastest.rank];
            (
                waited / f64::from(sum.ranks),
                most,
                sum.fastest.seconds,
                last,
            )
        }
        _ => return None,
    };
    let seconds = mean - least;
    let is_much = seconds > 0.0 && seconds >= subject.limits.straggler_share * mean;
    (is_much && most_below <= 0.5 * seconds).then_some(Awaited {
        one: above,
        seconds,
        most,
        last,
        least,
        below: most_below,
    })
}

/// The rule.
pub(super) fn rules(subject: &Subject) -> Vec<Finding> {
    late_ranks(subject).into_iter().collect()
}

fn late_ranks(subject: &Subject) -> Option<Finding> {
    let mut hits = awaited(subject);
    hits.sort_by(|a, b| {
        let order = b.seconds.total_cmp(&a.seconds);
        order.then(a.one.file.cmp(&b.one.file))
    });
    let worst = hits.first()?;
    let waited = hits.iter().map(|hit| hit.most.1).sum();
    let mut finding = Finding::new(
        LATE,
        format!(
            "Ranks wait for late ones in calls on {}: rank {} for {}, rank {} for {}",
            units::count(hits.len() as u64, "shared file", "shared files"),
            worst.most.0,
            units::seconds(worst.most.1),
            worst.last[0],
            units::seconds(worst.least)
        ),
        hits.iter().map(|hit| hit.seconds).sum(),
    );
    finding.concerned_seconds = Some(waited);
    finding.estimate = "time in MPI-IO less that in POSIX of a mean rank, less the same of the rank that waited least; summed \
                        over files, as if all ranks came when a mean rank comes"
        .to_owned();
    finding.evidence = vec![
        format!(
            "{} waited least, so that the others waited for {}",
            named(&worst.last),
            if worst.last.len() == 1 { "it" } else { "them" }
        ),
        format!(
            "the calls below take {} of a rank at most: storage was not what they waited for",
            units::seconds(worst.below)
        ),
    ];
    finding.files = hits
        .iter()
        .take(NAMED_FILES)
        .map(|hit| FileEvidence {
            name: subject.job.files[hit.one.file].name.clone(),
            detail: format!(
                "rank {} waits {}, {} {}",
                hit.most.0,
                units::seconds(hit.most.1),
                named(&hit.last),
                units::seconds(hit.least)
            ),
        })
        .collect();
    finding.advice = "What ranks do before these calls takes them differently long: spread that work evenly. It is no cost of \
                      storage, and more stripes or larger calls do not shorten it."
        .to_owned();
    Some(finding)
}

/// Ranks by number, the first of them.
fn named(ranks: &[u32]) -> String {
    let numbers: Vec<String> = ranks.iter().take(NAMED_RANKS).map(u32::to_string).collect();
    let more = ranks.len().saturating_sub(NAMED_RANKS);
    let more = match more {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let noun = if ranks.len() == 1 { "rank" } else { "ranks" };
    format!("{noun} {}{more}", numbers.join(", "))
}
