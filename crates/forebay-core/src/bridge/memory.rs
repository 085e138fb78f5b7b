//! Two small memories that survive crashes: removals of the recent past, and
//! versions of directories that have ended.

use super::persist::{ENDED, REMOVED, clear, encode_token, encode_versions, set};
use crate::path::TreePath;
use crate::record::Token;
use crate::table::Change;
use std::collections::{BTreeMap, HashSet, VecDeque};

/// Tokens of removals that a bridge remembers. A client has one request under
/// way per thread and repeats it at once after a lost connection, so this
/// covers some thousand threads.
pub const MAX_REMEMBERED_REMOVALS: usize = 4096;

/// Ended directories that a bridge remembers. Only a proposal that was decided
/// before the end and arrives after so many later ends could slip through.
pub const MAX_ENDED_DIRS: usize = 1 << 16;

/// The last removals, so that a repeated one is recognised although nothing is
/// left of what it removed.
#[derive(Debug, Default)]
pub(super) struct Removals {
    known: HashSet<Token>,
    ring: Vec<Token>,
    at: usize,
}

impl Removals {
    /// Notes a removal; the change makes it last.
    pub(super) fn note(&mut self, token: Token) -> Change {
        let slot = self.at;
        self.at = (slot + 1) % MAX_REMEMBERED_REMOVALS;
        self.put(slot, token);
        let mut key = REMOVED.to_vec();
        key.extend_from_slice(&(slot as u16).to_be_bytes());
        set(key, encode_token(token))
    }

    /// Takes up what an earlier life has left in a slot. After a restart the
    /// ring goes on in its first slot: the order within it is not worth a write.
    pub(super) fn restore(&mut self, slot: u16, token: Token) {
        self.put(usize::from(slot) % MAX_REMEMBERED_REMOVALS, token);
    }

    fn put(&mut self, slot: usize, token: Token) {
        if self.ring.len() <= slot {
            self.ring.resize(slot + 1, Token::default());
        }
        self.known.remove(&self.ring[slot]);
        self.ring[slot] = token;
        self.known.insert(token);
    }

    pub(super) fn contains(&self, token: Token) -> bool {
        self.known.contains(&token)
    }
}

/// Versions of directories that were removed or renamed. A create is checked
/// against it at the home of the new name, so that it need not ask the home of
/// every directory above: one round trip, and still nothing is ever made in a
/// directory that is gone.
#[derive(Debug, Default)]
pub(super) struct EndedDirs {
    dirs: BTreeMap<TreePath, Vec<Option<u64>>>,
    order: VecDeque<TreePath>,
}

impl EndedDirs {
    pub(super) fn contains(&self, path: &TreePath, version: Option<u64>) -> bool {
        self.dirs.get(path).is_some_and(|v| v.contains(&version))
    }

    /// Notes an end; the changes make it last.
    pub(super) fn note(&mut self, path: &TreePath, version: Option<u64>) -> Vec<Change> {
        let versions = self.dirs.entry(path.clone()).or_default();
        if versions.contains(&version) {
            return Vec::new();
        }
        versions.push(version);
        let mut changes = vec![set(key(path), encode_versions(versions))];
        self.order.push_back(path.clone());
        if self.order.len() > MAX_ENDED_DIRS
            && let Some(oldest) = self.order.pop_front()
        {
            let left = self.dirs.get_mut(&oldest).map(|v| {
                v.remove(0);
                encode_versions(v)
            });
            match left {
                Some(v) if !v.is_empty() => changes.push(set(key(&oldest), v)),
                _ => {
                    self.dirs.remove(&oldest);
                    changes.push(clear(key(&oldest)));
                }
            }
        }
        changes
    }

    pub(super) fn restore(&mut self, path: TreePath, versions: Vec<Option<u64>>) {
        self.order.extend(versions.iter().map(|_| path.clone()));
        self.dirs.insert(path, versions);
    }
}

fn key(path: &TreePath) -> Vec<u8> {
    [ENDED, path.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ring_forgets_the_oldest_removal_first() {
        let mut r = Removals::default();
        let token = |seq| Token { client: 1, seq };
        for seq in 0..=MAX_REMEMBERED_REMOVALS as u32 {
            r.note(token(seq));
        }
        assert!(!r.contains(token(0)));
        assert!(r.contains(token(1)));
        assert!(r.contains(token(MAX_REMEMBERED_REMOVALS as u32)));
    }

    #[test]
    fn ended_versions_are_bounded_and_the_oldest_goes_first() {
        let mut e = EndedDirs::default();
        let dir = TreePath::new(*b"d").unwrap();
        for v in 0..=MAX_ENDED_DIRS as u64 {
            e.note(&dir, Some(v));
        }
        assert!(!e.contains(&dir, Some(0)));
        assert!(e.contains(&dir, Some(1)));
    }
}
