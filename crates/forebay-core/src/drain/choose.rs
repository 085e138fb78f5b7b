//! Somebody decides between what is in the buffer and what others have made of it on the PFS.

use super::act::{Act, DrainCommit, DrainVerdict, Got, Trouble, Use, Work};
use super::drain_facts::DrainFacts;
use super::orphans::is_waiting;
use super::release::opened;
use super::rules::{
    OURS, Update, commit_of, has_contents, lower_dir, read, speakers_of, unsettled, upwards,
};
use super::sheet::Sheet;
use super::strand::Strand;
use crate::bridge::{Mutation, ReadSet};
use crate::facts::{Attr, Outcome};
use crate::identity::Identity;
use crate::ops::FollowUp;
use crate::path::TreePath;
use crate::record::{Kind, PathRecord, Transit};
use crate::speakers::Word;
use crate::table::Change;
use forebay_types::MAX_NAME_BYTES;

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

/// Looks at a record that another drain or request changes, before it is given up.
const MOST_TRIES: u32 = 100;
/// Things that have exchanged their names and can get them back together.
const MOST_EXCHANGED: usize = 100;
/// Names that are tried for a second version.
const MOST_NAMES: u32 = 1000;

enum State {
    /// Looks which directories above it are on the PFS.
    Climb,
    Climbing(Vec<TreePath>),
    Begin,
    Wait,
    Waiting,
    Look(Conflict),
    Looking(Conflict),
    Know(Conflict),
    Knowing(Conflict),
    /// Whose is the directory in the buffer?
    Examine(Conflict, Option<Identity>),
    Examining(Conflict, Option<Identity>),
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

/// What is known of the two versions.
#[derive(Clone)]
struct Conflict {
    record: PathRecord,
    /// Where on the PFS their version is.
    theirs: TreePath,
    /// Where what was renamed is on the PFS.
    origin: Option<TreePath>,
    /// What is there now.
    at_origin: Option<Attr>,
    /// There are records below it.
    has_below: bool,
    /// What was renamed away from where their version is.
    went_to: Option<TreePath>,
    /// What has taken the old place of the renamed thing, and would replace it if it went back there.
    replaced_by: Option<TreePath>,
    /// What has exchanged its names with this, if theirs is taken: it is where it was before only together with this.
    ring: Vec<Exchanged>,
    /// The directory that it is in is not on the PFS any more.
    lacks_dir: bool,
    /// It is a directory in both places, and what is in it stays.
    is_of_both: bool,
    /// Who owns theirs.
    their_owner: Option<u32>,
    /// A second name, and where it is on the PFS.
    beside: Option<(TreePath, TreePath)>,
    reads: ReadSet,
}

/// One of several renamed things that have exchanged their names.
#[derive(Clone)]
struct Exchanged {
    path: TreePath,
    record: PathRecord,
    has_below: bool,
    /// It is a directory.
    is_dir: bool,
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
            state: State::Climb,
            choice,
        }
    }

    fn refuse(&mut self, why: &str, sheet: &mut Sheet) {
        let path = self.choice.path.clone();
        sheet.report.refused.push((path, why.to_owned()));
        self.state = State::End;
    }

    fn fail(&mut self, trouble: Trouble, sheet: &mut Sheet) {
        let error = std::io::Error::from_raw_os_error(trouble.errno);
        self.refuse(&format!("{}: {error}", trouble.operation), sheet);
    }

    /// Does the backing object go with the decision, and is it not known yet that nobody has it open? As with a release
    /// (`drain::release`) that is known once it is marked.
    fn gives_up(&self, conflict: &Conflict) -> bool {
        let record = &conflict.record;
        self.choice.side == Side::Theirs
            && (has_contents(record) || record.kind == Kind::Dir)
            && record.transit.is_none()
    }

    fn update(&self, record: PathRecord, transit: Option<Transit>) -> Update {
        Update::marked(self.choice.path.clone(), record, transit)
    }

    /// The directories above it that are on the PFS if nobody has removed them, the lowest first, each with its place there.
    fn ladder(&mut self, facts: &dyn DrainFacts) -> Outcome<Vec<(TreePath, TreePath)>> {
        let mut ladder = Vec::new();
        let mut reads = ReadSet::default();
        let mut dir = self.choice.path.parent();
        while !dir.is_root() {
            let lower = match read(facts, &dir, &mut reads)? {
                Some(made) if made.kind == Kind::Dir => {
                    (made.drained.is_some() && made.hides.is_none()).then(|| dir.clone())
                }
                _ => lower_dir(facts, &dir, &mut reads)?,
            };
            let above = dir.parent();
            ladder.extend(lower.map(|lower| (dir, lower)));
            dir = above;
        }
        self.above = reads;
        Ok(ladder)
    }

    fn climbed(&mut self, ladder: Vec<TreePath>, seen: Vec<Work<Option<Attr>>>, sheet: &mut Sheet) {
        self.nearest_dir = self.choice.path.parent();
        for (dir, look) in ladder.into_iter().zip(seen) {
            match look {
                // The last one that is not there is the highest.
                Ok(found) if !found.as_ref().is_some_and(Attr::is_dir) => {
                    self.nearest_dir = dir.parent()
                }
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
            self.refuse("there is nothing of it in the buffer", sheet);
            return Ok(());
        };
        if record.transit.is_some() {
            self.state = State::Wait;
            return Ok(());
        }
        let theirs = match record.covers(path) {
            Some(theirs) => theirs,
            None if lacks_dir || unsettled(facts, &path.parent(), &mut reads)?.is_none() => {
                path.clone()
            }
            None => {
                self.refuse("its directory is not on the PFS yet", sheet);
                return Ok(());
            }
        };
        let went_to = went_to(facts, path, &theirs, &mut reads)?;
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
                let keeper = self.keeper(facts, origin, &mut reads)?;
                if keeper.as_ref().is_some_and(|(_, r)| r.transit.is_some()) {
                    self.state = State::Wait;
                    return Ok(());
                }
                let stays = |r: &PathRecord| r.kind != Kind::Whiteout;
                keeper.filter(|(_, r)| stays(r)).map(|(path, _)| path)
            }
            _ => None,
        };
        let has_below = !facts.below(path)?.is_empty();
        let is_single =
            has_contents(&record) || matches!(record.kind, Kind::Moved | Kind::Whiteout);
        let refusal = match self.choice.side {
            Side::Ours => lacks_dir.then_some(LACKS_DIR),
            Side::Theirs if lacks_dir => has_below.then_some(LACKS_DIR),
            Side::Both if lacks_dir => (!is_single || has_below).then_some(LACKS_DIR),
            Side::Theirs if record.kind == Kind::Dir => None,
            _ => (!is_single).then(|| is_dir(&record)),
        };
        if let Some(why) = refusal {
            self.refuse(why, sheet);
            return Ok(());
        }
        let mut beside = None;
        if self.choice.side == Side::Both && record.kind != Kind::Whiteout {
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
            has_below,
            went_to,
            replaced_by,
            ring,
            lacks_dir,
            is_of_both: false,
            their_owner: None,
            record,
            beside,
            reads,
        });
        Ok(())
    }

    fn next_name(&mut self, sheet: &mut Sheet) {
        self.number += 1;
        self.state = State::Begin;
        if self.number > MOST_NAMES {
            self.refuse("no second name for it is free", sheet);
        }
    }

    fn looked(&mut self, mut conflict: Conflict, seen: Vec<Work<Option<Attr>>>, sheet: &mut Sheet) {
        let found: Vec<_> = match seen.into_iter().collect() {
            Ok(found) => found,
            Err(trouble) => return self.fail(trouble, sheet),
        };
        let mut found = found.into_iter();
        let theirs = found.next().flatten();
        conflict.at_origin = match conflict.origin {
            Some(_) => found.next().flatten(),
            None => None,
        };
        for one in &mut conflict.ring {
            let known = one.record.arriving.as_deref();
            let is_it = |attr: &Attr| known.is_none_or(|known| known.is(attr));
            one.is_dir = found
                .next()
                .flatten()
                .is_some_and(|attr| attr.is_dir() && is_it(&attr));
        }
        conflict.is_of_both = conflict.record.kind == Kind::Dir
            && conflict.record.hides.is_none()
            && theirs.as_ref().is_some_and(Attr::is_dir);
        conflict.their_owner = theirs.as_ref().map(|attr| attr.uid);
        if let Some(why) = conflict.refusal(self.choice.side)
            && !Mutation::ChoicesAreNotRefused.is(sheet.planted)
        {
            return self.refuse(&why, sheet);
        }
        let is_replaced = conflict.is_origin_replaced();
        if conflict.beside.is_some() && found.next().flatten().is_some() {
            return self.next_name(sheet);
        }
        let covers = conflict.record.covers(&self.choice.path).is_some();
        if theirs.is_none() && !covers && !is_replaced && !conflict.lacks_dir {
            return self.refuse(REPLACES_NOTHING, sheet);
        }
        let goes = conflict.is_of_both || conflict.lacks_dir;
        if conflict.record.kind == Kind::Dir && self.choice.side == Side::Theirs && !goes {
            return self.refuse(is_dir(&conflict.record), sheet);
        }
        let drained = conflict.record.drained.and(conflict.record.replaces);
        self.state = match theirs {
            Some(theirs) if conflict.is_of_both => {
                if drained.is_some_and(|ours| ours.is_dir_of(&theirs)) {
                    return self.refuse(REPLACES_NOTHING, sheet);
                }
                State::Examine(conflict, Some(Identity::of_dir(&theirs)))
            }
            Some(theirs) if theirs.is_dir() && self.choice.side == Side::Ours => {
                State::Know(conflict)
            }
            theirs => State::Decide(conflict, theirs.as_ref().map(Identity::of)),
        };
    }

    /// The record that keeps from view what lies at this place of the PFS, if somebody has renamed it from there.
    fn keeper(
        &self,
        facts: &dyn DrainFacts,
        origin: &TreePath,
        reads: &mut ReadSet,
    ) -> Outcome<Option<(TreePath, PathRecord)>> {
        for lower in upwards(origin) {
            let speakers = speakers_of(facts, &lower, reads)?;
            if let Some(keeper) = speakers.into_iter().find(|s| s.word == Word::Hides)
                && keeper.path != self.choice.path
            {
                let record = read(facts, &keeper.path, reads)?;
                return Ok(record.map(|record| (keeper.path, record)));
            }
        }
        Ok(None)
    }

    /// The change to the record that hides the renamed thing at its old path; `None` if there is none. `is_ours`: the rename
    /// goes ahead.
    fn update_of_keeper(
        conflict: &Conflict,
        keeper: Option<(TreePath, PathRecord)>,
        is_ours: bool,
    ) -> Option<Update> {
        let (Some(origin), Some((path, before))) = (&conflict.origin, keeper) else {
            return None;
        };
        let mut record = before.clone();
        let hides_it = before.hides.as_ref() == Some(origin);
        let now = conflict.at_origin.as_ref().map(Identity::of);
        let after = match (conflict.is_origin_replaced(), is_ours) {
            // It shows again where it is.
            (_, false) if hides_it && before.kind == Kind::Whiteout => None,
            (true, true) if hides_it => {
                record.replaces = now.map(Identity::leaving);
                Some(record)
            }
            // Its directory was removed. Others may have changed it since it was renamed.
            (false, false) => {
                let then = conflict.record.arriving.as_deref();
                record.keeps(origin, then.map(|then| then.staying()).or(now)?);
                Some(record)
            }
            _ => return None,
        };
        Some(Update {
            path,
            before,
            after,
        })
    }

    /// `None`: a record that has to change as well is in transit.
    fn decide(
        &self,
        conflict: Conflict,
        now: Option<Identity>,
        facts: &dyn DrainFacts,
    ) -> Outcome<Option<DrainCommit>> {
        let mut reads = conflict.reads.clone();
        let path = self.choice.path.clone();
        if let Some((second, _)) = conflict.beside {
            reads.saw(&path, Some(&conflict.record));
            let object = conflict.record.object;
            let put = PathRecord {
                version: facts.next_version(),
                hides: None,
                replaces: None,
                drained: None,
                ..conflict.record
            };
            return Ok(Some(DrainCommit {
                reads,
                batch: vec![
                    Change::Delete { path, object },
                    Change::Put {
                        path: second.clone(),
                        record: put,
                    },
                    Change::Relabel(object),
                ],
                follow_ups: vec![FollowUp::Relabel(object, second)],
                forbids_late_opens: true,
            }));
        }
        let is_ours = self.choice.side == Side::Ours;
        let keeper = match &conflict.origin {
            // The one in the ring goes as well.
            Some(origin) if conflict.ring.is_empty() => self.keeper(facts, origin, &mut reads)?,
            _ => None,
        };
        if keeper.as_ref().is_some_and(|(_, r)| r.transit.is_some()) {
            return Ok(None);
        }
        let other = Self::update_of_keeper(&conflict, keeper, is_ours);
        let is_replaced = conflict.is_origin_replaced();
        let exchanged = conflict.ring.into_iter().map(|one| Update {
            path: one.path,
            before: one.record,
            after: None,
        });
        let record = conflict.record;
        let after = match (self.choice.side, &conflict.at_origin) {
            // Their directory stays, and is dressed with the attributes of ours.
            (Side::Ours, _) if conflict.is_of_both => Some(PathRecord {
                replaces: now,
                drained: Some(OURS),
                ..record.clone()
            }),
            (_, _) if conflict.is_of_both => Some(opened(&path, &record)),
            (Side::Ours, Some(attr)) if is_replaced => Some(PathRecord {
                arriving: Some(Box::new(Identity::of_leaving(attr))),
                ..record.clone()
            }),
            // Decided for this name: it tells others of the same file nothing.
            (Side::Ours, _) => Some(PathRecord {
                replaces: now.map(Identity::strictly),
                hides: Some(conflict.theirs),
                drained: None,
                ..record.clone()
            }),
            (Side::Theirs | Side::Both, _) => None,
        };
        let update = Update {
            path,
            before: record,
            after,
        };
        let updates = other.into_iter().chain(exchanged).chain([update]).collect();
        let (mut commit, _) = commit_of(facts, reads, updates, Vec::new());
        commit.forbids_late_opens = true;
        Ok(Some(commit))
    }
}

/// Where what was at this place of the PFS, at or beside `path`, is in the buffer now, if somebody has renamed it.
fn went_to(
    facts: &dyn DrainFacts,
    path: &TreePath,
    lower: &TreePath,
    reads: &mut ReadSet,
) -> Outcome<Option<TreePath>> {
    let speakers = speakers_of(facts, lower, reads)?;
    let mut renamed = speakers.into_iter().filter(|s| s.word == Word::Origin);
    Ok(renamed.find(|s| s.path != *path).map(|s| s.path))
}

/// What has exchanged names with `path`, from `first` on, which is what was where its version is: each of them is where the next one
/// was, and the last one where `path` was. Empty if they do not lead back.
fn ring(
    facts: &dyn DrainFacts,
    path: &TreePath,
    first: &TreePath,
    reads: &mut ReadSet,
) -> Outcome<Vec<Exchanged>> {
    let mut ring: Vec<Exchanged> = Vec::new();
    let mut next = Some(first.clone());
    while let Some(at) = next {
        let is_known = ring.iter().any(|one| one.path == at);
        let record = read(facts, &at, reads)?.filter(|record| record.kind == Kind::Moved);
        let Some(record) = record.filter(|_| !is_known && ring.len() < MOST_EXCHANGED) else {
            break;
        };
        next = match record.covers(&at) {
            Some(covered) => went_to(facts, &at, &covered, reads)?,
            None => None,
        };
        ring.push(Exchanged {
            has_below: !facts.below(&at)?.is_empty(),
            is_dir: false,
            path: at,
            record,
        });
        if next.as_ref() == Some(path) {
            return Ok(ring);
        }
    }
    Ok(Vec::new())
}

impl Conflict {
    /// Was something renamed, and others have removed it where it was, or put something else there?
    fn is_origin_replaced(&self) -> bool {
        let known = self.record.arriving.as_ref();
        self.record.kind == Kind::Moved
            && self
                .at_origin
                .as_ref()
                .is_none_or(|attr| known.is_some_and(|known| !known.is(attr)))
    }

    /// Why nothing is decided for this side, if so.
    fn refusal(&self, side: Side) -> Option<String> {
        let is_ours = side == Side::Ours;
        let is_replaced = self.is_origin_replaced();
        let has_dir_at_origin = self.at_origin.as_ref().is_some_and(Attr::is_dir);
        if let Some(dir) = self.ring.iter().find(|one| one.is_dir || one.has_below) {
            return Some(format!(
                "it has exchanged names with the directory {}: {IS_DIR_EXCHANGED}",
                dir.path
            ));
        }
        if let Some(path) = self.replaced_by.as_ref().filter(|_| !is_replaced) {
            return Some(format!(
                "{path} has taken its old place, and would replace it: take both, or ours"
            ));
        }
        let why = match &self.went_to {
            // It would show in two places.
            Some(_)
                if !self.ring.is_empty()
                    && !self.has_below
                    && (is_replaced || !has_dir_at_origin) =>
            {
                return None;
            }
            Some(path) if !is_replaced || side == Side::Theirs => {
                return Some(format!("what was there is now {path}: choose about that"));
            }
            _ if self.is_of_both && side != Side::Both => return None,
            _ if !is_ours && self.has_below && self.at_origin.is_none() && is_replaced => {
                IS_GONE_ABOVE
            }
            // It only gets another name.
            _ if side == Side::Both && self.lacks_dir && !is_replaced => return None,
            _ if !is_ours && (self.has_below || has_dir_at_origin && !is_replaced) => {
                is_dir(&self.record)
            }
            _ if side == Side::Both && is_replaced => IS_REPLACED,
            _ if is_ours && is_replaced && self.at_origin.is_none() => IS_GONE,
            _ if is_ours && is_replaced && self.has_below && !has_dir_at_origin => IS_NO_DIR,
            _ if side == Side::Theirs && is_waiting(&self.record) && !is_replaced => WAITS,
            _ => return None,
        };
        Some(why.to_owned())
    }
}

/// Why a directory is not chosen about.
const IS_DIR: &str = "it is a directory of the buffer: if theirs is a directory as well, take ours or theirs; else move what is theirs out of the way on the PFS and drain again, or rename or remove ours with `forebay run` and take theirs then";

/// The same of one that has come in the place of theirs.
const IS_DIR_OVER: &str = "it is a directory of the buffer in the place of theirs: take ours, and theirs goes with all that is in it; else move what is theirs out of the way on the PFS and drain again, or rename or remove ours with `forebay run` and take theirs then";

/// Why what has exchanged names with a directory does not get its old one.
const IS_DIR_EXCHANGED: &str = "take ours, or exchange them back with `forebay run`";

/// Why this directory is not chosen about.
fn is_dir(record: &PathRecord) -> &'static str {
    match record.hides {
        Some(_) => IS_DIR_OVER,
        None => IS_DIR,
    }
}

/// Why a directory on both sides is not chosen about.
const BOTH_DIRS: &str = "it is a directory on both sides, and stays: choose about what is in it";

/// Why there is nothing to choose about.
const REPLACES_NOTHING: &str = "it replaces nothing on the PFS";

/// Why a backing directory does not go.
const HAS_STRAYS: &str = "something was made in it past the buffer, and would be lost: `forebay drain` names it; move it to its place by hand";

/// Why nothing is renamed that is not there.
const IS_GONE: &str = "others have removed what was renamed: take theirs";

/// Why the rename of a directory is not given up.
const IS_GONE_ABOVE: &str = "others have removed or renamed what was renamed, and there are changes below it: put it back on the PFS, or take both for what is below it first";

/// Why something is not drained to a directory that is not there.
const LACKS_DIR: &str = "others have removed or renamed its directory on the PFS: make it there again, or take both for each file, or theirs";

/// Why something is not renamed in the place of a directory.
const IS_NO_DIR: &str = "others have put something else in the place of the renamed directory, and there are changes below it: put the directory back on the PFS, and drain again";

/// Why what is in the buffer does not go.
const IS_OPEN: &str = "a program has it open: what it writes would be lost; try again when it has ended, or take ours or both";

/// Why what is in the buffer does not go, if that was not to be seen.
const IS_UNKNOWN: &str =
    "the storage does not say whether a program has it open: try again, or take ours or both";

/// Why what was renamed does not go back.
const WAITS: &str = "what was renamed waits on the PFS for this name: take ours or both, or remove it with `forebay run`";

/// Why `both` is refused when others have replaced what was renamed.
const IS_REPLACED: &str = "what was renamed is no longer there: take ours, and what is there now is renamed, or theirs, and that stays where it is";

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
            (State::Looking(conflict), Got::Seen(seen)) => self.looked(conflict, seen, sheet),
            (State::Knowing(conflict), Got::Known(Ok(now))) => {
                self.state = State::Decide(conflict, Some(now.is));
            }
            (State::Knowing(_), Got::Known(Err(trouble))) => self.fail(trouble, sheet),
            (State::Examining(conflict, now), Got::Attrs(attrs)) => match attrs[..] {
                [Ok(own)] if Some(own.uid) == conflict.their_owner => {
                    self.refuse(BOTH_DIRS, sheet);
                }
                [Ok(_)] => self.state = State::Decide(conflict, now),
                _ => self.refuse(IS_UNKNOWN, sheet),
            },
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
            (State::Committing, Got::Verdict(DrainVerdict::Committed)) => {}
            (State::Committing, Got::Verdict(DrainVerdict::Conflict)) => {
                self.state = match self.marked {
                    Some(_) => State::Unmark(None),
                    None => State::Wait,
                };
            }
            (_, got) => unreachable!("{got:?} answers nothing that was asked"),
        }
    }

    fn next(&mut self, facts: &dyn DrainFacts, sheet: &mut Sheet) -> Outcome<Option<Act>> {
        loop {
            match &self.state {
                State::Climb => {
                    let (dirs, lowers) = self.ladder(facts)?.into_iter().unzip();
                    self.state = State::Climbing(dirs);
                    return Ok(Some(Act::Look(lowers)));
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
                    let places = [Some(&conflict.theirs), conflict.origin.as_ref(), beside];
                    let ring = conflict
                        .ring
                        .iter()
                        .filter_map(|one| one.record.origin.as_ref());
                    let places = places.into_iter().flatten().chain(ring);
                    let look = Act::Look(places.cloned().collect());
                    self.state = State::Looking(conflict.clone());
                    return Ok(Some(look));
                }
                State::Know(conflict) => {
                    let know = Act::Know {
                        path: conflict.theirs.clone(),
                        with_files: false,
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
                State::Examine(conflict, now) => {
                    let examine = Act::Examine(vec![conflict.record.object]);
                    self.state = State::Examining(conflict.clone(), *now);
                    return Ok(Some(examine));
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
                    match self.decide(conflict.clone(), *now, facts)? {
                        Some(commit) => {
                            self.state = State::Committing;
                            return Ok(Some(Act::Commit(commit)));
                        }
                        None => self.state = State::Wait,
                    }
                }
                State::End => return Ok(None),
                _ => unreachable!("it waits for its outcome"),
            }
        }
    }
}
