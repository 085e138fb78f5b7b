//! Traces of the collective layer, as they are read again. Nothing in them is believed: a trace may be cut off, of another
//! version, or made to do harm.

use forebay_core::collective::{
    Access, CapturedAccesses, CarriedOutBy, Layout, LeftOut, LockProtocol, LockSource,
    MAX_CAPTURED_PARTS, Method, TRACE_VERSION,
};
use forebay_types::OneLine;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt;

/// Processes of a call, in a trace or replayed.
pub const MAX_PROCESSES: u32 = 16_384;

/// What a trace holds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Trace {
    /// In the order of the file.
    pub calls: Vec<CapturedCall>,
    /// The layer has stopped to write at this size in bytes, so later calls are missing.
    pub cut_off_at: Option<u64>,
    /// Lines that end in the middle, counted from 1: a process was killed, or the disk was full, while it wrote them. They are left out.
    pub unfinished: Vec<usize>,
}

/// A collective call of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CapturedCall {
    /// Where it is in the trace, counted from 1.
    pub line: usize,
    /// The path of the file.
    pub file: String,
    /// The number of the call, counted from 1 since the file was opened.
    pub number: u64,
    /// It reads.
    pub reads: bool,
    /// Its processes.
    pub processes: u32,
    /// Nodes that they were on; 0 if that is not known.
    pub nodes: u32,
    /// Who has carried it out.
    pub by: CarriedOutBy,
    /// The settings of the file; `None` if it was left to the MPI library.
    pub settings: Option<CapturedSettings>,
    /// What was accessed, or why that is not there.
    pub accesses: Result<CapturedAccesses, LeftOut>,
}

/// The settings of a file in a captured run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CapturedSettings {
    /// How the file was divided.
    pub method: Method,
    /// Aggregators.
    pub aggregators: u32,
    /// Bytes of the buffer of each.
    pub buffer_bytes: u64,
    /// The locks.
    pub locks: LockProtocol,
    /// Where they were known from.
    pub locks_known: LockSource,
    /// Lock granule and servers.
    pub layout: Layout,
}

/// What is wrong with a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceError {
    /// Counted from 1; 0 for the trace as a whole.
    pub line: usize,
    /// For people.
    pub what: String,
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => OneLine(&self.what).fmt(f),
            line => write!(f, "line {line}: {}", OneLine(&self.what)),
        }
    }
}

impl std::error::Error for TraceError {}

/// The version of a line, whatever else it has.
#[derive(Deserialize)]
struct Versioned {
    forebay_collective_trace: u64,
    cut_off_at_bytes: Option<u64>,
}

/// The line at the end of a trace that has become too large.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CutOff {
    #[serde(rename = "forebay_collective_trace")]
    _version: u64,
    cut_off_at_bytes: u64,
}

/// A part of a shape: the first block, and levels of count and distance.
type Part = (u64, u64, Vec<(u64, u64)>);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    #[serde(rename = "forebay_collective_trace")]
    _version: u64,
    file: String,
    call: u64,
    direction: String,
    ranks: u64,
    nodes: u32,
    by: String,
    settings: Option<Settings>,
    left_out: Option<String>,
    shapes: Option<Vec<Vec<Vec<Word>>>>,
    at: Option<Vec<(u32, u64)>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    method: String,
    aggregators: u32,
    buffer_bytes: u64,
    locks: String,
    locks_known: String,
    granule_bytes: u64,
    servers: u32,
}

/// A number of a part, or a level.
#[derive(Deserialize)]
#[serde(untagged, expecting = "a number, or [count, distance]")]
enum Word {
    Number(u64),
    Level((u64, u64)),
}

impl Trace {
    /// Reads a trace.
    ///
    /// # Errors
    /// The first thing that is wrong, with its line.
    pub fn parse(text: &[u8]) -> Result<Self, TraceError> {
        let mut trace = Trace::default();
        let whole_lines = text.strip_suffix(b"\n").unwrap_or(text);
        for (line, text) in (1..).zip(whole_lines.split(|&byte| byte == b'\n')) {
            let wrong = |what: String| TraceError { line, what };
            if text.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            if serde_json::from_slice::<serde::de::IgnoredAny>(text).is_err_and(|e| e.is_eof()) {
                trace.unfinished.push(line);
                continue;
            }
            let versioned: Versioned = json(text).map_err(wrong)?;
            if versioned.forebay_collective_trace != TRACE_VERSION {
                return Err(wrong(format!(
                    "version {} of traces; this program reads version {TRACE_VERSION}",
                    versioned.forebay_collective_trace
                )));
            }
            if versioned.cut_off_at_bytes.is_some() {
                let cut: CutOff = json(text).map_err(wrong)?;
                trace.cut_off_at = Some(cut.cut_off_at_bytes);
                continue;
            }
            let call = json::<Line>(text).and_then(|told| told.call(line));
            trace.calls.push(call.map_err(wrong)?);
        }
        match trace.calls.is_empty() {
            true => Err(TraceError {
                line: 0,
                what: match trace.unfinished.first() {
                    Some(line) => format!(
                        "there is no whole collective call in it: line {line} ends in the middle"
                    ),
                    None => "there is no collective call in it".to_owned(),
                },
            }),
            false => Ok(trace),
        }
    }
}

/// A line of JSON.
fn json<T: for<'de> Deserialize<'de>>(text: &[u8]) -> Result<T, String> {
    serde_json::from_slice(text).map_err(|e| {
        let said = e.to_string();
        let place = format!(" at line {} column {}", e.line(), e.column());
        let said = said.strip_suffix(&place).unwrap_or(&said);
        format!("{said} (column {})", e.column())
    })
}

/// What has this name.
fn named<T: Copy>(all: &[(T, &str)], key: &str, name: &str) -> Result<T, String> {
    let found = all.iter().find(|(_, known)| *known == name);
    found.map(|(what, _)| *what).ok_or_else(|| {
        let names: Vec<&str> = all.iter().map(|(_, name)| *name).collect();
        format!("{key}: unknown `{name}`, not one of {}", names.join(", "))
    })
}

impl Line {
    fn call(self, line: usize) -> Result<CapturedCall, String> {
        if !(1..=u64::from(MAX_PROCESSES)).contains(&self.ranks) {
            let ranks = self.ranks;
            return Err(format!(
                "ranks: {ranks} is not between 1 and {MAX_PROCESSES}"
            ));
        }
        let accesses = match (self.left_out, self.shapes, self.at) {
            (Some(reason), None, None) => Err(named(&LeftOut::NAMES, "left_out", &reason)?),
            (None, Some(shapes), Some(at)) => Ok(captured(&shapes, &at, self.ranks)?),
            _ => return Err("it needs either left_out, or shapes and at".to_owned()),
        };
        let reads = [(true, "read"), (false, "write")];
        Ok(CapturedCall {
            line,
            file: self.file,
            number: self.call,
            reads: named(&reads, "direction", &self.direction)?,
            processes: self.ranks as u32,
            nodes: self.nodes,
            by: named(&CarriedOutBy::NAMES, "by", &self.by)?,
            settings: self.settings.map(Settings::captured).transpose()?,
            accesses,
        })
    }
}

impl Settings {
    fn captured(self) -> Result<CapturedSettings, String> {
        let most = Layout::MAX_GRANULE_BYTES;
        if !(1..=most).contains(&self.granule_bytes) || self.servers == 0 {
            return Err(format!(
                "granule_bytes: {} and servers: {} are no layout: a granule has 1 to {most} bytes, and there is a server",
                self.granule_bytes, self.servers
            ));
        }
        let methods = Method::ALL.map(|method| (method, method.in_words()));
        let sources = LockSource::ALL.map(|source| (source, source.in_words()));
        Ok(CapturedSettings {
            method: named(&methods, "method", &self.method)?,
            aggregators: self.aggregators,
            buffer_bytes: self.buffer_bytes,
            locks: named(&LockProtocol::NAMES, "locks", &self.locks)?,
            locks_known: named(&sources, "locks_known", &self.locks_known)?,
            layout: Layout::new(self.granule_bytes, self.servers),
        })
    }
}

fn captured(
    shapes: &[Vec<Vec<Word>>],
    at: &[(u32, u64)],
    ranks: u64,
) -> Result<CapturedAccesses, String> {
    if at.len() as u64 != ranks {
        return Err(format!("ranks is {ranks}, and at has {}", at.len()));
    }
    let mut uses: BTreeMap<u32, usize> = BTreeMap::new();
    for (shape, _) in at {
        *uses.entry(*shape).or_default() += 1;
    }
    let parts = uses.iter().map(|(shape, ranks)| {
        let parts = shapes.get(*shape as usize).map_or(0, Vec::len);
        parts.saturating_mul(*ranks)
    });
    if parts.fold(0, usize::saturating_add) > MAX_CAPTURED_PARTS {
        return Err(format!(
            "all ranks together have more than {MAX_CAPTURED_PARTS} parts"
        ));
    }
    let mut known = Vec::new();
    for (number, shape) in shapes.iter().enumerate() {
        let about = |what: String| format!("shape {number}: {what}");
        known.push(shape_of(shape).map_err(about)?);
    }
    let used = |(rank, (shape, _)): (usize, &(u32, u64))| {
        let is_there = (*shape as usize) < known.len();
        (!is_there).then(|| {
            format!(
                "rank {rank} has shape {shape}, and there are {}",
                known.len()
            )
        })
    };
    if let Some(what) = at.iter().enumerate().find_map(used) {
        return Err(what);
    }
    let captured = CapturedAccesses::new(&known, at).map_err(|e| e.to_string())?;
    let bytes = captured.bytes();
    match bytes > i64::MAX as u64 {
        true => Err("all ranks together have more bytes than a file can have".to_owned()),
        false => Ok(captured),
    }
}

fn shape_of(parts: &[Vec<Word>]) -> Result<Access, String> {
    let mut shape = Access::default();
    for part in parts {
        let (start, block, levels) = part_of(part).ok_or(
            "a part is [offset, bytes, [count, distance], ...] without a 0 but the offset",
        )?;
        shape
            .append(start, block, &levels)
            .map_err(|e| e.to_string())?;
    }
    Ok(shape)
}

fn part_of(words: &[Word]) -> Option<Part> {
    let [Word::Number(start), Word::Number(block @ 1..), rest @ ..] = words else {
        return None;
    };
    let levels = rest.iter().map(|word| match word {
        Word::Level((count @ 1.., distance)) => Some((*count, *distance)),
        _ => None,
    });
    Some((*start, *block, levels.collect::<Option<_>>()?))
}
