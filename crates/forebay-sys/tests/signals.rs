//! Signals that ask a process to end: the command counts them and passes them on, a bridge reads them from a
//! descriptor. There is one test, because signals belong to the whole process.

#![allow(unsafe_code)]

use forebay_sys as sys;
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

/// Signals the calling thread, at once.
fn raise(signal: i32) {
    // SAFETY: plain integer.
    assert_eq!(unsafe { libc::raise(signal) }, 0);
}

fn handler(signal: i32) -> usize {
    // SAFETY: a zeroed sigaction is valid, and is filled in.
    unsafe {
        let mut now: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &mut now);
        now.sa_sigaction
    }
}

#[test]
fn signals_that_ask_to_end_are_counted_passed_on_and_read_from_a_descriptor() {
    // SAFETY: SIG_IGN is a valid handler.
    unsafe { libc::signal(libc::SIGHUP, libc::SIG_IGN) };
    sys::watch_signals();
    assert_eq!(sys::signals_seen(), 0);
    raise(libc::SIGTERM);
    raise(libc::SIGINT);
    assert_eq!(sys::signals_seen(), 2);
    // A signal that was ignored stays ignored.
    raise(libc::SIGHUP);
    assert_eq!(
        (sys::signals_seen(), handler(libc::SIGHUP)),
        (2, libc::SIG_IGN)
    );

    // The last one that has come before there was a program to pass it on to reaches the first one.
    for (raised, passed_on) in [(None, libc::SIGINT), (Some(libc::SIGQUIT), libc::SIGQUIT)] {
        let mut command = Command::new("cat");
        let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
        sys::pass_signals_to(child.id());
        raised.into_iter().for_each(raise);
        sys::pass_signals_to(0);
        assert_eq!(child.wait().unwrap().signal(), Some(passed_on));
    }
    assert_eq!(sys::signals_seen(), 3);

    let asked = sys::signals().unwrap();
    for ignored in [libc::SIGINT, libc::SIGHUP, libc::SIGIO, libc::SIGPIPE] {
        raise(ignored);
        assert_eq!(handler(ignored), libc::SIG_IGN);
    }
    assert!(!sys::is_readable(asked.as_fd()));
    raise(libc::SIGTERM);
    assert!(sys::is_readable(asked.as_fd()));
    assert_eq!(sys::signals_seen(), 3);
}
