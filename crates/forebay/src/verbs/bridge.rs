//! `forebay bridge`: the server process. Started by the other verbs, not by people.

use crate::cli::{self, exit};
use crate::error::{Fault, fault};
use forebay_admin::{StartFailure, StartReport};
use forebay_server::{Config, Error};
use forebay_sys as sys;
use std::fs::File;
use std::io::Write;

/// Runs the verb: serves until it is told to end.
pub fn bridge(args: &cli::Bridge) -> Result<u8, Fault> {
    let mut ready = match args.ready_on_stdin {
        true => {
            Some(File::from(sys::take_stdin().map_err(|e| {
                fault("cannot take over standard input").because(e)
            })?))
        }
        false => None,
    };
    let mut say = |report: StartReport| {
        // Who started us may have given up waiting; that is no reason to end.
        if let Some(mut pipe) = ready.take() {
            let _ = writeln!(pipe, "{}", report.to_line());
        }
    };
    let outcome = Config::new(&args.root, &args.storage).and_then(|mut config| {
        config.stay = args.stay;
        config.run = args.run;
        forebay_server::run(config, |_| say(StartReport::Ready))
    });
    match outcome {
        Ok(()) => Ok(exit::OK),
        Err(e) => {
            let message = e.to_string();
            let failure = match &e {
                Error::InUse { .. } => StartFailure::InUse,
                _ => StartFailure::Other,
            };
            say(StartReport::Failed {
                failure,
                message: message.clone(),
            });
            Err(fault(message).because(e))
        }
    }
}
