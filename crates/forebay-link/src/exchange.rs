//! One request and its reply.
//!
//! The reply always belongs to the request: its number is compared, and replies
//! to interrupted requests are dropped. When the connection breaks, the same
//! request goes out again under the same token, marked as a retry, until patience
//! ends.
//!
//! A request goes through the lane of its connection ([`crate::lane`]) if there is
//! one and the bridge attends to it, else through the socket ([`crate::socket`]).
//! An exchange has two steps, start and finish, and the caller may do something
//! else in between. Each request in flight has its own connection, so that none
//! waits for another.

use core::ffi::c_int;

use forebay_hook::kernel::{self, Errno, OwnFd};
use forebay_wire::{LanePage, Op, Request, Seen};

use crate::complaint;
use crate::config::Config;
use crate::lane::{self, Passed, Posted};
use crate::pool::Lease;
use crate::process::Process;
use crate::retry::{Next, Retry};
use crate::socket::{self, Broken, Received, Room};

/// The state of a request from its first attempt to its answer.
pub struct Exchange<'a> {
    config: &'a Config,
    process: Option<&'static Process>,
    pid: c_int,
    seq: u32,
    /// The request is an open, whose answer may be a name.
    may_open: bool,
    /// It is worth a wait for a lost bridge, and a complaint in vain.
    waits: bool,
}

/// A request that was handed over.
pub enum Sent {
    ByLane {
        posted: Posted,
        /// Count of forbidden late opens before the request was posted.
        forbidden: u32,
        /// Effective user and group, in case the request has to go by the socket.
        ids: (u32, u32),
    },
    /// Holds the descriptor of the socket.
    BySocket(c_int),
}

/// What became of a grant by name.
enum Named {
    /// The answer is not a grant by name.
    Nothing,
    Open(OwnFd),
    /// The name can't be used: the client must ask for a descriptor.
    Late,
}

impl<'a> Exchange<'a> {
    /// Gives `request` its token. `(process, pid)` is the asking process.
    pub fn new(
        config: &'a Config,
        (process, pid): (Option<&'static Process>, c_int),
        request: &mut Request<'_>,
    ) -> Self {
        (request.client, request.seq) = match process {
            Some(p) => (p.client(), p.next_seq()),
            None => (kernel::random(), 1),
        };
        Exchange {
            config,
            process,
            pid,
            seq: request.seq,
            may_open: request.op == Op::Open,
            waits: true,
        }
    }

    /// This one is not worth a wait, nor a complaint.
    pub fn at_once(self) -> Self {
        Exchange {
            waits: false,
            ..self
        }
    }

    /// Process id of the asking process.
    pub fn pid(&self) -> c_int {
        self.pid
    }

    /// Sends the encoded request `message` and waits for its answer, which goes into `room`.
    pub fn run(
        &self,
        mut lease: Lease<'_>,
        message: &mut [u8],
        room: &Room,
    ) -> Result<Received, Errno> {
        let sent = self.start(&mut lease, message);
        self.finish(&mut lease, message, sent, room)
    }

    /// The first half of an attempt: hands the request over. Once the bridge may have received `message`, it is marked
    /// as a retry.
    pub fn start(&self, lease: &mut Lease<'_>, message: &mut [u8]) -> Result<Sent, Broken> {
        let ids = kernel::effective_ids();
        if let Some(page) = lease.lane(ids) {
            let forbidden = page.words.late_opens_forbidden();
            self.mark_by_name(message, true);
            if let Some(posted) = lane::post(page, message) {
                return Ok(Sent::ByLane {
                    posted,
                    forbidden,
                    ids,
                });
            }
            self.mark_by_name(message, false);
        }
        self.send(lease, message, ids).map(Sent::BySocket)
    }

    /// Waits for the answer. Starts the request again when the connection breaks, until patience ends.
    pub fn finish(
        &self,
        lease: &mut Lease<'_>,
        message: &mut [u8],
        mut sent: Result<Sent, Broken>,
        room: &Room,
    ) -> Result<Received, Errno> {
        let mut retry = Retry::new();
        loop {
            let why = match sent.and_then(|sent| self.answer(lease, message, sent, room)) {
                Ok(got) => {
                    self.reached();
                    return Ok(got);
                }
                Err(Broken::Final(e)) => return Err(e),
                Err(Broken::Version(theirs)) => {
                    lease.broken();
                    self.refuse(theirs);
                    return Err(libc::EPROTO);
                }
                Err(Broken::Forbidden(why)) => {
                    lease.broken();
                    if self.waits {
                        self.give_up(why);
                    }
                    return Err(libc::EIO);
                }
                Err(Broken::Connection(e)) => e,
            };
            lease.broken();
            match retry.failed(kernel::monotonic_ns(), self.patience_ns()) {
                Next::Now => {}
                Next::After(ns) => kernel::sleep_ns(ns),
                Next::Never => {
                    if self.waits {
                        self.give_up(why);
                    }
                    return Err(libc::EIO);
                }
            }
            sent = self.start(lease, message);
        }
    }

    /// True if [`Exchange::finish`] would at once find an answer, or the end of the connection.
    pub fn is_ready(lease: &Lease<'_>, sent: &Result<Sent, Broken>) -> bool {
        let said = |fd| !socket::is_silent(fd);
        match sent {
            Err(_) => true,
            Ok(Sent::BySocket(fd)) => said(*fd),
            Ok(Sent::ByLane { .. }) => {
                lease
                    .page()
                    .is_none_or(|page| page.words.look() != Seen::Nothing)
                    || lease.connected().is_none_or(said)
            }
        }
    }

    /// Sends the request by the socket.
    fn send(
        &self,
        lease: &mut Lease<'_>,
        message: &mut [u8],
        ids: (u32, u32),
    ) -> Result<c_int, Broken> {
        let fd = match lease.socket(self.config.socket()) {
            Ok(fd) => fd,
            Err(e @ (libc::EMFILE | libc::ENFILE | libc::ENOMEM)) => return Err(Broken::Final(e)),
            Err(e) if is_forbidden(e) => return Err(Broken::Forbidden(e)),
            Err(e) => return Err(Broken::Connection(e)),
        };
        if let Some(process) = self.process
            && lease.is_due_for_lane()
        {
            let page = lane::open(fd, process, self.pid, ids)?;
            lease.use_lane(page, ids);
        }
        match socket::send(fd, self.pid, ids, message) {
            // EPIPE: the bridge refused the connection. It said why before that, so the answer is read all the same.
            Ok(()) | Err(Broken::Connection(libc::EPIPE)) => Request::mark_retry(message),
            Err(broken) => return Err(broken),
        }
        Ok(fd)
    }

    /// The second half of an attempt: waits for the answer.
    fn answer(
        &self,
        lease: &mut Lease<'_>,
        message: &mut [u8],
        sent: Sent,
        room: &Room,
    ) -> Result<Received, Broken> {
        let fd = match sent {
            Sent::BySocket(fd) => fd,
            Sent::ByLane {
                posted,
                forbidden,
                ids,
            } => match self.answer_by_lane(lease, message, (posted, forbidden), room)? {
                Some(got) => return Ok(got),
                None => self.send(lease, message, ids)?,
            },
        };
        let polls = self.process.map_or(0, |p| p.spin.budget());
        let (got, in_time) = socket::receive(fd, room, self.seq, polls)?;
        if polls > 0
            && let Some(p) = self.process
        {
            p.spin.learn(in_time);
        }
        Ok(got)
    }

    /// Waits for the answer in the lane. `None`: the request has to go by the socket.
    fn answer_by_lane(
        &self,
        lease: &Lease<'_>,
        message: &mut [u8],
        (posted, forbidden): (Posted, u32),
        room: &Room,
    ) -> Result<Option<Received>, Broken> {
        // If the request has to go by the socket, only a descriptor will do.
        self.mark_by_name(message, false);
        let page = lease.page().ok_or(Broken::Connection(libc::EBADF))?;
        let mut got = match lane::wait(page, posted, room, self.seq)? {
            Passed::Answered(got) => got,
            Passed::Unattended => return Ok(None),
            Passed::Beside => {
                Request::mark_retry(message);
                let fd = lease.connected().ok_or(Broken::Connection(libc::EBADF))?;
                socket::receive(fd, room, self.seq, 0)?.0
            }
        };
        match open_named(lease, page, forbidden, (room, &got))? {
            Named::Nothing => {}
            Named::Open(fd) => got.fd = Some(fd),
            Named::Late => {
                // The bridge may have created the file for this request, so it goes out again as a retry.
                Request::mark_retry(message);
                return Ok(None);
            }
        }
        Ok(Some(got))
    }

    fn mark_by_name(&self, message: &mut [u8], may_be_name: bool) {
        if self.may_open {
            Request::mark_by_name(message, may_be_name);
        }
    }

    /// How long to wait for a lost bridge. After one vain wait, later requests of the process do not wait.
    fn patience_ns(&self) -> u64 {
        match self.process {
            Some(p) if p.lost.get() => 0,
            _ if !self.waits => 0,
            _ => self.config.reconnect_ns(),
        }
    }

    fn reached(&self) {
        if let Some(p) = self.process {
            p.lost.lower();
        }
    }

    fn give_up(&self, why: Errno) {
        if !self.process.is_some_and(|p| p.lost.raise()) {
            complaint::lost(self.config, why);
        }
    }

    fn refuse(&self, theirs: u8) {
        if !self.process.is_some_and(|p| p.other_version.raise()) {
            complaint::other_version(self.config, theirs);
        }
    }
}

/// This process may make no socket, or not connect one, as in a sandbox (seccomp): no patience helps.
pub(crate) fn is_forbidden(why: Errno) -> bool {
    matches!(
        why,
        libc::ENOSYS | libc::EPERM | libc::EAFNOSUPPORT | libc::EPROTONOSUPPORT
    )
}

/// Opens the file, if the answer is a grant by name.
fn open_named(
    lease: &Lease<'_>,
    page: &LanePage,
    forbidden: u32,
    (room, got): (&Room, &Received),
) -> Result<Named, Broken> {
    let Some((path, flags)) = room.granted_name(got.len) else {
        return Ok(Named::Nothing);
    };
    // SAFETY: a C string.
    let fd = match unsafe { kernel::openat(libc::AT_FDCWD, path, flags, 0) } {
        Ok(fd) => OwnFd(fd),
        Err(e @ (libc::EMFILE | libc::ENFILE)) => return Err(Broken::Final(e)),
        // The file was removed meanwhile, or this process has another mount namespace or fewer rights than its user.
        Err(_) => return Ok(Named::Late),
    };
    // The open counts if the bridge that gave the name still lives, and has not forbidden late opens meanwhile. From
    // now on the bridge sees that the file is open.
    let in_time = page.words.late_opens_forbidden() == forbidden
        && lease.connected().is_some_and(socket::is_silent);
    Ok(match in_time {
        true => Named::Open(fd),
        false => Named::Late,
    })
}
