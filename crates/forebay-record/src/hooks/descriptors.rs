//! `close`, `lseek`, `fsync`, `mmap`: calls on a descriptor that move no bytes.

use core::ffi::{c_int, c_uint, c_void};

use forebay_count::event::Extra;
use forebay_count::{Event, Op};
use forebay_hook::hooks;
use libc::{off_t, size_t};

use crate::clock::now_ns;
use crate::count::{count_posix, extra, on_fd, seek};
use crate::fds;
use crate::opening::{close as closing, closed_range};
use crate::state::recording;

/// `CLOSE_RANGE_CLOEXEC`: the descriptors stay open.
const ON_EXEC: c_int = 4;

hooks! {
    fn close | __close [real] (fd: c_int) -> c_int {
        closing(fd, || real(fd))
    }

    fn close_range [real] (first: c_uint, last: c_uint, flags: c_int) -> c_int {
        let start_ns = now_ns();
        let result = real(first, last, flags);
        if result == 0 && flags & ON_EXEC == 0 {
            closed_range(first, last, (start_ns, now_ns()));
        }
        result
    }

    fn closefrom [real] (first: c_int) -> () {
        let start_ns = now_ns();
        real(first);
        closed_range(first.max(0) as c_uint, c_uint::MAX, (start_ns, now_ns()));
    }

    fn lseek | lseek64 [real] (fd: c_int, offset: off_t, whence: c_int) -> off_t {
        seek(fd, || real(fd, offset, whence))
    }

    fn fsync [real] (fd: c_int) -> c_int {
        on_fd(fd, |_| Event::plain(Op::Sync, 0, 0), || real(fd))
    }

    fn fdatasync [real] (fd: c_int) -> c_int {
        on_fd(fd, |_| Event::plain(Op::DataSync, 0, 0), || real(fd))
    }

    fn sync_file_range [real] (fd: c_int, offset: off_t, n: off_t, flags: c_uint) -> c_int {
        extra(Extra::SyncRange, || real(fd, offset, n, flags))
    }

    fn syncfs [real] (fd: c_int) -> c_int {
        extra(Extra::SyncRange, || real(fd))
    }

    fn sync [real] () -> () {
        extra(Extra::SyncRange, || real())
    }

    fn msync [real] (at: *mut c_void, n: size_t, flags: c_int) -> c_int {
        extra(Extra::SyncRange, || real(at, n, flags))
    }

    fn flock [real] (fd: c_int, operation: c_int) -> c_int {
        extra(Extra::Lock, || real(fd, operation))
    }

    fn lockf | lockf64 [real] (fd: c_int, command: c_int, n: off_t) -> c_int {
        extra(Extra::Lock, || real(fd, command, n))
    }

    fn ftruncate | ftruncate64 [real] (fd: c_int, n: off_t) -> c_int {
        extra(Extra::Truncate, || real(fd, n))
    }

    fn fallocate | fallocate64 [real] (fd: c_int, mode: c_int, offset: off_t, n: off_t) -> c_int {
        extra(Extra::Allocate, || real(fd, mode, offset, n))
    }

    fn posix_fallocate | posix_fallocate64 [real] (fd: c_int, offset: off_t, n: off_t) -> c_int {
        extra(Extra::Allocate, || real(fd, offset, n))
    }

    fn mmap | mmap64 [real]
        (at: *mut c_void, n: size_t, protection: c_int, flags: c_int, fd: c_int, offset: off_t) -> *mut c_void
    {
        if fd < 0 || flags & libc::MAP_ANONYMOUS != 0 {
            return real(at, n, protection, flags, fd, offset);
        }
        mapped(fd, n, || real(at, n, protection, flags, fd, offset))
    }
}

/// Counts a mapping of a file. Other mappings are passed on before.
fn mapped(fd: c_int, n: size_t, call: impl FnOnce() -> *mut c_void) -> *mut c_void {
    let Some(recording) = recording() else {
        return call();
    };
    let (_, Some(entry), Some(handle)) = fds::posix(&recording, fd) else {
        return call();
    };
    let start_ns = now_ns();
    let at = call();
    let end_ns = now_ns();
    if at != libc::MAP_FAILED {
        let event = Event {
            bytes: n as i64,
            ..Event::plain(Op::Map, start_ns, end_ns)
        };
        count_posix(&recording, &entry.posix, handle, &event);
        recording.table.add_extra(Extra::Map, start_ns, end_ns);
    }
    at
}
