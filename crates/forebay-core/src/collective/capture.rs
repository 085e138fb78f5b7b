//! What was captured of a collective call, and the trace that keeps it: text with a line of JSON for each call.
//!
//! The layer writes these lines while a program runs, the lock laboratory reads them. `docs/COLLECTIVE.md` documents the
//! format. Sizes and offsets are in bytes.

use super::{Access, AccessError, Arrangement};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The version of the format, which every line begins with.
pub const TRACE_VERSION: u64 = 1;
/// A call with more parts than this, over all ranks, is noted without its accesses. They are a few MiB of text.
pub const MAX_CAPTURED_PARTS: usize = 1 << 16;
/// A trace does not grow beyond this, but for the line that says so: 64 MiB.
pub const MAX_TRACE_BYTES: u64 = 64 << 20;

/// The accesses of all ranks of a call, those that are translations of each other kept once.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct CapturedAccesses {
    /// Each begins at offset 0. In the order of the ranks that have them first.
    shapes: Vec<Access>,
    /// With each rank its shape, and where that begins.
    at: Vec<(u32, u64)>,
}

impl CapturedAccesses {
    /// Keeps the accesses of all ranks, in the order of ranks.
    pub fn of(accesses: &[Access]) -> Self {
        let mut captured = CapturedAccesses::default();
        let mut known: BTreeMap<Access, u32> = BTreeMap::new();
        for access in accesses {
            let access = access.folded();
            let start = access.hull().map_or(0, |hull| hull.start);
            let shape = access.moved_to(0).expect("it moves to the front");
            let number = *known.entry(shape).or_insert_with_key(|shape| {
                captured.shapes.push(shape.clone());
                captured.shapes.len() as u32 - 1
            });
            captured.at.push((number, start));
        }
        captured
    }

    /// The accesses that [`CapturedAccesses::shapes`] and [`CapturedAccesses::at`] describe, once they are found to be some.
    ///
    /// # Errors
    /// If a rank has a shape that is not there, or its access goes beyond [`super::MAX_OFFSET`].
    pub fn new(shapes: &[Access], at: &[(u32, u64)]) -> Result<Self, AccessError> {
        let each = at.iter().map(|&(shape, start)| {
            let shape = shapes.get(shape as usize).ok_or(AccessError::Outside)?;
            let own = shape.hull().map_or(0, |hull| hull.start);
            shape.moved_to(start.checked_add(own).ok_or(AccessError::TooLarge)?)
        });
        Ok(Self::of(&each.collect::<Result<Vec<_>, _>>()?))
    }

    /// The accesses, in the order of ranks, in folded form.
    pub fn accesses(&self) -> Vec<Access> {
        let each = self.at.iter().map(|&(shape, start)| {
            let moved = self.shapes[shape as usize].moved_to(start);
            moved.expect("it was there when it was captured")
        });
        each.collect()
    }

    /// Shapes of accesses, each from offset 0 on.
    pub fn shapes(&self) -> &[Access] {
        &self.shapes
    }

    /// With each rank the number of its shape, and where that begins.
    pub fn at(&self) -> &[(u32, u64)] {
        &self.at
    }

    /// Bytes of all ranks.
    pub fn bytes(&self) -> u64 {
        let of = |&(shape, _): &(u32, u64)| self.shapes[shape as usize].bytes();
        self.at.iter().map(of).fold(0, u64::saturating_add)
    }

    /// Pieces of all ranks.
    pub fn pieces(&self) -> u64 {
        let of = |&(shape, _): &(u32, u64)| self.shapes[shape as usize].pieces();
        self.at.iter().map(of).fold(0, u64::saturating_add)
    }
}

/// Why the accesses of a call were not captured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeftOut {
    /// They are more than [`MAX_CAPTURED_PARTS`].
    Irregular,
    /// The layer does not take the view or the data type apart, or leaves the file as a whole to the MPI library.
    Unknown,
    /// The file was in atomic mode.
    Atomic,
}

impl LeftOut {
    /// All reasons, with their names in a trace.
    pub const NAMES: [(LeftOut, &'static str); 3] = [
        (LeftOut::Irregular, "irregular"),
        (LeftOut::Unknown, "unknown"),
        (LeftOut::Atomic, "atomic"),
    ];

    /// Its name in a trace.
    pub fn name(self) -> &'static str {
        let of = Self::NAMES.iter().find(|(reason, _)| *reason == self);
        of.map_or("", |(_, name)| name)
    }
}

/// A call, for [`CallToCapture::to_line`].
#[derive(Debug, Clone, Copy)]
pub struct CallToCapture<'a> {
    /// The path of the file.
    pub file: &'a str,
    /// The number of the call, counted from 1 since the file was opened.
    pub number: u64,
    /// It reads.
    pub reads: bool,
    /// Processes that have opened the file.
    pub ranks: usize,
    /// Nodes that they are on; 0 if that is not known.
    pub nodes: u32,
    /// Who has carried it out.
    pub by: CarriedOutBy,
    /// How calls on the file are carried out; `None` if by the MPI library.
    pub arrangement: Option<&'a Arrangement>,
    /// What each rank accesses.
    pub accesses: Result<&'a CapturedAccesses, LeftOut>,
}

/// Who has carried out a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CarriedOutBy {
    /// Aggregators of the layer.
    Aggregators,
    /// Each rank, its own pieces.
    EachRank,
    /// The MPI library.
    MpiLibrary,
}

impl CarriedOutBy {
    /// All, with their names in a trace.
    pub const NAMES: [(CarriedOutBy, &'static str); 3] = [
        (CarriedOutBy::Aggregators, "aggregators"),
        (CarriedOutBy::EachRank, "each-rank"),
        (CarriedOutBy::MpiLibrary, "mpi-library"),
    ];

    /// Its name in a trace.
    pub fn name(self) -> &'static str {
        let of = Self::NAMES.iter().find(|(by, _)| *by == self);
        of.map_or("", |(_, name)| name)
    }

    /// For a report.
    pub fn in_words(self) -> &'static str {
        match self {
            CarriedOutBy::Aggregators => "aggregators",
            CarriedOutBy::EachRank => "each rank for itself",
            CarriedOutBy::MpiLibrary => "the MPI library",
        }
    }
}

impl CallToCapture<'_> {
    /// One line of a trace, with its end.
    pub fn to_line(&self) -> String {
        let mut line = format!(
            "{{\"forebay_collective_trace\":{TRACE_VERSION},\"file\":{},\"call\":{},\"direction\":\"{}\",\"ranks\":{},\"nodes\":{},\"by\":\"{}\"",
            json_string(self.file),
            self.number,
            if self.reads { "read" } else { "write" },
            self.ranks,
            self.nodes,
            self.by.name(),
        );
        // A string takes whatever is written to it.
        if let Some(arranged) = self.arrangement {
            let _ = write!(
                line,
                ",\"settings\":{{\"method\":\"{}\",\"aggregators\":{},\"buffer_bytes\":{},\"locks\":\"{}\",\"locks_known\":\"{}\",\
                 \"granule_bytes\":{},\"servers\":{}}}",
                arranged.method.in_words(),
                arranged.aggregators.len(),
                arranged.buffer_bytes,
                arranged.protocol.name(),
                arranged.source.in_words(),
                arranged.layout.granule_bytes,
                arranged.layout.servers,
            );
        }
        match self.accesses {
            Err(reason) => {
                let _ = write!(line, ",\"left_out\":\"{}\"", reason.name());
            }
            Ok(captured) => {
                line += ",\"shapes\":[";
                for (number, shape) in captured.shapes().iter().enumerate() {
                    line += if number == 0 { "[" } else { ",[" };
                    for (number, (start, block, levels)) in shape.strides().enumerate() {
                        let comma = if number == 0 { "" } else { "," };
                        let _ = write!(line, "{comma}[{start},{block}");
                        for (count, distance) in levels {
                            let _ = write!(line, ",[{count},{distance}]");
                        }
                        line += "]";
                    }
                    line += "]";
                }
                line += "],\"at\":[";
                for (number, (shape, start)) in captured.at().iter().enumerate() {
                    let comma = if number == 0 { "" } else { "," };
                    let _ = write!(line, "{comma}[{shape},{start}]");
                }
                line += "]";
            }
        }
        line + "}\n"
    }
}

/// The line at the end of a trace that would have become larger than [`MAX_TRACE_BYTES`].
pub fn cut_off_line() -> String {
    format!(
        "{{\"forebay_collective_trace\":{TRACE_VERSION},\"cut_off_at_bytes\":{MAX_TRACE_BYTES}}}\n"
    )
}

/// A string of JSON.
pub fn json_string(text: &str) -> String {
    let mut all = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => all.extend(['\\', c]),
            c if (c as u32) < 0x20 => {
                let _ = write!(all, "\\u{:04x}", c as u32);
            }
            c => all.push(c),
        }
    }
    all.push('"');
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_of_any_kind_is_a_string_of_json() {
        assert_eq!(json_string("/a b"), "\"/a b\"");
        assert_eq!(json_string("\"\\\n"), "\"\\\"\\\\\\u000a\"");
    }
}
