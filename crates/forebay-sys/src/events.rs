//! Waiting for descriptors, and waking those who wait.

use crate::{Errno, Sys};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, poll};
use rustix::io::{read, write};
use rustix::pipe::{PipeFlags, pipe_with};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// A counter that wakes an epoll.
///
/// # Errors
/// No descriptor.
pub fn eventfd() -> Sys<OwnedFd> {
    rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
}

/// Adds one to an eventfd.
pub fn notify(fd: BorrowedFd<'_>) {
    // A full counter is as awake as can be.
    let _ = write(fd, &1u64.to_ne_bytes());
}

/// Takes all from an eventfd.
pub fn drain(fd: BorrowedFd<'_>) {
    // An empty counter has nothing to take.
    let _ = read(fd, &mut [0u8; 8]);
}

/// A pipe: the end to read from, the end to write to.
///
/// # Errors
/// No descriptors.
pub fn pipe() -> Sys<(OwnedFd, OwnedFd)> {
    pipe_with(PipeFlags::CLOEXEC)
}

/// An epoll instance.
#[derive(Debug)]
pub struct Epoll(OwnedFd);

/// An event that an epoll reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// The number given when the descriptor was added.
    pub key: u64,
    /// `EPOLL*` bits.
    pub bits: u32,
}

/// Events fetched by one wait.
pub const EVENTS_PER_WAIT: usize = 64;

impl Epoll {
    /// A new one.
    ///
    /// # Errors
    /// No descriptor.
    pub fn new() -> Sys<Self> {
        epoll::create(CreateFlags::CLOEXEC).map(Epoll)
    }

    /// Watches `fd` for `EPOLL*` bits.
    ///
    /// # Errors
    /// Of `epoll_ctl`.
    pub fn add(&self, fd: BorrowedFd<'_>, key: u64, bits: u32) -> Sys<()> {
        let flags = EventFlags::from_bits_retain(bits);
        epoll::add(&self.0, fd, EventData::new_u64(key), flags)
    }

    /// Ceases to watch `fd`.
    ///
    /// # Errors
    /// Of `epoll_ctl`.
    pub fn remove(&self, fd: BorrowedFd<'_>) -> Sys<()> {
        epoll::delete(&self.0, fd)
    }

    /// Waits for events, at most so many milliseconds; -1: for ever. A signal ends it with none.
    ///
    /// # Errors
    /// Of `epoll_wait`.
    pub fn wait(&self, timeout_ms: i32, out: &mut Vec<Event>) -> Sys<()> {
        out.clear();
        let mut room = [MaybeUninit::uninit(); EVENTS_PER_WAIT];
        let limit = limit(timeout_ms);
        match epoll::wait(&self.0, &mut room, limit.as_ref()) {
            Ok((events, _)) => {
                out.extend(events.iter().map(|&epoll::Event { flags, data }| Event {
                    key: data.u64(),
                    bits: flags.bits(),
                }))
            }
            Err(Errno::INTR) => {}
            Err(e) => return Err(e),
        }
        Ok(())
    }
}

/// A limit in milliseconds as the kernel wants it; a negative one is none.
pub(crate) fn limit(timeout_ms: i32) -> Option<Timespec> {
    let ms = i64::from(timeout_ms);
    (ms >= 0).then(|| Timespec {
        tv_sec: ms / 1000,
        tv_nsec: ms % 1000 * 1_000_000,
    })
}

/// Which of these are readable, or have nobody at the other end, after at most so many milliseconds (-1: no limit)
/// without one. A signal ends the wait with none.
pub(crate) fn readable<Fd: AsFd>(fds: &[Fd], timeout_ms: i32) -> Vec<bool> {
    let mut entries: Vec<PollFd<'_>> = fds
        .iter()
        .map(|fd| PollFd::new(fd, PollFlags::IN))
        .collect();
    // After an interruption, or another failure, nothing is known to be readable.
    let _ = poll(&mut entries, limit(timeout_ms).as_ref());
    let any = |entry: &PollFd<'_>| !entry.revents().is_empty();
    entries.iter().map(any).collect()
}

/// Waits until one of two descriptors is readable. A signal ends it, too: the caller looks again.
pub fn wait_either(a: BorrowedFd<'_>, b: BorrowedFd<'_>) {
    readable(&[a, b], -1);
}

/// Waits until one of them is readable, as the hold on a process is when that has ended, or for so long. A signal ends
/// it, too.
pub fn wait_any<Fd: AsFd>(fds: &[Fd], longest: Duration) {
    let ms = i32::try_from(longest.as_millis()).unwrap_or(i32::MAX);
    readable(fds, ms);
}

/// Is there something to read now?
pub fn is_readable(fd: BorrowedFd<'_>) -> bool {
    readable(&[fd], 0)[0]
}
