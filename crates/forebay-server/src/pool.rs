//! Threads that may block: looks at the PFS, staged copies, administration.
//! They start when there is work for them.

use crate::limits::{BLOCKING_QUEUE, BLOCKING_THREADS};
use forebay_core::share::may_take;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

type Task = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct State {
    /// Those who have tasks waiting or running, in the order of their turns.
    users: VecDeque<User>,
    queued: usize,
    threads: usize,
    idle: usize,
    stopping: bool,
}

/// What one user has here.
struct User {
    uid: u32,
    queue: VecDeque<Task>,
    running: usize,
}

impl State {
    /// The entry of a user, and its place.
    fn user(&mut self, uid: u32) -> &mut User {
        let at = self.users.iter().position(|user| user.uid == uid);
        let at = at.unwrap_or_else(|| {
            self.users.push_back(User {
                uid,
                queue: VecDeque::new(),
                running: 0,
            });
            self.users.len() - 1
        });
        &mut self.users[at]
    }

    /// The next task: users take turns, and none but the owner of the bridge has all threads.
    fn next(&mut self, owner: u32) -> Option<(u32, Task)> {
        let all = self.users.iter().map(|user| user.running).sum();
        let may = |user: &User| {
            !user.queue.is_empty()
                && may_take(user.running, all, BLOCKING_THREADS, user.uid == owner)
        };
        let at = self.users.iter().position(may)?;
        let mut user = self.users.remove(at)?;
        let task = user.queue.pop_front()?;
        user.running += 1;
        self.queued -= 1;
        let uid = user.uid;
        self.users.push_back(user);
        Some((uid, task))
    }

    fn done(&mut self, uid: u32) {
        let user = self.user(uid);
        user.running -= 1;
        if user.running == 0 && user.queue.is_empty() {
            self.users.retain(|user| user.uid != uid);
        }
    }
}

struct Shared {
    /// The user of the bridge.
    owner: u32,
    state: Mutex<State>,
    work: Condvar,
    quiet: Condvar,
}

/// The pool. A clone is another handle of it.
#[derive(Clone)]
pub struct Pool(Arc<Shared>);

/// The queue is full, or the pool is stopping.
#[derive(Debug)]
pub struct Full;

impl Pool {
    /// A pool without threads yet, of a bridge of the user `owner`.
    pub fn new(owner: u32) -> Self {
        Pool(Arc::new(Shared {
            owner,
            state: Mutex::default(),
            work: Condvar::new(),
            quiet: Condvar::new(),
        }))
    }

    /// Queues a task of a user.
    ///
    /// # Errors
    /// [`Full`]; the task is dropped.
    pub fn submit(&self, uid: u32, task: impl FnOnce() + Send + 'static) -> Result<(), Full> {
        let mut state = self.0.state.lock();
        let all = state.queued;
        let waits = state.users.iter().find(|user| user.uid == uid);
        let own = waits.map_or(0, |user| user.queue.len());
        if state.stopping || !may_take(own, all, BLOCKING_QUEUE, uid == self.0.owner) {
            return Err(Full);
        }
        if state.idle <= all && state.threads < BLOCKING_THREADS {
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
        state.user(uid).queue.push_back(Box::new(task));
        state.queued += 1;
        drop(state);
        self.0.work.notify_one();
        Ok(())
    }

    /// Takes no more tasks, and waits for those in the queue; false if they did not end in time.
    pub fn stop(&self, by: Instant) -> bool {
        let mut state = self.0.state.lock();
        state.stopping = true;
        self.0.work.notify_all();
        while state.threads > 0 {
            if self.0.quiet.wait_until(&mut state, by).timed_out() {
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
            if let Some((uid, task)) = state.next(self.owner) {
                drop(state);
                task();
                state = self.state.lock();
                state.done(uid);
                continue;
            }
            // What a user still has waiting is taken by the threads that work for this user.
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
    use std::time::Duration;

    #[test]
    fn one_user_who_has_every_thread_busy_that_there_is_does_not_keep_another_waiting() {
        use std::sync::mpsc;
        let pool = Pool::new(0);
        let (release, held) = mpsc::channel::<()>();
        let held = Arc::new(Mutex::new(held));
        for _ in 0..10 * BLOCKING_THREADS {
            let held = held.clone();
            let task = move || {
                let _ = held.lock().recv();
            };
            pool.submit(7, task).unwrap();
        }
        let (served, other) = mpsc::channel();
        pool.submit(8, move || served.send(()).unwrap()).unwrap();
        let outcome = other.recv_timeout(Duration::from_secs(60));
        drop(release);
        assert_eq!(outcome, Ok(()));
        assert!(pool.stop(Instant::now() + Duration::from_secs(60)));
    }

    #[test]
    fn all_queued_tasks_run_before_the_pool_has_stopped() {
        let pool = Pool::new(0);
        let ran = Arc::new(AtomicUsize::new(0));
        for _ in 0..500 {
            let ran = ran.clone();
            pool.submit(7, move || {
                ran.fetch_add(1, Ordering::Relaxed);
            })
            .unwrap();
        }
        assert!(pool.stop(Instant::now() + Duration::from_secs(60)));
        assert_eq!(ran.load(Ordering::Relaxed), 500);
        assert!(pool.submit(7, || {}).is_err());
    }
}
