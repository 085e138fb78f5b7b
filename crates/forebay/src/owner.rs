//! Who has a buffer directory, as its lock says, seen from this user and this node.

use forebay_core::claim::{self, Claim};
use forebay_sys as sys;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Who has the directory.
pub enum Owner {
    /// There is no lock, or this process does not see it, being in the buffer itself.
    Nobody,
    /// A lock that this version does not understand.
    Unknown,
    /// A buffer on another node.
    Elsewhere(Claim),
    /// A buffer of another user on this node.
    OtherUser(Claim),
    /// A buffer of this user on this node. Its bridge may have ended.
    Mine(Claim),
}

/// Reads the lock of `dir`.
pub fn owner(dir: &Path) -> Owner {
    let Ok(lock) = fs::read_link(dir.join(OsStr::from_bytes(claim::NAME))) else {
        return Owner::Nobody;
    };
    match Claim::from_text(lock.as_os_str().as_bytes()) {
        None => Owner::Unknown,
        Some(claim) if claim.host != sys::host_name() => Owner::Elsewhere(claim),
        Some(claim) if claim.uid != sys::my_ids().0 => Owner::OtherUser(claim),
        Some(claim) => Owner::Mine(claim),
    }
}
