//! The rule on bytes that the kernel fetched from storage, and that nobody read.

use super::loss::{Part, slowest_path};
use super::requests::lowest;
use super::{Finding, Subject};
use crate::model::{Coverage, FileUse, Interface};
use crate::units::{self, bytes, number, share};

/// A page of memory, the least that the kernel fetches of a file.
const PAGE_BYTES: u64 = 4096;

/// The rule. It knows sums of the job alone: no count of the kernel tells for which file it has fetched.
pub(super) fn rules(subject: &Subject) -> Vec<Finding> {
    read_ahead(subject).into_iter().collect()
}

/// Reads that do not start where the one before has ended. The first read of each rank is none.
fn scattered(one: &FileUse) -> u64 {
    let read = &one.total.read;
    let first = u64::from(one.ranks).min(read.ops);
    (read.ops - first).saturating_sub(read.consecutive)
}

/// Bytes that writes fetch at most: the pages at both ends of each, in files that were there before.
fn fetched_for_writes(one: &FileUse, subject: &Subject) -> u64 {
    match subject.job.files[one.file].created {
        Some(true) => 0,
        _ => one.total.write.ops.saturating_mul(2 * PAGE_BYTES),
    }
}

/// Fires if much more was fetched than read, and files were read at many places. Pages of a mapped file are fetched without
/// a read, so a job that has mapped one never fires, nor one with programs that were not recorded.
fn read_ahead(subject: &Subject) -> Option<Finding> {
    let limits = subject.limits;
    let coverage = subject.job.coverage.filter(Coverage::is_known)?;
    let fetched = coverage.fetched?;
    let uses = || lowest(subject, Interface::has_pattern);
    let is_partial = subject.job.metadata.contains_key("unrecorded");
    if is_partial || uses().any(|one| one.total.mmaps > 0) {
        return None;
    }
    let for_writes = uses().map(|one| fetched_for_writes(one, subject));
    let other = for_writes.fold(fetched.at_start, u64::saturating_add);
    let for_reads = fetched.bytes.saturating_sub(other);
    let beyond = for_reads.saturating_sub(fetched.asked);
    if (for_reads as f64) < limits.fetched_factor * fetched.asked as f64
        || beyond < limits.fetched_bytes
    {
        return None;
    }
    let hits: Vec<&FileUse> = uses()
        .filter(|one| !subject.job.files[one.file].is_rest())
        .filter(|one| {
            let places = scattered(one);
            places > 0 && places as f64 >= limits.random_share * one.total.read.ops as f64
        })
        .collect();
    let places: u64 = hits
        .iter()
        .map(|one| scattered(one))
        .fold(0, u64::saturating_add);
    if places < limits.min_requests || fetched.asked == 0 {
        return None;
    }
    let loss = slowest_path(subject, hits.iter().copied(), Part::Read, |one| {
        one.total.read.seconds
    });
    let title = format!(
        "Storage delivered {:.1} times what was read: {} for {}",
        share(for_reads as f64, fetched.asked as f64),
        bytes(for_reads),
        bytes(fetched.asked)
    );
    // Measured: where the storage is quick, single requests take as long as read-ahead that is thrown away, or longer.
    let mut finding = Finding::not_estimated_for(
        subject,
        "read-ahead",
        title,
        &loss,
        "what is fetched in vain costs nothing where the storage has speed to spare, and read-ahead may hide the latency of \
         other reads",
    );
    let mut evidence = vec![
        format!(
            "{} reads in {} do not start where the one before has ended",
            number(places),
            units::count(hits.len() as u64, "file", "files")
        ),
        format!(
            "fetched by the kernel's count: {}, less {} for code of programs that start and for the ends of writes; code that is \
             loaded later, and reads by io_uring, libaio or splice, can't be told apart",
            bytes(fetched.bytes),
            bytes(other.min(fetched.bytes))
        ),
    ];
    let pages = hits.iter().map(|one| {
        let read = &one.total.read;
        read.ops
            .saturating_mul(PAGE_BYTES)
            .saturating_sub(read.bytes)
    });
    let pages = pages.fold(0, u64::saturating_add);
    let is_pages = pages >= beyond / 2;
    if is_pages {
        evidence.push(format!(
            "whole pages of {} instead of smaller reads explain {}",
            bytes(PAGE_BYTES),
            bytes(pages.min(beyond))
        ));
    }
    finding.evidence = evidence;
    finding.files = loss.evidence(subject, |one| {
        let read = &one.total.read;
        format!(
            "{} of {} reads elsewhere than the one before ended, mean read {}",
            number(scattered(one)),
            number(read.ops),
            bytes(read.bytes / read.ops.max(1))
        )
    });
    finding.advice = if is_pages {
        "Read each record, or several that are neighbours, in one call, and in ascending order."
    } else {
        "Read each record in one call, and in ascending order: read-ahead begins with the second of two adjacent reads. If \
         records stay small and in random order, posix_fadvise(POSIX_FADV_RANDOM) turns it off; measure that, for it also \
         slows down the second and later reads of a record."
    }
    .to_owned();
    Some(finding)
}
