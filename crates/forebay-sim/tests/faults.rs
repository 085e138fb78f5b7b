//! The fault simulator as a test: many seeds keep every promise, and planted bugs are found.

use forebay_sim::faults::{Failure, FaultOptions, Mutation, Summary, run};

/// Seeds of a test run.
const SEEDS: u64 = 2_000;
/// A planted bug has to be found within so many seeds.
const SEEDS_PER_BUG: u64 = 500;

fn options(first_seed: u64, seeds: u64) -> FaultOptions {
    FaultOptions {
        first_seed,
        seeds,
        ..FaultOptions::default()
    }
}

/// Runs seeds that have to keep every promise.
fn keeps_promises(options: &FaultOptions) -> Summary {
    match run(options, &mut std::io::sink()) {
        Ok(summary) => summary,
        Err(Failure::Broken { report, .. }) => panic!("{report}"),
        Err(e) => panic!("{e}"),
    }
}

#[test]
fn two_thousand_seeds_keep_every_promise() {
    let summary = keeps_promises(&options(1, SEEDS));
    assert_eq!(summary.seeds, SEEDS);
    // They do something, and are disturbed in it.
    assert!(summary.operations > 20 * SEEDS, "{summary}");
    assert!(summary.messages > 20 * SEEDS, "{summary}");
    assert!(summary.crashes > 3 * SEEDS, "{summary}");
}

#[test]
fn seeds_that_once_failed_keep_every_promise() {
    let mut seeds = 0;
    for line in include_str!("corpus.txt").lines() {
        let seed = line.split('#').next().unwrap_or_default().trim();
        if !seed.is_empty() {
            keeps_promises(&options(seed.parse().unwrap(), 1));
            seeds += 1;
        }
    }
    assert!(seeds > 0, "the corpus is not empty");
}

#[test]
fn every_planted_bug_is_found() {
    for mutation in Mutation::ALL {
        let options = FaultOptions {
            mutation: Some(mutation),
            ..options(1, SEEDS_PER_BUG)
        };
        let mut report = Vec::new();
        let Err(Failure::Broken { seed, .. }) = run(&options, &mut report) else {
            panic!("{mutation:?} stays unnoticed");
        };
        let report = String::from_utf8(report).unwrap();
        assert!(report.contains(&format!("seed {seed}:")), "{report}");
        assert!(report.contains("broken promise:"), "{report}");
        assert!(report.contains(" ms  bridge 0"), "a trace: {report}");
        // Without the bug the very same run keeps every promise.
        keeps_promises(&self::options(seed, 1));
    }
}

#[test]
fn the_same_seed_is_the_same_run_to_the_last_message() {
    let trace = |seed| {
        let options = FaultOptions {
            trace: true,
            ..options(seed, 1)
        };
        let mut out = Vec::new();
        run(&options, &mut out).unwrap();
        out
    };
    for seed in 1..6 {
        let first = trace(seed);
        assert!(first.len() > 1000, "seed {seed} does something");
        assert!(first == trace(seed), "seed {seed}");
        assert!(first != trace(seed + 1), "seed {seed} is not the next one");
    }
}
