//! What waits on the PFS for its final name, although the record that moved it is gone.
//!
//! A thing that was renamed is hidden at its old place by a whiteout, until a drain takes it away from there to a waiting
//! name. If a program removes it then, nothing speaks of it any more. So the batch that removes the record
//! notes the waiting name, and the next pass removes what is there. Without such a note nothing that waits
//! is ever removed.

use super::act::{Act, Commit, Got, Verdict, Work};
use super::facts::Facts;
use super::names::{waiting_path, waits_under};
use super::rules::{holds_something_moved, removal};
use super::sheet::Sheet;
use super::strand::Strand;
use crate::bridge::ReadSet;
use crate::facts::{Attr, Outcome};
use crate::path::TreePath;
use crate::record::{Kind, ObjectId, PathRecord};
use crate::table::Change;

/// Notes begin so; the waiting name follows.
pub(super) const NOTES: &[u8] = b"drain/orphan/";

/// The change that goes into the batch in which this record goes, if there has to be one.
pub fn abandon(record: &PathRecord) -> Option<Change> {
    let waits = waiting_path(record.object.oid);
    let is_waiting = record.kind == Kind::Moved && record.origin.as_ref() == Some(&waits);
    is_waiting.then(|| note(&waits, Some(Vec::new())))
}

fn note(waits: &TreePath, value: Option<Vec<u8>>) -> Change {
    Change::Meta {
        key: [NOTES, waits.name()].concat(),
        value,
    }
}

enum State {
    Begin,
    /// Other bridges are asked whether that is still so: nothing else is committed before it goes.
    Asking,
    Look,
    Looking,
    Remove(Attr),
    Removing,
    Forget,
    Forgetting,
    End,
}

/// Removes one thing that nobody waits for.
pub(super) struct Orphan {
    oid: ObjectId,
    state: State,
}

impl Orphan {
    /// For a note with this key; `None` if it is none.
    pub(super) fn noted(key: &[u8]) -> Option<Self> {
        let oid = waits_under(key.strip_prefix(NOTES)?)?;
        Some(Orphan {
            oid,
            state: State::Begin,
        })
    }

    fn removed(&mut self, did: Work<()>, sheet: &mut Sheet) {
        let waits = waiting_path(self.oid);
        self.state = match did {
            Ok(()) => {
                sheet.tally.removed += 1;
                sheet.note_unsynced(&waits);
                State::Forget
            }
            // The note stays for the next pass.
            Err(trouble) => {
                sheet.cannot_sync(&waits, trouble);
                State::End
            }
        };
    }
}

impl Strand for Orphan {
    fn take(&mut self, got: Got, sheet: &mut Sheet) {
        match (std::mem::replace(&mut self.state, State::End), got) {
            (State::Asking, Got::Verdict(Verdict::Committed)) => self.state = State::Look,
            (State::Asking, Got::Verdict(Verdict::Conflict)) => {}
            (State::Looking, Got::Seen(seen)) => match seen.into_iter().next() {
                Some(Ok(Some(attr))) => self.state = State::Remove(attr),
                Some(Ok(None)) => self.state = State::Forget,
                Some(Err(trouble)) => self.removed(Err(trouble), sheet),
                None => {}
            },
            (State::Removing, Got::Did(did)) => self.removed(did, sheet),
            (State::Forgetting, Got::Verdict(Verdict::Committed)) => {}
            (State::Forgetting, Got::Verdict(Verdict::Conflict)) => self.state = State::Forget,
            (_, got) => unreachable!("{got:?} answers nothing that was asked"),
        }
    }

    fn next(&mut self, facts: &dyn Facts, _sheet: &mut Sheet) -> Outcome<Option<Act>> {
        let waits = waiting_path(self.oid);
        Ok(match &self.state {
            State::Begin => {
                // Things renamed out of it leave it in this pass. The next pass removes it.
                let mut reads = ReadSet::default();
                if holds_something_moved(facts, &waits, &mut reads)? {
                    return Ok(None);
                }
                if facts.is_single() {
                    self.state = State::Looking;
                    return Ok(Some(Act::Look(vec![waits])));
                }
                self.state = State::Asking;
                let question = Commit {
                    reads,
                    ..Commit::default()
                };
                Some(Act::Commit(question))
            }
            State::Look => {
                self.state = State::Looking;
                Some(Act::Look(vec![waits]))
            }
            State::Remove(attr) => {
                let act = removal(waits, self.oid, attr, None);
                self.state = State::Removing;
                Some(act)
            }
            State::Forget => {
                self.state = State::Forgetting;
                Some(Act::Commit(Commit {
                    batch: vec![note(&waits, None)],
                    ..Commit::default()
                }))
            }
            _ => None,
        })
    }
}
