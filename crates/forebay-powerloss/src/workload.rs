//! The workloads: a program, and the situation in which it runs.

use crate::model::{How, Op, Sync};
use crate::sequences;
use std::fmt;
use std::str::FromStr;

/// Where a program runs, and what was there before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Situation {
    /// On ext4, without Forebay.
    Native,
    /// `forebay run --no-drain`, the first on its storage.
    Fresh,
    /// `forebay run --no-drain` after runs that ended well.
    Used,
    /// `forebay run --no-drain` beside `forebay up`.
    Up,
    /// `forebay run --keep`.
    Keep,
    /// `forebay run`, several times.
    Drain,
}

/// What runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Program {
    /// Write, fsync, rename, fsync of the directory; each file several times.
    Replace,
    /// Write and fsync of new files.
    Create,
    /// New files without fsync, for which it claims that they are durable.
    Careless,
    /// Random operations with random syncs.
    Mixed,
    /// A part of all sequences of one and two operations.
    Sequences,
    /// New contents in three runs: change, remove, nothing.
    Versions,
    /// SQLite with its log, synchronous=FULL.
    Sqlite,
}

const SITUATIONS: [(Situation, &str); 6] = [
    (Situation::Native, "native"),
    (Situation::Fresh, "fresh"),
    (Situation::Used, "used"),
    (Situation::Up, "up"),
    (Situation::Keep, "keep"),
    (Situation::Drain, "drain"),
];

const PROGRAMS: [(Program, &str); 7] = [
    (Program::Replace, "replace"),
    (Program::Create, "create"),
    (Program::Careless, "careless"),
    (Program::Mixed, "mixed"),
    (Program::Sequences, "sequences"),
    (Program::Versions, "versions"),
    (Program::Sqlite, "sqlite"),
];

/// Files of the programs that make many.
const FILES: u32 = 40;
/// Sequences of one run.
pub const SEQUENCES: usize = 12;
/// Transactions of the database.
pub const ROWS: usize = 60;

/// A program in a situation. As text `SITUATION/PROGRAM`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Workload {
    /// Where.
    pub situation: Situation,
    /// What.
    pub program: Program,
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let situation = SITUATIONS
            .iter()
            .find(|(known, _)| *known == self.situation);
        let program = PROGRAMS.iter().find(|(known, _)| *known == self.program);
        write!(
            f,
            "{}/{}",
            situation.map_or("", |(_, name)| name),
            program.map_or("", |(_, name)| name)
        )
    }
}

impl FromStr for Workload {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = text.split_once('/').and_then(|(situation, program)| {
            let situation = SITUATIONS.iter().find(|(_, name)| *name == situation)?.0;
            let program = PROGRAMS.iter().find(|(_, name)| *name == program)?.0;
            Some(Workload { situation, program })
        });
        known.ok_or_else(|| {
            let names = |names: Vec<&str>| names.join(", ");
            let situations = names(SITUATIONS.iter().map(|(_, name)| *name).collect());
            let programs = names(PROGRAMS.iter().map(|(_, name)| *name).collect());
            format!("{text} is not SITUATION/PROGRAM, of {situations} / {programs}")
        })
    }
}

impl Workload {
    /// All of them that make sense.
    pub fn all() -> Vec<Workload> {
        let pairs = SITUATIONS.iter().flat_map(|(situation, _)| {
            PROGRAMS.iter().map(|(program, _)| Workload {
                situation: *situation,
                program: *program,
            })
        });
        // A program that claims what it does not do is for the self-test.
        pairs
            .filter(|workload| workload.program != Program::Careless)
            .collect()
    }

    /// Is it the file system alone that is tried?
    pub fn is_native(&self) -> bool {
        self.situation == Situation::Native
    }

    /// Disks: the storage, and the PFS.
    pub fn disks(&self) -> Vec<u64> {
        const MIB: u64 = 1 << 20;
        if self.is_native() {
            vec![64 * MIB]
        } else {
            vec![192 * MIB, 64 * MIB]
        }
    }

    /// What its runs do. The last operation of each run of Forebay is [`Op::End`]. Nothing for a program that is not made
    /// of operations.
    pub fn runs(&self, seed: u64) -> Vec<Vec<Op>> {
        let mut runs = match self.program {
            Program::Replace => vec![replace()],
            Program::Create => vec![create(Sync::Fsync)],
            Program::Careless => vec![create(Sync::None)],
            Program::Mixed => vec![mixed(seed)],
            Program::Sequences => {
                let all = sequences::all();
                let batches = all.len().div_ceil(SEQUENCES) as u64;
                let first = (seed % batches) as usize * SEQUENCES;
                vec![sequences::batch(
                    &all[first..all.len().min(first + SEQUENCES)],
                )]
            }
            Program::Versions => versions(),
            Program::Sqlite => return Vec::new(),
        };
        if !self.is_native() {
            runs.iter_mut().for_each(|run| run.push(Op::End));
        }
        runs
    }

    /// What it claims to have done: the operations by which it is judged.
    pub fn claims(&self, seed: u64) -> Vec<Op> {
        let mut ops: Vec<Op> = self.runs(seed).into_iter().flatten().collect();
        if self.program == Program::Careless {
            for op in &mut ops {
                if let Op::Put { sync, .. } = op {
                    *sync = Sync::Fsync;
                }
            }
        }
        ops
    }
}

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

fn replace() -> Vec<Op> {
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

fn create(sync: Sync) -> Vec<Op> {
    (0..FILES)
        .map(|number| put(format!("f{number}"), 2000, number + 1, sync))
        .collect()
}

fn versions() -> Vec<Vec<Op>> {
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

fn mixed(seed: u64) -> Vec<Op> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut state = crate::model::State::default();
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::states;

    #[test]
    fn what_a_workload_does_can_be_done() {
        for workload in Workload::all() {
            for seed in 0..20 {
                assert!(
                    states(&workload.claims(seed)).is_some(),
                    "{workload} with seed {seed}"
                );
            }
            assert_eq!(workload.to_string().parse(), Ok(workload));
        }
    }
}
