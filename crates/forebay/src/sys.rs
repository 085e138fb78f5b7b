//! The few system calls that the standard library does not offer.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

/// Effective user of this process.
pub fn euid() -> u32 {
    // SAFETY: cannot fail, touches no memory.
    unsafe { libc::geteuid() }
}

/// A moment, in nanoseconds since 1970, in the time zone of this machine.
pub fn local_time(ns: u64) -> forebay_collect::naming::Moment {
    let seconds = i64::try_from(ns / 1_000_000_000).unwrap_or(0);
    // SAFETY: zeroes are a valid value of this plain structure, which the call fills in; if it cannot, they stay.
    let tm = unsafe {
        let mut tm: libc::tm = std::mem::zeroed();
        libc::localtime_r(&seconds, &mut tm);
        tm
    };
    forebay_collect::naming::Moment {
        year: i64::from(tm.tm_year) + 1900,
        month: tm.tm_mon.unsigned_abs() + 1,
        day: tm.tm_mday.unsigned_abs(),
        second_of_day: (tm.tm_hour * 3600 + tm.tm_min * 60 + tm.tm_sec).unsigned_abs(),
    }
}

/// Name of a user, if the system knows it.
pub fn user_name(uid: u32) -> Option<String> {
    let mut buffer = [0; 16 << 10];
    // SAFETY: zeroes are a valid value of the structure. The call fills in it and the buffer, whose length is
    // given; the name that it points to lies in the buffer and ends with a NUL.
    unsafe {
        let mut entry: libc::passwd = std::mem::zeroed();
        let mut found = std::ptr::null_mut();
        libc::getpwuid_r(
            uid,
            &mut entry,
            buffer.as_mut_ptr(),
            buffer.len(),
            &mut found,
        );
        (!found.is_null()).then(|| {
            std::ffi::CStr::from_ptr(entry.pw_name)
                .to_string_lossy()
                .into_owned()
        })
    }
}

fn c_path(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes())
        .map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
}

/// Size and free space of a file system in bytes (free: for this user).
pub fn space(path: &Path) -> io::Result<(u64, u64)> {
    let path = c_path(path)?;
    // SAFETY: zeroes are a valid value of this plain structure, which the call fills in.
    let mut s: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are valid for the call.
    if unsafe { libc::statvfs(path.as_ptr(), &mut s) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((s.f_blocks * s.f_frsize, s.f_bavail * s.f_frsize))
}

/// Sets a user xattr on an open file.
pub fn set_xattr(file: &impl AsRawFd, name: &str, value: &[u8]) -> io::Result<()> {
    let name = CString::new(name)?;
    // SAFETY: name and value are valid for the call, with the length that is given.
    let r = unsafe {
        libc::fsetxattr(
            file.as_raw_fd(),
            name.as_ptr(),
            value.as_ptr().cast(),
            value.len(),
            0,
        )
    };
    if r == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// May this user enter, list and change the directory? With effective ids, as a later open would be judged.
pub fn check_access(path: &Path, mode: i32) -> io::Result<()> {
    let path = c_path(path)?;
    // SAFETY: the path is valid for the call.
    if unsafe { libc::faccessat(libc::AT_FDCWD, path.as_ptr(), mode, libc::AT_EACCESS) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// A pipe: the end to read from, the end to write to.
pub fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut fds = [0; 2];
    // SAFETY: the array has room for the two descriptors, which nobody else owns.
    unsafe {
        if libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC) != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok((OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1])))
    }
}

/// Does another process hold the lock on this file?
pub fn is_locked(path: &Path) -> bool {
    let Ok(file) = std::fs::File::open(path) else {
        return false;
    };
    // SAFETY: plain integers. A lock that we get goes away with the descriptor.
    unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_SH | libc::LOCK_NB) != 0 }
}

/// Takes over a descriptor that the parent process has left for us.
pub fn inherited_fd(fd: i32) -> OwnedFd {
    // SAFETY: the number comes from the process that started us and has no other owner here;
    // the flag keeps it from our own children.
    unsafe {
        libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC);
        OwnedFd::from_raw_fd(fd)
    }
}

/// Lets the command start in a session of its own, with standard streams and one more descriptor: no
/// terminal can signal it, it outlives us, and it holds nothing open that we inherited.
pub fn in_new_session(command: &mut std::process::Command, with: &OwnedFd) {
    use std::os::unix::process::CommandExt;
    let with = with.as_raw_fd();
    // SAFETY: these calls are safe between fork and exec.
    unsafe {
        command.pre_exec(move || {
            libc::setsid();
            libc::close_range(3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC as i32);
            libc::fcntl(with, libc::F_SETFD, 0);
            Ok(())
        });
    }
}

/// Signals that ask to end, which [`watch_signals`] counts and passes on.
const WATCHED: [i32; 4] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT];

static SIGNALS: AtomicU32 = AtomicU32::new(0);
static PROGRAM: AtomicI32 = AtomicI32::new(0);

extern "C" fn on_signal(signal: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    SIGNALS.fetch_add(1, Ordering::SeqCst);
    let program = PROGRAM.load(Ordering::SeqCst);
    // SAFETY: the kernel passes a valid siginfo.
    let by_process = !info.is_null() && unsafe { (*info).si_code } <= 0;
    // The terminal has signalled the whole foreground group, the program included. What another
    // process sent came to us alone.
    if program > 0 && by_process {
        // SAFETY: kill may be called in a handler; the program has not been waited for yet.
        unsafe {
            libc::kill(program, signal);
        }
    }
}

/// Counts requests to end from here on instead of dying. One that is ignored already (`nohup`) stays so.
pub fn watch_signals() {
    for signal in WATCHED {
        // SAFETY: zeroed sigaction structures are valid; the handler only does what a handler may.
        unsafe {
            let mut old: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, std::ptr::null(), &mut old);
            if old.sa_sigaction == libc::SIG_IGN {
                continue;
            }
            let mut new: libc::sigaction = std::mem::zeroed();
            new.sa_sigaction = on_signal as *const () as usize;
            new.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
            libc::sigaction(signal, &new, std::ptr::null_mut());
        }
    }
}

/// Requests to end since [`watch_signals`].
pub fn signals_seen() -> u32 {
    SIGNALS.load(Ordering::SeqCst)
}

/// From now on signals that other processes send us go to this one, too; 0 for none.
pub fn pass_signals_to(pid: u32) {
    PROGRAM.store(i32::try_from(pid).unwrap_or(0), Ordering::SeqCst);
}

/// Waits until the child has ended, but leaves it to be waited for: its id is still its own.
pub fn await_end(pid: u32) -> io::Result<()> {
    loop {
        // SAFETY: zeroes are a valid siginfo, which the call fills in.
        let r = unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            libc::waitid(libc::P_PID, pid, &mut info, libc::WEXITED | libc::WNOWAIT)
        };
        if r == 0 {
            return Ok(());
        }
        let e = io::Error::last_os_error();
        if e.kind() != io::ErrorKind::Interrupted {
            return Err(e);
        }
    }
}

/// A hold on a process that is not our child (pidfd), so that its id cannot be mistaken for another's.
pub struct Process(OwnedFd);

impl Process {
    /// `None` if there is no such process.
    pub fn open(pid: u32) -> Option<Process> {
        // SAFETY: touches no memory; a fresh descriptor is returned, which nobody else owns.
        unsafe {
            let fd = libc::syscall(libc::SYS_pidfd_open, pid as libc::pid_t, 0);
            (fd >= 0).then(|| Process(OwnedFd::from_raw_fd(fd as i32)))
        }
    }

    /// Has it ended?
    pub fn has_ended(&self) -> bool {
        poll(&[self], 0)[0]
    }

    /// Waits until this one or the other one has ended; true if the other one goes on.
    pub fn ends_before(&self, other: &Process) -> bool {
        loop {
            match poll(&[self, other], -1)[..] {
                [_, true] => return false,
                [true, false] => return true,
                _ => {}
            }
        }
    }

    /// Waits until it has ended.
    pub fn await_end(&self) {
        while !poll(&[self], -1)[0] {}
    }
}

/// Which of these have ended, after at most so many milliseconds (-1: no limit) without one.
fn poll(processes: &[&Process], timeout_ms: i32) -> Vec<bool> {
    let mut entries: Vec<libc::pollfd> = processes
        .iter()
        .map(|process| libc::pollfd {
            fd: process.0.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        })
        .collect();
    // SAFETY: as many valid entries as announced. An interruption shows as nobody having ended.
    unsafe {
        libc::poll(
            entries.as_mut_ptr(),
            entries.len() as libc::nfds_t,
            timeout_ms,
        )
    };
    entries.iter().map(|entry| entry.revents != 0).collect()
}
