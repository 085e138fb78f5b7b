//! Where processes in the background say what happens.

use crate::error::{Fault, fault};
use crate::place::plain;
use forebay_sys as sys;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Opens a log, of which lines are added to the end. Others may write to the directory that somebody has named for it: what
/// they have put there in advance is not used.
///
/// # Errors
/// It is no file, or one of somebody else, or can't be opened.
pub fn open(path: &Path) -> Result<File, Fault> {
    let failed = |why: &str| fault(format!("log {}: {why}", path.display()));
    let log = OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        // Who opens a FIFO would wait for its reader.
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path)
        .map_err(|e| failed(&plain(&e).to_string()))?;
    let found = log.metadata().map_err(|e| failed(&plain(&e).to_string()))?;
    let is_own = found.uid() == sys::my_ids().0 && found.nlink() <= 1;
    match found.is_file() && is_own {
        true => Ok(log),
        false => Err(failed("something is there that is no log of this user")
            .hint("name a directory that only you can write to")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn what_somebody_has_put_in_place_of_a_log_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("precious"), "x").unwrap();
        symlink("precious", at("link")).unwrap();
        symlink("made", at("dangling")).unwrap();
        fs::hard_link(at("precious"), at("name")).unwrap();
        let made = std::process::Command::new("mkfifo")
            .arg(at("fifo"))
            .status();
        assert!(made.unwrap().success());
        for name in ["link", "dangling", "name", "fifo"] {
            assert!(open(&at(name)).is_err(), "{name}");
        }
        assert_eq!(fs::read_to_string(at("precious")).unwrap(), "x");
        assert!(!at("made").exists());
        for _ in 0..2 {
            assert!(open(&at("log")).is_ok());
        }
    }
}
