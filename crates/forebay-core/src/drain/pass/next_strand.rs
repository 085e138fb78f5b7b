//! Which strand begins next, round by round. Nothing here takes an outcome: strands do.

use super::{Drain, Errand, Running};
use crate::bridge::Mutation;
use crate::drain::BATCH_OBJECTS;
use crate::drain::act::{Act, DrainCommit};
use crate::drain::batch::CopyBatch;
use crate::drain::choose::{Choose, NOT_TRIED};
use crate::drain::contents::Survey;
use crate::drain::drain_facts::DrainFacts;
use crate::drain::finish::{Dress, List, SyncDirs};
use crate::drain::going::{self, GoOn};
use crate::drain::moves::{Move, Reach, What};
use crate::drain::orphans::{self, Orphan, is_waiting};
use crate::drain::release::{RELEASED_AT_ONCE, Release, ReleaseWalk};
use crate::drain::resume::{self, Resume};
use crate::drain::round::Round;
use crate::drain::rules::{PAGE, has_contents};
use crate::drain::shared_files;
use crate::drain::strand::{Once, Strand};
use crate::drain::workplaces::{self, WorkplaceSweep};
use crate::facts::{Outcome, Stop};
use crate::path::TreePath;
use crate::record::{BridgeId, Kind, PathRecord};
use crate::speakers::Word;
use crate::table::{KeyValue, Order};

/// Tasks that wait for a batch are looked for ahead of it up to this number.
const TASKS_AHEAD: usize = 2048;

/// Most moves under way at a time. A request that meets one waits for it, and for those before it.
pub(super) const MOVES_AT_ONCE: usize = 128;

impl Drain {
    /// Begins what can begin now: false if nothing can.
    pub(super) fn begin(&mut self, facts: &dyn DrainFacts) -> Outcome<bool> {
        let may_begin_beside = match self.round {
            Round::Contents => true,
            Round::ReleaseContents => self.waiting.len() < self.sheet.terms.batches,
            round if round.moves() => self.waiting.len() < self.moves_at_once(facts),
            // These have one strand at a time.
            _ => false,
        };
        if !self.waiting.is_empty() && !may_begin_beside {
            return Ok(false);
        }
        if self.round == Round::End {
            return Ok(false);
        }
        let is_syncing = self.waiting.values().any(|parked| parked.running.syncs);
        if !is_syncing && let Some(dirs) = self.sheet.take_unsynced(false) {
            self.ready.push_back(Running {
                syncs: true,
                ..Running::new(Box::new(SyncDirs::new(dirs)))
            });
            return Ok(true);
        }
        if self.is_left_out() {
            return Ok(self.end_round());
        }
        match self.round {
            Round::Resume => self.begin_resume(facts)?,
            Round::GoOn => self.begin_noted(facts, going::NOTES, GoOn::noted)?,
            Round::Choose if self.sheet.stopping => {
                let rest = self.choices.drain(..);
                let rest = rest.map(|choice| (choice.path, NOT_TRIED.to_owned()));
                self.sheet.report.refused.extend(rest);
                self.advance();
            }
            Round::Choose => match self.choices.pop_front() {
                Some(choice) => self.start(Choose::new(choice)),
                None => self.advance(),
            },
            Round::Sweep => self.begin_sweep(facts)?,
            Round::SweepAgain => {
                let of = sweeper(facts);
                self.once(|| WorkplaceSweep::new(vec![TreePath::root()], of));
            }
            Round::Evacuate => return self.begin_evacuation(facts),
            Round::Orphans => self.begin_noted(facts, orphans::NOTES, Orphan::noted)?,
            Round::Clear => {
                return self.begin_move(facts, |record| {
                    let is_due = record.kind == Kind::Whiteout || record.hides.is_some();
                    is_due.then_some(What::Clear)
                });
            }
            Round::Settle => {
                return self.begin_move(facts, |record| match record.kind {
                    Kind::Dir => Some(What::MakeDir),
                    Kind::Moved if is_waiting(record) => Some(What::Place),
                    Kind::Moved => Some(What::Rename),
                    _ => None,
                });
            }
            Round::ClearAgain => {
                self.sheet.has_settled = true;
                let with_files = self.sheet.clears_files_again;
                return self.begin_move(facts, |record| {
                    let is_due = record.kind == Kind::Whiteout
                        || with_files && record.hides.is_some() && has_contents(record);
                    is_due.then_some(What::Clear)
                });
            }
            Round::Contents => return self.begin_contents(facts),
            Round::Tidy => self.tidy(facts),
            Round::Sync => match self.sheet.take_unsynced(true) {
                Some(dirs) => self.start(SyncDirs::new(dirs)),
                None => self.advance(),
            },
            Round::Dress => self.begin_page(facts, Order::ChildrenFirst, |page| {
                Box::new(Dress::new(page))
            })?,
            Round::List => {
                self.begin_page(facts, Order::ParentsFirst, |page| Box::new(List::new(page)))?
            }
            Round::ReleaseDirs => {
                self.begin_release(facts, ReleaseWalk::Dirs, Order::ParentsFirst)?;
            }
            Round::ReleaseContents => match &self.errand {
                Errand::Release(paths) if !self.has_begun => {
                    let entries = entries(facts, paths)?;
                    self.has_begun = true;
                    self.start(Release::new(ReleaseWalk::Contents, entries));
                }
                Errand::Release(_) => self.advance(),
                _ => self.begin_release(facts, ReleaseWalk::Contents, Order::ParentsFirst)?,
            },
            Round::ReleasePassing => self.begin_passing(facts)?,
            Round::ReleasePlaces => match self.errand {
                Errand::Release(_) => self.advance(),
                _ => self.begin_release(facts, ReleaseWalk::Places, Order::ChildrenFirst)?,
            },
            Round::ForgetFiles => self.forget_files(facts)?,
            Round::Judge => {
                if self.errand != Errand::Refresh {
                    self.judge(facts)?;
                }
                self.advance();
            }
            Round::End => return Ok(false),
        }
        Ok(true)
    }

    /// Takes the notes of workplaces away, unless something may be left there. The next pass begins with the notes.
    fn tidy(&mut self, facts: &dyn DrainFacts) {
        let is_sure = Mutation::FailuresLeaveNoDoubt.is(self.sheet.planted);
        let workplaces = &mut self.sheet.workplaces;
        if !self.sheet.stopping && workplaces.is_doubtful() && !is_sure {
            let dirs = workplaces.take_doubtful();
            return self.start(WorkplaceSweep::new(dirs, sweeper(facts)));
        }
        if workplaces.has_leftovers() && !is_sure {
            return self.advance();
        }
        let found = std::mem::take(&mut self.found_notes);
        match workplaces.forget(&found) {
            Some(commit) => self.start(Once::commit(commit)),
            None => self.advance(),
        }
    }

    /// What is noted about files with several names is of use as long as a record may hide one of them. A program that hides one
    /// just now may find it listed, if others of its names go and are written to.
    fn forget_files(&mut self, facts: &dyn DrainFacts) -> Outcome<()> {
        let is_over = self.errand == Errand::Pass
            && self.sheet.report.left_count == 0
            && facts.page(None, Order::ParentsFirst, 1)?.is_empty();
        let batch = match is_over && !self.sheet.stopping {
            true => shared_files::forget(facts)?,
            false => Vec::new(),
        };
        match batch.is_empty() {
            true => self.advance(),
            false => self.start(Once::commit(DrainCommit {
                batch,
                ..DrainCommit::default()
            })),
        }
        Ok(())
    }

    fn is_left_out(&self) -> bool {
        let is_stopped = self.sheet.stopping && self.round.is_optional();
        let keeps = self.errand == Errand::Pass
            && self.round.releases()
            && (self.sheet.terms.keep || self.sheet.report.left_count > 0);
        is_stopped || keeps
    }

    /// A round that is one strand.
    fn once<S: Strand + 'static>(&mut self, strand: impl FnOnce() -> S) {
        if self.has_begun {
            self.advance();
        } else {
            self.has_begun = true;
            self.start(strand());
        }
    }

    /// The next record of the walk; `None` at its end.
    fn step(
        &mut self,
        facts: &dyn DrainFacts,
        order: Order,
        limit: usize,
    ) -> Outcome<Option<(TreePath, PathRecord)>> {
        if self.page.is_empty() && !self.is_walked {
            let page = facts.page(self.cursor.as_ref(), order, limit)?;
            self.is_walked = page.is_empty();
            if let Some((last, _)) = page.last() {
                self.cursor = Some(last.clone());
            }
            self.page = page.into();
        }
        Ok(self.page.pop_front())
    }

    fn begin_resume(&mut self, facts: &dyn DrainFacts) -> Outcome<()> {
        if !std::mem::replace(&mut self.has_begun, true) {
            self.intended = resume::intended(facts)?;
        }
        if let Some(intended) = &mut self.intended {
            match intended.pop() {
                Some(path) => self.start(Resume::intended(path)),
                None => {
                    self.intended = None;
                    self.start(Once::commit(resume::forget_intended()));
                }
            }
            return Ok(());
        }
        let next = facts.in_transit(self.cursor.as_ref(), 1)?;
        match next.into_iter().next() {
            Some(path) => {
                self.cursor = Some(path.clone());
                self.start(Resume::new(path));
            }
            None => self.advance(),
        }
        Ok(())
    }

    fn begin_sweep(&mut self, facts: &dyn DrainFacts) -> Outcome<()> {
        if self.has_begun {
            self.advance();
            return Ok(());
        }
        let mut dirs = vec![TreePath::root()];
        let mut found = Vec::new();
        for (key, value) in facts.notes(workplaces::NOTES)? {
            dirs.extend(workplaces::read(&key, &value)?);
            found.push(key);
        }
        dirs.sort();
        dirs.dedup();
        self.found_notes = found;
        self.has_begun = true;
        self.start(WorkplaceSweep::new(dirs, sweeper(facts)));
        Ok(())
    }

    /// The next thing that may have to leave its place: what lies deepest first, so that it is taken out of
    /// a directory before the directory itself goes. Walks again after a walk in which something has left:
    /// what was in its place can have been carried off with the directory that holds it, and the place is free for
    /// something else. Only what is in the way of something then goes to a waiting name.
    fn begin_evacuation(&mut self, facts: &dyn DrainFacts) -> Outcome<bool> {
        loop {
            let page = facts.speakers_here(self.cursor.as_ref(), 1)?;
            let Some(last) = page.last() else {
                // What is under way may be in the way of something, or make it free.
                if !self.waiting.is_empty() {
                    return Ok(false);
                }
                let walk = std::mem::take(&mut self.sheet.walk);
                let goes_on = walk.has_left > 0 && (self.sheet.may_wait || walk.is_worth_another());
                if goes_on || !std::mem::replace(&mut self.sheet.may_wait, true) {
                    self.walk_anew();
                    continue;
                }
                self.advance();
                return Ok(true);
            };
            let lower = last.lower.clone();
            let mover = page.iter().find(|s| s.word == Word::Origin);
            let what = match self.sheet.may_wait {
                true => What::Evacuate,
                false => What::Rename,
            };
            if let Some(mover) = mover
                && !self.start_move(&mover.path, what, facts)?
            {
                return Ok(false);
            }
            self.cursor = Some(lower);
            self.sheet.walk.looked += 1;
            if mover.is_some() {
                return Ok(true);
            }
        }
    }

    /// A strand for each note of a kind.
    fn begin_noted<S: Strand + 'static>(
        &mut self,
        facts: &dyn DrainFacts,
        kind: &[u8],
        strand: impl Fn(&KeyValue) -> Option<S>,
    ) -> Outcome<()> {
        if !std::mem::replace(&mut self.has_begun, true) {
            self.notes = facts.notes(kind)?;
        }
        match self.notes.pop() {
            Some(note) => {
                if let Some(strand) = strand(&note) {
                    self.start(strand);
                }
            }
            None => self.advance(),
        }
        Ok(())
    }

    /// How many moves may be under way. They wait for the disks ([`Act::changes_names_of_pfs`]), so several wait together.
    fn moves_at_once(&self, facts: &dyn DrainFacts) -> usize {
        // With one batch the caller has asked for one thing at a time. With several bridges others move things as well, and
        // these are known by their marks alone.
        match facts.is_single() && self.sheet.terms.batches > 1 {
            true => MOVES_AT_ONCE,
            false => 1,
        }
    }

    fn begin_move(
        &mut self,
        facts: &dyn DrainFacts,
        what: impl Fn(&PathRecord) -> Option<What>,
    ) -> Outcome<bool> {
        while let Some((path, record)) = self.step(facts, Order::ParentsFirst, PAGE)? {
            if let Some(what) = what(&record) {
                let is_started = self.start_move(&path, what, facts)?;
                if !is_started {
                    self.page.push_front((path, record));
                }
                return Ok(is_started);
            }
        }
        Ok(self.end_round())
    }

    /// Begins a move. False if it is not independent of one under way.
    fn start_move(&mut self, path: &TreePath, what: What, facts: &dyn DrainFacts) -> Outcome<bool> {
        let mut next = Move::new(path.clone(), what);
        let mut reach = Reach::default();
        if self.moves_at_once(facts) > 1 {
            // Moves that have ended may have changed the record since the walk has met it.
            let record = facts.record(path)?;
            reach = record.map_or(reach, |record| Reach::of(path, &record));
            next = next.beside(reach.clone());
        }
        let mut under_way = self.waiting.values().map(|parked| &parked.running.reach);
        let ignores = Mutation::MovesIgnoreEachOther.is(self.sheet.planted);
        let is_free = ignores || under_way.all(|other| other.is_apart_from(&reach));
        if is_free {
            self.ready.push_back(Running {
                reach,
                ..Running::new(Box::new(next))
            });
        }
        Ok(is_free)
    }

    /// Goes on to the next round. False while something of this one is under way.
    fn end_round(&mut self) -> bool {
        let is_over = self.waiting.is_empty();
        if is_over {
            self.advance();
        }
        is_over
    }

    fn begin_contents(&mut self, facts: &dyn DrainFacts) -> Outcome<bool> {
        let may_begin = !self.sheet.stopping;
        if may_begin
            && self.sheet.batches < self.sheet.terms.batches
            && (self.is_walked || self.sheet.tasks.len() >= BATCH_OBJECTS)
            && let Some(batch) = CopyBatch::take_from(&mut self.sheet)
        {
            self.start(batch);
            return Ok(true);
        }
        let is_surveyed = self.waiting.len() > self.sheet.batches;
        if may_begin && !self.is_walked && !is_surveyed && self.sheet.tasks.len() < TASKS_AHEAD {
            let mut entries = Vec::new();
            while let Some(entry) = self.step(facts, Order::ParentsFirst, PAGE)? {
                let is_last = self.page.is_empty();
                if has_contents(&entry.1) {
                    entries.push(entry);
                }
                if is_last {
                    break;
                }
            }
            self.start(Survey::new(entries));
            return Ok(true);
        }
        assert!(
            !self.waiting.is_empty() || self.sheet.tasks.is_empty() || !may_begin,
            "with nothing under way a batch can begin"
        );
        Ok(self.end_round())
    }

    fn begin_page(
        &mut self,
        facts: &dyn DrainFacts,
        order: Order,
        strand: impl Fn(Vec<(TreePath, PathRecord)>) -> Box<dyn Strand>,
    ) -> Outcome<()> {
        let mut page = Vec::new();
        while let Some(entry) = self.step(facts, order, PAGE)? {
            page.push(entry);
            if self.page.is_empty() {
                break;
            }
        }
        if page.is_empty() {
            self.advance();
        } else {
            self.start_boxed(strand(page));
        }
        Ok(())
    }

    fn begin_release(
        &mut self,
        facts: &dyn DrainFacts,
        walk: ReleaseWalk,
        order: Order,
    ) -> Outcome<()> {
        let mut entries = Vec::new();
        while let Some((path, record)) = self.step(facts, order, PAGE)? {
            let refreshes = self.errand == Errand::Refresh;
            if Release::concerns(walk, refreshes, &path, &record) {
                entries.push((path, record));
            }
            if entries.len() == RELEASED_AT_ONCE {
                break;
            }
        }
        if entries.is_empty() {
            self.advance();
        } else {
            let release = Release::new(walk, entries);
            self.start(match self.errand {
                Errand::Refresh => release.of_what_differs(),
                _ => release,
            });
        }
        Ok(())
    }

    /// Those that only the bridge itself had open, once more after a pause.
    fn begin_passing(&mut self, facts: &dyn DrainFacts) -> Outcome<()> {
        if self.sheet.passing.is_empty() {
            self.advance();
        } else if !std::mem::replace(&mut self.has_begun, true) {
            self.start(Once::new(Act::Pause));
        } else {
            let paths: Vec<_> = self.sheet.passing.keys().cloned().collect();
            let some = paths.into_iter().take(RELEASED_AT_ONCE).collect::<Vec<_>>();
            let entries = entries(facts, &some)?;
            for path in some {
                if !entries.iter().any(|(at, _)| *at == path) {
                    self.sheet.passing.remove(&path);
                }
            }
            self.has_begun = false;
            self.start(Release::new(ReleaseWalk::Contents, entries));
        }
        Ok(())
    }

    /// Is everything gone?
    fn judge(&mut self, facts: &dyn DrainFacts) -> Outcome<()> {
        let first = match &self.errand {
            Errand::Release(paths) => {
                let is_unknown =
                    |path: &&TreePath| matches!(facts.record(path), Err(Stop::Need(_)));
                if let Some(path) = paths.iter().find(is_unknown) {
                    self.sheet
                        .keep_because(|| format!("{path} is being changed"));
                    return Ok(());
                }
                entries(facts, paths)?.into_iter().next()
            }
            _ => facts.page(None, Order::ParentsFirst, 1)?.into_iter().next(),
        };
        match first {
            None => {
                self.sheet.report.released = true;
                self.sheet.report.kept_because = None;
            }
            Some((path, _)) => self
                .sheet
                .keep_because(|| format!("{path} has been changed again")),
        }
        Ok(())
    }
}

/// Whose leftovers a sweep removes; `None`: everybody's.
fn sweeper(facts: &dyn DrainFacts) -> Option<BridgeId> {
    let is_alone = facts.is_single() || Mutation::SweepsForOthers.is_in(|| facts.planted());
    (!is_alone).then(|| facts.me())
}

/// The records at these paths, of those that are there and at hand.
fn entries(facts: &dyn DrainFacts, paths: &[TreePath]) -> Outcome<Vec<(TreePath, PathRecord)>> {
    let mut entries = Vec::new();
    for path in paths {
        let record = match facts.record(path) {
            // It belongs to another bridge, or is about to change.
            Err(Stop::Need(_)) => None,
            here => here?,
        };
        if let Some(record) = record.filter(has_contents) {
            entries.push((path.clone(), record));
        }
    }
    Ok(entries)
}
