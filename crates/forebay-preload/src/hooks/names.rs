//! Functions that make, remove and move names.

use core::ffi::{c_int, c_uint};

use forebay_hook::hooks;
use forebay_wire::{FOLLOW, MAX_PATH_BYTES, Op, REMOVE_DIR, START_MOVED};
use libc::{AT_EMPTY_PATH, AT_FDCWD, AT_REMOVEDIR, AT_SYMLINK_FOLLOW, S_IFIFO};

use super::{Path, identity, outcome};
use crate::locate::{
    LEAST_ADDRESS, Looks, Scratch, Target, failed, found_nothing, is_alias, locate, may_be_mine,
    route,
};
use crate::requests;
use forebay_hook::kernel::{self, call};
use forebay_link::{Answer, Fail};

fn mkdir_in(target: &Target<'_>, mode: c_uint, answer: &mut Answer) -> Result<c_int, Fail> {
    let mut request = target.request(Op::Mkdir);
    request.arg1 = mode & 0o7777 & !identity::umask_of_caller();
    requests::ask(target.config, &mut request, true, answer)?;
    Ok(0)
}

fn mknod_in(
    target: &Target<'_>,
    mode: c_uint,
    device: u64,
    answer: &mut Answer,
) -> Result<c_int, Fail> {
    let mut request = target.request(Op::Mknod);
    request.arg1 = mode & (libc::S_IFMT | 0o7777 & !identity::umask_of_caller());
    request.arg2 = device;
    requests::ask(target.config, &mut request, true, answer)?;
    Ok(0)
}

fn unlink_in(target: &Target<'_>, flags: u32, answer: &mut Answer) -> Result<c_int, Fail> {
    let mut request = target.request(Op::Unlink);
    request.arg0 = flags;
    requests::ask(target.config, &mut request, true, answer)?;
    Ok(0)
}

fn symlink_in(target: &Target<'_>, text: Path, answer: &mut Answer) -> Result<c_int, Fail> {
    if (text as isize) < LEAST_ADDRESS {
        return Err(libc::EFAULT.into());
    }
    let mut request = target.request(Op::Symlink);
    // SAFETY: the caller of symlink promises a C string.
    request.str2 = unsafe { kernel::bytes(text) };
    if request.str2.len() > MAX_PATH_BYTES {
        return Err(libc::ENAMETOOLONG.into());
    }
    requests::ask(target.config, &mut request, true, answer)?;
    Ok(0)
}

/// Runs a function with two paths. If one is inside the buffer and the other outside, they are on two file systems
/// (`EXDEV`).
///
/// # Safety
/// Both paths are C strings or pointers that the kernel would refuse.
unsafe fn two_paths(
    op: Op,
    flags: u32,
    old: (c_int, Path),
    new: (c_int, Path),
    native: impl Fn() -> c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    let maybe = unsafe { (may_be_mine(old.0, old.1), may_be_mine(new.0, new.1)) };
    if maybe == (false, false) {
        return native();
    }
    for (_, path) in [old, new] {
        if (path as isize) < LEAST_ADDRESS {
            return failed(libc::EFAULT);
        }
        // SAFETY: as above.
        if unsafe { *path } == 0 {
            return failed(libc::ENOENT);
        }
    }
    two_paths_slow(op, flags, old, new, native)
}

#[inline(never)]
fn two_paths_slow(
    op: Op,
    flags: u32,
    old: (c_int, Path),
    new: (c_int, Path),
    native: impl Fn() -> c_int,
) -> c_int {
    let (mut room1, mut room2) = (Scratch::new(), Scratch::new());
    // SAFETY: the caller has checked that both are strings.
    let (old_path, new_path) = unsafe { (kernel::bytes(old.1), kernel::bytes(new.1)) };
    if old_path.len().max(new_path.len()) > MAX_PATH_BYTES {
        return failed(libc::ENAMETOOLONG);
    }
    let mut looks = Looks::default();
    let asked = loop {
        let old = locate(old.0, old_path, &mut room1);
        let new = locate(new.0, new_path, &mut room2);
        let (old, new) = match (old, new) {
            (None, None) => return native(),
            (Some(old), Some(new)) => (old, new),
            _ => return failed(libc::EXDEV),
        };
        let mut request = old.request(op);
        (request.base2, request.str2, request.arg0) = (new.base, new.rel, flags);
        let mut answer = Answer::new();
        match requests::ask(old.config, &mut request, true, &mut answer) {
            Err(Fail::Errno(START_MOVED)) if looks.again() => {}
            asked => break asked.map_err(found_nothing),
        }
    };
    match asked {
        Ok(()) => 0,
        Err(Fail::Errno(e)) => failed(e),
        // Never for two paths: the bridge answers EXDEV itself (`ops::inside`).
        Err(Fail::Redirect) => failed(libc::EXDEV),
    }
}

hooks! {
    fn mkdir [real] (path: Path, mode: c_uint) -> c_int {
        route(AT_FDCWD, path, |_, p| real(p, mode), |t, a| mkdir_in(t, mode, a))
    }

    fn mkdirat [real] (dirfd: c_int, path: Path, mode: c_uint) -> c_int {
        route(dirfd, path, |d, p| real(d, p, mode), |t, a| mkdir_in(t, mode, a))
    }

    fn mknod [real] (path: Path, mode: c_uint, device: u64) -> c_int {
        route(AT_FDCWD, path, |_, p| real(p, mode, device), |t, a| mknod_in(t, mode, device, a))
    }

    fn mknodat [real] (dirfd: c_int, path: Path, mode: c_uint, device: u64) -> c_int {
        route(dirfd, path, |d, p| real(d, p, mode, device), |t, a| mknod_in(t, mode, device, a))
    }

    fn __xmknod [_real] (_version: c_int, path: Path, mode: c_uint, device: *const u64) -> c_int {
        let device = *device;
        route(AT_FDCWD, path, |d, p| outcome(call!(libc::SYS_mknodat, d, p, mode, device)), |t, a| mknod_in(t, mode, device, a))
    }

    fn __xmknodat [_real] (_version: c_int, dirfd: c_int, path: Path, mode: c_uint, device: *const u64) -> c_int {
        let device = *device;
        route(dirfd, path, |d, p| outcome(call!(libc::SYS_mknodat, d, p, mode, device)), |t, a| mknod_in(t, mode, device, a))
    }

    fn mkfifo [real] (path: Path, mode: c_uint) -> c_int {
        route(AT_FDCWD, path, |_, p| real(p, mode), |t, a| mknod_in(t, S_IFIFO | mode & 0o7777, 0, a))
    }

    fn mkfifoat [real] (dirfd: c_int, path: Path, mode: c_uint) -> c_int {
        route(dirfd, path, |d, p| real(d, p, mode), |t, a| mknod_in(t, S_IFIFO | mode & 0o7777, 0, a))
    }

    fn unlink [real] (path: Path) -> c_int {
        let native = |_: c_int, p: Path| real(p);
        route(AT_FDCWD, path, native, |t, a| match is_alias(kernel::bytes(path)) {
            true => Ok(native(AT_FDCWD, path)),
            false => unlink_in(t, 0, a),
        })
    }

    fn unlinkat [real] (dirfd: c_int, path: Path, flags: c_int) -> c_int {
        let native = |d: c_int, p: Path| real(d, p, flags);
        route(dirfd, path, native, |t, a| match flags {
            _ if is_alias(kernel::bytes(path)) => Ok(native(dirfd, path)),
            0 => unlink_in(t, 0, a),
            AT_REMOVEDIR => unlink_in(t, REMOVE_DIR, a),
            _ => Err(libc::EINVAL.into()),
        })
    }

    fn rmdir [real] (path: Path) -> c_int {
        route(AT_FDCWD, path, |_, p| real(p), |t, a| unlink_in(t, REMOVE_DIR, a))
    }

    fn remove [real] (path: Path) -> c_int {
        route(AT_FDCWD, path, |_, p| real(p), |t, a| match unlink_in(t, 0, a) {
            Err(Fail::Errno(libc::EISDIR)) => unlink_in(t, REMOVE_DIR, a),
            other => other,
        })
    }

    fn rename [real] (old: Path, new: Path) -> c_int {
        two_paths(Op::Rename, 0, (AT_FDCWD, old), (AT_FDCWD, new), || real(old, new))
    }

    fn renameat [real] (olddir: c_int, old: Path, newdir: c_int, new: Path) -> c_int {
        two_paths(Op::Rename, 0, (olddir, old), (newdir, new), || real(olddir, old, newdir, new))
    }

    fn renameat2 [real] (olddir: c_int, old: Path, newdir: c_int, new: Path, flags: c_uint) -> c_int {
        two_paths(Op::Rename, flags, (olddir, old), (newdir, new), || real(olddir, old, newdir, new, flags))
    }

    fn link [real] (old: Path, new: Path) -> c_int {
        two_paths(Op::Link, 0, (AT_FDCWD, old), (AT_FDCWD, new), || real(old, new))
    }

    fn linkat [real] (olddir: c_int, old: Path, newdir: c_int, new: Path, flags: c_int) -> c_int {
        if flags & !(AT_SYMLINK_FOLLOW | AT_EMPTY_PATH) != 0 {
            return failed(libc::EINVAL);
        }
        let follow = if flags & AT_SYMLINK_FOLLOW != 0 { FOLLOW } else { 0 };
        two_paths(Op::Link, follow, (olddir, old), (newdir, new), || real(olddir, old, newdir, new, flags))
    }

    fn symlink [real] (text: Path, path: Path) -> c_int {
        route(AT_FDCWD, path, |_, p| real(text, p), |t, a| symlink_in(t, text, a))
    }

    fn symlinkat [real] (text: Path, dirfd: c_int, path: Path) -> c_int {
        route(dirfd, path, |d, p| real(text, d, p), |t, a| symlink_in(t, text, a))
    }
}
