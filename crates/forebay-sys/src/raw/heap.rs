//! How the C library keeps memory that is free. `rustix` has no functions of it.

/// Parts of the heap that threads share. Each keeps free memory of its own.
const ARENAS: libc::c_int = 4;
/// Larger blocks are mapped one by one, and given back when they are free.
const MAPPED_BYTES: libc::c_int = 4 << 20;
/// Free memory at the end of the heap that is kept.
const KEPT_BYTES: libc::c_int = 8 << 20;

/// Bounds the free memory that the heap keeps. To be called before there are threads.
pub fn bound() {
    #[cfg(target_env = "gnu")]
    for (option, value) in [
        (libc::M_ARENA_MAX, ARENAS),
        (libc::M_MMAP_THRESHOLD, MAPPED_BYTES),
        (libc::M_TRIM_THRESHOLD, KEPT_BYTES),
    ] {
        // SAFETY: plain integers.
        unsafe { libc::mallopt(option, value) };
    }
}

/// Gives free memory back to the system.
pub fn trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: a plain integer.
    unsafe {
        libc::malloc_trim(0)
    };
}
