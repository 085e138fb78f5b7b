//! Writes a log under a temporary name and gives it its own when it is whole. An existing file is never overwritten.

use crate::Error;
use forebay_sys::{self as sys, Errno};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Mode of a log, as Darshan has it: a log is read, not changed.
const MODE: u32 = 0o400;
/// What Darshan appends to the name of a log that is not whole.
const PARTIAL: &str = "_partial";

/// How a directory is opened in which names are given.
const DIR: i32 = libc::O_PATH | libc::O_DIRECTORY;

/// A file that is removed on drop unless it is published.
pub struct Partial {
    part: PathBuf,
    path: PathBuf,
}

impl Partial {
    /// Begins the log that is to be at `path`. Makes its directory if that is missing.
    ///
    /// # Errors
    /// Something is at `path` already, or the directory can't be written.
    pub fn create(path: &Path) -> Result<(Self, File), Error> {
        if let Some(dir) = path.parent() {
            fs::create_dir_all(dir).map_err(|e| Error::io("make", dir, e))?;
        }
        if fs::symlink_metadata(path).is_ok() {
            let exists = std::io::Error::from(ErrorKind::AlreadyExists);
            return Err(Error::io("write", path, exists));
        }
        let mut part = path.as_os_str().to_owned();
        part.push(format!("{PARTIAL}-{}", std::process::id()));
        let part = PathBuf::from(part);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(0o600);
        let file = options
            .open(&part)
            .map_err(|e| Error::io("write", &part, e))?;
        let path = path.to_owned();
        Ok((Partial { part, path }, file))
    }

    /// Gives the whole log its name.
    ///
    /// # Errors
    /// The file system refused, or a file of that name has appeared since.
    pub fn publish(self, file: &File) -> Result<PathBuf, Error> {
        let failed = |e| Error::io("write", &self.path, e);
        file.sync_all().map_err(failed)?;
        file.set_permissions(Permissions::from_mode(MODE))
            .map_err(failed)?;
        // A hard link never replaces an existing file, as rename would.
        match fs::hard_link(&self.part, &self.path) {
            Ok(()) => {}
            Err(e) if e.kind() == ErrorKind::AlreadyExists => return Err(failed(e)),
            // Some file systems have no hard links.
            Err(_) => rename_free(&self.part, &self.path).map_err(failed)?,
        }
        Ok(self.path.clone())
    }
}

/// Renames, and replaces nothing.
fn rename_free(part: &Path, path: &Path) -> io::Result<()> {
    let name = |path: &Path| path.file_name().unwrap_or_default().as_bytes().to_vec();
    let dir = match path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ => Path::new("."),
    };
    let dir = sys::open_path(dir, DIR)?;
    let (dir, part_name, path_name) = (dir.as_fd(), name(part), name(path));
    match sys::rename_noreplace(dir, &part_name, dir, &path_name) {
        Err(Errno::INVAL | Errno::NOSYS) => rename_over_own(part, path),
        renamed => Ok(renamed?),
    }
}

/// As [`rename_free`], where neither a link nor a rename refuses to replace: the name is taken by a file that nobody else can
/// have made, and that is replaced.
fn rename_over_own(part: &Path, path: &Path) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(MODE).open(path)?;
    fs::rename(part, path).inspect_err(|_| {
        let _ = fs::remove_file(path);
    })
}

impl Drop for Partial {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn dir(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("fbstore-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        dir
    }

    #[test]
    fn a_log_is_there_when_it_is_whole_and_read_only() {
        let dir = dir("whole");
        let path = dir.join("2026/3/9/a.darshan");
        let (partial, mut file) = Partial::create(&path).unwrap();
        file.write_all(b"log").unwrap();
        assert!(!path.exists());
        partial.publish(&file).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"log");
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, MODE);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn what_is_there_stays_whenever_it_came() {
        let dir = dir("stays");
        let path = dir.join("a.darshan");
        let (partial, file) = Partial::create(&path).unwrap();
        fs::write(&path, "first").unwrap();
        let error = partial.publish(&file).unwrap_err().to_string();
        assert!(error.contains("a.darshan"), "{error}");
        assert!(Partial::create(&path).is_err());
        assert_eq!(fs::read(&path).unwrap(), b"first");
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 1);
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn an_earlier_log_stays_also_where_there_are_no_hard_links() {
        let dir = dir("no-links");
        fs::create_dir_all(&dir).unwrap();
        let (part, path) = (dir.join("part"), dir.join("a.darshan"));
        for give_name in [rename_free, rename_over_own] {
            fs::write(&part, "second").unwrap();
            fs::write(&path, "first").unwrap();
            let refused = give_name(&part, &path).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::AlreadyExists);
            assert_eq!(fs::read(&path).unwrap(), b"first");
            assert_eq!(fs::read(&part).unwrap(), b"second");
            fs::remove_file(&path).unwrap();
            give_name(&part, &path).unwrap();
            assert_eq!(fs::read(&path).unwrap(), b"second");
            assert!(!part.exists());
        }
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn one_that_was_given_up_leaves_nothing() {
        let dir = dir("nothing");
        drop(Partial::create(&dir.join("a.darshan")).unwrap());
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
        fs::remove_dir_all(&dir).unwrap();
    }
}
