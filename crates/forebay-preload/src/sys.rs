//! System calls as the library itself makes them.
//!
//! Straight to the kernel, for three reasons: a call to `libc::open` in here
//! would end in our own hook; libc's wrappers are cancellation points, at which
//! a thread could vanish while it holds a connection; and `errno` must stay as
//! it is when a hook succeeds.

use core::arch::asm;
use core::ffi::{c_char, c_int, c_long};

pub use forebay_hook::kernel::{Errno, FdPath, bytes};
pub(crate) use forebay_hook::kernel_call as call;

/// Sets `errno` of the calling thread.
pub fn set_errno(e: Errno) {
    // SAFETY: errno of the calling thread is always there.
    unsafe { *libc::__errno_location() = e };
}

/// `errno` of the calling thread.
pub fn errno() -> Errno {
    // SAFETY: errno of the calling thread is always there.
    unsafe { *libc::__errno_location() }
}

/// Process id; asked of the kernel, because a child of `vfork` shares our memory.
pub fn getpid() -> c_int {
    // SAFETY: no arguments.
    unsafe { call!(libc::SYS_getpid) }.unwrap_or(0) as c_int
}

/// A value that no other living thread of this process has; never 0. It costs no system call.
#[inline(always)]
pub fn thread() -> u64 {
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
    /// Has the processor the instruction? 0: not asked, 1: no, 2: yes. To ask is slow in a virtual machine.
    static HAS_RDTSCP: AtomicU32 = AtomicU32::new(0);
    /// Linux puts number of processor and node together.
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

/// The alternate signal stack of this thread, from its first address to the one behind it, and whether
/// it is in use now.
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

/// Effective user and group.
pub fn effective_ids() -> (u32, u32) {
    // SAFETY: no arguments.
    let (uid, gid) = unsafe { (call!(libc::SYS_geteuid), call!(libc::SYS_getegid)) };
    (uid.unwrap_or(0) as u32, gid.unwrap_or(0) as u32)
}

/// Closes `fd`, which is the library's own.
pub fn close(fd: c_int) {
    // SAFETY: plain integers.
    let _ = unsafe { call!(libc::SYS_close, fd) };
}

/// `fcntl` with an integer argument.
pub fn fcntl(fd: c_int, cmd: c_int, arg: usize) -> Result<c_int, Errno> {
    // SAFETY: plain integers.
    unsafe { call!(libc::SYS_fcntl, fd, cmd, arg) }.map(|r| r as c_int)
}

/// `dup3`.
pub fn dup3(old: c_int, new: c_int, flags: c_int) -> Result<c_int, Errno> {
    // SAFETY: plain integers.
    unsafe { call!(libc::SYS_dup3, old, new, flags) }.map(|r| r as c_int)
}

/// `openat` on a C string.
///
/// # Safety
/// `path` is a C string.
pub unsafe fn openat(
    dirfd: c_int,
    path: *const c_char,
    flags: c_int,
    mode: u32,
) -> Result<c_int, Errno> {
    // SAFETY: the caller's promise.
    unsafe { call!(libc::SYS_openat, dirfd, path, flags, mode) }.map(|r| r as c_int)
}

/// `readlinkat` of a C string into `out`.
///
/// # Safety
/// `path` is a C string.
pub unsafe fn readlink(path: *const c_char, out: *mut u8, room: usize) -> Result<usize, Errno> {
    // SAFETY: the caller's promise; `out` has `room` bytes.
    unsafe { call!(libc::SYS_readlinkat, libc::AT_FDCWD, path, out, room) }
}

/// Reads from `fd` at `offset`.
pub fn pread(fd: c_int, out: &mut [u8], offset: usize) -> Result<usize, Errno> {
    // SAFETY: `out` is writable for its length.
    unsafe { call!(libc::SYS_pread64, fd, out.as_mut_ptr(), out.len(), offset) }
}

/// Nanoseconds of the monotonic clock.
pub fn now_ns() -> u64 {
    let mut t = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `t` is writable.
    let _ = unsafe { call!(libc::SYS_clock_gettime, libc::CLOCK_MONOTONIC, &raw mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// Sleeps; a signal may cut it short.
pub fn sleep_ns(ns: u64) {
    let t = libc::timespec {
        tv_sec: (ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (ns % 1_000_000_000) as c_long,
    };
    // SAFETY: `t` is readable.
    let _ = unsafe { call!(libc::SYS_nanosleep, &raw const t, 0) };
}

/// Lets another thread run on this processor, if one wants to.
pub fn give_way() {
    // SAFETY: no arguments.
    let _ = unsafe { call!(libc::SYS_sched_yield) };
}

/// Random 64 bits, never 0. Falls back on pid and clock before the kernel's pool is ready.
pub fn random() -> u64 {
    let mut x = 0u64;
    // SAFETY: `x` is writable for eight bytes.
    let got = unsafe { call!(libc::SYS_getrandom, &raw mut x, 8, libc::GRND_NONBLOCK) };
    if got != Ok(8) {
        x = (now_ns() ^ (getpid() as u64) << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
    x.max(1)
}

/// Anonymous zeroed memory, or null.
pub fn map(len: usize) -> *mut u8 {
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: asks for a new mapping.
    match unsafe { call!(libc::SYS_mmap, 0, len, prot, flags, -1isize, 0) } {
        Ok(p) => p as *mut u8,
        Err(_) => core::ptr::null_mut(),
    }
}

/// Gives back what [`map`] gave.
///
/// # Safety
/// Nothing may refer to the memory any more.
pub unsafe fn unmap(p: *mut u8, len: usize) {
    // SAFETY: the caller's promise.
    let _ = unsafe { call!(libc::SYS_munmap, p, len) };
}

/// Writes a line to standard error.
pub fn complain(parts: &[&[u8]]) {
    let mut line = [0u8; 512];
    let mut n = 0;
    for &b in parts.iter().flat_map(|p| p.iter()).take(line.len()) {
        line[n] = b;
        n += 1;
    }
    // SAFETY: `line` is readable for `n` bytes.
    let _ = unsafe { call!(libc::SYS_write, 2, line.as_ptr(), n) };
}

/// A descriptor of the library that is closed when it goes.
pub struct OwnFd(pub c_int);

impl OwnFd {
    /// Hands it over.
    pub fn into_raw(self) -> c_int {
        let fd = self.0;
        core::mem::forget(self);
        fd
    }
}

impl Drop for OwnFd {
    fn drop(&mut self) {
        close(self.0);
    }
}
