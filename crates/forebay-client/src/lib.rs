//! The client side of the wire protocol for Rust callers.
