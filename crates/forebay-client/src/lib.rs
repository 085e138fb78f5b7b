//! A client of a bridge, for Rust callers: the command line and tests. Other programs
//! use the preload library instead.
//!
//! Paths are bytes, relative to the buffer root. When the connection breaks, the
//! client sends the request again under the same token, until the bridge is back or
//! patience ends. The bridge carries it out only once.
//!
//! [`Client::begin`] hands a request over, and [`Client::finish`] collects its answer. Up to [`MAX_IN_FLIGHT`]
//! requests may be in flight at once. Their answers may come, and be collected, in any order.
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
#![forbid(unsafe_code)]

mod control;
mod files;
mod socket;

pub use control::Control;
pub use files::{Entry, Hello};

use forebay_hook::kernel;
use forebay_link::retry::{Next, Retry};
use forebay_wire::{
    DecodeError, MAX_REPLY_BYTES, MAX_REQUEST_BYTES, PROTOCOL_VERSION, Reply, ReplyKind, Request,
    STATUS_OTHER_VERSION, STATUS_REDIRECT,
};
use socket::Socket;
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a request waits for a bridge that is gone; [`Client::set_patience`] changes it.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// Most requests of one client in flight at once. Each has its own connection.
pub const MAX_IN_FLIGHT: usize = 64;

/// Why a request has no result.
#[derive(Debug)]
pub enum Error {
    /// The bridge answers with this errno.
    Errno(i32),
    /// The path leaves the buffer, and leads to this absolute path.
    Redirect(PathBuf),
    /// The bridge can't be reached.
    Lost {
        /// Its socket.
        socket: PathBuf,
        /// The error of the last attempt.
        cause: io::Error,
    },
    /// The bridge's answer makes no sense for this request. Holds the reason.
    Protocol(String),
    /// The bridge speaks another version of the protocol.
    Version {
        /// Its socket.
        socket: PathBuf,
        /// The version of the bridge.
        theirs: u8,
    },
    /// [`MAX_IN_FLIGHT`] requests are in flight already.
    TooManyInFlight,
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
            Error::Version { socket, theirs } => write!(
                f,
                "this program's Forebay client speaks protocol {PROTOCOL_VERSION}, the bridge at {} speaks {theirs}: \
                 use the same version of both",
                socket.display()
            ),
            Error::TooManyInFlight => write!(f, "{MAX_IN_FLIGHT} requests are in flight already"),
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
    /// The errno that the bridge answered, or `EPROTO` if it speaks another version.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Error::Errno(e) => Some(*e),
            Error::Version { .. } => Some(STATUS_OTHER_VERSION),
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

/// A client of one bridge.
#[derive(Debug)]
pub struct Client {
    path: PathBuf,
    /// Connections that no request uses. The one used last is at the end.
    idle: Vec<Socket>,
    id: u64,
    seq: u32,
    patience: Duration,
    answer_limit: Duration,
    /// Start of the clock for retries.
    since: Instant,
    /// Each request in flight holds a clone, so that the count of references tells how many there are.
    in_flight: Arc<()>,
    out: Box<[u8]>,
    into: Box<[u8]>,
}

/// A request in flight. If it is dropped, the answer is lost, but the bridge may carry the request out.
#[derive(Debug)]
#[must_use = "the answer is collected by Client::finish"]
pub struct Pending {
    client: u64,
    seq: u32,
    message: Vec<u8>,
    sent: io::Result<Socket>,
    _in_flight: Arc<()>,
}

impl Pending {
    /// True if [`Client::finish`] would return without waiting for the bridge. After a broken connection it may still
    /// wait for a new one.
    pub fn is_ready(&self) -> bool {
        self.sent.as_ref().map_or(true, Socket::is_ready)
    }
}

impl Client {
    /// Connects to the bridge whose socket is at `path`.
    ///
    /// # Errors
    /// [`Error::Lost`]: no bridge listens there, or this user may not connect.
    pub fn connect(path: &Path) -> Result<Self> {
        let socket = Socket::connect(path, Duration::ZERO).map_err(|cause| Error::Lost {
            socket: path.to_owned(),
            cause,
        })?;
        Ok(Client {
            id: kernel::random(),
            path: path.to_owned(),
            idle: vec![socket],
            seq: 0,
            patience: PATIENCE,
            answer_limit: Duration::ZERO,
            since: Instant::now(),
            in_flight: Arc::new(()),
            out: vec![0; MAX_REQUEST_BYTES].into(),
            into: vec![0; MAX_REPLY_BYTES].into(),
        })
    }

    /// Sets how long a request waits for a bridge that is gone.
    pub fn set_patience(&mut self, patience: Duration) {
        self.patience = patience;
    }

    /// Sets the longest wait for an answer, for requests that begin from now on. Zero means no limit, as at first,
    /// because a request may wait for the PFS.
    ///
    /// # Errors
    /// [`Error::Lost`]: the connection is gone.
    pub fn set_answer_limit(&mut self, limit: Duration) -> Result<()> {
        self.answer_limit = limit;
        let set = match &self.idle[..] {
            [] => Err(io::ErrorKind::NotConnected.into()),
            idle => idle.iter().try_for_each(|socket| socket.limit_wait(limit)),
        };
        set.map_err(|cause| self.lost(cause))
    }

    fn lost(&self, cause: io::Error) -> Error {
        Error::Lost {
            socket: self.path.clone(),
            cause,
        }
    }

    /// Makes a request and waits for its answer. Fills in client id, number and retry mark of `request`.
    ///
    /// # Errors
    /// Each variant of [`Error`] except [`Error::TooManyInFlight`].
    pub fn ask(&mut self, request: Request<'_>) -> Result<Answer> {
        let mut out = std::mem::take(&mut self.out);
        let result = self.encode(request, &mut out).and_then(|(seq, len)| {
            let message = &mut out[..len];
            let sent = self.send(message);
            self.collect(seq, message, sent)
        });
        self.out = out;
        result
    }

    /// Hands a request over without waiting for its answer. Fills in client id, number and retry mark of `request`.
    ///
    /// # Errors
    /// [`Error::TooManyInFlight`]; `ENAMETOOLONG`. [`Client::finish`] reports all others.
    pub fn begin(&mut self, request: Request<'_>) -> Result<Pending> {
        if Arc::strong_count(&self.in_flight) > MAX_IN_FLIGHT {
            return Err(Error::TooManyInFlight);
        }
        let mut out = std::mem::take(&mut self.out);
        let encoded = self.encode(request, &mut out);
        let message = encoded.map(|(seq, len)| (seq, out[..len].to_vec()));
        self.out = out;
        let (seq, mut message) = message?;
        Ok(Pending {
            client: self.id,
            seq,
            sent: self.send(&mut message),
            message,
            _in_flight: self.in_flight.clone(),
        })
    }

    /// Waits for the answer to a request of this client.
    ///
    /// # Errors
    /// As [`Client::ask`].
    ///
    /// # Panics
    /// If another client made the request.
    pub fn finish(&mut self, mut pending: Pending) -> Result<Answer> {
        assert_eq!(pending.client, self.id, "a request of another client");
        self.collect(pending.seq, &mut pending.message, pending.sent)
    }

    /// Encodes the next request into `out`. Returns its number and its length.
    fn encode(&mut self, request: Request<'_>, out: &mut [u8]) -> Result<(u32, usize)> {
        // The number 0 means "no request".
        self.seq = self.seq.wrapping_add(1).max(1);
        let sent = Request {
            client: self.id,
            seq: self.seq,
            retry: false,
            ..request
        };
        let len = sent
            .encode(out)
            .map_err(|_| Error::Errno(libc::ENAMETOOLONG))?;
        Ok((self.seq, len))
    }

    /// Sends a message by a free connection, and then marks it as a retry.
    fn send(&mut self, message: &mut [u8]) -> io::Result<Socket> {
        let socket = match self.idle.pop() {
            Some(socket) => socket,
            None => Socket::connect(&self.path, self.answer_limit)?,
        };
        let sent = socket.send(message);
        // Even if the send failed, the bridge may have received the message.
        Request::mark_retry(message);
        match sent {
            // The bridge has closed the connection. It may have said why, so the answer is read.
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(socket),
            other => other.map(|()| socket),
        }
    }

    /// Waits for the answer to `message`, and sends it again as long as patience lasts.
    fn collect(
        &mut self,
        seq: u32,
        message: &mut [u8],
        mut sent: io::Result<Socket>,
    ) -> Result<Answer> {
        let mut retry = Retry::new();
        loop {
            let cause = match sent.and_then(|socket| self.receive(seq, socket)) {
                Ok(answer) => return answer,
                Err(e) => e,
            };
            // The other connections led to the same bridge, so they are broken, too.
            self.idle.clear();
            let nanoseconds = |time: Duration| time.as_nanos().try_into().unwrap_or(u64::MAX);
            match retry.failed(
                nanoseconds(self.since.elapsed()),
                nanoseconds(self.patience),
            ) {
                Next::Now => {}
                Next::After(ns) => std::thread::sleep(Duration::from_nanos(ns)),
                Next::Never => return Err(self.lost(cause)),
            }
            sent = self.send(message);
        }
    }

    /// The answer to request `seq` on its connection. The outer error means that the connection broke.
    fn receive(&mut self, seq: u32, socket: Socket) -> io::Result<Result<Answer>> {
        loop {
            let received = socket.receive(&mut self.into)?;
            if received.len == 0 {
                return Err(io::ErrorKind::ConnectionReset.into());
            }
            let reply = match Reply::decode(&self.into[..received.len]) {
                Ok(reply) => reply,
                Err(DecodeError::Version(theirs)) => {
                    return Ok(Err(Error::Version {
                        socket: self.path.clone(),
                        theirs,
                    }));
                }
                Err(e) => {
                    self.idle.push(socket);
                    return Ok(Err(Error::Protocol(e.to_string())));
                }
            };
            // The bridge refused the connection before it read the request.
            let refused = reply.seq == 0 && reply.status != 0;
            if reply.seq != seq && !refused {
                continue;
            }
            self.idle.push(socket);
            return Ok(match reply.status {
                0 if reply.kind == ReplyKind::Grant && received.fd.is_none() => {
                    // The message is cut if this process had no free number for the descriptor.
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
