//! Lists everything on local storage, for a start after a crash and for checks.

use super::{Objects, Shape, parse_name, shape};
use forebay_core::drain::StrayEntry;
use forebay_core::record::ObjectName;
use forebay_sys::{self as sys, Errno, Sys, errno_of};
use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// An entry of a folder of backing objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scanned {
    /// A part of this object. A node and its label are two parts.
    Object(ObjectName),
    /// Its name is no object's. Holds its path in the instance directory.
    Strange(String),
}

impl Objects {
    /// Names of all backing files and directories in folders from `first` on.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn scan(&self, first: u64) -> Sys<Vec<Scanned>> {
        let mut found = Vec::new();
        for kind in ["obj", "dir"] {
            for folder in self.list(kind)? {
                let text = String::from_utf8_lossy(&folder).into_owned();
                let path = format!("{kind}/{text}");
                match u64::from_str_radix(&text, 16) {
                    Ok(n) if n < first => continue,
                    Ok(_) => {}
                    Err(_) => {
                        found.push(Scanned::Strange(path));
                        continue;
                    }
                }
                for name in self.list(&path)? {
                    found.push(match parse_name(&name) {
                        Some((object, _)) if (shape(object) == Shape::Dir) == (kind == "dir") => {
                            Scanned::Object(object)
                        }
                        _ => Scanned::Strange(format!("{path}/{}", name.escape_ascii())),
                    });
                }
            }
        }
        Ok(found)
    }

    /// A backing directory, to be listed; `None` if its owner may not read it: then nobody knows what is in it.
    fn open_dir(&self, dir: ObjectName) -> Sys<Option<OwnedFd>> {
        let fd = match self.open_object(dir, libc::O_RDONLY | libc::O_DIRECTORY) {
            Err(Errno::ACCESS) => return Ok(None),
            fd => fd?,
        };
        // The access time is that of the program.
        let _ = sys::keep_access_time(fd.as_fd());
        Ok(Some(fd))
    }

    /// What is in a backing directory: the bridge makes nothing there, so it was made past the buffer. Nothing, if its owner may
    /// not read it.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn entries(&self, dir: ObjectName) -> Sys<Vec<StrayEntry>> {
        let Some(fd) = self.open_dir(dir)? else {
            return Ok(Vec::new());
        };
        let mut entries = Vec::new();
        while sys::read_dir(fd.as_fd(), &mut entries)? {}
        let stray = |entry: sys::RawEntry| StrayEntry {
            bytes: sys::stat(fd.as_fd(), &entry.name).map_or(0, |attr| attr.size),
            name: entry.name,
        };
        Ok(entries.into_iter().map(stray).collect())
    }

    /// Is there something in a backing directory that its owner may read?
    ///
    /// # Errors
    /// Those of the file system.
    pub fn has_entries(&self, dir: ObjectName) -> Sys<bool> {
        let Some(fd) = self.open_dir(dir)? else {
            return Ok(false);
        };
        let mut entries = Vec::new();
        while entries.is_empty() && sys::read_dir(fd.as_fd(), &mut entries)? {}
        Ok(!entries.is_empty())
    }

    /// The greatest folder number in use.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn last_folder(instance: &Path) -> Sys<Option<u64>> {
        let mut last = None;
        for kind in ["obj", "dir"] {
            let folders = names_in(&instance.join(kind))?;
            let numbers = folders.iter().filter_map(|name| folder_number(name));
            last = last.max(numbers.max());
        }
        Ok(last)
    }

    /// The latest start of a bridge that has made one of the objects here; 0: there is none.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn newest_epoch(instance: &Path) -> Sys<u32> {
        let mut newest = 0;
        for kind in ["obj", "dir"] {
            let folders = names_in(&instance.join(kind))?;
            let numbered = folders
                .into_iter()
                .filter_map(|name| Some((folder_number(&name)?, name)));
            // Numbers only grow, but what is in the last folders may be gone.
            let mut numbered: Vec<_> = numbered.collect();
            numbered.sort_unstable();
            for (_, folder) in numbered.into_iter().rev() {
                let names = names_in(&instance.join(kind).join(OsStr::from_bytes(&folder)))?;
                let objects = names.iter().filter_map(|name| parse_name(name));
                let epochs = objects.map(|(object, _)| object.oid.epoch());
                if let Some(epoch) = epochs.max() {
                    newest = newest.max(epoch);
                    break;
                }
            }
        }
        Ok(newest)
    }

    /// Removes folders that hold nothing.
    pub fn sweep(&self) {
        // One of them may be needed again.
        self.folders.write().clear();
        for kind in ["obj", "dir"] {
            for folder in self.list(kind).unwrap_or_default() {
                let path = format!("{kind}/{}", String::from_utf8_lossy(&folder));
                // This fails for a folder that is not empty.
                let _ = sys::unlink(self.instance.as_fd(), path.as_bytes(), true);
            }
        }
    }

    pub(super) fn list(&self, path: &str) -> Sys<Vec<Vec<u8>>> {
        let fd = sys::open(
            self.instance.as_fd(),
            path.as_bytes(),
            libc::O_RDONLY | libc::O_DIRECTORY,
            0,
        )?;
        let mut entries = Vec::new();
        while sys::read_dir(fd.as_fd(), &mut entries)? {}
        Ok(entries.into_iter().map(|e| e.name).collect())
    }
}

/// Names of what is in a directory; none if it is not there.
fn names_in(dir: &Path) -> Sys<Vec<Vec<u8>>> {
    let entries = match std::fs::read_dir(dir) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(errno_of)?,
    };
    let names = entries.map(|entry| Ok(entry.map_err(errno_of)?.file_name().into_vec()));
    names.collect()
}

fn folder_number(name: &[u8]) -> Option<u64> {
    u64::from_str_radix(std::str::from_utf8(name).ok()?, 16).ok()
}
