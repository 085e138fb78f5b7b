//! Asks the PnetCDF that a caller uses about files and variables.

use core::ffi::{CStr, c_int};
use core::mem::transmute;

use forebay_count::path::MAX_NAME_BYTES;
use forebay_count::pnetcdf::{Shape, element_bytes};

use super::NO_ERROR;
use forebay_hook::foreign::Symbol;

/// Longest name of a variable, with the closing NUL (`NC_MAX_NAME`).
const NAME_BYTES: usize = 257;
/// Most dimensions of a variable whose shape is asked for.
pub const MAX_DIMS: usize = 64;

static PATH: Symbol = Symbol::of_library("ncmpi_inq_path");
static PUT_SIZE: Symbol = Symbol::of_library("ncmpi_inq_put_size");
static GET_SIZE: Symbol = Symbol::of_library("ncmpi_inq_get_size");
static UNLIMITED: Symbol = Symbol::of_library("ncmpi_inq_unlimdim");
static DIMENSION: Symbol = Symbol::of_library("ncmpi_inq_dimlen");
static VARIABLE_NAME: Symbol = Symbol::of_library("ncmpi_inq_varname");
static VARIABLE_TYPE: Symbol = Symbol::of_library("ncmpi_inq_vartype");
static VARIABLE_NDIMS: Symbol = Symbol::of_library("ncmpi_inq_varndims");
static VARIABLE_DIMS: Symbol = Symbol::of_library("ncmpi_inq_vardimid");

/// One PnetCDF library.
#[derive(Clone, Copy)]
pub struct Library {
    /// The address of one of its functions.
    address: usize,
}

impl Library {
    /// The library that has a function at this address.
    pub fn of(address: usize) -> Self {
        Library { address }
    }

    /// The address of one of its functions.
    pub fn address(&self) -> usize {
        self.address
    }

    /// Calls a function that answers through a pointer, the last of its arguments.
    fn ask<T, const N: usize>(
        &self,
        question: &Symbol,
        given: [c_int; N],
        answer: *mut T,
    ) -> Option<()> {
        let function = question.for_caller(self.address)?;
        // SAFETY: the functions above take one or two `int` and a pointer to their answer. The callers below give each
        // a pointer with room for it.
        let error = unsafe {
            match given.as_slice() {
                [a] => transmute::<usize, unsafe extern "C" fn(c_int, *mut T) -> c_int>(function)(
                    *a, answer,
                ),
                [a, b] => transmute::<usize, unsafe extern "C" fn(c_int, c_int, *mut T) -> c_int>(
                    function,
                )(*a, *b, answer),
                _ => return None,
            }
        };
        (error == NO_ERROR).then_some(())
    }

    fn answer<T: Default, const N: usize>(
        &self,
        question: &Symbol,
        given: [c_int; N],
    ) -> Option<T> {
        let mut answer = T::default();
        self.ask(question, given, &raw mut answer)?;
        Some(answer)
    }

    /// Path of a file, as it was opened.
    pub fn path<'p>(&self, file: c_int, out: &'p mut [u8; MAX_NAME_BYTES]) -> Option<&'p CStr> {
        let function = PATH.for_caller(self.address)?;
        type Question = unsafe extern "C" fn(c_int, *mut c_int, *mut u8) -> c_int;
        // SAFETY: int ncmpi_inq_path(int, int *, char *).
        let ask = unsafe { transmute::<usize, Question>(function) };
        let mut len: c_int = 0;
        // SAFETY: a null pointer asks for no answer.
        let error = unsafe { ask(file, &raw mut len, core::ptr::null_mut()) };
        if error != NO_ERROR || usize::try_from(len).ok()? >= out.len() {
            return None;
        }
        // SAFETY: there is room for the path and its NUL.
        let error = unsafe { ask(file, core::ptr::null_mut(), out.as_mut_ptr()) };
        (error == NO_ERROR).then(|| CStr::from_bytes_until_nul(out).ok())?
    }

    /// Bytes that were written through a handle.
    pub fn put_size(&self, file: c_int) -> Option<i64> {
        self.answer(&PUT_SIZE, [file])
    }

    /// Bytes that were read through a handle.
    pub fn get_size(&self, file: c_int) -> Option<i64> {
        self.answer(&GET_SIZE, [file])
    }

    /// Records that a file has; 1 if it has no dimension that grows.
    pub fn records(&self, file: c_int) -> i64 {
        let unlimited: Option<c_int> = self.answer(&UNLIMITED, [file]);
        match unlimited {
            Some(dimension) if dimension >= 0 => {
                self.answer(&DIMENSION, [file, dimension]).unwrap_or(0)
            }
            _ => 1,
        }
    }

    /// Name of a variable.
    pub fn variable_name(&self, file: c_int, variable: c_int) -> Option<[u8; NAME_BYTES]> {
        let mut name = [0; NAME_BYTES];
        self.ask(&VARIABLE_NAME, [file, variable], name.as_mut_ptr())?;
        Some(name)
    }

    /// The shape of a variable.
    pub fn shape(&self, file: c_int, variable: c_int) -> Option<Shape> {
        let kind: c_int = self.answer(&VARIABLE_TYPE, [file, variable])?;
        let ndims: c_int = self.answer(&VARIABLE_NDIMS, [file, variable])?;
        let ndims = usize::try_from(ndims).ok().filter(|&n| n <= MAX_DIMS)?;
        let mut dims: [c_int; MAX_DIMS] = [0; MAX_DIMS];
        self.ask(&VARIABLE_DIMS, [file, variable], dims.as_mut_ptr())?;
        let dims = &dims[..ndims];
        let unlimited: Option<c_int> = self.answer(&UNLIMITED, [file]);
        let record =
            unlimited.is_some_and(|dimension| dimension >= 0 && dims.first() == Some(&dimension));
        let npoints = dims[usize::from(record)..]
            .iter()
            .try_fold(1i64, |points, &dimension| {
                let len: i64 = self.answer(&DIMENSION, [file, dimension])?;
                Some(points.saturating_mul(len))
            })?;
        Some(Shape {
            ndims: ndims as i64,
            npoints,
            element_bytes: element_bytes(kind),
            record,
        })
    }
}
