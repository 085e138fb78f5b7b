//! The side that proposes.

use super::cut::Cut;
use super::messages::{Body, Part, Proposal, Ticket, TxnId, Verdict};
use super::participant::Refusal;
use super::persist::{INTENT, Intent, clear, set, txn_key};
use super::{Bridge, MAX_TRANSACTIONS, Mutation, RETRY_FIRST_US, Retry, VOTE_PATIENCE_US};
use crate::batch;
use crate::record::{BridgeId, Token};
use crate::table::{Change, TableError, Tables};
use std::collections::{BTreeMap, BTreeSet};

/// Where an own transaction stands.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Phase {
    /// Participants are being asked for a promise.
    Voting {
        missing: BTreeSet<BridgeId>,
        deadline: u64,
    },
    /// The primary has the word.
    Deciding,
    /// The outcome stands; the others have to learn it.
    Finishing {
        committed: bool,
        unacked: BTreeSet<BridgeId>,
    },
}

/// An own transaction that is not finished everywhere.
#[derive(Debug)]
pub(super) struct Txn {
    /// `None` after a restart: nobody waits any more.
    ticket: Option<Ticket>,
    pub(super) token: Token,
    primary: BridgeId,
    participants: Vec<BridgeId>,
    /// What to send to whom; empty after a restart.
    parts: BTreeMap<BridgeId, Part>,
    follow_up: Vec<Change>,
    phase: Phase,
    retry: Retry,
}

impl Txn {
    pub(super) fn is_undecided(&self) -> bool {
        self.outcome().is_none()
    }

    /// The outcome, once it stands.
    pub(super) fn outcome(&self) -> Option<bool> {
        match self.phase {
            Phase::Finishing { committed, .. } => Some(committed),
            _ => None,
        }
    }

    /// Changes of the own tables that will be made if the outcome is commit.
    pub(super) fn follow_up(&self) -> &[Change] {
        &self.follow_up
    }

    fn intent(&self) -> Intent {
        Intent {
            token: self.token,
            primary: self.primary,
            participants: self.participants.clone(),
            follow_up: self.follow_up.clone(),
            outcome: self.outcome(),
        }
    }
}

impl Bridge {
    /// Proposes a decision; ends in one [`super::Output::Done`].
    ///
    /// # Errors
    /// The tables failed; stop this bridge and recover.
    pub fn propose(
        &mut self,
        proposal: Proposal,
        tables: &dyn Tables,
        now: u64,
    ) -> Result<(), TableError> {
        batch::assert_well_formed(&proposal.batch);
        if self.membership.is_single() {
            self.commit_here(proposal.ticket, proposal.token, proposal.batch);
            return Ok(());
        }
        if self.txns.len() >= MAX_TRANSACTIONS {
            self.done(proposal.ticket, Verdict::Failed(libc::EAGAIN));
            return Ok(());
        }
        let me = self.me();
        let mut cut = self.cut(&proposal.reads, proposal.batch, proposal.uncovers);
        if !self.locks.admit_changes(&cut.follow_up) {
            // An earlier transaction may still have to say where the same object is.
            self.done(proposal.ticket, Verdict::Conflict(Vec::new()));
            return Ok(());
        }
        if let Some(own) = cut.parts.get_mut(&me) {
            // The driver has read the own tables just now, so this is no check yet; but from
            // here on nobody else may write there.
            for range in &proposal.reads.ranges {
                let seen = self.range(&range.dir, tables)?;
                own.ranges.push((range.dir.clone(), seen));
            }
        }
        if let Some(own) = cut.parts.get(&me)
            && let Err(refusal) = self.check(own, tables)?
        {
            self.done(proposal.ticket, Verdict::Conflict(refusal));
            return Ok(());
        }
        if cut.parts.keys().all(|b| *b == me) {
            let mut changes = Vec::new();
            for (_, part) in cut.parts {
                changes = self.carried_out(part);
            }
            changes.extend(cut.follow_up);
            self.commit_here(proposal.ticket, proposal.token, changes);
            return Ok(());
        }
        self.begin(proposal.ticket, proposal.token, cut, now);
        Ok(())
    }

    fn commit_here(&mut self, ticket: Ticket, token: Token, mut batch: Vec<Change>) {
        batch.push(self.carried_out.note(token));
        if Mutation::ReplyBeforeCommit.is(self.mutation) {
            self.done(ticket, Verdict::Committed);
            self.commit(batch);
            return;
        }
        self.commit(batch);
        self.done(ticket, Verdict::Committed);
    }

    fn begin(&mut self, ticket: Ticket, token: Token, cut: Cut, now: u64) {
        let me = self.me();
        let participants: Vec<_> = cut.parts.keys().copied().collect();
        let primary = if participants.contains(&me) {
            me
        } else {
            participants[0]
        };
        let missing: BTreeSet<_> = participants
            .iter()
            .copied()
            .filter(|b| *b != primary)
            .collect();
        let phase = if missing.is_empty() {
            Phase::Deciding
        } else {
            Phase::Voting {
                missing,
                deadline: now + VOTE_PATIENCE_US,
            }
        };
        let txn = TxnId {
            coordinator: me,
            seq: self.next_number(),
        };
        let own = cut.parts.get(&me).cloned().unwrap_or_default();
        self.locks.take(txn, &own, &self.speakers);
        self.locks.take_changes(txn, &cut.follow_up);
        let t = Txn {
            ticket: Some(ticket),
            token,
            primary,
            participants,
            parts: cut.parts,
            follow_up: cut.follow_up,
            phase,
            retry: Retry::after(now, RETRY_FIRST_US),
        };
        self.commit(vec![set(txn_key(INTENT, txn), t.intent().encode())]);
        self.txns.insert(txn.seq, t);
        self.prompt(txn.seq);
    }

    /// Takes up a transaction of an earlier life.
    pub(super) fn resume(&mut self, txn: TxnId, intent: Intent, now: u64) {
        let me = self.me();
        let others: BTreeSet<_> = intent
            .participants
            .iter()
            .copied()
            .filter(|b| *b != me && *b != intent.primary)
            .collect();
        // As primary this bridge would have stored a commit together with its outcome.
        let outcome = intent.outcome.or((intent.primary == me).then_some(false));
        let phase = match outcome {
            Some(committed) => Phase::Finishing {
                committed,
                unacked: others,
            },
            None => Phase::Deciding,
        };
        if outcome.is_none() {
            self.locks.take_changes(txn, &intent.follow_up);
        }
        let t = Txn {
            ticket: None,
            token: intent.token,
            primary: intent.primary,
            participants: intent.participants,
            parts: BTreeMap::new(),
            follow_up: intent.follow_up,
            phase,
            retry: Retry::after(now, 0),
        };
        self.txns.insert(txn.seq, t);
    }

    /// Sends each participant the message whose answer the transaction waits for.
    fn prompt(&mut self, seq: u64) {
        let txn = TxnId {
            coordinator: self.me(),
            seq,
        };
        let Some(t) = self.txns.get(&seq) else {
            return;
        };
        let part = |b: &BridgeId| t.parts.get(b).cloned();
        let primary = t.primary;
        let messages: Vec<(BridgeId, Body)> = match &t.phase {
            Phase::Voting { missing, .. } => missing
                .iter()
                .filter_map(|b| Some((*b, part(b)?)))
                .map(|(b, part)| (b, Body::Prepare { txn, primary, part }))
                .collect(),
            Phase::Deciding => vec![match part(&primary) {
                Some(part) => (primary, Body::Commit { txn, part }),
                // After a restart what to commit is lost, so it is called off if it can be.
                None => (primary, Body::Query { txn }),
            }],
            Phase::Finishing { committed, unacked } => unacked
                .iter()
                .map(|b| {
                    let committed = *committed;
                    (*b, Body::Decide { txn, committed })
                })
                .collect(),
        };
        for (to, body) in messages {
            self.send(to, body);
        }
    }

    pub(super) fn on_vote(
        &mut self,
        from: BridgeId,
        txn: TxnId,
        vote: Result<(), Refusal>,
        now: u64,
    ) {
        let me = self.me();
        let Some(t) = self.txns.get_mut(&txn.seq) else {
            return;
        };
        if txn.coordinator != me {
            return;
        }
        let Phase::Voting { missing, .. } = &mut t.phase else {
            return;
        };
        match vote {
            Err(current) => self.conclude_own(txn.seq, false, current, now),
            Ok(()) => {
                missing.remove(&from);
                if !missing.is_empty() {
                    return;
                }
                if t.primary == me {
                    self.conclude_own(txn.seq, true, Vec::new(), now);
                } else {
                    t.phase = Phase::Deciding;
                    t.retry = Retry::after(now, RETRY_FIRST_US);
                    self.prompt(txn.seq);
                }
            }
        }
    }

    /// The primary has spoken: to the coordinator, or to a participant in doubt.
    pub(super) fn on_outcome(
        &mut self,
        from: BridgeId,
        txn: TxnId,
        committed: bool,
        current: Refusal,
        now: u64,
    ) {
        if txn.coordinator != self.me() {
            if self.prepared.get(&txn).is_some_and(|p| p.primary == from) {
                self.conclude(txn, committed);
            }
            return;
        }
        let waits = self
            .txns
            .get(&txn.seq)
            .is_some_and(|t| t.phase == Phase::Deciding && t.primary == from);
        if waits {
            self.conclude_own(txn.seq, committed, current, now);
        }
    }

    /// The outcome stands. Stores it with all that follows from it here, and answers.
    fn conclude_own(&mut self, seq: u64, committed: bool, current: Refusal, now: u64) {
        let me = self.me();
        let txn = TxnId {
            coordinator: me,
            seq,
        };
        let Some(t) = self.txns.get_mut(&seq) else {
            return;
        };
        // The primary is not told. It has decided itself, or the voting failed before it was asked: then it knows
        // nothing of the transaction, which means the same.
        let unacked: BTreeSet<_> = t
            .participants
            .iter()
            .copied()
            .filter(|b| *b != me && *b != t.primary)
            .collect();
        let finished = unacked.is_empty();
        t.phase = Phase::Finishing { committed, unacked };
        t.retry = Retry::after(now, RETRY_FIRST_US);
        let mut changes = Vec::new();
        if committed {
            changes.append(&mut t.follow_up.clone());
            let own = t.parts.remove(&me);
            changes.push(self.carried_out.note(t.token));
            if let Some(part) = own {
                changes.splice(0..0, self.carried_out(part));
            }
        }
        let Some(t) = self.txns.get(&seq) else {
            return;
        };
        let ticket = t.ticket;
        changes.push(if finished {
            clear(txn_key(INTENT, txn))
        } else {
            set(txn_key(INTENT, txn), t.intent().encode())
        });
        self.commit(changes);
        self.locks.release(txn);
        if let Some(ticket) = ticket {
            let verdict = if committed {
                Verdict::Committed
            } else {
                Verdict::Conflict(current)
            };
            self.done(ticket, verdict);
        }
        if finished {
            self.txns.remove(&seq);
        } else {
            self.prompt(seq);
        }
        self.wake();
    }

    pub(super) fn on_ack(&mut self, from: BridgeId, txn: TxnId) {
        if txn.coordinator != self.me() {
            return;
        }
        let Some(t) = self.txns.get_mut(&txn.seq) else {
            return;
        };
        let Phase::Finishing { unacked, .. } = &mut t.phase else {
            return;
        };
        unacked.remove(&from);
        if unacked.is_empty() {
            self.commit(vec![clear(txn_key(INTENT, txn))]);
            self.txns.remove(&txn.seq);
        }
    }

    pub(super) fn tick_transactions(&mut self, now: u64) {
        let mut again = Vec::new();
        let mut late = Vec::new();
        let mut over = Vec::new();
        for (seq, t) in &mut self.txns {
            match &t.phase {
                Phase::Voting { deadline, .. } if now >= *deadline => late.push(*seq),
                Phase::Finishing { unacked, .. } if unacked.is_empty() => over.push(*seq),
                _ if t.retry.due(now) => again.push(*seq),
                _ => {}
            }
        }
        for seq in late {
            self.conclude_own(seq, false, Vec::new(), now);
        }
        for seq in again {
            self.prompt(seq);
        }
        // Taken up after a restart with nobody left to tell.
        for seq in over {
            let txn = TxnId {
                coordinator: self.me(),
                seq,
            };
            self.commit(vec![clear(txn_key(INTENT, txn))]);
            self.txns.remove(&seq);
        }
    }
}
