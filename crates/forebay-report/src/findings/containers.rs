//! HDF5 and PnetCDF against the calls on the files that hold their data sets and variables: bytes that go beyond those that
//! the program asked for, and time that is not in these calls.

use super::loss::{Part, slowest_path};
use super::{Confidence, FileEvidence, Finding, NAMED_FILES, Subject, Thresholds};
use crate::account::rank_shares;
use crate::model::{Counters, FileUse, Flow, Interface, Job, RankShare};
use crate::units::{self, bytes, number, share};
use std::collections::{BTreeMap, HashMap, HashSet};

/// The finding about bytes.
pub(super) const AMPLIFICATION: &str = "data-set-amplification";
/// The finding about time.
pub(super) const TIME: &str = "data-set-time";

/// Both rules.
pub(super) fn rules(subject: &Subject) -> Vec<Finding> {
    let containers = containers(subject.job);
    [Interface::Hdf5, Interface::Pnetcdf]
        .into_iter()
        .flat_map(|library| {
            let of_library = || containers.iter().filter(move |one| one.library == library);
            let (amplified, others): (Vec<_>, Vec<_>) =
                of_library().partition(|one| one.is_amplified(subject.limits));
            [
                amplification(subject, library, &amplified),
                time(subject, library, &others),
            ]
        })
        .flatten()
        .collect()
}

/// Files whose requests are mostly those that a library adds by itself. Rules about the requests of the program leave them
/// out.
pub(super) fn amplified(job: &Job, limits: &Thresholds) -> HashSet<usize> {
    let all = containers(job).into_iter();
    all.filter(|one| one.is_amplified(limits))
        .map(|one| one.below.file)
        .collect()
}

/// A file that holds data sets or variables.
struct Container<'a> {
    library: Interface,
    /// Its data sets.
    sets: Vec<&'a FileUse>,
    /// The sum over them.
    asked: Counters,
    /// The file at the next interface below.
    below: &'a FileUse,
    below_is: Interface,
    /// Bytes that the users of its data sets read from it.
    read: u64,
    /// Bytes that they wrote.
    written: u64,
}

/// Bytes beyond those asked for below which there is no finding.
const LEAST_BYTES: u64 = super::layers::LEAST_BYTES;

impl Container<'_> {
    fn writes_more(&self, limits: &Thresholds) -> bool {
        let asked = self.asked.write.bytes;
        asked > 0 && is_more(self.written, asked, limits)
    }

    /// A program that only writes reads nothing by itself, but it may copy the file.
    fn reads_more(&self, limits: &Thresholds) -> bool {
        let asked = self.asked.read.bytes;
        (asked > 0 || self.writes_more(limits)) && is_more(self.read, asked, limits)
    }

    fn is_amplified(&self, limits: &Thresholds) -> bool {
        self.writes_more(limits) || self.reads_more(limits)
    }

    /// Seconds of a use of its data sets, or of itself, that went into bytes nobody asked for.
    fn beyond(&self, one: &FileUse, limits: &Thresholds) -> f64 {
        let of = |is_more: bool, flow: &Flow, asked: u64, moved: u64| match is_more {
            true => flow.seconds * (1.0 - share(asked as f64, moved as f64)).max(0.0),
            false => 0.0,
        };
        let (asked, total) = (&self.asked, &one.total);
        let (reads, writes) = (self.reads_more(limits), self.writes_more(limits));
        of(reads, &total.read, asked.read.bytes, self.read)
            + of(writes, &total.write, asked.write.bytes, self.written)
    }
}

fn is_more(moved: u64, asked: u64, limits: &Thresholds) -> bool {
    moved.saturating_sub(asked) >= LEAST_BYTES
        && moved as f64 >= limits.amplified_writes * asked as f64
}

/// All files of which both a library and the interface below it have complete records.
fn containers(job: &Job) -> Vec<Container<'_>> {
    let mut sets: BTreeMap<(Interface, usize), Vec<&FileUse>> = BTreeMap::new();
    for library in [Interface::Hdf5, Interface::Pnetcdf] {
        let layer = job.layer(library);
        // What was left out, or summed, may be a data set of any file.
        let complete = layer.filter(|layer| !layer.is_partial && !layer.is_condensed);
        for one in complete.into_iter().flat_map(|layer| &layer.uses) {
            if let Some(file) = job.files[one.file].container {
                sets.entry((library, file)).or_default().push(one);
            }
        }
    }
    if sets.is_empty() {
        return Vec::new();
    }
    // Of the interfaces below the libraries the highest one that has a record.
    let mut below: HashMap<usize, (Interface, &FileUse)> = HashMap::new();
    for interface in [Interface::Stdio, Interface::Posix, Interface::MpiIo] {
        let layer = job.layer(interface).filter(|layer| !layer.is_partial);
        for one in layer.into_iter().flat_map(|layer| &layer.uses) {
            below.insert(one.file, (interface, one));
        }
    }
    let found = sets.into_iter().filter_map(|((library, file), sets)| {
        let (below_is, below) = *below.get(&file)?;
        let (read, written) = moved_by_users(&sets, below);
        let mut asked = Counters::default();
        for one in &sets {
            asked.add(&one.total);
        }
        Some(Container {
            library,
            sets,
            asked,
            below,
            below_is,
            read,
            written,
        })
    });
    found.collect()
}

/// Bytes read and written of the file by ranks that use its data sets. Others, that copy it for example, have no part in
/// what the library does.
fn moved_by_users(sets: &[&FileUse], below: &FileUse) -> (u64, u64) {
    let uses = |rank: u32| {
        sets.iter().any(|set| {
            let ranges = set
                .reduced
                .iter()
                .map(|sum| sum.first_rank..sum.first_rank.saturating_add(sum.ranks));
            set.by_rank.iter().any(|share| share.rank == rank)
                || ranges.into_iter().any(|range| range.contains(&rank))
        })
    };
    let others = || below.by_rank.iter().filter(|share| !uses(share.rank));
    let of = |all: u64, part: fn(&RankShare) -> u64| {
        let others: u64 = others().map(part).sum();
        all.saturating_sub(others)
    };
    let total = &below.total;
    (
        of(total.read.bytes, |share| share.bytes_read),
        of(total.write.bytes, |share| share.bytes_written),
    )
}

/// How many times as much, in words; empty if nothing was asked for.
fn times(moved: u64, asked: u64) -> String {
    let factor = share(moved as f64, asked as f64);
    if factor < 10.0 {
        format!("{factor:.1} times as much")
    } else {
        format!("{} times as much", number(factor as u64))
    }
}

fn amplification(subject: &Subject, library: Interface, hits: &[&Container]) -> Option<Finding> {
    let limits = subject.limits;
    if hits.is_empty() {
        return None;
    }
    let sum = |of: fn(&Container) -> u64| hits.iter().map(|one| of(one)).sum::<u64>();
    let (asked_to_write, asked_to_read) = (
        sum(|one| one.asked.write.bytes),
        sum(|one| one.asked.read.bytes),
    );
    let (written, read) = (sum(|one| one.written), sum(|one| one.read));
    let writes = hits.iter().any(|one| one.writes_more(limits));
    let reads = hits.iter().any(|one| one.reads_more(limits));
    let name = library.name();
    let mut parts = Vec::new();
    if writes {
        parts.push(format!(
            "writes {} for {} that the program writes ({})",
            bytes(written),
            bytes(asked_to_write),
            times(written, asked_to_write)
        ));
    }
    if reads && asked_to_read == 0 {
        parts.push(format!("reads {} for it", bytes(read)));
    } else if reads {
        parts.push(format!(
            "reads {} for {} that the program reads ({})",
            bytes(read),
            bytes(asked_to_read),
            times(read, asked_to_read)
        ));
    }
    let by_file: HashMap<usize, &Container> = hits
        .iter()
        .flat_map(|one| {
            let sets = one.sets.iter().map(|set| (set.file, *one));
            sets.chain([(one.below.file, *one)])
        })
        .collect();
    let beyond = |one: &FileUse| {
        let container = by_file.get(&one.file);
        container.map_or(0.0, |container| container.beyond(one, limits))
    };
    // In collective calls a rank waits for others, too. The calls below have only what was moved.
    let alone = hits
        .iter()
        .filter(|one| !super::layers::is_collective(one.below));
    let sets = alone.flat_map(|one| one.sets.iter().copied());
    let in_library = slowest_path(subject, sets, Part::Data, beyond);
    let in_calls = slowest_path(
        subject,
        hits.iter().map(|one| one.below),
        Part::Data,
        beyond,
    );
    let (loss, place) = if in_library.seconds >= in_calls.seconds {
        (&in_library, name)
    } else {
        (&in_calls, "the calls below")
    };
    let mut finding = Finding::of_loss(
        subject,
        AMPLIFICATION,
        format!("{name} {}", parts.join(", and ")),
        loss,
        format!(
            "measured time to read and to write in {place}, each x (1 - bytes that the program asked for / bytes moved)"
        ),
    );
    finding.evidence = vec![format!(
        "{} of the program became {} at {}",
        units::count(sum(|one| one.asked.ops()), "call", "calls"),
        units::count(sum(|one| one.below.total.ops()), "call", "calls"),
        hits[0].below_is.name()
    )];
    finding.evidence.push(
        if reads && asked_to_read == 0 {
            "what is read is what is written again: chunks of which a call changes a part"
        } else if reads {
            "chunks are read whole, and again if the cache does not hold them until the next call"
        } else {
            "nothing is read for it: fill values, or chunks that are written again for each part"
        }
        .to_owned(),
    );
    finding.evidence.push(
        "not in the bytes of data sets: attributes, and what data of variable length refers to"
            .to_owned(),
    );
    let mut order: Vec<&&Container> = hits.iter().collect();
    order.sort_by_key(|one| std::cmp::Reverse(one.read + one.written));
    finding.files = order
        .iter()
        .take(NAMED_FILES)
        .map(|one| FileEvidence {
            name: subject.job.files[one.below.file].name.clone(),
            detail: format!(
                "{} wrote {} and read {}; the program wrote {} and read {} in {}",
                one.below_is.name(),
                bytes(one.written),
                bytes(one.read),
                bytes(one.asked.write.bytes),
                bytes(one.asked.read.bytes),
                units::count(one.sets.len() as u64, "data set", "data sets")
            ),
        })
        .collect();
    finding.advice = if library == Interface::Hdf5 {
        "Give chunks the shape of what one call reads or writes; enlarge the chunk cache until it holds the chunks of a call \
         (H5Pset_chunk_cache, in h5py rdcc_nbytes); write no fill values where everything is written (H5Pset_fill_time with \
         H5D_FILL_TIME_NEVER)."
    } else {
        "Read and write whole variables, or large parts of them that lie together; write no fill values (ncmpi_set_fill with \
         NC_NOFILL); use the collective calls."
    }
    .to_owned();
    Some(finding)
}

/// Time in a library that is not in the calls on its files.
fn time(subject: &Subject, library: Interface, containers: &[&Container]) -> Option<Finding> {
    let job = subject.job;
    let sets: HashSet<usize> = containers
        .iter()
        .flat_map(|one| one.sets.iter().map(|set| set.file))
        .collect();
    let files: HashMap<usize, Interface> = containers
        .iter()
        .map(|one| (one.below.file, one.below_is))
        .collect();
    let mean = |shares: Vec<RankShare>| {
        let seconds: f64 = shares.iter().map(RankShare::seconds).sum();
        share(seconds, shares.len() as f64)
    };
    let above = mean(rank_shares(job, |layer, one| {
        layer == library && sets.contains(&one.file)
    }));
    let below = mean(rank_shares(job, |layer, one| {
        files.get(&one.file) == Some(&layer)
    }));
    let beyond = above - below;
    if beyond < subject.limits.unexplained_share * job.run_seconds || below > above / 2.0 {
        return None;
    }
    let name = library.name();
    let mut finding = Finding::not_estimated(
        TIME,
        format!(
            "A mean rank is in {name} for {}, and in the calls below for {}",
            units::seconds(above),
            units::seconds(below)
        ),
        beyond,
    );
    finding.confidence = Confidence::Low;
    let mut asked = Counters::default();
    for one in containers {
        asked.add(&one.asked);
    }
    finding.evidence = vec![format!(
        "{} of {} each on average, in {}",
        units::count(asked.ops(), "call", "calls"),
        bytes(asked.bytes() / asked.ops().max(1)),
        units::count(containers.len() as u64, "file", "files")
    )];
    finding.advice = if library == Interface::Hdf5 {
        "Larger calls; the same type in memory as in the file; chunks that a call covers whole; a cheaper filter, or none. What \
         each part costs needs a profile of the program."
    } else {
        "Larger calls; the same type in memory as in the file. What each part costs needs a profile of the program."
    }
    .to_owned();
    Some(finding)
}
