//! What the linker and the compiler require of a preload library.

/// Makes a `no_std` cdylib a preload library. It links to libc, and runs the `extern "C"` function `at_load` before
/// `main`, while there is one thread. A broken assertion writes the line `complaint`, unless that is empty, and ends the
/// process.
///
/// Precompiled parts of `core` name the function that unwinds, although nothing here unwinds. The macro defines it
/// hidden, because a program in Rust has its own.
#[macro_export]
macro_rules! preload_library {
    (at_load: $at_load:path, complaint: $complaint:literal) => {
        #[link(name = "c")]
        unsafe extern "C" {}

        #[used]
        #[unsafe(link_section = ".init_array")]
        static AT_LOAD: extern "C" fn() = $at_load;

        ::core::arch::global_asm!(
            ".globl rust_eh_personality",
            ".hidden rust_eh_personality",
            "rust_eh_personality:"
        );

        #[cfg(not(test))]
        #[panic_handler]
        fn panic(_: &::core::panic::PanicInfo<'_>) -> ! {
            $crate::kernel::broken($complaint)
        }
    };
}
