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

use forebay_hook::foreign::Frame;

use crate::counted::Counted;
use library::Library;

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

impl Counted for What {
    /// `NC_EINVAL`.
    const MISSING: usize = -36isize as usize;

    fn count(&self, real: usize, frame: &Frame, call: impl FnOnce() -> usize) -> usize {
        let library = Library::of(real);
        match *self {
            What::Open { create } => file::open(frame, create, call),
            What::Close => file::close(&library, frame, call),
            What::Enddef => file::enddef(frame, call),
            What::Redef => file::redef(frame, call),
            What::Sync => file::sync(frame, call),
            What::Wait { collective } => file::wait(frame, collective, call),
            What::VariableOpen { id } => variable::open(&library, frame, id, call),
            What::Transfer { verb, part } => {
                variable::transfer(&library, frame, (verb, part), call)
            }
        }
    }
}
