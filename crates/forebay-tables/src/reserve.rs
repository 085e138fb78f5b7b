//! Space kept back on the disk, so that a full one can be cleaned up.
//!
//! Removing a file writes to the tables. When the disk is full and RocksDB
//! finds no room, the reserve is given up, and only what removes something is
//! still written, until there is space to set it up again.

use rustix::fs::{FallocateFlags, fallocate};
use std::fs::{self, File};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// Size of the reserve: several memory tables and logs of RocksDB.
const RESERVE_BYTES: u64 = 48 << 20;
/// At most this part of the disk.
const PART_OF_DISK: u64 = 8;

/// A file that takes the space.
pub struct Reserve {
    path: PathBuf,
    released: AtomicBool,
}

impl Reserve {
    /// The reserve for the database in `dir`; not there yet.
    pub fn beside(dir: &Path) -> Self {
        Reserve {
            path: dir.with_extension("reserve"),
            released: AtomicBool::new(true),
        }
    }

    /// True if the space is given up, or there never was enough.
    pub fn is_released(&self) -> bool {
        self.released.load(Ordering::Relaxed)
    }

    /// Gives the space up; false if there was none.
    pub fn release(&self) -> bool {
        self.released.store(true, Ordering::Relaxed);
        fs::remove_file(&self.path).is_ok()
    }

    /// Takes the space again; false if there is not enough.
    pub fn restore(&self) -> bool {
        let taken = self.take().is_ok();
        if !taken {
            // Keeps no part of it: others need the space more.
            let _ = fs::remove_file(&self.path);
        }
        self.released.store(!taken, Ordering::Relaxed);
        taken
    }

    fn take(&self) -> std::io::Result<()> {
        let file = File::options()
            .mode(0o600)
            .create(true)
            .truncate(false)
            .write(true)
            .open(&self.path)?;
        let disk = rustix::fs::fstatvfs(&file)?;
        let bytes = RESERVE_BYTES.min(disk.f_blocks * disk.f_frsize / PART_OF_DISK);
        match fallocate(&file, FallocateFlags::empty(), 0, bytes) {
            // This file system can't reserve space, so there is no reserve.
            Err(rustix::io::Errno::OPNOTSUPP) => Ok(()),
            other => Ok(other?),
        }
    }
}
