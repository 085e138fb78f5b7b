//! Notes about what a drain changes on the PFS for a while. If the drain is killed, the next one reads them and takes that back.
//! Only the bridge can write there, so what they tell is its own word.
//!
//! - `aside/` has one for each directory that is put aside to be removed, under the name that it has while it is aside
//!   (`core::drain::AsideNote`).
//! - `lent/` has one for each act for which directories got a permission (`core::drain::LentDir`).
//! - `touched/` has one, with the files of several names of which drains have changed one (`mover::removal::Touched`).

use forebay_sys::{self as sys, Errno, Sys, errno_of};
use parking_lot::{Mutex, MutexGuard};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Longest note. An act of 512 directories with two paths of 4 KiB each fits. A longer one is refused (EFBIG), and then no permission
/// is given.
const MAX_NOTE_BYTES: u64 = 8 << 20;

/// The notes of one kind of an instance.
pub struct PfsNotes {
    instance: PathBuf,
    folder: &'static [u8],
    changing: Mutex<()>,
}

impl PfsNotes {
    /// Those of this instance directory about what is aside. The folder is made with the first note.
    pub fn about_aside(instance: &Path) -> Self {
        PfsNotes::new(instance, b"aside")
    }

    /// Those about permissions of directories.
    pub fn about_lent(instance: &Path) -> Self {
        PfsNotes::new(instance, b"lent")
    }

    /// That about files of several names.
    pub fn about_touched(instance: &Path) -> Self {
        PfsNotes::new(instance, b"touched")
    }

    fn new(instance: &Path, folder: &'static [u8]) -> Self {
        PfsNotes {
            instance: instance.to_owned(),
            folder,
            changing: Mutex::new(()),
        }
    }

    /// Keeps other threads from taking a note for one without a directory, while that is on its way.
    pub fn hold(&self) -> MutexGuard<'_, ()> {
        self.changing.lock()
    }

    fn folder(&self) -> Sys<Option<OwnedFd>> {
        let instance = sys::open_path(&self.instance, libc::O_PATH | libc::O_DIRECTORY)?;
        let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW;
        match sys::open(instance.as_fd(), self.folder, flags, 0) {
            Ok(dir) => Ok(Some(dir)),
            Err(Errno::NOENT) => Ok(None),
            Err(e) => Err(e),
        }
    }

    fn made_folder(&self) -> Sys<OwnedFd> {
        if let Some(dir) = self.folder()? {
            return Ok(dir);
        }
        let instance = sys::open_path(&self.instance, libc::O_RDONLY | libc::O_DIRECTORY)?;
        sys::make_dir(instance.as_fd(), self.folder)?;
        sys::fsync(instance.as_fd())?;
        self.folder()?.ok_or(Errno::NOENT)
    }

    /// Writes a note, durably.
    ///
    /// # Errors
    /// EEXIST: there is one with this name. EFBIG: it is too long. Those of the file system: there is none then.
    pub fn write(&self, name: &[u8], text: &[u8]) -> Sys<()> {
        if text.len() as u64 > MAX_NOTE_BYTES {
            return Err(Errno::FBIG);
        }
        let dir = self.made_folder()?;
        let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW;
        let mut file = File::from(sys::open(dir.as_fd(), name, flags, 0o600)?);
        let written = file.write_all(text).and_then(|()| file.sync_all());
        let outcome = written.map_err(errno_of);
        outcome
            .and_then(|()| sys::fsync(dir.as_fd()))
            .inspect_err(|_| {
                // A part of a note tells nothing.
                let _ = sys::unlink(dir.as_fd(), name, false);
            })
    }

    /// A note to which more can be added, for a drain that is killed: it is not durable. Begun if there is none.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn open_to_add(&self, name: &[u8]) -> Sys<File> {
        let dir = self.made_folder()?;
        let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND | libc::O_NOFOLLOW;
        Ok(File::from(sys::open(dir.as_fd(), name, flags, 0o600)?))
    }

    /// The text of a note; `None` if there is none with this name.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn read(&self, name: &[u8]) -> Sys<Option<Vec<u8>>> {
        let Some(dir) = self.folder()? else {
            return Ok(None);
        };
        let flags = libc::O_RDONLY | libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let file = match sys::open(dir.as_fd(), name, flags, 0) {
            Ok(file) => File::from(file),
            Err(Errno::NOENT) => return Ok(None),
            Err(e) => return Err(e),
        };
        let mut text = Vec::new();
        let read = file.take(MAX_NOTE_BYTES).read_to_end(&mut text);
        read.map_err(errno_of)?;
        Ok(Some(text))
    }

    /// Removes a note; none with this name is fine.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn forget(&self, name: &[u8]) -> Sys<()> {
        let Some(dir) = self.folder()? else {
            return Ok(());
        };
        match sys::unlink(dir.as_fd(), name, false) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(e) => Err(e),
        }
    }

    /// The names of all notes.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn names(&self) -> Sys<Vec<Vec<u8>>> {
        let Some(dir) = self.folder()? else {
            return Ok(Vec::new());
        };
        let mut entries = Vec::new();
        while sys::read_dir(dir.as_fd(), &mut entries)? {}
        Ok(entries.into_iter().map(|entry| entry.name).collect())
    }
}
