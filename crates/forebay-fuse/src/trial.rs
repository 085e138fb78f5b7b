//! Finds out by a trial whether a mount is possible here, and whether the kernel takes backing files of a directory.

use crate::device::{Device, Refused};
use crate::protocol::{self, Call, REQUEST_BYTES};
use crate::server::agree;
use forebay_sys::{self as sys, Errno, Sys};
use std::os::fd::AsFd;
use std::path::Path;

/// What a trial has shown. Nothing of it is left, but the namespaces of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trial {
    /// The kernel reads and writes files of the directory itself.
    Native,
    /// It was mounted, and the kernel does not know passthrough.
    TooOld,
    /// It was mounted, and the kernel does not take a file of the directory.
    NotTaken(Errno),
    /// It could not be mounted.
    Refused(Refused),
}

/// Mounts over `dir` as [`Device::mount_private`] does, and offers the kernel a file of it.
///
/// # Errors
/// A file cannot be made in `dir`, or the kernel speaks something else than FUSE.
pub fn attempt(dir: &Path, as_user: bool) -> Sys<Trial> {
    let below = sys::open_path(dir, libc::O_RDONLY | libc::O_DIRECTORY)?;
    let file = sys::scratch_file(below.as_fd())?;
    let device = match Device::mount_private(dir, as_user) {
        Ok(device) => device,
        Err(why) => return Ok(Trial::Refused(why)),
    };
    // The kernel asks for this by itself, and nobody else knows of the mount.
    let mut room = vec![0; REQUEST_BYTES];
    let len = rustix::io::read(&device, &mut room[..])?;
    let request = protocol::decode(&room[..len]).map_err(|_| Errno::PROTO)?;
    let Call::Init {
        major,
        minor,
        readahead,
        capabilities,
    } = request.call
    else {
        return Err(Errno::PROTO);
    };
    let (reply, passes_through) = agree(major, minor, readahead, capabilities)?;
    rustix::io::write(&device, &reply.message(request.unique))?;
    if !passes_through {
        return Ok(Trial::TooOld);
    }
    Ok(match sys::fuse_backing_open(device.as_fd(), file.as_fd()) {
        Ok(id) => {
            sys::fuse_backing_close(device.as_fd(), id);
            Trial::Native
        }
        Err(e) => Trial::NotTaken(e),
    })
}
