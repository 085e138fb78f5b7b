//! The device that directories of the buffer show. See [`Devices`].

use core::ffi::c_int;
use core::sync::atomic::{AtomicU64, Ordering};

use forebay_hook::kernel::call;
use forebay_link::Config;
use forebay_wire::{Attr, Devices};
use libc::AT_FDCWD;

use super::directory::is_listed_by_bridge;
use crate::config;

/// Both devices, once they are known: the one of the PFS first. No file system has the number 0.
static PFS: AtomicU64 = AtomicU64::new(0);
static STORAGE: AtomicU64 = AtomicU64::new(0);

/// The device of what is at `path`, of the settings; 0 if it can't be seen.
fn device_of(path: &[u8]) -> u64 {
    // SAFETY: zeroes are a valid stat.
    let mut attr: libc::stat = unsafe { core::mem::zeroed() };
    // SAFETY: a NUL follows what the settings hold, and `attr` is writable.
    let known = unsafe {
        call!(
            libc::SYS_newfstatat,
            AT_FDCWD,
            path.as_ptr(),
            &raw mut attr,
            0
        )
    };
    match known {
        Ok(_) => attr.st_dev,
        Err(_) => 0,
    }
}

/// The devices of the buffer. Where one can't be seen, both are the same: nothing is shown in another way than it is.
fn of(config: &Config) -> Devices {
    let (pfs, storage) = (PFS.load(Ordering::Acquire), STORAGE.load(Ordering::Acquire));
    if pfs != 0 && storage != 0 {
        return Devices { storage, pfs };
    }
    find(config)
}

#[cold]
#[inline(never)]
fn find(config: &Config) -> Devices {
    let (pfs, storage) = (device_of(config.root()), device_of(config.storage()));
    if pfs == 0 || storage == 0 {
        return Devices::default();
    }
    PFS.store(pfs, Ordering::Release);
    STORAGE.store(storage, Ordering::Release);
    Devices { storage, pfs }
}

/// What an object of the buffer shows.
pub fn shown(config: &Config, attr: Attr) -> Attr {
    match attr.mode & libc::S_IFMT {
        libc::S_IFDIR => of(config).shown_of(attr),
        _ => attr,
    }
}

/// What the open file `fd` shows, of which the kernel has told device and inode number. `None`: just that.
pub fn shown_of_fd(fd: c_int, mode: u32, known: (u64, u64)) -> Option<(u64, u64)> {
    if mode & libc::S_IFMT != libc::S_IFDIR {
        return None;
    }
    let shown = of(config::get()?).shown(mode, known);
    (shown != known && is_listed_by_bridge(fd)).then_some(shown)
}
