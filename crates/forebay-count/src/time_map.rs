//! Sums over time, in bins that become wider when they have to.
//!
//! A **tick** is a fixed time, counted in CLOCK_REALTIME since the epoch. The bins of a map of shift `s` are `2^s` ticks
//! wide and begin at multiples of their width, so whole bins of different processes can be added up. When time passes
//! the end, neighbours are added up and the width doubles.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::layout::MAP_HEAD_WORDS;
use crate::lock;

const LOCK: usize = 0;
const NOTE: usize = 1;
const SHIFT: usize = 2;

/// A map: its head, then its rows of bins. The first bin is that of `first_ns`.
pub(crate) struct TimeMap<'t> {
    words: &'t [AtomicU64],
    bins: usize,
    tick_ns: u64,
    first_ns: u64,
}

impl<'t> TimeMap<'t> {
    /// The map in these words, of rows of `bins` bins, which begins at a point of real time.
    pub fn new(words: &'t [AtomicU64], bins: usize, tick_ns: u64, first_ns: u64) -> Self {
        TimeMap {
            words,
            bins,
            tick_ns,
            first_ns,
        }
    }

    fn shift(&self) -> u64 {
        self.words[SHIFT].load(Relaxed).min(63)
    }

    /// Width of a bin in ticks.
    pub fn ticks_per_bin(&self) -> u64 {
        1 << self.shift()
    }

    /// The first bin begins at so many times the width of a bin.
    pub fn first_bin(&self) -> u64 {
        (self.first_ns / self.tick_ns) >> self.shift()
    }

    /// The bins of a row.
    pub fn row(&self, row: usize) -> &'t [AtomicU64] {
        &self.words[MAP_HEAD_WORDS + row * self.bins..][..self.bins]
    }

    /// Adds to the bin of a tick.
    pub fn add(&self, row: usize, tick: u64, amount: u64) {
        let base = self.first_ns / self.tick_ns;
        let bin = loop {
            let shift = self.shift();
            let bin = (tick >> shift).saturating_sub(base >> shift) as usize;
            if bin < self.bins {
                break bin;
            }
            let now_ns = tick.wrapping_mul(self.tick_ns);
            let Some(held) = lock::acquire(&self.words[LOCK], &self.words[NOTE], now_ns) else {
                break self.bins - 1;
            };
            // Another thread may have doubled it in between.
            if self.words[SHIFT].load(Relaxed) == shift {
                self.double(base, shift);
            }
            // Nothing is lost if another thread has begun to double it again, but bins may be wrong.
            let _ = lock::release(&self.words[LOCK], held);
        };
        self.row(row)[bin].fetch_add(amount, Relaxed);
    }

    /// Adds to the bins between two points of real time, in proportion to time.
    pub fn add_span(&self, row: usize, amount: u64, (start_ns, end_ns): (u64, u64)) {
        // Makes the map long enough first, so that there are no more parts than bins.
        self.add(row, end_ns / self.tick_ns, 0);
        let start_ns = start_ns.max(self.first_ns);
        let width = self.tick_ns.saturating_mul(self.ticks_per_bin());
        let mut placed = 0;
        let mut at = start_ns;
        while at < end_ns {
            let next = end_ns.min((at - at % width).saturating_add(width));
            let share = u128::from(next - start_ns) * u128::from(amount);
            let share = (share / u128::from(end_ns - start_ns)) as u64;
            self.add(row, at / self.tick_ns, share - placed);
            placed = share;
            at = next;
        }
        if placed < amount {
            self.add(row, end_ns / self.tick_ns, amount - placed);
        }
    }

    /// Adds up neighbours. A thread that adds at the same time may hit the wrong bin, but nothing is lost.
    fn double(&self, base: u64, shift: u64) {
        let rows = self.words[MAP_HEAD_WORDS..].chunks_exact(self.bins);
        for bins in rows {
            for (i, bin) in bins.iter().enumerate() {
                let to = (((base >> shift) + i as u64) >> 1) - (base >> (shift + 1));
                let amount = bin.swap(0, Relaxed);
                bins[to as usize].fetch_add(amount, Relaxed);
            }
        }
        self.words[SHIFT].store(shift + 1, Relaxed);
    }
}
