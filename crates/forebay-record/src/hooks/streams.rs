//! `fopen` and its kin, `fclose`, `fileno`, and the calls that move the position of a stream.

use core::ffi::{c_int, c_long};
use core::sync::atomic::Ordering::Relaxed;

use forebay_count::event::Extra;
use forebay_count::table::{Bulk, Name};
use forebay_count::{Event, Kind, Op};
use forebay_hook::{hooks, stdio_mode};
use libc::{AT_FDCWD, FILE, O_APPEND, off_t};

use super::Path;
use super::directories::forget;
use super::stream_io::{Stream, fileno_unlocked, record_of};
use crate::clock::now_ns;
use crate::config;
use crate::count::{Outcome, asked, count_posix};
use crate::end;
use crate::fds::{self, Standing};
use crate::record_names::{with_absolute, with_name};
use crate::state::{self, Recording, recording};
use forebay_hook::kernel;

unsafe extern "C" {
    fn ftello(stream: Stream) -> off_t;
}

hooks! {
    fn fopen | fopen64 [real] (path: Path, mode: Path) -> *mut FILE {
        opening(Some(path), mode, || real(path, mode))
    }

    fn freopen | freopen64 [real] (path: Path, mode: Path, stream: *mut FILE) -> *mut FILE {
        if path.is_null() {
            return real(path, mode, stream);
        }
        forget(fileno_unlocked(stream));
        opening(Some(path), mode, || real(path, mode, stream))
    }

    fn tmpfile | tmpfile64 [real] () -> *mut FILE {
        opening(None, c"w+".as_ptr(), || real())
    }

    fn fdopen [real] (fd: c_int, mode: Path) -> *mut FILE {
        adopted(fd, || real(fd, mode))
    }

    fn fclose [real] (stream: *mut FILE) -> c_int {
        closed(stream, || real(stream))
    }

    fn pclose [real] (stream: *mut FILE) -> c_int {
        forget(fileno_unlocked(stream));
        real(stream)
    }

    fn fflush | fflush_unlocked [real] (stream: *mut FILE) -> c_int {
        if stream.is_null() {
            return real(stream);
        }
        moving(stream, Op::Sync, |_| {}, || real(stream))
    }

    fn fileno [real] (stream: *mut FILE) -> c_int {
        numbered(|| real(stream))
    }

    fn fseek [real] (stream: *mut FILE, offset: c_long, whence: c_int) -> c_int {
        sought(stream, || real(stream, offset, whence))
    }

    fn fseeko | fseeko64 [real] (stream: *mut FILE, offset: off_t, whence: c_int) -> c_int {
        sought(stream, || real(stream, offset, whence))
    }

    fn fsetpos | fsetpos64 [real] (stream: *mut FILE, position: *const libc::fpos_t) -> c_int {
        sought(stream, || real(stream, position))
    }

    fn rewind [real] (stream: *mut FILE) -> () {
        sought(stream, || { real(stream); 0 });
    }
}

/// Makes and counts a call that opens a file as a stream. Without a path the kernel is asked for it.
unsafe fn opening(path: Option<Path>, mode: Path, call: impl FnOnce() -> Stream) -> Stream {
    let Some(recording) = recording() else {
        return call();
    };
    let start_ns = now_ns();
    let stream = call();
    let end_ns = now_ns();
    let errno = kernel::errno();
    if stream.is_null() {
        if let Some(path) = path {
            let at = (AT_FDCWD, path);
            // SAFETY: the caller's promise.
            unsafe { asked(&recording, Extra::OpenFailed, at, errno, (start_ns, end_ns)) };
            kernel::set_errno(errno);
        }
        return stream;
    }
    // SAFETY: an open stream, and a mode with which it was opened.
    let (fd, letters) = unsafe { (fileno_unlocked(stream), kernel::bytes(mode)) };
    let append = stdio_mode::open_flags(letters).unwrap_or(0) & O_APPEND != 0;
    let open = |name: &[u8]| opened(&recording, name, fd, append, (start_ns, end_ns));
    match path {
        // SAFETY: the caller's promise.
        Some(path) => unsafe { with_name(&recording, AT_FDCWD, path, open) },
        None => {
            let mut room = [0; forebay_count::path::MAX_NAME_BYTES];
            fds::known_name(fd, &mut room).and_then(|name| with_absolute(name, open))
        }
    };
    kernel::set_errno(errno);
    stream
}

fn opened(
    recording: &Recording,
    name: &[u8],
    fd: c_int,
    append: bool,
    (start_ns, end_ns): (u64, u64),
) {
    let entry = if state::is_borrowed() {
        None
    } else {
        fds::begin(recording, fd)
    };
    let event = Event::plain(Op::Open, start_ns, end_ns);
    if !config::get().is_some_and(|c| c.records(name)) {
        recording.table.add_bulk(Bulk::Excluded, &event);
        if let Some(entry) = entry {
            entry.stream.set(Standing::Excluded, None);
            entry.posix.set(Standing::Excluded, None);
        }
        return;
    }
    let name = Name::of(name);
    let known = recording.table.find(Kind::Stdio, name.id).is_some();
    let mut size = -1;
    if (!known || append)
        && !state::is_restricted()
        && let Some(stat) = kernel::fstat(fd)
    {
        if stat.st_mode & libc::S_IFMT != libc::S_IFREG {
            if let Some(entry) = entry {
                entry.stream.set(Standing::NoFile, None);
            }
            return;
        }
        size = stat.st_size;
    }
    let Some(handle) = recording.table.hold(Kind::Stdio, &name, recording) else {
        recording.table.add_bulk(Bulk::Unplaced, &event);
        return;
    };
    recording.table.count(
        Kind::Stdio,
        handle,
        &Event {
            offset: size,
            ..event
        },
        recording,
    );
    match entry {
        Some(entry) => {
            let start = if append { size.max(0) } else { 0 };
            entry.stream.position.store(start, Relaxed);
            entry.stream.set(Standing::File, Some(handle));
        }
        None => recording.table.let_go(Kind::Stdio, handle),
    }
}

/// Makes and counts a call that opens a stream on an open descriptor.
fn adopted(fd: c_int, call: impl FnOnce() -> Stream) -> Stream {
    let Some(recording) = recording() else {
        return call();
    };
    let start_ns = now_ns();
    let stream = call();
    let end_ns = now_ns();
    if stream.is_null() || state::is_borrowed() {
        return stream;
    }
    let errno = kernel::errno();
    if let (_, Some(entry), Some(_)) = fds::posix(&recording, fd)
        && let (_, _, Some(handle)) = fds::stream(&recording, fd, None)
    {
        let at = if state::is_restricted() {
            None
        } else {
            kernel::position(fd)
        };
        entry.stream.position.store(at.unwrap_or(0), Relaxed);
        let event = Event {
            offset: -1,
            ..Event::plain(Op::Number, start_ns, end_ns)
        };
        recording
            .table
            .count(Kind::Stdio, handle, &event, &recording);
    }
    kernel::set_errno(errno);
    stream
}

unsafe fn closed(stream: Stream, call: impl FnOnce() -> c_int) -> c_int {
    let Some(recording) = recording() else {
        return call();
    };
    // SAFETY: an open stream.
    let fd = unsafe { fileno_unlocked(stream) };
    let Some(entry) = fds::known(fd).filter(|_| !state::is_borrowed()) else {
        return call();
    };
    let taken = entry.take();
    let start_ns = now_ns();
    let result = call();
    let end_ns = now_ns();
    if let Some(handle) = taken.stream {
        let event = Event::plain(Op::Close, start_ns, end_ns);
        recording
            .table
            .count(Kind::Stdio, handle, &event, &recording);
    }
    taken.let_go(&recording.table);
    end::look_now_and_then(&recording.table, end_ns);
    result
}

/// Makes and counts a call that returns the descriptor of a stream. From then on the file is open for POSIX calls, too.
fn numbered(call: impl FnOnce() -> c_int) -> c_int {
    let Some(recording) = recording() else {
        return call();
    };
    let start_ns = now_ns();
    let fd = call();
    let end_ns = now_ns();
    let of_file = fds::known(fd).is_some_and(|e| e.stream.handle().is_some()) && fd > 2;
    if of_file && let (_, Some(entry), Some(handle)) = fds::posix(&recording, fd) {
        let event = Event::plain(Op::Number, start_ns, end_ns);
        count_posix(&recording, &entry.posix, handle, &event);
    }
    fd
}

/// Makes and counts a call on a stream that moves no bytes. `after` runs if it succeeded.
unsafe fn moving<R: Outcome>(
    stream: Stream,
    op: Op,
    after: impl FnOnce(&fds::View),
    call: impl FnOnce() -> R,
) -> R {
    let Some(recording) = recording() else {
        return call();
    };
    // SAFETY: an open stream.
    let Some((entry, handle)) = (unsafe { record_of(&recording, stream) }) else {
        return call();
    };
    let start_ns = now_ns();
    let result = call();
    let end_ns = now_ns();
    if !result.failed() {
        let errno = kernel::errno();
        after(&entry.stream);
        let event = Event::plain(op, start_ns, end_ns);
        recording
            .table
            .count(Kind::Stdio, handle, &event, &recording);
        kernel::set_errno(errno);
    }
    result
}

unsafe fn sought(stream: Stream, call: impl FnOnce() -> c_int) -> c_int {
    // SAFETY: an open stream.
    let after = |view: &fds::View| view.position.store(unsafe { ftello(stream) }, Relaxed);
    // SAFETY: as above.
    unsafe { moving(stream, Op::Seek, after, call) }
}
