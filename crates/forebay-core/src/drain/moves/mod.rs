//! Names change places on the PFS: one thing leaves its place, goes away, takes its place, or is made.
//!
//! Each is a [`Move`] of one record: marked, looked at, carried out, committed. Its preconditions are read
//! from the facts when it begins, and the commit of the mark relies on them. Once the mark is there, no request
//! changes what they rest on: it would have to change the marked record as well.

mod begin;
mod conclude;
mod doubt;

use crate::bridge::{Mutation, ReadSet};
use crate::drain::act::{Act, DrainVerdict, Got, OTHER_DIR, Trouble, Work};
use crate::drain::commits::commit_of;
use crate::drain::drain_facts::DrainFacts;
use crate::drain::going::Going;
use crate::drain::known_dir::KnownDir;
use crate::drain::new_dir::NewDir;
use crate::drain::rules::{removal, within};
use crate::drain::shared_files::{as_found, evidence};
use crate::drain::sheet::{Reason, Sheet};
use crate::drain::strand::Strand;
use crate::facts::{Attr, Outcome};
use crate::identity::Identity;
use crate::path::TreePath;
use crate::record::{Kind, PathRecord};
use begin::has_something_new;
use std::collections::BTreeSet;

/// Conflicts that one move survives before it is left for the next pass.
const MAX_CONFLICTS: u32 = 100;

/// What is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    /// Something renamed goes from its place to its final name at once, where that is free.
    Rename,
    /// Something renamed leaves its place for a waiting name.
    Evacuate,
    /// What is hidden goes.
    Clear,
    /// Something renamed takes its final name.
    Place,
    /// A directory is made. The mark already calls it drained, so a directory made before a crash is known and goes
    /// with its name.
    MakeDir,
}

/// Where the thing goes from and to.
#[derive(Debug, Clone, PartialEq, Eq)]
struct FromTo {
    from: TreePath,
    to: TreePath,
}

#[derive(Debug)]
enum State {
    Begin,
    /// Others are at work on what this needs.
    Wait,
    Waiting,
    /// What the contents will replace is looked at: only a directory has to go before.
    Peek(TreePath),
    Peeking,
    Mark,
    Marking,
    Marked,
    Looking,
    /// What is in the directory that is to go?
    Know(TreePath, Attr),
    Knowing(Attr),
    Known(Box<KnownDir>, Attr),
    /// It was changed: by others?
    Suspect(Attr),
    Act(Act),
    Acting,
    /// A directory that an earlier pass has made is not where it was: others have moved or removed it.
    Absent,
    /// The PFS says that it has failed, and may have done it.
    Doubt,
    DoubtLater,
    DoubtPausing,
    Doubting,
    Finish,
    Finishing,
    End,
}

/// The paths that a move changes or relies on.
#[derive(Debug, Clone, Default)]
pub(super) struct Reach(Vec<TreePath>);

impl Reach {
    /// Of a move of this record.
    pub(super) fn of(path: &TreePath, record: &PathRecord) -> Self {
        let others = record.origin.iter().chain(&record.hides);
        Reach(others.chain([path]).cloned().collect())
    }

    /// Are moves of the two independent? So if no path of one is a path of the other, or lies above or below one.
    pub(super) fn is_apart_from(&self, other: &Reach) -> bool {
        let is_apart = |one: &TreePath| {
            let mut others = other.0.iter();
            others.all(|other| !one.is_within(other) && !other.is_within(one))
        };
        self.0.iter().all(is_apart)
    }

    /// Does it have all paths of the other?
    fn has(&self, other: &Reach) -> bool {
        other.0.iter().all(|path| self.0.contains(path))
    }
}

/// One change of the names on the PFS.
#[derive(Debug)]
pub(super) struct Move {
    path: TreePath,
    what: What,
    state: State,
    way: Option<FromTo>,
    /// Where it goes in the end, if nothing of ours is there or on the way.
    end: Option<TreePath>,
    /// Of a rename: what it was at the place that it leaves. Of a new directory: the one on the PFS that is taken for it.
    known: Option<Identity>,
    /// What the mark relies on.
    reads: ReadSet,
    /// The records that were marked, or are to be.
    marked: Vec<(TreePath, PathRecord)>,
    /// The work needs no mark.
    is_unmarked: bool,
    /// What it was begun for. What is hidden where a directory or something renamed is to come is cleared first.
    goal: What,
    /// The directory that could not be made may be there.
    may_be_made: bool,
    /// It was found there after a failure, and is made once more to see whose it is.
    is_made_again: bool,
    /// Looks since it has failed.
    looks: u32,
    /// The directory may have been made before.
    may_have_been_made: bool,
    outcome: Result<(), Option<Reason>>,
    tries: u32,
    /// With others under way at the same time: what it was begun for.
    reach: Option<Reach>,
    /// It has made room for what it was begun for.
    has_cleared: bool,
    /// What was to go was looked at once more.
    has_looked_again: bool,
    /// See [`crate::record::Dirs::within`].
    within: Option<Identity>,
    /// See [`NewDir::apart`].
    apart: TreePath,
    /// Where it is noted, for a sweep, in which directory [`Move::apart`] is; and what is noted there when the mark is committed.
    slot: Option<usize>,
    noted: Option<Vec<TreePath>>,
    /// See [`crate::facts::Settings::knows_dirs`].
    knows_dirs: bool,
    /// A directory that others have moved is made again: something new is to come into it.
    is_needed: bool,
    /// Of a file that is to go, from the mark on.
    going: Option<Going>,
    /// It may have stayed on its way out.
    may_be_on_its_way: bool,
}

impl Move {
    pub(super) fn new(path: TreePath, what: What) -> Self {
        Move {
            path,
            what,
            state: State::Begin,
            way: None,
            end: None,
            known: None,
            reads: ReadSet::default(),
            marked: Vec::new(),
            is_unmarked: false,
            goal: what,
            may_be_made: false,
            is_made_again: false,
            looks: 0,
            may_have_been_made: false,
            outcome: Ok(()),
            tries: 0,
            reach: None,
            has_cleared: false,
            has_looked_again: false,
            within: None,
            apart: TreePath::root(),
            slot: None,
            noted: None,
            knows_dirs: true,
            is_needed: false,
            going: None,
            may_be_on_its_way: false,
        }
    }

    /// Others are under way at the same time, which are apart from this.
    pub(super) fn beside(self, reach: Reach) -> Self {
        Move {
            reach: Some(reach),
            ..self
        }
    }

    /// What comes after the mark: a look at what has to be seen on the PFS before anything is done there, or to make a directory.
    fn first_act(&mut self) -> Act {
        match (self.what, &self.way) {
            (What::MakeDir, _) => {
                self.state = State::Acting;
                self.make_dir()
            }
            (_, Some(way)) => {
                let end = self.end.iter().filter(|_| self.what == What::Evacuate);
                let paths = [&way.from, &way.to].into_iter().chain(end);
                self.state = State::Looking;
                Act::Look(paths.cloned().collect())
            }
            (_, None) => {
                let (_, record) = &self.marked[0];
                let is_known = record.kind == Kind::Moved && record.arriving.is_some();
                let comes = record.origin.clone().filter(|_| is_known);
                let paths = record.hides.clone().into_iter().chain(comes);
                let dir = self.cleared_dir();
                self.state = State::Looking;
                Act::Look(paths.chain(dir).collect())
            }
        }
    }

    /// See [`crate::record::Dirs::within`], of what is at its path.
    fn learn_within(&mut self, facts: &dyn DrainFacts) -> Outcome<()> {
        self.within = match self.marked.iter().find(|(path, _)| *path == self.path) {
            Some((path, record)) => within(facts, path, record)?,
            None => None,
        };
        Ok(())
    }

    /// The same, if that is where it goes.
    fn within_at(&self, to: &TreePath) -> Option<Identity> {
        self.within.filter(|_| *to == self.path)
    }

    /// See [`crate::record::Dirs::out_of`], of what is at its path.
    fn out_of(&self) -> Option<Identity> {
        let mut marked = self.marked.iter();
        let (_, record) = marked.find(|(path, _)| *path == self.path)?;
        record.dirs().out_of
    }

    /// The directory out of which something goes, if it is known which one that is.
    fn cleared_dir(&self) -> Option<TreePath> {
        let (_, record) = &self.marked[0];
        let is_known = self.what == What::Clear && self.way.is_none() && self.within.is_some();
        let hides = record.hides.as_ref().filter(|_| is_known);
        hides.map(TreePath::parent)
    }

    /// Is it a directory that an earlier pass has made, and that is not made again without need?
    fn was_made(&self) -> bool {
        let (_, record) = &self.marked[0];
        self.is_unmarked && self.knows_dirs && record.replaces.is_some() && !self.is_needed
    }

    fn make_dir(&self) -> Act {
        let (path, record) = &self.marked[0];
        Act::MakeDir(NewDir {
            path: path.clone(),
            object: record.object,
            known: self.known.or(record.replaces),
            within: self.within,
            apart: self.apart.clone(),
            knows_dirs: self.knows_dirs,
            was_made: self.was_made(),
        })
    }

    fn seen(&mut self, seen: Vec<Work<Option<Attr>>>, sheet: &mut Sheet) {
        let planted = sheet.planted;
        let mut found: Vec<_> = match seen.into_iter().collect() {
            Ok(found) => found,
            Err(trouble) => return self.finish(Err(trouble)),
        };
        let dir = self.cleared_dir().and_then(|_| found.pop().flatten());
        let is_not = |dir: &Attr| self.within.is_some_and(|within| !within.is_dir_of(dir));
        let is_other = |dir: &Attr| dir.is_dir() && is_not(dir);
        self.state = match (self.what, &self.way, &found[..]) {
            // Somebody else has taken the name under which it was to wait.
            (What::Evacuate, Some(way), [_, Some(waits), ..]) if !self.is_renamed(waits) => {
                let cause = format!("{} is in the way, and nothing of this buffer", way.to);
                self.outcome = Err(Some(Reason::Blocked(cause)));
                State::Finish
            }
            // A pass that died in between has done it.
            (What::Evacuate, Some(_), [_, Some(_), ..]) => State::Finish,
            // Others have renamed it themselves.
            (What::Rename, Some(_), [None, Some(there)])
                if self.known.is_some() && self.is_renamed(there) =>
            {
                State::Finish
            }
            // Others have removed it.
            (What::Evacuate | What::Rename, Some(_), [None, ..]) => {
                self.outcome = Err(Some(Reason::Changed));
                State::Finish
            }
            (What::Evacuate | What::Rename, Some(_), [Some(found), _, ..])
                if !self.is_renamed(found) && !Mutation::ReplacesWhatOthersChanged.is(planted) =>
            {
                self.outcome = Err(Some(Reason::Changed));
                State::Finish
            }
            // Put aside, it would have neither its old name nor its new one.
            (What::Evacuate, Some(_), [_, _, Some(end)]) if self.refusal_at_end(end).is_some() => {
                self.outcome = Err(self.refusal_at_end(end));
                State::Finish
            }
            (What::Rename, Some(_), [Some(_), Some(_)]) => {
                self.outcome = Err(Some(Reason::Taken));
                State::Finish
            }
            (What::Evacuate | What::Rename, Some(way), [Some(found), ..]) => {
                State::Act(Act::Rename {
                    from: way.from.clone(),
                    to: way.to.clone(),
                    is: Identity::of_copy(found),
                    out_of: self.out_of(),
                    within: self.within_at(&way.to),
                })
            }
            (What::Place, Some(_), [Some(waits), None] | [None, Some(waits)])
                if !self.is_renamed_inode(waits)
                    && !Mutation::ReplacesWhatOthersChanged.is(planted) =>
            {
                self.outcome = Err(Some(Reason::Changed));
                State::Finish
            }
            (What::Place, Some(_), [Some(_), Some(_)]) => {
                self.outcome = Err(Some(Reason::Taken));
                State::Finish
            }
            (What::Place, Some(way), [Some(waits), None]) => State::Act(Act::Rename {
                from: way.from.clone(),
                to: way.to.clone(),
                is: Identity::of_copy(waits),
                out_of: self.out_of(),
                within: self.within_at(&way.to),
            }),
            (What::Place, Some(_), [None, Some(_)]) => State::Finish,
            (What::Place, ..) => {
                return self.finish(Err(Trouble {
                    operation: "rename",
                    errno: libc::ENOENT,
                }));
            }
            (What::Clear, ..) if Mutation::ClearsWithoutRemoving.is(planted) => State::Finish,
            // Others have taken away what was to come in its place.
            (What::Clear, _, [Some(_), comes])
                if !comes.as_ref().is_some_and(|it| self.is_renamed_inode(it)) =>
            {
                self.outcome = Err(Some(Reason::Changed));
                State::Finish
            }
            (What::Clear, _, [Some(attr), ..]) => return self.clear(attr, sheet),
            // Nothing is here, but it may still be in the directory that was here.
            (What::Clear, _, [None, ..]) if dir.as_ref().is_some_and(is_other) => {
                self.outcome = Err(Some(Reason::OtherDirectory));
                State::Finish
            }
            // It has gone already.
            (What::Clear, _, [None, ..]) => State::Finish,
            (what, way, found) => {
                unreachable!("{found:?} is not what {what:?} by {way:?} looked at")
            }
        };
    }

    /// Can it be what was renamed?
    fn is_renamed(&self, found: &Attr) -> bool {
        self.known.is_none_or(|known| known.is(found))
    }

    /// As [`Move::is_renamed`]. What waits may have been changed by programs since, so only its inode number counts.
    fn is_renamed_inode(&self, found: &Attr) -> bool {
        let (_, record) = &self.marked[0];
        let known = record.arriving.as_ref();
        known.is_none_or(|known| known.is_inode_of(found))
    }

    /// Why it can't get its name where this is; `None`: this is what goes before, as far as its inode number tells.
    fn refusal_at_end(&self, end: &Attr) -> Option<Reason> {
        let (_, record) = &self.marked[0];
        match record.replaces.filter(|_| record.hides.is_some()) {
            None if record.hides.is_none() => Some(Reason::Taken),
            Some(known) if !known.is_inode_of(end) => Some(Reason::Changed),
            _ => None,
        }
    }

    /// Removes the hidden entry if its identity still matches the record.
    fn clear(&mut self, found: &Attr, sheet: &mut Sheet) {
        let (path, record) = &self.marked[0];
        let trusts = Mutation::ReplacesWhatOthersChanged.is(sheet.planted);
        let goes = sheet
            .shared_files
            .may_go(path, record, found, sheet.planted);
        self.state = match (record.replaces, goes) {
            (Some(_), None) if !trusts => State::Suspect(*found),
            (Some(known), _) if known.has_contents() && found.is_dir() && !trusts => {
                State::Know(record.hides.clone().unwrap_or_default(), *found)
            }
            _ => State::Act(self.removal(found, goes.or(record.replaces))),
        };
    }

    /// May the directory go, with what is in it now?
    fn may_go_with(
        &self,
        now: &KnownDir,
        facts: &dyn DrainFacts,
        sheet: &mut Sheet,
    ) -> Outcome<Option<Identity>> {
        let Some(known) = self.marked[0].1.replaces else {
            return Ok(None);
        };
        let (files, planted) = (&mut sheet.shared_files, sheet.planted);
        let evidence = |found: &Attr| evidence(facts, found);
        files.may_go_with(self.place(), known, now, &evidence, planted)
    }

    /// Where what goes is on the PFS.
    fn place(&self) -> &TreePath {
        let (path, record) = &self.marked[0];
        record.hides.as_ref().unwrap_or(path)
    }

    fn changed(&mut self) {
        self.outcome = Err(Some(Reason::Changed));
        self.state = State::Finish;
    }

    /// Is a name of a file with several ones to go, or a directory with such, which was looked at once?
    fn is_one_of_several_names(&self) -> bool {
        let known = self.marked.first().and_then(|(_, record)| record.replaces);
        self.what == What::Clear
            && !self.has_looked_again
            && known.is_some_and(Identity::is_of_several_names)
    }

    /// `known`: what has to be there then.
    fn removal(&self, attr: &Attr, known: Option<Identity>) -> Act {
        let (_, record) = &self.marked[0];
        let target = record.hides.clone().unwrap_or_default();
        assert!(
            !target.is_root(),
            "the root of the PFS is hidden by nothing"
        );
        let by = self.going.as_ref().map(|going| going.by.clone());
        removal(target, record.object.oid, attr, known, by, self.within)
    }

    fn finish(&mut self, did: Work<()>) {
        self.outcome = did.map_err(|trouble| {
            let makes = matches!(self.what, What::MakeDir | What::Place | What::Rename);
            Some(match trouble.errno {
                libc::EEXIST if self.what == What::MakeDir => Reason::Taken,
                libc::EEXIST => Reason::Changed,
                // What was to be renamed was seen a moment ago.
                libc::ENOENT | libc::ENOTDIR if makes => Reason::NoDirectory,
                _ => Reason::Refused(trouble),
            })
        });
        self.state = State::Finish;
    }
}

impl Strand for Move {
    fn take(&mut self, got: Got, sheet: &mut Sheet) {
        match (&self.state, got) {
            (State::Waiting, Got::Done) => self.state = State::Begin,
            (State::Peeking, Got::Seen(seen)) => match &seen[..] {
                [Ok(Some(attr))] if attr.is_dir() => self.state = State::Mark,
                // A file is replaced by the copy, in one step. Where nothing is, it may come back with the directory that it is in.
                [Ok(_)] => self.state = State::End,
                _ => {
                    let trouble = seen.into_iter().find_map(Result::err);
                    if let Some(trouble) = trouble {
                        sheet.refuse(&self.path, 0, trouble);
                    }
                    self.state = State::End;
                }
            },
            (State::Marking, Got::Verdict(DrainVerdict::Committed)) => {
                if let (Some(slot), Some(noted)) = (self.slot, self.noted.take()) {
                    sheet.workplaces.noted(slot, noted);
                }
                self.state = State::Marked;
            }
            (State::Marking, Got::Verdict(DrainVerdict::Conflict)) => self.again(sheet),
            (State::Looking, Got::Seen(seen)) => self.seen(seen, sheet),
            (State::Knowing(found), Got::Known(Ok(now))) => {
                self.state = State::Known(Box::new(now), *found);
            }
            (State::Knowing(_), Got::Known(Err(trouble))) => self.finish(Err(trouble)),
            // Another name of the file went just then, so that this is the last one.
            (State::Acting, Got::Did(Err(trouble)))
                if trouble.errno == libc::EEXIST && self.is_one_of_several_names() =>
            {
                self.has_looked_again = true;
                self.state = State::Marked;
            }
            (State::Acting, Got::Did(did)) => {
                if did.is_ok() {
                    self.note(sheet);
                }
                let is_untouched = |e: Trouble| e.errno == libc::EEXIST || e.operation == OTHER_DIR;
                let has_stayed = did.is_err_and(|e| !is_untouched(e));
                self.may_be_on_its_way = has_stayed && self.going.is_some();
                let is_unclear = did.is_err_and(Trouble::may_be_done);
                self.finish(did);
                if is_unclear && self.way.is_some() {
                    self.looks = 0;
                    self.state = State::Doubt;
                }
            }
            (State::Acting, Got::Made(made)) => {
                match (made, self.slot) {
                    (Ok(_), _) => sheet.note_unsynced(&self.path),
                    // It was not begun.
                    (Err(trouble), _) if trouble.operation == OTHER_DIR => {}
                    // What it was to be made in may be left.
                    (Err(_), Some(slot)) => sheet.workplaces.doubt(slot),
                    (Err(_), None) => {}
                }
                let doubt = made.is_err_and(Trouble::may_be_done);
                let is_noted = made.is_ok_and(|made| self.known == Some(made));
                if self.was_made() && made.is_err_and(NewDir::is_absent) {
                    self.state = State::Absent;
                    return;
                }
                self.known = made.ok();
                self.finish(made.map(drop));
                self.state = match (self.is_unmarked, &self.outcome) {
                    (true, Ok(())) if is_noted => State::End,
                    // The record has to say what is there now.
                    (true, Ok(()) | Err(Some(Reason::Taken))) => {
                        self.is_unmarked = false;
                        self.outcome = Ok(());
                        State::Mark
                    }
                    (true, Err(reason)) => {
                        if let Some(reason) = reason.clone() {
                            sheet.leave(&self.path, 0, reason);
                        }
                        State::End
                    }
                    (false, _) if doubt => {
                        self.looks = 0;
                        State::Doubt
                    }
                    (false, _) => State::Finish,
                };
            }
            (State::DoubtPausing, Got::Done) => self.state = State::Doubt,
            (State::Doubting, Got::Seen(seen)) => self.looked_in_doubt(&seen, sheet),
            (State::Finishing, Got::Verdict(DrainVerdict::Committed)) => self.concluded(sheet),
            // Nobody else changes what is marked; what speaks of something in it may have changed.
            (State::Finishing, Got::Verdict(DrainVerdict::Conflict)) if !self.is_unmarked => {
                self.state = State::Finish;
            }
            (State::Finishing, Got::Verdict(DrainVerdict::Conflict)) => self.again(sheet),
            (state, got) => unreachable!("{got:?} answers nothing that was asked in {state:?}"),
        }
    }

    fn next(&mut self, facts: &dyn DrainFacts, sheet: &mut Sheet) -> Outcome<Option<Act>> {
        loop {
            match &self.state {
                State::Begin => self.begin(facts, sheet)?,
                State::Wait => {
                    self.count(sheet);
                    if matches!(self.state, State::End) {
                        continue;
                    }
                    self.state = State::Waiting;
                    return Ok(Some(Act::Pause));
                }
                State::Peek(target) => {
                    let look = Act::Look(vec![target.clone()]);
                    self.state = State::Peeking;
                    return Ok(Some(look));
                }
                State::Mark => {
                    let updates = self
                        .marked
                        .iter()
                        .cloned()
                        .map(|(path, r)| self.marks(path, r))
                        .collect();
                    let mut reads = self.reads.clone();
                    let makes = matches!(self.what, What::MakeDir | What::Place | What::Rename);
                    if makes && !facts.is_single() {
                        let absence = facts.absence(&self.path);
                        reads.appearing.push((self.path.clone(), absence));
                    }
                    self.going = match self.what {
                        What::Clear => {
                            let (path, record) = &self.marked[0];
                            let within = within(facts, path, record)?;
                            Going::of(record, within, sheet.terms.secret)
                        }
                        _ => None,
                    };
                    let (mut commit, marked) = commit_of(facts, reads, updates, Vec::new());
                    if !Mutation::FilesGoUnnoted.is(sheet.planted) {
                        commit.batch.extend(self.going.as_ref().map(Going::note));
                    }
                    if self.what == What::MakeDir {
                        let places = &mut sheet.workplaces;
                        let slot = *self.slot.get_or_insert_with(|| places.take());
                        let note = places.note_one(slot, &self.path.parent());
                        let (change, noted) = note.unzip();
                        commit.batch.extend(change);
                        self.noted = noted;
                    }
                    self.marked = marked;
                    self.state = State::Marking;
                    return Ok(Some(Act::Commit(commit)));
                }
                State::Marked => {
                    self.learn_within(facts)?;
                    return Ok(Some(self.first_act()));
                }
                State::Know(path, found) => {
                    let known = self.marked[0].1.replaces;
                    let know = Act::Know {
                        path: path.clone(),
                        without: BTreeSet::new(),
                        with_files: known.is_some_and(Identity::is_of_several_names),
                    };
                    self.state = State::Knowing(*found);
                    return Ok(Some(know));
                }
                State::Known(now, found) => {
                    let goes = self.may_go_with(now, facts, sheet)?;
                    match goes {
                        Some(is) => self.state = State::Act(self.removal(found, Some(is))),
                        None => self.changed(),
                    }
                }
                State::Suspect(found) => {
                    let (found, record) = (*found, &self.marked[0].1);
                    let (files, place) = (&mut sheet.shared_files, self.place());
                    let is_ours = match record.replaces {
                        Some(known) => files.is_changed_by_us(place, known, &found, facts)?,
                        None => false,
                    };
                    match is_ours {
                        true => {
                            let act = self.removal(&found, Some(as_found(&found)));
                            self.state = State::Act(act);
                        }
                        false => self.changed(),
                    }
                }
                State::Act(act) => {
                    let act = act.clone();
                    self.state = State::Acting;
                    return Ok(Some(act));
                }
                State::Absent => {
                    self.is_needed = has_something_new(facts, &self.path)?;
                    // With a mark: a drain that is killed now is to look for what it has left.
                    self.is_unmarked &= !self.is_needed;
                    self.state = match self.is_needed {
                        true => State::Mark,
                        false => State::End,
                    };
                }
                State::DoubtLater => {
                    self.state = State::DoubtPausing;
                    return Ok(Some(Act::Pause));
                }
                State::Doubt => {
                    self.state = State::Doubting;
                    return Ok(Some(Act::Look(self.places_in_doubt())));
                }
                State::Finish => {
                    if let Some(act) = self.conclude(facts, sheet)? {
                        return Ok(Some(act));
                    }
                }
                State::End => {
                    if let Some(slot) = self.slot.take() {
                        sheet.workplaces.give_back(slot);
                    }
                    return Ok(None);
                }
                state => unreachable!("{state:?} waits for its outcome"),
            }
        }
    }
}

impl Move {
    fn count(&mut self, sheet: &mut Sheet) {
        self.tries += 1;
        if self.tries > MAX_CONFLICTS {
            sheet.leave(&self.path, 0, Reason::Changing);
            self.state = State::End;
        }
    }

    /// What it relied on has changed.
    fn again(&mut self, sheet: &mut Sheet) {
        self.state = State::Begin;
        self.is_unmarked = false;
        self.outcome = Ok(());
        self.way = None;
        self.noted = None;
        self.count(sheet);
    }
}
