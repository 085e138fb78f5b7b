//! When a bridge ends.
//!
//! A bridge that was started to stay ends when it is told to. Any other one lives for runs: it ends when the
//! last run says that it needs it no more, or, because runs can be killed, when nobody has used it for
//! [`UNUSED_LIMIT`]. A bridge that is about to end takes no further run: whoever asks starts another one.
//!
//! The driver says who comes, who goes, who is dead and that time has passed.

use std::collections::BTreeMap;
use std::time::Duration;

/// A bridge that nobody has used for so long ends, although nobody has told it to.
pub const UNUSED_LIMIT: Duration = Duration::from_secs(5);

/// The bridge is about to end and takes no further run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ending;

/// How long one bridge lives. `H` is the driver's hold on the process of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lifetime<H> {
    stays: bool,
    ending: bool,
    /// By process id, which may be used again: the hold tells processes apart.
    runs: BTreeMap<u32, H>,
    unused_for: Duration,
}

impl<H> Lifetime<H> {
    /// A bridge that nobody uses yet. `stays`: it lives until it is told to end.
    pub fn new(stays: bool) -> Self {
        Lifetime {
            stays,
            ending: false,
            runs: BTreeMap::new(),
            unused_for: Duration::ZERO,
        }
    }

    /// A run, process `pid`, uses the bridge from now on.
    ///
    /// # Errors
    /// [`Ending`]: it comes too late.
    pub fn attach(&mut self, pid: u32, hold: H) -> Result<(), Ending> {
        if self.ending {
            return Err(Ending);
        }
        self.runs.insert(pid, hold);
        self.unused_for = Duration::ZERO;
        Ok(())
    }

    /// The run `pid` needs the bridge no more. True: nobody does, so it is to end now.
    pub fn detach(&mut self, pid: u32) -> bool {
        self.runs.remove(&pid);
        if self.is_unneeded() {
            self.end();
        }
        self.ending
    }

    /// Forgets runs whose processes are dead. This alone ends no bridge: their programs may go on.
    pub fn forget_dead(&mut self, is_dead: impl Fn(&H) -> bool) {
        self.runs.retain(|_, hold| !is_dead(hold));
    }

    /// Makes it stay until it is told to end, or live for its runs only.
    pub fn set_stays(&mut self, stays: bool) {
        self.stays = stays;
    }

    /// So much time has passed, at the end of which `clients` programs were connected. True: the bridge is
    /// to end now.
    pub fn pass(&mut self, time: Duration, clients: u64) -> bool {
        if !self.is_unneeded() || clients > 0 {
            self.unused_for = Duration::ZERO;
            return self.ending;
        }
        self.unused_for = self.unused_for.saturating_add(time);
        if self.unused_for > UNUSED_LIMIT {
            self.end();
        }
        self.ending
    }

    /// Does it live until it is told to end?
    pub fn stays(&self) -> bool {
        self.stays
    }

    /// Is it about to end, so that it takes no further run?
    pub fn is_ending(&self) -> bool {
        self.ending
    }

    /// The runs that use it.
    pub fn runs(&self) -> impl Iterator<Item = (u32, &H)> {
        self.runs.iter().map(|(pid, hold)| (*pid, hold))
    }

    fn is_unneeded(&self) -> bool {
        !self.stays && self.runs.is_empty()
    }

    fn end(&mut self) {
        assert!(
            self.is_unneeded(),
            "a bridge that is needed must not end by itself"
        );
        self.ending = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// A hold says whether its process is dead.
    fn dead(hold: &bool) -> bool {
        *hold
    }

    #[test]
    fn the_last_run_that_leaves_ends_the_bridge_and_none_comes_after_it() {
        let mut life = Lifetime::new(false);
        life.attach(1, false).unwrap();
        life.attach(2, false).unwrap();
        assert!(!life.detach(1));
        assert!(life.detach(2));
        assert_eq!(life.attach(3, false), Err(Ending));
        assert!(life.is_ending());
    }

    #[test]
    fn a_bridge_that_stays_outlives_runs_and_idle_time() {
        let mut life = Lifetime::new(true);
        life.attach(1, false).unwrap();
        assert!(!life.detach(1));
        assert!(!life.pass(1000 * SECOND, 0));
        life.set_stays(false);
        assert!(life.pass(6 * SECOND, 0));
    }

    #[test]
    fn killed_runs_end_the_bridge_only_after_some_time_without_programs() {
        let mut life = Lifetime::new(false);
        life.attach(1, true).unwrap();
        assert!(!life.pass(10 * SECOND, 0));
        life.forget_dead(dead);
        assert!(!life.is_ending());
        // Their programs go on.
        assert!(!life.pass(10 * SECOND, 3));
        assert!(!life.pass(UNUSED_LIMIT, 0));
        assert!(life.pass(SECOND, 0));
    }

    #[test]
    fn time_without_use_counts_only_in_one_piece() {
        let mut life: Lifetime<bool> = Lifetime::new(false);
        for _ in 0..10 {
            assert!(!life.pass(4 * SECOND, 0));
            assert!(!life.pass(SECOND, 1));
        }
        assert!(!life.pass(4 * SECOND, 0));
        life.attach(1, true).unwrap();
        life.forget_dead(dead);
        assert!(!life.pass(4 * SECOND, 0));
        assert!(life.pass(4 * SECOND, 0));
    }

    #[test]
    fn a_bridge_that_is_about_to_end_does_not_change_its_mind() {
        let mut life: Lifetime<bool> = Lifetime::new(false);
        assert!(life.detach(7));
        life.set_stays(true);
        assert!(life.is_ending());
        assert!(life.pass(SECOND, 9));
        assert_eq!(life.attach(1, false), Err(Ending));
    }
}
