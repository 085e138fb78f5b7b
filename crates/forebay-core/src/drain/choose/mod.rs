//! Somebody decides between what is in the buffer and what others have made of it on the PFS.

mod below;
mod conflict;
mod decide;
mod exchanged;
mod refusal;

use super::act::{Act, DrainVerdict, Got, Trouble, Work};
use super::commits::{Update, commit_of};
use super::drain_facts::DrainFacts;
use super::known_dir::KnownDir;
use super::rules::{
    Unsettled, all_speakers, has_contents, is_copy, lower_dir, read, unsettled, why_unsettled,
    within,
};
use super::shared_files::evidence;
use super::sheet::Sheet;
use super::strand::Strand;
use super::usage::Use;
use crate::bridge::{Mutation, ReadSet};
use crate::facts::{Attr, Outcome};
use crate::identity::Identity;
use crate::path::TreePath;
use crate::record::{Kind, PathRecord, Transit};
use crate::speakers::Word;
use below::Below;
use conflict::{Conflict, InTwoPlaces};
use exchanged::{ring, went_to};
use forebay_types::MAX_NAME_BYTES;
use refusal::{
    HAS_STRAYS, IS_OPEN, IS_UNKNOWN, IS_UNTOLD, LACKS_DIR, NO_CONFLICT, NOT_ITSELF, holds_more,
};
use std::collections::BTreeSet;

/// Whose version stays under a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// That of the buffer: what is on the PFS now is replaced or removed.
    Ours,
    /// That of the PFS: what the buffer has there goes.
    Theirs,
    /// That of the PFS; what the buffer has there gets a name beside it.
    Both,
}

/// A decision about one path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SideChoice {
    /// The path in the buffer.
    pub path: TreePath,
    /// Whose version stays.
    pub side: Side,
}

/// Said of a choice that a stop came before.
pub const NOT_TRIED: &str = "interrupted before it was tried";

/// Looks at a record that another drain or request changes, before it is given up.
const MOST_TRIES: u32 = 100;
/// Names that are tried for a second version.
const MOST_NAMES: u32 = 1000;

enum State {
    /// Looks which directories above it are on the PFS.
    Climb,
    /// With each of these, whether it has a place there.
    Climbing(Vec<(TreePath, bool)>),
    Begin,
    Wait,
    Waiting,
    Look(Conflict),
    Looking(Conflict),
    Judge(Conflict, Vec<Work<Option<Attr>>>),
    Know(Conflict),
    Knowing(Conflict),
    Known(Conflict, Box<KnownDir>),
    /// What is known of what is on the PFS; `None`: nothing is.
    Decide(Conflict, Option<Identity>),
    Marking(Conflict, Option<Identity>),
    Probe(Conflict, Option<Identity>),
    Probing(Conflict, Option<Identity>),
    /// What was made in it past the buffer?
    ListBacking(Conflict, Option<Identity>),
    ListingBacking(Conflict, Option<Identity>),
    /// Only the bridge itself has it open.
    Pause(Conflict, Option<Identity>),
    Pausing(Conflict, Option<Identity>),
    /// The mark goes, and why nothing was decided; `None`: it is tried again.
    Unmark(Option<&'static str>),
    Unmarking(Option<&'static str>),
    Committing,
    End,
}

/// Carries out one choice.
pub(super) struct Choose {
    choice: SideChoice,
    /// The number of the second name.
    number: u32,
    /// The lowest directory above it that is on the PFS, or will be there.
    nearest_dir: TreePath,
    /// What that relies on.
    above: ReadSet,
    tries: u32,
    /// The record with its mark, while it has one.
    marked: Option<PathRecord>,
    /// The name that ours gets, once that is decided.
    second: Option<TreePath>,
    /// The directory of the PFS that it is in, or comes to.
    dir: Option<Attr>,
    /// It is a new directory, and decided is where on the PFS that goes.
    is_of_new_dir: bool,
    state: State,
}

impl Choose {
    pub(super) fn new(choice: SideChoice) -> Self {
        Choose {
            number: 1,
            nearest_dir: choice.path.parent(),
            above: ReadSet::default(),
            tries: 0,
            marked: None,
            second: None,
            dir: None,
            is_of_new_dir: false,
            state: State::Climb,
            choice,
        }
    }

    fn refuse(&mut self, why: &str, sheet: &mut Sheet) {
        let path = self.choice.path.clone();
        sheet.report.refused.push((path, why.to_owned()));
        self.state = State::End;
    }

    /// It looks again, without its mark.
    fn anew(&self) -> State {
        match self.marked {
            Some(_) => State::Unmark(None),
            None => State::Wait,
        }
    }

    fn fail(&mut self, trouble: Trouble, sheet: &mut Sheet) {
        let error = std::io::Error::from_raw_os_error(trouble.errno);
        self.refuse(&format!("{}: {error}", trouble.operation), sheet);
    }

    /// Does its backing object go? Then it is marked first, and open descriptors are looked for, as for a release (`drain::release`).
    fn gives_up(&self, conflict: &Conflict) -> bool {
        let record = &conflict.record;
        self.choice.side == Side::Theirs
            && (has_contents(record) || record.kind == Kind::Dir)
            && record.transit.is_none()
    }

    fn update(&self, record: PathRecord, transit: Option<Transit>) -> Update {
        Update::marked(self.choice.path.clone(), record, transit)
    }

    /// The directories above it, the lowest first, each with its place on the PFS; `None` if it has none. Those that are still to be
    /// made there are left out.
    fn ladder(&mut self, facts: &dyn DrainFacts) -> Outcome<Vec<(TreePath, Option<TreePath>)>> {
        let mut ladder = Vec::new();
        let mut reads = ReadSet::default();
        let mut dir = self.choice.path.parent();
        while !dir.is_root() {
            let above = dir.parent();
            match read(facts, &dir, &mut reads)? {
                Some(made) if made.kind == Kind::Dir => {
                    if made.drained.is_some() && made.hides.is_none() {
                        ladder.push((dir.clone(), Some(dir)));
                    }
                }
                // Others have put a file there, and a program has changed or removed it.
                Some(other) if has_contents(&other) || other.kind == Kind::Whiteout => {
                    let lower = other.covers(&dir).unwrap_or_else(|| dir.clone());
                    ladder.push((dir, Some(lower)));
                }
                _ => {
                    let lower = lower_dir(facts, &dir, &mut reads)?;
                    ladder.push((dir, lower));
                }
            }
            dir = above;
        }
        self.above = reads;
        Ok(ladder)
    }

    fn climbed(
        &mut self,
        ladder: Vec<(TreePath, bool)>,
        seen: Vec<Work<Option<Attr>>>,
        sheet: &mut Sheet,
    ) {
        self.nearest_dir = self.choice.path.parent();
        self.dir = None;
        let mut seen = seen.into_iter();
        for (dir, has_place) in ladder {
            let found = match has_place {
                true => seen.next().expect("each place was looked at"),
                false => Ok(None),
            };
            match found {
                // The last one that is not there is the highest.
                Ok(found) if !found.as_ref().is_some_and(Attr::is_dir) => {
                    self.nearest_dir = dir.parent()
                }
                Ok(found) if dir == self.choice.path.parent() => self.dir = found,
                Ok(_) => {}
                Err(trouble) => return self.fail(trouble, sheet),
            }
        }
        self.state = State::Begin;
    }

    fn begin(&mut self, facts: &dyn DrainFacts, sheet: &mut Sheet) -> Outcome<()> {
        let path = &self.choice.path;
        let lacks_dir = self.nearest_dir != path.parent();
        let mut reads = self.above.clone();
        let Some(record) = read(facts, path, &mut reads)? else {
            let why = match Below::of(facts, path)?.has_any {
                true => NOT_ITSELF,
                false => "there is nothing of it in the buffer",
            };
            self.refuse(why, sheet);
            return Ok(());
        };
        if record.transit.is_some() {
            self.state = State::Wait;
            return Ok(());
        }
        let mut waits_because = None;
        let theirs = match record.covers(path) {
            Some(theirs) => theirs,
            None if lacks_dir => path.clone(),
            None => {
                if let Some(dir) = unsettled(facts, &path.parent(), &mut reads)? {
                    let (Unsettled::Gone(why) | Unsettled::Comes(why)) =
                        why_unsettled(facts, &dir, &mut reads)?;
                    if record.kind != Kind::Moved {
                        self.refuse(&why, sheet);
                        return Ok(());
                    }
                    waits_because = Some(why);
                }
                path.clone()
            }
        };
        let went_to = match waits_because {
            Some(_) => None,
            None => went_to(facts, path, &theirs, &mut reads)?,
        };
        let (leaving, in_two_places) = match &record.hides {
            Some(theirs) => self.leaving(facts, theirs, &mut reads)?,
            None => Default::default(),
        };
        let ring = match (&went_to, self.choice.side) {
            (Some(next), Side::Theirs) => ring(facts, path, next, &mut reads)?,
            _ => Vec::new(),
        };
        if ring.iter().any(|one| one.record.transit.is_some()) {
            self.state = State::Wait;
            return Ok(());
        }
        let replaced_by = match (&record.origin, self.choice.side) {
            (Some(origin), Side::Theirs) if ring.is_empty() => {
                let hider = self.hider(facts, origin, &mut reads)?;
                if hider.as_ref().is_some_and(|(_, r)| r.transit.is_some()) {
                    self.state = State::Wait;
                    return Ok(());
                }
                let stays = |r: &PathRecord| r.kind != Kind::Whiteout;
                hider.filter(|(_, r)| stays(r)).map(|(path, _)| path)
            }
            _ => None,
        };
        // What lay in a directory in the place of which others have put a file is not below that file.
        let is_file = has_contents(&record) || record.kind == Kind::Whiteout;
        let below = match is_file {
            true => Below::default(),
            false => Below::of(facts, path)?,
        };
        let is_single = record.kind != Kind::Dir;
        if lacks_dir {
            let why = match (self.choice.side, below.seen.first()) {
                (Side::Theirs | Side::Both, Some((first, _))) => Some(holds_more(first)),
                (Side::Ours, _) => Some(LACKS_DIR.to_owned()),
                (Side::Both, None) => (!is_single).then(|| LACKS_DIR.to_owned()),
                (Side::Theirs, None) => None,
            };
            if let Some(why) = why {
                self.refuse(&why, sheet);
                return Ok(());
            }
        }
        let within = within(facts, path, &record)?.filter(|_| !record.is_open_at(path));
        let is_other = |dir: &Attr| within.is_some_and(|within| !within.is_dir_of(dir));
        let is_in_other_dir = !lacks_dir && self.dir.as_ref().is_some_and(is_other);
        let mut beside = None;
        if self.choice.side == Side::Both && is_single && record.kind != Kind::Whiteout {
            let dir = self.nearest_dir.clone();
            let name = second_name(path.name(), self.number);
            let lower = lower_dir(facts, &dir, &mut reads)?.unwrap_or_else(|| dir.clone());
            let (second, lower) = (dir.join(&name), lower.join(&name));
            if read(facts, &second, &mut reads)?.is_some() {
                self.next_name(sheet);
                return Ok(());
            }
            beside = Some((second, lower));
        }
        self.state = State::Look(Conflict {
            theirs,
            origin: record.origin.clone(),
            at_origin: None,
            below,
            went_to,
            leaving,
            in_two_places,
            replaced_by,
            ring,
            lacks_dir,
            is_in_other_dir,
            waits_because,
            is_of_both: false,
            at_theirs: None,
            record,
            beside,
            is_second_taken: false,
            reads,
        });
        Ok(())
    }

    /// [`Conflict::leaving`] and [`Conflict::in_two_places`], if `theirs` is what it hides.
    fn leaving(
        &self,
        facts: &dyn DrainFacts,
        theirs: &TreePath,
        reads: &mut ReadSet,
    ) -> Outcome<(BTreeSet<TreePath>, Option<InTwoPlaces>)> {
        let (mut leaving, mut in_two_places) = (BTreeSet::new(), None);
        for speaker in all_speakers(facts, theirs, reads)? {
            if speaker.word != Word::Origin || speaker.lower == *theirs {
                continue;
            }
            leaving.insert(speaker.lower);
            let is_itself = speaker.path == self.choice.path;
            let stays_renamed = match self.choice.side {
                Side::Ours => false,
                // A rename of this itself is undone.
                Side::Theirs => !is_itself,
                Side::Both => true,
            };
            let waits = unsettled(facts, &speaker.path.parent(), reads)?.is_some();
            let is_below = !is_itself && speaker.path.is_within(&self.choice.path);
            if stays_renamed && !(is_below && waits) && in_two_places.is_none() {
                in_two_places = Some(match is_itself {
                    true => InTwoPlaces::Itself,
                    false => InTwoPlaces::Other(speaker.path),
                });
            }
        }
        Ok((leaving, in_two_places))
    }

    fn next_name(&mut self, sheet: &mut Sheet) {
        self.number += 1;
        self.state = State::Begin;
        if self.number > MOST_NAMES {
            self.refuse("no second name for it is free", sheet);
        }
    }

    /// Is what was found in its place still what it was? The drain asks the same ([`SharedFiles`]).
    ///
    /// [`SharedFiles`]: crate::drain::shared_files::SharedFiles
    fn is_unchanged(
        &self,
        conflict: &Conflict,
        found: &Attr,
        facts: &dyn DrainFacts,
        sheet: &mut Sheet,
    ) -> Outcome<bool> {
        let (record, files) = (&conflict.record, &mut sheet.shared_files);
        let Some(known) = conflict.known() else {
            let is_ours = !conflict.lacks_dir && is_copy(record, found);
            return Ok(is_ours || conflict.is_only_exchanged());
        };
        let goes = files.may_go(&self.choice.path, record, found, sheet.planted);
        Ok(goes.is_some() || files.is_changed_by_us(&conflict.theirs, known, found, facts)?)
    }

    fn looked(
        &mut self,
        mut conflict: Conflict,
        seen: Vec<Work<Option<Attr>>>,
        facts: &dyn DrainFacts,
        sheet: &mut Sheet,
    ) -> Outcome<()> {
        if let Err(trouble) = conflict.see(seen) {
            self.fail(trouble, sheet);
            return Ok(());
        }
        let is_unchanged = match &conflict.at_theirs {
            Some(_) if conflict.is_of_both => false,
            Some(found) if found.is_dir() && conflict.known_contents().is_some() => {
                self.state = State::Know(conflict);
                return Ok(());
            }
            Some(found) => self.is_unchanged(&conflict, found, facts, sheet)?,
            None => false,
        };
        match is_unchanged {
            true if !conflict.is_in_other_dir => self.refuse(NO_CONFLICT, sheet),
            _ => self.judge(conflict, None, sheet),
        }
        Ok(())
    }

    fn known(
        &mut self,
        conflict: Conflict,
        now: KnownDir,
        facts: &dyn DrainFacts,
        sheet: &mut Sheet,
    ) -> Outcome<()> {
        let (files, planted) = (&mut sheet.shared_files, sheet.planted);
        let evidence = |found: &Attr| evidence(facts, found);
        let Some(known) = conflict.known_contents() else {
            self.state = State::Decide(conflict, Some(now.is));
            return Ok(());
        };
        match files.may_go_with(&conflict.theirs, known, &now, &evidence, planted)? {
            Some(_) if !conflict.is_in_other_dir => self.refuse(NO_CONFLICT, sheet),
            _ => self.judge(conflict, Some(now.is), sheet),
        }
        Ok(())
    }

    /// The drain would not do it by itself: others have changed something, nothing is there, or both sides have a directory there.
    /// `now`: their directory, if it was looked into.
    fn judge(&mut self, conflict: Conflict, now: Option<Identity>, sheet: &mut Sheet) {
        let is_planted = Mutation::ChoicesAreNotRefused.is(sheet.planted);
        let side = self.choice.side;
        let unfit = conflict.refusal(side).filter(|_| !is_planted);
        if let Some(why) = unfit.or_else(|| conflict.nothing_to_choose(side)) {
            self.refuse(&why, sheet);
            return;
        }
        let path = &self.choice.path;
        let mut around = sheet.chosen_dirs.iter().filter(|dir| *dir != path);
        if side == Side::Ours
            && conflict.at_theirs.is_some()
            && around.any(|dir| path.is_within(dir))
        {
            self.refuse(IS_UNTOLD, sheet);
            return;
        }
        if conflict.is_second_taken {
            self.next_name(sheet);
            return;
        }
        self.state = match &conflict.at_theirs {
            Some(theirs) if conflict.is_of_both => {
                let now = Identity::of_dir(theirs);
                State::Decide(conflict, Some(now))
            }
            Some(theirs) if theirs.is_dir() && side == Side::Ours && now.is_none() => {
                State::Know(conflict)
            }
            theirs => {
                let now = now.or(theirs.as_ref().map(Identity::of));
                State::Decide(conflict, now)
            }
        };
    }
}

/// The name of a second version: `NAME.ours`, `NAME.ours-2` and so on.
fn second_name(name: &[u8], number: u32) -> Vec<u8> {
    let suffix = match number {
        1 => ".ours".to_owned(),
        number => format!(".ours-{number}"),
    };
    let kept = name.len().min(MAX_NAME_BYTES - suffix.len());
    [&name[..kept], suffix.as_bytes()].concat()
}

impl Strand for Choose {
    fn take(&mut self, got: Got, sheet: &mut Sheet) {
        match (std::mem::replace(&mut self.state, State::End), got) {
            (State::Climbing(ladder), Got::Seen(seen)) => self.climbed(ladder, seen, sheet),
            (State::Waiting, Got::Done) => self.state = State::Climb,
            (State::Looking(conflict), Got::Seen(seen)) => {
                self.state = State::Judge(conflict, seen);
            }
            (State::Knowing(conflict), Got::Known(Ok(now))) => {
                self.state = State::Known(conflict, Box::new(now));
            }
            // It was readable when the record was made, so others have changed it.
            (State::Knowing(conflict), Got::Known(Err(trouble)))
                if trouble.errno == libc::EACCES && self.choice.side != Side::Ours =>
            {
                self.judge(conflict, None, sheet);
            }
            (State::Knowing(_), Got::Known(Err(trouble))) => self.fail(trouble, sheet),
            (State::Marking(mut conflict, now), Got::Verdict(DrainVerdict::Committed)) => {
                conflict
                    .record
                    .clone_from(self.marked.as_ref().expect("it has its mark"));
                self.state = State::Probe(conflict, now);
            }
            (State::Marking(..), Got::Verdict(DrainVerdict::Conflict)) => {
                self.marked = None;
                self.state = State::Wait;
            }
            (State::Probing(conflict, now), Got::Users(users)) => {
                self.state = match users[..] {
                    [Ok(Use::Free(_))] => State::Decide(conflict, now),
                    [Ok(Use::Passing)] if self.tries < MOST_TRIES => State::Pause(conflict, now),
                    [Err(_)] => State::Unmark(Some(IS_UNKNOWN)),
                    _ => State::Unmark(Some(IS_OPEN)),
                };
            }
            (State::Probing(conflict, now), Got::Busy(busy)) => {
                self.state = match busy {
                    Ok(busy) if busy.contains(&conflict.record.object.oid) => {
                        State::Unmark(Some(IS_OPEN))
                    }
                    Ok(_) => State::ListBacking(conflict, now),
                    Err(_) => State::Unmark(Some(IS_UNKNOWN)),
                };
            }
            (State::ListingBacking(conflict, now), Got::Strays(lists)) => {
                self.state = match &lists[..] {
                    [Ok(strays)] if strays.is_empty() => State::Decide(conflict, now),
                    [Ok(_)] => State::Unmark(Some(HAS_STRAYS)),
                    _ => State::Unmark(Some(IS_UNKNOWN)),
                };
            }
            (State::Pausing(conflict, now), Got::Done) => self.state = State::Probe(conflict, now),
            (State::Unmarking(why), Got::Verdict(DrainVerdict::Committed)) => {
                self.marked = None;
                match why {
                    Some(why) => self.refuse(why, sheet),
                    None => self.state = State::Wait,
                }
            }
            // Nothing else can change this, so the store refused; try again.
            (State::Unmarking(why), Got::Verdict(DrainVerdict::Conflict)) => {
                self.state = State::Unmark(why);
            }
            (State::Committing, Got::Verdict(DrainVerdict::Committed)) => {
                let path = self.choice.path.clone();
                if self.is_of_new_dir {
                    sheet.chosen_dirs.insert(path.clone());
                }
                let second = self.second.take().map(|second| (path, second));
                sheet.report.second_names.extend(second);
            }
            (State::Committing, Got::Verdict(DrainVerdict::Conflict)) => self.state = self.anew(),
            (_, got) => unreachable!("{got:?} answers nothing that was asked"),
        }
    }

    fn next(&mut self, facts: &dyn DrainFacts, sheet: &mut Sheet) -> Outcome<Option<Act>> {
        loop {
            match &self.state {
                State::Climb => {
                    let ladder = self.ladder(facts)?;
                    let lowers = ladder.iter().filter_map(|(_, lower)| lower.clone());
                    let look = Act::Look(lowers.collect());
                    let dirs = ladder.into_iter().map(|(dir, at)| (dir, at.is_some()));
                    self.state = State::Climbing(dirs.collect());
                    return Ok(Some(look));
                }
                State::Begin => self.begin(facts, sheet)?,
                State::Wait if self.tries == MOST_TRIES => {
                    self.refuse("it is being changed", sheet);
                }
                State::Wait => {
                    self.tries += 1;
                    self.state = State::Waiting;
                    return Ok(Some(Act::Pause));
                }
                State::Look(conflict) => {
                    let beside = conflict.beside.as_ref().map(|(_, lower)| lower);
                    let left = conflict.left_dir();
                    let first = [
                        Some(&conflict.theirs),
                        conflict.origin.as_ref(),
                        left.as_ref().map(|(dir, _)| dir),
                    ];
                    let ring = conflict.ring.iter().map(|one| one.record.origin.as_ref());
                    let places = first.into_iter().chain(ring).chain([beside]).flatten();
                    let look = Act::Look(places.cloned().collect());
                    self.state = State::Looking(conflict.clone());
                    return Ok(Some(look));
                }
                State::Judge(..) => {
                    if let State::Judge(conflict, seen) =
                        std::mem::replace(&mut self.state, State::End)
                    {
                        self.looked(conflict, seen, facts, sheet)?;
                    }
                }
                State::Known(..) => {
                    if let State::Known(conflict, now) =
                        std::mem::replace(&mut self.state, State::End)
                    {
                        self.known(conflict, *now, facts, sheet)?;
                    }
                }
                State::Know(conflict) => {
                    let known = conflict.known_contents();
                    let know = Act::Know {
                        path: conflict.theirs.clone(),
                        without: conflict.leaving.clone(),
                        with_files: known.is_some_and(Identity::is_of_several_names),
                    };
                    self.state = State::Knowing(conflict.clone());
                    return Ok(Some(know));
                }
                State::Decide(conflict, now) if self.gives_up(conflict) => {
                    let record = conflict.record.clone();
                    let update = self.update(record, Some(Transit::Releasing));
                    let reads = conflict.reads.clone();
                    let (mut commit, marked) = commit_of(facts, reads, vec![update], Vec::new());
                    commit.forbids_late_opens = true;
                    self.marked = marked.into_iter().next().map(|(_, record)| record);
                    self.state = State::Marking(conflict.clone(), *now);
                    return Ok(Some(Act::Commit(commit)));
                }
                State::Probe(conflict, now) => {
                    let probe = match conflict.record.kind == Kind::Dir {
                        true => Act::ProbeDirs,
                        false => Act::Probe(vec![conflict.record.object]),
                    };
                    self.state = State::Probing(conflict.clone(), *now);
                    return Ok(Some(probe));
                }
                State::ListBacking(conflict, now) => {
                    let list = Act::ListBacking(vec![conflict.record.object]);
                    self.state = State::ListingBacking(conflict.clone(), *now);
                    return Ok(Some(list));
                }
                State::Pause(conflict, now) => {
                    self.tries += 1;
                    self.state = State::Pausing(conflict.clone(), *now);
                    return Ok(Some(Act::Pause));
                }
                State::Unmark(why) => {
                    let marked = self.marked.clone().expect("it has its mark");
                    let updates = vec![self.update(marked, None)];
                    let (commit, _) = commit_of(facts, ReadSet::default(), updates, Vec::new());
                    self.state = State::Unmarking(*why);
                    return Ok(Some(Act::Commit(commit)));
                }
                State::Decide(conflict, now) => {
                    self.second = conflict.beside.as_ref().map(|(second, _)| second.clone());
                    let record = &conflict.record;
                    self.is_of_new_dir = record.kind == Kind::Dir
                        && record.drained.is_none()
                        && (conflict.is_in_other_dir || conflict.is_of_both);
                    match self.decide(conflict.clone(), *now, facts)? {
                        Some(commit) => {
                            self.state = State::Committing;
                            return Ok(Some(Act::Commit(commit)));
                        }
                        None => self.state = self.anew(),
                    }
                }
                State::End => return Ok(None),
                _ => unreachable!("it waits for its outcome"),
            }
        }
    }
}
