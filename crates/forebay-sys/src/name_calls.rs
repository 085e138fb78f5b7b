//! Calls that make, move, remove and read names.

use crate::attributes::proc_link;
use crate::{Errno, Sys};
use rustix::fs::{self, AtFlags, CWD, FileType, Mode, RenameFlags};
use rustix::path::Arg;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;

/// Makes a directory for the bridge itself, unless it exists.
///
/// # Errors
/// Those of `mkdirat`, except EEXIST.
pub fn make_dir(dir: BorrowedFd<'_>, name: &[u8]) -> Sys<()> {
    match mkdir(dir, name, 0o700) {
        Err(Errno::EXIST) => Ok(()),
        other => other,
    }
}

/// `mkdirat`.
///
/// # Errors
/// Those of the call.
pub fn mkdir(dir: BorrowedFd<'_>, name: &[u8], mode: u32) -> Sys<()> {
    fs::mkdirat(dir, name, Mode::from_raw_mode(mode))
}

/// `mknodat`; `mode` includes the type of the file.
///
/// # Errors
/// Those of the call.
pub fn mknod(dir: BorrowedFd<'_>, name: &[u8], mode: u32, dev: u64) -> Sys<()> {
    let kind = FileType::from_raw_mode(mode);
    fs::mknodat(dir, name, kind, Mode::from_raw_mode(mode), dev)
}

/// `linkat` that follows no symbolic link.
///
/// # Errors
/// Those of the call.
pub fn link(from: BorrowedFd<'_>, old: &[u8], to: BorrowedFd<'_>, new: &[u8]) -> Sys<()> {
    fs::linkat(from, old, to, new, AtFlags::empty())
}

/// `linkat` of the very file that a descriptor leads to, whatever has its names by now. An `O_PATH` descriptor of a
/// symbolic link is linked itself. Needs `/proc`.
///
/// # Errors
/// ENOENT if the file has no name any more; else those of the call.
pub fn link_file(file: BorrowedFd<'_>, to: BorrowedFd<'_>, new: &[u8]) -> Sys<()> {
    let follow = AtFlags::SYMLINK_FOLLOW;
    fs::linkat(CWD, proc_link(file), to, new, follow)
}

/// `symlinkat`.
///
/// # Errors
/// Those of the call.
pub fn symlink(text: &[u8], dir: BorrowedFd<'_>, name: &[u8]) -> Sys<()> {
    fs::symlinkat(text, dir, name)
}

/// `renameat`.
///
/// # Errors
/// Those of the call.
pub fn rename(from: BorrowedFd<'_>, old: &[u8], to: BorrowedFd<'_>, new: &[u8]) -> Sys<()> {
    fs::renameat(from, old, to, new)
}

/// `renameat2` that exchanges two entries of a directory.
///
/// # Errors
/// Those of the call: EINVAL if the file system can't.
pub fn exchange(dir: BorrowedFd<'_>, one: &[u8], other: &[u8]) -> Sys<()> {
    fs::renameat_with(dir, one, dir, other, RenameFlags::EXCHANGE)
}

/// `renameat2` that replaces nothing.
///
/// # Errors
/// EEXIST if something has the new name. EINVAL or ENOSYS if the file system or the kernel can't promise that; else
/// those of the call.
pub fn rename_noreplace(
    from: BorrowedFd<'_>,
    old: &[u8],
    to: BorrowedFd<'_>,
    new: &[u8],
) -> Sys<()> {
    fs::renameat_with(from, old, to, new, RenameFlags::NOREPLACE)
}

/// `unlinkat`; with `directory` it acts as `rmdir`.
///
/// # Errors
/// Those of the call.
pub fn unlink(dir: BorrowedFd<'_>, name: &[u8], directory: bool) -> Sys<()> {
    let flags = match directory {
        true => AtFlags::REMOVEDIR,
        false => AtFlags::empty(),
    };
    fs::unlinkat(dir, name, flags)
}

/// Text of the symbolic link `name` in `dir`. If the name is empty, `dir` itself is the link.
///
/// # Errors
/// EINVAL if it is not a symbolic link, or ENOENT if the name is empty as well; else those of the call.
pub fn readlink(dir: BorrowedFd<'_>, name: &[u8]) -> Sys<Vec<u8>> {
    let mut room = [MaybeUninit::<u8>::uninit(); libc::PATH_MAX as usize];
    name.into_with_c_str(|name| {
        fs::readlinkat_raw(dir, name, &mut room).map(|(text, _)| text.to_vec())
    })
}
