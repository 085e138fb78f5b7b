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

#[derive(Default)]
struct State {
    jobs: VecDeque<(ActTicket, Job)>,
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
        self.state.lock().jobs.push_back((ticket, job));
        self.has_job.notify_one();
    }

    /// Waits for the next job of the calling mover; `None` at the end.
    pub(crate) fn next(&self) -> Option<(ActTicket, Job)> {
        let mut state = self.state.lock();
        loop {
            if state.is_over {
                return None;
            }
            if let Some(job) = state.jobs.pop_front() {
                return Some(job);
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
