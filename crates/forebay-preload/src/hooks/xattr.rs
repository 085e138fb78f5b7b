//! Extended attributes. Programs do not see those of the bridge (`user.forebay.*`, `trusted.forebay.*`).

use core::ffi::{c_char, c_int, c_void};

use forebay_hook::hooks;
use forebay_wire::{NOFOLLOW, is_own_attribute};
use libc::AT_FDCWD;

use super::{Path, on_object};
use crate::locate::failed;
use forebay_hook::kernel;

/// Longest list of names in bytes (`XATTR_LIST_MAX`).
const LIST_BYTES: usize = 65536;
/// Size of the first buffer, which is enough for most lists.
const LIST_ON_STACK: usize = 1024;

/// # Safety
/// `name` is a C string or a pointer that the kernel would refuse.
unsafe fn is_hidden(name: Path) -> bool {
    // SAFETY: the caller's promise.
    name as isize >= crate::locate::LEAST_ADDRESS
        && is_own_attribute(unsafe { kernel::bytes(name) })
}

/// Removes the hidden names from a list. Returns its new length.
fn without_hidden(list: &mut [u8]) -> usize {
    let (mut from, mut to) = (0, 0);
    while let Some(len) = list[from..].iter().position(|&b| b == 0) {
        let end = from + len + 1;
        if !is_own_attribute(&list[from..end]) {
            list.copy_within(from..end, to);
            to += end - from;
        }
        from = end;
    }
    to
}

/// Runs a listing function and removes the hidden names from its result.
///
/// # Safety
/// `out` is writable for `room` bytes.
unsafe fn list(out: *mut c_char, room: usize, list: impl Fn(*mut c_char, usize) -> isize) -> isize {
    let mut small = [0u8; LIST_ON_STACK];
    let n = list(small.as_mut_ptr().cast(), small.len());
    if n >= 0 {
        return give(&mut small[..n as usize], out, room);
    }
    if kernel::errno() != libc::ERANGE {
        return n;
    }
    let large = kernel::map(LIST_BYTES);
    if large.is_null() {
        return failed(libc::ENOMEM);
    }
    let n = list(large.cast(), LIST_BYTES);
    let result = if n < 0 {
        n
    } else {
        // SAFETY: the mapping has LIST_BYTES, of which `n` were written.
        give(
            unsafe { core::slice::from_raw_parts_mut(large, n as usize) },
            out,
            room,
        )
    };
    // SAFETY: the last use was above.
    unsafe { kernel::unmap(large, LIST_BYTES) };
    result
}

fn give(list: &mut [u8], out: *mut c_char, room: usize) -> isize {
    let n = without_hidden(list);
    if room == 0 {
        return n as isize;
    }
    if n > room {
        return failed(libc::ERANGE);
    }
    // SAFETY: the caller of the listing function promises `room` bytes.
    unsafe { core::ptr::copy_nonoverlapping(list.as_ptr().cast(), out, n) };
    n as isize
}

hooks! {
    fn getxattr [real] (path: Path, name: Path, value: *mut c_void, size: usize) -> isize {
        let act = |_, p| if is_hidden(name) { failed(libc::ENODATA) } else { real(p, name, value, size) };
        on_object(AT_FDCWD, path, 0, |_, p| real(p, name, value, size), act)
    }

    fn lgetxattr [real] (path: Path, name: Path, value: *mut c_void, size: usize) -> isize {
        let act = |_, p| if is_hidden(name) { failed(libc::ENODATA) } else { getxattr::real()(p, name, value, size) };
        on_object(AT_FDCWD, path, NOFOLLOW, |_, p| real(p, name, value, size), act)
    }

    fn fgetxattr [real] (fd: c_int, name: Path, value: *mut c_void, size: usize) -> isize {
        if is_hidden(name) { failed(libc::ENODATA) } else { real(fd, name, value, size) }
    }

    fn setxattr [real] (path: Path, name: Path, value: *const c_void, size: usize, flags: c_int) -> c_int {
        let act = |_, p| if is_hidden(name) { failed(libc::EPERM) } else { real(p, name, value, size, flags) };
        on_object(AT_FDCWD, path, 0, |_, p| real(p, name, value, size, flags), act)
    }

    fn lsetxattr [real] (path: Path, name: Path, value: *const c_void, size: usize, flags: c_int) -> c_int {
        let act = |_, p| if is_hidden(name) { failed(libc::EPERM) } else { setxattr::real()(p, name, value, size, flags) };
        on_object(AT_FDCWD, path, NOFOLLOW, |_, p| real(p, name, value, size, flags), act)
    }

    fn fsetxattr [real] (fd: c_int, name: Path, value: *const c_void, size: usize, flags: c_int) -> c_int {
        if is_hidden(name) { failed(libc::EPERM) } else { real(fd, name, value, size, flags) }
    }

    fn removexattr [real] (path: Path, name: Path) -> c_int {
        let act = |_, p| if is_hidden(name) { failed(libc::ENODATA) } else { real(p, name) };
        on_object(AT_FDCWD, path, 0, |_, p| real(p, name), act)
    }

    fn lremovexattr [real] (path: Path, name: Path) -> c_int {
        let act = |_, p| if is_hidden(name) { failed(libc::ENODATA) } else { removexattr::real()(p, name) };
        on_object(AT_FDCWD, path, NOFOLLOW, |_, p| real(p, name), act)
    }

    fn fremovexattr [real] (fd: c_int, name: Path) -> c_int {
        if is_hidden(name) { failed(libc::ENODATA) } else { real(fd, name) }
    }

    fn listxattr [real] (path: Path, out: *mut c_char, room: usize) -> isize {
        on_object(AT_FDCWD, path, 0, |_, p| real(p, out, room), |_, p| list(out, room, |o, r| real(p, o, r)))
    }

    fn llistxattr [real] (path: Path, out: *mut c_char, room: usize) -> isize {
        let inner = listxattr::real();
        on_object(AT_FDCWD, path, NOFOLLOW, |_, p| real(p, out, room), |_, p| list(out, room, |o, r| inner(p, o, r)))
    }

    fn flistxattr [real] (fd: c_int, out: *mut c_char, room: usize) -> isize {
        if crate::config::get().is_none() {
            return real(fd, out, room);
        }
        list(out, room, |o, r| real(fd, o, r))
    }
}
