//! The hook macro and symbol lookup that the preload libraries share. no_std.
#![no_std]
