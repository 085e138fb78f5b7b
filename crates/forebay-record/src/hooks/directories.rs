//! Calls that read directories, counted per process.

use core::ffi::{c_int, c_void};

use forebay_count::event::Extra;
use forebay_hook::hooks;
use libc::DIR;

use super::Path;
use crate::count::extra;
use crate::fds;
use crate::state::{self, recording};

hooks! {
    fn opendir [real] (path: Path) -> *mut DIR {
        extra(Extra::Opendir, || real(path))
    }

    fn fdopendir [real] (fd: c_int) -> *mut DIR {
        extra(Extra::Opendir, || real(fd))
    }

    fn closedir [real] (dir: *mut DIR) -> c_int {
        // libc will close the descriptor without a hook.
        if !dir.is_null() {
            forget(libc::dirfd(dir));
        }
        real(dir)
    }

    fn readdir | readdir64 [real] (dir: *mut DIR) -> *mut c_void {
        extra(Extra::Readdir, || real(dir))
    }

    fn readdir_r | readdir64_r [real] (dir: *mut DIR, entry: *mut c_void, out: *mut *mut c_void) -> c_int {
        extra(Extra::Readdir, || real(dir, entry, out))
    }

    fn scandir | scandir64 [real]
        (path: Path, list: *mut c_void, filter: *const c_void, order: *const c_void) -> c_int
    {
        extra(Extra::Readdir, || real(path, list, filter, order))
    }

    fn scandirat | scandirat64 [real]
        (dirfd: c_int, path: Path, list: *mut c_void, filter: *const c_void, order: *const c_void) -> c_int
    {
        extra(Extra::Readdir, || real(dirfd, path, list, filter, order))
    }
}

/// Forgets a descriptor that is about to be closed where no hook sees it.
pub fn forget(fd: c_int) {
    if let Some(entry) = fds::known(fd)
        && let Some(recording) = recording()
        && !state::is_borrowed()
    {
        entry.take().let_go(&recording.table);
    }
}
