//! `forebay down`: drains, then ends the bridge.

use super::{drain_code, drain_command};
use crate::bridge::Bridge;
use crate::cli::{self, exit};
use crate::drain::{Naming, drain, tell_left, tell_remarks};
use crate::error::{Fault, fault};
use crate::place;
use crate::run_report::drain_text;
use crate::signals::Signals;
use forebay_admin::Verb;
use forebay_sys as sys;
use std::time::Duration;

/// Runs the verb.
pub fn down(args: &cli::DownArgs) -> Result<u8, Fault> {
    let place = place::settle(&args.place)?;
    let Some(mut bridge) = Bridge::find(&place)? else {
        return Err(
            fault(format!("no bridge runs over {}", place.root.display()))
                .hint("`forebay status` lists those that run; `forebay drain` works without one"),
        );
    };
    let life = bridge.control.lifetime()?;
    if let Some((pid, verb)) = life.users().next() {
        let root = place.root.display();
        let (text, hint) = match verb {
            Verb::Run => (
                format!("`forebay run` (process {pid}) still uses the bridge over {root}"),
                format!(
                    "wait for its end; if its command has ended, and only processes in the background keep it, `kill {pid}` makes it drain and end"
                ),
            ),
            Verb::Attach => (
                format!(
                    "process {pid} ({}) has joined the buffer over {root} and still runs",
                    sys::process_name(pid)
                ),
                "wait for its end, or end it".to_owned(),
            ),
            Verb::Mount => (
                format!("`forebay mount` (process {pid}) shows the buffer over {root}"),
                "unmount it".to_owned(),
            ),
            Verb::Drain => (
                format!("a drain (process {pid}) is at work over {root}"),
                "wait for its end".to_owned(),
            ),
            Verb::Quarantine => (
                format!("`forebay quarantine` (process {pid}) is at work over {root}"),
                "wait for its end".to_owned(),
            ),
        };
        return Err(fault(text).hint(hint));
    }
    sys::watch_signals();
    if args.no_drain {
        let inventory = bridge.control.inventory()?;
        bridge.stop()?;
        println!("stopped the bridge over {}", place.root.display());
        if inventory.is_dirty() {
            println!("its data stays in {}", place.storage.display());
            println!("to bring it to the PFS, run: {}", drain_command(&place));
        }
        return Ok(exit::OK);
    }
    let mut signals = Signals::default();
    let drained = drain(
        &mut bridge,
        &args.drain,
        Duration::ZERO,
        Naming::Some,
        &mut signals,
    )?;
    if !drained.goes_on() {
        println!("drained {}", drain_text(&drained));
    }
    tell_remarks(&drained);
    if drained.is_complete() {
        end(bridge)?;
        println!("stopped the bridge over {}", place.root.display());
    } else {
        let again = drain_command(&place).replacen("drain", "down", 1);
        tell_left(&drained, &place, &again, "forebay drain --json");
    }
    Ok(drain_code(&drained))
}

/// Ends a bridge that has drained, unless somebody would be left without files, or without a drain of what changed since.
fn end(mut bridge: Bridge) -> Result<(), Fault> {
    let stays = bridge.control.attach(std::process::id(), Verb::Drain)?.stay;
    bridge.control.set_stay(false)?;
    let parted = bridge.part(true);
    if matches!(parted, Ok(true)) && !bridge.is_alive() {
        return Ok(());
    }
    let life = bridge.control.set_stay(stays)?;
    parted?;
    Err(match life.programs.first() {
        Some(pid) => fault(format!(
            "process {pid} still uses the bridge, which goes on"
        ))
        .hint("wait for its end, or end it"),
        None => fault("the buffer is used again since the drain; the bridge goes on")
            .hint("run the same command again"),
    })
}
