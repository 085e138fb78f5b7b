//! `syscall`: the way of a program past the functions of libc. A call with a path does what the function of its name does.
//!
//! What is not about the buffer stays the call that the program has made: libc's function of its name may be missing
//! there, check its arguments, or be a point where a thread is cancelled. What closes or doubles descriptors goes to
//! the kernel, too, and the library forgets what it knows of their numbers.

use core::ffi::{c_char, c_int, c_long, c_uint, c_void};

use forebay_hook::hooks;
use libc::AT_FDCWD;

use super::{
    Path, access, attributes, directory, durability, exec, identity, links, names, open, stat,
    watch, working_directory, xattr,
};
use crate::config;
use crate::locate::{LEAST_ADDRESS, failed, forget_fd, forget_fds, is_mine};
use crate::requests::LINK;
use forebay_hook::kernel::{self, Errno};

/// What `openat2` takes.
#[repr(C)]
struct OpenHow {
    flags: u64,
    mode: u64,
    resolve: u64,
}

/// The flags that the kernel knows, for `openat2`, which is strict about them.
const OPEN_FLAGS: c_int = libc::O_ACCMODE
    | libc::O_CREAT
    | libc::O_EXCL
    | libc::O_NOCTTY
    | libc::O_TRUNC
    | libc::O_APPEND
    | libc::O_NONBLOCK
    | libc::O_SYNC
    | libc::O_ASYNC
    | libc::O_DIRECT
    | LARGE_FILE
    | libc::O_NOFOLLOW
    | libc::O_NOATIME
    | libc::O_CLOEXEC
    | libc::O_PATH
    | libc::O_TMPFILE;
/// `O_LARGEFILE` of the kernel. It is 0 for libc.
const LARGE_FILE: c_int = if cfg!(target_arch = "aarch64") {
    0o400_000
} else {
    0o100_000
};
/// The flags that may stand beside `O_PATH`.
const BESIDE_PATH: c_int = libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC;
/// The `RESOLVE_*` flags of `openat2`.
const RESOLVE: u64 = 0x3f;
/// The largest structure that the kernel takes.
const LARGEST_HOW_BYTES: usize = 4096;

impl OpenHow {
    /// The flags and the mode, or why the kernel would refuse them.
    fn checked(&self) -> Result<(c_int, c_uint), Errno> {
        let (Ok(flags), Ok(mode)) = (c_int::try_from(self.flags), c_uint::try_from(self.mode))
        else {
            return Err(libc::EINVAL);
        };
        let creates = flags & (libc::O_CREAT | libc::O_TMPFILE & !libc::O_DIRECTORY) != 0;
        let most_of_mode = if creates { 0o7777 } else { 0 };
        let beside_path = flags & libc::O_PATH != 0 && flags & !BESIDE_PATH != 0;
        if flags & !OPEN_FLAGS != 0
            || mode & !most_of_mode != 0
            || beside_path
            || self.resolve & !RESOLVE != 0
        {
            return Err(libc::EINVAL);
        }
        // The bridge knows no such bounds. Programs have another way for kernels that do not know them.
        match self.resolve {
            0 => Ok((flags, mode)),
            _ => Err(libc::ENOSYS),
        }
    }
}

/// `openat2` on a path in the buffer.
///
/// # Safety
/// As the system call.
unsafe fn open_how(dirfd: c_int, path: Path, how: *const OpenHow, bytes: usize) -> c_long {
    if bytes < size_of::<OpenHow>() {
        return failed(libc::EINVAL);
    }
    if bytes > LARGEST_HOW_BYTES {
        return failed(libc::E2BIG);
    }
    if (how as isize) < LEAST_ADDRESS {
        return failed(libc::EFAULT);
    }
    // SAFETY: the caller's promise.
    let (how, whole) = unsafe { (&*how, core::slice::from_raw_parts(how.cast::<u8>(), bytes)) };
    // A later kernel may know more fields. It takes zeroes for one that it does not know.
    if whole[size_of::<OpenHow>()..].iter().any(|&b| b != 0) {
        return failed(libc::E2BIG);
    }
    match how.checked() {
        // SAFETY: the caller's promise.
        Ok((flags, mode)) => unsafe { open::openat::hook(dirfd, path, flags, mode).into() },
        Err(e) => failed(e),
    }
}

/// `getcwd` of the kernel: it gives the length, with the NUL.
///
/// # Safety
/// As the system call.
unsafe fn current(out: *mut c_char, room: usize) -> c_long {
    if (out as isize) < LEAST_ADDRESS {
        return failed(libc::EFAULT);
    }
    if room == 0 {
        return failed(libc::ERANGE);
    }
    // SAFETY: the caller's promise; what was filled ends with a NUL.
    unsafe {
        match working_directory::getcwd::hook(out, room).is_null() {
            true => -1,
            false => kernel::bytes(out).len() as c_long + 1,
        }
    }
}

/// A call that may be about the buffer; `native` makes it. `None`: it is not, or need not be seen.
///
/// # Safety
/// As the system call.
unsafe fn ours(number: c_long, a: [usize; 6], native: impl Fn() -> c_long) -> Option<c_long> {
    config::get()?;
    let fd = |n: usize| a[n] as c_int;
    let int = fd;
    let word = |n: usize| a[n] as c_uint;
    let path = |n: usize| a[n] as Path;
    let out = |n: usize| a[n] as *mut c_void;
    // SAFETY: the caller's promise.
    let at = |n: usize| unsafe { is_mine(fd(n), path(n + 1)) };
    // SAFETY: the caller's promise.
    let here = |n: usize| unsafe { is_mine(AT_FDCWD, path(n)) };
    let about_fd = |flags: usize| int(flags) & libc::AT_EMPTY_PATH != 0;
    // SAFETY: the arguments are those of the function of this name; where the kernel takes fewer, the last are 0.
    let done: c_int = unsafe {
        match number {
            libc::SYS_openat if at(0) => open::openat::hook(fd(0), path(1), int(2), word(3)),
            libc::SYS_openat2 if at(0) => {
                return Some(open_how(fd(0), path(1), out(2).cast(), a[3]));
            }
            libc::SYS_newfstatat if at(0) || about_fd(3) => {
                stat::by_kernel(fd(0), path(1), out(2).cast(), int(3))
            }
            libc::SYS_fstat => stat::of_fd_by_kernel(fd(0), out(1).cast()),
            libc::SYS_statx if at(0) || about_fd(2) => {
                stat::statx_by_kernel(fd(0), path(1), int(2), word(3), out(4))
            }
            libc::SYS_faccessat if at(0) => access::faccessat::hook(fd(0), path(1), int(2), 0),
            libc::SYS_faccessat2 if at(0) => {
                access::faccessat::hook(fd(0), path(1), int(2), int(3))
            }
            libc::SYS_mkdirat if at(0) => names::mkdirat::hook(fd(0), path(1), word(2)),
            libc::SYS_mknodat if at(0) => {
                names::mknodat::hook(fd(0), path(1), word(2), a[3] as u64)
            }
            libc::SYS_unlinkat if at(0) => names::unlinkat::hook(fd(0), path(1), int(2)),
            libc::SYS_renameat if at(0) || at(2) => {
                names::renameat::hook(fd(0), path(1), fd(2), path(3))
            }
            libc::SYS_renameat2 if at(0) || at(2) => {
                names::renameat2::hook(fd(0), path(1), fd(2), path(3), word(4))
            }
            libc::SYS_linkat if at(0) || at(2) => {
                names::linkat::hook(fd(0), path(1), fd(2), path(3), int(4))
            }
            libc::SYS_symlinkat if at(1) => names::symlinkat::hook(path(0), fd(1), path(2)),
            // Those of `/proc` show what the process has in the buffer.
            libc::SYS_readlinkat => {
                return Some(links::readlinkat::hook(fd(0), path(1), out(2).cast(), a[3]) as c_long);
            }
            libc::SYS_fchmodat if at(0) => attributes::fchmodat::hook(fd(0), path(1), word(2), 0),
            libc::SYS_fchmodat2 if at(0) => {
                attributes::fchmodat::hook(fd(0), path(1), word(2), int(3))
            }
            libc::SYS_fchownat if at(0) => {
                attributes::fchownat::hook(fd(0), path(1), word(2), word(3), int(4))
            }
            libc::SYS_utimensat if a[1] == 0 || about_fd(3) && !at(0) => {
                attributes::write_pending_time(fd(0));
                return None;
            }
            libc::SYS_utimensat if at(0) => {
                attributes::utimensat::hook(fd(0), path(1), out(2).cast(), int(3))
            }
            libc::SYS_truncate if here(0) => attributes::truncate::hook(path(0), a[1] as i64),
            libc::SYS_statfs if here(0) => attributes::statfs::hook(path(0), out(1)),
            libc::SYS_chdir => working_directory::chdir::hook(path(0)),
            libc::SYS_fchdir => working_directory::fchdir::hook(fd(0)),
            libc::SYS_chroot if here(0) => working_directory::chroot::hook(path(0)),
            libc::SYS_unshare => working_directory::unshare::hook(int(0)),
            libc::SYS_getcwd if directory::is_listed_by_bridge(AT_FDCWD) => {
                return Some(current(out(0).cast(), a[1]));
            }
            libc::SYS_getdents64 if directory::is_listed_by_bridge(fd(0)) => {
                failed(libc::EOPNOTSUPP)
            }
            libc::SYS_getxattr if here(0) => {
                return Some(xattr::getxattr::hook(path(0), path(1), out(2), a[3]) as c_long);
            }
            libc::SYS_lgetxattr if here(0) => {
                return Some(xattr::lgetxattr::hook(path(0), path(1), out(2), a[3]) as c_long);
            }
            libc::SYS_setxattr if here(0) => {
                xattr::setxattr::hook(path(0), path(1), out(2), a[3], int(4))
            }
            libc::SYS_lsetxattr if here(0) => {
                xattr::lsetxattr::hook(path(0), path(1), out(2), a[3], int(4))
            }
            libc::SYS_listxattr if here(0) => {
                return Some(xattr::listxattr::hook(path(0), out(1).cast(), a[2]) as c_long);
            }
            libc::SYS_llistxattr if here(0) => {
                return Some(xattr::llistxattr::hook(path(0), out(1).cast(), a[2]) as c_long);
            }
            libc::SYS_removexattr if here(0) => xattr::removexattr::hook(path(0), path(1)),
            libc::SYS_lremovexattr if here(0) => xattr::lremovexattr::hook(path(0), path(1)),
            libc::SYS_fgetxattr => {
                return Some(xattr::fgetxattr::hook(fd(0), path(1), out(2), a[3]) as c_long);
            }
            libc::SYS_fsetxattr => xattr::fsetxattr::hook(fd(0), path(1), out(2), a[3], int(4)),
            libc::SYS_flistxattr => {
                return Some(xattr::flistxattr::hook(fd(0), out(1).cast(), a[2]) as c_long);
            }
            libc::SYS_fremovexattr => xattr::fremovexattr::hook(fd(0), path(1)),
            libc::SYS_execve => exec::execve::hook(path(0), out(1).cast(), out(2).cast()),
            libc::SYS_execveat => {
                exec::execveat::hook(fd(0), path(1), out(2).cast(), out(3).cast(), int(4))
            }
            libc::SYS_inotify_add_watch if here(1) => {
                watch::inotify_add_watch::hook(fd(0), path(1), word(2))
            }
            libc::SYS_fanotify_mark => {
                watch::fanotify_mark::hook(fd(0), word(1), a[2] as u64, fd(3), path(4))
            }
            libc::SYS_name_to_handle_at => {
                watch::name_to_handle_at::hook(fd(0), path(1), out(2), out(3).cast(), int(4))
            }
            libc::SYS_fsync | libc::SYS_fdatasync => {
                durability::of_file(fd(0), || native() as c_int)
            }
            libc::SYS_syncfs => durability::of_file_system(fd(0), || native() as c_int),
            libc::SYS_sync => {
                durability::of_all(|| {
                    native();
                });
                0
            }
            libc::SYS_msync => durability::of_mapping(int(2), || native() as c_int),
            libc::SYS_pwritev2 => {
                let written = durability::of_write(fd(0), int(5), || native() as isize);
                return Some(written as c_long);
            }
            libc::SYS_umask => identity::umask::hook(word(0)) as c_int,
            #[cfg(target_arch = "x86_64")]
            _ => return older(number, a),
            #[cfg(not(target_arch = "x86_64"))]
            _ => return None,
        }
    };
    Some(done.into())
}

/// The same for calls that newer architectures do not have.
///
/// # Safety
/// As the system call.
#[cfg(target_arch = "x86_64")]
unsafe fn older(number: c_long, a: [usize; 6]) -> Option<c_long> {
    let int = |n: usize| a[n] as c_int;
    let word = |n: usize| a[n] as c_uint;
    let path = |n: usize| a[n] as Path;
    let out = |n: usize| a[n] as *mut c_void;
    // SAFETY: the caller's promise.
    let here = |n: usize| unsafe { is_mine(AT_FDCWD, path(n)) };
    // SAFETY: the caller's promise.
    let at = |n: usize| unsafe { is_mine(int(n), path(n + 1)) };
    // SAFETY: the arguments are those of the function of this name.
    let done: c_int = unsafe {
        match number {
            libc::SYS_open if here(0) => open::open::hook(path(0), int(1), word(2)),
            libc::SYS_creat if here(0) => open::creat::hook(path(0), word(1)),
            libc::SYS_stat if here(0) => stat::by_kernel(AT_FDCWD, path(0), out(1).cast(), 0),
            libc::SYS_lstat if here(0) => {
                stat::by_kernel(AT_FDCWD, path(0), out(1).cast(), libc::AT_SYMLINK_NOFOLLOW)
            }
            libc::SYS_access if here(0) => access::access::hook(path(0), int(1)),
            libc::SYS_mkdir if here(0) => names::mkdir::hook(path(0), word(1)),
            libc::SYS_mknod if here(0) => names::mknod::hook(path(0), word(1), a[2] as u64),
            libc::SYS_unlink if here(0) => names::unlink::hook(path(0)),
            libc::SYS_rmdir if here(0) => names::rmdir::hook(path(0)),
            libc::SYS_rename if here(0) || here(1) => names::rename::hook(path(0), path(1)),
            libc::SYS_link if here(0) || here(1) => names::link::hook(path(0), path(1)),
            libc::SYS_symlink if here(1) => names::symlink::hook(path(0), path(1)),
            libc::SYS_readlink => {
                return Some(links::readlink::hook(path(0), out(1).cast(), a[2]) as c_long);
            }
            libc::SYS_chmod if here(0) => attributes::chmod::hook(path(0), word(1)),
            libc::SYS_chown if here(0) => attributes::chown::hook(path(0), word(1), word(2)),
            libc::SYS_lchown if here(0) => attributes::lchown::hook(path(0), word(1), word(2)),
            libc::SYS_utime if here(0) => attributes::utime::hook(path(0), out(1).cast()),
            libc::SYS_utimes if here(0) => attributes::utimes::hook(path(0), out(1).cast()),
            libc::SYS_futimesat if a[1] == 0 => {
                attributes::write_pending_time(int(0));
                return None;
            }
            libc::SYS_futimesat if at(0) => {
                attributes::futimesat::hook(int(0), path(1), out(2).cast())
            }
            // The entries have another form here. Nobody lists so any more.
            libc::SYS_getdents if directory::is_listed_by_bridge(int(0)) => {
                failed(libc::EOPNOTSUPP)
            }
            _ => return None,
        }
    };
    Some(done.into())
}

/// Calls that free numbers of descriptors. What is known of a number is forgotten before another thread may get it.
fn will_free(number: c_long, a: [usize; 6]) {
    match number {
        libc::SYS_close => forget_fd(a[0] as c_int),
        libc::SYS_dup3 => forget_fd(a[1] as c_int),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_dup2 => forget_fd(a[1] as c_int),
        libc::SYS_close_range => forget_fds(),
        _ => {}
    }
}

/// Calls after which the library has to know something.
fn has_done(number: c_long, a: [usize; 6], result: c_long) {
    match number {
        libc::SYS_openat | libc::SYS_openat2 | libc::SYS_dup | libc::SYS_pidfd_getfd => {
            forget_fd(result as c_int);
        }
        libc::SYS_fcntl if matches!(a[1] as c_int, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) => {
            forget_fd(result as c_int);
        }
        #[cfg(target_arch = "x86_64")]
        libc::SYS_open | libc::SYS_creat => forget_fd(result as c_int),
        libc::SYS_setuid
        | libc::SYS_setgid
        | libc::SYS_setreuid
        | libc::SYS_setregid
        | libc::SYS_setresuid
        | libc::SYS_setresgid
        | libc::SYS_setgroups
        | libc::SYS_setfsuid
        | libc::SYS_setfsgid => LINK.identity_changed(),
        _ => {}
    }
}

hooks! {
    fn syscall [real] (number: c_long, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> c_long {
        let native = || real(number, a, b, c, d, e, f);
        let arguments = [a, b, c, d, e, f];
        if let Some(result) = ours(number, arguments, native) {
            return result;
        }
        will_free(number, arguments);
        let result = native();
        has_done(number, arguments, result);
        result
    }
}
