//! What can go wrong, with the path that it concerns.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Why a recording could not be kept, read or turned into a log.
#[derive(Debug)]
pub enum Error {
    /// An operation on the file system failed.
    Io {
        /// The operation that failed: "read", "make", ...
        doing: &'static str,
        /// The path that it concerned.
        path: PathBuf,
        /// The operating system's answer.
        cause: io::Error,
    },
    /// A file is not what it should be.
    Damaged {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// The log can't be written.
    Log(darshan_log::Error),
    /// There is nothing to make a log of. The text says why.
    Nothing(String),
}

impl Error {
    /// An operation on the file system failed.
    pub fn io(doing: &'static str, path: &Path, cause: io::Error) -> Self {
        Error::Io {
            doing,
            path: path.to_owned(),
            cause,
        }
    }

    /// A file is not what it should be.
    pub fn damaged(path: &Path, what: impl Into<String>) -> Self {
        Error::Damaged {
            path: path.to_owned(),
            what: what.into(),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Io { doing, path, cause } => {
                let cause = cause.to_string();
                let plain = cause.split(" (os error").next().unwrap_or(&cause);
                write!(f, "cannot {doing} {}: {plain}", path.display())
            }
            Error::Damaged { path, what } => write!(f, "{} is damaged: {what}", path.display()),
            Error::Log(e) => write!(f, "the log: {e}"),
            Error::Nothing(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io { cause, .. } => Some(cause),
            Error::Log(e) => Some(e),
            _ => None,
        }
    }
}

impl From<darshan_log::Error> for Error {
    fn from(e: darshan_log::Error) -> Self {
        Error::Log(e)
    }
}
