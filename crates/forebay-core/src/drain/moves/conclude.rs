//! What became of a move, for the records.

use super::{Move, State, What};
use crate::bridge::ReadSet;
use crate::drain::act::Act;
use crate::drain::commits::{Update, arrived, commit_of, labels_below, relocated};
use crate::drain::drain_facts::DrainFacts;
use crate::drain::going::Going;
use crate::drain::rules::{OURS, hides_itself};
use crate::drain::sheet::{Reason, Sheet};
use crate::facts::Outcome;
use crate::identity::Identity;
use crate::path::TreePath;
use crate::record::{Kind, PathRecord, Transit};

impl Move {
    /// The record as its mark leaves it.
    pub(super) fn marks(&self, path: TreePath, record: PathRecord) -> Update {
        let mut update = Update::marked(path, record, Some(Transit::Placing));
        if let (What::MakeDir, Some(after)) = (self.what, &mut update.after) {
            after.drained = Some(OURS);
        }
        update
    }

    /// The record as it is when the work has failed. Of a directory that may be there it goes on saying so.
    pub(super) fn unmarks(&self, path: TreePath, record: PathRecord) -> Update {
        let mut update = Update::marked(path, record, None);
        let is_taken = matches!(self.outcome, Err(Some(Reason::Taken)));
        let may_be_there = (self.may_be_made || self.may_have_been_made) && !is_taken;
        if let (What::MakeDir, false, Some(after)) = (self.what, may_be_there, &mut update.after) {
            (after.drained, after.replaces) = (None, None);
        }
        // What others have changed was not touched.
        let is_untouched = matches!(self.outcome, Err(Some(Reason::Changed)));
        if let (What::Clear, false, Some(after)) = (self.what, is_untouched, &mut update.after) {
            // What failed may have been done.
            after.replaces = after.replaces.map(Identity::doubtful);
        }
        update
    }

    /// The commit of what the work came to, and the taking back of the marks.
    pub(super) fn conclude(
        &mut self,
        facts: &dyn DrainFacts,
        sheet: &mut Sheet,
    ) -> Outcome<Option<Act>> {
        if let Err(reason) = &self.outcome
            && let Some(reason) = reason.clone()
        {
            sheet.leave(&self.path, 0, reason);
        }
        let (mut reads, mut labels) = (ReadSet::default(), Vec::new());
        if self.is_unmarked && !facts.is_single() {
            // It is in its place already; but another drain may just have moved a directory above it.
            reads = self.reads.clone();
        }
        // Another move may have changed of what they speak since they were marked.
        let mut marked = Vec::with_capacity(self.marked.len());
        for (path, record) in &self.marked {
            let now = facts.record(path)?.filter(|r| r.transit.is_some());
            let record = now.or_else(|| self.outcome.is_ok().then(|| record.clone()));
            marked.extend(record.map(|record| (path.clone(), record)));
        }
        let mut marked = marked.into_iter();
        let updates = if self.outcome.is_err() {
            let unmarks = |(path, record)| self.unmarks(path, record);
            marked.map(unmarks).collect()
        } else if let Some(way) = &self.way {
            let is_final = matches!(self.what, What::Place | What::Rename);
            let moved = relocated(facts, &self.path, &way.from, &way.to, is_final, &mut reads)?;
            labels = moved.1;
            moved.0
        } else {
            let (path, before) = marked.next().expect("the record itself comes first");
            let mut after = after(self.what, &before, self.known);
            // What was renamed away and back is where it was before that.
            if hides_itself(&path, &before) {
                after = arrived(facts, &path, after, &mut reads)?;
                labels = labels_below(facts, &path, &path)?;
            }
            let own = Update {
                path,
                before,
                after,
            };
            let carried = marked.map(|(path, record)| self.unmarks(path, record));
            std::iter::once(own).chain(carried).collect()
        };
        if updates.is_empty() {
            self.state = State::End;
            return Ok(None);
        }
        let (mut commit, _) = commit_of(facts, reads, updates, labels);
        match self.may_be_on_its_way {
            true => sheet.stays_on_its_way(self.place().clone()),
            false => commit.batch.extend(self.going.as_ref().map(Going::forget)),
        }
        self.state = State::Finishing;
        Ok(Some(Act::Commit(commit)))
    }

    pub(super) fn concluded(&mut self, sheet: &mut Sheet) {
        self.state = State::End;
        self.going = None;
        if self.outcome.is_err() {
            return;
        }
        match self.what {
            What::Evacuate => sheet.walk.has_left += 1,
            What::Rename => {
                sheet.walk.has_left += 1;
                sheet.tally.renamed += 1;
            }
            What::Place => sheet.tally.renamed += 1,
            What::Clear if self.goal != What::Clear => {
                self.has_cleared = true;
                self.state = State::Begin;
            }
            What::Clear | What::MakeDir => {}
        }
        self.is_unmarked = false;
    }

    /// The PFS has been changed.
    pub(super) fn note(&mut self, sheet: &mut Sheet) {
        let mut changed = vec![];
        match &self.way {
            Some(way) => changed.extend([way.from.clone(), way.to.clone()]),
            None if self.what == What::MakeDir => changed.push(self.path.clone()),
            None => changed.extend(self.marked[0].1.hides.clone()),
        }
        if self.what == What::Clear {
            sheet.tally.removed += 1;
            let known = self.marked[0].1.replaces;
            // What was in a directory may still be there, aside.
            if known.is_some_and(|known| !known.is_dir()) {
                for place in &changed {
                    sheet.shared_files.went(place);
                }
            }
        }
        for path in &changed {
            sheet.note_unsynced(path);
        }
    }
}

/// The record after its move, if nothing else is different. `known`: a directory that was made.
fn after(what: What, before: &PathRecord, known: Option<Identity>) -> Option<PathRecord> {
    match what {
        What::Clear if before.kind == Kind::Whiteout => None,
        What::Clear => Some(PathRecord {
            hides: None,
            replaces: None,
            transit: None,
            ..before.clone()
        }),
        // Its attributes are still to come.
        What::MakeDir => Some(PathRecord {
            drained: Some(OURS),
            replaces: known,
            transit: None,
            ..before.clone()
        }),
        What::Rename | What::Evacuate | What::Place => {
            unreachable!("what moves from one place to another has a way")
        }
    }
}
