//! The client side of the protocol for libraries that live in a foreign process, such as the preload library.
//!
//! It uses no std, no allocation and no thread-local storage, and never waits for a lock: a request may come before
//! `main`, from a signal handler, from a child of `vfork`, or after the program has closed all descriptors. It leaves
//! `errno` as it is.
//!
//! A library has one [`Link`] in a `static`. [`Link::ask`] makes one request and waits for its answer.
//! [`Link::begin`] hands a request over and returns a [`Ticket`]; [`Ticket::finish`] collects the answer later. Each
//! request in flight has its own connection. So a slow request delays no other, and answers may be collected in any
//! order.
//!
//! ```no_run
//! use forebay_link::{Answer, Config, Link};
//! use forebay_wire::{MAX_REQUEST_BYTES, Op, Request};
//! static LINK: Link = Link::new();
//! static CONFIG: Config = Config::EMPTY; // filled by Config::read
//! let stat = |path| Request { str1: path, ..Request::new(Op::Stat) };
//! let (mut one, mut other) = (Answer::new(), Answer::new());
//! let (mut first, mut second) = ([0; MAX_REQUEST_BYTES], [0; MAX_REQUEST_BYTES]);
//! let a = LINK.begin(&CONFIG, &mut stat(b"a"), true, &mut first, &mut one)?;
//! let b = LINK.begin(&CONFIG, &mut stat(b"b"), true, &mut second, &mut other)?;
//! b.finish()?;
//! a.finish()?;
//! # Ok::<(), forebay_link::Fail>(())
//! ```
//!
//! | module | what it does |
//! |---|---|
//! | [`config`] | where the bridge is |
//! | [`process`] | state that a child must not inherit |
//! | [`pool`] | connections |
//! | [`exchange`] | one request, one reply |
//! | [`durability`] | whether names are durable |
//! | [`look`] | attributes without a message |
//! | [`search`] | where an open directory is |
//! | [`lane`], [`socket`] | the two ways of a request to the bridge |
//! | [`spin`], [`retry`] | how long to poll, and how often to try |
//! | [`complaint`] | messages when the bridge can't be reached |
#![no_std]
// Libraries in programs map memory and pass descriptors without the standard library.
#![allow(unsafe_code)]
#![allow(rustdoc::private_intra_doc_links)]

mod answer;
mod complaint;
mod config;
mod durability;
mod exchange;
mod lane;
mod look;
mod pool;
mod process;
pub mod retry;
mod search;
mod socket;
mod spin;

use core::ffi::c_int;
use core::mem;
use core::sync::atomic::{AtomicBool, Ordering};

use forebay_hook::fork::ForkPage;
use forebay_hook::kernel::{self, Errno, OwnFd};
use forebay_wire::{Attr, MAX_REQUEST_BYTES, Names, Op, REPLY_HEADER_BYTES, Request};

pub use answer::{Answer, Fail};
pub use config::{Config, ENV_RECONNECT, Text};
pub use search::ask_where_it_is;
pub use socket::to_high_number;

use durability::Durability;
use exchange::{Exchange, Sent};
use look::Looks;
use pool::{Doors, Lease, Use};
use process::Process;
use socket::{Broken, Room};

/// Requests up to this size are built in a small frame, because most are.
const SHORT_REQUEST_BYTES: usize = 512;

/// The connections of a process to its bridge. A process has one per library, in a `static`.
pub struct Link {
    process: ForkPage<Process>,
    doors: Doors,
    durability: Durability,
    looks: Looks,
    /// A bridge has answered this process, or the one that it was forked from.
    attached: AtomicBool,
}

impl Link {
    /// No connection yet.
    pub const fn new() -> Self {
        Link {
            process: ForkPage::new(),
            doors: Doors::new(),
            durability: Durability::new(),
            looks: Looks::new(),
            attached: AtomicBool::new(false),
        }
    }

    /// The state of this process, and its pid. The state is `None` in a child that shares its parent's memory.
    fn own(&self) -> (Option<&'static Process>, c_int) {
        let pid = kernel::getpid();
        let mine = |process: &&Process| process.claim(pid, || self.doors.forget_inherited());
        (self.process.get().filter(mine), pid)
    }

    /// True if this process owns its memory; false in a child of `vfork`.
    pub fn is_owner(&self) -> bool {
        self.own().0.is_some()
    }

    /// Claims the state for this process. For load time, while there is one thread.
    pub fn start(&self) {
        self.own();
    }

    /// Claims the state for a forked child. Without this, a child that calls `vfork` before its first request would
    /// lose the state to its own child. For a fork handler.
    ///
    /// # Safety
    /// The calling thread is the only one of a new process.
    pub unsafe fn after_fork_in_child(&self) {
        // SAFETY: the caller's promise.
        unsafe { self.process.wipe() };
        self.own();
    }

    /// Makes later requests connect anew, because the process has changed its user or groups.
    pub fn identity_changed(&self) {
        if let (Some(process), _) = self.own() {
            process.identity_changed();
        }
    }

    /// True if `fd` is one of the connections, which the program does not know.
    #[inline]
    pub fn is_ours(&self, fd: c_int) -> bool {
        self.doors.is_ours(fd)
    }

    /// Closes the connection at the number `fd`, if there is one. False if a request is using it.
    pub fn make_way(&self, fd: c_int) -> bool {
        if !self.is_ours(fd) {
            return true;
        }
        match self.own() {
            (Some(process), _) => self.doors.make_way(process, fd),
            // A child of `vfork` has its own descriptors, so nothing has to be closed in the shared memory.
            (None, _) => true,
        }
    }

    /// The lowest number from `first` to `last` that is a connection.
    pub fn next_connection(&self, first: u32, last: u32) -> Option<u32> {
        let lowest = self.doors.within(first, last).min();
        lowest.map(|fd| fd as u32)
    }

    /// Closes every connection from `first` to `last` that no request is using.
    pub fn make_way_for_range(&self, first: u32, last: u32) {
        for fd in self.doors.within(first, last) {
            self.make_way(fd);
        }
    }

    /// Sends `request` and waits for the answer. With `cloexec` a granted descriptor closes on exec. Fills in client,
    /// number and retry mark of the request.
    ///
    /// # Errors
    /// The error that the bridge answers; those of [`Fail::Errno`]; `ENAMETOOLONG` if the request is too long.
    pub fn ask(
        &self,
        config: &Config,
        request: &mut Request<'_>,
        cloexec: bool,
        answer: &mut Answer,
    ) -> Result<(), Fail> {
        let room = answer.clear(cloexec);
        let got = self.exchange(config, request, &room)?;
        answer.fill(got)
    }

    /// Like [`Link::ask`], for what is not worth any wait: EIO if the bridge is not there now.
    ///
    /// # Errors
    /// As [`Link::ask`].
    pub fn ask_at_once(
        &self,
        config: &Config,
        request: &mut Request<'_>,
        answer: &mut Answer,
    ) -> Result<(), Fail> {
        let room = answer.clear(true);
        let got = self.exchange_with(config, request, &room, false)?;
        answer.fill(got)
    }

    /// Like [`Link::ask`], for a listing: the reply goes into memory of the caller. Returns the length of the body and
    /// `aux`.
    ///
    /// # Errors
    /// As [`Link::ask`].
    ///
    /// # Safety
    /// `out` is writable for `bytes`.
    pub unsafe fn ask_long(
        &self,
        config: &Config,
        request: &mut Request<'_>,
        out: *mut u8,
        bytes: usize,
    ) -> Result<(usize, u64), Fail> {
        // SAFETY: the caller's promise.
        let room = unsafe { Room::new(out, bytes, true) };
        let got = self.exchange(config, request, &room)?;
        let reply = room.reply(got.len).map_err(|_| libc::EIO)?;
        answer::verdict(reply.status)?;
        Ok((reply.body.len(), reply.aux))
    }

    fn exchange(
        &self,
        config: &Config,
        request: &mut Request<'_>,
        room: &Room,
    ) -> Result<socket::Received, Errno> {
        self.exchange_with(config, request, room, true)
    }

    fn exchange_with(
        &self,
        config: &Config,
        request: &mut Request<'_>,
        room: &Room,
        waits: bool,
    ) -> Result<socket::Received, Errno> {
        let mut short = [0u8; SHORT_REQUEST_BYTES];
        let own = self.own();
        let exchange = Exchange::new(config, own, request);
        let exchange = if waits { exchange } else { exchange.at_once() };
        let lease = Lease::take(&self.doors, own.0, Use::InThisCall);
        let outcome = match request.encode(&mut short) {
            Ok(n) => exchange.run(lease, &mut short[..n], room),
            Err(_) => run_long(&exchange, lease, request, room),
        };
        if outcome.is_ok() {
            self.attach();
        }
        outcome
    }

    fn attach(&self) {
        if !self.is_attached() {
            self.attached.store(true, Ordering::Relaxed);
        }
    }

    /// True if a bridge has answered this process, or the one that it was forked from.
    pub fn is_attached(&self) -> bool {
        self.attached.load(Ordering::Relaxed)
    }

    /// What the bridge says about the names of its buffer. This costs no system call. `Unknown` until
    /// [`Link::learn_names`] has been called, and after the death of the bridge.
    #[inline]
    pub fn names(&self) -> Names {
        self.durability.names()
    }

    /// True if the bridge says that this commit is durable. This costs no system call.
    pub fn is_durable(&self, commit: u64) -> bool {
        self.durability.is_durable(commit)
    }

    /// [`Link::names`]. If that is not known, asks the bridge for the memory that says it. `Unknown` if there is no such
    /// memory to be had.
    pub fn learn_names(&self, config: &Config) -> Names {
        let names = self.names();
        if names != Names::Unknown {
            return names;
        }
        if let Some(memory) = self.memory(config, Op::Words) {
            self.durability.map(&memory);
        }
        self.names()
    }

    /// Asks the bridge for memory to read.
    fn memory(&self, config: &Config, which: Op) -> Option<OwnFd> {
        let mut header = [0u8; REPLY_HEADER_BYTES];
        // SAFETY: the array outlives the room.
        let room = unsafe { Room::new(header.as_mut_ptr(), header.len(), true) };
        let got = self.exchange(config, &mut Request::new(which), &room);
        got.ok()?.fd
    }

    /// Attributes of the file at `path` below the root of the buffer, if they can be had without asking the bridge.
    #[inline]
    pub fn look(&self, config: &Config, path: &[u8]) -> Option<Attr> {
        let is_alive = |life| self.durability.is_alive(life);
        let found = self.looks.stat(config, path, is_alive);
        if found.is_none() && self.looks.is_due() {
            self.learn_looks(config);
        }
        found
    }

    #[inline(never)]
    fn learn_looks(&self, config: &Config) {
        if self.learn_names(config) != Names::Unknown
            && let Some(memory) = self.memory(config, Op::NameTable)
        {
            self.looks.map(&memory);
        }
    }

    /// Encodes `request` into `message` and hands it over, without waiting for its answer. [`Ticket::finish`] puts the
    /// answer into `answer`. The call waits for the bridge only when a connection gets its lane, once per connection.
    /// [`MAX_REQUEST_BYTES`] are enough for any `message`. The other arguments are those of [`Link::ask`].
    ///
    /// Up to 16 requests in flight use lasting connections; each further request makes its own.
    ///
    /// # Errors
    /// `ENAMETOOLONG`: the request does not fit `message`. [`Ticket::finish`] reports all other errors.
    pub fn begin<'a>(
        &'a self,
        config: &'a Config,
        request: &mut Request<'_>,
        cloexec: bool,
        message: &'a mut [u8],
        answer: &'a mut Answer,
    ) -> Result<Ticket<'a>, Fail> {
        let own = self.own();
        let exchange = Exchange::new(config, own, request);
        let len = request.encode(message).map_err(|_| libc::ENAMETOOLONG)?;
        let message = &mut message[..len];
        let mut lease = Lease::take(&self.doors, own.0, Use::Beyond);
        let sent = exchange.start(&mut lease, message);
        Ok(Ticket(Some(InFlight {
            link: self,
            exchange,
            lease,
            message,
            sent,
            cloexec,
            answer,
        })))
    }
}

impl Default for Link {
    fn default() -> Self {
        Link::new()
    }
}

#[inline(never)]
fn run_long(
    exchange: &Exchange<'_>,
    lease: Lease<'_>,
    request: &Request<'_>,
    room: &Room,
) -> Result<socket::Received, Errno> {
    let mut long = [0u8; MAX_REQUEST_BYTES];
    let n = request.encode(&mut long).map_err(|_| libc::ENAMETOOLONG)?;
    exchange.run(lease, &mut long[..n], room)
}

/// A request in flight. If the ticket is dropped, the answer is lost, but the bridge may carry the request out.
#[must_use = "the answer is collected by finish()"]
pub struct Ticket<'a>(Option<InFlight<'a>>);

struct InFlight<'a> {
    link: &'a Link,
    exchange: Exchange<'a>,
    lease: Lease<'a>,
    message: &'a mut [u8],
    sent: Result<Sent, Broken>,
    cloexec: bool,
    answer: &'a mut Answer,
}

impl InFlight<'_> {
    /// True in a forked child of the process that asked.
    fn is_inherited(&self) -> bool {
        kernel::getpid() != self.exchange.pid()
    }
}

impl Ticket<'_> {
    /// True if [`Ticket::finish`] would return without waiting for the bridge. After a broken connection it may still
    /// wait for a new one.
    pub fn is_ready(&self) -> bool {
        self.0
            .as_ref()
            .is_none_or(|r| Exchange::is_ready(&r.lease, &r.sent))
    }

    /// Waits for the answer, which goes into the [`Answer`] that [`Link::begin`] was given.
    ///
    /// # Errors
    /// As [`Link::ask`]. `ECHILD` in a forked child, because the answer belongs to its parent.
    pub fn finish(mut self) -> Result<(), Fail> {
        let Some(mut flight) = self.0.take() else {
            return Err(Fail::Errno(libc::EINVAL));
        };
        if flight.is_inherited() {
            self.0 = Some(flight);
            return Err(Fail::Errno(libc::ECHILD));
        }
        let room = flight.answer.clear(flight.cloexec);
        let got = flight
            .exchange
            .finish(&mut flight.lease, flight.message, flight.sent, &room)?;
        flight.link.attach();
        flight.answer.fill(got)
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        if let Some(flight) = self.0.take()
            && flight.is_inherited()
        {
            // The slot was the parent's. In this process another request may hold it by now.
            mem::forget(flight);
        }
    }
}
