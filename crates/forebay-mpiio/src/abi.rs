//! Constants of the MPI libraries, as far as this layer needs them.

use forebay_hook::foreign::Symbol;
use forebay_hook::mpi_abi::{Family, family};

/// The constants of one MPI library.
#[derive(Debug, Clone, Copy)]
pub struct Abi {
    /// Bytes of a handle of a communicator, data type, request or info.
    pub handle_bytes: usize,
    /// `MPI_BYTE`.
    pub byte: usize,
    /// `MPI_INT64_T`.
    pub int64: usize,
    /// `MPI_MAX`.
    pub max: usize,
    /// `MPI_COMM_NULL`.
    pub comm_null: usize,
    /// `MPI_INFO_NULL`.
    pub info_null: usize,
    /// `MPI_DATATYPE_NULL`.
    pub datatype_null: usize,
    /// `MPI_ERRORS_RETURN`.
    pub errors_return: usize,
    /// `MPI_PROC_NULL`.
    pub proc_null: i32,
    /// `MPI_STATUS_IGNORE` and `MPI_STATUSES_IGNORE`.
    pub status_ignore: usize,
    /// `MPI_SEEK_SET`.
    pub seek_set: i32,
    /// `MPI_ORDER_C`.
    pub order_c: i32,
    /// `MPI_DISTRIBUTE_BLOCK`, `_CYCLIC`, `_NONE`, `_DFLT_DARG`.
    pub distribute: [i32; 4],
    /// `MPI_MODE_RDONLY`, `_WRONLY`, `_RDWR`.
    pub access_modes: [i32; 3],
    /// Modes in which this layer takes over nothing: `MPI_MODE_APPEND`, `_SEQUENTIAL`.
    pub foreign_modes: i32,
    /// The numbers of the combiners, in the order of [`Combiner`], three of Fortran in the end.
    combiners: [i32; 16],
    /// Classes of errors: `MPI_ERR_ACCESS`, `_IO`, `_NO_SPACE`, `_QUOTA`, `_READ_ONLY`, `_NO_MEM`.
    pub errors: [i32; 6],
}

/// A list of combiners, in the order of their numbers in [`Abi`].
macro_rules! combiners {
    ($($(#[$about:meta])* $name:ident)+) => {
        /// How a data type was made.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Combiner {
            $($(#[$about])* $name,)+
            /// `MPI_Type_create_f90_real` and its like, which are predefined in all but name.
            Fortran,
        }

        const COMBINERS: &[Combiner] = &[$(Combiner::$name),+];
    };
}

combiners! {
    /// It is predefined.
    Named
    /// `MPI_Type_dup`.
    Dup
    /// `MPI_Type_contiguous`.
    Contiguous
    /// `MPI_Type_vector`.
    Vector
    /// `MPI_Type_create_hvector`.
    Hvector
    /// `MPI_Type_indexed`.
    Indexed
    /// `MPI_Type_create_hindexed`.
    Hindexed
    /// `MPI_Type_create_indexed_block`.
    IndexedBlock
    /// `MPI_Type_create_hindexed_block`.
    HindexedBlock
    /// `MPI_Type_create_struct`.
    Struct
    /// `MPI_Type_create_subarray`.
    Subarray
    /// `MPI_Type_create_darray`.
    Darray
    /// `MPI_Type_create_resized`.
    Resized
}

static OMPI_BYTE: Symbol = Symbol::elsewhere("ompi_mpi_byte");
static OMPI_INT64: Symbol = Symbol::elsewhere("ompi_mpi_int64_t");
static OMPI_MAX: Symbol = Symbol::elsewhere("ompi_mpi_op_max");
static OMPI_COMM_NULL: Symbol = Symbol::elsewhere("ompi_mpi_comm_null");
static OMPI_INFO_NULL: Symbol = Symbol::elsewhere("ompi_mpi_info_null");
static OMPI_ERRORS_RETURN: Symbol = Symbol::elsewhere("ompi_mpi_errors_return");
static OMPI_DATATYPE_NULL: Symbol = Symbol::elsewhere("ompi_mpi_datatype_null");

impl Abi {
    /// The constants of the library that `caller` uses; `None` if they can't be found.
    pub fn of(caller: usize) -> Option<Abi> {
        Some(match family(caller) {
            Family::Mpich => Abi {
                handle_bytes: 4,
                byte: 0x4c00_010d,
                int64: 0x4c00_083a,
                max: 0x5800_0001,
                comm_null: 0x0400_0000,
                info_null: 0x1c00_0000,
                datatype_null: 0x0c00_0000,
                errors_return: 0x5400_0001,
                proc_null: -1,
                status_ignore: 1,
                seek_set: 600,
                order_c: 56,
                distribute: [121, 122, 123, -49767],
                access_modes: [2, 4, 8],
                foreign_modes: 128 | 256,
                combiners: [1, 2, 3, 4, 6, 7, 9, 10, 19, 12, 13, 14, 18, 15, 16, 17],
                errors: [20, 32, 36, 39, 40, 34],
            },
            Family::OpenMpi => Abi {
                handle_bytes: 8,
                byte: OMPI_BYTE.for_caller(caller)?,
                int64: OMPI_INT64.for_caller(caller)?,
                max: OMPI_MAX.for_caller(caller)?,
                comm_null: OMPI_COMM_NULL.for_caller(caller)?,
                info_null: OMPI_INFO_NULL.for_caller(caller)?,
                datatype_null: OMPI_DATATYPE_NULL.for_caller(caller)?,
                errors_return: OMPI_ERRORS_RETURN.for_caller(caller)?,
                proc_null: -2,
                status_ignore: 0,
                seek_set: 600,
                order_c: 0,
                distribute: [0, 1, 2, -1],
                access_modes: [2, 4, 8],
                foreign_modes: 128 | 256,
                combiners: [0, 1, 2, 3, 5, 6, 8, 9, 18, 11, 12, 13, 17, 14, 15, 16],
                errors: [20, 35, 41, 44, 45, 39],
            },
            Family::Standard => Abi {
                handle_bytes: 8,
                byte: 0x247,
                int64: 0x258,
                max: 0x23,
                comm_null: 0x100,
                info_null: 0x130,
                datatype_null: 0x200,
                errors_return: 0x143,
                proc_null: -3,
                status_ignore: 0,
                seek_set: 403,
                order_c: 12,
                distribute: [17, 18, 16, 19],
                access_modes: [16, 256, 32],
                foreign_modes: 1 | 64,
                combiners: [
                    101, 102, 103, 104, 105, 106, 107, 108, 109, 110, 111, 112, 116, 113, 114, 115,
                ],
                errors: [20, 35, 41, 44, 45, 39],
            },
        })
    }

    /// The combiner with a number; `None` if this layer does not know it.
    pub fn combiner(&self, number: i32) -> Option<Combiner> {
        let at = self.combiners.iter().position(|&known| known == number);
        at.map(|at| COMBINERS.get(at).copied().unwrap_or(Combiner::Fortran))
    }

    /// A handle without the bits of a register that are not part of it.
    pub fn handle(&self, register: usize) -> usize {
        match self.handle_bytes {
            4 => register & u32::MAX as usize,
            _ => register,
        }
    }

    /// `MPI_ERR_IO`.
    pub fn io_error(&self) -> i32 {
        self.errors[1]
    }

    /// The class of the error that a system call gave.
    pub fn error_class(&self, error: rustix::io::Errno) -> i32 {
        use rustix::io::Errno;
        let [access, io, no_space, quota, read_only, no_memory] = self.errors;
        match error {
            Errno::ACCESS | Errno::PERM => access,
            Errno::NOSPC => no_space,
            Errno::DQUOT => quota,
            Errno::ROFS => read_only,
            Errno::NOMEM => no_memory,
            _ => io,
        }
    }
}
