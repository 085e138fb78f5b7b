//! The functions of PnetCDF that are counted. Those that move data are all combinations of a verb, a part of a variable
//! and a type of memory. Names are given in pieces.

use forebay_count::pnetcdf::{Part, Verb};

use super::What;
use crate::counted::function;

/// One function for each type of memory. The one without a type in its name takes an MPI data type.
macro_rules! types {
    (one $what:expr; [$verb:literal $part:literal] $memory:literal $suffix:literal) => {
        function!($what; $verb $part $memory $suffix);
    };
    (each $what:expr; $stem:tt $suffix:literal; $($memory:literal)+) => {
        $(types!(one $what; $stem $memory $suffix);)+
    };
    (all $what:expr; $stem:tt $suffix:literal) => {
        types!(each $what; $stem $suffix;
            "" "_text" "_schar" "_uchar" "_short" "_ushort" "_int" "_uint" "_long" "_float" "_double" "_longlong"
            "_ulonglong");
    };
}

/// One function for each type and part, except `vard`.
macro_rules! transfers {
    ($verb:expr; $name:literal $suffix:literal) => {
        types!(all What::Transfer { verb: $verb, part: Part::Var }; [$name "_var"] $suffix);
        types!(all What::Transfer { verb: $verb, part: Part::Var1 }; [$name "_var1"] $suffix);
        types!(all What::Transfer { verb: $verb, part: Part::Vara }; [$name "_vara"] $suffix);
        types!(all What::Transfer { verb: $verb, part: Part::Vars }; [$name "_vars"] $suffix);
        types!(all What::Transfer { verb: $verb, part: Part::Varm }; [$name "_varm"] $suffix);
        types!(all What::Transfer { verb: $verb, part: Part::Varn }; [$name "_varn"] $suffix);
    };
}

/// The functions that return when the bytes are moved.
macro_rules! blocking {
    ($verb:expr; $name:literal $suffix:literal) => {
        transfers!($verb; $name $suffix);
        function!(What::Transfer { verb: $verb, part: Part::Vard }; $name "_vard" $suffix);
    };
}

function!(What::Open { create: true }; "ncmpi_create");
function!(What::Open { create: false }; "ncmpi_open");
function!(What::Close; "ncmpi_close");
function!(What::Close; "ncmpi_abort");
function!(What::Enddef; "ncmpi_enddef");
function!(What::Enddef; "ncmpi__enddef");
function!(What::Redef; "ncmpi_redef");
function!(What::Sync; "ncmpi_sync");
function!(What::Wait { collective: false }; "ncmpi_wait");
function!(What::Wait { collective: true }; "ncmpi_wait_all");
function!(What::VariableOpen { id: 5 }; "ncmpi_def_var");
function!(What::VariableOpen { id: 2 }; "ncmpi_inq_varid");
blocking!(Verb::Put { collective: false }; "ncmpi_put" "");
blocking!(Verb::Put { collective: true }; "ncmpi_put" "_all");
blocking!(Verb::Get { collective: false }; "ncmpi_get" "");
blocking!(Verb::Get { collective: true }; "ncmpi_get" "_all");
transfers!(Verb::Iput; "ncmpi_iput" "");
transfers!(Verb::Iget; "ncmpi_iget" "");
transfers!(Verb::Bput; "ncmpi_bput" "");
