//! Somebody decides between what is in the buffer and what others have made of it on the PFS.

use super::act::{Act, Commit, Got, Trouble, Verdict, Work};
use super::facts::Facts;
use super::moves::is_dir;
use super::orphans::abandon;
use super::rules::{Update, commit_of, has_contents, lower_dir, read, unsettled};
use super::sheet::Sheet;
use super::strand::Strand;
use crate::bridge::ReadSet;
use crate::facts::{Attr, Outcome};
use crate::identity::Identity;
use crate::ops::Effect;
use crate::path::TreePath;
use crate::record::{Kind, PathRecord};
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
pub struct Choice {
    /// The path in the buffer.
    pub path: TreePath,
    /// Whose version stays.
    pub side: Side,
}

/// Looks at a record that another drain or request changes, before it is given up.
const MOST_TRIES: u32 = 100;
/// Names that are tried for a second version.
const MOST_NAMES: u32 = 1000;

enum State {
    Begin,
    Wait,
    Waiting,
    Look(Conflict),
    Looking(Conflict),
    Know(Conflict),
    Knowing(Conflict),
    /// The identity is that of what is on the PFS; `None`: nothing is.
    Decide(Conflict, Option<Identity>),
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
    /// A second name, and where it is on the PFS.
    beside: Option<(TreePath, TreePath)>,
    reads: ReadSet,
}

/// Carries out one choice.
pub(super) struct Choose {
    choice: Choice,
    /// The number of the second name.
    number: u32,
    tries: u32,
    state: State,
}

impl Choose {
    pub(super) fn new(choice: Choice) -> Self {
        Choose {
            choice,
            number: 1,
            tries: 0,
            state: State::Begin,
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

    fn begin(&mut self, facts: &dyn Facts, sheet: &mut Sheet) -> Outcome<()> {
        let path = &self.choice.path;
        let mut reads = ReadSet::default();
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
            None if unsettled(facts, &path.parent(), &mut reads)?.is_none() => path.clone(),
            None => {
                self.refuse("its directory is not on the PFS yet", sheet);
                return Ok(());
            }
        };
        let speakers = facts.speakers_of(&theirs)?;
        if speakers
            .iter()
            .any(|s| s.word == Word::Origin && s.path != *path)
        {
            self.refuse(IS_RENAMED, sheet);
            return Ok(());
        }
        let is_single =
            has_contents(&record) || matches!(record.kind, Kind::Moved | Kind::Whiteout);
        if self.choice.side != Side::Ours && !is_single {
            self.refuse(IS_DIR, sheet);
            return Ok(());
        }
        let mut beside = None;
        if self.choice.side == Side::Both && record.kind != Kind::Whiteout {
            let dir = path.parent();
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

    fn looked(&mut self, conflict: Conflict, seen: Vec<Work<Option<Attr>>>, sheet: &mut Sheet) {
        let mut found = Vec::new();
        for look in seen {
            match look {
                Ok(attr) => found.push(attr),
                Err(trouble) => return self.fail(trouble, sheet),
            }
        }
        let mut found = found.into_iter();
        let theirs = found.next().flatten();
        let origin = conflict
            .origin
            .as_ref()
            .and_then(|_| found.next().flatten());
        if self.choice.side != Side::Ours && origin.is_some_and(|attr| is_dir(&attr)) {
            return self.refuse(IS_DIR, sheet);
        }
        if conflict.beside.is_some() && found.next().flatten().is_some() {
            return self.next_name(sheet);
        }
        if theirs.is_none() && conflict.record.covers(&self.choice.path).is_none() {
            return self.refuse("it replaces nothing on the PFS", sheet);
        }
        self.state = match theirs {
            Some(attr) if is_dir(&attr) && self.choice.side == Side::Ours => State::Know(conflict),
            theirs => State::Decide(conflict, theirs.as_ref().map(Identity::of)),
        };
    }

    fn decide(&self, conflict: Conflict, now: Option<Identity>, facts: &dyn Facts) -> Commit {
        let Conflict {
            record,
            beside,
            mut reads,
            theirs,
            ..
        } = conflict;
        let path = self.choice.path.clone();
        if let Some((second, _)) = beside {
            reads.saw(&path, Some(&record));
            let object = record.object;
            let put = PathRecord {
                version: facts.next_version(),
                hides: None,
                replaces: None,
                drained: None,
                ..record
            };
            return Commit {
                reads,
                batch: vec![
                    Change::Delete { path, object },
                    Change::Put {
                        path: second.clone(),
                        record: put,
                    },
                    Change::Relabel(object),
                ],
                effects: vec![Effect::Relabel(object, second)],
                forbids_late_opens: true,
            };
        }
        let after = (self.choice.side == Side::Ours).then(|| PathRecord {
            replaces: now,
            // A drained one is known by that; anything else hides from now on what it replaces.
            hides: match record.drained {
                Some(_) => record.hides.clone(),
                None => Some(theirs),
            },
            ..record.clone()
        });
        let note = after.is_none().then(|| abandon(&record)).flatten();
        let update = Update {
            path,
            before: record,
            after,
        };
        let (mut commit, _) = commit_of(facts, reads, vec![update], Vec::new());
        commit.batch.extend(note);
        commit.forbids_late_opens = true;
        commit
    }
}

/// Why a directory is not chosen about.
const IS_DIR: &str = "a directory of the buffer is in its place: rename or remove that with `forebay run`, and take theirs then";

/// Why a place is not chosen about out of which something was renamed: the drain would rename theirs.
const IS_RENAMED: &str =
    "what was there was renamed in the buffer: move theirs away on the PFS, and drain again";

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
            (State::Waiting, Got::Done) => self.state = State::Begin,
            (State::Looking(conflict), Got::Seen(seen)) => self.looked(conflict, seen, sheet),
            (State::Knowing(conflict), Got::Known(Ok(now))) => {
                self.state = State::Decide(conflict, Some(now));
            }
            (State::Knowing(_), Got::Known(Err(trouble))) => self.fail(trouble, sheet),
            (State::Committing, Got::Verdict(Verdict::Committed)) => {}
            (State::Committing, Got::Verdict(Verdict::Conflict)) => self.state = State::Wait,
            (_, got) => unreachable!("{got:?} answers nothing that was asked"),
        }
    }

    fn next(&mut self, facts: &dyn Facts, sheet: &mut Sheet) -> Outcome<Option<Act>> {
        loop {
            match &self.state {
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
                    let look = Act::Look(places.into_iter().flatten().cloned().collect());
                    self.state = State::Looking(conflict.clone());
                    return Ok(Some(look));
                }
                State::Know(conflict) => {
                    let know = Act::Know(conflict.theirs.clone());
                    self.state = State::Knowing(conflict.clone());
                    return Ok(Some(know));
                }
                State::Decide(conflict, now) => {
                    let commit = self.decide(conflict.clone(), *now, facts);
                    self.state = State::Committing;
                    return Ok(Some(Act::Commit(commit)));
                }
                State::End => return Ok(None),
                _ => unreachable!("it waits for its outcome"),
            }
        }
    }
}
