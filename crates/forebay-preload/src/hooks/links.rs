//! Functions that read symbolic links, or resolve them in a path.

use core::ffi::{c_char, c_int};
use core::ptr::null_mut;

use forebay_hook::hooks;
use forebay_wire::Op;
use libc::AT_FDCWD;

use super::Path;
use crate::bridge;
use crate::locate::{Target, is_alias, route};
use forebay_hook::kernel;
use forebay_link::{Answer, Fail};

fn text(
    target: &Target<'_>,
    out: *mut c_char,
    room: usize,
    answer: &mut Answer,
) -> Result<isize, Fail> {
    if room as isize <= 0 {
        return Err(libc::EINVAL.into());
    }
    bridge::ask(
        target.config,
        &mut target.request(Op::Readlink),
        true,
        answer,
    )?;
    let body = answer.body();
    let n = body.len().min(room);
    // SAFETY: the caller of readlink promises `room` bytes.
    unsafe { core::ptr::copy_nonoverlapping(body.as_ptr().cast(), out, n) };
    Ok(n as isize)
}

/// Copies the result of a `realpath` function to `out`, or to new memory if `out` is null.
pub fn give(body: &[u8], out: *mut c_char) -> Result<*mut c_char, Fail> {
    // SAFETY: this only allocates. The program frees the memory, as with libc's function.
    let to = if out.is_null() {
        unsafe { libc::malloc(body.len() + 1) }.cast()
    } else {
        out
    };
    if to.is_null() {
        return Err(libc::ENOMEM.into());
    }
    // SAFETY: the program promises PATH_MAX bytes, or the memory was just allocated.
    unsafe {
        core::ptr::copy_nonoverlapping(body.as_ptr().cast(), to, body.len());
        *to.add(body.len()) = 0;
    }
    Ok(to)
}

fn resolved(
    target: &Target<'_>,
    out: *mut c_char,
    answer: &mut Answer,
) -> Result<*mut c_char, Fail> {
    bridge::ask(
        target.config,
        &mut target.request(Op::Realpath),
        true,
        answer,
    )?;
    give(answer.body(), out)
}

hooks! {
    fn readlink [real] (path: Path, out: *mut c_char, room: usize) -> isize {
        let native = |_: c_int, p: Path| real(p, out, room);
        route(AT_FDCWD, path, native, |t, a| match is_alias(kernel::bytes(path)) {
            true => Ok(native(AT_FDCWD, path)),
            false => text(t, out, room, a),
        })
    }

    fn __readlink_chk [real] (path: Path, out: *mut c_char, room: usize, real_room: usize) -> isize {
        route(AT_FDCWD, path, |_, p| real(p, out, room, real_room), |t, a| text(t, out, room.min(real_room), a))
    }

    fn readlinkat [real] (dirfd: c_int, path: Path, out: *mut c_char, room: usize) -> isize {
        let native = |d: c_int, p: Path| real(d, p, out, room);
        route(dirfd, path, native, |t, a| match is_alias(kernel::bytes(path)) {
            true => Ok(native(dirfd, path)),
            false => text(t, out, room, a),
        })
    }

    fn __readlinkat_chk [real] (dirfd: c_int, path: Path, out: *mut c_char, room: usize, real_room: usize) -> isize {
        route(dirfd, path, |d, p| real(d, p, out, room, real_room), |t, a| text(t, out, room.min(real_room), a))
    }

    fn realpath [real] (path: Path, out: *mut c_char) -> *mut c_char {
        route(AT_FDCWD, path, |_, p| real(p, out), |t, a| resolved(t, out, a))
    }

    fn __realpath_chk [real] (path: Path, out: *mut c_char, room: usize) -> *mut c_char {
        route(AT_FDCWD, path, |_, p| real(p, out, room), |t, a| resolved(t, out, a))
    }

    fn canonicalize_file_name [real] (path: Path) -> *mut c_char {
        route(AT_FDCWD, path, |_, p| real(p), |t, a| resolved(t, null_mut(), a))
    }
}
