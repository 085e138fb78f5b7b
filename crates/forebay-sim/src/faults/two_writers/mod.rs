//! Two writers, one tree: programs in the buffer, and a neighbour who works on the PFS itself and knows nothing of bridges.
//!
//! One bridge, no faults, one step after the other. Chance decides only what the two do, and when somebody
//! drains. So a failure is short: a list of steps. The judge does not ask what the records know. It has seen itself what the
//! neighbour has made, and where, and what users saw:
//!
//! - What the neighbour has put on the PFS, and has not removed or replaced itself, is there in the end: under its own path, or
//!   where a rename of a directory above it has brought it. What it has written into a file is under some name.
//! - What users saw before the last drain is on the PFS, or stays in the buffer and is listed.
//! - A drain that says that all is released has left nothing out.
//! - Where the neighbour has only added names, or does nothing, the last drain releases everything.
//!
//! Programs in the buffer never remove, replace, rename or write to what they see of the neighbour's. They may do so by the
//! rules, so the judge could not tell such a loss from a broken promise.

mod invent;
mod judge;
mod play;
mod script;

pub use script::Script;

use super::random::Random;
use super::{Broken, Mutation};
use forebay_core::membership::Membership;
use forebay_core::record::BridgeId;
use play::Play;
use script::Step;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A script that breaks a promise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quarrel {
    /// The seed that led to it; `None` for a script that was given.
    pub seed: Option<u64>,
    /// What was promised.
    pub promise: String,
    /// What happened, for people.
    pub detail: String,
    /// The smallest script found that breaks it.
    pub script: Script,
}

impl std::fmt::Display for Quarrel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(seed) = self.seed {
            writeln!(f, "seed {seed}")?;
        }
        writeln!(f, "broken promise: {}", self.promise)?;
        writeln!(f, "{}", self.script)?;
        write!(f, "{}", self.detail)
    }
}

/// What to look for.
#[derive(Debug, Clone)]
pub struct NeighbourOptions {
    /// The first seed.
    pub first_seed: u64,
    /// How many seeds, counted up from the first: one script each.
    pub seeds: u64,
    /// A planted bug. Without the feature `planted-bugs` it does nothing.
    pub mutation: Option<Mutation>,
    /// Go on after a script that breaks a promise: one of each kind is given in the end.
    pub goes_on: bool,
}

/// What was found.
#[derive(Debug, Clone, Default)]
pub struct Search {
    /// Scripts that were run.
    pub scripts: u64,
    /// Steps in them.
    pub steps: u64,
    /// Scripts that break a promise, by kind: how many, and the smallest one.
    pub kinds: Vec<(u64, Quarrel)>,
}

/// Runs one script for each seed; `progress` hears from time to time how many are done.
pub fn search(options: &NeighbourOptions, progress: &mut dyn FnMut(u64)) -> Search {
    let membership = alone();
    let mut search = Search::default();
    let mut kinds: BTreeMap<(String, Vec<String>), (u64, Quarrel)> = BTreeMap::new();
    for seed in options.first_seed..options.first_seed.saturating_add(options.seeds) {
        let (script, result) = one(seed, options.mutation, &membership);
        search.scripts += 1;
        search.steps += script.steps.len() as u64;
        if let Err(broken) = result {
            let quarrel = smallest(Some(seed), script, broken, options.mutation, &membership);
            let verbs = quarrel.script.steps.iter().map(verb).collect();
            let known = kinds.entry((quarrel.promise.clone(), verbs));
            known
                .and_modify(|(count, _)| *count += 1)
                .or_insert((1, quarrel));
            if !options.goes_on {
                break;
            }
        }
        if search.scripts.is_multiple_of(256) {
            progress(search.scripts);
        }
    }
    search.kinds = kinds.into_values().collect();
    search
        .kinds
        .sort_by_key(|(_, q)| (q.promise.clone(), q.script.steps.len()));
    search
}

/// Carries out a script as it is.
///
/// # Errors
/// The promise that it breaks. One is that each step can be taken: without it the script shows nothing.
pub fn play(script: &Script, mutation: Option<Mutation>) -> Result<(), Box<Quarrel>> {
    let played = run(script, mutation, &alone()).and_then(|left_out| match left_out {
        None => Ok(()),
        Some(step) => Err(Broken::new(ALL_STEPS, step, Vec::new())),
    });
    played.map_err(|broken| Box::new(quarrel(None, script.clone(), broken)))
}

const ALL_STEPS: &str = "each step of the script can be taken";

fn alone() -> Membership {
    Membership::new(BridgeId(0), vec![BridgeId(0)])
}

fn quarrel(seed: Option<u64>, script: Script, broken: Broken) -> Quarrel {
    Quarrel {
        seed,
        promise: broken.promise.to_owned(),
        detail: broken.detail.trim_end().to_owned(),
        script,
    }
}

/// A step without its paths.
fn verb(step: &Step) -> String {
    let text = step.to_string();
    let words = text.split(' ');
    words
        .take(if text.starts_with("they") { 2 } else { 1 })
        .collect()
}

/// The script of a seed, and what came of it.
fn one(seed: u64, mutation: Option<Mutation>, of: &Membership) -> (Script, Result<(), Broken>) {
    let mut random = Random::new(seed);
    let (mut script, count) = invent::beginning(&mut random);
    let mut steps = Vec::new();
    let result = without_panic(|| {
        let mut play = Play::begin(&script, mutation, of)?;
        for _ in 0..count {
            invent::next(&mut play, &mut random, &mut steps)?;
        }
        play.end()
    });
    script.steps = steps;
    (script, result)
}

/// Gives the first step that could not be taken, if there is one.
fn run(
    script: &Script,
    mutation: Option<Mutation>,
    of: &Membership,
) -> Result<Option<String>, Broken> {
    without_panic(|| {
        let mut play = Play::begin(script, mutation, of)?;
        let mut left_out = None;
        for step in &script.steps {
            if !play.take(step)? {
                left_out.get_or_insert_with(|| step.to_string());
            }
        }
        play.end()?;
        Ok(left_out)
    })
}

/// An assertion of policy that fails is a broken promise.
fn without_panic<T>(run: impl FnOnce() -> Result<T, Broken>) -> Result<T, Broken> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
        let detail = text.unwrap_or_else(|| "a panic".to_owned());
        Err(Broken::new(super::runner::NO_ASSERTION, detail, Vec::new()))
    })
}

/// Leaves out what the broken promise does not need, piece by piece.
fn smallest(
    seed: Option<u64>,
    script: Script,
    broken: Broken,
    mutation: Option<Mutation>,
    of: &Membership,
) -> Quarrel {
    let (mut best, mut why) = (script, broken);
    loop {
        let smaller = shapes(&best).find_map(|shape| {
            let broken = run(&shape, mutation, of).err()?;
            (broken.promise == why.promise).then_some((shape, broken))
        });
        match smaller {
            Some(smaller) => (best, why) = smaller,
            None => return quarrel(seed, best, why),
        }
    }
}

/// A script without one of its steps, without something that was there in the beginning, or without staging.
fn shapes(script: &Script) -> impl Iterator<Item = Script> + use<'_> {
    let steps = (0..script.steps.len()).map(|at| {
        let mut less = script.clone();
        less.steps.remove(at);
        less
    });
    let start = (0..script.start.len()).rev().map(|at| {
        let mut less = script.clone();
        less.start.remove(at);
        less
    });
    let unstaged = script.stages.then(|| Script {
        stages: false,
        ..script.clone()
    });
    steps.chain(start).chain(unstaged)
}
