//! When a bridge ends, and when a run does.
//!
//! **A bridge** that was started to stay ends when it is told to. Any other one lives for runs: it ends when the
//! last run says that it needs it no more, or, because runs can be killed, when nobody has used it for
//! [`UNUSED_LIMIT`]. It never ends while a program is connected to it: that program would be left without its
//! files. A bridge that is about to end takes no further run: whoever asks starts another one.
//!
//! **A run** ends when its command has ended and none of the processes that the command has left
//! holds anything in the buffer ([`RunEnd`]).
//!
//! The driver says who comes, who goes, who is dead, what a process holds, and that time has passed.

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

    /// The run `pid` needs the bridge no more. True: nobody does, so it is to end now. If `pid` is the last one, `close`
    /// is asked: it lets nobody in any more and says whether that may be the end. If not, the run stays attached; it
    /// may ask again, and is forgotten when its process is dead.
    pub fn detach(&mut self, pid: u32, close: impl FnOnce() -> bool) -> bool {
        let others = self.runs.keys().any(|run| *run != pid);
        if self.ending || self.stays || others {
            self.runs.remove(&pid);
        } else if close() {
            self.runs.remove(&pid);
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

    /// So much time has passed, at the end of which `programs` were connected. True: the bridge is
    /// to end now. `close` is asked before as by [`Lifetime::detach`].
    pub fn pass(&mut self, time: Duration, programs: usize, close: impl FnOnce() -> bool) -> bool {
        if !self.is_unneeded() || programs > 0 {
            self.unused_for = Duration::ZERO;
            return self.ending;
        }
        self.unused_for = self.unused_for.saturating_add(time);
        if !self.ending && self.unused_for > UNUSED_LIMIT && close() {
            self.end();
        }
        self.ending
    }

    /// Does the run `pid` find nobody else here, while `programs` are connected? Nobody has seen the buffer as it is then.
    pub fn is_alone(&self, pid: u32, programs: usize) -> bool {
        !self.ending && programs == 0 && self.runs.keys().all(|run| *run == pid)
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

/// The last processes of a command may end a moment after it. A run waits so long for processes that hold nothing in the
/// buffer, and, if it is in a hurry, for all.
pub const LAST_MOMENT: Duration = Duration::from_secs(2);
/// A run that waits longer than this says for whom.
pub const SILENT_WAIT: Duration = Duration::from_secs(2);

/// What a process that outlives its command has of the buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Holding {
    /// Nothing now. It may use the buffer later.
    Nothing,
    /// A connection to the bridge: it has used the buffer and goes on.
    Connection,
    /// Open or mapped files, or its working directory.
    Files,
}

/// The processes of a run that go on when its command has ended, and what each has of the buffer as far as that is known
/// without a look at it. `children` are those of the run's own process, which adopts orphans; `guests` are those that have
/// joined the run and have not ended. `children_of` gives the children of a process, `is_over` says whether one has ended.
pub fn going_on(
    children: impl IntoIterator<Item = u32>,
    guests: impl IntoIterator<Item = u32>,
    children_of: impl Fn(u32) -> Vec<u32>,
    is_over: impl Fn(u32) -> bool,
) -> BTreeMap<u32, Holding> {
    // The first ones count even if they have ended since: what they have left is found by the next look.
    let mut found: BTreeMap<_, _> = children
        .into_iter()
        .map(|pid| (pid, Holding::Nothing))
        .collect();
    let mut parents: Vec<u32> = found.keys().copied().collect();
    for pid in guests {
        // They have come for the buffer, and may not have used it yet.
        found.insert(pid, Holding::Connection);
        parents.push(pid);
    }
    while let Some(parent) = parents.pop() {
        for child in children_of(parent) {
            if !found.contains_key(&child) && !is_over(child) {
                found.insert(child, Holding::Nothing);
                parents.push(child);
            }
        }
    }
    found
}

/// Who uses a bridge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BridgeUsers<'a> {
    /// It lives until it is told to end.
    pub stays: bool,
    /// The runs that use it.
    pub runs: &'a [u32],
    /// The processes that have connected as programs. One that is dead has left its connection to a child.
    pub programs: &'a [u32],
}

impl BridgeUsers<'_> {
    /// All processes that outlive the command of the run `me`. `found` are those that go on, with what they hold. If nobody else
    /// uses the bridge, whatever is connected to it belongs to the run.
    pub fn outliving(
        self,
        me: u32,
        mut found: BTreeMap<u32, Holding>,
        is_over: impl Fn(u32) -> bool,
    ) -> BTreeMap<u32, Holding> {
        let is_alone = !self.stays && self.runs == [me];
        let has_descendants = !found.is_empty();
        let mut is_inherited = false;
        for program in self.programs {
            match found.get_mut(program) {
                Some(holding) => *holding = (*holding).max(Holding::Connection),
                None if has_descendants && is_over(*program) => is_inherited = true,
                None if is_alone => {
                    found.insert(*program, Holding::Connection);
                }
                None => {}
            }
        }
        if is_inherited {
            // One of them has the connection of a process that has ended.
            for holding in found.values_mut() {
                *holding = (*holding).max(Holding::Connection);
            }
        }
        found
    }
}

/// How long a run waits for processes that hold something in the buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// Until they hold nothing any more.
    Holders,
    /// As for all others: it was told to end, or not to wait.
    LastMoment,
    /// Until all processes have ended: nobody waits for the run itself.
    Everyone,
}

impl Patience {
    /// Of a run whose command has ended; `well`: with 0. A signal has come to the run while the command ran (`was_signalled`): a command that
    /// has gone on and ended well has taken it for something else.
    pub fn at_end(no_wait: bool, was_signalled: bool, well: bool) -> Self {
        match no_wait || was_signalled && !well {
            true => Patience::LastMoment,
            false => Patience::Holders,
        }
    }
}

/// What a run whose command has ended does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Looks again a moment later.
    Wait,
    /// Says for whom it waits, then looks again.
    Say,
    /// Drains; nobody is left who could change anything.
    Finish,
    /// Drains what is closed, and leaves to the bridge those who go on. When they have ended it drains again.
    Leave,
}

/// The end of a run, from the end of its command on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunEnd {
    patience: Patience,
    told_to_leave: bool,
    waited: Duration,
    /// Since something was held.
    idle: Duration,
    has_said: bool,
}

impl RunEnd {
    /// A run whose command has just ended.
    pub fn new(patience: Patience) -> Self {
        RunEnd {
            patience,
            told_to_leave: false,
            waited: Duration::ZERO,
            idle: Duration::ZERO,
            has_said: patience == Patience::Everyone,
        }
    }

    /// Does anybody wait for the run itself?
    pub fn is_waited_for(&self) -> bool {
        self.patience != Patience::Everyone
    }

    /// It is told not to wait any longer.
    pub fn leave(&mut self) {
        self.told_to_leave = true;
    }

    /// So much time has passed, at the end of which these processes were there.
    pub fn pass(&mut self, time: Duration, processes: impl IntoIterator<Item = Holding>) -> Next {
        let Some(most) = processes.into_iter().max() else {
            return Next::Finish;
        };
        self.waited = self.waited.saturating_add(time);
        self.idle = match most {
            Holding::Nothing => self.idle.saturating_add(time),
            Holding::Connection | Holding::Files => Duration::ZERO,
        };
        let is_over = match self.patience {
            Patience::Holders => self.idle >= LAST_MOMENT,
            Patience::LastMoment => self.waited >= LAST_MOMENT,
            Patience::Everyone => false,
        };
        if self.told_to_leave || is_over {
            return Next::Leave;
        }
        if self.waited >= SILENT_WAIT && !self.has_said {
            self.has_said = true;
            return Next::Say;
        }
        Next::Wait
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
    fn only_a_signal_that_a_command_has_not_survived_well_cuts_the_wait() {
        use Patience::{Holders, LastMoment};
        let of = |signalled, well| Patience::at_end(false, signalled, well);
        assert_eq!((of(false, true), of(false, false)), (Holders, Holders));
        assert_eq!((of(true, true), of(true, false)), (Holders, LastMoment));
        assert_eq!(Patience::at_end(true, false, true), LastMoment);
    }

    #[test]
    fn a_run_is_alone_if_no_other_one_and_no_program_is_there() {
        let mut life = Lifetime::new(true);
        assert!(life.is_alone(7, 0));
        life.attach(7, ()).unwrap();
        assert!(life.is_alone(7, 0) && !life.is_alone(7, 1));
        assert!(!life.is_alone(8, 0));
    }

    #[test]
    fn the_last_run_that_leaves_ends_the_bridge_and_none_comes_after_it() {
        let mut life = Lifetime::new(false);
        life.attach(1, false).unwrap();
        life.attach(2, false).unwrap();
        assert!(!life.detach(1, || panic!("2 is there")));
        assert!(life.detach(2, || true));
        assert_eq!(life.attach(3, false), Err(Ending));
        assert!(life.is_ending());
    }

    #[test]
    fn a_bridge_that_stays_outlives_runs_and_idle_time() {
        let mut life = Lifetime::new(true);
        life.attach(1, false).unwrap();
        assert!(!life.detach(1, || panic!("it stays")));
        assert!(!life.pass(1000 * SECOND, 0, || true));
        life.set_stays(false);
        assert!(life.pass(6 * SECOND, 0, || true));
    }

    #[test]
    fn killed_runs_end_the_bridge_only_after_some_time_without_programs() {
        let mut life = Lifetime::new(false);
        life.attach(1, true).unwrap();
        assert!(!life.pass(10 * SECOND, 0, || true));
        life.forget_dead(dead);
        assert!(!life.is_ending());
        // Their programs go on.
        assert!(!life.pass(10 * SECOND, 3, || true));
        assert!(!life.pass(UNUSED_LIMIT, 0, || true));
        // One has connected since it was asked how many are.
        assert!(!life.pass(SECOND, 0, || false));
        assert!(life.pass(SECOND, 0, || true));
    }

    #[test]
    fn time_without_use_counts_only_in_one_piece() {
        let mut life: Lifetime<bool> = Lifetime::new(false);
        for _ in 0..10 {
            assert!(!life.pass(4 * SECOND, 0, || true));
            assert!(!life.pass(SECOND, 1, || true));
        }
        assert!(!life.pass(4 * SECOND, 0, || true));
        life.attach(1, true).unwrap();
        life.forget_dead(dead);
        assert!(!life.pass(4 * SECOND, 0, || true));
        assert!(life.pass(4 * SECOND, 0, || true));
    }

    #[test]
    fn a_bridge_that_is_about_to_end_does_not_change_its_mind() {
        let mut life: Lifetime<bool> = Lifetime::new(false);
        assert!(life.detach(7, || true));
        life.set_stays(true);
        assert!(life.is_ending());
        assert!(life.pass(SECOND, 9, || true));
        assert_eq!(life.attach(1, false), Err(Ending));
    }

    #[test]
    fn the_last_run_stays_attached_while_that_may_not_be_the_end() {
        let mut life = Lifetime::new(false);
        life.attach(1, false).unwrap();
        assert!(!life.detach(1, || false));
        assert_eq!(life.runs().count(), 1);
        // Another one comes meanwhile, and is the last one then.
        life.attach(2, false).unwrap();
        assert!(!life.detach(1, || panic!("2 is there")));
        assert!(life.detach(2, || true));
    }

    /// Processes by their parents: 10 has 11 and 12, 12 has 13, 20 has 21.
    fn children_of(pid: u32) -> Vec<u32> {
        match pid {
            10 => vec![11, 12],
            12 => vec![13],
            20 => vec![21],
            _ => Vec::new(),
        }
    }

    fn nothing<const N: usize>(pids: [u32; N]) -> BTreeMap<u32, Holding> {
        pids.map(|pid| (pid, Holding::Nothing)).into()
    }

    #[test]
    fn all_descendants_go_on_but_those_that_have_ended() {
        let all = going_on([10], [], children_of, |_| false);
        assert_eq!(all, nothing([10, 11, 12, 13]));
        // What 12 has left comes to the run's own process, and is found by the next look.
        let some = going_on([10], [], children_of, |pid| pid == 12);
        assert_eq!(some, nothing([10, 11]));
        let first = going_on([10], [], children_of, |_| true);
        assert_eq!(first, nothing([10]));
    }

    #[test]
    fn who_has_joined_the_run_counts_as_connected_and_its_children_go_on_with_it() {
        let mut expected = nothing([11, 12, 13, 20, 21, 10]);
        expected.insert(20, Holding::Connection);
        assert_eq!(going_on([10], [20], children_of, |_| false), expected);
        // A guest that is a descendant as well is no less a guest.
        let found = going_on([10], [12], children_of, |_| false);
        assert_eq!(found[&12], Holding::Connection);
        assert_eq!(going_on([], [], children_of, |_| false), nothing([]));
    }

    const ME: u32 = 7;

    fn outliving(programs: &[u32], runs: &[u32], stays: bool) -> BTreeMap<u32, Holding> {
        let users = BridgeUsers {
            stays,
            runs,
            programs,
        };
        let mut found = nothing([10, 11]);
        found.insert(11, Holding::Files);
        // Process 30 has ended.
        users.outliving(ME, found, |pid| pid == 30)
    }

    #[test]
    fn a_connection_that_nobody_living_has_made_was_inherited_by_one_of_those_who_go_on() {
        let both = BTreeMap::from([(10, Holding::Connection), (11, Holding::Files)]);
        assert_eq!(outliving(&[10], &[ME], false), both);
        assert_eq!(outliving(&[30], &[ME], false), both);
        // Without anybody of the run the dead process shows that somebody is there.
        let users = BridgeUsers {
            stays: false,
            runs: &[ME],
            programs: &[30],
        };
        let found = users.outliving(ME, nothing([]), |_| true);
        assert_eq!(found, BTreeMap::from([(30, Holding::Connection)]));
    }

    #[test]
    fn what_else_is_connected_belongs_to_the_run_only_if_nobody_else_uses_the_bridge() {
        let own = BTreeMap::from([(10, Holding::Nothing), (11, Holding::Files)]);
        let mut more = own.clone();
        more.insert(40, Holding::Connection);
        assert_eq!(outliving(&[40], &[ME], false), more);
        assert_eq!(outliving(&[40], &[ME], true), own);
        assert_eq!(outliving(&[40], &[ME, 8], false), own);
        assert_eq!(outliving(&[], &[ME], false), own);
    }

    const NOBODY: [Holding; 0] = [];
    const MOMENT: Duration = Duration::from_millis(100);

    #[test]
    fn a_run_without_further_processes_ends_at_once() {
        for patience in [Patience::Holders, Patience::LastMoment, Patience::Everyone] {
            let mut end = RunEnd::new(patience);
            assert_eq!(end.pass(Duration::ZERO, NOBODY), Next::Finish);
        }
    }

    #[test]
    fn a_run_waits_for_holders_and_says_so_once() {
        for holding in [Holding::Files, Holding::Connection] {
            let mut end = RunEnd::new(Patience::Holders);
            let mut said = 0;
            for _ in 0..1000 {
                match end.pass(MOMENT, [Holding::Nothing, holding]) {
                    Next::Say => said += 1,
                    next => assert_eq!(next, Next::Wait),
                }
            }
            assert_eq!(said, 1);
            end.leave();
            assert_eq!(end.pass(MOMENT, [holding]), Next::Leave);
            assert_eq!(end.pass(MOMENT, NOBODY), Next::Finish);
        }
    }

    #[test]
    fn processes_that_hold_nothing_have_a_moment_since_anything_was_held() {
        let mut end = RunEnd::new(Patience::Holders);
        assert_eq!(
            end.pass(LAST_MOMENT - MOMENT, [Holding::Nothing]),
            Next::Wait
        );
        assert_ne!(end.pass(MOMENT, [Holding::Files]), Next::Leave);
        assert_eq!(
            end.pass(LAST_MOMENT - MOMENT, [Holding::Nothing]),
            Next::Wait
        );
        assert_eq!(end.pass(MOMENT, [Holding::Nothing]), Next::Leave);
    }

    #[test]
    fn a_run_in_a_hurry_leaves_holders_after_a_moment() {
        let mut end = RunEnd::new(Patience::LastMoment);
        assert_eq!(end.pass(LAST_MOMENT - MOMENT, [Holding::Files]), Next::Wait);
        assert_eq!(end.pass(MOMENT, [Holding::Files]), Next::Leave);
    }

    #[test]
    fn what_a_run_has_left_in_the_background_is_waited_for_to_the_end_without_a_word() {
        let mut end = RunEnd::new(Patience::Everyone);
        for holding in [Holding::Nothing, Holding::Files] {
            assert_eq!(end.pass(1000 * SECOND, [holding]), Next::Wait);
        }
        end.leave();
        assert_eq!(end.pass(SECOND, [Holding::Nothing]), Next::Leave);
    }
}
