//! Locks that nobody waits for long.
//!
//! A lock is a counter that is odd while a thread holds it. Its holder may never release it: the thread was cancelled,
//! a signal handler jumped out of it, or the handler that interrupted it is what wants the lock now. So a thread tries
//! for a bounded time and then does without. A lock that others have wanted for [`STALE_NS`] in vain is taken over.
//!
//! A holder that is only stopped keeps its lock: a process that stands still does not look at the lock, and of the time between two
//! looks no more than [`MOST_GAP_NS`] counts. Who is held up alone for so long, by a debugger or for want of a processor, finds at its
//! release that the lock is another's by then: [`release`] tells, and what both have changed may be wrong.

use core::hint::spin_loop;
use core::sync::atomic::{AtomicU64, Ordering};

/// Tries before a thread does without: some microseconds. A counted section takes a few dozen nanoseconds.
const TRIES: usize = 200;
/// A lock that was wanted for this long while it was held was left behind.
pub const STALE_NS: u64 = 1_000_000_000;
/// Most of the time between two looks at a held lock that counts.
pub const MOST_GAP_NS: u64 = 50_000_000;
/// The count is in the lower half of a word.
const COUNT: u64 = u32::MAX as u64;

/// What is noted of a held lock: its count (32 bits), for how long it was seen held (12 bits), and the time of the last look (20 bits).
/// Times are in units of about a millisecond; that of the last look is modulo a quarter of an hour.
mod note {
    use super::COUNT;

    pub const SHIFT: u32 = 20;
    const TIME: u64 = (1 << 20) - 1;
    const MOST_AGE: u64 = (1 << 12) - 1;
    /// A look that began so long before the last one, at most, is taken for an earlier one.
    const MOST_BACK: u64 = 1000;

    pub fn new(count: u64, age: u64, now_ns: u64) -> u64 {
        (count & COUNT) << 32 | age.min(MOST_AGE) << 20 | (now_ns >> SHIFT) & TIME
    }

    pub fn count(note: u64) -> u64 {
        note >> 32
    }

    pub fn age(note: u64) -> u64 {
        note >> 20 & MOST_AGE
    }

    /// Units since the last look; 0 for a look that began before it.
    pub fn since(note: u64, now_ns: u64) -> u64 {
        let since = (now_ns >> SHIFT).wrapping_sub(note) & TIME;
        if since > TIME - MOST_BACK { 0 } else { since }
    }
}

/// The count of a lock that this thread holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct Held(u64);

/// Takes the lock `word` without waiting.
#[inline(always)]
pub fn try_once(word: &AtomicU64) -> Option<Held> {
    let seen = word.load(Ordering::Relaxed);
    if seen & 1 != 0 {
        return None;
    }
    take(word, seen, step(seen))
}

#[inline(always)]
fn take(word: &AtomicU64, seen: u64, held: u64) -> Option<Held> {
    word.compare_exchange(seen, held, Ordering::Acquire, Ordering::Relaxed)
        .is_ok()
        .then_some(Held(held))
}

/// Takes the lock `word`, trying for some microseconds. `note` belongs to the lock; `now_ns` is the monotonic clock.
#[inline]
pub fn acquire(word: &AtomicU64, note: &AtomicU64, now_ns: u64) -> Option<Held> {
    match try_once(word) {
        Some(held) => Some(held),
        None => acquire_slowly(word, note, now_ns),
    }
}

#[cold]
fn acquire_slowly(word: &AtomicU64, note: &AtomicU64, now_ns: u64) -> Option<Held> {
    for _ in 0..TRIES {
        if let Some(held) = try_once(word) {
            return Some(held);
        }
        spin_loop();
    }
    let held = word.load(Ordering::Relaxed);
    let noted = note.load(Ordering::Relaxed);
    let age = if note::count(noted) == held & COUNT {
        let since = note::since(noted, now_ns);
        // The rest of a unit counts at the next look.
        if since == 0 {
            return None;
        }
        note::age(noted) + since.min(MOST_GAP_NS >> note::SHIFT)
    } else {
        0
    };
    // Who is slower than another with its look has seen nothing new.
    let is_mine = note
        .compare_exchange(
            noted,
            note::new(held, age, now_ns),
            Ordering::Relaxed,
            Ordering::Relaxed,
        )
        .is_ok();
    if is_mine && held & 1 == 1 && age > STALE_NS >> note::SHIFT {
        return take(word, held, step(step(held)));
    }
    None
}

/// Gives the lock back. Returns false if another thread has taken it over meanwhile.
#[inline(always)]
#[must_use]
pub fn release(word: &AtomicU64, held: Held) -> bool {
    let is_mine = word.load(Ordering::Relaxed) == held.0;
    if is_mine {
        word.store(step(held.0), Ordering::Release);
    }
    is_mine
}

/// Opens a lock that was left behind, where nobody can take it or has it any more.
pub fn open(word: &AtomicU64) {
    let count = word.load(Ordering::Relaxed);
    if count & 1 == 1 {
        word.store(step(count), Ordering::Release);
    }
}

#[inline(always)]
fn step(count: u64) -> u64 {
    count.wrapping_add(1) & COUNT
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOK_NS: u64 = 40_000_000;

    /// Looks at a held lock from `from_ns` on, as often as it takes, and tells when it was taken over.
    fn taken_over(word: &AtomicU64, note: &AtomicU64, from_ns: u64, every_ns: u64) -> (Held, u64) {
        let mut now_ns = from_ns;
        loop {
            now_ns += every_ns;
            if let Some(held) = acquire(word, note, now_ns) {
                return (held, now_ns - from_ns);
            }
            assert!(now_ns - from_ns < 1000 * STALE_NS, "never");
        }
    }

    #[test]
    fn a_held_lock_is_not_waited_for() {
        let (word, note) = (AtomicU64::new(0), AtomicU64::new(0));
        let held = acquire(&word, &note, 5).unwrap();
        assert_eq!(acquire(&word, &note, 6), None);
        assert!(release(&word, held));
        assert!(acquire(&word, &note, 7).is_some());
    }

    #[test]
    fn a_lock_that_was_left_behind_is_taken_over_after_a_while() {
        for every_ns in [1_000_000, LOOK_NS] {
            let (word, note) = (AtomicU64::new(0), AtomicU64::new(0));
            let left = try_once(&word).unwrap();
            let (held, after_ns) = taken_over(&word, &note, 7, every_ns);
            assert!(
                (STALE_NS..STALE_NS + STALE_NS / 4).contains(&after_ns),
                "{after_ns}"
            );
            assert!(!release(&word, left), "it is another's");
            assert_eq!(word.load(Ordering::Relaxed) & 1, 1);
            assert!(release(&word, held));
            assert_eq!(word.load(Ordering::Relaxed) & 1, 0);
        }
    }

    #[test]
    fn the_time_in_which_nobody_looked_does_not_make_a_lock_stale() {
        let (word, note) = (AtomicU64::new(0), AtomicU64::new(0));
        let held = try_once(&word).unwrap();
        // The process is stopped ten times, for a minute each.
        for stop in 1..=10 {
            for look in 0..4 {
                let now_ns = stop * 60 * STALE_NS + look * 1_000_000;
                assert_eq!(acquire(&word, &note, now_ns), None, "{stop}");
            }
        }
        assert!(release(&word, held));
    }

    #[test]
    fn a_lock_that_moves_is_never_taken_over() {
        let (word, note) = (AtomicU64::new(0), AtomicU64::new(0));
        for n in 1..200 {
            let held = try_once(&word).unwrap();
            assert_eq!(acquire(&word, &note, n * LOOK_NS), None);
            assert!(release(&word, held));
        }
    }

    #[test]
    fn looks_long_after_another_and_looks_that_come_late_do_no_harm() {
        let (word, note) = (AtomicU64::new(0), AtomicU64::new(0));
        let held = try_once(&word).unwrap();
        // Two threads, of which one tells the time of two units before, each time.
        for look in 3..3000 {
            let now_ns = STALE_NS + look * 1000;
            assert_eq!(acquire(&word, &note, now_ns), None);
            assert_eq!(acquire(&word, &note, now_ns - (2 << note::SHIFT)), None);
        }
        // A quarter of an hour later somebody looks again.
        for gap in [500, 900, 1000, 1100] {
            let from_ns = gap * STALE_NS;
            let (other_word, other_note) = (AtomicU64::new(held.0), AtomicU64::new(0));
            assert_eq!(acquire(&other_word, &other_note, 0), None);
            let (_, after_ns) = taken_over(&other_word, &other_note, from_ns, LOOK_NS);
            assert!(after_ns < 3 * STALE_NS, "{gap}: {after_ns}");
        }
        assert!(release(&word, held));
    }

    #[test]
    fn looks_of_several_threads_at_one_moment_count_once() {
        let (word, note) = (AtomicU64::new(0), AtomicU64::new(0));
        let held = try_once(&word).unwrap();
        for look in 0..100 {
            for _ in 0..50 {
                assert_eq!(acquire(&word, &note, look * STALE_NS / 100), None);
            }
        }
        assert!(release(&word, held));
        open(&word);
        assert_eq!(word.load(Ordering::Relaxed) & 1, 0);
    }
}
