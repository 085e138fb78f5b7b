//! Copies get their names, a few at a time.

use super::{Again, Candidate, CopyBatch, CopyFate, PUBLISHED_AT_ONCE, State, Suspect, Task};
use crate::bridge::{Mutation, ReadSet};
use crate::drain::act::{Act, DrainCommit, Work};
use crate::drain::commits::{Update, commit_of};
use crate::drain::copies::Named;
use crate::drain::drain_facts::DrainFacts;
use crate::drain::rules::{is_ours, obstacle, stamp, within};
use crate::drain::sheet::{Reason, Sheet};
use crate::drain::strand::with_outcomes;
use crate::facts::{Attr, Outcome};
use crate::identity::Identity;
use crate::record::{Dirs, ObjectName, Transit};

impl CopyBatch {
    /// Marks the next few, if they still are what they were when they were copied.
    pub(super) fn mark(&mut self, facts: &dyn DrainFacts) -> Outcome<Option<Act>> {
        if self.few.is_empty() {
            let some = self.copies.len().min(PUBLISHED_AT_ONCE);
            let few = self.copies.drain(..some);
            self.few = few.map(|c| (c, CopyFate::Good)).collect();
        }
        let mut reads = ReadSet::default();
        let mut updates = Vec::new();
        let mut fates = Vec::with_capacity(self.few.len());
        for (candidate, _) in &self.few {
            let mut fate = CopyFate::Good;
            for (path, record) in &candidate.task.ready {
                if facts.record(path)?.as_ref() != Some(record) || record.transit.is_some() {
                    fate = CopyFate::Stale;
                } else if let Some(reason) = obstacle(facts, path, &mut reads)? {
                    fate = CopyFate::Failed(reason);
                }
            }
            if fate == CopyFate::Good {
                let ready = candidate.task.ready.iter().cloned();
                updates.extend(ready.zip(&candidate.settled).map(|((path, r), settled)| {
                    let mut update = Update::marked(path, r, Some(Transit::Placing));
                    if let Some(after) = &mut update.after {
                        // From now on a third one may be there.
                        after.replaces = settled.or(after.replaces);
                        after.arriving = Some(Box::new(candidate.copy));
                    }
                    update
                }));
            }
            fates.push(fate);
        }
        for ((_, fate), now) in self.few.iter_mut().zip(fates) {
            *fate = now;
        }
        if updates.is_empty() {
            self.state = State::Forget;
            return Ok(None);
        }
        let (commit, marked) = commit_of(facts, reads, updates, Vec::new());
        self.marked = marked;
        self.state = State::Marking;
        Ok(Some(Act::Commit(commit)))
    }

    /// The marks are there.
    pub(super) fn marks_committed(&mut self) {
        let mut marked = std::mem::take(&mut self.marked).into_iter();
        for (candidate, _) in good(&mut self.few) {
            candidate.is_marked = true;
            for ready in &mut candidate.task.ready {
                if let Some(now) = marked.next() {
                    assert_eq!(now.0, ready.0, "marks come in the order of the records");
                    *ready = now;
                }
            }
        }
        self.state = State::Check;
    }

    pub(super) fn examined(&mut self, attrs: Vec<Work<Attr>>, planted: Option<Mutation>) {
        for ((candidate, fate), attr) in with_outcomes(good(&mut self.few), attrs) {
            match attr {
                Ok(attr) if stamp(&attr) == stamp(&candidate.attr) => {}
                Ok(now) if Mutation::PublishesWhatHasChanged.is(planted) => candidate.attr = now,
                Ok(_) => *fate = CopyFate::Stale,
                Err(trouble) => *fate = CopyFate::Failed(Reason::Refused(trouble)),
            }
        }
        self.state = State::Look;
    }

    /// Holds back what would replace a stranger's file: one may have appeared on the PFS since.
    pub(super) fn looked(&mut self, seen: Vec<Work<Option<Attr>>>, sheet: &mut Sheet) {
        let planted = sheet.planted;
        let names = good(&mut self.few).map(|(candidate, _)| candidate.task.ready.len());
        assert_eq!(names.sum::<usize>(), seen.len(), "one look for each name");
        let mut seen = seen.into_iter();
        for (candidate, fate) in good(&mut self.few) {
            candidate.found.clear();
            let names = candidate.task.ready.iter().zip(&candidate.earlier);
            for (nth, (((path, record), earlier), found)) in names.zip(seen.by_ref()).enumerate() {
                let is_earlier = |now: &Attr| earlier.is_some_and(|copy| copy.is(now));
                let there = found.as_ref().ok().and_then(Option::as_ref);
                candidate.found.push(there.map(Identity::of));
                let trusts = |bug: Mutation| bug.is(planted);
                let now = match found {
                    Ok(Some(found)) if found.is_dir() => CopyFate::Failed(Reason::Taken),
                    Ok(Some(_))
                        if !is_ours(path, record) && !trusts(Mutation::ReplacesStrangers) =>
                    {
                        CopyFate::Failed(Reason::Taken)
                    }
                    Ok(Some(found)) if !is_earlier(&found) => {
                        match sheet.shared_files.may_go(path, record, &found, planted) {
                            Some(known) => {
                                if known.is_of_several_names() {
                                    candidate.found[nth] = Some(known);
                                }
                                continue;
                            }
                            None if trusts(Mutation::ReplacesWhatOthersChanged) => continue,
                            None => CopyFate::Suspect(vec![Suspect {
                                nth,
                                record: record.clone(),
                                found,
                            }]),
                        }
                    }
                    Ok(_) => continue,
                    Err(trouble) => CopyFate::Failed(Reason::Refused(trouble)),
                };
                match (&mut *fate, now) {
                    // The first one stays, and outranks all suspicions.
                    (CopyFate::Failed(_), _) => {}
                    (CopyFate::Suspect(all), CopyFate::Suspect(more)) => all.extend(more),
                    (_, now) => {
                        candidate.taken_at = Some(path.clone());
                        *fate = now;
                    }
                }
            }
        }
        self.state = State::Judge;
    }

    /// What is to be replaced was changed: by others?
    pub(super) fn judge(&mut self, facts: &dyn DrainFacts, sheet: &mut Sheet) -> Outcome<()> {
        for (candidate, fate) in &mut self.few {
            let CopyFate::Suspect(suspects) = fate else {
                continue;
            };
            let files = &mut sheet.shared_files;
            let (mut theirs, mut written) = (Vec::new(), Vec::new());
            for suspect in suspects.iter() {
                let (place, found) = (candidate.place(suspect.nth), &suspect.found);
                let is_ours = match suspect.record.replaces {
                    Some(known) => files.is_changed_by_us(place, known, found, facts)?,
                    None => false,
                };
                match is_ours {
                    false => theirs.push(suspect.nth),
                    true if facts.is_written_in_place(found) => written.push(suspect.nth),
                    true => {}
                }
            }
            *fate = match cleared(&mut candidate.found, &theirs, &written) {
                Ok(()) => {
                    candidate.taken_at = None;
                    CopyFate::Good
                }
                Err(theirs) => {
                    candidate.taken_at = Some(candidate.task.ready[theirs].0.clone());
                    CopyFate::Failed(Reason::Changed)
                }
            };
        }
        self.state = State::Name;
        Ok(())
    }

    pub(super) fn named(&mut self, each: Vec<Work<Named>>, sheet: &mut Sheet) {
        for ((candidate, fate), did) in with_outcomes(good(&mut self.few), each) {
            for (path, _) in &candidate.task.ready {
                sheet.note_unsynced(path);
            }
            match did {
                Ok(Named::Whole(now)) => {
                    for nth in 0..candidate.task.ready.len() {
                        sheet.shared_files.went(candidate.place(nth));
                    }
                    candidate.copy = now;
                }
                Ok(Named::Supplanted) => *fate = CopyFate::Supplanted,
                // It may have some of its names, whatever has failed after that.
                Err(trouble) => *fate = CopyFate::Unclear(trouble),
            }
        }
        self.looks = 0;
        self.state = State::LookAgain;
    }

    /// Objects whose labels still say what their names have replaced.
    pub(super) fn hiding(&self) -> Vec<ObjectName> {
        let good = self.few.iter().filter(|(_, fate)| *fate == CopyFate::Good);
        let ready = good.flat_map(|(candidate, _)| &candidate.task.ready);
        let hiding = ready.filter(|(_, record)| record.hides.is_some());
        hiding.map(|(_, record)| record.object).collect()
    }

    /// A new label changes the inode, and so what counts as clean.
    pub(super) fn examined_again(&mut self, attrs: Vec<Work<Attr>>) {
        for ((candidate, _), attr) in with_outcomes(good(&mut self.few), attrs) {
            let before = &mut candidate.attr;
            let of_contents = |a: &Attr| (a.size, a.mtime, a.mode, a.uid, a.gid);
            match attr {
                // Otherwise the file changed just now; the old stamp keeps it dirty.
                Ok(now) if of_contents(&now) == of_contents(before) => *before = now,
                // So it does if nobody can say: it has its name on the PFS, and that is noted.
                Ok(_) | Err(_) => {}
            }
        }
        self.state = State::Finish;
    }

    /// What became of the few, and the end of the marks.
    pub(super) fn conclude(&self, facts: &dyn DrainFacts) -> Outcome<Option<DrainCommit>> {
        let (mut updates, mut labels) = (Vec::new(), Vec::new());
        for (candidate, fate) in self.few.iter().filter(|(c, _)| c.is_marked) {
            let first = updates.len();
            for (n, (path, before)) in candidate.task.ready.iter().cloned().enumerate() {
                let mut update = Update::marked(path, before, None);
                match (fate, &mut update.after) {
                    (CopyFate::Good, Some(record)) => {
                        record.drained = Some(stamp(&candidate.attr));
                        record.is_there_as(candidate.copy);
                        let within = within(facts, &update.path, record)?;
                        record.dirs = Dirs {
                            within,
                            ..record.dirs()
                        }
                        .boxed();
                        // The new name has replaced what was hidden, and the label says so already.
                        record.hides = None;
                        if !self.unlabelled.contains(&record.object) {
                            update.before.hides = None;
                        }
                    }
                    (
                        CopyFate::Failed(_) | CopyFate::Stale | CopyFate::Supplanted,
                        Some(record),
                    ) => {
                        let hid = record.hides.clone();
                        candidate.failed(n, &update.path, record);
                        if record.hides != hid {
                            labels.push((update.path.clone(), record.object));
                        }
                    }
                    _ => {}
                }
                updates.push(update);
            }
            let is_there = *fate == CopyFate::Good || candidate.placed.contains(&Some(true));
            if is_there {
                updates.extend(other_names(facts, &candidate.task)?);
                let shown = updates[first..]
                    .iter_mut()
                    .filter_map(|one| one.after.as_mut());
                shown.for_each(|record| record.shows(candidate.copy));
            }
        }
        let (commit, _) = commit_of(facts, ReadSet::default(), updates, labels);
        Ok((!commit.batch.is_empty()).then_some(commit))
    }

    /// The copies that were not named, and what is told of all.
    pub(super) fn forget(&mut self, sheet: &mut Sheet) -> Option<Act> {
        let mut useless = std::mem::take(&mut self.useless);
        for (candidate, fate) in std::mem::take(&mut self.few) {
            let Candidate {
                task,
                taken_at,
                bytes,
                ..
            } = candidate;
            match fate {
                CopyFate::Good => {
                    sheet.tally.files_drained += 1;
                    sheet.tally.bytes_drained += bytes;
                    sheet.count_done();
                }
                CopyFate::Stale => {
                    useless.extend(task.temporaries());
                    self.stale.push((task, Again::Changed));
                }
                CopyFate::Supplanted => {
                    useless.extend(task.temporaries());
                    self.stale.push((task, Again::Supplanted));
                }
                CopyFate::Suspect(_) | CopyFate::Unclear(_) => {
                    unreachable!("it is known what it is before the end")
                }
                CopyFate::Failed(reason) => {
                    task.give_up_at(taken_at.as_ref(), &reason, sheet);
                    useless.extend(task.temporaries());
                }
            }
        }
        (!useless.is_empty()).then_some(Act::Forget(useless))
    }
}

/// Updates that change nothing yet, of the names of an object that are not ready, and show the number of another file.
fn other_names(facts: &dyn DrainFacts, task: &Task) -> Outcome<Vec<Update>> {
    let mut others = Vec::new();
    for (_, path) in facts.names_of(task.oid())? {
        if task.ready.iter().all(|(ready, _)| *ready != path)
            && let Some(record) = facts.record(&path)?
            && record.object.oid == task.oid()
            && record.copy_of != 0
            && record.transit.is_none()
        {
            others.push(Update::marked(path, record, None));
        }
    }
    Ok(others)
}

/// Those of the few with which nothing is wrong.
pub(super) fn good(
    few: &mut [(Candidate, CopyFate)],
) -> impl Iterator<Item = (&mut Candidate, &mut CopyFate)> {
    few.iter_mut()
        .filter(|(_, fate)| *fate == CopyFate::Good)
        .map(|(candidate, fate)| (candidate, fate))
}

/// Lets the names with these numbers be used if others have changed what is there at none: our own programs may go on writing to what
/// they have `written` to.
///
/// # Errors
/// The number of a name at which others have.
fn cleared(
    found: &mut [Option<Identity>],
    theirs: &[usize],
    written: &[usize],
) -> Result<(), usize> {
    if let Some(nth) = theirs.first() {
        return Err(*nth);
    }
    for nth in written {
        found[*nth] = found[*nth].map(Identity::leaving);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_is_judged_and_only_what_our_programs_write_to_may_go_on_changing() {
        let at = |ino: u64, size| Attr {
            ino,
            size,
            mode: libc::S_IFREG | 0o644,
            ..Attr::default()
        };
        let before = [at(1, 5), at(2, 5), at(3, 5)];
        let mut found = before.map(|attr| Some(Identity::of(&attr)));
        let untouched = found;
        assert_eq!(cleared(&mut found, &[2], &[0]), Err(2));
        assert_eq!(found, untouched);
        assert_eq!(cleared(&mut found, &[], &[0, 2]), Ok(()));
        let grown = [at(1, 6), at(2, 6), at(3, 6)];
        let still = found
            .iter()
            .zip(&grown)
            .map(|(known, now)| known.unwrap().is(now));
        assert_eq!(still.collect::<Vec<_>>(), [true, false, true]);
    }
}
