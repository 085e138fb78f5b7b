//! The `forebay` command: a burst buffer over a directory of a parallel file system.
#![forbid(unsafe_code)]

/// What the macro of this name in `std` does, but that a standard error which takes nothing (full, closed) ends nothing.
macro_rules! eprintln {
    ($($text:tt)*) => {
        crate::say::on_error(format_args!("{}\n", format_args!($($text)*)))
    };
}
/// As `eprintln`, without an end of line.
macro_rules! eprint {
    ($($text:tt)*) => {
        crate::say::on_error(format_args!($($text)*))
    };
}
/// What the macro of this name in `std` does, but that a standard output which takes nothing ends the process with a status
/// and in order.
macro_rules! println {
    ($($text:tt)*) => {
        crate::say::on_output(format_args!("{}\n", format_args!($($text)*)))
    };
}
/// As `println`, without an end of line.
macro_rules! print {
    ($($text:tt)*) => {
        crate::say::on_output(format_args!($($text)*))
    };
}

mod background;
mod bridge;
mod bypass;
mod cli;
mod drain;
mod error;
mod keeper;
mod log_file;
mod looks;
mod outfit;
mod outliving;
mod owner;
mod place;
mod program;
mod reception;
mod recorder;
mod run_report;
mod say;
mod signals;
mod units;
mod verbs;

use clap::{CommandFactory, Parser};
use cli::{Cli, Verb, exit};
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(e) => {
            let _ = e.print();
            // `run`, `record` and `attach` return the status of the command, so their own errors have other codes.
            let starts_command = std::env::args_os()
                .skip(1)
                .find(|argument| !argument.as_encoded_bytes().starts_with(b"-"))
                .is_some_and(|verb| verb == "run" || verb == "record" || verb == "attach");
            return ExitCode::from(match (e.use_stderr(), starts_command) {
                (false, _) => exit::OK,
                (true, true) => exit::NOT_STARTED,
                (true, false) => exit::USAGE,
            });
        }
    };
    let verbose = cli.verbose;
    // The simulator makes the run smaller that panics.
    if !matches!(cli.verb, Verb::Sim(_)) {
        forebay_sys::abort_at_panics();
    }
    if only_prints(&cli.verb) {
        forebay_sys::end_with_the_reader();
    }
    let result = match &cli.verb {
        Verb::Run(args) => verbs::run::run(args, verbose),
        Verb::Attach(args) => verbs::attach::attach(args),
        Verb::Record(args) => verbs::record::record(args, verbose),
        Verb::Collect(args) => verbs::collect::collect(args),
        Verb::Up(args) => verbs::up::up(args, verbose),
        Verb::Mount(args) => verbs::mount::mount(args),
        Verb::Umount(args) => verbs::mount::umount(args),
        Verb::ServeMount(args) => verbs::mount::serve(args),
        Verb::Enter(args) => verbs::enter::enter(args),
        Verb::Doctor(args) => verbs::doctor::doctor(args),
        Verb::Try { what } => looks::attempt(what),
        Verb::Down(args) => verbs::down::down(args),
        Verb::Status(args) => verbs::status::status(args),
        Verb::Drain(args) => verbs::drain::drain(args),
        Verb::Unlock(args) => verbs::unlock::unlock(args),
        Verb::Fsck(args) => verbs::fsck::fsck(args),
        Verb::Quarantine(args) => verbs::quarantine::quarantine(args),
        Verb::Report(args) => verbs::report::report(args, verbose),
        Verb::Probe(args) => verbs::probe::probe(args),
        Verb::ProbeClient { dir, waiting } => verbs::probe_client::probe_client(dir, *waiting),
        Verb::Sim(args) => verbs::sim::sim(args),
        Verb::Bridge(args) => verbs::bridge::bridge(args),
        Verb::Completions { shell } => {
            clap_complete::generate(
                *shell,
                &mut Cli::command(),
                "forebay",
                &mut std::io::stdout(),
            );
            Ok(exit::OK)
        }
    };
    match result {
        Ok(code) => ExitCode::from(code),
        Err(fault) => {
            fault.tell(verbose);
            ExitCode::from(match cli.verb {
                Verb::Run(_) | Verb::Record(_) | Verb::Attach(_) | Verb::Enter(_) => {
                    exit::NOT_STARTED
                }
                _ => exit::FAILURE,
            })
        }
    }
}

/// Is everything that the verb does to print something?
fn only_prints(verb: &Verb) -> bool {
    matches!(
        verb,
        Verb::Status(_)
            | Verb::Doctor(_)
            | Verb::Report(_)
            | Verb::Sim(_)
            | Verb::Completions { .. }
    )
}
