//! What the recorder itself asks of the kernel.

use core::ffi::{c_char, c_int, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use forebay_hook::kernel::FdPath;
pub use forebay_hook::kernel::{Errno, bytes};
pub use forebay_hook::kernel_call as call;

/// `errno` of the calling thread.
pub fn errno() -> Errno {
    // SAFETY: errno of the calling thread is always there.
    unsafe { *libc::__errno_location() }
}

/// Sets `errno` of the calling thread.
pub fn set_errno(e: Errno) {
    // SAFETY: errno of the calling thread is always there.
    unsafe { *libc::__errno_location() = e };
}

/// Process id; asked of the kernel, because a child of `vfork` shares our memory.
pub fn getpid() -> c_int {
    // SAFETY: no arguments.
    unsafe { call!(libc::SYS_getpid) }.unwrap_or(0) as c_int
}

/// Parent.
pub fn getppid() -> c_int {
    // SAFETY: no arguments.
    unsafe { call!(libc::SYS_getppid) }.unwrap_or(0) as c_int
}

fn clock(which: c_int) -> u64 {
    let mut t = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // Through libc: it asks the kernel's page instead of the kernel.
    // SAFETY: `t` is writable.
    unsafe { libc::clock_gettime(which, &raw mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// The program may not read the processor's counter any more.
static COARSE: AtomicBool = AtomicBool::new(false);

/// From now on time is what the last tick of the kernel said.
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

/// Anonymous zeroed memory, or null.
pub fn map(len: usize) -> *mut u8 {
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: asks for a new mapping.
    match unsafe { call!(libc::SYS_mmap, 0, len, prot, flags, -1isize, 0) } {
        Ok(p) => p as *mut u8,
        Err(_) => null_mut(),
    }
}

/// Gives back a mapping.
///
/// # Safety
/// Nothing may refer to the memory any more.
pub unsafe fn unmap(p: *mut u8, len: usize) {
    // SAFETY: the caller's promise.
    let _ = unsafe { call!(libc::SYS_munmap, p, len) };
}

/// Opens a C string.
///
/// # Safety
/// `path` is a C string.
pub unsafe fn open(path: *const c_char, flags: c_int, mode: u32) -> Result<c_int, Errno> {
    // SAFETY: the caller's promise.
    unsafe {
        call!(
            libc::SYS_openat,
            libc::AT_FDCWD,
            path,
            flags | libc::O_CLOEXEC,
            mode
        )
    }
    .map(|fd| fd as c_int)
}

/// Closes the recorder's own descriptor.
pub fn close(fd: c_int) {
    // SAFETY: plain integers.
    let _ = unsafe { call!(libc::SYS_close, fd) };
}

/// Attributes of an open file.
pub fn fstat(fd: c_int) -> Option<libc::stat> {
    // SAFETY: zeroes are a valid value.
    let mut out: libc::stat = unsafe { core::mem::zeroed() };
    // SAFETY: `out` is writable.
    unsafe { call!(libc::SYS_fstat, fd, &raw mut out) }.ok()?;
    Some(out)
}

/// What an open descriptor is called, as the kernel sees it.
pub fn fd_name(fd: c_int, out: &mut [u8]) -> Option<&[u8]> {
    // SAFETY: the path is a C string, `out` is writable for its length.
    let n = unsafe {
        call!(
            libc::SYS_readlinkat,
            libc::AT_FDCWD,
            FdPath::new(fd).as_ptr(),
            out.as_mut_ptr(),
            out.len()
        )
    };
    out.get(..n.ok()?)
}

/// Position of a descriptor.
pub fn position(fd: c_int) -> Option<i64> {
    // SAFETY: plain integers.
    unsafe { call!(libc::SYS_lseek, fd, 0, libc::SEEK_CUR) }
        .ok()
        .map(|p| p as i64)
}

/// Bytes and calls of [`read_file`]: what the kernel counts of this process and the program did not do.
static OWN_READS: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// Bytes and calls that the recorder itself has read.
pub fn own_reads() -> [u64; 2] {
    [0, 1].map(|i| OWN_READS[i].load(Ordering::Relaxed))
}

/// The kernel counts a new process from nothing.
pub fn forget_own_reads() {
    OWN_READS.iter().for_each(|n| n.store(0, Ordering::Relaxed));
}

/// Reads a small file whole; as much as has room.
pub fn read_file<'o>(path: &core::ffi::CStr, out: &'o mut [u8]) -> Option<&'o [u8]> {
    // SAFETY: a C string.
    let fd = unsafe { open(path.as_ptr(), libc::O_RDONLY, 0) }.ok()?;
    let mut len = 0;
    while len < out.len() {
        let rest = &mut out[len..];
        // SAFETY: `rest` is writable for its length.
        let got = unsafe { call!(libc::SYS_read, fd, rest.as_mut_ptr(), rest.len()) };
        OWN_READS[1].fetch_add(1, Ordering::Relaxed);
        match got {
            Ok(0) | Err(_) => break,
            Ok(n) => len += n,
        }
    }
    OWN_READS[0].fetch_add(len as u64, Ordering::Relaxed);
    close(fd);
    out.get(..len)
}

/// Backs pages with memory, without the signal that a first touch would bring where there is none.
pub fn populate(at: *mut c_void, len: usize) -> Result<(), Errno> {
    /// `MADV_POPULATE_WRITE`, Linux 5.14.
    const POPULATE_WRITE: c_int = 23;
    // SAFETY: the range belongs to a mapping of ours.
    unsafe { call!(libc::SYS_madvise, at, len, POPULATE_WRITE) }.map(drop)
}

/// Sets a soft limit and gives the one before.
pub fn swap_soft_limit(which: u32, soft: u64) -> Option<u64> {
    let mut old = libc::rlimit64 {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `old` is writable.
    unsafe { call!(libc::SYS_prlimit64, 0, which, 0, &raw mut old) }.ok()?;
    let new = libc::rlimit64 {
        rlim_cur: soft.min(old.rlim_max),
        rlim_max: old.rlim_max,
    };
    // SAFETY: `new` is readable.
    unsafe { call!(libc::SYS_prlimit64, 0, which, &raw const new, 0) }.ok()?;
    Some(old.rlim_cur)
}

/// The soft limit.
pub fn soft_limit(which: u32) -> u64 {
    let mut now = libc::rlimit64 {
        rlim_cur: u64::MAX,
        rlim_max: u64::MAX,
    };
    // SAFETY: `now` is writable.
    let _ = unsafe { call!(libc::SYS_prlimit64, 0, which, 0, &raw mut now) };
    now.rlim_cur
}
