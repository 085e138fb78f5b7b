//! When commits are made durable: if a client asks for it, and soon after a commit in any case.
//!
//! A commit survives the death of the bridge at once, but not a power loss. One thread makes durable what was committed
//! so far ([`crate::settle`]). It answers all clients that had asked before it began, so that a hundred of them wait for the
//! disk once. Clients see in shared memory whether anything is left to do, and do not ask otherwise.

use crate::ServerHandle;
use crate::follow;
use crate::inbox::Arrival;
use crate::log::{Cause, Log};
use forebay_core::bridge::Ticket;
use forebay_core::markers::Unmade;
use forebay_core::storage::{Beside, LONGEST_UNSYNCED, StorageOrder, SyncRound, Syncing, Wish};
use forebay_sys::{DurabilityWords, Sys};
use parking_lot::{Condvar, Mutex};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::time::{Duration, Instant};

/// Who waits for a sync point, and where. A client has one request at a time on a connection, and its connection is not
/// read meanwhile. So the limit of connections bounds how many wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Asker {
    /// Number of the shard that serves it.
    pub shard: usize,
    /// Who.
    pub who: Waits,
}

/// Who waits for a sync point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waits {
    /// A client that asked for one.
    Client {
        /// The connection, in its shard.
        key: u64,
        /// Number of the request.
        seq: u32,
    },
    /// A parked request that goes on after it.
    Request(Ticket),
}

/// Environment variable for tests: see [`longest_unsynced`], in seconds.
const ENV_LONGEST: &str = "FOREBAY_TEST_LONGEST_UNSYNCED_S";

/// Time after which a commit is made durable although nobody asks.
pub(crate) fn longest_unsynced() -> Duration {
    let told = std::env::var(ENV_LONGEST).ok();
    let seconds = told.and_then(|text| text.parse().ok());
    seconds.map_or(LONGEST_UNSYNCED, Duration::from_secs)
}

/// The numbers of commits, and who waits for them to become durable.
pub(crate) struct Durability {
    storage: StorageOrder,
    words: DurabilityWords,
    life: u64,
    for_clients: OwnedFd,
    /// What the thread does and when.
    syncing: Mutex<Syncing<Asker>>,
    /// Times count from here.
    start: Instant,
    change: Condvar,
    /// The thread is to be woken when something comes: everything is durable.
    sleeps: AtomicBool,
    /// Memory is to be given back to the system.
    has_freed: AtomicBool,
}

/// After so many commits the heap is looked through for memory to give back.
const COMMITS_PER_TRIM: u64 = 64 * 1024;
/// After so many if nothing else is to be done.
const COMMITS_AT_REST: u64 = 1024;

impl Durability {
    /// Nobody waits. What the bridge before this one has committed may not be durable: that counts as a commit.
    ///
    /// # Errors
    /// No memory, or no descriptor.
    pub(crate) fn new(storage: StorageOrder, longest: Duration) -> Sys<Self> {
        let (words, for_clients) = DurabilityWords::new()?;
        words.page().commit();
        let life = forebay_sys::random()?;
        words.page().set_life(life);
        Ok(Durability {
            life,
            storage,
            words,
            for_clients,
            syncing: Mutex::new(Syncing::new(longest)),
            start: Instant::now(),
            change: Condvar::new(),
            sleeps: AtomicBool::new(false),
            has_freed: AtomicBool::new(false),
        })
    }

    /// The memory that clients may map to read it.
    pub(crate) fn words(&self) -> BorrowedFd<'_> {
        self.for_clients.as_fd()
    }

    /// The number of this life of the bridge, which no other life has.
    pub(crate) fn life(&self) -> u64 {
        self.life
    }

    /// The number of the last commit.
    pub(crate) fn last_commit(&self) -> u64 {
        self.words.page().committed()
    }

    /// Is this commit durable?
    pub(crate) fn is_durable(&self, commit: u64) -> bool {
        self.words.page().durable() >= commit
    }

    /// All commits up to this one are durable.
    pub(crate) fn reached(&self, commit: u64) {
        self.words.page().set_durable(commit);
    }

    /// Counts a commit. To be called when it is in the tables, and before anybody is told of it.
    pub(crate) fn committed(&self) {
        self.words.page().commit();
        if self.storage == StorageOrder::Volatile {
            // There is nothing that it could wait for.
            return self.reached(self.last_commit());
        }
        self.rouse();
    }

    /// There is something to be done, and may have been nothing before.
    pub(crate) fn rouse(&self) {
        // Either this sees that the thread sleeps, or the thread sees what is to be done before it does.
        fence(Ordering::SeqCst);
        if self.sleeps.load(Ordering::SeqCst) {
            self.wake(|_| {});
        }
    }

    /// Much memory was freed: it is given back when nothing else is to be done.
    pub(crate) fn has_freed_much(&self) {
        self.has_freed.store(true, Ordering::Relaxed);
    }

    /// Asks for a sync point soon.
    pub(crate) fn hurry(&self) {
        self.wake(Syncing::hurry);
    }

    /// A marker waits, and none did before.
    pub(crate) fn markers_wait(&self) {
        self.wake(|_| {});
    }

    fn wake(&self, change: impl FnOnce(&mut Syncing<Asker>)) {
        change(&mut self.syncing.lock());
        self.change.notify_one();
    }

    /// Lets somebody wait. The answer comes as [`Arrival::Synced`].
    pub(crate) fn ask(&self, asker: Asker, wish: Wish) {
        self.wake(|syncing| syncing.ask(asker, wish));
    }

    /// Lets the thread end when it has answered all that wait.
    pub(crate) fn end(&self) {
        self.wake(Syncing::end);
    }

    /// What comes next, when its time has come.
    fn next(
        &self,
        has_removed: impl Fn() -> bool,
        unmade: impl Fn() -> Unmade,
    ) -> SyncRound<Asker> {
        let mut syncing = self.syncing.lock();
        loop {
            self.sleeps.store(true, Ordering::SeqCst);
            fence(Ordering::SeqCst);
            let beside = Beside {
                is_durable: self.is_durable(self.last_commit()),
                has_removed: has_removed(),
                unmade: unmade(),
            };
            let round = syncing.next(self.start.elapsed(), beside);
            match round {
                SyncRound::Wait(None) => self.change.wait(&mut syncing),
                SyncRound::Wait(Some(until)) => {
                    // If a sync point is due already, further commits change nothing.
                    self.sleeps.store(beside.is_durable, Ordering::SeqCst);
                    self.change.wait_until(&mut syncing, self.start + until);
                }
                round => {
                    self.sleeps.store(false, Ordering::SeqCst);
                    return round;
                }
            }
        }
    }

    /// The work of the thread. `ready` is called when clients can rely on the words.
    pub(crate) fn run(&self, server: &ServerHandle, ready: impl FnOnce()) {
        let owner = self.own(&server.log);
        ready();
        let mut trimmed = self.last_commit();
        loop {
            match self.next(|| server.has_removed(), || server.objects.unmade()) {
                SyncRound::Sync {
                    askers,
                    mut early,
                    whole,
                } => {
                    let commit = self.last_commit();
                    let status = self.sync(server, whole, &mut || {
                        answer(server, std::mem::take(&mut early), 0, commit);
                    });
                    answer(server, early, status, commit);
                    answer(server, askers, status, commit);
                }
                SyncRound::Unlink => {
                    server.unlink_removed();
                }
                SyncRound::Mark => follow::make_markers(server),
                SyncRound::Wait(_) | SyncRound::End => break,
            }
            // After the round, so that nobody waits for it who has asked by now.
            let last = self.last_commit();
            let rests = self.is_durable(last) && !server.has_removed();
            let limit = if rests {
                COMMITS_AT_REST
            } else {
                COMMITS_PER_TRIM
            };
            if last - trimmed >= limit || rests && self.has_freed.swap(false, Ordering::Relaxed) {
                trimmed = last;
                forebay_sys::trim_heap();
            }
        }
        drop(owner);
    }

    /// A sync point: 0, or what a client is told. `written`: see [`ServerHandle::sync_point_telling`].
    fn sync(&self, server: &ServerHandle, whole: bool, written: &mut dyn FnMut()) -> i32 {
        let contents = if whole {
            server.sync_contents()
        } else {
            Ok(())
        };
        let outcome = contents.and_then(|()| server.sync_point_telling(written));
        match outcome {
            Ok(()) => 0,
            Err(e) => {
                server
                    .log
                    .limited(Cause::Fault, format_args!("names are not durable: {e}"));
                e.errno()
            }
        }
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

fn answer(server: &ServerHandle, askers: Vec<Asker>, status: i32, commit: u64) {
    for Asker { shard, who } in askers {
        if let Some(inbox) = server.inbox(shard) {
            inbox.push(Arrival::Synced {
                who,
                status,
                commit,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_that_nobody_asks_for_is_synced_after_a_while() {
        let durability = Durability::new(StorageOrder::Ordered, LONGEST_UNSYNCED).unwrap();
        durability.reached(durability.last_commit());
        durability.committed();
        let sync = SyncRound::Sync {
            askers: Vec::new(),
            early: Vec::new(),
            whole: false,
        };
        assert_eq!(durability.next(|| false, || Unmade::None), sync);
    }

    #[test]
    fn a_commit_while_a_marker_waits_is_synced_in_its_own_time() {
        let longest = Duration::from_millis(1);
        let durability = Durability::new(StorageOrder::Ordered, longest).unwrap();
        durability.reached(durability.last_commit());
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let next = scope.spawn(|| {
                let unmade = || {
                    let _ = tell.send(());
                    Unmade::New
                };
                durability.next(|| false, unmade)
            });
            told.recv().unwrap();
            // It holds this until it waits.
            drop(durability.syncing.lock());
            durability.committed();
            let round = next.join().unwrap();
            assert!(matches!(round, SyncRound::Sync { .. }), "{round:?}");
        });
    }

    #[test]
    fn what_ends_with_the_power_is_as_durable_as_it_can_be() {
        let durability = Durability::new(StorageOrder::Volatile, LONGEST_UNSYNCED).unwrap();
        durability.committed();
        assert!(durability.is_durable(durability.last_commit()));
    }
}
