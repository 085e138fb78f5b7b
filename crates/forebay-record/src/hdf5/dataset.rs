//! Counts the calls on datasets.

use forebay_count::Kind;
use forebay_count::handles::Handles;
use forebay_count::hdf5::{self, MAX_DIMS, Selection, Shape};
use forebay_count::heat::Direction;
use forebay_count::library::Span;
use forebay_count::path::MAX_NAME_BYTES;

use super::library::{DEFAULT, Library, SelectionKind};
use super::succeeded;
use crate::mpiio;
use crate::sink::{self, Open};
use forebay_hook::foreign::Frame;

/// Open datasets by id, each with the bytes of an element and the number of dimensions.
static DATASETS: Handles<4096> = Handles::new();

/// `H5Dcreate*`, `H5Dopen*`.
pub fn open(library: &Library, deprecated: bool, call: impl FnOnce() -> usize) -> usize {
    let (result, span) = sink::timed(call);
    let id = library.id(result);
    if id >= 0 {
        opened(library, id, Some((deprecated, span)));
    }
    result
}

/// `H5Oopen*`.
pub fn open_object(library: &Library, call: impl FnOnce() -> usize) -> usize {
    let (result, span) = sink::timed(call);
    let id = library.id(result);
    if id >= 0 && library.is_dataset(id) {
        opened(library, id, Some((false, span)));
    }
    result
}

/// Finds the record of a dataset that was just opened. `how` is `None` if a call that is not counted opened it.
fn opened(library: &Library, id: i64, how: Option<(bool, Span)>) -> Option<Open> {
    let (mut file_name, mut object_name) = ([0; MAX_NAME_BYTES], [0; MAX_NAME_BYTES]);
    let file = mpiio::file::path(library.file_name(id, &mut file_name)?);
    // A dataset that has no link yet has no name.
    let object = library
        .object_name(id, &mut object_name)
        .unwrap_or(c"")
        .to_bytes();
    let record = sink::open_inside(Kind::H5d, file, object);
    let (ndims, npoints) = library.extent(id);
    let element_bytes = library.element_bytes(id);
    let mut chunk = [0; MAX_DIMS];
    let shape = Shape {
        ndims,
        npoints,
        element_bytes: element_bytes as i64,
        chunk: library.chunk(id, &mut chunk),
    };
    record.update(|words| {
        if let Some((deprecated, span)) = how {
            hdf5::open(words, deprecated, span);
        }
        hdf5::describe(words, &shape);
    });
    sink::remember(
        &DATASETS,
        library.key(id),
        &record,
        [element_bytes, ndims as u64],
    );
    Some(record)
}

/// `H5Dread`, `H5Dwrite`. Arguments: dataset, memory type, memory space, file space, transfer properties, buffer.
pub fn transfer(
    library: &Library,
    frame: &Frame,
    direction: Direction,
    call: impl FnOnce() -> usize,
) -> usize {
    let (result, span) = sink::timed(call);
    if !succeeded(result) {
        return result;
    }
    let dataset = library.id(frame.argument(0));
    let key = library.key(dataset);
    let known = sink::extra(&DATASETS, key)
        .filter(|_| sink::open_behind(&DATASETS, Kind::H5d, key).is_usable());
    let known = known.or_else(|| {
        opened(library, dataset, None)?;
        sink::extra(&DATASETS, key)
    });
    let [element_bytes, ndims] = known.unwrap_or_else(|| [library.element_bytes(dataset), 0]);
    let ndims = (ndims as usize).min(MAX_DIMS);

    let space = library.id(frame.argument(3));
    let (mut lengths, mut strides) = ([0; MAX_DIMS], [0; MAX_DIMS]);
    let kind = if space == DEFAULT {
        SelectionKind::All
    } else {
        library.selection_kind(space)
    };
    let selection = match kind {
        SelectionKind::None | SelectionKind::All => Selection::Whole,
        SelectionKind::Points => Selection::Points,
        SelectionKind::Hyperslabs => {
            if library.regular_hyperslab(space, &mut lengths, &mut strides) {
                Selection::Regular {
                    lengths: &lengths[..ndims],
                    strides: &strides[..ndims],
                }
            } else {
                Selection::Irregular
            }
        }
    };
    let npoints = if space == DEFAULT {
        library.extent(dataset).1
    } else {
        library.selected(space)
    };
    let bytes = npoints.max(0).saturating_mul(element_bytes as i64);
    let collective = library.is_collective(library.id(frame.argument(4)));
    let access = hdf5::access(bytes, selection);
    sink::open_behind(&DATASETS, Kind::H5d, key).transfer(direction, &access, span, |words| {
        hdf5::transfer(words, direction, bytes, selection, collective, span);
    });
    result
}

/// `H5Dflush(dataset)`.
pub fn flush(library: &Library, frame: &Frame, call: impl FnOnce() -> usize) -> usize {
    let (result, span) = sink::timed(call);
    if succeeded(result) {
        let key = library.key(library.id(frame.argument(0)));
        sink::open_behind(&DATASETS, Kind::H5d, key).update(|words| hdf5::flush(words, span));
    }
    result
}

/// True if `key` stands for an open dataset.
pub fn is_open(key: u64) -> bool {
    sink::is_known(&DATASETS, key)
}

/// Counts the close of what `key` stood for, if it was a dataset.
pub fn closed(key: u64, span: Span) {
    sink::forget(&DATASETS, Kind::H5d, key).close(|words| hdf5::close(words, span));
}
