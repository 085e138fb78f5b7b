//! One event loop. It owns its connections: nothing about them is shared.
//!
//! A request is served to its end where it arrives, unless it has to wait for
//! the PFS. Waking a sleeping thread costs ten times what serving a request
//! does, so after a request the loop looks for the next one for a short while,
//! as long as that pays off. Between two looks it lets clients run if they may
//! need the processor.

use crate::ServerHandle;
use crate::connection::Connection;
use crate::inbox::Inbox;
use crate::limits::{ACCEPT_PAUSE, ATTENDED_LANES, PAUSE, STOP_PATIENCE, TOUCH_DELAY};
use crate::spin::{Load, Spin};
use crate::work::Work;
use forebay_core::bridge::Ticket;
use forebay_core::request::Parking;
use forebay_sys::{self as sys, Epoll, Event, Sys};
use forebay_wire::{Attention, MAX_REQUEST_BYTES, Request};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

mod clients;
mod requests;

const LISTENER: u64 = u64::MAX;
/// Of all loops that wait for a connection, one is woken.
const ONE_OF_ALL: u32 = (libc::EPOLLIN | libc::EPOLLEXCLUSIVE) as u32;
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
    /// What the clients of these lanes were told last.
    said: Attention,
    /// Connections with a request that is not answered yet.
    waiting: usize,
    parking: Parking<Parked>,
    /// Requests that go on after a short time.
    paused: Vec<Ticket>,
    /// Since when the listener is not watched, because there was no descriptor for a connection.
    deaf_since: Option<Instant>,
}

/// A request that waits for the outcome of an effect.
struct Parked {
    /// `None` while it is lent to a thread that may block.
    work: Option<Box<Work>>,
    key: u64,
    seq: u32,
}

struct Slot {
    generation: u32,
    connection: Option<Connection>,
}

/// Polls this often before it yields the core: a client on the same core cannot show itself earlier.
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
        epoll.add(listener.as_fd(), LISTENER, ONE_OF_ALL)?;
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
            parking: Parking::default(),
            paused: Vec::new(),
            deaf_since: None,
        })
    }

    /// Serves until the bridge stops. True if every request was answered that had arrived. The others meet the next bridge:
    /// their clients send them again.
    ///
    /// # Errors
    /// The loop itself failed.
    pub fn run(mut self) -> Sys<bool> {
        let mut events = Vec::with_capacity(sys::EVENTS_PER_WAIT);
        let mut last_flush = Instant::now();
        let mut stops_by = None;
        loop {
            if self.server.stopping() {
                self.stop_accepting();
                let by = *stops_by.get_or_insert_with(|| Instant::now() + STOP_PATIENCE);
                if Instant::now() >= by {
                    return Ok(false);
                }
                if self.waiting == 0 {
                    // What has arrived is answered; what comes later finds no bridge.
                    self.epoll.wait(0, &mut events)?;
                    if events.iter().all(|e| e.key == INBOX) {
                        return Ok(true);
                    }
                    self.handle(&events);
                    continue;
                }
            }
            self.listen_again();
            let timeout = if !self.paused.is_empty() {
                PAUSE.as_millis() as i32
            } else if self.has_touched() || stops_by.is_some() {
                TOUCH_DELAY.as_millis() as i32
            } else if self.deaf_since.is_some() {
                ACCEPT_PAUSE.as_millis() as i32
            } else {
                -1
            };
            self.epoll.wait(timeout, &mut events)?;
            let served = self.handle(&events);
            for ticket in std::mem::take(&mut self.paused) {
                self.go_on(ticket, |_, _| {});
            }
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
            let own = server.uid();
            // If the queue is full, the next round tries again.
            let _ = self
                .server
                .pool
                .submit(own, move || server.lower.flush_touches());
        }
    }

    /// Takes no connection for a while.
    fn go_deaf(&mut self) {
        if let Some(listener) = &self.listener {
            let _ = self.epoll.remove(listener.as_fd());
            self.deaf_since = Some(Instant::now());
        }
    }

    fn listen_again(&mut self) {
        let is_over = |since: Instant| since.elapsed() >= ACCEPT_PAUSE;
        if !self.deaf_since.is_some_and(is_over) {
            return;
        }
        let Some(listener) = &self.listener else {
            self.deaf_since = None;
            return;
        };
        self.deaf_since = match self.epoll.add(listener.as_fd(), LISTENER, ONE_OF_ALL) {
            Ok(()) => None,
            Err(_) => Some(Instant::now()),
        };
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
        if let Some(patience) = self.spin.patience() {
            let mut until = now + patience;
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
                    match self.spin.patience() {
                        Some(patience) if !self.server.stopping() => until = now + patience,
                        _ => break,
                    }
                } else if now >= until {
                    self.spin.learn(false);
                    break;
                }
                if self.spin.is_crowded() || looks % LOOKS_PER_YIELD == 0 {
                    // Lets a client run. That costs more than another look, and less than going to sleep.
                    std::thread::yield_now();
                } else if served == 0 {
                    std::hint::spin_loop();
                }
            }
        }
        self.leave_lanes();
        Ok(())
    }

    /// Moves to a free processor if it shares one, and tells the clients on which processor it runs.
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
            // A connection that has ended is not in the list any more.
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
            debug_assert!(
                self.attended.len() <= ATTENDED_LANES,
                "a shard attends to {} lanes",
                self.attended.len()
            );
        }
    }

    /// Stops looking at lanes. Serves the requests that are still in them.
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
}
