//! Calls by which a program begins another one, ends, or forbids itself system calls.

use core::ffi::{c_char, c_int, c_long, c_void};

use forebay_count::read::End;
use forebay_hook::hooks;

use super::Path;
use crate::clock::use_coarse_clock;
use crate::end::{note, note_if_begun};
use crate::state;

/// A list of strings.
type Strings = *const *const c_char;

hooks! {
    fn execve [real] (path: Path, args: Strings, env: Strings) -> c_int {
        replaced(|| real(path, args, env))
    }

    fn execvpe [real] (file: Path, args: Strings, env: Strings) -> c_int {
        replaced(|| real(file, args, env))
    }

    fn execv | execvp [real] (path: Path, args: Strings) -> c_int {
        replaced(|| real(path, args))
    }

    fn fexecve [real] (fd: c_int, args: Strings, env: Strings) -> c_int {
        replaced(|| real(fd, args, env))
    }

    fn execveat [real] (dirfd: c_int, path: Path, args: Strings, env: Strings, flags: c_int) -> c_int {
        replaced(|| real(dirfd, path, args, env, flags))
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

/// Prepares for a program that is about to forbid itself system calls. In the strict mode it loses the processor's
/// counter, too.
fn shut_in(strictly: bool) {
    state::restrict();
    if strictly {
        use_coarse_clock();
    }
}

/// Notes an exec. If the call does not return, the next program has a table of its own.
fn replaced(call: impl FnOnce() -> c_int) -> c_int {
    if state::has_begun() {
        note(End::Exec);
    }
    let result = call();
    if state::has_begun() {
        note(End::Unsaid);
    }
    result
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
