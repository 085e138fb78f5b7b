//! Reads and writes of the file beside the exchange: a thread has one part of the file, while the bytes of another one are
//! exchanged.
//!
//! The thread lives as long as a part of a call, makes no MPI calls and takes no signals. Without one, the rank itself reads and
//! writes, between exchanges.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, Scope};
use std::time::Instant;

use forebay_core::collective::{Coverage, FileDomain, READ_GAP_BYTES};
use rustix::io::Errno;

use crate::buffers::PartBuffer;
use crate::exchange::Direction;
use crate::explain::Meter;
use crate::storage::Storage;

/// How an aggregator got on with the file.
pub type FileOutcome = Result<(), Errno>;

/// Enough for a loop with a system call in it, and for what other libraries put around that.
const STACK_BYTES: usize = 256 << 10;
const ITS_LIFE: &str = "the thread lives as long as its channels";

/// A part of the file that is to be read or written.
#[derive(Debug)]
pub struct Task {
    /// Read or write.
    pub direction: Direction,
    /// Which one.
    pub part: FileDomain,
    /// What of it is to be read or written is covered.
    pub buffer: PartBuffer,
}

/// A part that was read or written.
struct Done {
    buffer: PartBuffer,
    outcome: FileOutcome,
    meter: Meter,
}

impl Task {
    fn carry_out(mut self, storage: &Storage) -> Done {
        let mut meter = Meter::default();
        let (bytes, coverage) = self.buffer.both();
        let gap = match self.direction {
            Direction::Read => READ_GAP_BYTES,
            Direction::Write => 0,
        };
        let outcome = in_file(&self.part, coverage, gap).try_for_each(|(begin, end, offset)| {
            let run = begin as usize..end as usize;
            meter.count(|| match self.direction {
                Direction::Read => storage.read(&mut bytes[run], offset),
                Direction::Write => storage.write(&bytes[run], offset),
            })
        });
        Done {
            buffer: self.buffer,
            outcome,
            meter,
        }
    }
}

/// What of a part is covered: begin and end in the buffer, and the offset in the file.
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
    /// Buffers that nobody uses.
    free: Vec<PartBuffer>,
    outcome: FileOutcome,
    meter: Meter,
}

impl<'a> Aggregator<'a> {
    /// One that reads and writes between exchanges.
    pub fn alone(storage: &'a Storage, buffers: Vec<PartBuffer>) -> Self {
        Aggregator {
            storage,
            thread: None,
            is_busy: false,
            free: buffers,
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
        let mut free = self.free;
        if thread.is_ok() {
            free.resize_with(2, PartBuffer::default);
        }
        Aggregator {
            thread: thread.is_ok().then_some((tasks, done)),
            free,
            ..self
        }
    }

    /// Does it read and write while others go on?
    pub fn is_beside(&self) -> bool {
        self.thread.is_some()
    }

    /// A buffer that nobody uses. Waits for one if need be.
    pub fn buffer(&mut self) -> PartBuffer {
        if self.free.is_empty() {
            self.wait();
        }
        self.free.pop().unwrap_or_default()
    }

    /// Takes a buffer back that nobody uses any more.
    pub fn give_back(&mut self, buffer: PartBuffer) {
        self.free.push(buffer);
    }

    /// Begins to read or write a part, when that before it is done.
    pub fn begin(&mut self, task: Task) {
        self.wait();
        if let Some((tasks, _)) = &self.thread {
            tasks.send(task).expect(ITS_LIFE);
            self.is_busy = true;
            return;
        }
        let begin = Instant::now();
        let done = task.carry_out(self.storage);
        self.take(done, begin);
    }

    /// Waits until what was begun last is done. Its buffer is the next one that is given.
    pub fn wait(&mut self) {
        let Some((_, done)) = self.thread.as_ref().filter(|_| self.is_busy) else {
            return;
        };
        let begin = Instant::now();
        let done = done.recv().expect(ITS_LIFE);
        self.is_busy = false;
        self.take(done, begin);
    }

    fn take(&mut self, done: Done, waited_since: Instant) {
        self.outcome = self.outcome.and(done.outcome);
        self.meter.add(Meter {
            waited_nanos: waited_since.elapsed().as_nanos() as u64,
            ..done.meter
        });
        self.free.push(done.buffer);
    }

    /// Ends the work: how it got on, its buffers, and what it has counted.
    pub fn end(mut self) -> (FileOutcome, Vec<PartBuffer>, Meter) {
        self.wait();
        (self.outcome, self.free, self.meter)
    }
}

/// Signals are for the threads of the program, and one that is made has those of its maker. That a file gets too large is for the
/// thread that writes.
fn without_signals<T>(make: impl FnOnce() -> T) -> T {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: both are sets, which are filled by calls before they are used.
    let blocked = unsafe {
        libc::sigfillset(all.as_mut_ptr());
        let unknown =
            libc::pthread_sigmask(libc::SIG_SETMASK, std::ptr::null(), before.as_mut_ptr());
        if unknown == 0 && libc::sigismember(before.as_ptr(), libc::SIGXFSZ) == 0 {
            libc::sigdelset(all.as_mut_ptr(), libc::SIGXFSZ);
        }
        unknown == 0
            && libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), std::ptr::null_mut()) == 0
    };
    let made = make();
    if blocked {
        // SAFETY: the call above has filled it.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    }
    made
}
