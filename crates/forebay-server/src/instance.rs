//! Where a bridge lives: its directory on local storage, its lock, its socket,
//! and the file by which others find it.

use crate::Error;
use crate::format::{self, Found};
use crate::grant::SOCKET_PATH_BYTES;
use forebay_sys as sys;
use serde::{Deserialize, Serialize};
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// What a running bridge writes down about itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BridgeInfo {
    /// Process.
    pub pid: u32,
    /// Path of its socket.
    pub socket: PathBuf,
    /// Canonical path of the buffer root.
    pub root: PathBuf,
    /// Its instance directory.
    pub storage: PathBuf,
    /// How often it has been started.
    pub epoch: u32,
}

const INFO_FILE: &str = "bridge.json";
const LOCK_FILE: &str = "lock";
const ROOT_FILE: &str = "root";

/// FNV-1a: the name of an instance must be the same in every build.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |h, &b| {
        (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The instance directory below `storage` for the buffer over `root`, a canonical path.
pub fn instance_dir(storage: &Path, root: &Path) -> PathBuf {
    let mut name = root.file_name().unwrap_or_default().as_bytes().to_vec();
    // Room for the hash within the longest name.
    name.truncate(200);
    name.extend_from_slice(format!("-{:016x}", hash(root.as_os_str().as_bytes())).as_bytes());
    storage.join(std::ffi::OsString::from_vec(name))
}

/// The running bridge of an instance, if it says that one is running. It may have died since.
pub fn bridge_info(instance: &Path) -> Option<BridgeInfo> {
    serde_json::from_slice(&fs::read(instance.join(INFO_FILE)).ok()?).ok()
}

fn failed(what: &str, path: &Path, e: impl std::fmt::Display) -> Error {
    Error(format!("{what} {}: {e}", path.display()))
}

/// Makes a directory that only its owner may enter, and its parents as usual.
fn make_private(dir: &Path) -> Result<(), Error> {
    if let Some(parent) = dir.parent() {
        fs::create_dir_all(parent).map_err(|e| failed("can't make", parent, e))?;
    }
    match fs::DirBuilder::new().mode(0o700).create(dir) {
        Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => {
            Err(failed("can't make", dir, e))
        }
        _ => Ok(()),
    }
}

/// An instance directory that this process alone uses.
pub struct Instance {
    dir: PathBuf,
    found: Found,
    _lock: OwnedFd,
}

impl Instance {
    /// Makes the directory if need be, locks it, and looks which format the storage in it has.
    ///
    /// # Errors
    /// Another bridge is using it, the storage is of a later program, or the file system says no.
    pub fn take(dir: &Path) -> Result<Self, Error> {
        make_private(dir)?;
        let path = dir.join(LOCK_FILE);
        let file = fs::OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(|e| failed("can't open", &path, e))?;
        let lock = OwnedFd::from(file);
        sys::lock_file(lock.as_fd()).map_err(|e| match e {
            sys::Errno::WOULDBLOCK => Error(format!("another bridge is using {}", dir.display())),
            _ => failed("can't lock", &path, e),
        })?;
        Ok(Instance {
            dir: dir.to_owned(),
            found: format::look(dir)?,
            _lock: lock,
        })
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Brings the storage up to the format of this program. Gives the format that it had, if that was an older one.
    ///
    /// # Errors
    /// The file system says no; nothing is lost.
    pub fn bring_up_to_date(&mut self) -> Result<Option<u32>, Error> {
        let before = format::bring_up_to_date(&self.dir, self.found)?;
        self.found = Found::Known(format::CURRENT);
        Ok(before)
    }

    /// The buffer root that this instance was made for.
    pub fn root(&self) -> Option<PathBuf> {
        let bytes = fs::read(self.dir.join(ROOT_FILE)).ok()?;
        Some(PathBuf::from(std::ffi::OsString::from_vec(bytes)))
    }

    /// Writes down for which buffer root this is.
    ///
    /// # Errors
    /// It is for another one, or the file system says no.
    pub fn belong_to(&self, root: &Path) -> Result<(), Error> {
        match self.root() {
            Some(other) if other == root => Ok(()),
            Some(other) => Err(Error(format!(
                "{} holds the buffer over {}, not over {}",
                self.dir.display(),
                other.display(),
                root.display()
            ))),
            None => self.write(ROOT_FILE, root.as_os_str().as_bytes()),
        }
    }

    fn write(&self, name: &str, bytes: &[u8]) -> Result<(), Error> {
        let (temporary, path) = (self.dir.join(format!("{name}.new")), self.dir.join(name));
        fs::write(&temporary, bytes)
            .and_then(|()| fs::rename(&temporary, &path))
            .map_err(|e| failed("can't write", &path, e))
    }

    /// Tells others where the bridge is.
    ///
    /// # Errors
    /// The file system says no.
    pub fn publish(&self, info: &BridgeInfo) -> Result<(), Error> {
        let text = serde_json::to_vec_pretty(info).map_err(|e| Error(e.to_string()))?;
        self.write(INFO_FILE, &text)
    }

    /// The bridge is no more.
    pub fn withdraw(&self) {
        let _ = fs::remove_file(self.dir.join(INFO_FILE));
    }
}

/// Where sockets live: short paths, in a directory that nobody else can write to.
///
/// # Errors
/// The directory can't be made, or someone else has made it.
pub fn socket_dir() -> Result<PathBuf, Error> {
    let (uid, _) = sys::my_ids();
    let dir = match std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from) {
        Some(dir) if dir.is_absolute() && dir.as_os_str().len() <= 60 && dir.is_dir() => {
            dir.join("forebay")
        }
        _ => PathBuf::from(format!("/tmp/forebay-{uid}")),
    };
    // Root's bridges serve others, who must reach the socket but not replace it.
    let mode = if uid == 0 { 0o755 } else { 0o700 };
    match fs::DirBuilder::new().mode(mode).create(&dir) {
        Ok(()) => {}
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
        Err(e) => return Err(failed("can't make", &dir, e)),
    }
    let found = fs::symlink_metadata(&dir).map_err(|e| failed("can't look at", &dir, e))?;
    if !found.is_dir() || found.uid() != uid || found.mode() & 0o022 != 0 {
        return Err(Error(format!(
            "{} is not a directory of user {uid} that nobody else can write to",
            dir.display()
        )));
    }
    Ok(dir)
}

/// The usual path of the socket for an instance.
///
/// # Errors
/// There is no safe directory for it.
pub fn socket_path(instance: &Path) -> Result<PathBuf, Error> {
    let path = socket_dir()?.join(format!("{:016x}", hash(instance.as_os_str().as_bytes())));
    if path.as_os_str().len() > SOCKET_PATH_BYTES {
        return Err(Error(format!(
            "{} is too long for a socket",
            path.display()
        )));
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_an_instance_is_stable_and_differs_by_root() {
        let a = instance_dir(Path::new("/s"), Path::new("/pfs/run7"));
        assert_eq!(a, instance_dir(Path::new("/s"), Path::new("/pfs/run7")));
        assert_ne!(a, instance_dir(Path::new("/s"), Path::new("/other/run7")));
        let name = a.file_name().unwrap().to_str().unwrap().to_owned();
        assert!(name.starts_with("run7-"), "{name}");
        assert_eq!(name.len(), "run7-".len() + 16);
    }
}
