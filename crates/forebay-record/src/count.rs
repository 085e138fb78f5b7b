//! Turns calls into events, for all hooks of one sort.

use core::ffi::{c_char, c_int, c_void};
use core::sync::atomic::Ordering::Relaxed;

use forebay_count::event::{self, Extra, MEMORY_NOT_ALIGNED};
use forebay_count::posix::MEMORY_ALIGNMENT;
use forebay_count::table::{Bulk, Handle, Name};
use forebay_count::{Event, Kind, Op};

use crate::clock::now_ns;
use crate::config;
use crate::fds::{self, APPEND, ASK, DIRECT, Entry, SYNCED, Standing, View};
use crate::record_names::with_name;
use crate::state::{self, Recording, recording};
use forebay_hook::kernel;

/// The result of a libc function.
pub trait Outcome: Copy {
    /// True if the call failed.
    fn failed(self) -> bool;
}

impl Outcome for c_int {
    fn failed(self) -> bool {
        self < 0
    }
}
impl Outcome for isize {
    fn failed(self) -> bool {
        self < 0
    }
}
impl Outcome for i64 {
    fn failed(self) -> bool {
        self < 0
    }
}
impl<T> Outcome for *mut T {
    fn failed(self) -> bool {
        self.is_null()
    }
}

// ---- reads and writes ----

/// Makes and counts a read or write of a descriptor. `offset` is `None` for a call at the position. `aligned` is true
/// if the program's memory is.
#[inline(always)]
pub fn transfer(
    fd: c_int,
    op: Op,
    offset: Option<i64>,
    aligned: bool,
    call: impl FnOnce() -> isize,
) -> isize {
    let Some(recording) = recording() else {
        return call();
    };
    let (standing, entry, handle) = fds::posix(&recording, fd);
    let (Some(entry), Some(handle)) = (entry, handle) else {
        let moved = call();
        bulk(&recording, standing, op, moved);
        return moved;
    };
    let start_ns = now_ns();
    let moved = call();
    let end_ns = now_ns();
    if moved < 0 {
        recording
            .table
            .add_extra(Extra::TransferFailed, start_ns, end_ns);
        return moved;
    }
    let event = Event {
        op,
        offset: match offset {
            Some(offset) => placed(fd, entry, op, offset, moved as i64),
            None => advance(fd, entry, op, moved as i64),
        },
        bytes: moved as i64,
        start_ns,
        end_ns,
        aux: aux(entry, aligned),
    };
    count_posix(&recording, &entry.posix, handle, &event);
    moved
}

/// Counts an event on the record of a descriptor. Forgets a record that is gone.
#[inline(always)]
pub fn count_posix(recording: &Recording, view: &View, handle: Handle, event: &Event) {
    if !recording.table.count(Kind::Posix, handle, event, recording) && !state::is_borrowed() {
        view.set(Standing::Unknown, None);
    }
}

/// `aux` of the event of a transfer.
#[inline(always)]
fn aux(entry: &Entry, aligned: bool) -> u64 {
    let memory = if aligned { 0 } else { MEMORY_NOT_ALIGNED };
    match entry.flags.load(Relaxed) & (SYNCED | DIRECT) {
        0 => memory,
        SYNCED => memory | event::SYNCED,
        DIRECT => memory | event::DIRECT,
        _ => memory | event::SYNCED | event::DIRECT,
    }
}

/// Counts a transfer that has no record.
fn bulk(recording: &Recording, standing: Standing, op: Op, moved: isize) {
    let total = match standing {
        Standing::Excluded => Bulk::Excluded,
        Standing::NoFile => Bulk::NoFiles,
        // It was no descriptor, or the kernel may not be asked.
        _ if moved < 0 => return,
        _ => Bulk::Unplaced,
    };
    if moved >= 0 {
        let event = Event {
            bytes: moved as i64,
            ..Event::plain(op, 0, 0)
        };
        recording.table.add_bulk(total, &event);
    }
}

/// Moves the position behind a transfer at it. Returns where the transfer began.
#[inline(always)]
fn advance(fd: c_int, entry: &Entry, op: Op, moved: i64) -> i64 {
    let flags = entry.flags.load(Relaxed);
    let writes = matches!(op, Op::Write | Op::CopyIn);
    let ask = flags & ASK != 0 || flags & APPEND != 0 && writes;
    if ask
        && !state::is_restricted()
        && let Some(end) = kernel::position(fd)
    {
        entry.posix.position.store(end, Relaxed);
        return end - moved;
    }
    entry.posix.position.fetch_add(moved, Relaxed)
}

/// The offset at which a transfer with an offset landed. On Linux a write to a file that was opened to append goes to
/// its end, whatever the offset says.
#[inline(always)]
fn placed(fd: c_int, entry: &Entry, op: Op, offset: i64, moved: i64) -> i64 {
    let appends = op == Op::Write && entry.flags.load(Relaxed) & APPEND != 0;
    if appends && moved > 0 && !state::is_restricted() {
        return kernel::fstat(fd).map_or(offset, |stat| stat.st_size - moved);
    }
    offset
}

/// True if memory is aligned in Darshan's sense.
#[inline(always)]
pub fn is_aligned(memory: *const c_void) -> bool {
    (memory as u64).is_multiple_of(MEMORY_ALIGNMENT)
}

/// True if all memory of a vector is aligned.
///
/// # Safety
/// `vector` is what the program gives the call. The kernel may still refuse it.
pub unsafe fn is_vector_aligned(vector: *const libc::iovec, n: c_int) -> bool {
    const MOST: usize = 1024;
    let n = usize::try_from(n).unwrap_or(0);
    if (vector as usize) < 4096 || n > MOST {
        return true;
    }
    // SAFETY: the caller's promise. A program that gives unreadable memory faults here instead of getting EFAULT.
    let vector = unsafe { core::slice::from_raw_parts(vector, n) };
    vector.iter().all(|v| is_aligned(v.iov_base))
}

// ---- other calls on a descriptor ----

/// Makes a call on a descriptor that moves no bytes. If it succeeds it counts as `event_of` says.
#[inline(always)]
pub fn on_fd<R: Outcome>(
    fd: c_int,
    event_of: impl FnOnce(R) -> Event,
    call: impl FnOnce() -> R,
) -> R {
    let Some(recording) = recording() else {
        return call();
    };
    let (_, Some(entry), Some(handle)) = fds::posix(&recording, fd) else {
        return call();
    };
    let start_ns = now_ns();
    let result = call();
    if !result.failed() {
        let event = Event {
            start_ns,
            end_ns: now_ns(),
            ..event_of(result)
        };
        count_posix(&recording, &entry.posix, handle, &event);
    }
    result
}

/// Makes and counts a call that moves the position of a descriptor to its result.
pub fn seek(fd: c_int, call: impl FnOnce() -> i64) -> i64 {
    on_fd(
        fd,
        |to| {
            if let Some(entry) = fds::known(fd) {
                entry.posix.position.store(to, Relaxed);
            }
            Event::plain(Op::Seek, 0, 0)
        },
        call,
    )
}

// ---- calls on paths ----

/// Makes a call that is counted per process alone.
#[inline(always)]
pub fn extra<R>(extra: Extra, call: impl FnOnce() -> R) -> R {
    let Some(recording) = recording() else {
        return call();
    };
    let start_ns = now_ns();
    let result = call();
    recording.table.add_extra(extra, start_ns, now_ns());
    result
}

/// Counts an event on the record of a path, which is made if it is new. Returns `false` if the path is left out.
///
/// # Safety
/// `path` as for [`with_name`].
pub unsafe fn on_path(
    recording: &Recording,
    dirfd: c_int,
    path: *const c_char,
    event: &Event,
) -> bool {
    // SAFETY: the caller's promise.
    let done = unsafe {
        with_name(recording, dirfd, path, |name| {
            on_name(recording, name, event)
        })
    };
    done == Some(true)
}

/// Counts an event on the record of a name. Returns `false` if the name is left out.
pub fn on_name(recording: &Recording, name: &[u8], event: &Event) -> bool {
    let included = config::get().is_some_and(|c| c.records(name));
    if included {
        match recording
            .table
            .hold(Kind::Posix, &Name::of(name), recording)
        {
            Some(handle) => {
                recording.table.count(Kind::Posix, handle, event, recording);
                recording.table.let_go(Kind::Posix, handle);
            }
            None => recording.table.add_bulk(Bulk::Unplaced, event),
        }
    }
    included
}

/// Makes and counts `stat` and its kin on a path.
///
/// # Safety
/// `path` as for [`with_name`].
pub unsafe fn stat_path(dirfd: c_int, path: *const c_char, call: impl FnOnce() -> c_int) -> c_int {
    let Some(recording) = recording() else {
        return call();
    };
    let start_ns = now_ns();
    let result = call();
    let end_ns = now_ns();
    let errno = kernel::errno();
    // SAFETY: the caller's promise.
    unsafe {
        if result != 0 {
            let at = (dirfd, path);
            asked(&recording, Extra::StatMissed, at, errno, (start_ns, end_ns));
        } else if !on_path(
            &recording,
            dirfd,
            path,
            &Event::plain(Op::Stat, start_ns, end_ns),
        ) {
            recording.table.add_extra(Extra::LeftOut, start_ns, end_ns);
        }
    }
    kernel::set_errno(errno);
    result
}

/// Makes and counts `access` and its kin.
///
/// # Safety
/// `path` as for [`with_name`].
pub unsafe fn access_path(
    dirfd: c_int,
    path: *const c_char,
    call: impl FnOnce() -> c_int,
) -> c_int {
    let Some(recording) = recording() else {
        return call();
    };
    let start_ns = now_ns();
    let result = call();
    let end_ns = now_ns();
    let errno = kernel::errno();
    // SAFETY: the caller's promise.
    unsafe {
        let failure = if result == 0 { 0 } else { errno };
        let at = (dirfd, path);
        asked(&recording, Extra::Access, at, failure, (start_ns, end_ns));
    }
    kernel::set_errno(errno);
    result
}

/// Counts a call that asked for a path and leaves no trace in a record: per process alone, and apart if the path is left
/// out. `failure` is its errno, 0 if it had none. May change `errno`.
///
/// # Safety
/// `path` as for [`with_name`], or any pointer if `failure` says so.
pub unsafe fn asked(
    recording: &Recording,
    kind: Extra,
    (dirfd, path): (c_int, *const c_char),
    failure: c_int,
    (start_ns, end_ns): (u64, u64),
) {
    let is_recorded = |name: &[u8]| config::get().is_some_and(|c| c.records(name));
    let counts = if has_read_path(failure) {
        // SAFETY: the kernel has read the path.
        unsafe { with_name(recording, dirfd, path, is_recorded) }
    } else {
        None
    };
    let kind = if counts == Some(false) {
        Extra::LeftOut
    } else {
        kind
    };
    recording.table.add_extra(kind, start_ns, end_ns);
}

/// Does an outcome show that the kernel has read the path to its end? Other failures come before that, or because of it: the
/// pointer may be a bad one, or lead to a text without an end.
fn has_read_path(failure: c_int) -> bool {
    matches!(
        failure,
        0 | libc::ENOENT
            | libc::ENOTDIR
            | libc::EACCES
            | libc::ELOOP
            | libc::EEXIST
            | libc::EISDIR
            | libc::ENXIO
            | libc::EROFS
            | libc::ETXTBSY
    )
}
