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
    pub(crate) fn waits_for_disks(&self) -> bool {
        matches!(self, Job::Act(act) if act.changes_names_of_pfs())
    }
}

/// What a mover does next: one job, or several that can wait for the disks together.
pub(crate) struct Share {
    pub(crate) waits_for_disks: bool,
    pub(crate) jobs: Vec<(ActTicket, Job)>,
}

#[derive(Default)]
struct State {
    /// Those that can begin at once.
    jobs: VecDeque<(ActTicket, Job)>,
    /// Those that wait for the disks first.
    after_disks: VecDeque<(ActTicket, Job)>,
    outcomes: Vec<(ActTicket, Result<Got, Halt>)>,
    is_over: bool,
}

/// Jobs on their way to the movers, and outcomes on their way back. The machine limits how many there are, see
/// [`forebay_core::drain`].
#[derive(Default)]
pub(crate) struct Crew {
    state: Mutex<State>,
    has_job: Condvar,
    has_outcome: Condvar,
}

impl Crew {
    /// Queues a job. One that waits for the disks comes after all others.
    pub(crate) fn put(&self, ticket: ActTicket, job: Job) {
        let mut state = self.state.lock();
        match job.waits_for_disks() {
            true => state.after_disks.push_back((ticket, job)),
            false => state.jobs.push_back((ticket, job)),
        }
        drop(state);
        self.has_job.notify_one();
    }

    /// What the calling mover, one of `movers`, does next; `None` at the end. One job that can begin at once; if there is none, its
    /// share of those that wait for the disks. One wait is enough for a share, and while movers are busy shares grow.
    pub(crate) fn next(&self, movers: usize) -> Option<Share> {
        let mut state = self.state.lock();
        loop {
            if state.is_over {
                return None;
            }
            if let Some(job) = state.jobs.pop_front() {
                return Some(Share {
                    waits_for_disks: false,
                    jobs: vec![job],
                });
            }
            let share = state.after_disks.len().div_ceil(movers);
            if share > 0 {
                return Some(Share {
                    waits_for_disks: true,
                    jobs: state.after_disks.drain(..share).collect(),
                });
            }
            self.has_job.wait(&mut state);
        }
    }

    /// Does no job begin any more?
    pub(crate) fn is_over(&self) -> bool {
        self.state.lock().is_over
    }

    /// Hands in the outcome of a job. After one that ends the drain no job begins any more.
    pub(crate) fn ended(&self, ticket: ActTicket, outcome: Result<Got, Halt>) {
        let is_end = outcome.is_err();
        let mut state = self.state.lock();
        state.is_over |= is_end;
        state.outcomes.push((ticket, outcome));
        drop(state);
        self.has_outcome.notify_one();
        if is_end {
            self.has_job.notify_all();
        }
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
                within: None,
                apart: TreePath::new("apart").unwrap(),
                knows_dirs: true,
                was_made: false,
            }))
        };
        for ticket in 0..9 {
            crew.put(ticket, waits());
        }
        for ticket in 9..11 {
            crew.put(ticket, Job::Act(Act::Pause));
        }
        let took = || {
            let share = crew.next(4).unwrap();
            assert_eq!(share.waits_for_disks, share.jobs[0].1.waits_for_disks());
            share
                .jobs
                .iter()
                .map(|(ticket, _)| *ticket)
                .collect::<Vec<_>>()
        };
        let shares = [(); 7].map(|()| took());
        let expected: [&[u64]; 7] = [&[9], &[10], &[0, 1, 2], &[3, 4], &[5], &[6], &[7]];
        assert_eq!(shares, expected);
        drop(crew.closing());
        assert!(crew.next(4).is_none(), "nothing begins any more");
    }

    #[test]
    fn after_what_ends_the_drain_no_job_begins() {
        let crew = Crew::default();
        crew.put(1, Job::Act(Act::Pause));
        crew.put(2, Job::Act(Act::Pause));
        assert!(crew.next(1).is_some());
        crew.ended(1, Err(Halt::Cut));
        assert!(crew.next(1).is_none() && crew.is_over());
        assert_eq!(crew.take_outcomes(true), [(1, Err(Halt::Cut))]);
    }
}
