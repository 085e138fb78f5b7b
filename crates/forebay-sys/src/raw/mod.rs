//! Calls that `rustix` does not have, or not in a form that fits here. This is the only module with `unsafe`, and all
//! that it exports is safe to call.
//!
//! | module | call | why here |
//! |---|---|---|
//! | `accounts` | `getpwuid_r`, `localtime_r` | databases of the C library: no system calls |
//! | `fuse` | ioctls of `/dev/fuse`, `unshare`, descriptors by number | `rustix` has the calls, but leaves it to the caller that they are right |
//! | `heap` | `mallopt`, `malloc_trim` | functions of the C library |
//! | `inode`, `queue` | `FS_IOC_FSGETXATTR`, `SIOCOUTQ` | `rustix` has `ioctl`, but not what these read and write |
//! | `lane`, `memory`, `words` | `mmap` of shared memory | `rustix` has the call, but only this module can promise that the memory is used rightly |
//! | `lease` | `F_SETLEASE`, `F_SETSIG` | not in `rustix` |
//! | `peers` | `recvmsg`, `SO_PEERCRED` | `rustix` reads a process id that cannot be 0; the kernel gives 0 for a process of another namespace |
//! | `peers` | `SO_PEERGROUPS` | not in `rustix` |
//! //! | `session` | `close_range`, `fork`, code between fork and exec | not in `rustix`; the standard library asks for `unsafe` |
//! | `words` | `set_robust_list` | not in `rustix` |
//! | `signals` | `signalfd`, masks and handlers of signals | `rustix` has them only for programs without a C library |
//! | `writeback` | `sync_file_range` | not in `rustix` |
#![allow(unsafe_code)]

pub mod accounts;
pub mod fuse;
pub mod heap;
pub mod inode;
pub mod lane;
pub mod lease;
pub mod memory;
pub mod peers;
pub mod queue;
pub mod session;
pub mod signals;
pub mod words;
pub mod writeback;

use crate::{Errno, Sys, errno_of};

/// The error of the last call of the C library on this thread.
fn last_errno() -> Errno {
    errno_of(std::io::Error::last_os_error())
}

/// Converts the result of a C call, where -1 means a failure.
fn check(result: libc::c_int) -> Sys<libc::c_int> {
    match result {
        -1 => Err(last_errno()),
        result => Ok(result),
    }
}
