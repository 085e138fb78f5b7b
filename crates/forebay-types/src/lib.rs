//! Types that every part of Forebay shares: identities, attributes, and the limits of
//! paths on Linux. The crate neither allocates nor does I/O, so that preload libraries
//! can use it.
#![no_std]
#![forbid(unsafe_code)]

mod attr;
mod backing;
mod bypass;
mod devices;
mod id;
mod stamp;
mod text;

pub use attr::{ATTR_BYTES, Attr, Inode, Timestamp, WrongLength};
pub use backing::{Backing, FOLDER_BITS, folder_of};
pub use bypass::Bypass;
pub use devices::Devices;
pub use id::{BridgeId, COPY, ObjectId, ObjectName, SHAPE_MASK, Token};
pub use stamp::Stamp;
pub use text::{OneLine, is_deceptive};

/// Is an extended attribute of this name one of the bridge's? Programs do not see those, and no copy has them.
pub fn is_own_attribute(name: &[u8]) -> bool {
    name.starts_with(b"user.forebay.") || name.starts_with(b"trusted.forebay.")
}

/// The part of an absolute path below `root`, if it lies there as it is written; empty for the root itself.
/// `.`, `..` and symbolic links are not looked at.
pub fn below<'p>(root: &[u8], path: &'p [u8]) -> Option<&'p [u8]> {
    match path.strip_prefix(root)? {
        [] => Some(b""),
        [b'/', rest @ ..] => Some(rest),
        _ => None,
    }
}

/// Longest path in bytes, without a closing NUL (Linux `PATH_MAX` less one).
pub const MAX_PATH_BYTES: usize = 4095;
/// The answer to a request that starts at a directory, if that is not where the request, or the buffer, says: it was removed, or
/// renamed since the client looked. The client looks again. No program sees it (Linux `EREMCHG`).
pub const START_MOVED: i32 = 78;
/// The same if another directory is there (Linux `ELIBACC`).
pub const START_TAKEN: i32 = 79;
/// Longest path component in bytes (Linux `NAME_MAX`).
pub const MAX_NAME_BYTES: usize = 255;
