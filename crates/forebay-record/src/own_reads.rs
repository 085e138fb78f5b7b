//! Reads small files of the kernel, and counts what it reads. The kernel takes it for the program's, so the figures of
//! /proc/self/io are corrected by it.

use core::ffi::CStr;
use core::sync::atomic::{AtomicU64, Ordering};

use forebay_hook::kernel::{call, close, openat};

/// Bytes and calls of [`read_file`], which the kernel counts although the program did not read them.
static OWN_READS: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// Bytes and calls that the recorder itself has read.
pub fn totals() -> [u64; 2] {
    [0, 1].map(|i| OWN_READS[i].load(Ordering::Relaxed))
}

/// Forgets them in a new process, because the kernel counts it from zero.
pub fn forget() {
    OWN_READS.iter().for_each(|n| n.store(0, Ordering::Relaxed));
}

/// Reads a small file of the kernel, as much of it as `out` has room for.
pub fn read_file<'o>(path: &CStr, out: &'o mut [u8]) -> Option<&'o [u8]> {
    // SAFETY: a C string.
    let fd = unsafe {
        openat(
            libc::AT_FDCWD,
            path.as_ptr(),
            libc::O_RDONLY | libc::O_CLOEXEC,
            0,
        )
    }
    .ok()?;
    let mut len = 0;
    while len < out.len() {
        let rest = &mut out[len..];
        // SAFETY: `rest` is writable for its length.
        let got = unsafe { call!(libc::SYS_read, fd, rest.as_mut_ptr(), rest.len()) };
        OWN_READS[1].fetch_add(1, Ordering::Relaxed);
        match got {
            Ok(0) | Err(_) => break,
            Ok(n) => {
                len += n;
                // A file of the kernel gives all it has at once.
                if len < out.len() {
                    break;
                }
            }
        }
    }
    OWN_READS[0].fetch_add(len as u64, Ordering::Relaxed);
    close(fd);
    out.get(..len)
}
