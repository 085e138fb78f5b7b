//! The library in the program: hooks for every libc function that takes a path.
//!
//! A path outside the buffer goes straight on to the next definition in the
//! chain. A path inside becomes one message to the bridge, and the answer is a
//! real descriptor, or attributes, or an errno. What the program does with a
//! descriptor is native.
//!
//! Rules of this crate, because a hook may run before `main`, in a signal
//! handler, in a child of `vfork`, or after the program has closed everything:
//! no std, no allocation (but where libc's own function allocates for the
//! caller), no thread-local storage, no lock that is waited for. `errno` is
//! what libc's function would leave. `scripts/check-preload.sh` holds the
//! library to its list of imports.
//!
//! | module | what it does |
//! |---|---|
//! | [`config`] | the environment |
//! | [`process`] | state that a child must not inherit |
//! | [`pool`] | connections |
//! | [`exchange`] | one request, one reply |
//! | [`lane`], [`socket`] | its two ways to the bridge |
//! | [`bridge`] | what a hook asks |
//! | [`locate`] | whose is a path |
//! | [`hooks`] | the functions of libc, by verb |
#![no_std]
#![allow(unsafe_code)]
#![allow(rustdoc::private_intra_doc_links)]

mod bridge;
mod config;
mod exchange;
mod hooks;
mod lane;
mod locate;
mod pool;
mod process;
mod socket;
mod spin;
mod sys;

#[link(name = "c")]
unsafe extern "C" {}

/// Before `main`, while there is one thread: what is cheaper or safer now than later.
extern "C" fn at_load() {
    if config::get().is_some() {
        process::start();
        hooks::find_next_definitions();
        hooks::identity::read_umask();
    }
}

#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = at_load;

// Precompiled parts of `core` name the function that unwinds, although nothing here can. It must not be seen
// from outside: programs in Rust have their own.
core::arch::global_asm!(
    ".globl rust_eh_personality",
    ".hidden rust_eh_personality",
    "rust_eh_personality:"
);

#[cfg(not(test))]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    sys::complain(&[b"forebay: a broken assertion in the preload library\n"]);
    // SAFETY: ends the process.
    unsafe { libc::abort() }
}
