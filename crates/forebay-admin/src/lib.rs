//! Control messages between the command and a bridge, as types.
#![forbid(unsafe_code)]

pub mod drain;
