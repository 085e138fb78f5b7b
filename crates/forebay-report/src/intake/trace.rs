//! Takes in a trace of any length: the bytes of all its requests over time, and of the requests themselves a bounded number, every
//! k-th and the slowest ones.

use super::counters::{natural, seconds};
use super::timeline::Canvas;
use super::{Intake, MOST_HOSTS, Seat};
use crate::model::{Interface, Segment, TimelineSource, Trace};
use crate::text::printable;
use darshan_log::{DxtRecord, Log, Module};

/// Most requests that are kept, beside the slowest.
const MOST_KEPT: usize = 20_000;
/// How many of the slowest requests are kept in any case.
const SLOWEST: usize = 1_000;

/// Thins a trace while it is read.
pub(super) struct Thinner {
    interface: Interface,
    recorded: u64,
    stride: u64,
    /// Requests with their number in the order of the log.
    kept: Vec<(u64, Segment)>,
    slow: Vec<(u64, Segment)>,
}

impl Thinner {
    pub(super) fn new(interface: Interface) -> Self {
        Thinner {
            interface,
            recorded: 0,
            stride: 1,
            kept: Vec::new(),
            slow: Vec::new(),
        }
    }

    /// Adds the next request of the log.
    pub(super) fn add(&mut self, segment: Segment) {
        let number = self.recorded;
        self.recorded += 1;
        if number.is_multiple_of(self.stride) {
            self.kept.push((number, segment));
            if self.kept.len() > MOST_KEPT {
                self.stride *= 2;
                let stride = self.stride;
                self.kept
                    .retain(|(number, _)| number.is_multiple_of(stride));
            }
        }
        self.slow.push((number, segment));
        if self.slow.len() >= 4 * SLOWEST {
            self.keep_slowest();
        }
    }

    fn keep_slowest(&mut self) {
        let duration = |segment: &Segment| segment.end - segment.start;
        self.slow
            .sort_by(|(_, a), (_, b)| duration(b).total_cmp(&duration(a)).then(order(a, b)));
        self.slow.truncate(SLOWEST);
    }

    /// The trace; `None` if nothing was recorded.
    pub(super) fn finish(mut self, is_partial: bool) -> Option<Trace> {
        if self.recorded == 0 {
            return None;
        }
        let is_thinned = (self.kept.len() as u64) < self.recorded;
        if is_thinned {
            self.keep_slowest();
            let stride = self.stride;
            let extra = self
                .slow
                .iter()
                .filter(|(number, _)| !number.is_multiple_of(stride));
            self.kept.extend(extra);
        }
        let mut segments: Vec<Segment> =
            self.kept.into_iter().map(|(_, segment)| segment).collect();
        segments.sort_by(order);
        let rule = is_thinned.then(|| {
            format!(
                "{} of {} requests are shown: every {}th in the order of the log, and the {SLOWEST} slowest",
                crate::units::number(segments.len() as u64),
                crate::units::number(self.recorded),
                crate::units::number(self.stride),
            )
        });
        Some(Trace {
            interface: self.interface,
            recorded: self.recorded,
            segments,
            rule,
            is_partial,
        })
    }
}

fn order(a: &Segment, b: &Segment) -> std::cmp::Ordering {
    a.start
        .total_cmp(&b.start)
        .then(a.rank.cmp(&b.rank))
        .then(a.file.cmp(&b.file))
        .then(a.offset.cmp(&b.offset))
        .then(a.is_write.cmp(&b.is_write))
}

impl Intake {
    /// Adds the requests of a trace.
    pub(super) fn add_trace<M: Module<Record = DxtRecord>>(
        &mut self,
        log: &Log,
        seat: Seat,
        interface: Interface,
    ) {
        let Some(module) = log.module(M::ID) else {
            return;
        };
        let (ranks, end) = (self.job.ranks, self.job.run_seconds);
        for record in log.records::<M>() {
            let record = match record {
                Ok(record) => record,
                Err(error) => return self.damaged("trace", &error),
            };
            let (file, rank) = (self.file(record.id), seat.rank(record.rank));
            if self.traced_hosts.len() < MOST_HOSTS && !record.hostname.is_empty() {
                self.traced_hosts
                    .insert(printable(record.hostname.as_bytes()));
            }
            self.traced_ranks.insert(rank);
            let mount = &self.job.files[file].mount;
            self.placement.add_trace(rank, interface, mount, &record);
            let canvas = self
                .traced
                .entry(interface)
                .or_insert_with(|| Canvas::new(interface, TimelineSource::Trace, ranks, end, 0.0));
            let (thinner, is_partial) = self
                .traces
                .entry(interface)
                .or_insert_with(|| (Thinner::new(interface), false));
            *is_partial |= module.partial;
            let writes = record.writes.iter().map(|one| (one, true));
            for (one, is_write) in writes.chain(record.reads.iter().map(|one| (one, false))) {
                let segment = Segment {
                    rank,
                    file,
                    is_write,
                    offset: u64::try_from(one.offset).ok(),
                    length: natural(one.length),
                    start: seconds(one.start) + seat.shift,
                    end: seconds(one.end).max(seconds(one.start)) + seat.shift,
                };
                canvas.add(
                    rank,
                    is_write,
                    segment.start,
                    segment.end,
                    segment.length as f64,
                );
                thinner.add(segment);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(rank: u32, start: f64, duration: f64) -> Segment {
        Segment {
            rank,
            file: 0,
            is_write: true,
            offset: Some(0),
            length: 1,
            start,
            end: start + duration,
        }
    }

    #[test]
    fn a_short_trace_is_kept_whole() {
        let mut thinner = Thinner::new(Interface::Posix);
        for i in 0..1000u32 {
            thinner.add(segment(0, 1000.0 - f64::from(i), 0.5));
        }
        let trace = thinner.finish(false).unwrap();
        assert_eq!((trace.segments.len(), trace.rule.as_deref()), (1000, None));
        assert!(trace.segments.is_sorted_by(|a, b| a.start <= b.start));
    }

    #[test]
    fn a_long_trace_keeps_its_slowest_requests_and_says_so() {
        let mut thinner = Thinner::new(Interface::Posix);
        for i in 0..1_000_001u64 {
            let slow = i == 77_777;
            thinner.add(segment(0, i as f64, if slow { 9.0 } else { 0.1 }));
        }
        let trace = thinner.finish(false).unwrap();
        assert!(trace.segments.len() <= MOST_KEPT + SLOWEST);
        assert_eq!(trace.recorded, 1_000_001);
        assert!(trace.segments.iter().any(|s| s.end - s.start > 8.0));
        assert!(trace.rule.unwrap().contains("every 64th"));
    }

    #[test]
    fn a_trace_of_many_ranks_stays_bounded() {
        let mut thinner = Thinner::new(Interface::Posix);
        for i in 0..200_000u32 {
            thinner.add(segment(i, f64::from(i), 0.1));
        }
        let trace = thinner.finish(true).unwrap();
        assert!(trace.segments.len() <= MOST_KEPT + SLOWEST);
        assert!(trace.is_partial);
    }
}
