//! Rules about work that is spread unevenly over ranks. They are for MPI programs, whose ranks wait for each other.

use super::late::awaited;
use super::layers::pairs;
use super::loss::real_files;
use super::metadata::waited_files;
use super::{Confidence, FileEvidence, Finding, NAMED_FILES, Subject};
use crate::account::rank_shares;
use crate::model::{Extreme, FileUse, Interface, RankShare};
use crate::units::{self, bytes, number, percent, share};
use std::collections::HashSet;

/// All rules on balance.
pub(super) fn rules(subject: &Subject) -> Vec<Finding> {
    if !subject.job.is_mpi() || subject.job.rank_count() < 2 {
        return Vec::new();
    }
    let mut found: Vec<Finding> = straggler_shared(subject).into_iter().collect();
    match rank0(subject) {
        // A rank that does all I/O is a straggler, and its bytes are uneven. One finding is enough.
        Some(finding) => found.push(finding),
        None => {
            found.extend(straggler_ranks(subject));
            found.extend(uneven_bytes(subject));
        }
    }
    found
}

/// Least number of ranks; fewer have no meaningful mean.
const LEAST_RANKS: usize = 4;

/// What the slowest rank needs beyond the mean; `None` below the threshold.
fn excess(slowest: f64, mean: f64, threshold: f64) -> Option<f64> {
    let excess = slowest - mean;
    (excess > 0.0 && excess >= threshold * slowest).then_some(excess)
}

/// Files of which findings of their own tell that ranks wait: for late ones, or for a file to open.
fn awaited_files(subject: &Subject) -> HashSet<usize> {
    let late = awaited(subject).into_iter().map(|hit| hit.one.file);
    late.chain(waited_files(subject)).collect()
}

fn cause(slowest: &Extreme, mean_bytes: f64) -> String {
    if slowest.bytes == 0 && mean_bytes < 1.0 {
        return "no rank moved any bytes of it: the time is that of opening it, or of asking for it".to_owned();
    }
    if slowest.bytes as f64 >= 1.5 * mean_bytes && slowest.bytes > 0 {
        format!(
            "rank {} moved {}, the mean rank {}: the work is uneven",
            slowest.rank,
            bytes(slowest.bytes),
            bytes(mean_bytes as u64)
        )
    } else {
        format!(
            "rank {} moved {}, the mean rank {}: its share is not larger, so it was served worse or waited for a lock",
            slowest.rank,
            bytes(slowest.bytes),
            bytes(mean_bytes as u64)
        )
    }
}

/// The slowest rank of a file, and the seconds of the mean one. Steps beside the ranks are left out.
fn of_ranks(subject: &Subject, one: &FileUse) -> Option<(Extreme, f64)> {
    let job = subject.job;
    let steps = one.by_rank.iter().filter(|share| !job.is_rank(share.rank));
    let steps: Vec<f64> = steps.map(RankShare::seconds).collect();
    let ranks = one.ranks.saturating_sub(steps.len() as u32);
    let slowest = one.slowest_of(|rank| job.is_rank(rank))?;
    let seconds = one.total.seconds() - steps.iter().sum::<f64>();
    (ranks > 1).then(|| (slowest, seconds / f64::from(ranks)))
}

fn straggler_shared(subject: &Subject) -> Option<Finding> {
    let mut per_rank = vec![0.0f64; subject.job.ranks as usize];
    let mut hits: Vec<(&FileUse, Extreme, f64, f64)> = Vec::new();
    let awaited = awaited_files(subject);
    let uses = subject
        .job
        .layers
        .iter()
        .flat_map(|layer| real_files(subject, layer))
        .filter(|one| one.is_highest && one.ranks > 1)
        .filter(|one| !subject.job.files[one.file].is_rest())
        .filter(|one| !subject.job.files[one.file].is_calls)
        .filter(|one| !awaited.contains(&one.file));
    for one in uses {
        let Some((slowest, mean)) = of_ranks(subject, one) else {
            continue;
        };
        let threshold = subject.limits.straggler_share;
        if let Some(excess) = excess(slowest.seconds, mean, threshold) {
            hits.push((one, slowest, mean, excess));
            if let Some(sum) = per_rank.get_mut(slowest.rank as usize) {
                *sum += excess;
            }
        }
    }
    let lost = per_rank.iter().copied().fold(0.0, f64::max);
    if lost <= 0.0 {
        return None;
    }
    hits.sort_by(|a, b| b.3.total_cmp(&a.3).then(a.0.file.cmp(&b.0.file)));
    let (worst, slowest, mean, excess) = hits[0];
    // In the calls below there is no such time.
    let is_within_library = pairs(subject).iter().any(|(below, _)| {
        let took = below.slowest().map_or(0.0, |rank| rank.seconds);
        below.file == worst.file && took < 0.5 * excess
    });
    let mut finding = Finding::new(
        "straggler-shared-file",
        format!(
            "A slow rank on {}: rank {} took {}, the mean rank {}",
            units::count(hits.len() as u64, "shared file", "shared files"),
            slowest.rank,
            units::seconds(slowest.seconds),
            units::seconds(mean)
        ),
        lost,
    );
    finding.confidence = Confidence::High;
    finding.estimate = "measured time of the slowest rank on the file less the mean of its ranks; summed over the files \
                        on which the same rank was slowest"
        .to_owned();
    let mean_bytes = worst.total.bytes() as f64 / f64::from(worst.ranks);
    finding.evidence = vec![match is_within_library {
        true => {
            "the time is in MPI-IO and not in the calls below, so no storage target served it worse"
                .to_owned()
        }
        false => cause(&slowest, mean_bytes),
    }];
    finding.files = hits
        .iter()
        .take(NAMED_FILES)
        .map(|(one, slowest, mean, _)| FileEvidence {
            name: subject.job.files[one.file].name.clone(),
            detail: format!(
                "rank {} {}, mean of {} {}",
                slowest.rank,
                units::seconds(slowest.seconds),
                subject.job.count_of(one.ranks),
                units::seconds(*mean)
            ),
        })
        .collect();
    finding.advice = if is_within_library {
        "It waits within MPI-IO: for a lock, for messages, or for other ranks. A trace of MPI tells which."
    } else if slowest.bytes as f64 >= 1.5 * mean_bytes {
        "Spread the work of that rank: headers and small variables by one rank are fine, data should be written by many, \
         or collectively."
    } else {
        "Check what that rank's node and its storage target did; wider striping or collective calls spread the load."
    }
    .to_owned();
    Some(finding)
}

/// Seconds and bytes of each rank on files whose ranks the log keeps apart. Bytes are from the lowest interface,
/// seconds from the highest.
fn own_shares(subject: &Subject) -> Vec<RankShare> {
    let awaited = awaited_files(subject);
    let time = rank_shares(subject.job, |_, one| {
        one.is_highest && one.reduced.is_empty() && !awaited.contains(&one.file)
    });
    let moved = rank_shares(subject.job, |_, one| {
        one.is_lowest && one.reduced.is_empty()
    });
    time.into_iter()
        .zip(moved)
        .filter(|(time, _)| subject.job.is_rank(time.rank))
        .map(|(time, moved)| RankShare {
            bytes_read: moved.bytes_read,
            bytes_written: moved.bytes_written,
            ..time
        })
        .collect()
}

fn straggler_ranks(subject: &Subject) -> Option<Finding> {
    let shares = own_shares(subject);
    let active: Vec<&RankShare> = shares.iter().filter(|one| one.seconds() > 0.0).collect();
    if active.len() < LEAST_RANKS {
        return None;
    }
    let n = active.len() as f64;
    let mean = active.iter().map(|one| one.seconds()).sum::<f64>() / n;
    let mean_bytes = active.iter().map(|one| one.bytes() as f64).sum::<f64>() / n;
    let slowest = active.iter().max_by(|a, b| {
        a.seconds()
            .total_cmp(&b.seconds())
            .then(b.rank.cmp(&a.rank))
    })?;
    let lost = excess(slowest.seconds(), mean, subject.limits.straggler_share)?;
    let mut finding = Finding::new(
        "straggler-ranks",
        format!(
            "Ranks differ on their own files: rank {} spent {} in I/O, the mean of {} {}",
            slowest.rank,
            units::seconds(slowest.seconds()),
            units::count(active.len() as u64, "rank", "ranks"),
            units::seconds(mean)
        ),
        lost,
    );
    finding.confidence = Confidence::High;
    finding.estimate =
        "measured time of the slowest rank less the mean of the ranks that did I/O, on files that the log keeps per rank"
            .to_owned();
    finding.evidence = vec![cause(
        &Extreme {
            rank: slowest.rank,
            seconds: slowest.seconds(),
            bytes: slowest.bytes(),
        },
        mean_bytes,
    )];
    let mut order = active.clone();
    order.sort_by(|a, b| {
        b.seconds()
            .total_cmp(&a.seconds())
            .then(a.rank.cmp(&b.rank))
    });
    let few: Vec<String> = order
        .iter()
        .take(5)
        .map(|one| format!("{} ({})", one.rank, units::seconds(one.seconds())))
        .collect();
    finding
        .evidence
        .push(format!("slowest ranks: {}", few.join(", ")));
    finding.advice =
        "Give ranks equal parts, or let slow ones (with more data, or on a loaded storage target) have less."
            .to_owned();
    Some(finding)
}

fn uneven_bytes(subject: &Subject) -> Option<Finding> {
    let shares = own_shares(subject);
    let active: Vec<&RankShare> = shares.iter().filter(|one| one.bytes() > 0).collect();
    if active.len() < LEAST_RANKS {
        return None;
    }
    let n = active.len() as f64;
    let mean = active.iter().map(|one| one.bytes() as f64).sum::<f64>() / n;
    let busiest = active
        .iter()
        .max_by(|a, b| a.bytes().cmp(&b.bytes()).then(b.rank.cmp(&a.rank)))?;
    let most = busiest.bytes() as f64;
    excess(most, mean, subject.limits.imbalance_share)?;
    let mean_seconds = active.iter().map(|one| one.seconds()).sum::<f64>() / n;
    // The time that it would save with the mean amount, but no more than it is slower than the others.
    let lost = (busiest.seconds() * (1.0 - mean / most))
        .min(busiest.seconds() - mean_seconds)
        .max(0.0);
    let mut finding = Finding::new(
        "uneven-bytes",
        format!(
            "Bytes are spread unevenly: rank {} moved {}, the mean of {} {}",
            busiest.rank,
            bytes(busiest.bytes()),
            units::count(active.len() as u64, "rank", "ranks"),
            bytes(mean as u64)
        ),
        lost,
    );
    finding.estimate =
        "I/O time of that rank x (1 - mean bytes / its bytes), at most what it is slower than the mean".to_owned();
    finding.evidence = vec![format!(
        "{} of the ranks do no I/O on files of their own",
        number(shares.len() as u64 - active.len() as u64)
    )];
    finding.advice =
        "Spread the data over more ranks, or use collective calls with several aggregators."
            .to_owned();
    Some(finding)
}

/// Bytes of a job below which rank 0 may do the I/O alone: parameters, logs.
const RANK0_BYTES: u64 = 16 << 20;

fn rank0(subject: &Subject) -> Option<Finding> {
    let is_rank = |share: &&RankShare| subject.job.is_rank(share.rank);
    let (mut mine, mut all) = (0u64, 0u64);
    for one in subject
        .job
        .layers
        .iter()
        .flat_map(|layer| real_files(subject, layer))
        .filter(|one| one.is_lowest)
    {
        let single = one.by_rank.iter().filter(is_rank);
        all += single.clone().map(RankShare::bytes).sum::<u64>();
        all += one.reduced.iter().map(|sum| sum.bytes).sum::<u64>();
        let single = single.filter(|share| share.rank == 0);
        mine += single.map(RankShare::bytes).sum::<u64>();
        // Of a sum over ranks, only the bytes of the slowest rank are known.
        let slowest = one.reduced.iter().filter(|sum| sum.slowest.rank == 0);
        mine += slowest
            .map(|sum| sum.slowest.bytes.min(sum.bytes))
            .sum::<u64>();
    }
    if all < RANK0_BYTES || (mine as f64) < subject.limits.rank0_share * all as f64 {
        return None;
    }
    let seconds = subject.account.ranks.first()?.seconds();
    let spread = f64::from(subject.job.rank_count()).min(subject.limits.rank0_spread);
    let aggregator = collective(subject);
    let title = match aggregator {
        Some(_) => "Rank 0 is the only aggregator of collective MPI-IO",
        None => "Rank 0 does the I/O of all",
    };
    let mut finding = Finding::new(
        "rank-0-io",
        format!(
            "{title}: {} of {}, while {}",
            percent(share(mine as f64, all as f64)),
            bytes(all),
            units::count(
                u64::from(subject.job.rank_count()) - 1,
                "rank waits",
                "ranks wait"
            )
        ),
        seconds * (1.0 - 1.0 / spread),
    );
    finding.confidence = Confidence::Medium;
    finding.estimate = format!(
        "I/O time of rank 0 x (1 - 1/{spread:.0}): {spread:.0} ranks are assumed to share the work at the same speed"
    );
    finding.evidence = vec![format!("rank 0 spends {} in I/O", units::seconds(seconds))];
    finding.advice = if let Some(stripes) = aggregator {
        finding.evidence.extend(stripes);
        "Let MPI-IO use more aggregators: one per node (hints cb_nodes, cb_config_list), and on Lustre a stripe count of \
         at least as many (lfs setstripe -c), because ROMIO takes as many aggregators as there are stripes."
    } else {
        "Let one rank per node read and write a part (MPI-IO collective calls do that by themselves)."
    }
    .to_owned();
    Some(finding)
}

/// `Some` if most requests of the program are collective; within it how the largest of their files is striped, if that
/// is known.
fn collective(subject: &Subject) -> Option<Option<String>> {
    let layer = subject.job.layer(Interface::MpiIo)?;
    let total = layer.total();
    let collective = total.read.collective + total.write.collective;
    if collective < total.read.independent + total.write.independent || collective == 0 {
        return None;
    }
    let largest = layer.uses.iter().max_by_key(|one| one.total.bytes())?;
    let (size, count) = match subject.job.files[largest.file].stripes {
        Some(stripes) => stripes,
        None => return Some(None),
    };
    Some(Some(format!(
        "the file with most bytes is striped over {} ({} each)",
        units::count(count, "target", "targets"),
        bytes(size)
    )))
}
