//! Counts the calls on files.

use core::ffi::{CStr, c_char};

use forebay_count::handles::Handles;
use forebay_count::library::Span;
use forebay_count::{Kind, hdf5};

use super::library::Library;
use super::succeeded;
use crate::mpiio;
use crate::sink;
use forebay_hook::foreign::Frame;

/// Open files by id.
static FILES: Handles<1024> = Handles::new();

/// `H5Fcreate(name, flags, create, access)`, `H5Fopen(name, flags, access)`.
pub fn open(
    library: &Library,
    frame: &Frame,
    properties: usize,
    call: impl FnOnce() -> usize,
) -> usize {
    let (result, span) = sink::timed(call);
    let id = library.id(result);
    if id < 0 || frame.argument(0) == 0 {
        return result;
    }
    // SAFETY: HDF5 has just opened a file of this name.
    let name = unsafe { CStr::from_ptr(frame.pointer::<c_char>(0)) };
    let mpiio = library.is_mpiio(library.id(frame.argument(properties)));
    let path = if mpiio { mpiio::file::path(name) } else { name };
    let record = sink::open_path(Kind::H5f, path);
    record.update(|words| hdf5::open_file(words, mpiio, span));
    sink::remember(&FILES, library.key(id), &record, [0; 2]);
    result
}

/// `H5Fflush(object, scope)`. The object is a file or something in one.
pub fn flush(library: &Library, frame: &Frame, call: impl FnOnce() -> usize) -> usize {
    let (result, span) = sink::timed(call);
    if succeeded(result) {
        library.with_file(library.id(frame.argument(0)), |file| {
            let record = sink::open_behind(&FILES, Kind::H5f, library.key(file));
            record.update(|words| hdf5::flush_file(words, span));
        });
    }
    result
}

/// True if `key` stands for an open file.
pub fn is_open(key: u64) -> bool {
    sink::is_known(&FILES, key)
}

/// Counts the close of what `key` stood for, if it was a file.
pub fn closed(key: u64, span: Span) {
    sink::forget(&FILES, Kind::H5f, key).close(|words| hdf5::close_file(words, span));
}
