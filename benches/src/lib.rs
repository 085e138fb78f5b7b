//! What `make bench` measures, and how a number becomes a verdict.
//!
//! Two programs share this crate. `forebay-load` makes the calls. It knows nothing
//! of Forebay, and reaches the kernel through libc as any program does.
//! `forebay-bench` runs it natively and under `forebay run`, in turns, and prints
//! ratios. No measured time ever decides an exit code.
#![forbid(unsafe_code)]

pub mod catalogue;
pub mod sample;
pub mod statistics;
pub mod verdict;
