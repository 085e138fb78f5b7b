//! The functions of MPI that are counted, under both of their names. Names are given in pieces.

use forebay_count::heat::Direction::{Read, Write};
use forebay_count::mpiio::Mode::{Collective, Independent, NonBlocking, Split};

use super::{Function, What, through_mpi, through_pmpi};
use forebay_hook::foreign::entry_point;

/// `MPI_x` and `PMPI_x`.
macro_rules! function {
    ([$($name:literal)+] $what:expr) => {
        const _: () = {
            static FUNCTION: Function =
                Function::new(concat!("MPI_", $($name),+), concat!("PMPI_", $($name),+), $what);
            entry_point!(concat!("MPI_", $($name),+), FUNCTION, through_mpi);
            entry_point!(concat!("PMPI_", $($name),+), FUNCTION, through_pmpi);
        };
    };
}

/// A read or write. The number of elements is an `int`, in the form with `_c` an `MPI_Count`.
macro_rules! transfer {
    ([$($name:literal)+] $direction:expr, $mode:expr, $count:literal) => {
        function!([$($name)+] What::Transfer {
            mode: $mode,
            direction: $direction,
            count: $count,
            large: false,
        });
        function!([$($name)+ "_c"] What::Transfer {
            mode: $mode,
            direction: $direction,
            count: $count,
            large: true,
        });
    };
}

/// All reads or all writes. The number of elements comes after file and buffer, or after file, offset and buffer.
macro_rules! transfers {
    ($verb:literal, $direction:expr) => {
        transfer!(["File_" $verb] $direction, Independent, 2);
        transfer!(["File_" $verb "_at"] $direction, Independent, 3);
        transfer!(["File_" $verb "_shared"] $direction, Independent, 2);
        transfer!(["File_" $verb "_all"] $direction, Collective, 2);
        transfer!(["File_" $verb "_at_all"] $direction, Collective, 3);
        transfer!(["File_" $verb "_ordered"] $direction, Collective, 2);
        transfer!(["File_" $verb "_all_begin"] $direction, Split, 2);
        transfer!(["File_" $verb "_at_all_begin"] $direction, Split, 3);
        transfer!(["File_" $verb "_ordered_begin"] $direction, Split, 2);
        transfer!(["File_i" $verb] $direction, NonBlocking, 2);
        transfer!(["File_i" $verb "_at"] $direction, NonBlocking, 3);
        transfer!(["File_i" $verb "_shared"] $direction, NonBlocking, 2);
        transfer!(["File_i" $verb "_all"] $direction, NonBlocking, 2);
        transfer!(["File_i" $verb "_at_all"] $direction, NonBlocking, 3);
    };
}

function!(["Init"] What::Init);
function!(["Init_thread"] What::Init);
function!(["Abort"] What::Abort);
function!(["File_open"] What::Open);
function!(["File_close"] What::Close);
function!(["File_sync"] What::Sync);
function!(["File_set_view"] What::SetView);
transfers!("read", Read);
transfers!("write", Write);
