//! Extended attributes.

use crate::attributes::proc_link;
use crate::{Errno, Sys};
use rustix::fs::{self, XattrFlags};
use std::os::fd::BorrowedFd;

/// Largest value, and largest list of names, that Linux allows for extended attributes.
const XATTR_BYTES: usize = 64 << 10;
/// Size of the first buffer, which is enough for most values.
const SHORT_BYTES: usize = 512;

/// `fsetxattr`.
///
/// # Errors
/// Those of the call.
pub fn set_xattr(fd: BorrowedFd<'_>, name: &[u8], value: &[u8]) -> Sys<()> {
    fs::fsetxattr(fd, name, value, XattrFlags::empty())
}

/// `fremovexattr`.
///
/// # Errors
/// ENODATA if there is no such attribute; else those of the call.
pub fn remove_xattr(fd: BorrowedFd<'_>, name: &[u8]) -> Sys<()> {
    fs::fremovexattr(fd, name)
}

/// `fgetxattr`; `None` if there is no such attribute.
///
/// # Errors
/// Those of the call.
pub fn get_xattr(fd: BorrowedFd<'_>, name: &[u8]) -> Sys<Option<Vec<u8>>> {
    value_by(|room| fs::fgetxattr(fd, name, room))
}

/// As [`get_xattr`], for descriptors that were opened with `O_PATH`, too. Needs `/proc`.
///
/// # Errors
/// Those of the call.
pub fn get_xattr_of_path(fd: BorrowedFd<'_>, name: &[u8]) -> Sys<Option<Vec<u8>>> {
    let link = proc_link(fd);
    value_by(|room| fs::getxattr(link.as_str(), name, room))
}

/// A value that `get` writes into the room that it is given.
fn value_by(get: impl Fn(&mut [u8]) -> Sys<usize>) -> Sys<Option<Vec<u8>>> {
    let mut short = [0; SHORT_BYTES];
    match get(&mut short) {
        Ok(len) => Ok(Some(short[..len].to_vec())),
        Err(Errno::NODATA) => Ok(None),
        Err(Errno::RANGE) => {
            let mut long = vec![0; XATTR_BYTES];
            let len = get(&mut long)?;
            long.truncate(len);
            Ok(Some(long))
        }
        Err(e) => Err(e),
    }
}

/// Names of all extended attributes, each closed by a NUL.
///
/// # Errors
/// Those of `flistxattr`.
pub fn list_xattr(fd: BorrowedFd<'_>) -> Sys<Vec<u8>> {
    let mut names = vec![0u8; XATTR_BYTES];
    let len = fs::flistxattr(fd, &mut names[..])?;
    names.truncate(len);
    Ok(names)
}

/// Name and value of an extended attribute.
pub type Xattr = (Vec<u8>, Vec<u8>);

/// The extended attributes of an open file, access control lists included, but for those that `is_left_out` names. The kernel gives
/// those of users (`user.*`) to who may read the file at that moment, however it was opened.
///
/// # Errors
/// Those of the calls. It is no error if it is on a file system without extended attributes.
pub fn read_xattrs(from: BorrowedFd<'_>, is_left_out: impl Fn(&[u8]) -> bool) -> Sys<Vec<Xattr>> {
    read_each(list_xattr(from), |name| get_xattr(from, name), is_left_out)
}

/// Gives an open file these extended attributes. Returns the names of those that it does not take.
///
/// # Errors
/// Those of the calls.
pub fn write_xattrs(to: BorrowedFd<'_>, xattrs: &[Xattr]) -> Sys<Vec<String>> {
    write_each(xattrs, |name, value| set_xattr(to, name, value))
}

/// Gives `to` the extended attributes of `from`: [`read_xattrs`] and [`write_xattrs`].
///
/// # Errors
/// Those of the two.
pub fn copy_xattrs(
    from: BorrowedFd<'_>,
    to: BorrowedFd<'_>,
    is_left_out: impl Fn(&[u8]) -> bool,
) -> Sys<Vec<String>> {
    write_xattrs(to, &read_xattrs(from, is_left_out)?)
}

/// As [`copy_xattrs`], for descriptors that were opened with `O_PATH`: of symbolic links, FIFOs, sockets and devices.
/// Needs `/proc`.
///
/// # Errors
/// Those of [`copy_xattrs`].
pub fn copy_xattrs_of_path(
    from: BorrowedFd<'_>,
    to: BorrowedFd<'_>,
    is_left_out: impl Fn(&[u8]) -> bool,
) -> Sys<Vec<String>> {
    let (from, to) = (proc_link(from), proc_link(to));
    let mut names = vec![0u8; XATTR_BYTES];
    let names = fs::listxattr(from.as_str(), &mut names[..]).map(|len| names[..len].to_vec());
    let get = |name: &[u8]| value_by(|room| fs::getxattr(from.as_str(), name, room));
    let set =
        |name: &[u8], value: &[u8]| fs::setxattr(to.as_str(), name, value, XattrFlags::empty());
    write_each(&read_each(names, get, is_left_out)?, set)
}

fn read_each(
    names: Sys<Vec<u8>>,
    get: impl Fn(&[u8]) -> Sys<Option<Vec<u8>>>,
    is_left_out: impl Fn(&[u8]) -> bool,
) -> Sys<Vec<Xattr>> {
    let names = match names {
        Err(Errno::OPNOTSUPP) => return Ok(Vec::new()),
        names => names?,
    };
    let mut xattrs = Vec::new();
    for name in names.split(|&b| b == 0).filter(|name| !name.is_empty()) {
        // Labels of a security module belong to the file system that the file is on.
        if name == b"security.selinux" || is_left_out(name) {
            continue;
        }
        if let Some(value) = get(name)? {
            xattrs.push((name.to_vec(), value));
        }
    }
    Ok(xattrs)
}

fn write_each(xattrs: &[Xattr], set: impl Fn(&[u8], &[u8]) -> Sys<()>) -> Sys<Vec<String>> {
    let mut refused = Vec::new();
    // An access list changes the mode, and by that who may set the others.
    let is_list = |(name, _): &&Xattr| name.starts_with(b"system.posix_acl_");
    let others = xattrs.iter().filter(|xattr| !is_list(xattr));
    for (name, value) in others.chain(xattrs.iter().filter(is_list)) {
        match set(name, value) {
            Err(Errno::OPNOTSUPP | Errno::PERM) => {
                refused.push(String::from_utf8_lossy(name).into_owned());
            }
            set => set?,
        }
    }
    Ok(refused)
}

/// True if this is the only extended attribute of the file. Access control lists are extended attributes, too.
///
/// # Errors
/// Those of `flistxattr`. A list that is too long for the check is no error; the answer is false.
pub fn has_only_xattr(fd: BorrowedFd<'_>, name: &[u8]) -> Sys<bool> {
    let mut names = [std::mem::MaybeUninit::<u8>::uninit(); 64];
    match fs::flistxattr(fd, &mut names) {
        Ok((names, _)) => Ok(names.strip_suffix(&[0]) == Some(name)),
        Err(Errno::RANGE) => Ok(false),
        Err(e) => Err(e),
    }
}
