//! `forebay run`: runs a command with the buffer over a directory, waits for the processes that outlive it, then drains
//! and reports.

use super::{drain_command, enter};
use crate::background::{Background, Outcome};
use crate::bridge::Bridge;
use crate::bypass;
use crate::cli::{self, exit};
use crate::drain::{Drained, Naming, drain, tell_left};
use crate::error::{Fault, fault};
use crate::keeper::{self, Keeper, Side};
use crate::looks;
use crate::outfit::{Namespaces, Outfit};
use crate::outliving::{self, Outliving};
use crate::place::{self, Place, plain};
use crate::program;
use crate::reception::{Attached, Entrance, Reception};
use crate::recorder::{self, Recorder, log_text};
use crate::run_report::{BridgeCounters, CallBytes, Logged, RunReport, drain_text, left_text};
use crate::signals::Signals;
use crate::units;
use forebay_admin::drain::Inventory;
use forebay_admin::{BypassingProgram, Verb};
use forebay_core::doors::Door;
use forebay_core::lifetime::{Next, Patience, RunEnd};
use forebay_core::mounting::can_create_in;
use forebay_core::reserve::Purpose;
use forebay_core::restarts::Restarts;
use forebay_sys as sys;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How long the drain waits for open files, if all processes of the run have ended: somebody else has them.
const OPEN_PATIENCE: Duration = Duration::from_secs(2);
/// Pause before the second look at processes that outlive the command; it doubles from one to the next.
const FIRST_LOOK: Duration = Duration::from_millis(5);
/// The pauses get no longer than this while somebody waits for the run.
const LONGEST_LOOK: Duration = Duration::from_millis(200);
/// The pauses get no longer than this in the background.
const LONGEST_LOOK_BEHIND: Duration = Duration::from_secs(2);
/// Most drains after each of which the bridge found that others had changed the buffer again.
const MOST_DRAINS: u32 = 20;

/// How the command ended.
struct Ended {
    /// `None` if the kernel would not tell.
    status: Option<ExitStatus>,
    wall: Duration,
    calls: CallBytes,
    /// When it began.
    begin: Instant,
    /// The bridge died and was started again.
    restarts: Restarts,
    /// The bridge was dead when the command ended, and had not been started again.
    was_given_up: bool,
    /// A signal has come before the command had ended.
    was_signalled: bool,
    /// What has come since then.
    signals: Signals,
}

/// Runs the verb.
///
/// # Errors
/// Only before the command is started. Later errors are printed and change the exit code.
pub fn run(args: &cli::RunArgs, verbose: bool) -> Result<u8, Fault> {
    let place = place::settle_to_serve(&args.place)?;
    let mut libraries = Vec::new();
    let (door, why) = match args.via {
        cli::Via::Preload => (Door::Library, None),
        cli::Via::Mount => (Door::Mount, None),
        cli::Via::Auto => {
            let choice = looks::door(&place.storage)?;
            (choice.door, Some(choice.reason))
        }
    };
    match door {
        Door::Library => libraries.push(place::preload_library()?),
        Door::Mount => tell_foreign(&place),
    }
    if args.collective {
        libraries.push(place::collective_library()?);
    }
    let written = [("--report", &args.report), ("--trace", &args.trace)];
    for (option, file) in written {
        if let Some(file) = file {
            // Open the file now: a failure after hours of work would be worse.
            std::fs::OpenOptions::new()
                .create(true)
                .append(true)
                // A FIFO without a reader is an error, and no wait.
                .custom_flags(libc::O_NONBLOCK)
                .open(file)
                .map_err(|e| fault(format!("{option} {}: {}", file.display(), plain(&e))))?;
        }
    }
    recorder::tell_left();
    sys::watch_signals();
    let keeper = match keeper::split()? {
        Side::Front(code) => return Ok(code),
        Side::Keeper(keeper) => keeper,
    };
    let mut bridge = Bridge::attach(&place, &args.bridge, Verb::Run, Purpose::Serve)?;
    Background::forget_old(&bridge.instance);
    if verbose {
        eprintln!(
            "forebay: bridge {} at {}, data in {}",
            bridge.pid,
            bridge.socket().display(),
            bridge.instance.display()
        );
    }
    let inherited = bridge.control.inventory()?;
    if inherited.is_dirty() {
        eprintln!("forebay: {}", inherited_text(&inherited, args.no_drain));
    }
    let before = BridgeCounters::of(&mut bridge)?;
    let mut recorder = recorder_for(args, &place, verbose);
    let outfit = Outfit::of_run(args, door, &place, &bridge, libraries, recorder.as_ref());
    // Before the command, which may be the one that has others come.
    let entrance = entrance(&bridge);
    let bypassing = match (door, args.command.split_first()) {
        (Door::Library, Some((program, arguments))) => {
            bypass::of_command(program, arguments, &place)
        }
        _ => None,
    };
    match start(args, &outfit, &bridge, recorder.as_mut()) {
        Ok((child, namespaces)) => {
            let reception = entrance.and_then(|entrance| receive(entrance, outfit, namespaces));
            let ended = watch(child, args, &place, &mut bridge);
            let attached = reception.map(Reception::close).unwrap_or_default();
            if let Some(recorder) = &mut recorder {
                recorder.ended(ended.status, ended.calls);
            }
            let run = Run {
                args,
                door: (door, why),
                place,
                inherited,
                before,
                ended,
                bypassing,
                attached,
                recorder,
                verbose,
                connected: Vec::new(),
                of_earlier_bridges: Vec::new(),
            };
            Ok(run.conclude(bridge, keeper))
        }
        Err((code, message)) => {
            eprintln!("forebay: {message}");
            if let Some(recorder) = recorder {
                recorder.discard();
            }
            // The command did not run, so there is nothing to drain. Data of other runs stay in the buffer.
            if inherited.is_dirty() {
                eprintln!(
                    "forebay: nothing was drained: what other runs have made is still in the buffer"
                );
                eprintln!(
                    "  hint: to bring it to the PFS, run: {}",
                    drain_command(&place)
                );
            }
            bridge.detach()?;
            Ok(code)
        }
    }
}

/// Says so if the kernel will let the command make nothing in the buffer directory itself.
fn tell_foreign(place: &Place) {
    let owner = std::fs::metadata(&place.root).map(|found| found.uid());
    if let Ok(owner) = owner
        && !can_create_in(owner, sys::my_ids().0)
    {
        let shown = place.root.display();
        eprintln!(
            "forebay: {shown} belongs to another user: through the mount of a user nothing can be made in it"
        );
        eprintln!("  hint: name a directory of your own below it, or use --via preload");
    }
}

/// The recorder, if it is wanted and can work. If it cannot, a message says so, and the command runs without it.
fn recorder_for(args: &cli::RunArgs, place: &Place, verbose: bool) -> Option<Recorder> {
    if args.no_record {
        return None;
    }
    if recorder::is_recorded_already() {
        eprintln!("forebay: a recorder around this run records it, too; this run writes no log");
        return None;
    }
    // Files in the buffer are recorded even if the buffer lies in a directory that is left out.
    let mut include = args.record.include.clone();
    include.push(place.root.clone());
    include.extend(place.alias.clone());
    let log_dir = args.bridge.log_dir.as_deref();
    match Recorder::prepare(&args.record, log_dir, &args.command, include) {
        Ok(mut recorder) => {
            recorder.is_buffered(&place.root);
            Some(recorder)
        }
        Err(e) => {
            eprintln!("forebay: this run is not recorded:");
            e.tell(verbose);
            None
        }
    }
}

fn inherited_text(inherited: &Inventory, no_drain: bool) -> String {
    format!(
        "the buffer has {} ({}) of other runs that the PFS does not have; {}",
        units::count(inherited.dirty_files, "file", "files"),
        units::bytes(inherited.dirty_bytes),
        if no_drain {
            "this run carries on with them"
        } else {
            "this run carries on with them and drains them"
        }
    )
}

/// A run whose command has ended.
struct Run<'a> {
    args: &'a cli::RunArgs,
    /// How the command got the buffer, and why so if that was chosen for it.
    door: (Door, Option<String>),
    place: Place,
    inherited: Inventory,
    before: BridgeCounters,
    ended: Ended,
    /// The command, if the library does not reach it.
    bypassing: Option<BypassingProgram>,
    /// Who has joined it.
    attached: Vec<Attached>,
    recorder: Option<Recorder>,
    verbose: bool,
    /// Who was connected to the bridge when it was asked last.
    connected: Vec<(u32, sys::Process)>,
    /// Who was connected to a bridge that has died: the next one has not been called yet.
    of_earlier_bridges: Vec<(u32, sys::Process)>,
}

impl Run<'_> {
    /// Waits for processes that go on, drains and reports. The command has run, so errors are printed and change only
    /// the exit code.
    fn conclude(mut self, mut bridge: Bridge, keeper: Keeper) -> u8 {
        if self.ended.restarts.deaths() > 0 {
            self.before = BridgeCounters::default();
        }
        let well = self.exit_status() == exit::OK;
        let patience = Patience::at_end(self.args.no_wait, self.ended.was_signalled, well);
        let outcome = self.finish(&mut bridge, RunEnd::new(patience));
        let log = self.write_log();
        let (code, going_on) = match outcome {
            Ok(end) => (self.report(&end, log.as_ref()), end.going_on),
            Err(e) => {
                e.tell(self.verbose);
                eprintln!(
                    "forebay: the command ended with status {}; what it wrote is in {}",
                    self.exit_status(),
                    self.place.storage.display()
                );
                eprintln!(
                    "  hint: to bring it to the PFS, run: {}",
                    drain_command(&self.place)
                );
                if let Some(log) = &log {
                    eprintln!("forebay: log {}", log_text(&log.collected));
                }
                (exit::DATA_LEFT, Vec::new())
            }
        };
        if !going_on.is_empty() {
            self.stay_behind(&mut bridge, keeper, code, &going_on);
        }
        if bridge.is_alive()
            && let Err(e) = bridge.detach()
        {
            e.tell(self.verbose);
        }
        code
    }

    /// Goes on in the background, without anybody who waits: looks after the processes that go on, and drains when they
    /// have ended.
    fn stay_behind(
        &mut self,
        bridge: &mut Bridge,
        keeper: Keeper,
        code: u8,
        going_on: &[Outliving],
    ) {
        let instance = bridge.instance.clone();
        let words = self.args.command.iter().map(|word| word.to_string_lossy());
        let mut background = Background {
            root: self.place.root.clone(),
            keeper: std::process::id(),
            command: words.collect::<Vec<_>>().join(" "),
            processes: outliving::text(going_on),
            result: None,
        };
        let save = |background: &Background| {
            if let Err(e) = background.save(&instance) {
                eprintln!("forebay: {}: {}", instance.display(), plain(&e));
            }
        };
        save(&background);
        keeper.leave(code, &instance.join("bridge.log"));
        // One that has come until now was meant for the run, which has ended.
        self.ended.signals.heed();
        let end = self.finish(bridge, RunEnd::new(Patience::Everyone));
        let retry = drain_command(&self.place);
        let (complete, text) = match &end {
            Ok(end) => match &end.drained {
                Some(drained) if end.is_complete() => (
                    true,
                    format!("drained {}; left nothing", drain_text(drained)),
                ),
                Some(drained) => (
                    false,
                    format!("left {}; to go on, run: {retry}", left_text(drained)),
                ),
                None => (false, format!("not drained; later: {retry}")),
            },
            Err(e) => (false, format!("{e}; to go on, run: {retry}")),
        };
        eprintln!("forebay: {}: {text}", background.processes);
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        background.result = Some(Outcome {
            at: now.map_or(0, |now| now.as_secs()),
            complete,
            text,
        });
        save(&background);
    }

    /// Waits as long as `end` says, and drains. If everybody has ended, the bridge has the last word: it looks whether all
    /// is on the PFS when nobody can change anything any more, and if not, all this begins again.
    fn finish(&mut self, bridge: &mut Bridge, mut end: RunEnd) -> Result<RunOutcome, Fault> {
        let mut outcome: Option<RunOutcome> = None;
        let mut pause = FIRST_LOOK;
        for _ in 0..MOST_DRAINS {
            let going_on = self.wait(bridge, &mut end)?;
            let mut next = self.drained(bridge, going_on)?;
            if let Some(before) = outcome.take() {
                next.follow(before);
            }
            let everybody_has_ended = next.going_on.is_empty();
            let parts = everybody_has_ended && (next.is_complete() || self.args.no_drain);
            if !parts {
                return Ok(next);
            }
            match bridge.part(!self.args.no_drain) {
                Ok(true) => return Ok(next),
                // Of a process that has just ended the bridge may see the connection for a moment more.
                Ok(false) => {
                    std::thread::sleep(pause);
                    pause = (pause * 2).min(LONGEST_LOOK);
                }
                // It had not looked yet, or not given the directory back.
                Err(_) if bridge.has_died() => self.revive(bridge, Purpose::BringAway)?,
                Err(e) => return Err(e),
            }
            outcome = Some(next);
        }
        Err(fault("others change the buffer again and again"))
    }

    /// Drains. A bridge that dies is started again.
    fn drained(
        &mut self,
        bridge: &mut Bridge,
        going_on: Vec<Outliving>,
    ) -> Result<RunOutcome, Fault> {
        // Who goes on has not closed its files in all the time that the run has waited.
        let patience = match going_on.is_empty() {
            true => OPEN_PATIENCE,
            false => Duration::ZERO,
        };
        loop {
            let signals = &mut self.ended.signals;
            let after = drained(self.args, bridge, &self.before, patience, signals);
            match after {
                Ok(after) => return Ok(RunOutcome { going_on, ..after }),
                // A new bridge finds everything that the old one kept, and continues the drain.
                Err(_) if bridge.has_died() => self.revive(bridge, Purpose::BringAway)?,
                Err(e) => return Err(e),
            }
        }
    }

    /// Starts the bridge again, after it has died.
    fn revive(&mut self, bridge: &mut Bridge, purpose: Purpose) -> Result<(), Fault> {
        self.of_earlier_bridges.append(&mut self.connected);
        let mut trouble = fault("the bridge has died again and again");
        let mut pause = FIRST_LOOK;
        loop {
            let now = self.ended.begin.elapsed();
            // One that is to serve, and for which there would have to be a pause, is not waited for.
            if self.ended.restarts.start_after(now, purpose) != Some(Duration::ZERO) {
                return Err(trouble);
            }
            match Bridge::attach(&self.place, &self.args.bridge.again(), Verb::Run, purpose) {
                Ok(fresh) => {
                    *bridge = fresh;
                    break;
                }
                Err(e) => trouble = e,
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(LONGEST_LOOK_BEHIND);
        }
        self.ended.restarts.is_back();
        self.before = BridgeCounters::default();
        Ok(())
    }

    /// Takes down who is connected now, in a way that is not mistaken when its id is somebody else's.
    fn keep_connected(&mut self, programs: &[u32]) {
        let connected = &mut self.connected;
        connected.retain(|(pid, process)| programs.contains(pid) && !process.has_ended());
        for pid in programs {
            let is_new = connected.iter().all(|(known, _)| known != pid);
            if is_new && let Ok(process) = sys::Process::open(*pid) {
                connected.push((*pid, process));
            }
        }
    }

    /// Waits for processes that go on, as long as `end` says. Gives those that it does not wait for any longer.
    fn wait(&mut self, bridge: &mut Bridge, end: &mut RunEnd) -> Result<Vec<Outliving>, Fault> {
        let longest = match end.is_waited_for() {
            true => LONGEST_LOOK,
            false => LONGEST_LOOK_BEHIND,
        };
        let mut pause = FIRST_LOOK;
        let mut last = Instant::now();
        loop {
            if self.ended.signals.heed() {
                end.leave();
            }
            let mut life = match bridge.control.lifetime() {
                Ok(life) => life,
                Err(_) if bridge.has_died() => {
                    // A bridge that brings data away serves programs, too.
                    self.revive(bridge, Purpose::Serve)
                        .or_else(|_| self.revive(bridge, Purpose::BringAway))?;
                    continue;
                }
                Err(e) => return Err(e.into()),
            };
            self.keep_connected(&life.programs);
            let of_earlier = &mut self.of_earlier_bridges;
            of_earlier.retain(|(_, process)| !process.has_ended());
            life.programs.extend(of_earlier.iter().map(|(pid, _)| pid));
            let found = outliving::find(bridge, &life, &self.attached);
            let now = Instant::now();
            let passed = now - std::mem::replace(&mut last, now);
            match end.pass(passed, found.iter().map(|process| process.holding)) {
                Next::Finish | Next::Leave => return Ok(found),
                Next::Say => eprintln!(
                    "forebay: the command has ended with status {}; waiting for {}. Ctrl-C leaves them to the bridge, which drains when they have ended",
                    self.exit_status(),
                    outliving::text(&found)
                ),
                Next::Wait => {}
            }
            let processes = found.iter().map(|process| sys::Process::open(process.pid));
            let processes: Vec<_> = processes.flatten().collect();
            sys::wait_any(&processes, pause);
            pause = (pause * 2).min(longest);
        }
    }

    fn exit_status(&self) -> u8 {
        let status = self.ended.status;
        status.map_or(exit::FAILURE, program::exit_status)
    }

    /// The log of the run, if it was recorded. A failure is printed and does not change the exit code.
    fn write_log(&mut self) -> Option<Logged> {
        let collected = self.recorder.take()?.conclude();
        collected
            .map(|collected| collected.map(Logged::of))
            .unwrap_or_else(|e| {
                e.tell(self.verbose);
                None
            })
    }

    fn report(&self, end: &RunOutcome, log: Option<&Logged>) -> u8 {
        let words = self.args.command.iter();
        let retry = drain_command(&self.place);
        let mut counters = end.counters.clone();
        counters.bypassing.splice(0..0, self.bypassing.clone());
        let is_spoilt = bypass::spoils_success(&counters.bypassing, self.args.allow_bypass);
        let report = RunReport {
            command: words.map(|w| w.to_string_lossy().into_owned()).collect(),
            exit_status: self.exit_status(),
            wall: self.ended.wall,
            buffer: &self.place.root,
            storage: &self.place.storage,
            counters: &counters,
            inventory: &end.inventory,
            inherited: &self.inherited,
            calls: self.ended.calls,
            restarts: self.ended.restarts.deaths(),
            was_given_up: self.ended.was_given_up,
            drained: end.drained.as_ref(),
            door: cli::door_name(self.door.0),
            door_reason: self.door.1.as_deref(),
            attached: &self.attached,
            going_on: &end.going_on,
            log,
            retry: &retry,
        };
        if self.verbose {
            eprint!("{}", report.text());
        } else if !self.args.quiet || !report.is_uneventful() {
            eprint!("{}", report.summary());
        }
        if let Some(path) = &self.args.report
            && let Err(e) = report.save(path)
        {
            e.tell(self.verbose);
        }
        match &end.drained {
            Some(drained) if !drained.is_complete() => {
                tell_left(drained, &self.place, &retry, "--report FILE");
                exit::DATA_LEFT
            }
            _ if self.exit_status() == exit::OK && is_spoilt => {
                eprintln!(
                    "forebay: programs that may have looked into the buffer saw the PFS instead: {}",
                    bypass::text(&counters.bypassing)
                );
                eprintln!(
                    "  hint: --via mount shows the buffer to static programs and those in Go; if they have no need of it: --allow-bypass"
                );
                exit::WENT_PAST
            }
            _ => self.exit_status(),
        }
    }
}

/// What the bridge reports after the command.
struct RunOutcome {
    counters: BridgeCounters,
    inventory: Inventory,
    drained: Option<Drained>,
    /// The processes that the run does not wait for any longer.
    going_on: Vec<Outliving>,
}

impl RunOutcome {
    fn is_complete(&self) -> bool {
        self.drained.as_ref().is_some_and(Drained::is_complete)
    }

    /// This one came after `before`: it tells of both.
    fn follow(&mut self, before: RunOutcome) {
        self.inventory = before.inventory;
        if let (Some(drained), Some(before)) = (&mut self.drained, &before.drained) {
            drained.add(before);
        }
    }
}

fn drained(
    args: &cli::RunArgs,
    bridge: &mut Bridge,
    before: &BridgeCounters,
    patience: Duration,
    signals: &mut Signals,
) -> Result<RunOutcome, Fault> {
    let counters = BridgeCounters::of(bridge)?.since(before);
    let inventory = bridge.control.inventory()?;
    let drained = if args.no_drain {
        None
    } else {
        let naming = match args.report {
            Some(_) => Naming::All,
            None => Naming::Some,
        };
        Some(drain(bridge, &args.drain, patience, naming, signals)?)
    };
    Ok(RunOutcome {
        counters,
        inventory,
        drained,
        going_on: Vec::new(),
    })
}

/// Starts the command, and gives the namespaces in which it is, if it has some of its own. The error is an exit code and a
/// message.
fn start(
    args: &cli::RunArgs,
    outfit: &Outfit,
    bridge: &Bridge,
    mut recorder: Option<&mut Recorder>,
) -> Result<(Child, Option<Namespaces>), (u8, String)> {
    let (program, arguments) = args
        .command
        .split_first()
        .ok_or((exit::NOT_STARTED, "no command".to_owned()))?;
    let command = outfit.command(program, arguments);
    if sys::signals_seen() > 0 {
        let why = "interrupted before the command was started".to_owned();
        return Err((exit::NOT_STARTED, why));
    }
    if let Some(recorder) = &mut recorder {
        recorder.starts();
    }
    // MPI ranks on this host inherit these variables, because `mpiexec` of MPICH and of Open MPI passes
    // its own environment on. OMPI_MCA_mca_base_env_list must not be set here: Open MPI refuses to start
    // a job that has both that variable and the option `-x` (measured with 4.1.4).
    let (child, namespaces) = match outfit.is_mounted {
        true => {
            let entered = enter::spawn(&command, &outfit.root, bridge.socket())?;
            (entered.child, Some(entered.namespaces))
        }
        false => (program::spawn(command)?, None),
    };
    if let Some(recorder) = recorder {
        recorder.started(child.id());
    }
    Ok((child, namespaces))
}

/// The place at which others join the run, until its command has ended. Without it the run is as good as ever.
fn entrance(bridge: &Bridge) -> Option<Entrance> {
    Entrance::open(bridge.socket()).inspect_err(no_guests).ok()
}

fn receive(
    entrance: Entrance,
    outfit: Outfit,
    namespaces: Option<Namespaces>,
) -> Option<Reception> {
    let reception = Reception::begin(entrance, outfit, namespaces);
    reception.inspect_err(no_guests).ok()
}

fn no_guests(why: &Fault) {
    eprintln!("forebay: `forebay attach` cannot join this run: {why}");
}

/// Waits for the command. Passes signals that ask this process to end on to the command. If the bridge dies, starts it
/// again; programs then connect to the new one.
fn watch(mut child: Child, args: &cli::RunArgs, place: &Place, bridge: &mut Bridge) -> Ended {
    let begin = Instant::now();
    let before = CallBytes::now();
    let mut restarts = Restarts::default();
    let mut was_given_up = false;
    sys::pass_signals_to(child.id());
    sys::hear_of_children();
    if let Ok(program) = sys::Process::open(child.id()) {
        let reap = |bridge: u32| {
            outliving::reap(&[child.id(), bridge]);
        };
        while bridge.dies_before(&program, || reap(bridge.pid)) {
            let is_over = |pause: Duration| {
                let until = Instant::now() + pause;
                while !program.has_ended() && Instant::now() < until {
                    let rest = until.saturating_duration_since(Instant::now());
                    sys::wait_any(&[&program], rest.min(LONGEST_LOOK_BEHIND));
                    reap(bridge.pid);
                }
                program.has_ended()
            };
            let deaths = (&mut restarts, begin);
            match Bridge::revive(place, &args.bridge, Verb::Run, deaths, is_over) {
                Ok(fresh) => *bridge = fresh,
                Err(trouble) => {
                    eprintln!(
                        "forebay: the bridge had died, and none served when the command ended"
                    );
                    if let Some(trouble) = trouble {
                        trouble.tell(false);
                    }
                    was_given_up = true;
                    break;
                }
            }
        }
    }
    // Until the command is reaped, no other process can get its id.
    let waited = sys::await_end(child.id()).map_err(std::io::Error::from);
    sys::pass_signals_to(0);
    let mut signals = Signals::default();
    let was_signalled = signals.heed();
    let status = waited.and_then(|()| child.wait()).ok();
    Ended {
        status,
        wall: begin.elapsed(),
        calls: CallBytes::now().since(before),
        begin,
        restarts,
        was_given_up,
        was_signalled,
        signals,
    }
}
