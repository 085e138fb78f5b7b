//! The frame of a preload library: what the linker and the compiler want of it.

/// Makes a `no_std` cdylib a preload library: it needs libc, runs the `extern "C"` function `at_load` before `main` while there is one thread,
/// and ends the process where an assertion is broken, after the line `complaint` if it is not empty.
///
/// Precompiled parts of `core` name the function that unwinds, although nothing here can. It must not be seen from
/// outside: programs in Rust have their own.
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
