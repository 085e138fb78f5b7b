//! The `fts` functions. libc's version calls its internal `opendir` and `stat`, which no hook sees. So the traversal is
//! done here, by the same rules, with one difference that the manual allows: the working directory never changes, so
//! `fts_accpath` is always `fts_path`.

use core::ffi::{c_char, c_int, c_long, c_void};
use core::ptr::null_mut;

use forebay_hook::hooks;
use libc::{AT_FDCWD, AT_SYMLINK_NOFOLLOW, dirent64};

use super::{Path, directory, stat};
use crate::config;
use crate::locate::failed;
use forebay_hook::environment;
use forebay_hook::kernel;

const FTS_COMFOLLOW: c_int = 0x0001;
const FTS_LOGICAL: c_int = 0x0002;
const FTS_NOSTAT: c_int = 0x0008;
const FTS_PHYSICAL: c_int = 0x0010;
const FTS_SEEDOT: c_int = 0x0020;
const FTS_XDEV: c_int = 0x0040;
const FTS_OPTIONMASK: c_int = 0x00ff;
const FTS_NAMEONLY: c_int = 0x0100;

const FTS_D: u16 = 1;
const FTS_DC: u16 = 2;
const FTS_DEFAULT: u16 = 3;
const FTS_DNR: u16 = 4;
const FTS_DOT: u16 = 5;
const FTS_DP: u16 = 6;
const FTS_ERR: u16 = 7;
const FTS_F: u16 = 8;
const FTS_NS: u16 = 10;
const FTS_NSOK: u16 = 11;
const FTS_SL: u16 = 12;
const FTS_SLNONE: u16 = 13;

const FTS_AGAIN: u16 = 1;
const FTS_FOLLOW: u16 = 2;
const FTS_NOINSTR: u16 = 3;
const FTS_SKIP: u16 = 4;

const ROOT_PARENT_LEVEL: i16 = -1;

/// `FTSENT`, followed by the name and the path.
#[repr(C)]
struct Entry {
    cycle: *mut Entry,
    parent: *mut Entry,
    link: *mut Entry,
    number: c_long,
    pointer: *mut c_void,
    accpath: *mut c_char,
    path: *mut c_char,
    errno: c_int,
    symfd: c_int,
    pathlen: u16,
    namelen: u16,
    ino: u64,
    dev: u64,
    nlink: libc::nlink_t,
    level: i16,
    info: u16,
    flags: u16,
    instr: u16,
    statp: *mut libc::stat,
    name: [c_char; 1],
}

type Compare = Option<unsafe extern "C" fn(*const c_void, *const c_void) -> c_int>;

/// `FTS`.
#[repr(C)]
struct Traversal {
    cur: *mut Entry,
    child: *mut Entry,
    array: *mut *mut Entry,
    dev: u64,
    path: *mut c_char,
    rfd: c_int,
    pathlen: c_int,
    nitems: c_int,
    compar: Compare,
    options: c_int,
    /// Not in libc's structure. False before the first read; until then `cur` is no entry, but links to the first root.
    started: bool,
}

/// A new entry for `name` below `parent`, whose path is `dir` and the name.
///
/// # Safety
/// `parent` is an entry or null.
unsafe fn new_entry(parent: *mut Entry, dir: &[u8], name: &[u8]) -> *mut Entry {
    let slash = usize::from(dir.last().is_some_and(|&b| b != b'/'));
    let pathlen = dir.len() + slash + name.len();
    // The name begins at its place in the C structure, and continues behind the structure.
    let name_at = core::mem::offset_of!(Entry, name);
    let rest_at = (name_at + name.len() + 1)
        .max(size_of::<Entry>())
        .next_multiple_of(16);
    let total = rest_at + size_of::<libc::stat>() + pathlen + 1;
    // SAFETY: plain allocation; zeroes are a valid Entry; all places are within it.
    unsafe {
        let start = libc::calloc(1, total).cast::<u8>();
        if start.is_null() {
            return null_mut();
        }
        let rest = start.add(rest_at);
        let entry = start.cast::<Entry>();
        (*entry).statp = rest.cast();
        let path = rest.add(size_of::<libc::stat>());
        core::ptr::copy_nonoverlapping(name.as_ptr(), start.add(name_at), name.len());
        core::ptr::copy_nonoverlapping(dir.as_ptr(), path, dir.len());
        path.add(dir.len()).write_bytes(b'/', slash);
        core::ptr::copy_nonoverlapping(name.as_ptr(), path.add(dir.len() + slash), name.len());
        (*entry).path = path.cast();
        (*entry).accpath = path.cast();
        (*entry).pathlen = pathlen as u16;
        (*entry).namelen = name.len() as u16;
        (*entry).parent = parent;
        (*entry).level = if parent.is_null() {
            ROOT_PARENT_LEVEL
        } else {
            (*parent).level + 1
        };
        (*entry).instr = FTS_NOINSTR;
        entry
    }
}

/// # Safety
/// `first` is a list of entries that nobody uses any more.
unsafe fn free_list(mut first: *mut Entry) {
    while !first.is_null() {
        // SAFETY: the caller's promise.
        unsafe {
            let next = (*first).link;
            libc::free(first.cast());
            first = next;
        }
    }
}

/// Fills in the attributes of an entry, and returns its kind.
///
/// # Safety
/// `entry` is an entry.
unsafe fn examine(options: c_int, entry: *mut Entry, follow: bool) -> u16 {
    // SAFETY: the caller's promise; paths are C strings.
    unsafe {
        let e = &mut *entry;
        let result;
        if follow || options & FTS_LOGICAL != 0 {
            result = stat::fstatat(AT_FDCWD, e.accpath, e.statp, 0);
            if result != 0 {
                let why = kernel::errno();
                if stat::fstatat(AT_FDCWD, e.accpath, e.statp, AT_SYMLINK_NOFOLLOW) == 0 {
                    kernel::set_errno(0);
                    return FTS_SLNONE;
                }
                e.errno = why;
            }
        } else {
            result = stat::fstatat(AT_FDCWD, e.accpath, e.statp, AT_SYMLINK_NOFOLLOW);
            if result != 0 {
                e.errno = kernel::errno();
            }
        }
        if result != 0 {
            e.statp.write_bytes(0, 1);
            return FTS_NS;
        }
        let attr = &*e.statp;
        (e.dev, e.ino, e.nlink) = (attr.st_dev, attr.st_ino, attr.st_nlink);
        match attr.st_mode & libc::S_IFMT {
            libc::S_IFDIR => {
                let name = kernel::bytes(e.name.as_ptr());
                if e.level > 0 && (name == b"." || name == b"..") {
                    return FTS_DOT;
                }
                let mut above = e.parent;
                while !above.is_null() && (*above).level > ROOT_PARENT_LEVEL {
                    if (*above).ino == e.ino && (*above).dev == e.dev {
                        e.cycle = above;
                        return FTS_DC;
                    }
                    above = (*above).parent;
                }
                FTS_D
            }
            libc::S_IFLNK => FTS_SL,
            libc::S_IFREG => FTS_F,
            _ => FTS_DEFAULT,
        }
    }
}

/// Sorts a list of `count` entries by the program's function.
///
/// # Safety
/// `first` is a list of `count` entries.
unsafe fn sorted(compar: Compare, first: *mut Entry, count: usize) -> *mut Entry {
    let Some(compar) = compar.filter(|_| count > 1) else {
        return first;
    };
    // SAFETY: the array has room for `count` pointers, and the program's function compares such elements.
    unsafe {
        let array = libc::malloc(count * size_of::<*mut Entry>()).cast::<*mut Entry>();
        if array.is_null() {
            return first; // as libc's own: unsorted rather than not at all
        }
        let mut at = first;
        for i in 0..count {
            *array.add(i) = at;
            at = (*at).link;
        }
        libc::qsort(array.cast(), count, size_of::<*mut Entry>(), Some(compar));
        for i in 0..count {
            (**array.add(i)).link = if i + 1 < count {
                *array.add(i + 1)
            } else {
                null_mut()
            };
        }
        let first = *array;
        libc::free(array.cast());
        first
    }
}

/// The entries of a directory. If null, `cur.info` says why there are none.
///
/// # Safety
/// `cur` is an entry.
unsafe fn build(t: &mut Traversal, cur: *mut Entry) -> *mut Entry {
    let mut names: *mut *mut dirent64 = null_mut();
    // SAFETY: paths of entries are C strings; what scandir gives is freed here.
    unsafe {
        let count = directory::scandirat(AT_FDCWD, (*cur).accpath, &raw mut names, None, None);
        if count < 0 {
            (*cur).info = FTS_DNR;
            (*cur).errno = kernel::errno();
            return null_mut();
        }
        let dir = kernel::bytes((*cur).path);
        let (mut first, mut last, mut kept): (*mut Entry, *mut Entry, usize) =
            (null_mut(), null_mut(), 0);
        for i in 0..count as usize {
            let found = *names.add(i);
            let name = kernel::bytes((&raw const (*found).d_name).cast());
            let dot = name == b"." || name == b"..";
            if !dot || t.options & FTS_SEEDOT != 0 {
                let entry = new_entry(cur, dir, name);
                if !entry.is_null() {
                    if t.options & FTS_NOSTAT != 0
                        && (*found).d_type != libc::DT_DIR
                        && (*found).d_type != libc::DT_UNKNOWN
                    {
                        (*entry).info = FTS_NSOK;
                    } else {
                        (*entry).info = examine(t.options, entry, false);
                    }
                    if last.is_null() {
                        first = entry;
                    } else {
                        (*last).link = entry;
                    }
                    last = entry;
                    kept += 1;
                }
            }
            libc::free(found.cast());
        }
        libc::free(names.cast());
        if kept == 0 {
            (*cur).info = FTS_DP;
        }
        sorted(t.compar, first, kept)
    }
}

/// # Safety
/// `t` is a traversal.
unsafe fn read(t: &mut Traversal) -> *mut Entry {
    // SAFETY: all entries in the lists are live.
    unsafe {
        let mut p = t.cur;
        if p.is_null() {
            return null_mut();
        }
        let instr = core::mem::replace(&mut (*p).instr, FTS_NOINSTR);
        if t.started {
            if instr == FTS_AGAIN {
                (*p).info = examine(t.options, p, false);
                return p;
            }
            if instr == FTS_FOLLOW && matches!((*p).info, FTS_SL | FTS_SLNONE) {
                (*p).info = examine(t.options, p, true);
                return p;
            }
            if (*p).info == FTS_D {
                if instr == FTS_SKIP || t.options & FTS_XDEV != 0 && (*p).dev != t.dev {
                    free_list(core::mem::replace(&mut t.child, null_mut()));
                    (*p).info = FTS_DP;
                    return p;
                }
                let mut child = core::mem::replace(&mut t.child, null_mut());
                if child.is_null() {
                    child = build(t, p);
                }
                if child.is_null() {
                    return p;
                }
                t.cur = child;
                return arrive(t, child);
            }
        }
        t.started = true;
        // Go to the next entry of this level, or up.
        loop {
            let done = p;
            p = (*p).link;
            if p.is_null() {
                let up = (*done).parent;
                libc::free(done.cast());
                t.cur = up;
                if up.is_null() || (*up).level == ROOT_PARENT_LEVEL {
                    libc::free(up.cast());
                    t.cur = null_mut();
                    kernel::set_errno(0);
                    return null_mut();
                }
                (*up).info = if (*up).errno != 0 { FTS_ERR } else { FTS_DP };
                return up;
            }
            libc::free(done.cast());
            t.cur = p;
            if (*p).instr != FTS_SKIP {
                return arrive(t, p);
            }
        }
    }
}

/// # Safety
/// `p` is an entry of `t`.
unsafe fn arrive(t: &mut Traversal, p: *mut Entry) -> *mut Entry {
    // SAFETY: the caller's promise.
    unsafe {
        if (*p).level == 0 {
            t.dev = (*p).dev;
        }
        if (*p).instr == FTS_FOLLOW {
            (*p).info = examine(t.options, p, true);
            (*p).instr = FTS_NOINSTR;
        }
        t.path = (*p).path;
        p
    }
}

/// # Safety
/// As `fts_open`.
unsafe fn open(roots: *const Path, options: c_int, compar: Compare) -> *mut Traversal {
    if options & !FTS_OPTIONMASK != 0 || options & (FTS_LOGICAL | FTS_PHYSICAL) == 0 {
        return failed(libc::EINVAL);
    }
    // SAFETY: plain allocations that are initialised before use; roots are C strings.
    unsafe {
        let t = libc::calloc(1, size_of::<Traversal>()).cast::<Traversal>();
        let parent = new_entry(null_mut(), b"", b"");
        let start = if parent.is_null() {
            null_mut()
        } else {
            new_entry(parent, b"", b"")
        };
        if t.is_null() || start.is_null() {
            libc::free(t.cast());
            libc::free(parent.cast());
            return failed(libc::ENOMEM);
        }
        ((*t).options, (*t).compar, (*t).rfd, (*t).cur) = (options, compar, -1, start);
        let (mut first, mut last, mut count): (*mut Entry, *mut Entry, usize) =
            (null_mut(), null_mut(), 0);
        for root in environment::entries(roots) {
            let entry = if root.is_empty() {
                null_mut()
            } else {
                new_entry(parent, b"", root)
            };
            if entry.is_null() {
                let why = if root.is_empty() {
                    libc::ENOENT
                } else {
                    libc::ENOMEM
                };
                free_list(first);
                free_list(start);
                libc::free(parent.cast());
                libc::free(t.cast());
                return failed(why);
            }
            (*entry).info = examine(options, entry, options & FTS_COMFOLLOW != 0);
            if last.is_null() {
                first = entry;
            } else {
                (*last).link = entry;
            }
            last = entry;
            count += 1;
        }
        (*start).link = sorted(compar, first, count);
        t
    }
}

/// # Safety
/// `t` is a traversal.
unsafe fn children(t: &mut Traversal, instr: c_int) -> *mut Entry {
    if instr != 0 && instr != FTS_NAMEONLY {
        return failed(libc::EINVAL);
    }
    // SAFETY: all entries in the lists are live.
    unsafe {
        kernel::set_errno(0);
        let p = t.cur;
        if p.is_null() {
            return null_mut();
        }
        if !t.started {
            return (*p).link;
        }
        if (*p).info != FTS_D {
            return null_mut();
        }
        free_list(core::mem::replace(&mut t.child, null_mut()));
        t.child = build(t, p);
        t.child
    }
}

/// # Safety
/// `t` is a traversal that nobody uses any more.
unsafe fn close(t: *mut Traversal) -> c_int {
    // SAFETY: each entry is in one list, and each list is freed once, from the current level upwards.
    unsafe {
        free_list((*t).child);
        let mut p = (*t).cur;
        while !p.is_null() {
            let parent = (*p).parent;
            free_list(p);
            p = parent;
        }
        libc::free(t.cast());
        0
    }
}

hooks! {
    fn fts_open | fts64_open [real] (roots: *const Path, options: c_int, compar: Compare) -> *mut c_void {
        if config::get().is_none() {
            return real(roots, options, compar);
        }
        open(roots, options, compar).cast()
    }

    fn fts_read | fts64_read [real] (t: *mut c_void) -> *mut c_void {
        if config::get().is_none() {
            return real(t);
        }
        read(&mut *t.cast::<Traversal>()).cast()
    }

    fn fts_children | fts64_children [real] (t: *mut c_void, instr: c_int) -> *mut c_void {
        if config::get().is_none() {
            return real(t, instr);
        }
        children(&mut *t.cast::<Traversal>(), instr).cast()
    }

    fn fts_set | fts64_set [real] (t: *mut c_void, entry: *mut c_void, instr: c_int) -> c_int {
        if config::get().is_none() {
            return real(t, entry, instr);
        }
        if !(0..=FTS_SKIP as c_int).contains(&instr) {
            kernel::set_errno(libc::EINVAL);
            return 1;
        }
        (*entry.cast::<Entry>()).instr = instr as u16;
        0
    }

    fn fts_close | fts64_close [real] (t: *mut c_void) -> c_int {
        if config::get().is_none() {
            return real(t);
        }
        close(t.cast())
    }
}
