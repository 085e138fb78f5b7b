//! The driver of core's request machine: carries out its effects on a simulated disk and network.

use super::disk::{Inode, Work};
use super::env::{Alarm, Env, Event};
use super::history::{Outcome, Thing, ino};
use super::node::{Node, Purpose, Waiter};
use forebay_core::bridge::{Mutation, Proposal, Verdict};
use forebay_core::facts::{Cred, Fresh, Judged, NewKind, NewObject, Settings};
use forebay_core::ops::{Answer, GrantTarget, Request};
use forebay_core::path::TreePath;
use forebay_core::record::{BridgeId, ObjectId, ObjectName, Token};
use forebay_core::request::{
    Caller, Commit, Effect, Entered, Failure, Finish, Granting, Looked, Pending, PfsLook,
};
use forebay_core::table::Change;
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
    making: Option<Making>,
    /// What it has opened: what users know it by, and the descriptor if it is an object of this bridge.
    opened: Option<(u64, Option<u64>)>,
    /// An effect that takes time.
    late: Option<Effect>,
    /// It waits until a record has changed.
    pub(super) awaits: bool,
}

/// What the disk is making.
struct Making {
    object: ObjectName,
    what: NewKind,
}

/// Settings of the simulated buffer, in which PFS files up to this size are staged, and so many records go with a directory.
pub(super) fn settings(stage_limit_bytes: u64, removed_at_once: usize) -> Settings {
    Settings {
        root: ROOT.to_vec(),
        stage_limit_bytes,
        bridge_uid: 0,
        removed_at_once,
        devices: Default::default(),
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
        while let Some(effect) = self.step(&mut attempt, env) {
            let pending = &mut attempt.pending;
            match effect {
                Effect::TakeTurn => env.broken("the turn was held already".to_owned()),
                Effect::TakesLong => env.broken("any number of records may be read".to_owned()),
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
                Effect::WriteTimes => pending.times_written(),
                Effect::Enter { path, leaves } => {
                    self.leave(leaves);
                    match self.turns.enter(&path, || token) {
                        Entered::Mine => pending.has_turn(path),
                        Entered::Waits => break,
                    }
                }
                Effect::Announce { of } => {
                    let link = self.new_link(of);
                    if !Mutation::LinksAreNotAnnounced.is(self.mutation) {
                        self.apply(&[Pending::announcement(link).into()]);
                    }
                    pending.announced(link);
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
                Effect::Commit(commit) if self.is_held_up(&commit.batch) => pending.held_up(),
                Effect::Commit(commit) => {
                    self.propose(commit, env);
                    break;
                }
                Effect::Finish(finish) => return self.answer(&attempt, finish, env),
            }
        }
        self.attempts.insert(token, attempt);
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
                let pfs = self.lower.borrow();
                let looked = match look {
                    PfsLook::List { dir, after } => {
                        Ok(Looked::List(Arc::new(pfs.list(&dir, after.as_deref()))))
                    }
                    PfsLook::Attr(path) => Ok(Looked::Attr(pfs.attr(&path))),
                    PfsLook::Link(path) => pfs.link_text(&path, &env.texts).map(Looked::Link),
                };
                attempt.pending.looked(looked);
            }
            Effect::Grant(granting) => {
                let outcome = self.open(attempt, &granting, keeper, env);
                attempt.pending.granted(outcome);
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

    fn step(&self, attempt: &mut Attempt, env: &Env) -> Option<Effect> {
        let pfs = self.lower.borrow();
        let hand = self.hand(self.bridge.as_ref()?, &pfs, env);
        // Nothing else happens between a step and the commit that it asks for.
        let settings = settings(self.stage_limit, self.removed_at_once);
        Some(attempt.pending.step(&settings, &hand, true))
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
                let thing = attr.and(pfs.get(path)).ok_or(libc::ENOENT)?;
                if truncates {
                    pfs.set_contents(path, 0);
                }
                (thing.ino, None)
            }
        };
        let was_open = attempt.opened.take();
        let counts = was_open.is_some_and(|(seen, _)| seen == identity);
        if let Some((_, Some(old))) = was_open {
            self.disk.close(old);
        }
        // A truncation counts only if the same file was open before. A new copy counts from its commit.
        if truncates {
            env.wrote(identity, 0, counts);
        }
        attempt.opened = Some((identity, fd));
        Ok(())
    }

    /// A name for a link. Never used twice for one object: the numbers of one life grow, and lives follow
    /// each other.
    fn new_link(&mut self, of: ObjectName) -> ObjectName {
        self.objects += 2;
        ObjectName {
            oid: of.oid,
            link: self.epoch << 16 | self.objects as u32,
        }
    }

    /// Makes a backing object, with its label, before any table names it. True if that takes time.
    fn make(
        &mut self,
        attempt: &mut Attempt,
        spec: &NewObject,
        link: Option<ObjectName>,
        env: &mut Env,
    ) -> bool {
        self.objects += 2;
        let number = self.objects + u64::from(spec.what == NewKind::Dir);
        let oid = ObjectId::new(self.id, self.epoch, number);
        let spare = match spec.what {
            NewKind::File => self.take_spare(&spec.label, env),
            _ => None,
        };
        if let Some(object) = spare {
            self.disk.reuse(object, spec.label.clone(), ino(oid));
            env.copies.remove(&object.oid);
            env.identities.insert(object.oid, ino(oid));
            let mut fresh = Fresh::new(object, ino(oid));
            fresh.is_doomed = true;
            attempt.pending.made(Ok(fresh));
            return false;
        }
        let object = link.unwrap_or(ObjectName { oid, link: 0 });
        let shown = match spec.what {
            NewKind::Marker => 0,
            _ => ino(oid),
        };
        let mut inode = link.is_none().then(|| Inode::new(shown, 0));
        if let NewKind::Symlink(text) = &spec.what {
            env.texts.insert(shown, text.clone());
            // It is never empty.
            inode = Some(Inode::new(shown, TEXT));
        }

        self.is_unnamed(object);
        attempt.making = Some(Making {
            object,
            what: spec.what.clone(),
        });
        let token = attempt.pending.request().token;
        let work = Work::Make(object, spec.label.clone(), inode);
        self.begin(work, Purpose::Make(token), env);
        true
    }

    /// The disk has made it, unless what it is to be like is gone.
    pub(super) fn made(&mut self, token: Token, number: u64, env: &mut Env) {
        let Some(attempt) = self.attempts.get_mut(&token) else {
            return self.disk.finish(number);
        };
        let Some(Making { object, what }) = attempt.making.take() else {
            return self.disk.finish(number);
        };
        self.ready.push_back(Waiter::Request(token));
        let is_gone = match &what {
            NewKind::LinkTo(of) => !self.disk.objects.contains_key(of),
            NewKind::Staged {
                lower,
                judged,
                bytes,
            } => {
                let pfs = self.lower.borrow();
                let attr = pfs.attr(lower).filter(|a| Judged::new(a) == *judged);
                let found = attr.and(pfs.get(lower).zip(pfs.contents(lower)));
                if let Some((thing, contents)) = found {
                    let contents = if *bytes == 0 { 0 } else { contents };
                    let mut inode = Inode::new(thing.ino, contents);
                    inode.mtime = pfs.attr(lower).map_or(0, |attr| attr.mtime.sec);
                    env.identities.insert(object.oid, thing.ino);
                    env.copies.insert(object.oid, Some(contents));
                    self.disk.amend(number, inode);
                }
                found.is_none()
            }
            _ => false,
        };
        if is_gone {
            self.disk.abandon(number);
            attempt.pending.made(Err(libc::ENOENT));
            self.settle(object);
            if object.link != 0 {
                // It was announced and is not made.
                self.apply(&[Change::Undoom(object)]);
            }
            return;
        }
        self.disk.finish(number);
        if matches!(what, NewKind::Staged { .. } | NewKind::Symlink(_)) {
            self.wrote_contents(object.oid);
        }
        let fresh = Fresh::new(object, self.disk.identity(object.oid));
        if let Some(attempt) = self.attempts.get_mut(&token) {
            attempt.pending.made(Ok(fresh));
        }
    }

    fn answer(&mut self, attempt: &Attempt, finish: Finish, env: &mut Env) {
        // A descriptor shows what the object is now: it may be a spare one that has become the very file that was asked for.
        let opened = attempt.opened.map(|(identity, fd)| {
            let now = fd.and_then(|fd| self.disk.of(fd));
            (now.map_or(identity, |oid| self.disk.identity(oid)), fd)
        });
        for fresh in finish.unused {
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
        self.leave(finish.turn);
        let outcome = match finish.outcome {
            Ok(answer) => outcome(answer, opened.map_or(0, |(identity, _)| identity)),
            Err(Failure::Errno(e)) => Outcome::Errno(e),
            Err(Failure::Redirect(_)) => Outcome::Outside,
            Err(other) => return env.broken(format!("policy ended in {other:?}")),
        };
        let fd = opened.and_then(|(_, fd)| fd);
        let fd = match (&outcome, fd) {
            (Outcome::Opened(_), Some(fd)) => {
                self.disk.pass(fd);
                Some(fd)
            }
            (_, Some(fd)) => {
                self.disk.close(fd);
                None
            }
            _ => None,
        };
        let (client, connection) = (attempt.client, attempt.connection);
        let delay = env.socket_us();
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
        Answer::Attr(attr) => Outcome::Seen(Thing::shown(attr.ino, attr.mode & libc::S_IFMT)),
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
