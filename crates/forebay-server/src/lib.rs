//! The bridge server: event loop, grants, backing objects, mover.
