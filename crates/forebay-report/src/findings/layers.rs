//! Findings that need more than one interface: what MPI-IO was asked for against what it asked of the file system, and
//! which storage target served what.

use super::collective::{Requests, gathered};
use super::late::awaited;
use super::loss::{Part, real_files, slowest_path};
use super::requests::{Direction, READS, WRITES};
use super::{Confidence, FileEvidence, Finding, MOST_MEASURED, Measured, NAMED_FILES, Subject};
use crate::account::split_of;
use crate::model::{FileUse, Interface};
use crate::units::{self, bytes, number, share};
use std::collections::{BTreeMap, HashMap};

/// All rules over several interfaces.
pub(super) fn rules(subject: &Subject) -> Vec<Finding> {
    [
        read_modify_write(subject),
        not_gathered(subject, READS),
        not_gathered(subject, WRITES),
        library_time(subject),
        slow_target(subject),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The uses of a file at POSIX and above it at MPI-IO.
pub(super) fn pairs<'a>(subject: &'a Subject) -> Vec<(&'a FileUse, &'a FileUse)> {
    let layer = |interface| subject.job.layer(interface);
    let (Some(posix), Some(mpi_io)) = (layer(Interface::Posix), layer(Interface::MpiIo)) else {
        return Vec::new();
    };
    // Of a module that ran out of memory it is not known what it left out.
    if posix.is_partial || mpi_io.is_partial {
        return Vec::new();
    }
    let above: HashMap<usize, &FileUse> = mpi_io.uses.iter().map(|one| (one.file, one)).collect();
    real_files(subject, posix)
        .filter(|one| !subject.job.files[one.file].is_rest())
        .filter_map(|one| Some((one, *above.get(&one.file)?)))
        .collect()
}

/// True if most requests of a file through MPI-IO are collective.
pub(super) fn is_collective(one: &FileUse) -> bool {
    let (read, write) = (&one.total.read, &one.total.write);
    let collective = read.collective + write.collective;
    collective > 0 && collective >= read.independent + write.independent
}

/// True if MPI-IO read a file for its own writes: more than the program asked it to read.
pub(super) fn reads_for_writes(below: &FileUse, above: &FileUse) -> bool {
    let (below, above) = (&below.total, &above.total);
    above.write.bytes > 0 && above.read.bytes < below.read.bytes / 2
}

/// True if the program's requests of this direction are collective, and each rank carries out its own all the same.
pub(super) fn is_not_gathered(below: &FileUse, above: &FileUse, direction: Direction) -> bool {
    let (asked, done) = (direction.of(above), direction.of(below));
    // Ranks of a sum are known by their extremes. The fastest one that has moved bytes stands for all.
    let moved = below.by_rank.iter().all(|rank| rank.bytes() > 0)
        && below.reduced.iter().all(|sum| sum.fastest.bytes > 0);
    asked.collective > 0
        && asked.collective >= asked.independent
        && below.ranks > 1
        && below.ranks == above.ranks
        && moved
        && done.ops >= asked.collective
        && !reads_for_writes(below, above)
}

/// True if Forebay's collective layer carried out calls of this file.
fn is_by_layer(subject: &Subject, one: &FileUse) -> bool {
    let name = &subject.job.files[one.file].name;
    let mut told = subject.job.collective.iter();
    told.any(|told| told.path == *name && told.taken() > 0)
}

/// Collective calls that became single requests of each rank.
fn not_gathered(subject: &Subject, direction: Direction) -> Option<Finding> {
    let limits = subject.limits;
    let hits: Vec<(&FileUse, &FileUse)> = pairs(subject)
        .into_iter()
        .filter(|(below, above)| is_not_gathered(below, above, direction))
        // The layer has decided for each of its calls whether to gather it.
        .filter(|(below, _)| !is_by_layer(subject, below))
        .filter(|(below, _)| {
            let flow = direction.of(below);
            (flow.bytes as f64) < limits.gathered_bytes / 4.0 * flow.ops as f64
        })
        .collect();
    let ops: u64 = hits.iter().map(|(below, _)| direction.of(below).ops).sum();
    if ops < limits.min_requests {
        return None;
    }
    let calls: u64 = hits
        .iter()
        .map(|(_, above)| direction.of(above).collective)
        .sum();
    let Direction { noun, verb, .. } = direction;
    let code = if direction.is_write {
        "collective-writes-not-gathered"
    } else {
        "collective-reads-not-gathered"
    };
    let title = format!(
        "{} collective {noun} became {} requests: each rank carries out its own",
        number(calls),
        number(ops)
    );
    let requests = Requests {
        of: |flow| flow.ops,
        name: "requests".to_owned(),
    };
    let uses = hits.iter().map(|(below, _)| *below);
    let mut finding = gathered(subject, code, title, uses.clone(), direction, &requests);
    finding.sizes = Some(direction.sizes(uses));
    finding.evidence = vec![format!(
        "every rank moves bytes of {} itself, where aggregators would do it for all",
        units::count(hits.len() as u64, "file", "files")
    )];
    finding.advice = format!(
        "Set the hint romio_cb_{verb}=enable: left to itself, MPI-IO gathers only requests that it sees interleaved."
    );
    Some(finding)
}

/// Bytes moved beyond those asked for below which no rule fires.
pub(super) const LEAST_BYTES: u64 = 16 << 20;

/// Data sieving: MPI-IO reads a block, changes pieces of it, and writes it back.
fn read_modify_write(subject: &Subject) -> Option<Finding> {
    let pairs = pairs(subject);
    let hits: Vec<(&FileUse, &FileUse)> = pairs
        .into_iter()
        .filter(|(below, above)| {
            let (written, asked) = (below.total.write.bytes, above.total.write.bytes);
            asked > 0 && written as f64 >= subject.limits.amplified_writes * asked as f64
        })
        .collect();
    let sum = |of: fn(&(&FileUse, &FileUse)) -> u64| hits.iter().map(of).sum::<u64>();
    let asked = sum(|(_, above)| above.total.write.bytes);
    let written = sum(|(below, _)| below.total.write.bytes);
    let read = sum(|(below, above)| match reads_for_writes(below, above) {
        true => below.total.read.bytes - above.total.read.bytes,
        false => 0,
    });
    if (written - asked).saturating_add(read) < LEAST_BYTES {
        return None;
    }
    // The share of its bytes that each file did not need.
    let beyond: HashMap<usize, f64> = hits
        .iter()
        .map(|(below, above)| {
            let needed = share(above.total.bytes() as f64, below.total.bytes() as f64);
            (below.file, (1.0 - needed).max(0.0))
        })
        .collect();
    // In independent calls a rank waits for nothing but the blocks that it changes, and for their locks. Collective calls
    // wait for other ranks, too.
    let uses = hits.iter().map(
        |(below, above)| {
            if is_collective(above) { *below } else { *above }
        },
    );
    let loss = slowest_path(subject, uses, Part::Data, |one| {
        let seconds = one.total.read.seconds + one.total.write.seconds;
        seconds * beyond.get(&one.file).copied().unwrap_or(0.0)
    });
    let reads = match read {
        0 => String::new(),
        read => format!(", and reads {} for it", bytes(read)),
    };
    let title = format!(
        "MPI-IO writes {} for {} that the program writes{reads}",
        bytes(written),
        bytes(asked)
    );
    // Measured: over a page cache, the same pieces written one by one take as long.
    let mut finding = if is_cached(subject, &hits) {
        Finding::not_estimated_for(
            subject,
            "read-modify-write",
            title,
            &loss,
            "the calls below are as quick as memory, and may cost less than the many small ones that write no more than was \
             asked for",
        )
    } else {
        Finding::of_loss(
            subject,
            "read-modify-write",
            title,
            &loss,
            "measured time to read and write x (1 - bytes asked of MPI-IO / bytes that it moved): the time in MPI-IO where \
             calls are independent, else in POSIX, to which waiting for locks comes on top"
                .to_owned(),
        )
    };
    finding.evidence = vec![format!(
        "in {}: {}",
        units::count(hits.len() as u64, "file", "files"),
        match read {
            0 =>
                "nothing is read for it, so blocks are written several times, or space is filled in advance",
            _ => "data sieving changes small pieces within blocks that it reads and writes whole",
        }
    )];
    let below: HashMap<usize, &FileUse> = hits.iter().map(|(one, _)| (one.file, *one)).collect();
    finding.files = loss.evidence(subject, |one| {
        below.get(&one.file).map_or_else(String::new, |one| {
            format!(
                "POSIX wrote {} and read {}",
                bytes(one.total.write.bytes),
                bytes(one.total.read.bytes)
            )
        })
    });
    finding.advice = if hits.iter().all(|(_, above)| is_collective(above)) {
        "The calls are collective, but not carried out so: set the hints romio_cb_write=enable and \
         romio_ds_write=disable, and let cb_nodes be at least the number of nodes."
    } else {
        "Use collective writes (MPI_File_write_at_all), or set the hint romio_ds_write=disable."
    }
    .to_owned();
    finding.setting = is_one_node(subject).then(|| {
        "forebay run --collective --buffer DIR -- CMD: collective writes by Forebay's aggregators, which write whole blocks"
            .to_owned()
    });
    Some(finding)
}

/// True if the calls below move data so quickly that only memory can have taken it.
fn is_cached(subject: &Subject, hits: &[(&FileUse, &FileUse)]) -> bool {
    let of = |part: fn(&FileUse) -> f64| hits.iter().map(|(below, _)| part(below)).sum::<f64>();
    let moved = of(|below| below.total.bytes() as f64);
    let seconds = of(|below| below.total.read.seconds + below.total.write.seconds);
    moved >= subject.limits.local_bytes_per_second * seconds
}

fn is_one_node(subject: &Subject) -> bool {
    subject.job.nodes.is_none_or(|nodes| nodes == 1)
}

/// Time that ranks spend in MPI-IO and not in the calls below: they wait for each other, or exchange data.
fn library_time(subject: &Subject) -> Option<Finding> {
    let pairs = pairs(subject);
    if pairs.is_empty() {
        return None;
    }
    let of = |interface| split_of(subject.job, interface).io();
    let (above, below) = (of(Interface::MpiIo), of(Interface::Posix));
    let beyond = above - below;
    if beyond < subject.limits.unexplained_share * subject.job.run_seconds || below > above / 2.0 {
        return None;
    }
    // Waiting for late ranks has a finding of its own.
    let awaited: f64 = awaited(subject).iter().map(|one| one.seconds).sum();
    if awaited >= beyond / 2.0 {
        return None;
    }
    let mut finding = Finding::not_estimated(
        "library-time",
        format!(
            "A mean rank is in MPI-IO for {}, and in the calls below for {}",
            units::seconds(above),
            units::seconds(below)
        ),
        beyond,
    );
    let collective = pairs
        .iter()
        .filter(|(_, above)| is_collective(above))
        .count();
    finding.evidence = vec![format!(
        "files used collectively: {collective} of {}",
        pairs.len()
    )];
    let told = &subject.job.collective;
    let gathers = told.is_empty() || told.iter().any(|one| one.calls.exchanged > 0);
    finding.advice = if collective > 0 && !gathers {
        "Ranks wait for each other in collective calls that no aggregator gathers: larger calls, or fewer of them, have them wait less \
         often. What each part costs needs a trace of MPI."
    } else if collective > 0 {
        "Ranks wait for the aggregators, exchange data with them, or wait for each other: try more aggregators (cb_nodes), larger calls, or \
         fewer of them. What each part costs needs a trace of MPI."
    } else {
        "Ranks wait within MPI-IO without collective calls: for locks of shared files, or for shared file pointers."
    }
    .to_owned();
    Some(finding)
}

/// Least number of storage targets; fewer have no meaningful median.
const LEAST_TARGETS: usize = 8;

/// Uses of files that storage targets have served.
fn served<'a>(subject: &'a Subject) -> impl Iterator<Item = &'a FileUse> {
    let layers = subject.job.layers.iter();
    layers
        .flat_map(|layer| real_files(subject, layer))
        .filter(|one| one.is_lowest && one.total.bytes() > 0)
        .filter(|one| one.slowest().is_some_and(|slowest| slowest.seconds > 0.0))
}

/// A storage target that serves its files much slower than the others serve theirs.
fn slow_target(subject: &Subject) -> Option<Finding> {
    let job = subject.job;
    // By target: number of its files, their seconds, their bytes.
    let mut targets: BTreeMap<u32, (u32, f64, f64)> = BTreeMap::new();
    for one in served(subject) {
        let seconds = one.slowest().map_or(0.0, |slowest| slowest.seconds);
        for target in &job.files[one.file].targets {
            let sum = targets.entry(*target).or_default();
            *sum = (sum.0 + 1, sum.1 + seconds, sum.2 + one.total.bytes() as f64);
        }
    }
    if targets.len() < LEAST_TARGETS {
        return None;
    }
    let mean = |sum: &(u32, f64, f64)| (sum.1 / f64::from(sum.0), sum.2 / f64::from(sum.0));
    let (seconds, moved): (Vec<f64>, Vec<f64>) = targets.values().map(mean).unzip();
    let (usual, usual_bytes) = (median(seconds), median(moved));
    let mut slow: Vec<(u32, f64)> = targets
        .iter()
        .map(|(target, sum)| (*target, mean(sum)))
        .filter(|(_, (seconds, moved))| {
            *seconds >= subject.limits.slow_target * usual && *moved <= 1.5 * usual_bytes
        })
        .map(|(target, (seconds, _))| (target, seconds))
        .collect();
    slow.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    let &(worst, took) = slow.first()?;
    let mut by_rank: BTreeMap<u32, f64> = BTreeMap::new();
    for one in served(subject) {
        let is_slow = |target: &u32| slow.iter().any(|(slow, _)| slow == target);
        if let Some(slowest) = one.slowest()
            && job.files[one.file].targets.iter().any(is_slow)
        {
            *by_rank.entry(slowest.rank).or_default() += slowest.seconds - usual;
        }
    }
    let lost = by_rank.into_values().fold(0.0, f64::max);
    let mut finding = Finding::new(
        "slow-target",
        format!(
            "Storage target OST {worst} is slow: a file on it took {}, the median of {} targets is {}",
            units::seconds(took),
            targets.len(),
            units::seconds(usual)
        ),
        lost,
    );
    finding.confidence = Confidence::High;
    finding.estimate = "measured: time of the files on slow targets less as many medians, of the rank for which that is most"
        .to_owned();
    finding.evidence = vec![format!(
        "{} of {} targets take {} times the median or more, with no more bytes in a file",
        slow.len(),
        targets.len(),
        subject.limits.slow_target
    )];
    finding.measured = targets
        .iter()
        .map(|(target, sum)| Measured {
            name: format!("OST {target}"),
            seconds: mean(sum).0,
        })
        .collect();
    let slowest_first = |a: &Measured, b: &Measured| b.seconds.total_cmp(&a.seconds);
    finding.measured.sort_by(slowest_first);
    finding.measured.truncate(MOST_MEASURED);
    finding.measured.push(Measured {
        name: format!("median of {}", targets.len()),
        seconds: usual,
    });
    finding.files = slow
        .iter()
        .take(NAMED_FILES)
        .map(|(target, seconds)| FileEvidence {
            name: format!("OST {target}"),
            detail: format!(
                "{} a file, {:.0} times the median",
                units::seconds(*seconds),
                share(*seconds, usual)
            ),
        })
        .collect();
    finding.advice = "Tell the operators which target it is, and put new files elsewhere (lfs setstripe -o, or a pool \
                      without it)."
        .to_owned();
    Some(finding)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}
