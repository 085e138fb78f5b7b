//! Memory in which a bridge tells clients of its own user which object a name stands for, so that `stat` of a file in the
//! buffer needs no message.
//!
//! The table is a cache: a name that is not in it, or about to change, is asked for. The bridge writes, clients only read.
//! What makes an answer from the table as good as one from the bridge:
//!
//! 1. Before a commit can be seen, the bridge covers the names that it changes ([`NameTable::cover`]). After it, it shows
//!    what they stand for now ([`NameTable::show`]). A covered name says nothing. So a name that is shown stands for what
//!    the bridge would have said at the same moment.
//! 2. A client finds the name, makes its system call on the object, and then looks whether the name has been shown without
//!    a break ([`NameTable::still_stands`]). A name has a number that grows with each change.
//! 3. The table says nothing after the death of its bridge: it is that of one life ([`NameTable::life`]), and so is the
//!    [`DurabilityPage`](crate::DurabilityPage), which the kernel marks before a next bridge can begin.
//!
//! A name is known by 128 bits of its hash under a secret of this life.

use crate::{ObjectId, ObjectName};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use xxhash_rust::xxh3::xxh3_128_with_seed;

/// Names that fit.
pub const NAMES_THAT_FIT: usize = 1 << 16;
/// A name has one of so many slots.
const WAYS: usize = 4;
/// Size of the shared memory in bytes.
pub const NAME_TABLE_BYTES: usize = size_of::<NameTable>();

/// What a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shown {
    /// The object.
    pub object: ObjectName,
    /// A directory; else a regular file.
    pub is_dir: bool,
    /// So many directories are above it. All were made in the buffer.
    pub born_above: u16,
}

/// A name as a client has found it.
#[derive(Debug, Clone, Copy)]
pub struct SeenName {
    slot: usize,
    number: u64,
}

/// One name. All zeroes is none.
#[derive(Debug, Default)]
#[repr(C, align(64))]
struct Slot {
    /// Grows with each change. Odd: the name is covered, or being written.
    number: AtomicU64,
    key: [AtomicU64; 2],
    object: [AtomicU64; 2],
    link: AtomicU32,
    /// [`Shown::born_above`], and [`IS_DIR`].
    kind: AtomicU32,
}

const IS_DIR: u32 = 1 << 31;

/// The shared memory. All zeroes say nothing.
#[repr(C, align(4096))]
pub struct NameTable {
    /// The life of the bridge, as in its [`DurabilityPage`](crate::DurabilityPage). Zero: the table says nothing.
    life: AtomicU64,
    secret: AtomicU64,
    /// The user of the bridge.
    user: AtomicU32,
    slots: [Slot; NAMES_THAT_FIT],
}

/// The hash of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Key([u64; 2]);

fn halves(whole: u128) -> [u64; 2] {
    [(whole >> 64) as u64, whole as u64]
}

fn whole(halves: &[AtomicU64; 2]) -> u128 {
    let [high, low] = halves.each_ref().map(|h| h.load(Ordering::Relaxed));
    u128::from(high) << 64 | u128::from(low)
}

fn store(into: &[AtomicU64; 2], value: u128) {
    for (half, value) in into.iter().zip(halves(value)) {
        half.store(value, Ordering::Relaxed);
    }
}

impl Slot {
    fn has(&self, key: Key) -> bool {
        let [a, b] = key.0;
        self.key[0].load(Ordering::Relaxed) == a && self.key[1].load(Ordering::Relaxed) == b
    }

    fn is_covered(&self) -> bool {
        self.number.load(Ordering::Relaxed) & 1 == 1
    }

    fn cover(&self) {
        if !self.is_covered() {
            self.number.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn uncover(&self) {
        debug_assert!(self.is_covered(), "a slot is written while it is shown");
        self.number.fetch_add(1, Ordering::Release);
    }
}

impl NameTable {
    fn key(&self, path: &[u8]) -> Key {
        let hash = xxh3_128_with_seed(path, self.secret.load(Ordering::Relaxed));
        Key(halves(hash))
    }

    fn ways(key: Key) -> core::ops::Range<usize> {
        let first = (key.0[1] as usize % NAMES_THAT_FIT) & !(WAYS - 1);
        first..first + WAYS
    }
}

/// The client's side.
impl NameTable {
    /// The life of the bridge that writes it; 0 before the first name.
    pub fn life(&self) -> u64 {
        self.life.load(Ordering::Acquire)
    }

    /// The user of the bridge.
    pub fn user(&self) -> u32 {
        self.user.load(Ordering::Relaxed)
    }

    /// What the name stands for; `None` if the table does not say. `path` as in the tables of the bridge: relative, without
    /// `.`, `..`, and needless slashes.
    pub fn find(&self, path: &[u8]) -> Option<(Shown, SeenName)> {
        let key = self.key(path);
        let at = Self::ways(key).find(|&at| self.slots[at].has(key))?;
        let slot = &self.slots[at];
        let number = slot.number.load(Ordering::Acquire);
        let kind = slot.kind.load(Ordering::Relaxed);
        let shown = Shown {
            object: ObjectName {
                oid: ObjectId(whole(&slot.object)),
                link: slot.link.load(Ordering::Relaxed),
            },
            is_dir: kind & IS_DIR != 0,
            born_above: kind as u16,
        };
        // The slot may have become that of another name before its number was read.
        let seen = SeenName { slot: at, number };
        let is_it = number & 1 == 0 && slot.has(key) && self.still_stands(seen);
        is_it.then_some((shown, seen))
    }

    /// Has the name been shown without a break since it was found?
    pub fn still_stands(&self, seen: SeenName) -> bool {
        fence(Ordering::Acquire);
        self.slots[seen.slot].number.load(Ordering::Relaxed) == seen.number
    }
}

/// The bridge's side: one thread at a time.
impl NameTable {
    /// Begins to say something.
    pub fn begin(&self, life: u64, secret: u64, user: u32) {
        debug_assert!(life != 0, "a life has a number");
        self.secret.store(secret, Ordering::Relaxed);
        self.user.store(user, Ordering::Relaxed);
        self.life.store(life, Ordering::Release);
    }

    /// Covers a name, which is about to change. True if it was shown: then [`NameTable::covered`] has to follow.
    #[must_use]
    pub fn cover(&self, path: &[u8]) -> bool {
        let key = self.key(path);
        let mut ways = Self::ways(key);
        match ways.find(|&at| self.slots[at].has(key)) {
            Some(at) => {
                self.slots[at].cover();
                true
            }
            None => false,
        }
    }

    /// What was covered is covered for everybody before anything that follows.
    pub fn covered(&self) {
        fence(Ordering::SeqCst);
    }

    /// Says what a name stands for now; `None`: the bridge has to be asked.
    pub fn show(&self, path: &[u8], shown: Option<Shown>) {
        let key = self.key(path);
        let mine = Self::ways(key).find(|&at| self.slots[at].has(key));
        let Some(shown) = shown else {
            if let Some(at) = mine {
                self.write(at, Key([0, 0]), None);
            }
            return;
        };
        let free = || Self::ways(key).find(|&at| self.slots[at].has(Key([0, 0])));
        // Which of the others goes is as good as random.
        let any = || Self::ways(key).start + (key.0[0] as usize + self.turn(key)) % WAYS;
        let at = mine.or_else(free).unwrap_or_else(any);
        self.write(at, key, Some(shown));
    }

    /// A number that changes with each write near a name.
    fn turn(&self, key: Key) -> usize {
        let numbers = Self::ways(key).map(|at| self.slots[at].number.load(Ordering::Relaxed) / 2);
        numbers.fold(0, u64::wrapping_add) as usize
    }

    fn write(&self, at: usize, key: Key, shown: Option<Shown>) {
        let slot = &self.slots[at];
        slot.cover();
        fence(Ordering::Release);
        slot.key[0].store(key.0[0], Ordering::Relaxed);
        slot.key[1].store(key.0[1], Ordering::Relaxed);
        if let Some(shown) = shown {
            store(&slot.object, shown.object.oid.0);
            slot.link.store(shown.object.link, Ordering::Relaxed);
            let dir = if shown.is_dir { IS_DIR } else { 0 };
            slot.kind
                .store(dir | u32::from(shown.born_above), Ordering::Relaxed);
        }
        slot.uncover();
    }
}
