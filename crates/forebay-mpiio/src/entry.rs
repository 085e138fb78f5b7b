//! The functions of MPI that are hooked, under both of their names, and what happens in them.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::ffi::{CStr, OsStr, c_char};
use std::os::unix::ffi::OsStrExt;
use std::sync::PoisonError;

use forebay_hook::foreign::{Frame, entry_point};
use forebay_hook::{Behind, MpiFunction};

use crate::exchange::Direction;
use crate::file::{self, Opened};
use crate::mpi::Mpi;
use crate::settings;
use crate::transfer::{Carried, Request};

/// The result for a function that no library has: `MPI_ERR_UNKNOWN` of MPICH, an error in every ABI.
const MISSING: usize = 13;

thread_local! {
    /// Is this thread in a call of this layer? Then a call comes from the MPI library itself.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// What a function does.
enum What {
    Open,
    Close,
    SetView,
    Sync,
    Transfer {
        direction: Direction,
        /// The second argument is an offset.
        explicit: bool,
        /// The number of elements is an `MPI_Count`.
        large: bool,
    },
}

/// A function under its two names.
struct Function {
    names: MpiFunction,
    what: What,
}

/// `MPI_x` and `PMPI_x`.
macro_rules! function {
    ($name:literal $what:expr) => {
        const _: () = {
            static FUNCTION: Function = Function {
                names: MpiFunction::new(concat!("MPI_", $name), concat!("PMPI_", $name)),
                what: $what,
            };
            entry_point!(concat!("MPI_", $name), FUNCTION, through_mpi);
            entry_point!(concat!("PMPI_", $name), FUNCTION, through_pmpi);
        };
    };
}

macro_rules! transfers {
    ($($name:literal $direction:ident $explicit:literal $large:literal)+) => {
        $(function!($name What::Transfer {
            direction: Direction::$direction,
            explicit: $explicit,
            large: $large,
        });)+
    };
}

function!("File_open" What::Open);
function!("File_close" What::Close);
function!("File_set_view" What::SetView);
function!("File_sync" What::Sync);
transfers! {
    "File_read_all" Read false false
    "File_read_at_all" Read true false
    "File_write_all" Write false false
    "File_write_at_all" Write true false
    "File_read_all_c" Read false true
    "File_read_at_all_c" Read true true
    "File_write_all_c" Write false true
    "File_write_at_all_c" Write true true
}

extern "C" fn through_mpi(frame: &Frame, function: &'static Function) -> usize {
    function.handle(frame, function.names.behind_mpi(frame.caller()))
}

extern "C" fn through_pmpi(frame: &Frame, function: &'static Function) -> usize {
    function.handle(frame, function.names.behind_pmpi(frame.caller()))
}

/// While it lives, calls of this thread go to the MPI library.
struct Inside;

impl Inside {
    fn enter() -> Option<Inside> {
        let free = INSIDE.with(|inside| !inside.replace(true));
        free.then_some(Inside)
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.with(|inside| inside.set(false));
    }
}

impl Function {
    fn handle(&self, frame: &Frame, behind: Behind) -> usize {
        let real = match behind {
            // SAFETY: the tool's function has the type of the library's.
            Behind::Tool(next) => return unsafe { frame.pass_on(next) },
            Behind::Library(real) => real,
            Behind::Nothing => return MISSING,
        };
        // SAFETY: it has the type of the hooked function.
        let native = || unsafe { frame.pass_on(real) };
        if !settings::is_on() {
            return native();
        }
        match (Inside::enter(), &self.what) {
            (None, _) => native(),
            (Some(inside), What::Open) => {
                let result = native();
                if result as i32 == 0 {
                    opened(frame);
                }
                drop(inside);
                result
            }
            (Some(_inside), What::Close) => {
                // SAFETY: the program keeps the handle there.
                let handle = unsafe { frame.pointer::<usize>(0).as_ref() };
                if let Some(file) = handle.and_then(|&handle| file::forget(handle)) {
                    file.lock().unwrap_or_else(PoisonError::into_inner).close();
                }
                native()
            }
            (Some(_inside), What::SetView) => {
                let result = native();
                if let Some(file) = file::known(frame.argument(0)) {
                    let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
                    // SAFETY: the name of a data representation, which the MPI library has just read.
                    let plain = result as i32 == 0
                        && unsafe { CStr::from_ptr(frame.pointer::<c_char>(4)) } == c"native";
                    let displacement = frame.argument(1) as i64;
                    file.set_view(displacement, frame.argument(2), frame.argument(3), plain);
                }
                result
            }
            (Some(_inside), What::Sync) => {
                if let Some(file) = file::known(frame.argument(0)) {
                    let file = file.lock().unwrap_or_else(PoisonError::into_inner);
                    let _ = file.sync();
                }
                native()
            }
            (
                Some(inside),
                &What::Transfer {
                    direction,
                    explicit,
                    large,
                },
            ) => {
                let Some(file) = file::known(frame.argument(0)) else {
                    return native();
                };
                let buffer = 1 + usize::from(explicit);
                let request = Request {
                    direction,
                    offset: explicit.then(|| frame.argument(1) as i64),
                    buffer: frame.pointer(buffer),
                    count: match large {
                        true => frame.argument(buffer + 1) as i64,
                        false => frame.int(buffer + 1).into(),
                    },
                    datatype: frame.argument(buffer + 2),
                };
                let (mpi, carried) = {
                    let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
                    // SAFETY: these are the arguments of the program's call.
                    (file.mpi, unsafe { file.carry_out(&request) })
                };
                let error = match carried {
                    Ok(Carried::Not) => return native(),
                    Ok(Carried::Bytes(bytes)) => {
                        // SAFETY: the status of the program.
                        unsafe { mpi.set_status(frame.argument(buffer + 3), bytes) };
                        return 0;
                    }
                    Ok(Carried::Error(class)) => class,
                    Err(crate::mpi::Failed) => mpi.abi.io_error(),
                };
                // The handler of the program may call MPI.
                drop(inside);
                mpi.raise(frame.argument(0), error);
                error as usize
            }
        }
    }
}

/// Takes note of a file that was opened.
fn opened(frame: &Frame) {
    let Some(mpi) = Mpi::of(frame.caller()) else {
        return;
    };
    // SAFETY: the MPI library has just opened a file of this name, and put its handle there.
    let (name, handle) = unsafe {
        let name = CStr::from_ptr(frame.pointer::<c_char>(1)).to_bytes();
        (name, *frame.pointer::<usize>(4))
    };
    let opened = Opened {
        handle,
        communicator: frame.argument(0),
        path: OsStr::from_bytes(forebay_count::mpiio::path(name)).into(),
        modes: frame.int(2),
        wishes: settings::wishes(&mpi, frame.argument(3)),
    };
    // A file that is not remembered is left to the MPI library.
    let _ = file::remember(mpi, opened);
}
