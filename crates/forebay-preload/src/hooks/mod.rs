//! The hooked functions of libc, one module for each kind.
//!
//! Every hook has the same shape. First comes a quick look at the path in memory
//! ([`crate::locate::may_be_mine`]). Then comes either the next definition in the chain, or one
//! message to the bridge. This file holds what several hooks share.

mod access;
mod attributes;
mod bypass;
mod descriptors;
mod devices;
mod directory;
mod durability;
mod exec;
mod exec_lists;
mod fts;
pub mod identity;
mod inheritance;
mod links;
mod loading;
mod names;
mod open;
mod pattern;
mod raw;
mod spawn;
mod stat;
mod temporary;
mod tree_walk;
mod watch;
mod working_directory;
mod xattr;

use core::ffi::{c_char, c_int};

use crate::locate::{Outcome, Target, route};
use crate::requests;
use forebay_hook::kernel::{self, FdPath};
use forebay_link::{Answer, Fail};

/// Looks up, at load time, the functions that a child may call between fork and exec. A look-up takes a lock of the
/// loader. In a forked child of a threaded program, a thread that does not exist there may hold that lock for ever.
pub fn find_next_definitions() {
    use core::hint::black_box;
    black_box((open::open::real(), open::openat::real()));
    black_box((descriptors::close::real(), descriptors::close_range::real()));
    black_box((descriptors::dup2::real(), descriptors::dup3::real()));
    black_box((exec::execve::real(), exec::execveat::real()));
    black_box((
        working_directory::chdir::real(),
        working_directory::fchdir::real(),
    ));
    black_box((identity::umask::real(), identity::setgroups::real()));
    black_box((identity::setuid::real(), identity::setgid::real()));
    black_box((access::access::real(), stat::stat::real()));
    black_box((stat::fstat::real(), directory::getdents64::real()));
    black_box((durability::fsync::real(), durability::fdatasync::real()));
    black_box(raw::syscall::real());
}

/// A path as libc takes it.
type Path = *const c_char;

/// Runs `act` on an object in the buffer, by the path `/proc/self/fd/N` of an `O_PATH` grant. So the kernel
/// judges the call by the program's own credentials. Runs `native` for a path outside.
///
/// # Safety
/// `path` is a C string or a pointer that the kernel would refuse.
unsafe fn on_object<R: Outcome>(
    dirfd: c_int,
    path: Path,
    resolve_flags: u32,
    native: impl Fn(c_int, Path) -> R,
    act: impl Fn(c_int, Path) -> R,
) -> R {
    let ours = |target: &Target<'_>, answer: &mut Answer| {
        let fd = requests::resolve(target, resolve_flags, answer)?;
        let at = FdPath::new(fd.0);
        Ok::<R, Fail>(act(fd.0, at.as_ptr()))
    };
    // SAFETY: the caller's promise.
    unsafe { route(dirfd, path, native, ours) }
}

/// True if the open object is of this kind (`S_IF*`).
fn is_kind(fd: c_int, kind: u32) -> bool {
    // SAFETY: zeroes are a valid stat.
    let mut attr: libc::stat = unsafe { core::mem::zeroed() };
    // SAFETY: `attr` is writable.
    let known = unsafe { kernel::call!(libc::SYS_fstat, fd, &raw mut attr) };
    known.is_ok() && attr.st_mode & libc::S_IFMT == kind
}

/// Converts the result of a raw system call to that of a libc function, and sets `errno`.
fn outcome(result: Result<usize, kernel::Errno>) -> c_int {
    match result {
        Ok(value) => value as c_int,
        Err(e) => crate::locate::failed(e),
    }
}
