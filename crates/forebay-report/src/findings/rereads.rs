//! Rules about bytes that are read more than once. They compare the bytes read with the extent of the file that was
//! touched. A program that reads less than that reads nothing twice.

use super::loss::{Part, slowest_path};
use super::requests::lowest;
use super::{Finding, Subject};
use crate::model::{FileUse, Interface};
use crate::units::{self, bytes, share};

/// Both rules.
pub(super) fn rules(subject: &Subject) -> Vec<Finding> {
    [reread_by_rank(subject), read_by_many(subject)]
        .into_iter()
        .flatten()
        .collect()
}

/// Uses of single files. A record that stands for many files is left out, because its extent is that of the longest.
fn single_files<'a>(subject: &'a Subject) -> impl Iterator<Item = &'a FileUse> {
    lowest(subject, Interface::has_pattern).filter(|one| !subject.job.files[one.file].is_rest())
}

/// How often a rank reads each byte of the file, on average.
fn reads_per_rank(one: &FileUse) -> f64 {
    share(
        one.total.read.bytes as f64,
        one.total.extent() as f64 * f64::from(one.ranks.max(1)),
    )
}

/// Bytes read below which no rule fires.
const REREAD_BYTES: u64 = 16 << 20;

fn reread_by_rank(subject: &Subject) -> Option<Finding> {
    let limits = subject.limits;
    let hits: Vec<&FileUse> = single_files(subject)
        .filter(|one| one.total.extent() > 0 && reads_per_rank(one) >= limits.reread_factor)
        .filter(|one| !subject.amplified.contains(&one.file))
        .collect();
    let read: u64 = hits.iter().map(|one| one.total.read.bytes).sum();
    if read < REREAD_BYTES {
        return None;
    }
    let loss = slowest_path(subject, hits.iter().copied(), Part::Read, |one| {
        one.total.read.seconds * (1.0 - 1.0 / reads_per_rank(one))
    });
    let mut finding = Finding::of_loss(
        subject,
        "repeated-reads",
        format!(
            "The same bytes are read again and again by the same rank: {} from {}",
            bytes(read),
            units::count(hits.len() as u64, "file", "files")
        ),
        &loss,
        "time to read x (1 - file extent x ranks / bytes read)".to_owned(),
    );
    finding.evidence =
        vec!["bytes read exceed the touched extent of the file, for each rank".to_owned()];
    finding.files = loss.evidence(subject, |one| {
        format!(
            "{} read from an extent of {} by {}: {:.1} times each",
            bytes(one.total.read.bytes),
            bytes(one.total.extent()),
            subject.job.count_of(one.ranks),
            reads_per_rank(one)
        )
    });
    finding.advice =
        "Read once and keep the data in memory, or copy the file to node-local storage first."
            .to_owned();
    Some(finding)
}

fn read_by_many(subject: &Subject) -> Option<Finding> {
    let limits = subject.limits;
    let times = |one: &FileUse| share(one.total.read.bytes as f64, one.total.extent() as f64);
    let hits: Vec<&FileUse> = single_files(subject)
        .filter(|one| one.ranks > 1 && one.total.extent() > 0)
        .filter(|one| times(one) >= limits.reread_factor)
        .filter(|one| reads_per_rank(one) < limits.reread_factor)
        .collect();
    let read: u64 = hits.iter().map(|one| one.total.read.bytes).sum();
    if read < REREAD_BYTES {
        return None;
    }
    let loss = slowest_path(subject, hits.iter().copied(), Part::Read, |one| {
        one.total.read.seconds * (1.0 - 1.0 / times(one))
    });
    let extents = hits
        .iter()
        .fold(0u64, |sum, one| sum.saturating_add(one.total.extent()));
    let title = format!(
        "Several ranks read the same data: {} from files of {}",
        bytes(read),
        bytes(extents)
    );
    // Measured: on one node the page cache serves all but the first; many nodes compete for one server.
    let mut finding = Finding::not_estimated_for(
        subject,
        "read-by-many",
        title,
        &loss,
        "a log does not tell whether ranks compete for the bytes or share a cache",
    );
    finding.evidence = vec![format!(
        "{} touched by more than one rank, read {:.1} times in all",
        units::count(hits.len() as u64, "file", "files"),
        share(read as f64, extents as f64)
    )];
    finding.files = loss.evidence(subject, |one| {
        format!(
            "{} read from an extent of {} by {}",
            bytes(one.total.read.bytes),
            bytes(one.total.extent()),
            subject.job.count_of(one.ranks)
        )
    });
    finding.advice = if subject.job.is_mpi() {
        "Let one rank read and broadcast, or use a collective read.".to_owned()
    } else {
        "Copy the files to node-local storage once, or share them in memory between the processes of a node."
            .to_owned()
    };
    Some(finding)
}
