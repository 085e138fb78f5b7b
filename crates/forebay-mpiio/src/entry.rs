//! The functions of MPI that are hooked, under both of their names, and what happens in them.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::ffi::{CStr, OsStr, c_char};
use std::os::unix::ffi::OsStrExt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use forebay_core::collective::Wishes;
use forebay_hook::foreign::{Frame, entry_point};
use forebay_hook::{Behind, MpiFunction};

use crate::exchange::Direction;
use crate::file::{self, Begun, File, Opened};
use crate::mpi::{Failed, Mpi};
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
    SetInfo,
    Sync,
    Transfer(Form),
    /// The first half of a split collective call: all is done here. The program has to leave the file and its buffer
    /// alone until the second half.
    Begin(Form),
    End,
}

/// The arguments of a read or write.
#[derive(Clone, Copy)]
struct Form {
    direction: Direction,
    /// The second argument is an offset.
    explicit: bool,
    /// The number of elements is an `MPI_Count`.
    large: bool,
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

/// The forms of a read or write: with the file pointer and with an offset, with an `int` and with an `MPI_Count`.
macro_rules! transfers {
    ($($direction:ident $what:ident $pointer:literal $pointer_c:literal $offset:literal $offset_c:literal)+) => {
        $(
            function!($pointer What::$what(Form {
                direction: Direction::$direction, explicit: false, large: false,
            }));
            function!($pointer_c What::$what(Form {
                direction: Direction::$direction, explicit: false, large: true,
            }));
            function!($offset What::$what(Form {
                direction: Direction::$direction, explicit: true, large: false,
            }));
            function!($offset_c What::$what(Form {
                direction: Direction::$direction, explicit: true, large: true,
            }));
        )+
    };
}

function!("File_open" What::Open);
function!("File_close" What::Close);
function!("File_set_view" What::SetView);
function!("File_set_info" What::SetInfo);
function!("File_sync" What::Sync);
transfers! {
    Read Transfer "File_read_all" "File_read_all_c" "File_read_at_all" "File_read_at_all_c"
    Write Transfer "File_write_all" "File_write_all_c" "File_write_at_all" "File_write_at_all_c"
    Read Begin "File_read_all_begin" "File_read_all_begin_c" "File_read_at_all_begin" "File_read_at_all_begin_c"
    Write Begin "File_write_all_begin" "File_write_all_begin_c" "File_write_at_all_begin" "File_write_at_all_begin_c"
}
function!("File_read_all_end" What::End);
function!("File_read_at_all_end" What::End);
function!("File_write_all_end" What::End);
function!("File_write_at_all_end" What::End);

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
        free.then(|| Inside)
    }

    /// Lets the MPI library do what the program asks for. It may call an error handler of the program, and that may leave by
    /// `longjmp`: this thread is not in a call of the layer meanwhile.
    fn leave(&self, call: impl FnOnce() -> usize) -> usize {
        INSIDE.with(|inside| inside.set(false));
        let result = call();
        INSIDE.with(|inside| inside.set(true));
        result
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.with(|inside| inside.set(false));
    }
}

fn lock(file: &Mutex<File>) -> MutexGuard<'_, File> {
    file.lock().unwrap_or_else(PoisonError::into_inner)
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
        let pass_on = || unsafe { frame.pass_on(real) };
        let inside = settings::is_on().then(Inside::enter).flatten();
        let Some(inside) = inside else {
            return pass_on();
        };
        let native = || inside.leave(pass_on);
        let done = match self.what {
            What::Open => open(frame, native),
            What::Close => close(frame, native),
            What::SetView => set_view(frame, native),
            What::SetInfo => set_info(frame, native),
            What::Sync => sync(frame, native),
            What::Transfer(form) => transfer(frame, native, form, false),
            What::Begin(form) => transfer(frame, native, form, true),
            What::End => end(frame, native),
        };
        drop(inside);
        match done {
            Ok(result) => result,
            // The handler of the program may call MPI, so this comes last.
            Err(class) => {
                let closes = matches!(self.what, What::Close);
                let file = match closes {
                    // SAFETY: the program keeps the handle there.
                    true => unsafe { *frame.pointer::<usize>(0) },
                    false => frame.argument(0),
                };
                if let Some(mpi) = Mpi::of(frame.caller()) {
                    mpi.raise(file, class);
                }
                if closes {
                    pass_on();
                }
                class as usize
            }
        }
    }
}

/// The result of a call, or the class of an error of this layer, of which the handler of the file has to hear.
type Done = Result<usize, i32>;

/// `MPI_File_open(comm, filename, amode, info, &fh)`.
fn open(frame: &Frame, native: impl FnOnce() -> usize) -> Done {
    let result = native();
    // A file that is not remembered is left to the MPI library.
    let _ = opened(frame, result as i32 == 0);
    Ok(result)
}

/// `MPI_File_close(&fh)`.
fn close(frame: &Frame, native: impl FnOnce() -> usize) -> Done {
    // SAFETY: the program keeps the handle there.
    let handle = unsafe { frame.pointer::<usize>(0).as_ref() };
    let file = handle.and_then(|&handle| file::forget(handle));
    match file.map_or(0, |file| lock(&file).close()) {
        0 => Ok(native()),
        // The library closes it when the program has heard of the error.
        class => Err(class),
    }
}

/// `MPI_File_set_view(fh, disp, etype, filetype, datarep, info)`.
fn set_view(frame: &Frame, native: impl FnOnce() -> usize) -> Done {
    let result = native();
    if let Some(file) = file::known(frame.argument(0)) {
        // SAFETY: the name of a data representation, which the MPI library has just read.
        let plain = result as i32 == 0
            && unsafe { CStr::from_ptr(frame.pointer::<c_char>(4)) } == c"native";
        let displacement = frame.argument(1) as i64;
        let mut file = lock(&file);
        file.set_view(displacement, frame.argument(2), frame.argument(3), plain);
        if result as i32 == 0 {
            file.take_hints(frame.argument(5));
        }
    }
    Ok(result)
}

/// `MPI_File_set_info(fh, info)`.
fn set_info(frame: &Frame, native: impl FnOnce() -> usize) -> Done {
    let result = native();
    if let (Some(file), 0) = (file::known(frame.argument(0)), result as i32) {
        lock(&file).take_hints(frame.argument(1));
    }
    Ok(result)
}

/// `MPI_File_sync(fh)`.
fn sync(frame: &Frame, native: impl FnOnce() -> usize) -> Done {
    let Some(file) = file::known(frame.argument(0)) else {
        return Ok(native());
    };
    let file = lock(&file);
    let (mpi, synced) = (file.mpi, file.sync());
    drop(file);
    match (native(), synced) {
        (0, Ok(0)) => Ok(0),
        (0, Ok(class)) => Err(class),
        (0, Err(Failed)) => Err(mpi.abi.io_error()),
        (error, _) => Ok(error),
    }
}

/// `MPI_File_write_at_all(fh, offset, buf, count, datatype, status)` and its like; without `offset` where the file pointer
/// counts, without `status` in a first half.
fn transfer(frame: &Frame, native: impl FnOnce() -> usize, form: Form, is_half: bool) -> Done {
    let Some(file) = file::known(frame.argument(0)) else {
        return Ok(native());
    };
    let buffer = 1 + usize::from(form.explicit);
    let request = Request {
        direction: form.direction,
        offset: form.explicit.then(|| frame.argument(1) as i64),
        buffer: frame.pointer(buffer),
        count: match form.large {
            true => frame.argument(buffer + 1) as i64,
            false => frame.int(buffer + 1).into(),
        },
        datatype: frame.argument(buffer + 2),
    };
    let mut file = lock(&file);
    let mpi = file.mpi;
    // A program need not end what has failed.
    file.begun = file.begun.filter(|begun| *begun != Begun::Failed);
    if is_half && file.begun.is_some() {
        // The MPI library, which knows nothing of the first one, would begin a second.
        return Err(mpi.abi.io_error());
    }
    // SAFETY: these are the arguments of the program's call.
    match unsafe { file.carry_out(&request) } {
        Ok(Carried::Not) => {
            drop(file);
            Ok(native())
        }
        Ok(Carried::Bytes(bytes)) if is_half => {
            file.begun = Some(Begun::Moved(bytes));
            Ok(0)
        }
        Ok(Carried::Bytes(bytes)) => {
            // SAFETY: the status of the program.
            unsafe { mpi.set_status(frame.argument(buffer + 3), bytes) };
            Ok(0)
        }
        failed => {
            // The MPI library knows nothing of a first half, and must not see the second.
            file.begun = file.begun.or(is_half.then_some(Begun::Failed));
            match failed {
                Ok(Carried::Error(class)) => Err(class),
                _ => Err(mpi.abi.io_error()),
            }
        }
    }
}

/// `MPI_File_write_all_end(fh, buf, status)` and its like.
fn end(frame: &Frame, native: impl FnOnce() -> usize) -> Done {
    let begun = file::known(frame.argument(0)).and_then(|file| {
        let mut file = lock(&file);
        file.begun.take().map(|begun| (file.mpi, begun))
    });
    let Some((mpi, begun)) = begun else {
        return Ok(native());
    };
    let bytes = match begun {
        Begun::Moved(bytes) => bytes,
        Begun::Failed => 0,
    };
    // SAFETY: the status of the program.
    unsafe { mpi.set_status(frame.argument(2), bytes) };
    Ok(0)
}

/// Takes note of a file that was opened on all ranks. One that only some could open, or have room for, stays unknown on all.
fn opened(frame: &Frame, succeeded: bool) -> Result<(), Failed> {
    let mpi = Mpi::of(frame.caller()).ok_or(Failed)?;
    let communicator = frame.argument(0);
    if succeeded {
        // The handle may be that of a file whose close this layer did not see.
        // SAFETY: the MPI library has just put it there.
        file::forget(unsafe { *frame.pointer::<usize>(4) });
    }
    if mpi.abi.handle(communicator) == mpi.abi.comm_null
        || mpi.joins_groups(communicator)?
        || mpi.size(communicator)? < 2
    {
        // With one process all is left to the MPI library, which refuses a communicator between two groups.
        return Ok(());
    }
    // SAFETY: a file of this name was opened.
    let name = succeeded.then(|| unsafe { CStr::from_ptr(frame.pointer::<c_char>(1)).to_bytes() });
    // A prefix names a driver in one MPI library, and is a part of the name in another.
    let name = name.filter(|name| forebay_count::mpiio::path(name) == *name);
    if !mpi.all_succeeded(communicator, name.is_some() && file::has_room())? {
        return Ok(());
    }
    let name = name.ok_or(Failed)?;
    // SAFETY: as above.
    let handle = unsafe { *frame.pointer::<usize>(4) };
    let mut asked = Wishes::default();
    settings::take_hints(&mpi, frame.argument(3), &mut asked);
    let opened = Opened {
        handle,
        communicator,
        path: OsStr::from_bytes(name).into(),
        modes: frame.int(2),
        asked,
    };
    file::remember(mpi, opened)
}
