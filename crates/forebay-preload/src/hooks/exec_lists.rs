//! `execl` and its relatives, whose arguments are the argument list of the program.

use core::ffi::c_int;

use libc::AT_FDCWD;

use super::Path;
use super::exec::{exec_at, search};
use super::inheritance::Strings;
use forebay_hook::{environment, exec_list_function};

unsafe extern "C" fn with_list(path: Path, list: Strings) -> c_int {
    // SAFETY: as execl's caller promises.
    unsafe { exec_at(AT_FDCWD, path, list, environment::block(), 0, 0) }
}

unsafe extern "C" fn search_with_list(file: Path, list: Strings) -> c_int {
    // SAFETY: as execlp's caller promises.
    unsafe { search(file, list, environment::block(), true) }
}

unsafe extern "C" fn with_list_and_environment(path: Path, list: Strings) -> c_int {
    // SAFETY: as execle's caller promises: the environment comes after the NULL.
    unsafe {
        let end = environment::entries(list).count();
        exec_at(AT_FDCWD, path, list, (*list.add(end + 1)).cast(), 0, 0)
    }
}

exec_list_function!(execl, with_list);
exec_list_function!(execlp, search_with_list);
exec_list_function!(execle, with_list_and_environment);
