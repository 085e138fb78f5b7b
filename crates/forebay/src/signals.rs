//! Signals that ask this process to end, each of which counts once.

use forebay_sys as sys;

/// The signals since [`sys::watch_signals`], with how many of them have had their effect.
#[derive(Debug, Default)]
pub struct Signals {
    heeded: u32,
}

impl Signals {
    /// Has one come that has had no effect yet? Then all that have come have it now.
    pub fn heed(&mut self) -> bool {
        let seen = sys::signals_seen();
        std::mem::replace(&mut self.heeded, seen) < seen
    }

    /// What was done about the last one has come to nothing: it counts once more.
    pub fn give_back(&mut self) {
        self.heeded = self.heeded.saturating_sub(1);
    }
}
