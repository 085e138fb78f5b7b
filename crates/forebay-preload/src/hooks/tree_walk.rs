//! `ftw` and `nftw`. libc's version calls its internal `opendir` and `lstat`, which no hook sees. So the walk is done
//! here, by the same rules.
//!
//! A directory is read to its end before its entries are visited, so only one descriptor is open at a time.

use core::ffi::{c_int, c_void};
use core::ptr::null_mut;

use forebay_hook::hooks;
use libc::{AT_FDCWD, AT_SYMLINK_NOFOLLOW, dirent64};

use super::{Path, directory, stat, working_directory};
use crate::config;
use crate::locate::failed;
use forebay_hook::kernel;

const FTW_F: c_int = 0;
const FTW_D: c_int = 1;
const FTW_DNR: c_int = 2;
const FTW_NS: c_int = 3;
const FTW_SL: c_int = 4;
const FTW_DP: c_int = 5;
const FTW_SLN: c_int = 6;
/// The kinds that `ftw` reports, by those that `nftw` reports (0 to 6).
const PLAIN: [c_int; 7] = [FTW_F, FTW_D, FTW_DNR, FTW_NS, FTW_F, FTW_D, FTW_NS];

const FTW_PHYS: c_int = 1;
const FTW_MOUNT: c_int = 2;
const FTW_CHDIR: c_int = 4;
const FTW_DEPTH: c_int = 8;
const FTW_ACTIONRETVAL: c_int = 16;
const KNOWN_FLAGS: c_int = 31;

const FTW_SKIP_SUBTREE: c_int = 2;
const FTW_SKIP_SIBLINGS: c_int = 3;

/// `struct FTW`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Position {
    base: c_int,
    level: c_int,
}

type Visit = unsafe extern "C" fn(Path, *const libc::stat, c_int) -> c_int;
type VisitAt = unsafe extern "C" fn(Path, *const libc::stat, c_int, *mut Position) -> c_int;

#[derive(Clone, Copy)]
enum Visitor {
    Plain(Visit),
    WithPosition(VisitAt),
}

unsafe extern "C" {
    fn tsearch(
        key: *const c_void,
        root: *mut *mut c_void,
        compare: unsafe extern "C" fn(*const c_void, *const c_void) -> c_int,
    ) -> *mut c_void;
    fn tdestroy(root: *mut c_void, free: unsafe extern "C" fn(*mut c_void));
}

unsafe extern "C" fn compare_identity(a: *const c_void, b: *const c_void) -> c_int {
    // SAFETY: the tree holds such pairs only.
    let (a, b) = unsafe { (*a.cast::<[u64; 2]>(), *b.cast::<[u64; 2]>()) };
    a.cmp(&b) as c_int
}

unsafe extern "C" fn free_identity(p: *mut c_void) {
    // SAFETY: came from malloc.
    unsafe { libc::free(p) };
}

struct Walk {
    visitor: Visitor,
    flags: c_int,
    /// The start of paths: a descriptor of the first working directory if the walk is going to change it.
    start: c_int,
    /// The path with a NUL, in memory from malloc.
    path: *mut u8,
    len: usize,
    room: usize,
    device: u64,
    /// The directories seen so far (device and inode), if links are followed.
    seen: *mut c_void,
    /// The working directory is the first so many bytes of the path.
    at: Option<usize>,
}

impl Drop for Walk {
    fn drop(&mut self) {
        // SAFETY: the walk allocated all of this, and nothing refers to it any more.
        unsafe {
            libc::free(self.path.cast());
            tdestroy(self.seen, free_identity);
        }
        if self.start != AT_FDCWD {
            // SAFETY: `start` is a directory that the walk opened.
            unsafe { working_directory::fchdir(self.start) };
            kernel::close(self.start);
        }
    }
}

impl Walk {
    /// Writes `name` at offset `at` of the path.
    fn put(&mut self, at: usize, name: &[u8]) -> bool {
        let need = at + name.len() + 1;
        if need > self.room {
            let room = need.max(2 * self.room).max(256);
            // SAFETY: null or from malloc.
            let larger = unsafe { libc::realloc(self.path.cast(), room) };
            if larger.is_null() {
                return false;
            }
            (self.path, self.room) = (larger.cast(), room);
        }
        // SAFETY: there is room for the name and its NUL.
        unsafe {
            core::ptr::copy_nonoverlapping(name.as_ptr(), self.path.add(at), name.len());
            *self.path.add(at + name.len()) = 0;
        }
        self.len = at + name.len();
        true
    }

    fn path(&self) -> Path {
        self.path.cast()
    }

    fn stat(&self, follow: bool) -> Option<libc::stat> {
        // SAFETY: zeroes are a valid stat.
        let mut attr: libc::stat = unsafe { core::mem::zeroed() };
        let flags = if follow { 0 } else { AT_SYMLINK_NOFOLLOW };
        // SAFETY: a C string, and `attr` is writable.
        let result = unsafe { stat::fstatat(self.start, self.path(), &raw mut attr, flags) };
        (result == 0).then_some(attr)
    }

    fn follows(&self) -> bool {
        self.flags & FTW_PHYS == 0
    }

    /// True if the directory is seen for the first time; `None` without memory.
    fn is_new(&mut self, attr: &libc::stat) -> Option<bool> {
        // SAFETY: plain allocation, initialised at once; the tree takes it over or it is freed.
        unsafe {
            let key = libc::malloc(size_of::<[u64; 2]>()).cast::<[u64; 2]>();
            if key.is_null() {
                return None;
            }
            *key = [attr.st_dev, attr.st_ino];
            let node =
                tsearch(key.cast(), &raw mut self.seen, compare_identity).cast::<*const [u64; 2]>();
            let new = !node.is_null() && core::ptr::eq(*node, key);
            if !new {
                libc::free(key.cast());
            }
            (!node.is_null()).then_some(new)
        }
    }

    /// Calls the program's function on the object at the path.
    fn call(&mut self, attr: &libc::stat, kind: c_int, base: usize, level: c_int) -> c_int {
        if self.flags & FTW_CHDIR != 0 {
            // As in libc, a directory that is reported after its entries is reported from within.
            let place = if kind == FTW_DP { self.len } else { base };
            if self.at != Some(place) && !self.go_to(place) {
                return -1;
            }
            self.at = Some(place);
        }
        // SAFETY: the program's function, called as it expects.
        unsafe {
            match self.visitor {
                Visitor::Plain(f) => f(self.path(), attr, PLAIN[kind as usize]),
                Visitor::WithPosition(f) => {
                    let mut position = Position {
                        base: base as c_int,
                        level,
                    };
                    f(self.path(), attr, kind, &raw mut position)
                }
            }
        }
    }

    /// Makes the first `len` bytes of the path the working directory.
    fn go_to(&mut self, len: usize) -> bool {
        // SAFETY: `len` is within the path; the byte that a NUL replaces is put back.
        unsafe {
            if working_directory::fchdir(self.start) != 0 {
                return false;
            }
            if len == 0 {
                return true;
            }
            let cut = self.path.add(len);
            let kept = cut.replace(0);
            let result = working_directory::chdir(self.path());
            *cut = kept;
            result == 0
        }
    }

    fn visit_all(&mut self, path: &[u8]) -> c_int {
        let len = path
            .iter()
            .rposition(|&b| b != b'/')
            .map_or(path.len().min(1), |n| n + 1);
        let base = path[..len]
            .iter()
            .rposition(|&b| b == b'/')
            .map_or(0, |n| n + 1);
        let base = if base == len { 0 } else { base };
        if !self.put(0, &path[..len]) {
            return failed(libc::ENOMEM);
        }
        let result = match self.stat(self.follows()) {
            None if self.follows() && kernel::errno() == libc::ENOENT => match self.stat(false) {
                Some(link) if is(&link, libc::S_IFLNK) => self.call(&link, FTW_SLN, base, 0),
                _ => failed(libc::ENOENT),
            },
            None => -1,
            Some(attr) if is(&attr, libc::S_IFDIR) => {
                self.device = attr.st_dev;
                if self.follows() && self.is_new(&attr).is_none() {
                    return failed(libc::ENOMEM);
                }
                self.directory(&attr, base, 0)
            }
            Some(attr) if is(&attr, libc::S_IFLNK) => self.call(&attr, FTW_SL, base, 0),
            Some(attr) => self.call(&attr, FTW_F, base, 0),
        };
        match result {
            FTW_SKIP_SUBTREE | FTW_SKIP_SIBLINGS if self.flags & FTW_ACTIONRETVAL != 0 => 0,
            other => other,
        }
    }

    fn directory(&mut self, attr: &libc::stat, base: usize, level: c_int) -> c_int {
        let mut names: *mut *mut dirent64 = null_mut();
        // SAFETY: a C string, and `names` is writable.
        let count =
            unsafe { directory::scandirat(self.start, self.path(), &raw mut names, None, None) };
        if count < 0 {
            return match kernel::errno() {
                libc::EACCES => self.call(attr, FTW_DNR, base, level),
                _ => -1,
            };
        }
        let len = self.len;
        let mut result = match self.flags & FTW_DEPTH {
            0 => self.call(attr, FTW_D, base, level),
            _ => 0,
        };
        // SAFETY: `names` holds `count` entries from malloc.
        unsafe {
            for i in 0..count as usize {
                let entry = *names.add(i);
                let name = kernel::bytes((&raw const (*entry).d_name).cast());
                if result == 0 && name != b"." && name != b".." {
                    result = self.entry(len, name, level + 1);
                }
                libc::free(entry.cast());
            }
            libc::free(names.cast());
            // Back to this directory's own path.
            *self.path.add(len) = 0;
        }
        self.len = len;
        if self.flags & FTW_ACTIONRETVAL != 0 && result == FTW_SKIP_SIBLINGS {
            result = 0;
        }
        if result == 0 && self.flags & FTW_DEPTH != 0 {
            result = self.call(attr, FTW_DP, base, level);
        }
        result
    }

    /// The entry `name` of the directory whose path has length `dir`.
    fn entry(&mut self, dir: usize, name: &[u8], level: c_int) -> c_int {
        // SAFETY: within the path.
        let slash = unsafe { *self.path.add(dir - 1) } != b'/';
        let base = dir + usize::from(slash);
        if slash && !self.put(dir, b"/") || !self.put(base, name) {
            return failed(libc::ENOMEM);
        }
        let (attr, kind) = match self.stat(self.follows()) {
            Some(attr) if is(&attr, libc::S_IFDIR) => (attr, FTW_D),
            Some(attr) if is(&attr, libc::S_IFLNK) => (attr, FTW_SL),
            Some(attr) => (attr, FTW_F),
            None if !matches!(kernel::errno(), libc::EACCES | libc::ENOENT) => return -1,
            None => match self.stat(false).filter(|_| self.follows()) {
                Some(link) if is(&link, libc::S_IFLNK) => (link, FTW_SLN),
                // SAFETY: zeroes are a valid stat.
                _ => (unsafe { core::mem::zeroed() }, FTW_NS),
            },
        };
        if kind != FTW_NS && self.flags & FTW_MOUNT != 0 && attr.st_dev != self.device {
            return 0;
        }
        let result = if kind != FTW_D {
            self.call(&attr, kind, base, level)
        } else {
            match !self.follows()
                || match self.is_new(&attr) {
                    Some(new) => new,
                    None => return failed(libc::ENOMEM),
                } {
                true => self.directory(&attr, base, level),
                false => 0,
            }
        };
        if self.flags & FTW_ACTIONRETVAL != 0 && result == FTW_SKIP_SUBTREE {
            0
        } else {
            result
        }
    }
}

fn is(attr: &libc::stat, kind: u32) -> bool {
    attr.st_mode & libc::S_IFMT == kind
}

/// # Safety
/// `path` is a C string.
unsafe fn walk(path: Path, visitor: Visitor, flags: c_int) -> c_int {
    // SAFETY: the caller's promise.
    let path = unsafe { kernel::bytes(path) };
    if path.is_empty() {
        return failed(libc::ENOENT);
    }
    let mut start = AT_FDCWD;
    if flags & FTW_CHDIR != 0 {
        let open_flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
        // SAFETY: a C string. The kernel's working directory is right, also for one in the buffer.
        match unsafe { kernel::openat(AT_FDCWD, c".".as_ptr(), open_flags, 0) } {
            Ok(fd) => start = fd,
            Err(e) => return failed(e),
        }
        crate::locate::forget_fd(start);
    }
    let (path_at, seen) = (null_mut(), null_mut());
    let mut walk = Walk {
        visitor,
        flags,
        start,
        path: path_at,
        len: 0,
        room: 0,
        device: 0,
        seen,
        at: None,
    };
    walk.visit_all(path)
}

hooks! {
    fn ftw | ftw64 [real] (path: Path, visit: Visit, descriptors: c_int) -> c_int {
        if config::get().is_none() {
            return real(path, visit, descriptors);
        }
        walk(path, Visitor::Plain(visit), 0)
    }

    fn nftw | nftw64 [real] (path: Path, visit: VisitAt, descriptors: c_int, flags: c_int) -> c_int {
        if config::get().is_none() {
            return real(path, visit, descriptors, flags);
        }
        if flags & !KNOWN_FLAGS != 0 {
            return failed(libc::EINVAL);
        }
        walk(path, Visitor::WithPosition(visit), flags)
    }
}
