//! System calls that the standard library lacks. This is the only module of the program with `unsafe`.
#![allow(unsafe_code)]

use forebay_sys as sys;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

extern "C" fn nothing(_signal: libc::c_int) {}

/// Makes Ctrl-C end only the programs that this process starts, not the process itself.
pub fn outlive_interrupts() {
    let handler = nothing as extern "C" fn(libc::c_int);
    // SAFETY: the handler does nothing, so nothing in it can be unsafe in a signal. Unlike
    // SIG_IGN it is not passed on to programs that are started.
    unsafe { libc::signal(libc::SIGINT, handler as libc::sighandler_t) };
}

/// True if this process is root.
pub fn is_root() -> bool {
    sys::my_ids().0 == 0
}

/// The type of the file system that holds a directory, as `mount` names it.
pub fn file_system(dir: &Path) -> io::Result<String> {
    let magic = sys::fs_type(File::open(dir)?.as_fd())?;
    // The numbers of linux/magic.h; ext2 and ext3 share theirs with ext4.
    Ok(match magic {
        0xEF53 => "ext4".to_owned(),
        0x0102_1994 => "tmpfs".to_owned(),
        0x5846_5342 => "xfs".to_owned(),
        0x9123_683E => "btrfs".to_owned(),
        0x794C_7630 => "overlayfs".to_owned(),
        0x6969 => "nfs".to_owned(),
        0x2FC1_2FC1 => "zfs".to_owned(),
        other => format!("file system 0x{other:x}"),
    })
}
