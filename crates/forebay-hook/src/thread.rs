//! Facts about the calling thread that cost little or no system call.

use core::arch::asm;

use crate::kernel::call;

/// A number that no other living thread of this process has; never 0. It costs no system call.
#[inline(always)]
pub fn id() -> u64 {
    let id: u64;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the first word of the thread's own block is its address.
    unsafe {
        asm!("mov {}, fs:0", out(reg) id, options(nostack, readonly, preserves_flags));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: reads a register.
    unsafe {
        asm!("mrs {}, tpidr_el0", out(reg) id, options(nostack, nomem, preserves_flags));
    }
    id.max(1)
}

/// The processor on which the thread is running, where that can be learnt without a system call.
#[cfg(target_arch = "x86_64")]
pub fn cpu() -> Option<u32> {
    use core::arch::x86_64::{__cpuid, __rdtscp};
    use core::sync::atomic::{AtomicU32, Ordering};
    /// Whether the processor has the instruction. 0: not asked, 1: no, 2: yes. It is asked once, because to ask is
    /// slow in a virtual machine.
    static HAS_RDTSCP: AtomicU32 = AtomicU32::new(0);
    /// Linux puts the number of the processor into the low bits, and that of the node above.
    const CPU_BITS: u32 = 12;
    let has = match HAS_RDTSCP.load(Ordering::Relaxed) {
        0 => {
            let has = __cpuid(0x8000_0001).edx >> 27 & 1;
            HAS_RDTSCP.store(1 + has, Ordering::Relaxed);
            1 + has
        }
        has => has,
    };
    if has == 1 {
        return None;
    }
    let mut aux = 0;
    // SAFETY: the processor has the instruction.
    unsafe { __rdtscp(&raw mut aux) };
    Some(aux & ((1 << CPU_BITS) - 1))
}

/// The processor on which the thread is running, where that can be learnt without a system call.
#[cfg(not(target_arch = "x86_64"))]
pub fn cpu() -> Option<u32> {
    None
}

/// The addresses of this thread's alternate signal stack, and whether the thread runs on it now.
pub fn signal_stack() -> (core::ops::Range<usize>, bool) {
    // SAFETY: zeroes are a valid value.
    let mut stack: libc::stack_t = unsafe { core::mem::zeroed() };
    // SAFETY: `stack` is writable.
    let _ = unsafe { call!(libc::SYS_sigaltstack, 0, &raw mut stack) };
    let start = stack.ss_sp as usize;
    (
        start..start + stack.ss_size,
        stack.ss_flags & libc::SS_ONSTACK != 0,
    )
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;

    #[test]
    fn two_threads_that_live_have_two_ids() {
        let mine = id();
        assert_eq!(mine, id());
        assert_ne!(mine, std::thread::spawn(id).join().unwrap());
    }
}
