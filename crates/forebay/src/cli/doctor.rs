//! What concerns looks at this node.

use clap::{Args, Subcommand, ValueHint};
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(after_help = "\
Everything is looked at or tried: a mount is made where nobody sees it, a program is started with the library, a
socket and a file in the storage are made and removed. The default storage is made if it is missing, as by a run.

Exit status: 0 if a run would work here, by whichever door; else 1.

Examples:
  forebay doctor
  forebay doctor --buffer /pfs/me/run7 --storage /local/nvme --json")]
pub struct DoctorArgs {
    /// Also look at this PFS directory: what it is, what makes files durable there, and who has it.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub buffer: Option<PathBuf>,
    /// The storage of a run. Default: as for `forebay run`.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub storage: Option<PathBuf>,
    /// Print JSON, for scripts.
    #[arg(long)]
    pub json: bool,
}

/// What is tried in a process of its own.
#[derive(Debug, Subcommand)]
pub enum Attempt {
    /// Is this library in the process?
    Library {
        /// Its path.
        library: PathBuf,
    },
    /// Mount over a directory.
    Mount {
        /// Whose files the kernel is offered.
        dir: PathBuf,
    },
    /// Make a user namespace.
    Namespace,
}
