//! The functions of HDF5 that are counted.

use forebay_count::heat::Direction::{Read, Write};

use super::{Function, What, handle};
use crate::foreign::entry_point;

macro_rules! functions {
    ($($name:literal $what:expr;)*) => {
        $(const _: () = {
            static FUNCTION: Function = Function::new($name, $what);
            entry_point!($name, FUNCTION, handle);
        };)*
    };
}

functions! {
    "H5Fcreate" What::FileOpen { properties: 3 };
    "H5Fopen" What::FileOpen { properties: 2 };
    "H5Fflush" What::FileFlush;
    "H5Fclose" What::FileClose;
    "H5Dcreate1" What::DatasetOpen { deprecated: true };
    "H5Dcreate2" What::DatasetOpen { deprecated: false };
    "H5Dopen1" What::DatasetOpen { deprecated: true };
    "H5Dopen2" What::DatasetOpen { deprecated: false };
    "H5Oopen" What::ObjectOpen;
    "H5Oopen_by_addr" What::ObjectOpen;
    "H5Oopen_by_idx" What::ObjectOpen;
    "H5Oopen_by_token" What::ObjectOpen;
    "H5Dread" What::Transfer { direction: Read };
    "H5Dwrite" What::Transfer { direction: Write };
    "H5Dflush" What::DatasetFlush;
    "H5Dclose" What::DatasetClose;
    "H5Oclose" What::DatasetClose;
    "H5Idec_ref" What::ReferenceDrop;
}
