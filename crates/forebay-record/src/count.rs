//! From calls to events: what all hooks of one sort have in common.

use core::ffi::{c_char, c_int, c_void};
use core::sync::atomic::Ordering::Relaxed;

use forebay_count::event::{Extra, MEMORY_NOT_ALIGNED};
use forebay_count::posix::MEMORY_ALIGNMENT;
use forebay_count::table::{Bulk, Handle, Name};
use forebay_count::{Event, Kind, Op};

use crate::clock::now_ns;
use crate::config;
use crate::fds::{self, APPEND, ASK, Entry, Standing, View};
use crate::record_names::with_name;
use crate::state::{self, Recording, recording};
use forebay_hook::kernel;

/// What a libc function gives back.
pub trait Outcome: Copy {
    /// Did it fail?
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

/// A read or write of a descriptor. `offset`: where it goes, unless at the position. `aligned`: the program's memory is.
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
        aux: if aligned { 0 } else { MEMORY_NOT_ALIGNED },
    };
    count_posix(&recording, &entry.posix, handle, &event);
    moved
}

/// Counts on the record of a descriptor; forgets a record that is gone.
#[inline(always)]
pub fn count_posix(recording: &Recording, view: &View, handle: Handle, event: &Event) {
    if !recording.table.count(Kind::Posix, handle, event, recording) && !state::is_borrowed() {
        view.set(Standing::Unknown, None);
    }
}

/// Traffic without a record.
fn bulk(recording: &Recording, standing: Standing, op: Op, moved: isize) {
    let total = match standing {
        Standing::Excluded => Bulk::Excluded,
        Standing::NoFile => Bulk::NoFiles,
        // Not a descriptor, or not to be asked for.
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

/// Moves the position behind a transfer; where the transfer began.
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

/// Where a transfer with an offset went: Linux appends to a file that was opened so, whatever the offset says.
#[inline(always)]
fn placed(fd: c_int, entry: &Entry, op: Op, offset: i64, moved: i64) -> i64 {
    let appends = op == Op::Write && entry.flags.load(Relaxed) & APPEND != 0;
    if appends && moved > 0 && !state::is_restricted() {
        return kernel::fstat(fd).map_or(offset, |stat| stat.st_size - moved);
    }
    offset
}

/// Is memory aligned as Darshan wants it?
#[inline(always)]
pub fn is_aligned(memory: *const c_void) -> bool {
    (memory as u64).is_multiple_of(MEMORY_ALIGNMENT)
}

/// Is all memory of a vector aligned?
///
/// # Safety
/// `vector` is what the program gave a call, with which that call has been content, or may not be.
pub unsafe fn is_vector_aligned(vector: *const libc::iovec, n: c_int) -> bool {
    const MOST: usize = 1024;
    let n = usize::try_from(n).unwrap_or(0);
    if (vector as usize) < 4096 || n > MOST {
        return true;
    }
    // SAFETY: the caller's promise. A program that gives unreadable memory gets a fault here instead of EFAULT.
    let vector = unsafe { core::slice::from_raw_parts(vector, n) };
    vector.iter().all(|v| is_aligned(v.iov_base))
}

// ---- other calls on a descriptor ----

/// A call on a descriptor that moves no bytes; `op` says how it counts, `None` if it failed.
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

/// A call that moves the position of a descriptor to its result.
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

/// A call that is counted per process alone.
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

/// Counts on the record of a path, which is made if it is new.
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

/// Counts on the record of a name. False: it is left out.
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

/// `stat` and its kin on a path.
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
    let event = Event::plain(Op::Stat, start_ns, end_ns);
    // SAFETY: the caller's promise.
    let counted = result == 0 && unsafe { on_path(&recording, dirfd, path, &event) };
    if !counted {
        recording
            .table
            .add_extra(Extra::StatMissed, start_ns, end_ns);
    }
    kernel::set_errno(errno);
    result
}
