//! Copies inside the kernel. Each counts as a read of one file and a write of another.

use core::ffi::{c_int, c_uint};
use core::sync::atomic::Ordering::Relaxed;

use forebay_count::event::Extra;
use forebay_count::{Event, Op};
use forebay_hook::hooks;
use libc::{off_t, size_t, ssize_t};

use crate::clock::now_ns;
use crate::count::count_posix;
use crate::fds;
use crate::state::{self, Recording, recording};
use forebay_hook::kernel;

hooks! {
    fn copy_file_range [real]
        (from: c_int, from_at: *mut off_t, to: c_int, to_at: *mut off_t, n: size_t, flags: c_uint) -> ssize_t
    {
        let ends = (CopyEnd::new(from, from_at), CopyEnd::new(to, to_at));
        copy(Extra::CopyRange, ends, || real(from, from_at, to, to_at, n, flags))
    }

    fn sendfile | sendfile64 [real] (to: c_int, from: c_int, from_at: *mut off_t, n: size_t) -> ssize_t {
        let ends = (CopyEnd::new(from, from_at), CopyEnd::new(to, core::ptr::null_mut()));
        copy(Extra::Sendfile, ends, || real(to, from, from_at, n))
    }

    fn splice [real]
        (from: c_int, from_at: *mut off_t, to: c_int, to_at: *mut off_t, n: size_t, flags: c_uint) -> ssize_t
    {
        let ends = (CopyEnd::new(from, from_at), CopyEnd::new(to, to_at));
        copy(Extra::Splice, ends, || real(from, from_at, to, to_at, n, flags))
    }
}

/// One end of a copy.
struct CopyEnd {
    fd: c_int,
    /// The offset, if the program gave one.
    at: Option<i64>,
}

impl CopyEnd {
    unsafe fn new(fd: c_int, at: *mut off_t) -> Self {
        // SAFETY: not null, so it is readable: the kernel reads it, too.
        let at = (!at.is_null()).then(|| unsafe { *at });
        CopyEnd { fd, at }
    }
}

fn copy(kind: Extra, (from, to): (CopyEnd, CopyEnd), call: impl FnOnce() -> ssize_t) -> ssize_t {
    let Some(recording) = recording() else {
        return call();
    };
    let start_ns = now_ns();
    let moved = call();
    let end_ns = now_ns();
    recording.table.add_extra(kind, start_ns, end_ns);
    if moved >= 0 {
        let event = |op| Event {
            bytes: moved as i64,
            ..Event::plain(op, start_ns, end_ns)
        };
        count_end(&recording, &from, event(Op::CopyOut));
        count_end(&recording, &to, event(Op::CopyIn));
    }
    moved
}

fn count_end(recording: &Recording, end: &CopyEnd, event: Event) {
    let (_, Some(entry), Some(handle)) = fds::posix(recording, end.fd) else {
        return;
    };
    let offset = match end.at {
        Some(at) => at,
        None => {
            let known = if state::is_restricted() {
                None
            } else {
                kernel::position(end.fd)
            };
            let after = known.unwrap_or_else(|| entry.posix.position.load(Relaxed) + event.bytes);
            entry.posix.position.store(after, Relaxed);
            after - event.bytes
        }
    };
    count_posix(recording, &entry.posix, handle, &Event { offset, ..event });
}
