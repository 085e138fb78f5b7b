//! The values behind the pictures of the page that no table holds. The JSON has them, too, so that a picture can be
//! checked: the page draws these numbers and no others.

use crate::account::Account;
use crate::model::{FileUse, Interface, Job, RankShare, Timeline, TimelineSource};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};

/// Most intervals of a timeline: each is at least a few pixels wide.
const MOST_INTERVALS: f64 = 100.0;
/// Most groups of neighbouring ranks.
const MOST_RANK_GROUPS: u32 = 64;
/// Places that are told apart; the others are summed.
const MOST_PLACES: usize = 8;
/// The name of the sum over the places that are not told apart.
const OTHER_PLACES: &str = "(all others)";

/// What the pictures draw.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Plots {
    /// Bytes and seconds by interval of the run; `None` if the log has no times.
    pub over_time: Option<OverTime>,
    /// Groups of neighbouring ranks, in order; each is one rank if there are few.
    pub ranks: Vec<RankGroup>,
    /// Files by what was done with their data.
    pub file_classes: Vec<FileClass>,
    /// Directories, those with most seconds first.
    pub directories: Vec<Place>,
    /// Types of file systems, those with most seconds first.
    pub file_systems: Vec<Place>,
    /// Mount points, if the log has them.
    pub mounts: Vec<Place>,
    /// Storage targets of Lustre. Each target of a file has an equal part of its bytes and seconds.
    pub targets: Vec<Place>,
}

/// Sums over all ranks, by interval of the run.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct OverTime {
    /// Length of an interval; all together are the run.
    pub interval_seconds: f64,
    /// The interfaces whose bytes are drawn: the lowest ones of the job, so that nothing counts twice.
    pub interfaces: Vec<&'static str>,
    /// Those of them whose bytes were spread evenly between the first and the last time of a file, because nothing else
    /// is known.
    pub estimated: Vec<&'static str>,
    /// Bytes read.
    pub bytes_read: Vec<f64>,
    /// Bytes written.
    pub bytes_written: Vec<f64>,
    /// Seconds in open, close, stat, seek: those of a file spread evenly over the time in which it was in use.
    pub metadata_seconds: Vec<f64>,
}

/// Some neighbouring ranks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct RankGroup {
    /// The first of them.
    pub first_rank: u32,
    /// How many.
    pub ranks: u32,
    /// Seconds reading, mean of the group.
    pub read_seconds: f64,
    /// Seconds writing, mean.
    pub write_seconds: f64,
    /// Seconds in open, close, stat, seek, mean.
    pub metadata_seconds: f64,
    /// Seconds in I/O of the slowest one.
    pub most_seconds: f64,
}

/// Files of which data was only read, only written, or both.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct FileClass {
    /// `read only`, `write only`, `read and written`, `no data`.
    pub class: &'static str,
    /// Files.
    pub files: u64,
    /// Sum of their sizes, as far as they were touched or noted at the first open.
    pub bytes: u64,
    /// The largest one.
    pub largest_bytes: u64,
}

/// What happened in one place: a directory, a file system, a mount point, a storage target.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Place {
    /// Printable name.
    pub name: String,
    /// Files.
    pub files: u64,
    /// Bytes read, at the lowest interfaces.
    pub bytes_read: u64,
    /// Bytes written, at the lowest interfaces.
    pub bytes_written: u64,
    /// Seconds at the highest interfaces, all ranks together.
    pub seconds: f64,
    /// The type of the file system; only of mount points, and only if the log has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_system: Option<String>,
}

impl Place {
    fn has_io(&self) -> bool {
        self.seconds > 0.0 || self.bytes_read + self.bytes_written > 0
    }
}

/// How many places something was read, written or waited for at.
fn with_io(places: &[Place]) -> usize {
    places.iter().filter(|one| one.has_io()).count()
}

impl Plots {
    /// True if there are several mount points with I/O, so that they are worth a picture.
    pub(crate) fn mounts_are_told(&self) -> bool {
        with_io(&self.mounts) > 1
    }

    /// True if types of file systems say something that mount points don't: the sums over mount points of one type, or
    /// all there is if the log names no mount points. One type alone says nothing.
    pub(crate) fn file_systems_are_told(&self) -> bool {
        let (types, mounts) = (with_io(&self.file_systems), with_io(&self.mounts));
        types > 1 && types != mounts
    }

    /// Sums up what the pictures show.
    pub fn of(job: &Job, account: &Account) -> Self {
        Plots {
            over_time: over_time(job),
            ranks: rank_groups(&account.ranks),
            file_classes: file_classes(job),
            directories: places(job, |file| directory(&job.files[file].name)),
            file_systems: places(job, |file| match job.files[file].fs.as_str() {
                "" => UNKNOWN_PLACE,
                fs => fs,
            }),
            mounts: mounts(job),
            targets: targets(job),
        }
    }
}

/// The directory part of a path, with its `/`.
fn directory(name: &str) -> &str {
    match name.rfind('/') {
        Some(at) => &name[..=at],
        None => "(no directory)",
    }
}

/// Uses of real files; standard streams count in no picture.
fn real_uses(job: &Job) -> impl Iterator<Item = &FileUse> {
    let uses = job.layers.iter().flat_map(|layer| &layer.uses);
    uses.filter(|one| !job.files[one.file].is_std_stream)
}

fn over_time(job: &Job) -> Option<OverTime> {
    let lines = lowest_timelines(job);
    let run = job.run_seconds;
    if run <= 0.0 || !run.is_finite() {
        return None;
    }
    // Intervals finer than those of the log would pretend to know more.
    let finest = lines.iter().map(|line| line.bin_seconds);
    let finest = finest.fold(f64::INFINITY, f64::min);
    let wanted = if finest.is_finite() {
        (run / finest - 1e-9).ceil()
    } else {
        MOST_INTERVALS
    };
    let n = wanted.clamp(1.0, MOST_INTERVALS) as usize;
    let mut sums = OverTime {
        interval_seconds: run / n as f64,
        interfaces: lines.iter().map(|line| line.interface.name()).collect(),
        estimated: lines
            .iter()
            .filter(|line| line.source == TimelineSource::Timestamps)
            .map(|line| line.interface.name())
            .collect(),
        bytes_read: vec![0.0; n],
        bytes_written: vec![0.0; n],
        metadata_seconds: vec![0.0; n],
    };
    for line in lines {
        for (at, (read, written)) in line.columns().into_iter().enumerate() {
            let start = at as f64 * line.bin_seconds;
            let span = (start, start + line.bin_seconds);
            spread(&mut sums.bytes_read, run, span, read);
            spread(&mut sums.bytes_written, run, span, written);
        }
    }
    metadata(job, &mut sums.metadata_seconds);
    let all = [
        &sums.bytes_read,
        &sums.bytes_written,
        &sums.metadata_seconds,
    ];
    all.iter()
        .any(|values| values.iter().any(|value| *value > 0.0))
        .then_some(sums)
}

/// Timelines of the lowest interfaces, whose bytes count for the job.
fn lowest_timelines(job: &Job) -> Vec<&Timeline> {
    let (libraries, lowest): (Vec<_>, Vec<_>) = job
        .timelines
        .iter()
        .filter(|line| line.bins > 0 && line.bin_seconds > 0.0)
        .filter(|line| line.read.iter().chain(&line.written).any(|n| *n > 0.0))
        .partition(|line| line.interface.is_library());
    if lowest.is_empty() {
        // The lowest of the libraries: what passes through HDF5 passes through MPI-IO.
        return libraries.into_iter().take(1).collect();
    }
    // DFS keeps its files in DAOS objects.
    let has_dfs = lowest.iter().any(|line| line.interface == Interface::Dfs);
    let is_twice = |line: &&Timeline| line.interface == Interface::Daos && has_dfs;
    lowest.into_iter().filter(|line| !is_twice(line)).collect()
}

/// Spreads an amount evenly over the intervals that a span touches. What lies behind the run goes into the last one.
fn spread(sums: &mut [f64], run: f64, span: (f64, f64), amount: f64) {
    if amount <= 0.0 || sums.is_empty() {
        return;
    }
    let width = run / sums.len() as f64;
    let last = sums.len() - 1;
    let at = |time: f64| ((time / width).max(0.0) as usize).min(last);
    let (start, end) = (span.0.max(0.0), span.1.min(run));
    let (first, final_one) = (at(start), at(end - width * 1e-9));
    if end <= start || first == final_one {
        sums[first] += amount;
        return;
    }
    for (i, sum) in sums.iter_mut().enumerate().take(final_one + 1).skip(first) {
        let (from, to) = (i as f64 * width, (i + 1) as f64 * width);
        *sum += amount * (to.min(end) - from.max(start)).max(0.0) / (end - start);
    }
}

/// Spreads the metadata seconds of every file over the time in which it was in use. Amounts are noted as slopes at
/// their borders, so that the time needed does not grow with the length of spans.
fn metadata(job: &Job, sums: &mut [f64]) {
    let run = job.run_seconds;
    let width = run / sums.len() as f64;
    let mut slopes = vec![0.0; sums.len() + 1];
    for one in real_uses(job).filter(|one| one.is_highest) {
        let shares = one.by_rank.iter().map(|s| (s.in_use, s.meta_seconds));
        let reduced = one.reduced.iter().map(|r| (r.in_use, r.meta_seconds));
        for (in_use, seconds) in shares.chain(reduced) {
            let (start, end) = in_use.unwrap_or((0.0, run));
            let (start, end) = (start.clamp(0.0, run), end.clamp(0.0, run));
            let first = ((start / width) as usize).min(sums.len() - 1);
            let last = ((end / width) as usize).min(sums.len() - 1);
            if last <= first + 1 {
                spread(sums, run, (start, end), seconds);
            } else {
                // The partial intervals at both ends one by one, the whole ones between them by their slope.
                let per_second = seconds / (end - start);
                sums[first] += per_second * ((first + 1) as f64 * width - start);
                sums[last] += per_second * (end - last as f64 * width);
                slopes[first + 1] += per_second * width;
                slopes[last] -= per_second * width;
            }
        }
    }
    let mut running = 0.0;
    for (sum, slope) in sums.iter_mut().zip(slopes) {
        running += slope;
        *sum += running;
        // Adding and subtracting the same value leaves dust.
        if *sum < 1e-9 {
            *sum = 0.0;
        }
    }
}

fn rank_groups(ranks: &[RankShare]) -> Vec<RankGroup> {
    let size = (ranks.len() as u32).div_ceil(MOST_RANK_GROUPS).max(1);
    ranks
        .chunks(size as usize)
        .map(|group| {
            let n = group.len() as f64;
            let mean = |of: fn(&RankShare) -> f64| group.iter().map(of).sum::<f64>() / n;
            RankGroup {
                first_rank: group[0].rank,
                ranks: group.len() as u32,
                read_seconds: mean(|one| one.read_seconds),
                write_seconds: mean(|one| one.write_seconds),
                metadata_seconds: mean(|one| one.meta_seconds),
                most_seconds: group.iter().map(RankShare::seconds).fold(0.0, f64::max),
            }
        })
        .collect()
}

/// Files that were opened, by what was done with their data. Sums over several files have no size, and are left out.
fn file_classes(job: &Job) -> Vec<FileClass> {
    #[derive(Clone, Default)]
    struct Seen {
        is_used: bool,
        read: bool,
        written: bool,
        size: u64,
    }
    let mut seen = vec![Seen::default(); job.files.len()];
    for one in real_uses(job).filter(|one| one.is_lowest) {
        let file = &job.files[one.file];
        if file.is_rest() || one.total.opens + one.total.ops() == 0 {
            continue;
        }
        let mine = &mut seen[file.container.unwrap_or(one.file)];
        mine.is_used = true;
        mine.read |= one.total.read.bytes > 0;
        mine.written |= one.total.write.bytes > 0;
        mine.size = mine.size.max(one.total.extent());
        mine.size = mine.size.max(file.size_at_open.unwrap_or(0));
    }
    let classes = ["read only", "write only", "read and written", "no data"];
    let mut sums = classes.map(|class| FileClass {
        class,
        ..FileClass::default()
    });
    for one in seen.iter().filter(|one| one.is_used) {
        let sum = &mut sums[match (one.read, one.written) {
            (true, false) => 0,
            (false, true) => 1,
            (true, true) => 2,
            (false, false) => 3,
        }];
        sum.files += 1;
        sum.bytes = sum.bytes.saturating_add(one.size);
        sum.largest_bytes = sum.largest_bytes.max(one.size);
    }
    sums.into()
}

/// Sums by the place that `name_of` gives a file.
fn places<'j>(job: &'j Job, name_of: impl Fn(usize) -> &'j str) -> Vec<Place> {
    let mut at: HashMap<&str, usize> = HashMap::new();
    let mut found: Vec<Place> = Vec::new();
    let mut is_counted = vec![false; job.files.len()];
    for one in real_uses(job) {
        let name = name_of(one.file);
        let place = *at.entry(name).or_insert_with(|| {
            found.push(Place {
                name: name.to_owned(),
                ..Place::default()
            });
            found.len() - 1
        });
        let place = &mut found[place];
        if one.is_lowest {
            let file = &job.files[one.file];
            let counted = &mut is_counted[file.container.unwrap_or(one.file)];
            if one.total.opens + one.total.ops() > 0 && !std::mem::replace(counted, true) {
                place.files += file.count();
            }
            place.bytes_read += one.total.read.bytes;
            place.bytes_written += one.total.write.bytes;
        }
        if one.is_highest {
            place.seconds += one.total.seconds();
        }
    }
    most_costly(found)
}

/// Sums by mount point, with the types of their file systems.
fn mounts(job: &Job) -> Vec<Place> {
    let mut found = places(job, |file| match job.files[file].mount.as_str() {
        "" => UNKNOWN_PLACE,
        mount => mount,
    });
    let types: HashMap<&str, &str> = job
        .files
        .iter()
        .filter(|file| !file.mount.is_empty() && !file.fs.is_empty())
        .map(|file| (file.mount.as_str(), file.fs.as_str()))
        .collect();
    for one in &mut found {
        one.file_system = types.get(one.name.as_str()).map(|kind| (*kind).to_owned());
    }
    found
}

/// Sums by storage target.
fn targets(job: &Job) -> Vec<Place> {
    let mut found: BTreeMap<u32, Place> = BTreeMap::new();
    let mut is_counted = vec![false; job.files.len()];
    for one in real_uses(job) {
        let on = &job.files[one.file].targets;
        let parts = on.len().max(1) as u64;
        let is_new = one.is_lowest
            && one.total.ops() > 0
            && !std::mem::replace(&mut is_counted[one.file], true);
        for target in on {
            let place = found.entry(*target).or_insert_with(|| Place {
                name: format!("OST {target}"),
                ..Place::default()
            });
            place.files += u64::from(is_new);
            if one.is_lowest {
                place.bytes_read += one.total.read.bytes / parts;
                place.bytes_written += one.total.write.bytes / parts;
            }
            if one.is_highest {
                place.seconds += one.total.seconds() / parts as f64;
            }
        }
    }
    most_costly(found.into_values().collect())
}

/// The places with most seconds, most first, and the sum of the others.
fn most_costly(mut found: Vec<Place>) -> Vec<Place> {
    found.retain(|one| one.files > 0 || one.seconds > 0.0);
    found.sort_by(|a, b| {
        let bytes = |one: &Place| one.bytes_read + one.bytes_written;
        b.seconds
            .total_cmp(&a.seconds)
            .then(bytes(b).cmp(&bytes(a)))
            .then(a.name.cmp(&b.name))
    });
    if found.len() > MOST_PLACES + 1 {
        let mut rest = Place {
            name: OTHER_PLACES.to_owned(),
            ..Place::default()
        };
        for one in found.drain(MOST_PLACES..) {
            rest.files += one.files;
            rest.bytes_read += one.bytes_read;
            rest.bytes_written += one.bytes_written;
            rest.seconds += one.seconds;
        }
        found.push(rest);
    }
    found
}

/// The name of the place of files of which the log does not have it.
const UNKNOWN_PLACE: &str = "(unknown)";

#[cfg(test)]
mod tests;
