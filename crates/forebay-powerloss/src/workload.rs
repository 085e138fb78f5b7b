//! The workloads: a program, and the situation in which it runs.

use crate::model::{Op, Sync};
use crate::rig::FileSystem;
use crate::{foreign, programs, rig, sequences};
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
    /// `forebay run --no-drain` beside `forebay up`, and `forebay drain` after each run.
    UpDrain,
    /// As [`Situation::Up`], the storage on XFS.
    Xfs,
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
    /// Random changes of what earlier runs have drained, in several runs.
    Generations,
    /// Names that come and go for some seconds without a sync.
    Steady,
    /// SQLite with its log, synchronous=FULL.
    Sqlite,
    /// SQLite with a rollback journal, synchronous=EXTRA.
    SqliteDelete,
    /// git with core.fsync=all.
    Git,
    /// tar, sync, rm -r of a part, sync.
    Untar,
    /// PostgreSQL with pgbench.
    Pgbench,
}

const SITUATIONS: [(Situation, &str); 8] = [
    (Situation::Native, "native"),
    (Situation::Fresh, "fresh"),
    (Situation::Used, "used"),
    (Situation::Up, "up"),
    (Situation::Keep, "keep"),
    (Situation::Drain, "drain"),
    (Situation::UpDrain, "up-drain"),
    (Situation::Xfs, "xfs"),
];

const PROGRAMS: [(Program, &str); 13] = [
    (Program::Replace, "replace"),
    (Program::Create, "create"),
    (Program::Careless, "careless"),
    (Program::Mixed, "mixed"),
    (Program::Sequences, "sequences"),
    (Program::Versions, "versions"),
    (Program::Generations, "generations"),
    (Program::Steady, "steady"),
    (Program::Sqlite, "sqlite"),
    (Program::SqliteDelete, "sqlite-delete"),
    (Program::Git, "git"),
    (Program::Untar, "untar"),
    (Program::Pgbench, "pgbench"),
];

/// Sequences of one run.
pub const SEQUENCES: usize = 12;

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

impl Program {
    /// Does a seed change what it does?
    pub fn has_seeds(&self) -> bool {
        matches!(
            self,
            Program::Mixed
                | Program::Sequences
                | Program::Generations
                | Program::Steady
                | Program::Untar
        )
    }

    /// Is it judged by a check of its own, and not by operations?
    pub fn is_foreign(&self) -> bool {
        matches!(
            self,
            Program::Sqlite
                | Program::SqliteDelete
                | Program::Git
                | Program::Untar
                | Program::Pgbench
        )
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
        // A program that claims what it does not do, and a promise that ext4 does not make, are for the self-test.
        pairs
            .filter(|workload| {
                workload.program != Program::Careless
                    && !(workload.is_native() && workload.program == Program::Steady)
            })
            .collect()
    }

    /// Why it can't run here, if it can't.
    pub fn missing(&self) -> Option<String> {
        let file_system = self
            .disks()
            .into_iter()
            .find_map(|(_, kind)| kind.missing());
        file_system.or_else(|| foreign::missing(self.program))
    }

    /// Is it the file system alone that is tried?
    pub fn is_native(&self) -> bool {
        self.situation == Situation::Native
    }

    /// Are its names durable after a while without any sync?
    pub fn has_names_limit(&self) -> bool {
        !self.is_native() || self.program == Program::Steady
    }

    /// Disks: the storage, and the PFS; bytes of each.
    pub fn disks(&self) -> Vec<(u64, FileSystem)> {
        const MIB: u64 = 1 << 20;
        let pfs = if self.program == Program::Pgbench {
            256 * MIB
        } else {
            64 * MIB
        };
        let storage = match self.situation {
            Situation::Native => return vec![(pfs, FileSystem::Ext4)],
            Situation::Xfs => (rig::XFS_BYTES, FileSystem::Xfs),
            _ => ((128 * MIB) + pfs, FileSystem::Ext4),
        };
        vec![storage, (pfs, FileSystem::Ext4)]
    }

    /// What its runs do; at the end of each [`Op::End`], if that promises something. Nothing for a program that is not made
    /// of operations.
    pub fn runs(&self, seed: u64) -> Vec<Vec<Op>> {
        let mut runs = match self.program {
            Program::Replace => vec![programs::replace()],
            Program::Create => vec![programs::create(Sync::Fsync)],
            Program::Careless => vec![programs::create(Sync::None)],
            Program::Mixed => vec![programs::mixed(seed)],
            Program::Sequences => {
                let all = sequences::all();
                let batches = all.len().div_ceil(SEQUENCES) as u64;
                let first = (seed % batches) as usize * SEQUENCES;
                vec![sequences::batch(
                    &all[first..all.len().min(first + SEQUENCES)],
                )]
            }
            Program::Versions => programs::versions(),
            Program::Generations => programs::generations(seed),
            Program::Steady => vec![programs::steady(seed)],
            Program::Sqlite
            | Program::SqliteDelete
            | Program::Git
            | Program::Untar
            | Program::Pgbench => return Vec::new(),
        };
        // Beside a bridge that stays, the end of a program promises no more than natively: nothing.
        let end = match self.situation {
            Situation::Native => return runs,
            Situation::Up | Situation::Xfs => Op::Pause { ms: 0 },
            _ => Op::End,
        };
        runs.iter_mut().for_each(|run| run.push(end.clone()));
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
