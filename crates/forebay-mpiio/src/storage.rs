//! The file as aggregators read and write it: through a descriptor of their own.
//!
//! MPI libraries keep no bytes of a file in memory, and on one node all descriptors share the pages of the kernel. On
//! another node they show what the file system shows there. NFS may show old bytes, so this layer takes over nothing there.
//!
//! All calls go through libc, so that the path library and the recorder see them as calls of the program.

#![allow(unsafe_code)]

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::os::fd::{AsRawFd, IntoRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use forebay_core::collective::Striping;
use rustix::io::Errno;

/// What a path leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// Inode number.
    pub inode: u64,
    /// `statfs.f_type`.
    pub fs_type: i64,
    /// Major and minor number of the device.
    pub device: (u32, u32),
    /// The size of I/O in bytes that the file system prefers.
    pub block_bytes: u64,
}

/// The largest extended attribute that Linux knows.
const ATTRIBUTE_BYTES: usize = 64 << 10;

/// `NFS_SUPER_MAGIC`: a client may keep old bytes, and MPI libraries lock each access against that.
const NFS: i64 = 0x6969;

fn errno(error: std::io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

/// What a path leads to, if this layer can handle it: a regular file, not on NFS.
pub fn identify(path: &Path) -> Result<Identity, Errno> {
    let facts = fs::metadata(path).map_err(errno)?;
    if !facts.is_file() {
        return Err(Errno::NOTSUP);
    }
    match fs_type(path)? {
        NFS => Err(Errno::NOTSUP),
        fs_type => Ok(Identity {
            inode: facts.ino(),
            fs_type,
            device: device(&facts),
            block_bytes: facts.blksize(),
        }),
    }
}

fn device(facts: &fs::Metadata) -> (u32, u32) {
    (libc::major(facts.dev()), libc::minor(facts.dev()))
}

impl Identity {
    /// Is it the same file?
    pub fn is(&self, other: &Identity) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }
}

fn fs_type(path: &Path) -> Result<i64, Errno> {
    let name = CString::new(path.as_os_str().as_bytes()).map_err(|_| Errno::INVAL)?;
    let mut facts = std::mem::MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: the name is a C string, and there is room for the answer.
    if unsafe { libc::statfs(name.as_ptr(), facts.as_mut_ptr()) } != 0 {
        return Err(errno(std::io::Error::last_os_error()));
    }
    // SAFETY: the call has filled it.
    Ok(unsafe { facts.assume_init() }.f_type)
}

/// How a file lies on the servers, if its file system tells.
pub fn striping(path: &Path, identity: &Identity) -> Option<Striping> {
    let path = CString::new(path.as_os_str().as_bytes()).ok()?;
    Striping::ask(identity.fs_type, identity.block_bytes, |name| {
        let name = CString::new(name).ok()?;
        let mut value = vec![0; ATTRIBUTE_BYTES];
        // SAFETY: both names are C strings, and there is room for as many bytes as it is told.
        let bytes = unsafe {
            let to = value.as_mut_ptr().cast();
            libc::getxattr(path.as_ptr(), name.as_ptr(), to, value.len())
        };
        value.truncate(usize::try_from(bytes).ok()?);
        Some(value)
    })
}

/// A file, open for what the program opened it for.
#[derive(Debug)]
pub struct Storage {
    file: File,
}

/// What a program opened a file for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// `MPI_MODE_RDONLY`.
    Read,
    /// `MPI_MODE_WRONLY`.
    Write,
    /// `MPI_MODE_RDWR`.
    Both,
}

impl Storage {
    /// Opens a file that exists, if it is this one.
    pub fn open(path: &Path, purpose: Purpose, known: &Identity) -> Result<Self, Errno> {
        let file = OpenOptions::new()
            .read(purpose != Purpose::Write)
            .write(purpose != Purpose::Read)
            .custom_flags(libc::O_NOCTTY | libc::O_NONBLOCK)
            .open(path)
            .map_err(errno)?;
        let facts = file.metadata().map_err(errno)?;
        match (device(&facts), facts.ino()) == (known.device, known.inode) {
            true => Ok(Storage { file }),
            false => Err(Errno::STALE),
        }
    }

    /// Its size in bytes, as the server of the file system has it: a client may keep an old one for a while.
    pub fn size(&self) -> Result<u64, Errno> {
        let mut facts = std::mem::MaybeUninit::<libc::statx>::uninit();
        let flags = libc::AT_EMPTY_PATH | libc::AT_STATX_FORCE_SYNC;
        let (fd, mask) = (self.file.as_raw_fd(), libc::STATX_SIZE);
        // SAFETY: an empty name stands for the descriptor, and there is room for the answer.
        if unsafe { libc::statx(fd, c"".as_ptr(), flags, mask, facts.as_mut_ptr()) } != 0 {
            return Err(errno(std::io::Error::last_os_error()));
        }
        // SAFETY: the call has filled it.
        Ok(unsafe { facts.assume_init() }.stx_size)
    }

    /// Writes all bytes at an offset.
    pub fn write(&self, bytes: &[u8], offset: u64) -> Result<(), Errno> {
        self.file.write_all_at(bytes, offset).map_err(errno)
    }

    /// Fills a buffer from an offset on. Bytes after the end of the file are zeros.
    pub fn read(&self, to: &mut [u8], offset: u64) -> Result<(), Errno> {
        let mut done = 0;
        while done < to.len() {
            match self.file.read_at(&mut to[done..], offset + done as u64) {
                Ok(0) => {
                    to[done..].fill(0);
                    break;
                }
                Ok(more) => done += more,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(errno(error)),
            }
        }
        Ok(())
    }

    /// Closes it. Some file systems tell only then that they could not write, and only once.
    pub fn close(self) -> Result<(), Errno> {
        // SAFETY: the descriptor is used by nobody any more.
        match unsafe { libc::close(self.file.into_raw_fd()) } {
            0 => Ok(()),
            _ => match errno(std::io::Error::last_os_error()) {
                // It is closed all the same.
                Errno::INTR => Ok(()),
                error => Err(error),
            },
        }
    }

    /// Brings what was written to the disks.
    pub fn sync(&self) -> Result<(), Errno> {
        self.file.sync_all().map_err(errno)
    }
}
