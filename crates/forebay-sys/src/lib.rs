//! The system calls of the bridge, each as a safe function.
//!
//! No policy here: arguments in, result or errno out. Paths are bytes without a
//! closing NUL, relative to a directory descriptor.
#![allow(unsafe_code)]

pub mod files;

use forebay_types::{Attr, Timestamp};
use std::ffi::CString;
use std::fmt;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// An error number of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Errno(pub i32);

impl Errno {
    /// What the last system call of this thread said.
    pub fn last() -> Self {
        Errno(
            std::io::Error::last_os_error()
                .raw_os_error()
                .unwrap_or(libc::EIO),
        )
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        std::io::Error::from_raw_os_error(self.0).fmt(f)
    }
}

impl std::error::Error for Errno {}

impl From<std::io::Error> for Errno {
    fn from(e: std::io::Error) -> Self {
        Errno(e.raw_os_error().unwrap_or(libc::EIO))
    }
}

/// Result of a system call.
pub type Sys<T> = Result<T, Errno>;

fn check(result: libc::c_int) -> Sys<libc::c_int> {
    if result < 0 {
        Err(Errno::last())
    } else {
        Ok(result)
    }
}

/// Repeats a call that a signal interrupted.
fn again<T>(mut call: impl FnMut() -> Sys<T>) -> Sys<T> {
    loop {
        match call() {
            Err(Errno(libc::EINTR)) => {}
            other => return other,
        }
    }
}

const SHORT_NAME_BYTES: usize = 256;

/// Hands `bytes` to `call` with a closing NUL; short ones without allocation.
fn with_name<T>(bytes: &[u8], call: impl FnOnce(*const libc::c_char) -> Sys<T>) -> Sys<T> {
    if bytes.contains(&0) {
        return Err(Errno(libc::EINVAL));
    }
    if bytes.len() < SHORT_NAME_BYTES {
        let mut short = [0u8; SHORT_NAME_BYTES];
        short[..bytes.len()].copy_from_slice(bytes);
        return call(short.as_ptr().cast());
    }
    let long = CString::new(bytes).map_err(|_| Errno(libc::EINVAL))?;
    call(long.as_ptr())
}

fn owned(fd: RawFd) -> OwnedFd {
    // SAFETY: every caller passes a descriptor that the kernel has just made for it.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// `openat` with `O_CLOEXEC`.
pub fn open(dir: BorrowedFd<'_>, name: &[u8], flags: i32, mode: u32) -> Sys<OwnedFd> {
    with_name(name, |p| {
        again(|| {
            // SAFETY: `p` is a NUL-terminated string that outlives the call.
            check(unsafe { libc::openat(dir.as_raw_fd(), p, flags | libc::O_CLOEXEC, mode) })
        })
    })
    .map(owned)
}

/// `openat2` that stays below `dir` and follows no symbolic link; the last
/// component may be anything that `flags` accept. Old kernels: see the caller.
pub fn open_beneath(dir: BorrowedFd<'_>, path: &[u8], flags: i32) -> Sys<OwnedFd> {
    // SAFETY: all zeros is a valid open_how.
    let mut how: libc::open_how = unsafe { MaybeUninit::zeroed().assume_init() };
    how.flags = (flags | libc::O_CLOEXEC) as u32 as u64;
    how.resolve = libc::RESOLVE_BENEATH | libc::RESOLVE_NO_MAGICLINKS | libc::RESOLVE_NO_SYMLINKS;
    with_name(path, |p| {
        again(|| {
            // SAFETY: the path is NUL-terminated, `how` is valid and its size is passed.
            let fd = unsafe {
                libc::syscall(
                    libc::SYS_openat2,
                    dir.as_raw_fd(),
                    p,
                    &raw const how,
                    size_of::<libc::open_how>(),
                )
            };
            check(fd as libc::c_int)
        })
    })
    .map(owned)
}

/// Opens a path of the process's own (start-up only).
pub fn open_path(path: &std::path::Path, flags: i32) -> Sys<OwnedFd> {
    use std::os::unix::ffi::OsStrExt;
    // SAFETY: AT_FDCWD is a valid pseudo descriptor for the *at calls.
    let cwd = unsafe { BorrowedFd::borrow_raw(libc::AT_FDCWD) };
    open(cwd, path.as_os_str().as_bytes(), flags, 0)
}

/// Attributes of `name` in `dir`, symbolic links not followed; an empty name means `dir` itself.
pub fn stat(dir: BorrowedFd<'_>, name: &[u8]) -> Sys<Attr> {
    let mut x = MaybeUninit::<libc::statx>::zeroed();
    let flags = libc::AT_SYMLINK_NOFOLLOW
        | libc::AT_NO_AUTOMOUNT
        | if name.is_empty() {
            libc::AT_EMPTY_PATH
        } else {
            0
        };
    with_name(name, |p| {
        // SAFETY: the path is NUL-terminated and `x` has room for a statx.
        check(unsafe {
            libc::statx(
                dir.as_raw_fd(),
                p,
                flags,
                libc::STATX_BASIC_STATS | libc::STATX_BTIME,
                x.as_mut_ptr(),
            )
        })
    })?;
    // SAFETY: it was zeroed, and filled by the kernel.
    let x = unsafe { x.assume_init() };
    let time = |t: libc::statx_timestamp| Timestamp {
        sec: t.tv_sec,
        nsec: t.tv_nsec,
    };
    Ok(Attr {
        mode: u32::from(x.stx_mode),
        nlink: x.stx_nlink,
        uid: x.stx_uid,
        gid: x.stx_gid,
        dev: libc::makedev(x.stx_dev_major, x.stx_dev_minor),
        rdev: libc::makedev(x.stx_rdev_major, x.stx_rdev_minor),
        ino: x.stx_ino,
        size: x.stx_size,
        blocks: x.stx_blocks,
        blksize: x.stx_blksize,
        atime: time(x.stx_atime),
        mtime: time(x.stx_mtime),
        ctime: time(x.stx_ctime),
        btime: time(x.stx_btime),
    })
}

/// A directory of the bridge's own, unless it is there.
pub fn make_dir(dir: BorrowedFd<'_>, name: &[u8]) -> Sys<()> {
    match mkdir(dir, name, 0o700) {
        Err(Errno(libc::EEXIST)) => Ok(()),
        other => other,
    }
}

/// `mkdirat`.
pub fn mkdir(dir: BorrowedFd<'_>, name: &[u8], mode: u32) -> Sys<()> {
    // SAFETY: the path is NUL-terminated.
    with_name(name, |p| {
        check(unsafe { libc::mkdirat(dir.as_raw_fd(), p, mode) })
    })
    .map(drop)
}

/// `mknodat`.
pub fn mknod(dir: BorrowedFd<'_>, name: &[u8], mode: u32, dev: u64) -> Sys<()> {
    // SAFETY: the path is NUL-terminated.
    with_name(name, |p| {
        check(unsafe { libc::mknodat(dir.as_raw_fd(), p, mode, dev) })
    })
    .map(drop)
}

/// `linkat`, links not followed.
pub fn link(dir: BorrowedFd<'_>, old: &[u8], new: &[u8]) -> Sys<()> {
    let fd = dir.as_raw_fd();
    with_name(old, |o| {
        // SAFETY: both paths are NUL-terminated.
        with_name(new, |n| check(unsafe { libc::linkat(fd, o, fd, n, 0) }))
    })
    .map(drop)
}

/// `unlinkat`; `directory` as `rmdir`.
pub fn unlink(dir: BorrowedFd<'_>, name: &[u8], directory: bool) -> Sys<()> {
    let flags = if directory { libc::AT_REMOVEDIR } else { 0 };
    // SAFETY: the path is NUL-terminated.
    with_name(name, |p| {
        check(unsafe { libc::unlinkat(dir.as_raw_fd(), p, flags) })
    })
    .map(drop)
}

/// Text of a symbolic link; an empty name means the link that `dir` itself is.
pub fn readlink(dir: BorrowedFd<'_>, name: &[u8]) -> Sys<Vec<u8>> {
    let mut text = vec![0u8; libc::PATH_MAX as usize];
    let n = with_name(name, |p| {
        // SAFETY: the path is NUL-terminated, the buffer has the size that is passed.
        let n =
            unsafe { libc::readlinkat(dir.as_raw_fd(), p, text.as_mut_ptr().cast(), text.len()) };
        if n < 0 {
            Err(Errno::last())
        } else {
            Ok(n as usize)
        }
    })?;
    text.truncate(n);
    Ok(text)
}

/// `fchmod`.
pub fn chmod(fd: BorrowedFd<'_>, mode: u32) -> Sys<()> {
    // SAFETY: plain integers.
    check(unsafe { libc::fchmod(fd.as_raw_fd(), mode) }).map(drop)
}

/// `fchownat` of `name` in `dir`, or of `dir` itself if the name is empty.
pub fn chown(dir: BorrowedFd<'_>, name: &[u8], uid: u32, gid: u32) -> Sys<()> {
    let flags = libc::AT_SYMLINK_NOFOLLOW
        | if name.is_empty() {
            libc::AT_EMPTY_PATH
        } else {
            0
        };
    with_name(name, |p| {
        // SAFETY: the path is NUL-terminated.
        check(unsafe { libc::fchownat(dir.as_raw_fd(), p, uid, gid, flags) })
    })
    .map(drop)
}

/// `fchmodat` of `name` in `dir`; it must not be a symbolic link.
pub fn chmod_at(dir: BorrowedFd<'_>, name: &[u8], mode: u32) -> Sys<()> {
    // SAFETY: the path is NUL-terminated.
    with_name(name, |p| {
        check(unsafe { libc::fchmodat(dir.as_raw_fd(), p, mode, 0) })
    })
    .map(drop)
}

/// Sets access and modification time of `name` in `dir`, or of `dir` itself if the name is
/// empty; `None` leaves one as it is.
pub fn set_times(
    dir: BorrowedFd<'_>,
    name: &[u8],
    atime: Option<Timestamp>,
    mtime: Option<Timestamp>,
) -> Sys<()> {
    let spec = |t: Option<Timestamp>| match t {
        Some(t) => libc::timespec {
            tv_sec: t.sec,
            tv_nsec: i64::from(t.nsec),
        },
        None => libc::timespec {
            tv_sec: 0,
            tv_nsec: libc::UTIME_OMIT,
        },
    };
    let times = [spec(atime), spec(mtime)];
    if name.is_empty() {
        // SAFETY: `times` holds two values.
        return check(unsafe { libc::futimens(dir.as_raw_fd(), times.as_ptr()) }).map(drop);
    }
    with_name(name, |p| {
        // SAFETY: the path is NUL-terminated, `times` holds two values.
        check(unsafe {
            libc::utimensat(
                dir.as_raw_fd(),
                p,
                times.as_ptr(),
                libc::AT_SYMLINK_NOFOLLOW,
            )
        })
    })
    .map(drop)
}

/// `fsetxattr`.
pub fn set_xattr(fd: BorrowedFd<'_>, name: &[u8], value: &[u8]) -> Sys<()> {
    with_name(name, |p| {
        // SAFETY: the name is NUL-terminated, the value has the length that is passed.
        check(unsafe { libc::fsetxattr(fd.as_raw_fd(), p, value.as_ptr().cast(), value.len(), 0) })
    })
    .map(drop)
}

/// `fremovexattr`.
pub fn remove_xattr(fd: BorrowedFd<'_>, name: &[u8]) -> Sys<()> {
    // SAFETY: the name is NUL-terminated.
    with_name(name, |p| {
        check(unsafe { libc::fremovexattr(fd.as_raw_fd(), p) })
    })
    .map(drop)
}

/// Largest value that Linux stores in an extended attribute.
const XATTR_BYTES: usize = 64 << 10;

/// `fgetxattr`; `None` if there is no such attribute.
pub fn get_xattr(fd: BorrowedFd<'_>, name: &[u8]) -> Sys<Option<Vec<u8>>> {
    let mut small = [0u8; 512];
    let get = |buffer: &mut [u8]| {
        with_name(name, |p| {
            // SAFETY: the name is NUL-terminated, the buffer has the length that is passed.
            let n = unsafe {
                libc::fgetxattr(fd.as_raw_fd(), p, buffer.as_mut_ptr().cast(), buffer.len())
            };
            if n < 0 {
                Err(Errno::last())
            } else {
                Ok(n as usize)
            }
        })
    };
    match get(&mut small) {
        Ok(n) => Ok(Some(small[..n].to_vec())),
        Err(Errno(libc::ENODATA)) => Ok(None),
        Err(Errno(libc::ERANGE)) => {
            let mut large = vec![0; XATTR_BYTES];
            let n = get(&mut large)?;
            large.truncate(n);
            Ok(Some(large))
        }
        Err(e) => Err(e),
    }
}

/// Names of all extended attributes, each closed by a NUL.
pub fn list_xattr(fd: BorrowedFd<'_>) -> Sys<Vec<u8>> {
    let mut names = vec![0u8; XATTR_BYTES];
    // SAFETY: the buffer has the length that is passed.
    let n = unsafe { libc::flistxattr(fd.as_raw_fd(), names.as_mut_ptr().cast(), names.len()) };
    if n < 0 {
        return Err(Errno::last());
    }
    names.truncate(n as usize);
    Ok(names)
}

/// An entry of a directory as the kernel gives it.
pub struct RawEntry {
    /// Inode number.
    pub ino: u64,
    /// `DT_*` value.
    pub dtype: u8,
    /// Name.
    pub name: Vec<u8>,
}

/// Fixed part of `struct linux_dirent64` in bytes.
const DIRENT_HEADER_BYTES: usize = 19;

/// Reads further entries of an open directory into `out`, without "." and "..".
/// False at the end.
pub fn read_dir(fd: BorrowedFd<'_>, out: &mut Vec<RawEntry>) -> Sys<bool> {
    let mut buffer = [0u8; 32 << 10];
    // SAFETY: the buffer has the length that is passed.
    let n = unsafe {
        libc::syscall(
            libc::SYS_getdents64,
            fd.as_raw_fd(),
            buffer.as_mut_ptr(),
            buffer.len(),
        )
    };
    if n < 0 {
        return Err(Errno::last());
    }
    let mut rest = &buffer[..n as usize];
    while rest.len() > DIRENT_HEADER_BYTES {
        let mut ino = [0; 8];
        ino.copy_from_slice(&rest[..8]);
        let len = usize::from(u16::from_le_bytes([rest[16], rest[17]]));
        if len <= DIRENT_HEADER_BYTES || len > rest.len() {
            break;
        }
        let name = &rest[DIRENT_HEADER_BYTES..len];
        let name = &name[..name.iter().position(|&b| b == 0).unwrap_or(name.len())];
        if name != b"." && name != b".." {
            out.push(RawEntry {
                ino: u64::from_le_bytes(ino),
                dtype: rest[18],
                name: name.to_vec(),
            });
        }
        rest = &rest[len..];
    }
    Ok(n > 0)
}

/// Type of the file system that holds `fd` (`statfs.f_type`).
pub fn fs_type(fd: BorrowedFd<'_>) -> Sys<i64> {
    statfs(fd).map(|s| s.f_type)
}

/// Bytes in all and bytes free for ordinary users on the file system that holds `fd`.
pub fn fs_space(fd: BorrowedFd<'_>) -> Sys<(u64, u64)> {
    statfs(fd).map(|s| {
        let block = s.f_bsize as u64;
        (s.f_blocks * block, s.f_bavail * block)
    })
}

fn statfs(fd: BorrowedFd<'_>) -> Sys<libc::statfs> {
    let mut s = MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: `s` has room for a statfs.
    check(unsafe { libc::fstatfs(fd.as_raw_fd(), s.as_mut_ptr()) })?;
    // SAFETY: it was zeroed, and filled by the kernel.
    Ok(unsafe { s.assume_init() })
}

/// An exclusive lock on the whole file, or EWOULDBLOCK.
pub fn lock_file(fd: BorrowedFd<'_>) -> Sys<()> {
    // SAFETY: plain integers.
    check(unsafe { libc::flock(fd.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) }).map(drop)
}

/// Copies up to `bytes` from the start of `from` to the start of `to`, in the
/// kernel where it can; returns how many.
pub fn copy(from: BorrowedFd<'_>, to: BorrowedFd<'_>, bytes: u64) -> Sys<u64> {
    const PIECE_BYTES: u64 = 128 << 20;
    let mut done = 0;
    while done < bytes {
        let piece = PIECE_BYTES.min(bytes - done) as usize;
        let n = again(|| {
            // SAFETY: both offsets are null: the descriptors' own positions are used.
            let n = unsafe {
                libc::copy_file_range(
                    from.as_raw_fd(),
                    std::ptr::null_mut(),
                    to.as_raw_fd(),
                    std::ptr::null_mut(),
                    piece,
                    0,
                )
            };
            if n < 0 {
                Err(Errno::last())
            } else {
                Ok(n as u64)
            }
        });
        match n {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(Errno(
                libc::EXDEV | libc::EINVAL | libc::ENOSYS | libc::EOPNOTSUPP | libc::EBADF,
            )) => return copy_by_hand(from, to, bytes, done),
            Err(e) => return Err(e),
        }
    }
    Ok(done)
}

fn copy_by_hand(from: BorrowedFd<'_>, to: BorrowedFd<'_>, bytes: u64, start: u64) -> Sys<u64> {
    use std::os::unix::fs::FileExt;
    let from = std::fs::File::from(from.try_clone_to_owned()?);
    let to = std::fs::File::from(to.try_clone_to_owned()?);
    let mut buffer = vec![0u8; 1 << 20];
    let mut done = start;
    while done < bytes {
        let piece = buffer
            .len()
            .min((bytes - done).try_into().unwrap_or(usize::MAX));
        let n = from.read_at(&mut buffer[..piece], done)?;
        if n == 0 {
            break;
        }
        to.write_all_at(&buffer[..n], done)?;
        done += n as u64;
    }
    Ok(done)
}

/// The clock that the kernel stamps inodes with.
pub fn now_coarse() -> Timestamp {
    let mut t = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `t` is a valid timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME_COARSE, &raw mut t) };
    Timestamp {
        sec: t.tv_sec,
        nsec: t.tv_nsec as u32,
    }
}

/// Effective user and group of this process.
pub fn my_ids() -> (u32, u32) {
    // SAFETY: these calls take nothing and can't fail.
    unsafe { (libc::geteuid(), libc::getegid()) }
}

/// Modes of new objects are exact: programs have applied their own umask already.
pub fn clear_umask() {
    // SAFETY: plain integer.
    unsafe { libc::umask(0) };
}

/// Raises the limit of open descriptors as far as it goes and returns it.
pub fn raise_descriptor_limit() -> u64 {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` is a valid rlimit in both calls.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
            libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
        }
    }
    limit.rlim_cur
}

/// A counter that wakes an epoll.
pub fn eventfd() -> Sys<OwnedFd> {
    // SAFETY: plain integers.
    check(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) }).map(owned)
}

/// Adds one to an eventfd.
pub fn notify(fd: BorrowedFd<'_>) {
    let one = 1u64.to_ne_bytes();
    // SAFETY: eight valid bytes. A full counter is as awake as can be.
    unsafe { libc::write(fd.as_raw_fd(), one.as_ptr().cast(), one.len()) };
}

/// Takes all from an eventfd.
pub fn drain(fd: BorrowedFd<'_>) {
    let mut value = [0u8; 8];
    // SAFETY: room for eight bytes.
    unsafe { libc::read(fd.as_raw_fd(), value.as_mut_ptr().cast(), value.len()) };
}

/// An epoll instance.
pub struct Epoll(OwnedFd);

/// An event that an epoll reported.
#[derive(Debug, Clone, Copy)]
pub struct Event {
    /// The number given when the descriptor was added.
    pub key: u64,
    /// `EPOLL*` bits.
    pub bits: u32,
}

/// Events fetched by one wait.
pub const EVENTS_PER_WAIT: usize = 64;

impl Epoll {
    /// A new one.
    pub fn new() -> Sys<Self> {
        // SAFETY: plain integer.
        check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) }).map(|fd| Epoll(owned(fd)))
    }

    fn control(&self, op: i32, fd: BorrowedFd<'_>, key: u64, bits: u32) -> Sys<()> {
        let mut event = libc::epoll_event {
            events: bits,
            u64: key,
        };
        // SAFETY: `event` is valid for the call.
        check(unsafe { libc::epoll_ctl(self.0.as_raw_fd(), op, fd.as_raw_fd(), &raw mut event) })
            .map(drop)
    }

    /// Watches `fd`.
    pub fn add(&self, fd: BorrowedFd<'_>, key: u64, bits: u32) -> Sys<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, key, bits)
    }

    /// Ceases to watch `fd`.
    pub fn remove(&self, fd: BorrowedFd<'_>) -> Sys<()> {
        self.control(libc::EPOLL_CTL_DEL, fd, 0, 0)
    }

    /// Waits for events; -1 ms: for ever. A signal ends it with none.
    pub fn wait(&self, timeout_ms: i32, out: &mut Vec<Event>) -> Sys<()> {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; EVENTS_PER_WAIT];
        // SAFETY: the array has the length that is passed.
        let n = check(unsafe {
            libc::epoll_wait(
                self.0.as_raw_fd(),
                events.as_mut_ptr(),
                EVENTS_PER_WAIT as i32,
                timeout_ms,
            )
        });
        out.clear();
        match n {
            Ok(n) => out.extend(events[..n as usize].iter().map(|e| Event {
                key: e.u64,
                bits: e.events,
            })),
            Err(Errno(libc::EINTR)) => {}
            Err(e) => return Err(e),
        }
        Ok(())
    }
}

/// Blocks the signals that end or trouble a bridge, for this thread and all it
/// starts, and gives a descriptor that SIGTERM makes readable.
pub fn signals() -> Sys<OwnedFd> {
    // SAFETY: the sets are made by sigemptyset before they are used; SIG_IGN is a valid handler.
    unsafe {
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigemptyset(set.as_mut_ptr());
        let mut set = set.assume_init();
        libc::sigaddset(&raw mut set, libc::SIGTERM);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
        // An interrupt at the terminal is for the program and for `forebay run`, which
        // still needs the bridge; SIGIO comes from leases.
        for ignored in [libc::SIGINT, libc::SIGHUP, libc::SIGIO, libc::SIGPIPE] {
            libc::signal(ignored, libc::SIG_IGN);
        }
        check(libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC)).map(owned)
    }
}

/// Waits until one of two descriptors is readable.
pub fn wait_either(a: BorrowedFd<'_>, b: BorrowedFd<'_>) {
    let mut fds = [a, b].map(|fd| libc::pollfd {
        fd: fd.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    });
    // SAFETY: two valid entries. After an interruption the caller looks again.
    unsafe { libc::poll(fds.as_mut_ptr(), 2, -1) };
}

/// Is there something to read now?
pub fn is_readable(fd: BorrowedFd<'_>) -> bool {
    let mut entry = libc::pollfd {
        fd: fd.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one valid entry.
    unsafe { libc::poll(&raw mut entry, 1, 0) > 0 }
}

/// The processor on which the calling thread is running.
pub fn cpu() -> u32 {
    // SAFETY: takes nothing; -1 on a kernel without it is no processor's number.
    unsafe { libc::sched_getcpu() as u32 }
}

/// Moves the calling thread to another processor of those on which it may run. Left to itself the scheduler lets two
/// threads that wait for each other share a processor for long, because each leaves it often.
///
/// # Errors
/// There is no other.
pub fn move_to_other_cpu() -> Sys<()> {
    // SAFETY: all zeros is a valid set; the calls read and write a set of the size that is passed.
    unsafe {
        let mut all: libc::cpu_set_t = std::mem::zeroed();
        let size = size_of::<libc::cpu_set_t>();
        check(libc::sched_getaffinity(0, size, &raw mut all))?;
        let mut others = all;
        let here = cpu() as usize;
        if here < 8 * size {
            libc::CPU_CLR(here, &mut others);
        }
        check(libc::sched_setaffinity(0, size, &raw const others))?;
        check(libc::sched_setaffinity(0, size, &raw const all)).map(drop)
    }
}
