//! Messages between a client and its bridge server.
//!
//! One request is one `SOCK_SEQPACKET` message: a fixed header of
//! [`REQUEST_HEADER_BYTES`], then up to two byte strings. One reply is a
//! header of [`REPLY_HEADER_BYTES`], then a body. All integers are little
//! endian. The same bytes can travel through memory that both sides share
//! ([`LanePage`]). The preload library uses this crate, so it neither allocates
//! nor does I/O: decoded values borrow the message, and the caller owns the
//! buffer for an encoded one.
//!
//! ```
//! use forebay_wire::{Base, Op, Request};
//! let request = Request { op: Op::Stat, base1: Base::Root, str1: b"a/b", ..Request::new(Op::Stat) };
//! let mut buffer = [0u8; forebay_wire::MAX_REQUEST_BYTES];
//! let n = request.encode(&mut buffer).unwrap();
//! assert_eq!(Request::decode(&buffer[..n]).unwrap().str1, b"a/b");
//! ```
#![no_std]
#![forbid(unsafe_code)]

mod lane;
mod listing;
mod name_table;
mod reply;
mod request;
mod version;
mod words;

pub use forebay_types::{
    ATTR_BYTES, Attr, Bypass, Devices, Inode, MAX_NAME_BYTES, MAX_PATH_BYTES, ObjectId, ObjectName,
    START_MOVED, START_TAKEN, Timestamp, is_own_attribute,
};
pub use lane::{
    Attention, LANE_BYTES, LANE_REPLY_BYTES, LANE_REQUEST_BYTES, LanePage, LaneWords, Seen, Turned,
    Word,
};
pub use listing::{DirEntries, DirEntry, DirEntryWriter};
pub use name_table::{NAME_TABLE_BYTES, NAMES_THAT_FIT, NameTable, SeenName, Shown};
pub use reply::{REPLY_HEADER_BYTES, Reply, ReplyKind};
use request::REQUEST_HEADER_BYTES;
pub use request::{Base, Op, Request};
pub use version::{MAGIC, PROTOCOL_VERSION, STATUS_OTHER_VERSION, refusal};
pub use words::{DurabilityPage, Names, WORDS_BYTES};

/// Longest request in bytes: the header and two strings, each with a [`Base::Lower`] prefix.
pub const MAX_REQUEST_BYTES: usize = 4 * (MAX_PATH_BYTES + 1) + REQUEST_HEADER_BYTES;
/// Longest reply in bytes.
pub const MAX_REPLY_BYTES: usize = 64 * 1024;

/// [`Reply::status`] when the path leaves the buffer through a symbolic link or
/// `..`; not an errno. The body is the absolute path that the caller opens natively.
pub const STATUS_REDIRECT: i32 = 10_000;

/// [`Request::arg0`] of [`Op::Resolve`], [`Op::Stat`]: do not follow a symbolic link at the end.
pub const NOFOLLOW: u32 = 1;
/// [`Request::arg0`] of [`Op::Resolve`]: the caller is about to change the data, so the
/// bridge stages a file of the PFS first.
pub const FOR_WRITE: u32 = 2;
/// [`Request::arg0`] of [`Op::Link`]: follow a symbolic link at the end of the old path.
pub const FOLLOW: u32 = 4;
/// [`Request::arg0`] of [`Op::Resolve`]: the object must be a directory.
pub const DIRECTORY: u32 = 8;
/// [`Request::arg0`] of [`Op::Unlink`]: remove a directory, as `rmdir`.
pub const REMOVE_DIR: u32 = 1;
/// [`Request::arg0`] of [`Op::Sync`]: the data of all files in the buffer as well, as `syncfs` of their storage.
pub const WHOLE: u32 = 1;
/// [`Request::arg0`] of [`Op::Sync`]: the reply comes when the names are on their way to the disk, so that a sync of the
/// same file system that follows waits together with them. [`Reply::aux`] is then the number of the last commit among them,
/// for [`DurabilityPage::is_durable`] and [`Request::arg2`].
pub const WRITTEN: u32 = 2;

/// [`Reply::aux`] of a grant: the descriptor is `O_PATH`, because to open the object
/// (a FIFO, a device) may block or do something. The client opens `/proc/self/fd/N` with its own flags.
pub const GRANT_REOPEN: u64 = 1;

/// [`Request::arg2`] of [`Op::Open`]: the grant may be a name. The client can open it, and can tell by
/// [`LaneWords::late_opens_forbidden`] whether its open came in time.
pub const BY_NAME: u64 = 1;
/// [`Reply::aux`] of a grant by name: the reply carries no descriptor. The body is the absolute path of the backing
/// file and a NUL. The upper half of `aux` holds the flags for the client's open. If that open fails, the client asks
/// again under the same token, without [`BY_NAME`].
pub const GRANT_BY_NAME: u64 = 2;

/// Environment variable: canonical path of the buffer root.
pub const ENV_BUFFER: &str = "FOREBAY_BUFFER";
/// Environment variable: the buffer root as the user typed it, if that differs from the canonical path.
pub const ENV_ALIAS: &str = "FOREBAY_ALIAS";
/// Environment variable: path of the bridge's socket.
pub const ENV_SOCKET: &str = "FOREBAY_SOCKET";
/// Environment variable: the bridge's instance directory on local storage.
pub const ENV_STORAGE: &str = "FOREBAY_STORAGE_DIR";
/// Environment variable: the [`Devices`] of the buffer, two decimal numbers, that of the storage and that of the PFS, with
/// a colon between. Only the bridge's user can look at the storage, but its programs may change theirs.
pub const ENV_DEVICES: &str = "FOREBAY_DEVICES";

/// Why a message cannot be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecodeError {
    /// Shorter than its header.
    Truncated {
        /// Bytes received.
        got: usize,
        /// Bytes needed.
        want: usize,
    },
    /// The first four bytes are not those of a message of any version.
    BadMagic(u32),
    /// The other side speaks this version, which is not [`PROTOCOL_VERSION`].
    Version(u8),
    /// No such operation, base or reply kind.
    UnknownTag(u8),
    /// The lengths in the header do not add up to the size of the message.
    BadLength {
        /// Bytes received.
        got: usize,
        /// Bytes that the header announces.
        want: usize,
    },
    /// A string is longer than a path may be.
    TooLong(usize),
    /// A path holds a NUL byte, or the NUL between prefix and path is missing.
    BadNul,
}

impl From<forebay_types::WrongLength> for DecodeError {
    fn from(e: forebay_types::WrongLength) -> Self {
        DecodeError::BadLength {
            got: e.got,
            want: ATTR_BYTES,
        }
    }
}

impl core::fmt::Display for DecodeError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            DecodeError::Truncated { got, want } => {
                write!(
                    f,
                    "message of {got} bytes is shorter than the {want} it needs"
                )
            }
            DecodeError::BadMagic(m) => {
                write!(
                    f,
                    "message starts with {m:#010x}, not with FBY and a version"
                )
            }
            DecodeError::Version(theirs) => {
                write!(f, "message of protocol {theirs}, not of {PROTOCOL_VERSION}")
            }
            DecodeError::UnknownTag(t) => write!(f, "unknown tag {t}"),
            DecodeError::BadLength { got, want } => {
                write!(f, "message of {got} bytes announces {want}")
            }
            DecodeError::TooLong(n) => write!(f, "string of {n} bytes is too long"),
            DecodeError::BadNul => write!(f, "misplaced NUL byte in a path"),
        }
    }
}

/// The buffer handed to `encode` is too small for the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoRoom;

/// Reads little-endian numbers of a header whose length the caller has checked.
pub(crate) fn u16_at(b: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([b[at], b[at + 1]])
}
pub(crate) fn u32_at(b: &[u8], at: usize) -> u32 {
    let mut x = [0; 4];
    x.copy_from_slice(&b[at..at + 4]);
    u32::from_le_bytes(x)
}
pub(crate) fn u64_at(b: &[u8], at: usize) -> u64 {
    let mut x = [0; 8];
    x.copy_from_slice(&b[at..at + 8]);
    u64::from_le_bytes(x)
}
pub(crate) fn u128_at(b: &[u8], at: usize) -> u128 {
    let mut x = [0; 16];
    x.copy_from_slice(&b[at..at + 16]);
    u128::from_le_bytes(x)
}
