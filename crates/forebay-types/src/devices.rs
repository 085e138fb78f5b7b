//! The two file systems that make one buffer.

use crate::Attr;

/// Device numbers (`st_dev`).
///
/// What lies in the storage shows the device of the PFS. Programs that stay on one file system (`tar --one-file-system`,
/// `cp -x`, `rsync -x`, `find -xdev`, `du -x`) would leave it out otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Devices {
    /// That of the storage.
    pub storage: u64,
    /// That of the root of the buffer, on the PFS.
    pub pfs: u64,
}

/// Tells the inode numbers of the storage from those of the PFS. All numbers below it stay whole numbers in floating
/// point, which is what some languages have for them.
const APART: u64 = 1 << 52;

impl Devices {
    /// Are they two?
    pub fn are_two(&self) -> bool {
        self.storage != self.pfs
    }

    /// The inode number that an object in the storage shows.
    pub fn inode_of_stored(&self, ino: u64) -> u64 {
        match self.are_two() {
            true => ino ^ APART,
            false => ino,
        }
    }

    /// Device and inode number that an object of the buffer shows.
    pub fn shown(&self, (dev, ino): (u64, u64)) -> (u64, u64) {
        match dev == self.storage {
            true => (self.pfs, self.inode_of_stored(ino)),
            false => (dev, ino),
        }
    }

    /// The attributes that an object of the buffer shows.
    pub fn shown_of(&self, attr: Attr) -> Attr {
        let (dev, ino) = match attr.copy_of {
            0 => self.shown((attr.dev, attr.ino)),
            original => (self.pfs, original),
        };
        Attr { dev, ino, ..attr }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_in_the_storage_shows_the_device_of_the_pfs_and_a_number_of_its_own() {
        let two = Devices { storage: 7, pfs: 9 };
        assert_eq!(two.shown((7, 12)), (9, 12 | 1 << 52));
        assert_eq!(two.shown((9, 12)), (9, 12));
        assert_eq!(two.shown((8, 12)), (8, 12));
        assert_eq!(two.inode_of_stored(12), 12 | 1 << 52);
        let one = Devices { storage: 7, pfs: 7 };
        assert_eq!(one.shown((7, 12)), (7, 12));
        assert_eq!(one.inode_of_stored(12), 12);
    }

    #[test]
    fn a_copy_shows_the_number_of_its_original() {
        let attr = Attr {
            dev: 7,
            ino: 12,
            copy_of: 5,
            ..Attr::default()
        };
        for pfs in [9, 7] {
            let shown = Devices { storage: 7, pfs }.shown_of(attr);
            assert_eq!((shown.dev, shown.ino), (pfs, 5));
        }
    }
}
