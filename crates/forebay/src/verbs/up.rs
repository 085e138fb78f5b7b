//! `forebay up`: starts a bridge that outlives runs.

use crate::bridge::Bridge;
use crate::cli::{self, exit};
use crate::error::Fault;
use crate::place;

/// Runs the verb. A bridge that is already running is only told to stay.
pub fn up(args: &cli::UpArgs, verbose: bool) -> Result<u8, Fault> {
    let place = place::settle_to_serve(&args.place)?;
    let bridge = Bridge::keep(&place, &args.bridge)?;
    let verb = if bridge.is_ours {
        "started"
    } else {
        "runs already"
    };
    println!(
        "bridge {verb} over {} (process {}, storage {})",
        bridge.root.display(),
        bridge.pid,
        place.storage.display()
    );
    if verbose {
        println!("socket {}", bridge.socket().display());
        println!("data   {}", bridge.instance.display());
    }
    Ok(exit::OK)
}
