//! Where a job's I/O time went.
#![forbid(unsafe_code)]

pub mod account;
pub mod findings;
pub mod model;
#[cfg(test)]
mod sample;
pub mod text;
pub mod units;
