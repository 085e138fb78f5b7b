//! The side that checks, promises and carries out.

use super::messages::{Body, Part, Stand, TxnId};
use super::persist::{
    OUTCOME, PREPARED, SETTLED, bridge_key, clear, encode_prepared, set, txn_key,
};
use super::{ASK_AFTER_US, Bridge, MAX_PREPARED, Mutation, Retry, digest, range_digest};
use crate::batch;
use crate::path::TreePath;
use crate::record::{BridgeId, PathRecord};
use crate::table::{Change, TableError, Tables};

/// A promise: this part will be carried out if the outcome is commit.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) primary: BridgeId,
    pub(super) part: Part,
    pub(super) retry: Retry,
}

/// Why a part can't be carried out: the records of today, as far as they speak against it.
pub(super) type Refusal = Vec<(TreePath, Option<PathRecord>)>;

impl Bridge {
    /// Does everything that this part relies on still hold, and is nothing of it in other hands?
    pub(super) fn check(
        &self,
        part: &Part,
        tables: &dyn Tables,
    ) -> Result<Result<(), Refusal>, TableError> {
        if !self.locks.admit(part, &self.speakers) {
            return Ok(Err(Vec::new()));
        }
        if Mutation::HomeSkipsVersionCheck.is(self.mutation) {
            return Ok(Ok(()));
        }
        let mut current = Vec::new();
        let mut holds = true;
        for (path, seen) in &part.reads {
            let record = tables.get(path)?;
            let stand = match &record {
                Some(record) => Stand::Version(record.version),
                None => Stand::Absent(self.absence(path)),
            };
            if stand != *seen {
                holds = false;
                current.push((path.clone(), record));
            }
        }
        let is_gone = |(dir, seen): &(TreePath, u64)| self.ended.contains(dir, *seen);
        holds &= !part.above.iter().any(is_gone);
        for (dir, seen) in &part.ranges {
            holds &= self.range(dir, tables)? == *seen;
        }
        let mut speakers = part.speakers.iter();
        holds &= Mutation::SpeakersAreNotChecked.is(self.mutation)
            || speakers.all(|(of, seen)| self.speakers.digest(of) == *seen);
        Ok(if holds { Ok(()) } else { Err(current) })
    }

    /// A digest of what this bridge holds below a directory.
    pub(super) fn range(&self, dir: &TreePath, tables: &dyn Tables) -> Result<u64, TableError> {
        let records = digest(&tables.subtree(dir)?);
        Ok(range_digest(records, self.absences.below(dir)))
    }

    /// [`Bridge::check`] for a part that another bridge has sent. A malformed one is refused, and nothing of it happens.
    fn check_foreign(
        &self,
        part: &Part,
        tables: &dyn Tables,
    ) -> Result<Result<(), Refusal>, TableError> {
        if batch::check(&part.changes).is_err() {
            return Ok(Err(Vec::new()));
        }
        self.check(part, tables)
    }

    /// The changes that carry a part out.
    pub(super) fn carried_out(&mut self, part: Part) -> Vec<Change> {
        let mut changes = part.changes;
        if !Mutation::AbsencesAreForgotten.is(self.mutation) {
            let gone: Vec<_> = changes
                .iter()
                .filter_map(|change| match change {
                    Change::Delete { path, .. } => Some(path.clone()),
                    _ => None,
                })
                // What has ended there is not what may come there next.
                .filter(|path| part.uncovers || self.ended.has(path))
                .collect();
            for path in gone {
                let number = self.next_number();
                changes.append(&mut self.absences.note(&path, number));
            }
        }
        if !Mutation::EndedDirectoriesAreForgotten.is(self.mutation) {
            for (dir, incarnation) in &part.ended {
                changes.append(&mut self.ended.note(dir, *incarnation));
            }
        }
        changes
    }

    fn remember(&mut self, txn: TxnId, committed: bool) -> Change {
        if !Mutation::DuplicatesAreCarriedOutAgain.is(self.mutation) {
            self.outcomes.insert(txn, committed);
        }
        set(txn_key(OUTCOME, txn), vec![u8::from(committed)])
    }

    /// True if the coordinator has closed the transaction: late messages about it are ignored.
    fn is_over(&self, txn: TxnId) -> bool {
        self.peers
            .get(&txn.coordinator)
            .is_some_and(|p| txn.seq < p.settled)
    }

    /// `from` has closed transactions: their outcomes may go with the next commit.
    pub(super) fn forget_settled(&mut self, from: BridgeId) {
        let Some(peer) = self.peers.get(&from) else {
            return;
        };
        let txn = |seq| TxnId {
            coordinator: from,
            seq,
        };
        let over: Vec<_> = self
            .outcomes
            .range(txn(0)..txn(peer.settled))
            .map(|(t, _)| *t)
            .collect();
        if over.is_empty() {
            return;
        }
        let settled = peer.settled.to_le_bytes().to_vec();
        self.litter.push(set(bridge_key(SETTLED, from), settled));
        for t in over {
            self.outcomes.remove(&t);
            self.litter.push(clear(txn_key(OUTCOME, t)));
        }
    }

    pub(super) fn on_prepare(
        &mut self,
        from: BridgeId,
        txn: TxnId,
        primary: BridgeId,
        part: Part,
        tables: &dyn Tables,
        now: u64,
    ) -> Result<(), TableError> {
        if txn.coordinator != from || self.is_over(txn) || self.outcomes.contains_key(&txn) {
            return Ok(());
        }
        let vote = if self.prepared.contains_key(&txn) {
            Ok(())
        } else if self.prepared.len() >= MAX_PREPARED {
            Err(Vec::new())
        } else {
            self.check_foreign(&part, tables)?
        };
        if vote.is_ok() && !self.prepared.contains_key(&txn) {
            self.commit(vec![set(
                txn_key(PREPARED, txn),
                encode_prepared(primary, &part),
            )]);
            self.promise(txn, primary, part, now);
        }
        self.send(from, Body::Vote { txn, vote });
        Ok(())
    }

    /// Holds a part until its outcome is known.
    pub(super) fn promise(&mut self, txn: TxnId, primary: BridgeId, part: Part, now: u64) {
        self.locks.take(txn, &part, &self.speakers);
        let retry = Retry::after(now, ASK_AFTER_US);
        self.prepared.insert(
            txn,
            Prepared {
                primary,
                part,
                retry,
            },
        );
    }

    /// As the only participant, or as the primary after all others have promised.
    pub(super) fn on_commit(
        &mut self,
        from: BridgeId,
        txn: TxnId,
        part: Part,
        tables: &dyn Tables,
    ) -> Result<(), TableError> {
        if txn.coordinator != from || self.is_over(txn) {
            return Ok(());
        }
        let mut current = Vec::new();
        let committed = match self.outcomes.get(&txn) {
            Some(known) => *known,
            None => {
                let (committed, mut changes) = match self.check_foreign(&part, tables)? {
                    Ok(()) => (true, self.carried_out(part)),
                    Err(refusal) => {
                        current = refusal;
                        (false, Vec::new())
                    }
                };
                changes.push(self.remember(txn, committed));
                self.commit(changes);
                committed
            }
        };
        self.send(
            from,
            Body::Outcome {
                txn,
                committed,
                current,
            },
        );
        Ok(())
    }

    /// The coordinator says how it ended.
    pub(super) fn on_decide(&mut self, from: BridgeId, txn: TxnId, committed: bool) {
        if txn.coordinator != from || self.is_over(txn) {
            return;
        }
        if self.prepared.contains_key(&txn) {
            self.conclude(txn, committed);
        } else if !committed && !self.outcomes.contains_key(&txn) {
            // The prepare is still under way, and has to find this.
            let change = self.remember(txn, false);
            self.commit(vec![change]);
        }
        self.send(from, Body::Ack { txn });
    }

    /// Keeps a promise, or is released from it.
    pub(super) fn conclude(&mut self, txn: TxnId, committed: bool) {
        let Some(p) = self.prepared.remove(&txn) else {
            return;
        };
        let mut changes = if committed {
            self.carried_out(p.part)
        } else {
            Vec::new()
        };
        changes.push(clear(txn_key(PREPARED, txn)));
        changes.push(self.remember(txn, committed));
        self.commit(changes);
        self.locks.release(txn);
        self.wake();
    }

    /// Someone is in doubt and believes that this bridge knows.
    pub(super) fn on_query(&mut self, from: BridgeId, txn: TxnId) {
        let own = txn.coordinator == self.me();
        let committed = if own {
            match self.txns.get(&txn.seq).map(|t| t.outcome()) {
                Some(Some(outcome)) => outcome,
                Some(None) => return,
                // Closed: all participants have confirmed it, so the question is an old one.
                None => false,
            }
        } else if let Some(known) = self.outcomes.get(&txn) {
            *known
        } else if self.is_over(txn) {
            false
        } else {
            // Never heard of it, so it may not be committed any more.
            let change = self.remember(txn, false);
            self.commit(vec![change]);
            false
        };
        let current = Vec::new();
        self.send(
            from,
            Body::Outcome {
                txn,
                committed,
                current,
            },
        );
    }

    pub(super) fn tick_promises(&mut self, now: u64) {
        let mut questions = Vec::new();
        for (txn, p) in &mut self.prepared {
            if p.retry.due(now) {
                questions.push((p.primary, *txn));
            }
        }
        for (primary, txn) in questions {
            self.send(primary, Body::Query { txn });
        }
    }
}
