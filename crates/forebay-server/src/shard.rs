//! One event loop. It owns its connections: nothing about them is shared.
//!
//! A request is served to its end where it arrives, unless it has to wait for
//! the PFS. Waking a sleeping thread costs ten times what serving a request
//! does, so after a request the loop looks for the next one for a short while,
//! as long as that pays off. Between two looks it lets clients run if they may
//! need the processor.

use crate::ServerHandle;
use crate::answer::Answered;
use crate::connection::{self, Connection};
use crate::execute::{self, Job};
use crate::grant;
use crate::limits::{CONNECTIONS_PER_PROCESS, TOUCH_DELAY};
use crate::log::Cause;
use crate::sys::{self, Epoll, Errno, Event, Sys};
use forebay_wire::{MAX_REPLY_BYTES, MAX_REQUEST_BYTES, Op, REPLY_HEADER_BYTES, Reply, Request};
use parking_lot::Mutex;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const LISTENER: u64 = u64::MAX;
const INBOX: u64 = u64::MAX - 1;

/// How long to look for the next request before sleeping.
const SPIN: Duration = Duration::from_micros(60);
/// Looks at the last connection between two looks at all.
const LOOKS_AT_LAST: u32 = 6;
/// Success of spinning, in 1024ths, as a moving average; below this it is not worth it.
const SPIN_WORTH: u32 = 256;
/// When it was not worth it, try again once in so many rounds.
const SPIN_RETRY: u32 = 32;
/// A client counts as running for so long after its last request.
const RUNNING: Duration = Duration::from_micros(200);

/// An answer that comes from a thread that may block.
struct Completion {
    key: u64,
    seq: u32,
    answered: Answered,
}

/// Where answers for the connections of a shard arrive.
pub struct Inbox {
    queue: Mutex<Vec<Completion>>,
    wake: OwnedFd,
}

impl Inbox {
    /// An empty one.
    ///
    /// # Errors
    /// No descriptor.
    pub fn new() -> Sys<Arc<Self>> {
        Ok(Arc::new(Inbox {
            queue: Mutex::default(),
            wake: sys::eventfd()?,
        }))
    }

    fn push(&self, completion: Completion) {
        self.queue.lock().push(completion);
        sys::notify(self.wake.as_fd());
    }

    /// Wakes the shard.
    pub fn wake(&self) {
        sys::notify(self.wake.as_fd());
    }
}

/// What the shards know of each other: how many clients are running, for spinning.
pub struct Load {
    start: Instant,
    next: AtomicUsize,
    /// Of each shard: when it last counted (microseconds since `start`), and how many it counted.
    counts: Box<[AtomicU64]>,
}

/// Bits of an entry of [`Load::counts`] that hold the count.
const COUNT_BITS: u32 = 16;

impl Load {
    /// Of so many shards.
    pub fn new(shards: usize) -> Self {
        Load {
            start: Instant::now(),
            next: AtomicUsize::new(0),
            counts: (0..shards).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    fn micros(&self, at: Instant) -> u64 {
        (at - self.start).as_micros() as u64
    }

    fn tell(&self, shard: usize, count: usize, now: Instant) {
        let count = count.min((1 << COUNT_BITS) - 1) as u64;
        self.counts[shard].store(self.micros(now) << COUNT_BITS | count, Ordering::Relaxed);
    }

    /// Clients that are running now. What a shard said before it went to sleep soon counts no more.
    fn running(&self, now: Instant) -> usize {
        let now = self.micros(now);
        self.counts
            .iter()
            .map(|entry| entry.load(Ordering::Relaxed))
            .filter(|entry| now.saturating_sub(entry >> COUNT_BITS) < RUNNING.as_micros() as u64)
            .map(|entry| entry as usize & ((1 << COUNT_BITS) - 1))
            .sum()
    }
}

/// One event loop.
pub struct Shard {
    server: Arc<ServerHandle>,
    epoll: Epoll,
    listener: Option<Arc<OwnedFd>>,
    inbox: Arc<Inbox>,
    load: Arc<Load>,
    /// Its place in `load`.
    number: usize,
    /// Slot and generation make the key of a connection.
    connections: Vec<Slot>,
    free: Vec<usize>,
    buffer: Box<[u8]>,
    spin: Spin,
    /// Connections of this shard that count as running, with the time of their last request.
    running: Vec<(u64, Instant)>,
    waiting: usize,
}

struct Slot {
    generation: u32,
    connection: Option<Connection>,
}

/// Whether spinning pays off.
struct Spin {
    worth: u32,
    idle_rounds: u32,
    cores: usize,
    last: Option<u64>,
}

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
        epoll.add(inbox.wake.as_fd(), INBOX, libc::EPOLLIN as u32)?;
        Ok(Shard {
            server,
            epoll,
            listener: Some(listener),
            inbox,
            number: load.next.fetch_add(1, Ordering::Relaxed),
            load,
            connections: Vec::new(),
            free: Vec::new(),
            buffer: vec![0; MAX_REQUEST_BYTES].into_boxed_slice(),
            spin: Spin {
                worth: 1024,
                idle_rounds: 0,
                cores: std::thread::available_parallelism().map_or(1, usize::from),
                last: None,
            },
            running: Vec::new(),
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
                INBOX => self.complete(),
                key => {
                    if let Look::Served = self.look(key) {
                        self.spin.last = Some(key);
                        served += 1;
                    }
                }
            }
        }
        served
    }

    /// Looks for the next request without sleeping.
    fn spin(&mut self, events: &mut Vec<Event>) -> Sys<()> {
        let start = Instant::now();
        self.note_running(start);
        if !self.worth_spinning() {
            return Ok(());
        }
        let mut crowded = self.is_crowded(start);
        let mut until = start + SPIN;
        let mut looks = 0;
        loop {
            looks += 1;
            let mut served = 0;
            match self.spin.last {
                Some(key) if !crowded && looks % LOOKS_AT_LAST != 0 => {
                    if let Look::Served = self.look(key) {
                        served = 1;
                    }
                }
                _ => {
                    self.epoll.wait(0, events)?;
                    served = self.handle(events);
                }
            }
            let now = Instant::now();
            if served > 0 {
                self.spin.worth += (1024 - self.spin.worth) / 8;
                self.note_running(now);
                if !self.worth_spinning() || self.server.stopping() {
                    return Ok(());
                }
                crowded = self.is_crowded(now);
                until = now + SPIN;
            } else if now >= until {
                self.spin.worth -= self.spin.worth / 8;
                return Ok(());
            } else if crowded {
                // To a client. Dearer than looking again, cheaper than going to sleep.
                std::thread::yield_now();
            }
        }
    }

    /// Are there more clients running than processors beside ours?
    fn is_crowded(&self, now: Instant) -> bool {
        self.load.running(now) + 1 > self.spin.cores
    }

    fn worth_spinning(&mut self) -> bool {
        if self.spin.worth >= SPIN_WORTH {
            return true;
        }
        self.spin.idle_rounds += 1;
        if self.spin.idle_rounds >= SPIN_RETRY {
            self.spin.idle_rounds = 0;
            self.spin.worth = SPIN_WORTH;
            return true;
        }
        false
    }

    /// Counts the last connection among those whose clients are running.
    fn note_running(&mut self, now: Instant) {
        if let Some(last) = self.spin.last {
            match self.running.iter_mut().find(|(key, _)| *key == last) {
                Some(entry) => entry.1 = now,
                None => self.running.push((last, now)),
            }
        }
        self.running.retain(|(_, at)| now - *at < RUNNING);
        self.load.tell(self.number, self.running.len(), now);
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
            if connection.waiting {
                self.waiting -= 1;
            }
        }
        self.free.push(index);
        if self.spin.last == Some(key) {
            self.spin.last = None;
        }
    }

    /// Takes one message from a connection and serves it.
    fn look(&mut self, key: u64) -> Look {
        let mut buffer = std::mem::take(&mut self.buffer);
        let look = self.look_with(key, &mut buffer);
        self.buffer = buffer;
        look
    }

    fn look_with(&mut self, key: u64, buffer: &mut [u8]) -> Look {
        let server = self.server.clone();
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
        let pid = connection.peer.pid;
        let request = if received.truncated {
            Err("longer than a request may be".to_owned())
        } else {
            Request::decode(&buffer[..received.len]).map_err(|e| e.to_string())
        };
        let (request, cred) = match (request, cred) {
            (Ok(request), Some(cred)) => (request, cred),
            (Err(what), _) => {
                server.log.limited(
                    Cause::Malformed,
                    format_args!("process {pid} sent a message that is no request: {what}"),
                );
                self.refuse(key, 0, libc::EPROTO);
                return Look::Served;
            }
            (_, None) => {
                self.refuse(key, 0, libc::EPROTO);
                return Look::Served;
            }
        };
        if !connection::serves(&server, cred.uid) {
            self.refuse(key, request.seq, libc::EPERM);
            return Look::Served;
        }
        server.counters.request(request.op);
        match request.op {
            Op::Hello => {
                let answered = Answered::bytes(server.hello());
                self.reply(key, request.seq, answered);
            }
            Op::Admin => {
                if cred.uid != 0 && cred.uid != server.uid() {
                    self.reply(key, request.seq, Answered::status(libc::EPERM));
                } else {
                    let command = request.str1.to_vec();
                    let handle = server.clone();
                    self.block(key, request.seq, move || {
                        Answered::bytes(handle.administer(&command, &cred))
                    });
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
        Look::Served
    }

    /// Has `work` done where it may block. Until its answer is there, nothing more is read
    /// from the connection.
    fn block(&mut self, key: u64, seq: u32, work: impl FnOnce() -> Answered + Send + 'static) {
        let inbox = self.inbox.clone();
        let submitted = self.server.pool.submit(move || {
            inbox.push(Completion {
                key,
                seq,
                answered: work(),
            });
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

    /// Sends answers that have come from threads that may block.
    fn complete(&mut self) {
        sys::drain(self.inbox.wake.as_fd());
        let completions = std::mem::take(&mut *self.inbox.queue.lock());
        for done in completions {
            let Some(connection) = self.connection(done.key) else {
                continue;
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
                _ => continue,
            };
            if !watched {
                self.close(done.key);
            }
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
            (status, kind, body) = (libc::EMSGSIZE, forebay_wire::ReplyKind::Empty, b"");
        }
        let reply = Reply {
            status,
            seq,
            kind,
            aux: answered.aux,
            body,
        };
        let socket = connection.socket().as_fd();
        let mut sent = grant::send(
            socket,
            &reply.header(),
            body,
            answered.fd.as_ref().map(AsFd::as_fd),
        );
        if let Err(Errno(libc::ETOOMANYREFS)) = sent {
            // Clients have not yet taken what they were granted.
            server.log.limited(
                Cause::Limit,
                format_args!("too many descriptors are on their way to clients"),
            );
            let refusal = Reply::status(seq, libc::EMFILE).header();
            sent = grant::send(socket, &refusal, b"", None);
        } else if answered.fd.is_some() {
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
