//! The listening socket.

use crate::Error;
use crate::limits::BACKLOG;
use crate::socket;
use forebay_sys as sys;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// A listening socket; its path goes with the value.
pub struct Listener {
    path: PathBuf,
    socket: std::sync::Arc<OwnedFd>,
}

impl Listener {
    /// Listens at `path`. A socket that a dead bridge left there is replaced: the caller holds
    /// the lock of the instance, so it is nobody's.
    ///
    /// # Errors
    /// Of the socket calls.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let failed = |e| Error::io("can't listen at", path, e);
        match fs::remove_file(path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(failed(e)),
            _ => {}
        }
        let socket = socket::listen(path, BACKLOG).map_err(|e| failed(e.into()))?;
        // Anybody may connect to a privileged bridge, which checks credentials. Any other serves its own user alone.
        let mode = if sys::my_ids().0 == 0 { 0o666 } else { 0o600 };
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(failed)?;
        Ok(Listener {
            path: path.to_owned(),
            socket: std::sync::Arc::new(socket),
        })
    }

    /// The socket.
    pub fn socket(&self) -> std::sync::Arc<OwnedFd> {
        self.socket.clone()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}
