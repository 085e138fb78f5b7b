//! MPI: which rank this process is, and what goes through `MPI_File_*`.
//!
//! Both names of a function are exported, `MPI_x` and `PMPI_x`, because Fortran bindings call the one or the other,
//! depending on the library. A call counts when it leaves for the library itself. If another tool stands between (its
//! `MPI_x` is not the library's), the call counts when the tool calls `PMPI_x`.
//!
//! | module | what it does |
//! |---|---|
//! | [`file`] | counts the calls on files |
//! | [`entry`] | the functions that are counted |

mod entry;
pub mod file;

use core::sync::atomic::{AtomicU8, Ordering};

use forebay_count::heat::Direction;
use forebay_count::mpiio::Mode;

use crate::sink;
use forebay_hook::foreign::{Frame, Symbol, same_object};
use forebay_hook::mpi_abi;

/// `MPI_SUCCESS` in every ABI.
const SUCCESS: i32 = 0;
/// The result for a function that no library has: `MPI_ERR_UNKNOWN` of MPICH, an error in every ABI.
const MISSING: usize = 13;

/// What a function does, as far as it is counted.
enum What {
    Init,
    Abort,
    Open,
    Close,
    Sync,
    SetView,
    /// Argument `count` is the number of elements, the next argument their type.
    Transfer {
        mode: Mode,
        direction: Direction,
        count: usize,
        /// True if the number is an `MPI_Count`.
        large: bool,
    },
}

/// A function under its two names.
struct Function {
    mpi: Symbol,
    pmpi: Symbol,
    what: What,
    /// [`UNKNOWN`], [`LIBRARY`] or [`TOOL`].
    after_mpi: AtomicU8,
}

const UNKNOWN: u8 = 0;
/// The library comes behind `MPI_x`.
const LIBRARY: u8 = 1;
/// Another tool comes behind `MPI_x`, which will call `PMPI_x`.
const TOOL: u8 = 2;

impl Function {
    const fn new(mpi: &str, pmpi: &str, what: What) -> Self {
        Function {
            mpi: Symbol::next(mpi),
            pmpi: Symbol::next(pmpi),
            what,
            after_mpi: AtomicU8::new(UNKNOWN),
        }
    }

    fn is_tool(&self, next: usize, library: usize) -> bool {
        if next == library {
            return false;
        }
        let mut known = self.after_mpi.load(Ordering::Relaxed);
        if known == UNKNOWN {
            known = if same_object(next, library) {
                LIBRARY
            } else {
                TOOL
            };
            self.after_mpi.store(known, Ordering::Relaxed);
        }
        known == TOOL
    }

    /// Calls `real` and counts the call.
    fn perform(&self, frame: &Frame, real: usize) -> usize {
        // SAFETY: `real` is the library's function of this name.
        let call = || unsafe { frame.pass_on(real) };
        if !sink::recording() {
            return call();
        }
        match self.what {
            What::Init => {
                let result = call();
                // Before MPI is initialized any question ends the program.
                if result as i32 == SUCCESS {
                    note_rank(frame.caller());
                }
                result
            }
            What::Abort => {
                sink::aborting(frame.int(1));
                call()
            }
            What::Open => file::open(frame, call),
            What::Close => file::close(frame, call),
            What::Sync => file::sync(frame, call),
            What::SetView => file::set_view(frame, call),
            What::Transfer {
                mode,
                direction,
                count,
                large,
            } => file::transfer(frame, call, (mode, direction), (count, large)),
        }
    }
}

/// Handles a call of `MPI_x`.
extern "C" fn through_mpi(frame: &Frame, function: &'static Function) -> usize {
    let next = function.mpi.for_caller(frame.caller());
    let library = function.pmpi.for_caller(frame.caller());
    match (next, library) {
        // SAFETY: the tool's function has the type of the library's.
        (Some(next), Some(library)) if function.is_tool(next, library) => unsafe {
            frame.pass_on(next)
        },
        (_, Some(real)) | (Some(real), None) => function.perform(frame, real),
        (None, None) => MISSING,
    }
}

/// Handles a call of `PMPI_x`.
extern "C" fn through_pmpi(frame: &Frame, function: &'static Function) -> usize {
    match function.pmpi.for_caller(frame.caller()) {
        Some(real) => function.perform(frame, real),
        None => MISSING,
    }
}

/// Asks MPI, which is initialized now, which rank this is.
fn note_rank(caller: usize) {
    let world = mpi_abi::comm_world(caller);
    if let (Some(rank), Some(size)) = (mpi_abi::rank(world, caller), mpi_abi::size(world, caller)) {
        sink::set_rank(rank, size);
    }
}
