//! The two file systems that make one buffer.

use crate::Attr;

/// Device numbers (`st_dev`).
///
/// A directory in the storage shows the device of the PFS: programs that stay on one file system (`tar --one-file-system`,
/// `cp -x`, `rsync -x`, `find -xdev`) look at those of directories, and would leave out what is below it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Devices {
    /// That of the storage.
    pub storage: u64,
    /// That of the root of the buffer, on the PFS.
    pub pfs: u64,
}

/// Tells the inode number of a directory in the storage from those of the PFS. All numbers below it stay whole numbers in
/// floating point, which is what some languages have for them.
const APART: u64 = 1 << 52;
/// The bits of a mode that tell the type (`S_IFMT`), and a directory (`S_IFDIR`).
const TYPE: u32 = 0o170_000;
const DIRECTORY: u32 = 0o040_000;

impl Devices {
    /// Are they two?
    pub fn are_two(&self) -> bool {
        self.storage != self.pfs
    }

    /// The inode number that a directory in the storage shows.
    pub fn inode_of_dir(&self, ino: u64) -> u64 {
        match self.are_two() {
            true => ino ^ APART,
            false => ino,
        }
    }

    /// Device and inode number that an object of the buffer shows.
    pub fn shown(&self, mode: u32, (dev, ino): (u64, u64)) -> (u64, u64) {
        match mode & TYPE == DIRECTORY && dev == self.storage {
            true => (self.pfs, self.inode_of_dir(ino)),
            false => (dev, ino),
        }
    }

    /// The attributes that an object of the buffer shows.
    pub fn shown_of(&self, attr: Attr) -> Attr {
        let (dev, ino) = self.shown(attr.mode, (attr.dev, attr.ino));
        Attr { dev, ino, ..attr }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: u32 = 0o100_644;
    const DIR: u32 = 0o040_755;

    #[test]
    fn a_directory_in_the_storage_shows_the_device_of_the_pfs_and_a_number_of_its_own() {
        let two = Devices { storage: 7, pfs: 9 };
        assert_eq!(two.shown(DIR, (7, 12)), (9, 12 | 1 << 52));
        assert_eq!(two.shown(DIR, (9, 12)), (9, 12));
        assert_eq!(two.shown(FILE, (7, 12)), (7, 12));
        let one = Devices { storage: 7, pfs: 7 };
        assert_eq!(one.shown(DIR, (7, 12)), (7, 12));
    }
}
