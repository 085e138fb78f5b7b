//! Calls on `/dev/fuse`, and namespaces of this process.

use crate::mounts::map_own_ids;
use crate::process::assert_one_thread;
use crate::{Sys, my_ids};
use core::ffi::c_void;
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, Setter, ioctl};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// `FUSE_DEV_IOC_BACKING_OPEN`.
const BACKING_OPEN: Opcode = 0x4010_e501;
/// `FUSE_DEV_IOC_BACKING_CLOSE`.
const BACKING_CLOSE: Opcode = 0x4004_e502;

/// `struct fuse_backing_map` of <linux/fuse.h>.
#[repr(C)]
struct BackingMap {
    fd: i32,
    flags: u32,
    padding: u64,
}

// SAFETY: the call reads a structure of this size, and returns a number.
unsafe impl Ioctl for BackingMap {
    type Output = u32;
    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        BACKING_OPEN
    }

    fn as_ptr(&mut self) -> *mut c_void {
        (&raw mut *self).cast()
    }

    unsafe fn output_from_ptr(id: IoctlOutput, _: *mut c_void) -> Sys<u32> {
        Ok(id.unsigned_abs())
    }
}

/// Tells the kernel of a file that it may read and write itself for an open file of this FUSE connection. Gives the
/// number by which an answer to an open names it.
///
/// # Errors
/// EPERM without CAP_SYS_ADMIN, ELOOP if the file is on a stacked file system, ENOTTY if the kernel does not know this.
pub fn fuse_backing_open(fuse: BorrowedFd<'_>, file: BorrowedFd<'_>) -> Sys<u32> {
    let map = BackingMap {
        fd: file.as_raw_fd(),
        flags: 0,
        padding: 0,
    };
    // SAFETY: see the implementation of `Ioctl`.
    unsafe { ioctl(fuse, map) }
}

/// Takes the number of [`fuse_backing_open`] back. Files that are open go on.
pub fn fuse_backing_close(fuse: BorrowedFd<'_>, id: u32) {
    // SAFETY: the call reads one number. It fails only for a number that was taken back already.
    let _ = unsafe { ioctl(fuse, Setter::<BACKING_CLOSE, u32>::new(id)) };
}

/// Gives this process a mount namespace of its own.
///
/// # Errors
/// EPERM without CAP_SYS_ADMIN.
///
/// # Panics
/// If this process has more than one thread: the others would stay where they are.
pub fn unshare_mounts() -> Sys<()> {
    assert_one_thread();
    // SAFETY: descriptors stay as they are; only mounts get apart.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS) }
}

/// Gives this process a user namespace and a mount namespace of its own, in which it has all capabilities until it executes a
/// program. Its user and its group have their numbers there, and nobody else has one.
///
/// # Errors
/// EPERM, ENOSPC, EACCES: the system does not let this user have one.
///
/// # Panics
/// If this process has more than one thread: the kernel refuses it then.
pub fn unshare_users() -> Sys<()> {
    assert_one_thread();
    // In there they are not known before they are mapped.
    let (uid, gid) = my_ids();
    // SAFETY: descriptors stay as they are; only ids and mounts get apart.
    unsafe { unshare_unsafe(UnshareFlags::NEWUSER | UnshareFlags::NEWNS) }?;
    map_own_ids(uid, gid)
}

/// Takes over a descriptor that nobody else in this program owns, by its number: one that the program was started with, or
/// that a library without the standard library has handed over. It closes on exec from now on.
///
/// # Errors
/// EBADF if no descriptor has this number.
///
/// # Panics
/// For a standard stream, which the standard library owns.
pub fn inherited_descriptor(number: RawFd) -> Sys<OwnedFd> {
    assert!(number > 2, "a standard stream");
    // SAFETY: it is used for this call alone, which fails if the descriptor is not there.
    fcntl_setfd(unsafe { BorrowedFd::borrow_raw(number) }, FdFlags::CLOEXEC)?;
    // SAFETY: it is open, and nobody else owns it: the caller was given it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

const _: () = assert!(size_of::<BackingMap>() == 16);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Errno;
    use std::os::fd::AsFd;

    #[test]
    fn what_is_no_fuse_connection_takes_no_backing_file() {
        let file = std::fs::File::open("/dev/null").unwrap();
        let refused = fuse_backing_open(file.as_fd(), file.as_fd());
        assert_eq!(refused, Err(Errno::NOTTY));
    }

    #[test]
    fn a_descriptor_that_is_not_there_is_not_taken_over() {
        assert_eq!(inherited_descriptor(RawFd::MAX).err(), Some(Errno::BADF));
    }
}
