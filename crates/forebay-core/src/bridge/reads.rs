//! Looking at records of other homes, and letting others look at ours.
//!
//! A reader waits while an undecided transaction holds the record: else it could
//! see a rename at its one end and not at the other.

use super::fetched::{Fact, OthersBelow};
use super::messages::{Body, Output, Ticket, Verdict};
use super::{
    Bridge, Item, MAX_FETCHES, MAX_WAITING_READERS, Mutation, RECORDS_PER_MESSAGE, RETRY_FIRST_US,
    Retry, digest, digest_of_children, range_digest,
};
use crate::facts::{CHILDREN_PER_PAGE, Need};
use crate::home::mix;
use crate::path::TreePath;
use crate::record::{BridgeId, ObjectId, ObjectName, PathRecord};
use crate::speakers::{Lowers, SpeakersPage, SpeakersPart};
use crate::table::{TableError, Tables};
use std::collections::BTreeMap;

/// Who wants to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asker {
    /// The own driver, for a record.
    Driver(Ticket),
    /// The own part of a fetch of several records.
    Own(u64),
    /// Another bridge.
    Peer(BridgeId, u64),
}

/// What somebody wants to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Question {
    Record(TreePath),
    Children {
        dir: TreePath,
        after: Option<Vec<u8>>,
        limit: usize,
    },
    Below {
        dir: TreePath,
        after: Option<TreePath>,
    },
    Speakers {
        of: Lowers,
        before: Option<TreePath>,
        limit: usize,
    },
    Names(ObjectId),
}

impl Question {
    fn message(&self, request: u64) -> Body {
        match self.clone() {
            Question::Record(path) => Body::Fetch { request, path },
            Question::Children { dir, after, limit } => Body::FetchChildren {
                request,
                dir,
                after,
                limit,
            },
            Question::Below { dir, after } => Body::FetchBelow {
                request,
                dir,
                after,
            },
            Question::Speakers { of, before, limit } => Body::FetchSpeakers {
                request,
                of,
                before,
                limit,
            },
            Question::Names(object) => Body::FetchNames { request, object },
        }
    }
}

/// A reader that waits for an undecided transaction.
#[derive(Debug)]
pub(super) struct Waiting {
    asker: Asker,
    question: Question,
}

/// What one bridge has said so far.
#[derive(Debug, Default)]
struct Said {
    children: Vec<(Vec<u8>, PathRecord)>,
    below: Vec<(TreePath, PathRecord)>,
    /// Of the children, or of the first page below.
    absences: Option<u64>,
    speakers: SpeakersPart,
    names: Vec<(ObjectName, TreePath)>,
    is_whole: bool,
}

impl Said {
    /// Where the next page below a directory begins.
    fn reached(&self) -> Option<&TreePath> {
        self.below.last().map(|(path, _)| path)
    }
}

/// A fetch under way.
#[derive(Debug)]
pub(super) struct Fetch {
    ticket: Ticket,
    question: Question,
    retry: Retry,
    /// What came so far, for all bridges that are asked.
    said: BTreeMap<BridgeId, Said>,
}

impl Bridge {
    /// Would a look at the own record of `path` have to wait? Then use [`Bridge::fetch`].
    pub fn is_held(&self, path: &TreePath) -> bool {
        !self.locks.is_empty()
            && self.locks.holds(path)
            && !Mutation::ReadersIgnoreUndecided.is(self.mutation)
    }

    /// Would a look at the own records below `dir` have to wait? Then use [`Bridge::fetch`].
    pub fn is_held_below(&self, dir: &TreePath) -> bool {
        !self.locks.is_empty()
            && self.locks.holds_below(dir)
            && !Mutation::ReadersIgnoreUndecided.is(self.mutation)
    }

    /// Would a look at who of the own records speaks of these paths have to wait?
    fn is_held_of(&self, of: &Lowers) -> bool {
        !self.locks.is_empty() && self.locks.holds_speakers(of)
    }

    /// Asks other bridges for what is needed: ends in [`Output::Fetched`], or in [`Output::Done`] with `EAGAIN` if too
    /// many fetches are under way. What this bridge itself would say is waited for as well, until no undecided
    /// transaction is about to change it.
    ///
    /// # Panics
    /// If no bridge knows such a thing ([`super::is_of_others`]), or for more children than fit into a message.
    pub fn fetch(&mut self, ticket: Ticket, need: Need, now: u64) {
        let all = || self.membership.members().to_vec();
        let (question, of) = match need {
            Need::Record(path) => {
                let home = self.membership.home(&path);
                let question = Question::Record(path);
                if home == self.me() {
                    return self.look(Asker::Driver(ticket), question);
                }
                (question, vec![home])
            }
            Need::Children { dir, after, limit } => {
                assert!(
                    limit <= CHILDREN_PER_PAGE,
                    "{limit} children in one message"
                );
                (Question::Children { dir, after, limit }, all())
            }
            Need::Below(dir) => (Question::Below { dir, after: None }, all()),
            Need::Speakers { of, before, limit } => {
                let limit = limit.clamp(1, RECORDS_PER_MESSAGE);
                (Question::Speakers { of, before, limit }, all())
            }
            Need::Names(object) => {
                let question = Question::Names(object);
                if object.bridge() == self.me() {
                    return self.look(Asker::Driver(ticket), question);
                }
                (question, vec![object.bridge()])
            }
            need => panic!("no bridge knows {need:?}"),
        };
        self.begin_fetch(ticket, question, of, now);
    }

    fn begin_fetch(&mut self, ticket: Ticket, question: Question, of: Vec<BridgeId>, now: u64) {
        if self.fetches.len() >= MAX_FETCHES {
            self.done(ticket, Verdict::Failed(libc::EAGAIN));
            return;
        }
        let request = self.next_number();
        let fetch = Fetch {
            ticket,
            question: question.clone(),
            retry: Retry::after(now, RETRY_FIRST_US),
            said: of.iter().map(|b| (*b, Said::default())).collect(),
        };
        self.fetches.insert(request, fetch);
        let me = self.me();
        for to in of.iter().filter(|b| **b != me) {
            self.send(*to, question.message(request));
        }
        if of.contains(&me) {
            self.look(Asker::Own(request), question);
        }
    }

    /// Looks now or, if an undecided transaction is in the way, later.
    fn look(&mut self, asker: Asker, question: Question) {
        let held = match &question {
            Question::Record(path) => self.is_held(path),
            Question::Children { dir, .. } | Question::Below { dir, .. } => self.is_held_below(dir),
            Question::Speakers { of, .. } => self.is_held_of(of),
            Question::Names(object) => self.locks.holds_object(*object),
        };
        if !held {
            self.out.push_back(Item::Read(asker, question));
        } else if self
            .waiting
            .iter()
            .any(|w| w.asker == asker && w.question == question)
        {
            // A repetition of one that waits.
        } else if self.waiting.len() < MAX_WAITING_READERS {
            self.waiting.push_back(Waiting { asker, question });
        } else if let Asker::Driver(ticket) = asker {
            self.done(ticket, Verdict::Failed(libc::EAGAIN));
        }
        // Another bridge that found no room asks again, and so does this one by its own tick.
    }

    /// Some locks are gone: lets those look again who waited.
    pub(super) fn wake(&mut self) {
        for w in std::mem::take(&mut self.waiting) {
            self.look(w.asker, w.question);
        }
    }

    /// Reads the own tables for somebody.
    pub(super) fn read(
        &mut self,
        asker: Asker,
        question: Question,
        tables: &dyn Tables,
    ) -> Result<Option<Output>, TableError> {
        let (to, request) = match asker {
            Asker::Driver(ticket) => {
                let fact = match question {
                    Question::Record(path) => Fact::Record {
                        record: tables.get(&path)?,
                        absence: self.absence(&path),
                        path,
                    },
                    Question::Names(object) => Fact::Names {
                        names: self.names_of(object, tables)?,
                        object,
                    },
                    _ => unreachable!("the driver itself is asked for one record or object only"),
                };
                return Ok(Some(Output::Fetched { ticket, fact }));
            }
            Asker::Own(request) => {
                let me = self.me();
                // All who speak are told at one moment. The rest of its own tables the driver reads itself, when it
                // decides; here it only waited.
                let speakers = match &question {
                    Question::Speakers { of, before, limit } => {
                        self.speakers.part(of, before.as_ref(), *limit)
                    }
                    _ => SpeakersPart::default(),
                };
                return Ok(self.answered(me, request, |said| {
                    said.speakers = speakers;
                    said.is_whole = true;
                }));
            }
            Asker::Peer(to, request) => (to, request),
        };
        let body = match question {
            Question::Record(path) => Body::Fetched {
                request,
                record: tables.get(&path)?,
                absence: self.absence(&path),
            },
            Question::Children { dir, after, limit } => Body::FetchedChildren {
                request,
                children: tables.children(&dir, after.as_deref(), limit.min(CHILDREN_PER_PAGE))?,
                absences: self.absences.children(&dir),
            },
            Question::Below { dir, after } => {
                let entries = tables.page_below(&dir, after.as_ref(), RECORDS_PER_MESSAGE)?;
                Body::FetchedBelow {
                    request,
                    after,
                    ends: entries.len() < RECORDS_PER_MESSAGE,
                    entries,
                    absences: self.absences.below(&dir),
                }
            }
            Question::Speakers { of, before, limit } => {
                let limit = limit.min(RECORDS_PER_MESSAGE);
                let part = self.speakers.part(&of, before.as_ref(), limit);
                Body::FetchedSpeakers { request, part }
            }
            Question::Names(object) => Body::FetchedNames {
                request,
                names: self.names_of(object, tables)?,
            },
        };
        self.send(to, body);
        Ok(Some(self.last_pushed()))
    }

    /// What `send` has just queued, out of turn: it belongs to the item that is being polled.
    fn last_pushed(&mut self) -> Output {
        match self.out.pop_back() {
            Some(Item::Out(out)) => out,
            _ => unreachable!("send queues a message"),
        }
    }

    pub(super) fn on_fetch(&mut self, from: BridgeId, request: u64, path: TreePath) {
        if self.membership.is_home(&path) {
            self.look(Asker::Peer(from, request), Question::Record(path));
        }
    }

    pub(super) fn on_fetch_several(&mut self, from: BridgeId, request: u64, question: Question) {
        self.look(Asker::Peer(from, request), question);
    }

    pub(super) fn on_fetched(
        &mut self,
        from: BridgeId,
        request: u64,
        record: Option<PathRecord>,
        absence: u64,
    ) {
        let Some(f) = self.fetches.get(&request) else {
            // The answer to a repetition.
            return;
        };
        let Question::Record(path) = &f.question else {
            return;
        };
        if !f.said.contains_key(&from) {
            return;
        }
        let (ticket, path) = (f.ticket, path.clone());
        self.fetches.remove(&request);
        let fact = Fact::Record {
            path,
            record,
            absence,
        };
        self.push(Output::Fetched { ticket, fact });
    }

    pub(super) fn on_fetched_names(
        &mut self,
        from: BridgeId,
        request: u64,
        names: Vec<(ObjectName, TreePath)>,
    ) {
        let take = |said: &mut Said| {
            said.names = names;
            said.is_whole = true;
        };
        if let Some(out) = self.answered(from, request, take) {
            self.push(out);
        }
    }

    pub(super) fn on_fetched_speakers(&mut self, from: BridgeId, request: u64, told: SpeakersPart) {
        let take = |said: &mut Said| {
            said.speakers = told;
            said.is_whole = true;
        };
        if let Some(out) = self.answered(from, request, take) {
            self.push(out);
        }
    }

    pub(super) fn on_fetched_children(
        &mut self,
        from: BridgeId,
        request: u64,
        children: Vec<(Vec<u8>, PathRecord)>,
        absences: u64,
    ) {
        let whole = |said: &mut Said| {
            said.children = children;
            said.absences = Some(absences);
            said.is_whole = true;
        };
        if let Some(out) = self.answered(from, request, whole) {
            self.push(out);
        }
    }

    pub(super) fn on_fetched_below(
        &mut self,
        from: BridgeId,
        request: u64,
        after: Option<TreePath>,
        entries: Vec<(TreePath, PathRecord)>,
        ends: bool,
        absences: u64,
    ) {
        let Some(f) = self.fetches.get(&request) else {
            return;
        };
        let Some(said) = f.said.get(&from) else {
            return;
        };
        // A page that came before is the answer to a repetition.
        if said.is_whole || said.reached() != after.as_ref() || entries.is_empty() && !ends {
            return;
        }
        let out = self.answered(from, request, |said| {
            said.below.extend(entries);
            said.absences.get_or_insert(absences);
            said.is_whole = ends;
        });
        match out {
            Some(out) => self.push(out),
            None if !ends => self.ask_on(from, request),
            None => {}
        }
    }

    /// Asks a bridge for the next page.
    fn ask_on(&mut self, to: BridgeId, request: u64) {
        if let Some(f) = self.fetches.get(&request)
            && let Some(said) = f.said.get(&to)
        {
            let question = f.question_to(said);
            self.send(to, question.message(request));
        }
    }

    /// Takes what a bridge has said; all of it is there when all have.
    fn answered(
        &mut self,
        from: BridgeId,
        request: u64,
        take: impl FnOnce(&mut Said),
    ) -> Option<Output> {
        let me = self.me();
        let fetch = self.fetches.get_mut(&request)?;
        let said = fetch.said.get_mut(&from)?;
        if !said.is_whole {
            take(said);
        }
        if fetch.said.values().any(|said| !said.is_whole) {
            return None;
        }
        let fetch = self.fetches.remove(&request)?;
        let planted = self.mutation;
        let each = fetch.said.into_iter();
        let others = |(bridge, _): &(BridgeId, Said)| *bridge != me;
        let fact = match fetch.question {
            Question::Record(_) => return None,
            Question::Children { dir, after, limit } => {
                let (mut children, mut seen) = (Vec::new(), 0);
                for (_, said) in each.filter(others) {
                    let absences = said.absences.unwrap_or_default();
                    let heard = range_digest(digest_of_children(&said.children), absences);
                    seen = mix(seen, heard);
                    children.extend(said.children);
                }
                children.sort_by(|a, b| a.0.cmp(&b.0));
                // A name that moved between two homes meanwhile may be at both.
                children.dedup_by(|a, b| a.0 == b.0);
                children.truncate(limit);
                Fact::Children {
                    dir,
                    after,
                    children,
                    seen,
                }
            }
            Question::Below { dir, .. } => {
                let mut all = OthersBelow::default();
                for (bridge, said) in each.filter(others) {
                    let absences = said.absences.unwrap_or_default();
                    all.seen
                        .push((bridge, range_digest(digest(&said.below), absences)));
                    all.entries.extend(said.below);
                }
                all.entries.sort_by(|a, b| a.0.cmp(&b.0));
                Fact::Below { dir, others: all }
            }
            Question::Speakers { of, before, .. } => {
                let deaf = Mutation::SpeakersOfOthersAreNotHeard.is(planted);
                let told = each.filter(|from| !deaf || !others(from));
                let told = told.map(|(bridge, said)| (bridge, said.speakers));
                let page = SpeakersPage::merged(told);
                Fact::Speakers { of, before, page }
            }
            Question::Names(object) => Fact::Names {
                object,
                names: each.flat_map(|(_, said)| said.names).collect(),
            },
        };
        let ticket = fetch.ticket;
        Some(Output::Fetched { ticket, fact })
    }

    pub(super) fn tick_fetches(&mut self, now: u64) {
        let me = self.me();
        let mut again = Vec::new();
        for (request, f) in &mut self.fetches {
            if f.retry.due(now) {
                let missing = f.said.iter().filter(|(_, said)| !said.is_whole);
                again.extend(missing.map(|(b, said)| (*b, *request, f.question_to(said))));
            }
        }
        for (to, request, question) in again {
            if to == me {
                self.look(Asker::Own(request), question);
            } else {
                self.send(to, question.message(request));
            }
        }
    }
}

impl Fetch {
    /// What a bridge that has said so much is still to be asked.
    fn question_to(&self, said: &Said) -> Question {
        match &self.question {
            Question::Below { dir, .. } => Question::Below {
                dir: dir.clone(),
                after: said.reached().cloned(),
            },
            other => other.clone(),
        }
    }
}
