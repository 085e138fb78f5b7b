//! Functions that make up a new name: the `mkstemp` family.

use core::ffi::{c_char, c_int};
use core::ptr::null_mut;

use forebay_hook::hooks;
use forebay_wire::{MAX_PATH_BYTES, NOFOLLOW, Op};
use libc::{AT_FDCWD, O_CREAT, O_EXCL, O_RDWR};

use super::{Path, open, stat};
use crate::locate::{Outcome, Target, failed, forget_fd, may_be_mine, route};
use crate::requests;
use forebay_hook::environment;
use forebay_hook::kernel;
use forebay_link::{Answer, Fail};

/// The part of a template that is replaced by a random name.
const PATTERN: &[u8; 6] = b"XXXXXX";
const LETTERS: &[u8; 62] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
/// How many names are tried before the call fails with EEXIST.
const TRIES: u32 = 1000;

fn made_up() -> [u8; 6] {
    let mut random = kernel::random();
    [(); 6].map(|()| {
        let letter = LETTERS[(random % LETTERS.len() as u64) as usize];
        random /= LETTERS.len() as u64;
        letter
    })
}

/// Place of the pattern in a template with a suffix of `suffix` bytes.
fn pattern_at(template: &[u8], suffix: c_int) -> Option<usize> {
    let end = template.len().checked_sub(usize::try_from(suffix).ok()?)?;
    let at = end.checked_sub(PATTERN.len())?;
    (&template[at..end] == PATTERN).then_some(at)
}

/// Puts random names into `template` until `make` does not fail with EEXIST.
///
/// # Safety
/// `template` is a writable C string or a pointer that the kernel would refuse.
unsafe fn with_new_name<R: Outcome>(
    template: *mut c_char,
    suffix: c_int,
    native: impl Fn(*mut c_char) -> R,
    make: impl Fn(&Target<'_>, &mut Answer) -> Result<R, Fail>,
) -> R {
    // SAFETY: the caller's promise; a redirected path lies in an answer, which is writable.
    unsafe {
        let native = |_: c_int, path: Path| {
            let path = path.cast_mut();
            if path == template {
                return native(template);
            }
            // If the bridge redirects, the random name lies in the path of its answer.
            let place = |p: *mut c_char| {
                let end = kernel::bytes(p).len() - suffix.max(0) as usize;
                p.add(end - PATTERN.len())
            };
            let (theirs, ours) = (place(path), place(template));
            core::ptr::copy_nonoverlapping(PATTERN.as_ptr().cast(), theirs, PATTERN.len());
            let result = native(path);
            core::ptr::copy_nonoverlapping(theirs, ours, PATTERN.len());
            result
        };
        route(AT_FDCWD, template, native, |target, answer| {
            let at = pattern_at(kernel::bytes(template), suffix).ok_or(libc::EINVAL)?;
            let from_end = kernel::bytes(template).len() - at;
            let len = target.rel.len();
            let place = len.checked_sub(from_end).ok_or(libc::EINVAL)?;
            if len > MAX_PATH_BYTES {
                return Err(libc::ENAMETOOLONG.into());
            }
            let mut rel = [0u8; MAX_PATH_BYTES];
            rel[..len].copy_from_slice(target.rel);
            for _ in 0..TRIES {
                let name = made_up();
                rel[place..place + name.len()].copy_from_slice(&name);
                let tried = Target {
                    rel: &rel[..len],
                    ..*target
                };
                match make(&tried, answer) {
                    Err(Fail::Errno(libc::EEXIST)) => {}
                    Ok(result) => {
                        core::ptr::copy_nonoverlapping(
                            name.as_ptr().cast(),
                            template.add(at),
                            name.len(),
                        );
                        return Ok(result);
                    }
                    other => return other,
                }
            }
            Err(libc::EEXIST.into())
        })
    }
}

/// # Safety
/// As [`with_new_name`].
unsafe fn new_file(
    template: *mut c_char,
    suffix: c_int,
    flags: c_int,
    native: impl Fn(*mut c_char) -> c_int,
) -> c_int {
    let flags = flags & !libc::O_ACCMODE | O_RDWR | O_CREAT | O_EXCL;
    // SAFETY: the caller's promise.
    let fd = unsafe {
        with_new_name(template, suffix, native, |t, a| {
            Ok(open::grant(t, flags, 0o600, a)?.into_raw())
        })
    };
    forget_fd(fd);
    fd
}

/// Succeeds if no object has the name.
fn vacant(target: &Target<'_>, answer: &mut Answer) -> Result<(), Fail> {
    match requests::stat(target, NOFOLLOW, answer) {
        Err(Fail::Errno(libc::ENOENT)) => Ok(()),
        Ok(_) => Err(libc::EEXIST.into()),
        Err(other) => Err(other),
    }
}

/// Returns `path` if it is a directory that `tempnam` can use.
///
/// # Safety
/// `path` is null or a C string.
unsafe fn usable(path: Path) -> Option<Path> {
    // SAFETY: zeroes are a valid stat.
    let mut attr: libc::stat = unsafe { core::mem::zeroed() };
    // SAFETY: the caller's promise.
    let is_dir = !path.is_null()
        && unsafe { stat::stat(path, &raw mut attr) } == 0
        && attr.st_mode & libc::S_IFMT == libc::S_IFDIR;
    is_dir.then_some(path)
}

hooks! {
    fn mkstemp | mkstemp64 [real] (template: *mut c_char) -> c_int {
        new_file(template, 0, 0, |t| real(t))
    }

    fn mkostemp | mkostemp64 [real] (template: *mut c_char, flags: c_int) -> c_int {
        new_file(template, 0, flags, |t| real(t, flags))
    }

    fn mkstemps | mkstemps64 [real] (template: *mut c_char, suffix: c_int) -> c_int {
        new_file(template, suffix, 0, |t| real(t, suffix))
    }

    fn mkostemps | mkostemps64 [real] (template: *mut c_char, suffix: c_int, flags: c_int) -> c_int {
        new_file(template, suffix, flags, |t| real(t, suffix, flags))
    }

    fn mkdtemp [real] (template: *mut c_char) -> *mut c_char {
        let made = with_new_name(template, 0, |t| real(t), |target, answer| {
            let mut request = target.request(Op::Mkdir);
            request.arg1 = 0o700;
            requests::ask(target.config, &mut request, true, answer)?;
            Ok(template)
        });
        if made.is_null() { null_mut() } else { template }
    }

    fn mktemp [real] (template: *mut c_char) -> *mut c_char {
        let made = with_new_name(template, 0, |t| real(t), |target, answer| {
            vacant(target, answer)?;
            Ok(template)
        });
        if made.is_null() || *made == 0 {
            *template = 0;
        }
        template
    }

    fn tempnam [real] (dir: Path, prefix: Path) -> *mut c_char {
        let variable = environment::variable(b"TMPDIR").map(|v| v.as_ptr().cast());
        let mine = |p: Path| !p.is_null() && may_be_mine(AT_FDCWD, p);
        if !mine(dir) && !variable.is_some_and(mine) {
            return real(dir, prefix);
        }
        let Some(dir) = variable.and_then(|v| usable(v)).or_else(|| usable(dir)) else {
            return real(core::ptr::null(), prefix);
        };
        let dir = kernel::bytes(dir);
        let prefix = if prefix.is_null() { &b"file"[..] } else { kernel::bytes(prefix) };
        let prefix = &prefix[..prefix.len().min(5)];
        let name = libc::malloc(dir.len() + prefix.len() + PATTERN.len() + 2).cast::<c_char>();
        if name.is_null() {
            return failed(libc::ENOMEM);
        }
        let mut at = 0;
        for part in [dir, b"/", prefix, PATTERN, b"\0"] {
            core::ptr::copy_nonoverlapping(part.as_ptr().cast(), name.add(at), part.len());
            at += part.len();
        }
        if *mktemp(name) == 0 {
            libc::free(name.cast());
            return null_mut();
        }
        name
    }
}
