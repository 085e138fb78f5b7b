//! The driver of core's drain: carries out its acts on the simulated PFS and disk.
//!
//! Acts take time. What was under way when the bridge died has happened or not, each by chance. What an act does to
//! an object of another bridge happens there, if that one is alive.

mod acts;
mod ground;

use super::env::{Alarm, Env};
use super::node::{NEVER_FAILS, Node, Waiter};
use super::random::Random;
use forebay_core::bridge::{self, Fact, Proposal};
use forebay_core::drain::{
    Act, ActTicket, BATCH_OBJECTS, Copy, Drain, DrainCommit, DrainReport, DrainVerdict, Got,
    NameSecret, NextAct, PassTerms, SideChoice,
};
use forebay_core::facts::{Attr, Need};
use forebay_core::record::{Kind, ObjectName, Token};
use forebay_core::table::{Order, Tables};
use ground::Ground;
use std::collections::BTreeMap;

/// Records in one page of a walk: few, so that walks have several.
const PAGE: usize = 3;

/// Commits of a drain one after the other with nothing in between; more come to no end.
const MOST_COMMITS: u32 = 1_000;

/// A drain at work.
pub(super) struct Draining {
    drain: Drain,
    number: u64,
    /// It ends what an earlier life has begun.
    resumes: bool,
    /// What it waits for from other bridges.
    needs: BTreeMap<ActTicket, Need>,
    acts: BTreeMap<u64, UnderWay>,
    count: u64,
}

/// An act that takes time.
struct UnderWay {
    ticket: ActTicket,
    act: Act,
    /// Of each object that is being copied: what its copy was begun with. `None`: it has not begun.
    begun: Option<Vec<Option<Attr>>>,
}

impl Node {
    pub(super) fn is_draining(&self) -> bool {
        self.draining.is_some()
    }

    /// Begins a drain, if none is at work.
    pub(super) fn begin_drain(&mut self, terms: PassTerms, env: &mut Env) {
        self.begin_choosing(terms, Vec::new(), env);
    }

    /// A drain that begins with decisions.
    pub(super) fn begin_choosing(
        &mut self,
        terms: PassTerms,
        choices: Vec<SideChoice>,
        env: &mut Env,
    ) {
        if !self.is_alive() || self.is_draining() {
            return;
        }
        self.note(env, || format!("begins to drain, {terms:?}"));
        self.set_draining(Drain::new(terms).choosing(choices), false);
        self.releases_some = false;
        self.drive(env);
        self.run(env);
    }

    /// A few files are released by themselves, if no drain is at work.
    pub(super) fn begin_release(&mut self, env: &mut Env) {
        if !self.is_alive() || self.is_draining() {
            return;
        }
        let files = self
            .records()
            .into_iter()
            .filter(|(_, r)| r.kind == Kind::File);
        // Most of those that the PFS has, and few of the others.
        let some = files.filter(|(_, r)| {
            let chance = if r.drained.is_some() {
                900_000
            } else {
                100_000
            };
            env.random.chance(chance)
        });
        let paths: Vec<_> = some.map(|(path, _)| path).take(4).collect();
        self.note(env, || format!("begins to release {paths:?}"));
        self.set_draining(Drain::release(paths), false);
        self.releases_some = true;
        self.drive(env);
        self.run(env);
    }

    pub(super) fn stop_drain(&mut self, patience_alone: bool) {
        if let Some(draining) = &mut self.draining {
            match patience_alone {
                true => draining.drain.lose_patience(),
                false => draining.drain.stop(),
            }
        }
    }

    fn set_draining(&mut self, drain: Drain, resumes: bool) {
        self.drains += 1;
        self.draining = Some(Draining {
            drain,
            number: self.drains,
            resumes,
            needs: BTreeMap::new(),
            acts: BTreeMap::new(),
            count: 0,
        });
    }

    /// Ends what a drain of an earlier life has begun, before requests are served; false if that can't be done now.
    pub(super) fn resume_drain(&mut self, env: &mut Env) -> bool {
        self.set_draining(Drain::resume(), true);
        self.report = None;
        while let Some((ticket, act)) = self.next_act(env) {
            let got = match act {
                Act::Commit(commit) => self.commit_of_drain(&commit, env).map(Got::Verdict),
                act => {
                    self.settle_before(&act, env);
                    Some(self.carry_out_act(&act, &[], &mut [], env))
                }
            };
            match (&mut self.draining, got) {
                (Some(draining), Some(got)) => draining.drain.done(ticket, got),
                _ => return false,
            }
        }
        self.report.is_some()
    }

    /// The same, together with other bridges, while requests are served.
    pub(super) fn begin_resume(&mut self, env: &mut Env) {
        self.set_draining(Drain::resume(), true);
        self.report = None;
        self.drive(env);
    }

    /// No record is left here.
    pub(super) fn is_empty(&self) -> bool {
        let first = self.tables.page(None, Order::ParentsFirst, 1);
        first.expect(NEVER_FAILS).is_empty()
    }

    /// What the machine wants done now; `None`: nothing before something else has ended.
    fn next_act(&mut self, env: &mut Env) -> Option<(ActTicket, Act)> {
        let draining = self.draining.as_mut()?;
        let ground = Ground {
            bridge: self.bridge.as_ref()?,
            tables: &self.tables,
            speakers: &self.speakers,
            epoch: self.epoch,
            versions: &self.versions,
            me: self.id,
            mutation: self.mutation,
            in_place: &self.in_place,
        };
        match draining.drain.next(&ground) {
            Ok(NextAct::Act(ticket, act)) => Some((ticket, act)),
            Ok(NextAct::Wait) => None,
            Ok(NextAct::End) => {
                let report = draining.drain.report().clone();
                self.draining = None;
                self.drained(report, env);
                None
            }
            Err(text) => {
                let was_resuming = draining.resumes;
                self.draining = None;
                self.note(env, || format!("can't go on: {text}"));
                if was_resuming && !self.membership.is_single() {
                    self.dies_now(env);
                }
                None
            }
        }
    }

    fn drained(&mut self, report: DrainReport, env: &mut Env) {
        self.settle_drain(env);
        self.note(env, || format!("ends its drain: {report:?}"));
        // A release of some files says it of these files.
        if report.released && !self.releases_some && !self.is_empty() {
            env.broken("a drain says that all is released, and records are left".to_owned());
        }
        // Others may have moved a copy away, a loss of power may have brought it back, rebuilt tables know nothing of it, and
        // another bridge may be making it.
        let is_known = env.counts.losses == 0 && env.counts.rebuilds == 0;
        let is_alone = !env.drain.intruders && is_known && self.membership.is_single();
        if report.released && !self.releases_some && is_alone {
            let leftovers = self.lower.borrow().leftovers();
            if let Some(path) = leftovers.first() {
                env.broken(format!(
                    "a drain says that all is released, and has left {path} on the PFS"
                ));
            }
        }
        self.report = Some(report);
    }

    /// Goes on until all that is left takes time.
    pub(super) fn drive(&mut self, env: &mut Env) {
        let mut commits = 0;
        while let Some((ticket, act)) = self.next_act(env) {
            match act {
                Act::Commit(commit) => {
                    commits += 1;
                    if commits > MOST_COMMITS {
                        env.broken("a drain commits round in circles".to_owned());
                        self.draining = None;
                        return;
                    }
                    if !self.membership.is_single() {
                        self.propose_for_drain(ticket, &commit, env);
                        if !self.is_alive() {
                            return;
                        }
                        continue;
                    }
                    let verdict = self.commit_of_drain(&commit, env);
                    match (&mut self.draining, verdict) {
                        (Some(draining), Some(verdict)) => {
                            draining.drain.done(ticket, Got::Verdict(verdict));
                        }
                        _ => return,
                    }
                }
                Act::Fetch(need) => {
                    self.fetch_for_drain(ticket, need, env);
                    if !self.is_alive() {
                        return;
                    }
                }
                act => self.begin_act(ticket, act, env),
            }
        }
    }

    /// An act that takes time.
    fn begin_act(&mut self, ticket: ActTicket, act: Act, env: &mut Env) {
        self.settle_before(&act, env);
        let begun = match &act {
            // Objects of other bridges are looked at by these.
            Act::Copy { .. } if !self.membership.is_single() => None,
            Act::Copy { copies, .. } => {
                Some(copies.iter().map(|c| self.disk.attr(c.object)).collect())
            }
            _ => Some(Vec::new()),
        };
        let is_begun = begun.is_some();
        let Some(draining) = &mut self.draining else {
            return;
        };
        draining.count += 1;
        let number = draining.count;
        draining
            .acts
            .insert(number, UnderWay { ticket, act, begun });
        let delay = if is_begun { env.act_us() } else { 1 };
        self.alarm(delay, Alarm::Act(number), env);
    }

    /// Asks other bridges.
    fn fetch_for_drain(&mut self, ticket: ActTicket, need: Need, env: &mut Env) {
        let Some(draining) = &mut self.draining else {
            return;
        };
        draining.needs.insert(ticket, need.clone());
        let waiter = Waiter::DrainFact(draining.number, ticket);
        let need = match need {
            // Pages are small, so that there are several.
            Need::Speakers { of, before, limit } => Need::Speakers {
                of,
                before,
                limit: limit.min(PAGE),
            },
            need => need,
        };
        self.fetch(waiter, need, env);
        self.carry_out_all(env);
    }

    /// The drain of this number, if it is still at work.
    fn drain_of(&mut self, number: u64) -> Option<&mut Draining> {
        self.draining.as_mut().filter(|d| d.number == number)
    }

    /// What it asked for is known.
    pub(super) fn on_drain_fact(&mut self, number: u64, ticket: ActTicket, fact: Fact) {
        if let Some(draining) = self.drain_of(number) {
            draining.needs.remove(&ticket);
            draining.drain.done(ticket, Got::Fetched(Box::new(fact)));
            self.ready.push_back(Waiter::Drain);
        }
    }

    fn propose_for_drain(&mut self, ticket: ActTicket, commit: &DrainCommit, env: &mut Env) {
        let Some(draining) = &self.draining else {
            return;
        };
        let waiter = Waiter::DrainVerdict(draining.number, ticket);
        let proposal = Proposal {
            ticket: self.ticket(waiter),
            reads: commit.reads.clone(),
            batch: commit.batch.clone(),
            token: Token::default(),
            uncovers: commit.uncovers(),
        };
        self.note(env, || format!("proposes for its drain: {commit:?}"));
        if let Some(bridge) = self.bridge.as_mut() {
            bridge
                .propose(proposal, &self.tables, env.now)
                .expect(NEVER_FAILS);
        }
        self.carry_out_all(env);
    }

    /// How a commit of the drain ended. After a conflict it waits a little: what is in the way may be undecided.
    pub(super) fn on_drain_verdict(
        &mut self,
        number: u64,
        ticket: ActTicket,
        verdict: &bridge::Verdict,
        env: &mut Env,
    ) {
        if *verdict != bridge::Verdict::Committed {
            let delay = env.random.between(100, 4_000);
            return self.alarm(delay, Alarm::Refused(number, ticket), env);
        }
        if let Some(draining) = self.drain_of(number) {
            let got = Got::Verdict(DrainVerdict::Committed);
            draining.drain.done(ticket, got);
            self.ready.push_back(Waiter::Drain);
        }
    }

    /// A fetch of the drain is tried again, or a conflict is told.
    pub(super) fn on_refused(&mut self, number: u64, ticket: ActTicket, env: &mut Env) {
        let Some(draining) = self.drain_of(number) else {
            return;
        };
        match draining.needs.get(&ticket).cloned() {
            Some(need) => self.fetch_for_drain(ticket, need, env),
            None => {
                let got = Got::Verdict(DrainVerdict::Conflict);
                draining.drain.done(ticket, got);
                self.ready.push_back(Waiter::Drain);
            }
        }
    }

    /// An act ends.
    pub(super) fn on_act(&mut self, number: u64, others: &mut [&mut Node], env: &mut Env) {
        let under_way = self.draining.as_mut().and_then(|d| d.acts.remove(&number));
        let Some(UnderWay { ticket, act, begun }) = under_way else {
            return;
        };
        let again = match (&act, &begun) {
            (Act::Copy { copies, .. }, None) => {
                let attr = |c: &Copy| self.keeper(c.object.oid, others)?.disk.attr(c.object);
                Some((copies.iter().map(attr).collect(), env.act_us()))
            }
            // A label is written at once after its commit; here that takes time, and comes first.
            (Act::Unhide(objects), Some(begun)) => {
                let is_written = |object: &ObjectName| {
                    let keeper = self.keeper(object.oid, others);
                    keeper.is_none_or(|keeper| !keeper.labels.contains_key(object))
                };
                (!objects.iter().all(is_written)).then(|| (begun.clone(), 500))
            }
            _ => None,
        };
        if let Some((begun, delay)) = again {
            let begun = Some(begun);
            let under_way = UnderWay { ticket, act, begun };
            if let Some(draining) = &mut self.draining {
                draining.acts.insert(number, under_way);
            }
            return self.alarm(delay, Alarm::Act(number), env);
        }
        let got = self.carry_out_act(&act, &begun.unwrap_or_default(), others, env);
        self.note(env, || format!("drains: {act:?} -> {got:?}"));
        if let Some(draining) = &mut self.draining {
            draining.drain.done(ticket, got);
        }
        self.drive(env);
        self.strike_between_acts();
    }

    /// The bridge dies: acts under way have happened or not.
    pub(super) fn crash_drain(&mut self, env: &mut Env) {
        let Some(draining) = self.draining.take() else {
            return;
        };
        for (_, UnderWay { act, begun, .. }) in draining.acts {
            if let Some(begun) = begun.filter(|_| env.random.chance(500_000)) {
                let got = self.carry_out_act(&act, &begun, &mut [], env);
                self.note(env, || format!("had drained: {act:?} -> {got:?}"));
            }
        }
    }

    /// Commits if what it relies on is so; `None` if the bridge has died.
    fn commit_of_drain(&mut self, commit: &DrainCommit, env: &mut Env) -> Option<DrainVerdict> {
        self.remove_all_parts(env);
        if !commit.still_holds(&self.tables).expect(NEVER_FAILS) {
            return Some(DrainVerdict::Conflict);
        }
        if commit.uncovers() {
            self.pfs_changes += 1;
            self.turning.meanwhile.pfs_changed();
        }
        let did = self.commit_alone(commit.batch.clone(), commit.uncovers(), env);
        did.then_some(DrainVerdict::Committed)
    }
}

/// The terms of a drain in a storm.
pub(super) fn terms(random: &mut Random) -> PassTerms {
    PassTerms {
        keep: random.chance(600_000),
        batches: random.between(1, 3) as usize,
        objects: BATCH_OBJECTS,
        patient: random.chance(500_000),
        // The names of its copies are its own alone: nobody else strikes at them.
        secret: NameSecret([0, 0]),
    }
}
