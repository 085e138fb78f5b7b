//! Functions of a library that comes with the program, as HDF5 and PnetCDF do.

use forebay_hook::foreign::{Frame, Symbol};

use crate::sink;

/// What a function of a library does, as far as it is counted.
pub trait Counted: Sync + 'static {
    /// The result for a function that no library has.
    const MISSING: usize;

    /// Makes the call and counts it. `real` is the address of the library's function.
    fn count(&self, real: usize, frame: &Frame, call: impl FnOnce() -> usize) -> usize;
}

/// A function that the recorder redefines.
pub struct Function<W> {
    next: Symbol,
    what: W,
}

impl<W> Function<W> {
    /// The function called `name`, which does `what`.
    pub const fn new(name: &str, what: W) -> Self {
        Function {
            next: Symbol::next(name),
            what,
        }
    }
}

/// Handles a call of a function that the recorder redefines.
pub extern "C" fn handle<W: Counted>(frame: &Frame, function: &'static Function<W>) -> usize {
    let Some(real) = function.next.for_caller(frame.caller()) else {
        return W::MISSING;
    };
    // SAFETY: `real` is the library's function of this name.
    let call = || unsafe { frame.pass_on(real) };
    if sink::recording() {
        function.what.count(real, frame, call)
    } else {
        call()
    }
}

/// Exports a function. Its name is given in pieces; what it does is a `What` that is [`Counted`].
macro_rules! function {
    ($what:expr; $($name:literal)+) => {
        const _: () = {
            static FUNCTION: $crate::counted::Function<What> =
                $crate::counted::Function::new(concat!($($name),+), $what);
            ::forebay_hook::entry_point!(concat!($($name),+), FUNCTION, $crate::counted::handle::<What>);
        };
    };
}
pub(crate) use function;
