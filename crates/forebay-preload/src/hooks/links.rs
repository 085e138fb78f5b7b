//! Functions that read symbolic links, or resolve them in a path.

use core::ffi::{c_char, c_int};
use core::ptr::null_mut;

use forebay_hook::hooks;
use forebay_wire::{Op, Request};
use libc::AT_FDCWD;

use super::Path;
use crate::config;
use crate::locate::{Target, is_alias, object_at, route};
use crate::requests;
use forebay_hook::kernel;
use forebay_hook::path::below;
use forebay_link::{Answer, Config, Fail};

fn text(
    target: &Target<'_>,
    out: *mut c_char,
    room: usize,
    answer: &mut Answer,
) -> Result<isize, Fail> {
    if room as isize <= 0 {
        return Err(libc::EINVAL.into());
    }
    requests::ask(
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
    requests::ask(
        target.config,
        &mut target.request(Op::Realpath),
        true,
        answer,
    )?;
    give(answer.body(), out)
}

/// The path in the buffer of what a link of `/proc` leads to, if that is an object of the buffer: the kernel knows where it
/// lies in the storage. False if it is something else, or has no name any more.
fn name_of_place(
    at: &[u8],
    answer: &mut Answer,
    ask: impl Fn(&Config, &mut Request<'_>, &mut Answer) -> Result<(), Fail>,
) -> bool {
    let Some(config) = config::get() else {
        return false;
    };
    // What was removed has a name no more. The kernel says so.
    let Some((base1, arg0)) = object_at(config, at).filter(|_| !at.ends_with(b" (deleted)")) else {
        return false;
    };
    let mut request = Request {
        base1,
        arg0,
        ..Request::new(Op::NameOf)
    };
    ask(config, &mut request, answer).is_ok()
}

/// As a path call: it waits for a bridge that is away.
fn patiently(config: &Config, request: &mut Request<'_>, answer: &mut Answer) -> Result<(), Fail> {
    requests::ask(config, request, true, answer)
}

/// [`FD_NAME`](forebay_hook::FD_NAME).
///
/// # Safety
/// `out` is writable for `room` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_fd_name(fd: c_int, out: *mut u8, room: usize) -> usize {
    let mut whole = [0u8; LONGEST_PLACE];
    let mut answer = Answer::new();
    let ask = |config: &Config, request: &mut Request<'_>, answer: &mut Answer| {
        requests::LINK.ask_at_once(config, request, answer)
    };
    match kernel::fd_name(fd, &mut whole) {
        Some(at) if at.len() < LONGEST_PLACE && name_of_place(at, &mut answer, ask) => {
            let name = answer.body();
            if name.len() > room {
                return 0;
            }
            // SAFETY: the caller's promise.
            unsafe { core::ptr::copy_nonoverlapping(name.as_ptr(), out, name.len()) };
            name.len()
        }
        _ => 0,
    }
}

/// Are links at this path those of `/proc`?
///
/// # Safety
/// `path` is a C string.
unsafe fn is_of_proc(dirfd: c_int, path: Path) -> bool {
    // SAFETY: the caller's promise.
    if unsafe { *path } as u8 == b'/' {
        // SAFETY: as above.
        let path = unsafe { kernel::bytes(path) };
        return path.starts_with(b"/proc/") || path.starts_with(b"/dev/fd/");
    }
    // SAFETY: zeroes are a valid statfs.
    let mut fs: libc::statfs = unsafe { core::mem::zeroed() };
    // SAFETY: `fs` is writable, and the path a C string.
    let known = unsafe {
        match dirfd {
            AT_FDCWD => kernel::call!(libc::SYS_statfs, c".".as_ptr(), &raw mut fs),
            _ => kernel::call!(libc::SYS_fstatfs, dirfd, &raw mut fs),
        }
    };
    known.is_ok() && fs.f_type == libc::PROC_SUPER_MAGIC
}

/// The text of a link that the kernel has read into `out`: of a link of `/proc` to an object of the buffer, its path there.
///
/// # Safety
/// As `readlinkat`, which has given `n`.
unsafe fn with_name(dirfd: c_int, path: Path, out: *mut c_char, room: usize, n: isize) -> isize {
    let Some(config) = config::get().filter(|_| n > 0) else {
        return n;
    };
    // SAFETY: the kernel has written so many bytes.
    let text = unsafe { core::slice::from_raw_parts(out.cast::<u8>(), n as usize) };
    let storage = config.storage();
    if storage.is_empty() || !text.starts_with(&storage[..storage.len().min(text.len())]) {
        return n;
    }
    // SAFETY: the kernel has taken the path.
    if !unsafe { is_of_proc(dirfd, path) } {
        return n;
    }
    let mut whole = [0u8; LONGEST_PLACE];
    // SAFETY: as above; `whole` is writable for its length.
    let read = unsafe {
        kernel::call!(
            libc::SYS_readlinkat,
            dirfd,
            path,
            whole.as_mut_ptr(),
            whole.len()
        )
    };
    let mut answer = Answer::new();
    match read {
        Ok(len) if len < whole.len() && name_of_place(&whole[..len], &mut answer, patiently) => {
            let name = answer.body();
            let (written, n) = (n as usize, name.len().min(room));
            // SAFETY: the caller promises `room` bytes, of which the kernel has written so many.
            unsafe {
                core::ptr::copy_nonoverlapping(name.as_ptr().cast(), out, n);
                // Programs that have cleared their memory take the rest for the end of the text.
                out.add(n).write_bytes(0, written.saturating_sub(n));
            }
            n as isize
        }
        _ => n,
    }
}

/// The same for what `realpath` has found.
///
/// # Safety
/// As `realpath`; `out` is its argument.
unsafe fn with_name_resolved(path: Path, out: *mut c_char, found: *mut c_char) -> *mut c_char {
    let Some(config) = config::get().filter(|_| !found.is_null()) else {
        return found;
    };
    // SAFETY: the path was taken, and what was found is a C string.
    let (path, at) = unsafe { (kernel::bytes(path), kernel::bytes(found)) };
    // Only a link of `/proc` leads into the storage, unless the path itself does.
    let is_asked_for = below(config.storage(), path).is_some();
    let mut answer = Answer::new();
    if is_asked_for || !name_of_place(at, &mut answer, patiently) {
        return found;
    }
    match give(answer.body(), out) {
        Ok(named) => {
            if out.is_null() {
                // SAFETY: libc has allocated it for the program, which gets the other one.
                unsafe { libc::free(found.cast()) };
            }
            named
        }
        Err(_) => found,
    }
}

/// The path of an object in the storage is not longer, unless that of the storage is.
const LONGEST_PLACE: usize = 1024;

hooks! {
    fn readlink [real] (path: Path, out: *mut c_char, room: usize) -> isize {
        let native = |d: c_int, p: Path| with_name(d, p, out, room, real(p, out, room));
        route(AT_FDCWD, path, native, |t, a| match is_alias(kernel::bytes(path)) {
            true => Ok(native(AT_FDCWD, path)),
            false => text(t, out, room, a),
        })
    }

    fn __readlink_chk [real] (path: Path, out: *mut c_char, room: usize, real_room: usize) -> isize {
        let native = |d: c_int, p: Path| with_name(d, p, out, room, real(p, out, room, real_room));
        route(AT_FDCWD, path, native, |t, a| text(t, out, room.min(real_room), a))
    }

    fn readlinkat [real] (dirfd: c_int, path: Path, out: *mut c_char, room: usize) -> isize {
        let native = |d: c_int, p: Path| with_name(d, p, out, room, real(d, p, out, room));
        route(dirfd, path, native, |t, a| match is_alias(kernel::bytes(path)) {
            true => Ok(native(dirfd, path)),
            false => text(t, out, room, a),
        })
    }

    fn __readlinkat_chk [real] (dirfd: c_int, path: Path, out: *mut c_char, room: usize, real_room: usize) -> isize {
        let native = |d: c_int, p: Path| with_name(d, p, out, room, real(d, p, out, room, real_room));
        route(dirfd, path, native, |t, a| text(t, out, room.min(real_room), a))
    }

    fn realpath [real] (path: Path, out: *mut c_char) -> *mut c_char {
        let native = |_: c_int, p: Path| with_name_resolved(p, out, real(p, out));
        route(AT_FDCWD, path, native, |t, a| resolved(t, out, a))
    }

    fn __realpath_chk [real] (path: Path, out: *mut c_char, room: usize) -> *mut c_char {
        let native = |_: c_int, p: Path| with_name_resolved(p, out, real(p, out, room));
        route(AT_FDCWD, path, native, |t, a| resolved(t, out, a))
    }

    fn canonicalize_file_name [real] (path: Path) -> *mut c_char {
        let native = |_: c_int, p: Path| with_name_resolved(p, null_mut(), real(p));
        route(AT_FDCWD, path, native, |t, a| resolved(t, null_mut(), a))
    }
}
