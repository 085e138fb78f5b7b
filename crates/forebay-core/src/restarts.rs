//! When a bridge that has died is started again.

use crate::reserve::Purpose;
use std::collections::VecDeque;
use std::time::Duration;

/// So many deaths within [`WITHIN`] are answered at once by a bridge that serves, and so many starts are tried in all of one that brings data
/// away.
const MOST: usize = 10;
/// Ten minutes: a run of a week outlives more deaths than one that dies in a loop.
const WITHIN: Duration = Duration::from_secs(600);
/// Pause after a start that has failed; it doubles from one failure to the next.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
/// The pauses get no longer than this: a storage that was full for an hour costs a run no more than that.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// The deaths of a bridge, and the starts that followed.
#[derive(Debug, Default)]
pub struct Restarts {
    deaths: u32,
    /// Since the last death.
    is_down: bool,
    /// Pause after the next start that fails.
    pause: Duration,
    /// When the last deaths were, of a bridge that serves.
    last: VecDeque<Duration>,
    /// Starts of one that brings data away.
    bringing_away: usize,
}

impl Restarts {
    /// The bridge is dead at this time of a clock that only goes forward, or a start of it has failed. After which pause is it started
    /// for this purpose? `None`: it is not any more.
    pub fn start_after(&mut self, now: Duration, purpose: Purpose) -> Option<Duration> {
        let has_died = !std::mem::replace(&mut self.is_down, true);
        self.deaths += u32::from(has_died);
        if purpose != Purpose::Serve {
            // Each does the same work again, however long it takes until it dies.
            self.bringing_away += 1;
            return (self.bringing_away <= MOST).then_some(Duration::ZERO);
        }
        if !has_died {
            let next = (self.pause * 2).min(LONGEST_PAUSE);
            return Some(std::mem::replace(&mut self.pause, next));
        }
        self.last.retain(|&then| now.saturating_sub(then) <= WITHIN);
        self.last.push_back(now);
        let is_loop = self.last.len() > MOST;
        self.pause = if is_loop { LONGEST_PAUSE } else { FIRST_PAUSE };
        Some(if is_loop {
            LONGEST_PAUSE
        } else {
            Duration::ZERO
        })
    }

    /// It serves again.
    pub fn is_back(&mut self) {
        self.is_down = false;
    }

    /// How often it has died.
    pub fn deaths(&self) -> u32 {
        self.deaths
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Dies, and is started.
    fn dies(restarts: &mut Restarts, now: Duration, purpose: Purpose) -> Option<Duration> {
        let pause = restarts.start_after(now, purpose);
        restarts.is_back();
        pause
    }

    #[test]
    fn a_bridge_that_dies_again_and_again_is_started_seldom_and_one_that_dies_now_and_then_at_once()
    {
        let mut restarts = Restarts::default();
        for death in 0..1000 {
            let pause = dies(&mut restarts, death * WITHIN / 9, Purpose::Serve);
            assert_eq!(pause, Some(Duration::ZERO));
        }
        assert_eq!(restarts.deaths(), 1000);
        let mut restarts = Restarts::default();
        let in_a_loop: Vec<_> = (0..12)
            .map(|n| dies(&mut restarts, Duration::from_secs(n), Purpose::Serve).unwrap())
            .collect();
        assert_eq!(in_a_loop[..10], [Duration::ZERO; 10]);
        assert_eq!(in_a_loop[10..], [LONGEST_PAUSE; 2]);
        let later = WITHIN + Duration::from_secs(12);
        let pause = dies(&mut restarts, later, Purpose::Serve);
        assert_eq!(pause, Some(Duration::ZERO));
    }

    #[test]
    fn starts_that_fail_are_tried_less_and_less_often_and_are_one_death() {
        let mut restarts = Restarts::default();
        let mut next = || {
            restarts
                .start_after(Duration::ZERO, Purpose::Serve)
                .unwrap()
        };
        assert_eq!(next(), Duration::ZERO);
        let pauses: Vec<_> = (0..20).map(|_| next()).collect();
        assert_eq!(pauses[..2], [FIRST_PAUSE, FIRST_PAUSE * 2]);
        assert!(pauses.is_sorted());
        assert_eq!(pauses[19], LONGEST_PAUSE);
        assert_eq!(restarts.deaths(), 1);
        restarts.is_back();
        let pause = restarts.start_after(Duration::from_secs(1), Purpose::Serve);
        assert_eq!(pause, Some(Duration::ZERO));
        assert_eq!(restarts.deaths(), 2);
    }

    #[test]
    fn one_that_dies_whenever_it_brings_data_away_is_given_up_however_long_that_takes() {
        let mut restarts = Restarts::default();
        for n in 0..9 {
            dies(&mut restarts, Duration::from_secs(n), Purpose::Serve);
        }
        let after_hours: Vec<bool> = (1..13)
            .map(|hours| dies(&mut restarts, hours * 6 * WITHIN, Purpose::BringAway).is_some())
            .collect();
        assert_eq!(after_hours, [vec![true; 10], vec![false; 2]].concat());
        // Starts that fail count as well.
        let mut restarts = Restarts::default();
        let failing: Vec<bool> = (0..12)
            .map(|_| restarts.start_after(WITHIN, Purpose::BringAway).is_some())
            .collect();
        assert_eq!(failing, after_hours);
        assert_eq!(restarts.deaths(), 1);
    }
}
