//! Memory that this process shares with others, or with a file.
//!
//! `rustix` makes and ends a mapping. This module makes sure that the bytes are touched only while the mapping exists,
//! and only in ways that allow others to change them at any time.

use crate::{Errno, Sys};
use rustix::fs::fstat;
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// A shared mapping that can be read and written.
#[derive(Debug)]
pub(super) struct Mapping {
    pub(super) at: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread. The types around it control the access to its bytes.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `bytes` of a file. The file must be at least that long: an access beyond its end ends the process.
    pub(super) fn new(file: BorrowedFd<'_>, bytes: usize, flags: MapFlags) -> Sys<Self> {
        if fstat(file)?.st_size < i64::try_from(bytes).map_err(|_| Errno::INVAL)? {
            return Err(Errno::INVAL);
        }
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: this makes a new mapping, at an address that the kernel chooses.
        let at = unsafe { mmap(std::ptr::null_mut(), bytes, access, flags, file, 0) }?;
        let at = NonNull::new(at.cast()).ok_or(Errno::NOMEM)?;
        Ok(Mapping { at, bytes })
    }

    /// Memory of this process alone, all zero.
    fn anonymous(bytes: usize) -> Sys<Self> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: this makes a new mapping, at an address that the kernel chooses.
        let at = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, access, MapFlags::PRIVATE) }?;
        let at = NonNull::new(at.cast()).ok_or(Errno::NOMEM)?;
        Ok(Mapping { at, bytes })
    }
}

impl Mapping {
    /// The whole words of the mapping.
    fn words(&self) -> &[AtomicU64] {
        // SAFETY: these bytes are of the mapping, which is aligned to a page and lives as long as `self`.
        unsafe {
            std::slice::from_raw_parts(self.at.as_ptr().cast(), self.bytes / size_of::<u64>())
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this ends the mapping that `new` made, and no reference to it is left. It cannot fail then.
        let _ = unsafe { munmap(self.at.as_ptr().cast(), self.bytes) };
    }
}

/// Words in a mapped file. A stored value is in the page cache at once, and outlives the process.
#[derive(Debug)]
pub struct MappedWords(Mapping);

impl MappedWords {
    /// Maps the first `count` words of a file. The file must not become shorter while the value lives: an access beyond
    /// its end ends the process.
    ///
    /// # Errors
    /// EINVAL if the file is shorter, or `count` is 0; else those of `mmap`.
    pub fn new(file: BorrowedFd<'_>, count: usize) -> Sys<Self> {
        let bytes = count.checked_mul(size_of::<u64>()).ok_or(Errno::INVAL)?;
        Mapping::new(file, bytes, MapFlags::SHARED).map(MappedWords)
    }

    /// The words.
    pub fn words(&self) -> &[AtomicU64] {
        self.0.words()
    }
}

/// Words of this process alone, zero until something else is stored. Pages that are never stored to take no memory, so that
/// a sparse file may be read into them.
#[derive(Debug)]
pub struct SparseWords(Mapping);

impl SparseWords {
    /// So many words.
    ///
    /// # Errors
    /// EINVAL if `count` is 0; else those of `mmap`.
    pub fn new(count: usize) -> Sys<Self> {
        let bytes = count.checked_mul(size_of::<u64>()).ok_or(Errno::INVAL)?;
        Mapping::anonymous(bytes).map(SparseWords)
    }

    /// The words.
    pub fn words(&self) -> &[AtomicU64] {
        self.0.words()
    }
}

/// A mapped file that only its owner writes, and nobody reads through the mapping.
#[derive(Debug)]
pub struct MappedBytes(Mapping);

impl MappedBytes {
    /// Maps the first `bytes` of a file. The file must not become shorter while the value lives: an access beyond its
    /// end ends the process.
    ///
    /// # Errors
    /// EINVAL if the file is shorter, or `bytes` is 0; else those of `mmap`.
    pub fn new(file: BorrowedFd<'_>, bytes: usize) -> Sys<Self> {
        Mapping::new(file, bytes, MapFlags::SHARED).map(MappedBytes)
    }

    /// Writes `bytes` from byte `at` on.
    ///
    /// # Panics
    /// If they do not fit the mapping.
    pub fn write(&mut self, bytes: &[u8], at: usize) {
        let end = at.checked_add(bytes.len());
        assert!(
            end.is_some_and(|end| end <= self.0.bytes),
            "bytes beyond the mapped part of a file"
        );
        // SAFETY: both sides have `bytes.len()` bytes. They cannot overlap, because the mapping never lends out a
        // slice.
        unsafe {
            self.0
                .at
                .add(at)
                .copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::fd::AsFd;
    use std::sync::atomic::Ordering;

    #[test]
    fn what_is_stored_in_a_mapped_file_is_in_the_file_at_once() {
        let mut file = tempfile::tempfile().unwrap();
        file.set_len(32).unwrap();
        let words = MappedWords::new(file.as_fd(), 4).unwrap();
        assert_eq!(words.words().len(), 4);
        words.words()[1].store(u64::from_ne_bytes(*b"abcdefgh"), Ordering::Relaxed);
        let mut bytes = MappedBytes::new(file.as_fd(), 32).unwrap();
        bytes.write(b"ijkl", 28);
        let mut all = Vec::new();
        file.read_to_end(&mut all).unwrap();
        assert_eq!(&all[..8], [0; 8]);
        assert_eq!(&all[8..16], b"abcdefgh");
        assert_eq!(&all[28..], b"ijkl");
    }

    #[test]
    fn sparse_words_are_zero_until_something_is_stored() {
        let words = SparseWords::new(1 << 20).unwrap();
        assert_eq!(words.words().len(), 1 << 20);
        assert_eq!(words.words()[(1 << 20) - 1].load(Ordering::Relaxed), 0);
        words.words()[7].store(9, Ordering::Relaxed);
        assert_eq!(words.words()[7].load(Ordering::Relaxed), 9);
        assert_eq!(SparseWords::new(0).map(drop), Err(Errno::INVAL));
    }

    #[test]
    fn a_file_that_is_too_short_is_not_mapped() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(31).unwrap();
        let words = MappedWords::new(file.as_fd(), 4).map(drop);
        assert_eq!(words, Err(Errno::INVAL));
        let huge = MappedWords::new(file.as_fd(), usize::MAX).map(drop);
        assert_eq!(huge, Err(Errno::INVAL));
        let bytes = MappedBytes::new(file.as_fd(), 32).map(drop);
        assert_eq!(bytes, Err(Errno::INVAL));
        let none = MappedBytes::new(file.as_fd(), 0).map(drop);
        assert_eq!(none, Err(Errno::INVAL));
    }
}
