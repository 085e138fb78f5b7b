//! Why a bridge can't start, can't be checked, or could not end in order.

use crate::format::FormatError;
use forebay_admin::AdminError;
use forebay_core::record::ObjectName;
use forebay_core::table::TableError;
use forebay_mover::Halt;
use forebay_sys::{self as sys, Errno};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Why a bridge can't start, can't be checked, or could not end in order. One clear line.
#[derive(Debug)]
pub enum Error {
    /// Another bridge is using the storage.
    InUse {
        /// The instance directory.
        instance: PathBuf,
    },
    /// Others may change what is in this directory, or have made it.
    NotPrivate {
        /// The directory.
        dir: PathBuf,
        /// The user that it belongs to.
        owner: u32,
    },
    /// The storage holds the buffer over another directory.
    OtherRoot {
        /// The instance directory.
        instance: PathBuf,
        /// The buffer root that it is for.
        holds: PathBuf,
        /// The buffer root that it was to serve.
        asked: PathBuf,
    },
    /// The buffer would hold itself.
    StorageInBuffer {
        /// The storage directory.
        storage: PathBuf,
        /// The buffer root.
        root: PathBuf,
    },
    /// What should be an instance directory is no directory.
    NoInstance {
        /// The path.
        instance: PathBuf,
    },
    /// An instance has lost its tables.
    NoTables {
        /// The instance directory.
        instance: PathBuf,
    },
    /// An instance does not say which buffer root it is for.
    NoRoot {
        /// The instance directory.
        instance: PathBuf,
    },
    /// There is no safe place for the socket.
    Socket(AdminError),
    /// A system call on a file or directory failed.
    Io {
        /// What was tried, as "can't open".
        operation: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
    /// A system call on something without a path failed.
    System {
        /// What was tried, as "can't set up signals".
        operation: &'static str,
        /// What the system said.
        cause: io::Error,
    },
    /// A system call on a backing object failed.
    Object {
        /// Which.
        object: ObjectName,
        /// What the system said.
        cause: Errno,
    },
    /// The storage has a format that this program can't use.
    Format(FormatError),
    /// The tables failed or are damaged.
    Tables(TableError),
    /// What an earlier drain had begun could not be taken up.
    Drain(Halt),
    /// An event loop failed.
    EventLoop(Errno),
    /// An event loop met a broken assertion.
    EventLoopPanicked,
    /// The bridge ends while requests still wait for the file system below.
    StillWaiting,
    /// The bridge ends while a control message is still being answered.
    StillAnswering,
}

impl Error {
    pub(crate) fn io(operation: &'static str, path: &Path, cause: impl Into<io::Error>) -> Self {
        Error::Io {
            operation,
            path: path.to_owned(),
            cause: cause.into(),
        }
    }

    pub(crate) fn system(operation: &'static str, cause: Errno) -> Self {
        Error::System {
            operation,
            cause: cause.into(),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::InUse { instance } => {
                write!(f, "another bridge is using {}", instance.display())
            }
            Error::NotPrivate { dir, owner } if *owner == sys::my_ids().0 => write!(
                f,
                "{} is no directory that only its owner can write to",
                dir.display()
            ),
            Error::NotPrivate { dir, owner } => {
                let name = sys::user_name(*owner).unwrap_or_else(|| owner.to_string());
                write!(
                    f,
                    "{} belongs to {name}, not to the user of this process",
                    dir.display()
                )
            }
            Error::OtherRoot {
                instance,
                holds,
                asked,
            } => write!(
                f,
                "{} holds the buffer over {}, not over {}",
                instance.display(),
                holds.display(),
                asked.display()
            ),
            Error::StorageInBuffer { storage, root } => write!(
                f,
                "the storage {} lies inside the buffer {}",
                storage.display(),
                root.display()
            ),
            Error::NoInstance { instance } => {
                write!(f, "{} is not a directory", instance.display())
            }
            Error::NoTables { instance } => write!(
                f,
                "{} has no tables; --rebuild makes them from the backing objects",
                instance.display()
            ),
            Error::NoRoot { instance } => write!(
                f,
                "{} does not say which buffer it is for",
                instance.display()
            ),
            Error::Socket(e) => e.fmt(f),
            Error::Io {
                operation,
                path,
                cause,
            } => write!(f, "{operation} {}: {cause}", path.display()),
            Error::System { operation, cause } => write!(f, "{operation}: {cause}"),
            Error::Object { object, cause } => write!(f, "backing object {object}: {cause}"),
            Error::Format(e) => e.fmt(f),
            Error::Tables(e) => e.fmt(f),
            Error::Drain(halt) => halt.fmt(f),
            Error::EventLoop(cause) => write!(f, "an event loop failed: {cause}"),
            Error::EventLoopPanicked => f.write_str("an event loop panicked"),
            Error::StillAnswering => f.write_str("a control message is still being answered"),
            Error::StillWaiting => f.write_str("requests still wait for the file system below"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Socket(e) => Some(e),
            Error::Io { cause, .. } | Error::System { cause, .. } => Some(cause),
            Error::Format(e) => Some(e),
            Error::Tables(e) => Some(e),
            _ => None,
        }
    }
}

impl From<FormatError> for Error {
    fn from(e: FormatError) -> Self {
        Error::Format(e)
    }
}

impl From<TableError> for Error {
    fn from(e: TableError) -> Self {
        Error::Tables(e)
    }
}

impl From<Halt> for Error {
    fn from(halt: Halt) -> Self {
        Error::Drain(halt)
    }
}
