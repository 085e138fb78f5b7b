//! Reads the entries of directories.

use crate::Sys;
use rustix::fs::{FileType, RawDir};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;

/// An entry of a directory, as the kernel reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawEntry {
    /// Inode number.
    pub ino: u64,
    /// `DT_*` value.
    pub dtype: u8,
    /// Name.
    pub name: Vec<u8>,
}

/// Bytes of entries that one call fetches.
const BATCH_BYTES: usize = 32 << 10;

/// Appends further entries of an open directory to `out`, without "." and "..". False at the end.
///
/// # Errors
/// Those of `getdents64`.
pub fn read_dir(fd: BorrowedFd<'_>, out: &mut Vec<RawEntry>) -> Sys<bool> {
    let mut room = [MaybeUninit::<u8>::uninit(); BATCH_BYTES];
    let mut batch = RawDir::new(fd, &mut room);
    loop {
        let Some(entry) = batch.next() else {
            return Ok(false);
        };
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            out.push(RawEntry {
                ino: entry.ino(),
                dtype: dtype(entry.file_type()),
                name: name.to_vec(),
            });
        }
        if batch.is_buffer_empty() {
            return Ok(true);
        }
    }
}

/// The `DT_*` value of a file type: the type bits of a mode, shifted down.
fn dtype(kind: FileType) -> u8 {
    match kind {
        FileType::Unknown => libc::DT_UNKNOWN,
        known => (known.as_raw_mode() >> 12) as u8,
    }
}
