//! Makes commits durable when clients ask for it, many at a time.
//!
//! A commit survives the death of the bridge at once, but not a power loss. One thread makes durable what was committed
//! so far. It answers all clients that had asked before it began, so that a hundred of them wait for the disk once.
//! Clients see in shared memory whether anything is left to do, and do not ask otherwise.

use crate::ServerHandle;
use crate::inbox::Arrival;
use crate::log::{Cause, Log};
use forebay_sys::{DurabilityWords, Sys};
use parking_lot::{Condvar, Mutex};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A client that waits, and its request. A client has one request at a time on a connection, and its connection is not
/// read meanwhile. So the limit of connections bounds how many wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Asker {
    /// Number of the shard that serves it.
    pub shard: usize,
    /// The connection, in that shard.
    pub key: u64,
    /// Number of the request.
    pub seq: u32,
}

/// What waits for the thread.
#[derive(Default)]
struct Waiting {
    askers: Vec<Asker>,
    /// Somebody wants the data of all files as well.
    whole: bool,
    /// No more will come.
    ended: bool,
}

/// The numbers of commits, and who waits for them to become durable.
pub(crate) struct Durability {
    words: DurabilityWords,
    for_clients: OwnedFd,
    waiting: Mutex<Waiting>,
    change: Condvar,
}

impl Durability {
    /// Nobody waits. What the bridge before this one has committed may not be durable: that counts as a commit.
    ///
    /// # Errors
    /// No memory, or no descriptor.
    pub(crate) fn new() -> Sys<Self> {
        let (words, for_clients) = DurabilityWords::new()?;
        words.page().commit();
        Ok(Durability {
            words,
            for_clients,
            waiting: Mutex::default(),
            change: Condvar::new(),
        })
    }

    /// The memory that clients may map to read it.
    pub(crate) fn words(&self) -> BorrowedFd<'_> {
        self.for_clients.as_fd()
    }

    /// Counts a commit. To be called when it is in the tables, and before anybody is told of it.
    pub(crate) fn committed(&self) {
        self.words.page().commit();
    }

    /// Lets a client wait until everything that was committed before is durable; with `whole` the data of all files as
    /// well. The answer comes as [`Arrival::Synced`].
    pub(crate) fn ask(&self, asker: Asker, whole: bool) {
        let mut waiting = self.waiting.lock();
        waiting.askers.push(asker);
        waiting.whole |= whole;
        self.change.notify_one();
    }

    /// Lets the thread end when it has answered all that wait.
    pub(crate) fn end(&self) {
        self.waiting.lock().ended = true;
        self.change.notify_one();
    }

    /// The next who wait, and whether one of them wants the data as well. `None` at the end.
    fn next(&self) -> Option<(Vec<Asker>, bool)> {
        let mut waiting = self.waiting.lock();
        while waiting.askers.is_empty() {
            if waiting.ended {
                return None;
            }
            self.change.wait(&mut waiting);
        }
        let whole = std::mem::take(&mut waiting.whole);
        Some((std::mem::take(&mut waiting.askers), whole))
    }

    /// The work of the thread. `ready` is called when clients can rely on the words.
    pub(crate) fn run(&self, server: &ServerHandle, ready: impl FnOnce()) {
        let owner = self.own(&server.log);
        ready();
        while let Some((askers, _whole)) = self.next() {
            let upto = self.words.page().committed();
            // The sync point comes here. Its error would be the status, and the words would stay as they are.
            let status = 0;
            if status == 0 {
                self.words.page().set_durable(upto);
            }
            for Asker { shard, key, seq } in askers {
                if let Some(inbox) = server.inbox(shard) {
                    inbox.push(Arrival::Synced { key, seq, status });
                }
            }
        }
        drop(owner);
    }

    /// Without an owner the words say nothing, and clients ask each time.
    fn own(&self, log: &Log) -> Option<forebay_sys::DurabilityOwner> {
        let owner = self.words.own();
        if let Err(e) = &owner {
            log.limited(
                Cause::Limit,
                format_args!("clients have to ask the bridge at each fsync: {e}"),
            );
        }
        owner.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asker(seq: u32) -> Asker {
        Asker {
            shard: 0,
            key: 7,
            seq,
        }
    }

    #[test]
    fn all_who_wait_are_taken_at_once_and_one_who_wants_the_data_is_enough() {
        let durability = Durability::new().unwrap();
        durability.ask(asker(1), false);
        durability.ask(asker(2), true);
        durability.ask(asker(3), false);
        let all = vec![asker(1), asker(2), asker(3)];
        assert_eq!(durability.next(), Some((all, true)));
        durability.ask(asker(4), false);
        assert_eq!(durability.next(), Some((vec![asker(4)], false)));
    }

    #[test]
    fn who_waits_when_the_end_comes_is_still_taken() {
        let durability = Durability::new().unwrap();
        durability.ask(asker(1), false);
        durability.end();
        assert_eq!(durability.next(), Some((vec![asker(1)], false)));
        assert_eq!(durability.next(), None);
    }
}
