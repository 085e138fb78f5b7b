//! Copies of a batch come to be, under temporary names.

use super::{COPY_TRIES, Candidate, CopyBatch, MOST_SUPPLANTED, State};
use crate::drain::act::{Act, OTHER_DIR, Work};
use crate::drain::contents::Task;
use crate::drain::copies::Copied;
use crate::drain::drain_facts::DrainFacts;
use crate::drain::rules::within;
use crate::drain::sheet::{Reason, Sheet};
use crate::drain::strand::with_outcomes;
use crate::drain::workplaces::Workplaces;
use crate::facts::{Attr, Outcome};
use crate::identity::Identity;
use crate::path::TreePath;

impl CopyBatch {
    /// Reads the records of tasks again that changed while they were copied.
    pub(super) fn refresh(&mut self, facts: &dyn DrainFacts, sheet: &mut Sheet) -> Outcome<()> {
        let mut fresh = Vec::with_capacity(self.tasks.len());
        for task in &self.tasks {
            let mut task = task.clone();
            if task.tries > 0 || task.supplanted > 0 {
                let mut ready = Vec::new();
                for (path, _) in &task.ready {
                    match facts.record(path)? {
                        Some(r) if r.object.oid == task.oid() && r.transit.is_none() => {
                            ready.push((path.clone(), r));
                        }
                        _ => {}
                    }
                }
                task.ready = ready;
            }
            task.within.clear();
            for (path, record) in &task.ready {
                task.within.push(within(facts, path, record)?);
            }
            fresh.push(task);
        }
        let (tasks, gone): (Vec<_>, Vec<_>) =
            fresh.into_iter().partition(|task| !task.ready.is_empty());
        for _ in gone {
            sheet.count_done();
        }
        self.tasks = tasks;
        Ok(())
    }

    pub(super) fn begin(
        &mut self,
        facts: &dyn DrainFacts,
        sheet: &mut Sheet,
    ) -> Outcome<Option<Act>> {
        self.refresh(facts, sheet)?;
        if self.tasks.is_empty() {
            self.state = State::End;
            return Ok(None);
        }
        let dirs_of = |tasks: &mut dyn Iterator<Item = &Task>| {
            let names = tasks.flat_map(|task| &task.ready);
            let mut dirs: Vec<_> = names.map(|(path, _)| path.parent()).collect();
            dirs.sort();
            dirs.dedup();
            dirs
        };
        self.workplaces = match facts.is_single() {
            true => dirs_of(&mut self.tasks.iter()),
            false => vec![TreePath::root()],
        };
        let note = match sheet.workplaces.has_noted(self.slot, &self.workplaces) {
            true => None,
            false => {
                // Those of the next batches as well: each note has to become durable.
                if facts.is_single() {
                    let all = &mut self.tasks.iter().chain(&sheet.tasks);
                    let dirs = dirs_of(all);
                    self.workplaces = sheet.workplaces.with_doubtful(self.slot, dirs);
                }
                Some(Workplaces::note(self.slot, &self.workplaces))
            }
        };
        self.is_noted_anew = note.is_some();
        self.state = match note {
            Some(_) => State::Noting,
            None => State::Start,
        };
        Ok(note.map(Act::Commit))
    }

    pub(super) fn copied(&mut self, copies: Vec<Work<Copied>>, sheet: &mut Sheet) {
        for (mut task, copied) in with_outcomes(std::mem::take(&mut self.tasks), copies) {
            match copied {
                Ok(Copied::Whole {
                    of: attr,
                    copy,
                    bytes,
                }) => {
                    let earlier = task
                        .ready
                        .iter()
                        .map(|(_, r)| r.arriving.as_deref().copied());
                    self.copies.push(Candidate {
                        settled: vec![None; task.ready.len()],
                        earlier: earlier.collect(),
                        task,
                        attr,
                        copy,
                        bytes,
                        found: Vec::new(),
                        taken_at: None,
                        placed: Vec::new(),
                        is_marked: false,
                    });
                }
                Ok(Copied::Short) => {
                    self.useless.extend(task.temporaries());
                    self.stale.push((task, Again::Changed));
                }
                Ok(Copied::Supplanted) => {
                    self.useless.extend(task.temporaries());
                    self.stale.push((task, Again::Supplanted));
                }
                Ok(Copied::InUse) if sheet.patient && !sheet.stopping => {
                    task.in_use = true;
                    sheet.tasks.push_back(task);
                }
                Ok(Copied::InUse) => task.give_up(&Reason::Open, sheet),
                Ok(Copied::Stopped) => {
                    self.useless.extend(task.temporaries());
                    task.give_up(&Reason::Stopped, sheet);
                }
                Ok(Copied::NoDirectory) => {
                    self.useless.extend(task.temporaries());
                    // Its copy is made in the directory of the first one.
                    let first = task.ready.first().map(|(path, _)| path.clone());
                    task.give_up_at(first.as_ref(), &Reason::NoDirectory, sheet);
                }
                Err(trouble) => {
                    self.useless.extend(task.temporaries());
                    // Its copy is made in the directory of the first one.
                    let first = task.ready.first().map(|(path, _)| path.clone());
                    let at = first.filter(|_| trouble.operation == OTHER_DIR);
                    task.give_up_at(at.as_ref(), &Reason::Refused(trouble), sheet);
                }
            }
        }
    }

    /// What failed leaves the batch.
    pub(super) fn keep(&mut self, each: Vec<Work<()>>, sheet: &mut Sheet) {
        for (candidate, did) in with_outcomes(std::mem::take(&mut self.copies), each) {
            match did {
                Ok(()) => self.copies.push(candidate),
                Err(trouble) => {
                    self.useless.extend(candidate.task.temporaries());
                    candidate.task.give_up(&Reason::Refused(trouble), sheet);
                }
            }
        }
    }

    /// Names at which an earlier copy may be.
    pub(super) fn doubtful(&self) -> Vec<TreePath> {
        let names = self
            .copies
            .iter()
            .flat_map(|c| c.task.ready.iter().zip(&c.earlier));
        let doubtful = names.filter(|(_, earlier)| earlier.is_some());
        doubtful.map(|((path, _), _)| path.clone()).collect()
    }

    /// Where nobody can say whether an earlier copy is there, no other one follows.
    pub(super) fn peeked(&mut self, seen: Vec<Work<Option<Attr>>>, sheet: &mut Sheet) {
        let mut seen = seen.into_iter();
        for mut candidate in std::mem::take(&mut self.copies) {
            let mut unknown = None;
            let names = candidate.earlier.iter().zip(&mut candidate.settled);
            for (earlier, settled) in names {
                let Some(earlier) = earlier else { continue };
                match seen.next().expect("one look for each doubtful name") {
                    Ok(Some(found)) if earlier.is(&found) => *settled = Some(Identity::of(&found)),
                    Ok(_) => {}
                    Err(trouble) => unknown = Some(trouble),
                }
            }
            match unknown {
                None => self.copies.push(candidate),
                Some(trouble) => {
                    self.useless.extend(candidate.task.temporaries());
                    candidate.task.give_up(&Reason::Refused(trouble), sheet);
                }
            }
        }
        self.state = State::Mark;
    }
}

/// Why an object is copied once more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Again {
    /// It changed while it was copied.
    Changed,
    /// Others have put something else in place of its copy.
    Supplanted,
}

impl Again {
    /// Takes the object up once more, if it may be. What was supplanted gets another temporary name.
    pub(super) fn take_up(self, mut task: Task, sheet: &mut Sheet) {
        let (tries, most) = match self {
            Again::Changed => (&mut task.tries, COPY_TRIES),
            Again::Supplanted => (&mut task.supplanted, MOST_SUPPLANTED),
        };
        *tries += 1;
        if *tries < most {
            sheet.tally.bytes_total += task.bytes;
            return sheet.tasks.push_back(task);
        }
        let reason = match self {
            Again::Changed => Reason::Changing,
            Again::Supplanted => {
                let cause = "others have put something else in place of each copy of it on the PFS";
                Reason::Blocked(cause.to_owned())
            }
        };
        task.give_up(&reason, sheet);
    }
}
