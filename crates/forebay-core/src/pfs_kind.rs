//! What is known of a file system by its kind: whether it may make a caller wait, and how what was written gets to its disks.

/// File systems of this machine itself, by `statfs.f_type`: a look at them takes
/// microseconds and never waits for another machine.
const LOCAL: [i64; 10] = [
    0xef53,      // ext2, ext3, ext4
    0x5846_5342, // XFS
    0x9123_683e, // Btrfs
    0x0102_1994, // tmpfs
    0x8584_58f6, // ramfs
    0xf2f5_2010, // F2FS
    0x2fc1_2fc1, // ZFS
    0x794c_7630, // overlayfs
    0xca45_1a4e, // bcachefs
    0x3153_464a, // JFS
];

/// May a look at a file system of this type wait, so that it has no place in an
/// event loop? Whatever is not known to be local may: Lustre, NFS, GPFS, BeeGFS,
/// CephFS, FUSE, and those that are not invented yet.
pub fn may_wait(fs_type: i64) -> bool {
    !LOCAL.contains(&fs_type)
}

/// How what was written to a file system gets to its disks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncBy {
    /// It has none: all of it is in memory.
    Nothing,
    /// `syncfs` brings everything there.
    Whole,
    /// `fsync` of each file and of each directory. What `syncfs` does is not known: FUSE does not hand it on.
    Each,
}

/// From this number of files on, one `syncfs` brings them to the disks sooner than an `fsync` of each, where it is trusted.
pub const SYNCED_TOGETHER_FROM: usize = 8;

/// File systems in memory, by `statfs.f_type`.
pub(crate) const IN_MEMORY: [i64; 2] = [
    0x0102_1994, // tmpfs
    0x8584_58f6, // ramfs
];

/// File systems whose `syncfs` is known to reach the disks, by `statfs.f_type`. Being local is not enough.
const SYNCED_AS_A_WHOLE: [i64; 3] = [
    0xef53,      // ext2, ext3, ext4
    0x5846_5342, // XFS
    0x9123_683e, // Btrfs
];

/// File systems that give a file another time of change when a program begins to write to it through a mapping, by `statfs.f_type`.
const STAMP_MAPPED_WRITES: [i64; 4] = [
    0xef53,      // ext2, ext3, ext4
    0x5846_5342, // XFS
    0x9123_683e, // Btrfs
    0xf2f5_2010, // F2FS
];

/// Does a write through a mapping show in the times of the file, on a file system of this type? On tmpfs a page that was read
/// before may be written without a word.
pub fn stamps_mapped_writes(fs_type: i64) -> bool {
    STAMP_MAPPED_WRITES.contains(&fs_type)
}

/// Has a directory one inode number as long as it is there, on a file system of this type?
pub fn keeps_numbers(fs_type: i64) -> bool {
    !RENUMBERING.contains(&fs_type)
}

/// File systems that may give a directory another number, or another time of birth, when the kernel has forgotten it or something in it
/// changes, by `statfs.f_type`.
const RENUMBERING: [i64; 6] = [
    FUSE,
    0xff53_4d42, // CIFS, without the numbers of its server
    0xfe53_4d42, // the same, as SMB 2 and 3
    0x4d44,      // FAT
    0x2011_bab0, // exFAT
    0x794c_7630, // overlayfs: what is changed is copied to another layer
];

/// FUSE, by `statfs.f_type`.
pub(crate) const FUSE: i64 = 0x6573_5546;

/// How what is written to a file system of this type gets to its disks.
pub fn sync_by(fs_type: i64) -> SyncBy {
    match fs_type {
        t if IN_MEMORY.contains(&t) => SyncBy::Nothing,
        t if SYNCED_AS_A_WHOLE.contains(&t) => SyncBy::Whole,
        _ => SyncBy::Each,
    }
}

impl SyncBy {
    /// What a report says was done.
    pub fn in_words(self) -> &'static str {
        match self {
            SyncBy::Nothing => "nothing to sync: the PFS is in memory",
            SyncBy::Whole => "syncfs",
            SyncBy::Each => "fsync of each file and directory",
        }
    }
}

/// Copies that a drain makes at a time if nobody says otherwise. On this machine more do not pay; where each call waits for
/// another machine they wait together.
pub fn workers(fs_type: i64) -> u32 {
    if may_wait(fs_type) { 32 } else { 4 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_file_systems_are_fast_and_all_others_may_wait() {
        assert!(!may_wait(0xef53));
        assert!(!may_wait(0x0102_1994));
        for remote in [0x0bd0_0bd0, 0x6969, 0x4750_4653, FUSE, 0x1983_0326, 1] {
            assert!(may_wait(remote), "{remote:#x}");
        }
    }

    #[test]
    fn a_syncfs_is_trusted_only_where_it_is_known_to_reach_the_disks() {
        assert_eq!(sync_by(0xef53), SyncBy::Whole);
        assert_eq!(sync_by(0x5846_5342), SyncBy::Whole);
        assert_eq!(sync_by(0x0102_1994), SyncBy::Nothing);
        // Lustre, NFS, FUSE, overlayfs and what is not known.
        for other in [0x0bd0_0bd0, 0x6969, FUSE, 0x794c_7630, 1] {
            assert_eq!(sync_by(other), SyncBy::Each, "{other:#x}");
        }
    }

    #[test]
    fn numbers_of_directories_are_relied_on_but_where_they_are_known_to_change() {
        for kept in [0xef53, 0x0102_1994, 0x0bd0_0bd0, 0x6969, 1] {
            assert!(keeps_numbers(kept), "{kept:#x}");
        }
        for renumbered in [
            FUSE,
            0xff53_4d42,
            0xfe53_4d42,
            0x4d44,
            0x2011_bab0,
            0x794c_7630,
        ] {
            assert!(!keeps_numbers(renumbered), "{renumbered:#x}");
        }
    }
}
