//! One event loop. It owns its connections: nothing about them is shared.
//!
//! A request is served to its end where it arrives, unless it has to wait for
//! the PFS. Waking a sleeping thread costs ten times what serving a request
//! does, so after a request the loop looks for the next one for a short while,
//! as long as that pays off. Between two looks it lets clients run if they may
//! need the processor.

use crate::ServerHandle;
use crate::admin;
use crate::answer::Answered;
use crate::connection::{self, Connection};
use crate::execute::{self, Job};
use crate::grant;
use crate::inbox::{Arrival, Completion, Inbox};
use crate::limits::{ATTENDED_LANES, CONNECTIONS_PER_PROCESS, TOUCH_DELAY};
use crate::log::Cause;
use crate::spin::{Load, Spin};
use forebay_core::facts::Cred;
use forebay_sys::{self as sys, Epoll, Errno, Event, Sys};
use forebay_wire::{
    Attention, DecodeError, GRANT_BY_NAME, MAX_REPLY_BYTES, MAX_REQUEST_BYTES, Op,
    REPLY_HEADER_BYTES, Reply, ReplyKind, Request,
};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

const LISTENER: u64 = u64::MAX;
const INBOX: u64 = u64::MAX - 1;

/// Looks at lanes, which cost nothing, between two looks at sockets.
const LOOKS_AT_LANES: u32 = 32;

/// One event loop.
pub struct Shard {
    server: Arc<ServerHandle>,
    epoll: Epoll,
    listener: Option<Arc<OwnedFd>>,
    inbox: Arc<Inbox>,
    load: Arc<Load>,
    /// Slot and generation make the key of a connection.
    connections: Vec<Slot>,
    free: Vec<usize>,
    buffer: Box<[u8]>,
    spin: Spin,
    /// Connections whose lanes are attended.
    attended: Vec<u64>,
    /// What their clients have been told.
    said: Attention,
    waiting: usize,
}

struct Slot {
    generation: u32,
    connection: Option<Connection>,
}
/// Looks until a client that may be waiting for our very processor gets it. Only then can it be seen that it does.
const LOOKS_PER_YIELD: u32 = 64;

/// What became of a look at a connection.
enum Look {
    Served,
    Nothing,
}

impl Shard {
    /// A loop that takes connections from `listener`.
    ///
    /// # Errors
    /// No descriptor.
    pub fn new(
        server: Arc<ServerHandle>,
        listener: Arc<OwnedFd>,
        inbox: Arc<Inbox>,
        load: Arc<Load>,
    ) -> Sys<Self> {
        let epoll = Epoll::new()?;
        let once = (libc::EPOLLIN | libc::EPOLLEXCLUSIVE) as u32;
        epoll.add(listener.as_fd(), LISTENER, once)?;
        epoll.add(inbox.signal(), INBOX, libc::EPOLLIN as u32)?;
        Ok(Shard {
            server,
            epoll,
            listener: Some(listener),
            inbox,
            said: Attention {
                cpu: sys::cpu(),
                crowded: false,
            },
            spin: Spin::new(load.join()),
            load,
            connections: Vec::new(),
            free: Vec::new(),
            buffer: vec![0; MAX_REQUEST_BYTES].into_boxed_slice(),
            attended: Vec::new(),
            waiting: 0,
        })
    }

    /// Serves until the bridge stops.
    ///
    /// # Errors
    /// The loop itself failed.
    pub fn run(mut self) -> Sys<()> {
        let mut events = Vec::with_capacity(sys::EVENTS_PER_WAIT);
        let mut last_flush = Instant::now();
        loop {
            if self.server.stopping() {
                self.stop_accepting();
                if self.waiting == 0 {
                    // What has arrived is answered; what comes later finds no bridge.
                    self.epoll.wait(0, &mut events)?;
                    if events.iter().all(|e| e.key == INBOX) {
                        return Ok(());
                    }
                    self.handle(&events);
                    continue;
                }
            }
            let timeout = if self.has_touched() {
                TOUCH_DELAY.as_millis() as i32
            } else {
                -1
            };
            self.epoll.wait(timeout, &mut events)?;
            let served = self.handle(&events);
            if served > 0 {
                self.spin(&mut events)?;
            }
            if self.has_touched() && last_flush.elapsed() >= TOUCH_DELAY {
                self.flush_touches();
                last_flush = Instant::now();
            }
        }
    }

    /// Are there times of directories that are not written yet?
    fn has_touched(&self) -> bool {
        self.server.objects.has_touched() || self.server.lower.times().any_waits()
    }

    fn flush_touches(&self) {
        self.server.objects.flush_touches();
        if !self.server.lower.may_wait() {
            self.server.lower.flush_touches();
        } else if self.server.lower.times().any_waits() {
            let server = self.server.clone();
            // With a full queue they wait for the next round.
            let _ = self
                .server
                .pool
                .submit(move || server.lower.flush_touches());
        }
    }

    fn stop_accepting(&mut self) {
        if let Some(listener) = self.listener.take() {
            let _ = self.epoll.remove(listener.as_fd());
        }
    }

    /// Handles events and returns how many requests were served.
    fn handle(&mut self, events: &[Event]) -> usize {
        let mut served = 0;
        for event in events {
            match event.key {
                LISTENER => self.accept(),
                INBOX => self.take_arrivals(),
                key => {
                    if let Look::Served = self.look(key) {
                        self.spin.note_client(key, None);
                        self.attend(key);
                        served += 1;
                    }
                }
            }
        }
        served
    }

    /// Looks for the next request without sleeping.
    fn spin(&mut self, events: &mut Vec<Event>) -> Sys<()> {
        let mut now = Instant::now();
        self.spin.note_running(&self.load, now);
        if self.spin.is_worth() {
            let mut until = now + self.spin.patience();
            let mut looks = 0;
            loop {
                looks += 1;
                self.stand_ready(now);
                let mut served = self.look_at_lanes();
                if served == 0 && (self.attended.is_empty() || looks % LOOKS_AT_LANES == 0) {
                    self.epoll.wait(0, events)?;
                    served = self.handle(events);
                }
                now = Instant::now();
                if served > 0 {
                    self.spin.learn(true);
                    self.spin.note_running(&self.load, now);
                    if !self.spin.is_worth() || self.server.stopping() {
                        break;
                    }
                    until = now + self.spin.patience();
                } else if now >= until {
                    self.spin.learn(false);
                    break;
                }
                if self.spin.is_crowded() || looks % LOOKS_PER_YIELD == 0 {
                    // To a client. Dearer than looking again, cheaper than going to sleep.
                    std::thread::yield_now();
                } else if served == 0 {
                    std::hint::spin_loop();
                }
            }
        }
        self.leave_lanes();
        Ok(())
    }

    /// Takes a processor of its own, if there is one, and tells the clients where it is.
    fn stand_ready(&mut self, now: Instant) {
        if self.spin.should_move(&self.load, now) {
            let _ = sys::move_to_other_cpu();
        }
        let attention = self.spin.attention(&self.load);
        if self.said == attention {
            return;
        }
        self.said = attention;
        for &key in &self.attended {
            if let Some(connection) = &mut self.connections[key as u32 as usize].connection
                && let Some(lane) = &mut connection.lane
            {
                lane.attend(attention);
            }
        }
    }

    /// Serves what lies in attended lanes; returns how many requests that were.
    fn look_at_lanes(&mut self) -> usize {
        let mut served = 0;
        let mut at = 0;
        while at < self.attended.len() {
            let key = self.attended[at];
            if self.look_at_lane(key) {
                served += 1;
            }
            // Unless that has ended the connection.
            if self.attended.get(at) == Some(&key) {
                at += 1;
            }
        }
        served
    }

    fn look_at_lane(&mut self, key: u64) -> bool {
        let index = key as u32 as usize;
        let Some(connection) = &mut self.connections[index].connection else {
            return false;
        };
        if connection.waiting {
            return false;
        }
        let Some(lane) = &mut connection.lane else {
            return false;
        };
        let Some(len) = lane.take(&mut self.buffer) else {
            return false;
        };
        let cred = lane.cred.clone();
        self.spin.note_client(key, lane.words().client_cpu());
        let buffer = std::mem::take(&mut self.buffer);
        self.server.counters.by_lane();
        self.serve(key, Request::decode(&buffer[..len]), Some(cred));
        self.buffer = buffer;
        true
    }

    /// Looks often at the lane of a connection, if it has one, from now on.
    fn attend(&mut self, key: u64) {
        if self.attended.len() >= ATTENDED_LANES {
            return;
        }
        let attention = self.said;
        if let Some(connection) = self.connection(key)
            && let Some(lane) = &mut connection.lane
            && !lane.is_attended()
        {
            lane.attend(attention);
            self.attended.push(key);
        }
    }

    /// Looks at no lane any more, after having served what is left there.
    fn leave_lanes(&mut self) {
        while let Some(key) = self.attended.pop() {
            let Some(connection) = self.connection(key) else {
                continue;
            };
            let Some(lane) = &mut connection.lane else {
                continue;
            };
            if lane.leave() {
                self.look_at_lane(key);
            }
        }
    }

    fn accept(&mut self) {
        let Some(listener) = self.listener.clone() else {
            return;
        };
        // One per event: the other shards take the others.
        let socket = match grant::accept(listener.as_fd()) {
            Ok(socket) => socket,
            Err(Errno(libc::EAGAIN)) => return,
            Err(e) => {
                self.server.log.limited(
                    Cause::Limit,
                    format_args!("a connection could not be accepted: {e}"),
                );
                return;
            }
        };
        let Ok(connection) = Connection::new(socket) else {
            return;
        };
        let clients = &self.server.clients;
        if let Err(what) = clients.admit(connection.peer.pid, CONNECTIONS_PER_PROCESS) {
            self.server.log.limited(
                Cause::Limit,
                format_args!(
                    "refused a connection of process {}: {what}",
                    connection.peer.pid
                ),
            );
            let refusal = Reply::status(0, libc::EMFILE).header();
            let _ = grant::send(connection.socket().as_fd(), &refusal, b"", None);
            grant::turn_away(connection.socket().as_fd());
            return;
        }
        // Each shard has as many: a shard that is awake would take all.
        let number = self.load.least_busy(self.spin.number());
        match self.server.inbox(number) {
            Some(other) if number != self.spin.number() => other.push(Arrival::Client(connection)),
            _ => self.own(connection),
        }
    }

    /// Serves an admitted connection from now on.
    fn own(&mut self, connection: Connection) {
        self.load.gain(self.spin.number());
        let slot = self.free.pop().unwrap_or_else(|| {
            self.connections.push(Slot {
                generation: 0,
                connection: None,
            });
            self.connections.len() - 1
        });
        let key = (u64::from(self.connections[slot].generation) << 32) | slot as u64;
        let added = self
            .epoll
            .add(connection.socket().as_fd(), key, libc::EPOLLIN as u32);
        self.connections[slot].connection = Some(connection);
        if added.is_err() {
            self.close(key);
        }
    }

    fn connection(&mut self, key: u64) -> Option<&mut Connection> {
        let slot = self.connections.get_mut(key as u32 as usize)?;
        if u64::from(slot.generation) != key >> 32 {
            return None;
        }
        slot.connection.as_mut()
    }

    fn close(&mut self, key: u64) {
        let index = key as u32 as usize;
        if self.connection(key).is_none() {
            return;
        }
        let slot = &mut self.connections[index];
        slot.generation = slot.generation.wrapping_add(1) & 0x7fff_ffff;
        if let Some(connection) = slot.connection.take() {
            self.server.clients.leave(connection.peer.pid);
            self.load.lose(self.spin.number());
            if connection.waiting {
                self.waiting -= 1;
            }
        }
        self.free.push(index);
        self.attended.retain(|&attended| attended != key);
        self.spin.forget(key);
    }

    /// Takes one message from a connection and serves it.
    fn look(&mut self, key: u64) -> Look {
        let mut buffer = std::mem::take(&mut self.buffer);
        let look = self.look_with(key, &mut buffer);
        self.buffer = buffer;
        look
    }

    fn look_with(&mut self, key: u64, buffer: &mut [u8]) -> Look {
        let Some(connection) = self.connection(key).filter(|c| !c.waiting) else {
            return Look::Nothing;
        };
        let received = match grant::receive(connection.socket().as_fd(), buffer) {
            Ok(received) if received.len > 0 => received,
            Err(Errno(libc::EAGAIN | libc::EINTR)) => return Look::Nothing,
            _ => {
                self.close(key);
                return Look::Nothing;
            }
        };
        let cred = connection.cred_of(&received);
        let request = if received.truncated {
            Err(DecodeError::TooLong(received.len))
        } else {
            Request::decode(&buffer[..received.len])
        };
        self.serve(key, request, cred);
        Look::Served
    }

    /// Serves one message.
    fn serve(
        &mut self,
        key: u64,
        request: Result<Request<'_>, DecodeError>,
        cred: Option<Arc<Cred>>,
    ) {
        let server = self.server.clone();
        let (request, cred) = match (request, cred) {
            (Ok(request), Some(cred)) => (request, cred),
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
        match request.op {
            Op::Hello => {
                let answered = Answered::bytes(server.hello());
                self.reply(key, request.seq, answered);
            }
            Op::Lane => self.open_lane(key, request.seq, cred),
            Op::Admin => {
                if cred.uid != 0 && cred.uid != server.uid() {
                    self.reply(key, request.seq, Answered::status(libc::EPERM));
                } else {
                    let answered = admin::answer(&server, request.str1);
                    self.reply(key, request.seq, answered);
                }
            }
            _ => match Job::new(&request, cred) {
                Ok(mut job) => match execute::advance(&server, &mut job, false) {
                    Some(answered) => self.reply(key, request.seq, answered),
                    None => {
                        let handle = server.clone();
                        self.block(key, request.seq, move || {
                            execute::advance(&handle, &mut job, true)
                                .unwrap_or_else(|| Answered::status(libc::EIO))
                        });
                    }
                },
                Err(e) => self.reply(key, request.seq, Answered::status(e.0)),
            },
        }
    }

    /// Shares memory with the client, for requests with these credentials.
    fn open_lane(&mut self, key: u64, seq: u32, cred: Arc<Cred>) {
        let server = self.server.clone();
        let Some(connection) = self.connection(key) else {
            return;
        };
        let opened = match &connection.lane {
            Some(_) => Err(Errno(libc::EALREADY)),
            None => server.lanes.open(cred),
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
                Answered::status(e.0)
            }
        };
        self.reply(key, seq, answered);
    }

    /// Has `work` done where it may block. Until its answer is there, nothing more is read
    /// from the connection.
    fn block(&mut self, key: u64, seq: u32, work: impl FnOnce() -> Answered + Send + 'static) {
        let inbox = self.inbox.clone();
        let submitted = self.server.pool.submit(move || {
            inbox.push(Arrival::Answer(Completion {
                key,
                seq,
                answered: work(),
            }));
        });
        if submitted.is_err() {
            self.server.log.limited(
                Cause::Limit,
                format_args!("too many requests wait for the file system below"),
            );
            self.reply(key, seq, Answered::status(libc::EAGAIN));
            return;
        }
        let slot = &mut self.connections[key as u32 as usize];
        if let Some(connection) = &mut slot.connection {
            connection.waiting = true;
            self.waiting += 1;
            // Also not woken by a client that hangs up meanwhile.
            let _ = self.epoll.remove(connection.socket().as_fd());
        }
    }

    /// Takes what other threads have for us.
    fn take_arrivals(&mut self) {
        for arrival in self.inbox.take() {
            match arrival {
                Arrival::Answer(done) => self.complete(done),
                Arrival::Client(connection) => self.own(connection),
            }
        }
    }

    /// Sends an answer that has come from a thread that may block.
    fn complete(&mut self, done: Completion) {
        let Some(connection) = self.connection(done.key) else {
            return;
        };
        connection.waiting = false;
        self.waiting -= 1;
        self.reply(done.key, done.seq, done.answered);
        // Unless the reply has ended it.
        let slot = &self.connections[done.key as u32 as usize];
        let watched = match &slot.connection {
            Some(c) if u64::from(slot.generation) == done.key >> 32 => self
                .epoll
                .add(c.socket().as_fd(), done.key, libc::EPOLLIN as u32)
                .is_ok(),
            _ => return,
        };
        if !watched {
            self.close(done.key);
        }
    }

    fn refuse(&mut self, key: u64, seq: u32, errno: i32) {
        self.reply(key, seq, Answered::status(errno));
        if let Some(connection) = self.connection(key) {
            grant::turn_away(connection.socket().as_fd());
        }
        self.close(key);
    }

    fn reply(&mut self, key: u64, seq: u32, answered: Answered) {
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
        let mut sent = connection.answer(&reply.header(), body, fd);
        if let Err(Errno(libc::ETOOMANYREFS)) = sent {
            // Clients have not yet taken what they were granted.
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
            Err(Errno(libc::EAGAIN)) => {
                let pid = connection.peer.pid;
                server.log.limited(
                    Cause::Deaf,
                    format_args!("process {pid} does not read its replies: disconnected"),
                );
                self.close(key);
            }
            // Gone, or as good as gone.
            Err(_) => self.close(key),
        }
    }
}
