//! `forebay record`: runs a command with the recorder and without a buffer.

use crate::cli::{self, exit};
use crate::error::{Fault, fault};
use crate::program;
use crate::recorder::{self, Recorder, log_text};
use crate::run_report::{CallBytes, Logged};
use forebay_report::Report;
use forebay_sys as sys;
use std::process::Command;

/// Runs the verb.
///
/// # Errors
/// Only before the command is started. Later errors are printed, and the exit code is that of the command.
pub fn record(args: &cli::RecordArgs, verbose: bool) -> Result<u8, Fault> {
    recorder::tell_left();
    sys::watch_signals();
    let (program, arguments) = args
        .command
        .split_first()
        .ok_or_else(|| fault("no command"))?;
    let log_dir = args.log_dir.as_deref();
    let include = args.options.include.clone();
    let mut recorder = Recorder::prepare(&args.options, log_dir, &args.command, include)?;
    if sys::signals_seen() > 0 {
        recorder.discard();
        return Err(fault("interrupted before the command was started"));
    }
    let mut command = Command::new(program);
    command.args(arguments);
    command.envs(recorder.variables());
    program::load(&mut command, &[recorder.library()]);
    recorder.starts();
    let before = CallBytes::now();
    let mut child = match program::spawn(command) {
        Ok(child) => child,
        Err((code, message)) => {
            recorder.discard();
            eprintln!("forebay: {message}");
            return Ok(code);
        }
    };
    recorder.started(child.id());
    sys::pass_signals_to(child.id());
    // Until the command is reaped, no other process can get its id.
    let waited = sys::await_end(child.id()).map_err(std::io::Error::from);
    sys::pass_signals_to(0);
    let status = waited.and_then(|()| child.wait()).ok();
    recorder.ended(status, CallBytes::now().since(before));
    recorder.await_stragglers();
    match recorder.conclude() {
        Ok(Some(collected)) => {
            let log = Logged::of(collected);
            eprintln!("forebay: log {}", log_text(&log.collected));
            for remark in &log.collected.remarks {
                eprintln!("forebay: {remark}");
            }
            if let Some(warning) = log.job.as_ref().and_then(Report::warning) {
                eprintln!("forebay: {}", warning.title.to_uppercase());
                for evidence in &warning.evidence {
                    eprintln!("forebay:   {evidence}");
                }
            }
        }
        Ok(None) => {}
        Err(e) => e.tell(verbose),
    }
    Ok(status.map_or(exit::FAILURE, program::exit_status))
}
