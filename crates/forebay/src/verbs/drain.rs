//! `forebay drain`: brings what is in the buffer to the PFS, by a running bridge or by one that it starts for this.

use super::{drain_code, drain_command, instance_of};
use crate::background::Background;
use crate::bridge::Bridge;
use crate::cli::exit;
use crate::cli::{self, BridgeOptions};
use crate::drain::{Naming, take_and_drain, tell_left, tell_remarks};
use crate::error::{Fault, fault};
use crate::place::{self, Place};
use crate::run_report::drain_text;
use crate::signals::Signals;
use forebay_admin::Verb;
use forebay_admin::drain::{Side, Take};
use forebay_core::reserve::Purpose;
use forebay_report::text::printable;
use forebay_sys as sys;
use serde_json::json;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

/// Runs the verb.
pub fn drain(args: &cli::DrainArgs) -> Result<u8, Fault> {
    let place = place::settle(&args.place)?;
    let take = decisions(args, &place)?;
    sys::watch_signals();
    if Bridge::find(&place)?.is_none() {
        instance_of(&place)?;
    }
    let options = BridgeOptions {
        moved: args.moved,
        ..BridgeOptions::default()
    };
    let mut bridge = Bridge::attach(&place, &options, Verb::Drain, Purpose::BringAway)?;
    let naming = match args.json {
        true => Naming::All,
        false => Naming::Some,
    };
    let mut signals = Signals::default();
    let drained = take_and_drain(
        &mut bridge,
        &args.drain,
        &take,
        Duration::ZERO,
        naming,
        &mut signals,
    );
    let instance = bridge.instance.clone();
    let ended = bridge.detach();
    let drained = drained?;
    if drained.is_complete() {
        // What was told of runs whose drain left something is over.
        Background::forget_old(&instance);
    }
    if args.json {
        let text = json!({
            "buffer": place.root.to_string_lossy(),
            "counters": drained.status,
            "refused": drained.status.refused,
            "complete": drained.is_complete(),
            "left": drained.named,
        });
        println!("{text:#}");
    } else {
        if !drained.goes_on() {
            println!("drained {}", drain_text(&drained));
        }
        tell_remarks(&drained);
        tell_left(&drained, &place, &drain_command(&place), "--json");
    }
    ended?;
    match (drain_code(&drained), drained.status.refused.is_empty()) {
        (exit::OK, false) => Ok(exit::FAILURE),
        (code, _) => Ok(code),
    }
}

/// What `--take` says.
fn decisions(args: &cli::DrainArgs, place: &Place) -> Result<Vec<Take>, Fault> {
    let Some(side) = args.take else {
        return Ok(Vec::new());
    };
    let side = match side {
        cli::Side::Ours => Side::Ours,
        cli::Side::Theirs => Side::Theirs,
        cli::Side::Both => Side::Both,
    };
    let take = |path: &OsString| {
        let below = place.below(Path::new(path)).filter(|path| !path.is_root());
        let below = below.ok_or_else(|| {
            let shown = printable(path.as_bytes());
            fault(format!("{shown} is no path in {}", place.root.display()))
        })?;
        Ok(Take {
            path: below.as_bytes().to_vec(),
            side,
        })
    };
    args.paths.iter().map(take).collect()
}
