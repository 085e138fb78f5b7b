//! The driver of core's request machine: carries out its effects on a simulated disk and network.

use super::between::Deed;
use super::disk::Work;
use super::env::{Alarm, Env, Event};
use super::history::{Outcome, Thing};
use super::in_place::CopyOf;
use super::look::Hand;
use super::making::Making;
use super::node::{NEVER_FAILS, Node, Purpose, Waiter};
use super::turns::OutOfTurn;
use forebay_core::bridge::{Bridge, Mutation, Output, Proposal, ReadSet, Verdict};
use forebay_core::facts::{Cred, Devices, Fresh, Judged, PfsLook, Settings};
use forebay_core::ops::{Answer, GrantTarget, Request};
use forebay_core::path::TreePath;
use forebay_core::record::{BridgeId, Kind, Token};
use forebay_core::request::{
    Caller, Commit, Effect, Entered, Failure, Finish, Granting, Looked, Pending,
};
use std::sync::Arc;

/// Where the buffer is.
pub(super) const ROOT: &[u8] = b"/pfs";

/// What an object of a symbolic link holds, as a number that stands for bytes.
pub(super) const TEXT: u64 = 1;

/// A request that is not answered yet.
pub(super) struct Attempt {
    pub(super) pending: Pending,
    client: usize,
    connection: u32,
    /// What the disk is making for it.
    pub(super) making: Option<Making>,
    /// What it has opened: what users know it by, and the descriptor if it is an object of this bridge.
    opened: Option<(u64, Option<u64>)>,
    /// An effect that takes time.
    late: Option<Effect>,
    /// It waits until a record has changed.
    pub(super) awaits: bool,
    /// What was carried out for it last.
    last: Option<Deed>,
    /// Errnos with which something has failed for it.
    failures: Vec<i32>,
    /// It reads many records.
    pub(super) is_long: bool,
    /// Others have changed what it relied on: it decides at the moment of its commit.
    pub(super) needs_turn: bool,
    pub(super) out_of_turn: Option<OutOfTurn>,
    /// Objects made for it that are copies.
    pub(super) copies: Vec<CopyOf>,
    /// Files of the PFS that it hides, and that programs may have written to in place.
    hides: Vec<TreePath>,
}

impl Attempt {
    /// Something fails for it with this errno, if it does.
    pub(super) fn note(&mut self, failure: Option<i32>) -> Option<i32> {
        self.failures.extend(failure);
        failure
    }
}

/// Settings of the simulated buffer, in which PFS files up to this size are staged, and so many records go with a directory.
pub(super) fn settings(stage_limit_bytes: u64, removed_at_once: usize) -> Settings {
    Settings {
        root: ROOT.to_vec(),
        stage_limit_bytes,
        stamps_mapped_writes: true,
        bridge_uid: 0,
        removed_at_once,
        devices: Default::default(),
        keeps_numbers: true,
        protections: Default::default(),
    }
}

impl Node {
    /// A client calls. If it calls again because it lost its connection, and the first call is still
    /// being carried out, then only the answer takes another way.
    pub(super) fn on_call(
        &mut self,
        request: Request,
        client: usize,
        connection: u32,
        env: &mut Env,
    ) {
        let token = request.token;
        match self.attempts.get_mut(&token) {
            Some(attempt) => attempt.connection = connection,
            None => {
                let caller = Caller {
                    cred: Arc::new(Cred::default()),
                    by_name: false,
                };
                let attempt = Attempt {
                    pending: Pending::new(request, caller),
                    client,
                    connection,
                    making: None,
                    opened: None,
                    late: None,
                    awaits: false,
                    last: None,
                    failures: Vec::new(),
                    is_long: false,
                    needs_turn: false,
                    out_of_turn: None,
                    copies: Vec::new(),
                    hides: Vec::new(),
                };
                self.attempts.insert(token, attempt);
                self.ready.push_back(Waiter::Request(token));
            }
        }
        self.run(env);
    }

    /// Steps a request until one of its effects takes time.
    pub(super) fn go_on(&mut self, token: Token, env: &mut Env) {
        let Some(mut attempt) = self.attempts.remove(&token) else {
            return;
        };
        while let Some(effect) = self.next_effect(&mut attempt, env) {
            let deed = Deed::of(&effect);
            if self.dies_between(attempt.last.replace(deed), deed, env) {
                return;
            }
            let pending = &mut attempt.pending;
            match effect {
                Effect::TakeTurn => {
                    self.waits_for_turn(&attempt, env);
                    break;
                }
                Effect::TakesLong => attempt.is_long = true,
                effect @ (Effect::Look(_) | Effect::Grant(_)) => {
                    let is_slow = match &effect {
                        Effect::Look(_) => self.slow_looks,
                        Effect::Grant(granting) => {
                            env.slow_grants || self.truncates_elsewhere(granting)
                        }
                        _ => false,
                    };
                    if is_slow {
                        attempt.late = Some(effect);
                        let delay = env.act_us();
                        self.alarm(delay, Alarm::Effect(token), env);
                        break;
                    }
                    self.take_effect(&mut attempt, effect, None, env);
                }
                effect @ Effect::WriteTimes => {
                    attempt.late = Some(effect);
                    let delay = env.hardship.delay_us(1, 2_000);
                    self.alarm(delay, Alarm::Effect(token), env);
                    break;
                }
                Effect::Enter { path, leaves } => {
                    self.leave(leaves);
                    match self.turns.enter(&path, || token) {
                        Entered::Mine => pending.has_turn(path),
                        Entered::Waits => break,
                    }
                }
                Effect::Announce { of } => {
                    if let Some(errno) = attempt.note(env.tables_refuse()) {
                        attempt.pending.fails(Failure::Errno(errno));
                        continue;
                    }
                    let link = self.new_link(of);
                    if !Mutation::LinksAreNotAnnounced.is(self.mutation) {
                        self.apply(&[Pending::announcement(link).into()]);
                    }
                    attempt.pending.announced(link);
                }
                Effect::Make { spec, link, .. } => {
                    if self.make(&mut attempt, &spec, link, env) {
                        break;
                    }
                }
                Effect::Fetch(need) => {
                    self.fetch(Waiter::Request(token), need, env);
                    break;
                }
                effect @ (Effect::Await(_) | Effect::Pause) => {
                    attempt.awaits = matches!(effect, Effect::Await(_));
                    let delay = env.random.between(100, 4_000);
                    self.alarm(delay, Alarm::Again(token), env);
                    break;
                }
                Effect::Commit(commit) if self.is_held_up(&commit.batch, env) => {
                    pending.held_up();
                }
                Effect::Commit(commit) => {
                    if let Some(lower) = self.granted_since(&attempt.copies, &commit.batch) {
                        attempt.pending.held_in_place(lower);
                        continue;
                    }
                    // Of several bridges one whose tables fail would end.
                    let is_single = self.membership.is_single();
                    let failure = is_single.then(|| env.tables_refuse()).flatten();
                    match attempt.note(failure) {
                        Some(errno) => {
                            self.refuse(commit, env);
                            attempt.pending.fails(Failure::Errno(errno));
                        }
                        None => {
                            attempt.hides = self.in_place.hidden_by(&commit.batch);
                            self.propose(commit, env);
                            break;
                        }
                    }
                }
                Effect::LookAtLeft(files) => self.look_at_left(&files),
                Effect::Finish(finish) => return self.answer(&attempt, finish, env),
            }
        }
        if self.is_alive() {
            self.attempts.insert(token, attempt);
        }
    }

    /// Carries out what may take time, now.
    fn take_effect(
        &mut self,
        attempt: &mut Attempt,
        effect: Effect,
        keeper: Option<&mut Node>,
        env: &mut Env,
    ) {
        match effect {
            Effect::Look(look) => {
                if let Some(errno) = attempt.note(env.pfs_fails_request()) {
                    return attempt.pending.looked(Err(errno));
                }
                let pfs = self.lower.borrow();
                let looked = match look {
                    PfsLook::List { dir, after } => {
                        Ok(Looked::List(Arc::new(pfs.list(&dir, after.as_deref()))))
                    }
                    PfsLook::Attr(path) | PfsLook::Renamed { origin: path, .. } => {
                        Ok(Looked::Attr(pfs.attr(&path)))
                    }
                    PfsLook::Link(path) => pfs.link_text(&path, &env.texts).map(Looked::Link),
                };
                attempt.pending.looked(looked);
            }
            Effect::Grant(granting) => {
                let failure = match &granting.target {
                    GrantTarget::Object(_) => env.storage_fails_request(),
                    GrantTarget::Lower(..) => env.pfs_fails_request(),
                };
                let outcome = match attempt.note(failure) {
                    Some(errno) => Err(errno),
                    None => self.open(attempt, &granting, keeper, env),
                };
                attempt.pending.granted(outcome);
            }
            Effect::WriteTimes => {
                self.times_wait = false;
                attempt.pending.times_written();
            }
            other => env.broken(format!("{other:?} takes no time")),
        }
    }

    /// Is this a truncation that another bridge has to carry out?
    fn truncates_elsewhere(&self, granting: &Granting) -> bool {
        granting.flags & libc::O_TRUNC != 0 && self.keeper_of(granting).is_some()
    }

    /// The other bridge that keeps what is granted.
    fn keeper_of(&self, granting: &Granting) -> Option<BridgeId> {
        match &granting.target {
            GrantTarget::Object(object) => {
                Some(object.oid.bridge()).filter(|keeper| *keeper != self.id)
            }
            GrantTarget::Lower(..) => None,
        }
    }

    /// What took time is carried out, unless another bridge has to and is away.
    pub(super) fn late_effect(&mut self, token: Token, others: &mut [&mut Node], env: &mut Env) {
        let Some(mut attempt) = self.attempts.remove(&token) else {
            return;
        };
        if let Some(effect) = attempt.late.take() {
            let keeper = match &effect {
                Effect::Grant(granting) => self.keeper_of(granting),
                _ => None,
            };
            let mut others = others.iter_mut().map(|node| &mut **node);
            let keeper = keeper.and_then(|keeper| others.find(|node| node.id == keeper));
            if keeper.as_ref().is_some_and(|keeper| !keeper.is_alive()) {
                attempt.late = Some(effect);
                self.alarm(1_000, Alarm::Effect(token), env);
            } else {
                self.take_effect(&mut attempt, effect, keeper, env);
                self.ready.push_back(Waiter::Request(token));
            }
        }
        self.attempts.insert(token, attempt);
    }

    pub(super) fn step(&self, attempt: &mut Attempt, env: &mut Env) -> Option<Effect> {
        let pfs_fails = env.pfs_fails_request();
        let storage_fails = env.storage_fails_request();
        let pfs = self.lower.borrow();
        let hand = Hand {
            pfs_fails,
            storage_fails,
            records_at_once: match self.turning.records_at_once {
                Some(most) if !attempt.is_long => most,
                _ => usize::MAX,
            },
            ..self.hand(self.bridge.as_ref()?, &pfs, env)
        };
        let is_removal = attempt.is_long && attempt.pending.is_rmdir();
        let may_commit = !self.turning.is_on || is_removal || attempt.pending.changes();
        // Nothing else happens between a step and the commit that it asks for, unless that is out of turn.
        let settings = settings(self.stage_limit, self.removed_at_once);
        let effect = attempt.pending.step(&settings, &hand, may_commit);
        // What the step has not met must not excuse a wrong errno.
        attempt.failures.extend(hand.met.take());
        Some(effect)
    }

    fn propose(&mut self, commit: Commit, env: &mut Env) {
        if let Some(unseen) = commit.unseen {
            self.begin_removal(unseen, env);
        }
        let proposal = Proposal {
            ticket: self.ticket(Waiter::Request(commit.token)),
            reads: commit.reads,
            batch: commit.batch,
            token: commit.token,
            uncovers: false,
        };
        if let Some(bridge) = &mut self.bridge
            && let Err(e) = bridge.propose(proposal, &self.tables, env.now)
        {
            env.broken(e.to_string());
        }
    }

    /// The tables refuse a batch, and nothing of it has happened. As in a server, all that the transaction layer knows is read
    /// from them anew.
    fn refuse(&mut self, commit: Commit, env: &mut Env) {
        let Some(mut bridge) = self.bridge.take() else {
            return;
        };
        let proposal = Proposal {
            ticket: 0,
            reads: ReadSet::default(),
            batch: commit.batch,
            token: commit.token,
            uncovers: false,
        };
        let proposed = bridge.propose(proposal, &self.tables, env.now);
        proposed.expect(NEVER_FAILS);
        match bridge.poll(&self.tables).expect(NEVER_FAILS) {
            Some(Output::Commit(_)) => self.note(env, || "has no room for a batch".to_owned()),
            other => env.broken(format!("a bridge that is alone wants {other:?}")),
        }
        if Mutation::RefusedBatchesAreRemembered.is(self.mutation) {
            while bridge.poll(&self.tables).expect(NEVER_FAILS).is_some() {}
            self.bridge = Some(bridge);
            return;
        }
        let membership = self.membership.clone();
        let bridge =
            Bridge::recover_with(membership, self.epoch, &self.tables, env.now, self.mutation);
        self.bridge = Some(bridge.expect(NEVER_FAILS));
    }

    /// A turn to copy ends, if there is one: those who waited for it go on.
    fn leave(&mut self, turn: Option<TreePath>) {
        let waiting = turn.map(|path| self.turns.leave(&path));
        for token in waiting.unwrap_or_default() {
            if let Some(waiting) = self.attempts.get_mut(&token) {
                waiting.pending.woken();
                self.ready.push_back(Waiter::Request(token));
            }
        }
    }

    /// How the transaction of a request ended. It goes on at once: what is queued behind the verdict has not
    /// happened yet.
    pub(super) fn on_verdict(&mut self, token: Token, verdict: Verdict, env: &mut Env) {
        if let Some(attempt) = self.attempts.get_mut(&token) {
            match verdict {
                Verdict::Failed(_) => attempt.pending.refused(),
                Verdict::Committed => {
                    attempt.pending.committed(Verdict::Committed);
                    let hides = std::mem::take(&mut attempt.hides);
                    attempt.pending.hides_written(hides);
                }
                verdict => drop(attempt.pending.committed(verdict)),
            }
            self.go_on(token, env);
        }
    }

    /// Opens what is granted, if it is there. Objects of other bridges would be opened by them; they are truncated there, and
    /// nobody gets a descriptor.
    fn open(
        &mut self,
        attempt: &mut Attempt,
        granting: &Granting,
        keeper: Option<&mut Node>,
        env: &mut Env,
    ) -> Result<(), i32> {
        let truncates = granting.flags & libc::O_TRUNC != 0;
        let (identity, fd) = match &granting.target {
            GrantTarget::Object(object) if object.oid.bridge() != self.id => {
                if let Some(keeper) = keeper.filter(|_| truncates) {
                    keeper.disk.attr(*object).ok_or(libc::ENOENT)?;
                    keeper.disk.write(object.oid, 0);
                }
                (env.identity(object.oid), None)
            }
            GrantTarget::Object(object) => {
                let fd = self.disk.open(*object).ok_or(libc::ENOENT)?;
                let identity = self.disk.identity(object.oid);
                if truncates {
                    self.disk.write(object.oid, 0);
                }
                (identity, Some(fd))
            }
            GrantTarget::Lower(path, judged) => {
                let mut pfs = self.lower.borrow_mut();
                let attr = pfs.attr(path).filter(|a| Judged::new(a) == *judged);
                let (attr, thing) = attr.zip(pfs.get(path)).ok_or(libc::ENOENT)?;
                let inode = pfs.number(path).filter(|_| thing.kind == Kind::File);
                let fd = inode.and_then(|inode| self.in_place.open(inode, &attr, env.now));
                if let (Some(inode), Some(_)) = (inode, fd) {
                    pfs.opened(inode);
                }
                match inode.filter(|_| truncates) {
                    Some(inode) if fd.is_some() => drop(pfs.write(inode, 0)),
                    Some(_) => pfs.set_contents(path, 0),
                    None => {}
                }
                (thing.ino, fd)
            }
        };
        let was_open = attempt.opened.take();
        let counts = was_open.is_some_and(|(seen, _)| seen == identity);
        if let Some((_, Some(old))) = was_open {
            self.close(old);
        }
        // A truncation counts only if the same file was open before. A new copy counts from its commit, which may fail.
        if truncates {
            let is_new = match &granting.target {
                GrantTarget::Object(object) => env.is_new_copy(object.oid),
                GrantTarget::Lower(..) => false,
            };
            env.wrote(identity, 0, counts && !is_new);
        }
        attempt.opened = Some((identity, fd));
        Ok(())
    }

    /// Objects that were made and are of no use go, and a turn to copy ends.
    pub(super) fn clear_up(&mut self, unused: Vec<Fresh>, turn: Option<TreePath>, env: &mut Env) {
        for fresh in unused {
            if fresh.object.link != 0 {
                // The other names of the file may be gone meanwhile, and the last sync point may know one of them.
                self.unlink(fresh.object, env);
                continue;
            }
            let purpose = if fresh.is_doomed {
                Purpose::Unlink(fresh.object)
            } else {
                Purpose::Dispose(fresh.object)
            };
            self.begin(Work::Unlink(fresh.object), purpose, env);
        }
        self.leave(turn);
    }

    fn answer(&mut self, attempt: &Attempt, finish: Finish, env: &mut Env) {
        // A descriptor shows what the object is now: it may be a spare one that has become the very file that was asked for.
        let opened = attempt.opened.map(|(identity, fd)| {
            let now = fd.and_then(|fd| self.disk.of(fd));
            (now.map_or(identity, |oid| self.disk.identity(oid)), fd)
        });
        self.clear_up(finish.unused, finish.turn, env);
        let outcome = match finish.outcome {
            Ok(answer) => outcome(answer, opened.map_or(0, |(identity, _)| identity)),
            Err(Failure::Errno(e)) if attempt.failures.contains(&e) => {
                env.counts.failures += 1;
                let request = attempt.pending.request();
                let knows = |bridge: &Bridge| bridge.was_carried_out(request.token);
                Outcome::Failed {
                    errno: e,
                    after_all: request.retry && self.bridge.as_ref().is_some_and(knows),
                }
            }
            Err(Failure::Errno(e)) => Outcome::Errno(e),
            Err(Failure::Redirect(_)) => Outcome::Outside,
            Err(other) => return env.broken(format!("policy ended in {other:?}")),
        };
        let fd = opened.and_then(|(_, fd)| fd);
        let fd = match (&outcome, fd) {
            (Outcome::Opened(_), Some(fd)) => {
                self.pass(fd);
                Some(fd)
            }
            (_, Some(fd)) => {
                self.close(fd);
                None
            }
            _ => None,
        };
        let (client, connection) = (attempt.client, attempt.connection);
        let delay = env.socket_us();
        // The client hears nothing of it, and calls again.
        if matches!(outcome, Outcome::Failed { .. }) && env.hardship.hangs_up() {
            return env.after(delay, Event::Hangup { client, connection });
        }
        env.after(
            delay,
            Event::Answer {
                client,
                connection,
                outcome,
                fd,
            },
        );
    }
}

/// An answer as a client sees it. `opened` is what was opened for it.
fn outcome(answer: Answer, opened: u64) -> Outcome {
    match answer {
        Answer::Done => Outcome::Done,
        Answer::Bytes(text) => Outcome::Text(text),
        Answer::Grant { .. } => Outcome::Opened(opened),
        Answer::Attr(attr) => {
            let attr = Devices::default().shown_of(attr);
            Outcome::Seen(Thing::shown(attr.ino, attr.mode & libc::S_IFMT))
        }
        Answer::Entries { entries, more } => {
            let last = entries.last().map(|e| e.name.clone());
            let named = entries.into_iter().filter(|e| e.name[0] != b'.');
            let listed = named.map(|e| {
                let thing = Thing::shown(e.ino, u32::from(e.dtype) << 12);
                (e.name, thing)
            });
            Outcome::Listed(listed.collect(), last.filter(|_| more))
        }
    }
}
