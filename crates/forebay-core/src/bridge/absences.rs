//! Which of the times without a record it is at a path: see [`super::Bridge::absence`].

use super::persist::{ABSENCE, ABSENCE_FLOOR, clear, set};
use crate::home::{hash_bytes, mix};
use crate::path::TreePath;
use crate::table::Change;
use std::collections::BTreeMap;

/// Paths whose absence is remembered. Beyond it the older half is forgotten, and all paths that are not remembered
/// become those of another time at once: decisions that are under way are made again. Only a decision that is
/// slower than so many releases could take one time for another.
pub const MAX_ABSENCES: usize = 1 << 16;

/// Numbers of absences. They grow, over all lives of a bridge.
#[derive(Debug, Default)]
pub(super) struct Absences {
    known: BTreeMap<TreePath, u64>,
    order: BTreeMap<u64, TreePath>,
    /// The number of all other paths.
    floor: u64,
}

impl Absences {
    pub(super) fn of(&self, path: &TreePath) -> u64 {
        self.known.get(path).copied().unwrap_or(self.floor)
    }

    /// A digest of the numbers of the names in a directory.
    pub(super) fn children(&self, dir: &TreePath) -> u64 {
        let children = self.known.iter().filter(|(p, _)| is_child(p, dir));
        children.fold(self.floor, |digest, (path, number)| {
            mix(digest, mix(hash_bytes(path.as_bytes()), *number))
        })
    }

    /// A digest of the numbers strictly below a directory.
    pub(super) fn below(&self, dir: &TreePath) -> u64 {
        let below = self
            .known
            .iter()
            .filter(|(p, _)| *p != dir && p.is_within(dir));
        below.fold(self.floor, |digest, (path, number)| {
            mix(digest, mix(hash_bytes(path.as_bytes()), *number))
        })
    }

    /// A drain has taken the record at this path away. `number` is greater than all before; the changes make it last.
    pub(super) fn note(&mut self, path: &TreePath, number: u64) -> Vec<Change> {
        self.restore(path.clone(), number);
        let mut changes = vec![set(key(path), number.to_le_bytes().to_vec())];
        if self.order.len() > MAX_ABSENCES {
            for _ in 0..MAX_ABSENCES / 2 {
                if let Some((number, oldest)) = self.order.pop_first() {
                    self.floor = number;
                    self.known.remove(&oldest);
                    changes.push(clear(key(&oldest)));
                }
            }
            let floor = self.floor.to_le_bytes().to_vec();
            changes.push(set(ABSENCE_FLOOR.to_vec(), floor));
        }
        changes
    }

    /// Takes up what an earlier life has noted.
    pub(super) fn restore(&mut self, path: TreePath, number: u64) {
        if let Some(old) = self.known.insert(path.clone(), number) {
            self.order.remove(&old);
        }
        self.order.insert(number, path);
    }

    pub(super) fn restore_floor(&mut self, floor: u64) {
        self.floor = floor;
    }
}

fn is_child(path: &TreePath, dir: &TreePath) -> bool {
    path.split().is_some_and(|(parent, _)| parent == *dir)
}

fn key(path: &TreePath) -> Vec<u8> {
    [ABSENCE, path.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(n: usize) -> TreePath {
        TreePath::new(format!("f{n}")).unwrap()
    }

    #[test]
    fn each_absence_of_a_path_is_another_one_also_after_it_was_forgotten() {
        let mut absences = Absences::default();
        assert_eq!(absences.of(&path(0)), 0);
        absences.note(&path(0), 1);
        let first = absences.of(&path(0));
        let mut kept = BTreeMap::new();
        for n in 1..=MAX_ABSENCES {
            for change in absences.note(&path(n), n as u64 + 1) {
                if let Change::Meta { key, value } = change {
                    match value {
                        Some(value) => kept.insert(key, value),
                        None => kept.remove(&key),
                    };
                }
            }
        }
        let forgotten = absences.of(&path(0));
        assert!(forgotten != first && forgotten != 0);
        assert_eq!(absences.of(&path(MAX_ABSENCES)), MAX_ABSENCES as u64 + 1);
        assert!(kept.len() <= MAX_ABSENCES / 2 + 2, "{}", kept.len());
        assert!(kept.contains_key(ABSENCE_FLOOR));
    }
}
