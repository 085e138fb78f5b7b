//! Findings that need more than one interface: what MPI-IO was asked for against what it asked of the file system, and
//! which storage target served what.

use super::loss::{Part, real_files, slowest_path};
use super::{Confidence, FileEvidence, Finding, NAMED_FILES, Subject};
use crate::account::split_of;
use crate::model::{FileUse, Interface};
use crate::units::{self, bytes, share};
use std::collections::{BTreeMap, HashMap};

/// All rules over several interfaces.
pub(super) fn rules(subject: &Subject) -> Vec<Finding> {
    [
        read_modify_write(subject),
        library_time(subject),
        slow_target(subject),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The uses of a file at POSIX and above it at MPI-IO.
fn pairs<'a>(subject: &'a Subject) -> Vec<(&'a FileUse, &'a FileUse)> {
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

/// Bytes asked for below which no rule fires.
const LEAST_BYTES: u64 = 16 << 20;

/// Data sieving: MPI-IO reads a block, changes pieces of it, and writes it back.
fn read_modify_write(subject: &Subject) -> Option<Finding> {
    let pairs = pairs(subject);
    let hits: Vec<(&FileUse, &FileUse)> = pairs
        .into_iter()
        .filter(|(below, above)| {
            let (written, asked) = (below.total.write.bytes, above.total.write.bytes);
            reads_for_writes(below, above)
                && written as f64 >= subject.limits.amplified_writes * asked as f64
        })
        .collect();
    let sum = |of: fn(&(&FileUse, &FileUse)) -> u64| hits.iter().map(of).sum::<u64>();
    let asked = sum(|(_, above)| above.total.write.bytes);
    let written = sum(|(below, _)| below.total.write.bytes);
    let read = sum(|(below, above)| below.total.read.bytes - above.total.read.bytes);
    if asked < LEAST_BYTES {
        return None;
    }
    let needed: HashMap<usize, u64> = hits
        .iter()
        .map(|(below, above)| (below.file, above.total.bytes()))
        .collect();
    let uses = hits.iter().map(|(below, _)| *below);
    let loss = slowest_path(subject, uses, Part::Data, |one| {
        let moved = one.total.bytes() as f64;
        let needed = needed.get(&one.file).copied().unwrap_or(0) as f64;
        (one.total.read.seconds + one.total.write.seconds) * (1.0 - share(needed, moved)).max(0.0)
    });
    let mut finding = Finding::of_loss(
        "read-modify-write",
        format!(
            "MPI-IO writes {} for {} that the program writes, and reads {} for it",
            bytes(written),
            bytes(asked),
            bytes(read)
        ),
        &loss,
        "measured time in the POSIX calls x (1 - bytes asked of MPI-IO / bytes that it moved); waiting for locks of other \
         ranks comes on top"
            .to_owned(),
    );
    finding.evidence = vec![format!(
        "in {}: data sieving changes small pieces within blocks that it reads and writes whole",
        units::count(hits.len() as u64, "file", "files")
    )];
    finding.files = loss.evidence(subject, |one| {
        format!(
            "POSIX wrote {} and read {}",
            bytes(one.total.write.bytes),
            bytes(one.total.read.bytes)
        )
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
        "{} of {} are used collectively",
        collective,
        units::count(pairs.len() as u64, "file", "files")
    )];
    finding.advice = if collective > 0 {
        "Ranks wait for the aggregators, or exchange data with them: try more aggregators (cb_nodes), larger calls, or \
         fewer of them. What each part costs needs a trace of MPI."
    } else {
        "Ranks wait within MPI-IO without collective calls: for locks of shared files, or for shared file pointers."
    }
    .to_owned();
    Some(finding)
}

/// Least number of storage targets; fewer have no meaningful median.
const LEAST_TARGETS: usize = 8;

/// A storage target that serves its files much slower than the others serve theirs.
fn slow_target(subject: &Subject) -> Option<Finding> {
    let job = subject.job;
    // By target: number of its files, their seconds, their bytes.
    let mut targets: BTreeMap<u32, (u32, f64, f64)> = BTreeMap::new();
    for one in job
        .layers
        .iter()
        .flat_map(|layer| real_files(subject, layer))
    {
        let seconds = one.slowest().map_or(0.0, |slowest| slowest.seconds);
        if !one.is_lowest || one.total.bytes() == 0 || seconds <= 0.0 {
            continue;
        }
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
    let mut finding = Finding::new(
        "slow-target",
        format!(
            "Storage target OST {worst} is slow: a file on it took {}, the median of {} targets is {}",
            units::seconds(took),
            targets.len(),
            units::seconds(usual)
        ),
        took - usual,
    );
    finding.confidence = Confidence::High;
    finding.estimate =
        "measured: mean time of the files on that target less the median over targets".to_owned();
    finding.evidence = vec![format!(
        "{} of {} targets take {} times the median or more, with no more bytes in a file",
        slow.len(),
        targets.len(),
        subject.limits.slow_target
    )];
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
