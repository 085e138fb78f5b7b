//! What other threads have for a shard: outcomes of tasks that might block, what parked requests waited for, and
//! connections that another shard has accepted for it.

use crate::connection::Connection;
use crate::work::Outcome;
use forebay_core::bridge::Ticket;
use forebay_sys::{self as sys, Sys};
use parking_lot::Mutex;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// One thing that arrives.
pub enum Arrival {
    /// What came of a task of the request that is parked under this ticket.
    Outcome(Ticket, Outcome),
    /// What the request that is parked under this ticket waited for has happened.
    Woken(Ticket),
    /// A connection that has been admitted.
    Client(Connection),
}

/// Where it arrives.
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

    /// Hands something over.
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
