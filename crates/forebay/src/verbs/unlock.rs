//! `forebay unlock`: removes the lock of a buffer that is given up.

use crate::cli::{self, exit};
use crate::error::{Fault, fault};
use crate::place;

/// Runs the verb.
pub fn unlock(args: &cli::UnlockArgs) -> Result<u8, Fault> {
    let (root, _) = place::buffer_root(&args.buffer)?;
    let removed = forebay_server::unlock(&root).map_err(|e| {
        let hint = e.hint();
        let fault = fault(e.to_string()).because(e);
        match hint {
            Some(hint) => fault.hint(hint),
            None => fault,
        }
    })?;
    match removed {
        None => println!("{} has no lock", root.display()),
        Some(said) => println!("removed the lock of {} ({said})", root.display()),
    }
    Ok(exit::OK)
}
