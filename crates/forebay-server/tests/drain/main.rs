//! The mover over a real directory, with a bridge and a client in this process.

mod attack;
#[path = "../common/mod.rs"]
mod common;
mod faults;
mod pairs;
mod scene;
mod swapped;
mod whole;
