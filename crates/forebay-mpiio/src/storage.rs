//! The file as aggregators read and write it: through a descriptor of their own.
//!
//! MPI libraries keep no bytes of a file in memory, so both descriptors show one state. Where that is not certain (NFS)
//! this layer takes over nothing.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{self, Mode, OFlags};
use rustix::io::{self, Errno};

/// What a path leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// Inode number.
    pub inode: u64,
    /// `statfs.f_type`.
    pub fs_type: i64,
}

/// `NFS_SUPER_MAGIC`: a client may keep old bytes, and MPI libraries lock each access against that.
const NFS: i64 = 0x6969;

/// What a path leads to, if this layer can handle it: a regular file, not on NFS.
pub fn identify(path: &Path) -> Result<Identity, Errno> {
    let facts = fs::stat(path)?;
    if fs::FileType::from_raw_mode(facts.st_mode) != fs::FileType::RegularFile {
        return Err(Errno::NOTSUP);
    }
    let fs_type = fs::statfs(path)?.f_type as i64;
    match fs_type {
        NFS => Err(Errno::NOTSUP),
        _ => Ok(Identity {
            inode: facts.st_ino,
            fs_type,
        }),
    }
}

/// A file, open for what the program opened it for.
#[derive(Debug)]
pub struct Storage {
    file: OwnedFd,
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
    /// Opens a file that exists, if it is the one with this inode number.
    pub fn open(path: &Path, purpose: Purpose, inode: u64) -> Result<Self, Errno> {
        let access = match purpose {
            Purpose::Read => OFlags::RDONLY,
            Purpose::Write => OFlags::WRONLY,
            Purpose::Both => OFlags::RDWR,
        };
        let flags = access | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
        let file = fs::open(path, flags, Mode::empty())?;
        match fs::fstat(&file)?.st_ino == inode {
            true => Ok(Storage { file }),
            false => Err(Errno::STALE),
        }
    }

    /// Its size in bytes.
    pub fn size(&self) -> Result<u64, Errno> {
        Ok(fs::fstat(&self.file)?.st_size as u64)
    }

    /// Writes all bytes at an offset.
    pub fn write(&self, bytes: &[u8], offset: u64) -> Result<(), Errno> {
        let mut done = 0;
        while done < bytes.len() {
            match io::pwrite(&self.file, &bytes[done..], offset + done as u64) {
                Ok(0) => return Err(Errno::IO),
                Ok(more) => done += more,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Fills a buffer from an offset on. Bytes after the end of the file are zeros.
    pub fn read(&self, to: &mut [u8], offset: u64) -> Result<(), Errno> {
        let mut done = 0;
        while done < to.len() {
            match io::pread(&self.file, &mut to[done..], offset + done as u64) {
                Ok(0) => {
                    to[done..].fill(0);
                    break;
                }
                Ok(more) => done += more,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Brings what was written to the disks.
    pub fn sync(&self) -> Result<(), Errno> {
        fs::fsync(&self.file)
    }
}
