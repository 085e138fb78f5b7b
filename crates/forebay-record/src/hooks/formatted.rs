//! `printf`, `scanf` and their kin.
//!
//! Rust can't define a variadic function. So a few instructions put the arguments where a `va_list` finds them, and the
//! `v` form does the work. On AArch64 the variadic forms are not hooked yet; the coverage of a job shows their bytes as
//! missing.

use core::ffi::{c_int, c_void};

use forebay_count::Op;
use forebay_hook::hooks;
use libc::FILE;

use super::Path;
use super::stream_io::{Stream, stream_transfer};
use crate::count::transfer;

/// A `va_list` as a function takes it.
type List = *mut c_void;

unsafe extern "C" {
    static stdin: Stream;
    static stdout: Stream;
    fn ftello(stream: Stream) -> libc::off_t;
}

fn printed(n: c_int) -> Option<i64> {
    (n > 0).then_some(i64::from(n))
}

/// Counts a `scanf`. The positions before and after tell what it consumed, if the stream has positions.
unsafe fn scan(stream: Stream, call: impl FnOnce() -> c_int) -> c_int {
    // SAFETY: an open stream.
    let before = unsafe { ftello(stream) };
    // SAFETY: as above.
    unsafe {
        let consumed = |_| {
            (before >= 0)
                .then(|| ftello(stream) - before)
                .filter(|&n| n >= 0)
        };
        stream_transfer(stream, Op::Read, consumed, call)
    }
}

hooks! {
    fn vfprintf [real] (stream: *mut FILE, format: Path, list: List) -> c_int {
        stream_transfer(stream, Op::Write, printed, || real(stream, format, list))
    }

    fn __vfprintf_chk [real] (stream: *mut FILE, flag: c_int, format: Path, list: List) -> c_int {
        stream_transfer(stream, Op::Write, printed, || real(stream, flag, format, list))
    }

    fn vprintf [real] (format: Path, list: List) -> c_int {
        stream_transfer(stdout, Op::Write, printed, || real(format, list))
    }

    fn __vprintf_chk [real] (flag: c_int, format: Path, list: List) -> c_int {
        stream_transfer(stdout, Op::Write, printed, || real(flag, format, list))
    }

    fn vdprintf [real] (fd: c_int, format: Path, list: List) -> c_int {
        transfer(fd, Op::Write, None, true, || real(fd, format, list) as isize) as c_int
    }

    fn __vdprintf_chk [real] (fd: c_int, flag: c_int, format: Path, list: List) -> c_int {
        transfer(fd, Op::Write, None, true, || real(fd, flag, format, list) as isize) as c_int
    }

    fn vfscanf | __isoc99_vfscanf | __isoc23_vfscanf [real]
        (stream: *mut FILE, format: Path, list: List) -> c_int
    {
        scan(stream, || real(stream, format, list))
    }

    fn vscanf | __isoc99_vscanf | __isoc23_vscanf [real] (format: Path, list: List) -> c_int {
        scan(stdin, || real(format, list))
    }
}

/// Defines a variadic function by its form that takes a list. It has `$fixed` arguments before the variable ones; the
/// list goes into `$register`.
#[cfg(target_arch = "x86_64")]
macro_rules! variadic {
    ($($name:ident = $with:ident, $fixed:literal, $register:literal;)*) => { $(
        #[doc = concat!("`", stringify!($name), "` of libc, defined anew.")]
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name() {
            // The list is at rsp+8, and the saved registers that it points to begin at rsp+32.
            core::arch::naked_asm!(
                "sub rsp, 216",
                "mov [rsp+32], rdi", "mov [rsp+40], rsi", "mov [rsp+48], rdx",
                "mov [rsp+56], rcx", "mov [rsp+64], r8", "mov [rsp+72], r9",
                "test al, al",
                "je 2f",
                "movaps [rsp+80], xmm0", "movaps [rsp+96], xmm1",
                "movaps [rsp+112], xmm2", "movaps [rsp+128], xmm3",
                "movaps [rsp+144], xmm4", "movaps [rsp+160], xmm5",
                "movaps [rsp+176], xmm6", "movaps [rsp+192], xmm7",
                "2:",
                concat!("mov dword ptr [rsp+8], ", $fixed, "*8"),
                "mov dword ptr [rsp+12], 48",
                "lea r11, [rsp+224]",
                "mov [rsp+16], r11",
                "lea r11, [rsp+32]",
                "mov [rsp+24], r11",
                concat!("lea ", $register, ", [rsp+8]"),
                "call {with}",
                "add rsp, 216",
                "ret",
                with = sym $with
            );
        }
    )* };
}

#[cfg(target_arch = "x86_64")]
variadic! {
    fprintf = vfprintf_hook, 2, "rdx";
    __fprintf_chk = vfprintf_chk_hook, 3, "rcx";
    printf = vprintf_hook, 1, "rsi";
    __printf_chk = vprintf_chk_hook, 2, "rdx";
    dprintf = vdprintf_hook, 2, "rdx";
    __dprintf_chk = vdprintf_chk_hook, 3, "rcx";
    fscanf = vfscanf_hook, 2, "rdx";
    __isoc99_fscanf = isoc99_vfscanf_hook, 2, "rdx";
    __isoc23_fscanf = isoc23_vfscanf_hook, 2, "rdx";
    scanf = vscanf_hook, 1, "rsi";
    __isoc99_scanf = isoc99_vscanf_hook, 1, "rsi";
    __isoc23_scanf = isoc23_vscanf_hook, 1, "rsi";
}

/// The forms with a list, under names that a program can't replace with its own.
#[cfg(target_arch = "x86_64")]
macro_rules! forms {
    ($($hook:ident = $with:ident ($($arg:ident : $ty:ty),*), |$real:ident| $body:expr;)*) => { $(
        unsafe extern "C" fn $hook($($arg: $ty),*) -> c_int {
            let $real = $with::real();
            // SAFETY: as the program promises to the variadic function.
            unsafe { $body }
        }
    )* };
}

#[cfg(target_arch = "x86_64")]
forms! {
    vfprintf_hook = vfprintf(stream: Stream, format: Path, list: List),
        |real| stream_transfer(stream, Op::Write, printed, || real(stream, format, list));
    vfprintf_chk_hook = __vfprintf_chk(stream: Stream, flag: c_int, format: Path, list: List),
        |real| stream_transfer(stream, Op::Write, printed, || real(stream, flag, format, list));
    vprintf_hook = vprintf(format: Path, list: List),
        |real| stream_transfer(stdout, Op::Write, printed, || real(format, list));
    vprintf_chk_hook = __vprintf_chk(flag: c_int, format: Path, list: List),
        |real| stream_transfer(stdout, Op::Write, printed, || real(flag, format, list));
    vdprintf_hook = vdprintf(fd: c_int, format: Path, list: List),
        |real| transfer(fd, Op::Write, None, true, || real(fd, format, list) as isize) as c_int;
    vdprintf_chk_hook = __vdprintf_chk(fd: c_int, flag: c_int, format: Path, list: List),
        |real| transfer(fd, Op::Write, None, true, || real(fd, flag, format, list) as isize) as c_int;
    vfscanf_hook = vfscanf(stream: Stream, format: Path, list: List),
        |real| scan(stream, || real(stream, format, list));
    isoc99_vfscanf_hook = __isoc99_vfscanf(stream: Stream, format: Path, list: List),
        |real| scan(stream, || real(stream, format, list));
    isoc23_vfscanf_hook = __isoc23_vfscanf(stream: Stream, format: Path, list: List),
        |real| scan(stream, || real(stream, format, list));
    vscanf_hook = vscanf(format: Path, list: List),
        |real| scan(stdin, || real(format, list));
    isoc99_vscanf_hook = __isoc99_vscanf(format: Path, list: List),
        |real| scan(stdin, || real(format, list));
    isoc23_vscanf_hook = __isoc23_vscanf(format: Path, list: List),
        |real| scan(stdin, || real(format, list));
}
