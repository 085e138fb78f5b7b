//! Rules about opening, closing, stat and seek.

use super::loss::{Part, slowest_path};
use super::{Confidence, Finding, Subject, buffer_setting, requests};
use crate::model::{FileUse, Sharing};
use crate::units::{self, bytes, number, percent, share};

/// All rules on metadata.
pub(super) fn rules(subject: &Subject) -> Vec<Finding> {
    [
        metadata_time(subject),
        repeated_opens(subject),
        many_small_files(subject),
        file_per_process(subject),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Uses at the lowest interface.
fn lowest<'a>(subject: &'a Subject) -> impl Iterator<Item = &'a FileUse> {
    requests::lowest(subject, |_| true)
}

/// Fires on jobs that spend much of their I/O time in metadata. One open and one close of each file are needed; the
/// rest could go.
fn metadata_time(subject: &Subject) -> Option<Finding> {
    let total = lowest(subject).fold((0u64, 0u64, 0u64, 0.0, 0.0), |sum, one| {
        let t = &one.total;
        (
            sum.0 + t.opens,
            sum.1 + t.stats,
            sum.2 + t.seeks,
            sum.3 + t.meta_seconds,
            sum.4 + t.seconds(),
        )
    });
    let (opens, stats, seeks, meta, all) = total;
    let operations = opens * 2 + stats + seeks;
    if operations < subject.limits.min_requests
        || meta <= 0.0
        || meta < subject.limits.metadata_share * all
    {
        return None;
    }
    let loss = slowest_path(subject, lowest(subject), Part::Metadata, |one| {
        let t = &one.total;
        let operations = (t.opens * 2 + t.stats + t.seeks).max(2);
        t.meta_seconds * (1.0 - 2.0 / operations as f64)
    });
    let mut finding = Finding::of_loss(
        "metadata-time",
        format!(
            "Metadata takes {} of the time in I/O: {} opens, {} stats, {} seeks",
            percent(share(meta, all)),
            number(opens),
            number(stats),
            number(seeks)
        ),
        &loss,
        "measured time in open, close, stat and seek, less one open and one close per file"
            .to_owned(),
    );
    finding.confidence = Confidence::Medium;
    finding.evidence = vec![format!(
        "{} in metadata of {} in I/O, all ranks together",
        units::seconds(meta),
        units::seconds(all)
    )];
    finding.files = loss.evidence(subject, |one| {
        format!(
            "{} in {} opens, {} stats, {} seeks by {}",
            units::seconds(one.total.meta_seconds),
            number(one.total.opens),
            number(one.total.stats),
            number(one.total.seeks),
            units::count(one.ranks.into(), "rank", "ranks")
        )
    });
    finding.advice = if subject.job.is_mpi() {
        "Open a shared file by one rank or collectively; keep files open between steps; fewer, larger files; in HDF5 \
         collective metadata (H5Pset_all_coll_metadata_ops)."
    } else {
        "Keep files open between uses; fewer, larger files; cache the results of stat."
    }
    .to_owned();
    Some(finding)
}

/// Opens of the file by each of its ranks. Darshan's counter includes dup and fileno.
fn opens_per_rank(one: &FileUse) -> f64 {
    one.total.opens as f64 / f64::from(one.ranks.max(1))
}

fn repeated_opens(subject: &Subject) -> Option<Finding> {
    let limits = subject.limits;
    let hits: Vec<&FileUse> = lowest(subject)
        .filter(|one| !subject.job.files[one.file].is_rest)
        .filter(|one| opens_per_rank(one) >= limits.opens_per_rank)
        .collect();
    let opens: u64 = hits.iter().map(|one| one.total.opens).sum();
    if opens < limits.min_requests {
        return None;
    }
    let loss = slowest_path(subject, hits.iter().copied(), Part::Metadata, |one| {
        one.total.meta_seconds * (1.0 - 1.0 / opens_per_rank(one))
    });
    let mut finding = Finding::of_loss(
        "repeated-opens",
        format!(
            "Files are opened over and over: {} opens of {}",
            number(opens),
            units::count(hits.len() as u64, "file", "files")
        ),
        &loss,
        "measured metadata time x (1 - 1 / opens per rank)".to_owned(),
    );
    finding.evidence = vec![format!(
        "at least {} opens of the same file by the same rank",
        limits.opens_per_rank
    )];
    finding.files = loss.evidence(subject, |one| {
        format!(
            "{} opens by {}, {} in metadata",
            number(one.total.opens),
            units::count(one.ranks.into(), "rank", "ranks"),
            units::seconds(one.total.meta_seconds)
        )
    });
    finding.advice = "Open once, keep the descriptor (or the data set) until the end.".to_owned();
    Some(finding)
}

fn many_small_files(subject: &Subject) -> Option<Finding> {
    let limits = subject.limits;
    let small: Vec<&FileUse> = lowest(subject)
        .filter(|one| one.sharing == Sharing::Unique)
        .filter(|one| (one.total.bytes() as f64) < limits.small_file_bytes)
        .collect();
    let ranks = f64::from(subject.job.ranks.max(1));
    let per_rank = small.len() as f64 / ranks;
    if per_rank < limits.files_per_rank {
        return None;
    }
    let moved: u64 = small.iter().map(|one| one.total.bytes()).sum();
    let loss = slowest_path(subject, small.iter().copied(), Part::Metadata, |one| {
        one.total.meta_seconds * (1.0 - 1.0 / per_rank)
    });
    let mut finding = Finding::of_loss(
        "many-small-files",
        format!(
            "Many small files: {} with {} on average",
            number(small.len() as u64),
            bytes(moved / small.len().max(1) as u64)
        ),
        &loss,
        "measured metadata time of these files x (1 - 1 / files per rank), as if each rank had one"
            .to_owned(),
    );
    finding.evidence = vec![format!(
        "{per_rank:.0} such files per rank, {} in all",
        bytes(moved)
    )];
    finding.files = loss.evidence(subject, |one| {
        format!(
            "{}, {} in metadata",
            bytes(one.total.bytes()),
            units::seconds(one.total.meta_seconds)
        )
    });
    finding.advice = "Put many small things into one container (HDF5, ADIOS, tar, a database, a packed data set)."
        .to_owned();
    Some(finding)
}

fn file_per_process(subject: &Subject) -> Option<Finding> {
    let limits = subject.limits;
    let own: Vec<&FileUse> = lowest(subject)
        .filter(|one| one.sharing == Sharing::Unique && one.total.write.ops > 0)
        .collect();
    let mut writers: Vec<u32> = own
        .iter()
        .flat_map(|one| one.by_rank.iter().map(|share| share.rank))
        .collect();
    writers.sort_unstable();
    writers.dedup();
    if (writers.len() as u64) < limits.file_per_process_ranks {
        return None;
    }
    let loss = slowest_path(subject, own.iter().copied(), Part::Metadata, |one| {
        one.total.meta_seconds
    });
    let mut finding = Finding::of_loss(
        "file-per-process",
        format!(
            "A file per process: {} ranks write {} of their own",
            number(writers.len() as u64),
            units::count(own.len() as u64, "file", "files")
        ),
        &loss,
        "measured metadata time of these files".to_owned(),
    );
    finding.confidence = Confidence::High;
    finding.evidence = vec![format!(
        "{:.1} files per writing rank; a reader must open them all",
        own.len() as f64 / writers.len().max(1) as f64
    )];
    finding.files = loss.evidence(subject, |one| {
        format!(
            "{}, {} in metadata",
            bytes(one.total.bytes()),
            units::seconds(one.total.meta_seconds)
        )
    });
    finding.advice = "Write one file per node or group of ranks (HDF5 subfiling, ADIOS aggregation), or one shared \
                      file with collective calls."
        .to_owned();
    finding.setting = buffer_setting(
        subject,
        "files are created on local storage and copied by a few workers afterwards",
    );
    Some(finding)
}
