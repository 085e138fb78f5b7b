//! A lane: a page that one connection's client and its bridge share, for requests
//! that need no system call.
//!
//! A lane lies beside its socket and never replaces it. It is used while the
//! bridge **attends** to it, which it does as long as it would poll anyway. Who
//! has waited long enough turns to the socket: the client takes a request back
//! that nobody has taken, or asks for the answer to be sent there. So nobody
//! ever sleeps on a lane, and the end of either side shows in the socket.
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
//! `Answered`: the reply lies in the page. `Beside`: it is in the socket, because
//! a descriptor comes with it or it is too long.
//!
//! The bridge trusts nothing here: it copies a request out once, bounded by
//! [`LANE_REQUEST_BYTES`], before it looks at it, and whatever a client writes
//! into the words ends in an answer by the socket.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU32, Ordering, fence};

/// Size of the shared memory in bytes: one page.
pub const LANE_BYTES: usize = 4096;
/// Longest request that travels in a lane, in bytes.
pub const LANE_REQUEST_BYTES: usize = 1600;
/// Longest reply that travels in a lane, in bytes.
pub const LANE_REPLY_BYTES: usize = LANE_BYTES - 2 * LINE_BYTES - LANE_REQUEST_BYTES;

/// What the two sides write at different times lies on different cache lines.
const LINE_BYTES: usize = 64;

const FREE: u32 = 0;
const POSTED: u32 = 1;
const TAKEN: u32 = 2;
const ANSWERED: u32 = 3;
const BESIDE: u32 = 4;
const TURNED: u32 = 5;

/// A word in shared memory. Of its own so that a test can stand between any two steps.
pub trait Word {
    /// Reads, and sees what was written before the value was.
    fn load(&self) -> u32;
    /// Writes, after everything that was written before.
    fn store(&self, value: u32);
    /// Writes `to` if the value is `from`; says what it was.
    fn exchange(&self, from: u32, to: u32) -> bool;
    /// Orders the store before it against the load behind it, of whichever words.
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

/// The words of a lane. All zeroes: free, and nobody attends.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct LaneWords<W = AtomicU32> {
    state: W,
    request_len: W,
    /// Processor on which the client has posted, plus one; 0 if it does not know.
    client_cpu: W,
    reply_len: W,
    bridge: BridgeWords<W>,
}

/// What the bridge alone writes.
#[derive(Debug, Default)]
#[repr(C, align(64))]
struct BridgeWords<W> {
    /// An [`Attention`].
    attended: W,
    /// How often the bridge has forbidden late opens; see [`LaneWords::forbid_late_opens`].
    late: W,
}

/// What a bridge that attends to a lane says of itself, so that its client knows how to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attention {
    /// The processor on which it last ran.
    pub cpu: u32,
    /// There are more clients running than processors for them: it, or others, may need the client's.
    pub crowded: bool,
}

/// Processor numbers from here on are not told apart.
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
    /// A reply of so many bytes, at most [`LANE_REPLY_BYTES`], lies in the lane.
    Reply(usize),
    /// The reply is in the socket.
    Beside,
}

/// How a client stands that has turned away from its lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turned {
    /// Nobody had taken the request, and nobody will: send it by the socket.
    Withdrawn,
    /// It is under way; the reply comes by the socket.
    Waiting,
    /// The answer has come in this very moment: look again.
    Answered,
}

/// The client's side. One caller at a time: whoever holds the connection.
impl<W: Word> LaneWords<W> {
    /// Makes the lane free of a request that its client has left behind. False: that one is under way still.
    pub fn clear(&self) -> bool {
        match self.state.load() {
            FREE => return true,
            ANSWERED | BESIDE => self.finish(),
            // What comes by the socket for a request that nobody waits for is thrown away there.
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

    /// How the bridge attends, if it does.
    pub fn attention(&self) -> Option<Attention> {
        Attention::decode(self.bridge.attended.load())
    }

    /// Hands over a request of `len` bytes that lies in the lane, from a thread on processor `cpu`, if it knows.
    /// False: nobody attends, it goes by the socket.
    pub fn post(&self, len: usize, cpu: Option<u32>) -> bool {
        debug_assert!(len <= LANE_REQUEST_BYTES, "{len} bytes lie in no lane");
        if self.bridge.attended.load() == 0 || self.state.load() != FREE {
            return false;
        }
        self.request_len.store(len as u32);
        self.client_cpu.store(cpu.map_or(0, |cpu| cpu + 1));
        self.state.store(POSTED);
        // A bridge that leaves looks for a request after it has said so, and we for its leaving after we have
        // posted: one of the two sees the other.
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

    /// Turns to the socket after having waited in vain.
    pub fn turn(&self) -> Turned {
        if self.state.exchange(POSTED, FREE) {
            Turned::Withdrawn
        } else if self.state.exchange(TAKEN, TURNED) || self.state.load() == TURNED {
            Turned::Waiting
        } else {
            Turned::Answered
        }
    }

    /// The answer has been read.
    pub fn finish(&self) {
        self.state.store(FREE);
    }

    /// Count of the times that late opens were forbidden. A client that opens a file itself, by a name that the
    /// bridge gave it, has a valid grant if the count after the open is the one from before the request.
    pub fn late_opens_forbidden(&self) -> u32 {
        self.state.barrier();
        self.bridge.late.load()
    }
}

/// The bridge's side. One caller at a time: the thread that owns the connection.
impl<W: Word> LaneWords<W> {
    /// From now on the bridge looks here often.
    pub fn attend(&self, attention: Attention) {
        // Zero says that nobody attends.
        debug_assert_ne!(attention.encode(), 0);
        self.bridge.attended.store(attention.encode());
    }

    /// Processor on which the client has posted the last request, if it knows.
    pub fn client_cpu(&self) -> Option<u32> {
        self.client_cpu.load().checked_sub(1)
    }

    /// From now on it does not. True: a request is there that it has to take first.
    #[must_use]
    pub fn leave(&self) -> bool {
        self.bridge.attended.store(0);
        self.state.barrier();
        self.state.load() == POSTED
    }

    /// Takes a request, if one is there: its length in bytes as the client says, at most [`LANE_REQUEST_BYTES`].
    #[inline]
    pub fn take(&self) -> Option<usize> {
        if self.state.load() != POSTED || !self.state.exchange(POSTED, TAKEN) {
            return None;
        }
        Some((self.request_len.load() as usize).min(LANE_REQUEST_BYTES))
    }

    /// The reply of `len` bytes lies in the lane. False: it has to go by the socket.
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

    /// The reply has been sent by the socket.
    pub fn answered_beside(&self) {
        if !self.state.exchange(TAKEN, BESIDE) {
            self.free();
        }
    }

    /// The client has turned away, and does not post before the lane is free.
    fn free(&self) {
        self.state.exchange(TURNED, FREE);
    }
}

/// For the thread of the bridge that takes files away, whichever it is.
impl LaneWords<AtomicU32> {
    /// Whoever has been told a name to open and has not opened it yet must ask again. To be called before the
    /// bridge looks whether somebody has the file open.
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
    /// Where a request lies, [`LANE_REQUEST_BYTES`] long. The other side can change it at any time.
    pub fn request(&self) -> *mut u8 {
        self.request.get().cast()
    }

    /// Where a reply lies, [`LANE_REPLY_BYTES`] long.
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
