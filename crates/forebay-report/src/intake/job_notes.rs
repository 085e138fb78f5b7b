//! Reads what a log says about its job, beside counters.

use crate::model::{Coverage, Fetched, Job, ModuleFacts, Program, Unplaced};
use crate::text::printable;
use darshan_log::file_facts::ProgramEnd;
use darshan_log::{Log, ModuleId};
use std::collections::BTreeMap;
use std::ops::Range;

pub(super) fn note_job(job: &mut Job, log: &Log) {
    job.exe = printable(log.exe.trim_end().as_bytes());
    job.job_id = log.job.id;
    job.uid = log.job.uid;
    for (key, value) in log.job.metadata.iter() {
        let (key, value) = (printable(key.as_bytes()), printable(value.as_bytes()));
        job.metadata.insert(key, value);
    }
    job.nodes = job
        .metadata
        .get("nnodes")
        .and_then(|text| text.parse().ok());
    if let Some(hosts) = job.metadata.get("hosts") {
        job.hosts = hosts.split(',').map(str::to_owned).collect();
        // A list that was cut ends with the number of entries left out.
        job.hosts
            .retain(|host| !host.starts_with('+') && !host.is_empty());
    }
    job.coverage = coverage(&job.metadata);
    let degraded = job.metadata.get("degraded").cloned().unwrap_or_default();
    note_degraded(job, &degraded);
    for (key, one, many) in MISSING {
        let count = job.metadata.get(key).and_then(|text| text.parse().ok());
        if let Some(count) = count.filter(|count| *count > 0) {
            job.losses.push(crate::units::count(count, one, many));
        }
    }
}

/// Sorts the parts of `degraded` by what they mean for the sums.
fn note_degraded(job: &mut Job, degraded: &str) {
    for what in degraded
        .split("; ")
        .filter(|text| !text.is_empty() && *text != "0")
    {
        let ends_with_one_of = |ends: &[&str]| ends.iter().any(|end| what.ends_with(end));
        if ends_with_one_of(&CONDENSED) {
            job.condensed.push(what.to_owned());
        } else if ends_with_one_of(&UNPLACED) {
            let number = |text: &str| text.parse().unwrap_or(0);
            let bytes = |key: &str| job.metadata.get(key).map_or(0, |text| number(text));
            job.unplaced = Unplaced {
                calls: what.split(' ').next().map_or(0, number),
                bytes_read: bytes("unplaced_read"),
                bytes_written: bytes("unplaced_written"),
            };
        } else {
            job.losses.push(what.to_owned());
        }
    }
}

/// Ends of the parts of `degraded` that leave all sums exact.
const CONDENSED: [&str; 3] = [
    "summed up by directory",
    "of these perhaps twice",
    "with uncertain common values",
];

/// Ends of the part of `degraded` that counts calls which are in no record. Earlier logs have the second one.
const UNPLACED: [&str; 2] = ["in no record of a file", "in totals only"];

/// Counts of what is missing, under their names in the metadata. A process that was killed is none of them, because its
/// counters outlive it.
const MISSING: [(&str, &str, &str); 3] = [
    (
        "ranks_missing",
        "rank of the launch left no record",
        "ranks of the launch left no record",
    ),
    (
        "outlived",
        "process was still running when the log was written",
        "processes were still running when the log was written",
    ),
    (
        "unrecorded",
        "program was executed and left no count: it did not load the recorder",
        "programs were executed and left no count: they did not load the recorder",
    ),
];

/// True if the logger sums files when its memory is full, and loses none: Forebay's recorder does.
pub(super) fn has_exact_sums(log: &Log) -> bool {
    let library = log.job.metadata.get("lib_ver");
    library.is_some_and(|version| version.starts_with("forebay-"))
}

/// The ranges of ranks that were launched together, of a log with these ranks, and how many of its ranks were launched at
/// all: those come first. `launches` in its metadata has the sizes of launches, in the order of ranks; a log of Darshan is
/// one launch.
pub(super) fn launches(log: &Log, is_mpi: bool, first: u32, ranks: u32) -> (Vec<Range<u32>>, u32) {
    let end = first.saturating_add(ranks);
    let sizes = log.job.metadata.get("launches");
    let Some(sizes) = sizes.filter(|text| !text.is_empty()) else {
        return (is_mpi.then_some(first..end).into_iter().collect(), ranks);
    };
    let mut at = first;
    let mut found = Vec::new();
    for size in sizes.split(',') {
        // A list that was cut ends with the number of entries left out.
        let Ok(size) = size.parse::<u32>() else {
            at = end;
            break;
        };
        let next = at.saturating_add(size).min(end);
        found.push(at..next);
        at = next;
    }
    found.retain(|launch| launch.len() > 1);
    (found, (at - first).max(1))
}

/// `coverage_read=SEEN/TOTAL`, `coverage_written=SEEN/TOTAL` and `fetched=BYTES`, bytes.
pub(super) fn coverage(metadata: &BTreeMap<String, String>) -> Option<Coverage> {
    let number = |key: &str| -> Option<u64> { metadata.get(key)?.trim().parse().ok() };
    let mut sum = Coverage::default();
    let mut is_known = false;
    let mut read = 0;
    for key in ["coverage_read", "coverage_written"] {
        let Some((seen, total)) = metadata.get(key).and_then(|text| text.split_once('/')) else {
            continue;
        };
        if let (Ok(seen), Ok(total)) = (seen.trim().parse::<u64>(), total.trim().parse::<u64>()) {
            sum.seen = sum.seen.saturating_add(seen);
            sum.total = sum.total.saturating_add(total);
            is_known = true;
            if key == "coverage_read" {
                read = seen.max(total);
            }
        }
    }
    for key in [
        "excluded_read",
        "excluded_written",
        "no_files_read",
        "no_files_written",
        "launchers_read",
        "launchers_written",
    ] {
        sum.elsewhere = sum.elsewhere.saturating_add(number(key).unwrap_or(0));
    }
    sum.fetched = number("fetched").map(|bytes| Fetched {
        bytes,
        at_start: number("fetched_at_start").unwrap_or(0),
        asked: read.saturating_sub(number("no_files_read").unwrap_or(0)),
    });
    is_known.then_some(sum)
}

pub(super) fn note_modules(job: &mut Job, log: &Log) {
    for module in log.modules() {
        let name = module.id.name().to_owned();
        let is_partial = module.partial && (is_trace(module.id) || !has_exact_sums(log));
        let name = match module.id {
            ModuleId::Unknown(number) => format!("module {number}"),
            _ => name,
        };
        match job.modules.iter_mut().find(|known| known.name == name) {
            Some(known) => known.is_partial |= is_partial,
            None => job.modules.push(ModuleFacts {
                name,
                version: module.version,
                records: 0,
                is_partial,
                is_unknown: !module.is_decoded(),
            }),
        }
    }
}

/// A program of a log, in the log's own numbers.
pub(super) fn program(one: &darshan_log::file_facts::Program) -> Program {
    let end = match one.end {
        ProgramEnd::Unknown => "unknown".to_owned(),
        ProgramEnd::Exited(code) => format!("exit {code}"),
        ProgramEnd::Executed => "executed the next program".to_owned(),
        ProgramEnd::Killed => "killed".to_owned(),
        ProgramEnd::Runs => "still running".to_owned(),
    };
    Program {
        parent: None,
        pid: one.pid,
        rank: None,
        end,
        start_seconds: 0.0,
        end_seconds: 0.0,
        bytes_read: one.bytes_read,
        bytes_written: one.bytes_written,
        call_seconds: one.call_ns as f64 / 1e9,
        command: printable(one.command.as_bytes()),
    }
}

fn is_trace(id: ModuleId) -> bool {
    matches!(id, ModuleId::DxtPosix | ModuleId::DxtMpiio)
}

/// Type and mount point of the file system whose mount point is the longest prefix of the name.
pub(super) fn file_system(log: &Log, name: &[u8]) -> (String, String) {
    log.mounts
        .iter()
        .filter(|mount| {
            let path = mount.path.trim_end_matches('/').as_bytes();
            name.starts_with(path) && name.get(path.len()).is_none_or(|next| *next == b'/')
        })
        .max_by_key(|mount| mount.path.trim_end_matches('/').len())
        .map(|mount| {
            let path = printable(mount.path.as_bytes());
            (printable(mount.fs_type.as_bytes()), path)
        })
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_fetched_is_known_only_beside_what_calls_have_read() {
        let of = |lines: &[(&str, &str)]| {
            let lines = lines
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
            coverage(&lines.collect())
        };
        assert_eq!(of(&[("fetched", "7")]), None);
        let read = ("coverage_read", "90/100");
        let written = ("coverage_written", "1/1000");
        assert_eq!(of(&[read, written]).unwrap().fetched, None);
        let lines = [
            read,
            written,
            ("fetched", "70"),
            ("fetched_at_start", "5"),
            ("no_files_read", "20"),
        ];
        let fetched = Fetched {
            bytes: 70,
            at_start: 5,
            asked: 80,
        };
        assert_eq!(of(&lines).unwrap().fetched, Some(fetched));
        // Of a process that was killed the kernel's count is older than that of the recorder.
        let killed = of(&[("coverage_read", "90/10"), ("fetched", "70")]).unwrap();
        assert_eq!(killed.fetched.unwrap().asked, 90);
    }

    #[test]
    fn what_was_degraded_is_told_apart_by_what_it_means_for_the_sums() {
        let mut job = Job::default();
        for (key, value) in [("unplaced_read", "7"), ("unplaced_written", "36")] {
            job.metadata.insert(key.to_owned(), value.to_owned());
        }
        note_degraded(
            &mut job,
            "1 table unreadable; 1 file summed up by directory; 3 of these perhaps twice; \
             1 record with uncertain common values; 2 calls in no record of a file",
        );
        assert_eq!(job.losses, ["1 table unreadable"]);
        let condensed = [
            "1 file summed up by directory",
            "3 of these perhaps twice",
            "1 record with uncertain common values",
        ];
        assert_eq!(job.condensed, condensed);
        let unplaced = |calls| Unplaced {
            calls,
            bytes_read: 7,
            bytes_written: 36,
        };
        assert_eq!(job.unplaced, unplaced(2));
        for (text, calls) in [
            ("1 call in no record of a file", 1),
            ("1 calls in totals only", 1),
        ] {
            job.losses.clear();
            note_degraded(&mut job, text);
            assert_eq!(job.unplaced, unplaced(calls), "{text}");
            assert!(job.losses.is_empty(), "{text}");
        }
    }
}
