//! MPI: which rank this process is, and what goes through `MPI_File_*`.
//!
//! A call counts when it leaves for the library itself ([`MpiFunction`]).
//!
//! | module | what it does |
//! |---|---|
//! | [`file`] | counts the calls on files |
//! | [`entry`] | the functions that are counted |

mod entry;
pub mod file;

use forebay_count::heat::Direction;
use forebay_count::mpiio::Mode;

use crate::sink;
use forebay_hook::foreign::Frame;
use forebay_hook::{Behind, MpiFunction, mpi_abi};

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
    names: MpiFunction,
    what: What,
}

impl Function {
    const fn new(mpi: &str, pmpi: &str, what: What) -> Self {
        Function {
            names: MpiFunction::new(mpi, pmpi),
            what,
        }
    }

    fn handle(&self, frame: &Frame, behind: Behind) -> usize {
        match behind {
            // SAFETY: the tool's function has the type of the library's.
            Behind::Tool(next) => unsafe { frame.pass_on(next) },
            Behind::Library(real) => self.perform(frame, real),
            Behind::Nothing => MISSING,
        }
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
    function.handle(frame, function.names.behind_mpi(frame.caller()))
}

/// Handles a call of `PMPI_x`.
extern "C" fn through_pmpi(frame: &Frame, function: &'static Function) -> usize {
    function.handle(frame, function.names.behind_pmpi(frame.caller()))
}

/// Asks MPI, which is initialized now, which rank this is.
fn note_rank(caller: usize) {
    let world = mpi_abi::comm_world(caller);
    if let (Some(rank), Some(size)) = (mpi_abi::rank(world, caller), mpi_abi::size(world, caller)) {
        sink::set_rank(rank, size);
    }
}
