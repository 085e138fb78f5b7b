//! `execl` and its relatives, whose arguments are the argument list of the program.
//!
//! Rust can't define a variadic function. So a few instructions push the arguments that came in registers in front of
//! those on the stack. The stack then holds an argument array, which the caller's NULL ends.

/// Defines such a function anew. `$with` is an `unsafe extern "C" fn` with its first argument and the array.
#[macro_export]
macro_rules! exec_list_function {
    ($name:ident, $with:ident) => {
        #[doc = concat!("`", stringify!($name), "` of libc, defined anew.")]
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name() {
            #[cfg(target_arch = "x86_64")]
            ::core::arch::naked_asm!(
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
            ::core::arch::naked_asm!(
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
