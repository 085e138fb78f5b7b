//! What a table says of its process, and its records in the terms of a log.

use crate::Error;
use crate::busy::Timeline;
use crate::heatmap::Bins;
use crate::merge::{Seen, Tally};
use crate::ranks::{CALL_WEIGHT, Claim};
use crate::recording::{self, Recording};
use crate::tables::load;
use crate::uncounted_calls;
use darshan_log::counters::{FloatRule, Rule};
use darshan_log::{CounterModule, Record, record_id};
use forebay_count::busy::BusyMap;
use forebay_count::event::Extra;
use forebay_count::heat::{HeatMap, TICK_NS};
use forebay_count::layout::H_START_MONOTONIC;
use forebay_count::read::{self, End, File, Flushing, ProcIo, RankSource, Totals};
use forebay_count::table::Bulk;
use forebay_count::{Kind, Table};
use forebay_sys::SparseWords;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;

/// One table.
pub struct Image {
    path: PathBuf,
    /// A copy of its words, if its process may still be counting.
    pub copy: Option<SparseWords>,
    /// Machine.
    pub host: String,
    /// Process id.
    pub pid: u32,
    /// Process id of its parent when the table began.
    pub parent_pid: u32,
    /// Start of the process in clock ticks since boot.
    pub start_ticks: u64,
    /// Number of the table in its process.
    pub serial: u64,
    /// First sign of life, in nanoseconds since 1970.
    pub first_ns: u64,
    /// Last sign of life, in nanoseconds since 1970.
    pub last_ns: u64,
    /// The rank that the process says it is.
    pub claim: Option<Claim>,
    /// How the program ended.
    pub end: End,
    /// True if its process still runs.
    pub is_alive: bool,
    /// Command line.
    pub command: String,
    /// Name of the program, without directories.
    pub program: String,
    /// `/proc/self/io` at the start of the table and at the last look.
    pub io: (ProcIo, ProcIo),
    /// Bytes that the recorder itself has read.
    pub own_read: u64,
    /// Traffic on paths that are left out.
    pub excluded: Totals,
    /// Traffic on pipes, sockets and terminals.
    pub no_files: Totals,
    /// Traffic of calls that found no record, because memory was full.
    pub unplaced: Totals,
    /// Calls that Darshan has no counter for: how many, and their nanoseconds.
    pub extras: BTreeMap<&'static str, (u64, u64)>,
    /// Bytes over time: POSIX, MPI-IO, STDIO.
    pub heat: Vec<(Kind, Bins)>,
    /// When it was in I/O.
    pub busy: Timeline,
    /// Its records.
    pub files: Vec<Entry>,
    /// Bytes of files that were mapped into memory. What is read and written there is not seen.
    pub mapped_bytes: u64,
    /// How many files are in folded records.
    pub folded_files: u64,
    /// What stands for them ([`read::folded_key`]), as far as it is known.
    pub folded_keys: Vec<u64>,
    /// How many of those may have been counted twice.
    pub unsure_files: u64,
    /// How often threads may have spoiled counters for each other.
    pub overlaps: u64,
    /// How many records have common values that may be wrong.
    pub values_lost: u64,
}

/// One record, without its counters.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// Interface.
    pub kind: Kind,
    /// Record id.
    pub id: u64,
    /// Bytes read and written.
    pub bytes: (u64, u64),
    /// Nanoseconds that calls on it took, of all threads together.
    pub call_ns: u64,
    /// When it was first opened, in nanoseconds since 1970; 0 if never.
    pub opened_ns: u64,
    /// `Some` if the record stands for several files: how many.
    pub folded: Option<u64>,
    /// Bytes in the file when it was first opened, if known.
    pub size_at_open: Option<u64>,
    /// True if this process created it, if known.
    pub created: Option<bool>,
    /// What was to reach storage at once.
    pub flushing: Flushing,
}

impl Image {
    pub fn of(table: &Table<'_>, path: &Path, recording: &Recording) -> Self {
        let process = read::process(table);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let args: Vec<Cow<'_, str>> = process.args().map(String::from_utf8_lossy).collect();
        let exe = text(process.exe());
        let is_here = recording.note.host == recording::host_name();
        let host = match text(process.hostname()) {
            host if host.is_empty() => recording.note.host.clone(),
            host => host,
        };
        let outer = recording.note.outer_rank;
        Image {
            path: path.to_owned(),
            copy: None,
            pid: process.pid,
            parent_pid: process.ppid,
            start_ticks: process.start_ticks,
            serial: process.serial,
            first_ns: process.start_realtime_ns,
            last_ns: process.last_realtime_ns.max(process.start_realtime_ns),
            claim: claim(&process).filter(|c| c.by_mpi || Some((c.rank, c.size)) != outer),
            end: process.end,
            // After an exec the table of the next program may not exist yet.
            is_alive: matches!(process.end, End::Unsaid | End::Exec)
                && is_here
                && recording::is_alive(process.pid, process.start_ticks),
            program: program_name(&exe, &args),
            command: if args.is_empty() { exe } else { args.join(" ") },
            host,
            io: (process.io_first, process.io_last),
            own_read: process.own_read,
            excluded: read::totals(table, Bulk::Excluded),
            no_files: read::totals(table, Bulk::NoFiles),
            unplaced: read::totals(table, Bulk::Unplaced),
            extras: read::extras(table)
                .map(|(name, n, ns)| (name, (n, ns)))
                .collect(),
            heat: heat_of(table),
            busy: Timeline::of(&BusyMap::of(table)),
            files: Vec::new(),
            mapped_bytes: 0,
            folded_files: 0,
            folded_keys: read::folded_keys(table).collect(),
            unsure_files: read::unsure_files(table),
            overlaps: read::overlaps(table),
            values_lost: 0,
        }
    }

    /// Bytes that its calls have read from files and written to them.
    pub fn file_bytes(&self) -> (u64, u64) {
        let direct = |entry: &&Entry| matches!(entry.kind, Kind::Posix | Kind::Stdio);
        let files = self.files.iter().filter(direct).map(|entry| entry.bytes);
        files.fold((0, 0), added)
    }

    /// Bytes that the recorder has seen: of files, of paths that are left out, and of what is no file.
    pub fn seen_bytes(&self) -> (u64, u64) {
        let bulk = [self.excluded, self.no_files, self.unplaced];
        let bulk = bulk.iter().map(|t| (t.bytes_read, t.bytes_written));
        bulk.fold(self.file_bytes(), added)
    }

    /// How much I/O it did, see [`crate::ranks::Process::weight`].
    pub fn weight(&self) -> u64 {
        let (read, written) = self.file_bytes();
        let direct = |entry: &&Entry| matches!(entry.kind, Kind::Posix | Kind::Stdio);
        let files = self
            .files
            .iter()
            .filter(direct)
            .map(|entry| entry.folded.unwrap_or(1));
        let calls = uncounted_calls::names().filter_map(|name| self.extras.get(name));
        let calls = files
            .chain(calls.map(|(n, _)| *n))
            .fold(0, u64::saturating_add);
        let bytes = read.saturating_add(written);
        bytes.saturating_add(calls.saturating_mul(CALL_WEIGHT))
    }

    /// Nanoseconds that its calls on files took, of all threads together.
    pub fn call_ns(&self) -> u64 {
        let direct = |entry: &&Entry| matches!(entry.kind, Kind::Posix | Kind::Stdio);
        let times = self.files.iter().filter(direct).map(|entry| entry.call_ns);
        times.fold(self.name_call_ns(), u64::saturating_add)
    }

    /// Nanoseconds of its calls on names that are in no record.
    pub fn name_call_ns(&self) -> u64 {
        let calls = uncounted_calls::names().filter_map(|name| self.extras.get(name));
        calls.fold(0, |sum, (_, ns)| sum.saturating_add(*ns))
    }

    /// How many programs children of its process started that the recorder does not reach.
    pub fn unreached(&self) -> u64 {
        self.extras.get(Extra::UNREACHED).map_or(0, |(n, _)| *n)
    }

    /// True if it has records of this interface.
    pub fn has(&self, kind: Kind) -> bool {
        self.files.iter().any(|entry| entry.kind == kind)
    }

    /// Calls `act` for every record of an interface. Times count from `job_start_ns`.
    ///
    /// # Errors
    /// The table can't be read any more.
    pub fn each<M: CounterModule>(
        &self,
        kind: Kind,
        job_start_ns: u64,
        mut act: impl FnMut(Seen<M>, u64),
    ) -> Result<(), Error> {
        let loaded;
        let words = match &self.copy {
            Some(copy) => copy,
            None => {
                loaded = load(&self.path)?;
                &loaded
            }
        };
        let table =
            read::open(words.words()).map_err(|e| Error::damaged(&self.path, e.to_string()))?;
        // Nanoseconds from the start of the job to that of the table.
        let shift_ns = ns_between(job_start_ns, self.first_ns);
        read::each_file(&table, |file| {
            if file.kind == kind
                && let Some(seen) = seen_of(file, &table, shift_ns)
            {
                act(seen, file.parent);
            }
        });
        Ok(())
    }
}

/// Nanoseconds from one point in time to another. A damaged table, or a note, may tell any.
pub fn ns_between(from: u64, to: u64) -> i64 {
    let ns = i128::from(to) - i128::from(from);
    ns.clamp(i64::MIN.into(), i64::MAX.into()) as i64
}

fn added(a: (u64, u64), b: (u64, u64)) -> (u64, u64) {
    (a.0.saturating_add(b.0), a.1.saturating_add(b.1))
}

/// Name of the program without directories; for a Python program that of its script or module.
fn program_name(exe: &str, args: &[Cow<'_, str>]) -> String {
    let base = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
    let program = base(exe);
    let argument = |n: usize| args.get(n).map(|arg| arg.as_ref());
    match (program.starts_with("python"), argument(1), argument(2)) {
        (true, Some("-m"), Some(module)) => module.to_owned(),
        (true, Some(script), _) if !script.starts_with('-') => base(script),
        _ => program,
    }
}

fn claim(process: &read::Process) -> Option<Claim> {
    let (rank, size, source) = process.rank?;
    let key = process.job_key();
    Some(Claim {
        rank,
        // Not all launchers say how many ranks there are.
        size: size.max(1),
        key: if key.is_empty() { 0 } else { record_id(key) },
        by_mpi: source == RankSource::Mpi,
    })
}

fn heat_of(table: &Table<'_>) -> Vec<(Kind, Bins)> {
    let kinds = [Kind::Posix, Kind::Mpiio, Kind::Stdio];
    let maps = kinds
        .iter()
        .filter_map(|&kind| Some((kind, HeatMap::of(table, kind)?)));
    maps.map(|(kind, map)| {
        let width_ns = map.ticks_per_bin.saturating_mul(TICK_NS);
        let bins = Bins {
            origin_ns: map.first_bin.saturating_mul(width_ns),
            width_ns: width_ns.max(1),
            read: map.read.to_vec(),
            written: map.written.to_vec(),
        };
        (kind, bins)
    })
    .collect()
}

/// What is known of a record; `None` if it has not the shape of its kind.
pub fn entry_of(file: &File<'_, '_>, table: &Table<'_>) -> Option<Entry> {
    let (record, _) = file.record();
    let ints = record.ints();
    let layout = layout_of(file.kind);
    let facts = file.facts();
    let value = |at: usize| ints.get(at).map_or(0, |word| word.load(Relaxed));
    let bytes = layout.bytes.map_or((0, 0), |(r, w)| (value(r), value(w)));
    let times = record.times();
    let time = |at: usize| times.get(at).map_or(0, |word| word.load(Relaxed));
    let call_ns = layout.times.map_or(0, |t| {
        let parts = [t.read, t.write, t.meta].map(time);
        parts.into_iter().fold(0, u64::saturating_add)
    });
    let opened = layout
        .fcounters
        .iter()
        .position(|name| name.ends_with("OPEN_START_TIMESTAMP"));
    let opened_ns = opened.map_or(0, time);
    (ints.len() == layout.counters.len()).then(|| Entry {
        kind: file.kind,
        id: file.id,
        bytes,
        call_ns,
        opened_ns: if opened_ns == 0 {
            0
        } else {
            table.realtime(opened_ns)
        },
        folded: file.folded,
        size_at_open: facts.size_at_open,
        created: facts.created,
        flushing: facts.flushing,
    })
}

/// Names and meaning of the counters of an interface.
pub fn layout_of(kind: Kind) -> &'static darshan_log::counters::Layout {
    match kind {
        Kind::Posix => darshan_log::Posix::layout(),
        Kind::Stdio => darshan_log::Stdio::layout(),
        Kind::Mpiio => darshan_log::MpiIo::layout(),
        Kind::H5f => darshan_log::H5f::layout(),
        Kind::H5d => darshan_log::H5d::layout(),
        Kind::PnetcdfFile => darshan_log::PnetcdfFile::layout(),
        Kind::PnetcdfVar => darshan_log::PnetcdfVar::layout(),
    }
}

/// Converts a record to that of a log, with all its tracked values.
fn seen_of<M: CounterModule>(
    file: &File<'_, '_>,
    table: &Table<'_>,
    shift_ns: i64,
) -> Option<Seen<M>> {
    let (from, _) = file.record();
    let layout = M::layout();
    let mut record = Record::<M>::new(file.id, 0);
    let (ints, times) = (from.ints(), from.times());
    if ints.len() != layout.counters.len() || times.len() != layout.fcounters.len() {
        return None;
    }
    let counters = record.counters.as_mut().iter_mut();
    for ((to, word), rule) in counters.zip(ints).zip(layout.rules) {
        // Fastest rank, slowest rank and variance are found out when ranks are joined.
        if *rule != Rule::Extreme {
            *to = word.load(Relaxed) as i64;
        }
    }
    let start_ns = table.get(H_START_MONOTONIC);
    let floats = record.fcounters.as_mut().iter_mut();
    let meanings = layout.fcounters.iter().zip(layout.float_rules);
    for ((to, word), (name, rule)) in floats.zip(times).zip(meanings) {
        let ns = word.load(Relaxed);
        *to = match ns {
            0 => 0.0,
            _ if *rule == FloatRule::Extreme => 0.0,
            _ if name.ends_with("_TIMESTAMP") => {
                let since = ns.saturating_sub(start_ns) as i64;
                // A point in time is never 0, which would mean "never".
                since.saturating_add(shift_ns).max(1) as f64 * 1e-9
            }
            _ => ns as f64 * 1e-9,
        };
    }
    let values = layout.common.iter().enumerate().map(|(n, place)| {
        // Accesses are the first set in a table, and the last in a layout.
        let set = layout.common.len() - 1 - n;
        let places = (place.first, place.first_count);
        let mut list: Vec<Tally> = Vec::new();
        from.tracked(table, set, places, place.words, |value, count| {
            let value: Vec<i64> = value.iter().map(|w| w.load(Relaxed) as i64).collect();
            // Darshan leaves accesses of 0 bytes out of the common ones.
            if value.first().is_some_and(|&v| v != 0) {
                list.push((value, count));
            }
        });
        list
    });
    let mut seen = Seen {
        values: values.collect(),
        record,
    };
    seen.choose_common();
    Some(seen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_python_program_is_called_by_its_script_or_module() {
        let name = |exe: &str, args: &[&str]| {
            let args: Vec<Cow<'_, str>> = args.iter().map(|&arg| arg.into()).collect();
            program_name(exe, &args)
        };
        assert_eq!(name("/usr/bin/sim", &["./sim", "-x"]), "sim");
        let python = "/usr/bin/python3.11";
        assert_eq!(
            name(python, &["python3", "/opt/bin/torchrun", "t.py"]),
            "torchrun"
        );
        assert_eq!(
            name(python, &["python3", "-m", "torch.distributed.run", "t.py"]),
            "torch.distributed.run"
        );
        assert_eq!(name(python, &["python3", "-c", "pass"]), "python3.11");
        assert_eq!(name(python, &[]), "python3.11");
    }
}
