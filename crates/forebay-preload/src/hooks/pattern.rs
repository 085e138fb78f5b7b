//! `glob`: libc's function, made to use the directory functions of this library instead of its internal ones.

use core::ffi::{c_char, c_int, c_void};

use forebay_hook::hooks;

use super::{Path, directory, stat};
use crate::config;

/// The flag that makes `glob` use the functions in the result structure.
const GLOB_ALTDIRFUNC: c_int = 1 << 9;

type OnError = Option<unsafe extern "C" fn(*const c_char, c_int) -> c_int>;

/// `glob_t`.
#[repr(C)]
struct Found {
    _count: usize,
    _paths: *mut *mut c_char,
    _reserved: usize,
    flags: c_int,
    closedir: Option<unsafe extern "C" fn(*mut c_void)>,
    readdir: unsafe extern "C" fn(*mut libc::DIR) -> *mut libc::dirent64,
    opendir: unsafe extern "C" fn(Path) -> *mut libc::DIR,
    lstat: unsafe extern "C" fn(Path, *mut libc::stat) -> c_int,
    stat: unsafe extern "C" fn(Path, *mut libc::stat) -> c_int,
}

unsafe extern "C" fn close(dir: *mut c_void) {
    // SAFETY: glob closes what it opened.
    unsafe { directory::closedir(dir.cast()) };
}

hooks! {
    fn glob | glob64 [real] (pattern: Path, flags: c_int, on_error: OnError, out: *mut c_void) -> c_int {
        if config::get().is_none() || flags & GLOB_ALTDIRFUNC != 0 {
            return real(pattern, flags, on_error, out);
        }
        let found = out.cast::<Found>();
        (*found).closedir = Some(close);
        (*found).readdir = directory::readdir;
        (*found).opendir = directory::opendir;
        (*found).lstat = stat::lstat;
        (*found).stat = stat::stat;
        let result = real(pattern, flags | GLOB_ALTDIRFUNC, on_error, out);
        (*found).flags &= !GLOB_ALTDIRFUNC;
        result
    }
}
