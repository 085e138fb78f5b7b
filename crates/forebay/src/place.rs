//! Finds the buffer, its storage and the libraries, and checks that they can be used.

use crate::bridge::{self, Outlook};
use crate::cli;
use crate::error::{Fault, fault};
use crate::program;
use forebay_admin::instance_dir;
use forebay_core::path::{TreePath, below};
use forebay_sys as sys;
use std::ffi::OsString;
use std::fs;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Name of the last candidate for storage.
const DEFAULT: &str = "default";

/// A buffer directory and the storage for it, both checked.
#[derive(Debug, Clone)]
pub struct Place {
    /// Canonical buffer root.
    pub root: PathBuf,
    /// The absolute path that the user typed, if it differs from `root`.
    pub alias: Option<PathBuf>,
    /// Storage directory (holds one folder per bridge).
    pub storage: PathBuf,
}

impl Place {
    /// The path in the buffer that a user means: relative to its root, or absolute.
    pub fn below(&self, path: &Path) -> Option<TreePath> {
        let path = tidy(path);
        let bytes = path.as_os_str().as_bytes();
        if !path.is_absolute() {
            return TreePath::new(bytes.strip_prefix(b"./").unwrap_or(bytes));
        }
        let roots = [Some(&self.root), self.alias.as_ref()];
        roots
            .into_iter()
            .flatten()
            .find_map(|root| TreePath::new(below(root.as_os_str().as_bytes(), bytes)?))
    }
}

/// Checks `--buffer` and finds its canonical path.
pub fn buffer_root(buffer: &Path) -> Result<(PathBuf, Option<PathBuf>), Fault> {
    let shown = buffer.display();
    let root = fs::canonicalize(buffer).map_err(|e| {
        let hint = if e.kind() == std::io::ErrorKind::NotFound {
            format!("make it first: mkdir -p {shown}")
        } else {
            "the buffer lies over a directory that you may enter and list".to_owned()
        };
        fault(format!("--buffer {shown}: {}", plain(&e))).hint(hint)
    })?;
    if !root.is_dir() {
        return Err(fault(format!("--buffer {shown} is not a directory"))
            .hint("name the directory that the program's files are in"));
    }
    sys::check_access(&root, libc::R_OK | libc::X_OK).map_err(|e| {
        fault(format!("--buffer {shown}: {}", plain(&e.into())))
            .hint("the buffer lies over a directory that you may enter and list")
    })?;
    if root == Path::new("/") {
        return Err(
            fault("--buffer / would put the whole system into the buffer")
                .hint("name the directory that the program's files are in"),
        );
    }
    let typed = if buffer.is_absolute() {
        buffer.to_owned()
    } else {
        // The shell's path of the working directory keeps symbolic links, and programs may use it.
        let pwd = std::env::var_os("PWD")
            .map(PathBuf::from)
            .filter(|pwd| fs::canonicalize(pwd).ok() == std::env::current_dir().ok());
        match pwd.or_else(|| std::env::current_dir().ok()) {
            Some(dir) => dir.join(buffer),
            None => root.clone(),
        }
    };
    let typed = tidy(&typed);
    Ok((root.clone(), (typed != root).then_some(typed)))
}

/// Removes `.` and doubled slashes from a path. `..` stays, because its meaning depends on symbolic links.
pub fn tidy(path: &Path) -> PathBuf {
    path.components().collect()
}

/// Checks the buffer, and chooses a storage directory. That directory exists afterwards.
pub fn settle(place: &cli::PlaceArgs) -> Result<Place, Fault> {
    let (root, alias) = buffer_root(&place.buffer)?;
    let storage = storage_for(place.storage.as_deref(), Some(&root))?;
    Ok(Place {
        root,
        alias,
        storage,
    })
}

/// [`settle`] for a buffer that is about to serve programs. Refuses a directory in which a buffer is mounted by `forebay mount`,
/// or which lies in such a mount: the one buffer would hold the other. The mount of a run is over its own directory.
pub fn settle_to_serve(place: &cli::PlaceArgs) -> Result<Place, Fault> {
    let place = settle(place)?;
    let overlaps = |at: &PathBuf| place.root.starts_with(at) || at.starts_with(&place.root);
    let is_shared = |at: &PathBuf| forebay_fuse::server_of(at).is_some_and(|server| server > 0);
    let mut points = sys::mount_points().into_iter();
    match points.find(|at| overlaps(at) && is_shared(at)) {
        None => Ok(place),
        Some(at) => Err(fault(format!(
            "{} is a mount of a buffer, so {} can't have another one",
            at.display(),
            place.root.display()
        ))
        .hint(format!(
            "name the directory that the mount shows, or unmount it first: forebay umount {}",
            at.display()
        ))),
    }
}

/// Chooses a storage directory, for the buffer over `root` if it is known. It exists afterwards.
pub fn storage_for(asked: Option<&Path>, root: Option<&Path>) -> Result<PathBuf, Fault> {
    if let Some(dir) = asked {
        return usable_storage(dir, root);
    }
    // If a bridge runs over this directory, its storage is the right one.
    let mut running = bridge::running().into_iter();
    let is_over = |bridge: &bridge::Bridge| {
        Some(bridge.root.as_path()) == root && bridge.outlook() != Outlook::Elsewhere
    };
    match running.find(is_over) {
        Some(bridge) => Ok(bridge.storage().to_owned()),
        None => default_storage(root),
    }
}

/// The candidates for storage if the user names none, the best first.
pub fn storage_candidates() -> Vec<(&'static str, PathBuf)> {
    let mut found = Vec::new();
    for name in ["FOREBAY_STORAGE", "SLURM_TMPDIR", "LOCAL_SCRATCH"] {
        if let Some(dir) = std::env::var_os(name).filter(|v: &OsString| !v.is_empty()) {
            found.push((name, PathBuf::from(dir)));
        }
    }
    let own = format!("/var/tmp/forebay-{}", sys::my_ids().0);
    found.push((DEFAULT, PathBuf::from(own)));
    found
}

fn default_storage(root: Option<&Path>) -> Result<PathBuf, Fault> {
    let mut tried = Vec::new();
    for (name, dir) in storage_candidates() {
        match own(name, &dir).and_then(|()| usable_storage(&dir, root)) {
            Ok(dir) => return Ok(dir),
            Err(e) => tried.push(format!("{name}: {}", e.message)),
        }
    }
    Err(
        fault(format!("no usable local storage ({})", tried.join("; ")))
            .hint("name one with --storage DIR"),
    )
}

/// Makes the default directory, and refuses it unless it is one of this user that nobody else can write to, before anything in
/// it is touched: in /var/tmp another user may have made it as a trap.
fn own(name: &str, dir: &Path) -> Result<(), Fault> {
    if name != DEFAULT {
        return Ok(());
    }
    forebay_server::make_private(dir).map_err(|e| fault(format!("storage: {e}")))
}

/// Makes the storage directory if it is missing, and tests that it can do what a bridge needs.
fn usable_storage(dir: &Path, root: Option<&Path>) -> Result<PathBuf, Fault> {
    let shown = dir.display();
    let own_hint = "name a directory on a local disk with --storage DIR";
    if !dir.exists() {
        use std::os::unix::fs::DirBuilderExt;
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(dir)
            .map_err(|e| fault(format!("storage {shown}: {}", plain(&e))).hint(own_hint))?;
    }
    let dir = fs::canonicalize(dir)
        .map_err(|e| fault(format!("storage {shown}: {}", plain(&e))).hint(own_hint))?;
    if !dir.is_dir() {
        return Err(fault(format!("storage {shown} is not a directory")).hint(own_hint));
    }
    if let Some(root) = root.filter(|root| sys::is_within(&dir, root)) {
        return Err(fault(format!(
            "storage {shown} lies inside the buffer {}",
            root.display()
        ))
        .hint("the buffer would hold itself; name another place with --storage DIR"));
    }
    if let Some(root) = root.filter(|root| sys::is_within(root, &dir)) {
        return Err(fault(format!(
            "the buffer {} lies inside the storage {shown}",
            root.display()
        ))
        .hint("name a directory beside it with --storage DIR"));
    }
    let made = sys::open_path(&dir, libc::O_RDONLY | libc::O_DIRECTORY)
        .and_then(|dir| sys::scratch_file(dir.as_fd()));
    let file = match made {
        // What is in the buffer can be drained from a full disk, and has shown that the storage is fit.
        Err(sys::Errno::NOSPC | sys::Errno::DQUOT)
            if root.is_some_and(|root| instance_dir(&dir, root).exists()) =>
        {
            return Ok(dir);
        }
        made => made
            .map_err(|e| fault(format!("storage {shown}: {}", plain(&e.into()))).hint(own_hint))?,
    };
    sys::set_xattr(file.as_fd(), b"user.forebay.probe", b"1").map_err(|e| {
        fault(format!(
            "storage {shown} does not keep user xattrs ({})",
            plain(&e.into())
        ))
        .hint(
            "name a directory on ext4, xfs, btrfs or tmpfs (Linux 6.6 or newer) with --storage DIR",
        )
    })?;
    Ok(dir)
}

/// The path of the preload library.
pub fn preload_library() -> Result<PathBuf, Fault> {
    library(program::PRELOAD, "FOREBAY_PRELOAD")
}

/// The path of the recorder.
pub fn recorder_library() -> Result<PathBuf, Fault> {
    library(program::RECORDER, "FOREBAY_RECORDER")
}

/// The path of the collective layer.
pub fn collective_library() -> Result<PathBuf, Fault> {
    library(program::COLLECTIVE, "FOREBAY_MPIIO")
}

/// The path of a library that comes with this program. The environment variable `variable` overrides it.
fn library(name: &str, variable: &str) -> Result<PathBuf, Fault> {
    let mut searched = Vec::new();
    if let Some(path) = std::env::var_os(variable).filter(|v| !v.is_empty()) {
        // If the variable is set, no other place is searched.
        let path = PathBuf::from(path);
        return fs::canonicalize(&path).map_err(|e| {
            fault(format!("${variable} is {}: {}", path.display(), plain(&e)))
                .hint(format!("unset it, or let it name {name}"))
        });
    }
    if let Ok(exe) = std::env::current_exe() {
        let dir = exe.parent().unwrap_or(Path::new("/"));
        searched.push(dir.join(name));
        searched.push(dir.join("../lib").join(name));
        searched.push(dir.join("../lib/forebay").join(name));
    }
    for path in &searched {
        if let Ok(found) = fs::canonicalize(path) {
            // These bytes separate the entries of LD_PRELOAD.
            if found
                .as_os_str()
                .as_bytes()
                .iter()
                .any(|b| b" :".contains(b))
            {
                return Err(fault(format!(
                    "{} has a space or a colon in its path, which LD_PRELOAD cannot carry",
                    found.display()
                ))
                .hint(format!("let ${variable} name a copy elsewhere")));
            }
            return Ok(found);
        }
    }
    let places: Vec<String> = searched.iter().map(|p| p.display().to_string()).collect();
    Err(fault(format!(
        "{name} is in none of these places: {}",
        places.join(", ")
    ))
    .hint(format!(
        "build it with `make build`, or let ${variable} name it"
    )))
}

/// The text of an error without `(os error 2)`.
pub fn plain(e: &std::io::Error) -> String {
    let text = e.to_string();
    let number = e.raw_os_error().map(|n| format!(" (os error {n})"));
    match number.and_then(|number| text.strip_suffix(&number)) {
        Some(words) => words.to_owned(),
        None => text,
    }
}
