//! Functions by which a program could close the library's connections, or take their numbers.

use core::ffi::{c_int, c_uint};

use forebay_hook::hooks;

use crate::locate::{failed, forget_fd, forget_fds};
use crate::requests::LINK;
use forebay_hook::kernel;

/// How often to try again to free a number that a request is using.
const PATIENCE_TURNS: u32 = 1000;

/// Frees the number `fd` for the program.
fn free(fd: c_int) -> bool {
    for _ in 0..PATIENCE_TURNS {
        if LINK.make_way(fd) {
            return true;
        }
        kernel::sleep_ns(10_000);
    }
    false
}

/// Runs `close` on every stretch of `first..=last` that holds no connection.
fn around_connections(
    first: c_uint,
    last: c_uint,
    close: impl Fn(c_uint, c_uint) -> c_int,
) -> c_int {
    let mut from = first;
    while let Some(ours) = LINK.next_connection(from, last) {
        if ours > from && close(from, ours - 1) != 0 {
            return -1;
        }
        if ours == last {
            return 0;
        }
        from = ours + 1;
    }
    close(from, last)
}

hooks! {
    fn close | __close [real] (fd: c_int) -> c_int {
        if LINK.is_ours(fd) {
            return failed(libc::EBADF);
        }
        forget_fd(fd);
        real(fd)
    }

    fn dup2 [real] (old: c_int, new: c_int) -> c_int {
        if LINK.is_ours(old) {
            return failed(libc::EBADF);
        }
        if !free(new) {
            return failed(libc::EBUSY);
        }
        forget_fd(new);
        real(old, new)
    }

    fn dup3 [real] (old: c_int, new: c_int, flags: c_int) -> c_int {
        if LINK.is_ours(old) {
            return failed(libc::EBADF);
        }
        if !free(new) {
            return failed(libc::EBUSY);
        }
        forget_fd(new);
        real(old, new, flags)
    }

    fn close_range [real] (first: c_uint, last: c_uint, flags: c_int) -> c_int {
        if flags & libc::CLOSE_RANGE_CLOEXEC as c_int != 0 || first > last {
            return real(first, last, flags);
        }
        forget_fds();
        around_connections(first, last, |a, b| real(a, b, flags))
    }

    fn closefrom [real] (first: c_int) -> () {
        forget_fds();
        let from = first.max(0) as c_uint;
        if around_connections(from, c_uint::MAX, |a, b| close_range::real()(a, b, 0)) != 0 {
            // The kernel lacks `close_range`, and libc's substitute closes the connections, too. So they are given up
            // first.
            LINK.make_way_for_range(from, c_uint::MAX);
            real(first);
        }
    }
}
