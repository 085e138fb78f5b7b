//! What tests with many random cases share.

use forebay_core::home::mix;

/// Random numbers that are the same in every build: a seed, and how many there were.
pub struct Numbers(pub u64, pub u64);

impl Numbers {
    /// One below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.1 += 1;
        mix(self.0, self.1) % n
    }

    /// One of `low` to `high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }
}
