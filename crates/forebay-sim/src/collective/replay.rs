//! Captured calls on modelled machines, with as many processes as they had and with more.

use super::benchmark::{Point, measure_accesses};
use super::locks::Locks;
use super::machine::System;
use super::report;
use super::trace::{CapturedCall, MAX_PROCESSES, Trace};
use forebay_core::collective::{
    Access, CapturedAccesses, Decomposition, LeftOut, Method, moved_to_front,
};
use forebay_types::OneLine;
use std::collections::BTreeMap;
use std::fmt::{self, Write};

/// Without other numbers, calls are replayed with these multiples of the captured processes, as far as [`USUAL_PROCESSES`].
const USUAL_FACTORS: [u32; 3] = [4, 16, 64];
/// The most parts of all accesses of a replayed call, each of some 64 bytes.
const MAX_PARTS: u64 = 1 << 23;
/// The most processes that a replay takes of its own accord.
const USUAL_PROCESSES: u32 = 1024;

/// Calls of a trace with the same accesses, wherever in a file they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AlikeCalls<'a> {
    /// The first of them, which is replayed.
    pub first: &'a CapturedCall,
    /// Their lines in the trace, ascending.
    pub lines: Vec<usize>,
    accesses: &'a CapturedAccesses,
}

impl AlikeCalls<'_> {
    /// Bytes of all of them.
    fn bytes(&self) -> u64 {
        let calls = self.lines.len() as u64;
        self.accesses.bytes().saturating_mul(calls)
    }
}

/// Calls of a trace that can't be replayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NotReplayed {
    /// Without a byte.
    pub empty: usize,
    /// With too many parts to be captured.
    pub irregular: usize,
    /// Of which the layer did not know what they access.
    pub unknown: usize,
}

/// Puts calls with the same accesses, settings and direction together: those with the most bytes first.
pub fn alike(trace: &Trace) -> (Vec<AlikeCalls<'_>>, NotReplayed) {
    let mut all: Vec<AlikeCalls> = Vec::new();
    let mut known: BTreeMap<(bool, String, CapturedAccesses), usize> = BTreeMap::new();
    let mut not = NotReplayed::default();
    for call in &trace.calls {
        let accesses = match &call.accesses {
            Ok(accesses) => accesses,
            Err(LeftOut::Irregular) => {
                not.irregular += 1;
                continue;
            }
            Err(LeftOut::Unknown | LeftOut::Atomic) => {
                not.unknown += 1;
                continue;
            }
        };
        if accesses.bytes() == 0 {
            not.empty += 1;
            continue;
        }
        let at_front = CapturedAccesses::of(&moved_to_front(&accesses.accesses()));
        let settings = format!("{:?}", call.settings);
        let number = *known
            .entry((call.reads, settings, at_front))
            .or_insert(all.len());
        match all.get_mut(number) {
            Some(other) => other.lines.push(call.line),
            None => all.push(AlikeCalls {
                first: call,
                lines: vec![call.line],
                accesses,
            }),
        }
    }
    all.sort_by_key(|calls| std::cmp::Reverse(calls.bytes()));
    (all, not)
}

/// Captured calls, with the machine on which they are to run and the numbers of processes.
#[derive(Debug)]
pub struct Replay<'a> {
    calls: &'a AlikeCalls<'a>,
    system_name: &'a str,
    system: System,
    decomposition: Decomposition,
    processes: Vec<u32>,
}

/// Captured calls under one lock manager: a point for each number of processes and each method.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnderLocks {
    /// The lock manager.
    pub locks: Locks,
    /// For each number of processes, the methods in the order of [`Method::ALL`].
    pub points: Vec<Point>,
}

/// Why calls can't be replayed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplayError(String);

impl fmt::Display for ReplayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ReplayError {}

impl<'a> Replay<'a> {
    /// Plans a replay with the captured number of processes and with `more`, or with the usual multiples.
    ///
    /// # Errors
    /// If there is no such call, or it would take too long.
    pub fn new(
        calls: &'a AlikeCalls<'a>,
        (system_name, system): (&'a str, &System),
        more: &[u32],
    ) -> Result<Self, ReplayError> {
        let captured = calls.first.processes;
        let accesses = calls.accesses.accesses();
        let mut replay = Replay {
            calls,
            system_name,
            system: system.clone(),
            decomposition: Decomposition::of(&accesses),
            processes: vec![captured],
        };
        replay.scaled(captured)?;
        match more {
            [] => {
                let usual = USUAL_FACTORS.map(|factor| captured.saturating_mul(factor));
                let fits = |n: &u32| *n <= USUAL_PROCESSES && replay.scaled(*n).is_ok();
                let usual: Vec<u32> = usual.into_iter().filter(fits).collect();
                replay.processes.extend(usual);
            }
            more => {
                let mut more = more.to_vec();
                more.sort_unstable();
                more.dedup();
                more.retain(|&processes| processes != captured);
                more.iter().try_for_each(|n| replay.scaled(*n).map(drop))?;
                replay.processes.extend(more);
            }
        }
        Ok(replay)
    }

    /// The accesses of so many processes.
    fn scaled(&self, processes: u32) -> Result<Vec<Access>, ReplayError> {
        let line = self.calls.first.line;
        let wrong = |what: &dyn fmt::Display| {
            ReplayError(format!(
                "the call of line {line} with {processes} processes: {what}"
            ))
        };
        if processes > MAX_PROCESSES {
            return Err(wrong(&format!("at most {MAX_PROCESSES} processes")));
        }
        let captured = self.calls.accesses.accesses();
        let parts: u64 = captured.iter().map(|access| access.parts() as u64).sum();
        let parts = parts * u64::from(processes) / captured.len().max(1) as u64;
        if parts > MAX_PARTS {
            return Err(wrong(&format!(
                "{parts} parts: it would take too much memory"
            )));
        }
        let accesses = self
            .decomposition
            .scaled(processes)
            .map_err(|e| wrong(&e))?;
        let region = Access::region(&accesses).bytes();
        match self.system.can_hold(region) {
            true => Ok(accesses),
            false => Err(wrong(&format!(
                "it lies in {region} bytes of the file, too many granules of {} bytes: it would take too long",
                self.system.granule_bytes
            ))),
        }
    }

    /// The lock managers of the replay. Readers take no lock from each other, so for them one is as good as all.
    fn managers(&self) -> Vec<Locks> {
        match self.calls.first.reads {
            true => vec![self.system.locks],
            false => Locks::ALL.map(|(_, locks)| locks).to_vec(),
        }
    }

    /// Rows that [`Replay::run`] tells of.
    pub fn rows(&self) -> u64 {
        self.processes.len() as u64
    }

    /// Runs all methods under all lock managers, and says after each number of processes that it is done.
    ///
    /// # Panics
    /// Never: what is replayed was looked at by [`Replay::new`].
    pub fn run(&self, hear: &mut dyn FnMut()) -> Vec<UnderLocks> {
        let managers = self.managers();
        let mut all: Vec<UnderLocks> = managers
            .iter()
            .map(|&locks| UnderLocks {
                locks,
                points: Vec::new(),
            })
            .collect();
        for &processes in &self.processes {
            let accesses = self.scaled(processes).expect("it was looked at before");
            for method in Method::ALL {
                let points = measure_accesses(&self.system, method, u32::MAX, &managers, &accesses);
                for (under, point) in all.iter_mut().zip(points) {
                    under.points.push(point);
                }
            }
            hear();
        }
        all
    }

    /// What the calls are, in one line.
    pub(super) fn title(&self) -> String {
        let first = self.calls.first;
        let direction = if first.reads { "read" } else { "write" };
        format!(
            "{}: collective {direction}, {} pieces, {} bytes, {} processes",
            OneLine(&first.file),
            self.calls.accesses.pieces(),
            self.calls.accesses.bytes(),
            first.processes
        )
    }

    pub(super) fn reads(&self) -> bool {
        self.calls.first.reads
    }

    /// The machine under a lock manager.
    pub(super) fn system(&self, locks: Locks) -> System {
        System {
            locks,
            ..self.system.clone()
        }
    }

    /// Text: what was captured, how it is scaled, the machine, then for each lock manager tables with a row for each number
    /// of processes, that of the capture first.
    ///
    /// # Panics
    /// If the points are not those of [`Replay::run`].
    pub fn tables(&self, under: &[UnderLocks]) -> String {
        let mut out = String::new();
        self.write(&mut out, under)
            .expect("a string takes any text");
        out
    }

    fn write(&self, out: &mut String, under: &[UnderLocks]) -> fmt::Result {
        let first = self.calls.first;
        writeln!(out, "{}", self.title())?;
        writeln!(out, "  in the trace: {}", self.lines())?;
        write!(
            out,
            "  captured: nodes {}, carried out by {}",
            first.nodes,
            first.by.in_words()
        )?;
        match &first.settings {
            Some(s) => writeln!(
                out,
                "; {}, {} aggregators with {} bytes each; locks {}, {}; granule {} bytes, servers {}",
                s.method.in_words(),
                s.aggregators,
                s.buffer_bytes,
                s.locks.name(),
                s.locks_known.in_words(),
                s.layout.granule_bytes,
                s.layout.servers
            )?,
            None => writeln!(out, "; the file was left to it as a whole")?,
        }
        writeln!(out, "  scaled: {}", self.decomposition.in_words())?;
        let grids = self.processes.iter().map(|&processes| {
            let grid = self.decomposition.grid_in_words(processes);
            format!("{processes} as {grid}")
        });
        writeln!(
            out,
            "  processes: {}; each has as many bytes as in the capture",
            grids.collect::<Vec<_>>().join(", ")
        )?;
        writeln!(
            out,
            "  machine: {}: {}",
            self.system_name,
            report::costs(&self.system)
        )?;
        for UnderLocks { locks, points } in under {
            let system = self.system(*locks);
            writeln!(out, "\n  locks {}", locks.name())?;
            report::write_choices(out, &system, &self.processes, "    ")?;
            report::write_columns(out, report::columns(self.reads(), *locks), points)?;
        }
        Ok(())
    }

    fn lines(&self) -> String {
        const SHOWN: usize = 10;
        let lines = &self.calls.lines;
        let shown: Vec<String> = lines.iter().take(SHOWN).map(usize::to_string).collect();
        let shown = shown.join(", ");
        match lines.len() {
            1 => format!("line {shown}"),
            n @ ..=SHOWN => format!("{n} calls like this, lines {shown}; the first is replayed"),
            n => format!("{n} calls like this, lines {shown}, ...; the first is replayed"),
        }
    }
}
