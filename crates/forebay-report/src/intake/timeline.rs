//! Makes timelines of bytes from heat maps, traced requests or first and last times.

use crate::model::{Interface, Timeline, TimelineSource};

/// Most columns.
const MOST_BINS: usize = 400;
/// Most rows; more ranks share rows.
const MOST_ROWS: u32 = 256;
/// Columns where the log has no bins of its own.
const TRACE_BINS: f64 = 200.0;
/// Columns where the log has only first and last times. Finer ones would pretend to know more.
const ESTIMATED_BINS: f64 = 100.0;

/// A timeline that is being filled.
pub(super) struct Canvas {
    timeline: Timeline,
}

impl Canvas {
    /// A canvas for `ranks` ranks and `end` seconds, with bins of at least `bin_seconds`; 0 allows any.
    pub(super) fn new(
        interface: Interface,
        source: TimelineSource,
        ranks: u32,
        end: f64,
        bin_seconds: f64,
    ) -> Self {
        let mut width = bin_seconds;
        if width <= 0.0 {
            let bins = match source {
                TimelineSource::Timestamps => ESTIMATED_BINS,
                _ => TRACE_BINS,
            };
            width = (end / bins).max(1e-6);
        }
        while end / width > MOST_BINS as f64 {
            width *= 2.0;
        }
        // Less a little, so that an end at a multiple of the width gets no column more.
        let bins = ((end / width - 1e-9).ceil() as usize).clamp(1, MOST_BINS);
        let ranks_per_row = ranks.div_ceil(MOST_ROWS).max(1);
        let rows = ranks.div_ceil(ranks_per_row).max(1) as usize;
        Canvas {
            timeline: Timeline {
                interface,
                source,
                bin_seconds: width,
                bins,
                ranks_per_row,
                read: vec![0.0; rows * bins],
                written: vec![0.0; rows * bins],
                last_active: vec![None; ranks as usize],
            },
        }
    }

    /// Adds bytes of one rank between two times. An interval no longer than a column goes into the column of its
    /// middle, so that bins of a log stay whole. A longer one is spread evenly.
    pub(super) fn add(&mut self, rank: u32, is_write: bool, start: f64, end: f64, bytes: f64) {
        let line = &mut self.timeline;
        if bytes <= 0.0 || !start.is_finite() || !end.is_finite() || end < start {
            return;
        }
        let width = line.bin_seconds;
        let column = |time: f64| ((time / width).max(0.0) as usize).min(line.bins - 1);
        let row = (rank / line.ranks_per_row) as usize * line.bins;
        let last = if end - start <= width * 1.000_001 {
            let middle = column((start + end) / 2.0);
            cells(line, is_write)[row + middle] += bytes;
            middle
        } else {
            let (first, last) = (column(start), column(end - width * 1e-9));
            for at in first..=last {
                let begin = if at == first {
                    start
                } else {
                    at as f64 * width
                };
                let finish = if at == last {
                    end
                } else {
                    (at + 1) as f64 * width
                };
                let part = (finish - begin).max(0.0) / (end - start);
                cells(line, is_write)[row + at] += bytes * part;
            }
            last
        };
        let until = (last + 1) as f64 * width;
        if let Some(known) = line.last_active.get_mut(rank as usize) {
            *known = Some(known.map_or(until, |time| time.max(until)));
        }
    }

    /// Adds bytes of all ranks of a range together, in equal parts.
    pub(super) fn add_all(
        &mut self,
        ranks: std::ops::Range<u32>,
        is_write: bool,
        span: (f64, f64),
        bytes: f64,
    ) {
        let per_row = self.timeline.ranks_per_row;
        let each = bytes / f64::from(ranks.len().max(1) as u32);
        let mut rank = ranks.start;
        while rank < ranks.end {
            let next = ((rank / per_row + 1) * per_row).min(ranks.end);
            self.add(
                rank,
                is_write,
                span.0,
                span.1,
                each * f64::from(next - rank),
            );
            rank = next;
        }
    }

    /// The timeline; `None` if nothing was added.
    pub(super) fn finish(self) -> Option<Timeline> {
        let line = self.timeline;
        let is_empty = line
            .read
            .iter()
            .chain(&line.written)
            .all(|bytes| *bytes <= 0.0);
        (!is_empty).then_some(line)
    }

    pub(super) fn interface(&self) -> Interface {
        self.timeline.interface
    }
}

fn cells(line: &mut Timeline, is_write: bool) -> &mut Vec<f64> {
    if is_write {
        &mut line.written
    } else {
        &mut line.read
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canvas(ranks: u32, end: f64, width: f64) -> Canvas {
        Canvas::new(Interface::Posix, TimelineSource::Heatmap, ranks, end, width)
    }

    #[test]
    fn bins_of_a_log_stay_what_they_are() {
        let mut canvas = canvas(2, 1.0, 0.1);
        for bin in 0..10 {
            let start = f64::from(bin) * 0.1;
            canvas.add(1, true, start, start + 0.1, f64::from(bin));
        }
        let line = canvas.finish().unwrap();
        assert_eq!((line.bins, line.rows()), (10, 2));
        let row: Vec<f64> = line.written[10..].to_vec();
        assert_eq!(row, (0..10).map(f64::from).collect::<Vec<_>>());
        assert!(line.last_active[0].is_none() && line.last_active[1].is_some());
    }

    #[test]
    fn what_is_spread_adds_up() {
        let mut canvas = canvas(1, 10.0, 1.0);
        canvas.add(0, false, 2.5, 5.0, 100.0);
        let line = canvas.finish().unwrap();
        let expected = [0.0, 0.0, 20.0, 40.0, 40.0, 0.0, 0.0, 0.0, 0.0, 0.0];
        for (got, expected) in line.read.iter().zip(expected) {
            assert!((got - expected).abs() < 1e-6, "{:?}", line.read);
        }
    }

    #[test]
    fn many_ranks_and_long_runs_stay_small() {
        let mut canvas = canvas(65_536, 1e6, 0.1);
        canvas.add_all(0..65_536, true, (0.0, 1e6), 65_536.0);
        let line = canvas.finish().unwrap();
        assert!(line.bins <= MOST_BINS && line.rows() <= MOST_ROWS as usize);
        let sum: f64 = line.written.iter().sum();
        assert!((sum - 65_536.0).abs() < 1.0, "{sum}");
    }

    #[test]
    fn nonsense_is_not_drawn() {
        let mut canvas = canvas(1, 10.0, 1.0);
        canvas.add(0, true, f64::NAN, 1.0, 1.0);
        canvas.add(0, true, 5.0, 1.0, 1.0);
        canvas.add(0, true, 5.0, f64::INFINITY, 1.0);
        canvas.add(0, true, -5.0, -4.0, 0.0);
        assert_eq!(canvas.finish(), None);
    }
}
