//! Counts the calls of HDF5 on files and datasets, where HDF5 is a library of its own.
//!
//! A dataset is known by the name of its file and its path in it, whatever call opened it.
//!
//! | module | what it does |
//! |---|---|
//! | [`library`] | asks the HDF5 in use |
//! | [`file`], [`dataset`] | count the calls |
//! | [`entry`] | the functions that are counted |

mod dataset;
mod entry;
mod file;
mod library;

use forebay_count::heat::Direction;
use forebay_count::library::Span;
use forebay_hook::foreign::Frame;

use crate::counted::Counted;
use crate::sink;
use library::Library;

/// What a function does, as far as it is counted.
enum What {
    /// Opens or creates a file. Argument `properties` holds the access properties.
    FileOpen {
        properties: usize,
    },
    FileFlush,
    FileClose,
    /// Opens or creates a dataset.
    DatasetOpen {
        deprecated: bool,
    },
    /// Opens an object, perhaps a dataset.
    ObjectOpen,
    Transfer {
        direction: Direction,
    },
    DatasetFlush,
    DatasetClose,
    /// Drops a reference to anything; the last one closes it.
    ReferenceDrop,
}

impl Counted for What {
    /// Both an error and no valid id.
    const MISSING: usize = usize::MAX;

    fn count(&self, real: usize, frame: &Frame, call: impl FnOnce() -> usize) -> usize {
        let Some(library) = Library::of(real) else {
            return call();
        };
        match *self {
            What::FileOpen { properties } => file::open(&library, frame, properties, call),
            What::FileFlush => file::flush(&library, frame, call),
            What::FileClose => close(&library, frame, file::closed, call),
            What::DatasetOpen { deprecated } => dataset::open(&library, deprecated, call),
            What::ObjectOpen => dataset::open_object(&library, call),
            What::Transfer { direction } => dataset::transfer(&library, frame, direction, call),
            What::DatasetFlush => dataset::flush(&library, frame, call),
            What::DatasetClose => close(&library, frame, dataset::closed, call),
            What::ReferenceDrop => drop_reference(&library, frame, call),
        }
    }
}

/// `H5Fclose(file)`, `H5Dclose(dataset)`, `H5Oclose(object)`: `closed` counts the close of what the id stood for.
fn close(
    library: &Library,
    frame: &Frame,
    closed: fn(u64, Span),
    call: impl FnOnce() -> usize,
) -> usize {
    let (result, span) = sink::timed(call);
    if succeeded(result) {
        closed(library.key(library.id(frame.argument(0))), span);
    }
    result
}

/// `H5Idec_ref(id)`, by which h5py closes. It is a close if no reference is left.
fn drop_reference(library: &Library, frame: &Frame, call: impl FnOnce() -> usize) -> usize {
    let key = library.key(library.id(frame.argument(0)));
    // Most references are to other objects.
    if !dataset::is_open(key) && !file::is_open(key) {
        return call();
    }
    let (result, span) = sink::timed(call);
    if result as i32 == 0 {
        dataset::closed(key, span);
        file::closed(key, span);
    }
    result
}

/// True if a function that returns `herr_t` succeeded.
fn succeeded(result: usize) -> bool {
    result as i32 >= 0
}
