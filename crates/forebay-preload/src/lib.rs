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
//! | [`bridge`] | what a hook asks, by [`forebay_link`] |
//! | [`locate`] | whose is a path |
//! | [`hooks`] | the functions of libc, by verb |
#![no_std]
#![allow(unsafe_code)]
#![allow(rustdoc::private_intra_doc_links)]

use forebay_hook::fork;

mod bridge;
mod config;
mod hooks;
mod locate;

/// Before `main`, while there is one thread: what is cheaper or safer now than later.
extern "C" fn at_load() {
    if config::get().is_some() {
        bridge::LINK.start();
        fork::watch(None, after_fork_in_child);
        hooks::find_next_definitions();
        hooks::identity::read_umask();
    }
}

extern "C" fn after_fork_in_child() {
    // SAFETY: the only thread of a new process.
    unsafe { bridge::LINK.after_fork_in_child() };
}

forebay_hook::preload_library!(
    at_load: at_load,
    complaint: b"forebay: a broken assertion in the preload library\n"
);
