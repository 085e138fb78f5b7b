//! Requests of a shard: begun, parked while an effect is carried out elsewhere, answered.

use super::{Parked, Shard};
use crate::ServerHandle;
use crate::admin;
use crate::answer::Answered;
use crate::connection;
use crate::durability::{Asker, Waits};
use crate::inbox::Arrival;
use crate::log::Cause;
use crate::passing;
use crate::socket;
use crate::status::Speaker;
use crate::wakers::Waker;
use crate::work::{Stand, Task, Work};
use forebay_core::bridge::Ticket;
use forebay_core::bypass::Bypass;
use forebay_core::callers::{Asked, may_ask};
use forebay_core::facts::Cred;
use forebay_core::storage::Wish;
use forebay_sys::Errno;
use forebay_wire::{
    DecodeError, GRANT_BY_NAME, MAX_REPLY_BYTES, Op, PROTOCOL_VERSION, REPLY_HEADER_BYTES, Reply,
    ReplyKind, Request, WHOLE, WRITTEN, refusal,
};
use parking_lot::Mutex;
use std::fmt::Arguments;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

const TOO_MANY_BELOW: Arguments<'_> =
    format_args!("too many requests wait for the file system below");

impl Shard {
    /// Serves one message.
    pub(super) fn serve(
        &mut self,
        key: u64,
        request: Result<Request<'_>, DecodeError>,
        cred: Option<Arc<Cred>>,
    ) {
        let server = self.server.clone();
        let (request, cred) = match (request, cred) {
            (Ok(request), Some(cred)) => (request, cred),
            (Err(DecodeError::Version(theirs)), _) => return self.refuse_version(key, theirs),
            (Err(what), _) => {
                let pid = self.connection(key).map_or(0, |c| c.peer.pid);
                server.log.limited(
                    Cause::Malformed,
                    format_args!("process {pid} sent a message that is no request: {what}"),
                );
                return self.refuse(key, 0, libc::EPROTO);
            }
            (_, None) => return self.refuse(key, 0, libc::EPROTO),
        };
        if !connection::serves(&server, cred.uid) {
            return self.refuse(key, request.seq, libc::EPERM);
        }
        server.counters.request(request.op);
        if !self.note_speaker(key, request.op, cred.uid) {
            return self.close(key);
        }
        match request.op {
            Op::Hello => {
                let answered = Answered::bytes(server.hello());
                self.reply(key, request.seq, answered);
            }
            Op::Lane => self.open_lane(key, request.seq, cred),
            Op::Sync => self.sync(key, request.seq, request.arg0, request.arg2),
            Op::Words => {
                let memory = server.durability.words().try_clone_to_owned();
                self.pass_memory(key, request.seq, memory);
            }
            Op::NameTable if !may_ask(Asked::Names, cred.uid, server.uid()) => {
                self.reply(key, request.seq, Answered::status(libc::EPERM));
            }
            Op::NameTable => {
                let memory = server.namespace.board().memory().try_clone_to_owned();
                self.pass_memory(key, request.seq, memory);
            }
            Op::Bypass => {
                let status = match Bypass::from_u32(request.arg0) {
                    None => libc::EINVAL,
                    Some(why) => {
                        let is_own = cred.uid == server.uid();
                        let mut all = server.bypassing.lock();
                        match all.note(request.str1, why, request.arg1 != 0, is_own) {
                            true => 0,
                            false => libc::EEXIST,
                        }
                    }
                };
                self.reply(key, request.seq, Answered::status(status));
            }
            Op::Admin => {
                if !may_ask(Asked::Control, cred.uid, server.uid()) {
                    self.reply(key, request.seq, Answered::status(libc::EPERM));
                } else {
                    let answered = admin::answer(&server, request.str1);
                    self.reply(key, request.seq, answered);
                }
            }
            _ => {
                let Some(connection) = self.connection(key) else {
                    return;
                };
                let (pid, socket) = (connection.peer.pid, connection.socket().clone());
                match Work::new(&request, cred, pid, socket) {
                    Ok(work) => self.advance(work, key, request.seq, false),
                    Err(e) => self.reply(key, request.seq, Answered::status(e.raw_os_error())),
                }
            }
        }
    }

    /// Notes who asks this. False: the bridge is about to end, and lets no program in.
    fn note_speaker(&mut self, key: u64, op: Op, uid: u32) -> bool {
        let Some(connection) = self.connection(key) else {
            return true;
        };
        let (before, pid) = (connection.speaker, connection.peer.pid);
        let now = match op {
            // Each says it first.
            Op::Hello => return true,
            Op::Admin if may_ask(Asked::Control, uid, self.server.uid()) => Speaker::Command,
            Op::Admin => return true,
            _ => Speaker::Program,
        };
        if before == now {
            return true;
        }
        let is_let_in = self.server.clients.speaks(pid, before, now);
        if is_let_in && let Some(connection) = self.connection(key) {
            connection.speaker = now;
        }
        is_let_in
    }

    /// Shares memory with the client, for requests with these credentials.
    pub(super) fn open_lane(&mut self, key: u64, seq: u32, cred: Arc<Cred>) {
        let server = self.server.clone();
        let Some(connection) = self.connection(key) else {
            return;
        };
        let opened = match &connection.lane {
            Some(_) => Err(Errno::ALREADY),
            None => server.lanes.open(cred, server.uid()),
        };
        let answered = match opened {
            Ok((lane, memory)) => {
                connection.lane = Some(lane);
                Answered {
                    kind: ReplyKind::Grant,
                    fd: Some(memory),
                    ..Answered::status(0)
                }
            }
            Err(e) => {
                let pid = connection.peer.pid;
                server.log.limited(
                    Cause::Limit,
                    format_args!("process {pid} gets no shared memory: {e}"),
                );
                Answered::status(e.raw_os_error())
            }
        };
        self.reply(key, seq, answered);
    }

    /// Answers when everything is durable that was committed before, or up to `commit` if that is not 0. The connection is
    /// not read meanwhile.
    fn sync(&mut self, key: u64, seq: u32, flags: u32, commit: u64) {
        let wish = match flags {
            0 if commit != 0 && self.server.durability.is_durable(commit) => {
                return self.reply(key, seq, Answered::status(0));
            }
            0 => Wish::Durable,
            WHOLE => Wish::Whole,
            WRITTEN => Wish::Written,
            _ => return self.reply(key, seq, Answered::status(libc::EINVAL)),
        };
        self.spin.note_sync();
        self.stop_reading(key);
        let shard = self.spin.number();
        let who = Waits::Client { key, seq };
        let asker = Asker { shard, who };
        self.server.durability.ask(asker, wish);
    }

    /// Passes memory that clients may only read.
    fn pass_memory(&mut self, key: u64, seq: u32, memory: std::io::Result<OwnedFd>) {
        let answered = match memory {
            Ok(memory) => Answered {
                kind: ReplyKind::Grant,
                fd: Some(memory),
                ..Answered::status(0)
            },
            Err(e) => Answered::status(e.raw_os_error().unwrap_or(libc::EIO)),
        };
        self.reply(key, seq, answered);
    }

    /// Goes on with a request until it is answered or waits. Until its answer is there, nothing more is
    /// read from the connection. `was_parked`: it has waited before.
    pub(super) fn advance(&mut self, mut work: Box<Work>, key: u64, seq: u32, was_parked: bool) {
        let server = self.server.clone();
        let Some(ticket) = self.parking.next_ticket() else {
            // A parked request has just freed a place, so this is a new one.
            return self.too_many(key, seq);
        };
        let waker = Waker {
            shard: self.spin.number(),
            ticket,
        };
        let stand = work.advance(&server, waker);
        if let Stand::Ended(answered) = stand {
            match answered {
                None => self.close(key),
                Some(answered) if was_parked => self.complete(key, seq, answered),
                Some(answered) => self.reply(key, seq, answered),
            }
            return;
        }
        let user = work.user();
        let (work, lent) = match &stand {
            Stand::Long(_) => (None, Some(work)),
            _ => (Some(work), None),
        };
        let parked = self.parking.park(Parked { work, key, seq });
        assert_eq!(parked.ok(), Some(ticket), "who wakes it knows its ticket");
        if !was_parked {
            self.stop_reading(key);
        }
        match stand {
            Stand::Ended(_) | Stand::Waits => {}
            Stand::Pauses => self.paused.push(ticket),
            Stand::Syncs => {
                let asker = Asker {
                    shard: self.spin.number(),
                    who: Waits::Request(ticket),
                };
                self.server.durability.ask(asker, Wish::Durable);
            }
            Stand::Blocks(task) => self.submit(user, task, ticket),
            Stand::Long(task) => {
                let work = lent.expect("it was not parked");
                self.lend(work, task, waker);
            }
        }
    }

    /// Hands a request over to a thread that may block.
    fn lend(&mut self, work: Box<Work>, task: Option<Task>, waker: Waker) {
        let (server, inbox) = (self.server.clone(), self.inbox.clone());
        let user = work.user();
        // It is needed here again if no thread takes it: it may have made something.
        let lent = Arc::new(Mutex::new(Some(work)));
        let borrowed = lent.clone();
        let submitted = self.server.pool.submit(user, move || {
            if let Some(mut work) = borrowed.lock().take() {
                let stand = work.advance_long(&server, waker, task);
                inbox.push(Arrival::Advanced(waker.ticket, work, stand));
            }
        });
        if submitted.is_ok() {
            return;
        }
        self.server.log.limited(Cause::Limit, TOO_MANY_BELOW);
        let work = lent.lock().take();
        if let (Some(mut work), Some(Parked { key, seq, .. })) =
            (work, self.parking.take(waker.ticket))
        {
            work.gives_up();
            self.advance(work, key, seq, true);
        }
    }

    /// Takes a request back that was lent.
    fn take_back(&mut self, ticket: Ticket, work: Box<Work>, stand: Stand) {
        let Some(Parked { key, seq, .. }) = self.parking.take(ticket) else {
            return;
        };
        match stand {
            Stand::Ended(answered) => {
                self.server.durability.has_freed_much();
                match answered {
                    None => self.close(key),
                    Some(answered) => self.complete(key, seq, answered),
                }
            }
            _ => match self.parking.next_ticket() {
                Some(ticket) => {
                    let work = Some(work);
                    let parked = self.parking.park(Parked { work, key, seq });
                    assert_eq!(parked.ok(), Some(ticket), "there is room for it");
                    self.paused.push(ticket);
                }
                None => self.complete(key, seq, Answered::status(libc::EAGAIN)),
            },
        }
    }

    /// Hands a task to a thread that may block.
    pub(super) fn submit(&mut self, user: u32, task: Task, ticket: Ticket) {
        let (server, inbox) = (self.server.clone(), self.inbox.clone());
        let submitted = self.server.pool.submit(user, move || {
            inbox.push(Arrival::Outcome(ticket, task.run(&server)));
        });
        if submitted.is_ok() {
            return;
        }
        self.server.log.limited(Cause::Limit, TOO_MANY_BELOW);
        self.go_on(ticket, |work, _| work.gives_up());
    }

    /// Goes on with a parked request, after what has happened was told to it.
    pub(super) fn go_on(&mut self, ticket: Ticket, tell: impl FnOnce(&mut Work, &ServerHandle)) {
        if self
            .parking
            .get_mut(ticket)
            .is_some_and(|p| p.work.is_none())
        {
            // It is lent, and looks again by itself.
            return;
        }
        let Some(Parked { work, key, seq }) = self.parking.take(ticket) else {
            return;
        };
        let mut work = work.expect("it is not lent");
        tell(&mut work, &self.server);
        self.advance(work, key, seq, true);
    }

    pub(super) fn too_many(&mut self, key: u64, seq: u32) {
        self.server
            .log
            .limited(Cause::Limit, format_args!("too many requests wait"));
        self.reply(key, seq, Answered::status(libc::EAGAIN));
    }

    /// Reads nothing from a connection until its request is answered.
    pub(super) fn stop_reading(&mut self, key: u64) {
        let Some(connection) = self.connection(key) else {
            return;
        };
        connection.waiting = true;
        self.waiting += 1;
        let slot = &self.connections[key as u32 as usize];
        if let Some(connection) = &slot.connection {
            // So that a client that hangs up meanwhile does not wake the shard.
            let _ = self.epoll.remove(connection.socket().as_fd());
        }
    }

    /// Takes what other threads have put into the inbox.
    pub(super) fn take_arrivals(&mut self) {
        for arrival in self.inbox.take() {
            match arrival {
                Arrival::Outcome(ticket, outcome) => {
                    self.go_on(ticket, |work, server| work.take(server, outcome));
                }
                Arrival::Advanced(ticket, work, stand) => self.take_back(ticket, work, stand),
                Arrival::Woken(ticket) => self.go_on(ticket, |work, _| work.woken()),
                Arrival::Synced {
                    who,
                    status,
                    commit,
                } => match who {
                    Waits::Client { key, seq } => {
                        let answered = Answered {
                            aux: commit,
                            ..Answered::status(status)
                        };
                        self.complete(key, seq, answered);
                    }
                    Waits::Request(ticket) => {
                        self.go_on(ticket, |work, server| work.synced(server, status));
                    }
                },
                Arrival::Client(connection) => self.own(connection),
            }
        }
    }

    /// Sends the answer to a request that has waited, and reads from the connection again.
    fn complete(&mut self, key: u64, seq: u32, answered: Answered) {
        let Some(connection) = self.connection(key) else {
            return;
        };
        connection.waiting = false;
        self.waiting -= 1;
        self.reply(key, seq, answered);
        // The reply may have ended the connection.
        let slot = &self.connections[key as u32 as usize];
        let watched = match &slot.connection {
            Some(c) if u64::from(slot.generation) == key >> 32 => self
                .epoll
                .add(c.socket().as_fd(), key, libc::EPOLLIN as u32)
                .is_ok(),
            _ => return,
        };
        if !watched {
            self.close(key);
        }
    }

    /// Refuses a client of another version, in a message that it can read.
    fn refuse_version(&mut self, key: u64, theirs: u8) {
        if let Some(connection) = self.connection(key) {
            let pid = connection.peer.pid;
            let _ = connection.answer(&refusal(theirs), b"", None);
            socket::turn_away(connection.socket().as_fd());
            self.server.log.limited(
                Cause::Refused,
                format_args!(
                    "the Forebay library of process {pid} speaks protocol {theirs}, this bridge speaks \
                     {PROTOCOL_VERSION}: use the same version of both"
                ),
            );
        }
        self.close(key);
    }

    pub(super) fn refuse(&mut self, key: u64, seq: u32, errno: i32) {
        self.reply(key, seq, Answered::status(errno));
        if let Some(connection) = self.connection(key) {
            socket::turn_away(connection.socket().as_fd());
        }
        self.close(key);
    }

    pub(super) fn reply(&mut self, key: u64, seq: u32, answered: Answered) {
        let server = self.server.clone();
        let Some(connection) = self.connection(key) else {
            return;
        };
        let mut body = answered.body.as_bytes();
        let mut status = answered.status;
        let mut kind = answered.kind;
        if body.len() + REPLY_HEADER_BYTES > MAX_REPLY_BYTES {
            (status, kind, body) = (libc::EMSGSIZE, ReplyKind::Empty, b"");
        }
        let reply = Reply {
            status,
            seq,
            kind,
            aux: answered.aux,
            body,
        };
        let fd = answered.fd.as_ref().map(AsFd::as_fd);
        let passing = answered
            .dir
            .map(|dir| (dir, passing::begin(connection.socket())));
        let mut sent = connection.answer(&reply.header(), body, fd);
        if let (Some((dir, before)), Ok(())) = (passing, &sent) {
            // Here `answered` still has the descriptor: whoever looks for it finds it with us or noted.
            server.passing.sent(connection.socket(), dir, before);
        }
        if let Err(Errno::TOOMANYREFS) = sent {
            // Clients have not received the descriptors that were sent to them.
            server.log.limited(
                Cause::Limit,
                format_args!("too many descriptors are on their way to clients"),
            );
            let refusal = Reply::status(seq, libc::EMFILE).header();
            sent = connection.answer(&refusal, b"", None);
        } else if fd.is_some() || answered.aux & GRANT_BY_NAME != 0 {
            server.counters.grant();
        }
        match sent {
            Ok(()) => {}
            Err(Errno::AGAIN) => {
                let pid = connection.peer.pid;
                server.log.limited(
                    Cause::Deaf,
                    format_args!("process {pid} does not read its replies: disconnected"),
                );
                self.close(key);
            }
            // The client is gone.
            Err(_) => self.close(key),
        }
    }
}
