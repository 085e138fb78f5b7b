//! The fault simulator as a test: many seeds keep every promise, and planted bugs are found.

use forebay_sim::faults::{FaultOptions, run};

#[test]
fn the_same_seed_is_the_same_run_to_the_last_message() {
    let trace = |seed| {
        let options = FaultOptions {
            first_seed: seed,
            seeds: 1,
            trace: true,
            ..FaultOptions::default()
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
