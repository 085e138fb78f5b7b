//! The functions of libc, by verb. A hook says what its call means; [`crate::count`] counts it.

pub mod attributes;
mod copy;
mod descriptors;
mod directories;
mod duplicate;
mod formatted;
mod names;
mod open;
mod process;
mod stream_io;
mod streams;
mod transfer;

use core::ffi::{c_char, c_void};

/// A path as libc takes it.
type Path = *const c_char;
/// Memory that a call reads from.
type Source = *const c_void;
/// Memory that a call writes to.
type Sink = *mut c_void;

/// Finds the functions that a child may call between fork and exec. Called at load time, because a look-up takes a lock
/// of the loader. In a child of a program with threads, a thread that does not exist there may hold that lock.
pub fn find_next_definitions() {
    use core::hint::black_box;
    black_box((
        open::open::real(),
        open::open64::real(),
        open::openat::real(),
    ));
    black_box((descriptors::close::real(), descriptors::close_range::real()));
    black_box((
        duplicate::dup::real(),
        duplicate::dup2::real(),
        duplicate::dup3::real(),
    ));
    black_box((duplicate::fcntl::real(), duplicate::fcntl64::real()));
    black_box((transfer::read::real(), transfer::write::real()));
    black_box((
        process::execve::real(),
        process::execv::real(),
        process::execvp::real(),
    ));
    black_box((process::_exit::real(), names::chdir::real()));
}
