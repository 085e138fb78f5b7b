//! Notices programs that are about to start without the library, and says so: they see the PFS instead of the buffer.

use core::ffi::c_int;

use forebay_hook::kernel::{self, Errno, FdPath};
use forebay_hook::program::{self, Found};
use forebay_hook::{bypass, environment};
use forebay_link::{Answer, Config, Fail};
use forebay_wire::{Bypass, Op, Request};
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
    // SAFETY: the caller's promise. What lies under a path is there only if that is a string.
    unsafe {
        match program::look(dirfd, path, None) {
            Found::NoProgram => return false,
            Found::Reached => {}
            Found::Past(why) => tell(kernel::bytes(path), why, argv),
        }
    }
    true
}

/// As [`look`], at what a descriptor leads to, which may be an `O_PATH` one.
///
/// # Safety
/// `path` is a C string, `argv` a list as for `execve`.
pub unsafe fn look_at(fd: c_int, path: Path, argv: Strings) {
    // SAFETY: the caller's promise.
    unsafe {
        let name = kernel::bytes(path);
        let at = FdPath::new(fd);
        if let Found::Past(why) = program::look(AT_FDCWD, at.as_ptr(), Some(name)) {
            tell(name, why, argv);
        }
    }
}

/// As [`look`], at what `execvp` would find by this name.
///
/// # Safety
/// As [`look_at`].
pub unsafe fn search(file: Path, argv: Strings) {
    // SAFETY: the caller's promise; what is searched are C strings.
    unsafe { program::search(file, |path| look(AT_FDCWD, path, argv)) };
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
