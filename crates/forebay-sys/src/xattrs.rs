//! Extended attributes.

use crate::{Errno, Sys};
use rustix::fs::{self, XattrFlags};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;

/// Largest value, and largest list of names, that Linux has for the extended attributes of a file.
const XATTR_BYTES: usize = 64 << 10;
/// Most values fit here.
const SHORT_BYTES: usize = 512;

/// `fsetxattr`.
///
/// # Errors
/// Of the call.
pub fn set_xattr(fd: BorrowedFd<'_>, name: &[u8], value: &[u8]) -> Sys<()> {
    fs::fsetxattr(fd, name, value, XattrFlags::empty())
}

/// `fremovexattr`.
///
/// # Errors
/// ENODATA if there is none; else of the call.
pub fn remove_xattr(fd: BorrowedFd<'_>, name: &[u8]) -> Sys<()> {
    fs::fremovexattr(fd, name)
}

/// `fgetxattr`; `None` if there is no such attribute.
///
/// # Errors
/// Of the call.
pub fn get_xattr(fd: BorrowedFd<'_>, name: &[u8]) -> Sys<Option<Vec<u8>>> {
    let mut short = [MaybeUninit::<u8>::uninit(); SHORT_BYTES];
    match fs::fgetxattr(fd, name, &mut short) {
        Ok((value, _)) => Ok(Some(value.to_vec())),
        Err(Errno::NODATA) => Ok(None),
        Err(Errno::RANGE) => {
            let mut long = vec![0; XATTR_BYTES];
            let len = fs::fgetxattr(fd, name, &mut long[..])?;
            long.truncate(len);
            Ok(Some(long))
        }
        Err(e) => Err(e),
    }
}

/// Names of all extended attributes, each closed by a NUL.
///
/// # Errors
/// Of `flistxattr`.
pub fn list_xattr(fd: BorrowedFd<'_>) -> Sys<Vec<u8>> {
    let mut names = vec![0u8; XATTR_BYTES];
    let len = fs::flistxattr(fd, &mut names[..])?;
    names.truncate(len);
    Ok(names)
}

/// Has the file no extended attribute (access control lists are some) but this one?
///
/// # Errors
/// Of `flistxattr`, but not that the list is long.
pub fn has_only_xattr(fd: BorrowedFd<'_>, name: &[u8]) -> Sys<bool> {
    let mut names = [MaybeUninit::<u8>::uninit(); 64];
    match fs::flistxattr(fd, &mut names) {
        Ok((names, _)) => Ok(names.strip_suffix(&[0]) == Some(name)),
        Err(Errno::RANGE) => Ok(false),
        Err(e) => Err(e),
    }
}
