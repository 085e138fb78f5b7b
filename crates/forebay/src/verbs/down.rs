//! `forebay down`: drains, then ends the bridge.

use super::{drain_code, drain_command, quarantine_command};
use crate::bridge::Bridge;
use crate::cli::{self, exit};
use crate::drain::{Naming, drain, tell_left};
use crate::error::{Fault, fault};
use crate::place;
use crate::run_report::drain_text;
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
    if let Some(pid) = bridge.control.lifetime()?.runs.first() {
        return Err(fault(format!(
            "`forebay run` (process {pid}) still uses the bridge over {}",
            place.root.display()
        ))
        .hint("wait for its end"));
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
    let drained = drain(&mut bridge, &args.drain, Duration::ZERO, Naming::Some)?;
    println!("drained {}", drain_text(&drained));
    if drained.is_complete() {
        bridge.stop()?;
        println!("stopped the bridge over {}", place.root.display());
    } else {
        let again = drain_command(&place).replacen("drain", "down", 1);
        tell_left(&drained, &again, &quarantine_command(&place));
    }
    Ok(drain_code(&drained))
}
