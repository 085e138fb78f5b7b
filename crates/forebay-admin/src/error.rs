//! Why an exchange with a bridge has no result, or why a bridge cannot be found.

use crate::VERSION;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;
use std::path::PathBuf;

/// Why a bridge does not do what it was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RefusalKind {
    /// Caller and bridge speak different versions.
    Version,
    /// The bridge does not know the request, which a newer caller may make.
    UnknownRequest,
    /// The message is not a request.
    Malformed,
    /// The bridge cannot watch the process that it should attach.
    Process,
    /// The tables cannot be read.
    Tables,
    /// The system has no thread or no memory for the answer.
    System,
    /// The answer cannot be put into a message; for example, a path is no UTF-8.
    Unfit,
    /// Another drain is at work, and this one decides something.
    Busy,
    /// The bridge does not know any more how that drain ended.
    Forgotten,
    /// A kind that this program does not know; a newer bridge sent it.
    #[serde(other)]
    Other,
}

/// The answer of a bridge that does not do what it was asked.
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
    /// The stream ends inside a frame.
    CutOff {
        /// Bytes of the frame that came.
        got: usize,
        /// Bytes that the frame should have.
        want: usize,
    },
    /// A frame announces more bytes than [`crate::MAX_FRAME_BYTES`].
    TooLong(usize),
    /// No kind of frame has this number.
    UnknownFrame(u8),
    /// A frame came at a place where its kind is not allowed. Holds the kind.
    Misplaced(&'static str),
    /// The contents of a frame cannot be read. Holds the reason.
    Contents(String),
    /// The last frame announces another number of items than came.
    Count {
        /// Items that came.
        got: u64,
        /// Items that the last frame announces.
        want: u64,
    },
    /// What came is no stream of frames. Holds the reason.
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

/// Why an exchange with a bridge has no result, or why the bridge cannot be found.
#[derive(Debug)]
pub enum AdminError {
    /// No bridge listens at the socket, or this process may not connect to it.
    Unreachable {
        /// The socket.
        peer: PathBuf,
        /// The error of the attempt.
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
    /// The request is longer than [`crate::MAX_REQUEST_BYTES`].
    TooLong {
        /// The socket.
        peer: PathBuf,
    },
    /// The bridge speaks another version of the control messages.
    Version {
        /// The socket.
        peer: PathBuf,
        /// The version of the bridge; this program speaks [`VERSION`].
        theirs: u32,
    },
    /// The bridge speaks another version of the protocol that carries the control messages.
    OtherProtocol {
        /// The socket.
        peer: PathBuf,
        /// The version of this program.
        ours: u8,
        /// The version of the bridge.
        theirs: u8,
    },
    /// The bridge refuses the request.
    Refused {
        /// The socket.
        peer: PathBuf,
        /// The request.
        request: &'static str,
        /// Why.
        refusal: Refusal,
    },
    /// The answer stopped before its end: the bridge has ended, has cut this process off, or has not answered in
    /// time.
    Lost {
        /// The socket.
        peer: PathBuf,
        /// The request.
        request: &'static str,
        /// The error of the read.
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
    /// A directory or file that leads to bridges cannot be used.
    Io {
        /// What failed, such as "can't make".
        operation: &'static str,
        /// The directory or file.
        path: PathBuf,
        /// The error of the system.
        cause: io::Error,
    },
    /// Another user could replace sockets in this directory.
    UnsafeDirectory {
        /// The directory.
        path: PathBuf,
        /// The user who should own it, and alone be able to write to it.
        uid: u32,
    },
    /// The path of the socket is longer than the system allows ([`crate::SOCKET_PATH_BYTES`]).
    SocketPathTooLong {
        /// The path.
        path: PathBuf,
    },
}

impl AdminError {
    /// True if the bridge is gone or does not answer. Another attempt reaches a new bridge, or none.
    pub fn is_loss(&self) -> bool {
        matches!(
            self,
            AdminError::Lost { .. } | AdminError::Unreachable { .. }
        )
    }

    /// True if the bridge speaks another version of the control messages, or of the protocol that carries them.
    pub fn is_other_version(&self) -> bool {
        matches!(
            self,
            AdminError::Version { .. } | AdminError::OtherProtocol { .. }
        )
    }

    /// True if the bridge has not answered in time.
    pub fn is_timeout(&self) -> bool {
        use io::ErrorKind::{TimedOut, WouldBlock};
        match self {
            AdminError::Lost { cause, .. } | AdminError::Unreachable { cause, .. } => {
                matches!(cause.kind(), TimedOut | WouldBlock)
            }
            _ => false,
        }
    }

    /// The refusal, if the bridge has refused.
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
            AdminError::TooLong { peer } => write!(
                f,
                "the bridge at {} takes no request that is so long: name fewer paths at a time",
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
                "{} is not a directory of user {uid} that nobody else can write to; let $XDG_RUNTIME_DIR name another place",
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
