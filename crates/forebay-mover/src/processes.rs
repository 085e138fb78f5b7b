//! Says who has a file or directory open, from /proc: for directories, which take no leases, and
//! for file systems without leases. Sees the processes that the bridge's user may look into.

use forebay_core::record::ObjectId;
use forebay_objects::parse_name;
use forebay_sys::{self as sys, Openers};
use std::collections::BTreeSet;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

fn others() -> impl Iterator<Item = PathBuf> {
    let me = std::process::id().to_string();
    std::fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter(move |entry| {
            let name = entry.file_name();
            name.as_bytes().iter().all(u8::is_ascii_digit) && name.as_bytes() != me.as_bytes()
        })
        .map(|entry| entry.path())
}

/// Longest wait for a shard to close its copy of a sent descriptor. A drain waits for it; where a request does, it is
/// `core::in_place::OWN_COPY_LOOKS`.
const GRANT_PATIENCE: Duration = Duration::from_millis(500);
/// Pause between two looks for it.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// Does anybody else have this open file open for writing, or at all? A lease tells; where the file
/// system has none, /proc does.
pub fn is_in_use(file: &OwnedFd, by: Openers) -> bool {
    let first = sys::is_in_use(file.as_fd(), by);
    if first == Some(false) {
        return false;
    }
    let asked = Instant::now();
    let inode = forebay_sys::stat(file.as_fd(), b"").map(|attr| (attr.dev, attr.ino));
    loop {
        match (sys::is_in_use(file.as_fd(), by), inode) {
            (Some(false), _) => return false,
            (Some(true), Ok(inode)) => {
                // A grant on its way: the client has the descriptor, and the bridge is about to close its copy.
                if !we_have(inode, file.as_raw_fd()) || asked.elapsed() > GRANT_PATIENCE {
                    return sys::is_in_use(file.as_fd(), by) != Some(false);
                }
                std::thread::sleep(LOOK_AGAIN);
            }
            (None, Ok(inode)) => return anyone_has(inode, by),
            (_, Err(_)) => return true,
        }
    }
}

/// Who has a file open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InUse {
    /// Nobody.
    No,
    /// Only this process, under another number: it is on its way to a client.
    ByUs,
    /// Somebody else.
    ByOthers,
}

/// Who beside this descriptor has the open file open, for reading or writing? Does not wait.
pub fn who_uses(file: &OwnedFd) -> InUse {
    let first = sys::is_in_use(file.as_fd(), Openers::Anyone);
    if first == Some(false) {
        return InUse::No;
    }
    let Ok(attr) = forebay_sys::stat(file.as_fd(), b"") else {
        return InUse::ByOthers;
    };
    let inode = (attr.dev, attr.ino);
    match first {
        Some(true) if we_have(inode, file.as_raw_fd()) => InUse::ByUs,
        // This process may have closed its copy since the first question.
        Some(true) => match sys::is_in_use(file.as_fd(), Openers::Anyone) {
            Some(false) => InUse::No,
            _ => InUse::ByOthers,
        },
        _ => in_proc(inode, file.as_raw_fd()),
    }
}

/// Who has the file open as far as /proc shows, which does not show what is on its way to a client.
pub fn who_shows_in_proc(file: &OwnedFd) -> InUse {
    match forebay_sys::stat(file.as_fd(), b"") {
        Ok(attr) => in_proc((attr.dev, attr.ino), file.as_raw_fd()),
        Err(_) => InUse::ByOthers,
    }
}

fn in_proc(inode: (u64, u64), but: RawFd) -> InUse {
    match anyone_has(inode, Openers::Anyone) {
        true => InUse::ByOthers,
        false if we_have(inode, but) => InUse::ByUs,
        false => InUse::No,
    }
}

/// Does this process have the inode open under another number?
fn we_have(inode: (u64, u64), but: RawFd) -> bool {
    std::fs::read_dir("/proc/self/fd")
        .into_iter()
        .flatten()
        .flatten()
        .filter(|fd| fd.file_name().as_bytes() != but.to_string().as_bytes())
        .any(|fd| is_inode(&fd.path(), inode))
}

fn is_inode(path: &Path, inode: (u64, u64)) -> bool {
    std::fs::metadata(path).is_ok_and(|m| (m.dev(), m.ino()) == inode)
}

/// Does another process have this inode (device and number) open or mapped?
pub fn anyone_has(inode: (u64, u64), by: Openers) -> bool {
    others().any(|process| {
        let open = std::fs::read_dir(process.join("fd"))
            .into_iter()
            .flatten()
            .flatten()
            .any(|fd| {
                is_inode(&fd.path(), inode) && (by == Openers::Anyone || can_write(&process, &fd))
            });
        open || std::fs::read_dir(process.join("map_files"))
            .into_iter()
            .flatten()
            .flatten()
            .any(|map| is_inode(&map.path(), inode))
    })
}

fn can_write(process: &Path, fd: &std::fs::DirEntry) -> bool {
    let info = process.join("fdinfo").join(fd.file_name());
    let text = std::fs::read_to_string(info).unwrap_or_default();
    let flags = text
        .lines()
        .find_map(|line| line.strip_prefix("flags:"))
        .and_then(|octal| i32::from_str_radix(octal.trim(), 8).ok());
    // Unreadable flags count as open for writing.
    flags.is_none_or(|flags| flags & libc::O_ACCMODE != libc::O_RDONLY)
}

/// Looks at the other processes. During one look a process may move a descriptor in its table, or pass it to another process,
/// and so hide it from that look.
const LOOKS: u32 = 2;

/// The backing directories below `dirs` that a process has open, or as its working directory, or that are on their way
/// to one: `passing` tells which have been sent and not received.
///
/// A descriptor goes from this process through a socket to a client. It is looked for in that order, so it cannot get past the
/// look.
pub fn directories_in_use(dirs: &Path, passing: impl FnOnce() -> Vec<ObjectId>) -> Vec<ObjectId> {
    let mut found = BTreeSet::new();
    add_directories(Path::new("/proc/self"), dirs, &mut found);
    found.extend(passing());
    for _ in 0..LOOKS {
        for process in others() {
            add_directories(&process, dirs, &mut found);
        }
    }
    found.into_iter().collect()
}

fn add_directories(process: &Path, dirs: &Path, found: &mut BTreeSet<ObjectId>) {
    let links = std::fs::read_dir(process.join("fd"))
        .into_iter()
        .flatten()
        .flatten()
        .map(|fd| fd.path())
        // Last: a program enters a directory before it closes the descriptor.
        .chain([process.join("cwd")]);
    for link in links {
        let target = std::fs::read_link(link).ok();
        found.extend(target.and_then(|target| directory_of(&target, dirs)));
    }
}

/// The object of the backing directory at `path`, if it is one below `dirs`: `dirs/FOLDER/OBJECT`.
fn directory_of(path: &Path, dirs: &Path) -> Option<ObjectId> {
    let mut parts = path.strip_prefix(dirs).ok()?.components().skip(1);
    let name = parts.next()?.as_os_str().as_bytes();
    let (object, _) = parse_name(name)?;
    Some(object.oid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::process::{Child, Command};

    const OBJECT: ObjectId = ObjectId(5);

    fn given_to_a_process(dir: File) -> Child {
        let mut command = Command::new("sleep");
        command.arg("1000").stdin(dir).spawn().unwrap()
    }

    #[test]
    fn a_directory_that_goes_from_us_to_a_process_during_the_look_is_found() {
        let root = tempfile::tempdir().unwrap();
        let dirs = root.path().canonicalize().unwrap();
        let dir = dirs.join("0").join(format!("{:032x}", OBJECT.0));
        std::fs::create_dir_all(&dir).unwrap();
        let open = || File::open(&dir).unwrap();
        assert_eq!(directories_in_use(&dirs, Vec::new), []);
        // Ours at first: it is noted, whoever gets it then.
        let ours = open();
        let leaves = || {
            drop(ours);
            Vec::new()
        };
        assert_eq!(directories_in_use(&dirs, leaves), [OBJECT]);
        // In a socket.
        assert_eq!(directories_in_use(&dirs, || vec![OBJECT]), [OBJECT]);
        // It was in a socket, and is received before it is asked what is there.
        let mut process = None;
        let arrives = || {
            process = Some(given_to_a_process(open()));
            Vec::new()
        };
        assert_eq!(directories_in_use(&dirs, arrives), [OBJECT]);
        let mut process = process.unwrap();
        process.kill().unwrap();
        process.wait().unwrap();
        assert_eq!(directories_in_use(&dirs, Vec::new), []);
    }
}
