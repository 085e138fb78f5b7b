//! LD_PRELOAD library: path hooks and grants. no_std.
#![no_std]
