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

    /// Must the file of a removed object stay until the next sync point? `seq` is the number of the object, `begun` the
    /// first number that the last sync point can't know.
    pub fn keeps_until_sync_point(self, seq: u64, begun: u64) -> bool {
        self != Storage::Volatile && seq < begun
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_a_sync_point_knows_waits_for_the_next_one() {
        assert!(Storage::on(0xef53).keeps_until_sync_point(7, 8));
        assert!(!Storage::on(0xef53).keeps_until_sync_point(8, 8));
        assert!(!Storage::on(0x0102_1994).keeps_until_sync_point(7, 8));
        assert_eq!(Storage::on(0x9123_683e), Storage::Unordered);
    }
}
