//! Who has a file or directory open, according to /proc: for directories, which take no leases, and
//! for file systems without leases. Sees the processes that the bridge's user may look into.

use super::sys::Users;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

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

/// Does another process have this inode (device and number) open or mapped?
pub fn anyone_has(inode: (u64, u64), by: Users) -> bool {
    let is_it = |path: &Path| std::fs::metadata(path).is_ok_and(|m| (m.dev(), m.ino()) == inode);
    others().any(|process| {
        let open = std::fs::read_dir(process.join("fd"))
            .into_iter()
            .flatten()
            .flatten()
            .any(|fd| is_it(&fd.path()) && (by == Users::Anyone || can_write(&process, &fd)));
        open || std::fs::read_dir(process.join("map_files"))
            .into_iter()
            .flatten()
            .flatten()
            .any(|map| is_it(&map.path()))
    })
}

fn can_write(process: &Path, fd: &std::fs::DirEntry) -> bool {
    let info = process.join("fdinfo").join(fd.file_name());
    let text = std::fs::read_to_string(info).unwrap_or_default();
    let flags = text
        .lines()
        .find_map(|line| line.strip_prefix("flags:"))
        .and_then(|octal| i32::from_str_radix(octal.trim(), 8).ok());
    // Unreadable: the careful answer.
    flags.is_none_or(|flags| flags & libc::O_ACCMODE != libc::O_RDONLY)
}

/// Does another process have a directory at or below `dir` as its working directory, or open?
pub fn anyone_is_in(dir: &Path) -> bool {
    let is_inside =
        |link: &Path| std::fs::read_link(link).is_ok_and(|target| target.starts_with(dir));
    others().any(|process| {
        is_inside(&process.join("cwd"))
            || std::fs::read_dir(process.join("fd"))
                .into_iter()
                .flatten()
                .flatten()
                .any(|fd| is_inside(&fd.path()))
    })
}
