//! What can be wrong with a log, and where.

use std::fmt;
use std::io;
use std::path::PathBuf;

use crate::ModuleId;

/// A part of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Region {
    /// The uncompressed header.
    Header,
    /// Job record, executable and mounts.
    Job,
    /// Record names.
    Names,
    /// The records of a module.
    Module(ModuleId),
    /// What stands behind the last region.
    Trailing,
}

impl fmt::Display for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Region::Header => f.write_str("header"),
            Region::Job => f.write_str("job region"),
            Region::Names => f.write_str("name region"),
            Region::Module(id) => write!(f, "{id} region"),
            Region::Trailing => f.write_str("trailing bytes"),
        }
    }
}

/// Why a log could not be read or written.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// A call on the file failed.
    Io {
        /// What was being done.
        operation: &'static str,
        /// The file, if there is one.
        path: Option<PathBuf>,
        /// The operating system's answer.
        source: io::Error,
    },
    /// The file is no Darshan log, or one of a format other than 3.00 to 3.41.
    Format {
        /// What was found instead.
        found: String,
    },
    /// The file ends before a region does.
    Truncated {
        /// The region that is cut.
        region: Region,
        /// Where in the file the bytes stop, in bytes from its start.
        offset: u64,
    },
    /// A region's bytes make no sense.
    Corrupt {
        /// The region.
        region: Region,
        /// How far the region's bytes had been consumed, in bytes from the start of the file.
        offset: u64,
        /// What is wrong.
        reason: String,
    },
    /// A region is larger than a [limit](crate::Limits) allows.
    Limit {
        /// The region.
        region: Region,
        /// How far the region's bytes had been consumed, in bytes from the start of the file.
        offset: u64,
        /// What was limited.
        what: &'static str,
        /// The limit in bytes.
        limit: u64,
    },
    /// A module's records have a version that this crate does not know.
    Version {
        /// The module.
        module: ModuleId,
        /// The version found in the header.
        version: u32,
    },
    /// The writer was asked for something the format can't hold.
    Unwritable {
        /// What and why.
        reason: String,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Io {
                operation,
                path: Some(path),
                source,
            } => {
                write!(f, "{}: can't {operation}: {source}", path.display())
            }
            Error::Io {
                operation,
                path: None,
                source,
            } => write!(f, "can't {operation}: {source}"),
            Error::Format { found } => write!(f, "not a Darshan 3.x log: {found}"),
            Error::Truncated { region, offset } => {
                write!(f, "{region} is cut off at byte {offset}")
            }
            Error::Corrupt {
                region,
                offset,
                reason,
            } => {
                write!(f, "{region} is damaged near byte {offset}: {reason}")
            }
            Error::Limit {
                region,
                offset,
                what,
                limit,
            } => {
                write!(
                    f,
                    "{region} near byte {offset}: {what} exceeds the limit of {limit} bytes"
                )
            }
            Error::Version { module, version } => {
                write!(f, "{module} region: record version {version} is not known")
            }
            Error::Unwritable { reason } => {
                write!(f, "can't be written as a Darshan log: {reason}")
            }
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

impl Error {
    /// The region that the error is about, if it is about one.
    pub fn region(&self) -> Option<Region> {
        match self {
            Error::Truncated { region, .. }
            | Error::Corrupt { region, .. }
            | Error::Limit { region, .. } => Some(*region),
            Error::Version { module, .. } => Some(Region::Module(*module)),
            Error::Format { .. } => Some(Region::Header),
            Error::Io { .. } | Error::Unwritable { .. } => None,
        }
    }

    /// Where the error is in the file, in bytes from its start, if that is known.
    pub fn offset(&self) -> Option<u64> {
        match self {
            Error::Truncated { offset, .. }
            | Error::Corrupt { offset, .. }
            | Error::Limit { offset, .. } => Some(*offset),
            _ => None,
        }
    }
}

/// Result with this crate's [`enum@Error`].
pub type Result<T> = std::result::Result<T, Error>;
