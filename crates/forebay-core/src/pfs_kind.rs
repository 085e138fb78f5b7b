//! Which kinds of file system may make a caller wait.

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_file_systems_are_fast_and_all_others_may_wait() {
        assert!(!may_wait(0xef53));
        assert!(!may_wait(0x0102_1994));
        for remote in [
            0x0bd0_0bd0,
            0x6969,
            0x4750_4653,
            0x6573_5546,
            0x1983_0326,
            1,
        ] {
            assert!(may_wait(remote), "{remote:#x}");
        }
    }
}
