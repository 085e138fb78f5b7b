//! Rules that several interfaces share: common values, timers, size buckets.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use darshan_rules::size_bucket;

/// Values whose frequency is tracked, per file and set. Darshan tracks as many.
pub const TRACKED_VALUES: usize = 32;
/// The most frequent values that a log holds.
pub const COMMON_VALUES: usize = 4;

/// The size bucket of `bytes`, 0 to 9.
#[inline]
pub fn bucket(bytes: i64) -> usize {
    size_bucket(bytes.max(0) as u64)
}

/// Adds `n` to a word. The caller holds the lock, so a load and a store do.
#[inline(always)]
pub fn add(word: &AtomicU64, n: i64) {
    word.store(word.load(Relaxed).wrapping_add(n as u64), Relaxed);
}

/// Keeps the larger value.
#[inline(always)]
pub fn raise(word: &AtomicU64, value: i64) {
    if (word.load(Relaxed) as i64) < value {
        word.store(value as u64, Relaxed);
    }
}

/// Keeps the earliest point in time that is not 0.
#[inline(always)]
pub fn earliest(word: &AtomicU64, at: u64) {
    let now = word.load(Relaxed);
    if at != 0 && (now == 0 || at < now) {
        word.store(at, Relaxed);
    }
}

/// Keeps the latest point in time.
#[inline(always)]
pub fn latest(word: &AtomicU64, at: u64) {
    if word.load(Relaxed) < at {
        word.store(at, Relaxed);
    }
}

/// Adds the part of `start..end` after `last`, the end of the last call, to `timer`. So what several threads do at the
/// same time counts once. Returns that part.
#[inline(always)]
pub fn timer(timer: &AtomicU64, last: &AtomicU64, start: u64, end: u64) -> u64 {
    let before = last.load(Relaxed);
    if end <= before {
        return 0;
    }
    // A call of which only one end was seen by a coarse clock seems to end before it began.
    let part = end.saturating_sub(start.max(before));
    add(timer, part as i64);
    last.store(end, Relaxed);
    part
}

/// What a record weighs when one has to be folded: its bytes, or its nanoseconds if they are more. The lightest goes.
pub fn weight(bytes: &[AtomicU64], times: &[AtomicU64]) -> u64 {
    let sum = |words: &[AtomicU64]| {
        words
            .iter()
            .map(|word| word.load(Relaxed))
            .fold(0, u64::saturating_add)
    };
    sum(bytes).max(sum(times))
}

/// What happened to a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tracked {
    /// It was counted, or dropped because all places are taken.
    Done,
    /// It is new and the places in the record are taken, so it belongs in the overflow.
    NeedsOverflow,
}

/// Counts `n` more of the value in the places of the record itself.
///
/// `values` has `value.len()` words per place, `counts` one; a place is free when its count is 0.
#[inline]
pub fn track(values: &[AtomicU64], counts: &[AtomicU64], value: &[i64], n: i64) -> Tracked {
    for (at, count) in values.chunks_exact(value.len()).zip(counts) {
        let free = count.load(Relaxed) == 0;
        if free {
            for (word, v) in at.iter().zip(value) {
                word.store(*v as u64, Relaxed);
            }
        }
        if free
            || at
                .iter()
                .zip(value)
                .all(|(w, v)| w.load(Relaxed) as i64 == *v)
        {
            add(count, n);
            return Tracked::Done;
        }
    }
    Tracked::NeedsOverflow
}

/// [`track`] in an overflow area: places of value and count, one after the other.
pub fn track_overflow(area: &[AtomicU64], value: &[i64], n: i64) -> Tracked {
    let step = value.len() + 1;
    let places = TRACKED_VALUES - COMMON_VALUES;
    for place in area.chunks_exact(step).take(places) {
        let (at, count) = place.split_at(value.len());
        if track(at, count, value, n) == Tracked::Done {
            return Tracked::Done;
        }
    }
    Tracked::Done
}

/// Words of an overflow area for values of `value_words` words.
pub const fn overflow_words(value_words: usize) -> usize {
    (TRACKED_VALUES - COMMON_VALUES) * (value_words + 1)
}

/// Puts the most frequent of `all` (value, count) first, among equals the larger.
pub fn sort_common(all: &mut [(i64, i64)]) {
    all.sort_unstable_by_key(|&(value, count)| core::cmp::Reverse((count, value)));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zeroes<const N: usize>() -> [AtomicU64; N] {
        [const { AtomicU64::new(0) }; N]
    }

    #[test]
    fn buckets_include_their_upper_ends() {
        assert_eq!([0, 100, 101, 1024, 1025].map(bucket), [0, 0, 1, 1, 2]);
        assert_eq!([1 << 20, (1 << 20) + 1].map(bucket), [4, 5]);
        assert_eq!([1 << 30, (1 << 30) + 1].map(bucket), [8, 9]);
    }

    #[test]
    fn what_overlaps_is_not_timed_twice() {
        let [sum, last] = zeroes();
        timer(&sum, &last, 10, 20);
        timer(&sum, &last, 15, 30);
        timer(&sum, &last, 16, 25);
        timer(&sum, &last, 40, 50);
        assert_eq!(sum.load(Relaxed), 30);
    }

    #[test]
    fn the_thirty_third_value_is_not_tracked_and_the_others_go_on() {
        let (values, counts) = (zeroes::<4>(), zeroes::<4>());
        let area = zeroes::<{ overflow_words(1) }>();
        for round in 0..2 {
            for v in 0..40 {
                if track(&values, &counts, &[v], 1) == Tracked::NeedsOverflow {
                    track_overflow(&area, &[v], 1);
                }
            }
            assert_eq!(counts[3].load(Relaxed), round + 1);
            assert_eq!(area[54].load(Relaxed), 31);
            assert_eq!(area[55].load(Relaxed), round + 1);
        }
    }
}
