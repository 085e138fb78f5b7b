//! Asks the HDF5 that a caller uses about files, datasets and selections.
//!
//! It asks only about objects that a call of the program has just used with success. So nothing gets onto the error
//! stack.

use core::ffi::CStr;
use core::mem::transmute;
use core::sync::atomic::{AtomicUsize, Ordering};

use forebay_count::hdf5::MAX_DIMS;

use forebay_hook::foreign::Symbol;

/// `H5S_ALL`, `H5P_DEFAULT`.
pub const DEFAULT: i64 = 0;
/// `H5I_DATASET`.
const DATASET: i32 = 5;
/// `H5D_CHUNKED`.
const CHUNKED: i32 = 2;
/// `H5FD_MPIO_COLLECTIVE`.
const COLLECTIVE: i32 = 1;

macro_rules! symbols {
    ($($name:ident $function:literal)*) => {
        $(static $name: Symbol = Symbol::of_library($function);)*
    };
}

symbols! {
    GET_LIBVERSION "H5get_libversion"
    FILE_NAME "H5Fget_name"
    OBJECT_NAME "H5Iget_name"
    OBJECT_TYPE "H5Iget_type"
    FILE_ID "H5Iget_file_id"
    REFERENCE_DROP "H5Idec_ref"
    DATASET_TYPE "H5Dget_type"
    DATASET_SPACE "H5Dget_space"
    DATASET_PROPERTIES "H5Dget_create_plist"
    TYPE_SIZE "H5Tget_size"
    TYPE_CLOSE "H5Tclose"
    SPACE_CLOSE "H5Sclose"
    SPACE_NDIMS "H5Sget_simple_extent_ndims"
    SPACE_NPOINTS "H5Sget_simple_extent_npoints"
    SELECTED_NPOINTS "H5Sget_select_npoints"
    SELECTION_TYPE "H5Sget_select_type"
    IS_REGULAR "H5Sis_regular_hyperslab"
    REGULAR "H5Sget_regular_hyperslab"
    PROPERTIES_CLOSE "H5Pclose"
    LAYOUT "H5Pget_layout"
    CHUNK "H5Pget_chunk"
    DRIVER "H5Pget_driver"
    MPIO_DRIVER "H5FD_mpio_init"
    TRANSFER_MODE "H5Pget_dxpl_mpio"
}

/// One HDF5 library.
#[derive(Clone, Copy)]
pub struct Library {
    /// The address of one of its functions.
    address: usize,
    /// Tells this library's ids from those of another one in the process.
    tag: u64,
    /// True if ids are `int`, as before HDF5 1.10.
    narrow: bool,
}

/// The `H5get_libversion` of a library whose ids are known to be wide. Most processes have one HDF5, whose ids are
/// wide, and ask once.
static WIDE: AtomicUsize = AtomicUsize::new(0);

/// Asks a library for its version, which tells how wide ids are.
#[cold]
fn is_narrow(get_version: usize) -> bool {
    let mut version = [0u32; 3];
    let [major, minor, release] = &mut version;
    // SAFETY: herr_t H5get_libversion(unsigned *, unsigned *, unsigned *).
    unsafe {
        transmute::<usize, unsafe extern "C" fn(*mut u32, *mut u32, *mut u32) -> i32>(get_version)(
            major, minor, release,
        )
    };
    let narrow = version[0] == 1 && version[1] < 10;
    if !narrow {
        WIDE.store(get_version, Ordering::Relaxed);
    }
    narrow
}

/// The kind of a selection in a file.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum SelectionKind {
    /// Nothing.
    None,
    /// Elements.
    Points,
    /// Blocks.
    Hyperslabs,
    /// Everything.
    All,
}

/// A regular hyperslab, or the lengths of a chunk: one number per dimension, slowest first.
pub type Dims = [u64; MAX_DIMS];

impl Library {
    /// The library that has a function at this address.
    pub fn of(address: usize) -> Option<Self> {
        let get_version = GET_LIBVERSION.for_caller(address)?;
        Some(Library {
            address,
            tag: (get_version as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15),
            narrow: WIDE.load(Ordering::Relaxed) != get_version && is_narrow(get_version),
        })
    }

    /// The id in a register.
    pub fn id(&self, register: usize) -> i64 {
        if self.narrow {
            i64::from(register as i32)
        } else {
            register as i64
        }
    }

    /// A key that stands for the id among the ids of all libraries.
    pub fn key(&self, id: i64) -> u64 {
        id as u64 ^ self.tag
    }

    /// Calls a function of integers and pointers; `None` if this HDF5 has no such function.
    fn ask<const N: usize>(&self, question: &Symbol, given: [usize; N]) -> Option<usize> {
        let function = question.for_caller(self.address)?;
        let mut arguments = [0; 5];
        arguments[..N].copy_from_slice(&given);
        let [a, b, c, d, e] = arguments;
        type Question = unsafe extern "C" fn(usize, usize, usize, usize, usize) -> usize;
        // SAFETY: the functions above take integers and pointers, and do not look at more arguments than they have.
        // The pointers given here have room for what they write.
        Some(unsafe { transmute::<usize, Question>(function)(a, b, c, d, e) })
    }

    fn ask_id(&self, question: &Symbol, id: i64) -> Option<i64> {
        let answer = self.id(self.ask(question, [id as usize])?);
        (answer >= 0).then_some(answer)
    }

    fn ask_int(&self, question: &Symbol, id: i64) -> Option<i32> {
        self.ask(question, [id as usize])
            .map(|answer| answer as i32)
    }

    fn name<'n>(&self, question: &Symbol, id: i64, out: &'n mut [u8]) -> Option<&'n CStr> {
        let room = out.len();
        let len = self.ask(question, [id as usize, out.as_mut_ptr() as usize, room])? as isize;
        usize::try_from(len).ok().filter(|&len| len < room)?;
        CStr::from_bytes_until_nul(out).ok()
    }

    /// Name of the file that holds the object.
    pub fn file_name<'n>(&self, id: i64, out: &'n mut [u8]) -> Option<&'n CStr> {
        self.name(&FILE_NAME, id, out)
    }

    /// Path of the object in its file.
    pub fn object_name<'n>(&self, id: i64, out: &'n mut [u8]) -> Option<&'n CStr> {
        self.name(&OBJECT_NAME, id, out)
    }

    /// True if the object is a dataset.
    pub fn is_dataset(&self, id: i64) -> bool {
        self.ask_int(&OBJECT_TYPE, id) == Some(DATASET)
    }

    /// Calls `with` with the id of the file that holds the object.
    pub fn with_file(&self, id: i64, with: impl FnOnce(i64)) {
        if let Some(file) = self.ask_id(&FILE_ID, id) {
            with(file);
            self.ask(&REFERENCE_DROP, [file as usize]);
        }
    }

    /// Bytes of an element in the file.
    pub fn element_bytes(&self, dataset: i64) -> u64 {
        let Some(datatype) = self.ask_id(&DATASET_TYPE, dataset) else {
            return 0;
        };
        let bytes = self.ask(&TYPE_SIZE, [datatype as usize]).unwrap_or(0);
        self.ask(&TYPE_CLOSE, [datatype as usize]);
        bytes as u64
    }

    /// Dimensions and elements of the data space.
    pub fn extent(&self, dataset: i64) -> (i64, i64) {
        let Some(space) = self.ask_id(&DATASET_SPACE, dataset) else {
            return (0, 0);
        };
        let ndims = self.ask_int(&SPACE_NDIMS, space).unwrap_or(0);
        let npoints = self.ask(&SPACE_NPOINTS, [space as usize]).unwrap_or(0);
        self.ask(&SPACE_CLOSE, [space as usize]);
        (i64::from(ndims), npoints as i64)
    }

    /// Lengths of a chunk; empty if the dataset has no chunks.
    pub fn chunk<'d>(&self, dataset: i64, out: &'d mut Dims) -> &'d [u64] {
        let Some(properties) = self.ask_id(&DATASET_PROPERTIES, dataset) else {
            return &[];
        };
        let mut ndims = 0;
        if self.ask_int(&LAYOUT, properties) == Some(CHUNKED) {
            let given = [properties as usize, MAX_DIMS, out.as_mut_ptr() as usize];
            ndims = self.ask(&CHUNK, given).unwrap_or(0) as i32;
        }
        self.ask(&PROPERTIES_CLOSE, [properties as usize]);
        &out[..usize::try_from(ndims).unwrap_or(0).min(MAX_DIMS)]
    }

    /// Elements selected in a data space.
    pub fn selected(&self, space: i64) -> i64 {
        self.ask(&SELECTED_NPOINTS, [space as usize]).unwrap_or(0) as i64
    }

    /// Kind of the selection in a data space.
    pub fn selection_kind(&self, space: i64) -> SelectionKind {
        match self.ask_int(&SELECTION_TYPE, space) {
            Some(1) => SelectionKind::Points,
            Some(2) => SelectionKind::Hyperslabs,
            Some(3) => SelectionKind::All,
            _ => SelectionKind::None,
        }
    }

    /// Sets lengths and strides of the selection. Returns `false` if it is no regular hyperslab.
    pub fn regular_hyperslab(&self, space: i64, lengths: &mut Dims, strides: &mut Dims) -> bool {
        if self.ask_int(&IS_REGULAR, space).unwrap_or(0) <= 0 {
            return false;
        }
        let (mut starts, mut blocks): (Dims, Dims) = ([0; MAX_DIMS], [0; MAX_DIMS]);
        let given = [
            space as usize,
            starts.as_mut_ptr() as usize,
            strides.as_mut_ptr() as usize,
            lengths.as_mut_ptr() as usize,
            blocks.as_mut_ptr() as usize,
        ];
        let found = self
            .ask(&REGULAR, given)
            .is_some_and(|error| error as i32 >= 0);
        for (count, block) in lengths.iter_mut().zip(blocks) {
            *count = count.saturating_mul(block);
        }
        found
    }

    /// True if these access properties of a file name the MPI-IO driver.
    pub fn is_mpiio(&self, properties: i64) -> bool {
        if properties == DEFAULT {
            return false;
        }
        let driver = self.ask_id(&DRIVER, properties);
        driver.is_some() && self.ask(&MPIO_DRIVER, []).map(|id| self.id(id)) == driver
    }

    /// True if these transfer properties ask for a collective transfer.
    pub fn is_collective(&self, properties: i64) -> bool {
        let mut mode = 0i32;
        properties != DEFAULT
            && !self.narrow
            && self
                .ask(
                    &TRANSFER_MODE,
                    [properties as usize, &raw mut mode as usize],
                )
                .is_some_and(|error| error as i32 >= 0)
            && mode == COLLECTIVE
    }
}
