//! Signals of this process: masks, handlers, and a descriptor that reports them. `rustix` has these calls only for
//! programs without a C library; in others they would disturb the C library's own signals.

use super::check;
use crate::Sys;
use rustix::process::{Pid, Signal, kill_process};
use std::mem::MaybeUninit;
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

/// Blocks or ignores the signals that would end a bridge, for this thread and all that it starts. Returns a descriptor
/// that SIGTERM makes readable.
///
/// # Errors
/// EMFILE or ENFILE: no descriptor is free.
pub fn signals() -> Sys<OwnedFd> {
    // SAFETY: the set is made by sigemptyset before it is used; SIG_IGN is a valid handler; the descriptor is new.
    unsafe {
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigemptyset(set.as_mut_ptr());
        let mut set = set.assume_init();
        libc::sigaddset(&raw mut set, libc::SIGTERM);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
        // An interrupt at the terminal is for the program and for `forebay run`, which still needs the bridge. SIGIO
        // comes from leases. A file that would get too large is an error of the call: EFBIG.
        for ignored in [
            libc::SIGINT,
            libc::SIGHUP,
            libc::SIGIO,
            libc::SIGPIPE,
            libc::SIGXFSZ,
        ] {
            libc::signal(ignored, libc::SIG_IGN);
        }
        let fd = check(libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC))?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// Lets SIGPIPE end this process silently when the reader of its output has gone, as it ends other commands. Only for a process
/// that has nothing else to do than print.
pub fn end_with_the_reader() {
    // SAFETY: SIG_DFL is a valid handler.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
    }
}

/// Lets a panic of any thread end the whole process, also in a build that unwinds (that of the tests).
pub fn abort_at_panics() {
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        tell(panic);
        std::process::abort();
    }));
}

/// Signals that ask a process to end. [`watch_signals`] counts them and passes them on.
const WATCHED: [i32; 4] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT];

static SIGNALS: AtomicU32 = AtomicU32::new(0);
static PROGRAM: AtomicI32 = AtomicI32::new(0);
/// The last signal of another process that came when there was nobody to pass it on to; 0: there was none.
static WAITING: AtomicI32 = AtomicI32::new(0);

extern "C" fn on_signal(signal: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    SIGNALS.fetch_add(1, Ordering::SeqCst);
    let program = PROGRAM.load(Ordering::SeqCst);
    // SAFETY: the kernel passes a valid siginfo.
    let by_process = !info.is_null() && unsafe { (*info).si_code } <= 0;
    // The terminal signals the whole foreground group, so the program has got that signal already. A signal of another
    // process came to this process only.
    if by_process {
        pass_on(program, signal);
    }
}

/// Makes this process count the signals that ask it to end, instead of ending. A signal that is ignored already
/// (`nohup`) stays ignored.
pub fn watch_signals() {
    for signal in WATCHED {
        // SAFETY: zeroed sigaction structures are valid; the handler only does what a handler may.
        unsafe {
            let mut old: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, std::ptr::null(), &raw mut old);
            if old.sa_sigaction == libc::SIG_IGN {
                continue;
            }
            let mut new: libc::sigaction = std::mem::zeroed();
            new.sa_sigaction = on_signal as *const () as usize;
            new.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
            libc::sigaction(signal, &raw const new, std::ptr::null_mut());
        }
    }
}

extern "C" fn on_child(_: i32) {}

/// Lets the end of a child end the waits of this process ([`crate::wait_any`]), also of one that it has adopted.
pub fn hear_of_children() {
    // SAFETY: a zeroed sigaction structure is valid, and the handler does nothing.
    unsafe {
        let mut new: libc::sigaction = std::mem::zeroed();
        new.sa_sigaction = on_child as *const () as usize;
        new.sa_flags = libc::SA_RESTART | libc::SA_NOCLDSTOP;
        libc::sigaction(libc::SIGCHLD, &raw const new, std::ptr::null_mut());
    }
}

/// Number of signals that asked this process to end, since [`watch_signals`].
pub fn signals_seen() -> u32 {
    SIGNALS.load(Ordering::SeqCst)
}

/// What comes when there is no program waits for one.
fn pass_on(program: i32, signal: i32) {
    match (Pid::from_raw(program), Signal::from_named_raw(signal)) {
        (Some(program), Some(signal)) => {
            // The program has not been waited for yet. This is a bare system call, which a handler may make.
            let _ = kill_process(program, signal);
        }
        _ => WAITING.store(signal, Ordering::SeqCst),
    }
}

/// Passes signals that other processes send to this one on to process `pid`, also one that has come before; 0 for none.
pub fn pass_signals_to(pid: u32) {
    let program = i32::try_from(pid).unwrap_or(0);
    PROGRAM.store(program, Ordering::SeqCst);
    let waiting = WAITING.swap(0, Ordering::SeqCst);
    if program != 0 && waiting != 0 {
        pass_on(program, waiting);
    }
}
