//! The driver of core's drain: carries out its acts on the simulated PFS and disk.
//!
//! Acts take time. What was under way when the bridge died has happened or not, each by chance. Drains run
//! where one bridge is alone: what a drain asks of all bridges has no messages yet.

use super::disk::{Disk, Work as DiskWork};
use super::env::{Alarm, Env};
use super::history::Thing;
use super::node::{NEVER_FAILS, Node, Waiter};
use super::pfs::Pfs;
use super::random::Random;
use forebay_core::bridge::{Mutation, Proposal, ReadSet, version};
use forebay_core::drain::{
    Act, Commit, Copied, Copy, Drain, DrainReport, Facts, Got, Next, Temporary, Terms, Ticket,
    Trouble, Use, Verdict, Work,
};
use forebay_core::facts::{Attr, Outcome, Stop};
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
    acts: BTreeMap<u64, UnderWay>,
    count: u64,
}

/// An act that takes time.
struct UnderWay {
    ticket: Ticket,
    act: Act,
    /// Of each object that is being copied: what its copy was begun with.
    begun: Vec<Option<Attr>>,
}

/// Read access for the machine.
struct Ground<'a> {
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
    fn record(&self, path: &TreePath) -> Outcome<Option<PathRecord>> {
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
        self.tables.subtree(dir).map_err(fault)
    }

    fn children(&self, dir: &TreePath, limit: usize) -> Outcome<Vec<(Vec<u8>, PathRecord)>> {
        self.tables.children(dir, None, limit).map_err(fault)
    }

    fn names_of(&self, object: ObjectId) -> Outcome<Vec<(ObjectName, TreePath)>> {
        self.tables.names_of(object).map_err(fault)
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

    fn is_home(&self, _: &TreePath) -> bool {
        true
    }

    fn rely_on_range(&self, _: &TreePath, _: &mut ReadSet) -> Outcome<()> {
        Ok(())
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
        self.set_draining(Drain::new(terms));
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
        self.set_draining(Drain::release(paths));
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

    fn set_draining(&mut self, drain: Drain) {
        self.draining = Some(Draining {
            drain,
            acts: BTreeMap::new(),
            count: 0,
        });
    }

    /// Ends what a drain of an earlier life has begun, before requests are served; false if that can't be done now.
    pub(super) fn resume_drain(&mut self, env: &mut Env) -> bool {
        self.set_draining(Drain::resume());
        self.report = None;
        while let Some((ticket, act)) = self.next_act(env) {
            let got = match act {
                Act::Commit(commit) => self.commit_of_drain(&commit, env).map(Got::Verdict),
                act => Some(self.carry_out_act(&act, &[], env)),
            };
            match (&mut self.draining, got) {
                (Some(draining), Some(got)) => draining.drain.done(ticket, got),
                _ => return false,
            }
        }
        self.report.is_some()
    }

    /// What the machine wants done now; `None`: nothing before something else has ended.
    fn next_act(&mut self, env: &mut Env) -> Option<(Ticket, Act)> {
        let draining = self.draining.as_mut()?;
        let ground = Ground {
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
                self.note(env, || format!("can't go on: {text}"));
                self.draining = None;
                None
            }
        }
    }

    fn drained(&mut self, report: DrainReport, env: &mut Env) {
        self.note(env, || format!("ends its drain: {report:?}"));
        let kept = self.tables.page(None, Order::ParentsFirst, 1);
        // A release of some files says it of these files.
        if report.released && !self.releases_some && !kept.expect(NEVER_FAILS).is_empty() {
            env.broken("a drain says that all is released, and records are left".to_owned());
        }
        self.report = Some(report);
    }

    /// Goes on until all that is left takes time.
    fn drive(&mut self, env: &mut Env) {
        let mut commits = 0;
        while let Some((ticket, act)) = self.next_act(env) {
            if let Act::Commit(commit) = act {
                commits += 1;
                if commits > MOST_COMMITS {
                    env.broken("a drain commits round in circles".to_owned());
                    self.draining = None;
                    return;
                }
                let verdict = self.commit_of_drain(&commit, env);
                match (&mut self.draining, verdict) {
                    (Some(draining), Some(verdict)) => {
                        draining.drain.done(ticket, Got::Verdict(verdict));
                    }
                    _ => return,
                }
                continue;
            }
            let begun = match &act {
                Act::Copy { copies, .. } => {
                    copies.iter().map(|c| self.disk.attr(c.object)).collect()
                }
                _ => Vec::new(),
            };
            let Some(draining) = &mut self.draining else {
                return;
            };
            draining.count += 1;
            let number = draining.count;
            let under_way = UnderWay { ticket, act, begun };
            draining.acts.insert(number, under_way);
            let delay = env.act_us();
            self.alarm(delay, Alarm::Act(number), env);
        }
    }

    /// An act ends.
    pub(super) fn on_act(&mut self, number: u64, env: &mut Env) {
        let under_way = self.draining.as_mut().and_then(|d| d.acts.remove(&number));
        let Some(UnderWay { ticket, act, begun }) = under_way else {
            return;
        };
        if let Act::Unhide(objects) = &act
            && objects.iter().any(|o| self.labels.contains_key(o))
        {
            // A label is written at once after its commit; here that takes time, and comes first.
            if let Some(draining) = &mut self.draining {
                draining
                    .acts
                    .insert(number, UnderWay { ticket, act, begun });
            }
            return self.alarm(500, Alarm::Act(number), env);
        }
        let got = self.carry_out_act(&act, &begun, env);
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
            if env.random.chance(500_000) {
                let got = self.carry_out_act(&act, &begun, env);
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
        };
        let bridge = self.bridge.as_mut()?;
        bridge
            .propose(proposal, &self.tables, env.now)
            .expect(NEVER_FAILS);
        self.carry_out_all(env);
        self.is_alive().then_some(Verdict::Committed)
    }

    fn carry_out_act(&mut self, act: &Act, begun: &[Option<Attr>], env: &mut Env) -> Got {
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
                Got::Attrs(objects.iter().map(|o| examine(&self.disk, *o)).collect())
            }
            Act::Look(paths) => Got::Seen(paths.iter().map(|p| Ok(pfs.look(p))).collect()),
            Act::Rename { from, to } => Got::Did(pfs.rename(from, to)),
            Act::Remove(path) => Got::Did(pfs.remove(path)),
            Act::Discard { path, aside } => Got::Did(pfs.discard(path, aside)),
            Act::MakeDir(path) => Got::Made(pfs.make_dir(path)),
            Act::Copy { copies, .. } => {
                for c in copies {
                    let Temporary { oid, path } = c.temporary.clone();
                    self.temporaries.insert(oid, path);
                }
                let mut begun = begun.iter().copied();
                let one = |c: &Copy| copy(&self.disk, &mut pfs, c, begun.next().flatten(), env);
                Got::Copies(copies.iter().map(one).collect())
            }
            Act::Sync(oids) | Act::Verify(oids) => {
                let one = |oid: &ObjectId| {
                    let did = fails(env);
                    if let (Err(_), Some(temporary)) = (&did, self.temporaries.get(oid)) {
                        pfs.forget(temporary);
                    }
                    did
                };
                Got::Each(oids.iter().map(one).collect())
            }
            Act::Name(namings) => {
                let ours = |path: &TreePath| {
                    let record = self.tables.get(path).expect(NEVER_FAILS);
                    record.is_some_and(|r| r.hides.is_some() || r.drained.is_some())
                };
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
                for object in all {
                    if let Some(label) = self.disk.objects.get(object).cloned() {
                        let work = DiskWork::Relabel(*object, without_hides(label));
                        let number = self.disk.begin(work);
                        self.disk.finish(number);
                    }
                }
                Got::Each(all.iter().map(|_| Ok(())).collect())
            }
            Act::Dress { path, object } => {
                let thing = Thing {
                    ino: self.disk.identity(object.oid),
                    kind: Kind::Dir,
                };
                let mtime = self.disk.attr(*object).map_or(0, |a| a.mtime.sec);
                Got::Did(pfs.dress(path, thing, mtime))
            }
            Act::SyncDirs(dirs) => Got::Each(dirs.iter().map(|_| Ok(())).collect()),
            Act::Sweep(dirs) => {
                dirs.iter().for_each(|dir| pfs.sweep(dir));
                Got::Done
            }
            Act::Probe(objects) => {
                let by = |o: &ObjectName| -> Work<Use> {
                    self.disk.users(*o).ok_or(Trouble {
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

fn fails(env: &mut Env) -> Work<()> {
    match env.fails_on_pfs() {
        Some(errno) => Err(Trouble {
            operation: "sync",
            errno,
        }),
        None => Ok(()),
    }
}

fn examine(disk: &Disk, object: ObjectName) -> Work<Attr> {
    disk.attr(object).ok_or(Trouble {
        operation: "stat in the buffer",
        errno: libc::ENOENT,
    })
}

/// Copies an object, with the attributes that it had when the copy was begun.
fn copy(
    disk: &Disk,
    pfs: &mut Pfs,
    copy: &Copy,
    begun: Option<Attr>,
    env: &mut Env,
) -> Work<Copied> {
    fails(env)?;
    if env.drain.sees_writers && disk.is_open(copy.object.oid) {
        return Ok(Copied::InUse);
    }
    let Some((attr, inode)) = begun.zip(disk.inode(copy.object.oid)) else {
        return examine(disk, copy.object).map(Copied::Whole);
    };
    let thing = Thing {
        ino: inode.identity,
        kind: copy.kind,
    };
    pfs.copy(&copy.temporary.path, thing, inode.contents)?;
    Ok(Copied::Whole(attr))
}

/// The terms of a drain in a storm.
pub(super) fn terms(random: &mut Random) -> Terms {
    Terms {
        keep: random.chance(600_000),
        batches: random.between(1, 3) as usize,
        patient: random.chance(500_000),
    }
}
