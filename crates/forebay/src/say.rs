//! Words on standard error and standard output, where these may be full or closed.

use crate::cli::exit;
use std::fmt::Arguments;
use std::io::{self, ErrorKind, Write};

/// Says it if it can be said. Programs run and data is brought away whether anybody hears of it or not.
pub fn on_error(text: Arguments<'_>) {
    let _ = io::stderr().write_fmt(text);
}

/// Prints what was asked for. If that is not possible, nothing is left to do: the process ends.
pub fn on_output(text: Arguments<'_>) {
    if let Err(e) = io::stdout().write_fmt(text) {
        if e.kind() != ErrorKind::BrokenPipe {
            on_error(format_args!("forebay: standard output: {e}\n"));
        }
        std::process::exit(exit::FAILURE.into());
    }
}
