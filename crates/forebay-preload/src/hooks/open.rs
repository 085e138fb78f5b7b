//! `open` and `creat`, and the streams of stdio.

use core::ffi::{c_int, c_uint};
use core::ptr::null_mut;

use forebay_hook::{Real, hooks, stdio_mode};
use forebay_wire::{GRANT_REOPEN, Op};
use libc::{AT_FDCWD, FILE, O_CLOEXEC, O_CREAT, O_EXCL, O_NOFOLLOW, O_TRUNC, O_WRONLY};

use super::{Path, durability, identity};
use crate::locate::{Target, failed, forget_fd, route};
use crate::requests;
use forebay_hook::kernel::{self, FdPath, OwnFd};
use forebay_link::{Answer, Fail};

/// Opens the target and returns a descriptor with the access that `flags` ask for.
pub fn grant(
    target: &Target<'_>,
    flags: c_int,
    mode: c_uint,
    answer: &mut Answer,
) -> Result<OwnFd, Fail> {
    let mut request = target.request(Op::Open);
    request.arg0 = flags as u32;
    if flags & O_CREAT != 0 {
        request.arg1 = mode & 0o7777 & !identity::umask_of_caller();
    }
    requests::ask(target.config, &mut request, flags & O_CLOEXEC != 0, answer)?;
    let fd = answer.take_fd()?;
    durability::of_opened(target.config, flags)?;
    if answer.aux() & GRANT_REOPEN == 0 {
        return Ok(fd);
    }
    let flags = flags & !(O_CREAT | O_EXCL | O_NOFOLLOW);
    // SAFETY: a C string.
    let opened = unsafe { kernel::openat(AT_FDCWD, FdPath::new(fd.0).as_ptr(), flags, 0) }?;
    Ok(OwnFd(opened))
}

/// # Safety
/// `path` as for `open`.
#[inline(always)]
pub unsafe fn open_at(
    dirfd: c_int,
    path: Path,
    flags: c_int,
    mode: c_uint,
    native: impl Fn(c_int, Path) -> c_int,
) -> c_int {
    let ours = |t: &Target<'_>, a: &mut Answer| Ok(grant(t, flags, mode, a)?.into_raw());
    // SAFETY: the caller's promise.
    let fd = unsafe { route(dirfd, path, native, ours) };
    // The program may have closed this number by a bare system call, so cached facts about it may be wrong.
    forget_fd(fd);
    fd
}

hooks! {
    fn open | open64 | __open | __open64 [real] (path: Path, flags: c_int, mode: c_uint) -> c_int {
        open_at(AT_FDCWD, path, flags, mode, |_, p| real(p, flags, mode))
    }

    fn openat | openat64 [real] (dirfd: c_int, path: Path, flags: c_int, mode: c_uint) -> c_int {
        open_at(dirfd, path, flags, mode, |d, p| real(d, p, flags, mode))
    }

    fn __open_2 | __open64_2 [real] (path: Path, flags: c_int) -> c_int {
        open_at(AT_FDCWD, path, flags, 0, |_, p| real(p, flags))
    }

    fn __openat_2 | __openat64_2 [real] (dirfd: c_int, path: Path, flags: c_int) -> c_int {
        open_at(dirfd, path, flags, 0, |d, p| real(d, p, flags))
    }

    fn creat | creat64 [real] (path: Path, mode: c_uint) -> c_int {
        open_at(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode, |_, p| real(p, mode))
    }

    fn fopen | fopen64 [real] (path: Path, mode: Path) -> *mut FILE {
        route(AT_FDCWD, path, |_, p| real(p, mode), |target, answer| {
            let letters = kernel::bytes(mode);
            let flags = stdio_mode::open_flags(letters).ok_or(libc::EINVAL)?;
            let fd = grant(target, flags, 0o666, answer)?;
            if letters.contains(&b',') {
                // Only libc's fopen can set up a character set (`,ccs=`). So it opens /dev/null, which the granted
                // file then replaces.
                let mut plain = [0; 32];
                let plain = stdio_mode::reopen_mode(letters, &mut plain);
                let stream = real(c"/dev/null".as_ptr(), plain.as_ptr().cast());
                return Ok(put_under(stream, fd, flags));
            }
            // The descriptor has O_APPEND already, so `fdopen` does not.
            seek_as_fopen(fd.0, flags);
            let stream = next_fdopen(fd.0, mode);
            if !stream.is_null() {
                forget_fd(fd.into_raw());
            }
            Ok(stream)
        })
    }

    fn freopen | freopen64 [real] (path: Path, mode: Path, stream: *mut FILE) -> *mut FILE {
        route(AT_FDCWD, path, |_, p| real(p, mode, stream), |target, answer| {
            let letters = kernel::bytes(mode);
            let opened = match stdio_mode::open_flags(letters) {
                Some(flags) => grant(target, flags, 0o666, answer).map(|fd| (fd, flags)),
                None => Err(Fail::Errno(libc::EINVAL)),
            };
            match opened {
                Ok((fd, flags)) => {
                    let mut plain = [0; 32];
                    let plain = stdio_mode::reopen_mode(letters, &mut plain);
                    let stream = real(c"/dev/null".as_ptr(), plain.as_ptr().cast(), stream);
                    Ok(put_under(stream, fd, flags))
                }
                Err(Fail::Errno(e)) => {
                    // A failed freopen closes the stream, too.
                    real(c"".as_ptr(), mode, stream);
                    Ok(failed(e))
                }
                Err(redirect) => Err(redirect),
            }
        })
    }
}

/// Declares a function of libc that this library itself calls: the next definition in the chain. A recorder stands
/// before this library, and would count a plain call as one of the program.
macro_rules! next {
    ($($name:ident = $symbol:literal ($($arg:ident : $ty:ty),*) -> $ret:ty;)*) => { $(
        unsafe fn $name($($arg: $ty),*) -> $ret {
            static NEXT: Real = Real::new($symbol);
            // SAFETY: libc's function has this type; the caller keeps to its contract.
            unsafe {
                let next: unsafe extern "C" fn($($ty),*) -> $ret = core::mem::transmute(NEXT.get());
                next($($arg),*)
            }
        }
    )* };
}

next! {
    next_fdopen = c"fdopen" (fd: c_int, mode: Path) -> *mut FILE;
    next_fileno = c"fileno" (stream: *mut FILE) -> c_int;
    next_fclose = c"fclose" (stream: *mut FILE) -> c_int;
}

/// Replaces the file under an open `stream` by a granted one.
fn put_under(stream: *mut FILE, fd: OwnFd, flags: c_int) -> *mut FILE {
    if stream.is_null() {
        return stream;
    }
    // SAFETY: `stream` is open.
    let number = unsafe { next_fileno(stream) };
    forget_fd(number);
    if let Err(e) = kernel::dup3(fd.0, number, flags & O_CLOEXEC) {
        // SAFETY: as above.
        unsafe { next_fclose(stream) };
        kernel::set_errno(e);
        return null_mut();
    }
    seek_as_fopen(number, flags);
    stream
}

/// Sets the position to the end where `fopen` does: with O_APPEND, if nothing is read.
fn seek_as_fopen(fd: c_int, flags: c_int) {
    if flags & libc::O_APPEND != 0 && flags & libc::O_ACCMODE == O_WRONLY {
        // SAFETY: plain integers.
        let _ = unsafe { kernel::call!(libc::SYS_lseek, fd, 0, libc::SEEK_END) };
    }
}
