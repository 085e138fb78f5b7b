//! Looking at records of other homes, and letting others look at ours.
//!
//! A reader waits while an undecided transaction holds the record: else it could
//! see a rename at its one end and not at the other.

use super::messages::{Body, Output, Ticket, Verdict};
use super::{
    Bridge, Item, MAX_FETCHES, MAX_WAITING_READERS, Mutation, RETRY_FIRST_US, Retry, digest,
};
use crate::path::TreePath;
use crate::record::{BridgeId, Record};
use crate::table::{TableError, Tables};
use std::collections::BTreeMap;

/// Who wants to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asker {
    /// The own driver.
    Driver(Ticket),
    /// The local part of a range fetch of the own driver.
    OwnRange(u64),
    /// Another bridge.
    Peer(BridgeId, u64),
}

/// A reader that waits for an undecided transaction.
#[derive(Debug)]
pub(super) struct Waiting {
    asker: Asker,
    path: TreePath,
    range: bool,
}

/// Answers to a range fetch, by bridge. `None` is still missing.
type Answers = BTreeMap<BridgeId, Option<Vec<(TreePath, Record)>>>;

/// A fetch under way.
#[derive(Debug)]
pub(super) struct Fetch {
    ticket: Ticket,
    path: TreePath,
    retry: Retry,
    /// For a range: what came so far.
    range: Option<Answers>,
}

impl Bridge {
    /// Would a look at the own record of `path` have to wait? Then use [`Bridge::fetch`].
    pub fn is_held(&self, path: &TreePath) -> bool {
        !self.locks.is_empty()
            && self.locks.holds(path)
            && !Mutation::ReadersIgnoreUndecided.is(self.mutation)
    }

    /// Would a look at the own records below `dir` have to wait? Then use [`Bridge::fetch_range`].
    pub fn is_held_below(&self, dir: &TreePath) -> bool {
        !self.locks.is_empty()
            && self.locks.holds_below(dir)
            && !Mutation::ReadersIgnoreUndecided.is(self.mutation)
    }

    /// The record at `path`, from its home: ends in [`Output::Record`], or in
    /// [`Output::Done`] with `EAGAIN` if too many are under way.
    pub fn fetch(&mut self, ticket: Ticket, path: TreePath, now: u64) {
        let home = self.membership.home(&path);
        if home == self.me() {
            self.look(Asker::Driver(ticket), path, false);
            return;
        }
        let Some(request) = self.begin_fetch(ticket, path.clone(), None, now) else {
            return;
        };
        self.send(home, Body::Fetch { request, path });
    }

    /// What the other bridges hold below `dir`: ends in [`Output::Range`], or in
    /// [`Output::Done`] with `EAGAIN` if too many are under way. Waits until
    /// nothing below `dir` is undecided here.
    pub fn fetch_range(&mut self, ticket: Ticket, dir: TreePath, now: u64) {
        let members = self.membership.members().iter();
        let missing = members.map(|b| (*b, None)).collect();
        let Some(request) = self.begin_fetch(ticket, dir.clone(), Some(missing), now) else {
            return;
        };
        let others: Vec<_> = self.membership.others().collect();
        for to in others {
            let dir = dir.clone();
            self.send(to, Body::FetchRange { request, dir });
        }
        self.look(Asker::OwnRange(request), dir, true);
    }

    fn begin_fetch(
        &mut self,
        ticket: Ticket,
        path: TreePath,
        range: Option<Answers>,
        now: u64,
    ) -> Option<u64> {
        if self.fetches.len() >= MAX_FETCHES {
            self.done(ticket, Verdict::Failed(libc::EAGAIN));
            return None;
        }
        let request = self.next_number();
        let fetch = Fetch {
            ticket,
            path,
            retry: Retry::after(now, RETRY_FIRST_US),
            range,
        };
        self.fetches.insert(request, fetch);
        Some(request)
    }

    /// Looks now or, if an undecided transaction is in the way, later.
    fn look(&mut self, asker: Asker, path: TreePath, range: bool) {
        let held = if range {
            self.is_held_below(&path)
        } else {
            self.is_held(&path)
        };
        if !held {
            self.out.push_back(if range {
                Item::ReadRange(asker, path)
            } else {
                Item::Read(asker, path)
            });
        } else if self
            .waiting
            .iter()
            .any(|w| w.asker == asker && w.path == path)
        {
            // A repetition of one that waits.
        } else if self.waiting.len() < MAX_WAITING_READERS {
            self.waiting.push_back(Waiting { asker, path, range });
        } else if let Asker::Driver(ticket) = asker {
            self.done(ticket, Verdict::Failed(libc::EAGAIN));
        }
        // Another bridge that found no room asks again.
    }

    /// Some locks are gone: lets those look again who waited.
    pub(super) fn wake(&mut self) {
        for w in std::mem::take(&mut self.waiting) {
            self.look(w.asker, w.path, w.range);
        }
    }

    pub(super) fn read(
        &mut self,
        asker: Asker,
        path: TreePath,
        tables: &dyn Tables,
    ) -> Result<Output, TableError> {
        let record = tables.get(&path)?;
        Ok(match asker {
            Asker::Driver(ticket) | Asker::OwnRange(ticket) => Output::Record {
                ticket,
                path,
                record,
            },
            Asker::Peer(to, request) => {
                self.send(to, Body::Fetched { request, record });
                self.last_pushed()
            }
        })
    }

    pub(super) fn read_range(
        &mut self,
        asker: Asker,
        dir: TreePath,
        tables: &dyn Tables,
    ) -> Result<Option<Output>, TableError> {
        match asker {
            Asker::Peer(to, request) => {
                let entries = tables.subtree(&dir)?;
                self.send(to, Body::FetchedRange { request, entries });
                Ok(Some(self.last_pushed()))
            }
            // The driver reads its own tables itself, when it decides; here it only waited.
            Asker::OwnRange(request) | Asker::Driver(request) => {
                Ok(self.range_answer(self.me(), request, Vec::new()))
            }
        }
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
            self.look(Asker::Peer(from, request), path, false);
        }
    }

    pub(super) fn on_fetch_range(&mut self, from: BridgeId, request: u64, dir: TreePath) {
        self.look(Asker::Peer(from, request), dir, true);
    }

    pub(super) fn on_fetched(&mut self, from: BridgeId, request: u64, record: Option<Record>) {
        let Some(f) = self.fetches.get(&request) else {
            // The answer to a repetition.
            return;
        };
        if f.range.is_some() || self.membership.home(&f.path) != from {
            return;
        }
        if let Some(f) = self.fetches.remove(&request) {
            self.push(Output::Record {
                ticket: f.ticket,
                path: f.path,
                record,
            });
        }
    }

    pub(super) fn on_fetched_range(
        &mut self,
        from: BridgeId,
        request: u64,
        entries: Vec<(TreePath, Record)>,
    ) {
        if let Some(out) = self.range_answer(from, request, entries) {
            self.push(out);
        }
    }

    fn range_answer(
        &mut self,
        from: BridgeId,
        request: u64,
        entries: Vec<(TreePath, Record)>,
    ) -> Option<Output> {
        let range = self.fetches.get_mut(&request)?.range.as_mut()?;
        range.get_mut(&from)?.get_or_insert(entries);
        if range.values().any(Option::is_none) {
            return None;
        }
        let me = self.me();
        let fetch = self.fetches.remove(&request)?;
        let mut seen = Vec::new();
        let mut all = Vec::new();
        for (bridge, entries) in fetch.range.unwrap_or_default() {
            let entries = entries.unwrap_or_default();
            if bridge != me {
                seen.push((bridge, digest(&entries)));
                all.extend(entries);
            }
        }
        all.sort_by(|a, b| a.0.cmp(&b.0));
        Some(Output::Range {
            ticket: fetch.ticket,
            dir: fetch.path,
            entries: all,
            seen,
        })
    }

    pub(super) fn tick_fetches(&mut self, now: u64) {
        let mut again = Vec::new();
        for (request, f) in &mut self.fetches {
            if !f.retry.due(now) {
                continue;
            }
            match &f.range {
                None => again.push((
                    self.membership.home(&f.path),
                    Body::Fetch {
                        request: *request,
                        path: f.path.clone(),
                    },
                )),
                Some(range) => {
                    for (bridge, _) in range.iter().filter(|(_, e)| e.is_none()) {
                        again.push((
                            *bridge,
                            Body::FetchRange {
                                request: *request,
                                dir: f.path.clone(),
                            },
                        ));
                    }
                }
            }
        }
        for (to, body) in again {
            // The own part of a range waits in `waiting`.
            if to != self.me() {
                self.send(to, body);
            }
        }
    }
}
