//! A lane: a page that the client of one connection shares with its bridge, so that
//! a request needs no system call.
//!
//! A lane lies beside its socket and never replaces it. It is used while the
//! bridge **attends** to it. The bridge attends as long as it would poll anyway.
//! A client that has waited long enough turns to the socket: it takes back a
//! request that the bridge has not taken, or asks for the answer by the socket.
//! So nobody sleeps on a lane, and the death of either side shows in the socket.
//!
//! One request is under way at a time. Its states:
//!
//! ```text
//!            client: post             bridge: take
//!   Free ───────────────────► Posted ─────────────► Taken ──┬─ answer ──► Answered ─┐
//!    ▲ ◄─── client: turn ─────┘                     │       └─ beside ──► Beside ───┤
//!    │                             client: turn ────▼                               │
//!    ├──────────── bridge: answers by the socket ── Turned                          │
//!    └───────────────────────────────────────────────────────── client: finish ─────┘
//! ```
//!
//! `Answered`: the reply lies in the page. `Beside`: the reply is in the socket,
//! because it carries a descriptor or is too long for the page.
//!
//! The bridge trusts nothing in the page. It copies a request out once, at most
//! [`LANE_REQUEST_BYTES`], before it looks at it. If a client writes nonsense
//! into the words, the bridge answers by the socket.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU32, Ordering, fence};

/// Size of the shared memory in bytes: one page.
pub const LANE_BYTES: usize = 4096;
/// Longest request that travels in a lane, in bytes.
pub const LANE_REQUEST_BYTES: usize = 1600;
/// Longest reply that travels in a lane, in bytes.
pub const LANE_REPLY_BYTES: usize = LANE_BYTES - 2 * LINE_BYTES - LANE_REQUEST_BYTES;

/// Size of a cache line in bytes. Words that different sides write lie on different lines.
const LINE_BYTES: usize = 64;

const FREE: u32 = 0;
const POSTED: u32 = 1;
const TAKEN: u32 = 2;
const ANSWERED: u32 = 3;
const BESIDE: u32 = 4;
const TURNED: u32 = 5;

/// A word in shared memory. It is a trait so that a test can stop a side between any two steps.
pub trait Word {
    /// Reads the value, with acquire ordering.
    fn load(&self) -> u32;
    /// Writes the value, with release ordering.
    fn store(&self, value: u32);
    /// Writes `to` if the value is `from`. True if it did.
    fn exchange(&self, from: u32, to: u32) -> bool;
    /// Keeps stores before it and loads after it in this order, also those of other words.
    fn barrier(&self);
}

impl Word for AtomicU32 {
    #[inline]
    fn load(&self) -> u32 {
        AtomicU32::load(self, Ordering::Acquire)
    }
    #[inline]
    fn store(&self, value: u32) {
        AtomicU32::store(self, value, Ordering::Release);
    }
    #[inline]
    fn exchange(&self, from: u32, to: u32) -> bool {
        self.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }
    #[inline]
    fn barrier(&self) {
        fence(Ordering::SeqCst);
    }
}

/// The words of a lane. All zeroes mean that the lane is free and that the bridge does not attend.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct LaneWords<W = AtomicU32> {
    state: W,
    request_len: W,
    /// Processor on which the client posted, plus one; 0 if the client does not know it.
    client_cpu: W,
    reply_len: W,
    bridge: BridgeWords<W>,
}

/// The words that only the bridge writes.
#[derive(Debug, Default)]
#[repr(C, align(64))]
struct BridgeWords<W> {
    /// An [`Attention`].
    attended: W,
    /// How often the bridge has forbidden late opens; see [`LaneWords::forbid_late_opens`].
    late: W,
}

/// What an attending bridge says about itself, so that the client knows how to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attention {
    /// The processor on which the bridge last ran.
    pub cpu: u32,
    /// More clients run than there are processors, so a waiting client should yield its own.
    pub crowded: bool,
}

/// Processor numbers from this one on all read as this one.
const CPUS: u32 = 1 << 24;

impl Attention {
    fn encode(self) -> u32 {
        self.cpu.min(CPUS) << 2 | u32::from(self.crowded) << 1 | 1
    }

    fn decode(word: u32) -> Option<Self> {
        (word & 1 != 0).then_some(Attention {
            cpu: word >> 2,
            crowded: word & 2 != 0,
        })
    }
}

/// What a client sees of the request it has posted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// No answer yet.
    Nothing,
    /// A reply lies in the lane. Holds its length in bytes, at most [`LANE_REPLY_BYTES`].
    Reply(usize),
    /// The reply is in the socket.
    Beside,
}

/// What a client must do after it has turned away from its lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turned {
    /// The bridge had not taken the request and cannot any more: send it by the socket.
    Withdrawn,
    /// The bridge is at work on the request: wait for the reply on the socket.
    Waiting,
    /// The answer came just now: look again.
    Answered,
}

/// The client's side. One caller at a time: the one that holds the connection.
impl<W: Word> LaneWords<W> {
    /// Frees the lane of a request that its client has abandoned. False if the bridge is still at work on it.
    pub fn clear(&self) -> bool {
        match self.state.load() {
            FREE => return true,
            ANSWERED | BESIDE => self.finish(),
            // If the abandoned request is answered by the socket, the reader of the socket drops the answer.
            _ => return self.turn() != Turned::Waiting && self.clear_answered(),
        }
        true
    }

    fn clear_answered(&self) -> bool {
        if matches!(self.state.load(), ANSWERED | BESIDE) {
            self.finish();
        }
        self.state.load() == FREE
    }

    /// How the bridge attends; `None` if it does not.
    pub fn attention(&self) -> Option<Attention> {
        Attention::decode(self.bridge.attended.load())
    }

    /// Hands over the request that lies in the page: `len` bytes, from a thread on processor `cpu` if that is known.
    /// False if the bridge does not attend: the caller sends the request by the socket.
    pub fn post(&self, len: usize, cpu: Option<u32>) -> bool {
        debug_assert!(len <= LANE_REQUEST_BYTES, "{len} bytes lie in no lane");
        if self.bridge.attended.load() == 0 || self.state.load() != FREE {
            return false;
        }
        self.request_len.store(len as u32);
        self.client_cpu.store(cpu.map_or(0, |cpu| cpu + 1));
        self.state.store(POSTED);
        // A leaving bridge first clears `attended`, then looks for a request. The client first posts, then looks
        // at `attended`. With a barrier between the two steps on each side, at least one side sees the other.
        self.state.barrier();
        self.bridge.attended.load() != 0 || !self.state.exchange(POSTED, FREE)
    }

    /// Looks for the answer.
    pub fn look(&self) -> Seen {
        match self.state.load() {
            ANSWERED => Seen::Reply((self.reply_len.load() as usize).min(LANE_REPLY_BYTES)),
            BESIDE => Seen::Beside,
            _ => Seen::Nothing,
        }
    }

    /// Turns to the socket, after the client has waited long enough.
    pub fn turn(&self) -> Turned {
        if self.state.exchange(POSTED, FREE) {
            Turned::Withdrawn
        } else if self.state.exchange(TAKEN, TURNED) || self.state.load() == TURNED {
            Turned::Waiting
        } else {
            Turned::Answered
        }
    }

    /// Frees the lane after the client has read the answer.
    pub fn finish(&self) {
        self.state.store(FREE);
    }

    /// How often the bridge has forbidden late opens. A client that opens a file itself, by a name that the bridge
    /// gave it, has a valid grant if the count after the open equals the count before the request.
    pub fn late_opens_forbidden(&self) -> u32 {
        self.state.barrier();
        self.bridge.late.load()
    }
}

/// The bridge's side. One caller at a time: the thread that owns the connection.
impl<W: Word> LaneWords<W> {
    /// Says that the bridge polls this lane from now on.
    pub fn attend(&self, attention: Attention) {
        // Zero means that the bridge does not attend.
        debug_assert_ne!(attention.encode(), 0);
        self.bridge.attended.store(attention.encode());
    }

    /// Processor on which the client posted the last request; `None` if the client did not know it.
    pub fn client_cpu(&self) -> Option<u32> {
        self.client_cpu.load().checked_sub(1)
    }

    /// Says that the bridge no longer polls this lane. True if a request is there that the bridge must take first.
    #[must_use]
    pub fn leave(&self) -> bool {
        self.bridge.attended.store(0);
        self.state.barrier();
        self.state.load() == POSTED
    }

    /// Takes a request, if one is there. Returns the length in bytes that the client claims, at most
    /// [`LANE_REQUEST_BYTES`].
    #[inline]
    pub fn take(&self) -> Option<usize> {
        if self.state.load() != POSTED || !self.state.exchange(POSTED, TAKEN) {
            return None;
        }
        Some((self.request_len.load() as usize).min(LANE_REQUEST_BYTES))
    }

    /// Hands over the reply of `len` bytes that lies in the page. False if it has to go by the socket instead.
    #[must_use]
    pub fn answer(&self, len: usize) -> bool {
        debug_assert!(len <= LANE_REPLY_BYTES, "{len} bytes lie in no lane");
        self.reply_len.store(len as u32);
        let taken = self.state.exchange(TAKEN, ANSWERED);
        if !taken {
            self.free();
        }
        taken
    }

    /// Tells the client that its reply was sent by the socket.
    pub fn answered_beside(&self) {
        if !self.state.exchange(TAKEN, BESIDE) {
            self.free();
        }
    }

    /// Frees the lane for a client that has turned away. That client does not post before the lane is free.
    fn free(&self) {
        self.state.exchange(TURNED, FREE);
    }
}

/// For any thread of the bridge that takes files away.
impl LaneWords<AtomicU32> {
    /// Makes a client that was told a name, and has not opened it yet, ask again. Call this before the bridge
    /// checks whether a process has the file open.
    pub fn forbid_late_opens(&self) {
        self.bridge.late.fetch_add(1, Ordering::AcqRel);
        fence(Ordering::SeqCst);
    }
}

/// The shared page.
#[repr(C, align(4096))]
pub struct LanePage {
    /// Its words.
    pub words: LaneWords,
    request: UnsafeCell<[u8; LANE_REQUEST_BYTES]>,
    reply: UnsafeCell<[u8; LANE_REPLY_BYTES]>,
}

const _: () = assert!(size_of::<LanePage>() == LANE_BYTES);

impl LanePage {
    /// Start of the request, [`LANE_REQUEST_BYTES`] long. The other side can change these bytes at any time.
    pub fn request(&self) -> *mut u8 {
        self.request.get().cast()
    }

    /// Start of the reply, [`LANE_REPLY_BYTES`] long. The other side can change these bytes at any time.
    pub fn reply(&self) -> *mut u8 {
        self.reply.get().cast()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attended() -> LaneWords {
        let words = LaneWords::default();
        words.attend(Attention {
            cpu: 0,
            crowded: false,
        });
        words
    }

    #[test]
    #[should_panic(expected = "bytes lie in no lane")]
    fn a_request_that_is_too_long_is_a_broken_assertion() {
        attended().post(LANE_REQUEST_BYTES + 1, None);
    }

    #[test]
    #[should_panic(expected = "bytes lie in no lane")]
    fn a_reply_that_is_too_long_is_a_broken_assertion() {
        let words = attended();
        assert!(words.post(1, None));
        assert_eq!(words.take(), Some(1));
        let _ = words.answer(LANE_REPLY_BYTES + 1);
    }

    #[test]
    fn lengths_that_the_other_side_has_written_are_bounded_and_reach_no_assertion() {
        let words = attended();
        assert!(words.post(1, None));
        words.request_len.store(u32::MAX, Ordering::Relaxed);
        assert_eq!(words.take(), Some(LANE_REQUEST_BYTES));
        assert!(words.answer(1));
        words.reply_len.store(u32::MAX, Ordering::Relaxed);
        assert_eq!(words.look(), Seen::Reply(LANE_REPLY_BYTES));
    }
}
