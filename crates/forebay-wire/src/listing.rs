//! Directory entries, packed into the body of a reply.
//!
//! One entry: inode number (8 bytes), type as in `d_type` (1), length of the
//! name (1), the name.

use crate::u64_at;

const ENTRY_HEADER_BYTES: usize = 10;

/// One directory entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirEntry<'a> {
    /// Inode number, equal to `st_ino` of the object.
    pub ino: u64,
    /// `DT_*` value of `readdir`.
    pub dtype: u8,
    /// The name, 1 to 255 bytes.
    pub name: &'a [u8],
}

/// Packs entries into a buffer until it is full.
pub struct DirEntryWriter<'b> {
    out: &'b mut [u8],
    at: usize,
}

impl<'b> DirEntryWriter<'b> {
    /// Starts at the beginning of `out`.
    pub fn new(out: &'b mut [u8]) -> Self {
        DirEntryWriter { out, at: 0 }
    }

    /// Adds an entry. False if there is no room for it, or its name is longer than 255 bytes.
    pub fn push(&mut self, entry: &DirEntry<'_>) -> bool {
        debug_assert!(!entry.name.is_empty(), "an entry without a name");
        let Ok(len) = u8::try_from(entry.name.len()) else {
            return false;
        };
        let end = self.at + ENTRY_HEADER_BYTES + usize::from(len);
        if end > self.out.len() {
            return false;
        }
        self.out[self.at..self.at + 8].copy_from_slice(&entry.ino.to_le_bytes());
        self.out[self.at + 8] = entry.dtype;
        self.out[self.at + 9] = len;
        self.out[self.at + ENTRY_HEADER_BYTES..end].copy_from_slice(entry.name);
        self.at = end;
        true
    }

    /// Bytes written so far.
    pub fn len(&self) -> usize {
        self.at
    }

    /// True if no entry was written yet.
    pub fn is_empty(&self) -> bool {
        self.at == 0
    }
}

/// Iterates over packed entries. It stops at the end, or at the first damaged entry.
pub struct DirEntries<'a> {
    rest: &'a [u8],
}

impl<'a> DirEntries<'a> {
    /// Reads the body of a [`crate::ReplyKind::Entries`] reply.
    pub fn new(body: &'a [u8]) -> Self {
        DirEntries { rest: body }
    }
}

impl<'a> Iterator for DirEntries<'a> {
    type Item = DirEntry<'a>;

    fn next(&mut self) -> Option<DirEntry<'a>> {
        if self.rest.len() < ENTRY_HEADER_BYTES {
            return None;
        }
        let end = ENTRY_HEADER_BYTES + usize::from(self.rest[9]);
        if self.rest.len() < end || end == ENTRY_HEADER_BYTES {
            return None;
        }
        let entry = DirEntry {
            ino: u64_at(self.rest, 0),
            dtype: self.rest[8],
            name: &self.rest[ENTRY_HEADER_BYTES..end],
        };
        self.rest = &self.rest[end..];
        Some(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "an entry without a name")]
    fn an_entry_without_a_name_is_a_broken_assertion() {
        let nameless = DirEntry {
            ino: 1,
            dtype: 8,
            name: b"",
        };
        DirEntryWriter::new(&mut [0; 30]).push(&nameless);
    }

    #[test]
    fn an_entry_without_a_name_ends_a_listing() {
        let bytes = [0; 2 * ENTRY_HEADER_BYTES];
        assert_eq!(DirEntries::new(&bytes).next(), None);
    }

    #[test]
    fn a_full_buffer_refuses_the_entry_and_keeps_the_others() {
        let mut buffer = [0; 30];
        let mut w = DirEntryWriter::new(&mut buffer);
        let a = DirEntry {
            ino: 1,
            dtype: 8,
            name: b"abc",
        };
        let b = DirEntry {
            ino: 2,
            dtype: 4,
            name: b"defgh",
        };
        assert!(w.push(&a));
        assert!(w.push(&b));
        assert!(!w.push(&b));
        let n = w.len();
        let mut it = DirEntries::new(&buffer[..n]);
        assert_eq!(it.next(), Some(a));
        assert_eq!(it.next(), Some(b));
        assert_eq!(it.next(), None);
    }
}
