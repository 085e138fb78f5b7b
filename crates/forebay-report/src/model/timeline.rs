//! Bytes over time, and single requests.

use super::Interface;
use serde::Serialize;

/// Where a timeline comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TimelineSource {
    /// Recorded while the job ran.
    Heatmap,
    /// Computed from every traced request.
    Trace,
    /// Only first and last times per file are known; bytes are spread evenly between them.
    Timestamps,
}

impl TimelineSource {
    /// Says what the reader may conclude from it.
    pub fn remark(self) -> &'static str {
        match self {
            TimelineSource::Heatmap => "recorded while the job ran",
            TimelineSource::Trace => "computed from the traced requests",
            TimelineSource::Timestamps => {
                "estimated: only the first and last time per file and rank are known, bytes are spread evenly between them"
            }
        }
    }
}

/// Bytes over time, one row per rank or per group of neighbouring ranks.
#[derive(Debug, Clone, PartialEq)]
pub struct Timeline {
    /// The interface.
    pub interface: Interface,
    /// Where it comes from.
    pub source: TimelineSource,
    /// Seconds per column.
    pub bin_seconds: f64,
    /// Columns.
    pub bins: usize,
    /// Ranks per row; the last row may have fewer.
    pub ranks_per_row: u32,
    /// Bytes read, row by row, `bins` each.
    pub read: Vec<f64>,
    /// Bytes written, row by row, `bins` each.
    pub written: Vec<f64>,
    /// End of each rank's last column with activity, seconds since the job's start; `None` for idle ranks.
    pub last_active: Vec<Option<f64>>,
}

impl Timeline {
    /// Rows.
    pub fn rows(&self) -> usize {
        self.read.len().checked_div(self.bins).unwrap_or(0)
    }

    /// Sums per column of (read, written) bytes.
    pub fn columns(&self) -> Vec<(f64, f64)> {
        let mut sums = vec![(0.0, 0.0); self.bins];
        for (i, (read, written)) in self.read.iter().zip(&self.written).enumerate() {
            let sum = &mut sums[i % self.bins];
            sum.0 += read;
            sum.1 += written;
        }
        sums
    }
}

/// One traced request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Segment {
    /// Rank.
    pub rank: u32,
    /// Index in [`super::Job::files`].
    pub file: usize,
    /// True for a write, false for a read.
    pub is_write: bool,
    /// Offset in the file; `None` if the log does not have it.
    pub offset: Option<u64>,
    /// Bytes.
    pub length: u64,
    /// Seconds since the job's start.
    pub start: f64,
    /// Seconds since the job's start.
    pub end: f64,
}

/// Traced requests of one interface (DXT).
#[derive(Debug, Clone, PartialEq)]
pub struct Trace {
    /// The interface.
    pub interface: Interface,
    /// How many requests the logs hold.
    pub recorded: u64,
    /// The requests that were kept, ordered by start, rank and offset.
    pub segments: Vec<Segment>,
    /// The rule by which these were chosen, if not all were kept.
    pub rule: Option<String>,
    /// True if the trace buffer overflowed, so that later requests are missing.
    pub is_partial: bool,
}
