//! `posix_spawn`. libc's function carries out the file actions in the child with its internal `open` and `chdir`, which
//! no hook sees. So if an action or the program may lie in the buffer, the child is made here, by the same rules.
//!
//! The child shares the memory of its parent, and the parent waits until the child runs the new program. So the code
//! in the child does only what a child of `vfork` may do.

use core::ffi::{c_int, c_short, c_uint, c_void};

use forebay_hook::hooks;
use libc::{AT_FDCWD, pid_t, sigset_t};

use super::inheritance::{self, Strings};
use super::{Path, bypass, exec, open, working_directory};
use crate::config;
use crate::locate::may_be_mine;
use forebay_hook::environment;
use forebay_hook::kernel::{self, Errno, call};

const STACK_BYTES: usize = 512 * 1024;
const SIGNALS: usize = 64;
/// Size of the kernel's signal set.
const SET_BYTES: usize = 8;

const RESET_IDS: c_short = 0x01;
const SET_GROUP: c_short = 0x02;
const SET_DEFAULT: c_short = 0x04;
const SET_MASK: c_short = 0x08;
const SET_PARAM: c_short = 0x10;
const SET_SCHEDULER: c_short = 0x20;
const SET_SESSION: c_short = 0x80;

/// `posix_spawn_file_actions_t` of glibc, and its elements.
#[repr(C)]
struct FileActions {
    _allocated: c_int,
    used: c_int,
    actions: *const Action,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Action {
    tag: c_int,
    what: What,
}

#[repr(C)]
#[derive(Clone, Copy)]
union What {
    fd: c_int,
    dup2: [c_int; 2],
    open: OpenAction,
    path: Path,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct OpenAction {
    fd: c_int,
    path: Path,
    flags: c_int,
    mode: c_uint,
}

const CLOSE: c_int = 0;
const DUP2: c_int = 1;
const OPEN: c_int = 2;
const CHDIR: c_int = 3;
const FCHDIR: c_int = 4;
const CLOSE_FROM: c_int = 5;
const SET_FOREGROUND: c_int = 6;

unsafe extern "C" {
    fn posix_spawnattr_getflags(attr: *const c_void, out: *mut c_short) -> c_int;
    fn posix_spawnattr_getpgroup(attr: *const c_void, out: *mut pid_t) -> c_int;
    fn posix_spawnattr_getsigdefault(attr: *const c_void, out: *mut sigset_t) -> c_int;
    fn posix_spawnattr_getsigmask(attr: *const c_void, out: *mut sigset_t) -> c_int;
    fn posix_spawnattr_getschedpolicy(attr: *const c_void, out: *mut c_int) -> c_int;
    fn posix_spawnattr_getschedparam(attr: *const c_void, out: *mut c_int) -> c_int;
    fn clone(
        f: extern "C" fn(*mut c_void) -> c_int,
        stack: *mut c_void,
        flags: c_int,
        arg: *mut c_void,
        ...
    ) -> c_int;
}

/// What the child gets from its parent, and what it leaves for it.
struct Child {
    search: bool,
    file: Path,
    actions: *const FileActions,
    attr: *const c_void,
    argv: Strings,
    envp: Strings,
    /// Signal mask of the parent.
    mask: u64,
    error: Errno,
}

/// # Safety
/// `actions` is null or a list that glibc made.
unsafe fn each<'a>(actions: *const FileActions) -> &'a [Action] {
    // SAFETY: the caller's promise.
    unsafe {
        match actions.as_ref() {
            Some(list) if list.used > 0 => {
                core::slice::from_raw_parts(list.actions, list.used as usize)
            }
            _ => &[],
        }
    }
}

/// May one of the paths lie in the buffer?
///
/// # Safety
/// As `posix_spawn`.
unsafe fn concerns_us(search: bool, file: Path, actions: *const FileActions) -> bool {
    // SAFETY: the caller's promise; the tag says which part of the union is there.
    unsafe {
        let by_path = !search || kernel::bytes(file).contains(&b'/');
        let program = if by_path {
            may_be_mine(AT_FDCWD, file)
        } else {
            search_path_enters()
        };
        program
            || each(actions).iter().any(|action| match action.tag {
                OPEN => may_be_mine(AT_FDCWD, action.what.open.path),
                CHDIR => may_be_mine(AT_FDCWD, action.what.path),
                FCHDIR => !crate::locate::is_far(action.what.fd),
                _ => false,
            })
    }
}

/// Has PATH a directory that may lie in the buffer?
fn search_path_enters() -> bool {
    let Some(list) = environment::variable(b"PATH") else {
        return false;
    };
    list.split(|&b| b == b':').any(|dir| {
        let mut path = [0u8; 512];
        let len = dir.len().min(path.len() - 2);
        path[..len].copy_from_slice(&dir[..len]);
        if len == 0 {
            path[0] = b'.';
        }
        // SAFETY: a C string.
        unsafe { may_be_mine(AT_FDCWD, path.as_ptr().cast()) }
    })
}

/// # Safety
/// As `posix_spawn`.
unsafe fn spawn(pid: *mut pid_t, child: &mut Child) -> c_int {
    let stack = kernel::map(STACK_BYTES);
    if stack.is_null() {
        return libc::ENOMEM;
    }
    let all = u64::MAX;
    // SAFETY: the masks are readable and writable. Only the child uses the stack, and CLONE_VFORK makes the parent wait
    // until the child has left it.
    unsafe {
        let _ = call!(
            libc::SYS_rt_sigprocmask,
            libc::SIG_BLOCK,
            &raw const all,
            &raw mut child.mask,
            SET_BYTES
        );
        let mask = child.mask;
        let error = kernel::errno();
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        let made = clone(
            in_child,
            stack.add(STACK_BYTES).cast(),
            flags,
            core::ptr::from_mut(child).cast(),
        );
        let why = kernel::errno();
        kernel::set_errno(error);
        let result = match (made, child.error) {
            (-1, _) => why,
            (_, 0) => {
                if !pid.is_null() {
                    *pid = made;
                }
                0
            }
            (_, e) => {
                while call!(libc::SYS_wait4, made, 0, 0, 0) == Err(libc::EINTR) {}
                e
            }
        };
        let _ = call!(
            libc::SYS_rt_sigprocmask,
            libc::SIG_SETMASK,
            &raw const mask,
            0,
            SET_BYTES
        );
        kernel::unmap(stack, STACK_BYTES);
        result
    }
}

extern "C" fn in_child(arg: *mut c_void) -> c_int {
    // SAFETY: the parent waits and keeps `child` alive.
    let child = unsafe { &mut *arg.cast::<Child>() };
    // SAFETY: as posix_spawn's caller promises.
    let failure = unsafe { prepare(child) }.err();
    let error = failure.unwrap_or_else(|| {
        // SAFETY: as above.
        unsafe {
            if child.search {
                exec::search(child.file, child.argv, child.envp, false);
            } else {
                exec::exec_at(AT_FDCWD, child.file, child.argv, child.envp, 0, 0);
            }
        }
        kernel::errno()
    });
    child.error = if error == 0 { libc::ECHILD } else { error };
    // SAFETY: ends this process alone.
    let _ = unsafe { call!(libc::SYS_exit_group, 127) };
    127
}

/// The kernel's `struct sigaction`.
#[repr(C)]
struct SignalAction {
    handler: usize,
    flags: usize,
    restorer: usize,
    mask: u64,
}

/// # Safety
/// As `posix_spawn`; in the child.
unsafe fn prepare(child: &Child) -> Result<(), Errno> {
    // SAFETY: the caller's promise; all places are writable.
    unsafe {
        let mut flags = 0;
        let (mut mask, mut default) = (child.mask, 0u64);
        if !child.attr.is_null() {
            posix_spawnattr_getflags(child.attr, &raw mut flags);
        }
        let has = |flag: c_short| flags & flag != 0;
        if has(SET_DEFAULT) {
            default = signal_set(|out| posix_spawnattr_getsigdefault(child.attr, out));
        }
        if has(SET_MASK) {
            mask = signal_set(|out| posix_spawnattr_getsigmask(child.attr, out));
        }
        reset_handlers(default);
        let (mut policy, mut param) = (0, 0);
        if has(SET_PARAM | SET_SCHEDULER) {
            posix_spawnattr_getschedparam(child.attr, &raw mut param);
            if has(SET_SCHEDULER) {
                posix_spawnattr_getschedpolicy(child.attr, &raw mut policy);
                call!(libc::SYS_sched_setscheduler, 0, policy, &raw const param)?;
            } else {
                call!(libc::SYS_sched_setparam, 0, &raw const param)?;
            }
        }
        if has(SET_SESSION) {
            call!(libc::SYS_setsid)?;
        }
        if has(SET_GROUP) {
            let mut group = 0;
            posix_spawnattr_getpgroup(child.attr, &raw mut group);
            call!(libc::SYS_setpgid, 0, group)?;
        }
        if has(RESET_IDS) {
            let keep = c_uint::MAX;
            call!(libc::SYS_setresuid, keep, call!(libc::SYS_getuid)?, keep)?;
            call!(libc::SYS_setresgid, keep, call!(libc::SYS_getgid)?, keep)?;
        }
        for action in each(child.actions) {
            carry_out(action)?;
        }
        call!(
            libc::SYS_rt_sigprocmask,
            libc::SIG_SETMASK,
            &raw const mask,
            0,
            SET_BYTES
        )?;
        Ok(())
    }
}

/// The kernel's part of a signal set.
fn signal_set(get: impl FnOnce(*mut sigset_t) -> c_int) -> u64 {
    // SAFETY: zeroes are a valid set; it begins with the kernel's part.
    unsafe {
        let mut set: sigset_t = core::mem::zeroed();
        get(&raw mut set);
        *(&raw const set).cast()
    }
}

/// Handlers of the parent must not run in the child: signals that have one get their default action.
///
/// # Safety
/// In the child, with all signals blocked.
unsafe fn reset_handlers(default: u64) {
    for signal in 1..=SIGNALS {
        let mut action = SignalAction {
            handler: 0,
            flags: 0,
            restorer: 0,
            mask: 0,
        };
        // SAFETY: `action` is readable and writable; the child has its own table of handlers.
        unsafe {
            let _ = call!(
                libc::SYS_rt_sigaction,
                signal,
                0,
                &raw mut action,
                SET_BYTES
            );
            let handled = action.handler != libc::SIG_DFL && action.handler != libc::SIG_IGN;
            if handled || default & 1 << (signal - 1) != 0 {
                action = SignalAction {
                    handler: libc::SIG_DFL,
                    flags: 0,
                    restorer: 0,
                    mask: 0,
                };
                let _ = call!(
                    libc::SYS_rt_sigaction,
                    signal,
                    &raw const action,
                    0,
                    SET_BYTES
                );
            }
        }
    }
}

/// # Safety
/// As `posix_spawn`; in the child.
unsafe fn carry_out(action: &Action) -> Result<(), Errno> {
    let check = |result: c_int| {
        if result < 0 {
            Err(kernel::errno())
        } else {
            Ok(result)
        }
    };
    // SAFETY: the caller's promise; the tag says which part of the union is there.
    unsafe {
        match action.tag {
            CLOSE => match call!(libc::SYS_close, action.what.fd) {
                // Closing what is not open is no error.
                Ok(_) | Err(libc::EBADF) => Ok(()),
                Err(e) => Err(e),
            },
            DUP2 => {
                let [from, to] = action.what.dup2;
                if from == to {
                    let flags = kernel::fcntl(from, libc::F_GETFD, 0)?;
                    kernel::fcntl(from, libc::F_SETFD, (flags & !libc::FD_CLOEXEC) as usize)
                        .map(|_| ())
                } else {
                    kernel::dup3(from, to, 0).map(|_| ())
                }
            }
            OPEN => {
                let OpenAction {
                    fd,
                    path,
                    flags,
                    mode,
                } = action.what.open;
                let _ = call!(libc::SYS_close, fd);
                let opened = check(open::open(path, flags, mode))?;
                if opened != fd {
                    kernel::dup3(opened, fd, flags & libc::O_CLOEXEC)?;
                    kernel::close(opened);
                }
                Ok(())
            }
            CHDIR => check(working_directory::chdir(action.what.path)).map(|_| ()),
            FCHDIR => check(working_directory::fchdir(action.what.fd)).map(|_| ()),
            CLOSE_FROM => call!(libc::SYS_close_range, action.what.fd, c_uint::MAX, 0).map(|_| ()),
            SET_FOREGROUND => {
                let group = call!(libc::SYS_getpgid, 0)? as pid_t;
                call!(
                    libc::SYS_ioctl,
                    action.what.fd,
                    libc::TIOCSPGRP,
                    &raw const group
                )
                .map(|_| ())
            }
            _ => Err(libc::ENOTSUP),
        }
    }
}

hooks! {
    fn posix_spawn [real] (pid: *mut pid_t, path: Path, actions: *const c_void, attr: *const c_void, argv: Strings, envp: Strings) -> c_int {
        let actions = actions.cast::<FileActions>();
        inheritance::with(envp, |envp| {
            if !concerns_us(false, path, actions) {
                if config::get().is_some() {
                    bypass::look(AT_FDCWD, path, argv);
                }
                return real(pid, path, actions.cast(), attr, argv, envp);
            }
            spawn(pid, &mut Child { search: false, file: path, actions, attr, argv, envp, mask: 0, error: 0 })
        })
    }

    fn posix_spawnp [real] (pid: *mut pid_t, file: Path, actions: *const c_void, attr: *const c_void, argv: Strings, envp: Strings) -> c_int {
        let actions = actions.cast::<FileActions>();
        inheritance::with(envp, |envp| {
            if !concerns_us(true, file, actions) {
                if config::get().is_some() {
                    bypass::search(file, argv);
                }
                return real(pid, file, actions.cast(), attr, argv, envp);
            }
            spawn(pid, &mut Child { search: true, file, actions, attr, argv, envp, mask: 0, error: 0 })
        })
    }
}
