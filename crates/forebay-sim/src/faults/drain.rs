//! The driver of core's drain: carries out its acts on the simulated PFS and disk.
//!
//! Acts take time. What was under way when the bridge died has happened or not, each by chance. What an act does to
//! an object of another bridge happens there, if that one is alive.

use super::disk::Work as DiskWork;
use super::env::{Alarm, Env};
use super::history::Thing;
use super::node::{NEVER_FAILS, Node, Waiter};
use super::pfs::Pfs;
use super::random::Random;
use forebay_core::bridge::{self, Bridge, Fact, Mutation, Proposal, ReadSet, version};
use forebay_core::drain::{
    Act, Commit, Copied, Copy, Drain, DrainReport, Facts, Got, Next, Temporary, Terms, Ticket,
    Trouble, Use, Verdict, Work,
};
use forebay_core::facts::{Attr, Need, Outcome, Stop};
use forebay_core::identity::Identity;
use forebay_core::label::without_hides;
use forebay_core::path::TreePath;
use forebay_core::record::{BridgeId, Kind, ObjectId, ObjectName, PathRecord, Token};
use forebay_core::speakers::{Speaker, Speakers};
use forebay_core::table::{KeyValue, Order, TableError, Tables};
use std::cell::Cell;
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
    needs: BTreeMap<Ticket, Need>,
    acts: BTreeMap<u64, UnderWay>,
    count: u64,
}

/// An act that takes time.
struct UnderWay {
    ticket: Ticket,
    act: Act,
    /// Of each object that is being copied: what its copy was begun with. `None`: it has not begun.
    begun: Option<Vec<Option<Attr>>>,
}

/// Read access for the machine.
struct Ground<'a> {
    bridge: &'a Bridge,
    tables: &'a dyn Tables,
    speakers: &'a Speakers,
    epoch: u32,
    versions: &'a Cell<u32>,
    me: BridgeId,
    mutation: Option<Mutation>,
}

fn fault(e: TableError) -> Stop {
    Stop::Fault(e.to_string())
}

impl Facts for Ground<'_> {
    fn is_single(&self) -> bool {
        self.bridge.membership().is_single()
    }

    fn absence(&self, path: &TreePath) -> u64 {
        self.bridge.absence(path)
    }

    fn record(&self, path: &TreePath) -> Outcome<Option<PathRecord>> {
        if !self.is_home(path) || self.bridge.is_held(path) {
            return Err(Stop::Need(Need::Record(path.clone())));
        }
        self.tables.get(path).map_err(fault)
    }

    fn page(
        &self,
        after: Option<&TreePath>,
        order: Order,
        limit: usize,
    ) -> Outcome<Vec<(TreePath, PathRecord)>> {
        let limit = limit.min(PAGE);
        self.tables.page(after, order, limit).map_err(fault)
    }

    fn speakers_here(&self, before: Option<&TreePath>, limit: usize) -> Outcome<Vec<Speaker>> {
        Ok(self.speakers.within(&TreePath::root(), before, limit))
    }

    fn speakers(
        &self,
        lower: &TreePath,
        before: Option<&TreePath>,
        limit: usize,
    ) -> Outcome<Vec<Speaker>> {
        Ok(self.speakers.within(lower, before, limit.min(PAGE)))
    }

    fn speakers_of(&self, lower: &TreePath) -> Outcome<Vec<Speaker>> {
        Ok(self.speakers.of(lower))
    }

    fn in_transit(&self, after: Option<&TreePath>, limit: usize) -> Outcome<Vec<TreePath>> {
        Ok(self.speakers.in_transit(after, limit))
    }

    fn below(&self, dir: &TreePath) -> Outcome<Vec<(TreePath, PathRecord)>> {
        if self.bridge.is_held_below(dir) {
            return Err(Stop::Need(Need::Below(dir.clone())));
        }
        self.tables.subtree(dir).map_err(fault)
    }

    fn children(&self, dir: &TreePath, limit: usize) -> Outcome<Vec<(Vec<u8>, PathRecord)>> {
        self.tables.children(dir, None, limit).map_err(fault)
    }

    fn names_of(&self, object: ObjectId) -> Outcome<Vec<(ObjectName, TreePath)>> {
        if object.bridge() != self.me {
            return Err(Stop::Need(Need::Names(object)));
        }
        self.bridge.names_of(object, self.tables).map_err(fault)
    }

    fn notes(&self, prefix: &[u8]) -> Outcome<Vec<KeyValue>> {
        self.tables.metas(prefix).map_err(fault)
    }

    fn next_version(&self) -> u64 {
        self.versions.set(self.versions.get() + 1);
        version(self.epoch, self.versions.get(), self.me)
    }

    fn planted(&self) -> Option<Mutation> {
        self.mutation
    }

    fn me(&self) -> BridgeId {
        self.me
    }

    fn is_home(&self, path: &TreePath) -> bool {
        self.bridge.membership().is_home(path)
    }
}

impl Node {
    pub(super) fn is_draining(&self) -> bool {
        self.draining.is_some()
    }

    /// Begins a drain, if none is at work.
    pub(super) fn begin_drain(&mut self, terms: Terms, env: &mut Env) {
        if !self.is_alive() || self.is_draining() {
            return;
        }
        self.note(env, || format!("begins to drain, {terms:?}"));
        self.set_draining(Drain::new(terms), false);
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
    fn next_act(&mut self, env: &mut Env) -> Option<(Ticket, Act)> {
        let draining = self.draining.as_mut()?;
        let ground = Ground {
            bridge: self.bridge.as_ref()?,
            tables: &self.tables,
            speakers: &self.speakers,
            epoch: self.epoch,
            versions: &self.versions,
            me: self.id,
            mutation: self.mutation,
        };
        match draining.drain.next(&ground) {
            Ok(Next::Act(ticket, act)) => Some((ticket, act)),
            Ok(Next::Wait) => None,
            Ok(Next::End) => {
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
    fn begin_act(&mut self, ticket: Ticket, act: Act, env: &mut Env) {
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
    fn fetch_for_drain(&mut self, ticket: Ticket, need: Need, env: &mut Env) {
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
    pub(super) fn on_drain_fact(&mut self, number: u64, ticket: Ticket, fact: Fact) {
        if let Some(draining) = self.drain_of(number) {
            draining.needs.remove(&ticket);
            draining.drain.done(ticket, Got::Fetched(Box::new(fact)));
            self.ready.push_back(Waiter::Drain);
        }
    }

    fn propose_for_drain(&mut self, ticket: Ticket, commit: &Commit, env: &mut Env) {
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
        ticket: Ticket,
        verdict: &bridge::Verdict,
        env: &mut Env,
    ) {
        if *verdict != bridge::Verdict::Committed {
            let delay = env.random.between(100, 4_000);
            return self.alarm(delay, Alarm::Refused(number, ticket), env);
        }
        if let Some(draining) = self.drain_of(number) {
            let got = Got::Verdict(Verdict::Committed);
            draining.drain.done(ticket, got);
            self.ready.push_back(Waiter::Drain);
        }
    }

    /// A fetch of the drain is tried again, or a conflict is told.
    pub(super) fn on_refused(&mut self, number: u64, ticket: Ticket, env: &mut Env) {
        let Some(draining) = self.drain_of(number) else {
            return;
        };
        match draining.needs.get(&ticket).cloned() {
            Some(need) => self.fetch_for_drain(ticket, need, env),
            None => {
                let got = Got::Verdict(Verdict::Conflict);
                draining.drain.done(ticket, got);
                self.ready.push_back(Waiter::Drain);
            }
        }
    }

    /// An act of a drain ends, in the life in which it was begun.
    pub(super) fn on_act_alarm(
        &mut self,
        life: u32,
        number: u64,
        others: &mut [&mut Node],
        env: &mut Env,
    ) {
        if life == self.epoch && self.is_alive() {
            self.on_act(number, others, env);
            self.run(env);
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
    fn commit_of_drain(&mut self, commit: &Commit, env: &mut Env) -> Option<Verdict> {
        if !commit.still_holds(&self.tables).expect(NEVER_FAILS) {
            return Some(Verdict::Conflict);
        }
        if commit.uncovers() {
            self.pfs_changes += 1;
        }
        let proposal = Proposal {
            ticket: self.ticket(Waiter::Drain),
            reads: ReadSet::default(),
            batch: commit.batch.clone(),
            token: Token::default(),
            uncovers: commit.uncovers(),
        };
        let bridge = self.bridge.as_mut()?;
        bridge
            .propose(proposal, &self.tables, env.now)
            .expect(NEVER_FAILS);
        self.carry_out_all(env);
        self.is_alive().then_some(Verdict::Committed)
    }

    /// The bridge that keeps an object, if it is alive.
    fn keeper<'a>(&'a self, oid: ObjectId, others: &'a [&mut Node]) -> Option<&'a Node> {
        if oid.bridge() == self.id {
            return Some(self);
        }
        let mut others = others.iter();
        let keeper = others.find(|node| node.id == oid.bridge());
        keeper.map(|node| &**node).filter(|node| node.is_alive())
    }

    fn keeper_mut<'a>(
        &'a mut self,
        oid: ObjectId,
        others: &'a mut [&mut Node],
    ) -> Option<&'a mut Node> {
        if oid.bridge() == self.id {
            return Some(self);
        }
        let mut others = others.iter_mut();
        let keeper = others.find(|node| node.id == oid.bridge());
        keeper
            .map(|node| &mut **node)
            .filter(|node| node.is_alive())
    }

    fn carry_out_act(
        &mut self,
        act: &Act,
        begun: &[Option<Attr>],
        others: &mut [&mut Node],
        env: &mut Env,
    ) -> Got {
        // Noted before anything can be committed that relies on it, also if a part of it fails.
        self.note_changed_dirs(act);
        let pfs = self.lower.clone();
        let mut pfs = pfs.borrow_mut();
        let changes_names = matches!(
            act,
            Act::Rename { .. } | Act::Remove(_) | Act::Discard { .. } | Act::Dress { .. }
        );
        if let Some(errno) = env.fails_on_pfs() {
            let trouble = Trouble {
                operation: "on the PFS",
                errno,
            };
            match act {
                _ if changes_names => return Got::Did(Err(trouble)),
                Act::MakeDir(_) => return Got::Made(Err(trouble)),
                Act::Look(paths) => {
                    return Got::Seen(paths.iter().map(|_| Err(trouble)).collect());
                }
                Act::SyncDirs(dirs) => {
                    return Got::Each(dirs.iter().map(|_| Err(trouble)).collect());
                }
                _ => {}
            }
        }
        match act {
            Act::Fetch(_) | Act::Commit(_) => {
                env.broken(format!("one bridge alone carries out {act:?}"));
                Got::Done
            }
            Act::Examine(objects) => {
                let one = |o: &ObjectName| examine(self.keeper(o.oid, others), *o);
                Got::Attrs(objects.iter().map(one).collect())
            }
            Act::Look(paths) => Got::Seen(paths.iter().map(|p| Ok(pfs.look(p))).collect()),
            Act::Know(dir) => Got::Known(pfs.know(dir)),
            Act::Rename { from, to } => Got::Did(pfs.rename(from, to)),
            Act::Remove(path) | Act::Discard { path, .. }
                if pfs.is_of_others(path, self.known_at(path)) =>
            {
                env.broken(format!(
                    "a drain removes {path}, which somebody else has changed"
                ));
                Got::Did(Ok(()))
            }
            Act::Remove(path) => Got::Did(pfs.remove(path)),
            Act::Discard { path, aside } => Got::Did(pfs.discard(path, aside)),
            Act::MakeDir(path) => Got::Made(pfs.make_dir(path)),
            Act::Copy { copies, .. } => {
                for c in copies {
                    let Temporary { oid, path } = c.temporary.clone();
                    self.temporaries.insert(oid, path);
                }
                let mut begun = begun.iter().copied();
                let one = |c: &Copy| {
                    let keeper = self.keeper(c.object.oid, others);
                    copy(keeper, &mut pfs, c, begun.next().flatten(), env)
                };
                Got::Copies(copies.iter().map(one).collect())
            }
            Act::Sync(oids) | Act::Verify(oids) => {
                let one = |oid: &ObjectId| {
                    let did = fails(env);
                    let temporary = self.temporaries.get(oid);
                    if let (Err(_), Some(temporary)) = (&did, temporary) {
                        pfs.forget(temporary);
                    } else if let (Act::Sync(_), Some(temporary)) = (act, temporary) {
                        pfs.sync_contents(temporary);
                        if !Mutation::CopiesAreDurableOnThePfsAlone.is(self.mutation) {
                            self.wrote_contents(*oid);
                        }
                    }
                    did
                };
                Got::Each(oids.iter().map(one).collect())
            }
            Act::Name(namings) => {
                let ours = |path: &TreePath| {
                    if !self.membership.is_home(path) {
                        // Its record is at another bridge.
                        return true;
                    }
                    let record = self.tables.get(path).expect(NEVER_FAILS);
                    record.is_some_and(|r| r.hides.is_some() || r.drained.is_some())
                };
                for name in namings.iter().flat_map(|naming| &naming.names) {
                    let path = &name.path;
                    if self.membership.is_home(path)
                        && pfs.attr(path).is_some_and(|found| name.may_replace(&found))
                        && pfs.is_of_others(path, self.known_at(path))
                    {
                        env.broken(format!(
                            "a drain replaces {path}, which somebody else has changed"
                        ));
                    }
                }
                let named = namings.iter().map(|naming| {
                    let most = match self.is_alive() {
                        true => usize::MAX,
                        // It died between two names.
                        false => env.random.below(3) as usize,
                    };
                    pfs.name(naming, most, ours)
                });
                let named = named.collect();
                if let Some(text) = pfs.broken.take() {
                    env.broken(text);
                }
                Got::Each(named)
            }
            Act::Forget(all) => {
                all.iter().for_each(|t| pfs.forget(&t.path));
                Got::Done
            }
            Act::Unhide(all) => {
                let mut unhide = |object: &ObjectName| {
                    let keeper = self.keeper_mut(object.oid, others).ok_or(AWAY)?;
                    if let Some(label) = keeper.disk.objects.get(object).cloned() {
                        let work = DiskWork::Relabel(*object, without_hides(label));
                        let number = keeper.disk.begin(work);
                        keeper.disk.finish(number);
                    }
                    Ok(())
                };
                Got::Each(all.iter().map(&mut unhide).collect())
            }
            Act::Dress { path, object } => {
                let Some(keeper) = self.keeper(object.oid, others) else {
                    return Got::Did(Err(AWAY));
                };
                let thing = Thing {
                    ino: keeper.disk.identity(object.oid),
                    kind: Kind::Dir,
                };
                let mtime = keeper.disk.attr(*object).map_or(0, |a| a.mtime.sec);
                Got::Did(pfs.dress(path, thing, mtime))
            }
            Act::SyncDirs(dirs) => {
                dirs.iter().for_each(|dir| pfs.sync_dir(dir));
                Got::Each(dirs.iter().map(|_| Ok(())).collect())
            }
            Act::Sweep { dirs, of } => {
                for path in dirs.iter().flat_map(|dir| pfs.sweep(dir, *of)) {
                    let is_made = |node: &&&mut Node| node.temporaries.values().any(|t| *t == path);
                    if let Some(maker) = others.iter().find(is_made) {
                        let maker = maker.id.0;
                        env.broken(format!(
                            "a sweep removes {path}, which bridge {maker} makes"
                        ));
                    }
                }
                Got::Done
            }
            Act::Probe(objects) => {
                let by = |o: &ObjectName| -> Work<Use> {
                    let keeper = self.keeper(o.oid, others).ok_or(AWAY)?;
                    keeper.disk.users(*o).ok_or(Trouble {
                        operation: "stat in the buffer",
                        errno: libc::ENOENT,
                    })
                };
                Got::Users(objects.iter().map(by).collect())
            }
            Act::ProbeDirs => Got::Busy(Vec::new()),
            Act::Pause => Got::Done,
        }
    }
}

impl Node {
    /// What the record that hides this path of the PFS, or was drained to it, knows of what is there.
    fn known_at(&self, lower: &TreePath) -> Option<Identity> {
        let speaks = |(path, r): &(TreePath, PathRecord)| r.covers(path).as_ref() == Some(lower);
        let records = self.records();
        records
            .iter()
            .find(|r| speaks(r))
            .and_then(|(_, r)| r.replaces)
    }
}

fn fails(env: &mut Env) -> Work<()> {
    match env.fails_on_pfs() {
        Some(errno) => Err(Trouble {
            operation: "sync",
            errno,
        }),
        None => Ok(()),
    }
}

/// The bridge that keeps an object does not answer.
const AWAY: Trouble = Trouble {
    operation: "ask another bridge",
    errno: libc::EHOSTUNREACH,
};

fn examine(keeper: Option<&Node>, object: ObjectName) -> Work<Attr> {
    keeper.ok_or(AWAY)?.disk.attr(object).ok_or(Trouble {
        operation: "stat in the buffer",
        errno: libc::ENOENT,
    })
}

/// Copies an object, with the attributes that it had when the copy was begun.
fn copy(
    keeper: Option<&Node>,
    pfs: &mut Pfs,
    copy: &Copy,
    begun: Option<Attr>,
    env: &mut Env,
) -> Work<Copied> {
    fails(env)?;
    let disk = &keeper.ok_or(AWAY)?.disk;
    if env.drain.sees_writers && disk.is_open(copy.object.oid) {
        return Ok(Copied::InUse);
    }
    let Some((attr, inode)) = begun.zip(disk.inode(copy.object.oid)) else {
        // It is gone.
        examine(keeper, copy.object)?;
        return Ok(Copied::Stopped);
    };
    let thing = Thing {
        ino: inode.identity,
        kind: copy.kind,
    };
    let mtime = attr.mtime.sec;
    pfs.copy(&copy.temporary.path, thing, inode.contents, mtime)?;
    let made = pfs.attr(&copy.temporary.path).unwrap_or_default();
    Ok(Copied::Whole {
        of: attr,
        copy: Identity::of_copy(&made),
    })
}

/// The terms of a drain in a storm.
pub(super) fn terms(random: &mut Random) -> Terms {
    Terms {
        keep: random.chance(600_000),
        batches: random.between(1, 3) as usize,
        patient: random.chance(500_000),
    }
}
