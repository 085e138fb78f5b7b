//! Says who has a file or directory open, from /proc: for directories, which take no leases, and
//! for file systems without leases. Sees the processes that the bridge's user may look into. If the bridge itself can't look, for
//! want of descriptors or memory, somebody is taken to have it open.

use forebay_core::record::ObjectId;
use forebay_objects::parse_name;
use forebay_sys::{self as sys, Errno, Openers, Sys, errno_of};
use std::collections::BTreeSet;
use std::fs::DirEntry;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What a directory of /proc lists. A process that has ended, or that this user may not look into, shows nothing.
fn listed(dir: &Path) -> Sys<Vec<DirEntry>> {
    let is_hidden =
        |e: &Errno| matches!(*e, Errno::NOENT | Errno::SRCH | Errno::ACCESS | Errno::PERM);
    let list = || {
        let entries = std::fs::read_dir(dir)?;
        entries.collect::<std::io::Result<Vec<_>>>()
    };
    match list().map_err(errno_of) {
        Err(e) if is_hidden(&e) => Ok(Vec::new()),
        listed => listed,
    }
}

fn others() -> Sys<impl Iterator<Item = PathBuf>> {
    let me = std::process::id().to_string();
    let all = listed(Path::new("/proc"))?.into_iter();
    let others = all.filter(move |entry| {
        let name = entry.file_name();
        name.as_bytes().iter().all(u8::is_ascii_digit) && name.as_bytes() != me.as_bytes()
    });
    Ok(others.map(|entry| entry.path()))
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
    let inode = forebay_sys::stat(file.as_fd(), b"").map(|attr| attr.inode());
    loop {
        match (sys::is_in_use(file.as_fd(), by), inode) {
            (Some(false), _) => return false,
            (Some(true), Ok(inode)) => {
                // A grant on its way: the client has the descriptor, and the bridge is about to close its copy.
                let is_ours = we_have(inode, file.as_raw_fd()) == Ok(true);
                if !is_ours || asked.elapsed() > GRANT_PATIENCE {
                    return sys::is_in_use(file.as_fd(), by) != Some(false);
                }
                std::thread::sleep(LOOK_AGAIN);
            }
            (None, Ok(inode)) => return anyone_has(inode, by).unwrap_or(true),
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

/// Who beside this descriptor has the open file open, for reading or writing? Does not wait. If nobody can say, somebody has.
pub fn who_uses(file: &OwnedFd) -> InUse {
    let first = sys::is_in_use(file.as_fd(), Openers::Anyone);
    if first == Some(false) {
        return InUse::No;
    }
    let Ok(attr) = forebay_sys::stat(file.as_fd(), b"") else {
        return InUse::ByOthers;
    };
    let inode = attr.inode();
    match first {
        Some(true) if we_have(inode, file.as_raw_fd()) == Ok(true) => InUse::ByUs,
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
        Ok(attr) => in_proc(attr.inode(), file.as_raw_fd()),
        Err(_) => InUse::ByOthers,
    }
}

fn in_proc(inode: (u64, u64), but: RawFd) -> InUse {
    match (anyone_has(inode, Openers::Anyone), we_have(inode, but)) {
        (Ok(false), Ok(false)) => InUse::No,
        (Ok(false), Ok(true)) => InUse::ByUs,
        _ => InUse::ByOthers,
    }
}

/// Does this process have the inode open under another number?
fn we_have(inode: (u64, u64), but: RawFd) -> Sys<bool> {
    let open = listed(Path::new("/proc/self/fd"))?.into_iter();
    let mut others = open.filter(|fd| fd.file_name().as_bytes() != but.to_string().as_bytes());
    Ok(others.any(|fd| is_inode(&fd.path(), inode)))
}

fn is_inode(path: &Path, inode: (u64, u64)) -> bool {
    std::fs::metadata(path).is_ok_and(|m| (m.dev(), m.ino()) == inode)
}

/// Does another process have this inode (device and number) open or mapped?
///
/// # Errors
/// EMFILE, ENOMEM and the like: nobody can say.
pub fn anyone_has(inode: (u64, u64), by: Openers) -> Sys<bool> {
    for process in others()? {
        let is_open = listed(&process.join("fd"))?.into_iter().any(|fd| {
            is_inode(&fd.path(), inode) && (by == Openers::Anyone || can_write(&process, &fd))
        });
        let mut mapped = listed(&process.join("map_files"))?.into_iter();
        if is_open || mapped.any(|map| is_inode(&map.path(), inode)) {
            return Ok(true);
        }
    }
    Ok(false)
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
///
/// # Errors
/// EMFILE, ENOMEM and the like: nobody can say.
pub fn directories_in_use(
    dirs: &Path,
    passing: impl FnOnce() -> Vec<ObjectId>,
) -> Sys<Vec<ObjectId>> {
    let mut found = BTreeSet::new();
    add_directories(Path::new("/proc/self"), dirs, &mut found)?;
    found.extend(passing());
    for _ in 0..LOOKS {
        for process in others()? {
            add_directories(&process, dirs, &mut found)?;
        }
    }
    Ok(found.into_iter().collect())
}

fn add_directories(process: &Path, dirs: &Path, found: &mut BTreeSet<ObjectId>) -> Sys<()> {
    let open = listed(&process.join("fd"))?.into_iter();
    // Last: a program enters a directory before it closes the descriptor.
    for link in open.map(|fd| fd.path()).chain([process.join("cwd")]) {
        let target = std::fs::read_link(link).ok();
        found.extend(target.and_then(|target| directory_of(&target, dirs)));
    }
    Ok(())
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
    fn what_can_not_be_listed_is_not_empty_unless_the_process_has_ended_or_is_hidden() {
        let listed = |dir: &str| listed(Path::new(dir)).map(|entries| entries.is_empty());
        assert_eq!(listed("/proc/self/fd"), Ok(false));
        assert_eq!(listed("/proc/0/fd"), Ok(true));
        assert_eq!(listed("/proc/self/status"), Err(Errno::NOTDIR));
    }

    #[test]
    fn a_directory_that_goes_from_us_to_a_process_during_the_look_is_found() {
        let root = tempfile::tempdir().unwrap();
        let dirs = root.path().canonicalize().unwrap();
        let dir = dirs.join("0").join(format!("{:032x}", OBJECT.0));
        std::fs::create_dir_all(&dir).unwrap();
        let open = || File::open(&dir).unwrap();
        assert_eq!(directories_in_use(&dirs, Vec::new), Ok(vec![]));
        // Ours at first: it is noted, whoever gets it then.
        let ours = open();
        let leaves = || {
            drop(ours);
            Vec::new()
        };
        assert_eq!(directories_in_use(&dirs, leaves), Ok(vec![OBJECT]));
        // In a socket.
        assert_eq!(directories_in_use(&dirs, || vec![OBJECT]), Ok(vec![OBJECT]));
        // It was in a socket, and is received before it is asked what is there.
        let mut process = None;
        let arrives = || {
            process = Some(given_to_a_process(open()));
            Vec::new()
        };
        assert_eq!(directories_in_use(&dirs, arrives), Ok(vec![OBJECT]));
        let mut process = process.unwrap();
        process.kill().unwrap();
        process.wait().unwrap();
        assert_eq!(directories_in_use(&dirs, Vec::new), Ok(vec![]));
    }
}
