//! Waits for descriptors, and wakes a thread that waits.

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
/// EMFILE or ENFILE: no descriptor is free.
pub fn eventfd() -> Sys<OwnedFd> {
    rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
}

/// Adds one to an eventfd.
pub fn notify(fd: BorrowedFd<'_>) {
    // The write fails only if the counter is full, and then the waiter is woken anyway.
    let _ = write(fd, &1u64.to_ne_bytes());
}

/// Sets an eventfd back to 0.
pub fn drain(fd: BorrowedFd<'_>) {
    // The read fails only if the counter is 0 already.
    let _ = read(fd, &mut [0u8; 8]);
}

/// A pipe: first the end to read from, then the end to write to.
///
/// # Errors
/// EMFILE or ENFILE: no two descriptors are free.
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
    /// A new instance that watches nothing.
    ///
    /// # Errors
    /// EMFILE or ENFILE: no descriptor is free.
    pub fn new() -> Sys<Self> {
        epoll::create(CreateFlags::CLOEXEC).map(Epoll)
    }

    /// Watches `fd` for `EPOLL*` bits.
    ///
    /// # Errors
    /// Those of `epoll_ctl`.
    pub fn add(&self, fd: BorrowedFd<'_>, key: u64, bits: u32) -> Sys<()> {
        let flags = EventFlags::from_bits_retain(bits);
        epoll::add(&self.0, fd, EventData::new_u64(key), flags)
    }

    /// Ceases to watch `fd`.
    ///
    /// # Errors
    /// Those of `epoll_ctl`.
    pub fn remove(&self, fd: BorrowedFd<'_>) -> Sys<()> {
        epoll::delete(&self.0, fd)
    }

    /// Waits for events, for at most `timeout_ms` milliseconds; -1 means no limit. A signal ends the wait without an
    /// event.
    ///
    /// # Errors
    /// Those of `epoll_wait`.
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

/// A limit in milliseconds in the kernel's form; a negative number means no limit.
pub(crate) fn limit(timeout_ms: i32) -> Option<Timespec> {
    let ms = i64::from(timeout_ms);
    (ms >= 0).then(|| Timespec {
        tv_sec: ms / 1000,
        tv_nsec: ms % 1000 * 1_000_000,
    })
}

/// Waits until one of `fds` is readable, or its other end is closed, for at most `timeout_ms` milliseconds (-1: no
/// limit). Says of each whether it is. A signal ends the wait, and then none is.
pub(crate) fn readable<Fd: AsFd>(fds: &[Fd], timeout_ms: i32) -> Vec<bool> {
    let mut entries: Vec<PollFd<'_>> = fds
        .iter()
        .map(|fd| PollFd::new(fd, PollFlags::IN))
        .collect();
    // After a signal or a failure, the entries say that nothing is readable.
    let _ = poll(&mut entries, limit(timeout_ms).as_ref());
    let any = |entry: &PollFd<'_>| !entry.revents().is_empty();
    entries.iter().map(any).collect()
}

/// Has the other end of this socket been closed? That of a process that has ended has.
pub fn has_hung_up(socket: BorrowedFd<'_>) -> bool {
    let mut entry = [PollFd::new(&socket, PollFlags::empty())];
    // If it can't be asked, it counts as there.
    let _ = poll(&mut entry, limit(0).as_ref());
    entry[0].revents().contains(PollFlags::HUP)
}

/// Waits until one of two descriptors is readable. A signal also ends the wait, so the caller checks again.
pub fn wait_either(a: BorrowedFd<'_>, b: BorrowedFd<'_>) {
    readable(&[a, b], -1);
}

/// Waits until one of `fds` is readable, for at most `longest`. A [`crate::Process`] becomes readable when the process
/// ends. A signal also ends the wait.
pub fn wait_any<Fd: AsFd>(fds: &[Fd], longest: Duration) {
    let ms = i32::try_from(longest.as_millis()).unwrap_or(i32::MAX);
    readable(fds, ms);
}

/// True if there is something to read now.
pub fn is_readable(fd: BorrowedFd<'_>) -> bool {
    readable(&[fd], 0)[0]
}
