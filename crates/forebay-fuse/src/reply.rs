//! Answers to the kernel, as bytes. `linux/fuse.h` describes the layout.

use crate::protocol::{MAJOR, MAX_WRITE_BYTES};
use forebay_types::{Attr, Timestamp};
use rustix::fs::{major, minor};

/// Size of the fixed part of an answer in bytes.
const HEADER_BYTES: usize = 16;
/// Size of a page, in which the kernel counts the length of a request.
const PAGE_BYTES: usize = 4096;

/// Flags of an open file.
pub mod opened {
    /// The page cache is not used.
    pub const DIRECT_IO: u32 = 1 << 0;
    /// Nobody need be told when a descriptor is closed.
    pub const NO_FLUSH: u32 = 1 << 5;
    /// Writes of one file may overlap.
    pub const PARALLEL_DIRECT_WRITES: u32 = 1 << 6;
    /// The kernel reads and writes the backing file itself.
    pub const PASSTHROUGH: u32 = 1 << 7;
}

/// An answer that is being written.
pub struct Reply(Vec<u8>);

impl Reply {
    /// An answer without a body, so far.
    pub fn new() -> Self {
        Reply(vec![0; HEADER_BYTES])
    }

    /// An answer with this body.
    pub fn of(body: &[u8]) -> Self {
        let mut reply = Reply::new();
        reply.0.extend_from_slice(body);
        reply
    }

    /// An answer with room for a body of `len` bytes, which `fill` writes; it returns how many there are.
    ///
    /// # Errors
    /// That of `fill`.
    pub fn filled<E>(
        len: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Result<Self, E> {
        let mut bytes = vec![0; HEADER_BYTES + len];
        let filled = fill(&mut bytes[HEADER_BYTES..])?;
        bytes.truncate(HEADER_BYTES + filled);
        Ok(Reply(bytes))
    }

    fn u32(mut self, word: u32) -> Self {
        self.0.extend(word.to_ne_bytes());
        self
    }

    fn u64(mut self, word: u64) -> Self {
        self.0.extend(word.to_ne_bytes());
        self
    }

    /// The message: the answer to request `unique`.
    pub fn message(mut self, unique: u64) -> Vec<u8> {
        let len = self.0.len() as u32;
        self.0[0..4].copy_from_slice(&len.to_ne_bytes());
        self.0[8..16].copy_from_slice(&unique.to_ne_bytes());
        self.0
    }

    /// The message that request `unique` has failed with this errno.
    pub fn failed(unique: u64, errno: i32) -> Vec<u8> {
        let mut message = Reply::new().message(unique);
        message[4..8].copy_from_slice(&(-errno).to_ne_bytes());
        message
    }

    fn attr(self, attr: &Attr) -> Self {
        let seconds = |t: Timestamp| t.sec as u64;
        // Nobody counts the directories in one, whose names lie here and there. One name tells programs that it is so.
        let names = match attr.is_dir() {
            true => attr.nlink.min(1),
            false => attr.nlink,
        };
        self.u64(attr.ino)
            .u64(attr.size)
            .u64(attr.blocks)
            .u64(seconds(attr.atime))
            .u64(seconds(attr.mtime))
            .u64(seconds(attr.ctime))
            .u32(attr.atime.nsec)
            .u32(attr.mtime.nsec)
            .u32(attr.ctime.nsec)
            .u32(attr.mode)
            .u32(names)
            .u32(attr.uid)
            .u32(attr.gid)
            .u32(device_of(attr.rdev))
            .u32(attr.blksize)
            .u32(0)
    }

    /// Attributes, which are valid for no time.
    pub fn attributes(attr: &Attr) -> Self {
        Reply::new().u64(0).u64(0).attr(attr)
    }

    /// An entry of a directory: its node, and attributes. Both are valid for no time.
    pub fn entry(node: u64, attr: &Attr) -> Self {
        let generation = 0;
        Reply::new()
            .u64(node)
            .u64(generation)
            .u64(0)
            .u64(0)
            .u64(0)
            .attr(attr)
    }

    /// Adds an open file: its handle, flags ([`opened`]), and the number of its backing file, 0 for none.
    pub fn open(self, handle: u64, flags: u32, backing: u32) -> Self {
        self.u64(handle).u32(flags).u32(backing)
    }

    /// How many bytes were written, or a value has.
    pub fn size(size: usize) -> Self {
        Reply::new().u32(size as u32).u32(0)
    }

    /// A place in a file.
    pub fn offset(offset: u64) -> Self {
        Reply::new().u64(offset)
    }

    /// The answer to the first request.
    pub fn init(minor: u32, readahead: u32, capabilities: u64, stacked: u32) -> Self {
        // Half of the requests that may wait for an answer, as libfuse has it.
        let (background, congestion) = (64u32, 48u32);
        Reply::new()
            .u32(MAJOR)
            .u32(minor)
            .u32(readahead)
            .u32(capabilities as u32)
            .u32(background | congestion << 16)
            .u32(MAX_WRITE_BYTES as u32)
            .u32(1)
            .u32((MAX_WRITE_BYTES / PAGE_BYTES) as u32)
            .u32((capabilities >> 32) as u32)
            .u32(stacked)
            .u64(0)
            .u64(0)
            .u64(0)
    }

    /// The space of a file system.
    pub fn space(s: &rustix::fs::StatFs) -> Self {
        #[allow(clippy::unnecessary_cast)] // the types differ between architectures
        let (block, name, fragment) = (s.f_bsize as u32, s.f_namelen as u32, s.f_frsize as u32);
        Reply::new()
            .u64(s.f_blocks)
            .u64(s.f_bfree)
            .u64(s.f_bavail)
            .u64(s.f_files)
            .u64(s.f_ffree)
            .u32(block)
            .u32(name)
            .u32(fragment)
            .u32(0)
            .u64(0)
            .u64(0)
            .u64(0)
    }

    /// Adds an entry of a listing, unless the body would grow beyond `room` bytes. `next` is the place of the entry after it.
    pub fn push_entry(&mut self, room: usize, ino: u64, next: u64, kind: u8, name: &[u8]) -> bool {
        let len = (24 + name.len()).next_multiple_of(8);
        if self.0.len() - HEADER_BYTES + len > room {
            return false;
        }
        let end = self.0.len() + len;
        self.0.extend(ino.to_ne_bytes());
        self.0.extend(next.to_ne_bytes());
        self.0.extend((name.len() as u32).to_ne_bytes());
        self.0.extend(u32::from(kind).to_ne_bytes());
        self.0.extend(name);
        self.0.resize(end, 0);
        true
    }
}

/// A device number in the 32 bits of the protocol (`new_encode_dev` of the kernel).
fn device_of(number: u64) -> u32 {
    let (major, minor) = (major(number), minor(number));
    minor & 0xff | major << 8 | (minor & !0xff) << 12
}

/// The device number that 32 bits of the protocol stand for.
pub fn device_from(number: u32) -> u64 {
    rustix::fs::makedev(number >> 8 & 0xfff, number & 0xff | number >> 12 & 0xfff00)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_have_the_lengths_of_the_kernels_structures() {
        let attr = Attr::default();
        let len = |reply: Reply| reply.message(1).len() - HEADER_BYTES;
        assert_eq!(len(Reply::attributes(&attr)), 104);
        assert_eq!(len(Reply::entry(2, &attr)), 128);
        assert_eq!(len(Reply::new().open(1, 0, 0)), 16);
        assert_eq!(len(Reply::init(40, 0, 0, 1)), 64);
        assert_eq!(len(Reply::size(3)), 8);
        let space = rustix::fs::statfs("/").unwrap();
        assert_eq!(len(Reply::space(&space)), 80);
    }

    #[test]
    fn a_failure_is_a_negative_errno() {
        let message = Reply::failed(9, libc::ENOENT);
        assert_eq!(message[..4], 16u32.to_ne_bytes());
        assert_eq!(message[4..8], (-2i32).to_ne_bytes());
        assert_eq!(message[8..], 9u64.to_ne_bytes());
    }

    #[test]
    fn a_listing_ends_where_there_is_no_room() {
        let mut reply = Reply::new();
        assert!(reply.push_entry(64, 1, 1, 4, b"name"));
        assert!(reply.push_entry(64, 2, 2, 8, b"12345678"));
        assert!(!reply.push_entry(64, 3, 3, 8, b"x"));
        assert_eq!(reply.message(1).len(), HEADER_BYTES + 64);
    }

    #[test]
    fn device_numbers_survive_the_protocol() {
        for number in [(1, 3), (259, 70_000), (4095, 255)] {
            let number = rustix::fs::makedev(number.0, number.1);
            assert_eq!(device_from(device_of(number)), number);
        }
    }
}
