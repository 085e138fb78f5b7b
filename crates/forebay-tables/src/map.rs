//! A file that is written by storing into memory, where that can't fail.

use forebay_sys::{MappedBytes, writes_in_place};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

/// A file whose blocks are all there. What is written is in the page cache, and
/// survives the death of the process.
pub(crate) struct Sheet {
    file: File,
    map: Option<MappedBytes>,
}

impl Sheet {
    /// The first `bytes` of a file, which has to have as many.
    pub(crate) fn new(file: File, bytes: usize) -> io::Result<Self> {
        let map = match writes_in_place(file.as_fd())? {
            true => Some(MappedBytes::new(file.as_fd(), bytes)?),
            false => None,
        };
        Ok(Sheet { file, map })
    }

    /// Writes `bytes`, which have to fit, from byte `at` on.
    pub(crate) fn write(&mut self, bytes: &[u8], at: usize) -> io::Result<()> {
        match &mut self.map {
            Some(map) => {
                map.write(bytes, at);
                Ok(())
            }
            None => self.file.write_all_at(bytes, at as u64),
        }
    }
}
