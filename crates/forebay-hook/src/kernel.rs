//! System calls as a preload library itself makes them.
//!
//! Straight to the kernel, for three reasons: a call to `libc::open` in here would end in a hook; libc's wrappers are
//! cancellation points; and `errno` must stay as it is when a hook succeeds.

use core::arch::asm;
use core::ffi::{c_char, c_int, c_long};

/// An errno of the kernel.
pub type Errno = c_int;

/// Kernel call with six arguments: the result, or the errno.
///
/// # Safety
/// The arguments must be what the call `nr` expects.
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
    unsafe { core::ffi::CStr::from_ptr(s) }.to_bytes()
}

/// "/proc/self/fd/N" as a C string.
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

    /// For calls that take a path.
    pub fn as_ptr(&self) -> *const c_char {
        self.0.as_ptr().cast()
    }
}

/// Writes `n` in decimal digits; as many as fit. The number of digits.
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
        const GETPID: c_long = if cfg!(target_arch = "x86_64") {
            39
        } else {
            172
        };
        const CLOSE: c_long = if cfg!(target_arch = "x86_64") { 3 } else { 57 };
        // SAFETY: no memory is touched.
        unsafe {
            assert!(kernel_call!(GETPID).unwrap() > 0);
            assert_eq!(kernel_call!(CLOSE, -1isize), Err(9));
        }
    }
}
