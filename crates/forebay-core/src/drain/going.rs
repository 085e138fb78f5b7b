//! Files that are removed from the PFS.
//!
//! The kernel removes whatever has a name at that moment. So what is to go gets a name of the drain first, in its own directory, and
//! is looked at there: if others have put something of theirs in its place, that gets its name back. A note tells what was about to
//! go, from before the rename until it has gone or is back; the next pass ends what one that was killed has begun.

use super::act::{Act, DrainCommit, DrainVerdict, Got, Trouble};
use super::beside::Places;
use super::drain_facts::DrainFacts;
use super::name_secret::NameSecret;
use super::reserved_names::going_path;
use super::sheet::{Reason, Sheet};
use super::strand::Strand;
use crate::facts::{Attr, Outcome};
use crate::identity::{self, Identity};
use crate::path::TreePath;
use crate::record::PathRecord;
use crate::table::{Change, KeyValue};

/// Notes begin so; the name follows that the file has for a moment.
pub(super) const NOTES: &[u8] = b"drain/going/";

/// A file on its way out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Going {
    /// Its name.
    place: TreePath,
    /// What it has to be.
    known: Identity,
    /// See [`crate::record::Dirs::within`].
    within: Option<Identity>,
    /// The name by which it goes.
    pub(super) by: TreePath,
}

impl Going {
    /// What this record hides, if it is known, and a file.
    pub(super) fn of(
        record: &PathRecord,
        within: Option<Identity>,
        secret: NameSecret,
    ) -> Option<Self> {
        let known = record.replaces.filter(|known| !known.is_dir())?;
        let place = record.hides.clone()?;
        let by = going_path(&place, record.object.oid, secret);
        Some(Going {
            place,
            known,
            within,
            by,
        })
    }

    fn key(&self) -> Vec<u8> {
        [NOTES, self.by.name()].concat()
    }

    /// The change that notes it.
    pub(super) fn note(&self) -> Change {
        let known = self.known.encode();
        // Nothing is nobody's directory.
        let within = self.within.unwrap_or(Identity::NOTHING).encode();
        Change::Meta {
            key: self.key(),
            value: Some([&known[..], &within, self.place.as_bytes()].concat()),
        }
    }

    /// The change that takes the note away.
    pub(super) fn forget(&self) -> Change {
        Change::Meta {
            key: self.key(),
            value: None,
        }
    }

    /// What a note tells; `None` if it is none.
    fn noted((key, value): &KeyValue) -> Option<Self> {
        let (known, rest) = value.split_at_checked(identity::BYTES)?;
        let (within, place) = rest.split_at_checked(identity::BYTES)?;
        let place = TreePath::new(place).filter(|place| !place.is_root())?;
        let within = Identity::decode(within.try_into().ok()?);
        Some(Going {
            known: Identity::decode(known.try_into().ok()?),
            within: Some(within).filter(|dir| *dir != Identity::NOTHING),
            by: place.parent().join(key.strip_prefix(NOTES)?),
            place,
        })
    }
}

enum State {
    Look,
    Looking,
    Act(Act),
    Removing,
    GivingBack(Identity),
    Forget,
    Forgetting,
    End,
}

/// Ends what a pass that was killed, or that the PFS has refused, has begun with one file: it goes if it is the one that was to go,
/// and else gets its name back, where the pass then finds it.
pub(super) struct GoOn {
    going: Going,
    places: Places,
    state: State,
}

impl GoOn {
    /// For this note; `None` if it is none.
    pub(super) fn noted(note: &KeyValue) -> Option<Self> {
        let going = Going::noted(note)?;
        Some(GoOn {
            places: Places::of(&going.place),
            going,
            state: State::Look,
        })
    }

    fn found(&self, found: Option<Attr>) -> State {
        let Some(found) = found else {
            return State::Forget;
        };
        let is = Identity::of_copy(&found);
        match self.going.known.renamed().is(&found) {
            true => State::Act(Act::Remove {
                path: self.going.by.clone(),
                is,
                by: None,
                within: self.going.within,
            }),
            false => self.give_back(is),
        }
    }

    fn give_back(&self, is: Identity) -> State {
        State::Act(Act::Rename {
            from: self.going.by.clone(),
            to: self.places.place(),
            is,
            out_of: self.going.within,
            within: self.going.within,
        })
    }

    /// The note stays for the next pass.
    fn failed(&self, trouble: Trouble, sheet: &mut Sheet) -> State {
        let place = &self.going.place;
        sheet.leave_without_record(place, Reason::Refused(trouble));
        sheet.stays_on_its_way(place.clone());
        State::End
    }
}

impl Strand for GoOn {
    fn take(&mut self, got: Got, sheet: &mut Sheet) {
        self.state = match (std::mem::replace(&mut self.state, State::End), got) {
            (State::Looking, Got::Seen(seen)) => match seen.into_iter().next() {
                Some(Ok(found)) => self.found(found),
                Some(Err(trouble)) => self.failed(trouble, sheet),
                None => unreachable!("one look has one outcome"),
            },
            // Others have changed it since the look.
            (State::Removing, Got::Did(Err(e))) if e.errno == libc::EEXIST => State::Look,
            (State::Removing | State::GivingBack(_), Got::Did(Ok(()))) => {
                let place = self.places.place();
                sheet.note_unsynced(&place);
                if place != self.going.place {
                    sheet.leave_without_record(&place, Reason::CameBack);
                }
                State::Forget
            }
            (State::GivingBack(is), Got::Did(Err(e)))
                if e.errno == libc::EEXIST && self.places.move_on(e.errno) =>
            {
                self.give_back(is)
            }
            (State::Removing | State::GivingBack(_), Got::Did(Err(e))) => self.failed(e, sheet),
            (State::Forgetting, Got::Verdict(DrainVerdict::Committed)) => State::End,
            (State::Forgetting, Got::Verdict(DrainVerdict::Conflict)) => State::Forget,
            (_, got) => unreachable!("{got:?} answers nothing that was asked"),
        };
    }

    fn next(&mut self, _facts: &dyn DrainFacts, _sheet: &mut Sheet) -> Outcome<Option<Act>> {
        let (act, state) = match &self.state {
            State::Look => (Act::Look(vec![self.going.by.clone()]), State::Looking),
            State::Act(act) => {
                let state = match act {
                    Act::Rename { is, .. } => State::GivingBack(*is),
                    _ => State::Removing,
                };
                (act.clone(), state)
            }
            State::Forget => {
                let forget = DrainCommit {
                    batch: vec![self.going.forget()],
                    ..DrainCommit::default()
                };
                (Act::Commit(forget), State::Forgetting)
            }
            _ => return Ok(None),
        };
        self.state = state;
        Ok(Some(act))
    }
}
