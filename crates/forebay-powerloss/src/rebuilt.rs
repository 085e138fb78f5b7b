//! What is right after a power loss and a rebuild of the tables from the labels.
//!
//! Labels are not of one moment, so the names need not be. But what was synced is there: each file under one of the names
//! that it may have, or withheld and named.

use crate::durable::{durable, names_of};
use crate::model::{Op, State};
use crate::oracle::{Fault, Progress, bytes_fit, describe, list};
use crate::tree::Tree;
use std::collections::BTreeSet;

/// Says whether something is withheld and named that has one of these names, or contents that fit.
pub type Withheld<'a> = dyn Fn(&BTreeSet<&str>, &dyn Fn(&[u8]) -> bool) -> bool + 'a;

/// Judges a tree. `states` are those of [`crate::model::states`] for `ops`.
pub fn judge(
    ops: &[Op],
    states: &[State],
    progress: &Progress,
    tree: &Tree,
    withheld: &Withheld<'_>,
) -> Vec<(Fault, String)> {
    let begun = progress.begun.min(ops.len());
    let durable = durable(ops, states, progress.acknowledged.min(ops.len()));
    let mut faults = Vec::new();
    for (node, since) in &durable.names_since {
        let moments = &states[*since..=begun];
        let is_file = |state: &State| state.nodes.get(*node).is_some_and(|node| !node.is_dir);
        let has_name = |state: &State| state.names.values().any(|number| number == node);
        // A file that was removed meanwhile may be gone.
        if !moments
            .iter()
            .all(|state| is_file(state) && has_name(state))
        {
            continue;
        }
        let of_node = durable.bytes.get(node).map_or(&[][..], Vec::as_slice);
        let fits = |bytes: &[u8]| bytes_fit(states, of_node, begun, *node, bytes);
        let names: BTreeSet<&str> = moments
            .iter()
            .flat_map(|state| names_of(state, *node))
            .collect();
        let found: Vec<_> = names.iter().filter_map(|name| tree.get(*name)).collect();
        if found.iter().any(|entry| fits(&entry.node.bytes)) || withheld(&names, &fits) {
            continue;
        }
        let mut all = states[..=begun]
            .iter()
            .flat_map(|state| names_of(state, *node));
        let fault = match found.first() {
            // Another file may be there, if it has had the name, too.
            Some(_) if all.any(|name| !names.contains(name) && tree.contains_key(name)) => {
                Fault::SyncedNamesLost
            }
            Some(_) => Fault::SyncedBytesLost,
            None if all.any(|name| tree.contains_key(name)) => Fault::SyncedNamesLost,
            None => Fault::SyncedFileLost,
        };
        let seen = found
            .first()
            .map_or_else(|| list(tree), |entry| describe(&entry.node.bytes));
        let names: Vec<&str> = names.into_iter().collect();
        faults.push((fault, format!("{}: {seen}", names.join(", "))));
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{How, Node, Sync, states};
    use crate::tree::Entry;

    fn faults(acknowledged: usize, found: &[(&str, &str)], is_withheld: bool) -> Vec<Fault> {
        let ops = [
            Op::Put {
                path: "n".into(),
                at: 0,
                bytes: 9,
                tag: 1,
                how: How::Write,
                sync: Sync::Fsync,
            },
            Op::Rename {
                from: "n".into(),
                to: "f".into(),
            },
            Op::Fsync { path: ".".into() },
        ];
        let entry = |(name, text): &(&str, &str)| {
            let node = Node {
                bytes: text.as_bytes().to_vec(),
                ..Node::default()
            };
            (name.to_string(), Entry { node, inode: 1 })
        };
        let tree: Tree = found.iter().map(entry).collect();
        let progress = Progress {
            acknowledged,
            begun: acknowledged,
            ..Progress::default()
        };
        let found = judge(
            &ops,
            &states(&ops).unwrap(),
            &progress,
            &tree,
            &|names, fits| is_withheld && names.contains("f") && fits(b"00000001\n"),
        );
        found.into_iter().map(|(fault, _)| fault).collect()
    }

    #[test]
    fn a_synced_file_has_its_name_or_is_withheld() {
        let text = "00000001\n";
        assert_eq!(faults(2, &[("n", text)], false), []);
        assert_eq!(faults(2, &[("f", text)], false), []);
        assert_eq!(faults(3, &[("f", text), ("g", "")], false), []);
        assert_eq!(faults(3, &[("n", text)], false), [Fault::SyncedNamesLost]);
        assert_eq!(faults(3, &[("f", "")], false), [Fault::SyncedBytesLost]);
        assert_eq!(faults(3, &[], false), [Fault::SyncedFileLost]);
        assert_eq!(faults(3, &[], true), []);
    }
}
