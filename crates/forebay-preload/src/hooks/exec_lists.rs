//! `execl` and its relatives, whose arguments are the argument list of the program.
//!
//! Rust can't define a variadic function. So a few instructions push the arguments that came in registers in front of
//! those on the stack. The stack then holds an argument array, which the caller's NULL ends.

use core::arch::naked_asm;
use core::ffi::c_int;

use libc::AT_FDCWD;

use super::Path;
use super::exec::{exec_at, search};
use super::inheritance::Strings;
use forebay_hook::environment;

unsafe extern "C" fn with_list(path: Path, list: Strings) -> c_int {
    // SAFETY: as execl's caller promises.
    unsafe { exec_at(AT_FDCWD, path, list, environment::block(), 0, 0) }
}

unsafe extern "C" fn search_with_list(file: Path, list: Strings) -> c_int {
    // SAFETY: as execlp's caller promises.
    unsafe { search(file, list, environment::block(), true) }
}

unsafe extern "C" fn with_list_and_environment(path: Path, list: Strings) -> c_int {
    // SAFETY: as execle's caller promises: the environment comes after the NULL.
    unsafe {
        let end = environment::entries(list).count();
        exec_at(AT_FDCWD, path, list, (*list.add(end + 1)).cast(), 0, 0)
    }
}

macro_rules! list_function {
    ($name:ident, $with:ident) => {
        #[doc = concat!("`", stringify!($name), "` of libc, defined anew.")]
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name() {
            #[cfg(target_arch = "x86_64")]
            naked_asm!(
                "pop r11",
                "push r9", "push r8", "push rcx", "push rdx", "push rsi",
                "mov rsi, rsp",
                "push r11",
                "call {with}",
                "pop r11",
                "add rsp, 40",
                "push r11",
                "ret",
                with = sym $with
            );
            #[cfg(target_arch = "aarch64")]
            naked_asm!(
                "sub sp, sp, #80",
                "str x30, [sp]",
                "stp x1, x2, [sp, #24]", "stp x3, x4, [sp, #40]", "stp x5, x6, [sp, #56]", "str x7, [sp, #72]",
                "add x1, sp, #24",
                "bl {with}",
                "ldr x30, [sp]",
                "add sp, sp, #80",
                "ret",
                with = sym $with
            );
        }
    };
}

list_function!(execl, with_list);
list_function!(execlp, search_with_list);
list_function!(execle, with_list_and_environment);
