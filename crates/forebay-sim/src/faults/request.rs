//! One request at its bridge: decide, obtain what is needed, decide again, propose, answer.

use super::disk::Work;
use super::env::{Alarm, Env, Event};
use super::history::{Outcome, Thing, ino};
use super::look::{Look, View};
use super::node::{Node, Purpose, Waiter};
use forebay_core::bridge::{Proposal, ReadSet};
use forebay_core::facts::{Cred, Fresh, Need, NewKind, NewObject, Settings, Stop};
use forebay_core::ops::{Answer, GrantTarget, Request, decide};
use forebay_core::record::{ObjectId, ObjectName, Token};
use forebay_core::table::Change;
use std::cell::{Cell, RefCell};

/// A request that is not answered yet.
pub(super) struct Attempt {
    request: Request,
    client: usize,
    connection: u32,
    pub(super) view: View,
    /// What the first of two looks has seen.
    first_look: Option<ReadSet>,
    fresh: Vec<(NewObject, Fresh)>,
    /// What the client gets once the transaction has committed.
    answer: Outcome,
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
                let attempt = Attempt {
                    request,
                    client,
                    connection,
                    view: View::default(),
                    first_look: None,
                    fresh: Vec::new(),
                    answer: Outcome::Done,
                };
                self.attempts.insert(token, attempt);
                self.ready.push_back(Waiter::Request(token));
            }
        }
        self.run(env);
    }

    pub(super) fn go_on(&mut self, token: Token, env: &mut Env) {
        let Some(bridge) = &self.bridge else {
            return;
        };
        let Some(mut attempt) = self.attempts.remove(&token) else {
            return;
        };
        if bridge.is_undecided(token) {
            // An earlier life has begun it, and it will be known what became of it.
            self.attempts.insert(token, attempt);
            self.alarm(2_000, Alarm::Again(token), env);
            return;
        }
        let look = Look {
            bridge,
            tables: &self.tables,
            view: &attempt.view,
            lower: &self.lower,
            fresh: &attempt.fresh,
            epoch: self.epoch,
            versions: &self.versions,
            reads: RefCell::default(),
            listed: Cell::default(),
        };
        let settings = Settings {
            root: b"/pfs".to_vec(),
            stage_limit_bytes: 0,
        };
        let decided = decide(&attempt.request, &Cred::default(), &settings, &look);
        let several = look.rests_on_several();
        let reads = look.reads.into_inner();
        let changes = match &decided {
            Ok(decision) => !decision.batch.is_empty(),
            Err(stop) => !matches!(stop, Stop::Errno(_)),
        };
        if several && !changes && attempt.first_look.as_ref() != Some(&reads) {
            // If a second look sees the very same, then all of it was there at once.
            attempt.first_look = Some(reads);
            attempt.view = View::default();
            self.attempts.insert(token, attempt);
            self.ready.push_back(Waiter::Request(token));
            return;
        }
        match decided {
            // An answer from memory relies on nothing.
            Ok(decision)
                if decision.batch.is_empty()
                    && (reads.records.is_empty() || !attempt.request.op.compares()) =>
            {
                let outcome = self.outcome(decision.answer);
                self.answer(attempt, outcome, &[], env);
            }
            Ok(decision) => {
                attempt.answer = self.outcome(decision.answer);
                self.attempts.insert(token, attempt);
                let proposal = Proposal {
                    ticket: self.ticket(Waiter::Request(token)),
                    reads,
                    batch: decision.batch,
                    token,
                };
                self.propose(proposal, env);
            }
            Err(Stop::Need(Need::Object(spec))) => {
                self.make(&mut attempt, *spec, env);
                self.attempts.insert(token, attempt);
            }
            Err(Stop::Need(need)) => {
                self.attempts.insert(token, attempt);
                self.fetch(Waiter::Request(token), need, env);
            }
            Err(Stop::Errno(e)) => self.answer(attempt, Outcome::Errno(e), &[], env),
            Err(other) => env.broken(format!("policy ended in {other:?}")),
        }
    }

    fn propose(&mut self, proposal: Proposal, env: &mut Env) {
        let used = proposal.batch.iter().filter_map(|c| match c {
            Change::Put { record, .. } => Some(record.object),
            _ => None,
        });
        let used: Vec<_> = used.collect();
        if let Some(attempt) = self.attempts.get_mut(&proposal.token) {
            // What this decision has no use for goes at once: a crash finds it anyway.
            let (keep, unused) = std::mem::take(&mut attempt.fresh)
                .into_iter()
                .partition(|(_, f)| used.contains(&f.object));
            attempt.fresh = keep;
            self.dispose(unused, env);
        }
        if let Some(bridge) = &mut self.bridge
            && let Err(e) = bridge.propose(proposal, &self.tables, env.now)
        {
            env.broken(e.to_string());
        }
    }

    /// Makes a backing object, with its label, before any table names it.
    fn make(&mut self, attempt: &mut Attempt, spec: NewObject, env: &mut Env) {
        self.objects += 2;
        let is_dir = u64::from(spec.what == NewKind::Dir);
        let oid = ObjectId::new(self.id, self.epoch, self.objects + is_dir);
        let object = match spec.what {
            // Never used twice for one object: the numbers of one life grow, and lives follow each other.
            NewKind::LinkTo(of) => ObjectName {
                oid: of.oid,
                link: self.epoch << 16 | self.objects as u32,
            },
            _ => ObjectName { oid, link: 0 },
        };
        let work = Work::Make(object, spec.label.clone());
        let fresh = Fresh {
            object,
            ino: ino(object.oid),
        };
        attempt.fresh.push((spec, fresh));
        self.begin(work, Purpose::Make(attempt.request.token), env);
    }

    fn dispose(&mut self, unused: Vec<(NewObject, Fresh)>, env: &mut Env) {
        for (_, fresh) in unused {
            self.begin(Work::Unlink(fresh.object), Purpose::Dispose, env);
        }
    }

    pub(super) fn committed(&mut self, token: Token, env: &mut Env) {
        if let Some(attempt) = self.attempts.remove(&token) {
            let outcome = attempt.answer.clone();
            let used: Vec<_> = attempt.fresh.iter().map(|(_, f)| f.object).collect();
            self.answer(attempt, outcome, &used, env);
        }
    }

    fn answer(
        &mut self,
        mut attempt: Attempt,
        outcome: Outcome,
        used: &[ObjectName],
        env: &mut Env,
    ) {
        attempt.fresh.retain(|(_, f)| !used.contains(&f.object));
        self.dispose(attempt.fresh, env);
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
