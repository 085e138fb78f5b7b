//! What every part of Forebay calls by the same name: identities, attributes, and the
//! limits that Linux sets to paths. It neither allocates nor does I/O, so that the
//! libraries in programs can use it, too.
#![no_std]
#![forbid(unsafe_code)]

mod attr;
mod id;
mod stamp;

pub use attr::{ATTR_BYTES, Attr, Timestamp, WrongLength};
pub use id::{BridgeId, ObjectId, ObjectName, Token};
pub use stamp::Stamp;

/// Longest path in bytes, without a closing NUL (Linux `PATH_MAX` less one).
pub const MAX_PATH_BYTES: usize = 4095;
/// Longest path component in bytes (Linux `NAME_MAX`).
pub const MAX_NAME_BYTES: usize = 255;
