//! What a signal does to each call: some are repeated, others end.

#![allow(unsafe_code)]

use forebay_sys::{self as sys, Epoll, Process};
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

static HANDLED: AtomicU32 = AtomicU32::new(0);
/// Lets one test run at a time, because all count the same signals.
static ALONE: Mutex<()> = Mutex::new(());

extern "C" fn handle(_signal: i32) {
    HANDLED.fetch_add(1, Ordering::SeqCst);
}

/// Makes SIGUSR1 interrupt calls, without the kernel repeating them.
fn alone() -> MutexGuard<'static, ()> {
    let guard = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: a zeroed sigaction is valid; the handler only counts.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handle as *const () as usize;
        let done = libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut());
        assert_eq!(done, 0);
    }
    guard
}

/// A thread in a call that sleeps.
struct Sleeper<T> {
    thread: JoinHandle<T>,
    id: i32,
}

impl<T: Send + 'static> Sleeper<T> {
    fn new(call: impl FnOnce() -> T + Send + 'static) -> Self {
        static ID: AtomicI32 = AtomicI32::new(0);
        ID.store(0, Ordering::SeqCst);
        let thread = std::thread::spawn(move || {
            ID.store(rustix::thread::gettid().as_raw_pid(), Ordering::SeqCst);
            call()
        });
        let id = loop {
            match ID.load(Ordering::SeqCst) {
                0 => std::thread::yield_now(),
                id => break id,
            }
        };
        Sleeper { thread, id }
    }

    fn sleeps(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/self/task/{}/stat", self.id)).unwrap();
        // The state follows the name of the program, which is in parentheses.
        stat.rsplit_once(") ").unwrap().1.starts_with('S')
    }

    /// Waits until the thread sleeps, and interrupts it.
    fn interrupt(&self) {
        while !self.sleeps() {
            std::thread::yield_now();
        }
        let before = HANDLED.load(Ordering::SeqCst);
        // SAFETY: plain integers.
        let sent =
            unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), self.id, libc::SIGUSR1) };
        assert_eq!(sent, 0);
        while HANDLED.load(Ordering::SeqCst) == before {
            std::thread::yield_now();
        }
    }

    fn join(self) -> T {
        self.thread.join().unwrap()
    }
}

#[test]
fn an_open_that_waits_is_made_again() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("fifo");
    let fd = sys::open_path(dir.path(), libc::O_RDONLY).unwrap();
    sys::mknod(fd.as_fd(), b"fifo", libc::S_IFIFO | 0o600, 0).unwrap();
    for by_path in [false, true] {
        let (fd, named) = (fd.try_clone().unwrap(), path.clone());
        let reader = Sleeper::new(move || match by_path {
            false => sys::open(fd.as_fd(), b"fifo", libc::O_RDONLY, 0),
            true => sys::open_path(&named, libc::O_RDONLY),
        });
        for _ in 0..3 {
            reader.interrupt();
        }
        let writer = std::fs::File::options().write(true).open(&path).unwrap();
        assert!(reader.join().is_ok());
        drop(writer);
    }
}

#[test]
fn an_epoll_that_waits_reports_nothing() {
    let _alone = alone();
    let waiter = Sleeper::new(|| {
        let mut events = Vec::new();
        Epoll::new().unwrap().wait(-1, &mut events).map(|()| events)
    });
    waiter.interrupt();
    assert_eq!(waiter.join(), Ok(Vec::new()));
}

#[test]
fn a_wait_for_two_descriptors_ends_without_either() {
    let _alone = alone();
    let waiter = Sleeper::new(|| {
        let (a, b) = (sys::eventfd().unwrap(), sys::eventfd().unwrap());
        sys::wait_either(a.as_fd(), b.as_fd());
        sys::is_readable(a.as_fd()) || sys::is_readable(b.as_fd())
    });
    waiter.interrupt();
    assert!(!waiter.join());
}

#[test]
fn the_wait_for_the_end_of_a_process_goes_on() {
    let _alone = alone();
    let mut command = Command::new("cat");
    command.stdin(Stdio::piped()).stdout(Stdio::null());
    for by_hold in [false, true] {
        let mut child = command.spawn().unwrap();
        let id = child.id();
        let waiter = Sleeper::new(move || match by_hold {
            false => sys::await_end(id),
            true => Process::open(id).map(|process| process.await_end()),
        });
        for _ in 0..3 {
            waiter.interrupt();
        }
        drop(child.stdin.take());
        assert_eq!(waiter.join(), Ok(()));
        assert!(child.wait().unwrap().success());
    }
}
