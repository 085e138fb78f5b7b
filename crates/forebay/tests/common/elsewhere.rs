//! Folders on another file system than a test's own folder, so that storage and PFS are on two. As they are often in
//! memory, none is left: not by a test that fails, and not for long by one that is killed.

use forebay_sys as sys;
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// Names the folder in which storages are made; or says [`BESIDE`].
const VARIABLE: &str = "FOREBAY_TEST_STORAGE";
/// Storage lies beside the PFS directory, on its file system.
const BESIDE: &str = "beside";
/// Where storages are made unless the variable says where.
const USUAL: [&str; 3] = ["/dev/shm", "/var/tmp", "/tmp"];
/// The names of the folders begin with this.
const PREFIX: &str = "fbt-storage-";
/// Free space that a file system must have to be used. A storage takes about 120 MB, and two tests run at a time.
const ROOM_BYTES: u64 = 2 << 30;

/// A new folder, which goes with this value.
pub struct Elsewhere {
    dir: PathBuf,
    /// A folder without a lock is left over: its process is dead.
    _lock: File,
}

impl Elsewhere {
    /// A new folder on another file system than `dir`. `None` if the environment asks for one file system.
    ///
    /// If there is no other one this counts as a skip, with the reason: a failure with `CI` set. Else the test
    /// runs on one file system.
    pub fn than(dir: &Path) -> Option<Elsewhere> {
        let told = std::env::var_os(VARIABLE);
        if told.as_ref().is_some_and(|told| told == BESIDE) {
            return None;
        }
        let bases = told.map_or_else(
            || USUAL.map(PathBuf::from).to_vec(),
            |told| vec![told.into()],
        );
        let mut reasons = Vec::new();
        for base in bases {
            sweep(&base);
            match Elsewhere::below(&base, dir) {
                Ok(found) => return Some(found),
                Err(reason) => reasons.push(format!("{}: {reason}", base.display())),
            }
        }
        forebay_testkit::skip(&format!(
            "no second file system for the storage ({}), so it is on that of {}; {VARIABLE}=DIR names one, \
             {VARIABLE}={BESIDE} asks for this",
            reasons.join("; "),
            dir.display()
        ));
        None
    }

    fn below(base: &Path, than: &Path) -> Result<Elsewhere, String> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let device = |path: &Path| path.metadata().map(|about| about.dev());
        let words = |error: std::io::Error| error.to_string();
        if device(base).map_err(words)? == device(than).map_err(words)? {
            return Err("the same file system".into());
        }
        let (_, free) = sys::space(base).map_err(|e| words(e.into()))?;
        if free < ROOM_BYTES {
            return Err(format!("only {} MiB free", free >> 20));
        }
        loop {
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let dir = base.join(format!("{PREFIX}{}-{number}", std::process::id()));
            match fs::create_dir(&dir) {
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => continue,
                made => made.map_err(words)?,
            }
            let lock = File::open(&dir).map_err(words)?;
            // Another process may take the new folder for one that is left over, and remove it.
            let is_ours = sys::lock_file(lock.as_fd()).is_ok()
                && dir.metadata().map(|about| about.ino()).ok()
                    == lock.metadata().map(|about| about.ino()).ok();
            if !is_ours {
                continue;
            }
            // The path is canonical, as that of the PFS directory.
            let dir = dir.canonicalize().map_err(words)?;
            let found = Elsewhere { dir, _lock: lock };
            return match sys::set_xattr(found._lock.as_fd(), b"user.forebay.probe", b"1") {
                Ok(()) => Ok(found),
                Err(_) => Err("keeps no user xattrs".into()),
            };
        }
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.dir
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        super::tree::remove_tree(&self.dir);
    }
}

/// Removes the folders of dead processes.
fn sweep(base: &Path) {
    for entry in fs::read_dir(base).into_iter().flatten().flatten() {
        if !entry.file_name().to_string_lossy().starts_with(PREFIX) {
            continue;
        }
        let Ok(left) = File::open(entry.path()) else {
            continue;
        };
        if sys::lock_file(left.as_fd()).is_ok() {
            super::tree::remove_tree(&entry.path());
        }
    }
}
