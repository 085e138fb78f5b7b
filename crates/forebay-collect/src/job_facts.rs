//! What a log says of a job besides counters: the lines of its metadata, and the facts behind its last region.

use crate::coverage::{self, Coverage};
use crate::job::Job;
use crate::metadata::Lines;
use crate::ranks::FOREBAY;
use darshan_log::file_facts::FileFacts;
use forebay_count::event::Extra;
use forebay_count::read::Totals;
use std::collections::BTreeMap;

/// Name and version of the program that wrote the log. Darshan's own logs have Darshan's version there.
const LIBRARY: &str = concat!("forebay-", env!("CARGO_PKG_VERSION"));

/// All lines, the most important first. docs/COLLECTOR.md explains them.
pub fn lines(job: &Job, files: &[FileFacts]) -> Lines {
    let mut lines = Lines::default();
    lines.add("lib_ver", LIBRARY);
    lines.add("exit", exit(job));
    let hosts: Vec<String> = job.hosts().iter().map(|host| (*host).to_owned()).collect();
    lines.add("nnodes", hosts.len());
    lines.add_list("hosts", &hosts);
    lines.add("mpi", u8::from(job.ranks.is_parallel()));
    lines.add("processes", job.processes());
    lines.add_if(
        job.abnormal_ends() > 0,
        "abnormal_ends",
        job.abnormal_ends(),
    );
    lines.add_if(job.alive() > 0, "outlived", job.alive());
    lines.add_if(job.unrecorded() > 0, "unrecorded", job.unrecorded());
    let launches: Vec<String> = job
        .ranks
        .launches
        .iter()
        .map(|l| l.size.to_string())
        .collect();
    lines.add_list("launches", &launches);
    lines.add_if(
        !launches.is_empty() && job.ranks.single > 0,
        "outside_launches",
        job.ranks.single,
    );
    let missing: u32 = job.ranks.launches.iter().map(|l| l.size - l.seen).sum();
    lines.add_if(missing > 0, "ranks_missing", missing);
    let Coverage {
        seen,
        total,
        fetched,
        fetched_at_start,
    } = coverage::of(job);
    lines.add("coverage_read", format!("{}/{}", seen.0, total.0));
    lines.add("coverage_written", format!("{}/{}", seen.1, total.1));
    if let Some(fetched) = fetched {
        lines.add("fetched", fetched);
        lines.add_if(fetched_at_start > 0, "fetched_at_start", fetched_at_start);
    }
    let buffer = buffer(job);
    lines.add_if(buffer.is_some(), "buffer", buffer.unwrap_or_default());
    degradation(job, &mut lines);
    totals(job, &mut lines);
    found(files, &mut lines);
    let mut extras: BTreeMap<&str, u64> = BTreeMap::new();
    for image in &job.tables.images {
        let calls = image
            .extras
            .iter()
            .filter(|(name, _)| **name != Extra::UNREACHED);
        for (name, (n, _)) in calls {
            *extras.entry(name).or_default() += n;
        }
    }
    for (name, n) in extras {
        lines.add(&format!("calls_{name}"), n);
    }
    lines.add("command", job.note().command.join(" "));
    lines
}

/// The directory that a buffer stood in for: that of the run, or of a `forebay run` within a job that was recorded.
fn buffer(job: &Job) -> Option<String> {
    let own = job.notes.iter().find_map(|note| note.buffer.as_ref());
    let own = own.map(|path| path.display().to_string());
    own.or_else(|| {
        let images = job.tables.images.iter();
        let mut inner = images.filter(|image| image.program == FOREBAY);
        inner.find_map(|image| {
            let mut words = image.command.split(' ');
            words.find(|word| *word == "--buffer")?;
            Some(words.next()?.to_owned())
        })
    })
}

/// `code 3`, `signal 9`, or `unknown`.
fn exit(job: &Job) -> String {
    match job.end() {
        Some(end) => match (end.code, end.signal) {
            (Some(code), _) => format!("code {code}"),
            (None, Some(signal)) => format!("signal {signal}"),
            (None, None) => "unknown".to_owned(),
        },
        None => "unknown".to_owned(),
    }
}

fn degradation(job: &Job, lines: &mut Lines) {
    let sum = |of: fn(&crate::image::Image) -> u64| -> u64 {
        let each = job.tables.images.iter().map(of);
        each.fold(0, u64::saturating_add)
    };
    let mut degraded = Vec::new();
    for (n, one, many) in [
        (job.tables.damaged, "table unreadable", "tables unreadable"),
        (
            sum(|i| i.folded_files),
            "file summed up by directory",
            "files summed up by directory",
        ),
        (
            sum(|i| i.unsure_files),
            "of these perhaps twice",
            "of these perhaps twice",
        ),
        (
            sum(|i| i.overlaps),
            "time a thread was held up in counting for over a second: counts may be wrong",
            "times a thread was held up in counting for over a second: counts may be wrong",
        ),
        (
            sum(|i| i.values_lost),
            "record with uncertain common values",
            "records with uncertain common values",
        ),
        (
            sum(|i| {
                let Totals {
                    opens,
                    reads,
                    writes,
                    ..
                } = i.unplaced;
                opens.saturating_add(reads).saturating_add(writes)
            }),
            "call in no record of a file",
            "calls in no record of a file",
        ),
    ] {
        if n > 0 {
            let what = if n == 1 { one } else { many };
            degraded.push(format!("{n} {what}"));
        }
    }
    lines.add_if(!degraded.is_empty(), "degraded", degraded.join("; "));
    let unplaced = job.tables.images.iter().map(|image| image.unplaced);
    let unplaced = unplaced.fold(Totals::default(), joined);
    lines.add_if(
        unplaced.bytes_read > 0,
        "unplaced_read",
        unplaced.bytes_read,
    );
    lines.add_if(
        unplaced.bytes_written > 0,
        "unplaced_written",
        unplaced.bytes_written,
    );
}

/// Adds lines on traffic that is in no record.
fn totals(job: &Job, lines: &mut Lines) {
    let images = &job.tables.images;
    let excluded = images.iter().map(|i| i.excluded);
    let excluded = excluded.fold(Totals::default(), joined);
    lines.add("excluded_opens", excluded.opens);
    lines.add("excluded_read", excluded.bytes_read);
    lines.add("excluded_written", excluded.bytes_written);
    let other = images.iter().map(|i| i.no_files);
    let other = other.fold(Totals::default(), joined);
    lines.add_if(other.bytes_read > 0, "no_files_read", other.bytes_read);
    lines.add_if(
        other.bytes_written > 0,
        "no_files_written",
        other.bytes_written,
    );
    let records = job.launchers().flat_map(|image| &image.files);
    let launchers = records.fold((0_u64, 0_u64), |sum, entry| {
        (
            sum.0.saturating_add(entry.bytes.0),
            sum.1.saturating_add(entry.bytes.1),
        )
    });
    lines.add_if(launchers.0 > 0, "launchers_read", launchers.0);
    lines.add_if(launchers.1 > 0, "launchers_written", launchers.1);
    let mapped = images.iter().map(|i| i.mapped_bytes);
    let mapped = mapped.fold(0, u64::saturating_add);
    lines.add_if(mapped > 0, "mapped", mapped);
}

fn joined(a: Totals, b: Totals) -> Totals {
    Totals {
        opens: a.opens.saturating_add(b.opens),
        reads: a.reads.saturating_add(b.reads),
        writes: a.writes.saturating_add(b.writes),
        bytes_read: a.bytes_read.saturating_add(b.bytes_read),
        bytes_written: a.bytes_written.saturating_add(b.bytes_written),
        ..Totals::default()
    }
}

/// Adds lines on the files that the job found and made.
fn found(files: &[FileFacts], lines: &mut Lines) {
    let of = |created| files.iter().filter(move |f| f.created == Some(created));
    lines.add_if(!files.is_empty(), "files_created", of(true).count());
    lines.add_if(!files.is_empty(), "files_found", of(false).count());
    let bytes = of(false).filter_map(|file| file.size_at_open);
    let bytes = bytes.fold(0, u64::saturating_add);
    lines.add_if(bytes > 0, "bytes_found", bytes);
}
