//! Identities of this node, and of processes on it, that others can compare with what they have been told.

use crate::{Errno, Sys, errno_of};
use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The name of this node (`uname -n`).
pub fn host_name() -> Vec<u8> {
    rustix::system::uname().nodename().to_bytes().to_vec()
}

/// The version of the kernel (`uname -r`).
pub fn kernel_version() -> String {
    let name = rustix::system::uname();
    name.release().to_string_lossy().into_owned()
}

/// The identity of this run of the kernel, which a reboot changes.
///
/// # Errors
/// `/proc` is not there.
pub fn boot_id() -> Sys<Vec<u8>> {
    let text = fs::read("/proc/sys/kernel/random/boot_id").map_err(errno_of)?;
    Ok(text.trim_ascii().to_vec())
}

/// The identity of the space in which process ids have the meaning that they have here: the inode number of the PID
/// namespace.
///
/// # Errors
/// `/proc` is not there.
pub fn pid_space() -> Sys<u64> {
    let found = fs::metadata("/proc/self/ns/pid").map_err(errno_of)?;
    Ok(found.ino())
}

/// The identity of the space in which paths have the meaning that they have here: the inode number of the mount
/// namespace.
///
/// # Errors
/// `/proc` is not there.
pub fn mount_space() -> Sys<u64> {
    let found = fs::metadata("/proc/self/ns/mnt").map_err(errno_of)?;
    Ok(found.ino())
}

/// When a process was started, in clock ticks since the boot.
///
/// # Errors
/// ENOENT if there is no such process, or this user may not see it.
pub fn process_started(pid: u32) -> Sys<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).map_err(errno_of)?;
    // The name of the program is in parentheses, and may hold some itself. Field 22 is the 20th after it (proc(5)).
    let (_, fields) = text.rsplit_once(')').ok_or(Errno::INVAL)?;
    let started = fields.split_ascii_whitespace().nth(19);
    started
        .and_then(|ticks| ticks.parse().ok())
        .ok_or(Errno::INVAL)
}

/// The name of a process's program, cut to 15 bytes; empty if it has ended.
pub fn process_name(pid: u32) -> String {
    let name = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    String::from_utf8_lossy(name.trim_ascii_end()).into_owned()
}

/// The effective user of a process.
fn user_of(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let ids = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    ids.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// Has this process, of this effective user, the inode (device and number) as its working directory, or open as one of its first
/// `most` descriptors?
pub fn has_open(pid: u32, user: u32, inode: (u64, u64), most: usize) -> bool {
    let process = Path::new("/proc").join(pid.to_string());
    // Without a question to a server of files: of what a client has open, any may hang.
    let is_it = |path: &Path| {
        let found =
            crate::open_path(path, libc::O_PATH).and_then(|file| crate::stat_known(file.as_fd()));
        found.is_ok_and(|at| (at.dev, at.ino) == inode)
    };
    // The number may come to mean another process meanwhile. One of the same user could be asked for the descriptor.
    let is_of_user = || user_of(pid) == Some(user);
    let open = || {
        let descriptors = fs::read_dir(process.join("fd")).into_iter().flatten();
        let mut first = descriptors.flatten().take(most);
        first.any(|descriptor| is_it(&descriptor.path()))
    };
    is_of_user() && (is_it(&process.join("cwd")) || open()) && is_of_user()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_was_started_later_says_so() {
        let me = process_started(std::process::id()).unwrap();
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        assert!(process_started(child.id()).unwrap() >= me);
        assert!(me > process_started(1).unwrap());
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(process_started(child.id()), Err(Errno::NOENT));
        assert!(!host_name().is_empty() && boot_id().unwrap().len() == 36);
        assert_ne!(pid_space().unwrap(), 0);
    }

    #[test]
    fn what_a_process_has_open_is_seen_for_its_own_user_alone() {
        let folder = tempfile::tempdir().unwrap();
        let found = fs::metadata(folder.path()).unwrap();
        let inode = (found.dev(), found.ino());
        let (me, user) = (std::process::id(), crate::my_ids().0);
        assert!(!has_open(me, user, inode, 256));
        let _open = fs::File::open(folder.path()).unwrap();
        assert!(has_open(me, user, inode, 256));
        assert!(!has_open(me, user + 1, inode, 256));
        assert!(!has_open(me, user, inode, 1));
        assert!(!has_open(0, user, inode, 256));
    }
}
