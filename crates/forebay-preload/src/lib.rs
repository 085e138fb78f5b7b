//! The library in the program: hooks for every libc function that takes a path, or makes files durable.
//!
//! A call with a path outside the buffer goes straight to the next definition in
//! the chain of libraries. A call with a path inside becomes one message to the
//! bridge. The answer is a real descriptor, or attributes, or an errno. The kernel
//! alone serves what the program does with a descriptor.
//!
//! A hook may run before `main`, in a signal handler, in a child of `vfork`, or
//! after the program has closed everything. So this crate uses no std and no
//! thread-local storage, never waits for a lock, and allocates only where libc's
//! function allocates for its caller. It leaves `errno` as libc's function would.
//! `scripts/check-preload.sh` checks the list of functions that the library
//! imports.
//!
//! | module | what it does |
//! |---|---|
//! | [`config`] | settings from the environment |
//! | [`requests`] | requests of the hooks, by [`forebay_link`] |
//! | [`locate`] | whether a path is in the buffer, and its name there |
//! | [`hooks`] | the hooked functions of libc |
#![no_std]
#![allow(unsafe_code)]
#![allow(rustdoc::private_intra_doc_links)]

use forebay_hook::fork;

mod config;
mod hooks;
mod locate;
mod requests;
mod way;

/// Runs before `main`, while there is one thread. It does what would cost more, or be less safe, later.
extern "C" fn at_load() {
    if config::get().is_some() {
        requests::LINK.start();
        fork::watch(None, after_fork_in_child);
        hooks::find_next_definitions();
        hooks::identity::read_umask();
    }
}

extern "C" fn after_fork_in_child() {
    // SAFETY: a forked child has one thread.
    unsafe { requests::LINK.after_fork_in_child() };
}

forebay_hook::preload_library!(
    at_load: at_load,
    complaint: b"forebay: a broken assertion in the preload library\n"
);
