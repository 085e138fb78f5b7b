//! The clock, read without a system call where the program allows it, and from the processor's counter where the kernel trusts that.

use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, Ordering};

use forebay_count::counter_clock::CounterClock;

use crate::own_reads::read_file;
use crate::state;

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

static BY_COUNTER: CounterClock = CounterClock::new();

/// Takes the time from the kernel's last tick from now on, which reads no counter of the processor.
pub fn use_coarse_clock() {
    BY_COUNTER.give_up();
    COARSE.store(true, Ordering::Relaxed);
}

/// Monotonic clock, ns.
#[inline(always)]
pub fn now_ns() -> u64 {
    BY_COUNTER.read(counter).unwrap_or_else(now_by_kernel)
}

#[cold]
fn now_by_kernel() -> u64 {
    if COARSE.load(Ordering::Relaxed) {
        return clock(libc::CLOCK_MONOTONIC_COARSE);
    }
    let before = counter();
    let ns = clock(libc::CLOCK_MONOTONIC);
    BY_COUNTER.compare(ns, (before, counter()), is_counter_believed)
}

/// The counter that Linux makes its clock of on this architecture. It is read without waiting for the instructions before, which may make a
/// difference of some nanoseconds beside a call of the kernel.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn counter() -> u64 {
    // SAFETY: every processor of this architecture has it. Where the program has forbidden itself to read it, libc can't either.
    unsafe { core::arch::x86_64::_rdtsc() }
}

#[cfg(not(target_arch = "x86_64"))]
fn counter() -> u64 {
    0
}

/// Does the kernel take its time from this counter? Then it is the same on all processors, and goes on at one rate. `None` if it can't be
/// asked now.
fn is_counter_believed() -> Option<bool> {
    if !cfg!(target_arch = "x86_64") {
        return Some(false);
    }
    if state::is_restricted() {
        return None;
    }
    let mut room = [0; 32];
    let source = read_file(
        c"/sys/devices/system/clocksource/clocksource0/current_clocksource",
        &mut room,
    );
    Some(source == Some(b"tsc\n"))
}

/// Wall clock, ns.
pub fn realtime_ns() -> u64 {
    clock(libc::CLOCK_REALTIME)
}
