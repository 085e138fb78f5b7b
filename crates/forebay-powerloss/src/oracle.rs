//! What is right after a power loss.
//!
//! One program did one operation after the other. The *names* found must be those of one moment: not before what was made
//! durable, not after what was begun. The *bytes* of each file must each be as they were at some moment since the file was
//! last made durable.

use crate::model::{How, Op, State, Sync};
use crate::tree::Tree;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// In what way a recovery failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// The file system itself can't be mounted: the machine or the kernel is wrong, not what is tested.
    Unmountable,
    /// The recovery ended with an error.
    RecoveryFailed,
    /// A file that was made durable has no name any more.
    SyncedFileLost,
    /// Names that were made durable are those of an earlier moment.
    SyncedNamesLost,
    /// The names are those of no moment: not a suffix was lost, but something in between.
    NamesOfNoMoment,
    /// Bytes that were made durable are gone.
    SyncedBytesLost,
    /// An attribute that was made durable is gone.
    SyncedAttributeLost,
    /// A labelled object with something in it was deleted, and no other place has what was in it.
    ObjectDeleted,
    /// A second recovery changed something.
    NotSettled,
    /// `forebay fsck` finds something after the recovery.
    FsckFinds,
    /// What the program itself checks (a database) is wrong.
    ProgramFinds,
}

/// How far the workload was: operations that were acknowledged, and begun; with what was written before it all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// So many operations had returned.
    pub acknowledged: usize,
    /// So many had begun.
    pub begun: usize,
}

impl Progress {
    /// Reads it from what the workload said.
    pub fn of<'a>(said: impl Iterator<Item = &'a str>) -> Self {
        let mut progress = Progress::default();
        for text in said {
            let number = |word: &str| {
                text.strip_prefix(word)
                    .and_then(|number| number.trim().parse::<usize>().ok())
            };
            if let Some(number) = number("begin ") {
                progress.begun = progress.begun.max(number + 1);
            }
            if let Some(number) = number("ack ") {
                progress.acknowledged = progress.acknowledged.max(number + 1);
            }
        }
        progress.begun = progress.begun.max(progress.acknowledged);
        progress
    }
}

/// What a workload made durable, up to some progress.
struct Durable {
    /// Not before this moment may the names be.
    names: usize,
    /// For each node, which of its bytes are durable, and since when.
    bytes: BTreeMap<usize, Vec<(Range<usize>, usize)>>,
    /// Since when its attribute is.
    attributes: BTreeMap<usize, usize>,
}

fn names_of(state: &State, node: usize) -> BTreeSet<&str> {
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

fn durable(ops: &[Op], states: &[State], acknowledged: usize) -> Durable {
    let mut found = Durable {
        names: 0,
        bytes: BTreeMap::new(),
        attributes: BTreeMap::new(),
    };
    for (index, op) in ops[..acknowledged].iter().enumerate() {
        // The moment after the operation.
        let moment = index + 1;
        let state = &states[moment];
        let all = 0..usize::MAX;
        let (path, is_full, bytes) = match op {
            Op::Sync | Op::End => {
                found.names = found.names.max(moment);
                for node in 0..state.nodes.len() {
                    found.bytes.insert(node, vec![(0..usize::MAX, moment)]);
                    found.attributes.insert(node, moment);
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
                sync: Sync::Fdatasync | Sync::Osync,
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
            found.names = found.names.max(since(moment, had_one));
            found.bytes.entry(node).or_default().push((bytes, moment));
            if is_full {
                found.attributes.insert(node, moment);
            }
        }
    }
    found
}

/// Are these the names of that moment, files with several names included?
fn same_names(state: &State, tree: &Tree) -> bool {
    let mut inodes = BTreeMap::new();
    state.names.len() == tree.len()
        && state
            .names
            .iter()
            .zip(tree)
            .all(|((name, node), (found, entry))| {
                let is_alike = name == found && state.nodes[*node].is_dir == entry.node.is_dir;
                is_alike && *inodes.entry(*node).or_insert(entry.inode) == entry.inode
            })
        && inodes.values().collect::<BTreeSet<_>>().len() == inodes.len()
}

/// Is each byte as it was at some moment since it was made durable, up to `begun`?
fn bytes_fit(
    states: &[State],
    durable: &[(Range<usize>, usize)],
    begun: usize,
    node: usize,
    found: &[u8],
) -> bool {
    // Before it was made it was empty, as it is for a moment after.
    let versions = |from: usize| {
        states[from..=begun]
            .iter()
            .map(move |state| state.nodes.get(node).map_or(&[][..], |node| &node.bytes))
    };
    let shortest = |from: usize| versions(from).map(<[u8]>::len).min().unwrap_or(0);
    let longest = |from: usize| versions(from).map(<[u8]>::len).max().unwrap_or(0);
    let last = durable
        .iter()
        .filter(|(range, _)| range.end == usize::MAX)
        .map(|(_, moment)| *moment)
        .max()
        .unwrap_or(0);
    // A part that is durable makes the file at least so long, unless it was cut since.
    let parts = durable
        .iter()
        .map(|(range, moment)| range.end.min(shortest(*moment)));
    let least = parts.max().unwrap_or(0).max(shortest(last));
    if !(least..=longest(last)).contains(&found.len()) {
        return false;
    }
    // Between two borders all bytes are durable since the same moment.
    let mut borders: BTreeSet<usize> = durable
        .iter()
        .flat_map(|(range, _)| [range.start, range.end])
        .collect();
    borders.extend([0, found.len()]);
    let borders: Vec<usize> = borders
        .into_iter()
        .filter(|at| *at <= found.len())
        .collect();
    borders.windows(2).all(|pair| {
        let covers = |range: &Range<usize>| range.start <= pair[0] && pair[1] <= range.end;
        let from = durable
            .iter()
            .filter(|(range, _)| covers(range))
            .map(|(_, moment)| *moment)
            .max()
            .unwrap_or(0);
        let shortest = shortest(from);
        (pair[0]..pair[1]).all(|at| {
            // What a file had, or gets, beyond another size may be zeros.
            (at >= shortest && found[at] == 0)
                || versions(from).any(|bytes| bytes.get(at) == Some(&found[at]))
        })
    })
}

/// Judges a tree. `states` are those of [`crate::model::states`] for `ops`.
pub fn judge(
    ops: &[Op],
    states: &[State],
    progress: Progress,
    tree: &Tree,
) -> Vec<(Fault, String)> {
    let (acknowledged, begun) = (
        progress.acknowledged.min(ops.len()),
        progress.begun.min(ops.len()),
    );
    let durable = durable(ops, states, acknowledged);
    let mut faults = Vec::new();
    let fits = |moment: &usize| same_names(&states[*moment], tree);
    let moments: Vec<usize> = (durable.names..=begun).filter(fits).collect();
    if moments.is_empty() {
        faults.extend(lost(states, &durable, begun, tree));
    }
    // If several moments have the same names the bytes have to fit one of them. Nodes are the same in all.
    let mut wrong = Vec::new();
    for moment in &moments {
        let now = wrong_contents(states, &durable, *moment, begun, tree);
        if now.is_empty() {
            return faults;
        }
        wrong = now;
    }
    faults.extend(wrong);
    faults
}

fn wrong_contents(
    states: &[State],
    durable: &Durable,
    moment: usize,
    begun: usize,
    tree: &Tree,
) -> Vec<(Fault, String)> {
    let mut wrong = Vec::new();
    for (name, node) in &states[moment].names {
        let found = &tree[name].node;
        let of_node = durable.bytes.get(node).map_or(&[][..], Vec::as_slice);
        if !bytes_fit(states, of_node, begun, *node, &found.bytes) {
            wrong.push((
                Fault::SyncedBytesLost,
                format!("{name}: {}", describe(&found.bytes)),
            ));
        }
        let from = durable.attributes.get(node).copied().unwrap_or(0);
        let mut allowed = states[from..=begun]
            .iter()
            .map(|state| state.nodes.get(*node).and_then(|node| node.attribute));
        if !allowed.any(|attribute| attribute == found.attribute) {
            wrong.push((
                Fault::SyncedAttributeLost,
                format!("{name}: {:?}", found.attribute),
            ));
        }
    }
    wrong
}

fn lost(states: &[State], durable: &Durable, begun: usize, tree: &Tree) -> Option<(Fault, String)> {
    // A file that was made durable, has a name at every moment since, and has none now.
    for (node, ranges) in &durable.bytes {
        let from = &ranges.iter().map(|(_, moment)| *moment).max().unwrap_or(0);
        let since = &states[*from..=begun];
        let always = since
            .iter()
            .all(|state| state.names.values().any(|number| number == node));
        let mut names = since.iter().flat_map(|state| names_of(state, *node));
        if always
            && !states[*from].nodes[*node].is_dir
            && !names.any(|name| tree.contains_key(name))
        {
            let name = names_of(&states[*from], *node)
                .into_iter()
                .collect::<Vec<_>>()
                .join(", ");
            return Some((
                Fault::SyncedFileLost,
                format!("{name}; there is: {}", list(tree)),
            ));
        }
    }
    let earlier = (0..durable.names)
        .rev()
        .find(|moment| same_names(&states[*moment], tree));
    Some(match earlier {
        Some(moment) => (
            Fault::SyncedNamesLost,
            format!(
                "names are those after {moment} operations, {} are durable; there is: {}",
                durable.names,
                list(tree)
            ),
        ),
        None => (Fault::NamesOfNoMoment, format!("there is: {}", list(tree))),
    })
}

fn list(tree: &Tree) -> String {
    const SHOWN: usize = 12;
    let mut names: Vec<&str> = tree.keys().take(SHOWN).map(String::as_str).collect();
    if tree.len() > SHOWN {
        names.push("...");
    }
    format!("[{}] ({})", names.join(" "), tree.len())
}

fn describe(bytes: &[u8]) -> String {
    let start = String::from_utf8_lossy(&bytes[..bytes.len().min(18)])
        .replace('\n', " ")
        .replace('\0', "0");
    format!("{} bytes, {start:?}", bytes.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{How, Node, states};
    use crate::tree::Entry;

    fn put(path: &str, tag: u32, sync: Sync) -> Op {
        Op::Put {
            path: path.into(),
            at: 0,
            bytes: 9,
            tag,
            how: How::Write,
            sync,
        }
    }

    fn rename(from: &str, to: &str) -> Op {
        Op::Rename {
            from: from.into(),
            to: to.into(),
        }
    }

    fn tree(files: &[(&str, &str)]) -> Tree {
        let entry = |(index, (name, text)): (usize, &(&str, &str))| {
            let node = Node {
                bytes: text.as_bytes().to_vec(),
                ..Node::default()
            };
            (
                name.to_string(),
                Entry {
                    node,
                    inode: index as u64,
                },
            )
        };
        files.iter().enumerate().map(entry).collect()
    }

    fn faults(ops: &[Op], acknowledged: usize, found: &[(&str, &str)]) -> Vec<Fault> {
        let progress = Progress {
            acknowledged,
            begun: ops.len(),
        };
        let found = judge(ops, &states(ops).unwrap(), progress, &tree(found));
        found.into_iter().map(|(fault, _)| fault).collect()
    }

    #[test]
    fn an_atomic_replace_shows_the_old_or_the_new_and_after_fsync_the_new() {
        let dir = Op::Fsync { path: ".".into() };
        let ops = [
            put("f", 1, Sync::Fsync),
            dir.clone(),
            put("n", 2, Sync::Fsync),
            rename("n", "f"),
            dir,
        ];
        let (old, new) = ("00000001\n", "00000002\n");
        assert_eq!(faults(&ops, 4, &[("f", old), ("n", new)]), []);
        assert_eq!(faults(&ops, 4, &[("f", new)]), []);
        assert_eq!(faults(&ops, 4, &[("f", "")]), [Fault::SyncedBytesLost]);
        assert_eq!(faults(&ops, 4, &[]), [Fault::SyncedFileLost]);
        assert_eq!(
            faults(&ops, 5, &[("f", old), ("n", new)]),
            [Fault::SyncedNamesLost]
        );
        assert_eq!(faults(&ops, 5, &[("f", new)]), []);
    }

    #[test]
    fn what_nobody_synced_may_be_lost_but_in_order() {
        let ops = [put("a", 1, Sync::None), put("b", 2, Sync::None)];
        assert_eq!(faults(&ops, 2, &[]), []);
        assert_eq!(faults(&ops, 2, &[("a", "")]), []);
        assert_eq!(faults(&ops, 2, &[("a", "0000")]), []);
        assert_eq!(
            faults(&ops, 2, &[("b", "00000002\n")]),
            [Fault::NamesOfNoMoment]
        );
        assert_eq!(
            faults(&ops, 2, &[("a", "00000002\n")]),
            [Fault::SyncedBytesLost]
        );
    }

    #[test]
    fn a_removed_name_that_comes_back_after_fsync_is_found() {
        let ops = [
            put("a", 1, Sync::Fsync),
            Op::Unlink { path: "a".into() },
            Op::Fsync { path: ".".into() },
        ];
        assert_eq!(
            faults(&ops, 3, &[("a", "00000001\n")]),
            [Fault::SyncedNamesLost]
        );
        assert_eq!(faults(&ops, 2, &[("a", "00000001\n")]), []);
    }

    #[test]
    fn o_sync_is_for_what_it_wrote() {
        let wide = Op::Put {
            path: "f".into(),
            at: 0,
            bytes: 18,
            tag: 1,
            how: How::Write,
            sync: Sync::None,
        };
        let ops = [wide, put("f", 2, Sync::Osync)];
        assert_eq!(faults(&ops, 2, &[("f", "00000002\n00000001\n")]), []);
        assert_eq!(
            faults(&ops, 2, &[("f", "00000002\n\0\0\0\0\0\0\0\0\0")]),
            []
        );
        assert_eq!(
            faults(&ops, 2, &[("f", "00000001\n00000001\n")]),
            [Fault::SyncedBytesLost]
        );
    }

    #[test]
    fn progress_is_read_from_what_was_said() {
        let said = ["begin 0", "ack 0", "begin 1"];
        assert_eq!(
            Progress::of(said.into_iter()),
            Progress {
                acknowledged: 1,
                begun: 2
            }
        );
    }
}
