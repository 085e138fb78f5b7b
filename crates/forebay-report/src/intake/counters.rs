//! Turns one record of any data module into [`Counters`].

use crate::model::{Counters, Extreme, Flow, Flushing, Interface};
use darshan_log::RecordView;
use darshan_log::counters::Layout;

/// Places of the counters that the report uses, looked up once per module.
pub(super) struct Places {
    interface: Interface,
    prefix: &'static str,
    reads: Vec<usize>,
    writes: Vec<usize>,
    independent: [Vec<usize>; 2],
    collective: [Vec<usize>; 2],
    opens: Vec<usize>,
    seeks: Vec<usize>,
    stats: Vec<usize>,
    mmaps: Vec<usize>,
    syncs: Vec<usize>,
    switches: Vec<usize>,
    consecutive: [Vec<usize>; 2],
    sequential: [Vec<usize>; 2],
    misaligned: Vec<usize>,
    /// The permissions that an open gives to the file that it makes.
    mode: Option<usize>,
    alignment: Option<usize>,
    read_span: Option<(usize, usize)>,
    write_span: Option<(usize, usize)>,
    open_close: Option<(usize, usize)>,
    open: Option<(usize, usize)>,
    /// All points in time.
    starts: Vec<usize>,
    ends: Vec<usize>,
    longest: [Option<usize>; 2],
}

impl Places {
    /// The places for a module.
    pub(super) fn new(interface: Interface, layout: &'static Layout) -> Self {
        let prefix = match interface {
            Interface::Posix => "POSIX_",
            Interface::Stdio => "STDIO_",
            Interface::Dfs => "DFS_",
            Interface::Daos => "DAOS_",
            Interface::MpiIo => "MPIIO_",
            Interface::Hdf5 => "H5D_",
            Interface::Pnetcdf => "PNETCDF_VAR_",
        };
        let find = |names: &[&str]| -> Vec<usize> {
            names
                .iter()
                .filter_map(|name| layout.counter(&format!("{prefix}{name}")))
                .collect()
        };
        let float = |name: &str| layout.fcounter(&format!("{prefix}F_{name}"));
        let span = |start: &str, end: &str| Some((float(start)?, float(end)?));
        Places {
            interface,
            prefix,
            reads: find(&[
                "READS",
                "INDEP_READS",
                "COLL_READS",
                "SPLIT_READS",
                "NB_READS",
            ]),
            writes: find(&[
                "WRITES",
                "INDEP_WRITES",
                "COLL_WRITES",
                "SPLIT_WRITES",
                "NB_WRITES",
            ]),
            independent: [
                find(&["INDEP_READS", "NB_READS"]),
                find(&["INDEP_WRITES", "NB_WRITES"]),
            ],
            collective: [
                find(&["COLL_READS", "SPLIT_READS"]),
                find(&["COLL_WRITES", "SPLIT_WRITES"]),
            ],
            opens: find(&[
                "OPENS",
                "FDOPENS",
                "INDEP_OPENS",
                "COLL_OPENS",
                "GLOBAL_OPENS",
                "OBJ_OPENS",
                "ARRAY_OPENS",
                "KV_OPENS",
            ]),
            seeks: find(&["SEEKS"]),
            stats: find(&["STATS", "GET_SIZES"]),
            mmaps: find(&["MMAPS"]),
            syncs: find(&["FSYNCS", "FDSYNCS", "FLUSHES", "SYNCS"]),
            switches: find(&["RW_SWITCHES"]),
            consecutive: [find(&["CONSEC_READS"]), find(&["CONSEC_WRITES"])],
            sequential: [find(&["SEQ_READS"]), find(&["SEQ_WRITES"])],
            misaligned: find(&["FILE_NOT_ALIGNED"]),
            mode: layout.counter("POSIX_MODE"),
            alignment: layout.counter(&format!("{prefix}FILE_ALIGNMENT")),
            read_span: span("READ_START_TIMESTAMP", "READ_END_TIMESTAMP"),
            write_span: span("WRITE_START_TIMESTAMP", "WRITE_END_TIMESTAMP"),
            open_close: span("OPEN_START_TIMESTAMP", "CLOSE_END_TIMESTAMP"),
            open: span("OPEN_START_TIMESTAMP", "OPEN_END_TIMESTAMP"),
            starts: ["OPEN", "READ", "WRITE", "CLOSE"]
                .iter()
                .filter_map(|what| float(&format!("{what}_START_TIMESTAMP")))
                .collect(),
            ends: ["OPEN", "READ", "WRITE", "CLOSE"]
                .iter()
                .filter_map(|what| float(&format!("{what}_END_TIMESTAMP")))
                .collect(),
            longest: [float("MAX_READ_TIME"), float("MAX_WRITE_TIME")],
        }
    }

    /// True if an open was to make the file.
    pub(super) fn makes(&self, record: &RecordView) -> bool {
        self.mode.is_some_and(|at| natural(record.counters[at]) > 0)
    }

    /// The counters of a record, with times moved by `shift` seconds.
    pub(super) fn counters(&self, record: &RecordView, shift: f64) -> Counters {
        let sum = |places: &[usize]| -> u64 {
            places.iter().fold(0u64, |sum, at| {
                sum.saturating_add(natural(record.counters[*at]))
            })
        };
        let span = |places: Option<(usize, usize)>| {
            let (start, end) = places?;
            let (start, end) = (
                seconds(record.fcounters[start]),
                seconds(record.fcounters[end]),
            );
            (end > 0.0 && end >= start).then_some((start + shift, end + shift))
        };
        let (read_sizes, write_sizes) = record.size_histograms().unwrap_or_default();
        let times = record.layout.times;
        let time = |place: Option<usize>| place.map_or(0.0, |at| seconds(record.fcounters[at]));
        let max_byte = record.layout.max_byte.unzip();
        let flow = |direction: usize| {
            let is_write = direction == 1;
            let (places, sizes, bytes, max, time_at, span_at) = if is_write {
                let time_at = times.map(|t| t.write);
                (
                    &self.writes,
                    write_sizes,
                    record.bytes_written(),
                    max_byte.1,
                    time_at,
                    self.write_span,
                )
            } else {
                let time_at = times.map(|t| t.read);
                (
                    &self.reads,
                    read_sizes,
                    record.bytes_read(),
                    max_byte.0,
                    time_at,
                    self.read_span,
                )
            };
            let sizes = sizes.map(natural);
            let ops = match self.interface {
                // The counters of these modules count some calls twice; the histograms don't.
                Interface::Dfs | Interface::Daos => {
                    sizes.iter().fold(0, |sum, n| n.saturating_add(sum))
                }
                _ => sum(places),
            };
            let bytes = natural(bytes);
            Flow {
                ops,
                bytes,
                max_byte: max
                    .map(|at| natural(record.counters[at]))
                    .filter(|_| bytes > 0),
                consecutive: sum(&self.consecutive[direction]),
                sequential: sum(&self.sequential[direction]),
                sizes,
                seconds: time(time_at),
                longest: time(self.longest[direction]),
                span: span(span_at),
                independent: sum(&self.independent[direction]),
                collective: sum(&self.collective[direction]),
            }
        };
        let mut counters = Counters {
            read: flow(0),
            write: flow(1),
            opens: sum(&self.opens),
            seeks: sum(&self.seeks),
            stats: sum(&self.stats),
            asked: 0,
            other_calls: 0,
            mmaps: sum(&self.mmaps),
            syncs: sum(&self.syncs),
            flushing: Flushing::default(),
            switches: sum(&self.switches),
            misaligned: sum(&self.misaligned),
            alignment: self.alignment.map_or(0, |at| natural(record.counters[at])),
            meta_seconds: time(times.map(|t| t.meta)),
            longest_call: 0.0,
            span: span(self.open_close),
            in_use: self.in_use(record, shift),
            common: record
                .common_accesses()
                .into_iter()
                .map(|(size, count)| (natural(size), natural(count)))
                .filter(|(size, _)| *size > 0)
                .collect(),
        };
        // First and last time are those of the same call.
        if counters.opens == 1
            && let Some((start, end)) = span(self.open)
        {
            counters.longest_call = (end - start).min(counters.meta_seconds);
        }
        counters.longest_call = counters.longest_call();
        counters
    }

    /// First and last time at which the file was in use. A file that was never closed may have been in use until the end.
    fn in_use(&self, record: &RecordView, shift: f64) -> Option<(f64, f64)> {
        let noted = |places: &[usize]| -> Vec<f64> {
            let times = places.iter().map(|at| seconds(record.fcounters[*at]));
            times.filter(|time| *time > 0.0).collect()
        };
        let (starts, ends) = (noted(&self.starts), noted(&self.ends));
        let first = starts.iter().chain(&ends).copied().reduce(f64::min)?;
        let is_closed = self
            .open_close
            .is_none_or(|(_, close)| seconds(record.fcounters[close]) > 0.0);
        let last = if is_closed {
            ends.iter().chain(&starts).copied().fold(first, f64::max)
        } else {
            f64::INFINITY
        };
        Some((first + shift, last + shift))
    }

    /// Slowest and fastest rank of a record that is a sum over ranks.
    pub(super) fn extremes(&self, record: &RecordView, first_rank: u32) -> (Extreme, Extreme) {
        let Some(places) = record.layout.extremes else {
            return Default::default();
        };
        let one = |at: usize, time: usize| Extreme {
            rank: first_rank.saturating_add(u32::try_from(record.counters[at]).unwrap_or(0)),
            seconds: seconds(record.fcounters[time]),
            bytes: natural(record.counters[at + 1]),
        };
        (
            one(places.ranks + 2, places.times + 1),
            one(places.ranks, places.times),
        )
    }

    /// What the names of the module's counters begin with, for messages.
    pub(super) fn prefix(&self) -> &'static str {
        self.prefix
    }
}

/// A counter as a number: 0 for -1, which is "not collected", and for other negative values, which are damage.
pub(super) fn natural(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

/// A time or rate: 0 if it is not finite and positive, which is damage.
pub(super) fn seconds(value: f64) -> f64 {
    if value.is_finite() && value > 0.0 {
        value
    } else {
        0.0
    }
}
