//! What goes into the transaction layer and what comes out, as values.

use crate::path::TreePath;
use crate::record::{BridgeId, ObjectId, ObjectName, PathRecord, Token};
use crate::speakers::{Lowers, SpeakersPart};
use crate::table::Change;

use super::fetched::Fact;
use std::collections::{BTreeMap, BTreeSet};

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
    /// If there was no record: which of the times without one it was, see [`super::Bridge::absence`].
    pub absence: u64,
}

/// How a record stood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stand {
    /// There was one, in this version.
    Version(u64),
    /// There was none, for this time: see [`super::Bridge::absence`].
    Absent(u64),
}

impl Seen {
    /// How the record stood.
    pub(crate) fn stand(&self) -> Stand {
        match self.version {
            Some(version) => Stand::Version(version),
            None => Stand::Absent(self.absence),
        }
    }
}

/// A range of records that a decision relied on: "this directory has nothing visible in it".
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RangeRead {
    /// Everything strictly below this directory.
    pub dir: TreePath,
    /// Digest of what each other bridge held there, see [`Output::Fetched`].
    pub seen: Vec<(BridgeId, u64)>,
}

/// Who spoke of some paths of the PFS when a decision was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpeakersRead {
    /// Of which paths.
    pub of: Lowers,
    /// What each bridge had to say, as [`crate::speakers::Speakers::digest`].
    pub seen: Vec<(BridgeId, u64)>,
}

/// Some records of a directory, as a decision asks for them together.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Listed {
    /// The first children after a name.
    Children {
        /// Which directory.
        dir: TreePath,
        /// After this name.
        after: Option<Vec<u8>>,
    },
    /// Everything strictly below a directory.
    Below(TreePath),
}

/// Everything that a decision relied on. With one bridge it may stay empty: the
/// decision is made under the lock that the commit happens under.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReadSet {
    /// Records, by path.
    pub records: BTreeMap<TreePath, Seen>,
    /// Ranges.
    pub ranges: Vec<RangeRead>,
    /// Who speaks of paths of the PFS. Two answers of different moments may stand here for the same paths: then
    /// the decision is refused.
    pub speakers: Vec<SpeakersRead>,
    /// Directories that a drain is about to make on the PFS, each with the number of its absence before it had a
    /// record: who saw no record then, and sees the directory now, must decide again.
    pub appearing: Vec<(TreePath, u64)>,
    /// Directories that stay but get a new version of their record, with the old version. Decisions that relied on the old one
    /// must be repeated, because a later end of the directory names only the newest.
    pub superseded: Vec<(TreePath, u64)>,
}

impl ReadSet {
    /// Notes a record, or its absence.
    pub fn saw(&mut self, path: &TreePath, record: Option<&PathRecord>) {
        self.saw_since(path, record, 0);
    }

    /// Notes a record, or its absence and since when it is absent: see [`super::Bridge::absence`].
    pub fn saw_since(&mut self, path: &TreePath, record: Option<&PathRecord>, absence: u64) {
        use crate::record::Kind;
        let seen = Seen {
            version: record.map(|r| r.version),
            dir: record.is_some_and(|r| matches!(r.kind, Kind::Dir | Kind::Moved)),
            followed: false,
            absence: if record.is_none() { absence } else { 0 },
        };
        self.records.insert(path.clone(), seen);
    }

    /// Notes which of the directories that it has read stay, and get other versions with this batch.
    pub(crate) fn supersede(&mut self, batch: &[Change]) {
        let deleted: BTreeSet<_> = batch
            .iter()
            .filter_map(|change| match change {
                Change::Delete { path, .. } => Some(path),
                _ => None,
            })
            .collect();
        for change in batch {
            if let Change::Put { path, .. } = change
                && let Some(Seen {
                    version: Some(version),
                    dir: true,
                    ..
                }) = self.records.get(path)
                && !deleted.contains(path)
            {
                self.superseded.push((path.clone(), *version));
            }
        }
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
    /// Where it deletes records the PFS shows something else from now on: a drain has changed it there.
    pub uncovers: bool,
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
    /// To check: records that live here.
    pub reads: Vec<(TreePath, Stand)>,
    /// Directories above what is written here, in the incarnations that the decision saw. They are
    /// checked against the memory of ended directories.
    pub above: Vec<(TreePath, u64)>,
    /// Ranges to check by digest.
    pub ranges: Vec<(TreePath, u64)>,
    /// Who speaks of paths of the PFS, to check by digest.
    pub speakers: Vec<(Lowers, u64)>,
    /// See [`Proposal::uncovers`].
    pub uncovers: bool,
    /// Directories that end with this transaction.
    pub ended: Vec<(TreePath, u64)>,
    /// The changes, deletions first.
    pub changes: Vec<Change>,
}

/// A message between two bridges. It may be lost, doubled, late and out of order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// All transactions of the sender below this number are finished everywhere:
    /// their outcomes may be forgotten, and what still comes of them is noise. 0 in a question, which tells nothing.
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
        /// If there is none: see [`super::Bridge::absence`].
        absence: u64,
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
        /// A digest of the absences of all children: see [`super::Bridge::absence`].
        absences: u64,
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
        /// A digest of the absences there: see [`super::Bridge::absence`].
        absences: u64,
    },
    /// Which of your records speak of these paths of the PFS? A page of them.
    FetchSpeakers {
        /// Comes back in the answer.
        request: u64,
        /// Which paths.
        of: Lowers,
        /// The page begins below this path.
        before: Option<TreePath>,
        /// About so many, and not many more than [`super::RECORDS_PER_MESSAGE`].
        limit: usize,
    },
    /// Answer to [`Body::FetchSpeakers`].
    FetchedSpeakers {
        /// Of the fetch.
        request: u64,
        /// What this bridge says.
        part: SpeakersPart,
    },
    /// Which names has this object of yours?
    FetchNames {
        /// Comes back in the answer.
        request: u64,
        /// Which object.
        object: ObjectId,
    },
    /// Answer to [`Body::FetchNames`].
    FetchedNames {
        /// Of the fetch.
        request: u64,
        /// Its names with their paths.
        names: Vec<(ObjectName, TreePath)>,
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

impl Body {
    /// Does it only ask, and tell nothing that was committed?
    pub(super) fn is_question(&self) -> bool {
        matches!(
            self,
            Body::Fetch { .. }
                | Body::FetchChildren { .. }
                | Body::FetchBelow { .. }
                | Body::FetchSpeakers { .. }
                | Body::FetchNames { .. }
                | Body::Query { .. }
        )
    }
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
    /// Answer to a fetch: see [`super::Bridge::fetch`].
    Fetched {
        /// The fetch's.
        ticket: Ticket,
        /// What was fetched.
        fact: Fact,
    },
}
