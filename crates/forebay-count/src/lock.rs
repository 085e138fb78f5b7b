//! Locks that nobody waits for long.
//!
//! A lock is a counter that is odd while a thread holds it. Its holder may never release it: the thread was cancelled,
//! a signal handler jumped out of it, or the handler that interrupted it is what wants the lock now. So a thread tries
//! for a bounded time and then does without. A lock that has not changed for [`STALE_NS`] is taken over.

use core::hint::spin_loop;
use core::sync::atomic::{AtomicU64, Ordering};

/// Tries before a thread does without: some microseconds. A counted section takes a few dozen nanoseconds.
const TRIES: usize = 200;
/// A lock that was held for this long was left behind.
pub const STALE_NS: u64 = 1_000_000_000;
/// The count is in the lower half of a word. The upper half of the note says which count was seen held.
const COUNT: u64 = u32::MAX as u64;
/// The note keeps the time in these units, about a millisecond, modulo 2^32.
const NOTE_SHIFT: u32 = 20;

/// Takes the lock `word` without waiting.
#[inline(always)]
pub fn try_once(word: &AtomicU64) -> bool {
    let seen = word.load(Ordering::Relaxed);
    seen & 1 == 0
        && word
            .compare_exchange(seen, step(seen), Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
}

/// Takes the lock `word`, trying for some microseconds. `note` belongs to the lock; `now_ns` is the monotonic clock.
#[inline]
pub fn acquire(word: &AtomicU64, note: &AtomicU64, now_ns: u64) -> bool {
    try_once(word) || acquire_slowly(word, note, now_ns)
}

#[cold]
fn acquire_slowly(word: &AtomicU64, note: &AtomicU64, now_ns: u64) -> bool {
    for _ in 0..TRIES {
        if try_once(word) {
            return true;
        }
        spin_loop();
    }
    let held = word.load(Ordering::Relaxed);
    let now = (now_ns >> NOTE_SHIFT) & COUNT;
    let noted = note.load(Ordering::Relaxed);
    if noted >> 32 != held & COUNT {
        note.store((held & COUNT) << 32 | now, Ordering::Relaxed);
        return false;
    }
    let age = now.wrapping_sub(noted & COUNT) & COUNT;
    held & 1 == 1
        && age > STALE_NS >> NOTE_SHIFT
        && age < COUNT / 2
        && word
            .compare_exchange(held, step(step(held)), Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
}

/// Gives the lock back.
#[inline(always)]
pub fn release(word: &AtomicU64) {
    let held = word.load(Ordering::Relaxed);
    word.store(step(held), Ordering::Release);
}

#[inline(always)]
fn step(count: u64) -> u64 {
    count.wrapping_add(1) & COUNT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_held_lock_is_not_waited_for() {
        let (word, note) = (AtomicU64::new(0), AtomicU64::new(0));
        assert!(acquire(&word, &note, 5));
        assert!(!acquire(&word, &note, 6));
        release(&word);
        assert!(acquire(&word, &note, 7));
    }

    #[test]
    fn a_lock_that_was_left_behind_is_taken_over_after_a_while() {
        let (word, note) = (AtomicU64::new(0), AtomicU64::new(0));
        assert!(try_once(&word));
        assert!(!acquire(&word, &note, 1_000));
        assert!(!acquire(&word, &note, STALE_NS / 2));
        assert!(acquire(&word, &note, 2 * STALE_NS));
        release(&word);
        assert_eq!(word.load(Ordering::Relaxed) & 1, 0);
    }

    #[test]
    fn a_lock_that_moves_is_never_taken_over() {
        let (word, note) = (AtomicU64::new(0), AtomicU64::new(0));
        assert!(try_once(&word));
        assert!(!acquire(&word, &note, 1_000));
        release(&word);
        assert!(try_once(&word));
        assert!(!acquire(&word, &note, 3 * STALE_NS));
        assert!(!acquire(&word, &note, 3 * STALE_NS + 1));
    }
}
