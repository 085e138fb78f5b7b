//! Rules about when I/O happens. They ignore timelines that are only estimated from first and last times.

use super::loss::{Part, real_files, slowest_path};
use super::{Confidence, Finding, Subject, buffer_setting};
use crate::model::{FileUse, Timeline, TimelineSource};
use crate::units::{self, bytes, percent, share};

/// All rules on timelines.
pub(super) fn rules(subject: &Subject) -> Vec<Finding> {
    [idle_tail(subject), bursts(subject)]
        .into_iter()
        .flatten()
        .collect()
}

fn measured<'a>(subject: &'a Subject) -> impl Iterator<Item = &'a Timeline> {
    subject
        .job
        .timelines
        .iter()
        .filter(|line| line.source != TimelineSource::Timestamps)
}

/// Least number of ranks; of fewer, "most" and "few" mean nothing.
const LEAST_RANKS: usize = 8;

/// Fires if only few ranks still do I/O at the end, while the others wait.
fn idle_tail(subject: &Subject) -> Option<Finding> {
    let job = subject.job;
    if !job.is_mpi() {
        return None;
    }
    let mut last = vec![0.0f64; job.ranks as usize];
    for line in measured(subject) {
        for (mine, theirs) in last.iter_mut().zip(&line.last_active) {
            *mine = mine.max(theirs.unwrap_or(0.0));
        }
    }
    let mut active: Vec<(f64, u32)> = last
        .iter()
        .zip(0..)
        .filter(|(end, _)| **end > 0.0)
        .map(|(end, rank)| (*end, rank))
        .collect();
    if active.len() < LEAST_RANKS {
        return None;
    }
    active.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let few = ((active.len() as f64 * subject.limits.tail_ranks) as usize).max(1);
    let (others, late) = active.split_at(active.len() - few);
    let done = others.last()?.0;
    let end = late.last()?.0;
    let tail = end - done;
    if tail < subject.limits.tail_share * job.run_seconds || tail <= 0.0 {
        return None;
    }
    let seconds = |rank: u32| {
        subject
            .account
            .ranks
            .get(rank as usize)
            .map_or(0.0, |share| share.seconds())
    };
    let mean = subject.account.time.io();
    // A rank that writes a line now and then is late, too, but no rank waits for it.
    let beyond = late
        .iter()
        .map(|(_, rank)| seconds(*rank) - mean)
        .fold(0.0, f64::max);
    let names: Vec<String> = late
        .iter()
        .rev()
        .take(5)
        .map(|(_, rank)| rank.to_string())
        .collect();
    let mut finding = Finding::new(
        "idle-tail",
        format!(
            "{} of {} still at I/O for {} after the others have finished theirs",
            few,
            units::count(active.len() as u64, "active rank", "active ranks"),
            units::seconds(tail)
        ),
        tail.min(beyond),
    );
    finding.estimate = "time from the last I/O of most ranks to the last I/O of all, at most what the late ranks spend in \
                        I/O beyond the mean"
        .to_owned();
    finding.evidence = vec![
        format!(
            "others done at {}, the last one at {} of {}",
            units::seconds(done),
            units::seconds(end),
            units::seconds(job.run_seconds)
        ),
        format!("late ranks: {}", names.join(", ")),
    ];
    finding.advice =
        "Spread what these ranks do at the end over all ranks, or let it happen while others compute.".to_owned();
    Some(finding)
}

/// Least number of columns; a coarser timeline does not show bursts.
const LEAST_BINS: usize = 20;

/// Fires on writes that come in short bursts: they can go to fast storage first, and to the file system in between.
fn bursts(subject: &Subject) -> Option<Finding> {
    let job = subject.job;
    let limits = subject.limits;
    let line = measured(subject)
        .filter(|line| !line.interface.is_library())
        .max_by(|a, b| {
            let written = |line: &Timeline| line.written.iter().sum::<f64>();
            written(a)
                .total_cmp(&written(b))
                .then(b.interface.cmp(&a.interface))
        })?;
    if line.bins < LEAST_BINS {
        return None;
    }
    let columns: Vec<f64> = line
        .columns()
        .into_iter()
        .map(|(_, written)| written)
        .collect();
    let all: f64 = columns.iter().sum();
    let mut order: Vec<usize> = (0..columns.len()).collect();
    order.sort_by(|a, b| columns[*b].total_cmp(&columns[*a]).then(a.cmp(b)));
    let mut held = 0.0;
    let mut chosen = vec![false; columns.len()];
    for column in order {
        if held >= limits.burst_bytes_share * all {
            break;
        }
        held += columns[column];
        chosen[column] = true;
    }
    let busy = chosen.iter().filter(|one| **one).count();
    let time_share = share(busy as f64 * line.bin_seconds, job.run_seconds);
    if all <= 0.0 || time_share > limits.burst_time_share {
        return None;
    }
    let bursts = chosen
        .iter()
        .enumerate()
        .filter(|(i, one)| **one && (*i == 0 || !chosen[i - 1]))
        .count();
    let uses = job
        .layers
        .iter()
        .flat_map(|layer| real_files(subject, layer))
        .filter(|one| one.is_lowest);
    let waited = slowest_path(subject, uses, Part::Write, |one: &FileUse| {
        one.total.write.seconds
    });
    let nodes = f64::from(job.nodes.unwrap_or(1).max(1));
    let local = all / nodes / limits.local_bytes_per_second;
    let saved = waited.seconds - local;
    if saved <= 0.0 {
        return None;
    }
    let mut finding = Finding::new(
        "write-bursts",
        format!(
            "Writes come in {}: {} of {} in {} of the run time",
            units::count(bursts as u64, "short burst", "short bursts"),
            percent(share(held, all)),
            bytes(all as u64),
            percent(time_share)
        ),
        saved,
    );
    finding.confidence = Confidence::Low;
    finding.estimate = format!(
        "measured time to write {} less bytes written / {}/s of local storage on {}",
        waited.where_lost(),
        bytes(limits.local_bytes_per_second as u64),
        units::count(nodes as u64, "node", "nodes")
    );
    finding.evidence = vec![format!(
        "outside of them there are {} in which the data could reach the file system",
        units::seconds(job.run_seconds * (1.0 - time_share).max(0.0))
    )];
    finding.advice =
        "Write to a burst buffer, or asynchronously, and go on computing while the data drains."
            .to_owned();
    finding.setting = buffer_setting(
        subject,
        "writes go to local storage; the data is copied to DIR after the run",
    );
    Some(finding)
}
