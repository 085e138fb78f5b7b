//! The folder in which `forebay probe` writes, in a directory that may belong to somebody else.
//!
//! Whoever may rename things in that directory can put another folder, or a link to one, in its place at any time. So the folder is held open,
//! and a client takes a folder for this one only if it has the mark, a name that nobody else knows. Only the user of the probe may look into
//! the folder.

use crate::error::{Fault, fault};
use crate::place::plain;
use forebay_sys as sys;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

const PREFIX: &str = ".forebay-probe.";

/// A folder of the probe. It goes with all that the probe has made in it.
pub struct Folder {
    path: PathBuf,
    held: OwnedFd,
    mark: String,
    /// Files are called by numbers from 0 on; so many may be there.
    files: u32,
}

impl Folder {
    /// Makes one in this directory.
    pub fn new(dir: &Path) -> Result<Self, Fault> {
        let cannot = |e: io::Error| fault(format!("{}: {}", dir.display(), plain(&e)));
        let make = || -> io::Result<Folder> {
            let name = format!("{PREFIX}{:016x}", sys::random()?);
            let mark = format!("{:016x}{:016x}", sys::random()?, sys::random()?);
            let parent = File::open(dir)?;
            sys::mkdir(parent.as_fd(), name.as_bytes(), 0o700)?;
            let folder = Folder {
                path: dir.join(&name),
                held: open(&parent, name.as_bytes())?,
                mark,
                files: 0,
            };
            let held = folder.held.as_fd();
            let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW;
            sys::open(held, folder.mark.as_bytes(), flags, 0o600)?;
            // A file system may call this user by another number, and the folder may be one that somebody has put there just now.
            let [it, mark] = [b"".as_slice(), folder.mark.as_bytes()].map(|n| sys::stat(held, n));
            let (it, mark) = (it?, mark?);
            match it.uid == mark.uid && it.mode & 0o077 == 0 {
                true => Ok(folder),
                false => Err(io::ErrorKind::PermissionDenied.into()),
            }
        };
        make().map_err(cannot)
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What tells a client which folder it is: see [`open_marked`].
    pub fn told(&self) -> String {
        format!(
            "{} {}",
            String::from_utf8_lossy(file_name(&self.path)),
            self.mark
        )
    }

    /// How many files there may be.
    pub fn files(&self) -> u32 {
        self.files
    }

    /// A name that was not used yet: one that was removed may be known for a while to the client that has not removed it.
    pub fn new_name(&mut self) -> String {
        self.files += 1;
        (self.files - 1).to_string()
    }

    fn remove(&self, name: &str) {
        // What is left goes with the folder.
        let _ = sys::unlink(self.held.as_fd(), name.as_bytes(), false);
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        (0..self.files).for_each(|file| self.remove(&file.to_string()));
        self.remove(&self.mark);
        // If something else has its name, that is empty or stays.
        let _ = fs::remove_dir(&self.path);
    }
}

fn file_name(path: &Path) -> &[u8] {
    path.file_name().unwrap_or_default().as_encoded_bytes()
}

fn open(parent: &File, name: &[u8]) -> io::Result<OwnedFd> {
    let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_RDONLY;
    Ok(sys::open(parent.as_fd(), name, flags, 0)?)
}

/// Opens the folder of which [`Folder::told`] has told, as this process sees it in a directory. `None` if it is not there.
pub fn open_marked(dir: &Path, told: &str) -> io::Result<Option<OwnedFd>> {
    let (name, mark) = told.split_once(' ').ok_or(io::ErrorKind::InvalidInput)?;
    let held = match open(&File::open(dir)?, name.as_bytes()) {
        Ok(held) => held,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e),
    };
    match sys::stat(held.as_fd(), mark.as_bytes()) {
        Ok(_) => Ok(Some(held)),
        Err(e) if e.raw_os_error() == libc::ENOENT => Ok(None),
        Err(e) => Err(e.into()),
    }
}
