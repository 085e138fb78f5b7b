//! `forebay bridge`: the server process. Started by the other verbs, not by people.

use crate::cli::{self, exit};
use crate::error::{Fault, fault};
use forebay_server::Config;
use forebay_server::admin::Mover;
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
    let mut say = |line: &str| {
        // Who started us may have given up waiting; that is no reason to end.
        if let Some(mut pipe) = ready.take() {
            let _ = writeln!(pipe, "{line}");
        }
    };
    let outcome = Config::new(&args.root, &args.storage).and_then(|mut config| {
        config.admin = Some(Box::new(Mover::new(args.stay, args.mode.name())));
        forebay_server::run(config, |_| say("ready"))
    });
    match outcome {
        Ok(()) => Ok(exit::OK),
        Err(e) => {
            say(&e.to_string());
            Err(fault(e.to_string()))
        }
    }
}
