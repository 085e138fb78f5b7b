//! Notices programs that are about to start without the library, and says so: they see the PFS instead of the buffer.

use core::ffi::c_int;

use forebay_hook::bypass::{self, HEAD_BYTES, Program, Verdict, is_program};
use forebay_hook::shebang::{self, MAX_DEPTH};
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

/// Bytes of a path that a warning shows.
const SHOWN_BYTES: usize = 400;

/// Looks at a program outside the buffer. True if there is one.
///
/// # Safety
/// `path` is a C string or a pointer that the kernel would refuse, `argv` a list as for `execve`.
pub unsafe fn look(dirfd: c_int, path: Path, argv: Strings) -> bool {
    // SAFETY: the caller's promise. What the kernel has opened is a string.
    unsafe {
        let Some(fd) = open(dirfd, path) else {
            return false;
        };
        look_into(&fd, kernel::bytes(path), argv)
    }
}

/// As [`look`], at what a descriptor leads to, which may be an `O_PATH` one.
///
/// # Safety
/// `path` is a C string, `argv` a list as for `execve`.
pub unsafe fn look_at(fd: c_int, path: Path, argv: Strings) {
    // SAFETY: the caller's promise.
    unsafe {
        if let Some(fd) = open(AT_FDCWD, FdPath::new(fd).as_ptr()) {
            look_into(&fd, kernel::bytes(path), argv);
        }
    }
}

/// As [`look`], at what `execvp` would find by this name.
///
/// # Safety
/// As [`look_at`].
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

/// # Safety
/// As [`look`].
unsafe fn open(dirfd: c_int, path: Path) -> Option<OwnFd> {
    let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK;
    // SAFETY: the caller's promise.
    unsafe { kernel::openat(dirfd, path, flags, 0) }
        .ok()
        .map(OwnFd)
}

/// True if this is a program.
///
/// # Safety
/// `argv` as for `execve`.
unsafe fn look_into(fd: &OwnFd, path: &[u8], argv: Strings) -> bool {
    let is_one = kernel::fstat(fd.0).is_some_and(|attr| is_program(attr.st_mode));
    if let Some(why) = past(fd, path, 0).filter(|_| is_one) {
        // SAFETY: the caller's promise.
        unsafe { tell(path, why, argv) };
    }
    is_one
}

fn past(fd: &OwnFd, path: &[u8], depth: usize) -> Option<Bypass> {
    let attr = kernel::fstat(fd.0)?;
    let mut head = [0; HEAD_BYTES];
    let n = kernel::pread(fd.0, &mut head, 0).unwrap_or(0);
    let program = Program {
        path,
        head: &head[..n],
        mode: attr.st_mode,
        owner: (attr.st_uid, attr.st_gid),
    };
    // SAFETY: plain calls, which never fail.
    let me = unsafe { [call!(libc::SYS_geteuid), call!(libc::SYS_getegid)] };
    let [uid, gid] = me.map(|id| id.unwrap_or(0) as u32);
    let name = c"security.capability".as_ptr();
    // SAFETY: a C string; nothing is written.
    let has_capabilities = || unsafe { call!(libc::SYS_fgetxattr, fd.0, name, 0, 0) }.is_ok();
    match bypass::judge(&program, (uid, gid), has_capabilities) {
        Verdict::Reached => None,
        Verdict::Past(why) => Some(why),
        Verdict::By(_) if depth == MAX_DEPTH => None,
        Verdict::By(interpreter) => {
            // One in the buffer is looked at when it is started.
            let mut path = [0u8; shebang::HEAD_BYTES + 1];
            path.get_mut(..interpreter.len())?
                .copy_from_slice(interpreter);
            // SAFETY: a C string.
            let fd = unsafe { open(AT_FDCWD, path.as_ptr().cast()) }?;
            past(&fd, interpreter, depth + 1)
        }
    }
}

/// Is the working directory in the buffer, or does an argument lead there or name it?
///
/// # Safety
/// `argv` as for `execve`.
unsafe fn may_look(config: &Config, argv: Strings) -> bool {
    let leads = |path: &[u8]| locate(AT_FDCWD, path, &mut Scratch::new()).is_some();
    // SAFETY: the caller's promise.
    let mut arguments = unsafe { environment::entries(argv) };
    leads(b".")
        || arguments.any(|text| leads(text) || bypass::names(text, config.root(), config.alias()))
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
    // Without a bridge the user hears of it each time.
    if let Err(Fail::Errno(KNOWN)) = requests::ask(config, &mut request, true, &mut Answer::new()) {
        return;
    }
    let mut room = [0; SHOWN_BYTES];
    let n = bypass::shown(path, &mut room);
    let [before, word, after] = why.sentence().map(str::as_bytes);
    kernel::complain(&[b"forebay: ", &room[..n], before, word, after, b"\n"]);
}
