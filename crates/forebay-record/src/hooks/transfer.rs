//! `read`, `write` and all their forms; `aio_return`.

use core::ffi::c_int;

use forebay_count::Op;
use forebay_count::event::Extra;
use forebay_hook::hooks;
use libc::{aiocb, iovec, off_t, size_t, ssize_t};

use super::{Sink, Source};
use crate::count::{extra, is_aligned, is_vector_aligned, transfer};

hooks! {
    fn read [real] (fd: c_int, to: Sink, n: size_t) -> ssize_t {
        transfer(fd, Op::Read, None, is_aligned(to), || real(fd, to, n))
    }

    fn write [real] (fd: c_int, from: Source, n: size_t) -> ssize_t {
        transfer(fd, Op::Write, None, is_aligned(from), || real(fd, from, n))
    }

    fn pread | pread64 [real] (fd: c_int, to: Sink, n: size_t, at: off_t) -> ssize_t {
        transfer(fd, Op::Read, Some(at), is_aligned(to), || real(fd, to, n, at))
    }

    fn pwrite | pwrite64 [real] (fd: c_int, from: Source, n: size_t, at: off_t) -> ssize_t {
        transfer(fd, Op::Write, Some(at), is_aligned(from), || real(fd, from, n, at))
    }

    fn __read_chk [real] (fd: c_int, to: Sink, n: size_t, room: size_t) -> ssize_t {
        transfer(fd, Op::Read, None, is_aligned(to), || real(fd, to, n, room))
    }

    fn __pread_chk | __pread64_chk [real] (fd: c_int, to: Sink, n: size_t, at: off_t, room: size_t) -> ssize_t {
        transfer(fd, Op::Read, Some(at), is_aligned(to), || real(fd, to, n, at, room))
    }

    fn readv [real] (fd: c_int, to: *const iovec, n: c_int) -> ssize_t {
        transfer(fd, Op::Read, None, is_vector_aligned(to, n), || real(fd, to, n))
    }

    fn writev [real] (fd: c_int, from: *const iovec, n: c_int) -> ssize_t {
        transfer(fd, Op::Write, None, is_vector_aligned(from, n), || real(fd, from, n))
    }

    fn preadv | preadv64 [real] (fd: c_int, to: *const iovec, n: c_int, at: off_t) -> ssize_t {
        transfer(fd, Op::Read, Some(at), is_vector_aligned(to, n), || real(fd, to, n, at))
    }

    fn pwritev | pwritev64 [real] (fd: c_int, from: *const iovec, n: c_int, at: off_t) -> ssize_t {
        transfer(fd, Op::Write, Some(at), is_vector_aligned(from, n), || real(fd, from, n, at))
    }

    fn preadv2 | preadv64v2 [real] (fd: c_int, to: *const iovec, n: c_int, at: off_t, flags: c_int) -> ssize_t {
        transfer(fd, Op::Read, offset(at), is_vector_aligned(to, n), || real(fd, to, n, at, flags))
    }

    fn pwritev2 | pwritev64v2 [real] (fd: c_int, from: *const iovec, n: c_int, at: off_t, flags: c_int) -> ssize_t {
        let at_place = if flags & RWF_APPEND != 0 { None } else { offset(at) };
        transfer(fd, Op::Write, at_place, is_vector_aligned(from, n), || real(fd, from, n, at, flags))
    }

    fn aio_read | aio_read64 | aio_write | aio_write64 [real] (request: *mut aiocb) -> c_int {
        extra(Extra::Aio, || real(request))
    }

    fn aio_return | aio_return64 [real] (request: *mut aiocb) -> ssize_t {
        finished(request, || real(request))
    }
}

/// `RWF_APPEND`: the write appends, whatever the offset says.
const RWF_APPEND: c_int = 0x10;

/// The offset of a call in which -1 stands for the position.
fn offset(at: off_t) -> Option<i64> {
    (at != -1).then_some(at)
}

/// Counts an asynchronous request when its result is taken, because its bytes are known only then. Its time is that of
/// taking the result.
unsafe fn finished(request: *mut aiocb, call: impl FnOnce() -> ssize_t) -> ssize_t {
    /// Set in the operation by the functions for 64-bit offsets.
    const LARGE: c_int = 128;
    if request.is_null() {
        return call();
    }
    // SAFETY: a request of the program that has finished.
    let (fd, at, operation, memory) = unsafe {
        let r = &*request;
        (
            r.aio_fildes,
            r.aio_offset,
            r.aio_lio_opcode & !LARGE,
            r.aio_buf,
        )
    };
    let op = match operation {
        libc::LIO_READ => Op::Read,
        libc::LIO_WRITE => Op::Write,
        _ => return call(),
    };
    transfer(fd, op, Some(at), is_aligned(memory), call)
}
