//! Joins the tables that the recorder has left of a job's processes into one Darshan log.
//!
//! Everything that decides is pure: who is a rank ([`ranks`]), how records of one file become one, how
//! bytes over time come onto one axis ([`heatmap`]), which mounts ([`mounts`]) and lines ([`metadata`]) a log
//! has, and what it is called ([`naming`]).
#![forbid(unsafe_code)]

mod error;
pub mod heatmap;
pub mod merge;
pub mod metadata;
pub mod mounts;
pub mod naming;
pub mod ranks;
pub mod recording;

pub use error::Error;
