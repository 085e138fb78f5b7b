//! What a move needs, and what it takes along.

use super::{FromTo, Move, Reach, State, What};
use crate::bridge::ReadSet;
use crate::drain::drain_facts::DrainFacts;
use crate::drain::reserved_names::{TemporaryNames, waiting_path};
use crate::drain::rules::{
    OURS, all_speakers, has_contents, has_to_leave, hides_itself, holds_something_hidden,
    holds_something_moved, is_marked_upwards, is_obstructed, is_replaced, is_wanted, obstacle,
    read, speakers_of, unsettled,
};
use crate::drain::sheet::{Reason, Sheet};
use crate::facts::Outcome;
use crate::identity::Identity;
use crate::path::TreePath;
use crate::record::{Kind, PathRecord};
use crate::speakers::Word;

impl Move {
    /// The move ends without having begun.
    pub(super) fn leave(&mut self, reason: Reason, sheet: &mut Sheet) -> Outcome<()> {
        sheet.leave(&self.path, 0, reason);
        self.state = State::End;
        Ok(())
    }

    pub(super) fn begin(&mut self, facts: &dyn DrainFacts, sheet: &mut Sheet) -> Outcome<()> {
        self.reads = ReadSet::default();
        self.marked.clear();
        let Some(record) = read(facts, &self.path, &mut self.reads)? else {
            self.state = State::End;
            return Ok(());
        };
        if record.transit.is_some() {
            // Only another pass can have marked it: ours are resumed first.
            self.state = State::Wait;
            return Ok(());
        }
        if let Some(reach) = &self.reach
            && (sheet.stopping && !self.has_cleared || !reach.has(&Reach::of(&self.path, &record)))
        {
            // Else a program has put something here meanwhile that comes from elsewhere. That is for the next pass.
            self.state = State::End;
            return Ok(());
        }
        let clears_first = match self.goal {
            What::MakeDir => record.kind == Kind::Dir && record.hides.is_some(),
            What::Rename => self.makes_room(&record, facts, sheet)?,
            _ => false,
        };
        self.what = if clears_first { What::Clear } else { self.goal };
        match self.what {
            What::Rename => self.begin_rename(record, facts, sheet),
            What::Evacuate => self.begin_evacuation(record, facts, sheet),
            What::Clear => self.begin_clearance(record, facts, sheet),
            What::Place => self.begin_placement(record, facts, sheet),
            What::MakeDir => self.begin_dir(record, facts, sheet),
        }
    }

    /// Does something renamed get its final name if what it hides there goes, and nothing else is to be done before?
    fn makes_room(
        &mut self,
        record: &PathRecord,
        facts: &dyn DrainFacts,
        sheet: &Sheet,
    ) -> Outcome<bool> {
        let to = &self.path;
        let hides_it = record.kind == Kind::Moved && record.hides.as_ref() == Some(to);
        if !hides_it || record.arriving.is_none() || sheet.has_failed(to) {
            return Ok(false);
        }
        let way = has_to_leave(facts, to, record, &mut self.reads)?;
        if way.is_none_or(|(from, _)| unswept(&from, sheet).is_some()) {
            return Ok(false);
        }
        let (dir, reads) = (to.parent(), &mut self.reads);
        Ok(unsettled(facts, &dir, reads)?.is_none()
            && !is_obstructed(facts, &dir, reads)?
            && !holds_something_moved(facts, to, reads)?
            && !holds_something_hidden(facts, to, reads)?)
    }

    /// From where it lies to its final name, if nothing is to be done there before. Whoever may rename it can do just that, and
    /// what fails stays in its place.
    pub(super) fn begin_rename(
        &mut self,
        record: PathRecord,
        facts: &dyn DrainFacts,
        sheet: &mut Sheet,
    ) -> Outcome<()> {
        let way = has_to_leave(facts, &self.path, &record, &mut self.reads)?;
        let way = way.filter(|_| record.arriving.is_some() && !sheet.has_failed(&self.path));
        let Some((from, _)) = way else {
            self.state = State::End;
            return Ok(());
        };
        let to = self.path.clone();
        if let Some(reason) = self.hindrance(&record, &from, facts, sheet)? {
            // Until all that has to be done first has had its turn another try follows.
            if sheet.may_wait {
                return self.leave(reason, sheet);
            }
            self.state = State::End;
            return Ok(());
        }
        self.known = record.arriving.as_deref().copied();
        self.carry(record, FromTo { from, to }, facts)
    }

    /// Why what lies at `from` can't get its final name now.
    fn hindrance(
        &mut self,
        record: &PathRecord,
        from: &TreePath,
        facts: &dyn DrainFacts,
        sheet: &Sheet,
    ) -> Outcome<Option<Reason>> {
        if let Some(reason) = unswept(from, sheet) {
            return Ok(Some(reason));
        }
        let to = self.path.clone();
        let reads = &mut self.reads;
        if let Some(reason) = obstacle(facts, &to, reads)? {
            return Ok(Some(reason));
        }
        let is_taken = record.hides.is_some() || holds_something_moved(facts, &to, reads)?;
        let hidden = is_taken || holds_something_hidden(facts, &to, reads)? || to.is_within(from);
        Ok(hidden.then(is_held))
    }

    pub(super) fn begin_evacuation(
        &mut self,
        record: PathRecord,
        facts: &dyn DrainFacts,
        sheet: &mut Sheet,
    ) -> Outcome<()> {
        let way = has_to_leave(facts, &self.path, &record, &mut self.reads)?;
        let way = way.filter(|_| !sheet.has_failed(&self.path));
        let Some((from, to)) = way else {
            self.state = State::End;
            return Ok(());
        };
        // What is known, and in nobody's way, stays until its final name is free.
        if record.arriving.is_some() && !is_wanted(facts, &from, &mut self.reads)? {
            self.state = State::End;
            return Ok(());
        }
        if let Some(reason) = unswept(&from, sheet) {
            return self.leave(reason, sheet);
        }
        self.known = record.arriving.as_deref().copied();
        if self.known.is_none() {
            // Tables of older versions have it where it was hidden.
            for speaker in speakers_of(facts, &from, &mut self.reads)? {
                if speaker.word == Word::Hides {
                    let hiding = facts.record(&speaker.path)?;
                    let known = hiding.and_then(|hiding| hiding.replaces);
                    self.known = known.map(Identity::leaving);
                }
            }
        }
        // A guess: the placement looks again.
        let end = self.path.clone();
        let reads = &mut ReadSet::default();
        let is_free = match &record.hides {
            None => obstacle(facts, &end, reads)?.is_none(),
            Some(hides) => *hides == end && unsettled(facts, &end.parent(), reads)?.is_none(),
        };
        self.end = (is_free && end != from).then_some(end);
        self.carry(record, FromTo { from, to }, facts)
    }

    /// The record together with what was renamed out of the directory `from` on the PFS, and is still in it. `None`: one
    /// of them is in transit already, or something else that speaks of a path in it.
    pub(super) fn with_contents(
        &mut self,
        record: PathRecord,
        from: &TreePath,
        facts: &dyn DrainFacts,
    ) -> Outcome<Option<Vec<(TreePath, PathRecord)>>> {
        let mut marked = vec![(self.path.clone(), record)];
        for speaker in all_speakers(facts, from, &mut self.reads)? {
            // With several bridges another drain may be at work on what is hidden in it. One of the two marks comes
            // first, and the other relies on there being none.
            let is_meant = speaker.word == Word::Origin || !facts.is_single();
            if is_meant
                && speaker.path != self.path
                && let Some(other) = read(facts, &speaker.path, &mut self.reads)?
            {
                if other.transit.is_some() {
                    return Ok(None);
                }
                if speaker.word == Word::Origin {
                    marked.push((speaker.path, other));
                }
            }
        }
        Ok(Some(marked))
    }

    /// Marks everything below a moving directory, since it moves with it. Things that were renamed out and still lie there are
    /// marked too.
    pub(super) fn carry(
        &mut self,
        record: PathRecord,
        way: FromTo,
        facts: &dyn DrainFacts,
    ) -> Outcome<()> {
        let Some(marked) = self.with_contents(record, &way.from, facts)? else {
            self.state = State::Wait;
            return Ok(());
        };
        if !facts.is_single() {
            // Another bridge may be putting something into it, or letting something in it go.
            for (path, other) in facts.below(&self.path)? {
                if other.transit.is_some() && !marked.iter().any(|(at, _)| *at == path) {
                    self.state = State::Wait;
                    return Ok(());
                }
            }
        }
        // New names in a directory that moves are decided anew after this.
        facts.rely_on_range(&self.path, &mut self.reads)?;
        self.marked = marked;
        self.way = Some(way);
        self.state = State::Mark;
        Ok(())
    }

    pub(super) fn begin_clearance(
        &mut self,
        record: PathRecord,
        facts: &dyn DrainFacts,
        sheet: &mut Sheet,
    ) -> Outcome<()> {
        // What was refused before is for the next pass. What something renamed replaces stays if that can't come.
        let is_over = sheet.has_settled || record.kind == Kind::Moved;
        let has_failed = is_over && sheet.has_failed(&self.path);
        if has_failed || record.kind != Kind::Whiteout && record.hides.is_none() {
            self.state = State::End;
            return Ok(());
        }
        let target = record
            .hides
            .clone()
            .filter(|_| !hides_itself(&self.path, &record));
        let replaced = is_replaced(facts, &self.path, &record, &mut self.reads)?;
        self.marked = match (record.kind, record.origin.clone()) {
            // A resume cannot see whether this move had begun, so the contents are marked as well. Without these marks it would
            // clear the mark of another bridge that moves something in there.
            (Kind::Moved, Some(from)) if !facts.is_single() && target.is_some() => {
                let Some(marked) = self.with_contents(record, &from, facts)? else {
                    self.state = State::Wait;
                    return Ok(());
                };
                marked
            }
            _ => vec![(self.path.clone(), record)],
        };
        let Some(target) = target else {
            self.is_unmarked = true;
            self.state = State::Finish;
            return Ok(());
        };
        if sheet.is_on_its_way(&target) {
            return self.leave(left_over(&target.parent()), sheet);
        }
        if is_marked_upwards(facts, &target, &mut self.reads)? {
            self.state = State::Wait;
        } else if holds_something_moved(facts, &target, &mut self.reads)? {
            let record = &self.marked[0].1;
            if !sheet.has_settled && (record.kind == Kind::Whiteout || has_contents(record)) {
                // It is cleared again when that has its final name.
                sheet.clears_files_again |= has_contents(record);
                self.state = State::End;
                return Ok(());
            }
            let cause = format!("what was renamed from {target}, or from below it, comes first");
            return self.leave(Reason::Blocked(cause), sheet);
        } else if replaced {
            self.state = State::Peek(target);
        } else {
            self.state = State::Mark;
        }
        Ok(())
    }

    pub(super) fn begin_placement(
        &mut self,
        record: PathRecord,
        facts: &dyn DrainFacts,
        sheet: &mut Sheet,
    ) -> Outcome<()> {
        let from = waiting_path(record.object.oid);
        if record.kind != Kind::Moved || record.origin.as_ref() != Some(&from) {
            self.state = State::End;
            return Ok(());
        }
        if let Some(reason) = obstacle(facts, &self.path, &mut self.reads)? {
            return self.leave(reason, sheet);
        }
        let to = self.path.clone();
        // That is in what was there before. It would be looked for in this one.
        if holds_something_hidden(facts, &to, &mut self.reads)? {
            return self.leave(is_held(), sheet);
        }
        self.carry(record, FromTo { from, to }, facts)
    }

    pub(super) fn begin_dir(
        &mut self,
        record: PathRecord,
        facts: &dyn DrainFacts,
        sheet: &mut Sheet,
    ) -> Outcome<()> {
        if record.kind != Kind::Dir {
            self.state = State::End;
            return Ok(());
        }
        if let Some(reason) = obstacle(facts, &self.path, &mut self.reads)? {
            return self.leave(reason, sheet);
        }
        self.may_have_been_made = record.drained.is_some();
        let knows_it = facts.knows_dirs() && record.replaces.is_some();
        if self.may_have_been_made && record.drained != Some(OURS) && knows_it {
            // It is known to have been there; perhaps others have moved or removed it.
            self.is_unmarked = true;
        }
        self.knows_dirs = facts.knows_dirs();
        let names = TemporaryNames::of_pass(facts, sheet.terms.secret);
        self.apart = names.of_dir(&self.path, record.object.oid);
        self.known = record.replaces;
        self.marked = vec![(self.path.clone(), record)];
        self.state = match self.is_unmarked {
            true => {
                self.learn_within(facts)?;
                State::Act(self.make_dir())
            }
            // A request that would move or remove it waits: whether it is there is not certain.
            false => State::Mark,
        };
        Ok(())
    }
}

/// Is something in this directory, or below it, that was not drained yet, and that is bound to no other one that had its place?
pub(super) fn has_something_new(facts: &dyn DrainFacts, dir: &TreePath) -> Outcome<bool> {
    let below = facts.below(dir)?;
    let is_new =
        |r: &PathRecord| r.is_visible() && r.drained.is_none() && r.dirs().within.is_none();
    Ok(below.iter().any(|(_, record)| is_new(record)))
}

/// Something has to leave first what is to be replaced.
fn is_held() -> Reason {
    Reason::Blocked("something in what it replaces could not be removed".to_owned())
}

/// Why nothing leaves `from`, if something of a drain may be left in it: later nobody would know where that is.
fn unswept(from: &TreePath, sheet: &Sheet) -> Option<Reason> {
    sheet.left_in(from).map(|dir| left_over(&dir))
}

fn left_over(dir: &TreePath) -> Reason {
    Reason::Blocked(format!(
        "what a drain has left in {dir} could not be removed or given back"
    ))
}
