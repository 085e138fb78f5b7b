//! The differences between MPI libraries, as far as a preload library looks into MPI calls.
//!
//! | | MPICH and its kin | Open MPI | standard ABI (MPI 5) |
//! |---|---|---|---|
//! | communicator, data type, info | `int` | address of an object | address-sized number |
//! | `MPI_File` | pointer | pointer | pointer |
//! | `MPI_COMM_WORLD` | 0x44000000 | `&ompi_mpi_comm_world` | 0x101 |
//! | `MPI_INFO_NULL` | 0x1c000000 | `&ompi_mpi_info_null` | 0x130 |
//! | `MPI_DATATYPE_NULL` | 0x0c000000 | `&ompi_mpi_datatype_null` | 0x200 |
//! | `MPI_Offset`, `MPI_Count` | 64 bits | 64 bits | 64 bits |
//! | `MPI_SUCCESS` | 0 | 0 | 0 |
//!
//! The module finds out which library a caller uses when it first needs to know.

use core::ffi::c_int;
use core::mem::transmute;

use crate::foreign::Symbol;

static STANDARD: Symbol = Symbol::elsewhere("PMPI_Abi_get_version");
static STANDARD_HAS_NOT: Symbol = Symbol::elsewhere("PMPI_Comm_c2f");
static OPEN_MPI_WORLD: Symbol = Symbol::elsewhere("ompi_mpi_comm_world");
static OPEN_MPI_INFO_NULL: Symbol = Symbol::elsewhere("ompi_mpi_info_null");
static OPEN_MPI_DATATYPE_NULL: Symbol = Symbol::elsewhere("ompi_mpi_datatype_null");
static COMM_RANK: Symbol = Symbol::elsewhere("PMPI_Comm_rank");
static COMM_SIZE: Symbol = Symbol::elsewhere("PMPI_Comm_size");
static TYPE_SIZE: Symbol = Symbol::elsewhere("PMPI_Type_size");
static TYPE_SIZE_X: Symbol = Symbol::elsewhere("PMPI_Type_size_x");

/// The libraries with the same handles and constants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// MPICH and its kin: Intel MPI, Cray MPICH, MVAPICH.
    Mpich,
    /// Open MPI.
    OpenMpi,
    /// Any library of the standard ABI.
    Standard,
}

/// The family of the MPI library that `caller` uses.
pub fn family(caller: usize) -> Family {
    // A library of the standard ABI reports its ABI version, and lacks one function of the older ABIs.
    if STANDARD.for_caller(caller).is_some() && STANDARD_HAS_NOT.for_caller(caller).is_none() {
        Family::Standard
    } else if OPEN_MPI_WORLD.for_caller(caller).is_some() {
        Family::OpenMpi
    } else {
        Family::Mpich
    }
}

/// The constants of one MPI library.
struct Constants {
    comm_world: usize,
    info_null: usize,
    datatype_null: usize,
    /// Mask of the bits of a register that hold a handle.
    handle: usize,
}

/// The constants of the MPI library that `caller` uses.
fn constants(caller: usize) -> Constants {
    if family(caller) == Family::Standard {
        return Constants {
            comm_world: 0x101,
            info_null: 0x130,
            datatype_null: 0x200,
            handle: usize::MAX,
        };
    }
    match (
        OPEN_MPI_WORLD.for_caller(caller),
        OPEN_MPI_INFO_NULL.for_caller(caller),
        OPEN_MPI_DATATYPE_NULL.for_caller(caller),
    ) {
        (Some(comm_world), Some(info_null), Some(datatype_null)) => Constants {
            comm_world,
            info_null,
            datatype_null,
            handle: usize::MAX,
        },
        _ => Constants {
            comm_world: 0x4400_0000,
            info_null: 0x1c00_0000,
            datatype_null: 0x0c00_0000,
            handle: u32::MAX as usize,
        },
    }
}

/// `MPI_COMM_WORLD` for calls from `caller`.
pub fn comm_world(caller: usize) -> usize {
    constants(caller).comm_world
}

/// True if `info` is `MPI_INFO_NULL`.
pub fn is_null_info(info: usize, caller: usize) -> bool {
    let known = constants(caller);
    info & known.handle == known.info_null
}

fn ask_communicator(question: &Symbol, communicator: usize, caller: usize) -> Option<i32> {
    let function = question.for_caller(caller)?;
    let mut answer: c_int = 0;
    // SAFETY: int PMPI_Comm_rank(MPI_Comm, int *), and PMPI_Comm_size alike; a handle fits a register in every ABI.
    let error = unsafe {
        transmute::<usize, unsafe extern "C" fn(usize, *mut c_int) -> c_int>(function)(
            communicator,
            &mut answer,
        )
    };
    (error == 0).then_some(answer)
}

/// Rank of this process in `communicator`.
pub fn rank(communicator: usize, caller: usize) -> Option<i32> {
    ask_communicator(&COMM_RANK, communicator, caller)
}

/// Number of processes in `communicator`.
pub fn size(communicator: usize, caller: usize) -> Option<i32> {
    ask_communicator(&COMM_SIZE, communicator, caller)
}

/// True if `datatype` is `MPI_DATATYPE_NULL`, which PnetCDF takes for "nothing". MPI would end the program if it were
/// asked for the size of it.
pub fn is_null_type(datatype: usize, caller: usize) -> bool {
    let known = constants(caller);
    datatype & known.handle == known.datatype_null
}

/// Bytes of data in an element of `datatype`, which must not be null. 0 if its size is not defined.
pub fn type_size(datatype: usize, caller: usize) -> i64 {
    let mut wide: i64 = 0;
    let mut narrow: c_int = 0;
    if let Some(function) = TYPE_SIZE_X.for_caller(caller) {
        // SAFETY: int PMPI_Type_size_x(MPI_Datatype, MPI_Count *).
        unsafe {
            transmute::<usize, unsafe extern "C" fn(usize, *mut i64) -> c_int>(function)(
                datatype, &mut wide,
            )
        };
    } else if let Some(function) = TYPE_SIZE.for_caller(caller) {
        // SAFETY: int PMPI_Type_size(MPI_Datatype, int *).
        unsafe {
            transmute::<usize, unsafe extern "C" fn(usize, *mut c_int) -> c_int>(function)(
                datatype,
                &mut narrow,
            )
        };
        wide = i64::from(narrow);
    }
    wide.max(0)
}
