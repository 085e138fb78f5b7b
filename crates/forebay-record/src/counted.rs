//! Functions of a library that comes with the program: what HDF5 and PnetCDF have in common.

use forebay_hook::foreign::{Frame, Symbol};

use crate::sink;

/// What the functions of a library do, as far as it is counted.
pub trait Counted: Sync + 'static {
    /// What a caller gets for a function that no library has.
    const MISSING: usize;

    /// Makes the call, and counts it. `real` is the library's function.
    fn count(&self, real: usize, frame: &Frame, call: impl FnOnce() -> usize) -> usize;
}

/// A function that the recorder defines anew.
pub struct Function<W> {
    next: Symbol,
    what: W,
}

impl<W> Function<W> {
    /// The function of this name, which does this.
    pub const fn new(name: &str, what: W) -> Self {
        Function {
            next: Symbol::next(name),
            what,
        }
    }
}

/// A function was called.
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

/// Exports a function by its name, which is given in pieces, and what it does, a `What` that is [`Counted`].
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
