//! Threads that may block: looks at the PFS, staged copies, administration.
//! They start when there is work for them.

use crate::limits::{BLOCKING_QUEUE, BLOCKING_THREADS};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

type Task = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct State {
    queue: VecDeque<Task>,
    threads: usize,
    idle: usize,
    stopping: bool,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    work: Condvar,
    quiet: Condvar,
}

/// The pool. A clone is another handle of it.
#[derive(Clone, Default)]
pub struct Pool(Arc<Shared>);

/// The queue is full, or the pool is stopping.
#[derive(Debug)]
pub struct Full;

impl Pool {
    /// A pool without threads yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Queues a task.
    ///
    /// # Errors
    /// [`Full`]; the task is dropped.
    pub fn submit(&self, task: impl FnOnce() + Send + 'static) -> Result<(), Full> {
        let mut state = self.0.state.lock();
        if state.stopping || state.queue.len() >= BLOCKING_QUEUE {
            return Err(Full);
        }
        if state.idle <= state.queue.len() && state.threads < BLOCKING_THREADS {
            let shared = self.0.clone();
            let started = std::thread::Builder::new()
                .name("blocking".into())
                .spawn(move || shared.run());
            match started {
                Ok(_) => state.threads += 1,
                Err(_) if state.threads == 0 => return Err(Full),
                Err(_) => {}
            }
        }
        state.queue.push_back(Box::new(task));
        drop(state);
        self.0.work.notify_one();
        Ok(())
    }

    /// Takes no more tasks, and waits for those in the queue; false if they did not end in time.
    pub fn stop(&self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        let mut state = self.0.state.lock();
        state.stopping = true;
        self.0.work.notify_all();
        while state.threads > 0 {
            if self.0.quiet.wait_until(&mut state, deadline).timed_out() {
                return state.threads == 0;
            }
        }
        true
    }
}

impl Shared {
    fn run(&self) {
        let mut state = self.state.lock();
        loop {
            if let Some(task) = state.queue.pop_front() {
                drop(state);
                task();
                state = self.state.lock();
                continue;
            }
            if state.stopping {
                state.threads -= 1;
                self.quiet.notify_all();
                return;
            }
            state.idle += 1;
            self.work.wait(&mut state);
            state.idle -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn all_queued_tasks_run_before_the_pool_has_stopped() {
        let pool = Pool::new();
        let ran = Arc::new(AtomicUsize::new(0));
        for _ in 0..500 {
            let ran = ran.clone();
            pool.submit(move || {
                ran.fetch_add(1, Ordering::Relaxed);
            })
            .unwrap();
        }
        assert!(pool.stop(Duration::from_secs(60)));
        assert_eq!(ran.load(Ordering::Relaxed), 500);
        assert!(pool.submit(|| {}).is_err());
    }
}
