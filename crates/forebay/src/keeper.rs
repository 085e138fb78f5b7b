//! `forebay run` is two processes. The *keeper* does the work: it starts the command, adopts every descendant whose own
//! parent ends, and drains. The *front* is the process that the caller waits for; it only hands out the exit status.
//! So the caller can go on while the keeper still looks after processes that have outlived the command.

use crate::cli::exit;
use crate::error::{Fault, fault};
use forebay_sys as sys;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// Which of the two this process is.
pub enum Side {
    /// The caller waits for this process, and the work is done: this is its exit status.
    Front(u8),
    /// This process does the work.
    Keeper(Keeper),
}

/// The way from the keeper to the front.
pub struct Keeper(OwnedFd);

/// Splits this process. A signal that asks the front to end is passed on to the keeper, and the keeper is killed when
/// the front is, until it leaves.
pub fn split() -> Result<Side, Fault> {
    let failed = |e: sys::Errno| fault("cannot split into two processes").because(e);
    let (reader, writer) = sys::pipe().map_err(failed)?;
    let front = std::process::id();
    match sys::fork().map_err(failed)? {
        Some(keeper) => {
            drop(writer);
            Ok(Side::Front(wait_for(keeper, reader)))
        }
        None => {
            sys::die_with_parent(front).map_err(failed)?;
            sys::adopt_orphans().map_err(failed)?;
            Ok(Side::Keeper(Keeper(writer)))
        }
    }
}

fn wait_for(keeper: u32, reader: OwnedFd) -> u8 {
    sys::pass_signals_to(keeper);
    let mut code = [0];
    match File::from(reader).read_exact(&mut code) {
        Ok(()) => code[0],
        // The keeper has ended.
        Err(_) => sys::exit_of(keeper).unwrap_or(exit::FAILURE),
    }
}

impl Keeper {
    /// Lets the front end with this status. This process goes on without a terminal; what it says goes to `log`.
    pub fn leave(self, code: u8, log: &Path) {
        // Without a log there is nobody to tell.
        let log = OpenOptions::new().create(true).append(true).open(log);
        let log = log.or_else(|_| OpenOptions::new().write(true).open("/dev/null"));
        if let Ok(log) = log {
            let _ = sys::leave_terminal(log.as_fd());
        }
        let _ = std::env::set_current_dir("/");
        sys::live_without_parent();
        // If this fails, the front is dead, and nobody waits for the status.
        let _ = File::from(self.0).write_all(&[code]);
    }
}
