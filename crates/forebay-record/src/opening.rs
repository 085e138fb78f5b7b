//! Calls that make and end descriptors: open, close, dup.

use core::ffi::{c_char, c_int};
use core::sync::atomic::Ordering::Relaxed;

use forebay_count::event::{CREATED, Extra, WAS_THERE};
use forebay_count::table::{Bulk, Name};
use forebay_count::{Event, Kind, Op};
use libc::{O_CREAT, O_EXCL, O_TRUNC};

use crate::clock::now_ns;
use crate::config;
use crate::count::{asked, count_posix};
use crate::end;
use crate::fds::{self, ASK, Entry, Standing, flags_of};
use crate::file_system;
use crate::record_names::with_name;
use crate::state::{self, Recording, recording};
use forebay_hook::kernel;

/// What is known of a path before it is opened.
#[derive(Clone, Copy)]
struct Before {
    /// [`CREATED`] or [`WAS_THERE`].
    origin: u64,
    size: i64,
}

impl Before {
    /// There was no file.
    const MISSING: Self = Before {
        origin: CREATED,
        size: 0,
    };
}

/// Can an open with these flags succeed only by making the file?
fn creates(flags: c_int) -> bool {
    flags & (O_CREAT | O_EXCL) == O_CREAT | O_EXCL
}

/// Makes and counts an open by path. `call` returns the descriptor.
///
/// # Safety
/// `path` as for [`with_name`].
#[inline(always)]
pub unsafe fn open(
    dirfd: c_int,
    path: *const c_char,
    flags: c_int,
    mode: u32,
    call: impl FnOnce() -> c_int,
) -> c_int {
    let Some(recording) = recording() else {
        return call();
    };
    // SAFETY: the caller's promise.
    let before = unsafe { look_before(&recording, dirfd, path, flags) };
    let start_ns = now_ns();
    let fd = call();
    let end_ns = now_ns();
    if fd < 0 {
        let errno = kernel::errno();
        // SAFETY: the caller's promise.
        unsafe {
            let at = (dirfd, path);
            asked(&recording, Extra::OpenFailed, at, errno, (start_ns, end_ns));
        }
        kernel::set_errno(errno);
        return fd;
    }
    let errno = kernel::errno();
    let opening = Opening {
        fd,
        flags,
        mode,
        before,
        start_ns,
        end_ns,
    };
    // SAFETY: the caller's promise.
    unsafe {
        with_name(&recording, dirfd, path, |name| {
            opened(&recording, name, &opening)
        })
    };
    kernel::set_errno(errno);
    fd
}

/// A descriptor that was just opened.
pub struct Opening {
    fd: c_int,
    flags: c_int,
    mode: u32,
    before: Option<Before>,
    start_ns: u64,
    end_ns: u64,
}

impl Opening {
    /// A descriptor whose file nobody looked at before the call.
    pub fn new(fd: c_int, flags: c_int, mode: u32, (start_ns, end_ns): (u64, u64)) -> Self {
        Opening {
            fd,
            flags,
            mode,
            before: creates(flags).then_some(Before::MISSING),
            start_ns,
            end_ns,
        }
    }
}

/// Looks at a file that an open may create or empty; of other files the open descriptor tells size and presence later.
/// Files with a record are left out, so each file is looked at once.
///
/// # Safety
/// `path` as for [`with_name`].
unsafe fn look_before(
    recording: &Recording,
    dirfd: c_int,
    path: *const c_char,
    flags: c_int,
) -> Option<Before> {
    if flags & (O_CREAT | O_TRUNC) == 0 || state::is_restricted() {
        return None;
    }
    if creates(flags) {
        return Some(Before::MISSING);
    }
    // SAFETY: the caller's promise.
    let worth = unsafe {
        with_name(recording, dirfd, path, |name| {
            config::get().is_some_and(|c| c.records(name))
                && recording
                    .table
                    .find(Kind::Posix, Name::of(name).id)
                    .is_none()
        })
    };
    if worth != Some(true) {
        return None;
    }
    let errno = kernel::errno();
    // SAFETY: zeroes are a valid value.
    let mut stat: libc::stat = unsafe { core::mem::zeroed() };
    // SAFETY: the caller's promise; `stat` is writable.
    let result = unsafe { crate::hooks::attributes::stat_in_chain(dirfd, path, &raw mut stat) };
    let found = kernel::errno();
    kernel::set_errno(errno);
    match result {
        0 => Some(Before {
            origin: WAS_THERE,
            size: stat.st_size,
        }),
        _ if found == libc::ENOENT => Some(Before::MISSING),
        _ => None,
    }
}

/// Counts an open, and notes what the descriptor stands for.
pub fn opened(recording: &Recording, name: &[u8], opening: &Opening) {
    let borrowed = state::is_borrowed();
    let entry = if borrowed {
        None
    } else {
        fds::begin(recording, opening.fd)
    };
    let event = Event {
        offset: -1,
        ..Event::plain(Op::Open, opening.start_ns, opening.end_ns)
    };
    if !config::get().is_some_and(|c| c.records(name)) {
        recording.table.add_bulk(Bulk::Excluded, &event);
        if let Some(entry) = entry {
            entry.posix.set(Standing::Excluded, None);
        }
        return;
    }
    let name = Name::of(name);
    let known = recording.table.find(Kind::Posix, name.id);
    let mode = if opening.flags & O_CREAT != 0 {
        opening.mode
    } else {
        0
    };
    let event = if known.is_some() {
        Event {
            aux: Event::opened(mode, 0, 0),
            ..event
        }
    } else {
        match first_look(opening, mode) {
            Some((size, aux)) => Event {
                offset: size,
                aux,
                ..event
            },
            None => {
                let (start_ns, end_ns) = (opening.start_ns, opening.end_ns);
                recording
                    .table
                    .add_extra(Extra::OpenedPipe, start_ns, end_ns);
                if let Some(entry) = entry {
                    entry.posix.set(Standing::NoFile, None);
                }
                return;
            }
        }
    };
    let Some(handle) = recording
        .table
        .hold_found(known, Kind::Posix, &name, recording)
    else {
        recording.table.add_bulk(Bulk::Unplaced, &event);
        return;
    };
    recording
        .table
        .count(Kind::Posix, handle, &event, recording);
    match entry {
        Some(entry) => {
            entry.flags.store(flags_of(opening.flags), Relaxed);
            entry.posix.set(Standing::File, Some(handle));
        }
        None => recording.table.let_go(Kind::Posix, handle),
    }
}

/// The size before, and `aux` of the event, for a file that is opened for the first time. `None` if it is no file.
fn first_look(opening: &Opening, mode: u32) -> Option<(i64, u64)> {
    let origin = opening.before.map_or(0, |b| b.origin);
    if state::is_restricted() {
        return Some((
            opening.before.map_or(-1, |b| b.size),
            Event::opened(mode, 0, origin),
        ));
    }
    let Some(stat) = kernel::fstat(opening.fd) else {
        return Some((-1, Event::opened(mode, 0, origin)));
    };
    if !matches!(
        stat.st_mode & libc::S_IFMT,
        libc::S_IFREG | libc::S_IFDIR | libc::S_IFBLK
    ) {
        return None;
    }
    let alignment = file_system::alignment(opening.fd, stat.st_dev);
    if stat.st_mode & libc::S_IFMT == libc::S_IFDIR {
        return Some((-1, Event::opened(mode, alignment, 0)));
    }
    let origin = if opening.flags & O_CREAT == 0 {
        WAS_THERE
    } else {
        origin
    };
    let size = match opening.before {
        Some(before) => before.size,
        None if opening.flags & O_TRUNC != 0 => -1,
        None => stat.st_size,
    };
    Some((size, Event::opened(mode, alignment, origin)))
}

/// Makes and counts a close. It forgets the descriptor before the call, because another thread may get the number at
/// once.
#[inline(always)]
pub fn close(fd: c_int, call: impl FnOnce() -> c_int) -> c_int {
    let Some(entry) = fds::known(fd) else {
        return call();
    };
    if state::is_new_child() {
        return close_in_new_child(entry, call);
    }
    let Some(recording) = recording() else {
        return call();
    };
    if state::is_borrowed() {
        return call();
    }
    let taken = entry.take();
    let Some(handle) = taken.posix else {
        taken.let_go(&recording.table);
        return call();
    };
    let start_ns = now_ns();
    let result = call();
    let end_ns = now_ns();
    let event = Event::plain(Op::Close, start_ns, end_ns);
    recording
        .table
        .count(Kind::Posix, handle, &event, &recording);
    taken.let_go(&recording.table);
    end::look_now_and_then(&recording.table, end_ns);
    result
}

/// As [`close`] in a forked child without a table: it counts in its parent's, whose descriptor goes on holding the record.
#[cold]
fn close_in_new_child(entry: &Entry, call: impl FnOnce() -> c_int) -> c_int {
    let taken = entry.take();
    let start_ns = now_ns();
    let result = call();
    let event = Event::plain(Op::Close, start_ns, now_ns());
    if let (Some(handle), Some(lent)) = (taken.posix, state::lent()) {
        let lent = &lent.recording;
        lent.table.count(Kind::Posix, handle, &event, lent);
    }
    result
}

/// Counts `close_range` and its kin after they succeeded, and forgets the descriptors.
pub fn closed_range(first: u32, last: u32, (start_ns, end_ns): (u64, u64)) {
    let event = Event::plain(Op::Close, start_ns, end_ns);
    let forget = |recording: &Recording, entry: &Entry| {
        let taken = entry.take();
        if let Some(handle) = taken.posix {
            let table = &recording.table;
            table.count(Kind::Posix, handle, &event, recording);
        }
        taken
    };
    if let Some(lent) = state::lent() {
        fds::each_known(first, last, |_, entry| {
            let _held_by_parent = forget(&lent.recording, entry);
        });
        return;
    }
    let Some(recording) = recording().filter(|_| !state::is_borrowed()) else {
        return;
    };
    fds::each_known(first, last, |_, entry| {
        forget(&recording, entry).let_go(&recording.table);
    });
}

/// Makes and counts `dup` and its kin. The new descriptor stands for the same open file.
pub fn dup(old: c_int, call: impl FnOnce() -> c_int) -> c_int {
    if state::is_new_child() && fds::is_no_file(old) {
        let new = call();
        if let Some(entry) = fds::known(new).filter(|_| new != old) {
            let _held_by_parent = entry.take();
        }
        return new;
    }
    let Some(recording) = recording() else {
        return call();
    };
    if state::is_borrowed() {
        return call();
    }
    let (standing, from, handle) = fds::posix(&recording, old);
    let start_ns = now_ns();
    let new = call();
    let end_ns = now_ns();
    if new < 0 || new == old {
        return new;
    }
    let Some(to) = fds::begin(&recording, new) else {
        return new;
    };
    if let (Some(from), Some(handle)) = (from, handle) {
        recording.table.hold_again(Kind::Posix, handle);
        to.posix
            .position
            .store(from.posix.position.load(Relaxed), Relaxed);
        let flags = from.flags.fetch_or(ASK, Relaxed) | ASK;
        to.flags.store(flags, Relaxed);
        to.posix.set(Standing::File, Some(handle));
        count_posix(
            &recording,
            &to.posix,
            handle,
            &Event::plain(Op::Dup, start_ns, end_ns),
        );
    } else {
        to.posix.set(standing, None);
    }
    new
}
