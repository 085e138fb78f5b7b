//! The transaction layer between bridges, as a state machine.
//!
//! A decision of [`crate::ops::decide`] changes records at their homes and marks
//! at the owners of objects. This module makes all of it happen, or nothing,
//! whichever bridges it touches and whichever of them crash. It reads no clock,
//! draws no random number and does no I/O: the driver hands in proposals,
//! messages and the time in microseconds, and polls for [`Output`]s.
//!
//! - **One bridge**, or all of it here: the batch is committed and answered at
//!   once. With a single member there is not even a check: the decision was made
//!   under the lock that it commits under.
//! - **One other home**: one round trip. The home checks the versions that the
//!   decision relied on and commits, or answers with the records that spoke
//!   against it. It is the linearisation point; of N creators one wins and the
//!   others learn who in the same round trip.
//! - **Several**: every participant checks, stores a promise and holds its part;
//!   when all have, the *primary* commits its own part, and that commit is the
//!   outcome. If the coordinator takes part, it is the primary, and the answer
//!   takes one round trip. A participant in doubt asks the primary. The primary
//!   aborts for good what it does not know.
//! - **Directories above** a new name are not asked. A directory that goes takes
//!   all members as participants; they check that nothing is below it and
//!   remember its incarnation as ended, and a later create that relied on it is
//!   refused at the home of the new name.
//! - **What else was relied on** (the old name of a hard link) is checked at its
//!   home, which takes part and holds it as it is until the outcome.
//! - **Answers that change nothing** are not proposed. A record at the path says
//!   all, at the moment at which its home is asked. That there is none, and what is
//!   listed, also depends on the directories above, which may be those of the PFS:
//!   there the driver answers when a second look has seen the very same records.
//!   See also [`crate::ops::Op::compares`].
//!
//! Nobody is told what a loss of power could take back: a message leaves when everything is durable that was committed
//! before it ([`Bridge::durable`]).
//!
//! Transactions are numbered, so that repeats are recognised: the numbers of a
//! coordinator only grow, and each participant stores outcomes until the
//! coordinator says that everything below a number is settled.
//!
//! The driver must drain [`Bridge::poll`] after each call, applying each
//! [`Output::Commit`] before it asks for the next output.

mod absences;
mod coordinator;
mod cut;
mod fetched;
mod held;
mod locks;
mod memory;
mod messages;
mod mutation;
mod participant;
mod persist;
mod reads;
mod recover;
mod sweep;
#[cfg(test)]
pub(crate) mod tests;

pub use absences::MAX_ABSENCES;
pub use fetched::{Fact, Heard, OthersBelow, is_of_others};
pub use memory::{MAX_ENDED_DIRS, MAX_REMEMBERED_REQUESTS};
pub use messages::{
    Body, Listed, Message, Output, Part, Proposal, RangeRead, ReadSet, Seen, SpeakersRead, Stand,
    Ticket, TxnId, Verdict,
};
pub use mutation::Mutation;
pub use recover::rebuilt_of_one;
pub use sweep::{ObjectStanding, Sweep, named_elsewhere};

use crate::home::{hash_bytes, mix};
use crate::membership::Membership;
use crate::path::TreePath;
use crate::record::{BridgeId, PathRecord, Token};
use crate::speakers::Speakers;
use crate::table::{Change, TableError, Tables};
use absences::Absences;
use coordinator::Txn;
use held::Held;
use locks::Locks;
use memory::{CarriedOut, EndedDirs};
use participant::Prepared;
use reads::{Asker, Fetch, Question, Waiting};
use std::collections::{BTreeMap, VecDeque};

/// Unfinished transactions that one bridge coordinates at a time.
pub const MAX_TRANSACTIONS: usize = 4096;
/// Promises that one bridge gives at a time.
pub const MAX_PREPARED: usize = 4096;
/// Records that one message about a range holds.
pub const RECORDS_PER_MESSAGE: usize = 1024;
/// Fetches from other bridges under way at a time.
pub const MAX_FETCHES: usize = 4096;
/// Readers that wait for undecided transactions at a time.
pub const MAX_WAITING_READERS: usize = 4096;
/// A message is repeated after this long, then after twice as long, and so on, in microseconds.
pub const RETRY_FIRST_US: u64 = 20_000;
/// Longest time between repetitions in microseconds.
pub const RETRY_MOST_US: u64 = 1_000_000;
/// A transaction that has not all votes after this long is aborted, in microseconds.
pub const VOTE_PATIENCE_US: u64 = 400_000;
/// A participant that has heard nothing for this long asks the primary, in microseconds.
pub const ASK_AFTER_US: u64 = 600_000;

/// A bridge can be started less often than this: versions have so many places for the count of starts.
pub const MAX_EPOCH: u32 = 1 << 20;

/// The version number of a record: unique over all bridges and their starts,
/// and growing for one bridge. `seq` counts the versions of one start.
///
/// # Panics
/// `epoch` is not below [`MAX_EPOCH`], or `bridge` not below [`MAX_MEMBERS`](crate::membership::MAX_MEMBERS). Who
/// starts a bridge has checked that ([`Bridge::recover`]).
pub fn version(epoch: u32, seq: u32, bridge: BridgeId) -> u64 {
    assert!(
        epoch < MAX_EPOCH && (bridge.0 as usize) < crate::membership::MAX_MEMBERS,
        "epoch {epoch} or bridge {} does not fit into a version",
        bridge.0
    );
    u64::from(epoch) << 44 | u64::from(seq) << 12 | u64::from(bridge.0)
}

/// A digest of a range of records: which paths, in which versions.
pub fn digest(entries: &[(TreePath, PathRecord)]) -> u64 {
    entries.iter().fold(0, |h, (path, record)| {
        mix(h, mix(hash_bytes(path.as_bytes()), record.version))
    })
}

/// A digest of some children of a directory: which names, in which versions.
pub(crate) fn digest_of_children(children: &[(Vec<u8>, PathRecord)]) -> u64 {
    children.iter().fold(0, |h, (name, record)| {
        mix(h, mix(hash_bytes(name), record.version))
    })
}

/// A digest of a range: its records, and the absences in it.
pub(crate) fn range_digest(records: u64, absences: u64) -> u64 {
    match absences {
        0 => records,
        absences => mix(records, absences),
    }
}

/// Something queued for the driver. Reads are carried out only when they are
/// polled: what was queued before them has been applied by then.
enum Item {
    Out(Output),
    Read(Asker, Question),
}

/// What is known of another bridge.
#[derive(Debug, Default)]
struct Peer {
    /// Its transactions below this are over.
    settled: u64,
    /// What it was told of ours.
    told: u64,
    /// This bridge may remember transactions of ours; tell it when they are settled.
    owes: bool,
}

/// Repetition with growing distance.
#[derive(Debug, Clone, Copy)]
struct Retry {
    at: u64,
    wait: u64,
}

impl Retry {
    fn after(now: u64, wait: u64) -> Self {
        Retry {
            at: now + wait,
            wait,
        }
    }

    /// Is it time? Then sets the next one.
    fn due(&mut self, now: u64) -> bool {
        if now < self.at {
            return false;
        }
        self.wait = (self.wait * 2).clamp(RETRY_FIRST_US, RETRY_MOST_US);
        self.at = now + self.wait;
        true
    }
}

/// The transaction layer of one bridge.
pub struct Bridge {
    membership: Membership,
    epoch: u32,
    count: u32,
    out: VecDeque<Item>,
    /// Own transactions that are not finished everywhere, by number.
    txns: BTreeMap<u64, Txn>,
    prepared: BTreeMap<TxnId, Prepared>,
    /// What became of transactions of others; of own ones the intent knows.
    outcomes: BTreeMap<TxnId, bool>,
    peers: BTreeMap<BridgeId, Peer>,
    /// Changes that go along with the next commit.
    litter: Vec<Change>,
    locks: Locks,
    ended: EndedDirs,
    carried_out: CarriedOut,
    absences: Absences,
    /// Records that speak of the PFS: kept only where other bridges may ask for them.
    speakers: Speakers,
    fetches: BTreeMap<u64, Fetch>,
    waiting: VecDeque<Waiting>,
    held: Held,
    mutation: Option<Mutation>,
}

impl Bridge {
    fn new(membership: Membership, epoch: u32) -> Self {
        let peers = membership.others().map(|b| (b, Peer::default())).collect();
        Bridge {
            membership,
            epoch,
            count: 0,
            out: VecDeque::new(),
            txns: BTreeMap::new(),
            prepared: BTreeMap::new(),
            outcomes: BTreeMap::new(),
            peers,
            litter: Vec::new(),
            locks: Locks::default(),
            ended: EndedDirs::default(),
            carried_out: CarriedOut::default(),
            absences: Absences::default(),
            speakers: Speakers::default(),
            fetches: BTreeMap::new(),
            waiting: VecDeque::new(),
            held: Held::new(),
            mutation: None,
        }
    }

    /// The members of the namespace.
    pub fn membership(&self) -> &Membership {
        &self.membership
    }

    /// Did an earlier try of the request `token` change something?
    pub fn was_carried_out(&self, token: Token) -> bool {
        self.carried_out.contains(token)
    }

    /// Records of this bridge that speak of the PFS. With one member the driver keeps them, and there is nothing here.
    pub fn speakers(&self) -> &Speakers {
        &self.speakers
    }

    /// For a path of this home without a record: a number that is another one whenever a drain has taken a record away
    /// there and so let the PFS show through. "No record" alone says less: one can have come and gone between two
    /// looks, and the PFS shows something else now.
    pub fn absence(&self, path: &TreePath) -> u64 {
        self.absences.of(path)
    }

    /// A digest of the absences of this home at what is listed. Two listings that are equal and have equal digests are
    /// of one time.
    pub fn absences(&self, of: &Listed) -> u64 {
        match of {
            Listed::Children { dir, .. } => self.absences.children(dir),
            Listed::Below(dir) => self.absences.below(dir),
        }
    }

    /// Is it still open what became of an earlier try of the request `token`?
    /// Then a repetition has to wait.
    pub fn is_undecided(&self, token: Token) -> bool {
        self.txns
            .values()
            .any(|t| t.token == token && t.is_undecided())
    }

    /// Nothing is under way: no transaction, no promise, no lock, no waiting reader.
    pub fn is_quiet(&self) -> bool {
        self.txns.is_empty()
            && self.prepared.is_empty()
            && self.locks.is_empty()
            && self.fetches.is_empty()
            && self.waiting.is_empty()
            && self.held.is_empty()
    }

    /// The next thing to do, in order. Call until `None` after every other call.
    ///
    /// # Errors
    /// The tables failed; stop this bridge and recover.
    pub fn poll(&mut self, tables: &dyn Tables) -> Result<Option<Output>, TableError> {
        loop {
            if let Some(out) = self.held.next() {
                return Ok(Some(out));
            }
            let Some(item) = self.out.pop_front() else {
                return Ok(None);
            };
            let out = match item {
                Item::Out(out) => Some(out),
                Item::Read(asker, question) => self.read(asker, question, tables)?,
            };
            let out = match out {
                Some(Output::Send { to, message }) => self.held.send(to, message),
                out => out,
            };
            if let (Some(Output::Commit(changes)), false) = (&out, self.membership.is_single()) {
                self.speakers.follow(changes);
                self.held.committed();
            }
            if out.is_some() {
                return Ok(out);
            }
        }
    }

    /// How many commits there were, for [`Bridge::durable`].
    pub fn commits(&self) -> u64 {
        self.held.commits()
    }

    /// So many commits are durable: a sync point is done that began when [`Bridge::commits`] said this number. Where nothing
    /// survives a loss of power, or nothing has to: [`u64::MAX`].
    pub fn durable(&mut self, commits: u64) {
        match Mutation::OthersAreToldBeforeItIsDurable.is(self.mutation) {
            true => self.held.durable(u64::MAX),
            false => self.held.durable(commits),
        }
    }

    /// Do messages wait until what they tell is durable? Then there should be a sync point soon.
    pub fn waits_for_sync_point(&self) -> bool {
        !self.held.is_empty()
    }

    /// A message from another bridge.
    ///
    /// # Errors
    /// The tables failed; stop this bridge and recover.
    pub fn message(
        &mut self,
        from: BridgeId,
        message: Message,
        tables: &dyn Tables,
        now: u64,
    ) -> Result<(), TableError> {
        let Some(peer) = self.peers.get_mut(&from) else {
            // No member of this namespace.
            return Ok(());
        };
        if message.settled > peer.settled {
            peer.settled = message.settled;
            self.forget_settled(from);
        }
        match message.body {
            Body::Fetch { request, path } => self.on_fetch(from, request, path),
            Body::Fetched {
                request,
                record,
                absence,
            } => self.on_fetched(from, request, record, absence),
            Body::FetchChildren {
                request,
                dir,
                after,
                limit,
            } => self.on_fetch_several(from, request, Question::Children { dir, after, limit }),
            Body::FetchedChildren {
                request,
                children,
                absences,
            } => self.on_fetched_children(from, request, children, absences),
            Body::FetchBelow {
                request,
                dir,
                after,
            } => self.on_fetch_several(from, request, Question::Below { dir, after }),
            Body::FetchedBelow {
                request,
                after,
                entries,
                ends,
                absences,
            } => self.on_fetched_below(from, request, after, entries, ends, absences),
            Body::FetchSpeakers {
                request,
                of,
                before,
                limit,
            } => {
                let question = Question::Speakers { of, before, limit };
                self.on_fetch_several(from, request, question);
            }
            Body::FetchedSpeakers { request, part } => {
                self.on_fetched_speakers(from, request, part);
            }
            Body::FetchNames { request, object } => {
                self.on_fetch_several(from, request, Question::Names(object));
            }
            Body::FetchedNames { request, names } => self.on_fetched_names(from, request, names),
            Body::Prepare { txn, primary, part } => {
                self.on_prepare(from, txn, primary, part, tables, now)?;
            }
            Body::Vote { txn, vote } => self.on_vote(from, txn, vote, now),
            Body::Commit { txn, part } => self.on_commit(from, txn, part, tables)?,
            Body::Outcome {
                txn,
                committed,
                current,
            } => self.on_outcome(from, txn, committed, current, now),
            Body::Decide { txn, committed } => self.on_decide(from, txn, committed),
            Body::Ack { txn } => self.on_ack(from, txn),
            Body::Query { txn } => self.on_query(from, txn),
            Body::Settled => {}
        }
        Ok(())
    }

    /// Time has passed: repeats what got no answer. With one member there is nothing to do.
    pub fn tick(&mut self, now: u64) {
        if self.membership.is_single() {
            return;
        }
        self.tick_transactions(now);
        self.tick_promises(now);
        self.tick_fetches(now);
        let settled = self.settled();
        let news: Vec<_> = self
            .peers
            .iter()
            .filter(|(_, p)| p.owes && p.told < settled)
            .map(|(b, _)| *b)
            .collect();
        for to in news {
            self.send(to, Body::Settled);
            if self.txns.is_empty()
                && let Some(p) = self.peers.get_mut(&to)
            {
                p.owes = false;
            }
        }
        if !self.litter.is_empty() {
            self.commit(Vec::new());
        }
    }

    fn me(&self) -> BridgeId {
        self.membership.me()
    }

    /// A number that no life of this bridge has used or will use again.
    fn next_number(&mut self) -> u64 {
        self.count += 1;
        u64::from(self.epoch) << 32 | u64::from(self.count)
    }

    /// Own transactions below this number are finished everywhere.
    pub fn settled(&self) -> u64 {
        match self.txns.keys().next() {
            Some(first) => *first,
            None => u64::from(self.epoch) << 32 | (u64::from(self.count) + 1),
        }
    }

    fn push(&mut self, out: Output) {
        self.out.push_back(Item::Out(out));
    }

    fn done(&mut self, ticket: Ticket, verdict: Verdict) {
        self.push(Output::Done { ticket, verdict });
    }

    fn commit(&mut self, mut changes: Vec<Change>) {
        changes.append(&mut self.litter);
        if Mutation::RenameAsTwoBatches.is(self.mutation)
            && let Some(at) = changes.iter().position(|c| matches!(c, Change::Put { .. }))
            && at > 0
        {
            let rest = changes.split_off(at);
            self.push(Output::Commit(changes));
            self.push(Output::Commit(rest));
            return;
        }
        self.push(Output::Commit(changes));
    }

    fn send(&mut self, to: BridgeId, body: Body) {
        debug_assert_ne!(to, self.me(), "a bridge needs no message to itself");
        // That a transaction is finished everywhere has to be durable before it is told.
        let settled = match body.is_question() {
            true => {
                return self.push(Output::Send {
                    to,
                    message: Message { settled: 0, body },
                });
            }
            false => self.settled(),
        };
        if let Some(peer) = self.peers.get_mut(&to) {
            peer.told = settled;
            if matches!(body, Body::Prepare { .. } | Body::Commit { .. }) {
                peer.owes = true;
            }
        }
        self.push(Output::Send {
            to,
            message: Message { settled, body },
        });
    }
}
