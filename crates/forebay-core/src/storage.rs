//! What a power loss leaves of local storage, and what follows for removed files.
//!
//! The names of the buffer become durable at *sync points*. What the storage itself does to its files becomes durable on its
//! own, whenever the kernel likes. So nothing may be done to a file that a later sync point has to allow: a file whose name
//! the last sync point tells is unlinked after the next one.

use std::time::Duration;

/// A commit becomes durable so soon, even if nobody asks for it. The sync point itself takes time as well, and together they
/// are to stay below a second.
pub const LONGEST_UNSYNCED: Duration = Duration::from_millis(500);

/// What a file system makes of changes when the power fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Storage {
    /// Nothing is left of it. There is nothing to wait for.
    Volatile,
    /// Whatever was synced is there, and with it all changes of names and sizes that were made before.
    Ordered,
    /// What was synced is there. Of other changes nothing is known, so a sync point syncs the whole file system.
    Unordered,
}

/// By `statfs.f_type`.
const VOLATILE: [i64; 2] = [
    0x0102_1994, // tmpfs
    0x8584_58f6, // ramfs
];

/// By `statfs.f_type`. ext4 is taken to have its journal.
const ORDERED: [i64; 2] = [
    0xef53,      // ext4
    0x5846_5342, // XFS
];

impl Storage {
    /// The storage on a file system of this type.
    pub fn on(fs_type: i64) -> Self {
        match fs_type {
            t if VOLATILE.contains(&t) => Storage::Volatile,
            t if ORDERED.contains(&t) => Storage::Ordered,
            _ => Storage::Unordered,
        }
    }

    /// May the last sync point know a name of this object? Then its file has to stay what it is. `seq` is the number of the
    /// object, `begun` the first number that the last sync point can't know.
    pub fn may_know(self, seq: u64, begun: u64) -> bool {
        self != Storage::Volatile && seq < begun
    }
}

/// When the file of a removed object goes that the last sync point may know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removal {
    /// At once: it has other links, by which a recovery finds it, and programs see their number.
    AtOnce,
    /// After the next sync point.
    Later,
    /// After a sync point that the removal waits for: somebody has it open, and would see that it is still there.
    Now,
}

impl Removal {
    /// `is_open` is asked only if it matters.
    pub fn of(links: u32, is_open: impl FnOnce() -> bool) -> Self {
        if links > 1 {
            Removal::AtOnce
        } else if is_open() {
            Removal::Now
        } else {
            Removal::Later
        }
    }
}

/// A file system with less free space than this is full, and removed files can't wait.
const LITTLE_SPACE_BYTES: u64 = 64 << 20;
/// Or with less than this part of it.
const LITTLE_SPACE_PART: u64 = 64;

/// Is there so little space that removed files can't wait? Sizes in bytes.
pub fn is_short_of_space(size: u64, free: u64) -> bool {
    free < LITTLE_SPACE_BYTES.min(size / LITTLE_SPACE_PART)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_a_sync_point_knows_waits_for_the_next_one() {
        assert!(Storage::on(0xef53).may_know(7, 8));
        assert!(!Storage::on(0xef53).may_know(8, 8));
        assert!(!Storage::on(0x0102_1994).may_know(7, 8));
        assert_eq!(Storage::on(0x9123_683e), Storage::Unordered);
    }

    #[test]
    fn nobody_sees_that_a_removed_file_is_still_there() {
        assert_eq!(Removal::of(2, || true), Removal::AtOnce);
        assert_eq!(Removal::of(1, || true), Removal::Now);
        assert_eq!(Removal::of(1, || false), Removal::Later);
    }

    #[test]
    fn a_small_disk_is_full_later_than_a_large_one() {
        assert!(is_short_of_space(1 << 40, (64 << 20) - 1));
        assert!(!is_short_of_space(1 << 40, 64 << 20));
        assert!(!is_short_of_space(64 << 20, 1 << 20));
        assert!(is_short_of_space(64 << 20, (1 << 20) - 1));
    }
}
