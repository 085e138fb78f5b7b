//! MPI-IO, HDF5 and PnetCDF under the recorder: programs that do known things leave exactly the expected counters.

#[path = "../common/mod.rs"]
mod common;

mod hazards;
mod hdf5;
mod logs;
mod mpi_io;
mod pnetcdf;
mod tables;
