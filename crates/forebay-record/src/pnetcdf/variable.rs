//! Counts the calls on variables.

use core::ffi::{CStr, c_int};
use core::slice;

use forebay_count::Kind;
use forebay_count::handles::Handles;
use forebay_count::library::Span;
use forebay_count::path::MAX_NAME_BYTES;
use forebay_count::pnetcdf::{self, ACCESS_WORDS, Part, Shape, Verb};

use super::NO_ERROR;
use super::library::Library;
use crate::mpiio;
use crate::sink::{self, Open};
use forebay_hook::foreign::Frame;
use forebay_hook::mpi_abi;

/// Variables in use, by the ids of file and variable, each with its shape.
static VARIABLES: Handles<4096> = Handles::new();

/// The key of a variable. Ids of files begin at 0, which is no key.
fn key(file: c_int, variable: c_int) -> u64 {
    (u64::from(file as u32) + 1) << 32 | u64::from(variable as u32)
}

/// Packs a shape into two words: the elements, and the rest.
fn pack(shape: &Shape) -> [u64; 2] {
    let rest =
        shape.ndims as u64 | (shape.element_bytes as u64) << 16 | u64::from(shape.record) << 32;
    [shape.npoints as u64, rest]
}

fn unpack([npoints, rest]: [u64; 2]) -> Shape {
    Shape {
        ndims: (rest & 0xffff) as i64,
        npoints: npoints as i64,
        element_bytes: (rest >> 16 & 0xffff) as i64,
        record: rest >> 32 != 0,
    }
}

/// `ncmpi_def_var`, `ncmpi_inq_varid`: argument `id` points to the variable's id.
pub fn open(library: &Library, frame: &Frame, id: usize, call: impl FnOnce() -> usize) -> usize {
    let (result, span) = sink::timed(call);
    if result as i32 == NO_ERROR {
        // SAFETY: PnetCDF has put the id there, unless the caller gave null.
        let variable = unsafe { frame.pointer::<c_int>(id).as_ref() };
        if let Some(&variable) = variable {
            opened(library, frame.int(0), variable, Some(span));
        }
    }
    result
}

/// Finds the record of a variable. `span` is `None` if the program uses it by its number, without an open.
fn opened(library: &Library, file: c_int, variable: c_int, span: Option<Span>) -> Option<Shape> {
    let mut path = [0; MAX_NAME_BYTES];
    let path = mpiio::file::path(library.path(file, &mut path)?);
    let name = library.variable_name(file, variable)?;
    let name = CStr::from_bytes_until_nul(&name).ok()?;
    let shape = library.shape(file, variable)?;
    let record = match sink::open_behind(&VARIABLES, Kind::PnetcdfVar, key(file, variable)) {
        known if known.is_some() && known.is_usable() => known,
        _ => sink::open_inside(Kind::PnetcdfVar, path, name.to_bytes()),
    };
    record.update(|words| {
        if let Some(span) = span {
            pnetcdf::open(words, span);
        }
        pnetcdf::describe(words, &shape);
    });
    sink::remember(&VARIABLES, key(file, variable), &record, pack(&shape));
    Some(shape)
}

/// Forgets the variables of a file that was closed.
pub fn forget_all(file: c_int) {
    let of_file = |found: u64| found >> 32 == key(file, 0) >> 32;
    VARIABLES.remove_all(of_file, |value| {
        sink::of_value(Kind::PnetcdfVar, Some(value)).release()
    });
}

/// Any of the functions that move data. Arguments: file, variable, the part of it, ...
pub fn transfer(
    library: &Library,
    frame: &Frame,
    (verb, part): (Verb, Part),
    call: impl FnOnce() -> usize,
) -> usize {
    let (result, span) = sink::timed(call);
    if result as i32 != NO_ERROR {
        return result;
    }
    let (file, variable) = (frame.int(0), frame.int(1));
    let record =
        || -> Open { sink::open_behind(&VARIABLES, Kind::PnetcdfVar, key(file, variable)) };
    let known = sink::extra(&VARIABLES, key(file, variable)).filter(|_| record().is_usable());
    let shape = known
        .map(unpack)
        .or_else(|| opened(library, file, variable, None));
    if let Some(shape) = shape {
        let access = access(library, frame, part, &shape);
        record().transfer(verb.direction(), &access, span, |words| {
            pnetcdf::transfer(words, verb, part, access[0], span);
        });
    }
    result
}

/// The words by which the access differs from others: bytes, and lengths and strides if the call has them.
fn access(library: &Library, frame: &Frame, part: Part, shape: &Shape) -> [i64; ACCESS_WORDS] {
    let ndims = shape.ndims as usize;
    // SAFETY: the library has just read as many numbers there.
    let dims = |at| unsafe { numbers(frame.argument(at), ndims) };
    let bytes = |elements: i64| elements.saturating_mul(shape.element_bytes);
    match part {
        Part::Var => {
            let records = if shape.record {
                library.records(frame.int(0))
            } else {
                1
            };
            pnetcdf::access(bytes(shape.npoints.saturating_mul(records)), &[], &[])
        }
        Part::Var1 => pnetcdf::access(shape.element_bytes, &[], &[]),
        Part::Vara => pnetcdf::access(bytes(product(dims(3))), dims(3), &[]),
        Part::Vars | Part::Varm => {
            let strides = match frame.argument(4) {
                0 => &[1; super::library::MAX_DIMS][..ndims],
                _ => dims(4),
            };
            pnetcdf::access(bytes(product(dims(3))), dims(3), strides)
        }
        Part::Varn => {
            // SAFETY: the library has just read as many lists there.
            let elements = unsafe { elements_of_list(frame.int(2), frame.pointer(4), ndims) };
            pnetcdf::access(bytes(elements), &[], &[])
        }
        Part::Vard => {
            let datatype = frame.argument(2);
            let bytes = if mpi_abi::is_null_type(datatype, library.address()) {
                0
            } else {
                mpi_abi::type_size(datatype, library.address())
            };
            pnetcdf::access(bytes, &[], &[])
        }
    }
}

/// The `len` numbers at an address; empty at null.
///
/// # Safety
/// `at` is null or points to `len` numbers.
unsafe fn numbers<'n>(at: usize, len: usize) -> &'n [i64] {
    if at == 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { slice::from_raw_parts(at as *const i64, len) }
}

fn product(lengths: &[i64]) -> i64 {
    lengths
        .iter()
        .fold(1, |product: i64, &length| product.saturating_mul(length))
}

/// Elements in a list of blocks; a block without lengths is one element.
///
/// # Safety
/// `lengths` is null or has `blocks` pointers, each null or to `ndims` numbers.
unsafe fn elements_of_list(blocks: c_int, lengths: *const usize, ndims: usize) -> i64 {
    let blocks = usize::try_from(blocks).unwrap_or(0);
    if lengths.is_null() {
        return blocks as i64;
    }
    (0..blocks)
        // SAFETY: the caller's promise.
        .map(|at| product(unsafe { numbers(*lengths.add(at), ndims) }))
        .fold(0, i64::saturating_add)
}
