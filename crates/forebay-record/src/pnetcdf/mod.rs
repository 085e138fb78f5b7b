//! Counts the calls of PnetCDF on files and variables, where PnetCDF is a library of its own.
//!
//! Its Fortran functions call those of C, which are counted here.
//!
//! | module | what it does |
//! |---|---|
//! | [`library`] | asks the PnetCDF in use |
//! | [`file`], [`variable`] | count the calls |
//! | [`entry`] | the functions that are counted |

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
    /// Defines a variable, or asks for its id. Argument `id` is a pointer to the id.
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
