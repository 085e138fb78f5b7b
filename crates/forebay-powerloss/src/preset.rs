//! Lists of workloads: many that differ, and few images of each.

use crate::case::Recovery;
use crate::hunt::Row;
use crate::workload::{Program, Situation, Workload};
use std::str::FromStr;

/// A list by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Preset {
    /// About 3,000 images, for each change.
    Ci,
    /// About 50,000 images of more than 300 workloads.
    Night,
}

impl FromStr for Preset {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "ci" => Ok(Preset::Ci),
            "night" => Ok(Preset::Night),
            _ => Err(format!("{text} is not ci or night")),
        }
    }
}

/// Of a program that a seed changes: recordings. Others are recorded once.
struct Share {
    program: Program,
    seeds: u64,
    images: usize,
}

const fn share(program: Program, seeds: u64, images: usize) -> Share {
    Share {
        program,
        seeds,
        images,
    }
}

/// What runs in each situation of a short list.
const CI: [Share; 9] = [
    share(Program::Replace, 1, 40),
    share(Program::Create, 1, 25),
    share(Program::Mixed, 4, 34),
    share(Program::Sequences, 4, 26),
    share(Program::Versions, 1, 26),
    share(Program::Generations, 2, 34),
    share(Program::Sqlite, 1, 16),
    share(Program::Git, 1, 12),
    share(Program::Untar, 1, 12),
];

/// What runs in each situation of a long one.
const NIGHT: [Share; 11] = [
    share(Program::Replace, 1, 300),
    share(Program::Create, 1, 200),
    share(Program::Mixed, 14, 160),
    share(Program::Sequences, 18, 150),
    share(Program::Versions, 1, 300),
    share(Program::Generations, 10, 160),
    share(Program::Steady, 2, 150),
    share(Program::Sqlite, 1, 150),
    share(Program::SqliteDelete, 1, 150),
    share(Program::Git, 1, 150),
    share(Program::Untar, 3, 100),
];

const SITUATIONS: [Situation; 6] = [
    Situation::Fresh,
    Situation::Used,
    Situation::Up,
    Situation::Keep,
    Situation::Drain,
    Situation::UpDrain,
];

impl Preset {
    /// Its rows.
    pub fn rows(self) -> Vec<Row> {
        let shares: &[Share] = match self {
            Preset::Ci => &CI,
            Preset::Night => &NIGHT,
        };
        let mut all = Vec::new();
        // Each situation has seeds of its own, so that each recording is of another workload.
        let mut first = 1;
        for situation in SITUATIONS {
            for share in shares {
                let workload = Workload {
                    situation,
                    program: share.program,
                };
                all.push(row(workload, first, share.seeds, share.images));
            }
            first += 20;
        }
        all.extend(self.special(first));
        all
    }

    /// What is not for every situation.
    fn special(self, first: u64) -> Vec<Row> {
        use Program::{Create, Generations, Mixed, Pgbench, Replace, SqliteDelete, Steady};
        use Situation::{Drain, Up, UpDrain, Used, Xfs};
        // Images of a short list are a fifth of those of a long one.
        let is_short = self == Preset::Ci;
        let count = |images: usize| if is_short { images / 5 } else { images };
        let one = |situation, program, images| {
            let workload = Workload { situation, program };
            row(workload, first, 1, count(images))
        };
        let mut all = vec![
            one(Up, Steady, 150),
            one(Up, SqliteDelete, 100),
            one(Up, Pgbench, 100),
            one(Xfs, Replace, 250),
            one(Xfs, Mixed, 250),
        ];
        let firsts = |count: usize| if is_short { count.div_ceil(5) } else { count };
        for (recovery, situation, program) in [
            (Recovery::Drain, Up, Mixed),
            (Recovery::Drain, Used, Replace),
            (Recovery::Drain, Drain, Generations),
            (Recovery::Drain, UpDrain, Generations),
            (Recovery::Start, Up, Mixed),
            (Recovery::Start, Used, Replace),
            (Recovery::Rebuild, Up, Mixed),
        ] {
            all.push(Row {
                interrupt: Some((recovery, firsts(12))),
                ..one(situation, program, 240)
            });
        }
        for (recovery, situation, program) in [
            (Recovery::Start, Up, Mixed),
            (Recovery::Start, Drain, Generations),
            (Recovery::Rebuild, Up, Replace),
            (Recovery::Rebuild, Up, Create),
            (Recovery::Rebuild, Used, Mixed),
            (Recovery::Rebuild, Drain, Generations),
        ] {
            all.push(Row {
                recovery,
                ..one(situation, program, 150)
            });
        }
        all
    }
}

fn row(workload: Workload, first: u64, seeds: u64, images: usize) -> Row {
    Row {
        workload,
        seeds: first..first + seeds,
        images,
        recovery: Recovery::Drain,
        interrupt: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Images before equal ones are taken out, and workloads that differ.
    fn sums(preset: Preset) -> (usize, usize) {
        let all = preset.rows();
        let images = all
            .iter()
            .map(|row| row.images * row.seeds.clone().count())
            .sum();
        let workloads: BTreeSet<_> = all
            .iter()
            .flat_map(|row| {
                let seeds = row.seeds.clone();
                seeds.map(|seed| {
                    let seed = row.workload.program.has_seeds().then_some(seed);
                    (row.workload, seed)
                })
            })
            .collect();
        (images, workloads.len())
    }

    #[test]
    fn the_lists_are_as_large_as_they_say() {
        let (images, workloads) = sums(Preset::Ci);
        assert!((3_000..4_000).contains(&images), "{images}");
        assert!(workloads > 60, "{workloads}");
        let (images, workloads) = sums(Preset::Night);
        assert!(images > 50_000, "{images}");
        assert!(workloads > 300, "{workloads}");
    }
}
