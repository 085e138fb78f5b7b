//! The clock, read without a system call where the program allows it.

use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, Ordering};

fn clock(which: c_int) -> u64 {
    let mut t = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // libc reads the time from a page of the kernel, without a system call.
    // SAFETY: `t` is writable.
    unsafe { libc::clock_gettime(which, &raw mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// True once the program may not read the processor's counter any more.
static COARSE: AtomicBool = AtomicBool::new(false);

/// Takes the time from the kernel's last tick from now on, which reads no counter of the processor.
pub fn use_coarse_clock() {
    COARSE.store(true, Ordering::Relaxed);
}

/// Monotonic clock, ns.
#[inline(always)]
pub fn now_ns() -> u64 {
    let coarse = COARSE.load(Ordering::Relaxed);
    clock(if coarse {
        libc::CLOCK_MONOTONIC_COARSE
    } else {
        libc::CLOCK_MONOTONIC
    })
}

/// Wall clock, ns.
pub fn realtime_ns() -> u64 {
    clock(libc::CLOCK_REALTIME)
}
