//! Facts about a file system: its type and its space.

use crate::Sys;
use rustix::fs::{fstatfs, statvfs};
use std::os::fd::BorrowedFd;
use std::path::Path;

/// Type of the file system that holds `fd` (`statfs.f_type`).
///
/// # Errors
/// Those of `fstatfs`.
pub fn fs_type(fd: BorrowedFd<'_>) -> Sys<i64> {
    #[allow(clippy::unnecessary_cast)] // the type differs between architectures
    Ok(fstatfs(fd)?.f_type as i64)
}

/// Size of the file system that holds `fd`, and the space free for ordinary users, in bytes.
///
/// # Errors
/// Those of `fstatfs`.
pub fn fs_space(fd: BorrowedFd<'_>) -> Sys<(u64, u64)> {
    let s = fstatfs(fd)?;
    let block = s.f_bsize as u64;
    Ok((s.f_blocks * block, s.f_bavail * block))
}

/// Size of the file system that holds `path`, and the space free for this user, in bytes.
///
/// # Errors
/// Those of `statvfs`.
pub fn space(path: &Path) -> Sys<(u64, u64)> {
    let s = statvfs(path)?;
    Ok((s.f_blocks * s.f_frsize, s.f_bavail * s.f_frsize))
}

/// Types of file systems that overwrite a block in place: ext4, XFS, tmpfs.
const IN_PLACE: [i64; 3] = [0xef53, 0x5846_5342, 0x0102_1994];

/// True if the file system that holds `fd` overwrites a block in place. On any other one, a store into a mapped file
/// may need new space, and a full disk would end the process.
///
/// # Errors
/// Those of `fstatfs`.
pub fn writes_in_place(fd: BorrowedFd<'_>) -> Sys<bool> {
    Ok(IN_PLACE.contains(&fs_type(fd)?))
}
