//! Rules about requests: small, misaligned, random, alternating, synced, through C streams.

use super::calibration::RequestCost;
use super::loss::{Loss, Part, real_files, slowest_path};
use super::{Confidence, Finding, Subject, buffer_setting, layers};
use crate::model::{BUCKET_NAMES, FileUse, Flow, Interface, Sharing};
use crate::units::{self, bytes, number, percent, share};
use std::collections::HashMap;

/// Number of buckets up to 100 KiB. The next one holds requests of 101 KiB, but also those of exactly 1 MiB, so it
/// can't count as small.
const SMALL_BUCKETS: usize = 4;
/// Geometric middle of each of these buckets, in bytes.
const SMALL_MIDDLES: [u64; SMALL_BUCKETS] = [32, 320, 3_238, 32_382];

/// A direction of data.
#[derive(Clone, Copy)]
pub(super) struct Direction {
    pub is_write: bool,
    pub noun: &'static str,
    pub verb: &'static str,
    pub part: Part,
}

pub(super) const READS: Direction = Direction {
    is_write: false,
    noun: "reads",
    verb: "read",
    part: Part::Read,
};
pub(super) const WRITES: Direction = Direction {
    is_write: true,
    noun: "writes",
    verb: "write",
    part: Part::Write,
};

impl Direction {
    pub(super) fn of(self, one: &FileUse) -> &Flow {
        if self.is_write {
            &one.total.write
        } else {
            &one.total.read
        }
    }

    /// Seconds in requests that need not wait for storage, as far as the time of the others is known.
    pub(super) fn seconds(self, one: &FileUse) -> f64 {
        if self.is_write {
            one.total.plain_write_seconds()
        } else {
            one.total.read.seconds
        }
    }

    /// Requests by size of all these files together.
    pub(super) fn sizes<'a>(
        self,
        uses: impl Iterator<Item = &'a FileUse>,
    ) -> [u64; BUCKET_NAMES.len()] {
        let mut sums = [0u64; BUCKET_NAMES.len()];
        for one in uses {
            for (sum, n) in sums.iter_mut().zip(self.of(one).sizes) {
                *sum = sum.saturating_add(n);
            }
        }
        sums
    }
}

/// The same of single files. Of a sum over several files it is not known which request came behind which.
fn single<'a>(
    subject: &'a Subject,
    counts: fn(Interface) -> bool,
) -> impl Iterator<Item = &'a FileUse> {
    lowest(subject, counts).filter(|one| !subject.job.files[one.file].is_rest())
}

/// All rules on requests that reach the file system.
pub(super) fn rules(subject: &Subject) -> Vec<Finding> {
    let mut found = Vec::new();
    for direction in [READS, WRITES] {
        for is_shared in [false, true] {
            found.extend(small(subject, direction, is_shared));
        }
        found.extend(random(subject, direction));
    }
    found.extend(misaligned(subject));
    found.extend(switches(subject));
    found
}

/// Rules on a whole interface.
pub(super) fn layer_rules(subject: &Subject) -> Vec<Finding> {
    stdio_bulk(subject).into_iter().collect()
}

/// Uses at the lowest interface, if that interface counts what a rule needs.
pub(super) fn lowest<'a>(
    subject: &'a Subject,
    counts: fn(Interface) -> bool,
) -> impl Iterator<Item = &'a FileUse> {
    subject
        .job
        .layers
        .iter()
        .filter(move |layer| counts(layer.interface))
        .flat_map(|layer| real_files(subject, layer))
        .filter(|one| one.is_lowest)
}

/// Small requests of a file. A program that reads to the end of a file has one empty read per open, which counts as a
/// small one. It costs nothing and can't be avoided, so these are taken off.
fn small_ops(one: &FileUse, direction: Direction) -> u64 {
    let flow = direction.of(one);
    let empty = if direction.is_write {
        0
    } else {
        one.total.opens.min(flow.sizes[0])
    };
    flow.sizes[..SMALL_BUCKETS].iter().sum::<u64>() - empty
}

fn small_bytes(flow: &Flow) -> f64 {
    let buckets = flow.sizes.iter().zip(SMALL_MIDDLES);
    let sum: f64 = buckets.map(|(n, middle)| *n as f64 * middle as f64).sum();
    sum.min(flow.bytes as f64)
}

/// The uses of files at MPI-IO.
fn above<'a>(subject: &'a Subject) -> HashMap<usize, &'a FileUse> {
    let layer = subject.job.layer(Interface::MpiIo);
    let uses = layer.into_iter().flat_map(|layer| &layer.uses);
    uses.map(|one| (one.file, one)).collect()
}

/// True if the reads of a file are those of MPI-IO's own writes (data sieving), for which the program can do nothing.
fn is_sieved(above: &HashMap<usize, &FileUse>, one: &FileUse) -> bool {
    let mpi_io = above.get(&one.file);
    mpi_io.is_some_and(|mpi_io| layers::reads_for_writes(one, mpi_io))
}

/// The cost of all requests in the model, as a multiple of moving one byte: each costs its bytes and a constant.
fn cost(ops: u64, bytes: u64, request: RequestCost) -> f64 {
    ops as f64 * request.bytes + bytes as f64
}

/// Of `seconds` in the requests of a flow those that the program would have saved with `fewer` requests less.
pub(super) fn request_seconds(seconds: f64, flow: &Flow, fewer: f64, request: RequestCost) -> f64 {
    seconds * share(fewer * request.bytes, cost(flow.ops, flow.bytes, request))
}

fn common_sizes(loss: &Loss) -> Option<String> {
    let (one, _) = loss.files.first()?;
    let sizes: Vec<String> = one
        .total
        .common
        .iter()
        .take(2)
        .filter(|(_, count)| *count > 0)
        .map(|(size, count)| {
            format!(
                "{} ({})",
                bytes(*size),
                units::count(*count, "time", "times")
            )
        })
        .collect();
    (!sizes.is_empty()).then(|| {
        format!(
            "most frequent request sizes in the most costly file: {}",
            sizes.join(", ")
        )
    })
}

fn small(subject: &Subject, direction: Direction, is_shared: bool) -> Option<Finding> {
    let limits = subject.limits;
    let above = above(subject);
    let hits: Vec<&FileUse> = lowest(subject, Interface::has_sizes)
        .filter(|one| direction.is_write || !is_sieved(&above, one))
        .filter(|one| !subject.amplified.contains(&one.file))
        .filter(|one| (one.sharing != Sharing::Unique) == is_shared)
        // These have a finding of their own.
        .filter(|one| {
            let up = above.get(&one.file);
            !up.is_some_and(|up| layers::is_not_gathered(one, up, direction))
        })
        .filter(|one| {
            let flow = direction.of(one);
            let small = small_ops(one, direction);
            small > 0 && small as f64 >= limits.small_share * flow.ops as f64
        })
        .collect();
    let total: u64 = hits.iter().map(|one| small_ops(one, direction)).sum();
    if total < limits.min_requests {
        return None;
    }
    let all: u64 = hits.iter().map(|one| direction.of(one).ops).sum();
    let request = match is_shared {
        false => RequestCost::of(subject, direction),
        // There a request costs locks, too, of which files of one process tell nothing.
        true => RequestCost::assumed(limits),
    };
    let loss = slowest_path(subject, hits.iter().copied(), direction.part, |one| {
        let flow = direction.of(one);
        let gathered = (small_bytes(flow) / limits.gathered_bytes).ceil();
        request_seconds(
            direction.seconds(one),
            flow,
            (small_ops(one, direction) as f64 - gathered).max(0.0),
            request,
        )
    });
    let is_mpi_io = hits.iter().any(|one| !one.is_highest);
    let is_collective = |one: &&FileUse| {
        above
            .get(&one.file)
            .is_some_and(|up| layers::is_collective(up))
    };
    let is_collective = hits.iter().any(is_collective);
    let of_one = match (subject.job.ranks, subject.job.serial_steps()) {
        (0 | 1, _) => "files",
        (_, 0) => "files of a single rank",
        _ => "files of a single process",
    };
    let (code, place) = match (direction.is_write, is_shared) {
        (false, false) => ("small-reads", of_one),
        (false, true) => ("small-reads-shared", "shared files"),
        (true, false) => ("small-writes", of_one),
        (true, true) => ("small-writes-shared", "shared files"),
    };
    let mut finding = Finding::of_loss(
        subject,
        code,
        format!(
            "Small {} on {place}: {} of {} are 100 KiB or less",
            direction.noun,
            number(total),
            number(all)
        ),
        &loss,
        format!(
            "time to {} x cost of the small requests beyond their cost when gathered into {}; {}",
            direction.verb,
            bytes(limits.gathered_bytes as u64),
            request.text()
        ),
    );
    if request.files.is_some() {
        finding.confidence = Confidence::High;
    }
    finding.evidence = vec![format!(
        "{} in {}",
        units::count(total, "small request", "small requests"),
        units::count(hits.len() as u64, "file", "files")
    )];
    finding.evidence.extend(common_sizes(&loss));
    finding.sizes = Some(direction.sizes(hits.iter().copied()));
    finding.files = loss.evidence(subject, |one| {
        let flow = direction.of(one);
        format!(
            "{} of {} {} small, {} in {}",
            number(small_ops(one, direction)),
            number(flow.ops),
            direction.noun,
            bytes(flow.bytes),
            units::seconds(direction.seconds(one) / f64::from(one.ranks.max(1)))
        )
    });
    finding.advice = if is_collective {
        "The program's calls are collective already, but small requests reach the file system: set the hints \
         romio_cb_read and romio_cb_write to enable, and cb_buffer_size to 16 MiB."
            .to_owned()
    } else {
        small_advice(direction, is_shared, is_mpi_io, subject)
    };
    if direction.is_write {
        finding.setting = buffer_setting(
            subject,
            "the requests go to local storage and its page cache; the file system sees large copies",
        );
    }
    Some(finding)
}

fn small_advice(
    direction: Direction,
    is_shared: bool,
    is_mpi_io: bool,
    subject: &Subject,
) -> String {
    match (is_shared, is_mpi_io, subject.job.is_mpi()) {
        (true, true, _) => format!(
            "Use collective calls (MPI_File_{}_at_all; in HDF5 collective transfer), so that MPI-IO gathers the \
             requests of all ranks.",
            direction.verb
        ),
        (true, false, true) => {
            "Let one rank per node gather the requests of its neighbours, or move this file to MPI-IO \
             with collective calls."
                .to_owned()
        }
        _ => format!(
            "Gather data in memory and {} 1 MiB or more at a time (a larger buffer for the stream, whole arrays \
             instead of elements).",
            direction.verb
        ),
    }
}

/// Requests that are not behind the previous one. The first request of each rank does not count.
fn jumps(one: &FileUse, flow: &Flow) -> u64 {
    let first = u64::from(one.ranks).min(flow.ops);
    (flow.ops - first).saturating_sub(flow.sequential)
}

fn random(subject: &Subject, direction: Direction) -> Option<Finding> {
    let limits = subject.limits;
    let above = above(subject);
    let hits: Vec<&FileUse> = single(subject, Interface::has_pattern)
        .filter(|one| direction.is_write || !is_sieved(&above, one))
        .filter(|one| !subject.amplified.contains(&one.file))
        .filter(|one| {
            let flow = direction.of(one);
            flow.ops > 0 && jumps(one, flow) as f64 >= limits.random_share * flow.ops as f64
        })
        .collect();
    let total: u64 = hits.iter().map(|one| jumps(one, direction.of(one))).sum();
    if total < limits.min_requests {
        return None;
    }
    let all: u64 = hits.iter().map(|one| direction.of(one).ops).sum();
    let title = format!(
        "Random {}: {} of {} go backwards in their file",
        direction.noun,
        number(total),
        number(all)
    );
    // What a jump costs is not what a request costs: in files that jump, a fit would tell the one for the other.
    let request = RequestCost::assumed(limits);
    let loss = slowest_path(subject, hits.iter().copied(), direction.part, |one| {
        let flow = direction.of(one);
        if direction.is_write {
            direction.seconds(one) * share(jumps(one, flow) as f64, flow.ops as f64)
        } else {
            request_seconds(flow.seconds, flow, jumps(one, flow) as f64, request)
        }
    });
    let mut finding = if direction.is_write {
        // Measured: behind a page cache the order of writes costs next to nothing, without one a seek each.
        Finding::not_estimated_for(
            subject,
            "random-writes",
            title,
            &loss,
            "a log does not tell whether a cache has put the writes in order",
        )
    } else {
        Finding::of_loss(
            subject,
            "random-reads",
            title,
            &loss,
            format!(
                "time to read x fixed cost of the requests that jump; {}; read-ahead would hide it in ascending order",
                request.text()
            ),
        )
    };
    finding.confidence = Confidence::Low;
    finding.evidence = vec![format!(
        "{} of the {} in {} start before the end of the previous one",
        percent(share(total as f64, all as f64)),
        direction.noun,
        units::count(hits.len() as u64, "file", "files")
    )];
    finding.files = loss.evidence(subject, |one| {
        let flow = direction.of(one);
        format!(
            "{} of {} jump, mean request {}",
            number(jumps(one, flow)),
            number(flow.ops),
            bytes(flow.bytes / flow.ops.max(1))
        )
    });
    finding.advice = format!(
        "Sort requests by offset before they are issued, or {} larger blocks and pick from memory.",
        direction.verb
    );
    if direction.is_write {
        finding.setting = buffer_setting(subject, "random writes go to local storage");
    }
    Some(finding)
}

/// Fires on writes to files of several ranks only: there a block that two requests share changes hands. Writes to a
/// file of a single rank go through its page cache, which makes whole blocks of them.
fn misaligned(subject: &Subject) -> Option<Finding> {
    let limits = subject.limits;
    let hits: Vec<&FileUse> = lowest(subject, Interface::has_pattern)
        .filter(|one| one.sharing != Sharing::Unique && one.total.alignment > 1)
        .filter(|one| {
            let total = &one.total;
            total.write.ops > 0
                && total.misaligned as f64 >= limits.misaligned_share * total.ops() as f64
        })
        .collect();
    let of_file = |one: &FileUse| one.total.misaligned.min(one.total.ops());
    let misaligned: u64 = hits.iter().map(|one| of_file(one)).sum();
    if misaligned < limits.min_requests {
        return None;
    }
    let ops: u64 = hits.iter().map(|one| one.total.ops()).sum();
    let loss = slowest_path(subject, hits.iter().copied(), Part::Write, |one| {
        let total = &one.total;
        let block = total.alignment as f64;
        let request = share(total.write.bytes as f64, total.write.ops as f64);
        total.plain_write_seconds() * share(of_file(one) as f64, total.ops() as f64) * 0.5 * block
            / (block + request)
    });
    let title = format!(
        "Misaligned access to shared files: {} of {} requests start inside a block",
        number(misaligned),
        number(ops)
    );
    // Measured: where processes of one node share a page cache, nothing is gained by blocks of their own.
    let mut finding = Finding::not_estimated_for(
        subject,
        "misaligned-writes",
        title,
        &loss,
        "what a block of two ranks costs depends on the locks of the file system; if each is transferred twice, time to \
         write x share of misaligned requests x 1/2 x block / (block + mean request)",
    );
    finding.evidence = vec![format!(
        "{} of the requests to {} written by several ranks",
        percent(share(misaligned as f64, ops as f64)),
        units::count(hits.len() as u64, "file", "files")
    )];
    finding.files = loss.evidence(subject, |one| {
        let stripes = subject.job.files[one.file]
            .stripes
            .map_or(String::new(), |(size, count)| {
                format!(", striped {} x {count}", bytes(size))
            });
        format!(
            "{} of {} off the {} block{stripes}",
            number(of_file(one)),
            number(one.total.ops()),
            bytes(one.total.alignment)
        )
    });
    finding.advice = "Start each rank's part at a multiple of the block or stripe size (HDF5: H5Pset_alignment; \
                      MPI-IO: collective writes with hint striping_unit)."
        .to_owned();
    Some(finding)
}

fn switches(subject: &Subject) -> Option<Finding> {
    let limits = subject.limits;
    let above = above(subject);
    let hits: Vec<&FileUse> = single(subject, |interface| {
        matches!(interface, Interface::Posix | Interface::Dfs)
    })
    .filter(|one| !is_sieved(&above, one))
    .filter(|one| !subject.amplified.contains(&one.file))
    .filter(|one| {
        let total = &one.total;
        total.ops() > 0 && total.switches as f64 >= limits.switch_share * total.ops() as f64
    })
    .collect();
    let total: u64 = hits.iter().map(|one| one.total.switches).sum();
    if total < limits.min_requests {
        return None;
    }
    let request = RequestCost::assumed(limits);
    let loss = slowest_path(subject, hits.iter().copied(), Part::Data, |one| {
        let total = &one.total;
        (total.read.seconds + total.plain_write_seconds())
            * share(
                total.switches as f64 * request.bytes,
                cost(total.ops(), total.bytes(), request),
            )
    });
    let mut finding = Finding::of_loss(
        subject,
        "read-write-switches",
        format!(
            "Reads and writes alternate {} times in {}",
            number(total),
            units::count(hits.len() as u64, "file", "files")
        ),
        &loss,
        format!(
            "time to read and write x fixed cost of one request per change; {}",
            request.text()
        ),
    );
    finding.confidence = Confidence::Low;
    finding.files = loss.evidence(subject, |one| {
        format!(
            "{} changes in {} requests",
            number(one.total.switches),
            number(one.total.ops())
        )
    });
    finding.evidence =
        vec!["each change stops read-ahead and makes the file system write back first".to_owned()];
    finding.advice = "Separate phases of reading and writing, or keep what is updated in memory and write it once."
        .to_owned();
    finding.setting = buffer_setting(
        subject,
        "files written by the job are updated on local storage",
    );
    Some(finding)
}

fn stdio_bulk(subject: &Subject) -> Option<Finding> {
    let limits = subject.limits;
    let layer = subject.job.layer(Interface::Stdio)?;
    let moved: u64 = real_files(subject, layer)
        .map(|one| one.total.bytes())
        .sum();
    let all = subject.account.moved.bytes();
    if moved < limits.stdio_bytes || (moved as f64) < limits.stdio_share * all as f64 {
        return None;
    }
    let loss = slowest_path(subject, real_files(subject, layer), Part::Data, |one| {
        one.total.read.seconds + one.total.write.seconds
    });
    let title = format!(
        "Bulk data through C streams: {}, {} of all bytes",
        bytes(moved),
        percent(share(moved as f64, all as f64))
    );
    // Measured: over a page cache, the same bytes in large calls take as long; over a file system without one they do not.
    let mut finding = Finding::not_estimated_for(
        subject,
        "stdio-bulk",
        title,
        &loss,
        "a log has no requests of streams, only calls that fill a buffer",
    );
    finding.evidence =
        vec!["streams copy through a small buffer, and cannot be shared between ranks".to_owned()];
    finding.files = loss.evidence(subject, |one| {
        format!(
            "{} in {} calls",
            bytes(one.total.bytes()),
            number(one.total.ops())
        )
    });
    finding.advice = if subject.job.is_mpi() {
        "Use read and write with large buffers, MPI-IO or HDF5 for data; streams for text. As a first step enlarge \
         the buffer with setvbuf."
    } else {
        "Use read and write with large buffers for data; as a first step enlarge the stream's buffer with setvbuf."
    }
    .to_owned();
    if layer.total().write.bytes > layer.total().read.bytes {
        finding.setting = buffer_setting(subject, "small writes of streams go to local storage");
    }
    Some(finding)
}
