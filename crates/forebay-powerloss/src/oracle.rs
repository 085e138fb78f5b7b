//! What is right after a power loss.
//!
//! One program did one operation after the other. The *names* found must be those of one moment: not before what was made
//! durable, not after what was begun. The *bytes* of each file must each be as they were at some moment since the file was
//! last made durable.

use crate::durable::{Durable, durable, names_of};
use crate::log::START;
use crate::model::{Op, State};
use crate::tree::Tree;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

/// Names older than this survive without any sync. The promise is one second; the rest is for a machine with other work, on
/// which the thread that makes names durable may be late, and its flush takes time.
pub const NAMES_LIMIT: Duration = Duration::from_secs(2);
/// Word by which a recovery says that all is on the PFS; the hash of its tree follows.
pub const DRAINED: &str = "drained";

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
    /// Names that nobody made durable are those of a moment that is longer ago than [`NAMES_LIMIT`].
    NamesTooOld,
    /// The names are those of no moment: not a suffix was lost, but something in between.
    NamesOfNoMoment,
    /// Bytes that were made durable are gone.
    SyncedBytesLost,
    /// An attribute that was made durable is gone.
    SyncedAttributeLost,
    /// A labelled object with something in it was deleted, and no other place has what was in it.
    ObjectDeleted,
    /// Something stays in the buffer, and neither the drain nor fsck names it.
    NotNamed,
    /// What a drain had brought to the PFS, and had said so, is not there any more.
    DrainedUndone,
    /// A second recovery changed something.
    NotSettled,
    /// `forebay fsck` finds something after the recovery.
    FsckFinds,
    /// What the program itself checks (a database) is wrong.
    ProgramFinds,
}

/// How far the workload was: operations that were acknowledged, and begun; with what was written before it all.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Progress {
    /// So many operations had returned.
    pub acknowledged: usize,
    /// So many had begun.
    pub begun: usize,
    /// So many had returned [`NAMES_LIMIT`] ago.
    pub aged: usize,
    /// What the PFS holds since a recovery has said that all is on it; see [`DRAINED`].
    pub drained: Option<String>,
}

impl Progress {
    /// Reads it from what was said before the power went, with the times, and the time of that.
    pub fn of<'a>(said: impl Iterator<Item = (Duration, &'a str)>, end: Duration) -> Self {
        let mut progress = Progress::default();
        for (time, text) in said {
            let mut words = text.split_whitespace();
            let word = words.next().unwrap_or_default();
            if word == DRAINED {
                progress.drained = words.next().map(str::to_owned);
                continue;
            }
            let mut number = || words.next().and_then(|number| number.parse::<usize>().ok());
            let Some(first) = number() else { continue };
            match word {
                "begin" => progress.begun = progress.begun.max(first + 1),
                "ack" => {
                    progress.acknowledged = progress.acknowledged.max(first + 1);
                    if time + NAMES_LIMIT <= end {
                        progress.aged = progress.acknowledged;
                    }
                }
                START => {
                    progress.acknowledged = first;
                    progress.begun = number().unwrap_or(first);
                    progress.aged = number().unwrap_or(0);
                }
                _ => {}
            }
        }
        progress.begun = progress.begun.max(progress.acknowledged);
        progress
    }

    /// What a recovery says when it begins: how far the workload was.
    pub fn resumed(&self) -> String {
        format!("{START} {} {} {}", self.acknowledged, self.begun, self.aged)
    }
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
pub(crate) fn bytes_fit(
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
    progress: &Progress,
    tree: &Tree,
) -> Vec<(Fault, String)> {
    let (acknowledged, begun) = (
        progress.acknowledged.min(ops.len()),
        progress.begun.min(ops.len()),
    );
    let durable = durable(ops, states, acknowledged);
    let mut faults = Vec::new();
    let fits = |moment: &usize| same_names(&states[*moment], tree);
    let least = durable.names.max(progress.aged.min(acknowledged));
    let moments: Vec<usize> = (least..=begun).filter(fits).collect();
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
    let earlier = (0..=begun)
        .rev()
        .find(|moment| same_names(&states[*moment], tree));
    Some(match earlier {
        Some(moment) if moment >= durable.names => (
            Fault::NamesTooOld,
            format!(
                "names are those after {moment} operations, later ones had returned {} s before; there is: {}",
                NAMES_LIMIT.as_secs(),
                list(tree)
            ),
        ),
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

pub(crate) fn list(tree: &Tree) -> String {
    const SHOWN: usize = 12;
    let mut names: Vec<&str> = tree.keys().take(SHOWN).map(String::as_str).collect();
    if tree.len() > SHOWN {
        names.push("...");
    }
    format!("[{}] ({})", names.join(" "), tree.len())
}

pub(crate) fn describe(bytes: &[u8]) -> String {
    let start = String::from_utf8_lossy(&bytes[..bytes.len().min(18)])
        .replace('\n', " ")
        .replace('\0', "0");
    format!("{} bytes, {start:?}", bytes.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{How, Node, Sync, states};
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
            ..Progress::default()
        };
        let found = judge(ops, &states(ops).unwrap(), &progress, &tree(found));
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
    fn names_that_are_old_survive_without_a_sync() {
        let ops = [put("a", 1, Sync::None), put("b", 2, Sync::None)];
        let progress = Progress {
            acknowledged: 2,
            begun: 2,
            aged: 1,
            ..Progress::default()
        };
        let judge = |found: &[(&str, &str)]| -> Vec<Fault> {
            let found = judge(&ops, &states(&ops).unwrap(), &progress, &tree(found));
            found.into_iter().map(|(fault, _)| fault).collect()
        };
        assert_eq!(judge(&[]), [Fault::NamesTooOld]);
        assert_eq!(judge(&[("a", "")]), []);
        assert_eq!(judge(&[("b", "")]), [Fault::NamesOfNoMoment]);
    }

    #[test]
    fn progress_is_read_from_what_was_said() {
        let second = Duration::from_secs;
        let said = [
            (second(1), "begin 0"),
            (second(1), "ack 0"),
            (second(2), "begin 1"),
            (second(2), "ack 1"),
            (second(3), "begin 2"),
        ];
        let progress = Progress::of(said.into_iter(), second(3));
        let wanted = Progress {
            acknowledged: 2,
            begun: 3,
            aged: 1,
            drained: None,
        };
        assert_eq!(progress, wanted);
        let resumed = progress.resumed();
        let said = [(second(0), resumed.as_str()), (second(0), "drained abc")];
        let wanted = Progress {
            drained: Some("abc".into()),
            ..wanted
        };
        assert_eq!(Progress::of(said.into_iter(), second(60)), wanted);
    }
}
