//! The order of the runs.

use crate::ground::Ground;
use crate::player::{Played, Player, Programs};
use anyhow::{Context, Result};
use forebay_benches::catalogue::{Row, Scale, Workload};
use forebay_benches::sample::{Cost, Sample};
use forebay_benches::statistics::median;
use forebay_benches::verdict::{Comparison, Round};
use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};

/// Everything that was measured on one file system.
pub struct Measured {
    /// The file system.
    pub ground: String,
    /// What a reader should know about it.
    pub note: String,
    /// The workloads, in the order of the catalogue.
    pub workloads: Vec<MeasuredWorkload>,
}

/// A workload over all rounds.
pub struct MeasuredWorkload {
    /// The workload.
    pub workload: &'static Workload,
    /// The rounds of each row.
    pub rounds: BTreeMap<&'static str, Vec<Round>>,
    /// Processors that the bridge kept busy, round by round.
    pub bridge_cores: Vec<f64>,
    /// The error, if one occurred. The workload is not run again after it.
    pub error: Option<String>,
}

impl Measured {
    /// True if every row has its figures.
    pub fn is_complete(&self) -> bool {
        self.workloads.iter().all(|w| w.error.is_none())
    }
}

impl MeasuredWorkload {
    fn new(workload: &'static Workload) -> Self {
        MeasuredWorkload {
            workload,
            rounds: BTreeMap::new(),
            bridge_cores: Vec::new(),
            error: None,
        }
    }

    /// The comparison of a row over all rounds, if there are any.
    pub fn comparison(&self, row: &Row) -> Option<Comparison> {
        self.rounds
            .get(row.name)
            .map(|rounds| Comparison::of(rounds))
    }

    fn add(&mut self, native: [&Sample; 2], buffered: &Played) -> Result<(), String> {
        for sample in [native[0], native[1], &buffered.sample] {
            if let Some(error) = &sample.error {
                return Err(error.clone());
            }
        }
        for row in self.workload.rows {
            let round = Round {
                native: [middle(native[0], row)?, middle(native[1], row)?],
                buffered: middle(&buffered.sample, row)?,
            };
            self.rounds.entry(row.name).or_default().push(round);
        }
        self.bridge_cores.extend(buffered.bridge_cores);
        Ok(())
    }
}

/// The median over the repetitions of one run.
fn middle(sample: &Sample, row: &Row) -> Result<Cost, String> {
    let costs = sample
        .costs
        .get(row.name)
        .filter(|costs| !costs.is_empty())
        .ok_or_else(|| format!("no figures for `{}`", row.name))?;
    let of = |clock: fn(&Cost) -> f64| median(&costs.iter().map(clock).collect::<Vec<_>>());
    Ok(Cost {
        wall: of(|c| c.wall),
        cpu: of(|c| c.cpu),
    })
}

/// The two players of one file system.
struct Stage {
    native: Player,
    buffered: Player,
}

impl Stage {
    fn round(&mut self, measured: &mut MeasuredWorkload) -> Result<()> {
        let name = measured.workload.name;
        let first = self.native.play(name).context("native")?;
        let buffered = self.buffered.play(name).context("under forebay run")?;
        let second = self.native.play(name).context("native")?;
        if let Err(error) = measured.add([&first.sample, &second.sample], &buffered) {
            measured.error = Some(error);
        }
        Ok(())
    }
}

/// Runs all workloads on all grounds, round after round.
///
/// # Errors
/// A program could not be started or is gone. If a workload fails, its result says so.
pub fn run(
    programs: &Programs,
    grounds: &[Ground],
    workloads: &[&'static Workload],
    rounds: u32,
    scale: Scale,
) -> Result<Vec<Measured>> {
    let mut stages = Vec::new();
    let mut results = Vec::new();
    for ground in grounds {
        stages.push(Stage {
            native: Player::native(programs, ground, scale)?,
            buffered: Player::buffered(programs, ground, scale)
                .with_context(|| format!("forebay run with storage on {}", ground.name))?,
        });
        results.push(Measured {
            ground: ground.name.clone(),
            note: ground.note.clone(),
            workloads: workloads
                .iter()
                .map(|&w| MeasuredWorkload::new(w))
                .collect(),
        });
    }
    for round in 1..=rounds {
        for number in 0..workloads.len() {
            for (stage, result) in stages.iter_mut().zip(&mut results) {
                let measured = &mut result.workloads[number];
                if measured.error.is_none() {
                    tell(&format!(
                        "round {round}/{rounds}: {} on {}",
                        measured.workload.name, result.ground
                    ));
                    stage.round(measured)?;
                }
            }
        }
    }
    tell("");
    Ok(results)
}

/// Shows the progress, if standard error is a terminal.
fn tell(text: &str) {
    let mut terminal = std::io::stderr();
    if terminal.is_terminal() {
        // Progress is not important enough for an error.
        let _ = write!(terminal, "\r\x1b[K{text}").and_then(|()| terminal.flush());
    }
}
