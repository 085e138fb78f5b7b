//! The device that objects of the buffer show. See [`Devices`](forebay_wire::Devices).

use core::ffi::c_int;

use crate::config;
use crate::locate::is_stored;

/// What the open file `fd` shows, of which the kernel has told device and inode number. `None`: just that.
pub fn shown_of_fd(fd: c_int, known: (u64, u64)) -> Option<(u64, u64)> {
    let config = config::get()?;
    let shown = config.devices().shown(known);
    (shown != known && is_stored(config, fd)).then_some(shown)
}
