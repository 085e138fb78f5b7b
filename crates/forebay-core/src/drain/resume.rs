//! Records that a pass has left in transit because it was killed: finished, or taken back, as the PFS shows.
//!
//! As long as the PFS does not show it, the mark stays: without it nobody knows where a renamed thing is, or
//! whose the thing under a name is.

use super::act::{Act, DrainCommit, DrainVerdict, Got, Trouble, Work};
use super::commits::{Update, commit_of, relocated};
use super::drain_facts::DrainFacts;
use super::reserved_names::{old_copy_path, waiting_path};
use super::rules::{OURS, all_speakers, has_contents, is_ours, is_placed_above, read};
use super::sheet::Sheet;
use super::strand::Strand;
use super::workplaces;
use crate::bridge::{Mutation, ReadSet};
use crate::facts::{Attr, Outcome};
use crate::fault::Fault;
use crate::identity::Identity;
use crate::path::TreePath;
use crate::record::{BridgeId, Kind, PathRecord, Transit};
use crate::speakers::Word;
use crate::table::Change;

/// Looks that the PFS may refuse, with a pause after each, before the machine gives up.
pub(super) const MOST_LOOKS: u32 = 25;

enum State {
    Begin,
    Looking(PathRecord),
    /// The PFS has refused a look.
    Refused(Trouble),
    Pausing,
    Judge(PathRecord, Vec<Option<Attr>>),
    Committing,
    End,
}

/// What programs noted that had no marks yet: paths whose contents were about to get their names.
const INTENDED: &[u8] = b"drain/intended";

/// The paths of that note, if there is one.
pub(super) fn intended(facts: &dyn DrainFacts) -> Outcome<Option<Vec<TreePath>>> {
    let notes = facts.notes(INTENDED)?;
    let note = notes.iter().find(|(key, _)| key == INTENDED);
    note.map(|(key, value)| workplaces::read(key, value))
        .transpose()
}

/// The note goes.
pub(super) fn forget_intended() -> DrainCommit {
    DrainCommit {
        batch: vec![Change::Meta {
            key: INTENDED.to_vec(),
            value: None,
        }],
        ..DrainCommit::default()
    }
}

/// Ends the transit of one record, and of all that were marked together with it.
///
/// Where there are several bridges each resumes for itself, while the others may be at work. A record of this home
/// can have been marked by another bridge: because it is in a directory that the other moves, or because it
/// names a file of which the other's home has the first name in transit. Its mark is the other's to take away.
pub(super) struct Resume {
    path: TreePath,
    /// Other names of the same object that are in transit, once that is known to be ours.
    rest: Option<Vec<TreePath>>,
    /// What it relies on that this is known.
    reads: ReadSet,
    /// It is as if it were marked.
    is_intended: bool,
    looks: u32,
    state: State,
}

/// What the PFS tells about a record in transit.
enum Told {
    /// The work has not been done, or does not show; a later pass does it.
    Nothing,
    /// Something is under its name that is ours.
    Ours,
    /// The directory that was to be made is not there.
    NotMade,
    /// What was renamed has got there.
    Arrived { from: TreePath, to: TreePath },
}

impl Resume {
    pub(super) fn new(path: TreePath) -> Self {
        Resume {
            path,
            rest: None,
            reads: ReadSet::default(),
            is_intended: false,
            looks: 0,
            state: State::Begin,
        }
    }

    /// For a path that has no mark, but was noted.
    pub(super) fn intended(path: TreePath) -> Self {
        Resume {
            is_intended: true,
            ..Resume::new(path)
        }
    }

    /// What has to be looked at.
    fn places(&self, record: &PathRecord, maker: Option<BridgeId>) -> Vec<TreePath> {
        match (record.kind, &record.origin) {
            _ if record.transit == Some(Transit::Releasing) => Vec::new(),
            (Kind::Moved, Some(from)) => {
                let targets = self.targets(record, from).into_iter();
                [from.clone()].into_iter().chain(targets).collect()
            }
            // It was being made, and its mark says that it is there.
            (Kind::Dir, _) if record.hides.is_none() => vec![self.path.clone()],
            _ if record.arriving.is_some() => vec![self.path.clone()],
            _ if is_ours(&self.path, record) => Vec::new(),
            _ if has_contents(record) => {
                // Only older programs did not note what arrives.
                let temporary = old_copy_path(&self.path, record.object.oid, maker);
                vec![self.path.clone(), temporary]
            }
            _ => Vec::new(),
        }
    }

    /// If the mark of this record is one of this bridge: all names in transit of the same file.
    fn marked_with(
        &self,
        record: &PathRecord,
        facts: &dyn DrainFacts,
        reads: &mut ReadSet,
    ) -> Outcome<Option<Vec<TreePath>>> {
        let mut names = Vec::new();
        if facts.is_single() {
            return Ok(Some(names));
        }
        if let (Kind::Moved, Some(origin)) = (record.kind, &record.origin) {
            let is_carried =
                record.transit == Some(Transit::Placing) && is_placed_above(facts, origin, reads)?;
            return Ok((!is_carried).then_some(names));
        }
        if has_contents(record) {
            for (object, path) in facts.names_of(record.object.oid)? {
                let named = read(facts, &path, reads)?.filter(|r| r.object == object);
                if named.is_some_and(|r| r.transit.is_some()) {
                    names.push(path);
                }
            }
            names.sort();
            if names.first() != Some(&self.path) {
                return Ok(None);
            }
        }
        Ok(Some(names))
    }

    /// The next name, or the end.
    fn go_on(&mut self) {
        let next = self.rest.as_mut().and_then(Vec::pop);
        self.state = match next {
            Some(next) => {
                self.path = next;
                self.reads = ReadSet::default();
                State::Begin
            }
            None => State::End,
        };
    }

    /// Where something can have been on its way to.
    fn targets(&self, record: &PathRecord, from: &TreePath) -> Vec<TreePath> {
        let waiting = waiting_path(record.object.oid);
        let waits = (*from != waiting).then_some(waiting);
        waits.into_iter().chain([self.path.clone()]).collect()
    }

    /// Where what was renamed has got to, as these looks at its old place and at each of the targets tell.
    fn arrived(
        &self,
        record: &PathRecord,
        from: &TreePath,
        found: &[Option<Attr>],
    ) -> Option<TreePath> {
        let (gone, seen) = found.split_first()?;
        let known = record.arriving.as_deref();
        let waiting = waiting_path(record.object.oid);
        let mut targets = self.targets(record, from).into_iter().zip(seen);
        targets.find_map(|(target, seen)| {
            let there = seen.as_ref()?;
            let may_be_it = match (target == waiting, *from == waiting) {
                // What was pulled aside waits under a name that nobody else gives, whatever has come to its old place.
                (true, _) => true,
                (_, true) => gone.is_none(),
                // Only what is known, and replaces nothing, goes to its final name at once.
                _ => known.is_some_and(|known| {
                    record.hides.is_none() && gone.as_ref().is_none_or(|gone| !known.is(gone))
                }),
            };
            let is_it = may_be_it && known.is_none_or(|known| known.is(there));
            is_it.then_some(target)
        })
    }

    fn told(&self, record: &PathRecord, found: &[Option<Attr>]) -> Told {
        match (record.kind, &record.origin, found) {
            (Kind::Moved, Some(from), _) => match self.arrived(record, from, found) {
                Some(to) => Told::Arrived {
                    from: from.clone(),
                    to,
                },
                None => Told::Nothing,
            },
            (Kind::Dir, _, [Some(attr)]) if attr.is_dir() => Told::Ours,
            (Kind::Dir, _, [_]) => Told::NotMade,
            // What is under the name is the copy, or it is not.
            (kind, _, [Some(now)]) if kind != Kind::Moved => {
                match record.arriving.as_ref().is_some_and(|copy| copy.is(now)) {
                    true => Told::Ours,
                    false => Told::Nothing,
                }
            }
            // The temporary name is gone, so the copy was renamed and is ours. If it is still there, a stranger made
            // the other file.
            (kind, _, [Some(_), None]) if kind != Kind::Moved => Told::Ours,
            _ => Told::Nothing,
        }
    }

    /// What this record is to become, and those that were marked with it.
    fn judged(
        &self,
        record: &PathRecord,
        found: &[Option<Attr>],
        facts: &dyn DrainFacts,
    ) -> Outcome<DrainCommit> {
        let mut reads = self.reads.clone();
        let told = match Mutation::ResumeForgetsRenames.is_in(|| facts.planted()) {
            true => Told::Nothing,
            false => self.told(record, found),
        };
        let (updates, labels) = match told {
            Told::Arrived { from, to } => {
                let is_final = to == self.path;
                relocated(facts, &self.path, &from, &to, is_final, &mut reads)?
            }
            told => {
                let path = self.path.clone();
                let mut labels = Vec::new();
                // The label may say already that nothing is hidden, and the record does not.
                if has_contents(record) && record.hides.is_some() {
                    labels.push((path.clone(), record.object));
                }
                let mut update = Update::marked(path, record.clone(), None);
                let mut others = Vec::new();
                if let Some(after) = &mut update.after {
                    write_down(&told, record, after);
                    if let (Told::Ours, Some(&there)) = (&told, record.arriving.as_deref()) {
                        after.shows(there);
                        others = other_names_show(facts, &self.path, record, there)?;
                    }
                }
                let mut updates = vec![update];
                updates.append(&mut others);
                if let (Kind::Moved, Some(origin)) = (record.kind, &record.origin)
                    && record.transit == Some(Transit::Placing)
                {
                    // What is in it was marked with it.
                    updates.extend(marked_in(facts, &self.path, origin, &mut reads)?);
                }
                (updates, labels)
            }
        };
        Ok(commit_of(facts, reads, updates, labels).0)
    }
}

/// The other names of the object of the record at `path`, which all show the number of this copy.
fn other_names_show(
    facts: &dyn DrainFacts,
    path: &TreePath,
    record: &PathRecord,
    copy: Identity,
) -> Outcome<Vec<Update>> {
    let mut others = Vec::new();
    for (_, other) in facts.names_of(record.object.oid)? {
        let found = facts.record(&other)?.filter(|_| other != *path);
        let Some(before) = found.filter(|r| r.object.oid == record.object.oid) else {
            continue;
        };
        let mut after = before.clone();
        after.shows(copy);
        if after != before {
            others.push(Update {
                path: other,
                before,
                after: Some(after),
            });
        }
    }
    Ok(others)
}

/// What the PFS tells of a record that stays where it is.
fn write_down(told: &Told, before: &PathRecord, after: &mut PathRecord) {
    match told {
        Told::Ours => {
            // One record speaks of one place.
            after.hides = None;
            match before.arriving.as_deref() {
                Some(&there) => after.is_there_as(there),
                None if before.kind == Kind::Dir => {}
                None => after.replaces = None,
            }
            after.drained = Some(OURS);
        }
        Told::NotMade => (after.drained, after.replaces) = (None, None),
        // What is hidden may have been removed.
        Told::Nothing if before.transit != Some(Transit::Releasing) => {
            after.replaces = before.replaces.map(Identity::doubtful);
        }
        Told::Nothing | Told::Arrived { .. } => {}
    }
}

/// The records that were marked because they are in what moves from `origin`, without their marks.
fn marked_in(
    facts: &dyn DrainFacts,
    mover: &TreePath,
    origin: &TreePath,
    reads: &mut ReadSet,
) -> Outcome<Vec<Update>> {
    let mut updates = Vec::new();
    for speaker in all_speakers(facts, origin, reads)? {
        if speaker.word == Word::Origin
            && speaker.path != *mover
            && let Some(record) = facts.record(&speaker.path)?
            && record.transit == Some(Transit::Placing)
        {
            updates.push(Update::marked(speaker.path, record, None));
        }
    }
    Ok(updates)
}

impl Strand for Resume {
    fn take(&mut self, got: Got, _sheet: &mut Sheet) {
        match (std::mem::replace(&mut self.state, State::End), got) {
            (State::Looking(record), Got::Seen(seen)) => {
                let seen: Work<Vec<_>> = seen.into_iter().collect();
                self.state = match seen {
                    Ok(seen) => State::Judge(record, seen),
                    Err(trouble) => State::Refused(trouble),
                };
            }
            (State::Pausing, Got::Done) => self.state = State::Begin,
            (State::Committing, Got::Verdict(DrainVerdict::Committed)) => self.go_on(),
            (State::Committing, Got::Verdict(DrainVerdict::Conflict)) => {
                self.rest = self.rest.take().filter(|rest| !rest.is_empty());
                self.state = State::Begin;
            }
            (_, got) => unreachable!("{got:?} answers nothing that was asked"),
        }
    }

    fn next(&mut self, facts: &dyn DrainFacts, _sheet: &mut Sheet) -> Outcome<Option<Act>> {
        loop {
            match &self.state {
                State::Begin => {
                    let record = facts.record(&self.path)?;
                    let is_due =
                        |r: &PathRecord| r.transit.is_some() || self.is_intended && has_contents(r);
                    let Some(record) = record.filter(is_due) else {
                        self.go_on();
                        continue;
                    };
                    if self.rest.is_none() {
                        let mut reads = ReadSet::default();
                        let Some(mut rest) = self.marked_with(&record, facts, &mut reads)? else {
                            return Ok(None);
                        };
                        // The first name comes last: as long as it is marked, all of them are ours.
                        let last = rest.pop();
                        self.reads = reads;
                        self.rest = Some(rest);
                        if let Some(last) = last.filter(|last| *last != self.path) {
                            self.path = last;
                            continue;
                        }
                    }
                    let maker = (!facts.is_single()).then(|| facts.me());
                    let places = self.places(&record, maker);
                    if places.is_empty() {
                        self.state = State::Judge(record, Vec::new());
                        continue;
                    }
                    self.looks += 1;
                    self.state = State::Looking(record);
                    return Ok(Some(Act::Look(places)));
                }
                State::Refused(_) if self.looks < MOST_LOOKS => {
                    self.state = State::Pausing;
                    return Ok(Some(Act::Pause));
                }
                State::Refused(trouble) => {
                    let (path, trouble) = (self.path.clone(), *trouble);
                    return Err(Fault::KilledDrain { path, trouble }.into());
                }
                State::Judge(record, found) => {
                    let commit = self.judged(record, found, facts)?;
                    self.state = State::Committing;
                    return Ok(Some(Act::Commit(commit)));
                }
                State::End => return Ok(None),
                _ => unreachable!("it waits for its outcome"),
            }
        }
    }
}
