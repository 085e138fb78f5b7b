//! One pass: the order of its rounds, and the strands under way.

use super::act::{Act, ActTicket, Got};
use super::batch::CopyBatch;
use super::choose::{Choose, SideChoice};
use super::contents::Survey;
use super::drain_facts::DrainFacts;
use super::finish::{Dress, List, SyncDirs};
use super::hearing::Hearing;
use super::moves::{Move, What};
use super::name_secret::NameSecret;
use super::orphans::Orphan;
use super::orphans::is_waiting;
use super::release::{RELEASED_AT_ONCE, Release, ReleaseWalk};
use super::resume::Resume;
use super::round::Round;
use super::rules::{PAGE, has_contents};
use super::sheet::{DrainReport, PassTerms, Sheet, Tally};
use super::strand::{Once, Strand};
use super::workplaces::{self, WorkplaceSweep};
use super::{orphans, resume};
use crate::bridge::{Heard, Mutation, is_of_others};
use crate::facts::{Outcome, Stop};
use crate::fault::Fault;
use crate::path::TreePath;
use crate::record::{BridgeId, Kind, PathRecord};
use crate::speakers::Word;
use crate::table::{KeyValue, Order};
use std::collections::{BTreeMap, VecDeque};

/// Tasks that wait for a batch are looked for ahead of it up to this number.
const TASKS_AHEAD: usize = 2048;

/// What the driver is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NextAct {
    /// This. Its outcome goes to [`Drain::done`] with the ticket.
    Act(ActTicket, Act),
    /// Nothing can begin before one of the acts under way has ended.
    Wait,
    /// Nothing: the pass is over.
    End,
}

/// What the machine is for.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Errand {
    Pass,
    Resume,
    /// The release of these alone.
    Release(Vec<TreePath>),
    /// The release of what others have changed on the PFS.
    Refresh,
}

/// One pass of the drain. See the [module](super) for how it is driven.
pub struct Drain {
    errand: Errand,
    round: Round,
    /// The round has begun.
    has_begun: bool,
    /// Where the walk of this round is.
    cursor: Option<TreePath>,
    is_walked: bool,
    page: VecDeque<(TreePath, PathRecord)>,
    /// Strands with an act under way.
    waiting: BTreeMap<ActTicket, Parked>,
    ready: VecDeque<Running>,
    tickets: ActTicket,
    /// Notes of workplaces that were found at the beginning.
    found_notes: Vec<Vec<u8>>,
    /// Notes of orphans that are still to be looked at.
    orphans: Vec<KeyValue>,
    /// What is chosen about changes of others.
    choices: Vec<SideChoice>,
    /// What an earlier program has noted instead of marks.
    intended: Option<Vec<TreePath>>,
    sheet: Sheet,
}

struct Running {
    strand: Box<dyn Strand>,
    /// What was fetched for its next act.
    heard: Heard,
}

struct Parked {
    running: Running,
    /// It waits for a fact, not for an act of its own.
    for_fact: bool,
}

impl Drain {
    /// As after many failures that stayed in doubt.
    #[cfg(test)]
    pub(super) fn of_a_pfs_that_fails(mut self) -> Self {
        for _ in 0..super::MOST_IN_DOUBT {
            self.sheet.stays_in_doubt();
        }
        self
    }

    fn on(errand: Errand, round: Round, terms: PassTerms) -> Self {
        Drain {
            errand,
            round,
            has_begun: false,
            cursor: None,
            is_walked: false,
            page: VecDeque::new(),
            waiting: BTreeMap::new(),
            ready: VecDeque::new(),
            tickets: 0,
            found_notes: Vec::new(),
            choices: Vec::new(),
            intended: None,
            orphans: Vec::new(),
            sheet: Sheet::new(terms),
        }
    }

    /// A pass over everything whose home is this bridge.
    pub fn new(terms: PassTerms) -> Self {
        assert!(terms.batches > 0, "a pass needs at least one batch");
        assert!(terms.objects > 0, "a batch has at least one object");
        Drain::on(Errand::Pass, Round::Resume, terms)
    }

    /// The pass begins with these decisions.
    pub fn choosing(self, choices: Vec<SideChoice>) -> Self {
        Drain { choices, ..self }
    }

    /// What a start does about a pass that was killed, before requests are served: records in transit are
    /// finished or taken back, as the PFS shows.
    pub fn resume() -> Self {
        Drain::on(Errand::Resume, Round::Resume, PassTerms::alone())
    }

    /// Releases these files alone, if they are clean, nobody has them open, and the PFS shows them when their
    /// records are gone; see [`DrainReport::released`] and [`DrainReport::kept_because`]. At most
    /// [`RELEASED_AT_ONCE`] of them.
    pub fn release(paths: Vec<TreePath>) -> Self {
        assert!(
            paths.len() <= RELEASED_AT_ONCE,
            "so many are released at once"
        );
        Drain::on(
            Errand::Release(paths),
            Round::ReleaseContents,
            PassTerms::alone(),
        )
    }

    /// Lets those copies go that were drained and that others have changed on the PFS since, or removed, and opens directories:
    /// the PFS shows in them what others have added. What is not drained stays. It is for the moment before the first program.
    pub fn refresh() -> Self {
        Drain::on(Errand::Refresh, Round::ReleaseDirs, PassTerms::alone())
    }

    /// Begin nothing new; what is under way comes to its end.
    pub fn stop(&mut self) {
        self.sheet.stopping = true;
    }

    /// Wait no more for files that are open for writing.
    pub fn lose_patience(&mut self) {
        self.sheet.patient = false;
    }

    /// What has been done so far.
    pub fn tally(&self) -> Tally {
        self.sheet.tally
    }

    /// What the pass came to, after [`NextAct::End`].
    pub fn report(&self) -> &DrainReport {
        &self.sheet.report
    }

    /// An act has come to this.
    ///
    /// # Panics
    /// If no such act is under way, or the outcome is none of its kind.
    pub fn done(&mut self, ticket: ActTicket, got: Got) {
        let Some(mut waiting) = self.waiting.remove(&ticket) else {
            panic!("no act {ticket} is under way");
        };
        match (waiting.for_fact, got) {
            (true, Got::Fetched(fact)) => waiting.running.heard.learn(*fact),
            (false, got) => waiting.running.strand.take(got, &mut self.sheet),
            (true, got) => panic!("{got:?} is no fact"),
        }
        // Before all others: a batch that has begun comes to its end first.
        self.ready.push_front(waiting.running);
    }

    /// What is to be done next.
    ///
    /// # Errors
    /// The tables failed, or the PFS does not show what an earlier pass has done. The pass
    /// can't go on; what it has marked is taken back by the next one.
    pub fn next(&mut self, facts: &dyn DrainFacts) -> Result<NextAct, Fault> {
        if cfg!(feature = "planted-bugs") {
            self.sheet.planted = facts.planted();
        }
        loop {
            let Some(mut running) = self.ready.pop_front() else {
                match self.begin(facts).map_err(fault_of)? {
                    true => continue,
                    false if !self.waiting.is_empty() => return Ok(NextAct::Wait),
                    false => return Ok(NextAct::End),
                }
            };
            let next = if facts.is_single() {
                running.strand.next(facts, &mut self.sheet)
            } else {
                let heard = &running.heard;
                running
                    .strand
                    .next(&Hearing { facts, heard }, &mut self.sheet)
            };
            match next {
                Ok(Some(act)) => {
                    running.heard.forget();
                    return Ok(self.issue(running, act, false));
                }
                Ok(None) => {}
                Err(Stop::Need(need)) if is_of_others(&need) => {
                    return Ok(self.issue(running, Act::Fetch(need), true));
                }
                Err(stop) => return Err(fault_of(stop)),
            }
        }
    }

    fn issue(&mut self, running: Running, act: Act, for_fact: bool) -> NextAct {
        self.tickets += 1;
        self.waiting
            .insert(self.tickets, Parked { running, for_fact });
        NextAct::Act(self.tickets, act)
    }

    fn start(&mut self, strand: impl Strand + 'static) {
        self.start_boxed(Box::new(strand));
    }

    fn start_boxed(&mut self, strand: Box<dyn Strand>) {
        let heard = Heard::default();
        self.ready.push_back(Running { strand, heard });
    }

    /// Begins what can begin now: false if nothing can.
    fn begin(&mut self, facts: &dyn DrainFacts) -> Outcome<bool> {
        // Names and attributes change one after the other.
        let is_parallel = match self.round {
            Round::Contents => true,
            Round::ReleaseContents => self.waiting.len() < self.sheet.terms.batches,
            _ => false,
        };
        if !self.waiting.is_empty() && !is_parallel {
            return Ok(false);
        }
        if self.round == Round::End {
            return Ok(false);
        }
        if let Some(dirs) = self.sheet.take_unsynced(false) {
            self.start(SyncDirs::new(dirs));
            return Ok(true);
        }
        if self.is_left_out() {
            self.advance();
            return Ok(true);
        }
        match self.round {
            Round::Resume => self.begin_resume(facts)?,
            Round::Choose => match self.choices.pop() {
                Some(choice) => self.start(Choose::new(choice)),
                None => self.advance(),
            },
            Round::Sweep => self.begin_sweep(facts)?,
            Round::SweepAgain => {
                let of = sweeper(facts);
                self.once(|| WorkplaceSweep::new(vec![TreePath::root()], of));
            }
            Round::Evacuate => self.begin_evacuation(facts)?,
            Round::Orphans => self.begin_orphan(facts)?,
            Round::Clear => self.begin_move(facts, |record| {
                let is_due = record.kind == Kind::Whiteout || record.hides.is_some();
                is_due.then_some(What::Clear)
            })?,
            Round::Settle => self.begin_move(facts, |record| match record.kind {
                Kind::Dir => Some(What::MakeDir),
                Kind::Moved if is_waiting(record) => Some(What::Place),
                Kind::Moved => Some(What::Rename),
                _ => None,
            })?,
            Round::ClearAgain => {
                self.sheet.has_settled = true;
                let with_files = self.sheet.clears_files_again;
                self.begin_move(facts, |record| {
                    let is_due = record.kind == Kind::Whiteout
                        || with_files && record.hides.is_some() && has_contents(record);
                    is_due.then_some(What::Clear)
                })?;
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

    fn is_left_out(&self) -> bool {
        let is_stopped = self.sheet.stopping && self.round.is_optional();
        // What is under way in the contents is waited for.
        let is_stopped = is_stopped && (self.round != Round::Contents || self.waiting.is_empty());
        let keeps = self.errand == Errand::Pass
            && self.round.releases()
            && (self.sheet.terms.keep || self.sheet.report.left_count > 0);
        is_stopped || keeps
    }

    fn advance(&mut self) {
        if self.round == Round::List {
            self.sheet.close_list();
        }
        if self.round == Round::Contents && self.sheet.stopping {
            // What a stop leaves over is found when what is left is listed.
            self.sheet.tasks.clear();
        }
        self.round = match self.errand {
            Errand::Resume => Round::End,
            _ => self.round.after(),
        };
        self.walk_anew();
        self.has_begun = false;
    }

    fn walk_anew(&mut self) {
        self.cursor = None;
        self.is_walked = false;
        self.page.clear();
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
    fn begin_evacuation(&mut self, facts: &dyn DrainFacts) -> Outcome<()> {
        loop {
            let page = facts.speakers_here(self.cursor.as_ref(), 1)?;
            let Some(last) = page.last() else {
                let walk = std::mem::take(&mut self.sheet.walk);
                let goes_on = walk.has_left > 0 && (self.sheet.may_wait || walk.is_worth_another());
                if goes_on || !std::mem::replace(&mut self.sheet.may_wait, true) {
                    self.walk_anew();
                    continue;
                }
                self.advance();
                return Ok(());
            };
            self.cursor = Some(last.lower.clone());
            self.sheet.walk.looked += 1;
            let mut movers = page.into_iter().filter(|s| s.word == Word::Origin);
            let what = match self.sheet.may_wait {
                true => What::Evacuate,
                false => What::Rename,
            };
            if let Some(mover) = movers.next() {
                self.start(Move::new(mover.path, what));
                return Ok(());
            }
        }
    }

    fn begin_orphan(&mut self, facts: &dyn DrainFacts) -> Outcome<()> {
        if !std::mem::replace(&mut self.has_begun, true) {
            let notes = facts.notes(orphans::NOTES)?;
            self.orphans = notes;
        }
        match self.orphans.pop() {
            Some(note) => {
                if let Some(orphan) = Orphan::noted(&note) {
                    self.start(orphan);
                }
            }
            None => self.advance(),
        }
        Ok(())
    }

    fn begin_move(
        &mut self,
        facts: &dyn DrainFacts,
        what: impl Fn(&PathRecord) -> Option<What>,
    ) -> Outcome<()> {
        while let Some((path, record)) = self.step(facts, Order::ParentsFirst, PAGE)? {
            if let Some(what) = what(&record) {
                self.start(Move::new(path, what));
                return Ok(());
            }
        }
        self.advance();
        Ok(())
    }

    fn begin_contents(&mut self, facts: &dyn DrainFacts) -> Outcome<bool> {
        let may_begin = !self.sheet.stopping;
        if may_begin
            && self.sheet.batches < self.sheet.terms.batches
            && (self.is_walked || self.sheet.tasks.len() >= super::BATCH_OBJECTS)
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
        if self.waiting.is_empty() {
            assert!(
                self.sheet.tasks.is_empty() || !may_begin,
                "with nothing under way a batch can begin"
            );
            self.advance();
            return Ok(true);
        }
        Ok(false)
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
            if Release::concerns(walk, &path, &record) {
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

impl PassTerms {
    /// Of a machine that copies nothing.
    fn alone() -> Self {
        PassTerms {
            keep: false,
            batches: 1,
            objects: super::BATCH_OBJECTS,
            patient: false,
            secret: NameSecret([0, 0]),
        }
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

fn fault_of(stop: Stop) -> Fault {
    match stop {
        Stop::Fault(fault) => fault,
        other => Fault::Mistake(format!("a drain can't go on: {other:?}")),
    }
}
