//! Rules about when I/O happens. They ignore timelines that are only estimated from first and last times.

use super::loss::{Part, real_files, slowest_path};
use super::{Confidence, Finding, Subject, buffer_setting};
use crate::model::{FileUse, Timeline, TimelineSource};
use crate::units::{self, bytes, percent, share};

/// All rules on timelines.
pub(super) fn rules(subject: &Subject) -> Vec<Finding> {
    [idle_tail(subject), take_turns(subject), bursts(subject)]
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
        .filter(|(end, rank)| **end > 0.0 && job.is_rank(*rank))
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

/// The code of the finding on ranks that do I/O one after the other. They wait while they do none themselves.
pub(super) const TAKE_TURNS: &str = "ranks-take-turns";

/// Columns in a row in which some rank does I/O.
struct Episode {
    columns: usize,
    /// Rows that do I/O in it.
    rows: usize,
    /// Most columns in which a single row does I/O.
    busiest: usize,
    /// Columns from the first to the last one of each row, all rows together.
    spans: usize,
}

/// The episodes of these rows of a timeline, in the order of time.
fn episodes(line: &Timeline, rows: &[usize]) -> Vec<Episode> {
    let is_busy = |row: usize, column: usize| {
        let at = row * line.bins + column;
        line.read[at] + line.written[at] > 0.0
    };
    let mut found = Vec::new();
    let mut start = 0;
    for column in 0..=line.bins {
        if column < line.bins && rows.iter().any(|row| is_busy(*row, column)) {
            continue;
        }
        let mut episode = Episode {
            columns: column - start,
            rows: 0,
            busiest: 0,
            spans: 0,
        };
        for &row in rows {
            let busy: Vec<usize> = (start..column).filter(|&at| is_busy(row, at)).collect();
            if let (Some(first), Some(last)) = (busy.first(), busy.last()) {
                episode.rows += 1;
                episode.busiest = episode.busiest.max(busy.len());
                episode.spans += last - first + 1;
            }
        }
        if episode.rows > 0 {
            found.push(episode);
        }
        start = column + 1;
    }
    found
}

/// Columns of a turn, on average; of shorter ones nothing can be said.
const LEAST_TURN_COLUMNS: usize = 2;

/// Fires if ranks do I/O one after the other. Ranks that do theirs whenever they need some come back to it again and again,
/// so that their spans overlap.
fn take_turns(subject: &Subject) -> Option<Finding> {
    let job = subject.job;
    if !job.is_mpi() {
        return None;
    }
    let moved = |line: &Timeline| line.read.iter().chain(&line.written).sum::<f64>();
    let line = measured(subject)
        .filter(|line| !line.interface.is_library())
        .max_by(|a, b| {
            moved(a)
                .total_cmp(&moved(b))
                .then(b.interface.cmp(&a.interface))
        })?;
    // Nobody waits for a step that runs beside the ranks.
    let rows: Vec<usize> = (0..line.rows())
        .filter(|row| job.is_rank(*row as u32 * line.ranks_per_row))
        .collect();
    let active = rows
        .iter()
        .filter(|row| {
            let cells = *row * line.bins..(*row + 1) * line.bins;
            line.read[cells.clone()]
                .iter()
                .chain(&line.written[cells])
                .any(|bytes| *bytes > 0.0)
        })
        .count();
    let hits: Vec<Episode> = episodes(line, &rows)
        .into_iter()
        .filter(|one| one.rows >= LEAST_RANKS && 2 * one.rows >= active)
        // Requests of a column or less fall one behind the other by chance.
        .filter(|one| one.spans >= LEAST_TURN_COLUMNS * one.rows)
        // A turn may begin in the column in which the one before it ends.
        .filter(|one| one.spans < one.columns + one.rows)
        .filter(|one| one.busiest * 2 <= one.columns)
        .collect();
    let seconds = |columns: usize| columns as f64 * line.bin_seconds;
    let lost: f64 = hits
        .iter()
        .map(|one| seconds(one.columns - one.busiest))
        .sum();
    if lost < subject.limits.tail_share * job.run_seconds || lost <= 0.0 {
        return None;
    }
    let longest = hits.iter().max_by_key(|one| one.columns)?;
    let rows = if line.ranks_per_row > 1 {
        "groups of ranks"
    } else {
        "ranks"
    };
    let mut finding = Finding::new(
        TAKE_TURNS,
        format!(
            "Ranks do their I/O one after the other: {} {rows} in turns for {}",
            longest.rows,
            units::seconds(seconds(longest.columns))
        ),
        lost,
    );
    finding.confidence = Confidence::Low;
    finding.estimate = "measured: time in which any rank does I/O less that of the rank that does it longest, in each phase of \
                        turns; assumes that the file system serves all at once as quickly as one"
        .to_owned();
    finding.evidence = vec![format!(
        "{}; in the longest one no rank does I/O for more than {} of {}",
        units::count(hits.len() as u64, "phase of turns", "phases of turns"),
        units::seconds(seconds(longest.busiest)),
        units::seconds(seconds(longest.columns))
    )];
    finding.advice = "Let all ranks write at once, to parts of a shared file (collective calls) or to files of their own; if \
                      turns protect the file system, let more ranks go at a time."
        .to_owned();
    Some(finding)
}

/// Bursts below which nothing is said of how often they come.
const LEAST_BURSTS: usize = 3;

/// How often the bursts come, and what a buffer would have to move until the next one. `held` are their bytes, `waited` the
/// seconds that they took.
fn cadence(line: &Timeline, starts: &[usize], held: f64, waited: f64) -> Option<String> {
    if starts.len() < LEAST_BURSTS || waited <= 0.0 {
        return None;
    }
    let mut gaps: Vec<usize> = starts.windows(2).map(|two| two[1] - two[0]).collect();
    gaps.sort_unstable();
    let period = gaps[gaps.len() / 2] as f64 * line.bin_seconds;
    let needed = held / starts.len() as f64 / period;
    let now = held / waited;
    Some(format!(
        "one about every {}, of {} each: a buffer needs {}/s to be empty before the next one, {} of the speed of the bursts",
        units::seconds(period),
        bytes((held / starts.len() as f64) as u64),
        bytes(needed as u64),
        percent(share(needed, now))
    ))
}

/// True if the finding on short bursts is there.
pub(super) fn has_bursts(subject: &Subject) -> bool {
    bursts(subject).is_some()
}

/// Least number of columns; a coarser timeline does not show bursts.
const LEAST_BINS: usize = 20;

/// Fires on writes that come in short bursts: they can go to fast storage first, and to the file system in between.
fn bursts(subject: &Subject) -> Option<Finding> {
    let job = subject.job;
    let limits = subject.limits;
    // These went to a burst buffer.
    if job.is_buffered() {
        return None;
    }
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
    let starts: Vec<usize> = (0..chosen.len())
        .filter(|&at| chosen[at] && (at == 0 || !chosen[at - 1]))
        .collect();
    let bursts = starts.len();
    let uses = job
        .layers
        .iter()
        .flat_map(|layer| real_files(subject, layer))
        .filter(|one| one.is_lowest);
    let waited = slowest_path(subject, uses, Part::WriteAndSync, |one: &FileUse| {
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
        waited.where_lost(job),
        bytes(limits.local_bytes_per_second as u64),
        units::count(nodes as u64, "node", "nodes")
    );
    finding.evidence = vec![format!(
        "outside of them there are {} in which the data could reach the file system",
        units::seconds(job.run_seconds * (1.0 - time_share).max(0.0))
    )];
    finding
        .evidence
        .extend(cadence(line, &starts, held, waited.seconds));
    finding.advice =
        "Write to a burst buffer, or asynchronously, and go on computing while the data drains."
            .to_owned();
    finding.setting = buffer_setting(
        subject,
        "writes go to local storage; the data is copied to DIR after the run",
    );
    Some(finding)
}
