//! Turns logs into a [`Job`]: joins the logs of one job, and condenses what has no bound.
//!
//! Logs are hostile input. What they claim (ranks, times, sizes) decides neither how much is allocated nor whether a
//! report is made. Nonsense is left out, and [`Job::damage`] says so.

mod busy;
mod calls;
mod collective;
mod counters;
mod flushing;
mod group;
mod job_notes;
mod locks;
mod placement;
mod timeline;
mod trace;
mod uses;

use crate::model::*;
use crate::text::printable;
use calls::Calls;
use counters::{Places, natural, seconds};
use darshan_log::{
    CounterModule, Daos, Dfs, DxtMpiio, DxtPosix, H5d, Heatmap, Log, Lustre, Module, MpiIo,
    PnetcdfVar, Posix, Record, Stdio, derive, record_id,
};
pub use group::group;
use job_notes::{file_system, has_exact_sums, launches, note_job, note_modules};
use placement::PlacementBuilder;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use timeline::Canvas;
use trace::Thinner;
use uses::LayerBuilder;

/// An open log and the name to show for it.
pub struct NamedLog<'a> {
    /// Printable name.
    pub name: &'a str,
    /// The log.
    pub log: &'a Log,
}

/// Most ranks that are believed: more than any machine has.
const MOST_RANKS: u32 = 1 << 21;
/// Most that all counters of a job add up to; more is damage. So no sum in the report can overflow.
const MOST_COUNTED: u128 = 1 << 60;
/// Most storage targets of a file that are kept. With more, no single one makes the file slow.
const MOST_TARGETS: usize = 4;
/// Most hosts that are kept.
const MOST_HOSTS: usize = 100_000;

/// The place of one log in its job.
#[derive(Clone, Copy)]
struct Seat {
    first_rank: u32,
    ranks: u32,
    /// How many of these are ranks of launches, which come first. Records that the logger has summed are theirs.
    launched: u32,
    /// Seconds from the job's start to the log's.
    shift: f64,
}

impl Seat {
    /// The rank in the job of a rank in the log. Ranks that don't exist become the last one.
    fn rank(self, rank: i64) -> u32 {
        let last = self.ranks.saturating_sub(1);
        self.first_rank + u32::try_from(rank).unwrap_or(0).min(last)
    }

    fn range(self) -> std::ops::Range<u32> {
        self.first_rank..self.first_rank + self.ranks
    }
}

/// Makes a job of logs that belong together, at least one; see [`group`].
pub fn job(logs: &[NamedLog]) -> Job {
    let mut order: Vec<&NamedLog> = logs.iter().collect();
    order.sort_by(|a, b| {
        a.log
            .job
            .start
            .cmp(&b.log.job.start)
            .then(a.name.cmp(b.name))
    });
    let mut intake = Intake::new(&order);
    for (named, seat) in order.iter().zip(intake.seats.clone()) {
        intake.note_names(named.log);
        intake.placement.add_log(named.log, seat);
        intake.add_facts(named.log, seat);
        intake.add_heatmaps(named.log, seat);
        intake.add_trace::<DxtPosix>(named.log, seat, Interface::Posix);
        intake.add_trace::<DxtMpiio>(named.log, seat, Interface::MpiIo);
    }
    for (named, seat) in order.iter().zip(intake.seats.clone()) {
        intake.add_records::<Posix>(named.log, seat, Interface::Posix);
        intake.add_records::<Stdio>(named.log, seat, Interface::Stdio);
        intake.add_records::<Dfs>(named.log, seat, Interface::Dfs);
        intake.add_records::<Daos>(named.log, seat, Interface::Daos);
        intake.add_records::<MpiIo>(named.log, seat, Interface::MpiIo);
        intake.add_records::<H5d>(named.log, seat, Interface::Hdf5);
        intake.add_containers::<H5d>(named.log, |record| record.extra.file_id);
        intake.add_records::<PnetcdfVar>(named.log, seat, Interface::Pnetcdf);
        intake.add_containers::<PnetcdfVar>(named.log, |record| record.extra.file_id);
        intake.add_stripes(named.log);
    }
    intake.add_calls();
    let ids = std::mem::take(&mut intake.ids);
    let seated: Vec<(&NamedLog, Seat)> = order.into_iter().zip(intake.seats.clone()).collect();
    let mut job = intake.finish();
    job.locks = locks::of(&job, &seated, &ids);
    job
}

struct Intake {
    job: Job,
    seats: Vec<Seat>,
    ids: HashMap<u64, usize>,
    layers: BTreeMap<Interface, LayerBuilder>,
    measured: BTreeMap<Interface, Canvas>,
    traced: BTreeMap<Interface, Canvas>,
    estimated: BTreeMap<Interface, Canvas>,
    traces: BTreeMap<Interface, (Thinner, bool)>,
    traced_hosts: BTreeSet<String>,
    traced_ranks: BTreeSet<u32>,
    heatmap_bin: f64,
    heatmap_end: f64,
    counted: u128,
    dropped: u64,
    calls: Vec<Calls>,
    /// How many logs tell when their ranks were in I/O.
    busy_logs: usize,
    placement: PlacementBuilder,
    /// By first rank of a log what it tells of syncs.
    flushing: BTreeMap<u32, flushing::Noted>,
}

impl Intake {
    fn new(logs: &[&NamedLog]) -> Self {
        let mut job = Job::default();
        let start = logs
            .iter()
            .map(|named| named.log.job.start.as_secs_f64())
            .fold(f64::INFINITY, f64::min);
        job.start = if start.is_finite() { start } else { 0.0 };
        let mut seats = Vec::new();
        for named in logs {
            let log = named.log;
            let shift = seconds(log.job.start.as_secs_f64() - job.start);
            let claimed = log.job.nprocs.max(1);
            let ranks = u32::try_from(claimed)
                .unwrap_or(u32::MAX)
                .min(MOST_RANKS - job.ranks.min(MOST_RANKS - 1));
            if i64::from(ranks) != log.job.nprocs {
                job.damage.push(format!(
                    "{}: {} processes are claimed, {ranks} are shown",
                    named.name, log.job.nprocs
                ));
            }
            let run = log.run_time();
            if !(run.is_finite() && run >= 0.0) {
                job.damage
                    .push(format!("{}: the job's end was never written", named.name));
            }
            job.run_seconds = job.run_seconds.max(shift + seconds(run));
            job.run_seconds_rounded |= log.header.version < darshan_log::FormatVersion::V3_41;
            let is_mpi = match log.job.metadata.get("mpi") {
                Some(answer) => answer == "1",
                None => log.job.nprocs > 1,
            };
            job.logs.push(LogFacts {
                name: named.name.to_owned(),
                version: log.header.version.as_str().to_owned(),
                first_rank: job.ranks,
                ranks,
                is_mpi,
            });
            let (launches, launched) = launches(log, is_mpi, job.ranks, ranks);
            job.launches.extend(launches);
            seats.push(Seat {
                first_rank: job.ranks,
                ranks,
                launched,
                shift,
            });
            job.ranks += ranks;
        }
        if let Some(first) = logs.first().map(|named| named.log) {
            note_job(&mut job, first);
        }
        for named in logs {
            note_modules(&mut job, named.log);
            let errors = named.log.damage.iter();
            job.damage
                .extend(errors.map(|error| format!("{}: {error}", named.name)));
        }
        Intake {
            heatmap_bin: logs
                .iter()
                .filter_map(|named| first_heatmap(named.log))
                .fold(0.0, |w, (bin, _)| bin.max(w)),
            heatmap_end: logs
                .iter()
                .zip(&seats)
                .filter_map(|(named, seat)| Some(first_heatmap(named.log)?.1 + seat.shift))
                .fold(0.0, f64::max),
            job,
            seats,
            ids: HashMap::new(),
            layers: BTreeMap::new(),
            measured: BTreeMap::new(),
            traced: BTreeMap::new(),
            estimated: BTreeMap::new(),
            traces: BTreeMap::new(),
            traced_hosts: BTreeSet::new(),
            traced_ranks: BTreeSet::new(),
            counted: 0,
            dropped: 0,
            calls: Vec::new(),
            busy_logs: 0,
            placement: PlacementBuilder::default(),
            flushing: BTreeMap::new(),
        }
    }

    /// Notes the files of a log. It comes first, because a record without a name is shown by its number.
    fn note_names(&mut self, log: &Log) {
        let std_streams =
            ["<STDIN>", "<STDOUT>", "<STDERR>"].map(|name| record_id(name.as_bytes()));
        let mut named: Vec<(u64, &[u8])> = log.names.iter().collect();
        named.sort_unstable();
        for (id, name) in named {
            if name.is_empty() || name.starts_with(b"heatmap:") || self.ids.contains_key(&id) {
                continue;
            }
            self.ids.insert(id, self.job.files.len());
            let (fs, mount) = file_system(log, name);
            self.job.files.push(File {
                name: printable(name),
                fs,
                mount,
                rest: name.ends_with(REST_NAME.as_bytes()).then_some(1),
                is_std_stream: std_streams.contains(&id)
                    || (name.starts_with(b"<STD") && name.ends_with(b">")),
                ..File::default()
            });
        }
    }

    fn file(&mut self, id: u64) -> usize {
        *self.ids.entry(id).or_insert_with(|| {
            self.job.files.push(File {
                name: format!("record {id:016x} (no name in the log)"),
                ..File::default()
            });
            self.job.files.len() - 1
        })
    }

    fn damaged(&mut self, what: &str, error: &darshan_log::Error) {
        self.job.damage.push(format!("{what}: {error}"));
    }

    fn add_facts(&mut self, log: &Log, seat: Seat) {
        let facts = match log.facts() {
            Ok(Some(facts)) => facts,
            Ok(None) => return,
            Err(error) => return self.damaged("facts", &error),
        };
        for fact in &facts.files {
            if let Some(at) = self.ids.get(&fact.id) {
                self.job.files[*at].size_at_open = fact.size_at_open;
                self.job.files[*at].created = fact.created;
                self.job.files[*at].is_noted = true;
                if let (Some(rest), Some(files)) = (&mut self.job.files[*at].rest, fact.summed) {
                    *rest = files;
                }
            }
        }
        let first = self.job.programs.len();
        let programs = facts.programs.iter().map(|one| Program {
            parent: one.parent.map(|parent| first + parent as usize),
            rank: one.rank.map(|rank| seat.rank(rank.into())),
            start_seconds: one.start_ns as f64 / 1e9 + seat.shift,
            end_seconds: one.end_ns as f64 / 1e9 + seat.shift,
            ..job_notes::program(one)
        });
        self.job.programs.extend(programs);
        let calls = calls::of(facts.note(calls::NOTE).unwrap_or_default());
        self.calls.extend(calls.into_iter().map(|one| Calls {
            rank: seat.rank(one.rank.into()),
            ..one
        }));
        if let Some(times) = busy::of(facts.note(busy::NOTE).unwrap_or_default()) {
            self.add_busy(times, seat);
        }
        let syncs = facts.note(flushing::NOTE).unwrap_or_default();
        self.flushing
            .insert(seat.first_rank, flushing::Noted::of(syncs));
        let nodes = facts.note(placement::NOTE).unwrap_or_default();
        self.placement.add_note(nodes, seat);
        let told = facts.note(collective::NOTE).unwrap_or_default();
        self.job.collective.extend(collective::of(told));
        for (key, value) in &facts.lines {
            let (key, value) = (printable(key.as_bytes()), printable(value.as_bytes()));
            self.job.metadata.entry(key).or_insert(value);
        }
    }

    fn add_busy(&mut self, (whole, ranks): (Bounds, Vec<(u32, Bounds)>), seat: Seat) {
        self.busy_logs += 1;
        let busy = self.job.busy.get_or_insert_default();
        busy.whole = busy.whole.or(whole);
        busy.ranks
            .resize(self.job.ranks as usize, Bounds::default());
        for (rank, bounds) in ranks {
            let mine = &mut busy.ranks[seat.rank(rank.into()) as usize];
            *mine = mine.or(bounds);
        }
    }

    fn add_heatmaps(&mut self, log: &Log, seat: Seat) {
        let interfaces: HashMap<u64, Interface> = [
            ("heatmap:POSIX", Interface::Posix),
            ("heatmap:STDIO", Interface::Stdio),
            ("heatmap:MPIIO", Interface::MpiIo),
            ("heatmap:DFS", Interface::Dfs),
            ("heatmap:DAOS", Interface::Daos),
        ]
        .map(|(name, interface)| (record_id(name.as_bytes()), interface))
        .into();
        let (ranks, end) = (self.job.ranks, self.job.run_seconds.max(self.heatmap_end));
        for record in log.records::<Heatmap>() {
            let record = match record {
                Ok(record) => record,
                Err(error) => return self.damaged("heat map", &error),
            };
            let Some(interface) = interfaces.get(&record.id).copied() else {
                continue;
            };
            let canvas = self.measured.entry(interface).or_insert_with(|| {
                Canvas::new(
                    interface,
                    TimelineSource::Heatmap,
                    ranks,
                    end,
                    self.heatmap_bin,
                )
            });
            let width = seconds(record.bin_width);
            if width <= 0.0 {
                continue;
            }
            let rank = seat.rank(record.rank);
            for (values, is_write) in [(&record.read, false), (&record.written, true)] {
                for (at, bytes) in values.iter().enumerate().filter(|(_, bytes)| **bytes > 0) {
                    let start = at as f64 * width + seat.shift;
                    canvas.add(rank, is_write, start, start + width, *bytes as f64);
                }
            }
        }
    }

    fn add_records<M: CounterModule + Module<Record = Record<M>>>(
        &mut self,
        log: &Log,
        seat: Seat,
        interface: Interface,
    ) {
        let Some(module) = log.module(<M as Module>::ID) else {
            return;
        };
        let places = Places::new(interface, M::layout());
        let mut layer = self
            .layers
            .remove(&interface)
            .unwrap_or_else(|| LayerBuilder::new(interface));
        let is_condensed = module.partial && has_exact_sums(log);
        layer.is_condensed |= is_condensed;
        layer.is_partial |= module.partial && !is_condensed;
        let mut error = None;
        let mut found = 0;
        let records = log.records::<M>().map_while(|record| {
            record.map_err(|e| error = Some(e)).ok().inspect(|record| {
                found += 1;
                self.add_record(&mut layer, &places, record, seat);
            })
        });
        let derived = derive(records.map(Ok), i64::from(seat.ranks));
        layer.add_derived(derived.unwrap_or_default());
        if let Some(error) = error {
            self.damaged(places.prefix().trim_end_matches('_'), &error);
        }
        if let Some(facts) = self
            .job
            .modules
            .iter_mut()
            .find(|facts| facts.name == <M as Module>::ID.name())
        {
            facts.records += found;
        }
        self.layers.insert(interface, layer);
    }

    fn add_record<M: CounterModule>(
        &mut self,
        layer: &mut LayerBuilder,
        places: &Places,
        record: &Record<M>,
        seat: Seat,
    ) {
        let file = self.file(record.id);
        let view = record.view();
        self.job.files[file].is_made |= places.makes(&view);
        let mut counters = self.believed(places.counters(&view, seat.shift));
        if let (Interface::Posix, Some(noted)) =
            (layer.interface(), self.flushing.get(&seat.first_rank))
        {
            let waits = noted.complete(&mut counters, record.id, record.rank, seat);
            layer.add_waits(file, waits);
        }
        self.estimate(layer.interface(), &counters, record.rank, seat);
        if record.rank < 0 && seat.ranks > 1 {
            let (slowest, fastest) = places.extremes(&view, seat.first_rank);
            layer.add_reduced(
                file,
                counters,
                seat.first_rank,
                seat.launched,
                slowest,
                fastest,
            );
        } else {
            let rank = seat.rank(record.rank);
            self.place_record(rank, layer.interface(), file, &counters);
            layer.add_rank(file, counters, rank);
        }
    }

    /// The counters, or none if they are too large to be true.
    fn believed(&mut self, counters: Counters) -> Counters {
        let weight = counters.weight();
        if self.counted + weight > MOST_COUNTED {
            self.dropped += 1;
            return Counters::default();
        }
        self.counted += weight;
        counters
    }

    /// Notes the files that hold data sets and variables.
    fn add_containers<M: CounterModule + Module<Record = Record<M>>>(
        &mut self,
        log: &Log,
        of: fn(&Record<M>) -> u64,
    ) {
        for record in log.records::<M>().map_while(Result::ok) {
            let by_id = self.ids.get(&of(&record)).copied();
            let container = by_id.or_else(|| self.container_by_name(log.names.bytes(record.id)?));
            if let Some(file) = self.ids.get(&record.id) {
                self.job.files[*file].container = container;
            }
        }
    }

    /// The file of a data set by its name, `FILE:DATASET`: older records don't have its id.
    fn container_by_name(&self, name: &[u8]) -> Option<usize> {
        let colons = (0..name.len()).rev().filter(|at| name[*at] == b':');
        colons
            .filter_map(|at| self.ids.get(&record_id(&name[..at])).copied())
            .next()
    }

    /// Spreads bytes evenly between first and last time, for interfaces without a heat map or a trace.
    fn estimate(&mut self, interface: Interface, counters: &Counters, rank: i64, seat: Seat) {
        let is_data_set = matches!(interface, Interface::Hdf5 | Interface::Pnetcdf);
        if is_data_set
            || self.measured.contains_key(&interface)
            || self.traced.contains_key(&interface)
        {
            return;
        }
        let (ranks, end) = (self.job.ranks, self.job.run_seconds);
        let canvas = self
            .estimated
            .entry(interface)
            .or_insert_with(|| Canvas::new(interface, TimelineSource::Timestamps, ranks, end, 0.0));
        for (flow, is_write) in [(&counters.read, false), (&counters.write, true)] {
            let Some(span) = flow.span else {
                continue;
            };
            if rank < 0 {
                canvas.add_all(seat.range(), is_write, span, flow.bytes as f64);
            } else {
                canvas.add(seat.rank(rank), is_write, span.0, span.1, flow.bytes as f64);
            }
        }
    }

    fn add_stripes(&mut self, log: &Log) {
        for record in log.records::<Lustre>() {
            let record = match record {
                Ok(record) => record,
                Err(error) => return self.damaged("LUSTRE", &error),
            };
            // The last component of a composite layout is the one for large files.
            if let (Some(at), Some(component)) =
                (self.ids.get(&record.id), record.components.last())
            {
                if record.osts.len() <= MOST_TARGETS {
                    let numbers = record
                        .osts
                        .iter()
                        .filter_map(|ost| u32::try_from(*ost).ok());
                    self.job.files[*at].targets = numbers.collect();
                }
                self.job.files[*at].stripes = Some((
                    natural(component.stripe_size),
                    natural(component.stripe_count),
                ));
            }
        }
    }

    fn finish(mut self) -> Job {
        let ranks = self.job.ranks;
        self.job.layers = self
            .layers
            .into_values()
            .map(|layer| layer.finish(ranks, &self.job.launches))
            .filter(|layer| !layer.uses.is_empty())
            .collect();
        let lines = self
            .estimated
            .into_iter()
            .chain(self.traced)
            .chain(self.measured);
        // Later sources are better: they replace earlier ones of the same interface.
        let best: BTreeMap<Interface, Canvas> = lines
            .map(|(_, canvas)| (canvas.interface(), canvas))
            .collect();
        self.job.timelines = best.into_values().filter_map(Canvas::finish).collect();
        self.job.traces = self
            .traces
            .into_values()
            .filter_map(|(thinner, is_partial)| thinner.finish(is_partial))
            .collect();
        let is_traced = has_whole_trace(&self.job);
        self.job.placement = self.placement.finish(is_traced);
        // Only a trace of every rank names every node.
        if self.job.hosts.is_empty() && self.traced_ranks.len() == ranks as usize {
            self.job.hosts = self.traced_hosts.into_iter().collect();
        }
        // What one of several logs tells is no answer.
        if self.busy_logs < self.seats.len() {
            self.job.busy = None;
        }
        if self.job.nodes.is_none() && !self.job.hosts.is_empty() {
            self.job.nodes = u32::try_from(self.job.hosts.len()).ok();
        }
        if self.dropped > 0 {
            self.job.damage.push(format!(
                "{} with counters too large to be true are left out",
                crate::units::count(self.dropped, "record", "records")
            ));
        }
        // The header of a log has no room for all lines.
        self.job.coverage = job_notes::coverage(&self.job.metadata);
        self.job.settle_layers();
        if self.job.run_seconds <= 0.0 {
            self.job.run_seconds = last_sign_of_life(&self.job);
        }
        self.job
    }
}

/// True if the trace of system calls has all that counters have.
fn has_whole_trace(job: &Job) -> bool {
    let mut traces = job.traces.iter();
    let trace = traces.find(|trace| trace.interface == Interface::Posix);
    let counted = job.layer(Interface::Posix).map(|layer| layer.total().ops());
    match (trace, counted) {
        (Some(trace), Some(counted)) => !trace.is_partial && trace.recorded >= counted,
        _ => false,
    }
}

/// The last time that a record notes, for a job whose end was never written.
fn last_sign_of_life(job: &Job) -> f64 {
    let uses = job.layers.iter().flat_map(|layer| &layer.uses);
    let spans = uses.flat_map(|one| {
        let total = &one.total;
        [total.in_use, total.read.span, total.write.span, total.span]
    });
    spans
        .flatten()
        .flat_map(|(first, last)| [first, last])
        .filter(|time| time.is_finite())
        .fold(0.0, f64::max)
}

/// Bin width and end of the first heat map.
fn first_heatmap(log: &Log) -> Option<(f64, f64)> {
    let record = log.records::<Heatmap>().next()?.ok()?;
    let width = seconds(record.bin_width);
    Some((width, width * record.bins() as f64))
}
