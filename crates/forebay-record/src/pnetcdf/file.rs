//! Counts the calls on files.

use core::ffi::{CStr, c_char, c_int};

use forebay_count::handles::Handles;
use forebay_count::library::{Span, Words};
use forebay_count::{Kind, pnetcdf};

use super::library::Library;
use super::{NO_ERROR, variable};
use crate::mpiio;
use crate::sink;
use forebay_hook::foreign::Frame;

/// Open files by id.
static FILES: Handles<1024> = Handles::new();

/// The key of a file. Ids begin at 0, which is no key.
fn key(file: c_int) -> u64 {
    u64::from(file as u32) + 1
}

/// `ncmpi_create(comm, path, mode, info, &id)`, `ncmpi_open` alike.
pub fn open(frame: &Frame, create: bool, call: impl FnOnce() -> usize) -> usize {
    let (result, span) = sink::timed(call);
    if result as i32 != NO_ERROR || frame.argument(1) == 0 {
        return result;
    }
    // SAFETY: PnetCDF has just opened a file of this name.
    let name = unsafe { CStr::from_ptr(frame.pointer::<c_char>(1)) };
    // SAFETY: PnetCDF has put the id there.
    let id = unsafe { *frame.pointer::<c_int>(4) };
    let record = sink::open_path(Kind::PnetcdfFile, mpiio::file::path(name));
    record.update(|words| pnetcdf::open_file(words, create, span));
    sink::remember(&FILES, key(id), &record, [0; 2]);
    result
}

/// `ncmpi_close(id)`, `ncmpi_abort(id)`.
pub fn close(library: &Library, frame: &Frame, call: impl FnOnce() -> usize) -> usize {
    let id = frame.int(0);
    let (read, written) = (library.get_size(id), library.put_size(id));
    let (result, span) = sink::timed(call);
    if result as i32 == NO_ERROR {
        variable::forget_all(id);
        sink::forget(&FILES, Kind::PnetcdfFile, key(id))
            .close(|words| pnetcdf::close_file(words, read, written, span));
    }
    result
}

/// Makes a call on a file, and counts it if it succeeds.
fn count_success(frame: &Frame, call: impl FnOnce() -> usize, count: fn(Words<'_>, Span)) -> usize {
    let (result, span) = sink::timed(call);
    if result as i32 == NO_ERROR {
        let record = sink::open_behind(&FILES, Kind::PnetcdfFile, key(frame.int(0)));
        record.update(|words| count(words, span));
    }
    result
}

/// `ncmpi_enddef(id)`.
pub fn enddef(frame: &Frame, call: impl FnOnce() -> usize) -> usize {
    count_success(frame, call, pnetcdf::enddef)
}

/// `ncmpi_redef(id)`.
pub fn redef(frame: &Frame, call: impl FnOnce() -> usize) -> usize {
    count_success(frame, call, pnetcdf::redef)
}

/// `ncmpi_sync(id)`.
pub fn sync(frame: &Frame, call: impl FnOnce() -> usize) -> usize {
    count_success(frame, call, pnetcdf::sync)
}

/// `ncmpi_wait(id, ...)`, `ncmpi_wait_all`.
pub fn wait(frame: &Frame, collective: bool, call: impl FnOnce() -> usize) -> usize {
    let (result, span) = sink::timed(call);
    let ok = result as i32 == NO_ERROR;
    let record = sink::open_behind(&FILES, Kind::PnetcdfFile, key(frame.int(0)));
    record.update(|words| pnetcdf::wait(words, collective, ok, span));
    result
}
