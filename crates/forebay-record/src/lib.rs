//! The recorder: counts every call of a program that touches a file.
//!
//! A hook looks at the clock, calls the next definition in the chain, looks at the clock again, and counts in a table
//! that lies in a file mapped into memory ([`forebay_count`]). So nothing has to be written when the process ends, and
//! nothing is lost however it ends.
//!
//! Rules of this crate, because a hook may run before `main`, in a signal handler, in a child of `vfork`, or after the
//! program has closed everything: no std, no allocation, no thread-local storage, no lock that is waited for, and no
//! descriptor that stays open. `errno` is what libc's function left. What fails in here is never the
//! program's business: it goes on uncounted. `scripts/check-record.sh` holds the library to its lists of exports
//! and imports.
//!
//! | module | what it does |
//! |---|---|
//! | [`config`] | the environment |
//! | [`state`] | this process' table; what a child must not inherit |
//! | [`birth`] | makes a table |
//! | [`fds`] | which file a descriptor stands for, and where in it |
//! | [`record_names`] | the names of records |
//! | [`count`] | from calls to events |
//! | [`opening`] | the same where descriptors come and go |
//! | [`end`] | how the process ends |
//! | [`hooks`] | the functions of libc, by verb |
//! | [`clock`], [`limits`], [`own_reads`] | what it asks of the kernel |
//! | [`counted`] | functions of libraries that come with the program |
//! | [`sink`] | records and handles of libraries |
//! | [`mpiio`], [`hdf5`], [`pnetcdf`] | their functions |
#![no_std]
#![allow(unsafe_code)]
#![allow(rustdoc::private_intra_doc_links)]

mod birth;
mod clock;
mod config;
mod count;
mod counted;
mod end;
mod fds;
mod hdf5;
mod hooks;
mod limits;
mod mpiio;
mod opening;
mod own_reads;
mod pnetcdf;
mod record_names;
mod sink;
mod state;

/// Before `main`, while there is one thread: what is cheaper or safer now than later.
extern "C" fn at_load() {
    if state::recording().is_some() {
        state::watch_forks();
        hooks::find_next_definitions();
        end::watch_exit();
    }
}

forebay_hook::preload_library!(at_load: at_load, complaint: b"");
