//! When to send a request again that found no bridge.
//!
//! The first retry comes at once, because the bridge may only have closed an idle connection. Further retries come
//! after pauses that double, until patience ends. The module reads no clock.

/// First pause between two attempts to reach a lost bridge.
const FIRST_PAUSE_NS: u64 = 1_000_000;
/// Longest pause between two attempts.
const LONGEST_PAUSE_NS: u64 = 100_000_000;

/// What to do after an attempt that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Try again at once.
    Now,
    /// Try again after this many nanoseconds.
    After(u64),
    /// Give up.
    Never,
}

/// The attempts of one request.
#[derive(Debug)]
pub struct Retry {
    /// End of patience, on the clock of the caller; `None` before the first failure.
    deadline_ns: Option<u64>,
    pause_ns: u64,
}

impl Retry {
    /// The state before the first attempt.
    pub const fn new() -> Self {
        Retry {
            deadline_ns: None,
            pause_ns: FIRST_PAUSE_NS,
        }
    }

    /// What to do after an attempt that failed at `now_ns` on a monotonic clock. `patience_ns` counts from the first
    /// failure.
    pub fn failed(&mut self, now_ns: u64, patience_ns: u64) -> Next {
        let Some(deadline) = self.deadline_ns else {
            self.deadline_ns = Some(now_ns.saturating_add(patience_ns));
            return if patience_ns > 0 {
                Next::Now
            } else {
                Next::Never
            };
        };
        if now_ns >= deadline {
            return Next::Never;
        }
        let pause = self.pause_ns.min(deadline - now_ns);
        self.pause_ns = (self.pause_ns * 2).min(LONGEST_PAUSE_NS);
        Next::After(pause)
    }
}

impl Default for Retry {
    fn default() -> Self {
        Retry::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn without_patience_the_first_failure_is_the_last() {
        assert_eq!(Retry::new().failed(5, 0), Next::Never);
    }

    #[test]
    fn pauses_double_up_to_the_longest_and_end_with_patience() {
        let mut retry = Retry::new();
        let mut now = 7 * SECOND;
        assert_eq!(retry.failed(now, SECOND), Next::Now);
        let mut last = 0;
        let mut waited = 0;
        loop {
            match retry.failed(now, SECOND) {
                Next::After(pause) => {
                    let expected = (last * 2).clamp(FIRST_PAUSE_NS, LONGEST_PAUSE_NS);
                    assert_eq!(pause, expected.min(SECOND - waited));
                    (last, waited, now) = (expected, waited + pause, now + pause);
                }
                Next::Never => break,
                Next::Now => panic!("only the first retry has no pause"),
            }
        }
        assert_eq!(waited, SECOND);
    }

    #[test]
    fn patience_beyond_the_end_of_the_clock_is_for_ever() {
        let mut retry = Retry::new();
        assert_eq!(retry.failed(u64::MAX - 5, u64::MAX), Next::Now);
        assert_eq!(retry.failed(u64::MAX - 1, u64::MAX), Next::After(1));
    }
}
