//! Counts the calls on files.

use core::ffi::{CStr, c_char};

use forebay_count::Kind;
use forebay_count::handles::Handles;
use forebay_count::heat::Direction;
use forebay_count::mpiio::{self, Mode};

use super::SUCCESS;
use crate::sink::{self, Open};
use forebay_hook::foreign::Frame;
use forebay_hook::mpi_abi;

/// Open files by `MPI_File`.
static FILES: Handles<1024> = Handles::new();

fn record_of(file: usize) -> Open {
    sink::open_behind(&FILES, Kind::Mpiio, file as u64)
}

/// A file name without the file system that may stand before it.
pub fn path(name: &CStr) -> &CStr {
    let prefix = name.count_bytes() - mpiio::path(name.to_bytes()).len();
    CStr::from_bytes_with_nul(&name.to_bytes_with_nul()[prefix..]).unwrap_or(name)
}

/// `MPI_File_open(comm, filename, amode, info, &fh)`.
pub fn open(frame: &Frame, call: impl FnOnce() -> usize) -> usize {
    let (result, span) = sink::timed(call);
    if result as i32 != SUCCESS || frame.argument(1) == 0 {
        return result;
    }
    // SAFETY: MPI has just opened a file of this name.
    let name = unsafe { CStr::from_ptr(frame.pointer::<c_char>(1)) };
    // SAFETY: MPI has put the handle there.
    let file = unsafe { *frame.pointer::<usize>(4) };
    let processes = mpi_abi::size(frame.argument(0), frame.caller()).unwrap_or(1);
    let hints = !mpi_abi::is_null_info(frame.argument(3), frame.caller());
    let record = sink::open_path(Kind::Mpiio, path(name));
    record.update(|words| mpiio::open(words, processes, frame.int(2), hints, span));
    sink::remember(&FILES, file as u64, &record, [0; 2]);
    result
}

/// `MPI_File_close(&fh)`, which sets `fh` to null.
pub fn close(frame: &Frame, call: impl FnOnce() -> usize) -> usize {
    // SAFETY: the caller keeps the handle there; MPI looks there, too.
    let file = unsafe { frame.pointer::<usize>(0).as_ref() }
        .copied()
        .unwrap_or(0);
    let record = sink::forget(&FILES, Kind::Mpiio, file as u64);
    let (result, span) = sink::timed(call);
    record.close(|words| mpiio::close(words, span));
    result
}

/// `MPI_File_sync(fh)`.
pub fn sync(frame: &Frame, call: impl FnOnce() -> usize) -> usize {
    let (result, span) = sink::timed(call);
    if result as i32 == SUCCESS {
        record_of(frame.argument(0)).update(|words| mpiio::sync(words, span));
    }
    result
}

/// `MPI_File_set_view(fh, disp, etype, filetype, datarep, info)`.
pub fn set_view(frame: &Frame, call: impl FnOnce() -> usize) -> usize {
    let (result, span) = sink::timed(call);
    if result as i32 == SUCCESS {
        let hints = !mpi_abi::is_null_info(frame.argument(5), frame.caller());
        record_of(frame.argument(0)).update(|words| mpiio::set_view(words, hints, span));
    }
    result
}

/// A read or write. Argument `count` is the number of elements, an `MPI_Count` if it is `large`; the next argument is
/// their type.
pub fn transfer(
    frame: &Frame,
    call: impl FnOnce() -> usize,
    (mode, direction): (Mode, Direction),
    (count, large): (usize, bool),
) -> usize {
    let (result, span) = sink::timed(call);
    if result as i32 != SUCCESS {
        return result;
    }
    let elements = if large {
        frame.argument(count) as i64
    } else {
        i64::from(frame.int(count))
    };
    let element_bytes = match elements {
        0 => 0,
        _ => mpi_abi::type_size(frame.argument(count + 1), frame.caller()),
    };
    let bytes = mpiio::bytes(elements, element_bytes);
    record_of(frame.argument(0)).transfer(direction, &[bytes], span, |words| {
        mpiio::transfer(words, mode, direction, bytes, span);
    });
    result
}
