//! What concerns mounts of a buffer.

use super::{BridgeOptions, PlaceArgs};
use clap::{Args, ValueHint};
use forebay_core::doors::Door;
use std::ffi::OsString;
use std::path::PathBuf;

/// How programs get the buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Via {
    /// The mount if the kernel moves the bytes of its files itself, else the library. The report says which, and why.
    Auto,
    /// A library that the dynamic linker loads.
    Preload,
    /// A FUSE mount in a mount namespace of the command. As an ordinary user it needs user namespaces.
    Mount,
}

/// How `--via` names a door.
pub fn door_name(door: Door) -> &'static str {
    match door {
        Door::Library => "preload",
        Door::Mount => "mount",
    }
}

#[derive(Debug, Args)]
#[command(after_help = "\
The mount serves processes of the user who has mounted it, and needs root; a mount for one command does not: see
`forebay run --via mount`. It starts a bridge if none runs.
Unmount it with `forebay umount MOUNTPOINT`, `umount` or `fusermount3 -u`; what was written stays in the
buffer until `forebay drain`.

Examples:
  forebay mount --buffer /pfs/me/run7 /mnt/run7
  forebay umount /mnt/run7 && forebay drain --buffer /pfs/me/run7")]
pub struct MountArgs {
    #[command(flatten)]
    pub place: PlaceArgs,
    #[command(flatten)]
    pub bridge: BridgeOptions,
    /// Serve the mount until it is unmounted, instead of doing so in the background.
    #[arg(long)]
    pub foreground: bool,
    /// Standard input is a pipe. The mount writes one line to it when it is there, or the reason why it is not.
    #[arg(long, hide = true, requires = "foreground")]
    pub ready_on_stdin: bool,
    /// A directory outside of the buffer directory.
    #[arg(value_name = "MOUNTPOINT", value_hint = ValueHint::DirPath)]
    pub mountpoint: PathBuf,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  forebay umount /mnt/run7")]
pub struct UmountArgs {
    /// Where `forebay mount` has mounted a buffer.
    #[arg(value_name = "MOUNTPOINT", value_hint = ValueHint::DirPath)]
    pub mountpoint: PathBuf,
    /// Take it away although somebody uses it. Files that are open go on until they are closed.
    #[arg(long)]
    pub lazy: bool,
}

#[derive(Debug, Args)]
pub struct ServeMountArgs {
    /// The socket of the bridge.
    #[arg(long)]
    pub socket: PathBuf,
}

#[derive(Debug, Args)]
pub struct EnterArgs {
    /// Number of the descriptor of a socket, to which the connection of the mount goes.
    #[arg(long)]
    pub keeper: i32,
    /// The buffer root, over which it is mounted.
    #[arg(long)]
    pub root: PathBuf,
    /// What the command gets as LD_PRELOAD.
    #[arg(long)]
    pub preload: Option<OsString>,
    /// The command and its arguments.
    #[arg(last = true, required = true)]
    pub command: Vec<OsString>,
}
