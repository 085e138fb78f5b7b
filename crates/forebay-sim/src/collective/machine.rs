//! The machine: aggregators, a network, I/O servers and a lock manager, as discrete events in virtual time.
//!
//! A call runs in the rounds of core's exchange plan. In a write, a round begins when all aggregators have issued what
//! they had; its exchange takes as long as that of its busiest aggregator; then each aggregator issues its pieces by
//! offset, one granule at a time: it waits for its write-behind window, then for the lock, then hands the piece to the
//! server. In a read the exchange follows the I/O of its round. The call ends with the last byte on a server.

use super::locks::{LockTable, Locks, Place};
use forebay_core::collective::{Access, ExchangePlan, Extent, Layout};
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, VecDeque};

/// A time or a duration in nanoseconds.
type Nanos = u64;

/// A machine with a file system, and what things cost there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct System {
    /// The lock protocol.
    pub locks: Locks,
    /// I/O servers, all of which hold parts of the file.
    pub servers: u32,
    /// Lock granule and stripe in bytes.
    pub granule_bytes: u64,
    /// Processes on a node; one of them is an aggregator.
    pub ranks_per_node: u32,
    /// Buffer of an aggregator for one round, in bytes.
    pub buffer_bytes: u64,
    /// Bytes that an aggregator has on their way before it waits.
    pub window_bytes: u64,
    /// Rate of one server, in 10^6 bytes per second.
    pub server_mb_s: u64,
    /// What a server needs more for a write that does not continue its last one, in microseconds.
    pub write_seek_us: u64,
    /// The same for a read.
    pub read_seek_us: u64,
    /// Rate of the network of one node, in 10^6 bytes per second.
    pub network_mb_s: u64,
    /// Cost of one message of an exchange at its aggregator, in microseconds.
    pub message_us: u64,
    /// A message to a server or lock manager and its answer, in microseconds.
    pub round_trip_us: u64,
    /// Service time of a lock request, in microseconds.
    pub lock_us: u64,
    /// What it costs a holder to give up a lock, in microseconds.
    pub cancel_us: u64,
}

impl System {
    /// How a file lies on the servers.
    pub fn layout(&self) -> Layout {
        Layout::new(self.granule_bytes, self.servers)
    }
}

/// The direction of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Direction {
    /// Nobody holds a lock at the beginning.
    Write,
    /// Nobody holds a lock at the beginning: the file was opened anew after it was written.
    Read,
}

/// What a call came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// Bytes of all processes: those that several access count for each of them.
    pub bytes: u64,
    /// From the call to the last byte.
    pub nanos: Nanos,
    /// The part of it in which all wait for an exchange.
    pub exchange_nanos: Nanos,
    /// Lock requests.
    pub requests: u64,
    /// Lock requests that took something from a holder.
    pub conflicts: u64,
}

impl Outcome {
    /// The rate in 10^6 bytes per second.
    pub fn mb_s(&self) -> f64 {
        self.bytes as f64 * 1e3 / self.nanos.max(1) as f64
    }

    /// The share of the I/O phase in percent.
    pub fn io_percent(&self) -> f64 {
        100.0 * (self.nanos - self.exchange_nanos) as f64 / self.nanos.max(1) as f64
    }
}

/// What each aggregator does in each round, and how long the exchange of each round takes: by core's plan.
#[derive(Debug)]
pub(super) struct Schedule<'a> {
    plan: &'a ExchangePlan<'a>,
    accesses: &'a [Access],
    /// Numbers of the granules in which nobody accesses a byte.
    holes: BTreeSet<u64>,
    exchange: Vec<Nanos>,
}

impl<'a> Schedule<'a> {
    /// The schedule of a plan on a system.
    pub(super) fn new(system: &System, plan: &'a ExchangePlan<'a>, accesses: &'a [Access]) -> Self {
        let exchange = |round| {
            let windows = (0..plan.domains().aggregators()).filter_map(|a| plan.window(a, round));
            let cost = windows.map(|window| {
                let each = (0..plan.processes()).map(|process| plan.bytes(process, &window));
                let (partners, bytes) = each
                    .filter(|&bytes| bytes > 0)
                    .fold((0, 0), |(count, sum), bytes| (count + 1, sum + bytes));
                transfer(bytes, system.network_mb_s) + partners * micros(system.message_us)
            });
            cost.max().unwrap_or(0)
        };
        Schedule {
            plan,
            accesses,
            holes: holes(accesses, plan),
            exchange: (0..plan.rounds()).map(exchange).collect(),
        }
    }

    /// The pieces of an aggregator in a round, by offset, each within one granule. In a granule that nobody accesses there is none.
    fn pieces(&self, aggregator: usize, round: u64) -> VecDeque<Extent> {
        let granule = self.plan.domains().layout().granule_bytes;
        let window = self.plan.window(aggregator as u32, round);
        let mut pieces = VecDeque::new();
        for piece in window.iter().flat_map(|w| w.pieces()) {
            let mut at = piece.start;
            while at < piece.end {
                let end = piece.end.min((at / granule + 1) * granule);
                let piece = Extent::new(at, end);
                if !self.holes.contains(&(at / granule)) {
                    pieces.push_back(piece);
                }
                at = end;
            }
        }
        pieces
    }
}

/// The granules of a call in which nobody accesses a byte.
fn holes(accesses: &[Access], plan: &ExchangePlan) -> BTreeSet<u64> {
    let (region, granule) = (
        plan.domains().region(),
        plan.domains().layout().granule_bytes,
    );
    let mut holes: BTreeSet<u64> = (region.start / granule..region.end.div_ceil(granule)).collect();
    for access in accesses {
        let mut from = region.start / granule;
        while let Some(&hole) = holes.range(from..).next() {
            let rest = Extent::new(region.start.max(hole * granule), region.end);
            let Some(piece) = access.pieces_within(rest).next() else {
                break;
            };
            let (first, end) = (piece.start / granule, piece.end.div_ceil(granule));
            let found: Vec<u64> = holes.range(first..end).copied().collect();
            for granule in found {
                holes.remove(&granule);
            }
            from = end.max(hole + 1);
        }
    }
    holes
}

/// Runs one call.
pub(super) fn run(system: &System, schedule: &Schedule, direction: Direction) -> Outcome {
    let clients = schedule.plan.domains().aggregators() as usize;
    let mut run = Run {
        system,
        schedule,
        direction,
        locks: LockTable::new(system.locks, system.layout(), direction == Direction::Read),
        clients: (0..clients).map(|_| Client::default()).collect(),
        queues: (0..system.servers).map(|_| Queue::default()).collect(),
        servers: vec![Server::default(); system.servers as usize],
        events: BinaryHeap::new(),
        count: 0,
        now: 0,
        round: 0,
        at_work: 0,
        outcome: Outcome {
            bytes: accessed(schedule.accesses),
            nanos: 0,
            exchange_nanos: 0,
            requests: 0,
            conflicts: 0,
        },
    };
    run.next_round();
    while let Some(Reverse((at, _, event))) = run.events.pop() {
        assert!(at >= run.now, "time runs backwards");
        run.now = at;
        run.happen(event);
    }
    let idle = |c: &Client| c.pieces.is_empty() && c.flights.is_empty();
    assert!(
        run.clients.iter().all(idle) && run.round == schedule.plan.rounds(),
        "a call that does not end"
    );
    run.outcome.nanos = run.now;
    run.outcome
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A client goes on with its next piece.
    Go(usize),
    /// A request of a client arrives at its lock manager.
    Ask(usize),
    /// A lock manager takes up its next request.
    Serve(usize),
    /// A piece of a client is done.
    Done(usize),
    /// All clients begin their round.
    Begin,
}

/// A piece on its way to or from a server.
#[derive(Debug)]
struct Flight {
    place: Option<Place>,
    bytes: u64,
    done: Nanos,
}

#[derive(Debug, Default)]
struct Client {
    /// Pieces of this round that are still to be issued.
    pieces: VecDeque<Extent>,
    flights: Vec<Flight>,
    /// Sum of the flights.
    bytes: u64,
    /// Waits for its window.
    is_full: bool,
    /// Asks for this lock, or has been granted it and has not used it yet.
    wanted: Option<Place>,
    is_granted: bool,
    /// Has issued pieces of this round and not reported their end.
    is_at_work: bool,
}

/// The requests at a lock manager.
#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<usize>,
    is_busy: bool,
    /// The next request waits until this client has used what it was granted.
    stalled_by: Option<usize>,
}

#[derive(Debug, Clone, Default)]
struct Server {
    free: Nanos,
    /// Where its last access ended, in bytes of what it holds of the file.
    end: Option<u64>,
}

struct Run<'a> {
    system: &'a System,
    schedule: &'a Schedule<'a>,
    direction: Direction,
    locks: LockTable,
    clients: Vec<Client>,
    queues: Vec<Queue>,
    servers: Vec<Server>,
    events: BinaryHeap<Reverse<(Nanos, u64, Event)>>,
    /// Events so far: of two at one time the older comes first.
    count: u64,
    now: Nanos,
    /// Rounds that were begun.
    round: u64,
    /// Clients that have not finished their round.
    at_work: usize,
    outcome: Outcome,
}

impl Run<'_> {
    fn at(&mut self, time: Nanos, event: Event) {
        self.count += 1;
        self.events.push(Reverse((time, self.count, event)));
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Begin => self.begin_io(),
            Event::Go(client) => self.go_on(client),
            Event::Ask(client) => {
                let space = self.wanted(client).space;
                self.queues[space].waiting.push_back(client);
                if !self.queues[space].is_busy {
                    self.queues[space].is_busy = true;
                    self.serve(space);
                }
            }
            Event::Serve(space) => self.serve(space),
            Event::Done(client) => {
                let now = self.now;
                let c = &mut self.clients[client];
                let done = c.flights.iter().position(|f| f.done == now);
                let flight = c
                    .flights
                    .swap_remove(done.expect("what is done was on its way"));
                c.bytes -= flight.bytes;
                if std::mem::take(&mut c.is_full) {
                    self.go_on(client);
                } else if c.is_at_work && c.pieces.is_empty() {
                    self.finish_if_done(client);
                }
            }
        }
    }

    /// Begins the next round, after the exchange that lies before it: in a write its own, in a read that of the last one.
    fn next_round(&mut self) {
        let exchanges = &self.schedule.exchange;
        let round = match self.direction {
            Direction::Write => Some(self.round),
            Direction::Read => self.round.checked_sub(1),
        };
        let exchange = round.and_then(|r| exchanges.get(r as usize));
        let exchange = exchange.copied().unwrap_or(0);
        self.outcome.exchange_nanos += exchange;
        self.at(self.now + exchange, Event::Begin);
    }

    fn begin_io(&mut self) {
        if self.round == self.schedule.plan.rounds() {
            return;
        }
        let round = self.round;
        self.round += 1;
        for client in 0..self.clients.len() {
            let pieces = self.schedule.pieces(client, round);
            if !pieces.is_empty() {
                self.clients[client].pieces = pieces;
                self.clients[client].is_at_work = true;
                self.at_work += 1;
                self.at(self.now, Event::Go(client));
            }
        }
        if self.at_work == 0 {
            assert!(
                !self.schedule.holes.is_empty(),
                "a round in which nobody does anything"
            );
            self.next_round();
        }
    }

    /// A client issues pieces until it has to wait for its window or a lock.
    fn go_on(&mut self, client: usize) {
        loop {
            let c = &mut self.clients[client];
            let Some(&piece) = c.pieces.front() else {
                return self.finish_if_done(client);
            };
            if c.bytes >= self.system.window_bytes {
                c.is_full = true;
                return;
            }
            let place = self.locks.place(piece.start);
            if let Some(place) = place
                && !self.locks.holds(client, place)
            {
                c.wanted = Some(place);
                c.is_granted = false;
                self.outcome.requests += 1;
                let half = micros(self.system.round_trip_us) / 2;
                return self.at(self.now + half, Event::Ask(client));
            }
            c.pieces.pop_front();
            self.issue(client, piece, place);
        }
    }

    /// Hands a piece to its server.
    fn issue(&mut self, client: usize, piece: Extent, place: Option<Place>) {
        let (system, layout) = (self.system, self.system.layout());
        let server = &mut self.servers[layout.server_of(piece.start) as usize];
        let granule = layout.granule_of(piece.start) / u64::from(layout.servers);
        let begin = granule * layout.granule_bytes + piece.start % layout.granule_bytes;
        let seek = match self.direction {
            _ if server.end == Some(begin) => 0,
            Direction::Write => system.write_seek_us,
            Direction::Read => system.read_seek_us,
        };
        let half = micros(system.round_trip_us) / 2;
        let service = transfer(piece.bytes(), system.server_mb_s) + micros(seek);
        server.free = server.free.max(self.now + half) + service;
        server.end = Some(begin + piece.bytes());
        let done = server.free + half;
        let c = &mut self.clients[client];
        c.bytes += piece.bytes();
        c.flights.push(Flight {
            place,
            bytes: piece.bytes(),
            done,
        });
        c.wanted = None;
        self.at(done, Event::Done(client));
        if let Some(place) = place {
            self.locks.used(place);
            let queue = &mut self.queues[place.space];
            if queue.stalled_by == Some(client) {
                queue.stalled_by = None;
                self.at(self.now, Event::Serve(place.space));
            }
        }
    }

    /// A lock manager takes up its next request. It serves one at a time, negotiation included.
    fn serve(&mut self, space: usize) {
        let Some(&client) = self.queues[space].waiting.front() else {
            self.queues[space].is_busy = false;
            return;
        };
        let place = self.wanted(client);
        let others = self.queues[space].waiting.iter().skip(1);
        let verdict = self
            .locks
            .judge(place, others.map(|c| self.wanted(*c).unit));
        let mut ready = self.now;
        if let Some((holder, lost)) = &verdict.lost {
            let holder = *holder;
            let inside = |p: Place| p.space == space && lost.contains(&p.unit);
            let h = &self.clients[holder];
            if h.is_granted && h.wanted.is_some_and(inside) {
                self.queues[space].stalled_by = Some(holder);
                return;
            }
            let under_way = h.flights.iter().filter(|f| f.place.is_some_and(inside));
            let asked = self.now + micros(self.system.round_trip_us);
            ready = under_way.map(|f| f.done).fold(asked, Nanos::max);
            ready += micros(self.system.cancel_us);
            self.outcome.conflicts += 1;
        }
        self.queues[space].waiting.pop_front();
        self.locks.grant(client, place, &verdict);
        self.clients[client].is_granted = true;
        let answered = ready + micros(self.system.lock_us);
        let half = micros(self.system.round_trip_us) / 2;
        self.at(answered + half, Event::Go(client));
        self.at(answered, Event::Serve(space));
    }

    /// Ends the round of a client that has issued everything, and the round when it was the last. Where groups take
    /// turns, and in a read, it waits for its servers first.
    fn finish_if_done(&mut self, client: usize) {
        let plan = self.schedule.plan;
        let is_next_turn =
            self.round > 0 && plan.turn_of(self.round) > plan.turn_of(self.round - 1);
        let waits = self.direction == Direction::Read || is_next_turn;
        let c = &mut self.clients[client];
        assert!(c.is_at_work && c.pieces.is_empty(), "a round ends once");
        if waits && !c.flights.is_empty() {
            return;
        }
        c.is_at_work = false;
        self.at_work -= 1;
        if self.at_work == 0 {
            self.next_round();
        }
    }

    fn wanted(&self, client: usize) -> Place {
        self.clients[client]
            .wanted
            .expect("a request has its place")
    }
}

/// Bytes of all processes.
fn accessed(accesses: &[Access]) -> u64 {
    let bytes = accesses.iter().map(Access::bytes);
    bytes.fold(0, u64::saturating_add)
}

fn micros(n: u64) -> Nanos {
    n * 1000
}

/// The time for bytes at a rate in 10^6 bytes per second, rounded up.
fn transfer(bytes: u64, mb_s: u64) -> Nanos {
    (bytes * 1000).div_ceil(mb_s)
}
