//! Drives a drain from the command line: starts it, shows its progress, stops it at Ctrl-C, and says what is left.

use crate::bridge::Bridge;
use crate::cli::DrainOptions;
use crate::error::{Fault, fault};
use crate::place::Place;
use crate::signals::Signals;
use crate::units;
use crate::verbs::{drain_command, quarantine_command, shell_path};
use forebay_admin::drain::{DrainRequest, DrainState, DrainStatus, Left, Reason, Take};
use forebay_admin::{AdminError, RefusalKind};
use forebay_core::drain::NOT_TRIED;
use forebay_report::text::printable;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// The bar appears after this time, so that a short drain shows none.
const BAR_AFTER: Duration = Duration::from_millis(500);
/// Most lines that name what is left, on a terminal or in a log.
const MOST_LINES: usize = 20;
/// Pause before a drain is asked about again that so many follow that the bridge sends each its state once only.
const ASK_AGAIN: Duration = Duration::from_millis(100);

/// How often a drain with choices is asked for while others are at work.
const MOST_TRIES: u32 = 100;

/// How much of the list of what is left a caller wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Naming {
    /// As much as [`tell_left`] prints.
    Some,
    /// The whole list, for scripts.
    All,
}

/// How a drain ended.
#[derive(Debug, Clone)]
pub struct Drained {
    /// Its counters.
    pub status: DrainStatus,
    /// What is not on the PFS, as far as the caller wanted it named and the bridge keeps it.
    pub named: Vec<Left>,
}

impl Drained {
    /// A signal has ended the wait for the drain of another command; `status` is how far that was then.
    fn not_awaited(status: DrainStatus, refused: Vec<String>) -> Self {
        Drained {
            status: DrainStatus { refused, ..status },
            named: Vec::new(),
        }
    }

    /// It was not waited for. What it will leave is not known.
    pub fn goes_on(&self) -> bool {
        self.status.state == DrainState::Running
    }

    /// True if everything is on the PFS.
    pub fn is_complete(&self) -> bool {
        self.status.state == DrainState::Done && self.status.left == 0
    }

    /// Counts what an earlier drain has brought to the PFS as well.
    pub fn add(&mut self, earlier: &Drained) {
        let (sum, part) = (&mut self.status, &earlier.status);
        sum.files_total += part.files_drained;
        sum.files_done += part.files_drained;
        sum.files_drained += part.files_drained;
        sum.bytes_total += part.bytes_drained;
        sum.bytes_done += part.bytes_drained;
        sum.bytes_drained += part.bytes_drained;
        sum.bytes_verified += part.bytes_verified;
        sum.dirs += part.dirs;
        sum.renamed += part.renamed;
        sum.removed += part.removed;
        sum.seconds += part.seconds;
        sum.remarks.splice(0..0, part.remarks.iter().cloned());
    }
}

/// What is said of a choice that a signal came before.
fn not_tried(take: &Take) -> String {
    let path = String::from_utf8_lossy(&take.path);
    format!("{path}: {NOT_TRIED}")
}

/// Drains and waits for the end. A signal that asks this process to end stops the drain, unless it is that of another command: then
/// this one no longer waits for it. The drain waits for files that are open for writing as long as `patience`.
pub fn drain(
    bridge: &mut Bridge,
    options: &DrainOptions,
    patience: Duration,
    naming: Naming,
    signals: &mut Signals,
) -> Result<Drained, Fault> {
    take_and_drain(bridge, options, &[], patience, naming, signals)
}

/// [`drain`], after these decisions about changes of others. After a signal that has come before it begins none is carried out.
pub fn take_and_drain(
    bridge: &mut Bridge,
    options: &DrainOptions,
    take: &[Take],
    patience: Duration,
    naming: Naming,
    signals: &mut Signals,
) -> Result<Drained, Fault> {
    let mut watcher = Watcher::new(signals);
    let request = DrainRequest {
        keep: options.keep,
        rate: options.drain_rate,
        workers: options.drain_workers,
        take: take.to_vec(),
        patience_ms: patience.as_millis() as u64,
    };
    let drained = watcher.drain_and_name(bridge, request, patience, naming);
    if drained.is_err() && watcher.asked_to_stop {
        // Another bridge may go on with it.
        watcher.signals.give_back();
    }
    drained
}

/// Who has begun a drain.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Whose {
    /// This command.
    Ours,
    /// Another one: it goes on if this command is to end.
    Others,
}

/// Watches a drain until its end.
struct Watcher<'a> {
    started: Instant,
    signals: &'a mut Signals,
    asked_to_stop: bool,
    bar: Bar,
}

impl<'a> Watcher<'a> {
    fn new(signals: &'a mut Signals) -> Self {
        Watcher {
            started: Instant::now(),
            signals,
            asked_to_stop: false,
            bar: Bar::new(),
        }
    }

    /// Has a signal come?
    fn is_to_stop(&mut self) -> bool {
        self.asked_to_stop |= self.signals.heed();
        self.asked_to_stop
    }

    /// Drains until nothing is left that another drain may bring within this patience, and names what is.
    fn drain_and_name(
        &mut self,
        bridge: &mut Bridge,
        mut request: DrainRequest,
        patience: Duration,
        naming: Naming,
    ) -> Result<Drained, Fault> {
        let mut refused = Vec::new();
        // Somebody else's may have passed what was written last.
        let others = self.await_others(bridge)?;
        if others.state == DrainState::Running {
            refused.extend(request.take.iter().map(not_tried));
            return Ok(Drained::not_awaited(others, refused));
        }
        let asked = Instant::now();
        loop {
            let status = self.carry_out(bridge, &mut request, &mut refused)?;
            if status.state == DrainState::Running {
                refused.extend(request.take.iter().map(not_tried));
                return Ok(Drained::not_awaited(status, refused));
            }
            let (mut drained, has_open) = self.named(bridge, status, naming)?;
            if request.take.is_empty() {
                // This may be a drain of somebody else who has chosen.
                drained.status.refused.clone_from(&refused);
            }
            // Another drain that began a moment before ours waits for open files as long as it was told to.
            let is_worth_more = has_open && asked.elapsed() < patience;
            if !is_worth_more || self.is_to_stop() {
                return Ok(drained);
            }
        }
    }

    /// Drains, and follows that to its end. A drain with choices waits for others that have begun a moment before. A drain that is
    /// running then is that of others, and this command is not to wait any more. Choices that a signal came before are `refused`.
    fn carry_out(
        &mut self,
        bridge: &mut Bridge,
        request: &mut DrainRequest,
        refused: &mut Vec<String>,
    ) -> Result<DrainStatus, Fault> {
        let is_busy = |e: &AdminError| e.refusal().is_some_and(|r| r.kind == RefusalKind::Busy);
        let mut tries = 0;
        loop {
            if self.is_to_stop() {
                refused.extend(request.take.drain(..).map(|take| not_tried(&take)));
            }
            let busy = match bridge.control.drain(request.clone()) {
                Err(e) if is_busy(&e) && !request.take.is_empty() => e,
                begun => {
                    let begun = begun?;
                    let whose = match begun.joined {
                        true => Whose::Others,
                        false => Whose::Ours,
                    };
                    return self.watch(bridge, begun.status.number, whose);
                }
            };
            tries += 1;
            let current = self.await_others(bridge)?;
            if current.state == DrainState::Running {
                return Ok(current);
            }
            // A bridge that is about to end says so as well.
            if tries == MOST_TRIES {
                return Err(busy.into());
            }
        }
    }

    /// Follows a drain that is at work to its end. If it is running then, this command is not to wait any more.
    fn await_others(&mut self, bridge: &mut Bridge) -> Result<DrainStatus, Fault> {
        let current = bridge.control.drain_status()?;
        match current.state {
            DrainState::Running => self.watch(bridge, current.number, Whose::Others),
            _ => Ok(current),
        }
    }

    /// Follows the drain of this number to its end. If it is running then, it is that of others, and this command is not to wait any
    /// more.
    fn watch(
        &mut self,
        bridge: &mut Bridge,
        number: u64,
        whose: Whose,
    ) -> Result<DrainStatus, Fault> {
        let outcome = loop {
            let mut last = None;
            match self.follow(bridge, number, whose, &mut last) {
                Ok(()) => match last {
                    None => break Err(fault("the bridge does not report the drain")),
                    Some(status) if status.state != DrainState::Running => break Ok(status),
                    Some(status) if self.asked_to_stop && whose == Whose::Others => {
                        break Ok(status);
                    }
                    Some(_) => std::thread::sleep(ASK_AGAIN),
                },
                // The bridge cuts off a process that was stopped for long (Ctrl-Z), and that may ask again.
                Err(e) if e.is_loss() && last.is_some() => {
                    if !bridge.is_alive() {
                        break Err(fault("the bridge has ended before the drain"));
                    }
                }
                Err(e) => break Err(e.into()),
            }
        };
        self.bar.clear();
        outcome
    }

    /// How a drain ended, with names of what it has left. True: some of that is open for writing.
    fn named(
        &mut self,
        bridge: &mut Bridge,
        ended: DrainStatus,
        naming: Naming,
    ) -> Result<(Drained, bool), Fault> {
        let mut named = Vec::new();
        let mut has_open = false;
        for left in bridge.control.left_of(ended.number)? {
            let left = left?;
            has_open |= matches!(left.reason, Reason::Open);
            match naming == Naming::All || named.len() < MOST_LINES {
                true => named.push(left),
                false if has_open => break,
                false => {}
            }
        }
        let drained = Drained {
            status: ended,
            named,
        };
        Ok((drained, has_open))
    }

    fn follow(
        &mut self,
        bridge: &mut Bridge,
        number: u64,
        whose: Whose,
        last: &mut Option<DrainStatus>,
    ) -> Result<(), AdminError> {
        let mut is_told = false;
        for status in bridge.control.follow_drain_of(number)? {
            let status = status?;
            if self.started.elapsed() >= BAR_AFTER {
                self.bar.show(&status, self.asked_to_stop);
            }
            let runs = status.state == DrainState::Running;
            *last = Some(status);
            if runs && !is_told && self.is_to_stop() {
                match whose {
                    Whose::Ours => drop(bridge.control.stop_drain_of(number)?),
                    Whose::Others => return Ok(()),
                }
                is_told = true;
            }
        }
        Ok(())
    }
}

/// A progress bar: one line on the terminal, which is drawn again and again.
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
        // Verification reads as many bytes as the copy wrote.
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

/// Says what a drain has remarked.
pub fn tell_remarks(drained: &Drained) {
    for remark in &drained.status.remarks {
        eprintln!("forebay: {}", printable(remark.as_bytes()));
    }
}

/// Prints on standard error what is not on the PFS, and how to continue: `retry` is the command that drains again, and `lister` the option or
/// command that lists more than fits here.
pub fn tell_left(drained: &Drained, place: &Place, retry: &str, lister: &str) {
    for refused in &drained.status.refused {
        eprintln!("forebay: not taken: {}", printable(refused.as_bytes()));
    }
    if drained.is_complete() {
        return;
    }
    if drained.goes_on() {
        eprintln!(
            "forebay: interrupted: the drain of another command is at work, and goes on\n\
             \x20 hint: to see what becomes of it, run: forebay status\n\
             \x20 hint: to go on, run: {retry}"
        );
        return;
    }
    // The list of the bridge may be cut, but the counters are complete.
    let (n, bytes) = (drained.status.left, drained.status.left_bytes);
    match &drained.status.failure {
        Some(failure) if n == 0 => eprintln!(
            "forebay: the drain failed: {failure}\n\
             forebay: what is left in the buffer was not counted; nothing is lost:"
        ),
        failure => {
            if let Some(failure) = failure {
                eprintln!("forebay: the drain failed: {failure}");
            }
            let things = units::count(n, "thing", "things");
            let mut named = drained.named.iter();
            if drained.named.len() as u64 == n && named.all(|left| left.reason == Reason::CameBack)
            {
                eprintln!(
                    "forebay: {things} of others came back on the PFS; nothing waits in the buffer:"
                );
            } else {
                eprintln!(
                    "forebay: {things} ({}) left in the buffer, not on the PFS yet; nothing is lost:",
                    units::bytes(bytes),
                );
            }
        }
    }
    for left in drained.named.iter().take(MOST_LINES) {
        eprintln!("  {}: {}", printable(left.path.as_bytes()), why(left));
    }
    if n > MOST_LINES as u64 {
        eprintln!(
            "  ... and {} more ({lister} lists them)",
            units::number(n - MOST_LINES as u64)
        );
    }
    let is_withheld = |left: &Left| matches!(left.reason, Reason::Withheld);
    if drained.named.iter().any(is_withheld) {
        eprintln!(
            "  hint: to see what is in quarantine, run: {}",
            quarantine_command(place)
        );
    }
    let is_stray = |left: &Left| matches!(left.reason, Reason::Stray);
    if drained.named.iter().any(is_stray) {
        eprintln!(
            "  hint: move what was made past the buffer to its place by hand, then run: {retry}"
        );
    }
    let lacks_dir = |left: &&Left| matches!(left.reason, Reason::NoDirectory);
    if let Some(left) = drained.named.iter().find(lacks_dir) {
        let path = shell_path(left.exact_path());
        let settle = drain_command(place);
        eprintln!(
            "  hint: make its directory on the PFS again, and drain to it (--take ours); or, to drain it to a directory above under another name, or to give it up, run: {settle} --take both|theirs {path}\n\
             \x20       (what does not fit is refused, with its reason: choose about what is in a directory first)"
        );
    }
    let has_other_dir = |left: &&Left| matches!(left.reason, Reason::OtherDirectory);
    if let Some(left) = drained.named.iter().find(has_other_dir) {
        let path = shell_path(left.exact_path());
        let settle = drain_command(place);
        eprintln!(
            "  hint: put the right directory back; or, to drain to the one that is there now (look whose it is), or to give it up, run: {settle} --take ours|both|theirs {path}\n\
             \x20       (what does not fit is refused, with its reason)"
        );
    }
    let is_conflict = |left: &&Left| matches!(left.reason, Reason::Changed | Reason::Taken);
    if let Some(left) = drained.named.iter().find(is_conflict) {
        let path = shell_path(left.exact_path());
        let settle = drain_command(place);
        eprintln!(
            "  hint: to settle it, run: {settle} --take ours|theirs|both {path}\n\
             \x20       (what does not fit is refused, with its reason)"
        );
    }
    if n > drained.named.len() as u64
        || !drained
            .named
            .iter()
            .all(|left| is_withheld(left) || is_stray(left))
        || n == 0
    {
        eprintln!("  hint: to go on, run: {retry}");
    }
}

/// The reason in words.
pub fn why(left: &Left) -> String {
    match left.reason {
        Reason::Open => "still open for writing".to_owned(),
        Reason::Changing => "programs were changing it".to_owned(),
        Reason::Changed => {
            "others have changed it on the PFS since, or what was renamed to it: nothing was touched there".to_owned()
        }
        Reason::Taken => {
            "something else has appeared there on the PFS: it was not touched".to_owned()
        }
        Reason::NoDirectory => {
            "its directory is not on the PFS any more: others have removed or renamed it, or put something else there".to_owned()
        }
        Reason::OtherDirectory => {
            "on the PFS another directory has the place of the one that it goes into, or comes out of".to_owned()
        }
        Reason::Stopped => "the drain was stopped before its turn".to_owned(),
        Reason::Withheld => format!(
            "in quarantine as {} since a power loss: forebay quarantine shows it",
            left.cause
        ),
        Reason::Stray => {
            let place = printable(left.cause.as_bytes());
            format!("made past the buffer, it lies in {place}")
        }
        Reason::CameBack => {
            "others have changed it on the PFS while a drain removed or replaced it: what they did there is kept".to_owned()
        }
        // It names paths.
        Reason::Blocked => printable(left.cause.as_bytes()),
        Reason::Error => format!("{}: {}", left.operation, left.cause),
        Reason::Leftovers => format!(
            "temporary names of a drain could not be removed from it on the PFS: {}: {}",
            left.operation, left.cause
        ),
    }
}
