//! Calls by which a program begins another one, ends, or forbids itself system calls.

use core::ffi::{c_char, c_int, c_long, c_void};

use forebay_count::ENV_RECORD_DIR;
use forebay_count::event::Extra;
use forebay_count::read::End;
use forebay_hook::kernel::{self, FdPath};
use forebay_hook::program::{self, Found};
use forebay_hook::{environment, exec_list_function, hooks};
use libc::{AT_FDCWD, pid_t};

use super::Path;
use crate::clock::use_coarse_clock;
use crate::end::{note, note_if_begun};
use crate::state;

/// A list of strings.
type Strings = *const *const c_char;

hooks! {
    fn execve [real] (path: Path, args: Strings, env: Strings) -> c_int {
        replaced(|| is_unreached(AT_FDCWD, path, env), || real(path, args, env))
    }

    fn execvpe [real] (file: Path, args: Strings, env: Strings) -> c_int {
        replaced(|| is_found_unreached(file, env), || real(file, args, env))
    }

    fn execv [real] (path: Path, args: Strings) -> c_int {
        replaced(|| is_unreached(AT_FDCWD, path, environment::block()), || real(path, args))
    }

    fn execvp [real] (file: Path, args: Strings) -> c_int {
        replaced(|| is_found_unreached(file, environment::block()), || real(file, args))
    }

    fn fexecve [real] (fd: c_int, args: Strings, env: Strings) -> c_int {
        replaced(|| is_unreached(AT_FDCWD, FdPath::new(fd).as_ptr(), env), || real(fd, args, env))
    }

    fn execveat [real] (dirfd: c_int, path: Path, args: Strings, env: Strings, flags: c_int) -> c_int {
        let is_unreached = || {
            let by_fd = flags & libc::AT_EMPTY_PATH != 0
                && !path.is_null()
                && kernel::bytes(path).is_empty();
            let of_fd = FdPath::new(dirfd);
            is_unreached(dirfd, if by_fd { of_fd.as_ptr() } else { path }, env)
        };
        replaced(is_unreached, || real(dirfd, path, args, env, flags))
    }

    fn posix_spawn [real]
        (pid: *mut pid_t, path: Path, actions: *const c_void, attr: *const c_void, args: Strings, env: Strings) -> c_int
    {
        let result = real(pid, path, actions, attr, args, env);
        spawned(result, || is_unreached(AT_FDCWD, path, env));
        result
    }

    fn posix_spawnp [real]
        (pid: *mut pid_t, file: Path, actions: *const c_void, attr: *const c_void, args: Strings, env: Strings) -> c_int
    {
        let result = real(pid, file, actions, attr, args, env);
        spawned(result, || is_found_unreached(file, env));
        result
    }

    fn _exit | _Exit [real] (code: c_int) -> ! {
        note_if_begun(End::Exit(code & 0xff));
        real(code)
    }

    fn quick_exit [real] (code: c_int) -> ! {
        note_if_begun(End::Exit(code & 0xff));
        real(code)
    }

    fn abort [real] () -> ! {
        note_if_begun(End::Abort);
        real()
    }

    fn clone [real]
        (
            start: *mut c_void, stack: *mut c_void, flags: c_int, arg: *mut c_void,
            parent_tid: *mut c_void, tls: *mut c_void, child_tid: *mut c_void,
        ) -> c_int
    {
        if flags & libc::CLONE_VM != 0 && flags & libc::CLONE_THREAD == 0 {
            state::expect_borrowers();
        }
        real(start, stack, flags, arg, parent_tid, tls, child_tid)
    }

    fn prctl [real] (option: c_int, a: usize, b: usize, c: usize, d: usize) -> c_int {
        match option {
            libc::PR_SET_SECCOMP => shut_in(a == libc::SECCOMP_MODE_STRICT as usize),
            libc::PR_SET_TSC => use_coarse_clock(),
            _ => {}
        }
        real(option, a, b, c, d)
    }

    fn syscall [real] (nr: c_long, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> c_long {
        if nr == libc::SYS_seccomp {
            shut_in(a == libc::SECCOMP_SET_MODE_STRICT as usize);
        }
        real(nr, a, b, c, d, e, f)
    }
}

exec_list_function!(execl, with_list);
exec_list_function!(execlp, search_with_list);
exec_list_function!(execle, with_list_and_environment);

unsafe extern "C" fn with_list(path: Path, list: Strings) -> c_int {
    // SAFETY: as execl's caller promises.
    unsafe { execv::hook(path, list) }
}

unsafe extern "C" fn search_with_list(file: Path, list: Strings) -> c_int {
    // SAFETY: as execlp's caller promises.
    unsafe { execvp::hook(file, list) }
}

unsafe extern "C" fn with_list_and_environment(path: Path, list: Strings) -> c_int {
    // SAFETY: as execle's caller promises: the environment comes after the NULL.
    unsafe {
        let end = environment::entries(list).count();
        execve::hook(path, list, (*list.add(end + 1)).cast())
    }
}

/// Prepares for a program that is about to forbid itself system calls. In the strict mode it loses the processor's
/// counter, too.
fn shut_in(strictly: bool) {
    state::restrict();
    if strictly {
        use_coarse_clock();
    }
}

/// Notes an exec. If the call does not return, the next program has a table of its own, unless the recorder is not loaded into it.
/// A process that counts in its parent's table notes that there.
fn replaced(is_unreached: impl FnOnce() -> bool, call: impl FnOnce() -> c_int) -> c_int {
    if state::is_new_child() || state::is_borrowed() {
        let unreached = !state::is_restricted() && is_unreached();
        if unreached {
            state::in_parents_table(|table| table.add_extra(Extra::Unreached, 0, 0));
        }
        let result = call();
        if unreached {
            state::in_parents_table(|table| table.take_back(Extra::Unreached));
        }
        return result;
    }
    if state::has_begun() {
        note(End::Exec);
    }
    let result = call();
    if state::has_begun() {
        note(End::Unsaid);
    }
    result
}

/// Notes a program that was started, if the recorder is not loaded into it.
fn spawned(result: c_int, is_unreached: impl FnOnce() -> bool) {
    if result != 0 || state::is_restricted() {
        return;
    }
    if let Some(recording) = state::recording()
        && is_unreached()
    {
        recording.table.add_extra(Extra::Unreached, 0, 0);
    }
}

/// Does a program start without the recorder: because of what it is, or because of its environment?
///
/// # Safety
/// As [`program::look`]; `env` is an environment block.
unsafe fn is_unreached(dirfd: c_int, path: Path, env: Strings) -> bool {
    // SAFETY: the caller's promise.
    unsafe { starts_without(program::look(dirfd, path, None), env) }
}

/// The same of a program that is searched.
///
/// # Safety
/// As [`program::search`]; `env` is an environment block.
unsafe fn is_found_unreached(file: Path, env: Strings) -> bool {
    let mut found = Found::NoProgram;
    // SAFETY: the caller's promise; what is searched are C strings.
    unsafe {
        program::search(file, |path| {
            found = program::look(AT_FDCWD, path, None);
            found != Found::NoProgram
        });
        starts_without(found, env)
    }
}

/// # Safety
/// `env` is an environment block.
unsafe fn starts_without(found: Found, env: Strings) -> bool {
    // SAFETY: the caller's promise.
    let value =
        |name| unsafe { environment::entries(env) }.find_map(|e| environment::value(e, name));
    match found {
        Found::NoProgram => false,
        Found::Past(_) => true,
        Found::Reached => {
            let libraries = value(b"LD_PRELOAD").unwrap_or_default();
            environment::find_library(libraries, b"libforebay_record").is_none()
                || value(ENV_RECORD_DIR.as_bytes()).is_none()
        }
    }
}

/// `vfork` of libc, redefined. It returns twice on the same stack, so no frame may stand between.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfork() {
    core::arch::naked_asm!(
        "mov byte ptr [rip + {borrowed}], 1",
        "jmp qword ptr [rip + __vfork@GOTPCREL]",
        borrowed = sym state::MAY_BE_BORROWED
    );
}
