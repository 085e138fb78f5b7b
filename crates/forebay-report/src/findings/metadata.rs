//! Rules about opening, closing, stat and seek.

use super::loss::{Part, slowest_path};
use super::{
    Confidence, Finding, MOST_MEASURED, Measured, Subject, buffer_setting, requests, storms,
};
use crate::model::{Counters, FileUse, Sharing};
use crate::units::{self, bytes, number, percent, share};
use std::collections::{BTreeSet, HashSet};

/// All rules on metadata.
pub(super) fn rules(subject: &Subject) -> Vec<Finding> {
    [
        metadata_time(subject),
        repeated_opens(subject),
        many_small_files(subject),
        file_per_process(subject),
        waiting_opens(subject),
        directory_walk(subject),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Uses at the lowest interface.
pub(super) fn lowest<'a>(subject: &'a Subject) -> impl Iterator<Item = &'a FileUse> {
    requests::lowest(subject, |_| true)
}

/// Share of metadata calls that ask for a name, from which on it is they that take the time.
const STORM_SHARE: f64 = 0.8;

/// Fires on jobs that spend much of their I/O time in metadata. One open and one close of each file are needed; the
/// rest could go.
fn metadata_time(subject: &Subject) -> Option<Finding> {
    let walked: HashSet<usize> = walked(subject).iter().map(|one| one.file).collect();
    let calls = || {
        let calls = lowest(subject).filter(|one| !is_waited_for(subject, one));
        let calls = calls.filter(|one| !walked.contains(&one.file));
        // The parts of a program have a finding of their own. To remove a name, or to read a directory, is work that a
        // program wants done.
        calls.filter(|one| !storms::is_code(subject, one) && one.total.other_calls == 0)
    };
    let mut total = Counters::default();
    for one in calls() {
        total.add(&one.total);
    }
    let (meta, all) = (total.meta_seconds, total.seconds());
    let operations = operations(&total);
    if operations < subject.limits.min_requests
        || meta <= 0.0
        || meta < subject.limits.metadata_share * all
    {
        return None;
    }
    let loss = slowest_path(subject, calls(), Part::Metadata, |one| {
        // A file needs one open and one close.
        let needed = if one.total.opens > 0 { 2.0 } else { 0.0 };
        let operations = self::operations(&one.total).max(2);
        one.total.meta_seconds * (1.0 - needed / operations as f64)
    });
    let asks = total.stats + total.asked;
    let is_storm = asks as f64 >= STORM_SHARE * operations as f64;
    let mut finding = Finding::of_loss(
        subject,
        if is_storm {
            "stat-storm"
        } else {
            "metadata-time"
        },
        format!(
            "{} {} of the time in I/O: {}",
            if is_storm {
                "Asking for attributes of files takes"
            } else {
                "Metadata takes"
            },
            percent(share(meta, all)),
            calls_text(&total)
        ),
        &loss,
        "measured time in these calls, less one open and one close per file".to_owned(),
    );
    finding.confidence = Confidence::Medium;
    finding.evidence = vec![format!(
        "{} in metadata of {} in I/O, all ranks together",
        units::seconds(meta),
        units::seconds(all)
    )];
    finding.files = loss.evidence(subject, |one| {
        format!(
            "{} in {} by {}",
            units::seconds(one.total.meta_seconds),
            calls_text(&one.total),
            subject.job.count_of(one.ranks)
        )
    });
    finding.advice = if is_storm {
        "Keep what stat has said; list a directory once instead of asking for each name; wait for a file with inotify, or ask \
         less often; let one rank ask and tell the others."
    } else if subject.job.is_mpi() {
        "Open a shared file by one rank or collectively; keep files open between steps; fewer, larger files; in HDF5 \
         collective metadata (H5Pset_all_coll_metadata_ops)."
    } else {
        "Keep files open between uses; fewer, larger files; cache the results of stat."
    }
    .to_owned();
    Some(finding)
}

/// Calls that open, close, ask and seek.
fn operations(total: &Counters) -> u64 {
    total.opens * 2 + total.stats + total.asked + total.seeks
}

/// How many calls of which sort there were.
fn calls_text(total: &Counters) -> String {
    let sorts = [
        (total.opens, "open", "opens"),
        (total.stats, "stat", "stats"),
        (
            total.asked,
            "other question or failed call",
            "other questions and failed calls",
        ),
        (total.seeks, "seek", "seeks"),
    ];
    let counts = sorts.iter().filter(|(n, ..)| *n > 0);
    let texts: Vec<String> = counts
        .map(|(n, one, many)| units::count(*n, one, many))
        .collect();
    texts.join(", ")
}

/// Opens of the file by each of its ranks. Darshan's counter includes dup and fileno.
fn opens_per_rank(one: &FileUse) -> f64 {
    one.total.opens as f64 / f64::from(one.ranks.max(1))
}

fn repeated_opens(subject: &Subject) -> Option<Finding> {
    let limits = subject.limits;
    let hits: Vec<&FileUse> = lowest(subject)
        .filter(|one| !subject.job.files[one.file].is_rest())
        .filter(|one| !is_waited_for(subject, one))
        .filter(|one| !subject.job.files[one.file].is_only_opened)
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
        subject,
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
            subject.job.count_of(one.ranks),
            units::seconds(one.total.meta_seconds)
        )
    });
    finding.advice = "Open once, keep the descriptor (or the data set) until the end.".to_owned();
    Some(finding)
}

/// Mean bytes of the files of a record.
fn mean_bytes(subject: &Subject, one: &FileUse) -> f64 {
    one.total.bytes() as f64 / subject.job.files[one.file].count().max(1) as f64
}

fn many_small_files(subject: &Subject) -> Option<Finding> {
    let limits = subject.limits;
    let small: Vec<&FileUse> = lowest(subject)
        .filter(|one| one.sharing == Sharing::Unique || subject.job.files[one.file].is_rest())
        // What was only asked for (stat), and directories, are no files.
        .filter(|one| !subject.job.files[one.file].is_only_opened)
        .filter(|one| one.total.opens > 0 && !is_waited_for(subject, one))
        .filter(|one| mean_bytes(subject, one) < limits.small_file_bytes)
        .filter(|one| !storms::is_code(subject, one))
        .collect();
    let ranks = f64::from(subject.job.ranks.max(1));
    // POSIX and C streams may both have used a file.
    let distinct: BTreeSet<usize> = small.iter().map(|one| one.file).collect();
    let files: u64 = distinct
        .into_iter()
        .map(|file| subject.job.files[file].count())
        .sum();
    let per_rank = files as f64 / ranks;
    if per_rank < limits.files_per_rank {
        return None;
    }
    let moved: u64 = small.iter().map(|one| one.total.bytes()).sum();
    let loss = slowest_path(subject, small.iter().copied(), Part::Metadata, |one| {
        one.total.meta_seconds * (1.0 - 1.0 / per_rank)
    });
    let mut finding = Finding::of_loss(
        subject,
        "many-small-files",
        format!(
            "Many small files: {} with {} on average",
            number(files),
            bytes(moved / files.max(1))
        ),
        &loss,
        "measured metadata time of these files x (1 - 1 / files per rank), as if each rank had one"
            .to_owned(),
    );
    finding.evidence = vec![format!(
        "{} such files per rank, {} in all",
        number(per_rank.round() as u64),
        bytes(moved)
    )];
    finding.files = loss.evidence(subject, |one| {
        format!(
            "{}, {} in metadata",
            bytes(one.total.bytes()),
            units::seconds(one.total.meta_seconds)
        )
    });
    finding.advice =
        "Put many small things into one container (HDF5, ADIOS, tar, a database, a packed data set)."
            .to_owned();
    Some(finding)
}

/// True if a call that opens the file, or asks for it, takes so long that it waits for something: the other end of a pipe,
/// a lock, a file system that hangs.
pub(super) fn is_waited_for(subject: &Subject, one: &FileUse) -> bool {
    one.total.longest_call() >= subject.limits.waiting_seconds
}

/// The files that calls wait for. Their time is in no other finding.
pub(super) fn waited_files(subject: &Subject) -> HashSet<usize> {
    let waited = lowest(subject).filter(|one| is_waited_for(subject, one));
    waited.map(|one| one.file).collect()
}

fn waiting_opens(subject: &Subject) -> Option<Finding> {
    let hits: Vec<&FileUse> = lowest(subject)
        .filter(|one| is_waited_for(subject, one))
        .collect();
    let loss = slowest_path(subject, hits.iter().copied(), Part::Metadata, |one| {
        one.total.meta_seconds
    });
    let opens: u64 = hits.iter().map(|one| one.total.opens).sum();
    let waited: f64 = hits.iter().map(|one| one.total.meta_seconds).sum();
    let mut finding = Finding::not_estimated(
        "waiting-opens",
        format!(
            "{} of {} took {} on average: they waited",
            units::count(opens, "open", "opens"),
            units::count(hits.len() as u64, "file", "files"),
            units::seconds(share(waited, opens.max(1) as f64))
        ),
        hits.first().map(|_| loss.seconds)?,
    );
    finding.measured = hits
        .iter()
        .map(|one| Measured {
            name: subject.job.files[one.file].name.clone(),
            seconds: one.total.meta_seconds,
        })
        .collect();
    let longest_first = |a: &Measured, b: &Measured| b.seconds.total_cmp(&a.seconds);
    finding.measured.sort_by(longest_first);
    finding.measured.truncate(MOST_MEASURED);
    finding.evidence = vec![format!(
        "a call on each of them took {} or longer",
        units::seconds(subject.limits.waiting_seconds)
    )];
    finding.files = loss.evidence(subject, |one| {
        format!(
            "{} in {}",
            units::seconds(one.total.meta_seconds),
            units::count(one.total.opens, "open", "opens")
        )
    });
    finding.advice = "If these are pipes, the time is that of the program at the other end, and no cost of I/O. Else look \
                      at the metadata server, or at locks."
        .to_owned();
    Some(finding)
}

/// What is opened and neither read nor written, if it is many: directories, by which a program finds its files.
fn walked<'a>(subject: &'a Subject) -> Vec<&'a FileUse> {
    let limits = subject.limits;
    let opened: Vec<&FileUse> = lowest(subject)
        .filter(|one| subject.job.files[one.file].is_only_opened)
        .filter(|one| !is_waited_for(subject, one))
        .collect();
    let loads: u64 = opened
        .iter()
        .map(|one| subject.job.files[one.file].count() * u64::from(one.ranks.max(1)))
        .sum();
    let opens: u64 = opened.iter().map(|one| one.total.opens).sum();
    let per_rank = loads as f64 / f64::from(subject.job.ranks.max(1));
    if per_rank >= limits.files_per_rank || opens >= limits.min_requests {
        opened
    } else {
        Vec::new()
    }
}

fn directory_walk(subject: &Subject) -> Option<Finding> {
    let job = subject.job;
    let walked = walked(subject);
    if walked.is_empty() {
        return None;
    }
    // To read directories is part of the walk.
    let listed: Vec<&FileUse> = lowest(subject)
        .filter(|one| job.files[one.file].is_calls)
        .filter(|one| matches!(job.files[one.file].name.as_str(), "(opendir)" | "(readdir)"))
        .collect();
    let uses = walked.iter().chain(&listed).copied();
    let loss = slowest_path(subject, uses, Part::Metadata, |one| one.total.meta_seconds);
    let count: u64 = walked.iter().map(|one| job.files[one.file].count()).sum();
    let mut total = Counters::default();
    for one in &walked {
        total.add(&one.total);
    }
    // Without notes of the recorder an empty file looks the same.
    let what = match walked.iter().all(|one| job.files[one.file].is_directory()) {
        true => units::count(count, "directory", "directories"),
        false => format!(
            "{} that are opened and not read",
            units::count(count, "name", "names")
        ),
    };
    let mut finding = Finding::not_estimated_for(
        subject,
        "directory-walk",
        format!("A walk over {what}: {}", calls_text(&total)),
        &loss,
        "a log does not tell whether the program needs what it finds there",
    );
    let of = |uses: &[&FileUse]| uses.iter().map(|one| one.total.meta_seconds).sum::<f64>();
    finding.evidence = vec![format!(
        "{} to open, ask for and close them, {} to read what is in them, all ranks together",
        units::seconds(of(&walked)),
        units::seconds(of(&listed))
    )];
    finding.files = loss.evidence(subject, |one| {
        format!("{} in metadata", units::seconds(one.total.meta_seconds))
    });
    finding.advice = "Walk once and keep the list of files; let one rank walk and tell the others; have fewer directories with more \
                      files each; on Lustre lfs find asks less of the servers."
        .to_owned();
    Some(finding)
}

fn file_per_process(subject: &Subject) -> Option<Finding> {
    let limits = subject.limits;
    let own: Vec<&FileUse> = lowest(subject)
        .filter(|one| one.sharing == Sharing::Unique && one.total.write.ops > 0)
        .filter(|one| !is_waited_for(subject, one))
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
    let title = format!(
        "A file per process: {} ranks write {} of their own",
        number(writers.len() as u64),
        units::count(own.len() as u64, "file", "files")
    );
    // Measured: from a third of these seconds to all of them are gained by a file for each step, from one run to the next.
    let mut finding = Finding::not_estimated_for(
        subject,
        "file-per-process",
        title,
        &loss,
        "a log does not tell whether creates wait for one another, or what opening a shared file costs instead",
    );
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
