//! Room kept back on the disk, so that a full one can be cleaned up.
//!
//! To remove or drain a file writes to the tables. When the disk has no room for that, in bytes or in names, a part of the
//! reserve is given up, and no new name is taken into the tables until there is enough room to set it up again. Which part,
//! [`forebay_core::reserve`] decides.

use forebay_core::reserve::{Keeping, Keepings, Parts, Purpose, Room, keep, spend};
use parking_lot::Mutex;
use rustix::fs::{FallocateFlags, StatVfs, fallocate};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes that stay free when the last part takes what is left.
const LEFT_OVER_BYTES: u64 = 256 << 10;

/// Files that take the room of one part: one with all the bytes, and empty ones.
struct Part {
    bytes: PathBuf,
    names: PathBuf,
}

impl Part {
    fn held(&self) -> Room {
        Room {
            bytes: fs::metadata(&self.bytes).map_or(0, |file| file.blocks() * 512),
            names: fs::read_dir(&self.names).map_or(0, |entries| entries.count() as u64),
        }
    }

    /// False if there was nothing.
    fn give_up(&self) -> bool {
        let has_removed = fs::remove_file(&self.bytes).is_ok();
        fs::remove_dir_all(&self.names).is_ok() || has_removed
    }

    fn take(&self, wanted: Room) -> io::Result<()> {
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
        // An earlier program kept all in one part.
        if file.metadata()?.len() > wanted.bytes {
            file.set_len(wanted.bytes)?;
        }
        if wanted.bytes == 0 {
            return Ok(());
        }
        match fallocate(&file, FallocateFlags::empty(), 0, wanted.bytes) {
            // This file system can't reserve space, so there is no reserve of bytes.
            Err(rustix::io::Errno::OPNOTSUPP) => Ok(()),
            other => other.map_err(io::Error::from),
        }
    }
}

/// Both parts, as files.
pub struct Reserve {
    first: Part,
    last: Part,
    released: AtomicBool,
    purpose: Mutex<Purpose>,
    /// One at a time takes the room or gives it up.
    turn: Mutex<()>,
}

fn wanted(disk: &StatVfs) -> Parts {
    Parts::of_disk(Room {
        bytes: disk.f_blocks * disk.f_frsize,
        names: disk.f_files,
    })
}

impl Reserve {
    /// The reserve for the database in `dir`, as an earlier life has left it.
    pub fn beside(dir: &Path, purpose: Purpose) -> Self {
        Reserve {
            first: Part {
                bytes: dir.with_extension("reserve"),
                names: dir.with_extension("names"),
            },
            last: Part {
                bytes: dir.with_extension("last"),
                names: dir.with_extension("last-names"),
            },
            released: AtomicBool::new(true),
            purpose: Mutex::new(purpose),
            turn: Mutex::default(),
        }
    }

    /// Says what the room is for from now on.
    pub fn serve_for(&self, purpose: Purpose) {
        *self.purpose.lock() = purpose;
    }

    /// What the room is for.
    pub fn purpose(&self) -> Purpose {
        *self.purpose.lock()
    }

    /// True if the first part is given up, or there never was enough.
    pub fn is_released(&self) -> bool {
        self.released.load(Ordering::Relaxed)
    }

    /// Gives up what may be spent; false if there was nothing.
    pub fn release(&self) -> bool {
        let _turn = self.turn.lock();
        self.released.store(true, Ordering::Relaxed);
        self.give_up(spend(self.purpose()))
    }

    fn give_up(&self, both: Keepings) -> bool {
        let parts = [(&self.first, both.first), (&self.last, both.last)];
        let mut has_removed = false;
        for (part, keeping) in parts {
            has_removed |= keeping == Keeping::GiveUp && part.give_up();
        }
        has_removed
    }

    /// Takes the room, or keeps it if it was never given up. If there is not enough for both parts, the first one is given up.
    /// False: the first part is not held.
    pub fn restore(&self) -> bool {
        let _turn = self.turn.lock();
        let taken = self.take().is_ok_and(|taken| taken);
        if !taken {
            self.first.give_up();
        }
        self.released.store(!taken, Ordering::Relaxed);
        taken
    }

    fn disk(&self) -> io::Result<(StatVfs, Room)> {
        let dir = self.first.bytes.parent().unwrap_or(Path::new("/"));
        let disk = rustix::fs::statvfs(dir)?;
        let free = Room {
            bytes: disk.f_bavail * disk.f_frsize,
            names: disk.f_favail,
        };
        Ok((disk, free))
    }

    fn take(&self) -> io::Result<bool> {
        let (disk, free) = self.disk()?;
        let wanted = wanted(&disk);
        let held = Parts {
            first: self.first.held(),
            last: self.last.held(),
        };
        let both = keep(free, held, wanted, self.purpose());
        self.give_up(both);
        // What an earlier program kept may be enough for the last part alone.
        if both.last == Keeping::Hold {
            if both.first == Keeping::Hold {
                self.first.take(wanted.first)?;
            }
            self.last.take(wanted.last)?;
        }
        Ok(both.first == Keeping::Hold)
    }

    /// The tables are closed. A storage that holds nothing gives all of the room up: there is one for each directory of the PFS in
    /// which a program ever ran. In any other one, what is free goes into the last part if that is not whole: whoever brings data
    /// away next finds it there.
    pub fn leave(&self) {
        if self.purpose() == Purpose::EndEmpty {
            self.release();
        } else if self.is_released() {
            self.put_back_last();
        }
    }

    fn put_back_last(&self) {
        let _turn = self.turn.lock();
        let Ok((disk, free)) = self.disk() else {
            return;
        };
        let (wanted, held) = (wanted(&disk).last, self.last.held());
        if held.bytes >= wanted.bytes && held.names >= wanted.names {
            return;
        }
        let bytes = held.bytes + free.bytes.saturating_sub(LEFT_OVER_BYTES);
        // What can't be taken stays free.
        let _ = self.last.take(Room {
            bytes: wanted.bytes.min(bytes),
            names: wanted.names.min(held.names + free.names / 2),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_is_given_back_whole_and_can_be_taken_again() {
        let dir = tempfile::tempdir().unwrap();
        let reserve = Reserve::beside(&dir.path().join("meta"), Purpose::BringAway);
        let entries = || fs::read_dir(dir.path()).unwrap().count();
        for _ in 0..2 {
            assert!(reserve.restore() && !reserve.is_released());
            assert!(reserve.restore());
            // A removal that was cut short has left some of them.
            fs::remove_file(reserve.first.names.join("0")).unwrap();
            fs::remove_file(reserve.last.names.join("0")).unwrap();
            assert!(reserve.restore());
            let wanted = wanted(&reserve.disk().unwrap().0);
            assert_eq!(reserve.first.held().names, wanted.first.names);
            assert_eq!(reserve.last.held().names, wanted.last.names);
            assert!(reserve.release() && reserve.is_released());
            assert_eq!(entries(), 0);
            assert!(!reserve.release());
        }
    }

    #[test]
    fn who_serves_programs_gives_the_first_part_up_alone() {
        let dir = tempfile::tempdir().unwrap();
        let reserve = Reserve::beside(&dir.path().join("meta"), Purpose::Serve);
        assert!(reserve.restore());
        let last = reserve.last.held();
        assert!(reserve.release() && !reserve.release());
        assert_eq!(
            (reserve.first.held(), reserve.last.held()),
            (Room::default(), last)
        );
        reserve.serve_for(Purpose::BringAway);
        assert!(reserve.release());
        assert_eq!(reserve.last.held(), Room::default());
        reserve.leave();
        assert_eq!(reserve.last.held(), last);
    }

    #[test]
    fn who_leaves_nothing_behind_leaves_no_reserve() {
        let dir = tempfile::tempdir().unwrap();
        let reserve = Reserve::beside(&dir.path().join("meta"), Purpose::Serve);
        let entries = || fs::read_dir(dir.path()).unwrap().count();
        assert!(reserve.restore());
        reserve.leave();
        assert!(entries() > 0);
        reserve.serve_for(Purpose::EndEmpty);
        reserve.leave();
        assert_eq!(entries(), 0);
    }

    #[test]
    fn what_an_earlier_program_kept_in_one_part_becomes_two() {
        let dir = tempfile::tempdir().unwrap();
        let reserve = Reserve::beside(&dir.path().join("meta"), Purpose::Serve);
        let wanted = wanted(&reserve.disk().unwrap().0);
        let sum = wanted.first.bytes + wanted.last.bytes;
        let names = wanted.first.names;
        reserve.first.take(Room { bytes: sum, names }).unwrap();
        assert!(reserve.restore());
        // A file system on which there is no such piece of free space needs blocks of its own to tell where the parts are.
        let is_about = |held: u64, wanted: u64| (wanted..wanted + (1 << 16)).contains(&held);
        assert!(is_about(reserve.first.held().bytes, wanted.first.bytes));
        assert!(is_about(reserve.last.held().bytes, wanted.last.bytes));
    }
}
