//! Room kept back on the disk, so that a full one can be cleaned up.
//!
//! To remove or drain a file writes to the tables. When the disk has no room for that, in bytes or in names, the
//! reserve is given up, and no new name is taken into the tables until there is enough room to set it up again.

use parking_lot::Mutex;
use rustix::fs::{FallocateFlags, StatVfs, fallocate};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// Files and bytes on a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Room {
    bytes: u64,
    /// Files that can still be made.
    names: u64,
}

/// The whole reserve: several memory tables and logs of RocksDB, and what a bridge makes when it starts and ends.
const RESERVE: Room = Room {
    bytes: 48 << 20,
    names: 64,
};
/// At most this part of the disk.
const PART_OF_DISK: u64 = 4;

/// What is to be kept back on this disk.
fn wanted(disk: &StatVfs) -> Room {
    Room {
        bytes: RESERVE
            .bytes
            .min(disk.f_blocks * disk.f_frsize / PART_OF_DISK),
        names: RESERVE.names.min(disk.f_files / PART_OF_DISK),
    }
}

/// Is there room for the reserve and for what has to stay free beside it? `held` is the part that is there already.
fn has_room(free: Room, held: Room, wanted: Room) -> bool {
    // As much again: RocksDB sets room aside when it opens, and a bridge that starts on the reserve alone would use it up.
    let enough = |free: u64, held: u64, wanted: u64| free + held >= 2 * wanted;
    enough(free.bytes, held.bytes, wanted.bytes) && enough(free.names, held.names, wanted.names)
}

/// Files that take the room: one with all the bytes, and empty ones.
pub struct Reserve {
    bytes: PathBuf,
    names: PathBuf,
    released: AtomicBool,
    /// One at a time takes the room or gives it up.
    turn: Mutex<()>,
}

impl Reserve {
    /// The reserve for the database in `dir`, as an earlier life has left it.
    pub fn beside(dir: &Path) -> Self {
        Reserve {
            bytes: dir.with_extension("reserve"),
            names: dir.with_extension("names"),
            released: AtomicBool::new(true),
            turn: Mutex::default(),
        }
    }

    /// True if the room is given up, or there never was enough.
    pub fn is_released(&self) -> bool {
        self.released.load(Ordering::Relaxed)
    }

    /// Gives the room up; false if there was none.
    pub fn release(&self) -> bool {
        let _turn = self.turn.lock();
        self.give_up()
    }

    fn give_up(&self) -> bool {
        self.released.store(true, Ordering::Relaxed);
        let has_removed = fs::remove_file(&self.bytes).is_ok();
        fs::remove_dir_all(&self.names).is_ok() || has_removed
    }

    /// Takes the room, or keeps it if it was never given up; false if there is not enough, and then no part of it is
    /// kept: others need it more.
    pub fn restore(&self) -> bool {
        let _turn = self.turn.lock();
        let taken = self.take().is_ok_and(|taken| taken);
        if !taken {
            self.give_up();
        }
        self.released.store(!taken, Ordering::Relaxed);
        taken
    }

    fn held(&self) -> Room {
        Room {
            bytes: fs::metadata(&self.bytes).map_or(0, |file| file.blocks() * 512),
            names: fs::read_dir(&self.names).map_or(0, |entries| entries.count() as u64),
        }
    }

    fn take(&self) -> io::Result<bool> {
        let disk = rustix::fs::statvfs(self.bytes.parent().unwrap_or(Path::new("/")))?;
        let free = Room {
            bytes: disk.f_bavail * disk.f_frsize,
            names: disk.f_favail,
        };
        let (held, wanted) = (self.held(), wanted(&disk));
        if !has_room(free, held, wanted) {
            return Ok(false);
        }
        let new = || {
            let mut options = File::options();
            options.mode(0o600).create(true).truncate(false).write(true);
            options
        };
        let dir = fs::DirBuilder::new().mode(0o700).create(&self.names);
        dir.or_else(|e| match e.kind() {
            io::ErrorKind::AlreadyExists => Ok(()),
            _ => Err(e),
        })?;
        // Of an earlier life any of them may be there.
        for n in 0..wanted.names {
            new().open(self.names.join(n.to_string()))?;
        }
        let file = new().open(&self.bytes)?;
        match fallocate(&file, FallocateFlags::empty(), 0, wanted.bytes) {
            // This file system can't reserve space, so there is no reserve of bytes.
            Err(rustix::io::Errno::OPNOTSUPP) => Ok(true),
            other => other.map(|()| true).map_err(io::Error::from),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reserve_is_kept_only_where_something_stays_free_beside_it() {
        let room = |bytes, names| Room { bytes, names };
        let wanted = room(400, 40);
        assert!(has_room(room(800, 80), room(0, 0), wanted));
        assert!(has_room(room(400, 40), wanted, wanted));
        assert!(!has_room(room(399, 40), wanted, wanted));
        assert!(!has_room(room(400, 39), wanted, wanted));
        // A file system that does not count files.
        assert!(has_room(room(800, 0), room(0, 0), room(400, 0)));
    }

    #[test]
    fn what_is_taken_is_given_back_whole_and_can_be_taken_again() {
        let dir = tempfile::tempdir().unwrap();
        let reserve = Reserve::beside(&dir.path().join("meta"));
        let entries = || fs::read_dir(dir.path()).unwrap().count();
        for _ in 0..2 {
            assert!(reserve.restore() && !reserve.is_released());
            assert!(reserve.restore());
            // A removal that was cut short has left some of them.
            fs::remove_file(reserve.names.join("0")).unwrap();
            assert!(reserve.restore());
            assert_eq!(reserve.held().names, RESERVE.names);
            assert!(reserve.release() && reserve.is_released());
            assert_eq!(entries(), 0);
            assert!(!reserve.release());
        }
    }
}
