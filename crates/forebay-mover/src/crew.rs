//! The threads that carry out what a drain asks for, and what they came to.

use crate::ground::Halt;
use forebay_core::drain::{Act, Got, Ticket};
use forebay_core::ops::Effect;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;

/// Something for one of the threads.
pub(crate) enum Job {
    /// Any act but a commit.
    Act(Act),
    /// What follows a commit.
    Follow(Vec<Effect>),
}

#[derive(Default)]
struct State {
    jobs: VecDeque<(Ticket, Job)>,
    outcomes: Vec<(Ticket, Result<Got, Halt>)>,
    is_over: bool,
}

/// Jobs on their way to the threads, and outcomes on their way back. It holds as many as acts are under way.
#[derive(Default)]
pub(crate) struct Crew {
    state: Mutex<State>,
    has_job: Condvar,
    has_outcome: Condvar,
}

impl Crew {
    /// For whichever thread is free first.
    pub(crate) fn put(&self, ticket: Ticket, job: Job) {
        self.state.lock().jobs.push_back((ticket, job));
        self.has_job.notify_one();
    }

    /// The next job for the calling thread; `None` at the end.
    pub(crate) fn next(&self) -> Option<(Ticket, Job)> {
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

    /// A job has come to this.
    pub(crate) fn ended(&self, ticket: Ticket, outcome: Result<Got, Halt>) {
        self.state.lock().outcomes.push((ticket, outcome));
        self.has_outcome.notify_one();
    }

    /// What has ended since the last call; at least one if it is to wait.
    pub(crate) fn take_outcomes(&self, waits: bool) -> Vec<(Ticket, Result<Got, Halt>)> {
        let mut state = self.state.lock();
        while waits && state.outcomes.is_empty() {
            self.has_outcome.wait(&mut state);
        }
        std::mem::take(&mut state.outcomes)
    }

    /// When what it gives is dropped, nothing begins any more.
    pub(crate) fn closing(&self) -> Closing<'_> {
        Closing(self)
    }
}

/// Sends the threads home, also if the one that leads them panics.
pub(crate) struct Closing<'c>(&'c Crew);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.state.lock().is_over = true;
        self.0.has_job.notify_all();
    }
}
