//! `forebay bridge`: the server process. The other verbs start it, not people.

use crate::cli::{self, exit};
use crate::error::{Fault, fault};
use forebay_admin::{StartFailure, StartReport};
use forebay_core::reserve::Purpose;
use forebay_server::{Config, Error, OtherRoot};
use forebay_sys as sys;
use std::fs::File;
use std::io::Write;

/// Runs the verb: serves until the bridge is told to end.
pub fn bridge(args: &cli::BridgeArgs) -> Result<u8, Fault> {
    let mut ready = match args.ready_on_stdin {
        true => {
            Some(File::from(sys::take_stdin().map_err(|e| {
                fault("cannot take over standard input").because(e)
            })?))
        }
        false => None,
    };
    let mut say = |report: StartReport| {
        // The write fails if the starting process no longer waits. The bridge serves all the same.
        if let Some(mut pipe) = ready.take() {
            let _ = writeln!(pipe, "{}", report.to_line());
        }
    };
    let outcome = Config::new(&args.root, &args.storage).and_then(|mut config| {
        config.stay = args.stay;
        config.run = args.run;
        if args.moved.root_has_moved {
            config.other_root = OtherRoot::Adopt;
        }
        if args.bring_away {
            config.purpose = Purpose::BringAway;
        }
        forebay_server::run(config, |server| {
            say(StartReport::Ready {
                notes: server.notes().to_vec(),
            });
        })
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
                hint: e.hint(),
            });
            Err(fault(message).because(e))
        }
    }
}
