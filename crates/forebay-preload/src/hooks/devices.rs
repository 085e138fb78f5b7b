//! Device and inode number that objects of the buffer show. See [`Devices`](forebay_wire::Devices).

use core::ffi::c_int;

use crate::locate::stored;
use crate::{config, requests};

/// What the open file `fd` shows, of which the kernel has told device and inode number. `None`: just that. A regular file
/// may be a copy of one of the PFS.
pub fn shown_of_fd(fd: c_int, known: (u64, u64), is_file: bool) -> Option<(u64, u64)> {
    let config = config::get()?;
    let devices = config.devices();
    if known.0 != devices.storage || !is_file && !devices.are_two() {
        return None;
    }
    let (object, link) = stored(config, fd)?;
    let original = object
        .is_copy()
        .then(|| requests::copy_of(config, object, link));
    Some(match original.flatten() {
        Some(original) => (devices.pfs, original),
        None => devices.shown(known),
    })
}
