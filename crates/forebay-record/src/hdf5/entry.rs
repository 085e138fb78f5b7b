//! The functions of HDF5 that are counted.

use forebay_count::heat::Direction::{Read, Write};

use super::What;
use crate::counted::function;

function!(What::FileOpen { properties: 3 }; "H5Fcreate");
function!(What::FileOpen { properties: 2 }; "H5Fopen");
function!(What::FileFlush; "H5Fflush");
function!(What::FileClose; "H5Fclose");
function!(What::DatasetOpen { deprecated: true }; "H5Dcreate1");
function!(What::DatasetOpen { deprecated: false }; "H5Dcreate2");
function!(What::DatasetOpen { deprecated: true }; "H5Dopen1");
function!(What::DatasetOpen { deprecated: false }; "H5Dopen2");
function!(What::ObjectOpen; "H5Oopen");
function!(What::ObjectOpen; "H5Oopen_by_addr");
function!(What::ObjectOpen; "H5Oopen_by_idx");
function!(What::ObjectOpen; "H5Oopen_by_token");
function!(What::Transfer { direction: Read }; "H5Dread");
function!(What::Transfer { direction: Write }; "H5Dwrite");
function!(What::DatasetFlush; "H5Dflush");
function!(What::DatasetClose; "H5Dclose");
function!(What::DatasetClose; "H5Oclose");
function!(What::ReferenceDrop; "H5Idec_ref");
