//! What the programs do that are made of operations.

use crate::model::{How, Op, State, Sync};

/// Files of the programs that make many.
const FILES: u32 = 40;
/// Operations of [`steady`], and the pause after each: together more than three seconds.
const STEADY_OPERATIONS: usize = 150;
const STEADY_PAUSE_MS: u32 = 22;
/// Runs of [`generations`], and operations of each.
const GENERATIONS: u32 = 5;
const GENERATION_OPERATIONS: usize = 14;

fn put(path: String, bytes: usize, tag: u32, sync: Sync) -> Op {
    Op::Put {
        path,
        at: 0,
        bytes,
        tag,
        how: How::Write,
        sync,
    }
}

/// Writes a new file, fsyncs it, renames it over an old one, fsyncs the directory; again and again.
pub fn replace() -> Vec<Op> {
    let dir = || Op::Fsync { path: ".".into() };
    let one = |number: u32| {
        let (new, path) = ("new".to_owned(), format!("f{}", number % 10));
        [
            put(new.clone(), 3000, number + 1, Sync::Fsync),
            Op::Rename {
                from: new,
                to: path,
            },
            dir(),
        ]
    };
    (0..FILES).flat_map(one).collect()
}

/// New files, each synced as it says.
pub fn create(sync: Sync) -> Vec<Op> {
    (0..FILES)
        .map(|number| put(format!("f{number}"), 2000, number + 1, sync))
        .collect()
}

/// New contents in three runs: change, remove, nothing.
pub fn versions() -> Vec<Vec<Op>> {
    let name = |number: u32| format!("f{number}");
    let first = (0..8)
        .map(|number| put(name(number), 2000, number + 1, Sync::Fsync))
        .collect();
    let mut second: Vec<Op> = (0..4)
        .map(|number| put(name(number), 2500, number + 100, Sync::Fsync))
        .collect();
    second.push(Op::Sync);
    second.extend((0..4).map(|number| put(name(number), 3000, number + 200, Sync::None)));
    second.push(Op::Unlink { path: name(5) });
    second.push(Op::Rename {
        from: name(6),
        to: name(7),
    });
    vec![first, second, Vec::new()]
}

/// Random operations with random syncs.
pub fn mixed(seed: u64) -> Vec<Op> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut state = State::default();
    let mut ops = Vec::new();
    let mut tag = 0;
    while ops.len() < 120 {
        tag += 1;
        let dirs = ["", "A/", "B/"];
        let mut path = || format!("{}f{}", dirs[random.usize(..3)], random.u32(..4));
        let (one, other) = (path(), path());
        let sync = [
            Sync::None,
            Sync::None,
            Sync::Fsync,
            Sync::Fdatasync,
            Sync::Osync,
        ][random.usize(..5)];
        let op = match random.u32(..16) {
            0 => Op::Mkdir {
                path: ["A", "B"][random.usize(..2)].into(),
            },
            1 => Op::Creat { path: one },
            2..5 => Op::Put {
                path: one,
                at: random.usize(..6000),
                bytes: random.usize(1..9000),
                tag,
                how: How::Write,
                sync,
            },
            5 => Op::Put {
                path: one,
                at: random.usize(..6000),
                bytes: random.usize(1..5000),
                tag,
                how: How::Mmap,
                sync,
            },
            6 => Op::Truncate {
                path: one,
                bytes: random.usize(..9000),
            },
            7 => Op::Link {
                from: one,
                to: other,
            },
            8 => Op::Unlink { path: one },
            9..11 => Op::Rename {
                from: one,
                to: other,
            },
            11 => Op::Setxattr { path: one, tag },
            12 => Op::Fsync { path: one },
            13 => Op::Fsync {
                path: [".", "A", "B"][random.usize(..3)].into(),
            },
            14 => Op::Sync,
            _ => Op::Pause {
                ms: random.u32(..20),
            },
        };
        if state.apply(&op).is_some() {
            ops.push(op);
        }
    }
    ops
}

/// Names that come, change and go for some seconds, and no sync at all.
pub fn steady(seed: u64) -> Vec<Op> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut state = State::default();
    let mut ops = Vec::new();
    let mut tag = 0;
    while ops.len() < 2 * STEADY_OPERATIONS {
        tag += 1;
        let dirs = ["", "A/", "B/"];
        let mut path = || format!("{}f{}", dirs[random.usize(..3)], random.u32(..12));
        let (one, other) = (path(), path());
        let op = match random.u32(..12) {
            0..5 => Op::Creat { path: one },
            5 => put(one, 100, tag, Sync::None),
            6..8 => Op::Unlink { path: one },
            8..10 => Op::Rename {
                from: one,
                to: other,
            },
            10 => Op::Mkdir {
                path: ["A", "B"][random.usize(..2)].into(),
            },
            _ => Op::Rmdir {
                path: ["A", "B"][random.usize(..2)].into(),
            },
        };
        if state.apply(&op).is_some() {
            ops.extend([
                op,
                Op::Pause {
                    ms: STEADY_PAUSE_MS,
                },
            ]);
        }
    }
    ops
}

/// Several runs that change what the runs before have brought to the PFS: in place, by another file, by another name, and by
/// taking it away.
pub fn generations(seed: u64) -> Vec<Vec<Op>> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut state = State::default();
    let mut tag = 0;
    let mut runs = Vec::new();
    for generation in 0..GENERATIONS {
        let mut ops = Vec::new();
        let mut add = |op: Op, state: &mut State| {
            if state.apply(&op).is_some() {
                ops.push(op);
            }
            ops.len() < GENERATION_OPERATIONS
        };
        if generation == 0 {
            add(Op::Mkdir { path: "A".into() }, &mut state);
        }
        loop {
            tag += 1;
            let dirs = ["", "A/"];
            let mut path = || format!("{}f{}", dirs[random.usize(..2)], random.u32(..5));
            let (one, other) = (path(), path());
            let syncs = [
                Sync::None,
                Sync::None,
                Sync::Fsync,
                Sync::Fdatasync,
                Sync::Osync,
            ];
            let sync = syncs[random.usize(..syncs.len())];
            let bytes = random.usize(1..6000);
            let part = |path: String, at: usize, how: How| Op::Put {
                path,
                at,
                bytes,
                tag,
                how,
                sync,
            };
            let goes_on = match random.u32(..if generation == 0 { 4 } else { 16 }) {
                // Whole, or a part, or the end.
                0..4 => add(put(one, bytes, tag, sync), &mut state),
                4 => add(part(one, 1000, How::Write), &mut state),
                5 => add(part(one, 0, How::Mmap), &mut state),
                6..8 => add(Op::Truncate { path: one, bytes }, &mut state),
                8..10 => add(Op::Unlink { path: one }, &mut state),
                10..12 => add(
                    Op::Rename {
                        from: one,
                        to: other,
                    },
                    &mut state,
                ),
                12..14 => {
                    let new = || "new".to_owned();
                    add(put(new(), bytes, tag, sync), &mut state);
                    add(
                        Op::Rename {
                            from: new(),
                            to: one,
                        },
                        &mut state,
                    )
                }
                14 => add(
                    Op::Link {
                        from: one,
                        to: other,
                    },
                    &mut state,
                ),
                _ => add(
                    [Op::Sync, Op::Fsync { path: "A".into() }][random.usize(..2)].clone(),
                    &mut state,
                ),
            };
            if !goes_on {
                break;
            }
        }
        runs.push(ops);
    }
    // A last run that changes nothing: what an earlier state left must not come out of it.
    runs.push(Vec::new());
    runs
}
