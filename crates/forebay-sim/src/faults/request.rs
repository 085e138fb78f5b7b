//! The driver of core's request machine: carries out its effects on a simulated disk and network.

use super::disk::Work;
use super::env::{Alarm, Env, Event};
use super::history::{Outcome, Thing, ino};
use super::look::{Hand, list};
use super::node::{Node, Purpose, Waiter};
use forebay_core::bridge::{Proposal, Verdict};
use forebay_core::facts::{Cred, Fresh, NewKind, NewObject, Settings};
use forebay_core::ops::{Answer, GrantTarget, Request};
use forebay_core::path::TreePath;
use forebay_core::record::{ObjectId, ObjectName, Token};
use forebay_core::request::{
    Caller, Commit, Effect, Entered, Failure, Finish, Granting, Looked, Pending, PfsLook,
};
use forebay_core::table::Change;
use std::sync::Arc;

/// A request that is not answered yet.
pub(super) struct Attempt {
    pub(super) pending: Pending,
    client: usize,
    connection: u32,
    /// What the disk is making for it.
    making: Option<Fresh>,
    /// It waits until a record has changed.
    pub(super) awaits: bool,
}

/// Settings of the simulated buffer.
pub(super) fn settings() -> Settings {
    Settings {
        root: b"/pfs".to_vec(),
        stage_limit_bytes: 0,
        bridge_uid: 0,
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
        while let Some(effect) = self.step(&mut attempt) {
            let pending = &mut attempt.pending;
            match effect {
                Effect::TakeTurn => env.broken("the turn was held already".to_owned()),
                Effect::Look(PfsLook::List { dir, after }) => {
                    let page = list(&self.lower, &dir, after.as_deref());
                    pending.looked(Ok(Looked::List(Arc::new(page))));
                }
                Effect::Look(look) => env.broken(format!("{look:?} was at hand")),
                Effect::WriteTimes => pending.times_written(),
                Effect::Grant(granting) => {
                    let outcome = self.open(&granting);
                    pending.granted(outcome);
                }
                Effect::Enter { path, leaves } => {
                    self.leave(leaves);
                    match self.turns.enter(&path, || token) {
                        Entered::Mine => pending.has_turn(path),
                        Entered::Waits => break,
                    }
                }
                Effect::Announce { of } => {
                    let link = self.new_link(of);
                    self.apply(&[Change::Doom {
                        object: link,
                        token: Token::default(),
                    }]);
                    pending.announced(link);
                }
                Effect::Make { spec, link, .. } => {
                    attempt.making = Some(self.make(token, *spec, link, env));
                    break;
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
                Effect::Commit(commit) => {
                    self.propose(commit, env);
                    break;
                }
                Effect::Finish(finish) => return self.answer(&attempt, finish, env),
            }
        }
        self.attempts.insert(token, attempt);
    }

    fn step(&self, attempt: &mut Attempt) -> Option<Effect> {
        let hand = Hand {
            bridge: self.bridge.as_ref()?,
            tables: &self.tables,
            lower: &self.lower,
            epoch: self.epoch,
            versions: &self.versions,
            commits: self.commits,
        };
        // Nothing else happens between a step and the commit that it asks for.
        Some(attempt.pending.step(&settings(), &hand, true))
    }

    fn propose(&mut self, commit: Commit, env: &mut Env) {
        let proposal = Proposal {
            ticket: self.ticket(Waiter::Request(commit.token)),
            reads: commit.reads,
            batch: commit.batch,
            token: commit.token,
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

    /// Opens an object of this bridge, if it is there. Those of other bridges would be opened by them.
    fn open(&self, granting: &Granting) -> Result<(), i32> {
        match &granting.target {
            GrantTarget::Object(object)
                if object.oid.bridge() == self.id && !self.disk.objects.contains_key(object) =>
            {
                Err(libc::ENOENT)
            }
            _ => Ok(()),
        }
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

    /// Makes a backing object, with its label, before any table names it.
    fn make(
        &mut self,
        token: Token,
        spec: NewObject,
        link: Option<ObjectName>,
        env: &mut Env,
    ) -> Fresh {
        let object = link.unwrap_or_else(|| {
            self.objects += 2;
            let is_dir = u64::from(spec.what == NewKind::Dir);
            let oid = ObjectId::new(self.id, self.epoch, self.objects + is_dir);
            ObjectName { oid, link: 0 }
        });
        self.begin(Work::Make(object, spec.label), Purpose::Make(token), env);
        Fresh::new(object, ino(object.oid))
    }

    /// The disk has made it.
    pub(super) fn made(&mut self, token: Token) {
        if let Some(attempt) = self.attempts.get_mut(&token)
            && let Some(fresh) = attempt.making.take()
        {
            attempt.pending.made(Ok(fresh));
            self.ready.push_back(Waiter::Request(token));
        }
    }

    fn answer(&mut self, attempt: &Attempt, finish: Finish, env: &mut Env) {
        for fresh in finish.unused {
            let purpose = if fresh.is_doomed {
                Purpose::Unlink(fresh.object)
            } else {
                Purpose::Dispose
            };
            self.begin(Work::Unlink(fresh.object), purpose, env);
        }
        self.leave(finish.turn);
        let outcome = match finish.outcome {
            Ok(answer) => self.outcome(answer),
            Err(Failure::Errno(e)) => Outcome::Errno(e),
            Err(other) => return env.broken(format!("policy ended in {other:?}")),
        };
        let (client, connection) = (attempt.client, attempt.connection);
        let delay = env.socket_us();
        env.after(
            delay,
            Event::Answer {
                client,
                connection,
                outcome,
            },
        );
    }

    /// An answer as a client sees it.
    fn outcome(&self, answer: Answer) -> Outcome {
        match answer {
            Answer::Done | Answer::Bytes(_) => Outcome::Done,
            Answer::Grant {
                target: GrantTarget::Object(object),
                ..
            } => Outcome::Opened(ino(object.oid)),
            Answer::Grant {
                target: GrantTarget::Lower(path),
                ..
            } => Outcome::Opened(self.lower.get(&path).map_or(0, |t| t.ino)),
            Answer::Attr(attr) => Outcome::Seen(Thing {
                ino: attr.ino,
                dir: attr.mode & libc::S_IFMT == libc::S_IFDIR,
            }),
            Answer::Entries { entries, .. } => {
                let named = entries.into_iter().filter(|e| e.name[0] != b'.');
                let listed = named.map(|e| {
                    let dir = e.dtype == libc::DT_DIR;
                    (e.name, Thing { ino: e.ino, dir })
                });
                Outcome::Listed(listed.collect())
            }
        }
    }
}
