//! The queue of jobs for the movers, and of their outcomes.

use crate::ground::Halt;
use forebay_core::drain::{Act, ActTicket, Got};
use forebay_core::ops::FollowUp;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;

/// A job for one of the movers.
pub(crate) enum Job {
    /// Any act but a commit.
    Act(Act),
    /// The work on backing objects that follows a commit.
    Follow(Vec<FollowUp>),
}

impl Job {
    /// Does it begin when the disks have what was committed before?
    fn waits(&self) -> bool {
        matches!(self, Job::Act(act) if act.changes_names_of_pfs())
    }
}

#[derive(Default)]
struct State {
    /// Those that can begin at once.
    jobs: VecDeque<(ActTicket, Job)>,
    /// Those that wait for the disks first.
    waiting: VecDeque<(ActTicket, Job)>,
    outcomes: Vec<(ActTicket, Result<Got, Halt>)>,
    is_over: bool,
}

/// Jobs on their way to the movers, and outcomes on their way back. Its length is the number of acts under way.
#[derive(Default)]
pub(crate) struct Crew {
    state: Mutex<State>,
    has_job: Condvar,
    has_outcome: Condvar,
}

impl Crew {
    /// Queues a job for the first mover that is free.
    pub(crate) fn put(&self, ticket: ActTicket, job: Job) {
        let mut state = self.state.lock();
        match job.waits() {
            true => state.waiting.push_back((ticket, job)),
            false => state.jobs.push_back((ticket, job)),
        }
        drop(state);
        self.has_job.notify_one();
    }

    /// Waits for the next job of the calling mover, one of `movers`; `None` at the end. If only such are left that wait for the
    /// disks before they begin, it gets its share of them: they can wait together, and the longer they are left, the more there are.
    pub(crate) fn next(&self, movers: usize) -> Option<Vec<(ActTicket, Job)>> {
        let mut state = self.state.lock();
        loop {
            if state.is_over {
                return None;
            }
            if let Some(job) = state.jobs.pop_front() {
                return Some(vec![job]);
            }
            let share = state.waiting.len().div_ceil(movers);
            if share > 0 {
                return Some(state.waiting.drain(..share).collect());
            }
            self.has_job.wait(&mut state);
        }
    }

    /// Hands in the outcome of a job.
    pub(crate) fn ended(&self, ticket: ActTicket, outcome: Result<Got, Halt>) {
        self.state.lock().outcomes.push((ticket, outcome));
        self.has_outcome.notify_one();
    }

    /// The outcomes since the last call. `waits`: until there is at least one.
    pub(crate) fn take_outcomes(&self, waits: bool) -> Vec<(ActTicket, Result<Got, Halt>)> {
        let mut state = self.state.lock();
        while waits && state.outcomes.is_empty() {
            self.has_outcome.wait(&mut state);
        }
        std::mem::take(&mut state.outcomes)
    }

    /// Gives a guard; when that is dropped, no job begins any more.
    pub(crate) fn closing(&self) -> Closing<'_> {
        Closing(self)
    }
}

/// Ends the movers, also if the thread that leads them panics.
pub(crate) struct Closing<'c>(&'c Crew);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.state.lock().is_over = true;
        self.0.has_job.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::drain::NewDir;
    use forebay_core::path::TreePath;
    use forebay_core::record::{BridgeId, ObjectId, ObjectName};

    #[test]
    fn what_waits_for_the_disks_comes_last_and_is_shared_out() {
        let crew = Crew::default();
        let waits = || {
            Job::Act(Act::MakeDir(NewDir {
                path: TreePath::new("d").unwrap(),
                object: ObjectName {
                    oid: ObjectId::new(BridgeId(1), 1, 1),
                    link: 0,
                },
                known: None,
            }))
        };
        for ticket in 0..9 {
            crew.put(ticket, waits());
        }
        for ticket in 9..11 {
            crew.put(ticket, Job::Act(Act::Pause));
        }
        let took = || {
            let jobs = crew.next(4).unwrap();
            jobs.iter().map(|(ticket, _)| *ticket).collect::<Vec<_>>()
        };
        let shares = [(); 7].map(|()| took());
        let expected: [&[u64]; 7] = [&[9], &[10], &[0, 1, 2], &[3, 4], &[5], &[6], &[7]];
        assert_eq!(shares, expected);
        drop(crew.closing());
        assert!(crew.next(4).is_none(), "nothing begins any more");
    }
}
