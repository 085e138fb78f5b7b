//! A client of a bridge, for Rust callers: the command line and tests.
//!
//! Programs need none of this: the preload library speaks for them. Paths are
//! bytes, relative to the buffer root. When the connection breaks, the request
//! is sent again under the same token until the bridge is back or patience ends,
//! so that it is carried out once.
//!
//! ```no_run
//! use forebay_client::Client;
//! use std::io::Write;
//! let mut client = Client::connect("/run/user/1000/forebay/0123456789abcdef".as_ref())?;
//! let fd = client.open("results/a.dat", libc::O_CREAT | libc::O_WRONLY, 0o644)?;
//! std::fs::File::from(fd).write_all(b"straight to local storage")?;
//! assert_eq!(client.stat("results/a.dat")?.size, 25);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![deny(unsafe_code)]

mod control;
mod files;
mod socket;

pub use control::Control;
pub use files::{Entry, Hello};

use forebay_wire::{
    MAX_REPLY_BYTES, MAX_REQUEST_BYTES, Reply, ReplyKind, Request, STATUS_REDIRECT,
};
use socket::Socket;
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a request waits for a bridge that is gone, unless told otherwise.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// First pause between two attempts to reach it; it doubles each time.
const PAUSE_FIRST: Duration = Duration::from_millis(1);
const PAUSE_LONGEST: Duration = Duration::from_millis(100);

/// Why a request has no result.
#[derive(Debug)]
pub enum Error {
    /// The bridge says no, with this errno.
    Errno(i32),
    /// The path leaves the buffer: it goes on at this absolute path.
    Redirect(PathBuf),
    /// The bridge can't be reached.
    Lost {
        /// Its socket.
        socket: PathBuf,
        /// The last attempt ended so.
        cause: io::Error,
    },
    /// The bridge answered something that is no answer to this request.
    Protocol(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Errno(e) => io::Error::from_raw_os_error(*e).fmt(f),
            Error::Redirect(path) => write!(f, "leads out of the buffer to {}", path.display()),
            Error::Lost { socket, cause } => {
                write!(f, "no bridge at {}: {cause}", socket.display())
            }
            Error::Protocol(what) => write!(f, "the bridge's answer makes no sense: {what}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Lost { cause, .. } => Some(cause),
            _ => None,
        }
    }
}

impl Error {
    /// The errno that the bridge answered.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Error::Errno(e) => Some(*e),
            _ => None,
        }
    }
}

/// Result of a request.
pub type Result<T> = std::result::Result<T, Error>;

/// The answer to a request.
#[derive(Debug)]
pub struct Answer {
    /// What the body is.
    pub kind: ReplyKind,
    /// See [`ReplyKind`].
    pub aux: u64,
    /// The body.
    pub body: Vec<u8>,
    /// The descriptor of a grant.
    pub fd: Option<OwnedFd>,
}

/// A client of one bridge. It has one request under way at a time.
#[derive(Debug)]
pub struct Client {
    path: PathBuf,
    socket: Option<Socket>,
    id: u64,
    seq: u32,
    patience: Duration,
    out: Box<[u8]>,
    into: Box<[u8]>,
}

impl Client {
    /// Connects to the bridge behind the socket at `path`.
    ///
    /// # Errors
    /// [`Error::Lost`]: nobody listens there, or not to this user.
    pub fn connect(path: &Path) -> Result<Self> {
        let lost = |cause| Error::Lost {
            socket: path.to_owned(),
            cause,
        };
        let socket = Socket::connect(path).map_err(lost)?;
        Ok(Client {
            id: socket::random().map_err(lost)?,
            path: path.to_owned(),
            socket: Some(socket),
            seq: 0,
            patience: PATIENCE,
            out: vec![0; MAX_REQUEST_BYTES].into(),
            into: vec![0; MAX_REPLY_BYTES].into(),
        })
    }

    /// Waits so long for a bridge that is gone.
    pub fn set_patience(&mut self, patience: Duration) {
        self.patience = patience;
    }

    /// Waits no longer than this for an answer of the bridge that it is connected to; zero, as at first:
    /// for ever, because a request may take as long as the file system below does.
    ///
    /// # Errors
    /// [`Error::Lost`]: there is no connection.
    pub fn set_answer_limit(&mut self, limit: Duration) -> Result<()> {
        let set = match &self.socket {
            Some(socket) => socket.limit_wait(limit),
            None => Err(io::ErrorKind::NotConnected.into()),
        };
        set.map_err(|cause| Error::Lost {
            socket: self.path.clone(),
            cause,
        })
    }

    /// Asks anything. Client id, number and retry mark of `request` are filled in.
    ///
    /// # Errors
    /// Each of [`Error`].
    pub fn ask(&mut self, request: Request<'_>) -> Result<Answer> {
        self.seq = self.seq.wrapping_add(1);
        let mut retry = false;
        let mut deadline = None;
        let mut pause = PAUSE_FIRST;
        loop {
            let sent = Request {
                client: self.id,
                seq: self.seq,
                retry,
                ..request
            };
            let len = sent
                .encode(&mut self.out)
                .map_err(|_| Error::Errno(libc::ENAMETOOLONG))?;
            let cause = match self.exchange(len) {
                Ok(answer) => return answer,
                Err(e) => e,
            };
            self.socket = None;
            // Whether it arrived nobody knows.
            retry = true;
            let now = Instant::now();
            let until = *deadline.get_or_insert(now + self.patience);
            if now >= until {
                return Err(Error::Lost {
                    socket: self.path.clone(),
                    cause,
                });
            }
            std::thread::sleep(pause.min(until - now));
            pause = (pause * 2).min(PAUSE_LONGEST);
        }
    }

    /// One attempt. The outer error is that of the connection.
    fn exchange(&mut self, len: usize) -> io::Result<Result<Answer>> {
        let socket = match &self.socket {
            Some(socket) => socket,
            None => self.socket.insert(Socket::connect(&self.path)?),
        };
        match socket.send(&self.out[..len]) {
            // The bridge has turned away; perhaps it has said why.
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => {}
            other => other?,
        }
        loop {
            let received = socket.receive(&mut self.into)?;
            if received.len == 0 {
                return Err(io::ErrorKind::ConnectionReset.into());
            }
            let reply = match Reply::decode(&self.into[..received.len]) {
                Ok(reply) => reply,
                Err(e) => return Ok(Err(Error::Protocol(e.to_string()))),
            };
            // Refused before the request was read.
            let refused = reply.seq == 0 && reply.status != 0;
            if reply.seq != self.seq && !refused {
                continue;
            }
            return Ok(match reply.status {
                0 if reply.kind == ReplyKind::Grant && received.fd.is_none() => {
                    // Cut off: this process has no descriptor left for it.
                    let why = if received.cut {
                        libc::EMFILE
                    } else {
                        libc::EIO
                    };
                    Err(Error::Errno(why))
                }
                0 => Ok(Answer {
                    kind: reply.kind,
                    aux: reply.aux,
                    body: reply.body.to_vec(),
                    fd: received.fd,
                }),
                STATUS_REDIRECT => Err(Error::Redirect(path_of(reply.body.to_vec()))),
                errno => Err(Error::Errno(errno)),
            });
        }
    }
}

fn path_of(bytes: Vec<u8>) -> PathBuf {
    OsString::from_vec(bytes).into()
}
