//! Directory streams.
//!
//! A listing in the buffer comes from the bridge, in parts. Its stream is an object of this library in
//! the place of glibc's `DIR`. Both begin with the descriptor, so `dirfd` needs no hook. Where glibc has
//! the size of its buffer, this object has a mark that is no possible size. All entries that were read
//! stay in memory, so that `telldir` can be an offset there.

use core::ffi::{c_int, c_long, c_void};
use core::ptr::null_mut;

use forebay_hook::hooks;
use forebay_wire::{DirEntries, MAX_REPLY_BYTES, Op, REPLY_HEADER_BYTES};
use libc::{AT_FDCWD, DIR, dirent64};

use super::{Path, open};
use crate::locate::{self, Scratch, failed, forget_fd, route};
use crate::requests::LINK;
use forebay_hook::kernel::{self, Errno, OwnFd, call};
use forebay_link::{Fail, ask_where_it_is};

const MARK: usize = 0xf03e_ba11_d1f0_0d01;
/// The flags with which glibc's `opendir` opens.
const OPEN_FLAGS: c_int = libc::O_RDONLY | libc::O_NONBLOCK | libc::O_DIRECTORY | libc::O_CLOEXEC;
/// Fixed part of a packed entry.
const ENTRY_HEADER_BYTES: usize = 10;
/// Offset of the name in `struct dirent64`.
const NAME_AT: usize = 19;

/// A stream over a directory of the buffer.
#[repr(C)]
struct Stream {
    fd: c_int,
    _lock: c_int,
    mark: usize,
    session: u64,
    /// The packed entries, as they came from the bridge.
    parts: *mut u8,
    room: usize,
    filled: usize,
    /// Offset of the next entry.
    at: usize,
    /// Offset of the last entry that came from the bridge.
    last: usize,
    ended: bool,
    entry: dirent64,
}

/// The stream behind `dir`, if it is one of this library.
///
/// # Safety
/// `dir` is null or an open stream.
unsafe fn ours<'a>(dir: *mut DIR) -> Option<&'a mut Stream> {
    let stream = dir.cast::<Stream>();
    // SAFETY: a DIR of glibc is larger than the part that is read.
    if stream.is_null() || unsafe { (&raw const (*stream).mark).read() } != MARK {
        return None;
    }
    // SAFETY: the mark shows that it is a Stream. A program may use a stream in one thread at a time.
    Some(unsafe { &mut *stream })
}

impl Stream {
    /// A stream that owns `fd`.
    fn open(fd: OwnFd) -> Result<*mut DIR, Errno> {
        // SAFETY: plain allocation; zeroes are a valid Stream but for the mark.
        let stream = unsafe { libc::calloc(1, size_of::<Stream>()) }.cast::<Stream>();
        if stream.is_null() {
            return Err(libc::ENOMEM);
        }
        // SAFETY: just made.
        unsafe { (*stream).mark = MARK };
        let fd = fd.into_raw();
        forget_fd(fd);
        // SAFETY: just made.
        unsafe { (*stream).fd = fd };
        Ok(stream.cast())
    }

    fn close(&mut self) -> c_int {
        let fd = self.fd;
        self.mark = 0;
        // SAFETY: both came from malloc, and the program may not use the stream any more.
        unsafe {
            libc::free(self.parts.cast());
            libc::free(core::ptr::from_mut(self).cast());
        }
        // SAFETY: a plain integer.
        super::outcome(unsafe { call!(libc::SYS_close, fd) })
    }

    fn rewind(&mut self) {
        (self.session, self.filled, self.at, self.last, self.ended) = (0, 0, 0, 0, false);
    }

    fn seek(&mut self, place: usize) {
        self.at = place;
    }

    /// The next entry; null at the end.
    fn next(&mut self) -> Result<*mut dirent64, Errno> {
        while self.at >= self.filled {
            if self.ended {
                return Ok(null_mut());
            }
            self.fetch()?;
        }
        // SAFETY: the bytes between were received.
        let rest =
            unsafe { core::slice::from_raw_parts(self.parts.add(self.at), self.filled - self.at) };
        let entry = DirEntries::new(rest).next().ok_or(libc::EIO)?;
        self.at += ENTRY_HEADER_BYTES + entry.name.len();
        self.entry.d_ino = entry.ino;
        self.entry.d_off = self.at as i64;
        self.entry.d_reclen = ((NAME_AT + entry.name.len() + 1).next_multiple_of(8)) as u16;
        self.entry.d_type = entry.dtype;
        // SAFETY: a name has at most 255 bytes, and the field 256.
        unsafe {
            let to = self.entry.d_name.as_mut_ptr().cast::<u8>();
            core::ptr::copy_nonoverlapping(entry.name.as_ptr(), to, entry.name.len());
            *to.add(entry.name.len()) = 0;
        }
        Ok(&raw mut self.entry)
    }

    /// The name after which the next part begins; empty for the first part.
    fn last_name(&self) -> &[u8] {
        if self.filled == 0 {
            return b"";
        }
        // SAFETY: the bytes between were received.
        let rest = unsafe {
            core::slice::from_raw_parts(self.parts.add(self.last), self.filled - self.last)
        };
        DirEntries::new(rest).next().map_or(&[], |e| e.name)
    }

    /// Asks the bridge for the next part.
    fn fetch(&mut self) -> Result<(), Errno> {
        let wanted = self.filled + MAX_REPLY_BYTES;
        if self.room < wanted {
            let room = wanted.max(self.room * 2);
            // SAFETY: null or from malloc.
            let larger = unsafe { libc::realloc(self.parts.cast(), room) };
            if larger.is_null() {
                return Err(libc::ENOMEM);
            }
            (self.parts, self.room) = (larger.cast(), room);
        }
        let mut scratch = Scratch::new();
        let got = ask_where_it_is(|| {
            let target = locate::locate_fd(self.fd, &mut scratch).ok_or(libc::EBADF)?;
            let mut request = target.request(Op::ReadDir);
            request.arg2 = self.session;
            request.str2 = self.last_name();
            // SAFETY: made large enough above.
            unsafe {
                LINK.ask_long(
                    target.config,
                    &mut request,
                    self.parts.add(self.filled),
                    MAX_REPLY_BYTES,
                )
            }
        });
        let (len, session) = match got {
            Ok(part) => part,
            // A directory that was removed has no entries.
            Err(Fail::Errno(libc::ENOENT)) => (0, 0),
            Err(Fail::Errno(e)) => return Err(e),
            Err(Fail::Redirect) => return Err(libc::EIO),
        };
        self.session = session;
        self.ended = session == 0;
        // SAFETY: the reply has `len` bytes after its header.
        let part = unsafe {
            let to = self.parts.add(self.filled);
            core::ptr::copy(to.add(REPLY_HEADER_BYTES), to, len);
            core::slice::from_raw_parts(to, len)
        };
        let mut at = 0;
        for entry in DirEntries::new(part) {
            self.last = self.filled + at;
            at += ENTRY_HEADER_BYTES + entry.name.len();
        }
        if at == 0 && !self.ended || at != len {
            return Err(libc::EIO);
        }
        self.filled += at;
        Ok(())
    }
}

/// `readdir` on a stream of this library. At the end of the listing it leaves `errno` as it is.
fn next_of(stream: &mut Stream) -> *mut dirent64 {
    match stream.next() {
        Ok(entry) => entry,
        Err(e) => failed(e),
    }
}

/// # Safety
/// `entry` and `result` are writable.
unsafe fn next_into(
    stream: &mut Stream,
    entry: *mut dirent64,
    result: *mut *mut dirent64,
) -> c_int {
    match stream.next() {
        Ok(found) if found.is_null() => {
            // SAFETY: the caller's promise.
            unsafe { *result = null_mut() };
            0
        }
        Ok(found) => {
            // SAFETY: the caller's promise; the entry has `d_reclen` bytes.
            unsafe {
                core::ptr::copy_nonoverlapping(
                    found.cast::<u8>(),
                    entry.cast(),
                    (*found).d_reclen.into(),
                );
                *result = entry;
            }
            0
        }
        Err(e) => {
            // SAFETY: the caller's promise.
            unsafe { *result = null_mut() };
            e
        }
    }
}

/// The function of the program that chooses entries.
type Filter = Option<unsafe extern "C" fn(*const dirent64) -> c_int>;
/// The function of the program that compares two elements of the result.
type Compare = Option<unsafe extern "C" fn(*const c_void, *const c_void) -> c_int>;
/// An array of entries.
type Names = *mut *mut dirent64;

/// A growing result of `scandir`. It is freed on drop, unless the program got it.
struct Collected {
    names: Names,
    count: usize,
    room: usize,
}

impl Collected {
    fn push(&mut self, entry: *const dirent64) -> Result<(), Errno> {
        if self.count == self.room {
            let room = (self.room * 2).max(16);
            // SAFETY: null or from malloc.
            let larger =
                unsafe { libc::realloc(self.names.cast(), room * size_of::<*mut dirent64>()) };
            if larger.is_null() {
                return Err(libc::ENOMEM);
            }
            (self.names, self.room) = (larger.cast(), room);
        }
        // SAFETY: an entry of a stream is whole; `count` is below `room`.
        unsafe {
            let len = usize::from((*entry).d_reclen);
            let copy = libc::malloc(len);
            if copy.is_null() {
                return Err(libc::ENOMEM);
            }
            core::ptr::copy_nonoverlapping(entry.cast::<u8>(), copy.cast(), len);
            *self.names.add(self.count) = copy.cast();
        }
        self.count += 1;
        Ok(())
    }
}

impl Drop for Collected {
    fn drop(&mut self) {
        // SAFETY: all came from malloc.
        unsafe {
            for i in 0..self.count {
                libc::free((*self.names.add(i)).cast());
            }
            libc::free(self.names.cast());
        }
    }
}

/// # Safety
/// As `scandirat`; `fd` is a directory of the buffer.
unsafe fn scan(
    fd: OwnFd,
    out: *mut Names,
    filter: Filter,
    compare: Compare,
) -> Result<c_int, Fail> {
    // SAFETY: the stream was just opened, and only this function uses it.
    let Some(stream) = (unsafe { ours(Stream::open(fd)?) }) else {
        return Err(libc::EIO.into());
    };
    let mut found = Collected {
        names: null_mut(),
        count: 0,
        room: 0,
    };
    let outcome = loop {
        match stream.next() {
            Ok(entry) if entry.is_null() => break Ok(()),
            Ok(entry) => {
                // SAFETY: the caller's function on a whole entry.
                if filter.is_none_or(|f| unsafe { f(entry) } != 0)
                    && let Err(e) = found.push(entry)
                {
                    break Err(e);
                }
            }
            Err(e) => break Err(e),
        }
    };
    stream.close();
    outcome?;
    if let Some(compare) = compare.filter(|_| found.count > 1) {
        // SAFETY: `names` holds `count` pointers, and the program's function compares such elements.
        unsafe {
            libc::qsort(
                found.names.cast(),
                found.count,
                size_of::<*mut dirent64>(),
                Some(compare),
            );
        }
    }
    let count = found.count as c_int;
    // SAFETY: the caller's promise.
    unsafe { *out = found.names };
    core::mem::forget(found);
    Ok(count)
}

/// Is this a directory of the buffer? Of most of them the kernel would list the backing directory, which is empty.
pub fn is_listed_by_bridge(fd: c_int) -> bool {
    let mut scratch = Scratch::new();
    !locate::is_far(fd) && locate::locate_fd(fd, &mut scratch).is_some()
}

hooks! {
    fn opendir [real] (path: Path) -> *mut DIR {
        route(AT_FDCWD, path, |_, p| real(p), |target, answer| {
            Ok(Stream::open(open::grant(target, OPEN_FLAGS, 0, answer)?)?)
        })
    }

    fn fdopendir [real] (fd: c_int) -> *mut DIR {
        if locate::is_far(fd) {
            return real(fd);
        }
        let mut scratch = Scratch::new();
        let readable = matches!(kernel::fcntl(fd, libc::F_GETFL, 0), Ok(f) if f & (libc::O_PATH | libc::O_ACCMODE) == libc::O_RDONLY);
        if locate::locate_fd(fd, &mut scratch).is_none() || !readable || !super::is_kind(fd, libc::S_IFDIR) {
            return real(fd);
        }
        match Stream::open(OwnFd(fd)) {
            Ok(stream) => stream,
            Err(e) => failed(e),
        }
    }

    fn closedir [real] (dir: *mut DIR) -> c_int {
        match ours(dir) {
            Some(stream) => stream.close(),
            None => {
                if !dir.is_null() {
                    forget_fd(*dir.cast::<c_int>());
                }
                real(dir)
            }
        }
    }

    fn readdir | readdir64 [real] (dir: *mut DIR) -> *mut dirent64 {
        match ours(dir) {
            Some(stream) => next_of(stream),
            None => real(dir),
        }
    }

    fn readdir_r | readdir64_r [real] (dir: *mut DIR, entry: *mut dirent64, result: *mut *mut dirent64) -> c_int {
        match ours(dir) {
            Some(stream) => next_into(stream, entry, result),
            None => real(dir, entry, result),
        }
    }

    fn rewinddir [real] (dir: *mut DIR) -> () {
        match ours(dir) {
            Some(stream) => stream.rewind(),
            None => real(dir),
        }
    }

    fn telldir [real] (dir: *mut DIR) -> c_long {
        match ours(dir) {
            Some(stream) => stream.at as c_long,
            None => real(dir),
        }
    }

    fn seekdir [real] (dir: *mut DIR, place: c_long) -> () {
        match ours(dir) {
            Some(stream) => stream.seek(place as usize),
            None => real(dir, place),
        }
    }

    fn scandir | scandir64 [real] (path: Path, out: *mut Names, filter: Filter, compare: Compare) -> c_int {
        route(AT_FDCWD, path, |_, p| real(p, out, filter, compare), |target, answer| {
            scan(open::grant(target, OPEN_FLAGS, 0, answer)?, out, filter, compare)
        })
    }

    fn scandirat | scandirat64 [real] (dirfd: c_int, path: Path, out: *mut Names, filter: Filter, compare: Compare) -> c_int {
        route(dirfd, path, |d, p| real(d, p, out, filter, compare), |target, answer| {
            scan(open::grant(target, OPEN_FLAGS, 0, answer)?, out, filter, compare)
        })
    }

    fn getdents64 [real] (fd: c_int, out: *mut c_void, room: usize) -> isize {
        match is_listed_by_bridge(fd) {
            true => failed(libc::EOPNOTSUPP),
            false => real(fd, out, room),
        }
    }
}
