//! The bridge's side of the memory of a lane: makes it, maps it, and copies messages. `forebay-wire` defines what lies
//! in it.

use super::memory::Mapping;
use crate::Sys;
use forebay_wire::{LANE_BYTES, LANE_REPLY_BYTES, LANE_REQUEST_BYTES, LanePage, LaneWords};
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, memfd_create};
use rustix::mm::MapFlags;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// The memory of one lane, owned by the thread that serves it.
#[derive(Debug)]
pub struct LaneMemory(LaneView);

/// The words of a lane, for every thread.
#[derive(Debug, Clone)]
pub struct LaneView(Arc<Mapping>);

impl LaneView {
    fn page(&self) -> &LanePage {
        // SAFETY: the memory is mapped until the last view is dropped, and is one aligned page. Zeroes, and anything
        // that a client writes, are valid: the page consists of atomics, and of bytes to which no reference exists.
        unsafe { self.0.at.cast().as_ref() }
    }

    /// The words.
    pub fn words(&self) -> &LaneWords {
        &self.page().words
    }
}

impl LaneMemory {
    /// New memory, and its descriptor for the client. The memory can neither shrink nor grow, and is fully allocated, so
    /// no later access can fail.
    ///
    /// # Errors
    /// No memory, or no descriptor.
    pub fn new() -> Sys<(Self, OwnedFd)> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let memory = memfd_create("forebay-lane", flags)?;
        fallocate(&memory, FallocateFlags::empty(), 0, LANE_BYTES as u64)?;
        fcntl_add_seals(
            &memory,
            SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL,
        )?;
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        let mapping = Mapping::new(memory.as_fd(), LANE_BYTES, flags)?;
        Ok((LaneMemory(LaneView(Arc::new(mapping))), memory))
    }

    /// Its words, for other threads.
    pub fn view(&self) -> LaneView {
        self.0.clone()
    }

    /// Its words.
    pub fn words(&self) -> &LaneWords {
        self.0.words()
    }

    /// Copies the beginning of the request into `into`. If the client writes at the same time, the copy is garbage.
    ///
    /// # Panics
    /// If `into` is longer than [`LANE_REQUEST_BYTES`].
    pub fn read_request(&mut self, into: &mut [u8]) {
        assert!(into.len() <= LANE_REQUEST_BYTES, "longer than a request");
        // SAFETY: both sides have `into.len()` bytes, and no reference to those of the page exists.
        unsafe {
            std::ptr::copy_nonoverlapping(self.0.page().request(), into.as_mut_ptr(), into.len());
        }
    }

    /// Writes a reply of two parts.
    ///
    /// # Panics
    /// If the reply does not fit the page.
    pub fn write_reply(&mut self, header: &[u8], body: &[u8]) {
        let len = header.len().checked_add(body.len());
        assert!(
            len.is_some_and(|len| len <= LANE_REPLY_BYTES),
            "longer than a reply"
        );
        let to = self.0.page().reply();
        // SAFETY: the reply has room for both parts, and no reference to its bytes exists.
        unsafe {
            std::ptr::copy_nonoverlapping(header.as_ptr(), to, header.len());
            std::ptr::copy_nonoverlapping(body.as_ptr(), to.add(header.len()), body.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Errno;
    use rustix::fs::ftruncate;
    use rustix::io::{pread, pwrite};

    #[test]
    fn both_sides_of_a_lane_see_the_same_bytes_and_words() {
        let (mut lane, memory) = LaneMemory::new().unwrap();
        let offset = |part: *mut u8, lane: &LaneMemory| {
            (part as usize - std::ptr::from_ref(lane.0.page()) as usize) as u64
        };
        let (request, reply) = (lane.0.page().request(), lane.0.page().reply());
        let (request, reply) = (offset(request, &lane), offset(reply, &lane));
        pwrite(&memory, b"request", request).unwrap();
        let mut taken = [0; 7];
        lane.read_request(&mut taken);
        assert_eq!(&taken, b"request");
        lane.write_reply(b"head", b"body");
        let mut given = [0; 8];
        pread(&memory, &mut given, reply).unwrap();
        assert_eq!(&given, b"headbody");
        let view = lane.view();
        view.words().forbid_late_opens();
        assert_eq!(lane.words().late_opens_forbidden(), 1);
        drop(lane);
        assert_eq!(view.words().late_opens_forbidden(), 1);
    }

    #[test]
    fn the_memory_of_a_lane_can_neither_shrink_nor_grow() {
        let (_lane, memory) = LaneMemory::new().unwrap();
        assert_eq!(ftruncate(&memory, 0), Err(Errno::PERM));
        assert_eq!(ftruncate(&memory, 2 * LANE_BYTES as u64), Err(Errno::PERM));
    }

    #[test]
    fn the_longest_request_and_reply_have_room() {
        let (mut lane, _memory) = LaneMemory::new().unwrap();
        lane.read_request(&mut [0; LANE_REQUEST_BYTES]);
        lane.write_reply(&[1; 64], &[2; LANE_REPLY_BYTES - 64]);
    }

    #[test]
    #[should_panic(expected = "longer than a reply")]
    fn what_has_no_room_in_a_lane_is_not_written() {
        let (mut lane, _memory) = LaneMemory::new().unwrap();
        lane.write_reply(&[1; 64], &[2; LANE_REPLY_BYTES - 63]);
    }
}
