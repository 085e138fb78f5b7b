//! Messages that wait until what they tell is durable.
//!
//! A loss of power takes a bridge back to its last sync point. Others would still know what it has told them since: a
//! promise, an outcome, a record. So no message leaves before everything is durable that was committed before it, and a bridge
//! that loses its power takes back only what nobody else has heard of. Questions tell nothing and wait for nothing.

use super::messages::{Message, Output};
use crate::record::BridgeId;
use std::collections::VecDeque;

/// The messages that wait.
#[derive(Debug)]
pub(super) struct Held {
    /// Commits so far. What was there when the bridge started counts as one: an earlier life may have left it unsynced.
    commits: u64,
    /// So many of them are durable.
    durable: u64,
    /// Each with the commits before it.
    waiting: VecDeque<(u64, BridgeId, Message)>,
}

impl Held {
    pub(super) fn new() -> Self {
        Held {
            commits: 1,
            durable: 0,
            waiting: VecDeque::new(),
        }
    }

    pub(super) fn commits(&self) -> u64 {
        self.commits
    }

    pub(super) fn committed(&mut self) {
        self.commits += 1;
    }

    pub(super) fn durable(&mut self, commits: u64) {
        self.durable = self.durable.max(commits);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// A message is to leave: gives it back if it may.
    pub(super) fn send(&mut self, to: BridgeId, message: Message) -> Option<Output> {
        if self.commits <= self.durable || message.body.is_question() {
            return Some(Output::Send { to, message });
        }
        self.waiting.push_back((self.commits, to, message));
        None
    }

    /// The next one that has waited long enough.
    pub(super) fn next(&mut self) -> Option<Output> {
        let (commits, ..) = self.waiting.front()?;
        if *commits > self.durable {
            return None;
        }
        let (_, to, message) = self.waiting.pop_front()?;
        Some(Output::Send { to, message })
    }
}
