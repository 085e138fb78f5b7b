//! One request under way: what it does next, from what it has seen and what was done for it.

use super::effect::{Caller, Commit, Effect, Failure, Finish};
use super::grant::{self, Form, Granting};
use super::known::{Known, Lists};
use super::look::{Look, World};
use crate::bridge::{Mutation, ReadSet};
use crate::facts::{Cred, Fresh, Need, NewKind, NewObject, PfsLook, Settings, Stop, Through};
use crate::ops::{self, Answer, Decision, GrantTarget, Op, Request, Unseen};
use crate::path::TreePath;
use crate::record::ObjectName;
use crate::table::Change;
use std::sync::Arc;

/// Most steps of one request; then EAGAIN. Each step but the last one obtained a fact, or lost a race.
pub const MAX_STEPS: u32 = 10_000;
/// Most races that one request loses: with removals, then EIO; of looks at the PFS with others there, then
/// the error of the look, or START_TAKEN if it began in an open directory.
pub const MAX_LOST_RACES: u32 = 100;
/// After so many lost races a request pauses, each time: whoever wins so many works in step with it.
pub(super) const RACES_BEFORE_A_PAUSE: u32 = 8;

/// What a request waits for.
#[derive(Debug)]
pub(super) enum Stage {
    /// Nothing: the next step decides.
    Ready,
    /// What another bridge says, a turn, or an event.
    Waiting,
    /// A look at the PFS.
    Looking(PfsLook),
    /// The announcement of a link.
    Announcing(Arc<NewObject>),
    /// Nothing: a link is announced, under this name, and can be made.
    Announced(Arc<NewObject>, ObjectName),
    /// A new object.
    Making(Arc<NewObject>),
    /// An open.
    Opening(Opening),
    /// A commit.
    Committing(Committing),
    /// What an answer grants is open.
    Open(Opening),
    /// Nothing: it is committed, and what clients have left in these files is to be looked at.
    Hiding(Box<(Vec<TreePath>, Answer)>),
    /// The decision is committed, or it ends for another reason.
    Over(Result<Answer, Failure>),
    /// It has been answered.
    Finished,
}

/// A request from its arrival to its answer.
#[derive(Debug)]
pub struct Pending {
    pub(super) request: Request,
    caller: Caller,
    pub(super) known: Known,
    pub(super) fresh: Vec<(Arc<NewObject>, Fresh)>,
    pub(super) stage: Stage,
    /// It is known to change something.
    pub(super) changes: bool,
    /// Step again a little later.
    pub(super) pause: bool,
    /// Since it last waited for a mark of another bridge.
    pub(super) steps: u32,
    pub(super) lost_races: u32,
    /// Looks at the PFS that have found nothing where something was to be.
    pub(super) lost_looks: u32,
    times_written: bool,
    pub(super) copy_turn: Option<TreePath>,
    /// When the last decision was made.
    moment: u64,
    pub(super) form: Form,
    reopen: bool,
    /// What is open while something is waited for.
    kept_open: Option<Box<Stage>>,
    /// Since something was opened, what others say has been forgotten once.
    looks_again: bool,
    pub(super) follow: Vec<ops::FollowUp>,
}

/// An open for a grant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Opening {
    /// The answer that grants it.
    pub(super) answer: Answer,
    /// When that was decided.
    pub(super) moment: u64,
    /// True if this open completes the grant; false if a truncation is still to come.
    pub(super) is_whole: bool,
    /// The decision changes nothing, so the answer may be given at the same moment.
    pub(super) is_last: bool,
}

/// A decision on its way.
#[derive(Debug)]
pub(super) struct Committing {
    pub(super) answer: Answer,
    pub(super) follow: Vec<ops::FollowUp>,
    /// Objects of this request that the batch names.
    pub(super) named: Vec<ObjectName>,
}

impl Pending {
    /// A request that has arrived.
    pub fn new(request: Request, caller: Caller) -> Self {
        // Most of these change something; a decision under the turn to commit is never wasted then.
        let changes = matches!(request.op, Op::Unlink { .. } | Op::Rename { .. });
        let known = Known::of(&request.op);
        Pending {
            request,
            caller,
            known,
            fresh: Vec::new(),
            stage: Stage::Ready,
            changes,
            pause: false,
            steps: 0,
            lost_races: 0,
            lost_looks: 0,
            times_written: false,
            copy_turn: None,
            moment: 0,
            form: Form::Descriptor,
            reopen: false,
            kept_open: None,
            looks_again: false,
            follow: Vec::new(),
        }
    }

    /// The request.
    pub fn request(&self) -> &Request {
        &self.request
    }

    /// May it have to look at all that is in a directory, to remove that?
    pub fn removes_a_directory(&self) -> bool {
        matches!(
            self.request.op,
            Op::Unlink { dir: true, .. } | Op::Rename { .. }
        )
    }

    /// Does it remove a directory, and nothing else?
    pub fn is_rmdir(&self) -> bool {
        matches!(self.request.op, Op::Unlink { dir: true, .. })
    }

    /// The same request from its beginning.
    #[must_use]
    pub(super) fn anew(&self) -> Self {
        Pending::new(self.request.clone(), self.caller.clone())
    }

    /// What was obtained for it.
    pub fn known(&self) -> &Known {
        &self.known
    }

    /// Is it known to change something, so that a step without the turn to commit would be wasted?
    pub fn changes(&self) -> bool {
        self.changes
    }

    /// Markers that records of the commit under way name.
    pub fn new_markers(&self) -> Vec<ObjectName> {
        let Stage::Committing(committing) = &self.stage else {
            return Vec::new();
        };
        let follow_ups = committing.follow.iter();
        let markers = follow_ups.filter_map(|follow_up| match follow_up {
            ops::FollowUp::Mark(marker) => Some(*marker),
            _ => None,
        });
        markers.collect()
    }

    /// Is its outcome known, whatever others change from now on?
    pub fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Over(_))
    }

    /// Ends the request if that takes no look at anything, and so no lock: it is committed, or has failed, or changes nothing
    /// and nothing was committed since it was decided. `moment` is [`World::moment`], read after the grant.
    pub fn finish_without_step(&mut self, moment: u64) -> Option<Finish> {
        match &self.stage {
            Stage::Over(_) => {}
            Stage::Open(open) if open.moment == moment && open.is_whole && open.is_last => {}
            _ => return None,
        }
        let outcome = match std::mem::replace(&mut self.stage, Stage::Ready) {
            Stage::Over(outcome) => outcome,
            Stage::Open(open) => Ok(open.answer),
            _ => unreachable!("it was just looked at"),
        };
        Some(self.finish(outcome))
    }

    /// What to do next. `may_commit`: the driver holds the turn to commit.
    ///
    /// # Panics
    /// If an effect is still under way, or the request has been answered.
    pub fn step(&mut self, settings: &Settings, world: &dyn World, may_commit: bool) -> Effect {
        match std::mem::replace(&mut self.stage, Stage::Ready) {
            Stage::Ready => {
                if let Some(open) = self.kept_open.take() {
                    self.stage = *open;
                }
            }
            Stage::Open(open) => {
                // What others said before the open may be over: a drain can have released the file since. What is
                // committed is checked at its homes.
                if open.is_last && !std::mem::replace(&mut self.looks_again, true) {
                    self.known.others.forget();
                }
                self.stage = Stage::Open(open);
            }
            Stage::Announced(spec, link) => return self.make_now(spec, Some(link)),
            Stage::Hiding(hiding) => {
                let (files, answer) = *hiding;
                self.stage = Stage::Over(Ok(answer));
                return Effect::LookAtLeft(files);
            }
            Stage::Over(outcome) => {
                let outcome = self.planted(outcome, world);
                return Effect::Finish(self.finish(outcome));
            }
            other => panic!("a request is stepped in {other:?}"),
        }
        // Waiting is no step: another bridge may be down for long.
        if std::mem::take(&mut self.pause) || world.is_undecided(self.request.token) {
            return Effect::Pause;
        }
        self.steps += 1;
        if self.steps > MAX_STEPS {
            return Effect::Finish(self.finish(Err(Failure::GaveUp)));
        }
        self.known.is_alone = world.is_single();
        if self.known.is_alone {
            self.known.refresh(world.pfs_changes());
        }
        self.moment = world.moment();
        let look = Look::with_fresh(world, &self.known, &self.fresh);
        let decided = ops::decide(&self.request, &self.caller.cred, settings, &look);
        if look.is_too_much() {
            return Effect::TakesLong;
        }
        if look.missed_an_object() {
            self.lost_race();
            return self.step(settings, world, may_commit);
        }
        if let Err(Stop::Need(Need::FurtherUp(levels))) = decided {
            self.known.levels_above += levels;
            self.known.forget_pfs();
            self.known.decide_anew();
            return self.step(settings, world, may_commit);
        }
        let several = look.rests_on_several();
        let saw_pfs = look.saw_pfs();
        let (reads, lists) = look.into_reads();
        if !self.known.is_alone
            && self.known.is_outdated_by(&reads, &lists)
            && !Mutation::LooksOutliveTheirRecords.is_in(|| world.planted())
        {
            self.known.decide_anew();
            return self.step(settings, world, may_commit);
        }
        let is_final = match &decided {
            Ok(decision) => decision.batch.is_empty(),
            Err(stop) => matches!(stop, Stop::Errno(_) | Stop::Redirect(_)),
        };
        if !matches!(decided, Err(Stop::Need(_)))
            && !self.holds_together(&reads, &lists, several && is_final, saw_pfs, world)
        {
            return self.step(settings, world, may_commit);
        }
        match decided {
            Ok(decision) => self.decided(decision, reads, settings, world, may_commit),
            Err(Stop::Need(need)) => self.needs(need),
            Err(Stop::Errno(e)) => Effect::Finish(self.finish(Err(Failure::Errno(e)))),
            Err(Stop::Redirect(path)) => Effect::Finish(self.finish(Err(Failure::Redirect(path)))),
            Err(Stop::Fault(fault)) => Effect::Finish(self.finish(Err(Failure::Fault(fault)))),
        }
    }

    /// The outcome, but for planted bugs.
    fn planted(
        &mut self,
        outcome: Result<Answer, Failure>,
        world: &dyn World,
    ) -> Result<Answer, Failure> {
        if outcome.is_ok() {
            return outcome;
        }
        if Mutation::FailuresKeepTheirTurn.is_in(|| world.planted()) {
            self.copy_turn = None;
        }
        if Mutation::FailuresKeepWhatTheyMade.is_in(|| world.planted()) {
            self.fresh.clear();
        }
        outcome
    }

    /// Was all that a decision saw there at once? If a second look sees the very same records, then they were, and so
    /// was what was seen of the PFS in between. What is committed is checked at its homes instead (`by_looks` is
    /// false), but not with records that are younger than the look at the PFS. If false, decides anew.
    fn holds_together(
        &mut self,
        reads: &ReadSet,
        lists: &Lists,
        by_looks: bool,
        saw_pfs: bool,
        world: &dyn World,
    ) -> bool {
        match self.known.first_look.as_deref() {
            Some((first, listed)) if first == reads && listed == lists => true,
            Some(_) if saw_pfs && !Mutation::LooksOutliveTheirRecords.is_in(|| world.planted()) => {
                self.known.decide_anew();
                false
            }
            _ if by_looks => {
                self.known.first_look = Some(Box::new((reads.clone(), lists.clone())));
                self.known.forget_others();
                false
            }
            _ => true,
        }
    }

    fn decided(
        &mut self,
        decision: Decision,
        mut reads: ReadSet,
        settings: &Settings,
        world: &dyn World,
        may_commit: bool,
    ) -> Effect {
        let Decision {
            mut batch,
            mut unseen,
            follow_ups,
            answer,
        } = decision;
        if !batch.is_empty() && !may_commit {
            self.changes = true;
            return Effect::TakeTurn;
        }
        if batch.is_empty() && is_directory(&answer) && !self.times_written && world.times_wait() {
            // Times of directories go to disk late, and the kernel stamps the inode once more then.
            // What a program has seen must not change by itself: they are written before it looks.
            // Once: others may go on changing entries all the time.
            self.times_written = true;
            self.stage = Stage::Waiting;
            return Effect::WriteTimes;
        }
        // First the descriptor, then the commit: what can fail fails before.
        if let Some((granting, is_whole)) = self.still_to_open(&answer, settings, world) {
            self.looks_again = false;
            self.stage = Stage::Opening(Opening {
                answer,
                moment: self.moment,
                is_whole,
                is_last: batch.is_empty(),
            });
            return Effect::Grant(granting);
        }
        // An answer that relies on nothing, or on what was there at one moment, needs no proposal.
        if batch.is_empty() && (reads.records.is_empty() || !self.request.op.compares()) {
            return Effect::Finish(self.finish(Ok(answer)));
        }
        if !self.known.is_alone {
            reads.supersede(&batch);
        }
        if let Some(unseen) = unseen.take_if(|_| !world.commits_in_parts()) {
            batch = unseen.in_one(batch);
        }
        batch.extend(unseen.as_ref().map(Unseen::mark));
        let named = self.named(&batch);
        // What the batch names is doomed no more.
        let doomed = self.fresh.iter().filter(|(_, fresh)| fresh.is_doomed);
        let doomed = doomed.map(|(_, fresh)| fresh.object);
        let forgets = Mutation::SparesStayDoomed.is_in(|| world.planted());
        batch.extend(
            doomed
                .filter(|o| named.contains(o) && !forgets)
                .map(Change::Undoom),
        );
        self.stage = Stage::Committing(Committing {
            answer,
            follow: follow_ups,
            named,
        });
        Effect::Commit(Commit {
            reads,
            batch,
            unseen,
            token: self.request.token,
        })
    }

    /// What has to be opened before the answer may be given, and whether that is all; nothing if it is
    /// open already.
    fn still_to_open(
        &mut self,
        answer: &Answer,
        settings: &Settings,
        world: &dyn World,
    ) -> Option<(Granting, bool)> {
        let Answer::Grant { target, flags } = answer else {
            return None;
        };
        let is_open = match &self.stage {
            Stage::Open(open) if open.answer == *answer && open.is_whole => return None,
            Stage::Open(open) => open.answer == *answer,
            _ => false,
        };
        self.reopen = grant::wants_reopening(&self.request.op, *flags);
        let mut is_fresh = false;
        let is_plain = match target {
            GrantTarget::Object(object) => {
                if self.was_opened_when_made(*object, *flags) {
                    self.form = Form::Descriptor;
                    return None;
                }
                is_fresh = self.fresh.iter().any(|(_, fresh)| fresh.object == *object);
                world.is_plain(*object)
            }
            GrantTarget::Lower(..) => false,
        };
        let caller = &self.caller;
        let mut granting = grant::form(
            target,
            *flags,
            caller.by_name,
            is_plain,
            &caller.cred,
            settings,
        );
        self.form = granting.form;
        // Before anything is lost it has to be certain that this is the file that is meant. As long as it
        // is open, its object stays what it is.
        let is_whole = is_open
            || is_fresh
            || granting.form != Form::Descriptor
            || Mutation::TruncatesBeforeItIsCertain.is_in(|| world.planted());
        if !is_whole {
            granting.flags &= !libc::O_TRUNC;
        }
        Some((granting, is_whole || flags & libc::O_TRUNC == 0))
    }

    fn was_opened_when_made(&self, object: ObjectName, flags: i32) -> bool {
        let wanted = self.wanted_descriptor();
        wanted == Some(grant::new_file_flags(flags & grant::GRANT_FLAGS))
            && self
                .fresh
                .iter()
                .any(|(_, fresh)| fresh.object == object && fresh.is_open)
    }

    /// Flags of the descriptor that a new file is best made with.
    fn wanted_descriptor(&self) -> Option<i32> {
        match self.request.op {
            Op::Open { flags, .. } if flags & libc::O_CREAT != 0 => {
                Some(grant::new_file_flags(flags))
            }
            _ => None,
        }
    }

    /// Objects made for this request that a batch names.
    fn named(&self, batch: &[Change]) -> Vec<ObjectName> {
        let objects = self.fresh.iter().map(|(_, fresh)| fresh.object);
        objects
            .filter(|object| {
                batch
                    .iter()
                    .any(|c| matches!(c, Change::Put { record, .. } if record.object == *object))
            })
            .collect()
    }

    /// The rights of who asks.
    pub fn cred(&self) -> &Arc<Cred> {
        &self.caller.cred
    }

    /// See [`Known::through`]. `None` also where it does not matter.
    pub fn through(&self, look: &PfsLook, serves_several_users: bool) -> Option<Through> {
        match self.known.keeps_to_dirs(serves_several_users) {
            true => self.known.through(look),
            false => None,
        }
    }

    fn needs(&mut self, need: Need) -> Effect {
        // A new object is asked for only to put its record into the tables.
        self.changes |= matches!(need, Need::Object(_));
        if let open @ Stage::Open(_) = std::mem::replace(&mut self.stage, Stage::Waiting) {
            self.kept_open = Some(Box::new(open));
        }
        match need {
            Need::Look(look) => {
                self.stage = Stage::Looking(look.clone());
                Effect::Look(look)
            }
            Need::Object(spec) => self.make(spec),
            Need::Settled(path) => Effect::Await(path),
            Need::FurtherUp(_) => unreachable!("it is decided anew at once"),
            need @ (Need::Record(_)
            | Need::Children { .. }
            | Need::Below(_)
            | Need::Speakers { .. }
            | Need::Names(_)) => Effect::Fetch(need),
        }
    }

    fn make(&mut self, spec: Arc<NewObject>) -> Effect {
        match &spec.what {
            // Whoever gets the turn to copy decides anew first: the file may be there already.
            NewKind::Staged { lower, .. } if self.copy_turn.as_ref() != Some(lower) => {
                Effect::Enter {
                    path: lower.clone(),
                    leaves: self.copy_turn.take(),
                }
            }
            NewKind::LinkTo(of) => {
                let of = *of;
                self.stage = Stage::Announcing(spec);
                Effect::Announce { of }
            }
            _ => self.make_now(spec, None),
        }
    }

    fn make_now(&mut self, spec: Arc<NewObject>, link: Option<ObjectName>) -> Effect {
        let open = match spec.what {
            NewKind::File => self.wanted_descriptor(),
            _ => None,
        };
        self.stage = Stage::Making(spec.clone());
        Effect::Make { spec, open, link }
    }

    fn finish(&mut self, outcome: Result<Answer, Failure>) -> Finish {
        self.stage = Stage::Finished;
        Finish {
            outcome,
            form: self.form,
            reopen: self.reopen,
            follow: std::mem::take(&mut self.follow),
            unused: self.fresh.drain(..).map(|(_, fresh)| fresh).collect(),
            turn: self.copy_turn.take(),
        }
    }
}

fn is_directory(answer: &Answer) -> bool {
    matches!(answer, Answer::Attr(attr) if attr.is_dir())
}
