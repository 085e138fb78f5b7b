//! How often a bridge that dies is started again.

use std::collections::VecDeque;
use std::time::Duration;

/// Restarts within [`WITHIN`] after which one more would not help.
pub const MOST: usize = 10;
/// Ten minutes: a run of a week outlives more deaths than one that dies in a loop.
pub const WITHIN: Duration = Duration::from_secs(600);

/// The restarts of a bridge.
#[derive(Debug, Default)]
pub struct Restarts {
    all: u32,
    /// When the last ones were.
    last: VecDeque<Duration>,
}

impl Restarts {
    /// The bridge is dead at this time of a clock that only goes forward. Is it started again?
    pub fn one_more(&mut self, now: Duration) -> bool {
        self.last.retain(|&then| now.saturating_sub(then) <= WITHIN);
        if self.last.len() >= MOST {
            return false;
        }
        self.last.push_back(now);
        self.all += 1;
        true
    }

    /// How often it was started again.
    pub fn all(&self) -> u32 {
        self.all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bridge_that_dies_again_and_again_is_given_up_and_one_that_dies_now_and_then_is_not() {
        let mut restarts = Restarts::default();
        for death in 0..1000 {
            assert!(restarts.one_more(death * WITHIN / 9));
        }
        assert_eq!(restarts.all(), 1000);
        let mut restarts = Restarts::default();
        let at_once: Vec<bool> = (0..12)
            .map(|n| restarts.one_more(Duration::from_secs(n)))
            .collect();
        assert_eq!(at_once, [vec![true; 10], vec![false; 2]].concat());
        assert!(restarts.one_more(WITHIN + Duration::from_secs(1)));
        assert_eq!(restarts.all(), 11);
    }
}
