//! Drives a drain from the command line: starts it, shows it, stops it at Ctrl-C, says what is left.

use crate::bridge::Bridge;
use crate::cli::DrainOptions;
use crate::error::Fault;
use crate::units;
use forebay_admin::drain::{DrainStatus, Left, LeftPage, Reason, State};
use forebay_sys as sys;
use serde_json::json;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// Pause between two looks at a drain. It begins short, because most drains are.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);
/// A drain that is over sooner needs no bar.
const BAR_AFTER: Duration = Duration::from_millis(500);
/// As many lines name what is left, on a terminal or in a log; the report file has all.
const MOST_LINES: usize = 20;

/// How a drain ended.
#[derive(Debug, Clone)]
pub struct Drained {
    /// Its counters.
    pub status: DrainStatus,
    /// What is not on the PFS.
    pub left: Vec<Left>,
}

impl Drained {
    /// Is everything on the PFS?
    pub fn is_complete(&self) -> bool {
        self.status.state == State::Done && self.status.left == 0
    }
}

/// Drains and waits for the end. A request to end that comes in the meantime stops it. Files that
/// are open for writing are waited for as long as `patience`.
pub fn drain(
    bridge: &mut Bridge,
    options: &DrainOptions,
    patience: Duration,
) -> Result<Drained, Fault> {
    let signals_before = sys::signals_seen();
    bridge.ask(&json!({
        "cmd": "drain",
        "keep": options.keep,
        "rate": options.drain_rate,
        "workers": options.drain_workers,
        "patience_ms": patience.as_millis() as u64,
    }))?;
    let started = Instant::now();
    let mut pause = FIRST_PAUSE;
    let mut bar = Bar::new();
    let mut asked_to_stop = false;
    let status = loop {
        let status: DrainStatus = bridge.get(&json!({"cmd": "drain-status"}))?;
        if status.state != State::Running {
            break status;
        }
        if started.elapsed() >= BAR_AFTER {
            bar.show(&status, asked_to_stop);
        }
        if !asked_to_stop && sys::signals_seen() > signals_before {
            asked_to_stop = true;
            bridge.ask(&json!({"cmd": "drain-stop"}))?;
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(LONGEST_PAUSE);
    };
    bar.clear();
    let mut left = Vec::new();
    let mut from = Some(0);
    while let Some(at) = from {
        let page: LeftPage = bridge.get(&json!({"cmd": "drain-left", "from": at}))?;
        left.extend(page.entries);
        from = page.next;
    }
    Ok(Drained { status, left })
}

/// One line on the terminal, drawn over itself.
struct Bar {
    is_terminal: bool,
    shown: bool,
}

impl Bar {
    fn new() -> Self {
        Bar {
            is_terminal: std::io::stderr().is_terminal(),
            shown: false,
        }
    }

    fn show(&mut self, s: &DrainStatus, stopping: bool) {
        if !self.is_terminal {
            return;
        }
        const WIDTH: usize = 24;
        // Verification reads as much again as was written.
        let (done, total) = if s.bytes_total > 0 {
            (s.bytes_done + s.bytes_verified, 2 * s.bytes_total)
        } else {
            (s.files_done, s.files_total.max(1))
        };
        let filled = (WIDTH as u64 * done.min(total) / total) as usize;
        let time = Duration::from_secs_f64(s.seconds.max(0.0));
        eprint!(
            "\r\x1b[K{} [{}{}] {}/{} files  {} of {}  {}",
            if stopping { "stopping" } else { "draining" },
            "#".repeat(filled),
            " ".repeat(WIDTH - filled),
            s.files_done,
            s.files_total,
            units::bytes(s.bytes_done),
            units::bytes(s.bytes_total),
            units::rate(s.bytes_done, time),
        );
        let _ = std::io::stderr().flush();
        self.shown = true;
    }

    fn clear(&mut self) {
        if self.shown {
            eprint!("\r\x1b[K");
        }
    }
}

/// Tells on standard error what is not on the PFS and how to go on.
pub fn tell_left(drained: &Drained, retry: &str) {
    if drained.is_complete() {
        return;
    }
    if let Some(failure) = &drained.status.failure {
        eprintln!("forebay: the drain failed: {failure}");
    }
    // The bridge keeps a list of many, but not of all.
    let (n, bytes) = (drained.status.left, drained.status.left_bytes);
    eprintln!(
        "forebay: {} ({}) left in the buffer, not on the PFS yet; nothing is lost:",
        units::count(n, "thing", "things"),
        units::bytes(bytes),
    );
    for left in drained.left.iter().take(MOST_LINES) {
        eprintln!("  {}: {}", left.path, why(left));
    }
    if n > MOST_LINES as u64 {
        eprintln!(
            "  ... and {} more (--report FILE lists them)",
            n - MOST_LINES as u64
        );
    }
    eprintln!("  hint: to go on, run: {retry}");
}

/// The reason in words.
pub fn why(left: &Left) -> String {
    match left.reason {
        Reason::Open => "still open for writing".to_owned(),
        Reason::Changing => "it changed while it was copied".to_owned(),
        Reason::Stopped => "the drain was stopped before its turn".to_owned(),
        Reason::Blocked => left.cause.clone(),
        Reason::Error => format!("{}: {}", left.operation, left.cause),
    }
}
