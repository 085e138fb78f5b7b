//! What waits on the PFS for its final name, although the record that moved it is gone.
//!
//! A thing that was renamed is hidden at its old place by a whiteout, until a drain takes it away from there to a waiting
//! name. If a program removes it then, nothing speaks of it any more. So the batch that removes the record
//! notes the waiting name, and the next pass removes what is there. Without such a note nothing that waits
//! is ever removed.

use super::act::{Act, DrainCommit, DrainVerdict, Got, Work};
use super::drain_facts::DrainFacts;
use super::known_dir::KnownDir;
use super::reserved_names::{waiting_path, waits_under};
use super::rules::{holds_something_moved, removal};
use super::shared_files::{as_found, evidence};
use super::sheet::{Reason, Sheet};
use super::strand::Strand;
use crate::bridge::ReadSet;
use crate::facts::{Attr, Outcome};
use crate::identity::Identity;
use crate::path::TreePath;
use crate::record::{Kind, ObjectId, PathRecord};
use crate::table::{Change, KeyValue};
use std::collections::BTreeSet;

/// Notes begin so; the waiting name follows.
pub(super) const NOTES: &[u8] = b"drain/orphan/";

/// The change that goes into the batch in which this record goes, if there has to be one. `known` is what waits, if that was
/// looked at and is what was renamed.
pub fn abandon(record: &PathRecord, known: Option<Identity>) -> Option<Change> {
    is_waiting(record).then(|| {
        let known = known.or(record.arriving.as_deref().copied());
        let value = known.map(|known| known.encode().to_vec());
        note(
            &waiting_path(record.object.oid),
            Some(value.unwrap_or_default()),
        )
    })
}

/// Does what was renamed wait on the PFS for its final name?
pub(super) fn is_waiting(record: &PathRecord) -> bool {
    record.kind == Kind::Moved && record.origin == Some(waiting_path(record.object.oid))
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
    /// What is in it?
    Know(Attr),
    Knowing(Attr),
    Known(KnownDir, Attr),
    Remove(Attr),
    Removing,
    Forget,
    Forgetting,
    End,
}

/// Removes one thing that nobody waits for.
pub(super) struct Orphan {
    oid: ObjectId,
    /// What was there when it was abandoned.
    known: Option<Identity>,
    state: State,
}

impl Orphan {
    /// For this note; `None` if it is none.
    pub(super) fn noted((key, value): &KeyValue) -> Option<Self> {
        let oid = waits_under(key.strip_prefix(NOTES)?)?;
        // Those of older versions know nothing.
        let known = value[..].try_into().ok().map(Identity::decode);
        Some(Orphan {
            oid,
            known,
            state: State::Begin,
        })
    }

    /// What is there now is this.
    fn found(&mut self, now: Attr, sheet: &mut Sheet) {
        match self.known {
            Some(known) if !known.is_inode_of(&now) => self.changed(sheet),
            Some(known) if known.has_contents() => self.state = State::Know(now),
            _ => self.state = State::Remove(now),
        }
    }

    /// Others have put something there. The note stays until they have taken it away.
    fn changed(&mut self, sheet: &mut Sheet) {
        let waits = waiting_path(self.oid);
        let cause = "others have changed what was renamed here and then removed: what is theirs in it has to be moved away on the PFS";
        sheet.leave_without_record(&waits, Reason::Blocked(cause.to_owned()));
        self.state = State::End;
    }

    fn removed(&mut self, did: Work<()>, sheet: &mut Sheet) {
        let waits = waiting_path(self.oid);
        self.state = match did {
            Ok(()) => {
                sheet.tally.removed += 1;
                sheet.note_unsynced(&waits);
                State::Forget
            }
            Err(trouble) if trouble.errno == libc::EEXIST => return self.changed(sheet),
            // The note stays for the next pass.
            Err(trouble) => {
                sheet.leave_without_record(&waits, Reason::Refused(trouble));
                State::End
            }
        };
    }
}

impl Strand for Orphan {
    fn take(&mut self, got: Got, sheet: &mut Sheet) {
        match (std::mem::replace(&mut self.state, State::End), got) {
            (State::Asking, Got::Verdict(DrainVerdict::Committed)) => self.state = State::Look,
            (State::Asking, Got::Verdict(DrainVerdict::Conflict)) => {}
            (State::Looking, Got::Seen(seen)) => match seen.into_iter().next() {
                Some(Ok(Some(attr))) => self.found(attr, sheet),
                Some(Ok(None)) => self.state = State::Forget,
                Some(Err(trouble)) => self.removed(Err(trouble), sheet),
                None => unreachable!("one look has one outcome"),
            },
            (State::Knowing(attr), Got::Known(Ok(now))) => self.state = State::Known(now, attr),
            (State::Knowing(_), Got::Known(Err(trouble))) => self.removed(Err(trouble), sheet),
            (State::Removing, Got::Did(did)) => self.removed(did, sheet),
            (State::Forgetting, Got::Verdict(DrainVerdict::Committed)) => {}
            (State::Forgetting, Got::Verdict(DrainVerdict::Conflict)) => self.state = State::Forget,
            (_, got) => unreachable!("{got:?} answers nothing that was asked"),
        }
    }

    fn next(&mut self, facts: &dyn DrainFacts, sheet: &mut Sheet) -> Outcome<Option<Act>> {
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
                let question = DrainCommit {
                    reads,
                    ..DrainCommit::default()
                };
                Some(Act::Commit(question))
            }
            State::Look => {
                self.state = State::Looking;
                Some(Act::Look(vec![waits]))
            }
            State::Know(attr) => {
                self.state = State::Knowing(*attr);
                Some(Act::Know {
                    path: waits,
                    without: BTreeSet::new(),
                    with_files: self.known.is_some_and(Identity::is_of_several_names),
                })
            }
            State::Known(now, attr) => {
                let (files, planted) = (&mut sheet.shared_files, sheet.planted);
                let evidence = |found: &Attr| evidence(facts, found);
                let goes = match self.known {
                    Some(known) => files.may_go_with(&waits, known, now, &evidence, planted)?,
                    None => None,
                };
                if goes.is_none() {
                    self.changed(sheet);
                    return Ok(None);
                }
                let act = removal(waits, self.oid, attr, goes, None, None);
                self.state = State::Removing;
                Some(act)
            }
            State::Remove(attr) => {
                let files = &mut sheet.shared_files;
                let is = match self.known {
                    Some(known) if known.is(attr) => {
                        files.goes_for_certain(&waits, attr);
                        Some(known)
                    }
                    Some(known) if files.is_changed_by_us(&waits, known, attr, facts)? => {
                        Some(as_found(attr))
                    }
                    Some(_) => {
                        self.changed(sheet);
                        return Ok(None);
                    }
                    None => None,
                };
                let act = removal(waits, self.oid, attr, is, None, None);
                self.state = State::Removing;
                Some(act)
            }
            State::Forget => {
                self.state = State::Forgetting;
                Some(Act::Commit(DrainCommit {
                    batch: vec![note(&waits, None)],
                    ..DrainCommit::default()
                }))
            }
            _ => None,
        })
    }
}
