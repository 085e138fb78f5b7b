//! Functions that change or name the working directory.
//!
//! `chdir` into the buffer asks for a grant and calls `fchdir`. The kernel's working directory is then a
//! backing directory or a directory of the PFS, and `getcwd` translates it back.

use core::ffi::{c_char, c_int};
use core::ptr::null_mut;

use forebay_hook::hooks;
use forebay_wire::{Base, DIRECTORY, MAX_PATH_BYTES, Op, Request};
use libc::AT_FDCWD;

use super::links::give;
use super::{Path, outcome};
use crate::locate::{self, Outcome, Scratch, failed, route};
use crate::requests;
use forebay_hook::kernel::call;
use forebay_link::{Answer, Fail, ask_where_it_is};

fn moved(result: c_int) -> c_int {
    if result == 0 {
        locate::cwd_changed();
    }
    result
}

/// The path of the working directory, if that is in the buffer; `None` if it is elsewhere.
fn name_of_cwd(answer: &mut Answer) -> Option<Result<(), Fail>> {
    let mut scratch = Scratch::new();
    let asked = ask_where_it_is(|| {
        let Some(target) = locate::locate_fd(AT_FDCWD, &mut scratch) else {
            return Ok(None);
        };
        if target.base == Base::Root && locate::is_cwd_reachable() {
            return Ok(None);
        }
        let mut request = Request {
            base1: target.base,
            ..Request::new(Op::NameOf)
        };
        requests::ask(target.config, &mut request, true, answer).map(Some)
    });
    asked.transpose()
}

/// `getcwd`. The path goes into the caller's buffer of `size` bytes, or into a new one if `out` is null.
#[inline(always)]
fn current(out: *mut c_char, size: usize, native: impl Fn() -> *mut c_char) -> *mut c_char {
    if locate::is_far(AT_FDCWD) {
        return native();
    }
    current_slow(out, size, native)
}

#[inline(never)]
fn current_slow(out: *mut c_char, size: usize, native: impl Fn() -> *mut c_char) -> *mut c_char {
    let mut answer = Answer::new();
    match name_of_cwd(&mut answer) {
        None | Some(Err(Fail::Redirect)) => native(),
        Some(Err(Fail::Errno(e))) => failed(e),
        Some(Ok(())) => {
            let name = answer.body();
            if !out.is_null() && size == 0 {
                return failed(libc::EINVAL);
            }
            if size != 0 && name.len() >= size {
                return failed(libc::ERANGE);
            }
            if !out.is_null() || size == 0 {
                return given(give(name, out));
            }
            // glibc allocates exactly the size that was asked for.
            // SAFETY: this only allocates. The program frees the memory.
            let room = unsafe { libc::malloc(size) }.cast::<c_char>();
            if room.is_null() {
                return failed(libc::ENOMEM);
            }
            given(give(name, room))
        }
    }
}

fn given(result: Result<*mut c_char, Fail>) -> *mut c_char {
    match result {
        Ok(text) => text,
        Err(Fail::Errno(e)) => failed(e),
        Err(Fail::Redirect) => Outcome::FAILED,
    }
}

hooks! {
    fn chdir [real] (path: Path) -> c_int {
        moved(route(AT_FDCWD, path, |_, p| real(p), |target, answer| {
            let fd = requests::resolve(target, DIRECTORY, answer)?;
            Ok(outcome(call!(libc::SYS_fchdir, fd.0)))
        }))
    }

    fn fchdir [real] (fd: c_int) -> c_int {
        moved(real(fd))
    }

    fn daemon [real] (keep_directory: c_int, keep_streams: c_int) -> c_int {
        moved(real(keep_directory, keep_streams))
    }

    fn unshare [real] (flags: c_int) -> c_int {
        if flags & (libc::CLONE_FS | libc::CLONE_NEWNS) != 0 {
            locate::cwd_is_per_thread();
        }
        real(flags)
    }

    fn getcwd [real] (out: *mut c_char, size: usize) -> *mut c_char {
        current(out, size, || real(out, size))
    }

    fn __getcwd_chk [real] (out: *mut c_char, size: usize, real_size: usize) -> *mut c_char {
        current(out, size.min(real_size), || real(out, size, real_size))
    }

    fn getwd [real] (out: *mut c_char) -> *mut c_char {
        current(out, MAX_PATH_BYTES + 1, || real(out))
    }

    fn __getwd_chk [real] (out: *mut c_char, size: usize) -> *mut c_char {
        current(out, size.min(MAX_PATH_BYTES + 1), || real(out, size))
    }

    fn get_current_dir_name [real] () -> *mut c_char {
        current(null_mut(), 0, || real())
    }

    fn chroot [real] (path: Path) -> c_int {
        // Inside the new root, the absolute paths of the bridge would name other files.
        route(AT_FDCWD, path, |_, p| real(p), |target, answer| {
            // The path may lead out of the buffer again.
            requests::stat(target, 0, answer)?;
            Err(libc::EPERM.into())
        })
    }
}
