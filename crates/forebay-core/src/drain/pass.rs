//! One pass: the order of its rounds, and the strands under way.

mod next_strand;

use next_strand::MOVES_AT_ONCE;

use super::act::{Act, ActTicket, Got};
use super::choose::SideChoice;
use super::drain_facts::DrainFacts;
use super::hearing::Hearing;
use super::moves::Reach;
use super::name_secret::NameSecret;
use super::release::RELEASED_AT_ONCE;
use super::round::Round;
use super::sheet::{DrainReport, PassTerms, Sheet, Tally};
use super::strand::Strand;
use crate::bridge::{Heard, is_of_others};
use crate::facts::Stop;
use crate::fault::Fault;
use crate::path::TreePath;
use crate::record::PathRecord;
use crate::table::KeyValue;
use std::collections::{BTreeMap, VecDeque};

/// What the driver is to do.
#[expect(
    clippy::large_enum_variant,
    reason = "it is passed on at once, and never kept"
)]
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
    /// Notes, of the kind of this round, that are still to be looked at.
    notes: Vec<KeyValue>,
    /// What is chosen about changes of others.
    choices: VecDeque<SideChoice>,
    /// What an earlier program has noted instead of marks.
    intended: Option<Vec<TreePath>>,
    sheet: Sheet,
}

struct Running {
    strand: Box<dyn Strand>,
    /// What was fetched for its next act.
    heard: Heard,
    /// Of a move: what it must not share with another one.
    reach: Reach,
    /// It syncs directories.
    syncs: bool,
}

impl Running {
    fn new(strand: Box<dyn Strand>) -> Self {
        Running {
            strand,
            heard: Heard::default(),
            reach: Reach::default(),
            syncs: false,
        }
    }
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
            choices: VecDeque::new(),
            intended: None,
            notes: Vec::new(),
            sheet: Sheet::new(terms),
        }
    }

    /// A pass over everything whose home is this bridge.
    pub fn new(terms: PassTerms) -> Self {
        assert!(terms.batches > 0, "a pass needs at least one batch");
        assert!(terms.objects > 0, "a batch has at least one object");
        Drain::on(Errand::Pass, Round::Resume, terms)
    }

    /// The pass begins with these decisions, in this order.
    pub fn choosing(self, choices: Vec<SideChoice>) -> Self {
        Drain {
            choices: choices.into(),
            ..self
        }
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

    /// An act that is under way has found what others have changed while it removed or replaced that: it is on the PFS again, at this path.
    pub fn came_back(&mut self, path: TreePath) {
        self.sheet.came_back(path);
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
        assert!(
            self.waiting.len() <= MOVES_AT_ONCE.max(self.sheet.terms.batches) + 2,
            "a driver has a limited number of acts under way"
        );
        NextAct::Act(self.tickets, act)
    }

    fn start(&mut self, strand: impl Strand + 'static) {
        self.start_boxed(Box::new(strand));
    }

    fn start_boxed(&mut self, strand: Box<dyn Strand>) {
        self.ready.push_back(Running::new(strand));
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

fn fault_of(stop: Stop) -> Fault {
    match stop {
        Stop::Fault(fault) => fault,
        other => Fault::Mistake(format!("a drain can't go on: {other:?}")),
    }
}
