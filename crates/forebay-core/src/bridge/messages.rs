//! What goes into the transaction layer and what comes out, as values.

use crate::path::TreePath;
use crate::record::{BridgeId, PathRecord, Token};
use crate::request::OthersBelow;
use crate::table::Change;
use std::collections::BTreeMap;

/// The driver's own number for something that it waits for.
pub type Ticket = u64;

/// Identity of a transaction: never used twice, growing per coordinator over all its starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TxnId {
    /// The bridge that proposed it.
    pub coordinator: BridgeId,
    /// Epoch of the coordinator in the upper half, a count in the lower.
    pub seq: u64,
}

/// What a decision saw of one record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// Its version; `None` if there was no record.
    pub version: Option<u64>,
    /// Things can lie below it.
    pub dir: bool,
    /// A symbolic link there was followed, so nothing can lie below it.
    pub followed: bool,
}

/// A range of records that a decision relied on: "this directory has nothing visible in it".
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RangeRead {
    /// Everything strictly below this directory.
    pub dir: TreePath,
    /// Digest of what each other bridge held there, see [`Output::Below`].
    pub seen: Vec<(BridgeId, u64)>,
}

/// Everything that a decision relied on. With one bridge it may stay empty: the
/// decision is made under the lock that the commit happens under.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReadSet {
    /// Records, by path.
    pub records: BTreeMap<TreePath, Seen>,
    /// Ranges.
    pub ranges: Vec<RangeRead>,
}

impl ReadSet {
    /// Notes a record, or its absence.
    pub fn saw(&mut self, path: &TreePath, record: Option<&PathRecord>) {
        use crate::record::Kind;
        let seen = Seen {
            version: record.map(|r| r.version),
            dir: record.is_some_and(|r| matches!(r.kind, Kind::Dir | Kind::Moved)),
            followed: false,
        };
        self.records.insert(path.clone(), seen);
    }
}

/// A decision that wants to become true.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proposal {
    /// Comes back in [`Output::Done`].
    pub ticket: Ticket,
    /// What it relied on.
    pub reads: ReadSet,
    /// What it changes, atomically, wherever the parts of it live.
    pub batch: Vec<Change>,
    /// The request behind it.
    pub token: Token,
}

/// How a proposal ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It is true now, and stays true whoever crashes.
    Committed,
    /// Something that it relied on has changed; nothing of it happened. Decide
    /// again: here are the records of today as far as the homes told them.
    Conflict(Vec<(TreePath, Option<PathRecord>)>),
    /// Nothing of it happened, and there is no sense in trying at once again.
    Failed(i32),
}

/// What one participant checks and changes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Part {
    /// Versions to check: records that live here.
    pub reads: Vec<(TreePath, Option<u64>)>,
    /// Directories above what is written here, in the incarnations that the decision saw. They are
    /// checked against the memory of ended directories.
    pub above: Vec<(TreePath, u64)>,
    /// Ranges to check by digest.
    pub ranges: Vec<(TreePath, u64)>,
    /// Directories that end with this transaction.
    pub ended: Vec<(TreePath, u64)>,
    /// The changes, deletions first.
    pub changes: Vec<Change>,
}

/// A message between two bridges. It may be lost, doubled, late and out of order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// All transactions of the sender below this number are finished everywhere:
    /// their outcomes may be forgotten, and what still comes of them is noise.
    pub settled: u64,
    /// What it says.
    pub body: Body,
}

/// What a message says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    /// What is the record at this path? Answered by its home, once no undecided transaction holds it.
    Fetch {
        /// Comes back in the answer.
        request: u64,
        /// Which path.
        path: TreePath,
    },
    /// Answer to a fetch.
    Fetched {
        /// Of the fetch.
        request: u64,
        /// The record.
        record: Option<PathRecord>,
    },
    /// Which are your first children of this directory, after a name?
    FetchChildren {
        /// Comes back in the answer.
        request: u64,
        /// Which directory.
        dir: TreePath,
        /// After this name.
        after: Option<Vec<u8>>,
        /// Not more than these, and not more than [`crate::facts::CHILDREN_PER_PAGE`].
        limit: usize,
    },
    /// Answer to [`Body::FetchChildren`].
    FetchedChildren {
        /// Of the fetch.
        request: u64,
        /// Names and records, sorted by name.
        children: Vec<(Vec<u8>, PathRecord)>,
    },
    /// What do you hold below this directory? A page of it.
    FetchBelow {
        /// Comes back in the answer.
        request: u64,
        /// Which directory.
        dir: TreePath,
        /// After this path.
        after: Option<TreePath>,
    },
    /// Answer to [`Body::FetchBelow`].
    FetchedBelow {
        /// Of the fetch.
        request: u64,
        /// Of the fetch.
        after: Option<TreePath>,
        /// Records, parents first, at most [`super::RECORDS_PER_MESSAGE`].
        entries: Vec<(TreePath, PathRecord)>,
        /// That was the last page.
        ends: bool,
    },
    /// Check this, hold it, and don't let go before you know the outcome.
    Prepare {
        /// Which transaction.
        txn: TxnId,
        /// Who will know the outcome.
        primary: BridgeId,
        /// What to check and change.
        part: Part,
    },
    /// Answer to a prepare: ready, or the records that speak against it.
    Vote {
        /// Which transaction.
        txn: TxnId,
        /// `Err` is a no.
        vote: Result<(), Vec<(TreePath, Option<PathRecord>)>>,
    },
    /// To the primary, when all others are ready: check and change your part now; that is the outcome.
    Commit {
        /// Which transaction.
        txn: TxnId,
        /// What to check and change.
        part: Part,
    },
    /// The primary's word, to the coordinator and to whoever asked.
    Outcome {
        /// Which transaction.
        txn: TxnId,
        /// What became of it.
        committed: bool,
        /// If nothing: the records that spoke against it.
        current: Vec<(TreePath, Option<PathRecord>)>,
    },
    /// The coordinator's word to the participants.
    Decide {
        /// Which transaction.
        txn: TxnId,
        /// What became of it.
        committed: bool,
    },
    /// The outcome has been carried out here.
    Ack {
        /// Which transaction.
        txn: TxnId,
    },
    /// To the primary: what became of it? If it never heard of it, then nothing, for good.
    Query {
        /// Which transaction.
        txn: TxnId,
    },
    /// Only the news in [`Message::settled`].
    Settled,
}

/// What the driver has to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// Apply to the own tables, atomically, before any later output counts. If
    /// that fails, nothing later may be carried out: stop and recover.
    Commit(Vec<Change>),
    /// Send.
    Send {
        /// To this bridge.
        to: BridgeId,
        /// This.
        message: Message,
    },
    /// A proposal has ended.
    Done {
        /// The proposal's.
        ticket: Ticket,
        /// How.
        verdict: Verdict,
    },
    /// Answer to [`super::Bridge::fetch`].
    PathRecord {
        /// The fetch's.
        ticket: Ticket,
        /// Which path.
        path: TreePath,
        /// What its home says.
        record: Option<PathRecord>,
    },
    /// Answer to [`super::Bridge::fetch_children`].
    Children {
        /// The fetch's.
        ticket: Ticket,
        /// Which directory.
        dir: TreePath,
        /// After this name.
        after: Option<Vec<u8>>,
        /// The first that the *other* bridges hold, sorted by name. The own tables are read by the driver.
        children: Vec<(Vec<u8>, PathRecord)>,
    },
    /// Answer to [`super::Bridge::fetch_below`].
    Below {
        /// The fetch's.
        ticket: Ticket,
        /// Which directory.
        dir: TreePath,
        /// What the *other* bridges hold below it, and a digest of it per bridge. The own tables are read by
        /// the driver.
        others: OthersBelow,
    },
}
