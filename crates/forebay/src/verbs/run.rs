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

/// The command as it ended.
struct Ended {
    status: u8,
    wall: Duration,
    calls: CallBytes,
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
    let retry = drain_command(&place);
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
        eprintln!(
            "forebay: an earlier run has left {} ({}) that {} not on the PFS yet; {}",
            units::count(inherited.dirty_files, "file", "files"),
            units::bytes(inherited.dirty_bytes),
            if inherited.dirty_files == 1 {
                "is"
            } else {
                "are"
            },
            if args.no_drain {
                "this run carries them on"
            } else {
                "this run carries them on and drains them"
            }
        );
    }
    let before = BridgeCounters::of(&mut bridge)?;

    let ended = match start(args, &place, &bridge, &preload) {
        Ok(child) => watch(child),
        Err((code, message)) => {
            eprintln!("forebay: {message}");
            // What an earlier run left stays where it is; this one has done nothing.
            bridge.detach()?;
            return Ok(code);
        }
    };

    match finish(args, &place, bridge, &before) {
        Ok(after) => {
            let report = Report {
                command: args
                    .command
                    .iter()
                    .map(|word| word.to_string_lossy().into_owned())
                    .collect(),
                exit_status: ended.status,
                wall: ended.wall,
                buffer: &place.root,
                storage: &place.storage,
                counters: after.counters,
                inventory: after.inventory,
                inherited,
                calls: ended.calls,
                drained: after.drained.as_ref(),
                retry: &retry,
            };
            eprint!("{}", report.text());
            if let Some(path) = &args.report
                && let Err(e) = report.save(path)
            {
                e.tell(verbose);
            }
            if let Some(e) = &after.end {
                e.tell(verbose);
            }
            match &after.drained {
                Some(drained) if !drained.is_complete() => {
                    tell_left(drained, &retry);
                    Ok(exit::DATA_LEFT)
                }
                _ => Ok(ended.status),
            }
        }
        Err(e) => {
            e.tell(verbose);
            eprintln!(
                "forebay: the command ended with status {}; what it wrote is in {}",
                ended.status,
                place.storage.display()
            );
            eprintln!("  hint: to bring it to the PFS, run: {retry}");
            Ok(exit::DATA_LEFT)
        }
    }
}

/// What the bridge says after the command.
struct After {
    counters: BridgeCounters,
    inventory: Inventory,
    drained: Option<Drained>,
    /// The bridge could not be ended.
    end: Option<Fault>,
}

fn finish(
    args: &cli::Run,
    place: &Place,
    mut bridge: Bridge,
    before: &BridgeCounters,
) -> Result<After, Fault> {
    let counters = match BridgeCounters::of(&mut bridge) {
        Ok(counters) => counters.since(before),
        Err(_) => {
            // It has died; another one takes over what it kept. Its counters are lost.
            bridge = Bridge::attach(place, &args.bridge)?;
            eprintln!("forebay: the bridge had died and was started again; its counters are lost");
            BridgeCounters::of(&mut bridge)?
        }
    };
    let inventory = bridge.get(&json!({"cmd": "inventory"}))?;
    let drained = if args.no_drain {
        None
    } else {
        Some(drain(&mut bridge, &args.drain)?)
    };
    let end = bridge.detach().err();
    Ok(After {
        counters,
        inventory,
        drained,
        end,
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

/// Waits for the command. What asks us to end in the meantime goes to the command.
fn watch(mut child: Child) -> Ended {
    let started = Instant::now();
    let before = CallBytes::now();
    sys::pass_signals_to(child.id());
    // Before it is waited for, nobody else can have its process id.
    let waited = sys::await_end(child.id());
    sys::pass_signals_to(0);
    let status = waited.and_then(|()| child.wait());
    Ended {
        status: status.map_or(exit::FAILURE, exit_status),
        wall: started.elapsed(),
        calls: CallBytes::now().since(before),
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
