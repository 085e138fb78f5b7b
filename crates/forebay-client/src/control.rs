//! The command's side of control messages: one method for each request.

use crate::{Answer, Client, Error};
use forebay_admin::drain::{DrainBegun, DrainRequest, DrainStatus, Inventory, Left};
use forebay_admin::{
    AdminError, Garbled, Items, LifetimeStatus, MAX_MESSAGE_BYTES, MAX_REQUEST_BYTES, Request,
    Status, VERSION_WITHOUT_NUMBER, Verb,
};
use forebay_wire::{Op, PROTOCOL_VERSION, Request as Message};
use serde::de::DeserializeOwned;
use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A bridge that answers as many requests as it can is asked again for so long.
const BUSY_PATIENCE: Duration = Duration::from_secs(30);
/// Pause before the first time; it doubles from one to the next.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
/// The pauses get no longer than this.
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// Asks one bridge for its state, and tells it what to do. Each answer is a separate stream, so the next request
/// need not wait until an answer is read.
///
/// ```no_run
/// use forebay_client::Control;
/// let mut control = Control::connect("/run/user/1000/forebay/0123456789abcdef".as_ref())?;
/// println!("for {} s", control.status()?.uptime_s);
/// for left in control.left()? {
///     println!("{}", left?.path);
/// }
/// # Ok::<(), forebay_admin::AdminError>(())
/// ```
#[derive(Debug)]
pub struct Control {
    client: Client,
    socket: PathBuf,
    /// Longest wait for a part of an answer, and for a bridge that has too much to do; `None` for no limit and [`BUSY_PATIENCE`].
    limit: Option<Duration>,
}

impl Control {
    /// Connects to the bridge at `socket`. If that bridge ends later, requests fail at once.
    ///
    /// # Errors
    /// [`AdminError::Unreachable`]: no bridge listens there, or this user may not connect.
    pub fn connect(socket: &Path) -> Result<Self, AdminError> {
        let mut client = Client::connect(socket).map_err(|e| failed(socket, "connect", e))?;
        client.set_patience(Duration::ZERO);
        Ok(Control {
            client,
            socket: socket.to_owned(),
            limit: None,
        })
    }

    /// The socket of the bridge.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Sets the longest wait for each part of an answer, and for a bridge that has too much to do. At first there is no limit (`None`),
    /// because a bridge may have to wait for its PFS; one that has too much to do is waited for half a minute.
    ///
    /// # Errors
    /// [`AdminError::Unreachable`]: the connection is gone.
    pub fn set_answer_limit(&mut self, limit: Option<Duration>) -> Result<(), AdminError> {
        self.client
            .set_answer_limit(limit.unwrap_or(Duration::ZERO))
            .map_err(|e| failed(&self.socket, "connect", e))?;
        self.limit = limit;
        Ok(())
    }

    fn ask<T: DeserializeOwned>(&mut self, request: &Request) -> Result<Items<T>, AdminError> {
        let name = request.name();
        let whole = request.encode();
        if whole.len() > MAX_REQUEST_BYTES {
            let peer = self.socket.clone();
            return Err(AdminError::TooLong { peer });
        }
        let announcement = Request::announcement(whole.len());
        let (message, rest) = match whole.len() <= MAX_MESSAGE_BYTES {
            true => (&whole, None),
            false => (&announcement, Some(&whole)),
        };
        let answer = self
            .ask_patiently(message)
            .map_err(|e| failed(&self.socket, name, e))?;
        // A bridge of version 1 puts its answer into the reply itself.
        let Some(stream) = answer.fd else {
            return Err(AdminError::Version {
                peer: self.socket.clone(),
                theirs: VERSION_WITHOUT_NUMBER,
            });
        };
        let mut stream = UnixStream::from(stream);
        let limited = stream.set_read_timeout(self.limit);
        let limited = limited.and_then(|()| stream.set_write_timeout(self.limit));
        limited.map_err(|cause| AdminError::Lost {
            peer: self.socket.clone(),
            request: name,
            cause,
        })?;
        if let Some(rest) = rest {
            // A bridge that does not want it says why.
            let _ = stream.write_all(rest);
        }
        Ok(Items::new(stream, &self.socket, name))
    }

    /// Sends a message. A bridge that answers as many as it can is asked again for a while.
    fn ask_patiently(&mut self, message: &[u8]) -> Result<Answer, Error> {
        let until = Instant::now() + self.limit.unwrap_or(BUSY_PATIENCE);
        let mut pause = FIRST_PAUSE;
        loop {
            let answer = self.client.ask(Message {
                str1: message,
                ..Message::new(Op::Admin)
            });
            match answer {
                Err(Error::Errno(libc::EAGAIN)) if Instant::now() < until => {
                    std::thread::sleep(pause);
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
                answer => return answer,
            }
        }
    }

    /// The state of the bridge.
    ///
    /// # Errors
    /// Each variant of [`AdminError`] that an exchange can have.
    pub fn status(&mut self) -> Result<Status, AdminError> {
        self.ask(&Request::Status)?.only()
    }

    /// Asks the bridge to end. It ends a moment after the answer.
    ///
    /// # Errors
    /// As [`Control::status`].
    pub fn stop(&mut self) -> Result<(), AdminError> {
        self.ask(&Request::Stop)?.only()
    }

    /// Starts a drain, unless one is at work.
    ///
    /// # Errors
    /// As [`Control::status`].
    pub fn drain(&mut self, drain: DrainRequest) -> Result<DrainBegun, AdminError> {
        self.ask(&Request::Drain(drain))?.only()
    }

    /// The state of the drain.
    ///
    /// # Errors
    /// As [`Control::status`].
    pub fn drain_status(&mut self) -> Result<DrainStatus, AdminError> {
        self.ask(&Request::DrainStatus)?.only()
    }

    /// The state of the last drain, several times a second until it has ended. If very many follow, once.
    ///
    /// # Errors
    /// As [`Control::status`]; reading the items may fail likewise.
    pub fn follow_drain(&mut self) -> Result<Items<DrainStatus>, AdminError> {
        self.ask(&Request::FollowDrain { number: None })
    }

    /// As [`Control::follow_drain`], of this drain ([`DrainStatus::number`]).
    ///
    /// # Errors
    /// As [`Control::follow_drain`]; or it was one of long ago.
    pub fn follow_drain_of(&mut self, number: u64) -> Result<Items<DrainStatus>, AdminError> {
        self.ask(&Request::FollowDrain {
            number: Some(number),
        })
    }

    /// Asks the drain to end after the files that it is copying.
    ///
    /// # Errors
    /// As [`Control::status`].
    pub fn stop_drain(&mut self) -> Result<DrainStatus, AdminError> {
        self.ask(&Request::DrainStop { number: None })?.only()
    }

    /// As [`Control::stop_drain`], of this drain ([`DrainStatus::number`]).
    ///
    /// # Errors
    /// As [`Control::stop_drain`]; or it was one of long ago.
    pub fn stop_drain_of(&mut self, number: u64) -> Result<DrainStatus, AdminError> {
        let number = Some(number);
        self.ask(&Request::DrainStop { number })?.only()
    }

    /// What the last drain has not brought to the PFS, sorted by path.
    ///
    /// # Errors
    /// As [`Control::status`]; reading the items may fail likewise.
    pub fn left(&mut self) -> Result<Items<Left>, AdminError> {
        self.ask(&Request::Left { number: None })
    }

    /// As [`Control::left`], of this drain ([`DrainStatus::number`]).
    ///
    /// # Errors
    /// As [`Control::left`]; or it was one of long ago.
    pub fn left_of(&mut self, number: u64) -> Result<Items<Left>, AdminError> {
        self.ask(&Request::Left {
            number: Some(number),
        })
    }

    /// What is in the buffer. The bridge reads every record for it.
    ///
    /// # Errors
    /// As [`Control::status`].
    pub fn inventory(&mut self) -> Result<Inventory, AdminError> {
        self.ask(&Request::Inventory)?.only()
    }

    /// Tells the bridge that the run with process id `pid` needs it from now on. The answer says whether the
    /// bridge is about to end.
    ///
    /// # Errors
    /// As [`Control::status`]. [`forebay_admin::RefusalKind::Process`]: there is no such process.
    pub fn attach(&mut self, pid: u32, verb: Verb) -> Result<LifetimeStatus, AdminError> {
        self.ask(&Request::Attach { pid, verb })?.only()
    }

    /// Tells the bridge that the run no longer needs it. The bridge ends if no other run needs it, and no program is
    /// connected, and, with `clean`, the PFS has everything. If it can't end for that, the run stays attached.
    ///
    /// # Errors
    /// As [`Control::status`].
    pub fn detach(&mut self, pid: u32, clean: bool) -> Result<LifetimeStatus, AdminError> {
        self.ask(&Request::Detach { pid, clean })?.only()
    }

    /// How long the bridge lives, and which runs use it.
    ///
    /// # Errors
    /// As [`Control::status`].
    pub fn lifetime(&mut self) -> Result<LifetimeStatus, AdminError> {
        self.ask(&Request::Lifetime)?.only()
    }

    /// Makes the bridge live until it is told to end, or only as long as runs need it.
    ///
    /// # Errors
    /// As [`Control::status`].
    pub fn set_stay(&mut self, stay: bool) -> Result<LifetimeStatus, AdminError> {
        self.ask(&Request::SetStay { stay })?.only()
    }
}

/// Converts the error of a request to which the bridge has not begun to answer.
fn failed(socket: &Path, request: &'static str, e: Error) -> AdminError {
    let peer = socket.to_owned();
    match e {
        Error::Lost { cause, .. } => AdminError::Unreachable { peer, cause },
        Error::Version { theirs, .. } => AdminError::OtherProtocol {
            peer,
            ours: PROTOCOL_VERSION,
            theirs,
        },
        Error::Errno(libc::EPERM) => AdminError::NotPermitted { peer },
        Error::Errno(libc::EAGAIN) => AdminError::Busy { peer },
        Error::Errno(errno) => AdminError::Lost {
            peer,
            request,
            cause: io::Error::from_raw_os_error(errno),
        },
        other => AdminError::Garbled {
            peer,
            request,
            what: Garbled::NoStream(other.to_string()),
        },
    }
}
