//! `forebay run`: the command with the buffer over its directory, then drain and report.

use super::drain_command;
use crate::bridge::Bridge;
use crate::cli::{self, exit};
use crate::drain::{Drained, drain, tell_left};
use crate::error::{Fault, fault};
use crate::place::{self, Place, plain};
use crate::report::{BridgeCounters, CallBytes, Report};
use crate::sys;
use crate::units;
use forebay_server::mover::protocol::Inventory;
use serde_json::json;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

/// The last processes of a command may still be closing their files when it has ended.
const OPEN_PATIENCE: Duration = Duration::from_secs(2);
/// A bridge that dies more often than this during one command has a reason that will not go away.
const MOST_RESTARTS: u32 = 10;

/// The command as it ended.
struct Ended {
    status: u8,
    wall: Duration,
    calls: CallBytes,
    /// How often the bridge died meanwhile and was started again.
    restarts: u32,
}

/// Runs the verb.
///
/// # Errors
/// Only before the command is started; afterwards everything is told and ends in the exit code.
pub fn run(args: &cli::Run, verbose: bool) -> Result<u8, Fault> {
    let place = place::settle(&args.place)?;
    let preload = place::preload_library()?;
    if let Some(report) = &args.report {
        // Better now than after hours of work.
        std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(report)
            .map_err(|e| fault(format!("--report {}: {}", report.display(), plain(&e))))?;
    }
    sys::watch_signals();
    let mut bridge = Bridge::attach(&place, &args.bridge)?;
    if verbose {
        eprintln!(
            "forebay: bridge {} at {}, data in {}",
            bridge.pid,
            bridge.socket.display(),
            bridge.instance.display()
        );
    }
    let inherited: Inventory = bridge.get(&json!({"cmd": "inventory"}))?;
    if inherited.is_dirty() {
        eprintln!("forebay: {}", inherited_text(&inherited, args.no_drain));
    }
    let before = BridgeCounters::of(&mut bridge)?;
    if sys::signals_seen() > 0 {
        bridge.detach()?;
        return Err(fault("interrupted before the command was started"));
    }
    match start(args, &place, &bridge, &preload) {
        Ok(child) => {
            let ended = watch(child, args, &place, &mut bridge);
            let run = Run {
                args,
                place,
                inherited,
                before,
                ended,
                verbose,
            };
            Ok(run.conclude(bridge))
        }
        Err((code, message)) => {
            eprintln!("forebay: {message}");
            // What an earlier run left stays where it is; this one has done nothing.
            bridge.detach()?;
            Ok(code)
        }
    }
}

fn inherited_text(inherited: &Inventory, no_drain: bool) -> String {
    format!(
        "an earlier run has left {} ({}) in the buffer that the PFS does not have; {}",
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
    args: &'a cli::Run,
    place: Place,
    inherited: Inventory,
    before: BridgeCounters,
    ended: Ended,
    verbose: bool,
}

impl Run<'_> {
    /// Drains and reports. The command has run, so all that goes wrong from here on is told and ends in
    /// the exit code.
    fn conclude(mut self, mut bridge: Bridge) -> u8 {
        if self.ended.restarts > 0 {
            self.before = BridgeCounters::default();
        }
        let mut after = finish(self.args, &mut bridge, &self.before);
        while after.is_err() && self.ended.restarts < MOST_RESTARTS && !bridge.is_alive() {
            // What it kept is safe, and a drain goes on where it was.
            self.ended.restarts += 1;
            after = Bridge::attach(&self.place, &self.args.bridge).and_then(|fresh| {
                bridge = fresh;
                finish(self.args, &mut bridge, &BridgeCounters::default())
            });
        }
        let retry = drain_command(&self.place);
        let code = match after {
            Ok(after) => self.report(after, &retry),
            Err(e) => {
                e.tell(self.verbose);
                eprintln!(
                    "forebay: the command ended with status {}; what it wrote is in {}",
                    self.ended.status,
                    self.place.storage.display()
                );
                eprintln!("  hint: to bring it to the PFS, run: {retry}");
                exit::DATA_LEFT
            }
        };
        if bridge.is_alive()
            && let Err(e) = bridge.detach()
        {
            e.tell(self.verbose);
        }
        code
    }

    fn report(&self, after: After, retry: &str) -> u8 {
        let words = self.args.command.iter();
        let report = Report {
            command: words.map(|w| w.to_string_lossy().into_owned()).collect(),
            exit_status: self.ended.status,
            wall: self.ended.wall,
            buffer: &self.place.root,
            storage: &self.place.storage,
            counters: after.counters,
            inventory: after.inventory,
            inherited: self.inherited.clone(),
            calls: self.ended.calls,
            restarts: self.ended.restarts,
            drained: after.drained.as_ref(),
            retry,
        };
        eprint!("{}", report.text());
        if let Some(path) = &self.args.report
            && let Err(e) = report.save(path)
        {
            e.tell(self.verbose);
        }
        match &after.drained {
            Some(drained) if !drained.is_complete() => {
                tell_left(drained, retry);
                exit::DATA_LEFT
            }
            _ => self.ended.status,
        }
    }
}

/// What the bridge says after the command.
struct After {
    counters: BridgeCounters,
    inventory: Inventory,
    drained: Option<Drained>,
}

fn finish(args: &cli::Run, bridge: &mut Bridge, before: &BridgeCounters) -> Result<After, Fault> {
    let counters = BridgeCounters::of(bridge)?.since(before);
    let inventory = bridge.get(&json!({"cmd": "inventory"}))?;
    let drained = if args.no_drain {
        None
    } else {
        Some(drain(bridge, &args.drain, OPEN_PATIENCE)?)
    };
    Ok(After {
        counters,
        inventory,
        drained,
    })
}

/// Starts the command under the preload library. The error is an exit code and a line.
fn start(
    args: &cli::Run,
    place: &Place,
    bridge: &Bridge,
    preload: &Path,
) -> Result<Child, (u8, String)> {
    let (program, arguments) = args
        .command
        .split_first()
        .ok_or((exit::NOT_STARTED, "no command".to_owned()))?;
    let mut command = command_for(program, place);
    command.args(arguments);
    command.env(
        "LD_PRELOAD",
        with_entry(std::env::var_os("LD_PRELOAD"), preload),
    );
    command.env(forebay_wire::ENV_BUFFER, &place.root);
    match &place.alias {
        Some(alias) => command.env(forebay_wire::ENV_ALIAS, alias),
        None => command.env_remove(forebay_wire::ENV_ALIAS),
    };
    command.env(forebay_wire::ENV_SOCKET, &bridge.socket);
    command.env(forebay_wire::ENV_STORAGE, &bridge.instance);
    // Ranks on this host inherit all this: `mpiexec` of MPICH and of Open MPI pass their own
    // environment on. OMPI_MCA_mca_base_env_list must not be set here: Open MPI refuses to start a
    // job that has both it and `-x` (measured with 4.1.4).
    command.spawn().map_err(|e| {
        let code = match e.kind() {
            std::io::ErrorKind::NotFound => exit::NOT_FOUND,
            _ => exit::NOT_EXECUTABLE,
        };
        (code, format!("{}: {}", program.display(), plain(&e)))
    })
}

/// A program that only the buffer has cannot be executed by this process, which sees the PFS: a
/// shell that has the library loaded does it.
fn command_for(program: &OsStr, place: &Place) -> Command {
    let path = Path::new(program);
    let absolute = std::env::current_dir().unwrap_or_default().join(path);
    let in_buffer = [Some(&place.root), place.alias.as_ref()]
        .into_iter()
        .flatten()
        .any(|root| absolute.starts_with(root));
    if in_buffer && program.as_bytes().contains(&b'/') {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "exec \"$0\" \"$@\""]).arg(program);
        command
    } else {
        Command::new(program)
    }
}

/// `LD_PRELOAD` with one more entry at its end: tools that ask to be first stay first.
fn with_entry(list: Option<OsString>, entry: &Path) -> OsString {
    let Some(mut list) = list.filter(|l| !l.is_empty()) else {
        return entry.as_os_str().to_owned();
    };
    let is_there = list
        .as_bytes()
        .split(|b| b" :".contains(b))
        .any(|e| e == entry.as_os_str().as_bytes());
    if !is_there {
        list.push(":");
        list.push(entry);
    }
    list
}

/// Waits for the command. What asks us to end in the meantime goes to the command; a bridge that dies
/// is started again, and programs connect to the new one.
fn watch(mut child: Child, args: &cli::Run, place: &Place, bridge: &mut Bridge) -> Ended {
    let started = Instant::now();
    let before = CallBytes::now();
    let mut restarts = 0;
    sys::pass_signals_to(child.id());
    if let Some(program) = sys::Process::open(child.id()) {
        while restarts <= MOST_RESTARTS && bridge.dies_before(&program) {
            restarts += 1;
            match Bridge::attach(place, &args.bridge) {
                Ok(fresh) => *bridge = fresh,
                Err(e) => {
                    eprintln!("forebay: the bridge has died and cannot be started again");
                    e.tell(false);
                    break;
                }
            }
        }
    }
    // Before it is waited for, nobody else can have its process id.
    let waited = sys::await_end(child.id());
    sys::pass_signals_to(0);
    let status = waited.and_then(|()| child.wait());
    Ended {
        status: status.map_or(exit::FAILURE, exit_status),
        wall: started.elapsed(),
        calls: CallBytes::now().since(before),
        restarts,
    }
}

fn exit_status(status: ExitStatus) -> u8 {
    match (status.code(), status.signal()) {
        (Some(code), _) => code as u8,
        (None, Some(signal)) => 128u8.wrapping_add(signal as u8),
        (None, None) => exit::FAILURE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_is_loaded_after_what_was_asked_for_before_and_only_once() {
        let lib = Path::new("/x/lib.so");
        let with = |list: &str| with_entry(Some(list.into()), lib);
        assert_eq!(with_entry(None, lib), "/x/lib.so");
        assert_eq!(with(""), "/x/lib.so");
        assert_eq!(with("libasan.so"), "libasan.so:/x/lib.so");
        assert_eq!(with("a.so /x/lib.so"), "a.so /x/lib.so");
    }
}
