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

/// Which step of a mount was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// Namespaces of its own for this process.
    Namespace(Errno),
    /// To open `/dev/fuse`.
    Device(Errno),
    /// To mount.
    Mount(Errno),
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

    /// Mounts it at `at`, where all processes of the mount namespace see it that are of this user. The first request waits
    /// there for its server.
    ///
    /// # Errors
    /// EPERM without CAP_SYS_ADMIN; else those of `mount(2)`.
    pub fn mount_shared(&self, at: &Path) -> Sys<()> {
        let source = format!("{SOURCE}{}", std::process::id());
        self.mount(at, &source, MountFlags::NOSUID | MountFlags::NODEV)
    }

    /// Mounts a new one at `at`, in a mount namespace of this process and those that it starts. With `as_user` that needs no
    /// privilege, for the process gets a user namespace as well. The process must have one thread.
    ///
    /// # Errors
    /// [`Refused`]. This process may be in the new namespaces even so.
    pub fn mount_private(at: &Path, as_user: bool) -> Result<Device, Refused> {
        match as_user {
            true => sys::unshare_users().map_err(Refused::Namespace)?,
            false => sys::unshare_mounts().map_err(Refused::Mount)?,
        }
        // In there: the kernel mounts no connection that was opened in another user namespace.
        let device = Device::open().map_err(Refused::Device)?;
        let slaves = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
        // Mounts of the system still come in, and nothing goes out.
        mount_change("/", slaves)
            .and_then(|()| device.mount(at, "forebay", MountFlags::empty()))
            .map_err(Refused::Mount)?;
        Ok(device)
    }

    fn mount(&self, at: &Path, source: &str, flags: MountFlags) -> Sys<()> {
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
