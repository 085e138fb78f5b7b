//! Notices programs that are about to start without the library, and says so: they see the PFS instead of the buffer.

use core::ffi::c_int;

use forebay_hook::bypass::{self, HEAD_BYTES, is_privileged, is_program};
use forebay_hook::shebang::{self, Head};
use forebay_hook::{
    environment,
    kernel::{self, Errno, FdPath, OwnFd, call},
};
use forebay_link::{Answer, Config, Fail};
use forebay_wire::{Bypass, MAX_PATH_BYTES, Op, Request};
use libc::AT_FDCWD;

use super::Path;
use super::inheritance::Strings;
use crate::config;
use crate::locate::{Scratch, locate};
use crate::requests;

/// Looks at a program outside the buffer. True if there is one.
///
/// # Safety
/// `path` is a C string, `argv` a list as for `execve`.
pub unsafe fn look(dirfd: c_int, path: Path, argv: Strings) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK;
        let Ok(fd) = kernel::openat(dirfd, path, flags, 0) else {
            return false;
        };
        let (fd, path) = (OwnFd(fd), kernel::bytes(path));
        let Some(attr) = kernel::fstat(fd.0).filter(|attr| is_program(attr.st_mode)) else {
            return false;
        };
        if let Some(why) = judge(&fd, &attr, path, 0) {
            tell(path, why, argv);
        }
        true
    }
}

/// As [`look`], at a program in the buffer, by an `O_PATH` descriptor.
///
/// # Safety
/// As [`look`].
pub unsafe fn look_at(fd: &OwnFd, path: Path, argv: Strings) {
    // SAFETY: the caller's promise.
    unsafe {
        let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK;
        let open = kernel::openat(AT_FDCWD, FdPath::new(fd.0).as_ptr(), flags, 0);
        let (Ok(open), Some(attr)) = (open, kernel::fstat(fd.0)) else {
            return;
        };
        let (open, path) = (OwnFd(open), kernel::bytes(path));
        if let Some(why) = judge(&open, &attr, path, 0).filter(|_| is_program(attr.st_mode)) {
            tell(path, why, argv);
        }
    }
}

/// As [`look`], at what `execvp` would find by this name.
///
/// # Safety
/// As [`look`].
pub unsafe fn search(file: Path, argv: Strings) {
    // SAFETY: the caller's promise.
    unsafe {
        let name = kernel::bytes(file);
        if name.contains(&b'/') {
            look(AT_FDCWD, file, argv);
            return;
        }
        let list = environment::variable(b"PATH").unwrap_or_default();
        for dir in list.split(|&b| b == b':') {
            let mut candidate = [0u8; MAX_PATH_BYTES + 1];
            if dir.is_empty() || dir.len() + 1 + name.len() > MAX_PATH_BYTES {
                continue;
            }
            candidate[..dir.len()].copy_from_slice(dir);
            candidate[dir.len()] = b'/';
            candidate[dir.len() + 1..][..name.len()].copy_from_slice(name);
            if look(AT_FDCWD, candidate.as_ptr().cast(), argv) {
                return;
            }
        }
    }
}

fn judge(fd: &OwnFd, attr: &libc::stat, path: &[u8], depth: usize) -> Option<Bypass> {
    let mut head = [0; HEAD_BYTES];
    let n = kernel::pread(fd.0, &mut head, 0).unwrap_or(0);
    let head = &head[..n];
    if let Head::Script(line) = shebang::parse(&head[..n.min(shebang::HEAD_BYTES)]) {
        return interpreter(line.interpreter, depth);
    }
    // SAFETY: plain calls; the name is a C string.
    let is_other = unsafe {
        let me = call!(libc::SYS_geteuid).unwrap_or(0) as u32;
        let caller = (me, call!(libc::SYS_getegid).unwrap_or(0) as u32);
        let name = c"security.capability".as_ptr();
        let gets = || call!(libc::SYS_fgetxattr, fd.0, name, 0, 0).is_ok();
        is_privileged(attr.st_mode, (attr.st_uid, attr.st_gid), caller) || me != 0 && gets()
    };
    match is_other {
        true => Some(Bypass::Privileged),
        false => bypass::of_file(path, head),
    }
}

/// Of the program that runs a script. One in the buffer is looked at when it is started.
fn interpreter(name: &[u8], depth: usize) -> Option<Bypass> {
    let mut path = [0u8; shebang::HEAD_BYTES + 1];
    path.get_mut(..name.len())?.copy_from_slice(name);
    if depth == shebang::MAX_DEPTH {
        return None;
    }
    let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK;
    // SAFETY: a C string.
    let open = unsafe { kernel::openat(AT_FDCWD, path.as_ptr().cast(), flags, 0) };
    let fd = OwnFd(open.ok()?);
    let attr = kernel::fstat(fd.0)?;
    judge(&fd, &attr, name, depth + 1)
}

/// Is the working directory in the buffer, or does an argument name it?
///
/// # Safety
/// `argv` as for `execve`.
unsafe fn may_look(config: &Config, argv: Strings) -> bool {
    let root = config.root();
    let names = |text: &[u8]| text.windows(root.len()).any(|part| part == root);
    // SAFETY: the caller's promise.
    let mut arguments = unsafe { environment::entries(argv) };
    locate(AT_FDCWD, b".", &mut Scratch::new()).is_some() || arguments.any(names)
}

/// Tells the bridge, and the user if it is new.
///
/// # Safety
/// `argv` as for `execve`.
unsafe fn tell(path: &[u8], why: Bypass, argv: Strings) {
    let Some(config) = config::get() else {
        return;
    };
    let mut request = Request {
        str1: path,
        arg0: why as u32,
        // SAFETY: the caller's promise.
        arg1: u32::from(unsafe { may_look(config, argv) }),
        ..Request::new(Op::Bypass)
    };
    const KNOWN: Errno = libc::EEXIST;
    if let Err(Fail::Errno(KNOWN)) = requests::ask(config, &mut request, true, &mut Answer::new()) {
        return;
    }
    kernel::complain(&[
        b"forebay: ",
        path,
        b" goes past the buffer (",
        why.in_words().as_bytes(),
        b"): it sees the PFS as it is\n",
    ]);
}
