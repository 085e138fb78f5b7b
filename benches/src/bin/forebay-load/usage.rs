//! Processor time of this process.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;

/// Seconds of processor time (user and system) of this process and of the children that it has
/// waited for.
pub fn cpu_seconds() -> f64 {
    of(libc::RUSAGE_SELF) + of(libc::RUSAGE_CHILDREN)
}

fn of(who: libc::c_int) -> f64 {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the kernel writes no more than the struct; all zeroes is a valid value of it, and
    // the call can't fail with these arguments.
    let usage = unsafe {
        libc::getrusage(who, usage.as_mut_ptr());
        usage.assume_init()
    };
    let seconds = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 * 1e-6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}
