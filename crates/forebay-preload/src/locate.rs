//! Decides whether a path is in the buffer, and finds its name there.
//!
//! This takes two steps. [`may_be_mine`] runs for every path of the program. It
//! looks at bytes and flags in memory, and makes no system call for a path
//! outside. [`locate`] runs for the other paths, and may ask the kernel where a
//! directory is.
//!
//! Directory descriptors and the working directory need no tables: a granted
//! directory is a real one, in the bridge's storage or on the parallel file
//! system, and the kernel tells its path. The caches here may be lost at any time.

use core::ffi::{c_char, c_int};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicI32, AtomicU8, AtomicU32, AtomicU64, Ordering};

use forebay_hook::path::{self, Glance, Spot, below};
use forebay_wire::{Base, MAX_PATH_BYTES, ObjectId, Op, Request};

use crate::config;
use crate::requests::LINK;
use crate::way::Way;
use forebay_hook::kernel::{self, Errno, FdPath, OwnFd, call};
use forebay_link::{Answer, Config, Fail, ask_where_it_is};

/// A smaller pointer is no string, and the kernel answers `EFAULT`.
pub const LEAST_ADDRESS: isize = 4096;

/// A place in the buffer.
#[derive(Clone, Copy)]
pub struct Target<'a> {
    /// Where the buffer and its bridge are.
    pub config: &'static Config,
    /// The start of `rel`.
    pub base: Base<'a>,
    /// The path below `base`, as written; empty for `base` itself.
    pub rel: &'a [u8],
}

impl<'a> Target<'a> {
    /// A request about this place.
    pub fn request(&self, op: Op) -> Request<'a> {
        Request {
            base1: self.base,
            str1: self.rel,
            ..Request::new(op)
        }
    }
}

/// Memory for the path of a directory.
pub struct Scratch(MaybeUninit<[u8; MAX_PATH_BYTES + 1]>);

impl Scratch {
    /// Memory that is not initialised, because most calls never use it.
    pub fn new() -> Self {
        Scratch(MaybeUninit::uninit())
    }

    /// The memory, and its length: [`MAX_PATH_BYTES`] and a byte for a NUL.
    pub fn room(&mut self) -> (*mut u8, usize) {
        (self.0.as_mut_ptr().cast(), MAX_PATH_BYTES + 1)
    }

    /// Copies a path into the memory, with a NUL after it.
    fn keep(&mut self, path: &[u8]) -> *const c_char {
        let (room, len) = self.room();
        let n = path.len().min(len - 1);
        // SAFETY: `room` has more than `n` bytes.
        unsafe {
            core::ptr::copy_nonoverlapping(path.as_ptr(), room, n);
            *room.add(n) = 0;
        }
        room.cast()
    }

    fn filled(&self, len: usize) -> &[u8] {
        // SAFETY: the caller has made sure that `len` bytes were written.
        unsafe { core::slice::from_raw_parts(self.0.as_ptr().cast(), len) }
    }
}

/// The first step, without a system call. False if the path is certainly native.
///
/// # Safety
/// `path` is a C string or a pointer that the kernel would refuse.
#[inline]
pub unsafe fn may_be_mine(dirfd: c_int, path: *const c_char) -> bool {
    let Some(config) = config::get() else {
        return false;
    };
    if (path as isize) < LEAST_ADDRESS {
        return false;
    }
    // SAFETY: the caller's promise.
    let path = unsafe { kernel::bytes(path) };
    match path.first() {
        None => false,
        Some(b'/') => {
            path::glance(path, config.root(), config.alias()) != Glance::Outside
                || path::through_own_link(path).is_some()
        }
        Some(_) => {
            let far = if dirfd == libc::AT_FDCWD {
                cwd_is_far()
            } else {
                fd_is_far(dirfd)
            };
            !far || path::has_dotdot(path)
        }
    }
}

/// The second step, with the exact answer. `None` if the path is native.
pub fn locate<'a>(dirfd: c_int, path: &'a [u8], scratch: &'a mut Scratch) -> Option<Target<'a>> {
    let config = config::get()?;
    match path.first()? {
        b'/' => match path::through_own_link(path) {
            Some((fd, rest)) => locate(fd.unwrap_or(libc::AT_FDCWD), rest, scratch),
            None => locate_absolute(path),
        },
        _ => {
            let len = match directory(dirfd, scratch) {
                Directory::Known(base) => {
                    return Some(Target {
                        config,
                        base,
                        rel: path,
                    });
                }
                Directory::Unreadable => return None,
                Directory::Path(len) => len,
            };
            let at = scratch.filled(len);
            match spot(config, at) {
                Spot::Dir(oid) => Some(Target {
                    config,
                    base: Base::Object(oid),
                    rel: path,
                }),
                Spot::Lower(below) => Some(Target {
                    config,
                    base: lower(below, dirfd),
                    rel: path,
                }),
                Spot::File(..) => None,
                Spot::Far | Spot::Above => enter(config, dirfd, at, path),
            }
        }
    }
}

/// True if the descriptor (or the working directory, for `AT_FDCWD`) is known to be outside the buffer.
#[inline]
pub fn is_far(fd: c_int) -> bool {
    config::get().is_none()
        || if fd == libc::AT_FDCWD {
            cwd_is_far()
        } else {
            fd_is_far(fd)
        }
}

/// True if the path is the other spelling of the root, without a slash after it. For a call that does not follow links,
/// this may be a symbolic link that lies outside the buffer.
pub fn is_alias(path: &[u8]) -> bool {
    config::get().is_some_and(|c| !c.alias().is_empty() && path == c.alias())
}

/// [`locate`] for an absolute path.
fn locate_absolute(path: &[u8]) -> Option<Target<'_>> {
    let config = config::get()?;
    if !path::is_plain(path) {
        return enter(config, libc::AT_FDCWD, b"/", path);
    }
    let rel = below(config.root(), path)
        .or_else(|| below(config.alias(), path).filter(|_| !config.alias().is_empty()))?;
    Some(Target {
        config,
        base: Base::Root,
        rel,
    })
}

/// The object of the buffer at the place `at`, which the kernel has told, and which of its hard links that is.
pub fn object_at(config: &Config, at: &[u8]) -> Option<(Base<'static>, u32)> {
    match path::classify(at, config.root(), config.storage()) {
        Spot::Dir(oid) => Some((Base::Object(oid), 0)),
        Spot::File(oid, link) => Some((Base::Object(oid), link)),
        _ => None,
    }
}

/// The object in the storage that the open file or directory `fd` is, and which of its links.
pub fn stored(config: &Config, fd: c_int) -> Option<(ObjectId, u32)> {
    let mut scratch = Scratch::new();
    let known = match fd {
        libc::AT_FDCWD => kernel_cwd(&mut scratch),
        fd => kernel_path(fd, &mut scratch),
    };
    match object_at(config, scratch.filled(known.ok()?))? {
        (Base::Object(oid), link) => Some((ObjectId(oid), link)),
        _ => None,
    }
}

/// [`locate`], with the answer alone.
///
/// # Safety
/// `path` is a C string or a pointer that the kernel would refuse.
#[inline(never)]
pub unsafe fn is_mine(dirfd: c_int, path: *const c_char) -> bool {
    let mut scratch = Scratch::new();
    // SAFETY: the caller's promise; the first step has looked whether it is a pointer to a string.
    unsafe {
        may_be_mine(dirfd, path) && locate(dirfd, kernel::bytes(path), &mut scratch).is_some()
    }
}

/// The place in the buffer of an open descriptor, or of the working directory for `AT_FDCWD`.
pub fn locate_fd(fd: c_int, scratch: &mut Scratch) -> Option<Target<'_>> {
    let config = config::get()?;
    if is_far(fd) {
        return None;
    }
    let base = match directory(fd, scratch) {
        Directory::Known(base) => base,
        Directory::Unreadable => return None,
        Directory::Path(len) => match spot(config, scratch.filled(len)) {
            Spot::Dir(oid) | Spot::File(oid, _) => Base::Object(oid),
            Spot::Lower(below) => lower(below, fd),
            Spot::Far | Spot::Above => return None,
        },
    };
    Some(Target {
        config,
        base,
        rel: b"",
    })
}

/// Where a path from outside enters the buffer. The kernel shows `base` as the path of `dirfd`.
fn enter<'p>(
    config: &'static Config,
    dirfd: c_int,
    base: &[u8],
    path: &'p [u8],
) -> Option<Target<'p>> {
    let entry = path::enter(base, path, config.root(), config.alias())?;
    if entry.is_doubtful && !leads_to_root(config, dirfd, entry.way) {
        return None;
    }
    Some(Target {
        config,
        base: Base::Root,
        rel: entry.rest,
    })
}

/// Asks the kernel whether this path outside leads to the root. If the kernel can't tell, the text of the path counts.
#[cold]
#[inline(never)]
fn leads_to_root(config: &Config, dirfd: c_int, way: &[u8]) -> bool {
    let mut scratch = Scratch::new();
    if way.len() > MAX_PATH_BYTES {
        return false;
    }
    let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC;
    // SAFETY: `keep` makes a C string.
    let fd = match unsafe { kernel::openat(dirfd, scratch.keep(way), flags, 0) } {
        Ok(fd) => OwnFd(fd),
        Err(e) => return matches!(e, libc::EMFILE | libc::ENFILE | libc::ENOMEM),
    };
    match kernel_path(fd.0, &mut scratch) {
        Ok(len) => scratch.filled(len) == config.root(),
        Err(_) => true,
    }
}

fn spot<'p>(config: &Config, at: &'p [u8]) -> Spot<'p> {
    match path::classify(at, config.root(), config.storage()) {
        Spot::Far if !config.alias().is_empty() => match path::classify(at, config.alias(), b"") {
            // A relative path from a directory above the alias may enter the buffer through the alias.
            Spot::Above => Spot::Above,
            _ => Spot::Far,
        },
        other => other,
    }
}

/// The directory `fd` of the PFS, by the path that the kernel shows for it.
fn lower(below: &[u8], fd: c_int) -> Base<'_> {
    if below.is_empty() {
        Base::Root
    } else {
        // The bridge refuses what the kernel does not tell.
        Base::Lower(below, kernel::inode(fd).unwrap_or_default())
    }
}

enum Directory {
    /// The cache knows it.
    Known(Base<'static>),
    /// Its path lies in the scratch memory. Holds the length.
    Path(usize),
    /// The number is no open descriptor.
    Unreadable,
}

fn directory(dirfd: c_int, scratch: &mut Scratch) -> Directory {
    if dirfd == libc::AT_FDCWD {
        return working_directory(scratch);
    }
    match kernel_path(dirfd, scratch) {
        Ok(n) => {
            let far = config::get().is_some_and(|c| spot(c, scratch.filled(n)) == Spot::Far);
            if far && LINK.is_owner() {
                mark_far(dirfd);
            }
            Directory::Path(n)
        }
        Err(_) => Directory::Unreadable,
    }
}

/// The kernel's path of an open descriptor.
fn kernel_path(fd: c_int, scratch: &mut Scratch) -> Result<usize, Errno> {
    let (room, len) = scratch.room();
    // SAFETY: `room` has `len` bytes.
    unsafe { kernel::readlink(FdPath::new(fd).as_ptr(), room, len) }
}

/// True if the open file or directory `fd` is in the buffer, wherever its bytes lie. The kernel is asked each time:
/// [`is_far`] may be out of date for a number that came by `dup` or from another process. If the kernel can't tell, any
/// file of a process that uses the buffer counts.
#[inline(never)]
pub fn is_in_buffer(fd: c_int) -> bool {
    let Some(config) = config::get() else {
        return false;
    };
    let mut scratch = Scratch::new();
    match kernel_path(fd, &mut scratch) {
        _ if fd < 0 => false,
        Ok(len) => !matches!(spot(config, scratch.filled(len)), Spot::Far | Spot::Above),
        Err(_) => LINK.is_attached() && kernel::fcntl(fd, libc::F_GETFD, 0).is_ok(),
    }
}

// ---- descriptors ---------------------------------------------------------

/// Descriptors below this number have a bit in [`FAR`].
const TABLE_DESCRIPTORS: usize = 65536;
/// A bit for each descriptor, set if the descriptor is known to be far from the buffer.
static FAR: [AtomicU8; TABLE_DESCRIPTORS / 8] = [const { AtomicU8::new(0) }; TABLE_DESCRIPTORS / 8];

fn fd_is_far(fd: c_int) -> bool {
    match FAR.get(fd as usize / 8) {
        Some(cell) if fd >= 0 => cell.load(Ordering::Relaxed) & 1 << (fd % 8) != 0,
        _ => false,
    }
}

fn mark_far(fd: c_int) {
    if let Some(cell) = FAR.get(fd as usize / 8).filter(|_| fd >= 0) {
        cell.fetch_or(1 << (fd % 8), Ordering::Relaxed);
    }
}

/// Forgets what is known about `fd`, because the number may stand for another file from now on.
#[inline]
pub fn forget_fd(fd: c_int) {
    if let Some(cell) = FAR.get(fd as usize / 8).filter(|_| fd >= 0)
        && cell.load(Ordering::Relaxed) & 1 << (fd % 8) != 0
    {
        cell.fetch_and(!(1 << (fd % 8)), Ordering::Relaxed);
    }
}

/// Forgets what is known about all descriptors, because every number may stand for another file from now on.
pub fn forget_fds() {
    for cell in &FAR {
        if cell.load(Ordering::Relaxed) != 0 {
            cell.store(0, Ordering::Relaxed);
        }
    }
}

// ---- working directory ---------------------------------------------------

/// Grows with every chdir. The cache below is valid for one value of it.
static MOVES: AtomicU64 = AtomicU64::new(1);
/// `MOVES << 2 | state` of the cached answer.
static CWD: AtomicU64 = AtomicU64::new(0);
const CWD_FAR: u64 = 1;
const CWD_OBJECT: u64 = 2;
static CWD_OID: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];
static CWD_LOCK: AtomicU32 = AtomicU32::new(0);
/// The pid of a child of `vfork` that has changed its directory, and must not use its parent's cache. 0 for none.
static STRAY: AtomicI32 = AtomicI32::new(0);
/// The value of [`STRAY`] if no process or thread may use the cache.
const EVERYBODY: c_int = -1;

fn is_stray() -> bool {
    let stray = STRAY.load(Ordering::Relaxed);
    stray != 0 && (stray == EVERYBODY || stray == kernel::getpid())
}

/// Switches the cache off, because threads may have different working directories from now on.
pub fn cwd_is_per_thread() {
    STRAY.store(EVERYBODY, Ordering::Relaxed);
}

fn cwd_is_far() -> bool {
    let cached = CWD.load(Ordering::Acquire);
    cached == MOVES.load(Ordering::Relaxed) << 2 | CWD_FAR && !is_stray()
}

/// Makes the cache invalid after a successful chdir or fchdir.
pub fn cwd_changed() {
    if LINK.is_owner() {
        MOVES.fetch_add(1, Ordering::AcqRel);
    } else if STRAY.load(Ordering::Relaxed) != EVERYBODY {
        STRAY.store(kernel::getpid(), Ordering::Relaxed);
    }
}

fn working_directory(scratch: &mut Scratch) -> Directory {
    let stray = is_stray();
    let moves = MOVES.load(Ordering::Acquire);
    if !stray && CWD.load(Ordering::Acquire) == moves << 2 | CWD_OBJECT {
        let oid = [&CWD_OID[0], &CWD_OID[1]].map(|w| w.load(Ordering::Acquire));
        // The answer has not changed meanwhile, and no thread is writing the next one. So both words belong together.
        if CWD_LOCK.load(Ordering::Acquire) == 0
            && CWD.load(Ordering::Acquire) == moves << 2 | CWD_OBJECT
        {
            return Directory::Known(Base::Object(u128::from(oid[0]) << 64 | u128::from(oid[1])));
        }
    }
    let len = match kernel_cwd(scratch) {
        Ok(len) => len,
        Err(_) => return Directory::Unreadable,
    };
    let Some(config) = config::get() else {
        return Directory::Unreadable;
    };
    let found = spot(config, scratch.filled(len));
    let state = match found {
        Spot::Far => CWD_FAR,
        Spot::Dir(_) => CWD_OBJECT,
        _ => return Directory::Path(len),
    };
    if !stray
        && LINK.is_owner()
        && CWD_LOCK
            .compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    {
        CWD.store(0, Ordering::Release);
        if let Spot::Dir(oid) = found {
            CWD_OID[0].store((oid >> 64) as u64, Ordering::Release);
            CWD_OID[1].store(oid as u64, Ordering::Release);
        }
        CWD.store(moves << 2 | state, Ordering::Release);
        CWD_LOCK.store(0, Ordering::Release);
    }
    Directory::Path(len)
}

/// The kernel's path of the working directory. The path of a removed one, and of one that the bridge has opened in another mount
/// namespace, comes from /proc.
fn kernel_cwd(scratch: &mut Scratch) -> Result<usize, Errno> {
    let (room, len) = scratch.room();
    // SAFETY: `room` has `len` bytes.
    match unsafe { call!(libc::SYS_getcwd, room, len) } {
        Ok(n) if scratch.filled(n).starts_with(b"/") => Ok(n - 1),
        // SAFETY: a C string, and `room` has `len` bytes.
        Ok(_) | Err(libc::ENOENT) => unsafe {
            kernel::readlink(c"/proc/self/cwd".as_ptr(), room, len)
        },
        Err(e) => Err(e),
    }
}

/// Does a path of this mount namespace lead to the working directory?
pub fn is_cwd_reachable() -> bool {
    let mut scratch = Scratch::new();
    let (room, len) = scratch.room();
    // SAFETY: `room` has `len` bytes.
    unsafe { call!(libc::SYS_getcwd, room, len) }.is_ok_and(|n| scratch.filled(n).starts_with(b"/"))
}

// ---- routing -------------------------------------------------------------

/// What a libc function returns when it fails.
pub trait Outcome: Copy {
    /// The value that means a failure: -1 or NULL.
    const FAILED: Self;
}

impl Outcome for c_int {
    const FAILED: Self = -1;
}
impl Outcome for isize {
    const FAILED: Self = -1;
}
impl Outcome for i64 {
    const FAILED: Self = -1;
}
impl<T> Outcome for *mut T {
    const FAILED: Self = core::ptr::null_mut();
}

/// Sets `errno`, and returns the value that means a failure.
pub fn failed<R: Outcome>(e: Errno) -> R {
    kernel::set_errno(e);
    R::FAILED
}

/// Runs a call with one path: `ours` in the buffer, `native` elsewhere. If the bridge
/// answers that the path leads out of the buffer, runs the call again with the new path.
///
/// # Safety
/// `path` is a C string or a pointer that the kernel would refuse.
#[inline(always)]
pub unsafe fn route<R: Outcome>(
    dirfd: c_int,
    path: *const c_char,
    native: impl Fn(c_int, *const c_char) -> R,
    ours: impl Fn(&Target<'_>, &mut Answer) -> Result<R, Fail>,
) -> R {
    // SAFETY: the caller's promise.
    if !unsafe { may_be_mine(dirfd, path) } {
        return native(dirfd, path);
    }
    // SAFETY: as above.
    unsafe { route_slow(dirfd, path, native, ours) }
}

#[inline(never)]
unsafe fn route_slow<R: Outcome>(
    dirfd: c_int,
    path: *const c_char,
    native: impl Fn(c_int, *const c_char) -> R,
    ours: impl Fn(&Target<'_>, &mut Answer) -> Result<R, Fail>,
) -> R {
    // Few and small buffers: a thread may have little stack.
    let mut scratch = Scratch::new();
    let mut answer = Answer::new();
    // SAFETY: the caller's promise.
    let mut way = unsafe { Way::new(dirfd, path) };
    loop {
        let (dirfd, path) = way.now();
        // SAFETY: a C string.
        let bytes = unsafe { kernel::bytes(path) };
        let done = ask_where_it_is(|| match locate(dirfd, bytes, &mut scratch) {
            None => Ok(None),
            Some(_) if bytes.len() > MAX_PATH_BYTES => Err(libc::ENAMETOOLONG.into()),
            Some(target) => ours(&target, &mut answer).map(Some),
        });
        match done {
            Ok(Some(value)) => return value,
            Ok(None) => return native(dirfd, path),
            // A removed directory that is still open, or is the working directory, still exists for the kernel.
            Err(Fail::Errno(libc::ENOENT)) if bytes == b"." => return native(dirfd, path),
            Err(Fail::Errno(e)) => return failed(e),
            Err(Fail::Redirect) => {
                if let Err(e) = way.leads_on_to(answer.body(), 0) {
                    return failed(e);
                }
            }
        }
    }
}
