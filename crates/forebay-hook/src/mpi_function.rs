//! The two names of an MPI function, and what comes behind each of them.
//!
//! Both names are exported, `MPI_x` and `PMPI_x`, because Fortran bindings call the one or the other, depending on the
//! library. A call is handled when it leaves for the MPI library itself. If another tool stands between (its `MPI_x` is
//! not the library's), the call goes to the tool, and is handled when the tool calls `PMPI_x`.

use core::sync::atomic::{AtomicU8, Ordering};

use crate::foreign::{Symbol, same_object};

/// An MPI function that a preload library hooks.
pub struct MpiFunction {
    mpi: Symbol,
    pmpi: Symbol,
    /// [`UNKNOWN`], [`LIBRARY`] or [`TOOL`].
    after_mpi: AtomicU8,
}

const UNKNOWN: u8 = 0;
/// The library comes behind `MPI_x`.
const LIBRARY: u8 = 1;
/// Another tool comes behind `MPI_x`, which will call `PMPI_x`.
const TOOL: u8 = 2;

/// What comes behind a hook. The addresses are of functions with the type of the hooked one.
pub enum Behind {
    /// The MPI library, possibly through another hook of both names: the call is to be handled now.
    Library(usize),
    /// Another tool, which will call `PMPI_x`.
    Tool(usize),
    /// Nothing.
    Nothing,
}

impl MpiFunction {
    /// The function with these two names.
    pub const fn new(mpi: &str, pmpi: &str) -> Self {
        MpiFunction {
            mpi: Symbol::next(mpi),
            pmpi: Symbol::next(pmpi),
            after_mpi: AtomicU8::new(UNKNOWN),
        }
    }

    /// What comes behind `MPI_x` for calls from `caller`.
    pub fn behind_mpi(&self, caller: usize) -> Behind {
        let next = self.mpi.for_caller(caller);
        let library = self.pmpi.for_caller(caller);
        match (next, library) {
            (Some(next), Some(library)) if self.is_tool(next, library) => Behind::Tool(next),
            (_, Some(real)) | (Some(real), None) => Behind::Library(real),
            (None, None) => Behind::Nothing,
        }
    }

    /// What comes behind `PMPI_x` for calls from `caller`.
    pub fn behind_pmpi(&self, caller: usize) -> Behind {
        match self.pmpi.for_caller(caller) {
            Some(real) => Behind::Library(real),
            None => Behind::Nothing,
        }
    }

    fn is_tool(&self, next: usize, library: usize) -> bool {
        if next == library {
            return false;
        }
        let mut known = self.after_mpi.load(Ordering::Relaxed);
        if known == UNKNOWN {
            known = if same_object(next, library) {
                LIBRARY
            } else {
                TOOL
            };
            self.after_mpi.store(known, Ordering::Relaxed);
        }
        known == TOOL
    }
}
