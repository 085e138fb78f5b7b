//! A shared mapping of a file. Like [`crate::usage`], the module needs `unsafe`.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr;

/// Unmapped when dropped.
pub struct Mapping {
    start: *mut u8,
    length: usize,
}

impl Mapping {
    /// Maps the first `length` bytes of a file that is open for reading and writing.
    pub fn new(file: &File, length: usize) -> io::Result<Self> {
        // SAFETY: a new mapping at an address that the kernel chooses touches no other memory.
        let start = unsafe {
            libc::mmap(
                ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Mapping {
            start: start.cast(),
            length,
        })
    }

    /// Copies `bytes` to offset `at`.
    pub fn store(&self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= self.length);
        // SAFETY: the range lies inside the mapping, as asserted. The code uses raw pointers only, so
        // no reference exists to memory that another process might change.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.start.add(at), bytes.len()) }
    }

    /// Fills `bytes` from offset `at`.
    pub fn load(&self, at: usize, bytes: &mut [u8]) {
        assert!(at + bytes.len() <= self.length);
        // SAFETY: as in `store`.
        unsafe { ptr::copy_nonoverlapping(self.start.add(at), bytes.as_mut_ptr(), bytes.len()) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `new` made the mapping, and no reference into it exists.
        unsafe { libc::munmap(self.start.cast(), self.length) };
    }
}
