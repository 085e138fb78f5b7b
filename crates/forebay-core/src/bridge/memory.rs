//! Two small memories that survive crashes: requests of the recent past, and
//! incarnations of directories that have ended.

use super::persist::{CARRIED_OUT, clear, encode_carried_out, ended_key, set};
use crate::path::TreePath;
use crate::record::Token;
use crate::table::Change;
use std::collections::{BTreeMap, BTreeSet};

/// Requests that a bridge remembers to have carried out. A client has one request
/// under way per thread and repeats it at once after a lost connection, so this
/// covers some thousand threads.
pub const MAX_REMEMBERED_REQUESTS: usize = 1 << 14;

/// Ended directories that a bridge remembers. Only a proposal that was decided
/// before the end and arrives after so many later ends could slip through.
pub const MAX_ENDED_DIRS: usize = 1 << 16;

/// Requests that share one value in the tables. Writing their neighbours again costs less
/// than a key for each.
pub(super) const REQUESTS_PER_VALUE: usize = 16;

/// The last requests that changed something, so that a repeated one is recognised
/// although others have changed the same names since.
#[derive(Debug, Default)]
pub(super) struct CarriedOut {
    /// Tokens grow with the client and its count, so neighbours in time are neighbours here.
    known: BTreeSet<Token>,
    /// Each with its number in the order of all.
    ring: Vec<Option<(u64, Token)>>,
    /// How many were ever noted: where the ring goes on.
    count: u64,
}

impl CarriedOut {
    /// Notes a request; the change makes it last.
    pub(super) fn note(&mut self, token: Token) -> Change {
        let slot = self.restore(self.count, token);
        let group = slot / REQUESTS_PER_VALUE;
        let key = [CARRIED_OUT, &(group as u16).to_be_bytes()].concat();
        let from = group * REQUESTS_PER_VALUE;
        let to = self.ring.len().min(from + REQUESTS_PER_VALUE);
        set(
            key,
            encode_carried_out(self.ring[from..to].iter().flatten()),
        )
    }

    /// Takes up what an earlier life has noted; gives the slot.
    pub(super) fn restore(&mut self, number: u64, token: Token) -> usize {
        self.count = self.count.max(number + 1);
        let slot = (number % MAX_REMEMBERED_REQUESTS as u64) as usize;
        if self.ring.len() <= slot {
            self.ring.resize(slot + 1, None);
        }
        if let Some((_, oldest)) = self.ring[slot].replace((number, token)) {
            self.known.remove(&oldest);
        }
        self.known.insert(token);
        slot
    }

    pub(super) fn contains(&self, token: Token) -> bool {
        self.known.contains(&token)
    }
}

/// Incarnations of directories that were removed or renamed. A create is checked
/// against it at the home of the new name, so that it need not ask the home of
/// every directory above: one round trip, and still nothing is ever made in a
/// directory that is gone.
#[derive(Debug, Default)]
pub(super) struct EndedDirs {
    /// The ended incarnations of each directory.
    known: BTreeMap<TreePath, BTreeSet<u64>>,
    /// By the order of their ends, so that the oldest goes first, also after a restart.
    order: BTreeMap<u64, EndedDir>,
}

/// A directory in one of its incarnations.
type EndedDir = (TreePath, u64);

impl EndedDirs {
    pub(super) fn contains(&self, path: &TreePath, incarnation: u64) -> bool {
        let ended = self.known.get(path);
        ended.is_some_and(|incarnations| incarnations.contains(&incarnation))
    }

    /// Has any directory at this path ended?
    pub(super) fn has(&self, path: &TreePath) -> bool {
        self.known.contains_key(path)
    }

    /// Takes a directory up; false if it is known already.
    fn insert(&mut self, path: &TreePath, incarnation: u64) -> bool {
        match self.known.get_mut(path) {
            Some(incarnations) => incarnations.insert(incarnation),
            None => {
                let first = BTreeSet::from([incarnation]);
                self.known.insert(path.clone(), first).is_none()
            }
        }
    }

    fn forget(&mut self, (path, incarnation): &EndedDir) {
        if let Some(incarnations) = self.known.get_mut(path) {
            incarnations.remove(incarnation);
            if incarnations.is_empty() {
                self.known.remove(path);
            }
        }
    }

    /// Notes an end; the changes make it last.
    pub(super) fn note(&mut self, path: &TreePath, incarnation: u64) -> Vec<Change> {
        if !self.insert(path, incarnation) {
            return Vec::new();
        }
        let number = self.order.last_key_value().map_or(0, |(n, _)| n + 1);
        let mut changes = vec![set(
            ended_key(path, incarnation),
            number.to_le_bytes().to_vec(),
        )];
        self.order.insert(number, (path.clone(), incarnation));
        if self.order.len() > MAX_ENDED_DIRS
            && let Some((_, oldest)) = self.order.pop_first()
        {
            changes.push(clear(ended_key(&oldest.0, oldest.1)));
            self.forget(&oldest);
        }
        debug_assert!(self.order.len() <= MAX_ENDED_DIRS);
        changes
    }

    /// Takes up what an earlier life has noted.
    pub(super) fn restore(&mut self, path: TreePath, incarnation: u64, number: u64) {
        self.insert(&path, incarnation);
        self.order.insert(number, (path, incarnation));
    }
}

#[cfg(test)]
mod tests {
    use super::super::persist::decode_carried_out;
    use super::*;

    #[test]
    fn the_ring_forgets_the_oldest_request_first() {
        let mut r = CarriedOut::default();
        let token = |seq| Token { client: 1, seq };
        for seq in 0..=MAX_REMEMBERED_REQUESTS as u32 {
            r.note(token(seq));
        }
        assert!(!r.contains(token(0)));
        assert!(r.contains(token(1)));
        assert!(r.contains(token(MAX_REMEMBERED_REQUESTS as u32)));
    }

    #[test]
    fn after_a_restart_the_ring_goes_on_where_it_was() {
        let mut first = CarriedOut::default();
        let token = |seq| Token { client: 1, seq };
        first.note(token(0));
        let mut second = CarriedOut::default();
        second.restore(0, token(0));
        second.note(token(1));
        assert!(
            second.contains(token(0)),
            "the last one before the crash is repeated first"
        );
    }

    #[test]
    fn a_value_holds_the_requests_beside_it_and_those_of_the_last_lap() {
        let mut first = CarriedOut::default();
        let token = |seq| Token { client: 1, seq };
        let laps = MAX_REMEMBERED_REQUESTS as u32 + 3;
        let mut values = BTreeMap::new();
        for seq in 0..laps {
            let Change::Meta { key, value } = first.note(token(seq)) else {
                panic!("no value");
            };
            values.insert(key, value.unwrap());
        }
        assert_eq!(
            values.len(),
            MAX_REMEMBERED_REQUESTS / REQUESTS_PER_VALUE,
            "one value for many"
        );
        let mut second = CarriedOut::default();
        for value in values.values() {
            for (number, token) in decode_carried_out(value).unwrap() {
                second.restore(number, token);
            }
        }
        assert_eq!(second.count, first.count);
        assert!(!second.contains(token(2)), "written over");
        for seq in 3..laps {
            assert!(second.contains(token(seq)), "{seq}");
        }
    }

    #[test]
    fn ended_directories_are_bounded_and_the_oldest_goes_first() {
        let mut e = EndedDirs::default();
        let dir = TreePath::new(*b"d").unwrap();
        for v in 0..=MAX_ENDED_DIRS as u64 {
            e.note(&dir, v);
        }
        assert!(!e.contains(&dir, 0));
        assert!(e.contains(&dir, 1));
    }
}
