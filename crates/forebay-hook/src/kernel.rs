//! System calls of the preload library itself.
//!
//! They go straight to the kernel, for three reasons: `libc::open` would end in a hook; libc's wrappers are
//! cancellation points; and a hook that succeeds must leave `errno` as it is.

use core::arch::asm;
use core::ffi::{CStr, c_char, c_int, c_long};
use core::ptr::null_mut;

pub use crate::kernel_call as call;

/// An errno of the kernel.
pub type Errno = c_int;

/// Makes the system call `nr` with six arguments. Returns its result, or the errno.
///
/// # Safety
/// The arguments must be those that the call `nr` expects.
#[inline(always)]
pub unsafe fn call6(
    nr: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> Result<usize, Errno> {
    let r: isize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the kernel keeps all registers but rax, rcx and r11.
    unsafe {
        asm!("syscall", inlateout("rax") nr as isize => r, in("rdi") a, in("rsi") b, in("rdx") c,
             in("r10") d, in("r8") e, in("r9") f, out("rcx") _, out("r11") _, options(nostack));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: the kernel keeps all registers but x0.
    unsafe {
        asm!("svc 0", in("x8") nr, inlateout("x0") a as isize => r, in("x1") b, in("x2") c,
             in("x3") d, in("x4") e, in("x5") f, options(nostack));
    }
    if (-4095..0).contains(&r) {
        Err(-r as Errno)
    } else {
        Ok(r as usize)
    }
}

/// [`call6`](crate::kernel::call6) with fewer arguments.
#[macro_export]
macro_rules! kernel_call {
    ($nr:expr $(, $arg:expr)*) => {{
        let six = [$($arg as usize,)* 0usize, 0, 0, 0, 0, 0];
        $crate::kernel::call6($nr, six[0], six[1], six[2], six[3], six[4], six[5])
    }};
}

/// The bytes of a C string, without its NUL.
///
/// # Safety
/// `s` is a C string that outlives `'a`.
#[inline]
pub unsafe fn bytes<'a>(s: *const c_char) -> &'a [u8] {
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(s) }.to_bytes()
}

/// `errno` of the calling thread.
#[inline]
pub fn errno() -> Errno {
    // SAFETY: errno of the calling thread is always there.
    unsafe { *libc::__errno_location() }
}

/// Sets `errno` of the calling thread.
#[inline]
pub fn set_errno(e: Errno) {
    // SAFETY: errno of the calling thread is always there.
    unsafe { *libc::__errno_location() = e };
}

/// Process id. The kernel is asked each time, because a child of `vfork` shares this memory.
#[inline]
pub fn getpid() -> c_int {
    // SAFETY: no arguments.
    unsafe { call!(libc::SYS_getpid) }.unwrap_or(0) as c_int
}

/// Process id of the parent.
pub fn getppid() -> c_int {
    // SAFETY: no arguments.
    unsafe { call!(libc::SYS_getppid) }.unwrap_or(0) as c_int
}

/// Effective user and group.
pub fn effective_ids() -> (u32, u32) {
    // SAFETY: no arguments.
    let (uid, gid) = unsafe { (call!(libc::SYS_geteuid), call!(libc::SYS_getegid)) };
    (uid.unwrap_or(0) as u32, gid.unwrap_or(0) as u32)
}

/// Nanoseconds of the monotonic clock. This is a system call; libc's `clock_gettime`, which needs none, may be hooked.
pub fn monotonic_ns() -> u64 {
    let mut t = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `t` is writable.
    let _ = unsafe { call!(libc::SYS_clock_gettime, libc::CLOCK_MONOTONIC, &raw mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// Sleeps for `ns` nanoseconds. A signal may end the sleep early.
pub fn sleep_ns(ns: u64) {
    let t = libc::timespec {
        tv_sec: (ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (ns % 1_000_000_000) as c_long,
    };
    // SAFETY: `t` is readable.
    let _ = unsafe { call!(libc::SYS_nanosleep, &raw const t, 0) };
}

/// Lets another thread run on this processor, if one wants to.
#[inline]
pub fn give_way() {
    // SAFETY: no arguments.
    let _ = unsafe { call!(libc::SYS_sched_yield) };
}

/// 64 random bits, never 0. Uses pid and clock as long as the kernel has no random bits.
pub fn random() -> u64 {
    let mut x = 0u64;
    // SAFETY: `x` is writable for eight bytes.
    let got = unsafe { call!(libc::SYS_getrandom, &raw mut x, 8, libc::GRND_NONBLOCK) };
    if got != Ok(8) {
        x = (monotonic_ns() ^ (getpid() as u64) << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15);
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

/// `openat` on a C string.
///
/// # Errors
/// As `openat(2)`.
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

/// Closes `fd`, a descriptor of the library.
#[inline]
pub fn close(fd: c_int) {
    // SAFETY: plain integers.
    let _ = unsafe { call!(libc::SYS_close, fd) };
}

/// `fcntl` with an integer argument.
///
/// # Errors
/// As `fcntl(2)`.
pub fn fcntl(fd: c_int, cmd: c_int, arg: usize) -> Result<c_int, Errno> {
    // SAFETY: plain integers.
    unsafe { call!(libc::SYS_fcntl, fd, cmd, arg) }.map(|r| r as c_int)
}

/// `dup3`.
///
/// # Errors
/// As `dup3(2)`.
pub fn dup3(old: c_int, new: c_int, flags: c_int) -> Result<c_int, Errno> {
    // SAFETY: plain integers.
    unsafe { call!(libc::SYS_dup3, old, new, flags) }.map(|r| r as c_int)
}

/// Reads the text of the symbolic link at `path` into `out`, at most `room` bytes. Returns their number.
///
/// # Errors
/// As `readlink(2)`.
///
/// # Safety
/// `path` is a C string, `out` is writable for `room` bytes.
pub unsafe fn readlink(path: *const c_char, out: *mut u8, room: usize) -> Result<usize, Errno> {
    // SAFETY: the caller's promise.
    unsafe { call!(libc::SYS_readlinkat, libc::AT_FDCWD, path, out, room) }
}

/// Reads from `fd` at `offset`.
///
/// # Errors
/// As `pread(2)`.
pub fn pread(fd: c_int, out: &mut [u8], offset: usize) -> Result<usize, Errno> {
    // SAFETY: `out` is writable for its length.
    unsafe { call!(libc::SYS_pread64, fd, out.as_mut_ptr(), out.len(), offset) }
}

/// Asks the kernel to begin to write the pages of a file out: `sync_file_range`. This is advice, and nothing where there are
/// no pages.
pub fn begin_write_out(fd: c_int) {
    const BEGIN: u32 = libc::SYNC_FILE_RANGE_WRITE;
    // SAFETY: plain integers.
    let _ = unsafe { call!(libc::SYS_sync_file_range, fd, 0, 0, BEGIN) };
}

/// Attributes of an open file.
pub fn fstat(fd: c_int) -> Option<libc::stat> {
    // SAFETY: zeroes are a valid value.
    let mut out: libc::stat = unsafe { core::mem::zeroed() };
    // SAFETY: `out` is writable.
    unsafe { call!(libc::SYS_fstat, fd, &raw mut out) }.ok()?;
    Some(out)
}

/// Device and number of the inode of a descriptor, or of the working directory for `AT_FDCWD`.
pub fn inode(fd: c_int) -> Option<(u64, u64)> {
    // SAFETY: zeroes are a valid value.
    let mut out: libc::stat = unsafe { core::mem::zeroed() };
    let flags = libc::AT_EMPTY_PATH | libc::AT_NO_AUTOMOUNT;
    // SAFETY: a C string, and `out` is writable.
    unsafe { call!(libc::SYS_newfstatat, fd, c"".as_ptr(), &raw mut out, flags) }.ok()?;
    Some((out.st_dev, out.st_ino))
}

/// Position of a descriptor.
pub fn position(fd: c_int) -> Option<i64> {
    // SAFETY: plain integers.
    unsafe { call!(libc::SYS_lseek, fd, 0, libc::SEEK_CUR) }
        .ok()
        .map(|p| p as i64)
}

/// The flags with which a descriptor is open, as `F_GETFL` tells them.
pub fn open_flags(fd: c_int) -> Option<c_int> {
    // SAFETY: plain integers.
    unsafe { call!(libc::SYS_fcntl, fd, libc::F_GETFL, 0) }
        .ok()
        .map(|flags| flags as c_int)
}

/// The path of an open descriptor, as `/proc/self/fd` shows it.
pub fn fd_name(fd: c_int, out: &mut [u8]) -> Option<&[u8]> {
    // SAFETY: the path is a C string, `out` is writable for its length.
    let n = unsafe { readlink(FdPath::new(fd).as_ptr(), out.as_mut_ptr(), out.len()) };
    out.get(..n.ok()?)
}

/// Writes a line to standard error, at most 512 bytes of it.
pub fn complain(parts: &[&[u8]]) {
    let mut line = [0u8; 512];
    let mut n = 0;
    for (to, from) in line.iter_mut().zip(parts.iter().flat_map(|p| p.iter())) {
        *to = *from;
        n += 1;
    }
    // SAFETY: `line` is readable for `n` bytes.
    let _ = unsafe { call!(libc::SYS_write, 2, line.as_ptr(), n) };
}

/// Aborts the process. Writes `complaint` to standard error first, unless it is empty.
pub fn broken(complaint: &[u8]) -> ! {
    if !complaint.is_empty() {
        complain(&[complaint]);
    }
    // SAFETY: ends the process.
    unsafe { libc::abort() }
}

/// A descriptor of the library, closed on drop.
#[derive(Debug)]
pub struct OwnFd(pub c_int);

impl OwnFd {
    /// Hands the descriptor over to the caller, who closes it.
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

/// The path `/proc/self/fd/N` as a C string.
pub struct FdPath([u8; 32]);

impl FdPath {
    /// The path of `fd`.
    pub fn new(fd: c_int) -> Self {
        const PREFIX: &[u8] = b"/proc/self/fd/";
        let mut out = [0; 32];
        out[..PREFIX.len()].copy_from_slice(PREFIX);
        decimal(u64::from(fd.unsigned_abs()), &mut out[PREFIX.len()..]);
        FdPath(out)
    }

    /// The path as a C string, valid as long as `self`.
    pub fn as_ptr(&self) -> *const c_char {
        self.0.as_ptr().cast()
    }
}

/// Writes `n` in decimal digits, as many as fit into `out`. Returns the number of digits written.
pub fn decimal(mut n: u64, out: &mut [u8]) -> usize {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (n % 10) as u8;
        n /= 10;
        if n == 0 {
            break;
        }
    }
    let len = (digits.len() - at).min(out.len());
    out[..len].copy_from_slice(&digits[at..at + len]);
    len
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_people_write_them() {
        for (n, text) in [
            (0, "0"),
            (7, "7"),
            (1234567890, "1234567890"),
            (u64::MAX, "18446744073709551615"),
        ] {
            let mut out = [0; 20];
            let len = decimal(n, &mut out);
            assert_eq!(&out[..len], text.as_bytes());
        }
    }

    #[test]
    fn the_kernel_answers_and_errors_are_told_apart() {
        assert!(getpid() > 0);
        // SAFETY: no memory is touched.
        assert_eq!(unsafe { call!(libc::SYS_close, -1isize) }, Err(libc::EBADF));
    }
}
