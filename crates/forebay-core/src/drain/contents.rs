//! Files, symbolic links and nodes: which of them are to be copied.
//!
//! A [`Survey`] looks at one page of records and finds the [`Task`]s, which [`super::batch`] carries out.

use super::act::{Act, Got, Work};
use super::copies::Temporary;
use super::drain_facts::DrainFacts;
use super::reserved_names::TemporaryNames;
use super::rules::{has_contents, is_dirty, is_still_there, obstacle};
use super::sheet::{Reason, Sheet};
use super::strand::{Strand, with_outcomes};
use crate::bridge::ReadSet;
use crate::facts::{Attr, Outcome};
use crate::identity::Identity;
use crate::path::TreePath;
use crate::record::{Kind, ObjectId, ObjectName, PathRecord};

/// One object to be drained.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Task {
    pub(super) object: ObjectName,
    pub(super) kind: Kind,
    /// The names of it that may be put on the PFS now.
    pub(super) ready: Vec<(TreePath, PathRecord)>,
    /// See [`crate::record::Dirs::within`], of each of these; none before it is known.
    pub(super) within: Vec<Option<Identity>>,
    pub(super) bytes: u64,
    pub(super) tries: u32,
    /// Somebody had it open for writing a moment ago.
    pub(super) in_use: bool,
    /// Copies of it that others have taken away, or that did not come about because their names were taken.
    pub(super) supplanted: u32,
    /// Its temporary names.
    pub(super) names: TemporaryNames,
}

impl Task {
    pub(super) fn oid(&self) -> ObjectId {
        self.object.oid
    }

    /// Which copy of it the next one is.
    fn attempt(&self) -> u32 {
        self.tries + self.supplanted
    }

    pub(super) fn temporary(&self) -> Temporary {
        let Some(first) = self.temporaries().next() else {
            panic!("a task of {} that has no name is copied", self.oid());
        };
        first
    }

    /// All temporary names that this copy of it can have.
    pub(super) fn temporaries(&self) -> impl Iterator<Item = Temporary> {
        let one = |(name, _): &(TreePath, PathRecord)| Temporary {
            oid: self.oid(),
            path: self.names.of_copy(name, self.oid(), self.attempt()),
        };
        let mut all: Vec<_> = self.ready.iter().map(one).collect();
        all.dedup();
        all.into_iter()
    }

    pub(super) fn give_up(&self, reason: &Reason, sheet: &mut Sheet) {
        self.give_up_at(None, reason, sheet);
    }

    /// Gives up because of the name `at`: a file is copied under all its names or none.
    pub(super) fn give_up_at(&self, at: Option<&TreePath>, reason: &Reason, sheet: &mut Sheet) {
        for (path, _) in &self.ready {
            let reason = match (at.filter(|at| *at != path), reason) {
                (Some(at), Reason::NoDirectory) => Reason::Blocked(format!(
                    "{at} is another name of it, and has no directory on the PFS any more"
                )),
                (Some(at), _) => Reason::Blocked(format!("{at} is another name of it")),
                (None, reason) => reason.clone(),
            };
            sheet.leave(path, self.bytes, reason);
        }
        sheet.count_done();
    }
}

/// Bytes of the unit in which Linux counts `st_blocks`, whatever the blocks of the file system are.
const STAT_BLOCK_BYTES: u64 = 512;

/// Bytes to copy: a sparse file holds less than its size.
fn data_bytes(attr: &Attr) -> u64 {
    attr.size.min(attr.blocks * STAT_BLOCK_BYTES)
}

/// All recorded names of the object. `None` unless `path` is the first of them: the first name handles the object.
pub(super) fn all_names(
    facts: &dyn DrainFacts,
    path: &TreePath,
    record: &PathRecord,
    attr: &Attr,
) -> Outcome<Option<Vec<(TreePath, PathRecord)>>> {
    if attr.nlink <= 1 {
        return Ok(Some(vec![(path.clone(), record.clone())]));
    }
    let mut names = Vec::new();
    for (object, path) in facts.names_of(record.object.oid)? {
        if let Some(record) = facts.record(&path)?
            && record.object == object
        {
            names.push((path, record));
        } else if !facts.is_single() {
            // It is getting another name just now.
            return Ok(None);
        }
    }
    names.sort_by(|a, b| a.0.cmp(&b.0));
    let is_first = names.first().is_some_and(|(first, _)| first == path);
    Ok(is_first.then_some(names))
}

enum SurveyState {
    Begin,
    Examining,
    Sort(Vec<Work<Attr>>),
    Looking,
    End,
}

/// Finds what is to be copied of one page of records.
pub(super) struct Survey {
    entries: Vec<(TreePath, PathRecord)>,
    state: SurveyState,
    /// Objects that are clean if the PFS still has them.
    clean: Vec<(Task, Attr)>,
}

impl Survey {
    pub(super) fn new(entries: impl IntoIterator<Item = (TreePath, PathRecord)>) -> Self {
        let entries = entries.into_iter().filter(|(_, r)| has_contents(r));
        Survey {
            entries: entries.collect(),
            state: SurveyState::Begin,
            clean: Vec::new(),
        }
    }

    fn sort(
        &mut self,
        attrs: &[Work<Attr>],
        facts: &dyn DrainFacts,
        sheet: &mut Sheet,
    ) -> Outcome<()> {
        let (mut clean, mut tasks, mut blocked, mut refused) = (vec![], vec![], vec![], vec![]);
        for ((path, record), attr) in with_outcomes(&self.entries, attrs) {
            let attr = match attr {
                Ok(attr) => attr,
                Err(trouble) => {
                    refused.push((path, *trouble));
                    continue;
                }
            };
            let Some(names) = all_names(facts, path, record, attr)? else {
                continue;
            };
            let is_clean = names.iter().all(|(path, r)| !is_dirty(path, r, Some(attr)));
            let mut task = Task {
                object: record.object,
                kind: record.kind,
                ready: Vec::new(),
                within: Vec::new(),
                bytes: data_bytes(attr),
                tries: 0,
                in_use: false,
                supplanted: 0,
                names: TemporaryNames::of_pass(facts, sheet.terms.secret),
            };
            let first = names.first().map(|(path, _)| path.clone());
            for (path, record) in names {
                match obstacle(facts, &path, &mut ReadSet::default())? {
                    Some(reason) if !is_clean => blocked.push((path, task.bytes, reason)),
                    _ => task.ready.push((path, record)),
                }
            }
            // Whose home the first name is at tells which bridge has marked the names, see `resume`.
            let has_first = task.ready.first().map(|(path, _)| path) == first.as_ref();
            if !facts.is_single() && !has_first {
                for (path, _) in std::mem::take(&mut task.ready) {
                    let cause = "another name of it can't be put on the PFS yet".to_owned();
                    blocked.push((path, task.bytes, Reason::Blocked(cause)));
                }
                continue;
            }
            if is_clean {
                clean.push((task, *attr));
            } else if !task.ready.is_empty() {
                tasks.push(task);
            }
        }
        // Nothing below asks for a fact, so it happens once.
        for (path, trouble) in refused {
            sheet.refuse(path, 0, trouble);
        }
        for (path, bytes, reason) in blocked {
            sheet.leave(&path, bytes, reason);
        }
        for task in tasks {
            add(task, sheet);
        }
        self.clean = clean;
        Ok(())
    }

    /// What is clean, and still there.
    fn looked(&mut self, seen: Vec<Work<Option<Attr>>>, sheet: &mut Sheet) {
        let names = self.clean.iter().map(|(task, _)| task.ready.len());
        assert_eq!(names.sum::<usize>(), seen.len(), "one look for each name");
        let mut seen = seen.into_iter();
        for (task, attr) in std::mem::take(&mut self.clean) {
            let mut is_there = true;
            for ((_, record), found) in task.ready.iter().zip(seen.by_ref()) {
                let found = found.ok().flatten();
                is_there &= is_still_there(record, &attr, found.as_ref());
            }
            if is_there {
                // An earlier pass may have died before it synced the directory.
                for (path, _) in &task.ready {
                    sheet.note_unsynced(path);
                }
            } else {
                add(task, sheet);
            }
        }
    }
}

/// Adds a task, at most one per object and pass: a renamed object is met twice, and two copies would share one
/// temporary name. If the new name is dirty, the list of what is left shows it.
fn add(task: Task, sheet: &mut Sheet) {
    if !sheet.taken_up.insert(task.oid()) {
        return;
    }
    sheet.tally.files_total += 1;
    sheet.tally.bytes_total += task.bytes;
    sheet.tasks.push_back(task);
}

impl Strand for Survey {
    fn take(&mut self, got: Got, sheet: &mut Sheet) {
        match (&self.state, got) {
            (SurveyState::Examining, Got::Attrs(attrs)) => self.state = SurveyState::Sort(attrs),
            (SurveyState::Looking, Got::Seen(seen)) => {
                self.looked(seen, sheet);
                self.state = SurveyState::End;
            }
            (_, got) => unreachable!("{got:?} answers nothing that was asked"),
        }
    }

    fn next(&mut self, facts: &dyn DrainFacts, sheet: &mut Sheet) -> Outcome<Option<Act>> {
        loop {
            match std::mem::replace(&mut self.state, SurveyState::End) {
                SurveyState::Begin if self.entries.is_empty() => {}
                SurveyState::Begin => {
                    self.state = SurveyState::Examining;
                    let objects = self.entries.iter().map(|(_, r)| r.object);
                    return Ok(Some(Act::Examine(objects.collect())));
                }
                SurveyState::Sort(attrs) => {
                    if let Err(stop) = self.sort(&attrs, facts, sheet) {
                        self.state = SurveyState::Sort(attrs);
                        return Err(stop);
                    }
                    let paths: Vec<_> = self
                        .clean
                        .iter()
                        .flat_map(|(task, _)| task.ready.iter().map(|(path, _)| path.clone()))
                        .collect();
                    if !paths.is_empty() {
                        self.state = SurveyState::Looking;
                        return Ok(Some(Act::Look(paths)));
                    }
                }
                SurveyState::End => return Ok(None),
                _ => unreachable!("it waits for its outcome"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::name_secret::NameSecret;
    use super::super::sheet::PassTerms;
    use super::*;

    #[test]
    fn an_object_that_a_walk_meets_twice_is_copied_once() {
        let task = |seq| Task {
            object: ObjectName {
                oid: ObjectId(seq),
                link: 0,
            },
            kind: Kind::File,
            ready: Vec::new(),
            within: Vec::new(),
            bytes: 1,
            tries: 0,
            in_use: false,
            supplanted: 0,
            names: TemporaryNames {
                maker: None,
                secret: NameSecret([0, 0]),
            },
        };
        let mut sheet = Sheet::new(PassTerms {
            keep: false,
            batches: 1,
            objects: 1,
            patient: false,
            secret: NameSecret([0, 0]),
        });
        for seq in [1, 2, 1] {
            add(task(seq), &mut sheet);
        }
        assert_eq!(sheet.tasks.len(), 2);
        assert_eq!(sheet.tally.files_total, 2);
    }
}
