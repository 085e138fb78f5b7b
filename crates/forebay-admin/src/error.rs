//! Why an exchange with a bridge has no result.

use crate::VERSION;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;
use std::path::PathBuf;

/// Why a bridge does not do what it was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RefusalKind {
    /// The two speak different versions.
    Version,
    /// A request of a newer peer.
    UnknownRequest,
    /// Not a request at all.
    Malformed,
    /// The process that is to be attached cannot be watched.
    Process,
    /// The tables cannot be read.
    Tables,
    /// The system has no thread or memory for it.
    System,
    /// The answer cannot be put into a message, as a path that is no UTF-8.
    Unfit,
    /// A kind that only newer bridges know.
    #[serde(other)]
    Other,
}

/// What a bridge says instead of doing what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// What callers branch on.
    pub kind: RefusalKind,
    /// One line for people.
    pub message: String,
}

/// What is wrong with a stream that should be an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Garbled {
    /// It ends inside a frame.
    CutOff {
        /// Bytes of the frame that have come.
        got: usize,
        /// Bytes that it should have.
        want: usize,
    },
    /// A frame announces more bytes than [`crate::MAX_FRAME_BYTES`].
    TooLong(usize),
    /// No kind of frame has this number.
    UnknownFrame(u8),
    /// A frame of this kind may not come here.
    Misplaced(&'static str),
    /// The bytes of a frame are not what they should be. Holds what is wrong with them.
    Contents(String),
    /// It ends with another number of items than have come.
    Count {
        /// Items that have come.
        got: u64,
        /// Items that the end announces.
        want: u64,
    },
    /// What came is no such stream. Holds what is wrong with it.
    NoStream(String),
}

impl fmt::Display for Garbled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Garbled::CutOff { got, want } => {
                write!(f, "a frame of {want} bytes was cut off after {got}")
            }
            Garbled::TooLong(bytes) => write!(
                f,
                "a frame announces {bytes} bytes, more than {}",
                crate::MAX_FRAME_BYTES
            ),
            Garbled::UnknownFrame(kind) => write!(f, "there is no frame of kind {kind}"),
            Garbled::Misplaced(kind) => write!(f, "a frame came where none may be: {kind}"),
            Garbled::Contents(what) => write!(f, "a frame cannot be read: {what}"),
            Garbled::Count { got, want } => {
                write!(f, "{got} items came, and {want} were announced")
            }
            Garbled::NoStream(what) => f.write_str(what),
        }
    }
}

/// Why an exchange with a bridge has no result, or why it cannot be found.
#[derive(Debug)]
pub enum AdminError {
    /// Nobody listens at the socket, or the bridge does not let this process in.
    Unreachable {
        /// The socket.
        peer: PathBuf,
        /// Of the attempt.
        cause: io::Error,
    },
    /// The bridge serves another user.
    NotPermitted {
        /// The socket.
        peer: PathBuf,
    },
    /// The bridge is answering as many requests as it may at the same time.
    Busy {
        /// The socket.
        peer: PathBuf,
    },
    /// The bridge speaks another version.
    Version {
        /// The socket.
        peer: PathBuf,
        /// What the bridge speaks; [`VERSION`] is what this program does.
        theirs: u32,
    },
    /// The bridge speaks another version of the protocol that carries the control messages.
    OtherProtocol {
        /// The socket.
        peer: PathBuf,
        /// What this program speaks.
        ours: u8,
        /// What the bridge speaks.
        theirs: u8,
    },
    /// The bridge has answered, and does not do it.
    Refused {
        /// The socket.
        peer: PathBuf,
        /// The request.
        request: &'static str,
        /// Why.
        refusal: Refusal,
    },
    /// The answer stopped before its end: the bridge has ended, or has given this process up, or has not
    /// answered in time.
    Lost {
        /// The socket.
        peer: PathBuf,
        /// The request.
        request: &'static str,
        /// Of the read that failed.
        cause: io::Error,
    },
    /// The answer makes no sense.
    Garbled {
        /// The socket.
        peer: PathBuf,
        /// The request.
        request: &'static str,
        /// What is wrong with it.
        what: Garbled,
    },
    /// A directory or file by which bridges are found cannot be used.
    Io {
        /// What was tried, as "can't make".
        operation: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
    /// Somebody else could replace sockets in this directory.
    UnsafeDirectory {
        /// The directory.
        path: PathBuf,
        /// The user whose alone it should be.
        uid: u32,
    },
    /// The path of the socket would be longer than the system takes.
    SocketPathTooLong {
        /// The path.
        path: PathBuf,
    },
}

impl AdminError {
    /// Is the bridge gone, or as good as gone? Another attempt reaches a new one, or nobody.
    pub fn is_loss(&self) -> bool {
        matches!(
            self,
            AdminError::Lost { .. } | AdminError::Unreachable { .. }
        )
    }

    /// Does the bridge speak another version, of the control messages or of what carries them?
    pub fn is_other_version(&self) -> bool {
        matches!(
            self,
            AdminError::Version { .. } | AdminError::OtherProtocol { .. }
        )
    }

    /// Has the bridge not answered in time?
    pub fn is_timeout(&self) -> bool {
        use io::ErrorKind::{TimedOut, WouldBlock};
        match self {
            AdminError::Lost { cause, .. } | AdminError::Unreachable { cause, .. } => {
                matches!(cause.kind(), TimedOut | WouldBlock)
            }
            _ => false,
        }
    }

    /// What the bridge has said instead of an answer.
    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            AdminError::Refused { refusal, .. } => Some(refusal),
            _ => None,
        }
    }
}

impl fmt::Display for AdminError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AdminError::Unreachable { peer, cause } => {
                write!(f, "no bridge at {}: {cause}", peer.display())
            }
            AdminError::NotPermitted { peer } => write!(
                f,
                "the bridge at {} is not yours: it takes requests of its own user and of root",
                peer.display()
            ),
            AdminError::Busy { peer } => write!(
                f,
                "the bridge at {} answers as many requests as it can; ask again later",
                peer.display()
            ),
            AdminError::Version { peer, theirs } => write!(
                f,
                "the bridge at {} speaks version {theirs} of the control messages, and this program version {VERSION}: use the `forebay` with which it was started",
                peer.display()
            ),
            AdminError::OtherProtocol { peer, ours, theirs } => write!(
                f,
                "this program speaks protocol {ours}, the bridge at {} speaks {theirs}: use the same version of both",
                peer.display()
            ),
            AdminError::Refused {
                request, refusal, ..
            } => write!(f, "the bridge refuses `{request}`: {}", refusal.message),
            AdminError::Lost {
                peer,
                request,
                cause,
            } => write!(
                f,
                "the bridge at {} does not answer to `{request}`: {cause}",
                peer.display()
            ),
            AdminError::Garbled {
                peer,
                request,
                what,
            } => write!(
                f,
                "the answer of the bridge at {} to `{request}` makes no sense: {what}",
                peer.display()
            ),
            AdminError::Io {
                operation,
                path,
                cause,
            } => write!(f, "{operation} {}: {cause}", path.display()),
            AdminError::UnsafeDirectory { path, uid } => write!(
                f,
                "{} is not a directory of user {uid} that nobody else can write to",
                path.display()
            ),
            AdminError::SocketPathTooLong { path } => {
                write!(f, "{} is too long for a socket", path.display())
            }
        }
    }
}

impl std::error::Error for AdminError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            AdminError::Unreachable { cause, .. }
            | AdminError::Lost { cause, .. }
            | AdminError::Io { cause, .. } => Some(cause),
            _ => None,
        }
    }
}
