//! Names change on the PFS, and directories come and go.

use crate::counters::Counters;
use crate::pfs::{self, During, Trouble};
use forebay_core::drain::{self, is_leftover};
use forebay_core::path::TreePath;
use forebay_pfs::Lower;
use forebay_sys::{self as sys, Errno};
use std::os::fd::AsFd;

type Work<T> = drain::Work<T>;

/// See [`drain::Act::Rename`].
pub(crate) fn rename(lower: &Lower, from: &TreePath, to: &TreePath) -> Work<()> {
    pfs::rename(lower, from, to).map_err(Trouble::into_core)
}

/// See [`drain::Act::Remove`].
pub(crate) fn remove(lower: &Lower, path: &TreePath) -> Work<()> {
    let removed = pfs::parent(lower, path)
        .and_then(|dir| sys::unlink(dir.as_fd(), path.name(), false).during("unlink"));
    removed.map_err(Trouble::into_core)
}

/// See [`drain::Act::Discard`].
pub(crate) fn discard(lower: &Lower, path: &TreePath, aside: &TreePath) -> Work<()> {
    take_away(lower, path, aside).map_err(Trouble::into_core)
}

fn take_away(lower: &Lower, path: &TreePath, aside: &TreePath) -> pfs::Work<()> {
    let dir = pfs::parent(lower, path)?;
    // An empty one needs no detour.
    if sys::unlink(dir.as_fd(), path.name(), true).is_ok() {
        return Ok(());
    }
    let aside = free_name(lower, aside)?;
    match pfs::rename(lower, path, &aside) {
        // Another parent takes write permission on the directory itself, removal does not.
        Err(Trouble {
            errno: Errno::ACCESS | Errno::PERM | Errno::XDEV,
            ..
        }) => pfs::remove_tree(dir.as_fd(), path.name()),
        other => other,
    }
}

/// A name that nothing has yet: an earlier drain may have left one behind.
fn free_name(lower: &Lower, path: &TreePath) -> pfs::Work<TreePath> {
    let mut free = path.clone();
    let mut n = 0;
    while pfs::look(lower, &free)?.is_some() {
        n += 1;
        let name = [path.name(), format!("{n}").as_bytes()].concat();
        free = path.parent().join(&name);
    }
    Ok(free)
}

/// See [`drain::Act::MakeDir`].
pub(crate) fn make_dir(lower: &Lower, path: &TreePath) -> Work<bool> {
    ensure_dir(lower, path).map_err(Trouble::into_core)
}

fn ensure_dir(lower: &Lower, path: &TreePath) -> pfs::Work<bool> {
    let dir = pfs::parent(lower, path)?;
    match sys::mkdir(dir.as_fd(), path.name(), 0o700) {
        Ok(()) => return Ok(true),
        Err(Errno::EXIST) => {}
        Err(e) => return Err(e).during("mkdir"),
    }
    let attr = sys::stat(dir.as_fd(), path.name()).during("stat")?;
    if !pfs::is_dir(&attr) {
        return Err(Errno::EXIST).during("mkdir");
    }
    // It gets its own mode back with the other attributes, at the end.
    if attr.mode & 0o700 != 0o700 {
        sys::chmod_at(dir.as_fd(), path.name(), attr.mode & 0o7777 | 0o700).during("chmod")?;
    }
    Ok(false)
}

/// Brings the entries of a directory to the disks of the PFS.
pub(crate) fn sync(lower: &Lower, dir: &TreePath) -> Work<()> {
    let synced = lower
        .open(dir, libc::O_RDONLY | libc::O_DIRECTORY)
        .and_then(|fd| sys::fsync(fd.as_fd()));
    let synced = match synced {
        // Its owner may write and search it, but not read it.
        Err(Errno::ACCESS) => lower
            .open(&TreePath::root(), libc::O_RDONLY | libc::O_DIRECTORY)
            .and_then(|fd| sys::syncfs(fd.as_fd()))
            .during("syncfs"),
        other => other.during("fsync directory"),
    };
    synced.map_err(Trouble::into_core)
}

/// Removes what earlier drains left in a directory: it holds nothing of value. What can't be removed now will be
/// at the next drain.
pub(crate) fn sweep(lower: &Lower, dir: &TreePath, counters: &Counters) {
    let Ok(dir) = lower.open(dir, libc::O_RDONLY | libc::O_DIRECTORY) else {
        return;
    };
    let mut entries = Vec::new();
    while let Ok(true) = sys::read_dir(dir.as_fd(), &mut entries) {}
    for entry in entries.iter().filter(|e| is_leftover(&e.name)) {
        if let Err(e) = pfs::remove_tree(dir.as_fd(), &entry.name) {
            counters.remark(format!(
                "{} could not be removed from the PFS ({}: {})",
                String::from_utf8_lossy(&entry.name),
                e.operation,
                e.errno
            ));
        }
    }
}
