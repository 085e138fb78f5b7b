//! Facts about a file system: its type and its space.

use crate::Sys;
use rustix::fs::{fstat, fstatfs, major, minor, statvfs};
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

/// Inodes that are free for this user on the file system that holds `path`; `None` if it makes them as it needs them.
///
/// # Errors
/// Those of `statvfs`.
pub fn free_inodes(path: &Path) -> Sys<Option<u64>> {
    let s = statvfs(path)?;
    Ok((s.f_files > 0).then_some(s.f_favail))
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

/// What stays the same as long as the page cache of the file system that holds `fd` does: it tells the boot of the machine,
/// the device, and how often that was attached. A part that the kernel does not tell counts as 0.
///
/// # Errors
/// Those of `fstat`.
pub fn cache_life(fd: BorrowedFd<'_>) -> Sys<[u8; 16]> {
    let device = fstat(fd)?.st_dev;
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: String = boot.chars().filter(char::is_ascii_hexdigit).collect();
    let boot = u128::from_str_radix(&digits, 16).unwrap_or(0);
    let path = format!("/sys/dev/block/{}:{}/diskseq", major(device), minor(device));
    let attached = std::fs::read_to_string(path).unwrap_or_default();
    let attached: u64 = attached.trim().parse().unwrap_or(0);
    let place = u128::from(device) << 64 | u128::from(attached);
    Ok((boot ^ place).to_le_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn a_cache_has_one_life_and_another_file_system_has_another() {
        let life = |path| cache_life(std::fs::File::open(path).unwrap().as_fd()).unwrap();
        assert_eq!(life("/"), life("/"));
        assert_ne!(life("/"), life("/proc"));
    }
}
