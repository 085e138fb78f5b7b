//! A file that is written by storing into memory, where that can't fail.
#![allow(unsafe_code)]

use rustix::fs::fstatfs;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::ptr::NonNull;

/// Types of file systems that write a block where it lies: ext4, XFS, tmpfs. With others a
/// store into a file may need space, and end the process if there is none.
const IN_PLACE: [i64; 3] = [0xef53, 0x5846_5342, 0x0102_1994];

/// A file whose blocks are all there. What is written is in the page cache, and
/// survives the death of the process.
pub(crate) struct Sheet {
    file: File,
    map: Option<Map>,
}

impl Sheet {
    /// The first `bytes` of a file, which has to have as many.
    pub(crate) fn new(file: File, bytes: usize) -> io::Result<Self> {
        #[allow(clippy::unnecessary_cast)] // the type differs between architectures
        let kind = fstatfs(&file)?.f_type as i64;
        let map = match IN_PLACE.contains(&kind) {
            true => Some(Map::new(&file, bytes)?),
            false => None,
        };
        Ok(Sheet { file, map })
    }

    /// Writes `bytes`, which have to fit, from byte `at` on.
    pub(crate) fn write(&mut self, bytes: &[u8], at: usize) -> io::Result<()> {
        match &mut self.map {
            Some(map) => {
                map.bytes_mut()[at..at + bytes.len()].copy_from_slice(bytes);
                Ok(())
            }
            None => self.file.write_all_at(bytes, at as u64),
        }
    }
}

struct Map {
    at: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread, and is only reached through its owner.
unsafe impl Send for Map {}
// SAFETY: as above; shared references give no access at all.
unsafe impl Sync for Map {}

impl Map {
    fn new(file: &File, len: usize) -> io::Result<Self> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let at = unsafe { mmap(std::ptr::null_mut(), len, access, MapFlags::SHARED, file, 0) }?;
        let at = NonNull::new(at.cast()).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Map { at, len })
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: the mapping has this length and lives as long as `self`, whose borrow is
        // exclusive. The file is this process's own: the database beside it is locked.
        unsafe { std::slice::from_raw_parts_mut(self.at.as_ptr(), self.len) }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: the mapping of `new`, which nobody uses any more. It can't fail then.
        let _ = unsafe { munmap(self.at.as_ptr().cast(), self.len) };
    }
}
