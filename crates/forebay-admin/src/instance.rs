//! How bridges are found: the instance directory on local storage, the socket, and the file that names both.

use crate::AdminError;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// File in an instance directory with the [`BridgeInfo`] of the running bridge.
pub const INFO_FILE: &str = "bridge.json";
/// File in an instance directory that the running bridge holds a lock on.
pub const LOCK_FILE: &str = "lock";
/// Longest path of a socket in bytes (`sun_path` of unix(7), without its NUL).
pub const SOCKET_PATH_BYTES: usize = 107;

/// Directory beside the sockets of bridges, with those of runs.
const RUNS: &str = "runs";

/// What a running bridge writes into [`INFO_FILE`].
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
    /// How often the bridge of this instance has been started.
    pub epoch: u32,
}

/// FNV-1a, because the name of an instance must be the same in every build; the standard hash may change.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |h, &b| {
        (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The instance directory below `storage` for the buffer over `root`, a canonical path.
pub fn instance_dir(storage: &Path, root: &Path) -> PathBuf {
    debug_assert!(root.is_absolute(), "{} is not canonical", root.display());
    let mut name = root.file_name().unwrap_or_default().as_bytes().to_vec();
    // Room for the hash within the longest name.
    name.truncate(200);
    name.extend_from_slice(format!("-{:016x}", hash(root.as_os_str().as_bytes())).as_bytes());
    storage.join(OsString::from_vec(name))
}

/// The bridge that the instance directory names. It may have died since it wrote this.
pub fn bridge_info(instance: &Path) -> Option<BridgeInfo> {
    serde_json::from_slice(&fs::read(instance.join(INFO_FILE)).ok()?).ok()
}

/// The directory of this user's sockets. Its path is short, and no other user can write to it.
///
/// # Errors
/// The directory can't be made, or belongs to another user.
pub fn socket_dir() -> Result<PathBuf, AdminError> {
    let uid = rustix::process::geteuid().as_raw();
    let dir = match std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from) {
        Some(dir) if dir.is_absolute() && dir.as_os_str().len() <= 60 && dir.is_dir() => {
            dir.join("forebay")
        }
        _ => PathBuf::from(format!("/tmp/forebay-{uid}")),
    };
    private_dir(dir, uid)
}

/// Makes `dir` if it is missing, and checks that only user `uid` can write to it.
fn private_dir(dir: PathBuf, uid: u32) -> Result<PathBuf, AdminError> {
    let failed = |operation, cause| AdminError::Io {
        operation,
        path: dir.clone(),
        cause,
    };
    // A bridge of root serves other users: they must reach its socket, but not replace it.
    let mode = if uid == 0 { 0o755 } else { 0o700 };
    match fs::DirBuilder::new().mode(mode).create(&dir) {
        Ok(()) => {}
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
        Err(e) => return Err(failed("can't make", e)),
    }
    let found = fs::symlink_metadata(&dir).map_err(|e| failed("can't look at", e))?;
    if !found.is_dir() || found.uid() != uid || found.mode() & 0o022 != 0 {
        return Err(AdminError::UnsafeDirectory { path: dir, uid });
    }
    Ok(dir)
}

/// The usual path of the socket for an instance.
///
/// # Errors
/// There is no safe directory for it.
pub fn socket_path(instance: &Path) -> Result<PathBuf, AdminError> {
    let path = socket_dir()?.join(format!("{:016x}", hash(instance.as_os_str().as_bytes())));
    if path.as_os_str().len() > SOCKET_PATH_BYTES {
        return Err(AdminError::SocketPathTooLong { path });
    }
    Ok(path)
}

/// The path of the socket at which others join a run: its process is `run`, and its bridge has the socket `bridge`.
pub fn run_socket_path(bridge: &Path, run: u32) -> PathBuf {
    let mut name = bridge.file_name().unwrap_or_default().to_owned();
    name.push(format!("-{run}"));
    bridge.with_file_name(RUNS).join(name)
}

/// [`run_socket_path`], in a directory that exists and that nobody else can write to.
///
/// # Errors
/// There is no safe directory for it.
pub fn make_run_socket_path(bridge: &Path, run: u32) -> Result<PathBuf, AdminError> {
    let uid = rustix::process::geteuid().as_raw();
    private_dir(bridge.with_file_name(RUNS), uid)?;
    let path = run_socket_path(bridge, run);
    match path.as_os_str().len() > SOCKET_PATH_BYTES {
        true => Err(AdminError::SocketPathTooLong { path }),
        false => Ok(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_name_of_an_instance_is_stable_and_differs_by_root() {
        let a = instance_dir(Path::new("/s"), Path::new("/pfs/run7"));
        assert_eq!(a, instance_dir(Path::new("/s"), Path::new("/pfs/run7")));
        assert_ne!(a, instance_dir(Path::new("/s"), Path::new("/other/run7")));
        let name = a.file_name().unwrap().to_str().unwrap().to_owned();
        assert!(name.starts_with("run7-"), "{name}");
        assert_eq!(name.len(), "run7-".len() + 16);
    }

    #[test]
    fn a_directory_that_others_can_write_to_is_refused_for_sockets() {
        let uid = rustix::process::geteuid().as_raw();
        let place = tempfile::tempdir().unwrap();
        let dir = place.path().join("sockets");
        assert_eq!(private_dir(dir.clone(), uid).unwrap(), dir);
        assert_eq!(private_dir(dir.clone(), uid).unwrap(), dir);
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o775)).unwrap();
        let unsafe_one = private_dir(dir.clone(), uid);
        assert!(
            matches!(unsafe_one, Err(AdminError::UnsafeDirectory { ref path, .. }) if *path == dir),
            "{unsafe_one:?}"
        );
        let link = place.path().join("link");
        std::os::unix::fs::symlink(&dir, &link).unwrap();
        assert!(private_dir(link, uid).is_err());
    }
}
