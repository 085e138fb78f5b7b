//! Settings of this process, and a safe handle of another one.

use crate::events::readable;
use crate::{Errno, Sys, errno_of, open_path};
use rustix::fs::Mode;
use rustix::io::retry_on_intr;
use rustix::process::{
    self, Pid, PidfdFlags, Resource, Rlimit, Signal, WaitId, WaitIdOptions, WaitOptions, getegid,
    geteuid, getgroups, getppid, getrlimit, pidfd_open, setrlimit,
};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// Before what would leave other threads behind, or take them by surprise.
///
/// # Panics
/// If this process has more than one thread.
pub(crate) fn assert_one_thread() {
    let threads = std::fs::read_dir("/proc/self/task").map_or(1, Iterator::count);
    assert_eq!(threads, 1, "this process must have one thread here");
}

/// Effective user and group of this process.
pub fn my_ids() -> (u32, u32) {
    (geteuid().as_raw(), getegid().as_raw())
}

/// The groups that this process is in.
///
/// # Errors
/// Those of `getgroups`.
pub fn my_groups() -> Sys<Vec<u32>> {
    let further = getgroups()?.into_iter().map(|group| group.as_raw());
    Ok(further.chain([my_ids().1]).collect())
}

/// 64 random bits, never 0.
///
/// # Errors
/// Those of `getrandom`. EAGAIN if it gave fewer, which it never does for so few.
pub fn random() -> Sys<u64> {
    let mut bytes = [0; 8];
    let none = rustix::rand::GetRandomFlags::empty();
    match retry_on_intr(|| rustix::rand::getrandom(&mut bytes, none))? {
        8 => Ok(u64::from_ne_bytes(bytes).max(1)),
        _ => Err(Errno::AGAIN),
    }
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

/// The limit of open descriptors, and how far a process may raise it.
pub fn descriptor_limits() -> (u64, u64) {
    let limit = getrlimit(Resource::Nofile);
    let number = |limit: Option<u64>| limit.unwrap_or(u64::MAX);
    (number(limit.current), number(limit.maximum))
}

/// Descriptors that this process may still open.
pub fn free_descriptors() -> u64 {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    // Where it can't be read, none may be free.
    let open = std::fs::read_dir("/proc/self/fd").map_or(limit, |all| all.count() as u64);
    limit.saturating_sub(open)
}

/// Raises the limit of the size of a file as far as the system allows, and returns the new limit in bytes; `None`: there is none.
pub fn raise_file_size_limit() -> Option<u64> {
    let maximum = getrlimit(Resource::Fsize).maximum;
    let wanted = Rlimit {
        current: maximum,
        maximum,
    };
    // If the system refuses, the limit stays as it was.
    let _ = setrlimit(Resource::Fsize, wanted);
    getrlimit(Resource::Fsize).current
}

/// How large a file of this process may be made, in bytes, as far as it may raise that; `None`: there is no limit.
pub fn file_size_limit() -> Option<u64> {
    getrlimit(Resource::Fsize).maximum
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

/// Leaves a descriptor open in the programs that this process starts from now on. Gives its number, by which
/// [`crate::inherited_descriptor`] takes it over.
///
/// # Errors
/// Those of `fcntl`.
pub fn pass_on(fd: BorrowedFd<'_>) -> Sys<i32> {
    rustix::io::fcntl_setfd(fd, rustix::io::FdFlags::empty())?;
    Ok(fd.as_raw_fd())
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

/// Makes this process the parent of all its descendants whose own parents end, instead of the first process of the
/// system. So none of them gets out of its sight.
///
/// # Errors
/// The kernel does not know this.
pub fn adopt_orphans() -> Sys<()> {
    // Which process the number names does not matter, only that there is one.
    process::set_child_subreaper(Some(process::getpid()))
}

/// Reaps the child if it has ended. True: it has, and its id may be given to another process from now on.
pub fn reap(child: u32) -> bool {
    let reaped = pid(child).map(|child| process::waitpid(Some(child), WaitOptions::NOHANG));
    matches!(reaped, Ok(Ok(Some(_))))
}

/// Waits for the end of the child and reaps it. Gives the exit status that a shell would give.
///
/// # Errors
/// ECHILD if there is no such child.
pub fn exit_of(child: u32) -> Sys<u8> {
    let child = pid(child)?;
    let ended = retry_on_intr(|| process::waitpid(Some(child), WaitOptions::empty()))?;
    let status = ended.ok_or(Errno::CHILD)?.1;
    let code = match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => code,
        (None, signal) => 128 + signal.unwrap_or(0),
    };
    Ok(code as u8)
}

/// Makes the kernel kill this process when its parent, the process `parent`, ends.
///
/// # Errors
/// ESRCH: it has ended already.
pub fn die_with_parent(parent: u32) -> Sys<()> {
    process::set_parent_process_death_signal(Some(Signal::KILL))?;
    match getppid() {
        Some(found) if Ok(found) == pid(parent) => Ok(()),
        _ => Err(Errno::SRCH),
    }
}

/// This process outlives its parent.
pub fn live_without_parent() {
    // Fails only for a signal that does not exist.
    let _ = process::set_parent_process_death_signal(None);
}

/// Leaves the terminal for good: this process leads a session of its own, reads nothing, and writes to `log` what goes
/// to its standard streams.
///
/// # Errors
/// EMFILE or ENFILE: no descriptor is free.
pub fn leave_terminal(log: BorrowedFd<'_>) -> Sys<()> {
    // Fails for the leader of a group of processes: then the group has nobody else in it.
    let _ = process::setsid();
    let nothing = open_path(Path::new("/dev/null"), libc::O_RDONLY)?;
    rustix::stdio::dup2_stdin(nothing)?;
    rustix::stdio::dup2_stdout(log)?;
    rustix::stdio::dup2_stderr(log)
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
}
