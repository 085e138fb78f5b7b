//! The mover over a real directory, with a bridge and a client in this process.

mod faults;
mod scene;
mod whole;
