//! On which processor a thread runs, and when.

use crate::Sys;
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

/// The processor on which the calling thread is running.
pub fn cpu() -> u32 {
    sched_getcpu() as u32
}

/// Moves the calling thread to another processor of those on which it may run. Left to itself the scheduler lets two
/// threads that wait for each other share a processor for long, because each leaves it often.
///
/// # Errors
/// EINVAL if there is no other.
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
