//! The `exec` functions. They run programs and `#!` scripts in the buffer, and keep the buffer in the environment.

use core::ffi::{c_char, c_int};

use forebay_hook::hooks;
use forebay_hook::shebang::{self, HEAD_BYTES, Head, MAX_DEPTH, Shebang};
use forebay_wire::{MAX_PATH_BYTES, Op};
use libc::{AT_EMPTY_PATH, AT_FDCWD};

use super::inheritance::{self, Pointers, Strings};
use super::{Path, bypass, outcome};
use crate::config;
use crate::locate::{Target, failed, route};
use crate::requests;
use forebay_hook::environment;
use forebay_hook::kernel::{self, Errno, FdPath, OwnFd, call};
use forebay_link::{Answer, Fail};

/// How often to try a program again that was just written, and the pause between two tries. The bridge may not have
/// closed its own descriptor yet, and a file that is open for writing cannot be executed.
const BUSY_TRIES: u32 = 20;
const BUSY_PAUSE_NS: u64 = 1_000_000;

/// The search path if PATH is not set.
const DEFAULT_PATH: &[u8] = b"/bin:/usr/bin";
const SHELL: Path = c"/bin/sh".as_ptr();

/// `execveat`, by which all functions of the family run a program.
///
/// # Safety
/// As `execveat`.
pub unsafe fn exec_at(
    dirfd: c_int,
    path: Path,
    argv: Strings,
    envp: Strings,
    flags: c_int,
    depth: usize,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        inheritance::with(envp, |envp| {
            let native = |d: c_int, p: Path| {
                bypass::look(d, p, argv);
                match (d, flags) {
                    (AT_FDCWD, 0) => execve::real()(p, argv, envp),
                    // Older libc has no function for it.
                    _ => outcome(call!(libc::SYS_execveat, d, p, argv, envp, flags)),
                }
            };
            route(dirfd, path, native, |target, answer| {
                run(target, (dirfd, path), argv, envp, depth, answer)
            })
        })
    }
}

/// # Safety
/// `path`, `argv` and `envp` as for `execve`.
unsafe fn run(
    target: &Target<'_>,
    (dirfd, path): (c_int, Path),
    argv: Strings,
    envp: Strings,
    depth: usize,
    answer: &mut Answer,
) -> Result<c_int, Fail> {
    let fd = requests::resolve(target, 0, answer)?;
    let mut head = [0; HEAD_BYTES];
    let n = read_head(&fd, &mut head);
    // SAFETY: the caller's promise.
    unsafe {
        match shebang::parse(&head[..n]) {
            Head::Binary => {
                bypass::look_at(fd.0, path, argv);
                Ok(binary(&fd, argv, envp))
            }
            Head::Broken => Err(libc::ENOEXEC.into()),
            Head::Script(_) if depth >= MAX_DEPTH => Err(libc::ELOOP.into()),
            Head::Script(line) => {
                check_executable(&fd)?;
                drop(fd);
                if dirfd == AT_FDCWD || *path == b'/' as c_char {
                    return Ok(script(&line, path, argv, envp, depth));
                }
                // The interpreter opens the script itself, so it needs a path that does not depend on a descriptor.
                requests::ask(
                    target.config,
                    &mut target.request(Op::Realpath),
                    true,
                    answer,
                )?;
                Ok(script(&line, answer.path(), argv, envp, depth))
            }
        }
    }
}

/// Reads the first bytes of the file. Returns 0 if the file can't be read: a binary may be executable only.
fn read_head(fd: &OwnFd, head: &mut [u8]) -> usize {
    // To open something that is not a regular file might block.
    if !super::is_kind(fd.0, libc::S_IFREG) {
        return 0;
    }
    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    // SAFETY: a C string.
    match unsafe { kernel::openat(AT_FDCWD, FdPath::new(fd.0).as_ptr(), flags, 0) } {
        Ok(open) => kernel::pread(OwnFd(open).0, head, 0).unwrap_or(0),
        Err(_) => 0,
    }
}

fn check_executable(fd: &OwnFd) -> Result<(), Errno> {
    let at = FdPath::new(fd.0);
    // SAFETY: a C string.
    unsafe {
        match call!(
            libc::SYS_faccessat2,
            AT_FDCWD,
            at.as_ptr(),
            libc::X_OK,
            libc::AT_EACCESS
        ) {
            Err(libc::ENOSYS) => call!(libc::SYS_faccessat, AT_FDCWD, at.as_ptr(), libc::X_OK),
            other => other,
        }
    }
    .map(|_| ())
}

/// # Safety
/// `argv` and `envp` as for `execve`.
unsafe fn binary(fd: &OwnFd, argv: Strings, envp: Strings) -> c_int {
    for _ in 0..BUSY_TRIES {
        // SAFETY: the caller's promise.
        let e = unsafe {
            call!(
                libc::SYS_execveat,
                fd.0,
                c"".as_ptr(),
                argv,
                envp,
                AT_EMPTY_PATH
            )
        };
        match e {
            Err(libc::ETXTBSY) => kernel::sleep_ns(BUSY_PAUSE_NS),
            Err(e) => return failed(e),
            Ok(_) => break,
        }
    }
    failed(libc::ETXTBSY)
}

/// # Safety
/// `path`, `argv` and `envp` as for `execve`.
unsafe fn script(
    line: &Shebang<'_>,
    path: Path,
    argv: Strings,
    envp: Strings,
    depth: usize,
) -> c_int {
    let (mut interpreter, mut argument) = ([0u8; HEAD_BYTES + 1], [0u8; HEAD_BYTES + 1]);
    interpreter[..line.interpreter.len()].copy_from_slice(line.interpreter);
    let interpreter: Path = interpreter.as_ptr().cast();
    let optional = line.argument.unwrap_or_default();
    argument[..optional.len()].copy_from_slice(optional);
    let front = [interpreter, argument.as_ptr().cast(), path];
    // SAFETY: the caller's promise; all strings live until the call returns.
    unsafe {
        let without = [interpreter, path];
        let front: &[Path] = if line.argument.is_some() {
            &front
        } else {
            &without
        };
        with_front(front, argv, |argv| {
            exec_at(AT_FDCWD, interpreter, argv, envp, 0, depth + 1)
        })
    }
}

/// Runs `act` with an argument list in which `front` replaces the first argument.
///
/// # Safety
/// `argv` as for `execve`.
unsafe fn with_front(front: &[Path], argv: Strings, act: impl FnOnce(Strings) -> c_int) -> c_int {
    // SAFETY: the caller's promise.
    let count = unsafe { environment::entries(argv) }.count();
    let Some(mut list) = Pointers::with_room(front.len() + count + 1) else {
        return failed(libc::E2BIG);
    };
    for &s in front {
        list.push(s);
    }
    for i in 1..count {
        // SAFETY: within the list.
        list.push(unsafe { *argv.add(i) });
    }
    act(list.terminated())
}

/// `execvpe`: searches PATH. With `shell`, `/bin/sh` runs a file whose format the kernel does not know.
///
/// # Safety
/// As `execvpe`.
pub unsafe fn search(file: Path, argv: Strings, envp: Strings, shell: bool) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        let name = kernel::bytes(file);
        if name.is_empty() {
            return failed(libc::ENOENT);
        }
        if name.contains(&b'/') {
            return exec_or_shell(file, argv, envp, shell);
        }
        if name.len() > forebay_wire::MAX_NAME_BYTES {
            return failed(libc::ENAMETOOLONG);
        }
        let list = environment::variable(b"PATH").unwrap_or(DEFAULT_PATH);
        let mut worst = libc::ENOENT;
        for dir in list.split(|&b| b == b':') {
            let mut candidate = [0u8; MAX_PATH_BYTES + 1];
            let slash = usize::from(!dir.is_empty());
            if dir.len() + slash + name.len() > MAX_PATH_BYTES {
                continue;
            }
            candidate[..dir.len()].copy_from_slice(dir);
            candidate[dir.len()..][..slash].fill(b'/');
            candidate[dir.len() + slash..][..name.len()].copy_from_slice(name);
            exec_or_shell(candidate.as_ptr().cast(), argv, envp, shell);
            match kernel::errno() {
                libc::EACCES => worst = libc::EACCES,
                libc::ENOENT | libc::ESTALE | libc::ENOTDIR | libc::ENODEV | libc::ETIMEDOUT => {}
                _ => return -1,
            }
        }
        failed(worst)
    }
}

/// # Safety
/// As `execve`.
unsafe fn exec_or_shell(path: Path, argv: Strings, envp: Strings, shell: bool) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        let result = exec_at(AT_FDCWD, path, argv, envp, 0, 0);
        if !shell || kernel::errno() != libc::ENOEXEC {
            return result;
        }
        with_front(&[SHELL, path], argv, |argv| {
            exec_at(AT_FDCWD, SHELL, argv, envp, 0, 0)
        })
    }
}

hooks! {
    fn execve [real] (path: Path, argv: Strings, envp: Strings) -> c_int {
        if config::get().is_none() {
            return real(path, argv, envp);
        }
        exec_at(AT_FDCWD, path, argv, envp, 0, 0)
    }

    fn execveat [real] (dirfd: c_int, path: Path, argv: Strings, envp: Strings, flags: c_int) -> c_int {
        if config::get().is_none() {
            return real(dirfd, path, argv, envp, flags);
        }
        exec_at(dirfd, path, argv, envp, flags, 0)
    }

    fn fexecve [real] (fd: c_int, argv: Strings, envp: Strings) -> c_int {
        if config::get().is_some() {
            bypass::look_at(fd, FdPath::new(fd).as_ptr(), argv);
        }
        inheritance::with(envp, |envp| real(fd, argv, envp))
    }

    fn execv [real] (path: Path, argv: Strings) -> c_int {
        if config::get().is_none() {
            return real(path, argv);
        }
        exec_at(AT_FDCWD, path, argv, environment::block(), 0, 0)
    }

    fn execvp [real] (file: Path, argv: Strings) -> c_int {
        if config::get().is_none() {
            return real(file, argv);
        }
        search(file, argv, environment::block(), true)
    }

    fn execvpe [real] (file: Path, argv: Strings, envp: Strings) -> c_int {
        if config::get().is_none() {
            return real(file, argv, envp);
        }
        search(file, argv, envp, true)
    }
}
