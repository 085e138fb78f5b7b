//! The report of a run, for people and for scripts. Every figure says what it covers.

use crate::bridge::Bridge;
use crate::bypass;
use crate::drain::{Drained, why};
use crate::error::{Fault, fault};
use crate::outliving::{self, Outliving};
use crate::place::plain;
use crate::reception::Attached;
use crate::recorder::log_text;
use crate::units;
use forebay_admin::drain::{DrainState, Inventory, Left};
use forebay_admin::{AdminError, BypassingProgram};
use forebay_collect::Collected;
use forebay_core::lifetime::Holding;
use forebay_report::text::printable;
use forebay_sys as sys;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

/// Version of the JSON form.
const FORMAT: u32 = 1;
/// Most files that the text names.
const NAMED_FILES: usize = 5;

/// Bytes that system calls have read and written on all files (`rchar` and `wchar` of proc(5)). They
/// count this process and all its descendants that were waited for.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct CallBytes {
    /// Bytes read.
    pub read: u64,
    /// Bytes written.
    pub written: u64,
    /// Bytes that were fetched from storage (`read_bytes`), which the report of a run does not tell: its log does.
    #[serde(skip)]
    pub fetched: u64,
}

impl CallBytes {
    /// The counters at this moment.
    pub fn now() -> Self {
        let text = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
        let field = |name: &str| {
            text.lines()
                .find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
                .unwrap_or(0)
        };
        CallBytes {
            read: field("rchar:"),
            written: field("wchar:"),
            fetched: field("read_bytes:"),
        }
    }

    /// The difference to an earlier moment.
    pub fn since(self, before: CallBytes) -> Self {
        CallBytes {
            read: self.read.saturating_sub(before.read),
            written: self.written.saturating_sub(before.written),
            fetched: self.fetched.saturating_sub(before.fetched),
        }
    }
}

/// Counters of a bridge at one moment.
#[derive(Debug, Clone, Default)]
pub struct BridgeCounters {
    ops: BTreeMap<String, u64>,
    staged_files: u64,
    staged_bytes: u64,
    /// Programs that the library does not reach.
    pub bypassing: Vec<BypassingProgram>,
}

impl BridgeCounters {
    /// Asks the bridge for its counters.
    pub fn of(bridge: &mut Bridge) -> Result<Self, AdminError> {
        let status = bridge.control.status()?;
        let mut ops = status.operations;
        // Requests of the command itself, and those by which the library sets up a connection, are no work of the
        // program.
        ops.retain(|name, _| {
            !matches!(
                name.as_str(),
                "admin" | "hello" | "lane" | "words" | "bypass"
            )
        });
        Ok(BridgeCounters {
            ops,
            staged_files: status.staged_files,
            staged_bytes: status.staged_bytes,
            bypassing: status.bypassing,
        })
    }

    /// The difference to an earlier moment.
    pub fn since(mut self, before: &BridgeCounters) -> Self {
        for (name, n) in &mut self.ops {
            *n = n.saturating_sub(before.ops.get(name).copied().unwrap_or(0));
        }
        self.ops.retain(|_, n| *n > 0);
        self.staged_files = self.staged_files.saturating_sub(before.staged_files);
        self.staged_bytes = self.staged_bytes.saturating_sub(before.staged_bytes);
        self.bypassing = bypass::since(self.bypassing, &before.bypassing);
        self
    }
}

/// `  name         text`
fn row(out: &mut String, name: &str, text: &str) {
    let _ = writeln!(out, "  {name:<12} {text}");
}

/// The log of a run, and what it says about its I/O.
#[derive(Debug)]
pub struct Logged {
    /// Where the log is and what it covers.
    pub collected: Collected,
    /// The report on the log; `None` if the log cannot be read.
    pub job: Option<forebay_report::Report>,
}

impl Logged {
    /// Reads the log that was written.
    pub fn of(mut collected: Collected) -> Self {
        let job = match darshan_log::Log::open(&collected.log) {
            Ok(log) => Some(forebay_report::of_log(
                &collected.log.to_string_lossy(),
                &log,
            )),
            Err(e) => {
                collected
                    .remarks
                    .push(format!("it cannot be read again: {e}"));
                None
            }
        };
        Logged { collected, job }
    }

    /// True if nothing is missing that anybody should know of.
    fn is_complete(&self) -> bool {
        let warning = self.job.as_ref().and_then(forebay_report::Report::warning);
        self.collected.remarks.is_empty() && warning.is_none()
    }
}

/// A run.
#[derive(Debug)]
pub struct RunReport<'r> {
    /// The command as it was typed.
    pub command: Vec<String>,
    /// Exit status of the command, 128+N for signal N.
    pub exit_status: u8,
    /// Time from the start of the command to its end.
    pub wall: Duration,
    /// Canonical buffer root.
    pub buffer: &'r Path,
    /// Storage directory.
    pub storage: &'r Path,
    /// What the bridge did while the command ran.
    pub counters: &'r BridgeCounters,
    /// What was in the buffer when the run did not wait any longer.
    pub inventory: &'r Inventory,
    /// Dirty files of other runs, earlier ones and those that went on.
    pub inherited: &'r Inventory,
    /// Bytes of the command's system calls.
    pub calls: CallBytes,
    /// How often the bridge has died. `counters` begin with the last restart.
    pub restarts: u32,
    /// It had died when the command ended, and was not started again yet.
    pub was_given_up: bool,
    /// How the drain ended, if there was one.
    pub drained: Option<&'r Drained>,
    /// How the command got the buffer: as `--via` names it.
    pub door: &'r str,
    /// Why so, if that was chosen for it.
    pub door_reason: Option<&'r str>,
    /// Processes that have joined the run.
    pub attached: &'r [Attached],
    /// Processes that have outlived the command, and that the run does not wait for.
    pub going_on: &'r [Outliving],
    /// The log of the command's I/O, if it was recorded.
    pub log: Option<&'r Logged>,
    /// The command that continues the drain.
    pub retry: &'r str,
}

impl RunReport<'_> {
    /// The report for people in five rows, and further ones if something did not go as usual.
    pub fn summary(&self) -> String {
        let mut out = String::new();
        let mut line = |name: &str, text: String| row(&mut out, name, &text);
        line("exit status", self.exit_text());
        for (name, text) in self.door_rows() {
            line(name, text);
        }
        if self.restarts > 0 {
            line("bridge", self.restarts_text());
        }
        for (name, text) in self.drain_rows() {
            line(name, text);
        }
        if let Some(log) = self.log {
            line("log", log_text(&log.collected));
            for remark in &log.collected.remarks {
                line("", format!("  {remark}"));
            }
            if let Some(job) = &log.job {
                line("I/O", job.one_line());
            }
        }
        out
    }

    /// True if all went as usual: nobody misses this report.
    pub fn is_uneventful(&self) -> bool {
        let is_drained =
            |drained: &Drained| drained.is_complete() && drained.status.remarks.is_empty();
        self.going_on.is_empty()
            && self.restarts == 0
            && self.counters.bypassing.is_empty()
            && self.drained.is_none_or(is_drained)
            && self.log.is_none_or(Logged::is_complete)
    }

    fn exit_text(&self) -> String {
        format!("{} after {}", self.exit_status, units::duration(self.wall))
    }

    fn restarts_text(&self) -> String {
        let times = units::count(self.restarts.into(), "time", "times");
        match self.was_given_up {
            false => format!("died {times} and was started again; operations are those since then"),
            true => {
                format!("died {times}, and none served at last while the command ran")
            }
        }
    }

    /// What was drained, what is left, and who goes on: names and texts of rows.
    fn drain_rows(&self) -> Vec<(&'static str, String)> {
        let mut rows = Vec::new();
        match self.drained {
            None => rows.push(("drained", format!("not asked for; later: {}", self.retry))),
            Some(d) => {
                rows.push(match d.goes_on() {
                    true => ("drained", "by another command".to_owned()),
                    false => ("drained", drain_text(d)),
                });
                let remarks = d.status.remarks.iter();
                rows.extend(
                    remarks.map(|remark| ("", format!("  {}", printable(remark.as_bytes())))),
                );
                let left = match self.going_on {
                    [_, ..] if d.is_complete() => "nothing so far".to_owned(),
                    _ if d.is_complete() || d.goes_on() => left_text(d),
                    _ => format!("{} (listed below)", left_text(d)),
                };
                rows.push(("left", left));
            }
        }
        if !self.going_on.is_empty() {
            rows.push(("goes on", outliving::text(self.going_on)));
            let then = match self.drained {
                None => "  they keep the bridge; `forebay status` shows it",
                Some(_) => {
                    "  they keep the bridge; when they have ended it drains what they have done since, and `forebay status` shows it"
                }
            };
            rows.push(("", then.to_owned()));
        }
        rows
    }

    /// By which door programs came in, if that is worth a word, and who else has joined.
    fn door_rows(&self) -> Vec<(&'static str, String)> {
        let via = |why: &str| {
            (
                "via",
                format!("{}: {}", self.door, printable(why.as_bytes())),
            )
        };
        let guests = self.attached.iter();
        let mut rows: Vec<_> = self.door_reason.iter().map(|why| via(why)).collect();
        rows.extend(guests.map(|guest| ("attached", guest.text())));
        let bypassing = &self.counters.bypassing;
        if !bypassing.is_empty() {
            rows.push(("went past", bypass::text(bypassing)));
            rows.push(("", "  they saw the PFS as it is".to_owned()));
        }
        rows
    }

    /// The whole report for people.
    pub fn text(&self) -> String {
        let mut out = String::from("forebay report\n");
        let mut line = |name: &str, text: String| row(&mut out, name, &text);
        line("command", self.command.join(" "));
        line("exit status", self.exit_text());
        for (name, text) in self.door_rows() {
            line(name, text);
        }
        line("buffer", self.buffer.display().to_string());
        line("storage", storage_text(self.storage));
        let ops: Vec<String> = self
            .counters
            .ops
            .iter()
            .map(|(name, n)| format!("{name} {n}"))
            .collect();
        line(
            "operations",
            if ops.is_empty() {
                "none on paths in the buffer".to_owned()
            } else {
                format!("{} (on paths in the buffer)", ops.join(", "))
            },
        );
        if self.restarts > 0 {
            line("bridge", self.restarts_text());
        }
        let inv = self.inventory;
        line(
            "in buffer",
            format!(
                "{} created or changed, {} by their sizes{}",
                units::count(inv.dirty_files, "file", "files"),
                units::bytes(inv.dirty_bytes),
                other_things(inv),
            ),
        );
        let named = inv.largest.iter().take(NAMED_FILES);
        let width = named
            .clone()
            .map(|f| f.path.chars().count())
            .max()
            .unwrap_or(0)
            .min(48);
        let mut rest = (inv.dirty_files, inv.dirty_bytes);
        for file in named {
            rest = (rest.0.saturating_sub(1), rest.1.saturating_sub(file.bytes));
            line(
                "",
                format!("  {:<width$}  {}", file.path, units::bytes(file.bytes)),
            );
        }
        if rest.0 > 0 {
            line(
                "",
                format!(
                    "  {} more, {}",
                    units::count(rest.0, "file", "files"),
                    units::bytes(rest.1)
                ),
            );
        }
        if self.inherited.is_dirty() {
            line(
                "",
                format!(
                    "  of these, {} ({}) are of other runs",
                    units::count(self.inherited.dirty_files, "file", "files"),
                    units::bytes(self.inherited.dirty_bytes)
                ),
            );
        }
        if self.counters.staged_files > 0 {
            line(
                "staged",
                format!(
                    "{}, {} (files of the PFS, copied because they were opened for writing)",
                    units::count(self.counters.staged_files, "file", "files"),
                    units::bytes(self.counters.staged_bytes)
                ),
            );
        }
        line(
            "system calls",
            format!(
                "read {}, wrote {} (all files and pipes, in the buffer or not; without mmap)",
                units::bytes(self.calls.read),
                units::bytes(self.calls.written)
            ),
        );
        if let Some(log) = self.log {
            line("log", log_text(&log.collected));
            for remark in &log.collected.remarks {
                line("", format!("  {remark}"));
            }
        }
        for (name, text) in self.drain_rows() {
            line(name, text);
        }
        if let Some(job) = self.log.and_then(|log| log.job.as_ref()) {
            out.push_str(&job.short_text());
        }
        out
    }

    /// The report for scripts.
    pub fn json(&self) -> Value {
        let (size, free) = sys::space(self.storage).unwrap_or_default();
        json!({
            "forebay_report": FORMAT,
            "command": self.command,
            "exit_status": self.exit_status,
            "wall_seconds": self.wall.as_secs_f64(),
            "buffer": self.buffer.to_string_lossy(),
            "storage": {
                "path": self.storage.to_string_lossy(),
                "size_bytes": size,
                "free_bytes": free,
            },
            "bridge_restarts": self.restarts,
            "bridge_given_up": self.was_given_up,
            "operations": self.counters.ops,
            "staged": {
                "files": self.counters.staged_files,
                "bytes": self.counters.staged_bytes,
            },
            "inherited": self.inherited,
            "in_buffer": self.inventory,
            "system_call_bytes_all_files": self.calls,
            "drain": self.drained.map(|d| json!({
                "counters": d.status,
                "complete": d.is_complete(),
                "left": d.named.iter().map(left_json).collect::<Vec<_>>(),
            })),
            "via": { "door": self.door, "reason": self.door_reason },
            "went_past": self.counters.bypassing,
            "attached": self.attached.iter().map(|guest| json!({
                "pid": guest.pid,
                "command": guest.command,
            })).collect::<Vec<_>>(),
            "going_on": self.going_on.iter().map(|process| json!({
                "pid": process.pid,
                "name": process.name,
                "holds": process.holding != Holding::Nothing,
            })).collect::<Vec<_>>(),
            "log": self.log.map(|log| log_json(&log.collected)),
            "job": self.log.and_then(|log| log.job.as_ref()).map(forebay_report::Report::json),
            "retry": self.retry,
        })
    }

    /// Writes the JSON form to a file.
    pub fn save(&self, path: &Path) -> Result<(), Fault> {
        let mut text = serde_json::to_string_pretty(&self.json()).unwrap_or_default();
        text.push('\n');
        std::fs::write(path, text)
            .map_err(|e| fault(format!("--report {}: {}", path.display(), plain(&e))))
    }
}

fn log_json(log: &Collected) -> Value {
    json!({
        "path": log.log.to_string_lossy(),
        "ranks": log.ranks,
        "processes": log.processes,
        "remarks": log.remarks,
    })
}

fn left_json(left: &Left) -> Value {
    let mut value = json!(left);
    value["why"] = json!(why(left));
    value
}

/// ", 2 directories, 1 symbolic link" and so on; empty if there are none.
fn other_things(inv: &Inventory) -> String {
    let mut text = String::new();
    for (n, one, many) in [
        (inv.dirs, "directory", "directories"),
        (inv.symlinks, "symbolic link", "symbolic links"),
        (inv.specials, "special file", "special files"),
        (inv.renamed, "rename", "renames"),
        (inv.removed, "removal", "removals"),
    ] {
        if n > 0 {
            let _ = write!(text, "; {}", units::count(n, one, many));
        }
    }
    text
}

/// Path, size and free space.
pub fn storage_text(path: &Path) -> String {
    match sys::space(path) {
        Ok((size, free)) => format!(
            "{} ({}, {} free)",
            path.display(),
            units::bytes(size),
            units::bytes(free)
        ),
        Err(_) => path.display().to_string(),
    }
}

/// One line that describes a drain that has ended.
pub fn drain_text(d: &Drained) -> String {
    let s = &d.status;
    let time = Duration::from_secs_f64(s.seconds.max(0.0));
    let mut text = format!(
        "{}, {} in {} ({}, synced and verified: {} read back and compared)",
        units::count(s.files_drained, "file", "files"),
        units::bytes(s.bytes_drained),
        units::duration(time),
        units::rate(s.bytes_drained, time),
        units::bytes(s.bytes_verified),
    );
    if !s.synced_by.is_empty() {
        text.pop();
        let _ = write!(text, "; {})", s.synced_by);
    }
    for (n, one, many) in [
        (s.dirs, "directory", "directories"),
        (s.renamed, "rename", "renames"),
        (s.removed, "removal", "removals"),
    ] {
        if n > 0 {
            let _ = write!(text, "; {}", units::count(n, one, many));
        }
    }
    match (&s.kept_because, s.released) {
        (Some(reason), false) => {
            let _ = write!(text, "; copies kept: {reason}");
        }
        (None, false) if d.is_complete() => text.push_str("; copies kept"),
        _ => {}
    }
    text
}

/// How much is left, in a few words.
pub fn left_text(d: &Drained) -> String {
    if d.is_complete() {
        return "nothing".to_owned();
    }
    if d.goes_on() {
        return "not known yet: the drain of another command goes on".to_owned();
    }
    let mut text = format!(
        "{}, {}",
        units::count(d.status.left, "thing", "things"),
        units::bytes(d.status.left_bytes)
    );
    if d.status.state == DrainState::Stopped {
        text.push_str("; the drain was stopped");
    }
    text
}
