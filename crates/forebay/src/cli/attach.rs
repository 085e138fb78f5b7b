//! What concerns commands that join a run.

use super::PlaceArgs;
use clap::{Args, ValueHint};
use std::ffi::OsString;

#[derive(Debug, Args)]
#[command(after_help = "\
CMD gets what the command of the run has got: the library or the mount, and the recorder if the run records. What it
writes is drained with the rest: the run ends when CMD has ended, too. A run can be joined until its own
command has ended. Over a bridge of `forebay up` without a run, what CMD writes stays in the buffer until
`forebay drain` or `forebay down`.

Exit status: that of CMD; 125 if there is nothing to join; 126 if CMD cannot be executed; 127 if it is not
found.

Examples:
  forebay attach --buffer /pfs/me/run7 -- bash
  srun forebay attach --buffer /pfs/me/run7 -- ./app")]
pub struct AttachArgs {
    #[command(flatten)]
    pub place: PlaceArgs,
    /// The process of the `forebay run` to join, if there are several.
    #[arg(long, value_name = "PID")]
    pub run: Option<u32>,
    /// The command and its arguments.
    #[arg(last = true, required = true, value_name = "CMD", value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<OsString>,
}
