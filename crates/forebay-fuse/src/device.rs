//! `/dev/fuse`, and mounts of what is served there.

use forebay_sys::{self as sys, Errno, Sys};
use rustix::fs::CWD;
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_change};
use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// The type of the mounts, as `/proc/self/mountinfo` shows it.
const KIND: &str = "fuse.forebay";
/// What the source of a shared mount begins with. The process that serves it follows.
const SOURCE: &str = "forebay:";

/// An open `/dev/fuse`, which becomes one connection to the kernel when it is mounted.
#[derive(Debug)]
pub struct Device(OwnedFd);

/// Where a mount is seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// By all processes of the mount namespace, as far as they are of the user.
    Shared,
    /// By this process and those that it starts, in a mount namespace of their own.
    Private,
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl From<OwnedFd> for Device {
    fn from(fd: OwnedFd) -> Self {
        Device(fd)
    }
}

impl Device {
    /// Opens `/dev/fuse`.
    ///
    /// # Errors
    /// ENOENT: the kernel has no FUSE. EACCES: this user may not.
    pub fn open() -> Sys<Device> {
        sys::open_path(Path::new("/dev/fuse"), libc::O_RDWR).map(Device)
    }

    /// The descriptor. It gives no requests before it is mounted.
    pub fn into_descriptor(self) -> OwnedFd {
        self.0
    }

    /// Mounts it at `at`, for processes of this user alone. The first request waits there for its server.
    ///
    /// # Errors
    /// EPERM without CAP_SYS_ADMIN; else those of `mount(2)`.
    pub fn mount(&self, at: &Path, place: Place) -> Sys<()> {
        let mut flags = MountFlags::NOSUID | MountFlags::NODEV;
        if place == Place::Private {
            sys::unshare_mounts()?;
            // Mounts of the system still come in, and nothing goes out.
            mount_change(
                "/",
                MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC,
            )?;
            flags = MountFlags::empty();
        }
        let root = sys::stat(CWD, at.as_os_str().as_encoded_bytes())?;
        if root.mode & libc::S_IFMT != libc::S_IFDIR {
            return Err(Errno::NOTDIR);
        }
        let (uid, gid) = sys::my_ids();
        let options = format!(
            "fd={},rootmode=40000,user_id={uid},group_id={gid}",
            self.0.as_raw_fd()
        );
        let options = CString::new(options).map_err(|_| Errno::INVAL)?;
        let source = match place {
            Place::Shared => format!("{SOURCE}{}", std::process::id()),
            Place::Private => "forebay".to_owned(),
        };
        mount(source, at, KIND, flags, options.as_c_str())
    }
}

/// Takes a mount away. If somebody uses it, it stays, unless `lazy`: then it goes from the tree at once, and whoever
/// has something open there goes on until it is closed.
///
/// # Errors
/// EBUSY: somebody uses it. EINVAL: nothing is mounted there. EPERM without CAP_SYS_ADMIN.
pub fn unmount(at: &Path, lazy: bool) -> Sys<()> {
    let how = match lazy {
        true => UnmountFlags::DETACH,
        false => UnmountFlags::empty(),
    };
    rustix::mount::unmount(at, how | UnmountFlags::NOFOLLOW)
}

/// The process that serves the shared mount at `at`; 0 for a private one, `None` if nothing of this kind is mounted there.
pub fn server_of(at: &Path) -> Option<u32> {
    let (kind, source) = sys::mounted(at)?;
    let server = source.strip_prefix(SOURCE).and_then(|pid| pid.parse().ok());
    (kind == KIND).then(|| server.unwrap_or(0))
}
