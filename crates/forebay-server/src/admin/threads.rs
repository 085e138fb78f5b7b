//! The threads of the admin room: one for each answer that is being written, and the one that watches who
//! uses the bridge. The end of the bridge waits for them.

use crate::limits::{ANSWER_PATIENCE, ANSWERS, LAST_ANSWERS_PATIENCE};
use forebay_sys::{Errno, Sys, errno_of};
use parking_lot::{Condvar, Mutex};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Weak};
use std::time::Instant;

#[derive(Default)]
struct State {
    /// Streams of answers that are being written.
    answers: Vec<Weak<UnixStream>>,
    running: usize,
    closing: bool,
}

/// Threads that are waited for.
#[derive(Default)]
pub(super) struct Threads {
    state: Mutex<State>,
    quiet: Condvar,
}

impl Threads {
    /// Has `write` done in a thread of its own, and gives the end of the stream from which the answer is to be
    /// read. A caller that does not read for [`ANSWER_PATIENCE`] makes the writes fail.
    ///
    /// # Errors
    /// EAGAIN: [`ANSWERS`] are being written. ESHUTDOWN: the bridge ends. Else what the system said.
    pub fn answer(
        self: &Arc<Self>,
        write: impl FnOnce(&UnixStream) + Send + 'static,
    ) -> Sys<OwnedFd> {
        let (ours, theirs) = UnixStream::pair().map_err(errno_of)?;
        ours.set_write_timeout(Some(ANSWER_PATIENCE))
            .map_err(errno_of)?;
        let ours = Arc::new(ours);
        {
            let mut state = self.state.lock();
            state.answers.retain(|answer| answer.strong_count() > 0);
            if state.answers.len() >= ANSWERS {
                return Err(Errno::AGAIN);
            }
            state.answers.push(Arc::downgrade(&ours));
        }
        self.spawn("answer", move || write(&ours))?;
        Ok(theirs.into())
    }

    /// Has `work` done in a thread of its own.
    ///
    /// # Errors
    /// ESHUTDOWN: the bridge ends. Else what the system said.
    pub fn spawn(self: &Arc<Self>, name: &str, work: impl FnOnce() + Send + 'static) -> Sys<()> {
        {
            let mut state = self.state.lock();
            if state.closing {
                return Err(Errno::SHUTDOWN);
            }
            state.running += 1;
        }
        let threads = self.clone();
        let spawned = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                // All that it holds goes before it counts as ended.
                work();
                threads.leave();
            });
        spawned.map(drop).map_err(|e| {
            self.leave();
            errno_of(e)
        })
    }

    fn leave(&self) {
        let mut state = self.state.lock();
        assert!(state.running > 0, "a thread ended that never began");
        state.running -= 1;
        self.quiet.notify_all();
    }

    /// Is the bridge about to end, so that answers are to come to theirs?
    pub fn is_closing(&self) -> bool {
        self.state.lock().closing
    }

    /// Begins no thread any more.
    pub fn close(&self) {
        self.state.lock().closing = true;
    }

    /// Waits for all threads; answers that nobody reads are cut off. False if some did not end in time, and in the moment
    /// after it that both have.
    pub fn await_end(&self, by: Instant) -> bool {
        assert!(self.is_closing(), "others would begin meanwhile");
        let moment = || Instant::now() + LAST_ANSWERS_PATIENCE;
        if self.await_quiet(moment()) {
            return true;
        }
        for answer in &self.state.lock().answers {
            if let Some(stream) = answer.upgrade() {
                let _ = stream.shutdown(Shutdown::Both);
            }
        }
        self.await_quiet(by.max(moment()))
    }

    fn await_quiet(&self, by: Instant) -> bool {
        let mut state = self.state.lock();
        while state.running > 0 {
            if self.quiet.wait_until(&mut state, by).timed_out() {
                return state.running == 0;
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::STOP_PATIENCE;
    use std::io::{Read, Write};

    #[test]
    fn an_answer_arrives_although_its_thread_has_ended() {
        let threads = Arc::new(Threads::default());
        let stream = threads
            .answer(|mut out| out.write_all(b"answer").unwrap())
            .unwrap();
        threads.close();
        assert!(threads.await_end(Instant::now() + STOP_PATIENCE));
        let mut read = String::new();
        UnixStream::from(stream).read_to_string(&mut read).unwrap();
        assert_eq!(read, "answer");
        assert!(threads.answer(|_| ()).is_err());
    }

    #[test]
    fn callers_that_do_not_read_are_limited_and_cannot_hold_up_the_end() {
        let threads = Arc::new(Threads::default());
        let deaf: Vec<_> = (0..ANSWERS)
            .map(|_| {
                let endless = |mut out: &UnixStream| while out.write_all(&[0; 4096]).is_ok() {};
                threads.answer(endless).unwrap()
            })
            .collect();
        assert_eq!(threads.answer(|_| ()).err(), Some(Errno::AGAIN));
        threads.close();
        assert!(threads.await_end(Instant::now() + STOP_PATIENCE));
        drop(deaf);
    }

    #[test]
    fn a_caller_that_goes_away_makes_room_for_another() {
        let threads = Arc::new(Threads::default());
        for _ in 0..10 * ANSWERS {
            let endless = |mut out: &UnixStream| while out.write_all(&[0; 4096]).is_ok() {};
            let stream = loop {
                // The thread of one that has gone may not have noticed yet.
                match threads.answer(endless) {
                    Ok(stream) => break stream,
                    Err(e) => assert_eq!(e, Errno::AGAIN),
                }
                std::thread::yield_now();
            };
            drop(stream);
        }
        threads.close();
        assert!(threads.await_end(Instant::now() + STOP_PATIENCE));
    }
}
