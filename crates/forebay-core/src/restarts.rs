//! How often a bridge that dies is started again.

use crate::reserve::Purpose;
use std::collections::VecDeque;
use std::time::Duration;

/// Most restarts. Of a bridge that serves: within [`WITHIN`]. Of one that brings data away: in all.
const MOST: usize = 10;
/// Ten minutes: a run of a week outlives more deaths than one that dies in a loop.
const WITHIN: Duration = Duration::from_secs(600);

/// The restarts of a bridge.
#[derive(Debug, Default)]
pub struct Restarts {
    all: u32,
    /// When the last ones were, of a bridge that serves.
    last: VecDeque<Duration>,
    /// Those of a bridge that brings data away.
    bringing_away: usize,
}

impl Restarts {
    /// The bridge is dead at this time of a clock that only goes forward. Is it started again, for this purpose?
    pub fn one_more(&mut self, now: Duration, purpose: Purpose) -> bool {
        self.last.retain(|&then| now.saturating_sub(then) <= WITHIN);
        let helps = match purpose {
            Purpose::Serve => self.last.len() < MOST,
            // Each does the same work again, however long it takes until it dies.
            Purpose::BringAway | Purpose::EndEmpty => self.bringing_away < MOST,
        };
        if !helps {
            return false;
        }
        match purpose {
            Purpose::Serve => self.last.push_back(now),
            Purpose::BringAway | Purpose::EndEmpty => self.bringing_away += 1,
        }
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
            assert!(restarts.one_more(death * WITHIN / 9, Purpose::Serve));
        }
        assert_eq!(restarts.all(), 1000);
        let mut restarts = Restarts::default();
        let at_once: Vec<bool> = (0..12)
            .map(|n| restarts.one_more(Duration::from_secs(n), Purpose::Serve))
            .collect();
        assert_eq!(at_once, [vec![true; 10], vec![false; 2]].concat());
        assert!(restarts.one_more(WITHIN + Duration::from_secs(1), Purpose::Serve));
        assert_eq!(restarts.all(), 11);
    }

    #[test]
    fn one_that_dies_whenever_it_brings_data_away_is_given_up_however_long_that_takes() {
        let mut restarts = Restarts::default();
        for n in 0..9 {
            assert!(restarts.one_more(Duration::from_secs(n), Purpose::Serve));
        }
        let after_hours: Vec<bool> = (1..13)
            .map(|hours| restarts.one_more(hours * 6 * WITHIN, Purpose::BringAway))
            .collect();
        assert_eq!(after_hours, [vec![true; 10], vec![false; 2]].concat());
        assert_eq!(restarts.all(), 19);
    }
}
