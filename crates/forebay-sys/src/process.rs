//! Settings of this process, and a safe handle of another one.

use crate::events::readable;
use crate::{Errno, Sys, errno_of, open_path};
use rustix::fs::Mode;
use rustix::io::retry_on_intr;
use rustix::process::{
    self, Pid, PidfdFlags, Resource, Rlimit, WaitId, WaitIdOptions, getegid, geteuid, getrlimit,
    pidfd_open, setrlimit,
};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// Effective user and group of this process.
pub fn my_ids() -> (u32, u32) {
    (geteuid().as_raw(), getegid().as_raw())
}

/// Sets the umask to 0. A bridge makes objects with exact modes, because programs have applied their own umask.
pub fn clear_umask() {
    process::umask(Mode::empty());
}

/// Raises the limit of open descriptors as far as the system allows, and returns the new limit.
pub fn raise_descriptor_limit() -> u64 {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let wanted = Rlimit {
        current: maximum,
        maximum,
    };
    // If the system refuses, the limit stays as it was.
    let _ = setrlimit(Resource::Nofile, wanted);
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Has the kernel make room for so many descriptors now. Each time a process with threads outgrows its table, whoever
/// needs a descriptor waits until all processors have been idle or switched: we saw 12 ms.
pub fn make_room_for_descriptors(count: u64) {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let Some(last) = count.min(limit).checked_sub(1) else {
        return;
    };
    let last = i32::try_from(last).unwrap_or(i32::MAX);
    // The table keeps its size. Where this is refused it grows later.
    let _ = rustix::io::fcntl_dupfd_cloexec(std::io::stderr(), last);
}

/// Takes the descriptor of standard input, and puts `/dev/null` in its place.
///
/// # Errors
/// EMFILE or ENFILE: no descriptor is free.
pub fn take_stdin() -> Sys<OwnedFd> {
    let given = std::io::stdin();
    let given = given.as_fd().try_clone_to_owned().map_err(errno_of)?;
    let nothing = open_path(Path::new("/dev/null"), libc::O_RDONLY)?;
    rustix::stdio::dup2_stdin(nothing)?;
    Ok(given)
}

fn pid(number: u32) -> Sys<Pid> {
    i32::try_from(number)
        .ok()
        .and_then(Pid::from_raw)
        .ok_or(Errno::INVAL)
}

/// Waits until the child has ended, but does not reap it. So its id is not given to another process yet.
///
/// # Errors
/// ECHILD if there is no such child.
pub fn await_end(child: u32) -> Sys<()> {
    let child = pid(child)?;
    let how = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    retry_on_intr(|| process::waitid(WaitId::Pid(child), how)).map(drop)
}

/// A handle of a process (pidfd), child or not. Unlike a process id, it never comes to mean another process.
#[derive(Debug)]
pub struct Process(OwnedFd);

impl AsFd for Process {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Process {
    /// Opens a handle of the process with the id `number`.
    ///
    /// # Errors
    /// ESRCH if there is no such process.
    pub fn open(number: u32) -> Sys<Process> {
        pidfd_open(pid(number)?, PidfdFlags::empty()).map(Process)
    }

    /// A second handle of the same process.
    ///
    /// # Errors
    /// EMFILE or ENFILE: no descriptor is free.
    pub fn try_clone(&self) -> Sys<Process> {
        self.0.try_clone().map(Process).map_err(errno_of)
    }

    /// True if the process has ended.
    pub fn has_ended(&self) -> bool {
        readable(&[self], 0)[0]
    }

    /// Waits until the process has ended.
    pub fn await_end(&self) {
        while !readable(&[self], -1)[0] {}
    }

    /// Waits until this process or `other` has ended. True if `other` is still running.
    pub fn ends_before(&self, other: &Process) -> bool {
        loop {
            match readable(&[self, other], -1)[..] {
                [_, true] => return false,
                [true, false] => return true,
                _ => {}
            }
        }
    }
}
