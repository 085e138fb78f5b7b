//! The bridge's side of lanes: memory that it shares with one client each, beside
//! the socket. The states of a lane are `forebay-wire`'s; here are the mappings.
#![allow(unsafe_code)]

use crate::limits::LANES;
use forebay_core::facts::Cred;
use forebay_sys::{Errno, Sys};
use forebay_wire::{
    Attention, LANE_BYTES, LANE_REPLY_BYTES, LANE_REQUEST_BYTES, LanePage, LaneWords,
    REPLY_HEADER_BYTES,
};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A mapped page. The memory behind it can't shrink: it is sealed.
struct Mapping(NonNull<LanePage>);

// SAFETY: the words are atomics; the rest is touched only by the thread that owns the lane.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// New shared memory and its descriptor.
    fn new() -> Sys<(Self, OwnedFd)> {
        // SAFETY: a C string and flags; the result is checked and then owned.
        let memory = unsafe {
            let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
            let fd = libc::memfd_create(c"forebay-lane".as_ptr(), flags);
            if fd < 0 {
                return Err(Errno::last());
            }
            OwnedFd::from_raw_fd(fd)
        };
        let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
        // SAFETY: plain integers. What is allocated now can't be missing at an access later.
        let made = unsafe {
            libc::fallocate(memory.as_raw_fd(), 0, 0, LANE_BYTES as i64) == 0
                && libc::fcntl(memory.as_raw_fd(), libc::F_ADD_SEALS, seals) == 0
        };
        if !made {
            return Err(Errno::last());
        }
        // SAFETY: asks for a new mapping.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                LANE_BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_POPULATE,
                memory.as_raw_fd(),
                0,
            )
        };
        match NonNull::new(at.cast()) {
            Some(page) if at != libc::MAP_FAILED => Ok((Mapping(page), memory)),
            _ => Err(Errno::last()),
        }
    }

    fn page(&self) -> &LanePage {
        // SAFETY: mapped until the value goes; zeroes, and whatever a client writes, are valid.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // A client that still waits here turns to the socket, and finds it closed. And nobody will tell him any more
        // when a file is let go.
        let _ = self.page().words.leave();
        self.page().words.forbid_late_opens();
        // SAFETY: nobody refers to the page any more.
        unsafe { libc::munmap(self.0.as_ptr().cast(), LANE_BYTES) };
    }
}

/// The lane of one connection.
pub struct Lane {
    number: u64,
    mapping: Arc<Mapping>,
    all: Arc<Lanes>,
    /// Whoever posts requests here has shown that he is this one.
    pub cred: Arc<Cred>,
    /// How the shard looks here now, if it does.
    attended: Option<Attention>,
    /// The request that is being served came from here.
    pub serving: bool,
}

impl Lane {
    /// Its words.
    pub fn words(&self) -> &LaneWords {
        &self.mapping.page().words
    }

    /// Does the shard look here now?
    pub fn is_attended(&self) -> bool {
        self.attended.is_some()
    }

    /// From now on the shard looks here.
    pub fn attend(&mut self, attention: Attention) {
        if self.attended != Some(attention) {
            self.attended = Some(attention);
            self.words().attend(attention);
        }
    }

    /// From now on it does not. True: a request is there that has to be taken first.
    #[must_use]
    pub fn leave(&mut self) -> bool {
        self.attended = None;
        self.words().leave()
    }

    /// Takes a request, if one is there: a copy of its bytes at the start of `buffer`, and their number.
    pub fn take(&mut self, buffer: &mut [u8]) -> Option<usize> {
        let len = self.words().take()?;
        assert!(len <= LANE_REQUEST_BYTES && len <= buffer.len());
        // SAFETY: both have `len` bytes. The client may write at the same time: then he has sent garbage.
        unsafe {
            std::ptr::copy_nonoverlapping(self.mapping.page().request(), buffer.as_mut_ptr(), len);
        }
        self.serving = true;
        Some(len)
    }

    /// Puts a reply into the lane. False: it has to go by the socket.
    #[must_use]
    pub fn answer(&self, header: &[u8; REPLY_HEADER_BYTES], body: &[u8]) -> bool {
        let len = header.len() + body.len();
        if len > LANE_REPLY_BYTES {
            return false;
        }
        let to = self.mapping.page().reply();
        // SAFETY: the reply has LANE_REPLY_BYTES.
        unsafe {
            std::ptr::copy_nonoverlapping(header.as_ptr(), to, header.len());
            std::ptr::copy_nonoverlapping(body.as_ptr(), to.add(header.len()), body.len());
        }
        self.words().answer(len)
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.all.by_number.lock().remove(&self.number);
    }
}

/// All lanes of a bridge.
#[derive(Default)]
pub struct Lanes {
    by_number: Mutex<HashMap<u64, Arc<Mapping>>>,
    next: AtomicU64,
}

impl Lanes {
    /// A new lane for requests of `cred`, and the memory to pass to him.
    ///
    /// # Errors
    /// ENOSPC: there are as many as there may be; else no memory or no descriptor.
    pub fn open(self: &Arc<Self>, cred: Arc<Cred>) -> Sys<(Lane, OwnedFd)> {
        let mut by_number = self.by_number.lock();
        if by_number.len() >= LANES {
            return Err(Errno(libc::ENOSPC));
        }
        let (mapping, memory) = Mapping::new()?;
        let mapping = Arc::new(mapping);
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        by_number.insert(number, mapping.clone());
        let lane = Lane {
            number,
            mapping,
            all: self.clone(),
            cred,
            attended: None,
            serving: false,
        };
        Ok((lane, memory))
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.by_number.lock().len() as u64
    }

    /// See [`LaneWords::forbid_late_opens`].
    pub fn forbid_late_opens(&self) {
        for mapping in self.by_number.lock().values() {
            mapping.page().words.forbid_late_opens();
        }
    }
}
