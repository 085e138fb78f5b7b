//! What a file system says of itself.

use crate::Sys;
use rustix::fs::{fstatfs, statvfs};
use std::os::fd::BorrowedFd;
use std::path::Path;

/// Type of the file system that holds `fd` (`statfs.f_type`).
///
/// # Errors
/// Of `fstatfs`.
pub fn fs_type(fd: BorrowedFd<'_>) -> Sys<i64> {
    #[allow(clippy::unnecessary_cast)] // the type differs between architectures
    Ok(fstatfs(fd)?.f_type as i64)
}

/// Bytes in all and bytes free for ordinary users on the file system that holds `fd`.
///
/// # Errors
/// Of `fstatfs`.
pub fn fs_space(fd: BorrowedFd<'_>) -> Sys<(u64, u64)> {
    let s = fstatfs(fd)?;
    let block = s.f_bsize as u64;
    Ok((s.f_blocks * block, s.f_bavail * block))
}

/// Bytes in all and bytes free for this user on the file system that holds `path`.
///
/// # Errors
/// Of `statvfs`.
pub fn space(path: &Path) -> Sys<(u64, u64)> {
    let s = statvfs(path)?;
    Ok((s.f_blocks * s.f_frsize, s.f_bavail * s.f_frsize))
}

/// Types of file systems that write a block where it lies: ext4, XFS, tmpfs.
const IN_PLACE: [i64; 3] = [0xef53, 0x5846_5342, 0x0102_1994];

/// Does the file system that holds `fd` write a block where it lies? With another one a store into a mapped file
/// may need space, and ends the process if there is none.
///
/// # Errors
/// Of `fstatfs`.
pub fn writes_in_place(fd: BorrowedFd<'_>) -> Sys<bool> {
    Ok(IN_PLACE.contains(&fs_type(fd)?))
}
