//! What a workload has made durable, by the syncs that returned.

use crate::model::{How, Op, State, Sync};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// What a workload made durable, up to some progress.
pub struct Durable {
    /// Not before this moment may the names be.
    pub names: usize,
    /// For each node, which of its bytes are durable, and since when.
    pub bytes: BTreeMap<usize, Vec<(Range<usize>, usize)>>,
    /// Since when its attribute is.
    pub attributes: BTreeMap<usize, usize>,
    /// For each node whose name was made durable: it has one of the names that it has had from this moment on.
    pub names_since: BTreeMap<usize, usize>,
}

impl Durable {
    fn name(&mut self, node: usize, since: usize) {
        let known = self.names_since.entry(node).or_insert(since);
        *known = since.max(*known);
    }
}

/// The names of a node at a moment.
pub fn names_of(state: &State, node: usize) -> BTreeSet<&str> {
    state
        .names
        .iter()
        .filter(|(_, number)| **number == node)
        .map(|(name, _)| name.as_str())
        .collect()
}

fn is_in(name: &str, dir: &str) -> bool {
    name.rsplit_once('/').map_or(".", |(parent, _)| parent) == dir
}

fn entries<'a>(state: &'a State, dir: &str) -> BTreeMap<&'a str, usize> {
    let inside = state.names.iter().filter(|(name, _)| is_in(name, dir));
    inside.map(|(name, node)| (name.as_str(), *node)).collect()
}

/// The first moment from which on `same` holds up to `moment`.
fn since(moment: usize, same: impl Fn(usize) -> bool) -> usize {
    (0..moment)
        .rev()
        .take_while(|earlier| same(*earlier))
        .last()
        .unwrap_or(moment)
}

/// What was durable when so many operations had returned. `states` are those of [`crate::model::states`] for `ops`.
pub fn durable(ops: &[Op], states: &[State], acknowledged: usize) -> Durable {
    let mut found = Durable {
        names: 0,
        bytes: BTreeMap::new(),
        attributes: BTreeMap::new(),
        names_since: BTreeMap::new(),
    };
    for (index, op) in ops[..acknowledged].iter().enumerate() {
        // The moment after the operation.
        let moment = index + 1;
        let state = &states[moment];
        let all = 0..usize::MAX;
        let (path, is_full, bytes) = match op {
            Op::Sync | Op::Syncfs { .. } | Op::End => {
                found.names = found.names.max(moment);
                for node in 0..state.nodes.len() {
                    found.bytes.insert(node, vec![(0..usize::MAX, moment)]);
                    found.attributes.insert(node, moment);
                    found.name(node, moment);
                }
                continue;
            }
            Op::Fsync { path } => (path, true, all),
            Op::Fdatasync { path } => (path, false, all),
            Op::Put {
                path,
                sync: Sync::Fsync,
                ..
            } => (path, true, all),
            // O_SYNC is for what is written by it, not for what was there before.
            Op::Put {
                path,
                sync: Sync::Osync,
                how: How::Write | How::Direct,
                at,
                bytes,
                ..
            } => (path, false, *at..at + bytes),
            Op::Put {
                path,
                sync: Sync::Fdatasync | Sync::Osync | Sync::Msync,
                ..
            } => (path, false, all),
            _ => continue,
        };
        let node = state.names.get(path).copied();
        let is_dir = path == "." || node.is_some_and(|node| state.nodes[node].is_dir);
        if is_dir {
            // Every entry of it, and the directory itself under its name.
            let now = entries(state, path);
            found.names = found.names.max(since(moment, |earlier| {
                entries(&states[earlier], path) == now
            }));
            for (name, node) in now {
                let has_it = |earlier: usize| states[earlier].names.get(name) == Some(&node);
                found.name(node, since(moment, has_it));
            }
        }
        if let Some(node) = node {
            // After fsync a name that it has; without attributes (fdatasync) any that it ever had.
            let names = names_of(state, node);
            let had_one = |earlier: usize| {
                let then = names_of(&states[earlier], node);
                if is_full {
                    !then.is_disjoint(&names)
                } else {
                    !then.is_empty()
                }
            };
            let named = since(moment, had_one);
            found.names = found.names.max(named);
            found.name(node, named);
            found.bytes.entry(node).or_default().push((bytes, moment));
            if is_full {
                found.attributes.insert(node, moment);
            }
        }
    }
    found
}
