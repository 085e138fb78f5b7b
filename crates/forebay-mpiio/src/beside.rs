//! Reads and writes of the file beside the exchange: a thread has one window of an aggregator, while the bytes of another one
//! are exchanged.
//!
//! The thread lives as long as a part of a call, makes no MPI calls and takes no signals. If there can be none, its work is
//! done in between.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, Scope};
use std::time::Instant;

use forebay_core::collective::{Coverage, FileDomain, READ_GAP_BYTES};
use rustix::io::Errno;

use crate::exchange::{Direction, room};
use crate::explain::Meter;
use crate::storage::Storage;

/// How an aggregator got on with the file.
pub type Outcome = Result<(), Errno>;

/// Enough for a loop with a system call in it, and for what other libraries put around that.
const STACK_BYTES: usize = 256 << 10;

/// What an aggregator has of the file at a time.
#[derive(Debug, Default)]
pub struct Window {
    bytes: Vec<u8>,
    /// Which bytes of it count.
    pub coverage: Coverage,
}

impl Window {
    /// Room for so many bytes, of which none counts yet.
    pub fn clear(&mut self, bytes: u64) -> (&mut [u8], &mut Coverage) {
        self.coverage.clear(bytes);
        (room(&mut self.bytes, bytes), &mut self.coverage)
    }

    /// Its bytes.
    pub fn bytes(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    /// Bytes of memory that it takes at most.
    pub fn most_bytes(&self) -> u64 {
        self.bytes.len() as u64 + self.coverage.most_bytes()
    }
}

/// A window that is to be read or written.
#[derive(Debug)]
pub struct Task {
    /// Read or write.
    pub direction: Direction,
    /// Which part of the file it is.
    pub part: FileDomain,
    /// What of it is to be read or written is covered.
    pub window: Window,
}

/// A window that was read or written.
struct Done {
    window: Window,
    outcome: Outcome,
    meter: Meter,
}

impl Task {
    fn carry_out(mut self, storage: &Storage) -> Done {
        let mut meter = Meter::default();
        let Window { bytes, coverage } = &mut self.window;
        let gap = match self.direction {
            Direction::Read => READ_GAP_BYTES,
            Direction::Write => 0,
        };
        let outcome = in_file(&self.part, coverage, gap).try_for_each(|(begin, end, offset)| {
            let run = begin as usize..end as usize;
            meter.time(|| match self.direction {
                Direction::Read => storage.read(&mut bytes[run], offset),
                Direction::Write => storage.write(&bytes[run], offset),
            })
        });
        Done {
            window: self.window,
            outcome,
            meter,
        }
    }
}

/// What of a window is covered: begin and end in the buffer, and the offset in the file.
fn in_file<'a>(
    part: &'a FileDomain,
    coverage: &'a Coverage,
    gap: u64,
) -> impl Iterator<Item = (u64, u64, u64)> + 'a {
    part.pieces().flat_map(move |piece| {
        let first = part.bytes_below(piece.start);
        let runs = coverage.runs(first, first + piece.bytes(), gap);
        runs.map(move |(begin, end)| (begin, end, piece.start + (begin - first)))
    })
}

/// An aggregator at work on the file.
pub struct Aggregator<'a> {
    storage: &'a Storage,
    thread: Option<(Sender<Task>, Receiver<Done>)>,
    is_busy: bool,
    /// Windows without work.
    free: Vec<Window>,
    outcome: Outcome,
    meter: Meter,
}

impl<'a> Aggregator<'a> {
    /// One that does its work in between.
    pub fn alone(storage: &'a Storage, windows: Vec<Window>) -> Self {
        Aggregator {
            storage,
            thread: None,
            is_busy: false,
            free: windows,
            outcome: Ok(()),
            meter: Meter::default(),
        }
    }

    /// One with a thread beside it, if there can be one.
    pub fn with_thread<'scope>(self, scope: &'scope Scope<'scope, '_>) -> Self
    where
        'a: 'scope,
    {
        let (tasks, to_do) = channel::<Task>();
        let (results, done) = channel();
        let storage = self.storage;
        let work = move || {
            for task in to_do {
                if results.send(task.carry_out(storage)).is_err() {
                    return;
                }
            }
        };
        let name = Builder::new().name("forebay-file".to_owned());
        let thread = without_signals(|| name.stack_size(STACK_BYTES).spawn_scoped(scope, work));
        Aggregator {
            thread: thread.is_ok().then_some((tasks, done)),
            ..self
        }
    }

    /// Does it read and write while others go on?
    pub fn is_beside(&self) -> bool {
        self.thread.is_some()
    }

    /// A window without work. Waits for one if need be.
    pub fn window(&mut self) -> Window {
        if self.free.is_empty() {
            self.wait();
        }
        self.free.pop().unwrap_or_default()
    }

    /// Takes a window back that has no more work.
    pub fn give_back(&mut self, window: Window) {
        self.free.push(window);
    }

    /// Begins to read or write a window, when that before it is done.
    pub fn begin(&mut self, task: Task) {
        self.wait();
        let task = match &self.thread {
            None => task,
            Some((tasks, _)) => match tasks.send(task) {
                Ok(()) => {
                    self.is_busy = true;
                    return;
                }
                Err(unsent) => unsent.0,
            },
        };
        let begin = Instant::now();
        let done = task.carry_out(self.storage);
        self.take(done, begin);
    }

    /// Waits until what was begun last is done. Its window is the next one that is given.
    pub fn wait(&mut self) {
        if !std::mem::take(&mut self.is_busy) {
            return;
        }
        let begin = Instant::now();
        let done = self.thread.as_ref().and_then(|(_, done)| done.recv().ok());
        match done {
            Some(done) => self.take(done, begin),
            // It has ended in the middle of its work.
            None => self.outcome = self.outcome.and(Err(Errno::IO)),
        }
    }

    fn take(&mut self, done: Done, waited_since: Instant) {
        self.outcome = self.outcome.and(done.outcome);
        self.meter.add(Meter {
            waited_nanos: waited_since.elapsed().as_nanos() as u64,
            ..done.meter
        });
        self.free.push(done.window);
    }

    /// Ends the work: how it got on, its windows, and what it has counted.
    pub fn end(mut self) -> (Outcome, Vec<Window>, Meter) {
        self.wait();
        (self.outcome, self.free, self.meter)
    }
}

/// Signals are for the threads of the program, and one that is made has those of its maker.
fn without_signals<T>(make: impl FnOnce() -> T) -> T {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: both are sets, of which the first is filled before it is used, and the second by the call.
    let blocked = unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) == 0
    };
    let made = make();
    if blocked {
        // SAFETY: the call above has filled it.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    }
    made
}
