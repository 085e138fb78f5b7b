//! The parameters of the laboratory: systems and figures, from a text that names the source of each.

use super::locks::Locks;
use super::machine::System;
use forebay_core::collective::Layout;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;

/// The parameters that are compiled in, with comments.
pub const DEFAULT_PARAMETERS: &str = include_str!("parameters.txt");

/// Granules of one file, so that a run ends.
const MAX_GRANULES: u64 = 1 << 18;
/// Granules of one client that are on their way at a time.
const MAX_WINDOW_GRANULES: u64 = 1 << 10;
/// The smallest granule, buffer and window, in bytes.
const MIN_SIZE_BYTES: u64 = 4096;
/// Servers of a machine.
const MAX_SERVERS: u64 = 65_536;
/// An integer of the benchmark, in bytes.
pub(super) const ELEMENT_BYTES: u64 = 4;

/// Systems, and the figures to run on them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameters {
    /// By name.
    pub systems: BTreeMap<String, System>,
    /// In the order of the file.
    pub figures: Vec<Figure>,
}

/// One figure: the benchmark on one system, with some sizes and numbers of processes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Figure {
    /// Its name, which is a number for those of the paper.
    pub name: String,
    /// A name in [`Parameters::systems`].
    pub system: String,
    /// What the paper shows, in words.
    pub expected: String,
    /// Lengths of the cube of a process, in elements.
    pub sides: Vec<u64>,
    /// Numbers of processes.
    pub processes: Vec<u32>,
}

/// What is wrong with a parameter file, and in which line (0: in the file as a whole).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParameterError {
    /// Counted from 1.
    pub line: usize,
    /// For people.
    pub what: String,
}

impl fmt::Display for ParameterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => f.write_str(&self.what),
            line => write!(f, "line {line}: {}", self.what),
        }
    }
}

impl std::error::Error for ParameterError {}

fn wrong<T>(line: usize, what: impl Into<String>) -> Result<T, ParameterError> {
    let what = what.into();
    Err(ParameterError { line, what })
}

impl Default for Parameters {
    fn default() -> Self {
        Parameters::parse(DEFAULT_PARAMETERS).expect("the parameters that are compiled in are good")
    }
}

impl Parameters {
    /// Reads a parameter file: sections `[system NAME]` and `[figure NAME]` of lines `key = value`, comments from `#` on.
    ///
    /// # Errors
    /// The first thing that is wrong: nothing is guessed, every key must be there once, and no other.
    pub fn parse(text: &str) -> Result<Self, ParameterError> {
        let mut parameters = Parameters {
            systems: BTreeMap::new(),
            figures: Vec::new(),
        };
        for section in sections(text)? {
            let (line, name) = (section.line, section.name.clone());
            match section.kind.as_str() {
                "system" => {
                    let system = section.system()?;
                    if parameters.systems.insert(name.clone(), system).is_some() {
                        return wrong(line, format!("a second system {name}"));
                    }
                }
                "figure" => {
                    let figure = section.figure(&parameters.systems)?;
                    if parameters.figures.iter().any(|f| f.name == name) {
                        return wrong(line, format!("a second figure {name}"));
                    }
                    parameters.figures.push(figure);
                }
                other => return wrong(line, format!("unknown section [{other} {name}]")),
            }
        }
        match parameters.figures.is_empty() {
            true => wrong(0, "no section [figure NAME]"),
            false => Ok(parameters),
        }
    }
}

/// Has a part of a file so few granules that a run ends?
fn can_hold(granule_bytes: u64, bytes: u64) -> bool {
    bytes / granule_bytes <= MAX_GRANULES
}

impl System {
    /// Can a call be run in a part of a file of so many bytes?
    pub(super) fn can_hold(&self, bytes: u64) -> bool {
        can_hold(self.granule_bytes, bytes)
    }

    /// Do granule, servers, buffer and window fit each other?
    pub(super) fn is_sound(&self) -> bool {
        self.granule_bytes >= MIN_SIZE_BYTES
            && u64::from(self.servers) <= MAX_SERVERS
            && self.buffer_bytes >= self.granule_bytes
            && self.window_bytes / self.granule_bytes <= MAX_WINDOW_GRANULES
    }
}

struct Section {
    line: usize,
    kind: String,
    name: String,
    /// Line and value of each key.
    values: BTreeMap<String, (usize, String)>,
}

fn sections(text: &str) -> Result<Vec<Section>, ParameterError> {
    let mut all: Vec<Section> = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        if let Some(head) = line.strip_prefix('[') {
            let words = head.strip_suffix(']').and_then(|h| h.split_once(' '));
            let Some((kind, name)) = words else {
                return wrong(number, "a section is [system NAME] or [figure NAME]");
            };
            all.push(Section {
                line: number,
                kind: kind.to_owned(),
                name: name.trim().to_owned(),
                values: BTreeMap::new(),
            });
            continue;
        }
        let Some((key, value)) = line.split_once('=') else {
            return wrong(number, format!("`{line}` is not `key = value`"));
        };
        let (key, value) = (key.trim().to_owned(), value.trim().to_owned());
        let Some(section) = all.last_mut() else {
            return wrong(number, format!("{key} comes before the first section"));
        };
        if section.values.contains_key(&key) {
            return wrong(number, format!("{key} is there twice"));
        }
        section.values.insert(key, (number, value));
    }
    Ok(all)
}

impl Section {
    fn system(mut self) -> Result<System, ParameterError> {
        let time = 0..=60_000_000;
        let rate = 1..=1_000_000;
        let size = MIN_SIZE_BYTES..=Layout::MAX_GRANULE_BYTES;
        let (line, locks) = self.take("locks")?;
        let known = Locks::ALL.iter().find(|(name, _)| *name == locks);
        let Some((_, locks)) = known else {
            let names: Vec<_> = Locks::ALL.iter().map(|(name, _)| *name).collect();
            let names = names.join(", ");
            return wrong(line, format!("unknown locks `{locks}`: one of {names}"));
        };
        let system = System {
            locks: *locks,
            servers: self.number("servers", 1..=MAX_SERVERS)? as u32,
            granule_bytes: self.number("granule", size.clone())?,
            ranks_per_node: self.number("ranks_per_node", 1..=65_536)? as u32,
            buffer_bytes: self.number("buffer", size.clone())?,
            window_bytes: self.number("window", size)?,
            server_mb_s: self.number("server_mb_s", rate.clone())?,
            write_seek_us: self.number("write_seek_us", time.clone())?,
            read_seek_us: self.number("read_seek_us", time.clone())?,
            network_mb_s: self.number("network_mb_s", rate)?,
            message_us: self.number("message_us", time.clone())?,
            round_trip_us: self.number("round_trip_us", time.clone())?,
            lock_us: self.number("lock_us", time.clone())?,
            cancel_us: self.number("cancel_us", time)?,
        };
        self.is_empty()?;
        if !system.is_sound() {
            return wrong(
                self.line,
                format!(
                    "the buffer must hold a granule, and the window at most {MAX_WINDOW_GRANULES} granules"
                ),
            );
        }
        Ok(system)
    }

    fn figure(mut self, systems: &BTreeMap<String, System>) -> Result<Figure, ParameterError> {
        let (line, system) = self.take("system")?;
        let Some(granule) = systems.get(&system).map(|s| s.granule_bytes) else {
            return wrong(line, format!("no section [system {system}] before it"));
        };
        let (_, expected) = self.take("expected")?;
        let sides = self.numbers("sides", 1..=4096)?;
        let processes = self.numbers("processes", 1..=16_384)?;
        self.is_empty()?;
        let most = |list: &[u64]| list.iter().copied().max().unwrap_or(0);
        let bytes = most(&sides).pow(3) * ELEMENT_BYTES * most(&processes);
        if !can_hold(granule, bytes) {
            return wrong(
                self.line,
                format!("a file of more than {MAX_GRANULES} granules: it would take too long"),
            );
        }
        Ok(Figure {
            name: self.name,
            system,
            expected,
            sides,
            processes: processes.into_iter().map(|p| p as u32).collect(),
        })
    }

    fn take(&mut self, key: &str) -> Result<(usize, String), ParameterError> {
        let (kind, name) = (&self.kind, &self.name);
        match self.values.remove(key) {
            Some(found) => Ok(found),
            None => wrong(self.line, format!("[{kind} {name}] has no {key}")),
        }
    }

    fn number(&mut self, key: &str, range: RangeInclusive<u64>) -> Result<u64, ParameterError> {
        let (line, text) = self.take(key)?;
        number(line, key, &text, &range)
    }

    fn numbers(
        &mut self,
        key: &str,
        range: RangeInclusive<u64>,
    ) -> Result<Vec<u64>, ParameterError> {
        let (line, text) = self.take(key)?;
        let list: Result<Vec<_>, _> = text
            .split_whitespace()
            .map(|word| number(line, key, word, &range))
            .collect();
        match list {
            Ok(list) if list.is_empty() => wrong(line, format!("{key} has no number")),
            list => list,
        }
    }

    /// Refuses what nobody has taken.
    fn is_empty(&self) -> Result<(), ParameterError> {
        match self.values.iter().next() {
            Some((key, (line, _))) => wrong(
                *line,
                format!("[{} {}] has no use for {key}", self.kind, self.name),
            ),
            None => Ok(()),
        }
    }
}

fn number(
    line: usize,
    key: &str,
    text: &str,
    range: &RangeInclusive<u64>,
) -> Result<u64, ParameterError> {
    let digits = text.trim_end_matches(['K', 'M', 'G']);
    let shift = match &text[digits.len()..] {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        _ => return wrong(line, format!("{key}: `{text}` is no number")),
    };
    let value = digits
        .parse::<u64>()
        .ok()
        .and_then(|n| n.checked_mul(1 << shift));
    match value {
        Some(n) if range.contains(&n) => Ok(n),
        Some(_) => wrong(
            line,
            format!(
                "{key}: {text} is not between {} and {}",
                range.start(),
                range.end()
            ),
        ),
        None => wrong(line, format!("{key}: `{text}` is no number")),
    }
}
