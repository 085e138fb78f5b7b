//! The processor that a thread runs on, and what goes before it there.

use crate::Sys;
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

/// The processor on which the calling thread is running.
pub fn cpu() -> u32 {
    sched_getcpu() as u32
}

/// Moves the calling thread to another processor that it may run on. Without this, two threads that wait for each other
/// may share a processor for long, because the scheduler sees each of them leave it often.
///
/// # Errors
/// EINVAL if the thread may run on one processor only.
pub fn move_to_other_cpu() -> Sys<()> {
    let all = sched_getaffinity(None)?;
    let mut others = all;
    let here = sched_getcpu();
    if here < CpuSet::MAX_CPU {
        others.unset(here);
    }
    sched_setaffinity(None, &others)?;
    sched_setaffinity(None, &all)
}

/// Lowers the priority of the calling thread by so many steps of `nice`, for good.
pub fn let_others_run_first(steps: i32) {
    // On Linux it is the thread's own. To lower it is always allowed; where it isn't possible nothing is lost.
    let _ = rustix::process::nice(steps);
}
