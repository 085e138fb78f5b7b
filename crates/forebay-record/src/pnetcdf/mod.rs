//! PnetCDF, where it is a library of its own: files and variables.
//!
//! Its Fortran functions call those of C, which are counted here.
//!
//! | module | what it does |
//! |---|---|
//! | [`library`] | asks the PnetCDF in use |
//! | [`file`], [`variable`] | how the calls count |
//! | [`entry`] | the functions |

mod entry;
mod file;
mod library;
mod variable;

use forebay_count::pnetcdf::{Part, Verb};

use crate::foreign::{Frame, Symbol};
use crate::sink;
use library::Library;

/// What a caller gets for a function that no library has: `NC_EINVAL`.
const MISSING: usize = -36isize as usize;
/// `NC_NOERR`.
const NO_ERROR: i32 = 0;

/// What a function does, as far as it is counted.
enum What {
    Open {
        create: bool,
    },
    Close,
    Enddef,
    Redef,
    Sync,
    Wait {
        collective: bool,
    },
    /// Defines a variable; a pointer to its id is this argument.
    VariableOpen {
        id: usize,
    },
    Transfer {
        verb: Verb,
        part: Part,
    },
}

struct Function {
    next: Symbol,
    what: What,
}

impl Function {
    const fn new(name: &str, what: What) -> Self {
        Function {
            next: Symbol::next(name),
            what,
        }
    }
}

/// A function of PnetCDF was called.
extern "C" fn handle(frame: &Frame, function: &'static Function) -> usize {
    let Some(real) = function.next.for_caller(frame.caller()) else {
        return MISSING;
    };
    // SAFETY: `real` is the library's function of this name.
    let call = || unsafe { frame.pass_on(real) };
    if !sink::recording() {
        return call();
    }
    let library = Library::of(real);
    match function.what {
        What::Open { create } => file::open(frame, create, call),
        What::Close => file::close(&library, frame, call),
        What::Enddef => file::enddef(frame, call),
        What::Redef => file::redef(frame, call),
        What::Sync => file::sync(frame, call),
        What::Wait { collective } => file::wait(frame, collective, call),
        What::VariableOpen { id } => variable::open(&library, frame, id, call),
        What::Transfer { verb, part } => variable::transfer(&library, frame, (verb, part), call),
    }
}
