//! The folder in which `forebay probe` writes, in a directory that may belong to somebody else.
//!
//! Whoever may rename things in that directory can put another folder, or a link to one, in its place at any time, also right after it was
//! made. So it is taken only if there is nothing in it, and held open from then on; a client takes a folder for this one only if it has the
//! mark, a name that nobody else knows. All names in it begin with that.

use crate::error::{Fault, fault};
use crate::place::plain;
use forebay_sys as sys;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const PREFIX: &str = ".forebay-probe.";

/// A folder of the probe. It goes with all that the probe has made in it.
pub struct Folder {
    path: PathBuf,
    held: OwnedFd,
    mark: String,
    /// Files are called by the mark and numbers from 0 on; so many may be there.
    files: u32,
}

impl Folder {
    /// Makes one in this directory.
    pub fn new(dir: &Path) -> Result<Self, Fault> {
        let cannot = |e: io::Error| fault(format!("{}: {}", dir.display(), plain(&e)));
        let make = || -> io::Result<Folder> {
            let name = format!("{PREFIX}{:016x}", sys::random()?);
            let parent = open_dir(dir)?;
            sys::mkdir(parent.as_fd(), name.as_bytes(), 0o700)?;
            let held = open(&parent, name.as_bytes()).inspect_err(|_| {
                let _ = sys::unlink(parent.as_fd(), name.as_bytes(), true);
            })?;
            let folder = Folder {
                path: dir.join(&name),
                held,
                mark: format!("{:016x}{:016x}", sys::random()?, sys::random()?),
                files: 0,
            };
            folder.check()?;
            Ok(folder)
        };
        make().map_err(cannot)
    }

    /// Leaves the mark. Is the folder one of this user alone, and was it empty?
    fn check(&self) -> io::Result<()> {
        let held = self.held.as_fd();
        let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW;
        sys::open(held, self.mark.as_bytes(), flags, 0o600)?;
        // The file system may call this user by another number.
        let (it, mark) = (
            sys::stat(held, b"")?,
            sys::stat(held, self.mark.as_bytes())?,
        );
        if it.mode & 0o077 != 0 || it.uid != mark.uid {
            return Err(io::Error::other(
                "others may look into what this user makes there for itself",
            ));
        }
        let mut entries = Vec::new();
        while sys::read_dir(held, &mut entries)? {}
        match entries
            .iter()
            .all(|entry| entry.name == self.mark.as_bytes())
        {
            true => Ok(()),
            false => Err(io::Error::other(
                "somebody has replaced the folder of the probe",
            )),
        }
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
        self.name(self.files - 1)
    }

    fn name(&self, file: u32) -> String {
        format!("{}.{file}", self.mark)
    }

    fn remove(&self, name: &str) {
        // What is left goes with the folder.
        let _ = sys::unlink(self.held.as_fd(), name.as_bytes(), false);
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        (0..self.files).for_each(|file| self.remove(&self.name(file)));
        self.remove(&self.mark);
        // Something else that has its name stays.
        let (it, named) = (
            sys::stat(self.held.as_fd(), b""),
            fs::symlink_metadata(&self.path),
        );
        if matches!((it, named), (Ok(it), Ok(named)) if (it.dev, it.ino) == (named.dev(), named.ino()))
        {
            let _ = fs::remove_dir(&self.path);
        }
    }
}

fn file_name(path: &Path) -> &[u8] {
    path.file_name().unwrap_or_default().as_encoded_bytes()
}

/// What stands in the place of a directory now may be a pipe, which would keep a process waiting.
fn open_dir(dir: &Path) -> io::Result<OwnedFd> {
    Ok(sys::open_path(dir, libc::O_RDONLY | libc::O_DIRECTORY)?)
}

fn open(parent: &OwnedFd, name: &[u8]) -> io::Result<OwnedFd> {
    let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_RDONLY;
    Ok(sys::open(parent.as_fd(), name, flags, 0)?)
}

/// Opens the folder of which [`Folder::told`] has told, as this process sees it in a directory. `None` if it is not there.
pub fn open_marked(dir: &Path, told: &str) -> io::Result<Option<OwnedFd>> {
    let (name, mark) = told.split_once(' ').ok_or(io::ErrorKind::InvalidInput)?;
    let held = match open(&open_dir(dir)?, name.as_bytes()) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// Between its making and its opening somebody may have put another one of this user there.
    #[test]
    fn a_folder_with_anything_in_it_is_not_taken_and_loses_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let own = dir.path().join("own");
        fs::create_dir(&own).unwrap();
        fs::set_permissions(&own, fs::Permissions::from_mode(0o700)).unwrap();
        fs::write(own.join("0"), "mine").unwrap();
        let folder = Folder {
            held: open_dir(&own).unwrap(),
            path: own.clone(),
            mark: "mark".to_owned(),
            files: 1,
        };
        assert!(folder.check().is_err());
        drop(folder);
        let names = fs::read_dir(&own).unwrap();
        let names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["0"]);
        assert_eq!(fs::read(own.join("0")).unwrap(), b"mine");
    }
}
