//! The bridge's side of lanes: memory that it shares with one client each, beside
//! the socket. The states of a lane are `forebay-wire`'s, the memory is `forebay-sys`'s.

use crate::limits::LANES;
use forebay_core::facts::Cred;
use forebay_core::share::may_take;
use forebay_sys::{Errno, LaneMemory, LaneView, Sys};
use forebay_wire::{Attention, LANE_REPLY_BYTES, LaneWords, REPLY_HEADER_BYTES};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The lane of one connection.
pub struct Lane {
    number: u64,
    memory: LaneMemory,
    all: Arc<Lanes>,
    /// The client that posts here has proved that it has these credentials.
    pub cred: Arc<Cred>,
    /// How the shard looks here now, if it does.
    attended: Option<Attention>,
    /// The request that is being served came from here.
    pub serving: bool,
}

impl Lane {
    /// Its words.
    pub fn words(&self) -> &LaneWords {
        self.memory.words()
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
        self.memory.read_request(&mut buffer[..len]);
        self.serving = true;
        Some(len)
    }

    /// Puts a reply into the lane. False: it has to go by the socket.
    #[must_use]
    pub fn answer(&mut self, header: &[u8; REPLY_HEADER_BYTES], body: &[u8]) -> bool {
        let len = header.len() + body.len();
        if len > LANE_REPLY_BYTES {
            return false;
        }
        self.memory.write_reply(header, body);
        self.words().answer(len)
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.all.by_number.lock().remove(&self.number);
        // A client that still waits here turns to the socket, and finds it closed. The lane is not told any more when late
        // opens are forbidden, so they are forbidden now.
        let _ = self.words().leave();
        self.words().forbid_late_opens();
    }
}

/// All lanes of a bridge.
#[derive(Default)]
pub struct Lanes {
    /// Each with its user.
    by_number: Mutex<HashMap<u64, (u32, LaneView)>>,
    next: AtomicU64,
}

impl Lanes {
    /// A new lane for requests of `cred`, and the memory to pass to the client.
    ///
    /// # Errors
    /// ENOSPC: there are as many as there may be, or as this user may have beside those of `owner`; else no memory or no
    /// descriptor.
    pub fn open(self: &Arc<Self>, cred: Arc<Cred>, owner: u32) -> Sys<(Lane, OwnedFd)> {
        let mut by_number = self.by_number.lock();
        let own = by_number.values().filter(|(uid, _)| *uid == cred.uid);
        if !may_take(own.count(), by_number.len(), LANES, cred.uid == owner) {
            return Err(Errno::NOSPC);
        }
        let (memory, descriptor) = LaneMemory::new()?;
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        by_number.insert(number, (cred.uid, memory.view()));
        let lane = Lane {
            number,
            memory,
            all: self.clone(),
            cred,
            attended: None,
            serving: false,
        };
        Ok((lane, descriptor))
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.by_number.lock().len() as u64
    }

    /// See [`LaneWords::forbid_late_opens`].
    pub fn forbid_late_opens(&self) {
        for (_, lane) in self.by_number.lock().values() {
            lane.words().forbid_late_opens();
        }
    }
}
