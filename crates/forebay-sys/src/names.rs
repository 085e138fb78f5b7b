//! Calls that make, move and remove names.

use crate::{Errno, Sys};
use rustix::fs::{self, AtFlags, FileType, Mode};
use rustix::path::Arg;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;

/// A directory of the bridge's own, unless it is there.
///
/// # Errors
/// Of `mkdirat`, but not EEXIST.
pub fn make_dir(dir: BorrowedFd<'_>, name: &[u8]) -> Sys<()> {
    match mkdir(dir, name, 0o700) {
        Err(Errno::EXIST) => Ok(()),
        other => other,
    }
}

/// `mkdirat`.
///
/// # Errors
/// Of the call.
pub fn mkdir(dir: BorrowedFd<'_>, name: &[u8], mode: u32) -> Sys<()> {
    fs::mkdirat(dir, name, Mode::from_raw_mode(mode))
}

/// `mknodat`; `mode` has the type of the file in it.
///
/// # Errors
/// Of the call.
pub fn mknod(dir: BorrowedFd<'_>, name: &[u8], mode: u32, dev: u64) -> Sys<()> {
    let kind = FileType::from_raw_mode(mode);
    fs::mknodat(dir, name, kind, Mode::from_raw_mode(mode), dev)
}

/// `linkat`, links not followed.
///
/// # Errors
/// Of the call.
pub fn link(from: BorrowedFd<'_>, old: &[u8], to: BorrowedFd<'_>, new: &[u8]) -> Sys<()> {
    fs::linkat(from, old, to, new, AtFlags::empty())
}

/// `symlinkat`.
///
/// # Errors
/// Of the call.
pub fn symlink(text: &[u8], dir: BorrowedFd<'_>, name: &[u8]) -> Sys<()> {
    fs::symlinkat(text, dir, name)
}

/// `renameat`.
///
/// # Errors
/// Of the call.
pub fn rename(from: BorrowedFd<'_>, old: &[u8], to: BorrowedFd<'_>, new: &[u8]) -> Sys<()> {
    fs::renameat(from, old, to, new)
}

/// `unlinkat`; `directory` as `rmdir`.
///
/// # Errors
/// Of the call.
pub fn unlink(dir: BorrowedFd<'_>, name: &[u8], directory: bool) -> Sys<()> {
    let flags = match directory {
        true => AtFlags::REMOVEDIR,
        false => AtFlags::empty(),
    };
    fs::unlinkat(dir, name, flags)
}

/// Text of a symbolic link; an empty name means the link that `dir` itself is.
///
/// # Errors
/// EINVAL, or ENOENT with an empty name, if it is none; else of the call.
pub fn readlink(dir: BorrowedFd<'_>, name: &[u8]) -> Sys<Vec<u8>> {
    let mut room = [MaybeUninit::<u8>::uninit(); libc::PATH_MAX as usize];
    name.into_with_c_str(|name| {
        fs::readlinkat_raw(dir, name, &mut room).map(|(text, _)| text.to_vec())
    })
}
