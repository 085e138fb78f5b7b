//! The file of a program that is about to be started, and whether a preloaded library reaches it.

use core::ffi::{c_char, c_int};

use crate::bypass::{self, HEAD_BYTES, Program, Verdict};
use crate::environment;
use crate::kernel::{self, OwnFd, call};
use crate::shebang::{self, MAX_DEPTH};
use forebay_types::{Bypass, MAX_PATH_BYTES};
use libc::AT_FDCWD;

/// What lies under a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// Nothing that can be started, or nothing that may be looked at.
    NoProgram,
    /// A program into which the library is loaded.
    Reached,
    /// A program into which it is not.
    Past(Bypass),
}

/// Looks at what `execve` would start. The kernel's path for it may be another one than `name`, by which it is known.
///
/// # Safety
/// `path` is a C string or a pointer that the kernel would refuse.
pub unsafe fn look(dirfd: c_int, path: *const c_char, name: Option<&[u8]>) -> Found {
    // SAFETY: the caller's promise. What the kernel has opened is a string.
    let Some((fd, name)) =
        (unsafe { open(dirfd, path).map(|fd| (fd, name.unwrap_or_else(|| kernel::bytes(path)))) })
    else {
        return Found::NoProgram;
    };
    match kernel::fstat(fd.0) {
        Some(attr) if bypass::is_program(attr.st_mode) => {
            past(&fd, &attr, name, 0).map_or(Found::Reached, Found::Past)
        }
        _ => Found::NoProgram,
    }
}

/// Calls `look` with each path at which `execvp` would search a program, until it finds one.
///
/// # Safety
/// `file` is a C string.
pub unsafe fn search(file: *const c_char, mut look: impl FnMut(*const c_char) -> bool) {
    // SAFETY: the caller's promise.
    let name = unsafe { kernel::bytes(file) };
    if name.contains(&b'/') {
        look(file);
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
        if look(candidate.as_ptr().cast()) {
            return;
        }
    }
}

/// # Safety
/// As [`look`].
unsafe fn open(dirfd: c_int, path: *const c_char) -> Option<OwnFd> {
    let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK;
    // SAFETY: the caller's promise.
    unsafe { kernel::openat(dirfd, path, flags, 0) }
        .ok()
        .map(OwnFd)
}

fn past(fd: &OwnFd, attr: &libc::stat, name: &[u8], depth: usize) -> Option<Bypass> {
    let mut head = [0; HEAD_BYTES];
    let n = kernel::pread(fd.0, &mut head, 0).unwrap_or(0);
    let program = Program {
        path: name,
        head: &head[..n],
        mode: attr.st_mode,
        owner: (attr.st_uid, attr.st_gid),
    };
    // SAFETY: plain calls, which never fail.
    let me = unsafe { [call!(libc::SYS_geteuid), call!(libc::SYS_getegid)] };
    let [uid, gid] = me.map(|id| id.unwrap_or(0) as u32);
    let capability = c"security.capability".as_ptr();
    // SAFETY: a C string; nothing is written.
    let has_capabilities = || unsafe { call!(libc::SYS_fgetxattr, fd.0, capability, 0, 0) }.is_ok();
    match bypass::judge(&program, (uid, gid), has_capabilities) {
        Verdict::Reached => None,
        Verdict::Past(why) => Some(why),
        Verdict::By(_) if depth == MAX_DEPTH => None,
        Verdict::By(interpreter) => {
            let mut path = [0u8; shebang::HEAD_BYTES + 1];
            path.get_mut(..interpreter.len())?
                .copy_from_slice(interpreter);
            // SAFETY: a C string.
            let fd = unsafe { open(AT_FDCWD, path.as_ptr().cast()) }?;
            past(&fd, &kernel::fstat(fd.0)?, interpreter, depth + 1)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(path: &core::ffi::CStr) -> Found {
        // SAFETY: a C string.
        unsafe { look(AT_FDCWD, path.as_ptr(), None) }
    }

    #[test]
    fn programs_are_told_from_what_is_none() {
        assert_eq!(at(c"/bin/sh"), Found::Reached);
        assert_eq!(at(c"/etc/passwd"), Found::NoProgram);
        assert_eq!(at(c"/no/such/program"), Found::NoProgram);
        assert_eq!(at(c"/etc"), Found::NoProgram);
        // SAFETY: a pointer that the kernel refuses.
        assert_eq!(
            unsafe { look(AT_FDCWD, core::ptr::null(), None) },
            Found::NoProgram
        );
    }

    #[test]
    fn a_program_without_a_path_is_searched() {
        let mut found = Found::NoProgram;
        // SAFETY: a C string.
        unsafe {
            search(c"sh".as_ptr(), |path| {
                found = look(AT_FDCWD, path, None);
                found != Found::NoProgram
            });
        }
        assert_eq!(found, Found::Reached);
    }
}
