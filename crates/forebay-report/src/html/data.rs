//! The data that the scripts draw, as compact JSON: columns instead of rows, each folder once.

use super::pictures::ranks_word;
use crate::Report;
use crate::model::{FileUse, Interface, Job, Sharing, Timeline, Trace};
use serde_json::{Value, json};
use std::collections::HashMap;

/// Most files in the page, so that it stays below a megabyte; the pictures and tables count all of them.
const MOST_FILES: usize = 5_000;
/// Interfaces by their number in the data.
const INTERFACES: [Interface; 7] = [
    Interface::Posix,
    Interface::Stdio,
    Interface::Dfs,
    Interface::Daos,
    Interface::MpiIo,
    Interface::Hdf5,
    Interface::Pnetcdf,
];

/// Most steps beside ranks whose names the pictures show.
const MOST_STEPS: usize = 1000;

/// The data, and what it leaves out.
pub(super) struct PageData {
    pub(super) json: Value,
    /// Which files the table holds.
    pub(super) files_remark: String,
}

/// The data of one job.
pub(super) fn of_report(report: &Report) -> PageData {
    let job = &report.job;
    let rows = rows(job);
    let left_out = rows.1;
    let files_remark = if left_out > 0 {
        format!(
            "The {} files with most seconds and bytes; {} left out here; sums and pictures count them, too.",
            crate::units::number(MOST_FILES as u64),
            crate::units::count(left_out as u64, "more is", "more are")
        )
    } else {
        "Every file, over all interfaces.".to_owned()
    };
    let mut json = files(job, &rows.0);
    json["jobs"] = json!([processes(job)]);
    json["interfaces"] = json!(INTERFACES.map(Interface::name));
    json["timelines"] = json!([timelines(job)]);
    json["traces"] = job.traces.iter().map(|one| trace(job, one)).collect();
    PageData { json, files_remark }
}

/// How many processes a job has, and how they are called: `who`, followed by the number, but steps beside ranks have the
/// names of their programs.
pub(super) fn processes(job: &Job) -> Value {
    let steps = (0..job.ranks).filter(|number| job.serial_steps() > 0 && !job.is_rank(*number));
    let steps: serde_json::Map<_, _> = steps
        .take(MOST_STEPS)
        .map(|number| (number.to_string(), json!(job.name_of(number))))
        .collect();
    json!({
        "ranks": job.ranks.max(1),
        "who": if job.rank_count() > 0 { "rank" } else { "process" },
        "many": ranks_word(job),
        "steps": steps,
    })
}

/// Heat maps of a job.
pub(super) fn timelines(job: &Job) -> Value {
    // MPI-IO is shown first, because the program waits for it.
    let preferred = job
        .timelines
        .iter()
        .map(|line| line.interface)
        .find(|interface| *interface == Interface::MpiIo);
    job.timelines
        .iter()
        .map(|line| timeline(line, preferred == Some(line.interface)))
        .collect()
}

fn timeline(line: &Timeline, preferred: bool) -> Value {
    json!({
        "interface": line.interface.name(),
        "source": line.source.remark(),
        "preferred": preferred,
        "bin_seconds": line.bin_seconds,
        "bins": line.bins,
        "rows": line.rows(),
        "ranks_per_row": line.ranks_per_row,
        "read": sparse(&line.read),
        "written": sparse(&line.written),
    })
}

/// Encodes values without the empty ones: `s` cells are skipped before each value `v`.
fn sparse(cells: &[f64]) -> Value {
    let (mut skips, mut values) = (Vec::new(), Vec::new());
    let mut skipped = 0u64;
    for value in cells {
        if *value > 0.0 {
            skips.push(skipped);
            values.push(round_to(*value, 3));
            skipped = 0;
        } else {
            skipped += 1;
        }
    }
    json!({ "s": skips, "v": values })
}

/// Rounds to six digits, which are enough for a drawing.
fn round(value: f64) -> Value {
    round_to(value, 5)
}

/// Rounds to that many digits behind the first. Whole numbers stay whole, so that the JSON is short.
fn round_to(value: f64, digits: usize) -> Value {
    let rounded: f64 = format!("{value:.digits$e}").parse().unwrap_or(value);
    if rounded.fract() == 0.0 && rounded.abs() < 9e15 {
        json!(rounded as i64)
    } else {
        json!(rounded)
    }
}

/// A file of the table.
#[derive(Clone, Default)]
struct Row<'a> {
    file: usize,
    uses: Vec<(Interface, &'a FileUse)>,
    read: u64,
    written: u64,
    ops: u64,
    opens: u64,
    seconds: f64,
    slowest: i64,
    ranks: u32,
    sharing: u8,
}

/// The most important files, in the order of the job, and how many are left out.
fn rows(job: &Job) -> (Vec<Row<'_>>, usize) {
    let (chosen, left_out) = chosen_files(job);
    let mut rows: Vec<Row> = chosen
        .iter()
        .map(|file| Row {
            file: *file,
            slowest: -1,
            ..Row::default()
        })
        .collect();
    for layer in &job.layers {
        for one in &layer.uses {
            let Ok(at) = chosen.binary_search(&one.file) else {
                continue;
            };
            let row = &mut rows[at];
            row.uses.push((layer.interface, one));
            row.opens += one.total.opens;
            if one.is_lowest {
                row.read += one.total.read.bytes;
                row.written += one.total.write.bytes;
                row.ops += one.total.ops();
            }
            row.ranks = row.ranks.max(one.ranks);
            row.sharing = row.sharing.max(match one.sharing {
                Sharing::Unique => 0,
                Sharing::Partial => 2,
                Sharing::Shared => 1,
            });
            let slowest = one.slowest().filter(|_| one.is_highest).unwrap_or_default();
            if slowest.seconds > row.seconds {
                row.seconds = slowest.seconds;
                row.slowest = slowest.rank.into();
            }
        }
    }
    (rows, left_out)
}

/// The files with most seconds and bytes, in ascending order, and how many others there are.
fn chosen_files(job: &Job) -> (Vec<usize>, usize) {
    // Seconds of the slowest rank, bytes; `None` for a file that nothing was done with.
    let mut weights: Vec<Option<(f64, u64)>> = vec![None; job.files.len()];
    for one in job.layers.iter().flat_map(|layer| &layer.uses) {
        let weight = weights[one.file].get_or_insert_default();
        if one.is_highest {
            weight.0 = weight.0.max(one.slowest().unwrap_or_default().seconds);
        }
        if one.is_lowest {
            weight.1 += one.total.bytes();
        }
    }
    let mut used: Vec<(usize, f64, u64)> = (0..)
        .zip(weights)
        .filter_map(|(file, weight)| weight.map(|(seconds, bytes)| (file, seconds, bytes)))
        .collect();
    let left_out = used.len().saturating_sub(MOST_FILES);
    if left_out > 0 {
        used.select_nth_unstable_by(MOST_FILES - 1, |a, b| {
            b.1.total_cmp(&a.1).then(b.2.cmp(&a.2)).then(a.0.cmp(&b.0))
        });
        used.truncate(MOST_FILES);
    }
    let mut chosen: Vec<usize> = used.into_iter().map(|(file, ..)| file).collect();
    chosen.sort_unstable();
    (chosen, left_out)
}

/// Gives texts numbers in the order of their first use, so that repeated ones are stored once.
#[derive(Default)]
struct Pool<'a> {
    at: HashMap<&'a str, usize>,
    texts: Vec<&'a str>,
}

impl<'a> Pool<'a> {
    fn number(&mut self, text: &'a str) -> usize {
        *self.at.entry(text).or_insert_with(|| {
            self.texts.push(text);
            self.texts.len() - 1
        })
    }
}

fn files(job: &Job, rows: &[Row]) -> Value {
    let (mut dirs, mut types) = (Pool::default(), Pool::default());
    let mut split = Vec::with_capacity(rows.len());
    let mut fs = Vec::with_capacity(rows.len());
    for row in rows {
        let file = &job.files[row.file];
        let at = file.name.rfind('/').map_or(0, |at| at + 1);
        split.push((dirs.number(&file.name[..at]), &file.name[at..]));
        fs.push(if file.fs.is_empty() {
            -1
        } else {
            types.number(&file.fs) as i64
        });
    }
    let column = |of: &dyn Fn(&Row) -> Value| -> Value { rows.iter().map(of).collect() };
    let uses: Vec<(usize, Interface, &FileUse)> = rows
        .iter()
        .enumerate()
        .flat_map(|(at, row)| {
            row.uses
                .iter()
                .map(move |(interface, one)| (at, *interface, *one))
        })
        .collect();
    let of_uses = |of: &dyn Fn(&FileUse) -> Value| -> Value {
        uses.iter().map(|(.., one)| of(one)).collect()
    };
    json!({
        "files": {
            "dirs": dirs.texts,
            "types": types.texts,
            "dir": split.iter().map(|(dir, _)| *dir).collect::<Vec<_>>(),
            "base": split.iter().map(|(_, base)| *base).collect::<Vec<_>>(),
            "fs": fs,
            "stripes": column(&|row| json!(job.files[row.file].stripes)),
            "created": column(&|row| json!(job.files[row.file].created)),
            "size_at_open": column(&|row| json!(job.files[row.file].size_at_open)),
            "sharing": column(&|row| json!(row.sharing)),
            "ranks": column(&|row| json!(row.ranks)),
            "read": column(&|row| json!(row.read)),
            "written": column(&|row| json!(row.written)),
            "ops": column(&|row| json!(row.ops)),
            "opens": column(&|row| json!(row.opens)),
            "seconds": column(&|row| round(row.seconds)),
            "slowest": column(&|row| json!(row.slowest)),
        },
        "uses": {
            "file": uses.iter().map(|(at, ..)| *at).collect::<Vec<_>>(),
            "interface": uses.iter().map(|(_, interface, _)| number_of(*interface)).collect::<Vec<_>>(),
            "reads": of_uses(&|one| json!(one.total.read.ops)),
            "writes": of_uses(&|one| json!(one.total.write.ops)),
            "bytes_read": of_uses(&|one| json!(one.total.read.bytes)),
            "bytes_written": of_uses(&|one| json!(one.total.write.bytes)),
            "opens": of_uses(&|one| json!(one.total.opens)),
            "stats": of_uses(&|one| json!(one.total.stats)),
            "seeks": of_uses(&|one| json!(one.total.seeks)),
            "syncs": of_uses(&|one| json!(one.total.syncs)),
            "read_seconds": of_uses(&|one| round(one.total.read.seconds)),
            "write_seconds": of_uses(&|one| round(one.total.write.seconds)),
            "meta_seconds": of_uses(&|one| round(one.total.meta_seconds)),
        },
    })
}

fn number_of(interface: Interface) -> usize {
    INTERFACES
        .iter()
        .position(|one| *one == interface)
        .unwrap_or(0)
}

fn trace(job: &Job, trace: &Trace) -> Value {
    let mut names = Pool::default();
    let file: Vec<usize> = trace
        .segments
        .iter()
        .map(|one| names.number(&job.files[one.file].name))
        .collect();
    let mut rule = trace.rule.clone().unwrap_or_else(|| match trace.recorded {
        1 => "It is the only one of the log.".to_owned(),
        n => format!(
            "All {} requests of the log are shown.",
            crate::units::number(n)
        ),
    });
    if trace.is_partial {
        rule.push_str(" The trace ran out of memory: later requests are missing.");
    }
    let segments = &trace.segments;
    json!({
        "interface": trace.interface.name(),
        "rule": rule,
        "names": names.texts,
        "file": file,
        "rank": segments.iter().map(|one| one.rank).collect::<Vec<_>>(),
        "write": segments.iter().map(|one| u8::from(one.is_write)).collect::<Vec<_>>(),
        "offset": segments.iter().map(|one| one.offset.map_or(-1, |at| at as i64)).collect::<Vec<_>>(),
        "length": segments.iter().map(|one| one.length).collect::<Vec<_>>(),
        "start": segments.iter().map(|one| round(one.start)).collect::<Vec<_>>(),
        "end": segments.iter().map(|one| round(one.end)).collect::<Vec<_>>(),
    })
}
