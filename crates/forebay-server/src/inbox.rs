//! The inbox of a shard: outcomes of tasks that may block, events that parked requests waited for, answers of the
//! thread that makes commits durable, and connections that another shard has accepted for it.

use crate::connection::Connection;
use crate::durability::Waits;
use crate::work::{Outcome, Stand, Work};
use forebay_core::bridge::Ticket;
use forebay_sys::{self as sys, Sys};
use parking_lot::Mutex;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// One thing that arrives.
pub enum Arrival {
    /// The outcome of a task, for the request that is parked under this ticket.
    Outcome(Ticket, Outcome),
    /// The request that is parked under this ticket, which was advanced elsewhere, and where it stands.
    Advanced(Ticket, Box<Work>, Stand),
    /// The event that the request parked under this ticket waited for has happened.
    Woken(Ticket),
    /// What somebody wanted to be durable is so, or can't be.
    Synced {
        /// Who waited for it.
        who: Waits,
        /// 0, or an errno.
        status: i32,
        /// The last commit that this is about.
        commit: u64,
    },
    /// A connection that has been admitted.
    Client(Connection),
}

/// The queue of arrivals, and a signal that wakes the shard.
pub struct Inbox {
    queue: Mutex<Vec<Arrival>>,
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

    /// Puts an arrival in and wakes the shard.
    pub fn push(&self, arrival: Arrival) {
        self.queue.lock().push(arrival);
        self.wake();
    }

    /// Takes what has arrived.
    pub fn take(&self) -> Vec<Arrival> {
        sys::drain(self.wake.as_fd());
        std::mem::take(&mut *self.queue.lock())
    }

    /// Wakes the shard.
    pub fn wake(&self) {
        sys::notify(self.wake.as_fd());
    }

    /// Is readable when something has arrived.
    pub fn signal(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}
