//! The recorder: counts every call of a program that touches a file.
//!
//! A hook looks at the clock, calls the next definition in the chain, looks at the clock again, and counts in a table.
//! The table is a file mapped into memory ([`forebay_count`]). So nothing has to be written when the process ends, and
//! nothing is lost, however it ends.
//!
//! A hook may run before `main`, in a signal handler, in a child of `vfork`, or after the program has closed
//! everything. So this crate has no std, no allocation, no thread-local storage, no lock that is waited for, and no
//! descriptor that stays open. It leaves `errno` as libc's function left it. A failure in here never reaches the
//! program, which goes on uncounted. `scripts/check-record.sh` compares exports and imports of the library with lists.
//!
//! | module | what it does |
//! |---|---|
//! | [`config`] | the environment |
//! | [`state`] | this process' table, and what a child must not inherit |
//! | [`birth`] | makes a table |
//! | [`fds`] | which file a descriptor stands for, and its position |
//! | [`record_names`] | the names of records |
//! | [`count`] | turns calls into events |
//! | [`opening`] | the same for calls that open, close and duplicate |
//! | [`end`] | how the process ends |
//! | [`hooks`] | the functions of libc, by verb |
//! | [`clock`], [`file_system`], [`limits`], [`own_reads`] | what the recorder asks the kernel |
//! | [`counted`] | functions of libraries that come with the program |
//! | [`sink`] | records and handles of libraries |
//! | [`mpiio`], [`hdf5`], [`pnetcdf`] | the functions of these libraries |
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
mod file_system;
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

/// Does what is cheaper or safer before `main`, while there is one thread.
extern "C" fn at_load() {
    if state::recording().is_some() {
        state::watch_forks();
        hooks::find_next_definitions();
        fds::learn_inherited();
        end::watch_exit();
    }
}

forebay_hook::preload_library!(at_load: at_load, complaint: b"");
