//! All sequences of one and of two operations with every place of a sync, as CrashMonkey's ACE makes them (OSDI '18).

use crate::model::{How, Op, State, Sync};
use std::rc::Rc;
use std::sync::LazyLock;

/// Bytes of the files that are there before.
const FILE_BYTES: usize = 9000;

fn put(path: &str, at: usize, bytes: usize, tag: u32, how: How) -> Op {
    synced(path, at, bytes, tag, how, Sync::None)
}

fn synced(path: &str, at: usize, bytes: usize, tag: u32, how: How, sync: Sync) -> Op {
    Op::Put {
        path: path.into(),
        at,
        bytes,
        tag,
        how,
        sync,
    }
}

/// What is there, durable, before each sequence.
fn before() -> Vec<Op> {
    vec![
        Op::Mkdir { path: "A".into() },
        put("foo", 0, FILE_BYTES, 1, How::Write),
        put("A/foo", 0, FILE_BYTES, 2, How::Write),
        Op::Setxattr {
            path: "A/foo".into(),
            tag: 3,
        },
        Op::Sync,
    ]
}

fn operations(tag: u32) -> Vec<Op> {
    let path = |path: &str| path.to_owned();
    let mut all = vec![
        Op::Creat { path: path("bar") },
        Op::Creat {
            path: path("A/bar"),
        },
        Op::Mkdir { path: path("B") },
        Op::Falloc {
            path: path("foo"),
            at: FILE_BYTES,
            bytes: 4096,
        },
        put("foo", FILE_BYTES, 5000, tag, How::Write),
        put("foo", 1000, 5000, tag, How::Write),
        put("foo", 4096, 4096, tag, How::Direct),
        put("A/foo", 100, 5000, tag, How::Mmap),
        put("A/bar", 0, 100, tag, How::Write),
        synced("foo", FILE_BYTES - 1000, 5000, tag, How::Write, Sync::Osync),
        synced("A/bar", 0, 5000, tag, How::Write, Sync::Osync),
        synced("foo", 100, 5000, tag, How::Mmap, Sync::Msync),
        Op::Unlink { path: path("foo") },
        Op::Unlink {
            path: path("A/foo"),
        },
        Op::Rmdir { path: path("B") },
        Op::Setxattr {
            path: path("foo"),
            tag,
        },
        Op::Removexattr {
            path: path("A/foo"),
        },
        Op::Truncate {
            path: path("foo"),
            bytes: 100,
        },
        Op::Truncate {
            path: path("A/foo"),
            bytes: 5000,
        },
    ];
    for (from, to) in [
        ("foo", "bar"),
        ("foo", "A/bar"),
        ("A/foo", "bar"),
        ("A/foo", "A/bar"),
    ] {
        all.push(Op::Link {
            from: path(from),
            to: path(to),
        });
        all.push(Op::Rename {
            from: path(from),
            to: path(to),
        });
    }
    for (from, to) in [
        ("foo", "A/foo"),
        ("A/foo", "foo"),
        ("A", "B"),
        ("bar", "foo"),
    ] {
        all.push(Op::Rename {
            from: path(from),
            to: path(to),
        });
    }
    all
}

/// Nothing, or one kind of sync of something that is there.
fn syncs(state: &State) -> Vec<Option<Op>> {
    let here = || ".".into();
    let mut all = vec![
        None,
        Some(Op::Sync),
        Some(Op::Syncfs { path: here() }),
        Some(Op::Fsync { path: here() }),
    ];
    for path in ["foo", "bar", "A", "A/foo", "A/bar", "B"] {
        if let Some(node) = state.names.get(path) {
            all.push(Some(Op::Fsync { path: path.into() }));
            if !state.nodes[*node].is_dir {
                all.push(Some(Op::Fdatasync { path: path.into() }));
            }
        }
    }
    all
}

fn extended(ops: &[Op], state: &State, tag: u32) -> Vec<(Vec<Op>, Rc<State>)> {
    let mut all = Vec::new();
    for op in operations(tag) {
        let mut after = state.clone();
        if after.apply(&op).is_none() {
            continue;
        }
        let after = Rc::new(after);
        for sync in syncs(&after) {
            let mut longer = ops.to_vec();
            longer.push(op.clone());
            longer.extend(sync);
            all.push((longer, Rc::clone(&after)));
        }
    }
    all
}

/// All sequences, those of one operation first.
pub fn all() -> &'static [Vec<Op>] {
    static ALL: LazyLock<Vec<Vec<Op>>> = LazyLock::new(make_all);
    &ALL
}

fn make_all() -> Vec<Vec<Op>> {
    let mut start = State::default();
    let made = before().iter().all(|op| start.apply(op).is_some());
    assert!(made, "what is there before can be made");
    let one = extended(&[], &start, 4);
    let two = one.iter().flat_map(|(ops, state)| extended(ops, state, 5));
    let two: Vec<_> = two.map(|(ops, _)| ops).collect();
    one.iter().map(|(ops, _)| ops.clone()).chain(two).collect()
}

/// Sequences of a batch, each in a directory of its own.
pub fn batch(sequences: &[Vec<Op>]) -> Vec<Op> {
    let mut ops = Vec::new();
    for (number, sequence) in sequences.iter().enumerate() {
        let dir = format!("s{number}");
        ops.push(Op::Mkdir { path: dir.clone() });
        let tags = 16 * number as u32;
        ops.extend(
            before()
                .iter()
                .chain(sequence)
                .map(|op| inside(op.clone(), &dir, tags)),
        );
    }
    ops
}

fn inside(mut op: Op, dir: &str, tags: u32) -> Op {
    let enter = |path: &mut String| {
        *path = if path == "." {
            dir.to_owned()
        } else {
            format!("{dir}/{path}")
        };
    };
    match &mut op {
        Op::Put { path, tag, .. } | Op::Setxattr { path, tag } => {
            enter(path);
            *tag += tags;
        }
        Op::Creat { path }
        | Op::Mkdir { path }
        | Op::Falloc { path, .. }
        | Op::Truncate { path, .. }
        | Op::Unlink { path }
        | Op::Rmdir { path }
        | Op::Removexattr { path }
        | Op::Fsync { path }
        | Op::Fdatasync { path }
        | Op::Syncfs { path } => enter(path),
        Op::Link { from, to } | Op::Rename { from, to } => {
            enter(from);
            enter(to);
        }
        Op::Sync | Op::Pause { .. } | Op::End => {}
    }
    op
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sequence_can_be_carried_out() {
        let all = all();
        assert!(all.len() > 15_000, "{}", all.len());
        for chunk in all.chunks(12) {
            let mut state = State::default();
            assert!(
                batch(chunk).iter().all(|op| state.apply(op).is_some()),
                "{chunk:?}"
            );
        }
    }

    #[test]
    fn the_write_fsync_rename_of_editors_is_among_them() {
        let write = put("A/bar", 0, 100, 4, How::Write);
        let wanted = [
            write,
            Op::Fsync {
                path: "A/bar".into(),
            },
        ];
        assert!(all().iter().any(|sequence| sequence.starts_with(&wanted)));
    }

    #[test]
    fn every_kind_of_operation_and_of_sync_is_among_them() {
        let mut kinds = std::collections::BTreeSet::new();
        for op in all().iter().flatten() {
            let value = serde_json::to_value(op).unwrap();
            let words = ["op", "how", "sync"].map(|key| value[key].as_str().unwrap_or_default());
            kinds.insert(words.join(" ").trim().to_owned());
        }
        let wanted = [
            "creat",
            "falloc",
            "fdatasync",
            "fsync",
            "link",
            "mkdir",
            "put direct none",
            "put mmap msync",
            "put mmap none",
            "put write none",
            "put write osync",
            "removexattr",
            "rename",
            "rmdir",
            "setxattr",
            "sync",
            "syncfs",
            "truncate",
            "unlink",
        ];
        assert_eq!(kinds.into_iter().collect::<Vec<_>>(), wanted);
    }
}
