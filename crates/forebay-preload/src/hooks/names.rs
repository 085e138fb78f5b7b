//! Functions that make, remove and move names.

use core::ffi::{c_int, c_uint};

use forebay_hook::hooks;
use forebay_wire::{FOLLOW, MAX_PATH_BYTES, NOFOLLOW, Op, REMOVE_DIR};
use libc::{AT_EMPTY_PATH, AT_FDCWD, AT_REMOVEDIR, AT_SYMLINK_FOLLOW, S_IFIFO};

use super::{Path, identity, outcome};
use crate::locate::{LEAST_ADDRESS, Scratch, Target, failed, is_alias, locate, may_be_mine, route};
use crate::requests;
use crate::way::{End, Way};
use forebay_hook::kernel::{self, Errno, call};
use forebay_link::{Answer, Fail, ask_where_it_is};

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

/// A path of a function that takes two: where it starts, and its text.
type At = (c_int, Path);

/// Runs a function with two paths. If one is inside the buffer and the other outside, they are on two file systems
/// (`EXDEV`).
///
/// # Safety
/// Both paths are C strings or pointers that the kernel would refuse.
unsafe fn two_paths(
    op: Op,
    flags: u32,
    old: At,
    new: At,
    native: impl Fn(At, At) -> c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    let maybe = unsafe { (may_be_mine(old.0, old.1), may_be_mine(new.0, new.1)) };
    if maybe == (false, false) {
        return native(old, new);
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
    match both_inside(op, flags, old, new) {
        Ok(Asked::Done) => 0,
        Ok(Asked::Outside) => native(old, new),
        Ok(Asked::Apart) => across(op, flags, old, new, native),
        Err(e) => failed(e),
    }
}

/// What became of a request with two paths.
enum Asked {
    Done,
    /// Neither path comes near the buffer.
    Outside,
    /// One of them leads out of the buffer, or both do, or they are on two file systems of the PFS.
    Apart,
}

#[inline(never)]
fn both_inside(op: Op, flags: u32, old: At, new: At) -> Result<Asked, Errno> {
    let (mut room1, mut room2) = (Scratch::new(), Scratch::new());
    // SAFETY: the caller has checked that both are strings.
    let (old_path, new_path) = unsafe { (kernel::bytes(old.1), kernel::bytes(new.1)) };
    if old_path.len().max(new_path.len()) > MAX_PATH_BYTES {
        return Err(libc::ENAMETOOLONG);
    }
    let asked = ask_where_it_is(|| {
        let old = locate(old.0, old_path, &mut room1);
        let new = locate(new.0, new_path, &mut room2);
        let (old, new) = match (old, new) {
            (None, None) => return Ok(Asked::Outside),
            (Some(old), Some(new)) => (old, new),
            _ => return Ok(Asked::Apart),
        };
        let mut request = old.request(op);
        (request.base2, request.str2, request.arg0) = (new.base, new.rel, flags);
        let mut answer = Answer::new();
        requests::ask(old.config, &mut request, true, &mut answer).map(|()| Asked::Done)
    });
    match asked {
        Ok(asked) => Ok(asked),
        // The bridge does not say which of the paths leads out of the buffer (`ops::inside`).
        Err(Fail::Errno(libc::EXDEV) | Fail::Redirect) => Ok(Asked::Apart),
        Err(Fail::Errno(e)) => Err(e),
    }
}

/// Two paths of which one may lead out of the buffer again, or through it: both are followed, in the order of the kernel.
#[cold]
#[inline(never)]
fn across(op: Op, flags: u32, old: At, new: At, native: impl Fn(At, At) -> c_int) -> c_int {
    // SAFETY: the caller has checked that both are strings.
    let (mut old, mut new) = unsafe { (Way::new(old.0, old.1), Way::new(new.0, new.1)) };
    let end_of_old = match op {
        Op::Link if flags & FOLLOW != 0 => End::Object(0),
        Op::Link => End::Object(NOFOLLOW),
        _ => End::Name,
    };
    let inside = old
        .ends_in_buffer(end_of_old)
        .and_then(|old| Ok((old, new.ends_in_buffer(End::Name)?)));
    let asked = match inside {
        Ok((false, false)) => return native(old.now(), new.now()),
        // They led out of the buffer and into it again, so the bridge has not seen where they end.
        Ok((true, true)) if old.has_turned() || new.has_turned() => {
            both_inside(op, flags, old.now(), new.now())
        }
        Ok(_) => Err(libc::EXDEV),
        Err(e) => Err(e),
    };
    match asked {
        Ok(Asked::Done) => 0,
        // Somebody has moved a directory meanwhile.
        Ok(Asked::Outside | Asked::Apart) => failed(libc::EXDEV),
        Err(e) => failed(e),
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
        two_paths(Op::Rename, 0, (AT_FDCWD, old), (AT_FDCWD, new), |old, new| real(old.1, new.1))
    }

    fn renameat [real] (olddir: c_int, old: Path, newdir: c_int, new: Path) -> c_int {
        two_paths(Op::Rename, 0, (olddir, old), (newdir, new), |old, new| real(old.0, old.1, new.0, new.1))
    }

    fn renameat2 [real] (olddir: c_int, old: Path, newdir: c_int, new: Path, flags: c_uint) -> c_int {
        two_paths(Op::Rename, flags, (olddir, old), (newdir, new), |old, new| real(old.0, old.1, new.0, new.1, flags))
    }

    fn link [real] (old: Path, new: Path) -> c_int {
        two_paths(Op::Link, 0, (AT_FDCWD, old), (AT_FDCWD, new), |old, new| real(old.1, new.1))
    }

    fn linkat [real] (olddir: c_int, old: Path, newdir: c_int, new: Path, flags: c_int) -> c_int {
        if flags & !(AT_SYMLINK_FOLLOW | AT_EMPTY_PATH) != 0 {
            return failed(libc::EINVAL);
        }
        let follow = if flags & AT_SYMLINK_FOLLOW != 0 { FOLLOW } else { 0 };
        two_paths(Op::Link, follow, (olddir, old), (newdir, new), |old, new| real(old.0, old.1, new.0, new.1, flags))
    }

    fn symlink [real] (text: Path, path: Path) -> c_int {
        route(AT_FDCWD, path, |_, p| real(text, p), |t, a| symlink_in(t, text, a))
    }

    fn symlinkat [real] (text: Path, dirfd: c_int, path: Path) -> c_int {
        route(dirfd, path, |d, p| real(text, d, p), |t, a| symlink_in(t, text, a))
    }
}
