//! Drivers around core that need no machine: the fault simulator, and the lock laboratory for collective I/O.
//!
//! ```
//! use forebay_sim::faults::{FaultOptions, run};
//! let options = FaultOptions { seeds: 3, ..FaultOptions::default() };
//! let summary = run(&options, &mut std::io::sink()).unwrap();
//! assert_eq!(summary.seeds, 3);
//! ```
#![forbid(unsafe_code)]

pub mod collective;
pub mod faults;
