//! Makes names of records from paths as the program writes them.

use core::ffi::{c_char, c_int};
use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use forebay_count::path::{MAX_NAME_BYTES, clean};
use forebay_hook::Real;
use forebay_hook::path::{Glance, glance};
use libc::AT_FDCWD;

use crate::fds;
use crate::state::{self, Recording};
use forebay_hook::kernel;

/// Pointers below this are no strings; the kernel answers `EFAULT` to them.
const LEAST_ADDRESS: usize = 4096;

/// Calls `act` with the name of the record that a path stands for. `None` if it stands for none.
///
/// # Safety
/// `path` is a C string or a pointer that the kernel would refuse.
pub unsafe fn with_name<R>(
    recording: &Recording,
    dirfd: c_int,
    path: *const c_char,
    act: impl FnOnce(&[u8]) -> R,
) -> Option<R> {
    if (path as usize) < LEAST_ADDRESS {
        return None;
    }
    // SAFETY: the caller's promise.
    let path = unsafe { kernel::bytes(path) };
    match path.first()? {
        b'/' => with_absolute(path, act),
        _ => with_relative(recording, dirfd, path, act),
    }
}

/// [`with_name`] of an absolute path.
pub fn with_absolute<R>(path: &[u8], act: impl FnOnce(&[u8]) -> R) -> Option<R> {
    if path.len() <= MAX_NAME_BYTES && glance(path, b"\0", b"") != Glance::Unclear {
        return Some(act(path));
    }
    let mut room = [0; MAX_NAME_BYTES];
    clean(b"", path, &mut room).map(act)
}

#[inline(never)]
fn with_relative<R>(
    recording: &Recording,
    dirfd: c_int,
    path: &[u8],
    act: impl FnOnce(&[u8]) -> R,
) -> Option<R> {
    let mut base = [0; MAX_NAME_BYTES];
    let base = match dirfd {
        AT_FDCWD => working_directory(&mut base)?,
        fd => fds::name(recording, fd, &mut base)?,
    };
    let mut room = [0; MAX_NAME_BYTES];
    clean(base, path, &mut room).map(act)
}

// ---- working directory ----

/// Counts the changes of the working directory.
static VERSION: AtomicU64 = AtomicU64::new(0);
/// The version of which [`COPY`] is the working directory, plus one.
static COPY_OF: AtomicU64 = AtomicU64::new(0);
static COPY_LEN: AtomicU64 = AtomicU64::new(0);
static COPY: [AtomicU8; COPY_BYTES] = [const { AtomicU8::new(0) }; COPY_BYTES];
const COPY_BYTES: usize = 512;
static GETCWD: Real = Real::new(c"getcwd");

/// Forgets the copy. Called after `chdir` and its kin.
pub fn directory_changed() {
    VERSION.fetch_add(1, Ordering::AcqRel);
}

/// The working directory as the program knows it. It is asked of libc's function, because the buffer's library may
/// stand behind it.
fn working_directory(out: &mut [u8; MAX_NAME_BYTES]) -> Option<&[u8]> {
    let version = VERSION.load(Ordering::Acquire);
    let borrowed = state::is_borrowed();
    if !borrowed && COPY_OF.load(Ordering::Acquire) == version + 1 {
        let len = COPY_LEN.load(Ordering::Relaxed) as usize;
        for (to, from) in out.iter_mut().zip(&COPY[..len.min(COPY_BYTES)]) {
            *to = from.load(Ordering::Relaxed);
        }
        if COPY_OF.load(Ordering::Acquire) == version + 1 {
            return out.get(..len);
        }
    }
    if state::is_restricted() {
        return None;
    }
    let errno = kernel::errno();
    // SAFETY: `getcwd` has this type; `out` is writable for its length.
    let found = unsafe {
        let getcwd: unsafe extern "C" fn(*mut c_char, usize) -> *mut c_char =
            core::mem::transmute(GETCWD.get());
        !getcwd(out.as_mut_ptr().cast(), out.len()).is_null()
    };
    kernel::set_errno(errno);
    let len = out.iter().position(|&b| b == 0)?;
    if !found || out[0] != b'/' {
        return None;
    }
    if !borrowed && len <= COPY_BYTES {
        COPY_OF.store(0, Ordering::Release);
        for (to, from) in COPY.iter().zip(&out[..len]) {
            to.store(*from, Ordering::Relaxed);
        }
        COPY_LEN.store(len as u64, Ordering::Relaxed);
        if VERSION.load(Ordering::Acquire) == version {
            COPY_OF.store(version + 1, Ordering::Release);
        }
    }
    Some(&out[..len])
}
