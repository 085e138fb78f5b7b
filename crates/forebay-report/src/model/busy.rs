//! How long a job was in I/O, where the recorder has told it.

/// Bounds of a time in seconds: calls at the same time count once, and where a few milliseconds decide, the log does not tell
/// which were.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Bounds {
    /// No less.
    pub least: f64,
    /// No more.
    pub most: f64,
}

/// Seconds by the wall clock in which calls were under way.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Busy {
    /// Of any rank.
    pub whole: Bounds,
    /// Of each rank.
    pub ranks: Vec<Bounds>,
}

/// Bounds that are further apart than this share say that the time is not known.
const MOST_DOUBT: f64 = 0.05;

impl Bounds {
    /// True if there is one answer, as far as anybody will notice.
    pub fn is_exact(self) -> bool {
        self.most - self.least <= self.most * MOST_DOUBT
    }

    /// Bounds for the union of both.
    pub fn or(self, other: Bounds) -> Bounds {
        Bounds {
            least: self.least.max(other.least),
            most: self.most + other.most,
        }
    }
}
