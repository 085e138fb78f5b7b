//! The collective layer: carries out the collective reads and writes of unmodified MPI programs.
//!
//! A preload library. It takes over blocking and split collective reads and writes where an exchange pays, and leaves all else to
//! the MPI library, whose handles stay the program's. Policy is in [`forebay_core::collective`]; this crate asks the MPI
//! library what a call means, moves bytes between processes, and reads and writes the file. One library serves MPICH,
//! Open MPI and the standard ABI: handles are words, constants are looked up ([`abi`]).
//!
//! Whether a call is taken over is decided from what all ranks say, so all of them decide alike.
//!
//! | module | what it does |
//! |---|---|
//! | [`entry`] | the functions that are hooked |
//! | [`transfer`] | one collective call: take it over or not, status, position, errors |
//! | [`exchange`] | rounds between processes and aggregators |
//! | [`beside`] | an aggregator reads and writes the file while others go on |
//! | [`alone`] | the same without aggregators |
//! | [`mod@file`] | open files, and the arrangement that all ranks agree on |
//! | [`storage`] | the file as aggregators have it open |
//! | [`buffers`] | memory that is kept from call to call |
//! | [`datatype`], [`memory`] | data types, and the buffer of the program |
//! | [`mpi`], [`abi`] | calls and constants of the MPI library |
//! | [`explain`] | what became of the calls on a file |
//! | [`output`] | report, explanations and trace, as they are written |
//! | [`trace`] | what all ranks access, for a trace of the calls |
//! | [`settings`], [`node`] | environment, hints, this node |

mod abi;
mod alone;
mod beside;
mod buffers;
mod datatype;
mod entry;
mod exchange;
mod explain;
mod file;
mod memory;
mod mpi;
mod node;
mod output;
mod settings;
mod storage;
mod trace;
mod transfer;
