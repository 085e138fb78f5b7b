//! The buffered copies go, a few at a time.
//!
//! A record may go when the PFS shows the same thing by itself. For a file, that is when it is clean and its
//! directory is one of the PFS. So the pass makes three walks: directories that were made in the buffer
//! *open* (the record says from now on that the directory is that of the PFS, and the PFS shows through
//! it), then files go, and in the end the records of the opened directories go, children first. A directory
//! that keeps a file keeps its record: the labels of the files in it name it by its object.
//!
//! # Why no write is lost
//!
//! An object goes only if, after its mark ([`Transit::Releasing`]) was committed, nobody was found to have it
//! open, and its state after that was the clean one.
//!
//! - A request that was decided before the commit may be about to open the object: the bridge opens it after the
//!   step, without a lock. If that comes before the commit, the probe finds the descriptor, with the client or
//!   passing. If it comes later, the commit has changed the moment, and the request decides again: the open
//!   counts only if the answer is the same, and a decision after the commit waits for the mark.
//! - Who decided before and opens the object itself, by its name, asks again if that was after
//!   the commit ([`DrainCommit::forbids_late_opens`]); if it was before, the probe finds it.
//! - Who decides after the commit waits for the mark to go (`ops::transit`), and finds the PFS, or the record
//!   without a mark.
//!
//! The same holds for directories, which are only opened by the bridge. They take no leases, so their probe looks
//! wherever a descriptor can be, in the order in which it goes there ([`Act::ProbeDirs`]).
//!
//! So between the probe and the end of the mark nobody has the object open, nobody gets it open, and
//! what the probe saw of it is its last state.

use super::act::{Act, DrainCommit, DrainVerdict, Got, Trouble, Work};
use super::commits::{Update, commit_of};
use super::contents::all_names;
use super::drain_facts::DrainFacts;
use super::rules::{OURS, has_contents, is_dirty, is_natural, read, unsettled};
use super::sheet::Sheet;
use super::strand::{Strand, with_outcomes};
use super::usage::Use;
use crate::bridge::{Mutation, ReadSet};
use crate::facts::{Attr, Outcome};
use crate::identity::Identity;
use crate::path::TreePath;
use crate::record::{Dirs, Kind, ObjectId, ObjectName, PathRecord, Transit};
use std::collections::BTreeSet;

/// Records that are released between two commits: a request for one of them waits for all.
pub const RELEASED_AT_ONCE: usize = 32;
/// Looks at a file that only the bridge itself has open, with a pause between two of them; then the file is kept.
pub(super) const PASSING_TRIES: u32 = 25;
/// After so many conflicts a slice keeps its files.
const MAX_CONFLICTS: u32 = 100;

/// Which walk it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReleaseWalk {
    /// Directories made in the buffer open.
    Dirs,
    /// Files, symbolic links and nodes go.
    Contents,
    /// What was renamed and is in its place needs no record any more; nor do opened directories.
    Places,
}

/// Why something is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Keep {
    Changed,
    Open,
    Passing,
    Entered,
    /// Nobody can tell.
    Refused(Trouble),
    /// Kept without a report of its own: a directory above or below it is kept, or another name of it comes later.
    Quietly,
}

enum State {
    Begin,
    Examining,
    Judge(Vec<Work<Attr>>),
    Looking(ReadSet),
    Mark(ReadSet),
    Marking,
    Probe,
    Probing,
    Examine(Work<Vec<ObjectId>>),
    ExaminingAgain(Work<Vec<ObjectId>>),
    Finish,
    Finishing,
    End,
}

/// One object with all its names, or a directory.
struct Releasable {
    names: Vec<(TreePath, PathRecord)>,
    keep: Option<Keep>,
    /// Its records carry marks of this walk. A mark on any other is of another strand, and not to be taken away here.
    is_marked: bool,
}

impl Releasable {
    fn object(&self) -> ObjectName {
        self.names[0].1.object
    }
}

/// Releases what can be released of a few records.
pub(super) struct Release {
    walk: ReleaseWalk,
    entries: Vec<(TreePath, PathRecord)>,
    candidates: Vec<Releasable>,
    marked: Vec<(TreePath, PathRecord)>,
    state: State,
    tries: u32,
    /// Files go only if the PFS has something else now than was drained.
    only_what_differs: bool,
}

impl Release {
    pub(super) fn new(walk: ReleaseWalk, entries: Vec<(TreePath, PathRecord)>) -> Self {
        Release {
            walk,
            entries,
            candidates: Vec::new(),
            marked: Vec::new(),
            state: State::Begin,
            tries: 0,
            only_what_differs: false,
        }
    }

    /// Files go only if others have changed or removed them on the PFS.
    pub(super) fn of_what_differs(self) -> Self {
        Release {
            only_what_differs: true,
            ..self
        }
    }

    /// Does this walk have to do with the record? A refresh concerns what was drained alone: nothing else differs.
    pub(super) fn concerns(
        walk: ReleaseWalk,
        refreshes: bool,
        path: &TreePath,
        record: &PathRecord,
    ) -> bool {
        if refreshes && record.drained.is_none() {
            return false;
        }
        match walk {
            ReleaseWalk::Dirs => record.kind == Kind::Dir,
            ReleaseWalk::Contents => has_contents(record),
            ReleaseWalk::Places => {
                record.kind == Kind::Moved
                    && record.origin.as_ref() == Some(path)
                    && record.hides.is_none()
            }
        }
    }

    /// What may go, as far as records and the state of objects tell.
    fn judge(
        &self,
        attrs: &[Work<Attr>],
        facts: &dyn DrainFacts,
        reads: &mut ReadSet,
    ) -> Outcome<Vec<Releasable>> {
        let mut candidates = Vec::new();
        let mut going = BTreeSet::new();
        for ((path, before), attr) in with_outcomes(&self.entries, attrs) {
            let now = read(facts, path, reads)?;
            let Some(record) = now.filter(|r| r.transit.is_none()) else {
                continue;
            };
            let mut candidate = Releasable {
                names: vec![(path.clone(), record.clone())],
                keep: None,
                is_marked: false,
            };
            candidate.keep = match self.walk {
                _ if record.object != before.object => Some(Keep::Changed),
                ReleaseWalk::Dirs if unsettled(facts, &path.parent(), reads)?.is_some() => {
                    Some(Keep::Changed)
                }
                ReleaseWalk::Dirs => by_state(path, &record, attr),
                ReleaseWalk::Contents => match attr {
                    Ok(attr) => self.judge_names(&mut candidate, attr, facts, reads)?,
                    Err(trouble) => Some(Keep::Refused(*trouble)),
                },
                ReleaseWalk::Places => {
                    let has_child = facts
                        .children(path, RELEASED_AT_ONCE + 1)?
                        .iter()
                        .any(|(name, _)| !going.contains(&path.join(name)));
                    let shows = is_natural(facts, &path.parent(), reads)?;
                    let is_there = Self::concerns(self.walk, false, path, &record);
                    (has_child || !shows || !is_there).then_some(Keep::Quietly)
                }
            };
            if candidate.keep.is_none() {
                going.insert(path.clone());
                facts.rely_on_range(path, reads)?;
            }
            candidates.push(candidate);
        }
        Ok(candidates)
    }

    /// All names of an object go together.
    fn judge_names(
        &self,
        candidate: &mut Releasable,
        attr: &Attr,
        facts: &dyn DrainFacts,
        reads: &mut ReadSet,
    ) -> Outcome<Option<Keep>> {
        let (path, record) = &candidate.names[0];
        let Some(names) = all_names(facts, path, record, attr)? else {
            return Ok(Some(Keep::Quietly));
        };
        if !Mutation::ReleasesOneOfSeveralNames.is_in(|| facts.planted()) {
            if names.len() < attr.nlink as usize {
                // One more is being made.
                return Ok(Some(Keep::Changed));
            }
            candidate.names = names;
        }
        for (path, record) in &candidate.names {
            reads.saw(path, Some(record));
            if is_dirty(path, record, Some(attr)) || record.transit.is_some() {
                return Ok(Some(Keep::Changed));
            }
            if !is_natural(facts, &path.parent(), reads)? {
                // The directory is kept, and it has been said why.
                return Ok(Some(Keep::Quietly));
            }
        }
        Ok(None)
    }

    fn going(&mut self) -> impl Iterator<Item = &mut Releasable> {
        self.candidates.iter_mut().filter(|c| c.keep.is_none())
    }

    /// Where the PFS shows what was drained the copy stays.
    fn compare(&mut self, seen: Vec<Work<Option<Attr>>>) {
        let mut seen = seen.into_iter();
        for candidate in self.going() {
            let looks = seen.by_ref().take(candidate.names.len());
            let mut names = candidate.names.iter().zip(looks);
            if !names.any(|((_, record), look)| differs(record, &look)) {
                candidate.keep = Some(Keep::Quietly);
            }
        }
    }

    fn mark(&mut self, facts: &dyn DrainFacts, reads: ReadSet) -> Option<Act> {
        let updates: Vec<_> = self
            .going()
            .flat_map(|c| c.names.iter().cloned())
            .map(|(path, r)| Update::marked(path, r, Some(Transit::Releasing)))
            .collect();
        if updates.is_empty() {
            self.state = State::Finish;
            return None;
        }
        let (mut commit, marked) = commit_of(facts, reads, updates, Vec::new());
        commit.forbids_late_opens = true;
        self.marked = marked;
        self.state = State::Marking;
        Some(Act::Commit(commit))
    }

    /// The marks are there.
    fn marks_committed(&mut self) {
        let mut marked = std::mem::take(&mut self.marked).into_iter();
        for candidate in self.going() {
            candidate.is_marked = true;
            for name in &mut candidate.names {
                if let Some(now) = marked.next() {
                    assert_eq!(now.0, name.0, "marks come in the order of the records");
                    *name = now;
                }
            }
        }
        self.state = State::Probe;
    }

    fn probe(&mut self) -> Option<Act> {
        let (act, state) = match self.walk {
            ReleaseWalk::Dirs => (Act::ProbeDirs, State::Probing),
            ReleaseWalk::Contents => {
                let objects = self.going().map(|c| c.object()).collect();
                (Act::Probe(objects), State::Probing)
            }
            // Programs have the directory of the PFS open, which stays.
            ReleaseWalk::Places => {
                self.state = State::Finish;
                return None;
            }
        };
        self.state = state;
        Some(act)
    }

    fn probed(&mut self, users: Vec<Work<Use>>) {
        for (candidate, by) in with_outcomes(self.going(), users) {
            candidate.keep = match by {
                Ok(Use::Free(attr)) => {
                    let mut names = candidate.names.iter();
                    names
                        .any(|(path, record)| is_dirty(path, record, Some(&attr)))
                        .then_some(Keep::Changed)
                }
                Ok(Use::Passing) => Some(Keep::Passing),
                Ok(Use::Held) => Some(Keep::Open),
                Err(trouble) => Some(Keep::Refused(trouble)),
            };
        }
        self.state = State::Finish;
    }

    fn examined_again(&mut self, busy: &Work<Vec<ObjectId>>, attrs: Vec<Work<Attr>>) {
        for (candidate, attr) in with_outcomes(self.going(), attrs) {
            let (path, record) = &candidate.names[0];
            candidate.keep = match busy {
                Err(trouble) => Some(Keep::Refused(*trouble)),
                Ok(busy) if busy.contains(&record.object.oid) => Some(Keep::Entered),
                Ok(_) => by_state(path, record, &attr),
            };
        }
        self.state = State::Finish;
    }

    fn conclude(&self, facts: &dyn DrainFacts) -> Option<DrainCommit> {
        let mut updates = Vec::new();
        for candidate in self.candidates.iter().filter(|c| c.is_marked) {
            for (path, before) in candidate.names.iter().cloned() {
                let after = match (candidate.keep, self.walk) {
                    (Some(_), _) => Some(PathRecord {
                        transit: None,
                        ..before.clone()
                    }),
                    (None, ReleaseWalk::Dirs) => Some(opened(&path, &before)),
                    (None, _) => None,
                };
                updates.push(Update {
                    path,
                    before,
                    after,
                });
            }
        }
        let (commit, _) = commit_of(facts, ReadSet::default(), updates, Vec::new());
        (!commit.batch.is_empty()).then_some(commit)
    }

    /// What is told of all.
    fn end(&mut self, sheet: &mut Sheet) {
        for candidate in std::mem::take(&mut self.candidates) {
            let (path, _) = &candidate.names[0];
            match candidate.keep {
                None if self.walk == ReleaseWalk::Dirs => {}
                None => {
                    sheet.tally.released += candidate.names.len() as u64;
                    sheet.passing.remove(path);
                }
                Some(Keep::Passing) => {
                    let tries = sheet.passing.entry(path.clone()).or_default();
                    *tries += 1;
                    if *tries > PASSING_TRIES {
                        sheet.passing.remove(path);
                        sheet.keep_because(|| format!("{path} is still open"));
                    }
                }
                Some(keep) => {
                    sheet.passing.remove(path);
                    let words = match keep {
                        Keep::Changed => format!("{path} has been changed again"),
                        Keep::Open | Keep::Passing => format!("{path} is still open"),
                        Keep::Entered => {
                            "a process is in a directory that was made in the buffer".to_owned()
                        }
                        Keep::Refused(trouble) => format!("{path}: {trouble}"),
                        Keep::Quietly => continue,
                    };
                    sheet.keep_because(|| words);
                }
            }
        }
        self.state = State::End;
    }
}

/// Is something else on the PFS now than was drained, or nothing? What can't be looked at counts as unchanged.
fn differs(record: &PathRecord, look: &Work<Option<Attr>>) -> bool {
    let is_there = |known: Identity| match look {
        Ok(found) => found.is_some_and(|found| known.is(&found)),
        Err(_) => true,
    };
    record.replaces.is_some_and(|known| !is_there(known))
}

/// Why the object of this record is kept, if its state is a reason.
fn by_state(path: &TreePath, record: &PathRecord, now: &Work<Attr>) -> Option<Keep> {
    match now {
        Ok(now) => is_dirty(path, record, Some(now)).then_some(Keep::Changed),
        Err(trouble) => Some(Keep::Refused(*trouble)),
    }
}

/// The record of a directory that has opened: a directory moved to its own place.
pub(super) fn opened(path: &TreePath, before: &PathRecord) -> PathRecord {
    PathRecord {
        kind: Kind::Moved,
        ino: 0,
        origin: Some(path.clone()),
        replaces: None,
        dirs: Dirs::within(before.replaces.and_then(Identity::itself)),
        drained: Some(OURS),
        transit: None,
        ..before.clone()
    }
}

impl Strand for Release {
    fn take(&mut self, got: Got, _sheet: &mut Sheet) {
        match (std::mem::replace(&mut self.state, State::End), got) {
            (State::Examining, Got::Attrs(attrs)) => self.state = State::Judge(attrs),
            (State::Looking(reads), Got::Seen(seen)) => {
                self.compare(seen);
                self.state = State::Mark(reads);
            }
            (State::Marking, Got::Verdict(DrainVerdict::Committed)) => self.marks_committed(),
            (State::Marking, Got::Verdict(DrainVerdict::Conflict)) => {
                self.tries += 1;
                self.candidates.clear();
                self.state = State::Begin;
            }
            (State::Probing, Got::Users(users)) => self.probed(users),
            (State::Probing, Got::Busy(busy)) => self.state = State::Examine(busy),
            (State::ExaminingAgain(busy), Got::Attrs(attrs)) => self.examined_again(&busy, attrs),
            (State::Finishing, Got::Verdict(DrainVerdict::Committed)) => self.state = State::End,
            // Nothing else can change this, so the store refused; try again.
            (State::Finishing, Got::Verdict(DrainVerdict::Conflict)) => self.state = State::Finish,
            (_, got) => unreachable!("{got:?} answers nothing that was asked"),
        }
    }

    fn next(&mut self, facts: &dyn DrainFacts, sheet: &mut Sheet) -> Outcome<Option<Act>> {
        loop {
            let act = match std::mem::replace(&mut self.state, State::End) {
                State::Begin if self.entries.is_empty() => None,
                State::Begin if self.tries > MAX_CONFLICTS => {
                    let (path, _) = &self.entries[0];
                    sheet.keep_because(|| format!("{path} has been changed again"));
                    None
                }
                State::Begin => {
                    self.state = State::Examining;
                    let objects = self.entries.iter().map(|(_, r)| r.object);
                    Some(Act::Examine(objects.collect()))
                }
                State::Judge(attrs) => {
                    let mut reads = ReadSet::default();
                    match self.judge(&attrs, facts, &mut reads) {
                        Ok(candidates) => self.candidates = candidates,
                        Err(stop) => {
                            self.state = State::Judge(attrs);
                            return Err(stop);
                        }
                    }
                    let names = self.going().flat_map(|candidate| &candidate.names);
                    let paths: Vec<_> = names.map(|(path, _)| path.clone()).collect();
                    let looks = self.only_what_differs && self.walk == ReleaseWalk::Contents;
                    match looks && !paths.is_empty() {
                        true => {
                            self.state = State::Looking(reads);
                            Some(Act::Look(paths))
                        }
                        false => self.mark(facts, reads),
                    }
                }
                State::Mark(reads) => self.mark(facts, reads),
                State::Probe if Mutation::ReleasesWithoutAProbe.is(sheet.planted) => {
                    self.state = State::Finish;
                    None
                }
                State::Probe => self.probe(),
                State::Examine(busy) => {
                    self.state = State::ExaminingAgain(busy);
                    let objects = self.going().map(|c| c.object()).collect();
                    Some(Act::Examine(objects))
                }
                State::Finish => {
                    let commit = self.conclude(facts);
                    if commit.is_some() {
                        self.state = State::Finishing;
                    }
                    commit.map(Act::Commit)
                }
                State::End => {
                    self.end(sheet);
                    return Ok(None);
                }
                _ => unreachable!("it waits for its outcome"),
            };
            if act.is_some() {
                return Ok(act);
            }
        }
    }
}
