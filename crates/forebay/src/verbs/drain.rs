//! `forebay drain`: brings what is in the buffer to the PFS, by a running bridge or by one that it starts for this.

use super::{drain_code, drain_command, instance_of, quarantine_command};
use crate::bridge::Bridge;
use crate::cli::{self, BridgeOptions};
use crate::drain::{Naming, drain as drive, tell_left};
use crate::error::Fault;
use crate::place;
use crate::run_report::drain_text;
use forebay_sys as sys;
use serde_json::json;
use std::time::Duration;

/// Runs the verb.
pub fn drain(args: &cli::DrainArgs) -> Result<u8, Fault> {
    let place = place::settle(&args.place)?;
    sys::watch_signals();
    if Bridge::find(&place)?.is_none() {
        instance_of(&place)?;
    }
    let options = BridgeOptions { log_dir: None };
    let mut bridge = Bridge::attach(&place, &options)?;
    let naming = match args.json {
        true => Naming::All,
        false => Naming::Some,
    };
    let drained = drive(&mut bridge, &args.drain, Duration::ZERO, naming);
    bridge.detach()?;
    let drained = drained?;
    if args.json {
        let text = json!({
            "buffer": place.root.to_string_lossy(),
            "counters": drained.status,
            "complete": drained.is_complete(),
            "left": drained.named,
        });
        println!("{text:#}");
    } else {
        println!("drained {}", drain_text(&drained));
        tell_left(
            &drained,
            &drain_command(&place),
            &quarantine_command(&place),
        );
    }
    Ok(drain_code(&drained))
}
