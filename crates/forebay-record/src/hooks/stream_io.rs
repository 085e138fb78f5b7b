//! Calls that read and write streams.
//!
//! What libc does below a stream does not pass through the hooks of POSIX calls, because libc calls itself directly. So
//! nothing is counted twice.

use core::ffi::{c_char, c_int};
use core::sync::atomic::Ordering::Relaxed;

use forebay_count::path::{STDERR, STDIN, STDOUT};
use forebay_count::table::{Bulk, Handle};
use forebay_count::{Event, Kind, Op};
use forebay_hook::hooks;
use libc::{FILE, size_t, ssize_t};

use super::{Path, Sink, Source};
use crate::clock::now_ns;
use crate::fds::{self, Entry, Standing};
use crate::state::{Recording, recording};
use forebay_hook::kernel;

/// A stream.
pub type Stream = *mut FILE;

/// End of file, or an error.
const EOF: c_int = -1;

unsafe extern "C" {
    /// The descriptor of a stream; -1 for a stream in memory.
    pub fn fileno_unlocked(stream: Stream) -> c_int;
    static stdin: Stream;
    static stdout: Stream;
    static stderr: Stream;
}

/// Name of a stream that is open from the start.
fn standard(stream: Stream) -> Option<&'static [u8]> {
    // SAFETY: libc's own variables.
    let (i, o, e) = unsafe { (stdin, stdout, stderr) };
    match stream {
        s if s == i => Some(STDIN),
        s if s == o => Some(STDOUT),
        s if s == e => Some(STDERR),
        _ => None,
    }
}

/// The record of a stream.
///
/// # Safety
/// `stream` is open.
pub unsafe fn record_of(recording: &Recording, stream: Stream) -> Option<(&'static Entry, Handle)> {
    // SAFETY: the caller's promise.
    let fd = unsafe { fileno_unlocked(stream) };
    match fds::stream(recording, fd, standard(stream)) {
        (_, Some(entry), Some(handle)) => Some((entry, handle)),
        _ => None,
    }
}

/// Makes and counts a read or write of a stream. `bytes` turns the result into a number of bytes, `None` if the call
/// failed.
#[inline(always)]
pub unsafe fn stream_transfer<R: Copy>(
    stream: Stream,
    op: Op,
    bytes: impl FnOnce(R) -> Option<i64>,
    call: impl FnOnce() -> R,
) -> R {
    let Some(recording) = recording() else {
        return call();
    };
    // SAFETY: an open stream.
    let fd = unsafe { fileno_unlocked(stream) };
    let (standing, entry, handle) = fds::stream(&recording, fd, standard(stream));
    let (Some(entry), Some(handle)) = (entry, handle) else {
        let result = call();
        bulk(&recording, standing, op, bytes(result));
        return result;
    };
    let start_ns = now_ns();
    let result = call();
    let end_ns = now_ns();
    if let Some(bytes) = bytes(result) {
        let event = Event {
            offset: entry.stream.position.fetch_add(bytes, Relaxed),
            bytes,
            ..Event::plain(op, start_ns, end_ns)
        };
        if !recording
            .table
            .count(Kind::Stdio, handle, &event, &recording)
        {
            entry.stream.set(Standing::Unknown, None);
        }
    }
    result
}

fn bulk(recording: &Recording, standing: Standing, op: Op, bytes: Option<i64>) {
    let total = match standing {
        Standing::Excluded => Bulk::Excluded,
        Standing::NoFile => Bulk::NoFiles,
        _ => return,
    };
    if let Some(bytes) = bytes {
        let event = Event {
            bytes,
            ..Event::plain(op, 0, 0)
        };
        recording.table.add_bulk(total, &event);
    }
}

/// One byte, unless the result is the end of file.
fn one(result: c_int) -> Option<i64> {
    (result != EOF).then_some(1)
}

/// The bytes of `n` things of a size.
fn things(size: size_t) -> impl FnOnce(size_t) -> Option<i64> {
    move |n| (n > 0).then(|| (size * n) as i64)
}

/// The bytes of a line that was read.
fn line(text: *mut c_char) -> Option<i64> {
    // SAFETY: what `fgets` gives back is closed with a NUL.
    (!text.is_null()).then(|| unsafe { kernel::bytes(text) }.len() as i64)
}

fn length(n: ssize_t) -> Option<i64> {
    (n >= 0).then_some(n as i64)
}

/// The bytes of a string that was written, and `more`.
unsafe fn string(text: Path, more: i64) -> impl FnOnce(c_int) -> Option<i64> {
    // SAFETY: libc has just read the string.
    move |result| (result != EOF).then(|| unsafe { kernel::bytes(text) }.len() as i64 + more)
}

hooks! {
    fn fread | fread_unlocked [real] (to: Sink, size: size_t, n: size_t, stream: *mut FILE) -> size_t {
        stream_transfer(stream, Op::Read, things(size), || real(to, size, n, stream))
    }

    fn __fread_chk | __fread_unlocked_chk [real]
        (to: Sink, room: size_t, size: size_t, n: size_t, stream: *mut FILE) -> size_t
    {
        stream_transfer(stream, Op::Read, things(size), || real(to, room, size, n, stream))
    }

    fn fwrite | fwrite_unlocked [real] (from: Source, size: size_t, n: size_t, stream: *mut FILE) -> size_t {
        stream_transfer(stream, Op::Write, things(size), || real(from, size, n, stream))
    }

    fn fgetc | getc | _IO_getc | fgetc_unlocked | getc_unlocked [real] (stream: *mut FILE) -> c_int {
        stream_transfer(stream, Op::Read, one, || real(stream))
    }

    fn getchar | getchar_unlocked [real] () -> c_int {
        stream_transfer(stdin, Op::Read, one, || real())
    }

    fn fputc | putc | _IO_putc | fputc_unlocked | putc_unlocked [real] (byte: c_int, stream: *mut FILE) -> c_int {
        stream_transfer(stream, Op::Write, one, || real(byte, stream))
    }

    fn putchar | putchar_unlocked [real] (byte: c_int) -> c_int {
        stream_transfer(stdout, Op::Write, one, || real(byte))
    }

    fn fgets | fgets_unlocked [real] (to: *mut c_char, n: c_int, stream: *mut FILE) -> *mut c_char {
        stream_transfer(stream, Op::Read, line, || real(to, n, stream))
    }

    fn __fgets_chk | __fgets_unlocked_chk [real]
        (to: *mut c_char, room: size_t, n: c_int, stream: *mut FILE) -> *mut c_char
    {
        stream_transfer(stream, Op::Read, line, || real(to, room, n, stream))
    }

    fn getline | __getline [real] (to: *mut *mut c_char, room: *mut size_t, stream: *mut FILE) -> ssize_t {
        stream_transfer(stream, Op::Read, length, || real(to, room, stream))
    }

    fn getdelim | __getdelim [real]
        (to: *mut *mut c_char, room: *mut size_t, end: c_int, stream: *mut FILE) -> ssize_t
    {
        stream_transfer(stream, Op::Read, length, || real(to, room, end, stream))
    }

    fn fputs | fputs_unlocked [real] (text: Path, stream: *mut FILE) -> c_int {
        stream_transfer(stream, Op::Write, string(text, 0), || real(text, stream))
    }

    fn puts [real] (text: Path) -> c_int {
        stream_transfer(stdout, Op::Write, string(text, 1), || real(text))
    }

    fn getw [real] (stream: *mut FILE) -> c_int {
        stream_transfer(stream, Op::Read, |w| word(stream, w), || real(stream))
    }

    fn putw [real] (word: c_int, stream: *mut FILE) -> c_int {
        stream_transfer(stream, Op::Write, |r| (r == 0).then_some(size_of::<c_int>() as i64), || real(word, stream))
    }

    fn ungetc [real] (byte: c_int, stream: *mut FILE) -> c_int {
        let result = real(byte, stream);
        if result != EOF && let Some(entry) = fds::known(fileno_unlocked(stream)) {
            entry.stream.position.fetch_sub(1, Relaxed);
        }
        result
    }
}

/// The bytes of a word, which may have the value of the end of file.
fn word(stream: Stream, word: c_int) -> Option<i64> {
    // SAFETY: an open stream.
    let ended = word == EOF && unsafe { libc::feof(stream) != 0 || libc::ferror(stream) != 0 };
    (!ended).then_some(size_of::<c_int>() as i64)
}
