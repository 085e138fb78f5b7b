//! Which directories hold a directory, by device and inode, in whichever way they are mounted; and namespaces of mounts and
//! users.

use crate::process::assert_one_thread;
use crate::{Sys, errno_of, open_path};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::ffi::OsString;
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// One mount: a directory of a file system, and where it is.
struct Mount {
    device: Vec<u8>,
    /// Path of the directory in its file system.
    dir: PathBuf,
    at: PathBuf,
}

/// Reads a line of `/proc/self/mountinfo` (proc(5)).
fn mount(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|&b| b == b' ').skip(2);
    Some(Mount {
        device: fields.next()?.to_vec(),
        dir: path(fields.next()?),
        at: path(fields.next()?),
    })
}

/// A path with spaces, tabs, newlines and backslashes as `\ooo`.
fn path(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut at = 0;
    while at < field.len() {
        let code = field.get(at + 1..at + 4).filter(|_| field[at] == b'\\');
        let code = code.and_then(|digits| std::str::from_utf8(digits).ok());
        match code.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                at += 4;
            }
            None => {
                bytes.push(field[at]);
                at += 1;
            }
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
}

/// Type and source of the topmost file system that is mounted at `at`, as the kernel shows them.
pub fn mounted(at: &Path) -> Option<(String, String)> {
    let text = fs::read("/proc/self/mountinfo").unwrap_or_default();
    let mut lines = text.split(|&b| b == b'\n');
    let topmost = lines.rfind(|line| mount(line).is_some_and(|mount| mount.at == at))?;
    let end = topmost.windows(3).position(|w| w == b" - ")?;
    let mut fields = topmost[end + 3..].split(|&b| b == b' ');
    let mut field = || Some(String::from_utf8_lossy(fields.next()?).into_owned());
    Some((field()?, field()?))
}

/// Where file systems are mounted, as this process sees it.
pub fn mount_points() -> Vec<PathBuf> {
    let text = fs::read("/proc/self/mountinfo").unwrap_or_default();
    let mounts = text.split(|&b| b == b'\n').filter_map(mount);
    mounts.map(|mount| mount.at).collect()
}

/// What a namespace is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Namespace {
    /// Mounts.
    Mounts,
    /// Numbers of users and groups, and capabilities.
    Users,
}

/// The namespace in which this process is.
///
/// # Errors
/// `/proc` is not there.
pub fn own_namespace(about: Namespace) -> Sys<OwnedFd> {
    let name = match about {
        Namespace::Mounts => "mnt",
        Namespace::Users => "user",
    };
    open_path(&Path::new("/proc/self/ns").join(name), libc::O_RDONLY)
}

/// Puts this process into another namespace. In one of mounts its root and working directory
/// are the root of that one then. In one of users it has all capabilities until it executes a program.
///
/// # Errors
/// EPERM without CAP_SYS_ADMIN in it, which the user who has made a user namespace has from outside; EINVAL if it is of
/// another kind, or if this process is in this user namespace already.
///
/// # Panics
/// If this process has more than one thread: the kernel refuses it then.
pub fn enter_namespace(namespace: impl AsFd, about: Namespace) -> Sys<()> {
    assert_one_thread();
    let kind = match about {
        Namespace::Mounts => LinkNameSpaceType::Mount,
        Namespace::Users => LinkNameSpaceType::User,
    };
    move_into_link_name_space(namespace.as_fd(), Some(kind))
}

/// Gives a user and a group of the surrounding namespace the same numbers in the new user namespace of this process. Without
/// privilege these are the only ones, and `setgroups` must be given up.
pub(crate) fn map_own_ids(uid: u32, gid: u32) -> Sys<()> {
    let write = |name: &str, text: String| {
        let path = Path::new("/proc/self").join(name);
        fs::write(path, text).map_err(errno_of)
    };
    write("setgroups", "deny".to_owned())?;
    write("uid_map", format!("{uid} {uid} 1"))?;
    write("gid_map", format!("{gid} {gid} 1"))
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    let found = fs::metadata(path).ok()?;
    Some((found.dev(), found.ino()))
}

/// All paths by which the mounts of this process lead to the same directory, `dir` itself first: bind mounts, and the file
/// systems that they come from. `dir` is canonical.
fn paths_of(dir: &Path) -> Vec<PathBuf> {
    let text = fs::read("/proc/self/mountinfo").unwrap_or_default();
    let mounts: Vec<_> = text.split(|&b| b == b'\n').filter_map(mount).collect();
    let mut found = vec![dir.to_owned()];
    // Of two mounts at one place the later hides the earlier.
    let holder = mounts
        .iter()
        .filter(|mount| dir.starts_with(&mount.at))
        .max_by_key(|mount| mount.at.as_os_str().len());
    let Some(holder) = holder else {
        return found;
    };
    let Ok(below) = dir.strip_prefix(&holder.at) else {
        return found;
    };
    let inside = holder.dir.join(below);
    let me = identity(dir);
    for other in mounts.iter().filter(|other| other.device == holder.device) {
        let Ok(below) = inside.strip_prefix(&other.dir) else {
            continue;
        };
        let path: PathBuf = other.at.join(below).components().collect();
        // Something else may be mounted over it.
        if !found.contains(&path) && identity(&path) == me {
            found.push(path);
        }
    }
    found
}

/// The directories that hold `dir`, nearest first on each way, without `dir` itself. Bind mounts are followed back as
/// far as this process sees where they come from. `dir` is canonical.
pub fn ancestors(dir: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    for path in paths_of(dir) {
        for holder in path.ancestors().skip(1) {
            if !found.iter().any(|known| known == holder) {
                found.push(holder.to_owned());
            }
        }
    }
    found
}

/// Is `inner` the directory `outer`, or below it, by device and inode? Both are canonical.
pub fn is_within(inner: &Path, outer: &Path) -> bool {
    let Some(outer) = identity(outer) else {
        return false;
    };
    let mut holders = ancestors(inner);
    holders.push(inner.to_owned());
    holders.iter().any(|dir| identity(dir) == Some(outer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_kernel_is_read_with_its_escapes() {
        let line = br"36 35 98:0 /mnt\0401 /mnt\0112\134 rw,noatime master:1 - ext3 /dev/root rw";
        let found = mount(line).unwrap();
        assert_eq!(found.device, b"98:0");
        assert_eq!(found.dir, Path::new("/mnt 1"));
        assert_eq!(found.at, Path::new("/mnt\t2\\"));
        assert!(mount(b"36 35").is_none());
    }

    #[test]
    fn the_type_of_a_mount_is_known() {
        let (kind, _) = mounted(Path::new("/proc")).unwrap();
        assert_eq!(kind, "proc");
        assert_eq!(mounted(Path::new("/proc/self")), None);
    }

    #[test]
    fn what_holds_a_directory_is_known_by_its_inode() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().canonicalize().unwrap();
        fs::create_dir_all(dir.join("a/b/c")).unwrap();
        fs::create_dir_all(dir.join("ab")).unwrap();
        let at = |path: &str| dir.join(path);
        assert!(is_within(&at("a/b/c"), &at("a")));
        assert!(is_within(&at("a"), &at("a")));
        assert!(!is_within(&at("a"), &at("a/b")));
        assert!(!is_within(&at("ab"), &at("a")));
        assert_eq!(ancestors(&at("a/b"))[..2], [at("a"), dir.clone()]);
    }
}
